"""Shrink failing arguments, and make samples with longer axes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import isfinite
from time import perf_counter
from typing import Any, TypeAlias

import numpy as np

from customop.arrays.nested import children
from customop.core.operator import Operator
from customop.core.samples import Sample
from customop.schema.coerce import typed_arrays
from customop.schema.shape_check import sizes_of
from customop.schema.types import MISSING
from customop.shapes.notation import Shape, names_in
from customop.testing.inputs.sample_values import (
    Array,
    arrays_in,
    copy_array,
    fresh,
    places_in,
    replaced,
)
from customop.testing.inputs.search import NOISY, Oracle
from customop.testing.quiet import Allowance

# ---- shrink failing arguments ----
# Simplifications of a sample are tried one after another, large steps first. A step is
# kept if the check still fails, so the result always fails.
#
# Hypothesis (6.170) does not do this: it shrinks only what it has drawn itself, and
# reports an explicit example as it is. Its private `internal.conjecture` can start from
# given choices. Used that way it took as long as this module for the axes of two
# arrays (14 ms), after an import of 160 ms. It is also only an optional package here.
#
# A trial let it choose the inputs of opcheck too, by strategies of shapes, dtypes and
# options, without the search and its patterns. It found 184 of the 194 planted faults of
# the tests, in 266 s for 55 s, and called ten of their right twins wrong: it draws calls
# that kernels take by chance, and no pattern says which axes belong together.

# The search stops after this many checks. Faults of the tests need 20 to 300.
_TRIES = 3000
# It also stops after this many seconds of work, for slow kernels.
_SECONDS = 5.0
# Numbers are shortened in arrays of at most this many elements.
_FEW = 16


def shrink(
    op: Operator[..., Any],
    sample: Sample,
    fails: Callable[[Sample], bool],
    *,
    tries: int = _TRIES,
    allowed: Allowance | None = None,
) -> Sample:
    """Return the smallest sample found for which `fails` stays true.

    Parameters
    ----------
    op : Operator
    sample : Sample
        A sample that fails. It is not changed.
    fails : callable
        ``fails(sample)`` returns whether the check fails. It may write to the arrays.
    tries : int
        The most calls of `fails`.
    allowed : Allowance, optional
        The time for it, 5 s by default.

    Returns
    -------
    Sample
        Smaller arrays, then fewer arguments, plainer layouts and dtypes, shorter
        numbers. The operator's kernels accept it if they accepted `sample`.
    """
    allowed = allowed or Allowance(_SECONDS)
    oracle = Oracle.around(op, sample)
    if not oracle.takes(sample, NOISY):
        oracle.kernel = None
    best, cost, steps = sample, _cost(op, sample), _simpler(op, sample)
    while tries > 0 and not allowed.is_over(perf_counter()):
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
    """Return the smaller sample, without a note that is no longer true."""
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
    """Return the properties of an array that notes mention."""
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
    """Return the numbers to minimize, the most important first."""
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
    """Return how far a value is from the simplest value of its type."""
    if children(value) is not None:
        return 1
    if isinstance(value, np.ndarray) or not value:
        return 0
    size = min(abs(value), 9) / 10 if isinstance(value, int | float) else 0
    return len(repr(value)) + size


# ---- simpler samples ----


def _simpler(op: Operator[..., Any], sample: Sample) -> Iterator[Sample]:
    """Yield samples with one simplification each, the largest steps first."""
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
    """Return copies of a list, tuple or dict, each with one item fewer."""
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


# ---- smaller arrays, by place: each step for all arrays that it applies to ----


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
    """Yield shorter arrays: all axes of one length, then in one array, then one."""
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
    """Round the numbers, unless two become equal or one becomes zero.

    A function may have no gradient at equal numbers, which would be another fault.
    """
    short = np.round(x, decimals)
    is_as_distinct = len(np.unique(np.abs(short))) == len(np.unique(np.abs(x)))
    if not is_as_distinct or (short == 0).any() or not x.flags.writeable:
        return x
    out = copy_array(x)
    out[...] = short
    return out


# ---- a sample with longer axes ----
# What is right for one length can be wrong for another.


def longer(
    op: Operator[..., Any],
    sample: Sample,
    others: Sequence[Sample] = (),
    oracle: Oracle | None = None,
) -> Longer | None:
    """Return the sample with longer axes that the kernel accepts, or None.

    Axes that have one name in the schema grow together, and so do unnamed axes of equal
    length. Axes that have other lengths in `others` stay.

    Parameters
    ----------
    op : Operator
    sample : Sample
    others : sequence of Sample
        The other calls that are checked.
    oracle : Oracle, optional
        An oracle made by `Oracle.around` this sample.

    Returns
    -------
    Longer or None
        Its values are close to those of the sample.
    """
    arrays = {place: x for place, x, _ in arrays_in(op, sample)}
    if not any(x.ndim and x.size for x in arrays.values()):
        return None
    varied = _varied(op, sample, arrays, others)
    named = _named(op, sample, arrays)
    seen: list[_Shapes] = []
    for is_declared, shapes in _candidates(op, sample, arrays, named, varied):
        if shapes in seen or all(shapes[p] == x.shape for p, x in arrays.items()):
            continue
        seen.append(shapes)
        oracle = oracle or Oracle.around(op, sample)
        new = {p: _filled(x, shapes[p]) for p, x in arrays.items()}
        made = replaced(op, sample, new, _note(arrays, shapes))
        if oracle.takes(made):
            return Longer(made, is_declared=is_declared)
    return None


class Longer(Sample, compare=()):
    """A sample whose axes are longer than those of the original.

    Attributes
    ----------
    is_declared : bool
        Whether the schema says that these axes may have any length. Otherwise only the
        kernel says so, by accepting them.
    """

    is_declared: bool

    def __init__(self, sample: Sample, *, is_declared: bool) -> None:
        super().__init__(sample.args, sample.kwargs, sample.note)
        object.__setattr__(self, "is_declared", is_declared)


# Place of an array -> its new shape.
_Shapes: TypeAlias = dict[str, tuple[int, ...]]


def _note(arrays: Mapping[str, Array], shapes: _Shapes) -> str:
    pairs = {
        f"{b} for {a}": None
        for place, x in arrays.items()
        for a, b in zip(x.shape, shapes[place], strict=True)
        if a != b
    }
    return f"longer axes: {', '.join(pairs)}"


# ---- which lengths to try ----

# If the kernel refuses longer axes all at once, this many lengths are tried alone.
_SINGLE = 3


def _candidates(
    op: Operator[..., Any],
    sample: Sample,
    arrays: Mapping[str, Array],
    shapes: Mapping[str, Shape],
    varied: set[tuple[str, int]],
) -> Iterator[tuple[bool, _Shapes]]:
    """Yield longer shapes, the likeliest first, and whether they are declared."""
    declared = _declared(op, sample, arrays, shapes, varied)
    if declared is not None:
        yield True, declared
    free = {
        (place, i)
        for place, x in arrays.items()
        for i in range(x.ndim)
        if (place, i) not in varied and _is_free(shapes.get(place), i, x.ndim)
    }
    lengths = [arrays[place].shape[i] for place, i in sorted(free)]
    taken = {arrays[place].shape[i] for place, i in varied}
    kept = [n for n in dict.fromkeys(lengths) if n and n not in taken]
    long = [n for n in kept if n > 1]
    for chosen in (kept, long, *([n] for n in kept[:_SINGLE])):
        yield False, _with_lengths(arrays, free, {n: n + 1 for n in chosen})
    yield False, _with_lengths(arrays, free, {n: 2 * n for n in long})


def _is_free(shape: Shape | None, axis: int, ndim: int) -> bool:
    """Return whether the schema allows any length for an axis."""
    if shape is None:
        return True
    before, after = len(shape.before), ndim - len(shape.after)
    if before <= axis < after:
        return True
    return shape.axes[axis if axis < before else axis - ndim].length is None


def _with_lengths(
    arrays: Mapping[str, Array], free: set[tuple[str, int]], new: Mapping[int, int]
) -> _Shapes:
    return {
        place: tuple(
            new.get(n, n) if (place, i) in free else n for i, n in enumerate(x.shape)
        )
        for place, x in arrays.items()
    }


def _varied(
    op: Operator[..., Any],
    sample: Sample,
    arrays: Mapping[str, Array],
    others: Sequence[Sample],
) -> set[tuple[str, int]]:
    """Return the axes that have other lengths in other samples."""
    found: set[tuple[str, int]] = set()
    for other in others:
        if other is sample:
            continue
        for place, y, _ in arrays_in(op, other):
            x = arrays.get(place, y)
            if y.size and x.ndim == y.ndim:
                pairs = enumerate(zip(x.shape, y.shape, strict=True))
                found.update((place, i) for i, (a, b) in pairs if a != b)
    return found


# ---- lengths with names in the schema ----


def _named(
    op: Operator[..., Any], sample: Sample, arrays: Mapping[str, Array]
) -> dict[str, Shape]:
    """Return the declared shapes of arrays, by place."""
    if not op.schema.has_shapes:
        return {}
    places = {id(x): place for place, x in arrays.items()}
    values = op.bind(*sample.args, **sample.kwargs)
    return {
        places[id(x)]: declared.shape
        for p, value in zip(op.schema.parameters, values, strict=True)
        for _, x, declared in typed_arrays(value, p.type)
        if id(x) in places and declared.shape is not None
    }


def _declared(
    op: Operator[..., Any],
    sample: Sample,
    arrays: Mapping[str, Array],
    shapes: Mapping[str, Shape],
    varied: set[tuple[str, int]],
) -> _Shapes | None:
    """Return shapes in which each name of the schema that may grow has grown."""
    if not shapes:
        return None
    schema = op.schema
    values = op.bind(*sample.args, **sample.kwargs)
    sizes = sizes_of(op.qualname, schema, values).lengths
    still = {p.name for p in schema.parameters}
    for place, axis in varied:
        still.update(_names_at(shapes.get(place), axis, arrays[place].ndim))
    more = {name: n + 1 for name, n in sizes.items() if n and name not in still}
    found = {place: x.shape for place, x in arrays.items()}
    for place, shape in shapes.items():
        found[place] = _longer_shape(shape, arrays[place].shape, {**sizes, **more})
    return found


def _longer_shape(
    shape: Shape, lengths: tuple[int, ...], sizes: Mapping[str, int]
) -> tuple[int, ...]:
    """Return a shape with new sizes. Axes that broadcast or have no name stay."""
    before, after = len(shape.before), len(lengths) - len(shape.after)
    name = "" if shape.loop is None else shape.loop.name
    new = shape.lengths(sizes, {name: lengths[before:after]})
    axes = [*shape.before, *[None] * (after - before), *shape.after]
    return tuple(
        old
        if axis is None or axis.length is None or (axis.is_broadcast and old == 1)
        else n
        for axis, old, n in zip(axes, lengths, new, strict=True)
    )


def _names_at(shape: Shape | None, axis: int, ndim: int) -> tuple[str, ...]:
    if shape is None or len(shape.before) <= axis < ndim - len(shape.after):
        return ()
    entry = shape.axes[axis if axis < len(shape.before) else axis - ndim]
    return tuple(names_in(entry.length))


# ---- values ----


def _filled(x: Array, shape: tuple[int, ...]) -> Array:
    """Return an array of a longer shape that repeats the values of another.

    A longer square matrix gets a large number on its diagonal. So it stays invertible,
    symmetric or positive definite if the given one is.
    """
    if not x.size:
        return np.zeros(shape, x.dtype)
    out, is_inexact = x, x.dtype.kind in "fc"
    for axis, (old, n) in enumerate(zip(x.shape, shape, strict=True)):
        if n != old:
            source, shares = _steps(old, n)
            out = out.take(source, axis)
            if is_inexact:
                out = out * shares.reshape((-1,) + (1,) * (x.ndim - 1 - axis))
    out = np.ascontiguousarray(out, x.dtype).reshape(shape)
    if is_inexact and x.ndim > 1 and x.shape[-1] == x.shape[-2] < shape[-1]:
        new = np.arange(x.shape[-1], shape[-1])
        out[..., new, new] += np.abs(x).max(initial=0.0)
    return out


@lru_cache(maxsize=64)
def _steps(old: int, new: int) -> tuple[Array, Array]:
    """Return the index of the source of each element, and a factor for each.

    The factors bring floats closer to zero, each by a different share. So no two become
    equal, where a maximum has a kink, and they stay in most domains.
    """
    places = np.arange(new)
    shares = 1.0 - 0.03 * (0.618 * places % 1.0)
    return places % old, np.where(places < old, shares, 0.875 * shares)
