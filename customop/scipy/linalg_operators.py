"""Operators behind `customop.scipy.linalg`: triangular systems, LU factors, special matrices.

Their results are in C order. Source of the derivatives: Giles, "Collected matrix derivative
results for forward and reverse mode algorithmic differentiation", 2008; for expm Mathias,
"A chain rule for matrix functions and applications", 1996.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import linalg as _linalg
from scipy import linalg as scipy_linalg

from customop import (
    Array,
    FakeArray,
    NoDerivativeError,
    ShapeError,
    custom_op,
    fake_like,
)
from customop.numpy.arguments import broadcast, dtype_of, larger, smaller
from customop.numpy.create import eye
from customop.numpy.index_operators import numbers
from customop.numpy.matrices import linalg_dtype, transposed
from customop.numpy.rules import (
    batch_first,
    columns_first,
    device_of,
    fit,
    is_complex,
    no_gradient,
    padded_rows,
)
from customop.scipy.ufunc_rules import is_plain

# ---- operators: triangular systems, expm, LU factors ----


def _check_square(name: str, shape: Any) -> None:
    if len(shape) < 2 or shape[-1] != shape[-2]:
        raise ShapeError(
            f"scipy.linalg.{name} takes square matrices, got shape {tuple(shape)}",
            do="give an array whose last two axes have one length",
        )


# ---- triangular systems ----


@custom_op(
    "scipy::solve_triangular",
    mutates_args=(),
    schema="(Array a, Array b, bool turned, bool lower, bool unit_diagonal) -> Array",
    device_types="cpu",
)
def solve_triangular_matrices(
    a: Any, b: Any, turned: bool, lower: bool, unit_diagonal: bool
) -> Any:
    """Solve with one triangle of `a`, transposed if `turned`."""
    shape = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if not math.prod(shape) * b.size * a.size:
        core = b.shape[-2:]
        return np.zeros((*shape, *core), lapack_dtype(a, b))
    wide = np.broadcast_to(b, (*shape, *b.shape[-2:])) if a.ndim > 2 else b
    found = scipy_linalg.solve_triangular(
        a, wide, int(turned), lower, unit_diagonal, check_finite=False
    )
    return np.ascontiguousarray(found)


def lapack_dtype(*arrays: Any) -> Any:
    """Return the dtype in which LAPACK computes; longer dtypes become double."""
    found = np.result_type(np.float32, *[x.dtype for x in arrays])
    return np.dtype({"g": "d", "G": "D"}.get(found.char, found.char))


@solve_triangular_matrices.register_fake
def _(a: Any, b: Any, turned: bool, lower: bool, unit_diagonal: bool) -> FakeArray:
    _check_square("solve_triangular", a.shape)
    if len(b.shape) < 2 or b.shape[-2] != a.shape[-1]:
        raise ShapeError(
            f"scipy.linalg.solve_triangular: shapes {tuple(a.shape)} and"
            f" {tuple(b.shape)} do not fit",
            do="give b as a vector, or as matrices with as many rows as those of a",
        )
    batch = broadcast(a.shape[:-2], b.shape[:-2])
    shape = (*batch, *b.shape[-2:])
    return FakeArray(shape, lapack_dtype(a, b), device=device_of(a))


def _triangle(x: Any, lower: bool, unit_diagonal: bool) -> Any:
    """Return the triangle of matrices that a triangular system reads."""
    skipped = int(unit_diagonal)
    return np.tril(x, -skipped) if lower else np.triu(x, skipped)


def _keep_system(ctx: Any, inputs: Any, output: Any) -> None:
    a, b, *ctx.options = inputs
    ctx.like = b
    ctx.save_for_backward(a, output)


def _system_backward(ctx: Any, g: Any) -> Any:
    a, x = ctx.saved_arrays
    turned, lower, unit_diagonal = ctx.options
    by_b = solve_triangular_matrices(a, g, not turned, lower, unit_diagonal)
    outer = -np.matmul(by_b, transposed(x))
    by_a = _triangle(transposed(outer) if turned else outer, lower, unit_diagonal)
    return fit(by_a, a), fit(by_b, ctx.like), None, None, None


solve_triangular_matrices.register_autograd(
    _system_backward, setup_context=_keep_system
)


@solve_triangular_matrices.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    a, b, *options = primals
    turned, lower, unit_diagonal = options
    x = solve_triangular_matrices(a, b, *options)
    moved = 0.0 if tangents[1] is None else tangents[1]
    if tangents[0] is not None:
        part = _triangle(tangents[0], lower, unit_diagonal)
        moved = moved - np.matmul(transposed(part) if turned else part, x)
    return x, fit(solve_triangular_matrices(a, moved, *options), x)


@solve_triangular_matrices.register_vmap
def _(info: Any, in_dims: Any, a: Any, b: Any, *options: Any) -> Any:
    first, second = in_dims[:2]
    rank = max(a.ndim - (first is not None), b.ndim - (second is not None))
    rows_a = a if first is None else padded_rows(batch_first(a, first), rank)
    rows_b = b if second is None else padded_rows(batch_first(b, second), rank)
    return solve_triangular_matrices(rows_a, rows_b, *options), 0


# ---- the matrix exponential ----


@custom_op(
    "scipy::expm", mutates_args=(), schema="(Array a) -> Array", device_types="cpu"
)
def expm(a: Any) -> Any:
    """Compute the exponentials of matrices."""
    return np.ascontiguousarray(scipy_linalg.expm(a), _exponential_dtype(a))


@expm.register_sample_inputs
def _() -> list[Any]:
    square = np.array([[0.5, 1.0], [-0.25, 0.75]])
    return [(square,), (np.stack([square, square.T]),)]


def _exponential_dtype(a: Any) -> Any:
    """Return the dtype of an exponential; for float16 it is float32.

    SciPy itself does the same, except for matrices with one element.
    """
    return np.dtype(np.float32) if a.dtype == np.float16 else linalg_dtype(a)


@expm.register_fake
def _(a: Any) -> FakeArray:
    _check_square("expm", a.shape)
    return FakeArray(tuple(a.shape), _exponential_dtype(a), device=fake_like(a).device)


def _frechet(a: Any, t: Any) -> Any:
    """Return the derivative of expm in direction `t`, as a block of a larger expm."""
    size = a.shape[-1]
    zero = np.zeros_like(a)
    rows = [np.concatenate([a, t], -1), np.concatenate([zero, a], -1)]
    return expm(np.concatenate(rows, -2))[..., :size, size:]


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(inputs[0])


expm.register_autograd(
    lambda ctx, g: _frechet(transposed(ctx.saved_arrays[0]), g), setup_context=_keep
)
expm.register_jvp(
    lambda primals, tangents: (expm(*primals), _frechet(primals[0], tangents[0]))
)
expm.register_vmap(lambda info, in_dims, a: (expm(batch_first(a, in_dims[0])), 0))


# ---- LU factors ----


@custom_op(
    "scipy::lu_factor",
    mutates_args=(),
    schema="(Array a) -> (Array, Array)",
    device_types="cpu",
)
def lu_factor_matrices(a: Any) -> Any:
    """Return LU factors in one matrix, and the swaps of rows."""
    found, places = scipy_linalg.lu_factor(a, check_finite=False)
    # SciPy keeps the dtype of empty matrices, so it is converted here.
    packed = np.ascontiguousarray(found, lapack_dtype(a))
    return packed, np.ascontiguousarray(places, np.int32)


@lu_factor_matrices.register_fake
def _(a: Any) -> Any:
    shape = tuple(a.shape)
    if len(shape) < 2:
        raise ShapeError(
            f"scipy.linalg.lu_factor takes matrices, got shape {shape}",
            do="give an array of at least two axes",
        )
    places = (*shape[:-2], smaller(*shape[-2:]))
    device = fake_like(a).device
    packed = FakeArray(shape, lapack_dtype(a), device=device)
    return packed, FakeArray(places, np.int32, device=device)


@lu_factor_matrices.register_sample_inputs
def _() -> list[Any]:
    square = np.array([[1.0, 2.0], [3.0, 1.0]])
    wide = np.array([[1.0, 2.0, 0.5], [3.0, 1.0, -1.0]])
    return [(square,), (wide,), (np.stack([square, square.T]),)]


@custom_op(
    "scipy::permutation",
    mutates_args=(),
    schema="(Array places, int rows) -> Array",
    device_types="cpu",
)
def permutation(places: Any, rows: int) -> Any:
    """Return the order of the rows after the swaps that LAPACK reports."""
    lead = places.shape[:-1]
    order = np.broadcast_to(np.arange(rows), (*lead, rows)).copy()
    for at in np.ndindex(lead):
        row = order[at]
        for i, j in enumerate(places[at]):
            row[i], row[j] = row[j], row[i]
    return order


permutation.register_fake(
    lambda places, rows: FakeArray(
        (*places.shape[:-1], rows), np.int64, device=fake_like(places).device
    )
)
no_gradient(permutation)
permutation.register_vmap(
    lambda info, in_dims, places, rows: (
        permutation(batch_first(places, in_dims[0]), rows),
        0,
    )
)


def _sorted_rows(x: Any, order: Any) -> Any:
    """Return matrices with their rows in another order."""
    return np.take_along_axis(x, np.expand_dims(order, -1), -2)


def _between(packed: Any, x: Any) -> Any:
    """Return the inverse of L, times x, times the inverse of U."""
    left = solve_triangular_matrices(packed, x, False, True, True)
    return transposed(
        solve_triangular_matrices(packed, transposed(left), True, False, False)
    )


def _parts(packed: Any) -> tuple[Any, Any]:
    """Return L without its diagonal of ones, and U."""
    return np.tril(packed, -1), np.triu(packed)


def _check_derivative(shape: Any) -> None:
    if shape[-1] != shape[-2]:
        raise NoDerivativeError(
            f"scipy.linalg.lu has derivatives of square matrices, got shape {tuple(shape)}",
            do="pad the matrix to a square with a part of the identity",
        )


def _lu_backward(ctx: Any, g: Any, _: Any) -> Any:
    packed, order = ctx.saved_arrays
    lower, upper = _parts(packed)
    by_lower, by_upper = _parts(g)
    inner = np.matmul(transposed(lower), by_lower) + by_lower
    inner = np.tril(inner, -1) + np.triu(np.matmul(by_upper, transposed(upper)))
    # The next two lines compute the transpose of `_between`.
    turned = solve_triangular_matrices(packed, transposed(inner), False, False, False)
    found = solve_triangular_matrices(packed, transposed(turned), True, True, True)
    return fit(_sorted_rows(found, np.argsort(order, axis=-1)), ctx.like)


def _keep_factors(ctx: Any, inputs: Any, output: Any) -> None:
    packed, places = output
    _check_derivative(packed.shape)
    ctx.mark_non_differentiable(places)
    ctx.like = inputs[0]
    ctx.save_for_backward(packed, permutation(places, packed.shape[-2]))


lu_factor_matrices.register_autograd(_lu_backward, setup_context=_keep_factors)


@lu_factor_matrices.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    packed, places = lu_factor_matrices(*primals)
    _check_derivative(packed.shape)
    moved = _sorted_rows(tangents[0], permutation(places, packed.shape[-2]))
    lower, upper = _parts(packed)
    inner = _between(packed, moved)
    by_lower, by_upper = np.tril(inner, -1), np.triu(inner)
    found = np.matmul(lower, by_lower) + by_lower + np.matmul(by_upper, upper)
    return (packed, places), (fit(found, packed), None)


lu_factor_matrices.register_vmap(
    lambda info, in_dims, a: (lu_factor_matrices(batch_first(a, in_dims[0])), (0, 0))
)


# ---- functions for triangular systems, with SciPy's parameters ----


# pyright infers types from SciPy's code and gets some of them wrong.
linalg: Any = _linalg


def as_array(x: Any) -> Any:
    """Convert numbers and lists to NumPy arrays; return arrays unchanged."""
    return x if hasattr(x, "shape") else np.asarray(x)


def columns(fn: Callable[[Any], Any], b: Any) -> Any:
    """Call `fn` on a vector `b` as a matrix with one column."""
    b = as_array(b)
    return fn(b) if len(b.shape) != 1 else fn(np.expand_dims(b, -1))[..., 0]


# SciPy's codes for transposes.
_TRANSPOSES: dict[Any, int] = {0: 0, "N": 0, 1: 1, "T": 1, 2: 2, "C": 2}


def solve_triangular(
    a: Any,
    b: Any,
    trans: int | str = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Array:
    """Solve equations with a triangular matrix, as `scipy.linalg.solve_triangular` does.

    Parameters
    ----------
    a : array, shape (..., n, n)
        Only one triangle is read.
    b : array, shape (n,) or (..., n, k)
    trans : {0, 1, 2, "N", "T", "C"}
        Whether to solve with `a`, its transpose, or its conjugate transpose.
    lower : bool
        Whether the lower triangle is read.
    unit_diagonal : bool
        Whether the diagonal is assumed to be ones and is not read.
    overwrite_b, check_finite : bool
        For plain arrays only.

    Returns
    -------
    array

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from customop.scipy import linalg
    >>> a = np.array([[2.0, 0.0], [1.0, 4.0]])
    >>> co.jacrev(lambda b: linalg.solve_triangular(a, b, lower=True))(np.ones(2))
    array([[ 0.5  ,  0.   ],
           [-0.125,  0.25 ]])
    >>> linalg.solve_triangular(np.array([[2.0, 1.0], [0.0, 4.0]]), np.array([2.0, 9.0]), trans=1)
    array([1., 2.])
    """
    if is_plain(a, b):
        options = trans, lower, unit_diagonal, overwrite_b, check_finite
        return linalg.solve_triangular(a, b, *options)
    code = _TRANSPOSES[trans]
    a = as_array(a)
    matrix = np.conjugate(a) if code == 2 and is_complex(a) else a
    flags = bool(code), bool(lower), bool(unit_diagonal)

    def solved(b: Any) -> Any:
        return columns_first(solve_triangular_matrices(matrix, b, *flags))

    return columns(solved, b)


# ---- functions for LU factors, with SciPy's parameters ----


# pyright infers types from SciPy's code and gets some of them wrong.
linalg_lu_factors: Any = _linalg


def lu_factor(
    a: Any, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Array, Array]:
    """Compute LU factors and the swaps of rows, as `scipy.linalg.lu_factor` does.

    Parameters
    ----------
    a : array, shape (..., m, n)
        Its derivative is known for m = n.
    overwrite_a, check_finite : bool
        For plain arrays only.

    Returns
    -------
    lu : array, shape (..., m, n)
    piv : array of int, shape (..., min(m, n))

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from customop.scipy import linalg
    >>> def log_det(a):
    ...     packed, _ = linalg.lu_factor(a)
    ...     return np.sum(np.log(np.abs(np.diagonal(packed))))
    >>> co.grad(log_det)(np.array([[1.0, 0.0], [0.0, 4.0]]))
    array([[1.  , 0.  ],
           [0.  , 0.25]])
    """
    if is_plain(a):
        return linalg_lu_factors.lu_factor(a, overwrite_a, check_finite)
    packed, places = lu_factor_matrices(a)
    return columns_first(packed), places


def lu_solve(
    lu_and_piv: tuple[Any, Any],
    b: Any,
    trans: int = 0,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Array:
    """Solve equations with the factors of `lu_factor`, as `scipy.linalg.lu_solve` does.

    Parameters
    ----------
    lu_and_piv : tuple of array
        The result of `lu_factor`.
    b : array, shape (n,) or (..., n, k)
    trans : {0, 1, 2}
        Whether to solve with the matrix, its transpose, or its conjugate transpose.
    overwrite_b, check_finite : bool
        For plain arrays only.

    Returns
    -------
    array

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from customop.scipy import linalg
    >>> factors = linalg.lu_factor(np.array([[0.0, 2.0], [4.0, 0.0]]))
    >>> co.grad(lambda b: linalg.lu_solve(factors, b)[0])(np.ones(2))
    array([0.  , 0.25])
    >>> factors = linalg.lu_factor(np.array([[1.0, 2.0], [4.0, 4.0]]))
    >>> linalg.lu_solve(factors, np.array([5.0, 6.0]), trans=1).round(6)
    array([1., 1.])
    """
    packed, places = lu_and_piv
    if is_plain(packed, places, b):
        return linalg_lu_factors.lu_solve(
            lu_and_piv, b, trans, overwrite_b, check_finite
        )
    order = permutation(places, packed.shape[-2])

    def solved(b: Any) -> Any:
        if not trans:
            inner = solve_triangular(packed, _rows(b, order), 0, True, True)
            return solve_triangular(packed, inner)
        inner = solve_triangular(packed, b, trans)
        inner = solve_triangular(packed, inner, trans, True, True)
        return columns_first(_rows(inner, np.argsort(order, axis=-1)))

    return columns(solved, b)


def _rows(x: Any, order: Any) -> Any:
    """Return matrices with their rows in another order."""
    lead = broadcast(x.shape[:-2], order.shape[:-1])
    wide = np.broadcast_to(x, (*lead, *x.shape[-2:]))
    places = np.broadcast_to(order, (*lead, order.shape[-1]))
    return np.take_along_axis(wide, np.expand_dims(places, -1), -2)


def lu(
    a: Any,
    permute_l: bool = False,
    overwrite_a: bool = False,
    check_finite: bool = True,
    p_indices: bool = False,
) -> tuple[Array, ...]:
    """Compute LU factors and a permutation of the rows, as `scipy.linalg.lu` does.

    Parameters
    ----------
    a : array, shape (..., m, n)
        Its derivative is known for m = n.
    permute_l : bool
        Whether to permute the rows of the lower factor. Then only the two factors are
        returned.
    overwrite_a, check_finite : bool
        For plain arrays only.
    p_indices : bool
        Whether to return the permutation as indices instead of a matrix.

    Returns
    -------
    p : array
        The permutation, without `permute_l`: ``a = p @ l @ u``, or ``a = l[p] @ u``
        with `p_indices`.
    l, u : array

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from customop.scipy import linalg
    >>> co.grad(lambda a: linalg.lu(a)[2][1, 1])(np.array([[2.0, 1.0], [1.0, 3.0]]))
    array([[ 0.25, -0.5 ],
           [-0.5 ,  1.  ]])
    >>> linalg.lu(np.array([[1.0, 2.0], [4.0, 4.0]]), permute_l=True)[0]
    array([[0.25, 1.  ],
           [1.  , 0.  ]])
    """
    if is_plain(a):
        options = permute_l, overwrite_a, check_finite, p_indices
        return tuple(linalg_lu_factors.lu(a, *options))
    packed, places = lu_factor_matrices(a)
    rows, columns = packed.shape[-2:]
    least = smaller(rows, columns)
    ones = eye(rows, least, 0, packed.dtype, device_of(packed))
    lower = np.tril(packed[..., :least], -1) + ones
    upper = np.triu(packed[..., :least, :])
    order = np.argsort(permutation(places, rows), axis=-1)
    if permute_l:
        return _rows(lower, order), upper
    if p_indices:
        return order.astype(np.int32), lower, upper
    kind = packed.real.dtype
    whole = eye(rows, None, 0, kind, device_of(packed))
    return _rows(whole, order), lower, upper


# ---- special matrices, with SciPy's parameters ----


# pyright infers types from SciPy's code and gets some of them wrong.
linalg_special_matrices: Any = _linalg


def block_diag(*arrs: Any) -> Array:
    """Make a block-diagonal matrix, as `scipy.linalg.block_diag` does.

    Parameters
    ----------
    *arrs : array
        The blocks, each with at most two axes.

    Returns
    -------
    array

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from customop.scipy import linalg
    >>> co.vmap(linalg.block_diag)(np.array([1.0, 2.0]), np.array([3.0, 4.0]))[1]
    array([[2., 0.],
           [0., 4.]])
    """
    if is_plain(*arrs):
        return linalg_special_matrices.block_diag(*arrs)
    parts = [np.atleast_2d(as_array(x)) for x in arrs]
    dtype = np.result_type(*[dtype_of(x) for x in parts])
    width = sum(x.shape[1] for x in parts)
    rows, before = [], 0
    for part in parts:
        height, own = part.shape
        left = np.zeros_like(part, dtype, shape=(height, before))
        right = np.zeros_like(part, dtype, shape=(height, width - before - own))
        rows.append(np.concatenate([left, part, right], 1))
        before += own
    return np.concatenate(rows, 0)


def _by_places(values: Any, places: Any) -> Array:
    return np.take(values, places, axis=0)


def _vectors(*given: Any) -> list[Any]:
    return [np.ravel(as_array(x)) for x in given]


def toeplitz(c: Any, r: Any = None) -> Array:
    """Make a matrix with constant diagonals, as `scipy.linalg.toeplitz` does.

    Parameters
    ----------
    c : array, shape (m,)
        The first column.
    r : array, shape (n,), optional
        The first row, whose first element is ignored; the conjugate of `c` by default.

    Returns
    -------
    array, shape (m, n)

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from customop.scipy import linalg
    >>> co.grad(lambda c: linalg.toeplitz(c).sum())(np.ones(3))
    array([3., 4., 2.])
    >>> linalg.toeplitz([1.0, 2.0], r=[1.0, 3.0, 4.0])
    array([[1., 3., 4.],
           [2., 1., 3.]])
    """
    if is_plain(c, r):
        return linalg_special_matrices.toeplitz(c, r)
    column, row = _vectors(c, np.conjugate(as_array(c)) if r is None else r)
    count = column.shape[0]
    values = np.concatenate([np.flip(column), row[1:]])
    down = np.expand_dims(numbers(0, count, column), 1)
    steps = numbers(0, row.shape[0], column) - down
    return _by_places(values, steps + (count - 1))


def circulant(c: Any) -> Array:
    """Make a matrix whose columns are shifts of `c`, as `scipy.linalg.circulant` does.

    Parameters
    ----------
    c : array, shape (n,)
        The first column.

    Returns
    -------
    array, shape (n, n)

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from customop.scipy import linalg
    >>> co.grad(lambda c: linalg.circulant(c)[0, 1])(np.ones(3))
    array([0., 0., 1.])
    """
    if is_plain(c):
        return linalg_special_matrices.circulant(c)
    (column,) = _vectors(c)
    count = column.shape[0]
    places = numbers(0, count, column)
    steps = np.expand_dims(places, 1) - places
    return _by_places(column, np.remainder(steps, larger(count, 1)))


def hankel(c: Any, r: Any = None) -> Array:
    """Make a matrix with constant antidiagonals, as `scipy.linalg.hankel` does.

    Parameters
    ----------
    c : array, shape (m,)
        The first column.
    r : array, shape (n,), optional
        The last row, whose first element is ignored; zeros by default.

    Returns
    -------
    array, shape (m, n)

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from customop.scipy import linalg
    >>> co.grad(lambda c: linalg.hankel(c).sum())(np.ones(3))
    array([1., 2., 3.])
    >>> linalg.hankel([1.0, 2.0], r=[2.0, 3.0, 4.0])
    array([[1., 2., 3.],
           [2., 3., 4.]])
    """
    if is_plain(c, r):
        return linalg_special_matrices.hankel(c, r)
    column, row = _vectors(c, np.zeros_like(as_array(c)) if r is None else r)
    values = np.concatenate([column, row[1:]])
    down = np.expand_dims(numbers(0, column.shape[0], column), 1)
    places = down + numbers(0, row.shape[0], column)
    return _by_places(values, places)
