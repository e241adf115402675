"""Elementwise operators: arithmetic, comparison, exponentials, trigonometry.

Derivatives of complex values are complex-linear, as in JAX. Source: NIST Digital Library of Mathematical Functions, chapter 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from customop import (
    Array,
    FakeArray,
    Operator,
    Tag,
    custom_op,
    fake_like,
    register_numpy_function,
)
from customop.numpy.fakes import fake_of_ufunc
from customop.numpy.rules import is_complex, no_gradient, register_formulas

__all__: list[str] = []

_LN2, _LN10 = math.log(2.0), math.log(10.0)
_UNARY = "(Array x) -> Array"
_BINARY = "(Array|Scalar x1, Array|Scalar x2) -> Array"


def _ufunc(name: str) -> Operator[..., Any]:
    """Make the operator of a ufunc, with its fake kernel."""
    ufunc = getattr(np, name)
    schema = _UNARY if ufunc.nin == 1 else _BINARY
    kernel: Callable[..., Any] = ufunc
    op = custom_op(
        f"np::{name}", kernel, mutates_args=(), schema=schema, tags=Tag.pointwise
    )
    op.register_fake(fake_of_ufunc(ufunc))
    register_numpy_function(ufunc, op)
    return op


def _unary(name: str, formula: Any) -> Operator[..., Any]:
    op = _ufunc(name)
    register_formulas(op, ("x",), (formula,))
    return op


def _binary(name: str, first: Any, second: Any) -> Operator[..., Any]:
    op = _ufunc(name)
    register_formulas(op, ("x1", "x2"), (first, second))
    return op


# ---- arithmetic ----

_binary("add", lambda g: g, lambda g: g)
_binary("subtract", lambda g: g, lambda g: -g)
_binary("multiply", lambda g, x2: g * x2, lambda g, x1: x1 * g)
_binary("divide", lambda g, x2: g / x2, lambda g, x2, y: -g * y / x2)
_unary("negative", lambda g: -g)
_unary("positive", lambda g: g)
_unary("square", lambda g, x: g * (2.0 * x))
_unary("reciprocal", lambda g, y: -g * y * y)
_unary("sqrt", lambda g, y: g * 0.5 / y)
_unary("cbrt", lambda g, y: g / (3.0 * y * y))
_unary("conjugate", lambda g: np.conjugate(g))


def _power_base(g: Any, x1: Any, x2: Any) -> Any:
    """d(x1 ** x2) = x2 x1 ** (x2 - 1) dx1, and 0 for the exponent 0, also at 0."""
    if isinstance(x2, int | float | complex):
        return g * (x2 * x1 ** (x2 - 1)) if x2 else g * 0.0
    safe = np.where(np.equal(x2, 0), 1.0, x2 - 1)
    return g * (x2 * np.power(x1, safe))


def _power_exponent(g: Any, x1: Any, y: Any) -> Any:
    """d(x1 ** x2) = log(x1) x1 ** x2 dx2, and 0 for the base 0."""
    if isinstance(x1, int | float | complex):
        return g * (y * _log_of(x1)) if x1 else g * 0.0
    base = np.where(np.equal(x1, 0), 1.0, x1)
    return g * (y * np.log(base))


def _log_of(x: complex) -> Any:
    """Logarithm of a number; nan for a negative real one, as in NumPy."""
    if isinstance(x, int | float):
        return math.log(x) if x > 0 else math.nan
    return complex(np.log(x))


_binary("power", _power_base, _power_exponent)
_binary("float_power", _power_base, _power_exponent)
_binary("remainder", lambda g: g, lambda g, x1, x2: -g * np.floor(x1 / x2))
_binary("fmod", lambda g: g, lambda g, x1, x2: -g * np.trunc(x1 / x2))
_binary("hypot", lambda g, x1, y: g * x1 / y, lambda g, x2, y: g * x2 / y)
_binary(
    "arctan2",
    lambda g, x1, x2: g * x2 / (x1 * x1 + x2 * x2),
    lambda g, x1, x2: -g * x1 / (x1 * x1 + x2 * x2),
)
_binary(
    "logaddexp",
    lambda g, x1, y: g * np.exp(x1 - y),
    lambda g, x2, y: g * np.exp(x2 - y),
)
_binary(
    "logaddexp2",
    lambda g, x1, y: g * np.exp2(x1 - y),
    lambda g, x2, y: g * np.exp2(x2 - y),
)


def _is_winner(x: Any, other: Any, y: Any, g: Any) -> Any:
    """The gradient where `x` is the result, half of it where both are, 0 elsewhere.

    The halves are the mean of the one-sided derivatives, as in JAX 0.10 and HIPS
    autograd 1.9.
    """
    mine = np.equal(x, y).astype(g.dtype)
    return g * mine / (mine + np.equal(other, y).astype(g.dtype) + (1.0 - mine))


for _name in ("maximum", "minimum", "fmax", "fmin"):
    _binary(
        _name,
        lambda g, x1, x2, y: _is_winner(x1, x2, y, g),
        lambda g, x1, x2, y: _is_winner(x2, x1, y, g),
    )


@register_numpy_function(np.divmod)
def _(x1: Any, x2: Any) -> tuple[Any, Any]:
    return np.floor_divide(x1, x2), np.remainder(x1, x2)


# ---- exponentials and logarithms ----

_unary("exp", lambda g, y: g * y)
_unary("exp2", lambda g, y: g * (y * _LN2))
_unary("expm1", lambda g, y: g * (y + 1.0))
_unary("log", lambda g, x: g / x)
_unary("log2", lambda g, x: g / (x * _LN2))
_unary("log10", lambda g, x: g / (x * _LN10))
_unary("log1p", lambda g, x: g / (x + 1.0))

# ---- trigonometric and hyperbolic ----

_unary("sin", lambda g, x: g * np.cos(x))
_unary("cos", lambda g, x: -g * np.sin(x))
_unary("tan", lambda g, y: g * (1.0 + y * y))
_unary("arcsin", lambda g, x: g / np.sqrt(1.0 - x * x))
_unary("arccos", lambda g, x: -g / np.sqrt(1.0 - x * x))
_unary("arctan", lambda g, x: g / (1.0 + x * x))
_unary("sinh", lambda g, x: g * np.cosh(x))
_unary("cosh", lambda g, x: g * np.sinh(x))
_unary("tanh", lambda g, y: g * (1.0 - y * y))
_unary("arcsinh", lambda g, x: g / np.sqrt(x * x + 1.0))
_unary("arccosh", lambda g, x: g / np.sqrt(x * x - 1.0))
_unary("arctanh", lambda g, x: g / (1.0 - x * x))
_unary("deg2rad", lambda g: g * (math.pi / 180.0))
_unary("rad2deg", lambda g: g * (180.0 / math.pi))


def _absolute(g: Any, x: Any, y: Any) -> Any:
    """Sign of a real x; conj(x) / |x| of a complex one, 0 at 0. Source: JAX 0.10."""
    if not is_complex(x):
        return g * np.sign(x)
    safe = np.where(np.equal(y, 0), 1.0, y)
    return g * np.conjugate(x) / safe


_unary("absolute", _absolute)
_unary("fabs", lambda g, x: g * np.sign(x))

# ---- derivative zero or none ----


@custom_op("np::round", mutates_args=(), tags=Tag.pointwise)
def _rounded(x: Array, decimals: int = 0) -> Array:
    # NumPy 2.4 keeps the order of the axes only without decimals.
    return np.copy(np.round(x, decimals), order="C")


@_rounded.register_fake
def _(x: Any, decimals: int) -> Any:
    dtype = np.round(np.empty(0, x.dtype)).dtype
    return FakeArray(x.shape, dtype, device=fake_like(x).device)


no_gradient(_rounded)


def _round(a: Any, decimals: int = 0, out: None = None) -> Any:
    return _rounded(a, decimals)


register_numpy_function(np.round, _round)
register_numpy_function(np.around, _round)

_STEPS = (
    "sign",
    "floor",
    "ceil",
    "trunc",
    "rint",
    "signbit",
    "isnan",
    "isinf",
    "isfinite",
)
_COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
_LOGIC = (
    "logical_and",
    "logical_or",
    "logical_xor",
    "logical_not",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "invert",
    "left_shift",
    "right_shift",
)
for _name in (*_STEPS, *_COMPARISONS, *_LOGIC, "floor_divide"):
    no_gradient(_ufunc(_name))
