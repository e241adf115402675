"""Shapes and axes: reshape, transpose, broadcasting, and questions about shapes.

All are linear and return views. Functions without an operator are made of these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from operator import methodcaller
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from customop import (
    FakeArray,
    Operator,
    ShapeError,
    SymInt,
    fake_like,
    is_view,
    prepared,
    register_numpy_function,
    write_back,
)
from customop.numpy.arguments import (
    as_array,
    as_order,
    broadcast,
    dtype_of,
    fits_into,
    is_known,
    list_of_ints,
    numpy_refuses,
    only,
    product,
    reduced_axes,
    same_shape,
    same_size,
    typical,
    typical_pair,
    unless_scalar,
    wide_to,
)
from customop.numpy.rules import (
    batch_first,
    device_of,
    linear,
    past_rows,
    read_only,
    view_of,
    without_ones,
)

# ---- reshape ----


def _lengths(shape: Sequence[int], new: Sequence[int]) -> tuple[int, ...]:
    """Return new lengths, with -1 replaced."""
    size, given = product(shape), tuple(new)
    known = product(given)
    is_plain = type(known) is type(size) is int
    if is_plain and known == size > 0 and min(given, default=1) > 0:
        return given  # as usual
    # A symbolic size is never the -1 that asks for the rest.
    unknown = [i for i, n in enumerate(given) if type(n) is int and n == -1]
    known = product([n for i, n in enumerate(given) if i not in unknown])
    fits = _divides(known, size) if unknown else known == size
    least = min([n for n in given if type(n) is int], default=0)
    if len(unknown) > 1 or least < -1 or not fits:
        raise ShapeError(
            f"cannot reshape array of size {size} into shape {given}",
            do="give lengths whose product is the number of elements",
        )
    if not unknown:
        return given
    at = unknown[0]
    return (*given[:at], size // known, *given[at + 1 :])


def _divides(known: Any, size: Any) -> bool:
    """Return whether an array of so many elements can have axes of `known` elements.

    A symbolic `known` is not asked whether it is 0: NumPy raises where it is.
    """
    if type(known) is int and type(size) is int:
        return known > 0 and size % known == 0
    return not is_known(known, 0) and bool(size % known == 0)


def _reshaped_strides(
    shape: Sequence[int], strides: Sequence[int], new: Sequence[int]
) -> tuple[int, ...] | None:
    """Return the strides of a view of the new shape; None if elements must be copied.

    A group of old axes that becomes a group of new axes must be evenly spaced in
    memory. Source: numpy.reshape, NumPy 2.4.
    """
    lengths, to = typical_pair(shape, new)
    if 0 in lengths or 0 in to:
        return None
    triples = zip(lengths, typical(strides), strides, strict=True)
    old = [triple for triple in triples if triple[0] != 1]
    found = [0] * len(new)
    at = 0
    axis = 0
    while axis < len(new):
        first, count, target = axis, 1, to[axis]
        group: list[tuple[int, int, int]] = []
        while count != target:
            if count < target:
                group.append(old[at])
                count *= old[at][0]
                at += 1
            else:
                axis += 1
                target *= to[axis]
        if any(a[1] != b[0] * b[1] for a, b in pairwise(group)):
            return None
        step = group[-1][2] if group else 0
        for i in range(axis, first - 1, -1):
            found[i] = step
            step *= new[i]
        axis += 1
    return tuple(found)


def _reshaped_view(x: Any, shape: Any) -> FakeArray:
    lengths = _lengths(x.shape, shape)
    strides = _reshaped_strides(x.shape, x.strides, lengths)
    return FakeArray(lengths, x.dtype, strides, device_of(x))


def _moved_lengths(batch: Any, dim: int, shape: Any) -> Any:
    return None if dim else ([[batch[0], *_lengths(batch[1:], shape)]], 0)


_reshape: Operator[..., Any] = linear(
    "reshape",
    "(Array(a) x, int[] shape) -> Array(a)",
    lambda x, shape: np.reshape(x, tuple(shape)),
    # Methods of NumPy's arrays take a quarter of the time of functions.
    cpu=prepared(
        lambda x, shape: x.reshape(shape), lambda n: methodcaller("reshape", tuple(n))
    ),
    fake=_reshaped_view,
    transpose=lambda g, old, shape: _reshape.run(g, [*old]),
    rows=_moved_lengths,
    is_rearrangement=True,
)


@_reshape.register(is_view)
def _(strides: Any, x: Any, shape: Any) -> bool:
    if _reshaped_strides(x.shape, strides, _lengths(x.shape, shape)) is not None:
        return True
    sizes = _with_ones(x.shape)
    return sizes is not None and (
        _reshaped_strides(sizes, strides, _lengths(sizes, _with_ones(shape) or shape))
        is not None
    )


def _with_ones(shape: Sequence[Any]) -> Sequence[Any] | None:
    """Ask symbolic sizes of a shape whether they are 1; return None if none is.

    Then more arrays are views than for other sizes; so the answer becomes a guard.
    """
    found = [1 if type(n) is SymInt and n == 1 else n for n in shape]
    return None if all(a is b for a, b in zip(found, shape, strict=True)) else found


@register_numpy_function(np.reshape)
def _(a: Any, /, shape: Any, order: str = "C", *, copy: Any = None) -> Any:
    if order != "C" or copy is not None:
        order = as_order("np.reshape", order, "C", "F")
        only("np.reshape", copy=(copy, None, True))
        a = np.copy(a) if copy else a
    lengths = list_of_ints(shape)
    if order == "F":
        return _turned(_reshape.run(_turned(a), lengths[::-1]))
    return _reshape.run(a, lengths)


# As reshape to one axis, but a view only of an array that lies in C order.
_ravel: Operator[..., Any] = linear(
    "ravel",
    "(Array(a) x) -> Array(a)",
    lambda x: np.ravel(x),
    fake=lambda x: FakeArray((product(x.shape),), x.dtype, device=device_of(x)),
    transpose=lambda g, shape: np.reshape(g, shape),
    is_rearrangement=True,
)


@_ravel.register_vmap
def _(info: Any, in_dims: Any, x: Any) -> Any:
    first = batch_first(x, in_dims[0])
    return np.reshape(first, (first.shape[0], product(first.shape[1:]))), 0


@_ravel.register(is_view)
def _(strides: Any, x: Any) -> bool:
    step = fake_like(x, shape=()).dtype.itemsize
    if _is_packed(x.shape, strides, step):
        return True
    sizes = _with_ones(x.shape)
    return sizes is not None and _is_packed(sizes, strides, step)


def _is_packed(shape: Sequence[int], strides: Sequence[int], step: int) -> bool:
    """Return whether an array lies in C order without gaps."""
    for length, stride in reversed(without_ones(shape, strides)):
        if stride != step:
            return False
        step *= length
    return True


@register_numpy_function(np.ravel)
def _(a: Any, order: Any = "C") -> Any:
    if order != "C":
        order = as_order("np.ravel", order, "C", "F")
    array = as_array(a)
    return _ravel.run(_turned(array) if order == "F" else array)


def _at_least(rank: int, where: Callable[[int], tuple[int, ...]]) -> Callable[..., Any]:
    """Make ``np.atleast_1d`` and others: `where` gives the new axes for a rank."""

    def atleast(*arys: Any) -> Any:
        arrays = [as_array(a) for a in arys]
        found = [
            np.expand_dims(a, where(a.ndim)) if a.ndim < rank else a for a in arrays
        ]
        return found[0] if len(found) == 1 else tuple(found)

    return atleast


register_numpy_function(np.atleast_1d, _at_least(1, lambda rank: (0,)))
register_numpy_function(np.atleast_2d, _at_least(2, lambda rank: ((0, 1), (0,))[rank]))
register_numpy_function(
    np.atleast_3d, _at_least(3, lambda rank: ((0, 1, 2), (0, 2), (2,))[rank])
)


# ---- transpose ----


def _inverse(axes: Sequence[int]) -> list[int]:
    found = [0] * len(axes)
    for i, axis in enumerate(axes):
        found[axis] = i
    return found


def _transposed_view(x: Any, axes: Any) -> FakeArray:
    order = normalize_axis_tuple(axes, x.ndim)
    return view_of(x, [x.shape[a] for a in order], [x.strides[a] for a in order])


def _moved_axes(shape: Any, dim: int, axes: Any) -> tuple[Sequence[Any], int]:
    others = [axis for axis in range(len(shape)) if axis != dim]
    return [[dim, *[others[a] for a in axes]]], 0


_transpose: Operator[..., Any] = linear(
    "transpose",
    "(Array(a) x, int[] axes) -> Array(a)",
    lambda x, axes: np.transpose(x, tuple(axes)),
    cpu=prepared(
        lambda x, axes: x.transpose(axes), lambda n: methodcaller("transpose", tuple(n))
    ),
    fake=_transposed_view,
    transpose=lambda g, shape, axes: _transpose.run(g, _inverse(axes)),
    rows=_moved_axes,
    is_rearrangement=True,
)


def _turned(a: Any) -> Any:
    """Return the array with its axes reversed."""
    return _transpose.run(a, [*range(len(a.shape) - 1, -1, -1)])


@register_numpy_function(np.transpose)
def _(a: Any, axes: Any = None) -> Any:
    rank = len(a.shape)
    if axes is None:
        return _turned(a)
    order = [normalize_axis_index(axis, rank) for axis in list_of_ints(axes)]
    if len({*order}) != len(order) or len(order) != rank:
        normalize_axis_tuple(axes, rank)  # raises for an axis that is named twice
        numpy_refuses(np.transpose, a, axes, do="name each axis once")
    return _transpose.run(a, order)


@register_numpy_function(np.moveaxis)
def _(a: Any, source: Any, destination: Any) -> Any:
    start = normalize_axis_tuple(source, a.ndim, "source")
    end = normalize_axis_tuple(destination, a.ndim, "destination")
    if len(start) != len(end):
        numpy_refuses(np.moveaxis, a, start, end, do="give a destination for each axis")
    order = [axis for axis in range(a.ndim) if axis not in start]
    for to, axis in sorted(zip(end, start, strict=True)):
        order.insert(to, axis)
    return _transpose.run(a, order)


@register_numpy_function(np.swapaxes)
def _(a: Any, axis1: int, axis2: int) -> Any:
    first, second = (normalize_axis_index(axis, a.ndim) for axis in (axis1, axis2))
    order = list(range(a.ndim))
    order[first], order[second] = second, first
    return _transpose.run(a, order)


@register_numpy_function(np.rollaxis)
def _(a: Any, axis: int, start: int = 0) -> Any:
    axis = normalize_axis_index(axis, a.ndim)
    if not -a.ndim <= start <= a.ndim:
        numpy_refuses(np.rollaxis, a, axis, start)
    start += a.ndim if start < 0 else 0
    return np.moveaxis(a, axis, start - 1 if axis < start else start)


@register_numpy_function(np.matrix_transpose)
def _(x: Any, /) -> Any:
    return np.swapaxes(x, -1, -2)


# Operators for axes of length one and for broadcasting, and questions about shapes.


# ---- axes of length one ----


def _with_new_axes(x: Any, axis: Any) -> Any:
    key: list[Any] = [slice(None)] * (x.ndim + len(axis))
    try:
        for at in axis:
            key[at] = None
        return x[tuple(key)]
    except IndexError:  # axes outside or repeated: NumPy's own error
        return np.expand_dims(x, tuple(axis))


def expanded(x: Any, axis: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return shape and strides with new axes of length one; `axis` must be sorted."""
    shape, strides = list(x.shape), list(x.strides)
    for at in axis:
        shape.insert(at, 1)
        strides.insert(at, 0)
    return shape, strides


