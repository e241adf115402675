"""Patterns of arguments that an operator accepts: numbers of axes, and which are equal.

In arguments that were found, whose axes are all of one length, one axis after the other
gets another length, alone or together with others: what has to move together is one
size of the operator.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, cycle
from typing import Any, TypeAlias

import numpy as np

from customop.schema.parameters import MISSING
from customop.schema.tags import Tag
from customop.schema.types import OPERAND, parts
from customop.testing.inputs.numbers import families
from customop.testing.inputs.oracle import (
    NOISY,
    Filling,
    Oracle,
    Trial,
    arrays_of,
    random_state_kept,
    slots_of,
    strict_numbers,
    values_of,
)
from customop.testing.inputs.search import (
    Search,
    dtypes_for,
    forms,
    of_family,
    rank_rows,
)
from customop.testing.inputs.templates import OMITTED, Node, Seeded, choices

__all__ = ["Finding", "Group", "Pattern", "distinct", "find_patterns", "is_symmetric"]

# Seconds that each stage of a search may take.
_BUDGET = 0.3

Place: TypeAlias = tuple[int, int]


# ---- from one length to many ----


@dataclass(frozen=True, slots=True)
class Group:
    """Axes whose lengths go together, and the lengths that the first one can have.

    They are equal, or differ by as much as they do in the trial that was accepted.
    """

    places: tuple[Place, ...]
    lengths: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """Arguments that an operator accepts, for all lengths of the axes in its groups.

    `why` it is there beside others: other numbers of axes, ...
    """

    trial: Trial
    groups: tuple[Group, ...]
    why: str = "axes"

    def at(self, lengths: Sequence[int]) -> Trial:
        """The trial with a length for the first axis of each group."""
        trial = self.trial
        for group, length in zip(self.groups, lengths, strict=True):
            trial = _moved(trial, group.places, length)
        return trial


def _moved(trial: Trial, places: Sequence[Place], length: int) -> Trial:
    """The trial with another length of the first of these axes; the others follow."""
    shapes = [list(s) for s in trial.shapes]
    i, axis = places[0]
    step = length - shapes[i][axis]
    for i, axis in places:
        shapes[i][axis] += step
    return trial.with_shapes([tuple(s) for s in shapes])


_LENGTHS = (4, 2, 5, 6, 3, 1)


def generalize(oracle: Oracle, trial: Trial, why: str) -> Pattern:
    """Find which axes of an accepted trial can have other lengths, and together."""
    left = [(i, axis) for i, r in enumerate(trial.ranks) for axis in range(r)]
    groups = []
    while left and not oracle.exhausted:
        places, lengths = _group_of(oracle, trial, left)
        if lengths:
            own = trial.shapes[places[0][0]][places[0][1]]
            groups.append(Group(places, (own, *lengths)))
        left = [place for place in left if place not in places]
    return Pattern(trial, tuple(groups), why)


def _group_of(
    oracle: Oracle, trial: Trial, left: Sequence[Place]
) -> tuple[tuple[Place, ...], list[int]]:
    """The axes that move with the first one, and the lengths that they take."""
    first, *others = left
    own = trial.shapes[first[0]][first[1]]
    lengths = [n for n in _LENGTHS if n != own]
    for places in _companies(trial, first, others):
        if any(_takes(oracle, trial, places, n) for n in lengths[:2]):
            return places, [n for n in lengths if _takes(oracle, trial, places, n)]
    return (first,), []


def _companies(
    trial: Trial, first: Place, others: Sequence[Place]
) -> Iterator[tuple[Place, ...]]:
    """An axis alone, then with others: those of the same place in all arrays first."""
    yield (first,)
    seen: set[tuple[Place, ...]] = {(first,)}
    ranks = trial.ranks
    front = [p for p in others if p[1] == first[1]]
    back = [p for p in others if p[1] - ranks[p[0]] == first[1] - ranks[first[0]]]
    likely = [(first, *back), (first, *front)]
    pairs = [(first, p) for p in others]
    more = (
        [(first, *c) for size in (2, 3) for c in combinations(others, size)]
        if len(others) <= 10
        else []
    )
    for places in (*pairs, *likely, *more):
        if places not in seen:
            seen.add(places)
            yield places


def _takes(oracle: Oracle, trial: Trial, places: Sequence[Place], length: int) -> bool:
    moved = _moved(trial, places, length)
    fits = all(n >= 0 for s in moved.shapes for n in s)
    return fits and oracle.accepts(moved, NOISY)


# Lengths in the order of their use, from the most telling to the smallest arrays, and
# the elements that all arrays of a sample may have for it.
_PALETTES = (
    ((3, 2, 4, 5, 6, 3, 2), 60),
    ((2, 3, 4, 5, 6, 2, 3), 130),
    ((2, 2, 3, 3), 130),
    ((2, 1), 0),
)


def distinct(pattern: Pattern) -> Trial:
    """The trial with lengths that differ from one another, and few elements."""
    found = pattern.trial
    for palette, most in _PALETTES:
        pairs = zip(pattern.groups, cycle(palette), strict=False)
        lengths = [_near(group.lengths, wanted) for group, wanted in pairs]
        found = pattern.at(lengths)
        if found.size <= most:
            break
    return found


def _near(lengths: Sequence[int], wanted: int) -> int:
    return wanted if wanted in lengths else lengths[0]


# ---- all patterns of an operator ----


@dataclass(frozen=True, slots=True)
class Finding:
    """What a search has found.

    Attributes
    ----------
    patterns : list of Pattern
        The likeliest first.
    uses_fake : bool
        Whether the fake kernel was asked too.
    error : Exception or None
        What the kernels raised last, where nothing is found.
    """

    patterns: list[Pattern]
    uses_fake: bool = True
    error: Exception | None = None


def find_patterns(op: Any) -> Finding:
    """Patterns of arguments that an operator accepts.

    What may be left out is, if that helps to find any; a fake kernel that refuses
    everything is not asked.
    """
    error = None
    with strict_numbers(), random_state_kept():
        for with_defaults, uses_fake in _stages(op):
            oracle = Oracle(op, _BUDGET, uses_fake=uses_fake)
            search = Search(oracle, forms(op, with_defaults=with_defaults))
            found = search.run()
            if found:
                return Finding(_patterns(op, oracle, found), uses_fake)
            error = oracle.error
    return Finding([], error=error)


def _stages(op: Any) -> list[tuple[bool, bool]]:
    """Whether arguments with defaults are given, and whether the fake kernel is asked."""
    oracle = Oracle(op, 0.0)
    defaults = any(p.default is not MISSING for p in op.schema.parameters)
    fakes = [True] if oracle.fake is not None else []
    fakes += [False] if oracle.kernel is not None else []
    return [(d, f) for f in fakes for d in ((False, True) if defaults else (False,))]


def _settled(oracle: Oracle, trials: Sequence[Trial]) -> list[Trial]:
    """The trials, those of single numbers with numbers that suit larger arrays too.

    The sign of one number may suit a kernel by chance.
    """
    known = {len(t.fillings): t for t in trials if t.size > len(t.fillings)}
    settled = []
    for t in trials:
        like = known.get(len(t.fillings))
        if like is not None and t.size == len(t.fillings):
            pairs = zip(t.fillings, like.fillings, strict=True)
            other = Trial(t.form, tuple(of_family(a, b.family) for a, b in pairs))
            settled.append(other if oracle.accepts(other) else t)
        else:
            settled.append(t)
    return settled


def _patterns(op: Any, oracle: Oracle, found: list[Trial]) -> list[Pattern]:
    found = _settled(oracle, found)
    few = [t for t in found if max(t.ranks, default=0) < 4]
    # Four axes tell nothing that two and three do not, where they are accepted too.
    found = few if len({t.ranks for t in few}) > 1 else found
    axes, others = _diverse([t for t in found if _is_meant(op, oracle, t)] or found)
    patterns = [generalize(oracle, t, "axes") for t in axes]
    patterns += [
        Pattern(t, (), "broadcast")
        for p in patterns[:4]
        for t in _stretched(op, oracle, distinct(p), p.groups)
    ]
    patterns += [generalize(oracle, t, "values") for t in others]
    small = [p for p in patterns if max(p.trial.ranks, default=0) <= 2]
    richest = max(small or patterns[:1], key=lambda p: len(p.groups))
    more = _extended(op, oracle, richest.trial)
    return [*patterns, *(generalize(oracle, t, "options") for t in more)]


def _diverse(trials: Sequence[Trial], most: int = 8) -> tuple[list[Trial], list[Trial]]:
    """Trials that differ in their numbers of axes, then those of other values."""
    ranks: set[Any] = set()
    forms: set[int] = set()
    axes, values = [], []
    for t in trials:
        if t.ranks not in ranks:
            axes.append(t)
        elif id(t.form) not in forms:
            values.append(t)
        ranks.add(t.ranks)
        forms.add(id(t.form))
    return axes[:most], values[:most]


_TWINS = (
    {"x", "y"}, {"a", "b"}, {"lhs", "rhs"}, {"left", "right"}, {"p", "q"}, {"u", "v"},
    {"first", "second"}, {"x", "y", "z"}, {"a", "b", "c"},
)  # fmt: skip


def is_symmetric(op: Any) -> bool:
    """Whether the arrays of an operator play equal parts, so that any may be larger."""
    if Tag.pointwise in op.tags:
        return True
    arrays = [op.schema.parameters[i] for i in op.array_slots]
    if any(OPERAND in parts(p.type) for p in arrays):
        return True
    names = {p.name for p in arrays}
    return names in _TWINS or len({n.rstrip("0123456789_") for n in names}) == 1


# Words in names of arrays that an operator is given beside what it works on.
_BESIDE = {
    "weight", "weights", "bias", "scale", "gamma", "beta", "mean", "var", "std",
    "sigma", "mu", "w", "kernel", "filter", "taps", "shift", "offset", "factor",
    "mask", "running", "table", "coefficients",
}  # fmt: skip


def _is_meant(op: Any, oracle: Oracle, trial: Trial) -> bool:
    """Whether the arrays are meant to have these shapes, and not only happen to fit.

    An array that is larger than the first may be broadcast by chance, as a bias is.
    """
    if len(trial.fillings) < 2 or is_symmetric(op):
        return True
    first, *rest = trial.fillings
    larger = [f for f in rest if len(f.shape) > len(first.shape)]
    if not any(f.dtype == first.dtype for f in larger):
        return True
    return oracle.agrees(trial) or _broadcasts(oracle, trial)


def _broadcasts(oracle: Oracle, trial: Trial) -> bool:
    """Whether the kernel broadcasts arrays that play equal parts, as far as one sees."""
    names = [set(slot.name.split("_")) for slot in slots_of(trial.form)]
    if any(words & _BESIDE for words in names):
        return False
    values = values_of(oracle.op, trial.form, iter(arrays_of(trial)))
    try:
        whole = np.broadcast_shapes(*trial.shapes)
    except ValueError:
        return False
    return [shape for shape, _ in oracle.given(values) or []] == [whole]


def _stretched(
    op: Any, oracle: Oracle, trial: Trial, groups: Sequence[Group]
) -> Iterator[Trial]:
    """Trials with an axis of length one in one array alone, as broadcasting has it."""
    shared = [group.places for group in groups if len(group.places) > 1]
    if not shared:
        return
    for i, axis in (shared[-1][-1], shared[0][0]):
        shapes = trial.shapes
        shapes[i] = (*shapes[i][:axis], 1, *shapes[i][axis + 1 :])
        other = trial.with_shapes(shapes)
        if not oracle.accepts(other):
            continue
        if i > 0 or is_symmetric(op) or _broadcasts(oracle, other):
            yield other


# ---- arguments that may be left out ----


def _extended(op: Any, oracle: Oracle, base: Trial) -> Iterator[Trial]:
    """The trial with other arguments: each that may be left out, then all of them."""
    whole = base
    for i, p in enumerate(op.schema.parameters):
        given = [v for v in choices(p) if not _is_same(v, base.form[i])][:4]
        found = [t for v in given for t in _with(oracle, base, i, v)]
        yield from found
        if found and p.default is not MISSING:
            filled = next(
                (t for v in given if v is not None for t in _with(oracle, whole, i, v)),
                whole,
            )
            whole = filled
    if sum(v is not OMITTED for v in whole.form) > 1 + sum(
        v is not OMITTED for v in base.form
    ):
        yield whole


def _is_same(template: Any, other: Any) -> bool:
    """Whether two templates stand for the same values."""
    if type(template) is not type(other):
        return False
    if type(template) is Node:
        pairs = zip(template.items, other.items, strict=False)
        alike = len(template.items) == len(other.items)
        return alike and all(_is_same(a, b) for a, b in pairs)
    return isinstance(template, Seeded) or bool(template == other)


def _with(oracle: Oracle, base: Trial, i: int, template: Any) -> list[Trial]:
    """The trial with another template for a parameter, if the kernels take it."""
    form = (*base.form[:i], template, *base.form[i + 1 :])
    before = len(slots_of(base.form[:i]))
    after = before + len(slots_of((base.form[i],)))
    new = slots_of((template,))
    kept = (base.fillings[:before], base.fillings[after:])
    length = next((n for s in base.shapes for n in s), 3)
    for dtypes in dtypes_for(new):
        for ranks in rank_rows(len(new))[:30]:
            added = tuple(
                Filling((length,) * r, d, families(d.kind)[0])
                for r, d in zip(ranks, dtypes, strict=True)
            )
            trial = Trial(form, (*kept[0], *added, *kept[1]))
            if oracle.accepts(trial):
                return [trial]
            if oracle.exhausted:
                return []
    return []
