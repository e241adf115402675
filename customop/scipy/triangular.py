"""Triangular systems, as `scipy.linalg` has them, and arguments of all its functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import linalg as _linalg

from customop import Array
from customop.numpy.layouts import columns_first
from customop.numpy.rules import is_complex
from customop.scipy import matrices
from customop.scipy.rules import is_plain

__all__ = ["as_array", "columns", "solve_triangular"]

# pyright infers types from SciPy's code, and gets some wrong.
linalg: Any = _linalg


def as_array(x: Any) -> Any:
    """An array as it is; numbers and lists as an array of NumPy."""
    return x if hasattr(x, "shape") else np.asarray(x)


def columns(fn: Callable[[Any], Any], b: Any) -> Any:
    """Solve for a vector as for a matrix of one column."""
    b = as_array(b)
    return fn(b) if len(b.shape) != 1 else fn(np.expand_dims(b, -1))[..., 0]


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
    a = as_array(a)
    matrix = np.conjugate(a) if code == 2 and is_complex(a) else a
    flags = bool(code), bool(lower), bool(unit_diagonal)

    def solved(b: Any) -> Any:
        return columns_first(matrices.solve_triangular(matrix, b, *flags))

    return columns(solved, b)
