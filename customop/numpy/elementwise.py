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
    SymInt,
    Tag,
    custom_op,
    fake_like,
    register_numpy_function,
)
from customop.numpy.arguments import SINCE_2_5, warn_user
from customop.numpy.fakes import fake_of_ufunc, packed_as
from customop.numpy.rules import is_complex, no_gradient, register_formulas
from customop.numpy.sizes import larger

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
_copysign = _binary("copysign", lambda g, x1, x2: g * _same_sign(x1, x2), None)
for _check in ("test_jvp", "test_gradients"):
    _copysign.waive(
        _check, reason="at 0 the derivative is that of the side of its sign bit"
    )
_binary("ldexp", lambda g, x2: np.ldexp(g, x2), None)
# The next number is x1 and a step, which changes at powers of two only.
_binary("nextafter", lambda g: g, None)
_binary("heaviside", None, lambda g, x1: g * np.equal(x1, 0))


def _same_sign(x1: Any, x2: Any) -> Any:
    """1 where two numbers have the same sign bit, -1 elsewhere."""
    return 1 - 2 * np.not_equal(np.signbit(x1), np.signbit(x2))


def _power_base(g: Any, x1: Any, x2: Any) -> Any:
    """d(x1 ** x2) = x2 x1 ** (x2 - 1) dx1, and 0 for the exponent 0, also at 0 and nan."""
    if isinstance(x2, int | float | complex):
        return g * (x2 * x1 ** (x2 - 1)) if x2 else g * 0.0
    if isinstance(x2, SymInt):  # a size, which may be 0
        return g * (x2 * np.power(x1, larger(x2 - 1, 0)))
    # For the exponent 0 another base is taken only for 0 and nan: the derivative by the
    # exponent is x1 ** -1 there.
    has_inverse = np.greater(np.abs(x1), 0)
    is_zero = np.logical_and(np.equal(x2, 0), np.logical_not(has_inverse))
    # 1.0, since small integers minus 1 may overflow.
    return g * (x2 * np.power(np.where(is_zero, 1.0, x1), x2 - 1.0))


def _power_exponent(g: Any, x1: Any, y: Any) -> Any:
    """d(x1 ** x2) = log(x1) x1 ** x2 dx2, and 0 for the base 0.

    A negative real base has a logarithm if the power is complex.
    """
    if isinstance(x1, int | float | complex):
        return g * (y * _log_of(x1, is_complex(y))) if x1 else g * 0.0
    if isinstance(x1, SymInt):  # of which the power is 0 where it is 0
        return g * (y * np.log(larger(x1, 1)))
    base = np.where(np.equal(x1, 0), 1.0, x1)
    if is_complex(y) and not is_complex(base):
        base = base.astype(y.dtype)
    return g * (y * np.log(base))


def _log_of(x: complex, in_complex: bool) -> Any:
    """Logarithm of a number; nan for a negative one among real numbers, as in NumPy."""
    if isinstance(x, int | float) and not in_complex:
        return math.log(x) if x > 0 else math.nan
    return complex(np.log(complex(x)))


_binary("power", _power_base, _power_exponent)
_binary("float_power", _power_base, _power_exponent)
_binary("remainder", lambda g: g, lambda g, x1, x2: -g * np.floor(x1 / x2))
_binary("fmod", lambda g: g, lambda g, x1, x2: -g * np.trunc(x1 / x2))
_binary("hypot", lambda g, x1, y: g * x1 / y, lambda g, x2, y: g * x2 / y)


def _around(g: Any, x: Any, x1: Any, x2: Any) -> Any:
    """G x / (x1 x1 + x2 x2), without squares, which integers and large numbers overflow."""
    length = np.hypot(x1, x2)
    return g * (x / length) / length


