"""Matrices made of vectors and matrices, as `scipy.linalg` has them."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import linalg as _linalg

from customop import Array
from customop.numpy.arguments import dtype_of
from customop.numpy.index import numbers
from customop.numpy.sizes import larger
from customop.scipy.rules import is_plain
from customop.scipy.triangular import as_array

__all__ = ["block_diag", "circulant", "hankel", "toeplitz"]

# pyright infers types from SciPy's code, and gets some wrong.
linalg: Any = _linalg


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
    column, row = _vectors(c, np.conjugate(as_array(c)) if r is None else r)
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
    column, row = _vectors(c, np.zeros_like(as_array(c)) if r is None else r)
    values = np.concatenate([column, row[1:]])
    down = np.expand_dims(numbers(0, column.shape[0], column), 1)
    places = down + numbers(0, row.shape[0], column)
    return _by_places(values, places)
