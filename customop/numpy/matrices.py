"""Products of matrices, vectors and arrays: matmul, tensordot, kron, vecdot.

Derivatives follow the convention of the package: a gradient pairs with a tangent by the
real part of ``sum(g * t)``, without conjugation.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from customop import (
    ArgumentError,
    FakeArray,
    GradientError,
    Operator,
    ShapeError,
    Tracer,
    custom_op,
    fake_like,
    register_numpy_function,
)
from customop.numpy.arguments import (
    SINCE_2_5,
    as_array,
    as_scalar,
    broadcast,
    dtype_of,
    is_one,
    list_of_ints,
    product,
    shape_of,
    typical,
    value_of,
)
from customop.numpy.rules import (
    batch_first,
    device_of,
    is_complex,
    numpy_operator,
    padded_rows,
    register_bilinear,
    result_dtype,
    stack_strides,
)

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
    """Return the dtype in which np.linalg gives results of some arrays."""
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
    """Return the dtype of the real parts."""
    return np.dtype(dtype.char.lower())


def is_known(x: Any) -> bool:
    """Return whether the values of an array can be looked at."""
    return value_of(x) is not None


def stack_of(x: Any, core: Sequence[int], dtype: Any) -> FakeArray:
    """Return a fake stack with the leading axes of a stack of matrices, then `core`."""
    shape = (*x.shape[:-2], *core)
    strides = stack_strides([x], [2], core, dtype)
    return FakeArray(shape, dtype, strides, device_of(x))


# ---- matrices ----


def transposed(x: Any) -> Any:
    """Return the transposed matrices, the short way for arrays of NumPy."""
    return x.mT if type(x) is np.ndarray else np.swapaxes(x, -1, -2)


def conj(x: Any) -> Any:
    """Return the complex conjugate; a real array itself."""
    return np.conjugate(x) if is_complex(x) else x


def adjoint(x: Any) -> Any:
    """Return the conjugated, transposed matrices."""
    return conj(transposed(x))


def diagonal(x: Any) -> Any:
    """Return the diagonals of matrices."""
    if type(x) is np.ndarray:
        return x.diagonal(0, -2, -1)
    return np.diagonal(x, 0, -2, -1)


def column(x: Any) -> Any:
    """Return vectors as matrices of one column."""
    if type(x) is np.ndarray or isinstance(x, np.generic):
        line: Any = x
        return line[..., None]  # np.expand_dims takes 3 us
    return np.expand_dims(x, -1)


def row(x: Any) -> Any:
    """Return vectors as matrices of one row."""
    return x[..., None, :] if type(x) is np.ndarray else np.expand_dims(x, -2)


def lower(x: Any, k: int = 0) -> Any:
    """Compute `numpy.tril`, in a third of its time for small arrays of NumPy."""
    if type(x) is np.ndarray and x.shape[-1] * x.shape[-2] < _SMALL:
        return np.where(_below(*x.shape[-2:], k), x, np.zeros(1, x.dtype))
    return np.tril(x, k)


def upper(x: Any, k: int = 0) -> Any:
    """Compute `numpy.triu`, in a third of its time for small arrays of NumPy."""
    if type(x) is np.ndarray and x.shape[-1] * x.shape[-2] < _SMALL:
        return np.where(_below(*x.shape[-2:], k - 1), np.zeros(1, x.dtype), x)
    return np.triu(x, k)


_SMALL = 1024


@lru_cache(maxsize=64)
def _below(rows: int, columns: int, k: int) -> Any:
    """Return a mask that is true on and below a diagonal."""
    return np.tri(rows, columns, k, dtype=bool)


def half(x: Any, is_upper: bool = False) -> Any:
    """Return one triangle of matrices, with half of the diagonal."""
    if is_upper:
        return (upper(x) + upper(x, 1)) * 0.5
    return (lower(x) + lower(x, -1)) * 0.5


def from_triangle(x: Any, is_upper: bool = False) -> Any:
    """Return the Hermitian matrices with the same triangle and a real diagonal."""
    part = half(x, is_upper)
    return part + adjoint(part)


def to_triangle(g: Any, is_upper: bool = False) -> Any:
    """Apply the transpose of `from_triangle`, to gradients."""
    return half(g + adjoint(g), is_upper)


# ---- quotients by gaps ----


def largest(x: Any, axis: int | tuple[int, ...], *, keepdims: bool = False) -> Any:
    """Return the largest of numbers that are not negative along axes; 0 of none."""
    axes = axis if isinstance(axis, tuple) else (axis,)
    count = product([x.shape[i] for i in axes])
    if type(count) is not int:
        return np.max(x, axis=axis, keepdims=keepdims, initial=0.0)
    return (np.max if count else np.sum)(x, axis=axis, keepdims=keepdims)


def steps_of(values: Any) -> Any:
    """Return the matrix of value j minus value i in place (i, j)."""
    return row(values) - column(values)


def over_gaps(x: Any, gap: Any, values: Any) -> Any:
    """Return ``x / gap``; nan where a gap between `values` is mere rounding.

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
    """Return the array; raise GradientError if any element of `wrong` is true."""
    if not isinstance(wrong, np.ndarray | np.generic):
        return _required(x, wrong, what, do)
    if wrong.any():
        raise GradientError(what, do=do)
    return x


