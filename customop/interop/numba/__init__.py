"""Operators in code that numba compiles; imported for its effect.

Functions of numba are kernels as they are, for `customop.custom_op` and ``register_kernel``:
those of ``njit`` and ``vectorize``, and those of ``guvectorize``, whose signatures are
schemas. With this module imported, an operator can be called in ``njit`` code where its
kernel for NumPy is such a function. ``handlers`` compiles what XLA calls without Python.

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

from customop.interop.numba.njit_calls import register_type

__all__: list[str] = []

register_type()
