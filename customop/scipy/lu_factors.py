"""LU factors of matrices, as `scipy.linalg` has them."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg as _linalg

from customop import Array
from customop.numpy.create import eye
from customop.numpy.fakes import device_of
from customop.numpy.layouts import columns_first
from customop.numpy.sizes import broadcast, smaller
from customop.scipy import matrices
from customop.scipy.rules import is_plain
from customop.scipy.triangular import columns, solve_triangular

__all__ = ["lu", "lu_factor", "lu_solve"]

# pyright infers types from SciPy's code, and gets some wrong.
linalg: Any = _linalg


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
    packed, places = matrices.lu_factor(a)
    return columns_first(packed), places


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
        return columns_first(_rows(inner, np.argsort(order, axis=-1)))

    return columns(solved, b)


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