def _expanded_view(x: Any, axis: Any) -> FakeArray:
    axes = normalize_axis_tuple(axis, x.ndim + len(axis))
    return view_of(x, *expanded(x, sorted(axes)))


_expand_dims: Operator[..., Any] = linear(
    "expand_dims",
    "(Array(a) x, int[] axis) -> Array(a)",
    lambda x, axis: np.expand_dims(x, tuple(axis)),
    cpu=_with_new_axes,
    fake=_expanded_view,
    transpose=lambda g, shape, axis: _squeeze.run(g, axis),
    rows={"axis": past_rows},
    is_rearrangement=True,
)


@register_numpy_function(np.expand_dims)
def _(a: Any, axis: Any) -> Any:
    rank = a.ndim + (len(axis) if isinstance(axis, tuple | list) else 1)
    return _expand_dims.run(a, sorted(normalize_axis_tuple(axis, rank)))


def _squeezed_view(x: Any, axis: Any) -> FakeArray:
    dropped = normalize_axis_tuple(axis, x.ndim)
    kept = [i for i in range(x.ndim) if i not in dropped]
    return view_of(x, [x.shape[i] for i in kept], [x.strides[i] for i in kept])


_squeeze: Operator[..., Any] = linear(
    "squeeze",
    "(Array(a) x, int[] axis) -> Array(a)",
    lambda x, axis: np.squeeze(x, tuple(axis)),
    cpu=prepared(
        lambda x, axis: x.squeeze(tuple(axis)),
        lambda axis: methodcaller("squeeze", tuple(axis)),
    ),
    fake=_squeezed_view,
    transpose=lambda g, shape, axis: _expand_dims.run(g, axis),
    rows={"axis": past_rows},
    is_rearrangement=True,
)


