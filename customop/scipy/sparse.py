"""Sparse matrices times arrays, for traced, fake and plain arrays.

Once this module is imported, ``matrix @ x``, ``x @ matrix`` and ``matrix.dot(x)`` of SciPy
see operators where `x` is traced; SciPy alone would ask it for its numbers. `matmul` is
the same as a function. The numbers of a matrix have gradients if it is made by `with_data`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any

import numpy as np
from scipy import sparse

from customop import ArgumentError, Array, ShapeError
from customop.scipy.rules import is_plain
from customop.scipy.sparse_products import (
    Fixed,
    SparsePattern,
    fixed_matmul,
    sparse_matmul,
)

__all__ = ["Matrix", "matmul", "with_data"]


class Matrix:
    """A sparse matrix whose numbers may be traced; made by `with_data`.

    Attributes
    ----------
    data : array, shape (nnz,)
        The numbers, in the order of `scipy.sparse.coo_array`.
    pattern : object
        Their places.
    shape : tuple of int

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from scipy.sparse import csr_array
    >>> from customop.scipy import sparse
    >>> a = csr_array(np.diag([1.0, 2.0]))
    >>> co.grad(lambda d: (sparse.with_data(a, d) @ np.array([3.0, 4.0])).sum())(a.data)
    array([3., 4.])
    """

    def __init__(self, data: Any, pattern: SparsePattern) -> None:
        self.data: Any = data
        self.pattern: SparsePattern = pattern

    @property
    def shape(self) -> tuple[int, int]:
        """Lengths of both axes."""
        return self.pattern.shape

    @property
    def T(self) -> Matrix:  # noqa: N802  # SciPy's name
        """The transposed matrix."""
        return Matrix(self.data, self.pattern.turned())

    def __matmul__(self, x: Any) -> Array:
        return matmul(self, x)

    def __rmatmul__(self, x: Any) -> Array:
        return matmul(x, self)

    # NumPy and traced arrays leave x @ matrix to the matrix.
    __array_ufunc__ = None


def _matrix(a: Any) -> Matrix:
    if isinstance(a, Matrix):
        return a
    coo = a.tocoo()
    return Matrix(coo.data, SparsePattern.of(coo.row, coo.col, tuple(coo.shape)))


def with_data(matrix: Any, data: Any) -> Matrix:
    """Make a sparse matrix with the places of another one, and other numbers.

    Parameters
    ----------
    matrix : sparse matrix or array of SciPy
        Its places count: with two axes.
    data : array, shape (nnz,)
        The numbers in the order of ``matrix.tocoo().data``, which for ``csr_array`` is
        that of ``matrix.data``. They may be traced.

    Returns
    -------
    Matrix
        Works with ``@`` and `matmul`.

    Raises
    ------
    ShapeError
        If there are more or fewer numbers than places.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> from customop.scipy import sparse
    >>> a = csr_array(np.eye(2))
    >>> sparse.with_data(a, np.array([2.0, 3.0])) @ np.ones(2)
    array([2., 3.])
    """
    pattern = _matrix(matrix).pattern
    count = len(pattern.rows)
    if tuple(data.shape) != (count,):
        raise ShapeError(
            f"with_data: numbers of shape {tuple(data.shape)} for {count} places",
            do=f"give an array of shape ({count},)",
        )
    return Matrix(data, pattern)


def _is_sparse(x: Any) -> bool:
    return isinstance(x, Matrix) or sparse.issparse(x)


def matmul(a: Any, b: Any) -> Array:
    """Multiply a sparse matrix and an array, in either order.

    Parameters
    ----------
    a, b : array or sparse matrix
        One of them is sparse: of SciPy, or from `with_data`. The other one has one or two
        axes and may be traced.

    Returns
    -------
    array

    Raises
    ------
    ArgumentError
        If not exactly one of them is sparse.
    ShapeError
        If the shapes do not fit.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> from scipy.sparse import csr_array
    >>> from customop.scipy import sparse
    >>> a = csr_array(np.array([[1.0, 0.0], [2.0, 3.0]]))
    >>> co.grad(lambda x: sparse.matmul(a, x).sum())(np.ones(2))
    array([3., 3.])
    """
    if _is_sparse(a) == _is_sparse(b):
        raise ArgumentError(
            "sparse.matmul takes one sparse matrix and one array",
            do="multiply sparse matrices with @, and arrays with np.matmul",
        )
    if _is_sparse(b):
        if is_plain(a) and not isinstance(b, Matrix):
            return a @ b
        turned = np.swapaxes(a, 0, 1) if len(a.shape) == 2 else a
        found = matmul(b.T, turned)
        return np.swapaxes(found, 0, 1) if len(found.shape) == 2 else found
    if isinstance(a, Matrix):
        return sparse_matmul(a.data, a.pattern, b)
    return a @ b if is_plain(b) else fixed_matmul(Fixed.of(a), b)


# ---- SciPy's own operators ----


def _serving(method: Callable[[Any, Any], Any], *, is_turned: bool) -> Any:
    """A method of SciPy's matrices that knows traced arrays."""

    @wraps(method)
    def serving(self: Any, other: Any) -> Any:
        if is_plain(other):
            return method(self, other)
        return matmul(other, self) if is_turned else matmul(self, other)

    return serving


def _serve(names: Sequence[str], classes: Sequence[type]) -> None:
    """Let methods of SciPy's matrices know traced arrays, where they are defined."""
    owners = {base for cls in classes for base in cls.__mro__}
    for owner in owners:
        for name in names:
            method = vars(owner).get(name)
            if method is not None and owner.__module__.startswith("scipy."):
                is_turned = name.startswith("__r")
                setattr(owner, name, _serving(method, is_turned=is_turned))


_FORMATS = ("bsr", "coo", "csc", "csr", "dia", "dok", "lil")
_serve(
    ("__matmul__", "__rmatmul__", "dot"),
    [getattr(sparse, f"{f}_array") for f in _FORMATS],
)
# The product of the older classes, which are matrices.
_serve(("__mul__", "__rmul__"), [sparse.spmatrix])
