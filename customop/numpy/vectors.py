"""Products of stacked vectors, chains of products, and np.linalg's names for these.

All are made of other operators.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from customop import ShapeError, register_numpy_function
from customop.numpy.arguments import SINCE_2_5, as_array, as_scalar, shape_of
from customop.numpy.matrices import column, conj
from customop.numpy.sizes import typical

__all__: list[str] = []


def _check_vectors(name: str, *shapes: Sequence[int]) -> None:
    if not all(shapes):
        raise ShapeError(
            f"np.{name}: an array without axes is not a vector", do="use x * y"
        )


# ---- stacks of vectors ----


@register_numpy_function(np.linalg.vecdot)
@register_numpy_function(np.vecdot)
def _(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    x1, x2 = as_array(x1), as_array(x2)
    _check_vectors("vecdot", x1.shape, x2.shape)
    at = operator.index(axis)
    if at != -1:
        x1, x2 = np.moveaxis(x1, at, -1), np.moveaxis(x2, at, -1)
    return as_scalar(np.matmul(np.expand_dims(conj(x1), -2), column(x2))[..., 0, 0])


def _matvec(x1: Any, x2: Any, /) -> Any:
    x2 = as_array(x2)
    _check_vectors("matvec", shape_of(x1)[1:], x2.shape)
    return np.matmul(x1, column(x2))[..., 0]


def _vecmat(x1: Any, x2: Any, /) -> Any:
    x1 = as_array(x1)
    _check_vectors("vecmat", x1.shape, shape_of(x2)[1:])
    return np.matmul(np.expand_dims(conj(x1), -2), x2)[..., 0, :]


if hasattr(np, "matvec"):  # since NumPy 2.2
    register_numpy_function(np.matvec, _matvec)
    register_numpy_function(np.vecmat, _vecmat)


# ---- chains of products ----


@register_numpy_function(np.linalg.multi_dot)
def _(arrays: Any, *, out: None = None) -> Any:
    factors = [as_array(a) for a in arrays]
    ranks = [len(a.shape) for a in factors]
    inner = ranks[1:-1]
    if len(ranks) < 2 or {ranks[0], ranks[-1]} - {1, 2} or set(inner) - {2}:
        raise ShapeError(
            "np.linalg.multi_dot takes two or more matrices, and vectors at the ends; got"
            f" arrays of {ranks} axes",
            do="use x @ y for stacks of matrices",
        )
    factors[0] = factors[0][None] if ranks[0] == 1 else factors[0]
    factors[-1] = column(factors[-1]) if ranks[-1] == 1 else factors[-1]
    whole = _chained(factors, _cheapest([a.shape for a in factors]), 0, len(ranks) - 1)
    first = 0 if ranks[0] == 1 else slice(None)
    return whole[first, 0 if ranks[-1] == 1 else slice(None)]


def _cheapest(shapes: Sequence[Sequence[int]]) -> dict[tuple[int, int], int]:
    """For each part of a chain, after which factor to split it.

    Source: Cormen et al., "Introduction to algorithms", 3rd ed., section 15.2.
    """
    sizes = typical([shapes[0][0], *(shape[1] for shape in shapes)])
    costs = {(i, i): 0 for i in range(len(shapes))}
    splits: dict[tuple[int, int], int] = {}
    for length in range(1, len(shapes)):
        for i in range(len(shapes) - length):
            j = i + length
            outer = sizes[i] * sizes[j + 1]
            costs[i, j], splits[i, j] = min(
                (costs[i, k] + costs[k + 1, j] + outer * sizes[k + 1], k)
                for k in range(i, j)
            )
    return splits


def _chained(
    factors: Sequence[Any], splits: dict[tuple[int, int], int], i: int, j: int
) -> Any:
    """The product of the factors from i to j."""
    if i == j:
        return factors[i]
    at = splits[i, j]
    first = _chained(factors, splits, i, at)
    return np.matmul(first, _chained(factors, splits, at + 1, j))


# ---- np.linalg's names ----


@register_numpy_function(np.linalg.matmul)
def _(x1: Any, x2: Any, /) -> Any:
    return np.matmul(x1, x2)


@register_numpy_function(np.linalg.tensordot)
def _(x1: Any, x2: Any, /, *, axes: Any = 2) -> Any:
    return np.tensordot(x1, x2, axes)


@register_numpy_function(np.linalg.outer)
def _(x1: Any, x2: Any, /) -> Any:
    x1, x2 = as_array(x1), as_array(x2)
    if {len(x1.shape), len(x2.shape)} != {1}:
        raise ShapeError(
            f"np.linalg.outer takes two vectors, got shapes {tuple(x1.shape)} and"
            f" {tuple(x2.shape)}",
            do="use np.outer, which makes vectors of its arguments",
        )
    return np.outer(x1, x2)


@register_numpy_function(np.linalg.cross)
def _(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    x1, x2 = as_array(x1), as_array(x2)
    if SINCE_2_5:
        return np.cross(x1, x2, axis=axis)
    _check_vectors("linalg.cross", x1.shape, x2.shape)
    if x1.shape[axis] != 3 or x2.shape[axis] != 3:
        raise ShapeError(
            f"np.linalg.cross takes vectors of 3 elements, got shapes {tuple(x1.shape)} and"
            f" {tuple(x2.shape)} along axis {axis}",
            do="name the axis of the 3 elements",
        )
    return np.cross(x1, x2, axis=axis)


@register_numpy_function(np.linalg.diagonal)
def _(x: Any, /, *, offset: int = 0) -> Any:
    return np.diagonal(x, offset, -2, -1)


@register_numpy_function(np.linalg.trace)
def _(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    return np.trace(x, offset, -2, -1, dtype)


@register_numpy_function(np.linalg.matrix_transpose)
def _(x: Any, /) -> Any:
    return np.matrix_transpose(x)
