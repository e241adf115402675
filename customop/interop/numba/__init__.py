"""Functions of numba as operators, and operators in code that numba compiles.

Functions of ``numba.njit`` and ``numba.vectorize`` are kernels as they are, for
`customop.custom_op` and ``register_kernel``. `gufunc_op` makes an operator from a function of
``numba.guvectorize``, with the shapes of its signature. With this module imported, an
operator can be called in ``njit`` code where its kernel for NumPy is such a function.

Examples
--------
>>> import numba, numpy as np, customop as co
>>> import customop.interop.numba
>>> @co.custom_op(
...     "doc::scaled", mutates_args=(), schema="(Array x, float k=2.0) -> Array"
... )
... @numba.njit
... def scaled(x, k):
...     return x * k
>>> @numba.njit
... def shifted(x):
...     return scaled(x, 3.0) + 1.0
>>> shifted(np.ones(2))
array([4., 4.])
"""

from __future__ import annotations

from customop.interop.numba.gufuncs import gufunc_op
from customop.interop.numba.in_njit import register_type

__all__ = ["gufunc_op"]

register_type()
