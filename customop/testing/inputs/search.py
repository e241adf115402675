"""The search for arguments that the kernels of an operator accept.

Arrays of all numbers of axes are tried, in rounds: at first of floats, all of whose axes
have one length, which most operators accept for the right numbers of axes; then of other
dtypes, numbers and lengths.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, lru_cache
from typing import Any, TypeAlias

import numpy as np

from customop.arrays.dtypes import is_element
from customop.schema.parameters import MISSING
from customop.shapes.notation import Shape
from customop.testing.inputs.numbers import SHAPED, families
from customop.testing.inputs.oracle import (
    CLEAN,
    NOISY,
    Filling,
    Oracle,
    Trial,
    slots_of,
)
from customop.testing.inputs.templates import (
    OMITTED,
    Form,
    Slot,
    by_cost,
    choices,
    forms_of,
)

__all__ = ["Search", "dtypes_for", "forms", "of_family", "rank_rows"]

_FORMS = 80
_RANKS = 700
# Trials beyond the first that is accepted.
_MORE = 150


# ---- numbers of axes, the likeliest first ----

_RANK_COST = {1: 0, 2: 1, 0: 2, 3: 3, 4: 5}


@lru_cache(maxsize=16)
def rank_rows(count: int) -> tuple[tuple[int, ...], ...]:
    """Numbers of axes of several arrays; those that are alike come first."""
    rows = by_cost([tuple(_RANK_COST)] * count, _RANKS)
    return tuple(sorted(rows, key=_rank_cost))


def _rank_cost(ranks: Sequence[int]) -> int:
    spread = max(ranks, default=0) - min(ranks, default=0)
    return sum(_RANK_COST[r] for r in ranks) + spread


# ---- dtypes and numbers, the likeliest first ----

_FLOAT, _INT, _BOOL, _COMPLEX = (np.dtype(n) for n in ("f8", "i8", "?", "c16"))
_WORDS = {
    "index indices idx ids id labels label segments bins rows cols starts stops"
    " offsets lengths perm permutation codes tokens": _INT,
    "mask condition cond where keep valid flags select": _BOOL,
}

# What a round of the search fills the places of a form with, or None to leave it out.
_Kinds: TypeAlias = tuple[tuple[Any, str], ...]
_KindsOf: TypeAlias = Callable[[Sequence[Slot]], _Kinds | None]
# Shape of the array in a place, by the number of its axes.
_ShapeOf: TypeAlias = Callable[[int, int], tuple[int, ...]]
_Round: TypeAlias = tuple[_ShapeOf, _KindsOf]


# What kernels take that take nothing else: images, samples of sound, ...
_SHORT = [np.dtype(n) for n in ("u1", "f4", "i4", "u2", "i2", "c8")]

# In the order in which those that fit an annotation are chosen.
_COMMON = [
    np.dtype(name)
    for name in (
        "f8",
        "i8",
        "?",
        "c16",
        "u8",
        "f4",
        "i4",
        "f2",
        "i2",
        "i1",
        "u4",
        "u2",
        "u1",
        "c8",
    )
]


def _hinted(slot: Slot) -> np.dtype[Any]:
    """The dtype that the annotation of an array says, or its name hints at."""
    if slot.element != "Array":
        said = [d for d in _COMMON if is_element(slot.element, d)]
        return said[0] if said else _FLOAT
    words = set(slot.name.replace("0", "_").split("_"))
    found = [dtype for names, dtype in _WORDS.items() if words & set(names.split())]
    return found[0] if found else _FLOAT


def _by_hints(family: str = "wide") -> _KindsOf:
    def kinds(places: Sequence[Slot]) -> _Kinds:
        return tuple((_hinted(slot), _family(_hinted(slot), family)) for slot in places)

    return kinds


def _family(dtype: np.dtype[Any], family: str) -> str:
    return families(dtype.kind)[0] if dtype.kind != "f" else family


def _all_of(dtype: np.dtype[Any], family: str = "") -> _KindsOf:
    name = family or families(dtype.kind)[0]
    return lambda places: ((dtype, name),) * len(places) if places else None


def _one_of(i: int, dtype: np.dtype[Any], family: str = "") -> _KindsOf:
    """One place differs from what the names hint at."""
    name = family or families(dtype.kind)[0]

    def kinds(places: Sequence[Slot]) -> _Kinds | None:
        if i >= len(places):
            return None
        rest = _by_hints()(places) or ()
        return (*rest[:i], (dtype, name), *rest[i + 1 :])

    return kinds


@cache
def _even(length: int) -> _ShapeOf:
    """All axes of one length."""
    return lambda i, rank: (length,) * rank


@cache
def _mixed(length: int, place: int, last: int) -> _ShapeOf:
    """All axes of one length, but for the last one of an array."""

    def shape(i: int, rank: int) -> tuple[int, ...]:
        if i == place and rank:
            return (*(length,) * (rank - 1), last)
        return (length,) * rank

    return shape


def _rounds() -> Iterator[_Round]:
    """Lengths of axes, dtypes and numbers, from the likeliest on."""
    three = _even(3)
    yield three, _by_hints()
    yield three, _all_of(_FLOAT)
    yield from ((three, _one_of(i, _INT)) for i in (1, 0, 2, 3))
    yield from ((three, _one_of(i, _BOOL)) for i in (0, 1, 2, 3))
    yield from ((_even(n), _by_hints()) for n in (4, 2))
    yield three, _by_hints("positive")
    yield three, _all_of(_INT)
    yield three, _all_of(_BOOL)
    yield three, _all_of(_COMPLEX)
    yield from ((three, _by_hints(name)) for name in ("above one", *SHAPED))
    yield from ((three, _one_of(i, _FLOAT, name)) for name in SHAPED for i in range(3))
    yield from ((three, _one_of(i, _COMPLEX)) for i in range(3))
    yield from ((_even(4), _one_of(i, _INT)) for i in (1, 0, 2))
    for length, last in ((3, 2), (4, 3), (3, 4), (2, 3), (4, 2), (2, 4)):
        yield from ((_mixed(length, i, last), _by_hints()) for i in (1, 0, 2))
    yield from ((_even(n), _by_hints()) for n in (6, 1, 8))
    yield from ((_even(4), _by_hints(name)) for name in SHAPED)
    yield from ((three, _all_of(dtype)) for dtype in _SHORT)


# ---- the search ----


def _interleaved(
    forms: Sequence[Form], places: Sequence[Sequence[Slot]]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Pairs of a form and numbers of axes, the likely ones of both first."""

    def pairs(i: int) -> Iterator[tuple[int, int, tuple[int, ...]]]:
        rows = _rows_for(places[i])
        return ((2 * i + j // 4, i, ranks) for j, ranks in enumerate(rows))

    merged = heapq.merge(*(pairs(i) for i in range(len(forms))))
    return ((i, ranks) for _, i, ranks in merged)


# ---- shapes that annotations say ----


def _rows_for(places: Sequence[Slot]) -> Sequence[tuple[int, ...]]:
    """Numbers of axes of arrays, as their annotations allow."""
    if all(p.shape is None for p in places):
        return rank_rows(len(places))
    columns = [_RANKS_OF_ANY if p.shape is None else _allowed(p.shape) for p in places]
    return list(by_cost(columns, _RANKS))


_RANKS_OF_ANY = tuple(_RANK_COST)


def _allowed(shape: Shape) -> tuple[int, ...]:
    single = len(shape.axes)
    return (single,) if shape.loop is None else (single, single + 1, single + 2)


def _said(slot: Slot, lengths: tuple[int, ...]) -> tuple[int, ...]:
    """The lengths of an array, where its annotation says other ones."""
    if slot.shape is None:
        return lengths
    length = max(lengths, default=3)
    sizes = dict.fromkeys(slot.shape.names, length)
    count = len(lengths) - len(slot.shape.axes)
    loops = {} if slot.shape.loop is None else {slot.shape.loop.name: (length,) * count}
    return slot.shape.lengths(sizes, loops)


def forms(op: Any, *, with_defaults: bool) -> list[Form]:
    """Forms of a call of an operator, the likeliest first."""
    columns = []
    for p in op.schema.parameters:
        is_free = with_defaults or p.default is MISSING
        columns.append(choices(p) if is_free else [OMITTED])
    return forms_of(columns, _FORMS)


class Search:
    """A search for trials that an oracle accepts."""

    def __init__(self, oracle: Oracle, tried: Sequence[Form]) -> None:
        self.oracle = oracle
        self.forms = tried
        self.places: list[list[Slot]] = [slots_of(form) for form in tried]
        self.noisy: list[Trial] = []
        self.known: dict[Any, bool] = {}

    def run(self) -> list[Trial]:
        """Trials of the first round that has any; those with complaints last."""
        seen = set()
        # One number may be accepted by chance: it needs no rank, and its sign fits.
        single: list[Trial] = []
        for shape_of, kinds in _rounds():
            asked = (shape_of, tuple(kinds(places) for places in self.places))
            if asked in seen:
                continue
            seen.add(asked)
            found = self._round(*asked)
            if any(any(t.ranks) for t in found) or (found and not any(self.places)):
                return found
            single = single or found
            if self.oracle.exhausted:
                break
        return single or self.noisy[:8]

    def _round(self, shape_of: _ShapeOf, kinds: Sequence[_Kinds | None]) -> list[Trial]:
        found: list[Trial] = []
        left = _MORE
        for i, ranks in _interleaved(self.forms, self.places):
            chosen = kinds[i]
            if chosen is None:
                continue
            told = [shape_of(j, rank) for j, rank in enumerate(ranks)]
            shapes = [
                _said(slot, s) for slot, s in zip(self.places[i], told, strict=True)
            ]
            pairs = zip(shapes, chosen, strict=True)
            fillings = tuple(Filling(s, d, family) for s, (d, family) in pairs)
            trial = self._accepted(i, Trial(self.forms[i], fillings))
            if trial is not None:
                found.append(trial)
            left -= bool(found)
            if left < 0 or (len(found) >= 40) or self.oracle.exhausted:
                break
        return found

    def _accepted(self, i: int, trial: Trial) -> Trial | None:
        key = (i, *[(f.shape, f.dtype) for f in trial.fillings])
        if key not in self.known:
            self.known[key] = self.oracle.fits_fake(trial)
        return self._quietest(trial) if self.known[key] else None

    def _quietest(self, trial: Trial) -> Trial | None:
        """The trial with numbers that the kernel takes without a complaint, or None."""
        outcome = self.oracle.outcome(trial)
        if outcome == CLEAN:
            return trial
        if outcome == NOISY:
            for other in _other_numbers(trial):
                if self.oracle.outcome(other) == CLEAN:
                    return other
            self.noisy.append(trial)
        return None


def _other_numbers(trial: Trial) -> Iterator[Trial]:
    """The same arrays of other numbers: all of another family, then one of them."""
    names = families("f")[1:]
    for name in names:
        yield Trial(trial.form, tuple(of_family(f, name) for f in trial.fillings))
    count = families("i")[1]
    if any(f.dtype.kind in "iu" for f in trial.fillings):
        yield Trial(trial.form, tuple(of_family(f, count) for f in trial.fillings))
    if len(trial.fillings) > 1:
        for name in names:
            for i, f in enumerate(trial.fillings):
                before, after = trial.fillings[:i], trial.fillings[i + 1 :]
                yield Trial(trial.form, (*before, of_family(f, name), *after))


def of_family(filling: Filling, family: str) -> Filling:
    """The filling with numbers of a family, if its dtype has it."""
    kind = filling.dtype.kind
    return replace(filling, family=family) if family in families(kind) else filling


def dtypes_for(new: Sequence[Slot]) -> list[tuple[np.dtype[Any], ...]]:
    """Dtypes to try in some places, the likeliest first."""
    hinted = tuple(map(_hinted, new))
    rows = [hinted, *[(d,) * len(new) for d in (_FLOAT, _BOOL, _INT)]]
    return list(dict.fromkeys(rows))
