"""Inputs for an operator, and patterns of inputs: which axes must have equal lengths.

A search finds arrays whose axes all have one length. Then each axis gets another
length, alone or together with others. Axes that can only change together share one size
of the operator.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, cycle, islice, zip_longest
from typing import Any, TypeAlias

import numpy as np

from customop.core.codegen import without_signature
from customop.core.dispatch import find_kernel
from customop.core.operator import Operator
from customop.core.samples import Sample
from customop.errors import ArgumentError, place
from customop.schema.tags import Tag
from customop.schema.types import MISSING, OPERAND, Base, ListOf, parts
from customop.testing.inputs.search import (
    CLEAN,
    NOISY,
    Oracle,
    Search,
    dtypes_for,
    forms,
    rank_rows,
)
from customop.testing.inputs.templates import (
    OMITTED,
    Filling,
    Holder,
    Trial,
    call_of,
    choices,
    families,
    names_axes,
    slots_of,
)
from customop.testing.quiet import random_state_kept, strict_numbers

# ---- inputs for an operator: registered ones, or ones that its kernels accept ----

# The number of an array, and one of its axes.
_Axis: TypeAlias = tuple[int, int]


def base_samples(
    op: Operator[..., Any], count: int = 10, seed: int = 0
) -> list[Sample]:
    """Return arguments that an operator runs on, small ones first.

    Parameters
    ----------
    op : Operator
    count : int
        The most samples to return.
    seed : int
        Each seed gives other numbers in the arrays.

    Returns
    -------
    list of Sample
        The samples of `Operator.register_sample_inputs`. If there are none, arguments
        that the kernels of the operator accept. The fake kernel decides which shapes
        fit; then the kernel is called.

    Raises
    ------
    ArgumentError
        If none are found, or a registered sample does not fit the schema.
    """
    return registered_samples(op, count) or _found(op, count, seed)


def registered_samples(op: Operator[..., Any], count: int = 10) -> list[Sample]:
    """Return the samples of `register_sample_inputs`; raise if they do not fit."""
    return [_checked(op, sample) for sample in op.sample_inputs()[:count]]


def _found(op: Operator[..., Any], count: int, seed: int) -> list[Sample]:
    found = patterns_of(op)
    oracle = Oracle(op, uses_fake=found.uses_fake)
    if found.was_slow:
        count = min(count, _SAMPLES_OF_SLOW)
    trials = _accepted(oracle, _trials(found.patterns), count, seed)
    if not trials:
        raise _none_found(op, oracle.error)
    trials.sort(key=lambda trial: trial.size)
    return [call_of(op.schema, t.row(t.arrays(seed), seed)) for t in trials]


# How many samples of a slow kernel are looked for.
_SAMPLES_OF_SLOW = 3


def patterns_of(op: Operator[..., Any]) -> Patterns:
    """Return patterns of arguments that an operator accepts, found once and cached.

    Raises
    ------
    ArgumentError
        If no pattern is found.
    """
    plans = op.plans
    if plans.patterns is None:
        plans.patterns = find_patterns(op)
    found: Patterns = plans.patterns
    if not found.patterns:
        raise _none_found(op, found.error)
    return found


def _none_found(op: Operator[..., Any], error: Exception | None) -> ArgumentError:
    last = "" if error is None else f"; the last error was {type(error).__name__}: "
    text = "" if error is None else str(error).partition("\n")[0]
    return op.error(
        ArgumentError,
        f"no inputs are found that its kernels accept{last}{text}",
        f"at {place(find_kernel(op, 'cpu') or op.__wrapped__)}",
        do=f"@{op.name}.register_sample_inputs, a function that returns a list of"
        " tuples of arguments, or pass args",
    )


def _checked(op: Operator[..., Any], sample: Sample) -> Sample:
    """Return a registered sample after checking that it fits the schema."""
    try:
        op.bind(*sample.args, **sample.kwargs)
    except ArgumentError:
        raise
    except TypeError as error:
        raise op.error(
            ArgumentError,
            "a sample of register_sample_inputs does not fit: "
            + without_signature(op.call, error),
            do="give it the arguments of a call",
        ) from None
    return sample


# ---- samples from patterns ----


def _trials(patterns: Sequence[Pattern]) -> Iterator[Trial]:
    """Yield trials for samples: one of each kind of pattern, then the next of each."""
    sorts = [
        [distinct(p) for p in patterns if p.why == why]
        for why in ("axes", "broadcast", "options", "values")
    ]
    sorts.insert(1, other_lengths(patterns))
    for row in zip_longest(*sorts):
        yield from (trial for trial in row if trial is not None)


def _accepted(
    oracle: Oracle, trials: Iterator[Trial], count: int, seed: int
) -> list[Trial]:
    """Return different trials that the kernels accept, noisy ones only if needed."""
    found: tuple[dict[Trial, None], ...] = ({}, {})
    with strict_numbers(), random_state_kept():
        for trial in trials:
            if len(found[CLEAN]) == count or (found[CLEAN] and oracle.was_slow):
                break
            if oracle.fits_trial(trial):
                outcome = oracle.outcome(trial, seed)
                if outcome <= NOISY:
                    found[outcome][trial] = None
    return [*(found[CLEAN] or found[NOISY])][:count]


# ---- all patterns of an operator ----


@dataclass(frozen=True, slots=True)
class Patterns:
    """The result of a search.

    Attributes
    ----------
    patterns : list of Pattern
        The likeliest first.
    uses_fake : bool
        Whether the fake kernel was used.
    error : Exception or None
        The last error of the kernels if nothing was found.
    was_slow : bool
        Whether the search ended early, since the kernels take long.
    seconds_a_call : float
        How long a call took on average.
    """

    patterns: list[Pattern]
    uses_fake: bool = True
    error: Exception | None = None
    was_slow: bool = False
    seconds_a_call: float = 0.0


def find_patterns(op: Operator[..., Any]) -> Patterns:
    """Find patterns of arguments that an operator accepts.

    Arguments with defaults are given only if nothing is found without them. A fake
    kernel that refuses everything is ignored.
    """
    error = None
    with strict_numbers(), random_state_kept():
        for with_defaults, uses_fake in _stages(op):
            oracle = Oracle(op, uses_fake=uses_fake)
            found = Search(oracle, forms(op, with_defaults=with_defaults)).run()
            if found:
                patterns = _patterns(op, oracle, found)
                return Patterns(
                    patterns,
                    uses_fake,
                    was_slow=oracle.was_slow,
                    seconds_a_call=oracle.seconds_a_call,
                )
            error = oracle.error
    return Patterns([], error=error)


def _stages(op: Operator[..., Any]) -> list[tuple[bool, bool]]:
    """Return pairs to try: (give optional arguments, use the fake kernel)."""
    oracle = Oracle(op)
    defaults = any(p.default is not MISSING for p in op.schema.parameters)
    fakes = [True] if oracle.fake is not None else []
    fakes += [False] if oracle.kernel is not None else []
    return [(d, f) for f in fakes for d in ((False, True) if defaults else (False,))]


def _patterns(
    op: Operator[..., Any], oracle: Oracle, found: list[Trial]
) -> list[Pattern]:
    found = _settled(oracle, found)
    few = [t for t in found if max(t.ranks, default=0) < 4]
    # Four axes show nothing that two and three axes do not show, if those are accepted.
    found = few if len({t.ranks for t in few}) > 1 else found
    most = _SAMPLES_OF_SLOW if oracle.was_slow else len(found)
    meant = [*islice((t for t in found if _is_meant(op, oracle, t)), most)]
    axes, others = _diverse(meant or found)
    patterns = [generalize(oracle, t, "axes") for t in axes]
    if oracle.was_slow:
        return patterns
    patterns += [
        Pattern(t, (), "broadcast")
        for p in patterns[:4]
        for t in _stretched(op, oracle, distinct(p), p.groups)
    ]
    patterns += [generalize(oracle, t, "values") for t in others]
    small = [p for p in patterns if max(p.trial.ranks, default=0) <= 2]
    richest = max(small or patterns[:1], key=lambda p: len(p.groups))
    more = [*_with_axes(op, oracle, found), *_extended(op, oracle, richest.trial)]
    return [*patterns, *(generalize(oracle, t, "options") for t in more)]


def _settled(oracle: Oracle, trials: Sequence[Trial]) -> list[Trial]:
    """Return the trials; single numbers get the family that larger arrays use.

    The sign of a single number may suit a kernel by chance.
    """
    larger = {len(t.fillings): t for t in trials if t.size > len(t.fillings)}
    settled = []
    for t in trials:
        other = larger.get(len(t.fillings))
        if other is not None and t.size == len(t.fillings):
            pairs = zip(t.fillings, other.fillings, strict=True)
            safer = replace(t, fillings=tuple(a.of_family(b.family) for a, b in pairs))
            is_asked = not oracle.was_slow
            settled.append(safer if is_asked and oracle.accepts(safer) else t)
        else:
            settled.append(t)
    return settled


def _diverse(trials: Sequence[Trial], most: int = 8) -> tuple[list[Trial], list[Trial]]:
    """Return trials with different ranks, then trials with other values."""
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


# Lists of axes that tell a kernel's orders apart, for arrays of three axes.
_AXES = ([1, 2, 0], [0, 1], [2, 0, 1])


def _with_axes(
    op: Operator[..., Any], oracle: Oracle, trials: Sequence[Trial]
) -> Iterator[Trial]:
    """Yield trials of three axes, if a parameter is a list of axes.

    Swapping two axes is its own inverse, so only three show the wrong one.
    """
    first = next((t for t in trials if len(t.fillings) == 1), None)
    places = [
        i
        for i, p in enumerate(op.schema.parameters)
        if p.type == ListOf(Base("int")) and names_axes(p.name)
    ]
    if first is None or len(places) != 1:
        return
    filling = replace(first.fillings[0], shape=(2, 3, 4))
    for axes in _AXES:
        form = list(first.form)
        form[places[0]] = Holder(list, tuple(axes))
        trial = Trial(tuple(form), (filling,))
        if oracle.accepts(trial):
            yield trial


# ---- which shapes are intended ----

_TWINS = (
    {"x", "y"}, {"a", "b"}, {"lhs", "rhs"}, {"left", "right"}, {"p", "q"}, {"u", "v"},
    {"first", "second"}, {"x", "y", "z"}, {"a", "b", "c"},
)  # fmt: skip


def is_symmetric(op: Operator[..., Any]) -> bool:
    """Return whether the arrays are interchangeable, so that any may be larger."""
    if Tag.pointwise in op.tags:
        return True
    arrays = [op.schema.parameters[i] for i in op.array_slots]
    if any(OPERAND in parts(p.type) for p in arrays):
        return True
    names = {p.name for p in arrays}
    return names in _TWINS or len({n.rstrip("0123456789_") for n in names}) == 1


# Words in the names of arrays that only modify the main argument.
_MODIFIERS = {
    "weight", "weights", "bias", "scale", "gamma", "beta", "mean", "var", "std",
    "sigma", "mu", "w", "kernel", "filter", "taps", "shift", "offset", "factor",
    "mask", "running", "table", "coefficients",
}  # fmt: skip


def _is_meant(op: Operator[..., Any], oracle: Oracle, trial: Trial) -> bool:
    """Return whether the arrays are intended to have these shapes.

    An array with more axes than the first may only be accepted through broadcasting, as
    a bias is.
    """
    if len(trial.fillings) < 2 or is_symmetric(op):
        return True
    first, *rest = trial.fillings
    larger = [f for f in rest if len(f.shape) > len(first.shape)]
    if not any(f.dtype == first.dtype for f in larger):
        return True
    agrees = oracle.agrees(lambda: trial.values(op.schema, trial.arrays()))
    return agrees or _broadcasts(oracle, trial)


def _broadcasts(oracle: Oracle, trial: Trial) -> bool:
    """Return whether the kernel seems to broadcast arrays that are interchangeable."""
    names = [set(slot.name.split("_")) for slot in slots_of(trial.form)]
    if any(words & _MODIFIERS for words in names):
        return False
    try:
        shape = np.broadcast_shapes(*trial.shapes)
    except ValueError:
        return False
    values = trial.values(oracle.op.schema, trial.arrays())
    results = oracle.outline(oracle.kernel, values) or []
    return [found for found, _ in results] == [shape]


def _stretched(
    op: Operator[..., Any], oracle: Oracle, trial: Trial, groups: Sequence[Group]
) -> Iterator[Trial]:
    """Yield trials in which one array has an axis of length one, to be broadcast."""
    shared = [group.axes for group in groups if len(group.axes) > 1]
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


# ---- optional arguments ----


def _extended(op: Operator[..., Any], oracle: Oracle, base: Trial) -> Iterator[Trial]:
    """Yield the trial with other arguments: each optional one alone, then all."""
    full = base
    alone: list[tuple[int, Trial]] = []
    for i, p in enumerate(op.schema.parameters):
        given = [v for v in choices(p) if v != base.form[i]][:4]
        found = [t for v in given if (t := _with(oracle, base, i, v)) is not None]
        alone += [(i, t) for t in found]
        if found and p.default is not MISSING:
            fuller = (_with(oracle, full, i, v) for v in given if v is not None)
            full = next((t for t in fuller if t is not None), full)
    pairs = list(_paired(oracle, alone))
    yield from pairs[:1]
    firsts = dict(alone[::-1])  # one for each argument
    yield from firsts.values()
    yield from (t for i, t in alone if t is not firsts[i])
    if _given_in(full) > 1 + _given_in(base):
        yield full
    yield from pairs[1:]


def _paired(oracle: Oracle, alone: Sequence[tuple[int, Trial]]) -> Iterator[Trial]:
    """Yield trials with two optional arguments that were accepted alone."""
    # Start with the least likely values: two axes before one.
    pairs = [(a, b) for a, b in combinations(alone[::-1], 2) if a[0] != b[0]]
    for (_, first), (j, second) in pairs[:_MOST_PAIRS]:
        found = _with(oracle, first, j, second.form[j])
        if found is not None:
            yield found


_MOST_PAIRS = 12


def _given_in(trial: Trial) -> int:
    return sum(v is not OMITTED for v in trial.form)


def _with(oracle: Oracle, base: Trial, i: int, template: Any) -> Trial | None:
    """Return the trial with another template for a parameter if kernels accept it."""
    form = (*base.form[:i], template, *base.form[i + 1 :])
    start = len(slots_of(base.form[:i]))
    end = len(slots_of(base.form[: i + 1]))
    new = slots_of([template])
    length = next((n for s in base.shapes for n in s), 3)
    for dtypes in dtypes_for(new):
        for ranks in rank_rows(len(new))[:30]:
            added = [
                Filling((length,) * r, d, families(d.kind)[0])
                for r, d in zip(ranks, dtypes, strict=True)
            ]
            fillings = (*base.fillings[:start], *added, *base.fillings[end:])
            trial = Trial(form, fillings)
            if oracle.accepts(trial):
                return trial
            if oracle.exhausted:
                return None
    return None


# ---- from one length to many ----
# A pattern says which axes have equal lengths.


@dataclass(frozen=True, slots=True)
class Group:
    """Axes whose lengths change together, and the lengths that the first one can have.

    The other axes keep their difference to the first.
    """

    axes: tuple[_Axis, ...]
    lengths: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Pattern:
    """A trial that an operator accepts with all lengths in its groups.

    `why` says why it was added: ``"axes"``, ``"broadcast"``, ``"options"`` or
    ``"values"``.
    """

    trial: Trial
    groups: tuple[Group, ...]
    why: str = "axes"

    def at(self, lengths: Sequence[int]) -> Trial:
        """Return the trial with these lengths for the first axes of the groups."""
        trial = self.trial
        for group, length in zip(self.groups, lengths, strict=True):
            trial = _moved(trial, group.axes, length)
        return trial


def _moved(trial: Trial, axes: Sequence[_Axis], length: int) -> Trial:
    """Return the trial with a new length for the first axis; the others follow."""
    shapes = [list(s) for s in trial.shapes]
    i, axis = axes[0]
    step = length - shapes[i][axis]
    for i, axis in axes:
        shapes[i][axis] += step
    return trial.with_shapes([tuple(s) for s in shapes])


_LENGTHS = (4, 2, 5, 6, 3, 1)


def generalize(oracle: Oracle, trial: Trial, why: str) -> Pattern:
    """Find out which axes of an accepted trial can have other lengths, and together."""
    left = [(i, axis) for i, r in enumerate(trial.ranks) for axis in range(r)]
    groups = []
    while left and not oracle.exhausted:
        axes, lengths = _group_of(oracle, trial, left)
        if lengths:
            own = trial.shapes[axes[0][0]][axes[0][1]]
            groups.append(Group(axes, (own, *lengths)))
        left = [axis for axis in left if axis not in axes]
    return Pattern(trial, tuple(groups), why)


def _group_of(
    oracle: Oracle, trial: Trial, left: Sequence[_Axis]
) -> tuple[tuple[_Axis, ...], list[int]]:
    """Return the axes that change with the first, and the lengths they can have."""
    first, *others = left
    own = trial.shapes[first[0]][first[1]]
    lengths = [n for n in _LENGTHS if n != own]
    for axes in dict.fromkeys(_companies(trial, first, others)):
        if any(_takes(oracle, trial, axes, n) for n in lengths[:2]):
            return axes, [n for n in lengths if _takes(oracle, trial, axes, n)]
    return (first,), []


# With more axes than this, there are too many triples and quadruples to try.
_FEW_AXES = 10


def _companies(
    trial: Trial, first: _Axis, others: Sequence[_Axis]
) -> Iterator[tuple[_Axis, ...]]:
    """Yield groups with an axis: alone, pairs, same axis of all arrays, larger."""
    ranks = trial.ranks
    front = [p for p in others if p[1] == first[1]]
    back = [p for p in others if p[1] - ranks[p[0]] == first[1] - ranks[first[0]]]
    yield (first,)
    yield from ((first, p) for p in others)
    yield (first, *back)
    yield (first, *front)
    if len(others) <= _FEW_AXES:
        for size in (2, 3):
            yield from ((first, *c) for c in combinations(others, size))


def _takes(oracle: Oracle, trial: Trial, axes: Sequence[_Axis], length: int) -> bool:
    moved = _moved(trial, axes, length)
    fits = all(n >= 0 for s in moved.shapes for n in s)
    return fits and oracle.accepts(moved, NOISY)


# Lengths to choose from, the most telling first and the smallest last, each with the
# number of elements up to which it is used.
_PALETTES = (
    ((3, 2, 4, 5, 6, 3, 2), 60),
    ((2, 3, 4, 5, 6, 2, 3), 130),
    ((2, 2, 3, 3), 130),
    ((2, 1), 0),
)


def distinct(pattern: Pattern) -> Trial:
    """Return the trial with different lengths for its groups, and few elements."""
    found = pattern.trial
    for palette, most in _PALETTES:
        pairs = zip(pattern.groups, cycle(palette), strict=False)
        lengths = [n if n in group.lengths else group.lengths[0] for group, n in pairs]
        found = pattern.at(lengths)
        if found.size <= most:
            break
    return found


# A length that loops in steps of a power of two do not divide, for a single axis.
_LONG = 67


def other_lengths(patterns: Sequence[Pattern]) -> list[Trial]:
    """Return trials with other lengths: equal ones, another order, one, a long axis.

    Arrays of integers are left out: their indices would repeat.
    """
    found = []
    plain = [p for p in patterns if all(f.dtype.kind in "fc" for f in p.trial.fillings)]
    several = max(plain, key=lambda p: len(p.groups), default=None)
    if several is not None and len(several.groups) > 1:
        count = len(several.groups)
        rows = ((2,) * count, tuple(range(2, 2 + count)), (1,) * count)
        found = [several.at(row) for row in rows]
    for p in plain:
        if len(p.groups) == 1:
            return [*found, p.at([_LONG]), p.at([1])]
    return found
