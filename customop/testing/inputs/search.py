"""The search for arguments that the kernels of an operator accept.

Arrays of all numbers of axes are tried, in rounds. The first rounds use floats and axes
of one length, which most operators accept for the right numbers of axes. Later rounds
try other dtypes, numbers and lengths.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from customop.arrays.dtypes import is_element
from customop.core.operator import Operator
from customop.schema.parameters import MISSING
from customop.shapes.notation import Shape
from customop.testing.inputs.numbers import SHAPED, families
from customop.testing.inputs.oracle import CLEAN, NOISY, Oracle
from customop.testing.inputs.templates import (
    OMITTED,
    Form,
    Slot,
    by_cost,
    choices,
    forms_of,
    slots_of,
)
from customop.testing.inputs.trials import Filling, Trial

__all__ = ["Search", "dtypes_for", "forms", "rank_rows"]

# Forms that are tried, rows of numbers of axes for each, and accepted trials of a round.
_FORMS = 80
_RANKS = 700
_ENOUGH = 40
# Trials of a round after the first accepted one.
_MORE = 150


# ---- numbers of axes, the likeliest first ----

_RANK_COST = {1: 0, 2: 1, 0: 2, 3: 3, 4: 5}


@lru_cache(maxsize=16)
def rank_rows(count: int) -> tuple[tuple[int, ...], ...]:
    """Numbers of axes of several arrays; equal numbers come first."""
    rows = by_cost([tuple(_RANK_COST)] * count, _RANKS)
    return tuple(sorted(rows, key=_rank_cost))


def _rank_cost(ranks: Sequence[int]) -> int:
    spread = max(ranks, default=0) - min(ranks, default=0)
    return sum(_RANK_COST[r] for r in ranks) + spread


def _rank_rows_for(slots: Sequence[Slot]) -> Sequence[tuple[int, ...]]:
    """Numbers of axes of arrays, as their annotations allow."""
    if all(slot.shape is None for slot in slots):
        return rank_rows(len(slots))
    return list(by_cost([_allowed_ranks(slot.shape) for slot in slots], _RANKS))


def _allowed_ranks(shape: Shape | None) -> tuple[int, ...]:
    if shape is None:
        return tuple(_RANK_COST)
    single = len(shape.axes)
    return (single,) if shape.loop is None else (single, single + 1, single + 2)


# ---- dtypes, the likeliest first ----

_FLOAT, _INT, _BOOL, _COMPLEX = (np.dtype(n) for n in ("f8", "i8", "?", "c16"))
_WORDS = {
    "index indices idx ids id labels label segments bins rows cols starts stops"
    " offsets lengths perm permutation codes tokens": _INT,
    "mask condition cond where keep valid flags select": _BOOL,
}
# Some kernels take nothing else: images, samples of sound, ...
_SHORT = [np.dtype(n) for n in ("u1", "f4", "i4", "u2", "i2", "c8")]
# The first of these that fits an annotation is used.
_COMMON = [
    np.dtype(name)
    for name in "f8 i8 ? c16 u8 f4 i4 f2 i2 i1 u4 u2 u1 c8".split()  # noqa: SIM905  # reads as a table
]


def _hinted(slot: Slot) -> np.dtype[Any]:
    """The dtype that the annotation of an array says, or that its name suggests."""
    if slot.element != "Array":
        allowed = [d for d in _COMMON if is_element(slot.element, d)]
        return allowed[0] if allowed else _FLOAT
    words = set(slot.name.replace("0", "_").split("_"))
    found = [dtype for names, dtype in _WORDS.items() if words & set(names.split())]
    return found[0] if found else _FLOAT


def dtypes_for(slots: Sequence[Slot]) -> list[tuple[np.dtype[Any], ...]]:
    """Rows of dtypes to try in some slots, the likeliest first."""
    rows = [
        tuple(map(_hinted, slots)),
        *[(d,) * len(slots) for d in (_FLOAT, _BOOL, _INT)],
    ]
    return list(dict.fromkeys(rows))


# ---- rounds ----


class _Round(NamedTuple):
    """How a round fills the slots of a form.

    Attributes
    ----------
    length : int
        Length of all axes.
    dtype : dtype, optional
        By default annotations and names decide.
    family : str
        Numbers for arrays of floats; by default the plainest.
    place : int, optional
        The only slot that gets `dtype` and `family`; by default all do.
    last : tuple of int, optional
        A slot whose last axis has another length, and that length.
    """

    length: int = 3
    dtype: np.dtype[Any] | None = None
    family: str = ""
    place: int | None = None
    last: tuple[int, int] | None = None

    def suits(self, slots: Sequence[Slot]) -> bool:
        """Whether the round differs from the first one for these slots."""
        if self.place is not None:
            return self.place < len(slots)
        return bool(slots) or self.dtype is None

    def numbers(self, slots: Sequence[Slot]) -> tuple[tuple[Any, str], ...]:
        """Dtype and family for each slot."""
        return tuple(self._numbers(i, slot) for i, slot in enumerate(slots))

    def _numbers(self, i: int, slot: Slot) -> tuple[Any, str]:
        is_chosen = self.place in (None, i)
        dtype = (self.dtype if is_chosen else None) or _hinted(slot)
        if is_chosen and self.family and dtype.kind == "f":
            return dtype, self.family
        return dtype, families(dtype.kind)[0]

    def shape(self, i: int, slot: Slot, rank: int) -> tuple[int, ...]:
        """The shape for a slot, in which its annotation has the last word."""
        lengths = [self.length] * rank
        if rank and self.last is not None and self.last[0] == i:
            lengths[-1] = self.last[1]
        return tuple(lengths) if slot.shape is None else _lengths(slot.shape, lengths)


def _lengths(shape: Shape, lengths: Sequence[int]) -> tuple[int, ...]:
    length = max(lengths, default=3)
    sizes = dict.fromkeys(shape.names, length)
    count = len(lengths) - len(shape.axes)
    loops = {} if shape.loop is None else {shape.loop.name: (length,) * count}
    return shape.lengths(sizes, loops)


_LASTS = ((3, 2), (4, 3), (3, 4), (2, 3), (4, 2), (2, 4))

# From the likeliest on.
_ROUNDS = (
    _Round(),
    _Round(dtype=_FLOAT),
    *(_Round(dtype=_INT, place=i) for i in (1, 0, 2, 3)),
    *(_Round(dtype=_BOOL, place=i) for i in (0, 1, 2, 3)),
    *(_Round(length=n) for n in (4, 2)),
    _Round(family="positive"),
    *(_Round(dtype=d) for d in (_INT, _BOOL, _COMPLEX)),
    *(_Round(family=name) for name in ("above one", *SHAPED)),
    *(_Round(dtype=_FLOAT, family=f, place=i) for f in SHAPED for i in range(3)),
    *(_Round(dtype=_COMPLEX, place=i) for i in range(3)),
    *(_Round(length=4, dtype=_INT, place=i) for i in (1, 0, 2)),
    *(_Round(length=n, last=(i, m)) for n, m in _LASTS for i in (1, 0, 2)),
    *(_Round(length=n) for n in (6, 1, 8)),
    *(_Round(length=4, family=name) for name in SHAPED),
    *(_Round(dtype=d) for d in _SHORT),
)


# ---- the search ----


def forms(op: Operator[..., Any], *, with_defaults: bool) -> list[Form]:
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
        self.slots: list[list[Slot]] = [slots_of(form) for form in tried]
        self.noisy: list[Trial] = []
        self.fitting: dict[Any, bool] = {}

    def run(self) -> list[Trial]:
        """Trials of the first round that has any; noisy ones where there are none."""
        seen = set()
        # Arrays of one number may be accepted by chance: any rank, a lucky sign.
        single: list[Trial] = []
        for found_in in _ROUNDS:
            numbers = [
                found_in.numbers(s) if found_in.suits(s) else None for s in self.slots
            ]
            key = (found_in.length, found_in.last, *numbers)
            if key in seen:
                continue
            seen.add(key)
            found = self._round(found_in, numbers)
            if any(any(t.ranks) for t in found) or (found and not any(self.slots)):
                return found
            single = single or found
            if self.oracle.exhausted:
                break
        return single or self.noisy[:8]

    def _round(self, rules: _Round, numbers: Sequence[Any]) -> list[Trial]:
        found: list[Trial] = []
        left = _MORE
        for i, ranks in self._interleaved():
            if numbers[i] is None:
                continue
            rows = zip(self.slots[i], ranks, numbers[i], strict=True)
            fillings = tuple(
                Filling(rules.shape(j, slot, rank), dtype, family)
                for j, (slot, rank, (dtype, family)) in enumerate(rows)
            )
            trial = self._accepted(i, Trial(self.forms[i], fillings))
            if trial is not None:
                found.append(trial)
            left -= bool(found)
            if left < 0 or len(found) >= _ENOUGH or self.oracle.exhausted:
                break
        return found

    def _interleaved(self) -> Iterator[tuple[int, tuple[int, ...]]]:
        """Pairs of a form and numbers of axes, the likely ones of both first."""

        def pairs(i: int) -> Iterator[tuple[int, int, tuple[int, ...]]]:
            rows = _rank_rows_for(self.slots[i])
            return ((2 * i + j // 4, i, ranks) for j, ranks in enumerate(rows))

        merged = heapq.merge(*map(pairs, range(len(self.forms))))
        return ((i, ranks) for _, i, ranks in merged)

    def _accepted(self, i: int, trial: Trial) -> Trial | None:
        key = (i, *[(f.shape, f.dtype) for f in trial.fillings])
        if key not in self.fitting:
            self.fitting[key] = self.oracle.fits_trial(trial)
        return self._quietest(trial) if self.fitting[key] else None

    def _quietest(self, trial: Trial) -> Trial | None:
        """The trial with numbers that the kernel takes silently, or None."""
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
    """The trial with numbers of another family: in all arrays, then in one of them."""
    names = families("f")[1:]
    count = families("i")[1]
    for name in (*names, count):
        yield _with_families(trial, name, range(len(trial.fillings)))
    if len(trial.fillings) > 1:
        for name in names:
            for i in range(len(trial.fillings)):
                yield _with_families(trial, name, [i])


def _with_families(trial: Trial, family: str, places: Sequence[int]) -> Trial:
    fillings = [
        f.of_family(family) if i in places else f for i, f in enumerate(trial.fillings)
    ]
    return replace(trial, fillings=tuple(fillings))
