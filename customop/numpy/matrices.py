"""Parts that operators of stacked matrices share.

Derivatives follow the convention of the package: a gradient pairs with a tangent by the
real part of ``sum(g * t)``, without conjugation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from customop import (
    ArgumentError,
    FakeArray,
    GradientError,
    Operator,
    ShapeError,
)
from customop.numpy.arguments import dtype_of, value_of
from customop.numpy.fakes import device_of, stack_strides
from customop.numpy.rules import batch_first, is_complex, numpy_operator
from customop.numpy.sizes import product

__all__ = [
    "adjoint",
    "batch_matrices",
    "check_matrices",
    "check_square",
    "column",
    "conj",
    "diagonal",
    "from_triangle",
    "half",
    "is_known",
    "is_more",
    "largest",
    "linalg_dtype",
    "lower",
    "off_diagonal",
    "over_gaps",
    "real_dtype",
    "require",
    "row",
    "stack_of",
    "steady",
    "steps_of",
    "to_triangle",
    "transposed",
    "upper",
]

# ---- shapes and dtypes ----


def check_matrices(name: str, shape: Sequence[int]) -> None:
    """Raise unless the last two axes are those of matrices."""
    if len(shape) < 2:
        raise ShapeError(
            f"np.linalg.{name} takes matrices, got an array of shape {tuple(shape)}",
            do="give an array of at least two axes",
        )


def check_square(name: str, shape: Sequence[int]) -> None:
    """Raise unless the last two axes are those of square matrices."""
    check_matrices(name, shape)
    if shape[-1] != shape[-2]:
        raise ShapeError(
            f"np.linalg.{name} takes square matrices, got shape {tuple(shape)}",
            do="give an array whose last two axes have one length",
        )


def linalg_dtype(*arrays: Any) -> np.dtype[Any]:
    """The dtype in which np.linalg gives results of some arrays."""
    found = [_element(dtype_of(x)) for x in arrays]
    return np.result_type(*found)


def _element(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.kind not in "fc":
        return np.dtype(float)
    if dtype.char not in "fdFD":
        raise ArgumentError(
            f"array type {dtype} is unsupported in np.linalg",
            do="cast first: x.astype(float)",
        )
    return dtype


def real_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of the real parts."""
    return np.dtype(dtype.char.lower())


def is_known(x: Any) -> bool:
    """Whether the values of an array can be looked at."""
    return value_of(x) is not None


def stack_of(x: Any, core: Sequence[int], dtype: Any) -> FakeArray:
    """A fake stack with the leading axes of a stack of matrices, then `core`."""
    shape = (*x.shape[:-2], *core)
    strides = stack_strides([x], [2], core, dtype)
    return FakeArray(shape, dtype, strides, device_of(x))


# ---- matrices ----


def transposed(x: Any) -> Any:
    """The transposed matrices, the short way for arrays of NumPy."""
    return x.mT if type(x) is np.ndarray else np.swapaxes(x, -1, -2)


def conj(x: Any) -> Any:
    """The complex conjugate; a real array itself."""
    return np.conjugate(x) if is_complex(x) else x


def adjoint(x: Any) -> Any:
    """The conjugated, transposed matrices."""
    return conj(transposed(x))


def diagonal(x: Any) -> Any:
    """The diagonals of matrices."""
    if type(x) is np.ndarray:
        return x.diagonal(0, -2, -1)
    return np.diagonal(x, 0, -2, -1)


def column(x: Any) -> Any:
    """Vectors as matrices of one column."""
    if type(x) is np.ndarray or isinstance(x, np.generic):
        line: Any = x
        return line[..., None]  # np.expand_dims takes 3 us
    return np.expand_dims(x, -1)


def row(x: Any) -> Any:
    """Vectors as matrices of one row."""
    return x[..., None, :] if type(x) is np.ndarray else np.expand_dims(x, -2)


def lower(x: Any, k: int = 0) -> Any:
    """As `numpy.tril`, in a third of its time for small arrays of NumPy."""
    if type(x) is np.ndarray and x.shape[-1] * x.shape[-2] < _SMALL:
        return np.where(_below(*x.shape[-2:], k), x, np.zeros(1, x.dtype))
    return np.tril(x, k)


def upper(x: Any, k: int = 0) -> Any:
    """As `numpy.triu`, in a third of its time for small arrays of NumPy."""
    if type(x) is np.ndarray and x.shape[-1] * x.shape[-2] < _SMALL:
        return np.where(_below(*x.shape[-2:], k - 1), np.zeros(1, x.dtype), x)
    return np.triu(x, k)


_SMALL = 1024


@lru_cache(maxsize=64)
def _below(rows: int, columns: int, k: int) -> Any:
    """True on and below a diagonal."""
    return np.tri(rows, columns, k, dtype=bool)


