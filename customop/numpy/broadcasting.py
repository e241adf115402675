"""Operators for axes of length one and for broadcasting, and questions about shapes."""

from __future__ import annotations

from collections.abc import Sequence
from operator import methodcaller
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from customop import (
    FakeArray,
    Operator,
    ShapeError,
    axis_rule,
    prepared,
    register_numpy_function,
    write_back,
)
from customop.numpy.arguments import (
    as_array,
    counted,
    dtype_of,
    list_of_ints,
    only,
    reduced_axes,
    unless_scalar,
)
from customop.numpy.fakes import view_of
from customop.numpy.rules import batch_first, numpy_operator, register_linear
from customop.numpy.sizes import (
    broadcast,
    fits_into,
    product,
    same_shape,
    same_size,
    wide_to,
)

__all__ = ["expanded"]


# ---- axes of length one ----

_expand_dims = numpy_operator(
    "expand_dims",
    "(Array(a) x, int[] axis) -> Array(a)",
    lambda x, axis: np.expand_dims(x, tuple(axis)),
)


@_expand_dims.register_kernel("cpu")
def _(x: Any, axis: Any) -> Any:
    key: list[Any] = [slice(None)] * (x.ndim + len(axis))
    try:
        for at in axis:
            key[at] = None
        return x[tuple(key)]
    except IndexError:  # axes outside or repeated: NumPy's own error
        return np.expand_dims(x, tuple(axis))


def expanded(x: Any, axis: Sequence[int]) -> tuple[list[int], list[int]]:
    """Shape and strides with new axes of length one; `axis` must be sorted."""
    shape, strides = list(x.shape), list(x.strides)
    for at in axis:
        shape.insert(at, 1)
        strides.insert(at, 0)
    return shape, strides


@_expand_dims.register_fake
def _(x: Any, axis: Any) -> FakeArray:
    axes = normalize_axis_tuple(axis, x.ndim + len(axis))
    return view_of(x, *expanded(x, sorted(axes)))


def _moved_new_axes(shape: Any, dim: int, axis: Any) -> Any:
    if dim:
        return None
    axes = counted(axis, len(shape) - 1 + len(axis))
    return [[a + 1 for a in axes]], 0


_expand_dims.register_vmap(axis_rule(_expand_dims, _moved_new_axes))


@_expand_dims.register(write_back)
def _(new: Any, x: Any, axis: Any) -> Any:
    return np.squeeze(new, tuple(axis))


register_linear(_expand_dims, lambda g, shape, axis: _squeeze.run(g, axis))


@register_numpy_function(np.expand_dims)
def _(a: Any, axis: Any) -> Any:
    rank = a.ndim + (len(axis) if isinstance(axis, tuple | list) else 1)
    return _expand_dims.run(a, sorted(normalize_axis_tuple(axis, rank)))


_squeeze: Operator[..., Any] = numpy_operator(
    "squeeze",
    "(Array(a) x, int[] axis) -> Array(a)",
    lambda x, axis: np.squeeze(x, tuple(axis)),
)
_squeeze.register_kernel(
    "cpu",
    prepared(
        lambda x, axis: x.squeeze(tuple(axis)),
        lambda axis: methodcaller("squeeze", tuple(axis)),
    ),
)


@_squeeze.register_fake
def _(x: Any, axis: Any) -> FakeArray:
    dropped = normalize_axis_tuple(axis, x.ndim)
    kept = [i for i in range(x.ndim) if i not in dropped]
    return view_of(x, [x.shape[i] for i in kept], [x.strides[i] for i in kept])


def _moved_old_axes(shape: Any, dim: int, axis: Any) -> Any:
    return None if dim else ([[a + 1 for a in counted(axis, len(shape) - 1)]], 0)


_squeeze.register_vmap(axis_rule(_squeeze, _moved_old_axes))


@_squeeze.register(write_back)
def _(new: Any, x: Any, axis: Any) -> Any:
    return np.expand_dims(new, tuple(axis))


register_linear(_squeeze, lambda g, shape, axis: _expand_dims.run(g, axis))


@register_numpy_function(np.squeeze)
def _(a: Any, axis: Any = None) -> Any:
    if reduced_axes(a, axis) is None:
        axis = tuple([i for i, length in enumerate(a.shape) if length == 1])
        if not axis:
            return a  # NumPy returns the array itself
    axes = sorted(normalize_axis_tuple(axis, a.ndim))
    if any(a.shape[i] != 1 for i in axes):
        raise ShapeError(
            "cannot select an axis to squeeze out which has size not equal to one",
            f"axis {axis} of an array of shape {tuple(a.shape)}",
            do="name axes of length one",
        )
    return _squeeze.run(a, axes)


# ---- broadcasting ----

_broadcast_to = numpy_operator(
    "broadcast_to",
    "(Array(a) x, int[] shape) -> Array(a)",
    lambda x, shape: np.broadcast_to(x, tuple(shape)),
)


@_broadcast_to.register_fake
def _(x: Any, shape: Any) -> FakeArray:
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


@_broadcast_to.register(write_back)
def _(new: Any, x: Any, shape: Any) -> Any:
    raise ValueError("assignment destination is read-only")


register_linear(_broadcast_to, lambda g, old, shape: _sum_to(g, old))


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
