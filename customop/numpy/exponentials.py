"""Elementwise operators: exponentials, logarithms, trigonometry, hyperbolic functions.

Source: NIST Digital Library of Mathematical Functions, chapter 4.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from customop.numpy.rules import is_complex
from customop.numpy.ufuncs import unary

__all__: list[str] = []

_LN2, _LN10 = math.log(2.0), math.log(10.0)

# ---- exponentials and logarithms ----

unary("exp", lambda g, y: g * y)
unary("exp2", lambda g, y: g * (y * _LN2))
unary("expm1", lambda g, y: g * (y + 1.0))
unary("log", lambda g, x: g / x)
unary("log2", lambda g, x: g / (x * _LN2))
unary("log10", lambda g, x: g / (x * _LN10))
unary("log1p", lambda g, x: g / (x + 1.0))

# ---- trigonometric and hyperbolic ----


def _root(x: Any) -> Any:
    """The root of 1 - x * x; for complex numbers on the branch of NumPy's arcsin."""
    if not is_complex(x):
        return np.sqrt(1.0 - x * x)
    # -(x - 1), not 1 - x: a zero imaginary part must change its sign.
    return np.sqrt(-(x - 1.0)) * np.sqrt(x + 1.0)


unary("sin", lambda g, x: g * np.cos(x))
unary("cos", lambda g, x: -g * np.sin(x))
unary("tan", lambda g, y: g * (1.0 + y * y))
unary("arcsin", lambda g, x: g / _root(x))
unary("arccos", lambda g, x: -g / _root(x))
unary("arctan", lambda g, x: g / (1.0 + x * x))
unary("sinh", lambda g, x: g * np.cosh(x))
unary("cosh", lambda g, x: g * np.sinh(x))
unary("tanh", lambda g, y: g * (1.0 - y * y))
unary("arcsinh", lambda g, x: g / np.sqrt(x * x + 1.0))
# One root of x * x - 1 has the wrong sign for a complex x left of the imaginary axis.
unary("arccosh", lambda g, x: g / (np.sqrt(x - 1.0) * np.sqrt(x + 1.0)))
unary("arctanh", lambda g, x: g / (1.0 - x * x))
unary("deg2rad", lambda g: g * (math.pi / 180.0))
unary("rad2deg", lambda g: g * (180.0 / math.pi))
unary("radians", lambda g: g * (math.pi / 180.0))
unary("degrees", lambda g: g * (180.0 / math.pi))
