"""Elementwise operators: arithmetic, exponentials, rounding, logic, ufuncs with two results."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
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
from customop.numpy.arguments import SINCE_2_5, cast, larger, warn_user
from customop.numpy.rules import (
    check_range,
    fake_of_ufunc,
    fit,
    is_complex,
    keep_order,
    kind_of,
    no_gradient,
    numpy_operator,
    packed_as,
    register_formulas,
)

# ---- operators of NumPy's ufuncs, with their fake kernels ----


_UNARY = "(Array x) -> Array"
_BINARY = "(Array|Scalar x1, Array|Scalar x2) -> Array"


def ufunc_operator(name: str) -> Operator[..., Any]:
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


def unary(name: str, formula: Any) -> Operator[..., Any]:
    """Make the operator of a ufunc of one array, with its derivative."""
    op = ufunc_operator(name)
    register_formulas(op, ("x",), (formula,))
    return op


def binary(name: str, first: Any, second: Any) -> Operator[..., Any]:
    """Make the operator of a ufunc of two arrays, with its two derivatives."""
    op = ufunc_operator(name)
    register_formulas(op, ("x1", "x2"), (first, second))
    return op


# Derivatives of complex values are complex-linear, as in JAX. Source: NIST Digital
# Library of Mathematical Functions, chapter 4.


# ---- arithmetic ----

binary("add", lambda g: g, lambda g: g)
binary("subtract", lambda g: g, lambda g: -g)
binary("multiply", lambda g, x2: g * x2, lambda g, x1: x1 * g)
binary("divide", lambda g, x2: g / x2, lambda g, x2, y: -g * y / x2)
unary("negative", lambda g: -g)
unary("positive", lambda g: g)
unary("square", lambda g, x: g * (2.0 * x))
unary("reciprocal", lambda g, y: -g * y * y)
unary("sqrt", lambda g, y: g * 0.5 / y)
unary("cbrt", lambda g, y: g / (3.0 * y * y))
unary("conjugate", lambda g: np.conjugate(g))
_copysign = binary("copysign", lambda g, x1, x2: g * _same_sign(x1, x2), None)
for _check in ("test_jvp", "test_gradients"):
    _copysign.waive(
        _check, reason="at 0 the derivative is that of the side of its sign bit"
    )
binary("ldexp", lambda g, x2: np.ldexp(g, x2), None)
# The next number is x1 and a step, which changes at powers of two only.
binary("nextafter", lambda g: g, None)
binary("heaviside", None, lambda g, x1: g * np.equal(x1, 0))


def _same_sign(x1: Any, x2: Any) -> Any:
    """1 where two numbers have the same sign bit, -1 elsewhere."""
    return 1 - 2 * np.not_equal(np.signbit(x1), np.signbit(x2))


def _power_base(g: Any, x1: Any, x2: Any) -> Any:
    """d(x1 ** x2) = x2 x1 ** (x2 - 1) dx1, and 0 for the exponent 0, also at 0 and nan."""
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
    """The power by an exponent less 1; of 4 and 5 by products: a tenth of the time."""
    if exponent == 4:
        return x * x * x
    if exponent == 5:
        square = x * x
        return square * square
    return x ** (exponent - 1)


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


binary("power", _power_base, _power_exponent)
binary("float_power", _power_base, _power_exponent)
binary("remainder", lambda g: g, lambda g, x1, x2: -g * np.floor(x1 / x2))
binary("fmod", lambda g: g, lambda g, x1, x2: -g * np.trunc(x1 / x2))
binary("hypot", lambda g, x1, y: g * x1 / y, lambda g, x2, y: g * x2 / y)


def _turn(x1: Any, x2: Any) -> Any:
    """X1 / (x1 x1 + x2 x2), without squares, which integers and large numbers overflow."""
    length = np.hypot(x1, x2)
    return x1 / length / length


def _quick_turn(x1: Any, x2: Any) -> Any:
    """As `_turn`, of many numbers by squares where they are precise: a third of the time."""
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
# The derivative of arctan2 by x1 is turn(x2, x1), that by x2 is -turn(x1, x2).
turn: Operator[..., Any] = numpy_operator(
    "turn",
    "(Array|Scalar x1, Array|Scalar x2) -> Array",
    _turn,
    tags=Tag.pointwise,
)
turn.register_kernel("cpu", _quick_turn).register_fake(fake_of_ufunc(np.arctan2))


def _turn_by_first(g: Any, x1: Any, x2: Any, y: Any) -> Any:
    other = turn.run(x2, x1)
    return g * ((other - y) * (other + y))


register_formulas(
    turn,
    ("x1", "x2"),
    (_turn_by_first, lambda g, x1, x2, y: g * (-2.0 * y * turn.run(x2, x1))),
)
binary(
    "arctan2",
    lambda g, x1, x2: g * turn.run(x2, x1),
    lambda g, x1, x2: -g * turn.run(x1, x2),
)
binary(
    "logaddexp",
    lambda g, x1, y: g * np.exp(x1 - y),
    lambda g, x2, y: g * np.exp(x2 - y),
)
binary(
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
    if is_complex(mine) and mine.shape:  # division by 1 changes signs of zeros
        return np.where(ties, mine / 2, mine)
    # One is of the smallest type, so that the result has the dtype of `g`.
    return mine / (ties + _ONE)


for _name in ("maximum", "minimum", "fmax", "fmin"):
    binary(
        _name,
        lambda g, x1, x2, y: _is_winner(g, x1, x2, y),
        lambda g, x1, x2, y: _is_winner(g, x2, x1, y),
    )


# ---- sizes and signs ----


def _absolute(g: Any, x: Any, y: Any) -> Any:
    """Sign of a real x; conj(x) / |x| of a complex one, 0 at 0. Source: JAX 0.10."""
    if not is_complex(x):
        return g * np.sign(x)
    safe = np.where(np.equal(y, 0), 1.0, y)
    return g * np.conjugate(x) / safe


unary("absolute", _absolute)
unary("fabs", lambda g, x: g * np.sign(x))


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
sign: Operator[..., Any] = ufunc_operator("sign")
sign.register_autograd(_sign_backward, setup_context=_note_sign)
sign.register_jvp(_sign_jvp)


# ---- elementwise operators ----
# Exponentials, logarithms, trigonometry, hyperbolic functions.
#
# Source: NIST Digital Library of Mathematical Functions, chapter 4.


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


# ---- elementwise operators without a derivative ----
# Rounding, comparison, logic, bits.


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
for _name_steps in (*_STEPS, *_COMPARISONS, *_LOGIC, "floor_divide"):
    no_gradient(ufunc_operator(_name_steps))

_isnat = no_gradient(ufunc_operator("isnat"))
_isnat.register_sample_inputs(
    lambda: [
        (np.array("NaT", "M8[s]"),),
        (np.array(["2001-02-03", "NaT"], "M8[D]"),),
        (np.array([[1, 2, 3], [4, 5, 6]], "m8[h]"),),
    ]
)


# ---- ufuncs with two results: divmod, modf, frexp ----


@lru_cache(maxsize=1024)
def _dtypes(ufunc: np.ufunc, kinds: tuple[Any, ...]) -> tuple[Any, Any]:
    """Dtypes of the results for dtypes, and Python classes of numbers."""
    samples = [np.empty(0, k) if isinstance(k, np.dtype) else k(1) for k in kinds]
    first, second = ufunc(*samples)
    return first.dtype, second.dtype


def _pair(ufunc: np.ufunc, schema: str) -> Operator[..., Any]:
    """Make the operator of a ufunc with two results."""
    kernel: Callable[..., Any] = ufunc
    op = numpy_operator(
        ufunc.__name__, f"{schema} -> (Array, Array)", kernel, tags=Tag.pointwise
    )

    def fake(*inputs: Any) -> tuple[FakeArray, ...]:
        kinds = tuple([kind_of(x) for x in inputs])
        if int in kinds:
            check_range(ufunc, *inputs)
        dtypes = _dtypes(ufunc, kinds)
        return tuple([keep_order(inputs, dtype) for dtype in dtypes])

    op.register_fake(fake)
    register_numpy_function(ufunc, op)
    return op


modf: Operator[..., Any] = _pair(np.modf, "(Array x)")
frexp: Operator[..., Any] = _pair(np.frexp, "(Array x)")
divmod_: Operator[..., Any] = _pair(np.divmod, "(Array|Scalar x1, Array|Scalar x2)")

# ---- parts of one number ----


def _note_whole(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.mark_non_differentiable(output[1])


# The fractional part moves as x does; the whole one is a step.
modf.register_autograd(lambda ctx, g, _: g, setup_context=_note_whole)
modf.register_jvp(lambda primals, tangents: (modf(*primals), (tangents[0], None)))


def _note_exponent(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(output[1])
    ctx.mark_non_differentiable(output[1])


def _frexp_backward(ctx: Any, g: Any, _: Any) -> Any:
    (exponent,) = ctx.saved_arrays
    return np.ldexp(g, -exponent)


frexp.register_autograd(_frexp_backward, setup_context=_note_exponent)


@frexp.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    mantissa, exponent = frexp(*primals)
    return (mantissa, exponent), (np.ldexp(tangents[0], -exponent), None)


# ---- quotient and remainder ----


def _note_division(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(output[0])
    ctx.mark_non_differentiable(output[0])
    ctx.dtypes = [getattr(x, "dtype", None) for x in inputs]


def _divmod_backward(ctx: Any, _: Any, g: Any) -> Any:
    (quotient,) = ctx.saved_arrays
    first, second = ctx.dtypes
    return cast(g, first), cast(-g * quotient, second)


divmod_.register_autograd(_divmod_backward, setup_context=_note_division)


@divmod_.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    (t1, t2), (quotient, rest) = tangents, divmod_(*primals)
    moved = -quotient * t2 if t2 is not None else 0
    total = moved if t1 is None else t1 + moved
    wide = np.broadcast_to(total, rest.shape)
    return (quotient, rest), (None, fit(wide, rest))
