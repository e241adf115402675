"""Operators for diagonals: diagonal, diag and trace."""

from __future__ import annotations

from operator import index as as_int
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from customop import (
    FakeArray,
    Operator,
    ShapeError,
    register_numpy_function,
    write_back,
)
from customop.numpy.fakes import device_of, view_of
from customop.numpy.flat import scattered
from customop.numpy.index import numbers
from customop.numpy.matrices import column
from customop.numpy.reduce import sum_
from customop.numpy.rules import batch_first, numpy_operator, register_linear
from customop.numpy.sizes import (
    is_symbolic,
    larger,
    same_shape,
    smaller,
    wide_to,
)

__all__ = ["writable_diagonal"]


# ---- diagonals ----


_diagonal = numpy_operator(
    "diagonal",
    "(Array(a) x, int offset, int axis1, int axis2) -> Array(a)",
    lambda x, offset, axis1, axis2: np.diagonal(x, offset, axis1, axis2),
)


def _pair(ndim: int, axis1: int, axis2: int) -> tuple[int, int]:
    """Two axes, counted from the front."""
    first, second = (normalize_axis_index(axis, ndim) for axis in (axis1, axis2))
    if first == second:
        raise ValueError("axis1 and axis2 cannot be the same")
    return first, second


def _count(rows: Any, columns: Any, offset: int) -> Any:
    """Length of a diagonal of a matrix."""
    return larger(smaller(rows - max(-offset, 0), columns - max(offset, 0)), 0)


@_diagonal.register_fake
def _view(x: Any, offset: int, axis1: int, axis2: int) -> FakeArray:
    axis1, axis2 = _pair(len(x.shape), axis1, axis2)
    kept = [i for i in range(x.ndim) if i not in (axis1, axis2)]
    count = _count(x.shape[axis1], x.shape[axis2], offset)
    step = x.strides[axis1] + x.strides[axis2]
    shape = [*[x.shape[i] for i in kept], count]
    return view_of(x, shape, [*[x.strides[i] for i in kept], step])


@_diagonal.register_vmap
def _(info: Any, in_dims: Any, x: Any, offset: int, axis1: int, axis2: int) -> Any:
    axis1, axis2 = _pair(x.ndim - 1, axis1, axis2)
    return _diagonal(batch_first(x, in_dims[0]), offset, axis1 + 1, axis2 + 1), 0


@_diagonal.register(write_back)
def _(new: Any, x: Any, offset: int, axis1: int, axis2: int) -> Any:
    raise ValueError("assignment destination is read-only")


def _check_lengths(x: Any, axis1: int, axis2: int) -> None:
    """Raise unless two axes have one length: np.einsum may then read other memory."""
    if x.shape[axis1] != x.shape[axis2]:
        raise ShapeError(
            f"the axes {axis1} and {axis2} have the lengths {x.shape[axis1]} and"
            f" {x.shape[axis2]}, and must have one",
            do="use np.diagonal",
        )


def _whole_diagonal(x: Any, axis1: int, axis2: int) -> Any:
    """The diagonal of two axes, as a view that can be written: np.einsum gives it."""
    _check_lengths(x, axis1, axis2)
    axes = list(range(x.ndim))
    axes[axis2] = axis1
    return np.einsum(
        x, axes, [a for a in range(x.ndim) if a not in (axis1, axis2)] + [axis1]
    )


# Unlike that of np.diagonal, this view can be written.
writable_diagonal: Operator[..., Any] = numpy_operator(
    "writable_diagonal",
    "(Array(a) x, int axis1, int axis2) -> Array(a)",
    _whole_diagonal,
)


@writable_diagonal.register_fake
def _(x: Any, axis1: int, axis2: int) -> FakeArray:
    _check_lengths(x, axis1, axis2)
    return _view(x, 0, axis1, axis2)


@writable_diagonal.register_vmap
def _(info: Any, in_dims: Any, x: Any, axis1: int, axis2: int) -> Any:
    return writable_diagonal(batch_first(x, in_dims[0]), axis1 + 1, axis2 + 1), 0


@writable_diagonal.register(write_back)
def _(new: Any, x: Any, axis1: int, axis2: int) -> Any:
    whole = np.copy(x)
    places = numbers(0, x.shape[axis1], x)
    np.moveaxis(whole, (axis1, axis2), (-2, -1))[..., places, places] = new
    return whole


def _placed(g: Any, shape: Any, offset: int, axis1: int, axis2: int) -> Any:
    _check_placed(g, shape, offset, axis1, axis2)
    axis1, axis2 = _pair(len(shape), axis1, axis2)
    rest = [n for i, n in enumerate(shape) if i not in (axis1, axis2)]
    count = g.shape[-1]
    starts = max(-offset, 0), max(offset, 0)
    places = [*[None] * len(rest), *[np.arange(i, i + count) for i in starts]]
    lengths = [*rest, shape[axis1], shape[axis2]]
    whole = scattered(g, lengths, places, len(rest))
    return np.moveaxis(whole, (-2, -1), (axis1, axis2))


def _check_placed(g: Any, shape: Any, offset: int, axis1: int, axis2: int) -> None:
    axis1, axis2 = _pair(len(shape), axis1, axis2)
    expected = [n for i, n in enumerate(shape) if i not in (axis1, axis2)]
    expected.append(_count(shape[axis1], shape[axis2], offset))
    if not same_shape(g.shape, expected) and tuple(g.shape) != tuple(expected):
        raise ShapeError(
            f"np::undiagonal: g has the shape {tuple(g.shape)}, the diagonals"
            f" {tuple(expected)}",
            do="broadcast g to the shape of the diagonals",
        )