# ---- batches ----


def batch_matrices(
    name: str, op: Operator[..., Any], count: int = 1
) -> Callable[..., Any]:
    """Make the vmap rule of an operator on stacks of matrices."""

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
    """Return whether a part `x` of a gradient `g`, meant to be zero, is not.

    Gradients near an optimum are differences of numbers near one, so there is an absolute
    limit too.
    """
    eps = float(np.finfo(dtype_of(g)).eps)
    whole = np.sum(np.absolute(g), axis=(-2, -1))
    most = largest(np.absolute(x), (-2, -1))
    return np.greater(most, whole * eps**0.5 + 1e3 * eps)


def off_diagonal(x: Any) -> Any:
    """Return matrices with zeros on the diagonal."""
    return lower(x, -1) + upper(x, 1)


# ---- matmul ----


@custom_op("np::matmul", mutates_args=(), schema="(Array x1, Array x2) -> Array")
def matmul(x1: Any, x2: Any) -> Any:
    return np.matmul(x1, x2)


register_numpy_function(np.matmul, matmul)


@matmul.register_fake
def _(x1: Any, x2: Any) -> FakeArray:
    dtype = result_dtype(np.matmul, (x1.dtype, x2.dtype))
    shape = _matmul_shape(x1.shape, x2.shape)
    device = fake_like(x1).device
    if max(len(x1.shape), len(x2.shape)) < 4:
        return FakeArray(shape, dtype, device=device)
    # The axes of the product itself come after those of the batch.
    batch = max(len(x1.shape), len(x2.shape)) - 2
    strides = stack_strides([x1, x2], [2, 2], shape[batch:], dtype)
    return FakeArray(shape, dtype, strides, device)