@register_numpy_function(np.squeeze)
def _(a: Any, axis: Any = None) -> Any:
    if reduced_axes(a, axis) is None:
        axis = tuple([i for i, length in enumerate(a.shape) if length == 1])
        if not axis:
            return a  # NumPy returns the array itself
    axes = sorted(normalize_axis_tuple(axis, a.ndim))
    if any(a.shape[i] != 1 for i in axes):
        numpy_refuses(np.squeeze, a, tuple(axes), do="name axes of length one")
    return _squeeze.run(a, axes)


# ---- broadcasting ----


def _broadcast_view(x: Any, shape: Any) -> FakeArray:
    missing = len(shape) - x.ndim
    pairs = zip(x.shape, shape[max(missing, 0) :], strict=False)
    if missing < 0 or not all(fits_into(own, n) for own, n in pairs):
        raise ShapeError(
            f"operands could not be broadcast together: an array of shape"
            f" {tuple(x.shape)} into the shape {tuple(shape)}",
            do="give lengths that are equal, or one in the array",
        )
    own = zip(x.shape, x.strides, shape[missing:], strict=True)
    kept = [s if same_size(n, to) else 0 for n, s, to in own]
    return view_of(x, shape, [0] * missing + kept)


_broadcast_to: Operator[..., Any] = linear(
    "broadcast_to",
    "(Array(a) x, int[] shape) -> Array(a)",
    lambda x, shape: np.broadcast_to(x, tuple(shape)),
    fake=_broadcast_view,
    transpose=lambda g, old, shape: _sum_to(g, old),
)
_broadcast_to.register(write_back, read_only)


