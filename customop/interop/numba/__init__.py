"""Operators in code that numba compiles. Import this module for its effect.

Functions compiled by ``njit``, ``vectorize`` or ``guvectorize`` can be passed to
`customop.custom_op` and ``register_kernel`` unchanged; the signature of a
``guvectorize`` function gives the schema. After this module is imported, ``njit`` code
can call an operator whose NumPy kernel is such a function.

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

# Start reading with `njit_calls`, which also compiles functions that XLA calls without Python.

from __future__ import annotations

from customop.interop.numba.njit_calls import register_type

__all__: list[str] = []

register_type()
