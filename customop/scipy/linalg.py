"""`scipy.linalg` on traced, fake and plain arrays.

SciPy's own functions ask traced values for their numbers, so call these. They have SciPy's
parameters and take stacks of matrices; `overwrite_a` and `check_finite` change nothing for
traced values. Plain arrays go to SciPy. A function that reads one triangle of a matrix has
its gradient in that triangle.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import linalg as _linalg

from customop import ArgumentError, Array
from customop.numpy.create import eye
from customop.numpy.fakes import device_of
from customop.numpy.index import numbers
from customop.numpy.matrices import from_triangle, transposed
from customop.numpy.rules import is_complex
from customop.numpy.sizes import broadcast, larger, smaller
from customop.scipy import matrices
from customop.scipy.rules import is_plain

__all__ = [
    "block_diag",
    "cho_factor",
    "cho_solve",
    "cholesky",
    "circulant",
    "det",
    "expm",
    "hankel",
    "inv",
    "lu",
    "lu_factor",
    "lu_solve",
    "solve",
    "solve_triangular",
    "toeplitz",
]

# pyright infers types from SciPy's code, and gets some wrong.
linalg: Any = _linalg


def _as_array(x: Any) -> Any:
    return x if hasattr(x, "shape") else np.asarray(x)


def _columns(fn: Callable[[Any], Any], b: Any) -> Any:
    """Solve for a vector as for a matrix of one column."""
    b = _as_array(b)
    return fn(b) if len(b.shape) != 1 else fn(np.expand_dims(b, -1))[..., 0]


# ---- linear equations ----

# Names of structures -> what is read of the matrix.
_STRUCTURES: dict[str | None, str] = {
    **dict.fromkeys((None, "gen", "general", "banded"), "all"),
    **dict.fromkeys(("sym", "symmetric"), "symmetric"),
    **dict.fromkeys(
        ("her", "hermitian", "pos", "positive definite", "pos def"), "hermitian"
    ),
    "diagonal": "diagonal",
    **dict.fromkeys(("upper triangular", "upper"), "upper"),
    **dict.fromkeys(("lower triangular", "lower"), "lower"),
}


def _structured(name: str, a: Any, assume_a: str | None, lower: bool) -> Any:
    """The matrix that is meant where only a part of one is read."""
    a = _as_array(a)
    if assume_a not in _STRUCTURES:
        known = ", ".join(repr(key) for key in _STRUCTURES)
        raise ArgumentError(
            f"{name}: assume_a={assume_a!r} is not supported for traced or fake arrays",
            do=f"use one of {known}",
        )
    part = _STRUCTURES[assume_a]
    if part == "hermitian":
        return from_triangle(a, not lower)
    if part == "symmetric":
        strict = np.tril(a, -1) if lower else np.triu(a, 1)
        return (np.tril(a) if lower else np.triu(a)) + transposed(strict)
    if part == "diagonal":
        return np.tril(np.triu(a))
    if part in ("upper", "lower"):
        return np.tril(a) if part == "lower" else np.triu(a)
    return a


def solve(
    a: Any,
    b: Any,
    lower: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    check_finite: bool = True,
    assume_a: str | None = None,
    transposed: bool = False,
) -> Array:
    """Solve linear equations ``a x = b``; as `scipy.linalg.solve`.

    Parameters
    ----------
    a : array, shape (..., n, n)
    b : array, shape (n,) or (..., n, k)
    lower : bool
        Which triangle is read where `assume_a` says that one is enough.
    overwrite_a, overwrite_b, check_finite : bool
        For plain arrays only.
    assume_a : str, optional
        The structure of `a`.
    transposed : bool
        Whether to solve with the transpose of `a`.

    Returns
    -------
    array

    Raises
    ------
    ArgumentError
        If `assume_a` names a structure that is not supported for traced arrays.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from customop.scipy import linalg
    >>> a = np.array([[2.0, 0.0], [0.0, 4.0]])
    >>> co.grad(lambda b: linalg.solve(a, b).sum())(np.ones(2))
    array([0.5 , 0.25])
    """
    if is_plain(a, b):
        options = overwrite_a, overwrite_b, check_finite, assume_a, transposed
        return linalg.solve(a, b, lower, *options)
    full = _structured("solve", a, assume_a, lower)
    full = np.swapaxes(full, -1, -2) if transposed else full
    return _columns(lambda b: np.linalg.solve(full, b), b)


def inv(
    a: Any,
    overwrite_a: bool = False,
    check_finite: bool = True,
    *,
    assume_a: str | None = None,
    lower: bool = False,
) -> Array:
    """Invert matrices; as `scipy.linalg.inv`.

    Parameters
    ----------
    a : array, shape (..., n, n)
    overwrite_a, check_finite : bool
        For plain arrays only.
    assume_a : str, optional
        The structure of `a`.
    lower : bool
        Which triangle is read where `assume_a` says that one is enough.

    Returns
    -------
    array

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from customop.scipy import linalg
    >>> co.grad(lambda a: linalg.inv(a).sum())(np.array([[2.0]]))
    array([[-0.25]])
    """
    if is_plain(a):
        if assume_a is None and not lower:  # parameters of SciPy 1.17
            return linalg.inv(a, overwrite_a, check_finite)
        return linalg.inv(a, overwrite_a, check_finite, assume_a=assume_a, lower=lower)
    return np.linalg.inv(_structured("inv", a, assume_a, lower))


def det(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """Determinants of matrices; as `scipy.linalg.det`.

    Parameters
    ----------
    a : array, shape (..., n, n)
    overwrite_a, check_finite : bool
        For plain arrays only.

    Returns
    -------
    array

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from customop.scipy import linalg
    >>> co.grad(linalg.det)(np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([[ 4., -3.],
           [-2.,  1.]])
    """
    if is_plain(a):
        return linalg.det(a, overwrite_a, check_finite)
    # SciPy computes it in double precision.
    return np.linalg.det(a.astype(np.result_type(a.dtype, float)))


# SciPy's codes of transposes.
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
    """Solve equations with a triangular matrix; as `scipy.linalg.solve_triangular`.

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
        Whether the diagonal is taken as ones, and not read.
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
    """
    if is_plain(a, b):
        options = trans, lower, unit_diagonal, overwrite_b, check_finite
        return linalg.solve_triangular(a, b, *options)
    code = _TRANSPOSES[trans]
    matrix = np.conjugate(a) if code == 2 and is_complex(a) else _as_array(a)
    flags = bool(code), bool(lower), bool(unit_diagonal)
    return _columns(lambda b: matrices.solve_triangular(matrix, b, *flags), b)


# ---- Cholesky factors ----


def cholesky(
    a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> Array:
    """Cholesky factor of positive definite matrices; as `scipy.linalg.cholesky`.

    Parameters
    ----------
    a : array, shape (..., n, n)
        Only one triangle is read.
    lower : bool
        Whether to read the lower triangle and return the lower factor.
    overwrite_a, check_finite : bool
        For plain arrays only.

    Returns
    -------
    array

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from customop.scipy import linalg
    >>> co.grad(lambda a: linalg.cholesky(a)[0, 0])(np.array([[4.0]]))
    array([[0.25]])
    """
    if is_plain(a):
        return linalg.cholesky(a, lower, overwrite_a, check_finite)
    return np.linalg.cholesky(a, upper=not lower)


def cho_factor(
    a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Array, bool]:
    """Cholesky factor for `cho_solve`; as `scipy.linalg.cho_factor`.

    Parameters
    ----------
    a : array, shape (..., n, n)
        Only one triangle is read.
    lower : bool
        Whether to read the lower triangle and return the lower factor.
    overwrite_a, check_finite : bool
        For plain arrays only.

    Returns
    -------
    c : array
        The factor. Its other triangle is zero for traced arrays; SciPy leaves numbers of
        `a` there.
    lower : bool
        As given.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from customop.scipy import linalg
    >>> def energy(a):
    ...     b = np.ones(2)
    ...     return b @ linalg.cho_solve(linalg.cho_factor(a), b)
    >>> co.grad(energy)(2.0 * np.eye(2))
    array([[-0.25, -0.5 ],
           [ 0.  , -0.25]])
    """
    if is_plain(a):
        return linalg.cho_factor(a, lower, overwrite_a, check_finite)
    return cholesky(a, lower), lower


def cho_solve(
    c_and_lower: tuple[Any, bool],
    b: Any,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Array:
    """Solve equations by the factor of `cho_factor`; as `scipy.linalg.cho_solve`.

    Parameters
    ----------
    c_and_lower : tuple of array and bool
        What `cho_factor` returns.
    b : array, shape (n,) or (..., n, k)
    overwrite_b, check_finite : bool
        For plain arrays only.

    Returns
    -------
    array

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from customop.scipy import linalg
    >>> factor = linalg.cho_factor(4.0 * np.eye(2))
    >>> co.grad(lambda b: linalg.cho_solve(factor, b).sum())(np.ones(2))
    array([0.25, 0.25])
    """
    c, lower = c_and_lower
    if is_plain(c, b):
        return linalg.cho_solve(c_and_lower, b, overwrite_b, check_finite)
    first, second = ("N", "C") if lower else ("C", "N")
    inner = solve_triangular(c, b, first, lower)
    return solve_triangular(c, inner, second, lower)


# ---- LU factors ----


def lu_factor(
    a: Any, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Array, Array]:
    """LU factors in one matrix, and the swaps of rows; as `scipy.linalg.lu_factor`.

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
        return linalg.lu_factor(a, overwrite_a, check_finite)
    found: tuple[Array, Array] = matrices.lu_factor(a)
    return found


def lu_solve(
    lu_and_piv: tuple[Any, Any],
    b: Any,
    trans: int = 0,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Array:
    """Solve equations by the factors of `lu_factor`; as `scipy.linalg.lu_solve`.

    Parameters
    ----------
    lu_and_piv : tuple of array
        What `lu_factor` returns.
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
    """
    packed, places = lu_and_piv
    if is_plain(packed, places, b):
        return linalg.lu_solve(lu_and_piv, b, trans, overwrite_b, check_finite)
    order = matrices.permutation(places, packed.shape[-2])

    def solved(b: Any) -> Any:
        if not trans:
            inner = solve_triangular(packed, _rows(b, order), 0, True, True)
            return solve_triangular(packed, inner)
        inner = solve_triangular(packed, b, trans)
        inner = solve_triangular(packed, inner, trans, True, True)
        return _rows(inner, np.argsort(order, axis=-1))

    return _columns(solved, b)


def _rows(x: Any, order: Any) -> Any:
    """Matrices with their rows in another order."""
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
    """LU factors with a permutation of the rows; as `scipy.linalg.lu`.

    Parameters
    ----------
    a : array, shape (..., m, n)
        Its derivative is known for m = n.
    permute_l : bool
        Whether the lower factor has its rows permuted; then it and the upper one are all.
    overwrite_a, check_finite : bool
        For plain arrays only.
    p_indices : bool
        Whether the permutation comes as indices, not as a matrix.

    Returns
    -------
    p : array
        Without `permute_l`: ``a = p @ l @ u``, or ``a = l[p] @ u`` with `p_indices`.
    l, u : array

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from customop.scipy import linalg
    >>> co.grad(lambda a: linalg.lu(a)[2][1, 1])(np.array([[2.0, 1.0], [1.0, 3.0]]))
    array([[ 0.25, -0.5 ],
           [-0.5 ,  1.  ]])
    """
    if is_plain(a):
        options = permute_l, overwrite_a, check_finite, p_indices
        return tuple(linalg.lu(a, *options))
    packed, places = matrices.lu_factor(a)
    rows, columns = packed.shape[-2:]
    least = smaller(rows, columns)
    ones = eye(rows, least, 0, packed.dtype, device_of(packed))
    lower = np.tril(packed[..., :least], -1) + ones
    upper = np.triu(packed[..., :least, :])
    order = np.argsort(matrices.permutation(places, rows), axis=-1)
    if permute_l:
        return _rows(lower, order), upper
    if p_indices:
        return order.astype(np.int32), lower, upper
    kind = packed.real.dtype
    whole = eye(rows, None, 0, kind, device_of(packed))
    return _rows(whole, order), lower, upper


# ---- functions of matrices ----


def expm(A: Any) -> Array:  # noqa: N803  # SciPy's name
    """Exponential of matrices; as `scipy.linalg.expm`.

    Parameters
    ----------
    A : array, shape (..., n, n)

    Returns
    -------
    array

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from customop.scipy import linalg
    >>> co.jacfwd(lambda t: linalg.expm(t * np.diag([1.0, 2.0])))(np.array(0.0))
    array([[1., 0.],
           [0., 2.]])
    """
    return linalg.expm(A) if is_plain(A) else matrices.expm(A)


# ---- matrices made of vectors and matrices ----


def block_diag(*arrs: Any) -> Array:
    """Matrix with these matrices along its diagonal; as `scipy.linalg.block_diag`.

    Parameters
    ----------
    *arrs : array
        Up to two axes each.

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
        return linalg.block_diag(*arrs)
    parts = [np.atleast_2d(_as_array(x)) for x in arrs]
    dtype = np.result_type(*[x.dtype for x in parts])
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
    return [np.ravel(_as_array(x)) for x in given]


def toeplitz(c: Any, r: Any = None) -> Array:
    """Matrix whose diagonals are constant; as `scipy.linalg.toeplitz`.

    Parameters
    ----------
    c : array, shape (m,)
        The first column.
    r : array, shape (n,), optional
        The first row, without its first element; the conjugate of `c` by default.

    Returns
    -------
    array, shape (m, n)

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from customop.scipy import linalg
    >>> co.grad(lambda c: linalg.toeplitz(c).sum())(np.ones(3))
    array([3., 4., 2.])
    """
    if is_plain(c, r):
        return linalg.toeplitz(c, r)
    column, row = _vectors(c, np.conjugate(_as_array(c)) if r is None else r)
    count = column.shape[0]
    values = np.concatenate([np.flip(column), row[1:]])
    down = np.expand_dims(numbers(0, count, column), 1)
    steps = numbers(0, row.shape[0], column) - down
    return _by_places(values, steps + (count - 1))


def circulant(c: Any) -> Array:
    """Matrix whose columns are turned further each; as `scipy.linalg.circulant`.

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
        return linalg.circulant(c)
    (column,) = _vectors(c)
    count = column.shape[0]
    places = numbers(0, count, column)
    steps = np.expand_dims(places, 1) - places
    return _by_places(column, np.remainder(steps, larger(count, 1)))


def hankel(c: Any, r: Any = None) -> Array:
    """Matrix whose antidiagonals are constant; as `scipy.linalg.hankel`.

    Parameters
    ----------
    c : array, shape (m,)
        The first column.
    r : array, shape (n,), optional
        The last row, without its first element; zeros by default.

    Returns
    -------
    array, shape (m, n)

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from customop.scipy import linalg
    >>> co.grad(lambda c: linalg.hankel(c).sum())(np.ones(3))
    array([1., 2., 3.])
    """
    if is_plain(c, r):
        return linalg.hankel(c, r)
    column, row = _vectors(c, np.zeros_like(_as_array(c)) if r is None else r)
    values = np.concatenate([column, row[1:]])
    down = np.expand_dims(numbers(0, column.shape[0], column), 1)
    places = down + numbers(0, row.shape[0], column)
    return _by_places(values, places)