def _matmul_shape(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape of a matrix product."""
    if not first or not second:
        raise _no_axes()
    a = first if len(first) > 1 else (1, *first)
    b = second if len(second) > 1 else (*second, 1)
    if a[-1] != b[-2]:
        raise ShapeError(
            f"np.matmul: shapes {first} and {second} differ in the summed axis",
            do="transpose or reshape one of them",
        )
    batch = broadcast(a[:-2], b[:-2])
    rows = a[-2:-1] if len(first) > 1 else ()
    columns = b[-1:] if len(second) > 1 else ()
    return (*batch, *rows, *columns)


def _no_axes() -> ShapeError:
    return ShapeError(
        "np.matmul: an array without axes has no matrix product", do="use x * y"
    )


def _first_grad(g: Any, x2: Any, x1_shape: Any) -> Any:
    """Return the gradient of the first factor, not yet summed over broadcast axes.

    That of one matrix for a stack of others is one product, summed over the stack: a
    stack of products, summed later, would take memory for each of them.
    """
    if x2.ndim > 2 and len(x1_shape) == 2:
        stack = range(x2.ndim - 2)
        return np.tensordot(g, x2, ([*stack, g.ndim - 1], [*stack, x2.ndim - 1]))
    if x2.ndim == 1:
        return np.expand_dims(g, -1) * x2
    if g.ndim < x2.ndim:  # the first factor is a vector
        if x2.ndim == 2:
            return np.matmul(x2, g)
        return np.squeeze(np.matmul(x2, np.expand_dims(g, -1)), -1)
    return np.matmul(g, transposed(x2))


def _second_grad(g: Any, x1: Any, x2_shape: Any) -> Any:
    """Return the gradient of the second factor, as `_first_grad` that of the first."""
    if x1.ndim > 2 and len(x2_shape) == 2:
        axes = [*range(x1.ndim - 1)]
        return np.tensordot(x1, g, (axes, axes))
    if x1.ndim == 1:
        is_vector = len(x2_shape) == 1
        return x1 * g if is_vector else np.expand_dims(x1, -1) * np.expand_dims(g, -2)
    if g.ndim < x1.ndim:  # the second factor is a vector
        if x1.ndim == 2:
            return np.matmul(transposed(x1), g)
        return np.squeeze(np.matmul(transposed(x1), np.expand_dims(g, -1)), -1)
    return np.matmul(transposed(x1), g)


register_bilinear(matmul, _first_grad, _second_grad, product=np.matmul)


@matmul.register_vmap
def _(info: Any, in_dims: Any, x1: Any, x2: Any) -> Any:
    """Make rows matrices, since NumPy pairs batches of matrices.

    Vectors that meet one matrix are the rows of a matrix: one product in the place of
    many. BLAS may add in another order then, so the last bits are not those of the
    products of single rows.
    """
    dim1, dim2 = in_dims
    rank1, rank2 = x1.ndim - (dim1 is not None), x2.ndim - (dim2 is not None)
    if 0 in (rank1, rank2):
        raise _no_axes()
    a = x1 if not dim1 else np.moveaxis(x1, dim1, 0)
    b = x2 if not dim2 else np.moveaxis(x2, dim2, 0)
    if dim2 is None and rank2 <= 2:
        if rank1 == 2 and rank2 == 2 and is_one(a.shape[1]):
            return np.expand_dims(np.matmul(np.squeeze(a, 1), b), 1), 0
        return np.matmul(a, b), 0
    # Factors change places, which objects may not allow.
    if dim1 is None and rank1 <= 2 and dtype_of(a).kind != "O":
        if rank2 == 1:
            return np.matmul(b, transposed(a) if rank1 == 2 else a), 0
        if rank1 == 2 and rank2 == 2 and is_one(b.shape[2]):
            return column(np.matmul(np.squeeze(b, 2), transposed(a))), 0
    is_vector1, is_vector2 = rank1 == 1, rank2 == 1
    a = np.expand_dims(a, -2) if is_vector1 else a
    b = np.expand_dims(b, -1) if is_vector2 else b
    rank = max(a.ndim - (dim1 is not None), b.ndim - (dim2 is not None))
    a = a if dim1 is None else padded_rows(a, rank)
    b = b if dim2 is None else padded_rows(b, rank)
    out = np.matmul(a, b)
    out = np.squeeze(out, -2) if is_vector1 else out
    return np.squeeze(out, -1) if is_vector2 else out, 0


# ---- tensordot ----


@custom_op(
    "np::tensordot",
    mutates_args=(),
    schema="(Array a, Array b, int[] axes_a, int[] axes_b) -> Array",
)
def tensordot(a: Any, b: Any, axes_a: Any, axes_b: Any) -> Any:
    # Not every library takes negative axes as NumPy does.
    return np.tensordot(a, b, (_free(a.ndim, axes_a)[1], _free(b.ndim, axes_b)[1]))


tensordot.register_kernel(
    "cpu", lambda a, b, axes_a, axes_b: np.tensordot(a, b, (axes_a, axes_b))
)


def _free(ndim: int, axes: Sequence[int]) -> tuple[list[int], tuple[int, ...]]:
    """Return axes that are not summed, and axes that are, counted from the front."""
    free, summed = _split(ndim, tuple(axes))
    return [*free], summed


@lru_cache(maxsize=1024)
def _split(ndim: int, axes: tuple[int, ...]) -> tuple[list[int], tuple[int, ...]]:
    summed = normalize_axis_tuple(axes, ndim)
    return [i for i in range(ndim) if i not in summed], summed


@tensordot.register_fake
def _(a: Any, b: Any, axes_a: Any, axes_b: Any) -> FakeArray:
    free_a, summed_a = _free(len(a.shape), axes_a)
    free_b, summed_b = _free(len(b.shape), axes_b)
    _check_summed(a.shape, b.shape, summed_a, summed_b)
    shape = [*(a.shape[i] for i in free_a), *(b.shape[i] for i in free_b)]
    dtype = result_dtype(np.multiply, (a.dtype, b.dtype))
    return FakeArray(shape, dtype, device=fake_like(a).device)


def _check_summed(
    shape_a: Sequence[int],
    shape_b: Sequence[int],
    summed_a: Sequence[int],
    summed_b: Sequence[int],
) -> None:
    """Raise unless the summed axes have the same lengths."""
    if [shape_a[i] for i in summed_a] != [shape_b[i] for i in summed_b]:
        raise ShapeError(
            f"np.tensordot: shapes {tuple(shape_a)} and {tuple(shape_b)} differ along"
            f" the summed axes {summed_a} and {summed_b}",
            do="name pairs of axes of one length",
        )


def _sorted_by(x: Any, places: Sequence[int]) -> Any:
    """Return the array with its axes sorted by their `places`."""
    order = _ranking(places)
    return x if order == [*range(len(order))] else np.transpose(x, order)


def _ranking(places: Sequence[int]) -> list[int]:
    """Return the positions of the numbers, from the smallest to the largest number."""
    return sorted(range(len(places)), key=lambda i: places[i])


def _tensordot_first(g: Any, b: Any, a_shape: Any, axes_a: Any, axes_b: Any) -> Any:
    free_a, summed_a = _free(len(a_shape), axes_a)
    free_b, summed_b = _free(b.ndim, axes_b)
    if not free_a and not free_b:  # a number: of the sum of products
        raw = np.multiply(g, b)
    else:
        raw = np.tensordot(g, b, ([*range(len(free_a), g.ndim)], free_b))
    return _sorted_by(raw, [*free_a, *[summed_a[i] for i in _ranking(summed_b)]])


def _tensordot_second(g: Any, a: Any, b_shape: Any, axes_a: Any, axes_b: Any) -> Any:
    free_a, summed_a = _free(a.ndim, axes_a)
    free_b, summed_b = _free(len(b_shape), axes_b)
    if not free_a and not free_b:
        raw = np.multiply(g, a)
    else:
        raw = np.tensordot(a, g, (free_a, [*range(len(free_a))]))
    return _sorted_by(raw, [*[summed_b[i] for i in _ranking(summed_a)], *free_b])


register_bilinear(tensordot, _tensordot_first, _tensordot_second)


@tensordot.register_vmap
def _(info: Any, in_dims: Any, a: Any, b: Any, axes_a: Any, axes_b: Any) -> Any:
    dim_a, dim_b, *_ = in_dims
    free_a, summed_a = _free(a.ndim - (dim_a is not None), axes_a)
    free_b, summed_b = _free(b.ndim - (dim_b is not None), axes_b)
    if dim_b is None:
        shifted = [i + (i >= dim_a) for i in summed_a]
        return tensordot(a, b, shifted, axes_b), dim_a - sum(i < dim_a for i in shifted)
    if dim_a is None:
        shifted = [i + (i >= dim_b) for i in summed_b]
        place = len(free_a) + dim_b - sum(i < dim_b for i in shifted)
        return tensordot(a, b, axes_a, shifted), place
    rows_a, rows_b = np.moveaxis(a, dim_a, 0), np.moveaxis(b, dim_b, 0)
    _check_summed(rows_a.shape[1:], rows_b.shape[1:], summed_a, summed_b)
    left = _matrices(rows_a, free_a, summed_a)
    right = _matrices(rows_b, summed_b, free_b)
    lengths = [rows_a.shape[i + 1] for i in free_a]
    lengths += [rows_b.shape[i + 1] for i in free_b]
    return np.reshape(np.matmul(left, right), (info.batch_size, *lengths)), 0


def _matrices(batch: Any, rows: Sequence[int], columns: Sequence[int]) -> Any:
    """Return a batch of matrices, with some axes joined as rows, others as columns."""
    moved = np.transpose(batch, (0, *(i + 1 for i in rows), *(i + 1 for i in columns)))
    shape = moved.shape
    count = 1 + len(rows)
    height, width = product(shape[1:count]), product(shape[count:])
    return np.reshape(moved, (shape[0], height, width))


@register_numpy_function(np.tensordot)
def _(a: Any, b: Any, axes: Any = 2) -> Any:
    a, b = as_array(a), as_array(b)
    if isinstance(axes, int):
        count = len(shape_of(a))
        last, first = list(range(count - axes, count)), list(range(axes))
        return tensordot.run(a, b, last, first)
    axes_a, axes_b = axes
    return tensordot.run(a, b, list_of_ints(axes_a), list_of_ints(axes_b))


# ---- products made of these ----


# NumPy lets BLAS multiply a matrix of these by a scalar, in C order.
_OF_BLAS = frozenset(map(np.dtype, "fdFD"))


@register_numpy_function(np.dot)
def _(a: Any, b: Any, out: None = None) -> Any:
    a, b = as_array(a), as_array(b)
    ndim = len(shape_of(b))
    if not ndim or not shape_of(a):
        found = np.multiply(a, b)
        is_by_blas = len(found.shape) == 2 and dtype_of(found) in _OF_BLAS
        return np.copy(found, order="C") if is_by_blas else found
    a, b = _for_blas(a), _for_blas(b)
    return matmul(a, b) if ndim <= 2 else tensordot.run(a, b, [-1], [-2])


def _for_blas(x: Any) -> Any:
    """Return an operand of np.dot, which copies what runs backwards or stays in place.

    np.matmul adds up such vectors in another order.
    """
    below = x
    while isinstance(below, Tracer):
        below = below.below
    flags = getattr(below, "flags", None)
    if flags is None:
        strides = getattr(below, "strides", ())
    elif flags.forc:  # as usual
        return x
    else:
        strides = below.strides
    if len(strides) != len(x.shape) or dtype_of(x) not in _OF_BLAS:
        return x
    is_bad = any(
        s <= 0 for s, n in zip(typical(strides), typical(x.shape), strict=True) if n > 1
    )
    return np.copy(x, order="C") if is_bad else x


@register_numpy_function(np.inner)
def _(a: Any, b: Any) -> Any:
    a, b = as_array(a), as_array(b)
    ranks = {len(shape_of(a)), len(shape_of(b))}
    if 0 in ranks:
        return np.multiply(a, b)
    return matmul(a, b) if ranks == {1} else tensordot.run(a, b, [-1], [-1])


@register_numpy_function(np.vdot)
def _(a: Any, b: Any) -> Any:
    a = as_array(a)
    first = np.conjugate(a) if is_complex(a) else a
    return matmul(np.reshape(first, (-1,)), np.reshape(b, (-1,)))


# ---- outer ----


@custom_op("np::outer", mutates_args=(), schema="(Array a, Array b) -> Array")
def outer(a: Any, b: Any) -> Any:
    """Return the products of all pairs of elements of two lines."""
    _check_lines(a, b)
    return np.multiply(a[:, None], b[None, :])


def _check_lines(*lines: Any) -> None:
    for x in lines:
        if len(x.shape) != 1:
            raise ShapeError(
                f"np::outer takes arrays of one axis, got shape {tuple(x.shape)}",
                do="call np.outer, which takes any",
            )


@outer.register_fake
def _(a: Any, b: Any) -> FakeArray:
    _check_lines(a, b)
    dtype = result_dtype(np.multiply, (a.dtype, b.dtype))
    shape = (a.shape[0], b.shape[0])
    return FakeArray(shape, dtype, device=fake_like(a).device)


register_bilinear(outer, lambda g, b: np.matmul(g, b), lambda g, a: np.matmul(a, g))


@outer.register_vmap
def _(info: Any, in_dims: Any, a: Any, b: Any) -> Any:
    lines = [
        x[None, :] if dim is None else batch_first(x, dim)
        for x, dim in zip((a, b), in_dims, strict=True)
    ]
    return np.multiply(lines[0][:, :, None], lines[1][:, None, :]), 0


@register_numpy_function(np.outer)
def _(a: Any, b: Any, out: None = None) -> Any:
    lines = [x if len(x.shape) == 1 else np.ravel(x) for x in map(as_array, (a, b))]
    return outer.run(*lines)


@register_numpy_function(np.kron)
def _(a: Any, b: Any) -> Any:
    a, b = as_array(a), as_array(b)
    rank = max(len(shape_of(a)), len(shape_of(b)))
    first, second = ((*(1,) * (rank - len(shape_of(x))), *shape_of(x)) for x in (a, b))
    # The axes of the two alternate, and each pair becomes one axis.
    wide_a = np.reshape(a, [n for length in first for n in (length, 1)])
    wide_b = np.reshape(b, [n for length in second for n in (1, length)])
    lengths = [m * n for m, n in zip(first, second, strict=True)]
    return np.reshape(np.multiply(wide_a, wide_b), lengths)


# ---- vectors ----
# Products of stacked vectors, chains of products, and np.linalg's names for these.
#
# All are made of other operators.


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
    """Return for each part of a chain after which factor to split it.

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
    """Return the product of the factors from i to j."""
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
