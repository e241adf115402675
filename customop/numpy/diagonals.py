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
from customop.numpy.fakes import view_of
from customop.numpy.index import (
    numbers,
    scatter_add,
)
from customop.numpy.rules import batch_first, numpy_operator, register_linear
from customop.numpy.sizes import (
    larger,
    smaller,
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


def _undiagonal(g: Any, shape: Any, offset: int, axis1: int, axis2: int) -> Any:
    """Zeros with `g` on a diagonal: the transpose of taking it."""
    axis1, axis2 = _pair(len(shape), axis1, axis2)
    rest = [n for i, n in enumerate(shape) if i not in (axis1, axis2)]
    count = g.shape[-1]
    starts = max(-offset, 0), max(offset, 0)
    places = [*[None] * len(rest), *[numbers(i, i + count, g) for i in starts]]
    whole = scatter_add.run(g, [*rest, shape[axis1], shape[axis2]], places)
    if (axis1, axis2) == (len(rest), len(rest) + 1):
        return whole
    return np.moveaxis(whole, (-2, -1), (axis1, axis2))


register_linear(_diagonal, _undiagonal)
register_linear(
    writable_diagonal,
    lambda g, shape, axis1, axis2: _undiagonal(g, shape, 0, axis1, axis2),
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
    count, size = v.shape[0], v.shape[0] + abs(k)
    places = [numbers(i, i + count, v) for i in (max(-k, 0), max(k, 0))]
    return scatter_add.run(v, [size, size], places)


register_numpy_function(np.diagflat, lambda v, k=0: np.diag(np.ravel(v), k))


@register_numpy_function(np.trace)
def _(
    a: Any,
    offset: int = 0,
    axis1: int = 0,
    axis2: int = 1,
    dtype: Any = None,
    out: None = None,
) -> Any:
    return np.sum(np.diagonal(a, offset, axis1, axis2), -1, dtype)