_binary(
    "arctan2",
    lambda g, x1, x2: _around(g, x2, x1, x2),
    lambda g, x1, x2: _around(-g, x1, x1, x2),
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


_ONE = np.int8(1)


def _is_winner(g: Any, x: Any, other: Any, y: Any) -> Any:
    """The gradient where `x` is the result, half of it where both are, 0 elsewhere.

    The halves are the mean of the one-sided derivatives, as in JAX 0.10 and HIPS
    autograd 1.9.
    """
    mine, ties = g * np.equal(x, y), np.equal(x, other)
    if type(ties) is np.ndarray and not np.count_nonzero(ties):
        return mine
    if mine.dtype.kind == "c" and mine.shape:  # division by 1 changes signs of zeros
        return np.where(ties, mine / 2, mine)
    # One is of the smallest type, so that the result has the dtype of `g`.
    return mine / (ties + _ONE)


for _name in ("maximum", "minimum", "fmax", "fmin"):
    _binary(
        _name,
        lambda g, x1, x2, y: _is_winner(g, x1, x2, y),
        lambda g, x1, x2, y: _is_winner(g, x2, x1, y),
    )


# ---- exponentials and logarithms ----

_unary("exp", lambda g, y: g * y)
_unary("exp2", lambda g, y: g * (y * _LN2))
_unary("expm1", lambda g, y: g * (y + 1.0))
_unary("log", lambda g, x: g / x)
_unary("log2", lambda g, x: g / (x * _LN2))
_unary("log10", lambda g, x: g / (x * _LN10))
_unary("log1p", lambda g, x: g / (x + 1.0))

# ---- trigonometric and hyperbolic ----


def _root(x: Any) -> Any:
    """The root of 1 - x * x; for complex numbers on the branch of NumPy's arcsin."""
    if not is_complex(x):
        return np.sqrt(1.0 - x * x)
    # -(x - 1), not 1 - x: a zero imaginary part must change its sign.
    return np.sqrt(-(x - 1.0)) * np.sqrt(x + 1.0)


_unary("sin", lambda g, x: g * np.cos(x))
_unary("cos", lambda g, x: -g * np.sin(x))
_unary("tan", lambda g, y: g * (1.0 + y * y))
_unary("arcsin", lambda g, x: g / _root(x))
_unary("arccos", lambda g, x: -g / _root(x))
_unary("arctan", lambda g, x: g / (1.0 + x * x))
_unary("sinh", lambda g, x: g * np.cosh(x))
_unary("cosh", lambda g, x: g * np.sinh(x))
_unary("tanh", lambda g, y: g * (1.0 - y * y))
_unary("arcsinh", lambda g, x: g / np.sqrt(x * x + 1.0))
# One root of x * x - 1 has the wrong sign for a complex x left of the imaginary axis.
_unary("arccosh", lambda g, x: g / (np.sqrt(x - 1.0) * np.sqrt(x + 1.0)))
_unary("arctanh", lambda g, x: g / (1.0 - x * x))
_unary("deg2rad", lambda g: g * (math.pi / 180.0))
_unary("rad2deg", lambda g: g * (180.0 / math.pi))
_unary("radians", lambda g: g * (math.pi / 180.0))
_unary("degrees", lambda g: g * (180.0 / math.pi))


def _absolute(g: Any, x: Any, y: Any) -> Any:
    """Sign of a real x; conj(x) / |x| of a complex one, 0 at 0. Source: JAX 0.10."""
    if not is_complex(x):
        return g * np.sign(x)
    safe = np.where(np.equal(y, 0), 1.0, y)
    return g * np.conjugate(x) / safe


_unary("absolute", _absolute)
_unary("fabs", lambda g, x: g * np.sign(x))


def _note_sign(ctx: Any, inputs: Any, output: Any) -> None:
    if is_complex(output):
        ctx.save_for_backward(np.absolute(inputs[0]), output)
    else:
        ctx.mark_non_differentiable(output)


def _turned(t: Any, size: Any, turn: Any) -> Any:
    """The part of a tangent that turns a complex number, over its size; 0 at 0."""
    safe = np.where(np.equal(size, 0), 1.0, size)
    moved = (t - turn * np.conjugate(t)) / (2.0 * safe)
    return np.where(np.equal(size, 0), 0.0, moved)


def _sign_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    y = sign(x)
    return y, _turned(t, np.absolute(x), y * y) if is_complex(y) else None


def _sign_backward(ctx: Any, g: Any) -> Any:
    size, y = ctx.saved_arrays
    return _turned(g, size, np.conjugate(y * y))


# x / abs(x) of a complex x has a derivative, which is linear over the reals only.
sign: Operator[..., Any] = _ufunc("sign")
sign.register_autograd(_sign_backward, setup_context=_note_sign)
sign.register_jvp(_sign_jvp)

# ---- derivative zero or none ----


@custom_op("np::round", mutates_args=(), tags=Tag.pointwise)
def _rounded(x: Array, decimals: int = 0) -> Array:
    found = np.round(x, decimals)
    return found if not found.ndim else np.copy(found, order="C")


@_rounded.register_kernel("cpu")
def _(x: Any, decimals: int) -> Any:
    return np.round(x, decimals)


@_rounded.register_fake
def _(x: Any, decimals: int) -> Any:
    dtype = np.round(np.empty(0, x.dtype), decimals).dtype
    device = fake_like(x).device
    if device != "cpu":
        return FakeArray(x.shape, dtype, device=device)
    if dtype.kind == "c" or (dtype.kind in "iu" and decimals >= 0):
        return fake_like(x)
    if not decimals and dtype.kind == "f":
        return fake_of_ufunc(np.rint)(x)
    return packed_as(x, x.shape, dtype)  # seen in NumPy 2.4


no_gradient(_rounded)


def _round(a: Any, decimals: int = 0, out: None = None) -> Any:
    return _rounded(a, decimals)


register_numpy_function(np.round, _round)
register_numpy_function(np.around, _round)


@register_numpy_function(np.fix)
def _(x: Any, out: None = None) -> Any:
    if SINCE_2_5:
        warn_user(
            "numpy.fix is deprecated. Use numpy.trunc instead, which is faster and"
            " follows the Array API standard.",
            DeprecationWarning,
        )
    return np.trunc(x)


_STEPS = (
    "floor",
    "ceil",
    "trunc",
    "rint",
    "signbit",
    "isnan",
    "isinf",
    "isfinite",
    "spacing",
    "bitwise_count",
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
    "gcd",
    "lcm",
)
for _name in (*_STEPS, *_COMPARISONS, *_LOGIC, "floor_divide"):
    no_gradient(_ufunc(_name))

_isnat = no_gradient(_ufunc("isnat"))
_isnat.register_sample_inputs(
    lambda: [
        (np.array("NaT", "M8[s]"),),
        (np.array(["2001-02-03", "NaT"], "M8[D]"),),
        (np.array([[1, 2, 3], [4, 5, 6]], "m8[h]"),),
    ]
)