def half(x: Any, is_upper: bool = False) -> Any:
    """One triangle of matrices, with half of the diagonal."""
    if is_upper:
        return (upper(x) + upper(x, 1)) * 0.5
    return (lower(x) + lower(x, -1)) * 0.5


def from_triangle(x: Any, is_upper: bool = False) -> Any:
    """The Hermitian matrices that have the same triangle, the imaginary diagonal dropped."""
    part = half(x, is_upper)
    return part + adjoint(part)


def to_triangle(g: Any, is_upper: bool = False) -> Any:
    """The transpose of `from_triangle`: gradients of what functions of a triangle read."""
    return half(g + adjoint(g), is_upper)


# ---- quotients by gaps ----


def largest(x: Any, axis: int | tuple[int, ...], *, keepdims: bool = False) -> Any:
    """The largest of numbers that are not negative along axes; 0 of none."""
    axes = axis if isinstance(axis, tuple) else (axis,)
    count = product([x.shape[i] for i in axes])
    if type(count) is not int:
        return np.max(x, axis=axis, keepdims=keepdims, initial=0.0)
    return (np.max if count else np.sum)(x, axis=axis, keepdims=keepdims)


def steps_of(values: Any) -> Any:
    """In place (i, j) the value j minus the value i."""
    return row(values) - column(values)


def over_gaps(x: Any, gap: Any, values: Any) -> Any:
    """``x / gap``, where a gap between `values` is more than rounding; else nan.

    It stays 0 where `x` is 0 and the gap is not: there is no dependence on vectors whose
    values are as good as equal. Where values are equal, a limit is unknown.
    """
    limit = float(np.finfo(dtype_of(gap)).eps) * values.shape[-1]
    most = largest(np.absolute(values), -1, keepdims=True)
    is_close = np.less_equal(np.absolute(gap), column(most) * limit)
    is_unused = np.logical_and(np.equal(x, 0), np.not_equal(gap, 0))
    found = x / np.where(is_close, 1.0, gap)
    return np.where(np.logical_and(is_close, np.logical_not(is_unused)), np.nan, found)


# ---- requirements on gradients ----


def _require(x: Any, wrong: Any, what: str, do: str) -> Any:
    if wrong.any():
        raise GradientError(what, do=do)
    return x.copy()


_required = numpy_operator(
    "require", "(Array x, Array wrong, str what, str do) -> Array", _require
)
_required.register_fake(
    lambda x, wrong, what, do: FakeArray(x.shape, x.dtype, device=x.device)
)


@_required.register_vmap
def _(info: Any, in_dims: Any, x: Any, wrong: Any, what: Any, do: Any) -> Any:
    # The check of all rows is one check. An array without the batch gets none.
    return _required(x, wrong, what, do), in_dims[0]


_required.register_autograd(lambda ctx, g: (g, None, None, None))


@_required.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    return _required(*primals), tangents[0]


def require(x: Any, wrong: Any, what: str, do: str) -> Any:
    """The array itself; raise GradientError if any element of `wrong` is true."""
    if not isinstance(wrong, np.ndarray | np.generic):
        return _required(x, wrong, what, do)
    if wrong.any():
        raise GradientError(what, do=do)
    return x


# ---- batches ----


def batch_matrices(
    name: str, op: Operator[..., Any], count: int = 1
) -> Callable[..., Any]:
    """The vmap rule of an operator on stacks of matrices with `count` results."""

    def batch(info: Any, in_dims: Any, a: Any, *rest: Any) -> Any:
        rows = batch_first(a, in_dims[0])
        check_matrices(name, rows.shape[1:])
        return op(rows, *rest), 0 if count == 1 else (0,) * count

    return batch


def steady(main: Any, rest: Any, g: Any, what: str, do: str) -> Any:
    """Return the part that completing columns add to the gradient of the main ones.

    `rest` completes the orthonormal columns `main` to a basis, up to a rotation; it moves
    only as far as `main` does. The gradient pairs by conjugation. It raises if the
    rotation matters.
    """
    turned = np.matmul(adjoint(rest), g)
    wrong = is_more(turned - adjoint(turned), g)
    return -np.matmul(require(rest, wrong, what, do), np.matmul(adjoint(g), main))


def is_more(x: Any, g: Any) -> Any:
    """Whether a part `x` of a gradient `g`, which should be zero, is more than rounding.

    Gradients near an optimum are differences of numbers near one, so there is an absolute
    limit too.
    """
    eps = float(np.finfo(dtype_of(g)).eps)
    whole = np.sum(np.absolute(g), axis=(-2, -1))
    most = largest(np.absolute(x), (-2, -1))
    return np.greater(most, whole * eps**0.5 + 1e3 * eps)


def off_diagonal(x: Any) -> Any:
    """Matrices with zeros on the diagonal."""
    return lower(x, -1) + upper(x, 1)