@_broadcast_to.register_vmap
def _(info: Any, in_dims: Any, x: Any, shape: Any) -> Any:
    first = batch_first(x, in_dims[0])
    missing = max(len(shape) - (first.ndim - 1), 0)
    wide = np.expand_dims(first, tuple(range(1, 1 + missing))) if missing else first
    return wide_to(wide, (first.shape[0], *shape)), 0


def _sum_to(g: Any, shape: tuple[int, ...]) -> Any:
    """Sum over the axes that broadcasting added or stretched: its transpose."""
    extra = g.ndim - len(shape)
    pairs = enumerate(zip(shape, g.shape[extra:], strict=True), extra)
    axes = (*range(extra), *[i for i, (own, n) in pairs if not same_size(own, n)])
    if type(g) is np.ndarray and axes:  # the short way
        return np.asarray(np.add.reduce(g, axes)).reshape(shape)
    return np.reshape(np.sum(g, axis=axes), shape) if axes else g


@register_numpy_function(np.broadcast_to)
def _(array: Any, shape: Any, subok: bool = False) -> Any:
    if subok is not False:
        only("np.broadcast_to", subok=(subok, False))
    return _broadcast_to.run(array, list_of_ints(shape))


@register_numpy_function(np.broadcast_arrays)
def _(*args: Any, subok: bool = False) -> Any:
    only("np.broadcast_arrays", subok=(subok, False))
    arrays = [unless_scalar(as_array(a)) for a in args]
    shape = broadcast(*[tuple(a.shape) for a in arrays])
    if all(same_shape(a.shape, shape) for a in arrays):
        return tuple(arrays)  # which can be written
    return tuple([np.broadcast_to(a, shape) for a in arrays])


@register_numpy_function(np.meshgrid)
def _(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    only("np.meshgrid", indexing=(indexing, "xy", "ij"))
    rank = len(xi)
    grids = []
    for i, x in enumerate(xi):
        at = 1 - i if indexing == "xy" and i < 2 and rank > 1 else i
        grids.append(
            np.reshape(as_array(x), (1,) * at + (-1,) + (1,) * (rank - at - 1))
        )
    found = tuple(grids) if sparse else np.broadcast_arrays(*grids)
    return tuple([np.copy(grid) for grid in found]) if copy else found


# ---- shape and dtype ----

register_numpy_function(np.ndim, lambda a: a.ndim)
register_numpy_function(np.shape, lambda a: a.shape)
register_numpy_function(np.iscomplexobj, lambda x: x.dtype.kind == "c")
register_numpy_function(np.isrealobj, lambda x: x.dtype.kind != "c")


@register_numpy_function(np.size)
def _(a: Any, axis: Any = None) -> Any:
    if axis is None:
        return a.size
    return product([a.shape[i] for i in normalize_axis_tuple(axis, a.ndim)])


@register_numpy_function(np.result_type)
def _(*arrays_and_dtypes: Any) -> Any:
    return np.result_type(*[_kind_of(v) for v in arrays_and_dtypes])


def _kind_of(value: Any) -> Any:
    is_array = hasattr(value, "dtype") and not isinstance(value, type)
    return dtype_of(value) if is_array else value