def _quick_placed(g: Any, shape: Any, offset: int, axis1: int, axis2: int) -> Any:
    zeros, view = _zeros(shape, g.dtype, offset, axis1, axis2)
    if view.shape != g.shape:
        _check_placed(g, shape, offset, axis1, axis2)
    view[...] = g
    return zeros


def _zeros(shape: Any, dtype: Any, offset: int, axis1: int, axis2: int) -> Any:
    """An array of NumPy, and its diagonal as a view that can be written."""
    zeros = np.zeros(shape, dtype)
    view = zeros.diagonal(offset, axis1, axis2)
    view.setflags(write=True)
    return zeros, view


def _placed_on_gpu(g: Any, shape: Any, offset: int, axis1: int, axis2: int) -> Any:
    _check_placed(g, shape, offset, axis1, axis2)
    zeros = np.zeros_like(g, shape=tuple(shape), order="C")
    zeros.diagonal(offset, axis1, axis2)[...] = g  # CuPy's view can be written
    return zeros


# The transpose of `np::diagonal`: zeros with `g` on the diagonals.
_undiagonal: Operator[..., Any] = numpy_operator(
    "undiagonal",
    "(Array g, int[] shape, int offset, int axis1, int axis2) -> Array",
    _placed,
)
_undiagonal.register_kernel("cpu", _quick_placed)
_undiagonal.register_kernel("cuda", _placed_on_gpu)


@_undiagonal.register_fake
def _(g: Any, shape: Any, offset: int, axis1: int, axis2: int) -> FakeArray:
    _check_placed(g, shape, offset, axis1, axis2)
    return FakeArray(shape, g.dtype, device=device_of(g))


@_undiagonal.register_vmap
def _(
    info: Any, in_dims: Any, g: Any, shape: Any, offset: int, axis1: int, axis2: int
) -> Any:
    axis1, axis2 = _pair(len(shape), axis1, axis2)
    first, wide = batch_first(g, in_dims[0]), [info.batch_size, *shape]
    return _undiagonal.run(first, wide, offset, axis1 + 1, axis2 + 1), 0


register_linear(_diagonal, lambda g, shape, *at: _undiagonal.run(g, [*shape], *at))
register_linear(_undiagonal, lambda g, own, shape, *at: _diagonal.run(g, *at))
register_linear(
    writable_diagonal,
    lambda g, shape, axis1, axis2: _undiagonal.run(g, [*shape], 0, axis1, axis2),
)


@register_numpy_function(np.diagonal)
def _(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    return _diagonal(a, as_int(offset), *_pair(a.ndim, axis1, axis2))


@register_numpy_function(np.diag)
def _(v: Any, k: int = 0) -> Any:
    if v.ndim == 2:
        return np.diagonal(v, k)
    if v.ndim != 1:
        raise ShapeError(
            "Input must be 1- or 2-d.",
            f"np.diag of an array of shape {tuple(v.shape)}",
            do="use np.diagonal" if v.ndim else "use np.atleast_1d(x) first",
        )
    k, size = as_int(k), v.shape[0] + abs(k)
    return _undiagonal.run(v, [size, size], k, 0, 1)


register_numpy_function(np.diagflat, lambda v, k=0: np.diag(np.ravel(v), k))


# ---- trace ----


_trace = numpy_operator(
    "trace",
    "(Array x, int offset, int axis1, int axis2) -> Array",
    lambda x, offset, axis1, axis2: np.sum(
        np.diagonal(x, offset, axis1, axis2), axis=-1
    ),
)
_trace.register_kernel(
    "cpu", lambda x, offset, axis1, axis2: x.trace(offset, axis1, axis2)
)


@_trace.register_fake
def _(x: Any, offset: int, axis1: int, axis2: int) -> FakeArray:
    return sum_(_view(x, offset, axis1, axis2), [-1])


@_trace.register_vmap
def _(info: Any, in_dims: Any, x: Any, offset: int, axis1: int, axis2: int) -> Any:
    axis1, axis2 = _pair(x.ndim - 1, axis1, axis2)
    return _trace(batch_first(x, in_dims[0]), offset, axis1 + 1, axis2 + 1), 0


def _untraced(g: Any, shape: Any, offset: int, axis1: int, axis2: int) -> Any:
    """Zeros with each element of `g` all along its diagonal."""
    if isinstance(g, np.ndarray | np.generic) and not is_symbolic(shape):
        zeros, view = _zeros(shape, g.dtype, offset, axis1, axis2)
        view[...] = column(g)
        return zeros
    axis1, axis2 = _pair(len(shape), axis1, axis2)
    count = _count(shape[axis1], shape[axis2], offset)
    wide = wide_to(column(g), (*g.shape, count))
    return _undiagonal.run(wide, [*shape], offset, axis1, axis2)


register_linear(_trace, _untraced)


@register_numpy_function(np.trace)
def _(
    a: Any,
    offset: int = 0,
    axis1: int = 0,
    axis2: int = 1,
    dtype: Any = None,
    out: None = None,
) -> Any:
    if dtype is None:
        return _trace.run(a, as_int(offset), *_pair(a.ndim, axis1, axis2))
    return np.sum(np.diagonal(a, offset, axis1, axis2), -1, dtype)
