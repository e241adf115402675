"""Repeating arrays and their elements: tile, repeat."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from customop import (
    DataDependentError,
    FakeArray,
    Operator,
    SymInt,
    Tag,
    get_ctx,
    register_numpy_function,
)
from customop.numpy.arguments import as_ints, copied, lined, value_of
from customop.numpy.compare import is_plain
from customop.numpy.fakes import device_of
from customop.numpy.rules import (
    batch_first,
    no_gradient,
    numpy_operator,
    register_linear,
)
from customop.numpy.sizes import size_of

__all__ = ["repeated_places"]

# ---- tile ----


def _pairs(first: Sequence[Any], second: Sequence[Any]) -> tuple[Any, ...]:
    """The items of two sequences in turn."""
    return tuple([n for pair in zip(first, second, strict=True) for n in pair])


def _ones(rank: int) -> list[int]:
    return [1] * rank


def _tiled(x: Any, reps: Sequence[int]) -> Any:
    """Copies of an array beside each other, so many along each axis."""
    wide = np.broadcast_to(
        np.reshape(x, _pairs(_ones(x.ndim), x.shape)), _pairs(reps, x.shape)
    )
    whole = tuple([c * n for c, n in zip(reps, x.shape, strict=True)])
    return np.reshape(copied(wide, "C"), whole)


def _quick_tile(x: Any, reps: Sequence[int]) -> Any:
    """As `_tiled`, without views: a third of the time for a small array."""
    if len(reps) != x.ndim:
        return _tiled(x, reps)  # raises
    if type(x) is not np.ndarray:
        return np.tile(x, tuple(reps))  # keeps a mask
    shape = x.shape
    lengths: list[int] = []
    for count, length in zip(reps, shape):  # noqa: B905  # of one length
        lengths += count, length
    out = np.empty(lengths, x.dtype)
    out[...] = x.reshape(_pairs(_ones(len(shape)), shape))
    return out.reshape([c * n for c, n in zip(reps, shape)])  # noqa: B905  # as above


_tile: Operator[..., Any] = numpy_operator(
    "tile", "(Array x, int[] reps) -> Array", _tiled
)
_tile.register_kernel("cpu", _quick_tile)


@_tile.register_fake
def _(x: Any, reps: Any) -> FakeArray:
    whole = [c * n for c, n in zip(reps, x.shape, strict=True)]
    return FakeArray(whole, x.dtype, device=device_of(x))


@_tile.register_vmap
def _(info: Any, in_dims: Any, x: Any, reps: Any) -> Any:
    return _tile(batch_first(x, in_dims[0]), [1, *reps]), 0


def _untiled(g: Any, shape: Sequence[Any], reps: Sequence[Any]) -> Any:
    """The sum of the gradients of all copies."""
    axes = tuple(range(0, 2 * len(shape), 2))
    return np.sum(np.reshape(g, _pairs(reps, shape)), axis=axes)


register_linear(_tile, _untiled)


@register_numpy_function(np.tile)
def _(A: Any, reps: Any) -> Any:  # noqa: N803  # NumPy's name
    counts = [size_of(n) for n in as_ints(reps)]
    rank = max(A.ndim, len(counts))
    counts = _ones(rank - len(counts)) + counts
    if rank > A.ndim:
        A = np.reshape(A, (*_ones(rank - A.ndim), *A.shape))  # noqa: N806  # NumPy's
    if all(type(n) is int for n in A.shape) and 0 in A.shape:
        # As NumPy: a view.
        return np.reshape(A, [c * n for c, n in zip(counts, A.shape, strict=True)])
    if all(type(n) is int and n == 1 for n in counts):
        return np.copy(A)  # in the same order in memory
    return _tile.run(A, counts)


# ---- repeat ----


def _repeated(x: Any, count: int, axis: int) -> Any:
    """Each element along an axis so many times."""
    axis = normalize_axis_index(axis, x.ndim)
    shape = tuple(x.shape)
    wide = np.broadcast_to(
        np.expand_dims(x, axis + 1), (*shape[: axis + 1], count, *shape[axis + 1 :])
    )
    repeated = copied(wide, "C")  # a reshape alone may be a view
    return np.reshape(
        repeated, (*shape[:axis], shape[axis] * count, *shape[axis + 1 :])
    )


_repeat: Operator[..., Any] = numpy_operator(
    "repeat", "(Array x, int count, int axis) -> Array", _repeated
)
_repeat.register_kernel("cpu", lambda x, count, axis: x.repeat(count, axis))


@_repeat.register_fake
def _(x: Any, count: Any, axis: int) -> FakeArray:
    axis = normalize_axis_index(axis, x.ndim)
    shape = list(x.shape)
    shape[axis] *= count
    return FakeArray(shape, x.dtype, device=device_of(x))


@_repeat.register_vmap
def _(info: Any, in_dims: Any, x: Any, count: Any, axis: int) -> Any:
    axis = normalize_axis_index(axis, x.ndim - 1)
    return _repeat(batch_first(x, in_dims[0]), count, axis + 1), 0


def _unrepeated(g: Any, shape: Sequence[Any], count: Any, axis: int) -> Any:
    """The sum of the gradients of the copies of each element."""
    after = axis % len(shape) + 1
    apart = np.reshape(g, (*shape[:after], count, *shape[after:]))
    if type(g) is np.ndarray and after == len(shape) and 0 < count < 8:
        # np.sum of so few neighbors takes 5 to 30 times as long (NumPy 2.4); from 8 on it
        # adds in another order.
        return sum([apart[..., i] for i in range(1, count)], apart[..., 0])
    return np.sum(apart, axis=after)


register_linear(_repeat, _unrepeated)


@register_numpy_function(np.repeat)
def _(a: Any, repeats: Any, axis: int | None = None) -> Any:
    if axis is None:
        a, axis = a if a.ndim == 1 else np.ravel(a), 0
    else:
        a = lined(a, axis)
        axis = normalize_axis_index(axis, a.ndim)
    if isinstance(repeats, int | SymInt):
        return _repeat.run(a, repeats, axis)
    if not is_plain(repeats):
        wide = np.broadcast_to(repeats, (a.shape[axis],))
        return np.take(a, repeated_places(wide), axis)
    counts: Any = repeats if isinstance(repeats, np.generic) else value_of(repeats)
    if np.size(counts) != 1:
        return np.take(a, np.repeat(np.arange(int(a.shape[axis])), counts), axis)
    # NumPy says which numbers it takes: Python's floats, but not arrays of floats.
    np.zeros(0).repeat(counts)
    return _repeat.run(a, int(np.asarray(counts).item()), axis)


repeated_places: Operator[..., Any] = numpy_operator(
    "repeated_places",
    "(Array counts) -> Array",
    lambda counts: np.repeat(np.arange(counts.shape[0]), counts),
    tags=Tag.dynamic_output_shape,
)
no_gradient(repeated_places)
repeated_places.register_sample_inputs(
    lambda: [(np.array([2, 0, 1]),), (np.array([3]),), (np.zeros(0, int),)]
)


@repeated_places.register_fake
def _(counts: Any) -> FakeArray:
    np.zeros(0).repeat(np.zeros(0, counts.dtype))  # raises for floats, as NumPy does
    size = get_ctx().new_dynamic_size()
    return FakeArray((size,), np.intp, device=device_of(counts))


@repeated_places.register_vmap
def _(info: Any, in_dims: Any, counts: Any) -> Any:
    raise DataDependentError(
        f"np.repeat by counts that are not known, under vmap of {info.batch_size} rows:"
        " the shape of the result depends on data",
        do="give plain integers, or np.take(x, places, axis) with a place for each"
        " element; or map(f, rows), which runs f once for each row",
    )
