"""The smallest arguments that still fail.

From the sample at hand one simplification after the other is tried, large steps first,
and kept where the check goes on failing. So what comes out fails, however little time
there was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isfinite
from time import perf_counter
from typing import Any

import numpy as np

from customop.arrays.nested import children, like
from customop.core.samples import Sample
from customop.schema.parameters import MISSING
from customop.testing.inputs.memory import copy_array, fresh
from customop.testing.inputs.oracle import NOISY, Oracle, strict_numbers
from customop.testing.inputs.variations import arrays_in, replaced

__all__ = ["shrink"]

_SECONDS = 2.0
# Arrays of so few elements are made simpler one element after the other.
_FEW = 16


def shrink(
    op: Any,
    sample: Sample,
    fails: Callable[[Sample], bool],
    *,
    seconds: float = _SECONDS,
) -> Sample:
    """The smallest sample that is found for which `fails` stays true.

    Parameters
    ----------
    op : Operator
    sample : Sample
        One that fails. It is not changed.
    fails : callable
        ``fails(sample)`` tells whether the check fails; it gets arrays of its own.
    seconds : float
        When to stop.

    Returns
    -------
    Sample
        Smaller arrays, then fewer arguments, plainer layouts and dtypes, shorter
        numbers; the kernel of the operator takes it where it took `sample`.
    """
    end = perf_counter() + seconds
    oracle = Oracle(op, seconds)
    must_run = _runs(op, oracle, sample)
    best, cost = sample, _cost(op, sample)
    found = True
    while found:
        found = False
        for smaller in _simpler(op, best):
            if perf_counter() > end:
                return _truly_noted(op, sample, best)
            new = _cost(op, smaller)
            if new >= cost or (must_run and not _runs(op, oracle, smaller)):
                continue
            if fails(fresh(smaller)):
                best, cost, found = smaller, new, True
                break
    return _truly_noted(op, sample, best)


def _truly_noted(op: Any, sample: Sample, smaller: Sample) -> Sample:
    """The smaller sample, without a note that is no longer true of it."""
    before, after = (
        {place: _aspects(x) for place, x, _ in arrays_in(op, s)}
        for s in (sample, smaller)
    )
    is_true = all(before.get(place) == aspects for place, aspects in after.items())
    return smaller if is_true else Sample(smaller.args, smaller.kwargs)


def _aspects(x: Any) -> tuple[Any, ...]:
    """What notes tell of an array."""
    return (
        x.dtype,
        x.flags.c_contiguous,
        x.flags.writeable,
        x.flags.aligned,
        min(x.strides, default=1) < 0,
        0 in x.strides,
        x.ndim if 0 in x.shape else -1,
    )


def _runs(op: Any, oracle: Oracle, sample: Sample) -> bool:
    own = fresh(sample)
    if oracle.kernel is None:
        return False
    try:
        values = op.bind(*own.args, **own.kwargs)
    except Exception:  # noqa: BLE001  # the schema refuses it, by whatever error
        return False
    with strict_numbers():
        return oracle.outcome_of(values) <= NOISY


# ---- how large a sample is ----

_PLAIN_DTYPES = ("float64", "int64", "bool", "complex128")


def _cost(op: Any, sample: Sample) -> tuple[float, ...]:
    """What is to be small, the most important first."""
    arrays = [x for _, x, _ in arrays_in(op, sample)]
    special = sum(
        (not x.flags.c_contiguous) + (not x.flags.writeable) + (not x.flags.aligned)
        for x in arrays
    )
    dtypes = sum(
        x.dtype.name not in _PLAIN_DTYPES or not x.dtype.isnative for x in arrays
    )
    digits = sum(len(repr(x.tolist())) for x in arrays if x.size <= _FEW)
    values = [*sample.args, *sample.kwargs.values()]
    return (
        sum(x.size for x in arrays),
        sum(x.ndim for x in arrays),
        len(arrays),
        len(values),
        special,
        dtypes,
        sum(map(_weight, values)),
        digits,
    )


def _weight(value: Any) -> float:
    """How far a value is from the simplest of its kind."""
    items = children(value)
    if items is not None:
        return 1 + sum(map(_weight, items))
    if isinstance(value, np.ndarray) or not value:
        return 0
    size = min(abs(value), 9) / 10 if isinstance(value, int | float) else 0
    return len(repr(value)) + size


# ---- simpler samples ----


def _simpler(op: Any, sample: Sample) -> Iterator[Sample]:
    """Samples that are simpler in one thing, the largest steps first."""
    yield from _left_out(op, sample)
    yield from _shorter_lists(sample)
    yield from _fewer_axes(op, sample)
    yield from _shorter_axes(op, sample)
    yield from _plainer_arrays(op, sample)
    yield from _plainer_scalars(op, sample)


def _left_out(op: Any, sample: Sample) -> Iterator[Sample]:
    by_name = {p.name: p for p in op.schema.parameters}
    for name in sample.kwargs:
        rest = {n: v for n, v in sample.kwargs.items() if n != name}
        if by_name[name].default is not MISSING:
            yield Sample(sample.args, rest, sample.note)
    count = len(sample.args)
    if count and op.schema.positional[count - 1].default is not MISSING:
        yield Sample(sample.args[:-1], sample.kwargs, sample.note)


def _shorter_lists(sample: Sample) -> Iterator[Sample]:
    for change in _places(sample):
        value = change.value
        if isinstance(value, list | dict) or type(value) is tuple:
            for i in reversed(range(len(value))):
                yield change.to(_without(value, i))


def _without(value: Any, i: int) -> Any:
    if isinstance(value, dict):
        return {k: v for j, (k, v) in enumerate(value.items()) if j != i}
    return type(value)([*value[:i], *value[i + 1 :]])


def _fewer_axes(op: Any, sample: Sample) -> Iterator[Sample]:
    arrays = arrays_in(op, sample)
    most = max((x.ndim for _, x, _ in arrays), default=0)
    for axis in [*range(most), *range(-most, 0)]:
        cut = {p: _first(x, axis) for p, x, _ in arrays if _has(x, axis)}
        if len(cut) > 1:
            yield replaced(op, sample, cut, sample.note)
        for place, x in cut.items():
            yield replaced(op, sample, {place: x}, sample.note)


def _has(x: Any, axis: int) -> bool:
    return bool(-x.ndim <= axis < x.ndim and x.shape[axis] > 0)


def _first(x: Any, axis: int) -> Any:
    key = [slice(None)] * x.ndim
    key[axis] = slice(0, 1)
    return x[tuple(key)].squeeze(axis)


def _shorter_axes(op: Any, sample: Sample) -> Iterator[Sample]:
    """Axes of one length in all arrays, then in one array, then one axis."""
    arrays = arrays_in(op, sample)
    lengths = sorted({n for _, x, _ in arrays for n in x.shape if n > 1}, reverse=True)
    for n in lengths:
        for less in dict.fromkeys((1, 2, n // 2, n - 1)):
            cut = {p: _cut(x, n, less) for p, x, _ in arrays if n in x.shape}
            yield replaced(op, sample, cut, sample.note)
            for place, x in cut.items():
                yield replaced(op, sample, {place: x}, sample.note)
    for place, x, _ in arrays:
        for axis, n in enumerate(x.shape):
            for less in {1, n - 1} - {0, n}:
                key = [slice(None)] * axis + [slice(0, less)]
                yield replaced(op, sample, {place: x[tuple(key)]}, sample.note)


def _cut(x: Any, length: int, less: int) -> Any:
    return x[tuple(slice(0, less if n == length else n) for n in x.shape)]


def _plainer_arrays(op: Any, sample: Sample) -> Iterator[Sample]:
    arrays = arrays_in(op, sample)
    for make in (_contiguous, _plain_dtype):
        yield replaced(op, sample, {p: make(x) for p, x, _ in arrays}, sample.note)
        for place, x, _ in arrays:
            yield replaced(op, sample, {place: make(x)}, sample.note)
    for decimals in (1, 2):
        new = {p: _rounded(x, decimals) for p, x, _ in arrays if x.dtype.kind in "fc"}
        yield replaced(op, sample, new, sample.note)
        for place, x in new.items():
            yield replaced(op, sample, {place: x}, sample.note)


def _contiguous(x: Any) -> Any:
    return np.array(x, order="C")


def _plain_dtype(x: Any) -> Any:
    names = {"f": "float64", "i": "int64", "u": "int64", "c": "complex128"}
    return x.astype(names.get(x.dtype.kind, x.dtype))


def _rounded(x: Any, decimals: int) -> Any:
    """Shorter numbers, unless two become equal, or one of them zero.

    A function may have no gradient where numbers are equal: another fault, or none.
    """
    short = np.round(x, decimals)
    is_as_distinct = len(np.unique(np.abs(short))) == len(np.unique(np.abs(x)))
    if not is_as_distinct or (short == 0).any() or not x.flags.writeable:
        return x
    out = copy_array(x)
    out[...] = short
    return out


def _plainer_scalars(op: Any, sample: Sample) -> Iterator[Sample]:
    for change in _places(sample):
        for simple in _simple(change.value):
            yield change.to(simple)


def _simple(value: Any) -> list[Any]:
    if isinstance(value, bool):
        return [False]
    if isinstance(value, int):
        return [0, 1, 2, value // 2, value - 1]
    if isinstance(value, float):
        return [0.0, 1.0, 0.5, *(round(value, n) for n in (0, 1) if isfinite(value))]
    return [None] if isinstance(value, np.ndarray) else []


# ---- places within a sample ----


class _Place:
    """A value within a sample, which may be replaced."""

    def __init__(self, value: Any, to: Callable[[Any], Sample]) -> None:
        self.value = value
        self.to = to


def _places(sample: Sample) -> Iterator[_Place]:
    """All values of a sample and those within them."""
    for i, value in enumerate(sample.args):

        def in_args(new: Any, i: int = i) -> Sample:
            args = (*sample.args[:i], new, *sample.args[i + 1 :])
            return Sample(args, sample.kwargs, sample.note)

        yield from _within(value, in_args)
    for name, value in sample.kwargs.items():

        def in_kwargs(new: Any, name: str = name) -> Sample:
            return Sample(sample.args, {**sample.kwargs, name: new}, sample.note)

        yield from _within(value, in_kwargs)


def _within(value: Any, to: Callable[[Any], Sample]) -> Iterator[_Place]:
    yield _Place(value, to)
    items = children(value) or ()
    for i, item in enumerate(items):

        def inside(new: Any, i: int = i) -> Sample:
            return to(like(value, [*items[:i], new, *items[i + 1 :]]))

        yield from _within(item, inside)
