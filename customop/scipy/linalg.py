"""`scipy.linalg` on traced, fake and plain arrays.

Call these functions instead of SciPy's own, which cannot read traced values. They have
SciPy's parameters and take stacks of matrices. For traced values, `overwrite_a` and
`check_finite` have no effect. Plain arrays are passed to SciPy. If a function reads
only one triangle of a matrix, the gradient is in that triangle too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg as _linalg

from customop import ArgumentError, Array
from customop.numpy.arguments import dtype_of
from customop.numpy.matrices import from_triangle, transposed
from customop.numpy.rules import columns_first
from customop.scipy import linalg_operators
from customop.scipy.linalg_operators import (
    as_array,
    block_diag,
    circulant,
    columns,
    hankel,
    lu,
    lu_factor,
    lu_solve,
    solve_triangular,
    toeplitz,
)
from customop.scipy.matrix_equations import solve_banded, solve_sylvester, sqrtm
from customop.scipy.ufunc_rules import is_plain

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
    "solve_banded",
    "solve_sylvester",
    "solve_triangular",
    "sqrtm",
    "toeplitz",
]

# pyright infers types from SciPy's code and gets some of them wrong.
linalg: Any = _linalg


# ---- linear equations ----

# Name of a structure -> the part of the matrix that is read.
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
    """Return the full matrix, where `assume_a` says that only a part of it is read."""
    a = as_array(a)
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
    """Solve linear equations ``a x = b``, as `scipy.linalg.solve` does.

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
    >>> linalg.solve(np.array([[4.0, 2.0], [2.0, 5.0]]), np.array([8.0, 8.0]), assume_a="pos").round(6)
    array([1.5, 1. ])
    """
    if is_plain(a, b):
        options = overwrite_a, overwrite_b, check_finite, assume_a, transposed
        return linalg.solve(a, b, lower, *options)
    full = _structured("solve", a, assume_a, lower)
    full = np.swapaxes(full, -1, -2) if transposed else full
    return columns(lambda b: np.linalg.solve(full, b), b)


def inv(
    a: Any,
    overwrite_a: bool = False,
    check_finite: bool = True,
    *,
    assume_a: str | None = None,
    lower: bool = False,
) -> Array:
    """Invert matrices, as `scipy.linalg.inv` does.

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
        if assume_a is None and not lower:  # SciPy has these parameters since 1.17
            return linalg.inv(a, overwrite_a, check_finite)
        return linalg.inv(a, overwrite_a, check_finite, assume_a=assume_a, lower=lower)
    return np.linalg.inv(_structured("inv", a, assume_a, lower))


def det(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """Compute determinants of matrices, as `scipy.linalg.det` does.

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
    return np.linalg.det(a.astype(np.result_type(dtype_of(a), float)))


# ---- Cholesky factors ----


def cholesky(
    a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> Array:
    """Compute Cholesky factors of positive definite matrices, as `scipy.linalg.cholesky`.

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
    >>> linalg.cholesky(np.array([[4.0, 2.0], [2.0, 5.0]]), lower=True)
    array([[2., 0.],
           [1., 2.]])
    """
    if is_plain(a):
        return linalg.cholesky(a, lower, overwrite_a, check_finite)
    return columns_first(np.linalg.cholesky(a, upper=not lower))


def cho_factor(
    a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Array, bool]:
    """Compute the Cholesky factor for `cho_solve`, as `scipy.linalg.cho_factor` does.

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
        The factor. For traced arrays its other triangle is zero; SciPy leaves elements
        of `a` there.
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
    >>> linalg.cho_factor(np.array([[4.0, 2.0], [2.0, 5.0]]), lower=True)[0]
    array([[2., 2.],
           [1., 2.]])
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
    """Solve equations with the factor of `cho_factor`, as `scipy.linalg.cho_solve` does.

    Parameters
    ----------
    c_and_lower : tuple of array and bool
        The result of `cho_factor`.
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


# ---- functions of matrices ----


def expm(A: Any) -> Array:  # noqa: N803  # SciPy's name
    """Compute the exponentials of matrices, as `scipy.linalg.expm` does.

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
    return linalg.expm(A) if is_plain(A) else linalg_operators.expm(A)
