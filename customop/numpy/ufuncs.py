"""NumPy's ufuncs with one result: a table of their derivatives."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from customop import Operator, SymInt, Tag, custom_op, register_numpy_function
from customop.numpy.arguments import larger
from customop.numpy.rules import (
    ONE,
    fake_of_ufunc,
    is_complex,
    no_gradient,
    numpy_operator,
    of_winner,
    register_formulas,
)

# ---- rows of the table ----
# A row makes an operator when a program first needs it: a program calls few of them, and
# to make all of them takes 15 ms.

# Name of a function -> what makes its operator. What has been made is no longer here.
ON_DEMAND: dict[str, Callable[[], object]] = {}

_UNARY = "(Array x) -> Array"
_BINARY = "(Array|Scalar x1, Array|Scalar x2) -> Array"


def _unary(name: str, formula: Any) -> None:
    """Enter a ufunc of one array, with its derivative."""
    ON_DEMAND[name] = lambda: _differentiable(name, ("x",), (formula,))


def _binary(name: str, first: Any, second: Any) -> None:
    """Enter a ufunc of two arrays, with its two derivatives."""
    ON_DEMAND[name] = lambda: _differentiable(name, ("x1", "x2"), (first, second))


def _step(name: str) -> None:
    """Enter a ufunc without a derivative."""
    ON_DEMAND[name] = lambda: no_gradient(_operator(name))


def _special(name: str) -> Callable[[Callable[[], None]], None]:
    """Enter a ufunc whose operator is made by the decorated function."""
    return lambda make: ON_DEMAND.update({name: make})


def _differentiable(name: str, names: Any, formulas: Any) -> Operator[..., Any]:
    op = _operator(name)
    register_formulas(op, names, formulas)
    return op


def _operator(name: str) -> Operator[..., Any]:
    """Make the operator of a ufunc, with its fake kernel."""
    ufunc: Any = getattr(np, name)
    schema = _UNARY if ufunc.nin == 1 else _BINARY
    op: Operator[..., Any] = custom_op(
        f"np::{name}", mutates_args=(), schema=schema, tags=Tag.pointwise
    )(ufunc)
    op.register_fake(fake_of_ufunc(ufunc))
    register_numpy_function(ufunc, op)
    return op


# Derivatives of complex values are complex-linear, as in JAX. Source: NIST Digital
# Library of Mathematical Functions, chapter 4.


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
_binary("ldexp", lambda g, x2: np.ldexp(g, x2), None)
# The next number is x1 and a step, which changes at powers of two only.
_binary("nextafter", lambda g: g, None)
_binary("heaviside", None, lambda g, x1: g * np.equal(x1, 0))


@_special("copysign")
def _() -> None:
    formulas = (lambda g, x1, x2: g * _same_sign(x1, x2), None)
    # At 0 the derivative is that of the side of its sign bit.
    _differentiable("copysign", ("x1", "x2"), formulas)


def _same_sign(x1: Any, x2: Any) -> Any:
    """Return 1 where two numbers have the same sign bit, and -1 elsewhere."""
    return 1 - 2 * np.not_equal(np.signbit(x1), np.signbit(x2))


def _power_base(g: Any, x1: Any, x2: Any) -> Any:
    """Apply d(x1 ** x2) = x2 x1 ** (x2 - 1) dx1; 0 for exponent 0, also at 0 and nan.

    0 for exponent 0, also at 0 and nan.
    """
    if isinstance(x2, int | float | complex):
        return g * (x2 * _lower_power(x1, x2)) if x2 else g * 0.0
    if isinstance(x2, SymInt):  # a size, which may be 0
        return g * (x2 * np.power(x1, larger(x2 - 1, 0)))
    # For the exponent 0 another base is taken only for 0 and nan: the derivative by the
    # exponent is x1 ** -1 there.
    has_inverse = np.greater(np.abs(x1), 0)
    is_zero = np.logical_and(np.equal(x2, 0), np.logical_not(has_inverse))
    # 1.0, since small integers minus 1 may overflow.
    return g * (x2 * np.power(np.where(is_zero, 1.0, x1), x2 - 1.0))


def _lower_power(x: Any, exponent: complex) -> Any:
    """Return the power by an exponent less 1; products are faster for 4 and 5."""
    if exponent == 4:
        return x * x * x
    if exponent == 5:
        square = x * x
        return square * square
    return x ** (exponent - 1)


def _power_exponent(g: Any, x1: Any, y: Any) -> Any:
    """Apply d(x1 ** x2) = log(x1) x1 ** x2 dx2, and 0 for the base 0.

    A negative real base has a logarithm if the power is complex.
    """
    if isinstance(x1, int | float | complex):
        return g * (y * (_log_of(x1, is_complex(y)) if x1 else 0.0))
    if isinstance(x1, SymInt):  # of which the power is 0 where it is 0
        return g * (y * np.log(larger(x1, 1)))
    base = np.where(np.equal(x1, 0), 1.0, x1)
    if is_complex(y) and not is_complex(base):
        base = base.astype(y.dtype)
    return g * (y * np.log(base))


def _log_of(x: complex, in_complex: bool) -> Any:
    """Return the logarithm of a number; nan for a negative one among real numbers."""
    if isinstance(x, int | float) and not in_complex:
        return math.log(x) if x > 0 else math.nan
    return complex(np.log(complex(x)))


_binary("power", _power_base, _power_exponent)
_binary("float_power", _power_base, _power_exponent)
_binary("remainder", lambda g: g, lambda g, x1, x2: -g * np.floor(x1 / x2))
_binary("fmod", lambda g: g, lambda g, x1, x2: -g * np.trunc(x1 / x2))
_binary("hypot", lambda g, x1, y: g * x1 / y, lambda g, x2, y: g * x2 / y)


def _turn(x1: Any, x2: Any) -> Any:
    """Return x1 / (x1 x1 + x2 x2) without squares, which may overflow."""
    length = np.hypot(x1, x2)
    return x1 / length / length


def _quick_turn(x1: Any, x2: Any) -> Any:
    """Compute `_turn` of many numbers by squares where they are precise.

    5 times faster.

    5 times faster.
    """
    if max(getattr(x1, "size", 1), getattr(x2, "size", 1)) < _MANY:
        return _turn(x1, x2)
    with np.errstate(over="ignore", under="ignore"):
        squares = np.asarray(x1 * x1 + x2 * x2)
    limits = _SQUARES.get(squares.dtype.char)
    kinds = {getattr(x, "dtype", squares.dtype) for x in (x1, x2)}
    if limits is None or kinds != {squares.dtype} or not squares.size:
        return _turn(x1, x2)
    least, most = limits
    if least < squares.min() and squares.max() < most:
        return np.asarray(x1 / squares)
    is_precise = np.less(least, squares) & np.less(squares, most)
    return np.where(is_precise, x1 / np.where(is_precise, squares, 1), _turn(x1, x2))


_MANY = 512
# Beyond them squares lose precision: the smaller one may underflow, where it still counts.
_SQUARES = {
    char: (limits.tiny / limits.eps, limits.max)
    for char, limits in {c: np.finfo(c) for c in "fd"}.items()
}


@_special("arctan2")
def _() -> None:
    # The derivative of arctan2 by x1 is turn(x2, x1), that by x2 is -turn(x1, x2).
    turn: Operator[..., Any] = numpy_operator(
        "turn", _BINARY, _turn, tags=Tag.pointwise
    )
    turn.register_kernel("cpu", _quick_turn)
    turn.register_fake(fake_of_ufunc(np.arctan2))

    def by_first(g: Any, x1: Any, x2: Any, y: Any) -> Any:
        other = turn.run(x2, x1)
        return g * ((other - y) * (other + y))

    def by_second(g: Any, x1: Any, x2: Any, y: Any) -> Any:
        return g * (-2.0 * y * turn.run(x2, x1))

    register_formulas(turn, ("x1", "x2"), (by_first, by_second))
    formulas = (
        lambda g, x1, x2: g * turn.run(x2, x1),
        lambda g, x1, x2: -g * turn.run(x1, x2),
    )
    _differentiable("arctan2", ("x1", "x2"), formulas)


def _log_of_sum(name: str, exp: Any) -> None:
    """Enter the logarithm of a sum of exponentials."""

    def share(x: Any, other: Any, y: Any) -> Any:
        # Where both terms are infinite each has half of it; a difference would be nan.
        same = np.equal(x, y)
        found = exp(np.where(same, 0, x) - np.where(same, 0, y))
        return found / (np.logical_and(same, np.equal(x, other)) + ONE)

    _binary(
        name,
        lambda g, x1, x2, y: g * share(x1, x2, y),
        lambda g, x1, x2, y: g * share(x2, x1, y),
    )


_log_of_sum("logaddexp", np.exp)
_log_of_sum("logaddexp2", np.exp2)


for _name in ("maximum", "minimum", "fmax", "fmin"):
    _binary(
        _name,
        lambda g, x1, x2, y: of_winner(g, x1, x2, y),
        lambda g, x1, x2, y: of_winner(g, x2, x1, y),
    )


# ---- sizes and signs ----


def _absolute(g: Any, x: Any, y: Any) -> Any:
    """Apply the sign of a real x; conj(x) / |x| of a complex one, 0 at 0 (JAX 0.10)."""
    if not is_complex(x):
        return g * np.sign(x)
    safe = np.where(np.equal(y, 0), 1.0, y)
    return g * np.conjugate(x) / safe


_unary("absolute", _absolute)
_unary("fabs", lambda g, x: g * np.sign(x))


@_special("sign")
def _() -> None:
    # x / abs(x) of a complex x has a derivative, which is linear over the reals only.
    sign = _operator("sign")

    def keep(ctx: Any, inputs: Any, output: Any) -> None:
        if is_complex(output):
            ctx.save_for_backward(np.absolute(inputs[0]), output)
        else:
            ctx.mark_non_differentiable(output)

    def backward(ctx: Any, g: Any) -> Any:
        size, y = ctx.saved_arrays
        return _turned(g, size, np.conjugate(y * y))

    def jvp(primals: Any, tangents: Any) -> Any:
        (x,), (t,) = primals, tangents
        y = sign(x)
        return y, _turned(t, np.absolute(x), y * y) if is_complex(y) else None

    sign.register_autograd(backward, setup_context=keep).register_jvp(jvp)


def _turned(t: Any, size: Any, turn: Any) -> Any:
    """Return the part of a tangent that turns a complex number, over its size; 0 at 0."""
    safe = np.where(np.equal(size, 0), 1.0, size)
    moved = (t - turn * np.conjugate(t)) / (2.0 * safe)
    return np.where(np.equal(size, 0), 0.0, moved)


# ---- exponentials and logarithms ----

_LN2, _LN10 = math.log(2.0), math.log(10.0)
_unary("exp", lambda g, y: g * y)
_unary("exp2", lambda g, y: g * (y * _LN2))
_unary("expm1", lambda g, y: g * (y + 1.0))
_unary("log", lambda g, x: g / x)
_unary("log2", lambda g, x: g / (x * _LN2))
_unary("log10", lambda g, x: g / (x * _LN10))
_unary("log1p", lambda g, x: g / (x + 1.0))

# ---- trigonometric and hyperbolic ----


def _root(x: Any) -> Any:
    """Return the root of 1 - x * x.

    For complex numbers on the branch of NumPy's arcsin.
    """
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


# ---- ufuncs without a derivative: rounding, comparisons, logic, bits ----

_STEPS = (
    "floor ceil trunc rint signbit isnan isinf isfinite spacing bitwise_count"
    " equal not_equal less less_equal greater greater_equal logical_and logical_or"
    " logical_xor logical_not bitwise_and bitwise_or bitwise_xor invert left_shift"
    " right_shift gcd lcm floor_divide"
)
for _name in _STEPS.split():
    _step(_name)


@_special("isnat")
def _() -> None:
    no_gradient(_operator("isnat")).register_sample_inputs(
        lambda: [
            (np.array("NaT", "M8[s]"),),
            (np.array(["2001-02-03", "NaT"], "M8[D]"),),
            (np.array([[1, 2, 3], [4, 5, 6]], "m8[h]"),),
        ]
    )
