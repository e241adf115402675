"""The smallest arguments that still fail.

Simplifications of a sample are tried one after the other, large steps first, and kept
where the check goes on failing. So the result fails whenever the search stops.

Hypothesis (6.170) does not do this: it shrinks only what it has drawn itself, and
reports an explicit example as it is. Its private `internal.conjecture` can start from
given choices. Driven that way it took as long as this module for the axes of two arrays
(14 ms), after an import of 160 ms, and it is an optional package here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isfinite
from time import perf_counter
from typing import Any

import numpy as np

from customop.arrays.nested import children
from customop.core.operator import Operator
from customop.core.samples import Sample
from customop.schema.parameters import MISSING
from customop.testing.inputs.lengths import Longer
from customop.testing.inputs.memory import copy_array, fresh
from customop.testing.inputs.oracle import NOISY, Oracle
from customop.testing.inputs.places import arrays_in, places_in, replaced

__all__ = ["shrink"]

# Checks after which the search stops. Faults of the tests need 20 to 300.
_TRIES = 3000
# Seconds after which it stops too, for slow kernels.
_SECONDS = 5.0
# Arrays with at most so many elements get shorter numbers.
_FEW = 16


def shrink(
    op: Operator[..., Any],
    sample: Sample,
    fails: Callable[[Sample], bool],
    *,
    tries: int = _TRIES,
) -> Sample:
    """The smallest sample that is found for which `fails` stays true.

    Parameters
    ----------
    op : Operator
    sample : Sample
        One that fails. It is not changed.
    fails : callable
        ``fails(sample)`` tells whether the check fails; it may write the arrays.
    tries : int
        How often to ask `fails`, at most.

    Returns
    -------
    Sample
        Smaller arrays, then fewer arguments, plainer layouts and dtypes, shorter
        numbers. The kernels of the operator take it where they took `sample`.
    """
    end = perf_counter() + _SECONDS
    oracle = Oracle.around(op, sample)
    if not oracle.takes(sample, NOISY):
        oracle.kernel = None
    best, cost, steps = sample, _cost(op, sample), _simpler(op, sample)
    while tries > 0 and perf_counter() < end:
        smaller = next(steps, None)
        if smaller is None:
            break
        new = _cost(op, smaller)
        if new >= cost or not oracle.takes(smaller, NOISY):
            continue
        tries -= 1
        if fails(fresh(smaller)):
            best, cost, steps = smaller, new, _simpler(op, smaller)
    return _with_true_note(op, sample, best)


def _with_true_note(op: Operator[..., Any], sample: Sample, smaller: Sample) -> Sample:
    """The smaller sample, without its note where that is no longer true."""
    is_longer = isinstance(sample, Longer)
    before, after = (
        {
            place: x.shape if is_longer else _aspects(x)
            for place, x, _ in arrays_in(op, s)
        }
        for s in (sample, smaller)
    )
    is_true = all(before.get(place) == aspects for place, aspects in after.items())
    return smaller if is_true else Sample(smaller.args, smaller.kwargs)


def _aspects(x: Any) -> tuple[Any, ...]:
    """The properties of an array that notes mention."""
    return (
        x.dtype,
        x.flags.c_contiguous,
        x.flags.writeable,
        x.flags.aligned,
        min(x.strides, default=1) < 0,
        0 in x.strides,
        x.ndim if 0 in x.shape else -1,
    )


# ---- how large a sample is ----

_PLAIN_DTYPES = ("float64", "int64", "bool", "complex128")


def _cost(op: Operator[..., Any], sample: Sample) -> tuple[float, ...]:
    """The numbers to minimize, the most important first."""
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
        sum(_weight(p.value) for p in places_in(op, sample)),
        digits,
    )


def _weight(value: Any) -> float:
    """How far a value is from the simplest of its type."""
    if children(value) is not None:
        return 1
    if isinstance(value, np.ndarray) or not value:
        return 0
    size = min(abs(value), 9) / 10 if isinstance(value, int | float) else 0
    return len(repr(value)) + size


# ---- simpler samples ----


def _simpler(op: Operator[..., Any], sample: Sample) -> Iterator[Sample]:
    """Samples that are simpler in one thing, the largest steps first."""
    yield from _without_arguments(op, sample)
    yield from _with_values(op, sample, _shorter)
    for changes in _smaller_arrays(op, sample):
        if len(changes) > 1:
            yield replaced(op, sample, changes)
        for place, x in changes.items():
            yield replaced(op, sample, {place: x})
    yield from _with_values(op, sample, _simple)


def _without_arguments(op: Operator[..., Any], sample: Sample) -> Iterator[Sample]:
    by_name = {p.name: p for p in op.schema.parameters}
    for name in sample.kwargs:
        rest = {n: v for n, v in sample.kwargs.items() if n != name}
        if by_name[name].default is not MISSING:
            yield Sample(sample.args, rest, sample.note)
    count = len(sample.args)
    if count and op.schema.positional[count - 1].default is not MISSING:
        yield Sample(sample.args[:-1], sample.kwargs, sample.note)


def _with_values(
    op: Operator[..., Any], sample: Sample, simplify: Callable[[Any], list[Any]]
) -> Iterator[Sample]:
    for place in places_in(op, sample):
        for value in simplify(place.value):
            yield replaced(op, sample, {place.name: value})


def _shorter(value: Any) -> list[Any]:
    """Lists, tuples and dicts with one item less."""
    if isinstance(value, dict):
        return [{k: v for k, v in value.items() if k != key} for key in [*value][::-1]]
    if type(value) in (list, tuple):
        places = reversed(range(len(value)))
        return [type(value)([*value[:i], *value[i + 1 :]]) for i in places]
    return []


def _simple(value: Any) -> list[Any]:
    if isinstance(value, bool):
        return [False]
    if isinstance(value, int):
        return [0, 1, 2, value // 2, value - 1]
    if isinstance(value, float):
        return [0.0, 1.0, 0.5, *(round(value, n) for n in (0, 1) if isfinite(value))]
    return [None] if isinstance(value, np.ndarray) else []


# ---- smaller arrays: by place, for all arrays that a step applies to ----


def _smaller_arrays(op: Operator[..., Any], sample: Sample) -> Iterator[dict[str, Any]]:
    arrays = {place: x for place, x, _ in arrays_in(op, sample)}
    yield from _fewer_axes(arrays)
    yield from _shorter_axes(arrays)
    for make in (_contiguous, _plain_dtype):
        yield {place: make(x) for place, x in arrays.items()}
    floats = {place: x for place, x in arrays.items() if x.dtype.kind in "fc"}
    for decimals in (1, 2):
        yield {place: _rounded(x, decimals) for place, x in floats.items()}


def _fewer_axes(arrays: dict[str, Any]) -> Iterator[dict[str, Any]]:
    most = max((x.ndim for x in arrays.values()), default=0)
    for axis in [*range(most), *range(-most, 0)]:
        yield {place: _first(x, axis) for place, x in arrays.items() if _has(x, axis)}


def _has(x: Any, axis: int) -> bool:
    return bool(-x.ndim <= axis < x.ndim and x.shape[axis] > 0)


def _first(x: Any, axis: int) -> Any:
    key = [slice(None)] * x.ndim
    key[axis] = slice(0, 1)
    return x[tuple(key)].squeeze(axis)


def _shorter_axes(arrays: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Shorten axes of one length in all arrays, in one array, then one axis alone."""
    lengths = {n for x in arrays.values() for n in x.shape if n > 1}
    for n in sorted(lengths, reverse=True):
        for less in dict.fromkeys((1, 2, n // 2, n - 1)):
            yield {p: _cut(x, n, less) for p, x in arrays.items() if n in x.shape}
    for place, x in arrays.items():
        for axis, n in enumerate(x.shape):
            for less in {1, n - 1} - {0, n}:
                key = [slice(None)] * axis + [slice(0, less)]
                yield {place: x[tuple(key)]}


def _cut(x: Any, length: int, less: int) -> Any:
    return x[tuple(slice(0, less if n == length else n) for n in x.shape)]


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
