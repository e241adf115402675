"""Elementwise functions beside the table of ufuncs: isclose, sinc, nan_to_num, round, divmod."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from customop import (
    ArgumentError,
    Array,
    DataDependentError,
    FakeArray,
    Operator,
    Tag,
    custom_op,
    fake_like,
    partials,
    register_numpy_function,
    stop_gradient,
)
from customop.numpy.arguments import (
    NUMBERS,
    SINCE_2_5,
    as_array,
    as_scalar,
    broadcast,
    cast,
    dtype_of,
    is_inexact,
    shape_of,
    unless_scalar,
    value_of,
    warn_user,
)
from customop.numpy.create import array_like
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

# ---- rounding to decimals ----


@custom_op("np::round", mutates_args=(), tags=Tag.pointwise)
def _rounded(x: Array, decimals: int = 0) -> Array:
    found = np.round(x, decimals)
    return found if not found.ndim else np.copy(found, order="C")


@_rounded.register_kernel("cpu")
def _(x: Any, decimals: int) -> Any:
    return np.round(x, decimals)


@_rounded.register_fake
def _(x: Any, decimals: int) -> Any:
    with np.errstate(all="ignore"):  # of the power of ten
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


# ---- ufuncs with two results: divmod, modf, frexp ----


@lru_cache(maxsize=1024)
def _dtypes(ufunc: np.ufunc, kinds: tuple[Any, ...]) -> tuple[Any, Any]:
    """Return dtypes of both results for dtypes, and Python classes of numbers."""
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
_divmod_: Operator[..., Any] = _pair(np.divmod, "(Array|Scalar x1, Array|Scalar x2)")


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


_divmod_.register_autograd(_divmod_backward, setup_context=_note_division)


@_divmod_.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    (t1, t2), (quotient, rest) = tangents, _divmod_(*primals)
    moved = -quotient * t2 if t2 is not None else 0
    total = moved if t1 is None else t1 + moved
    wide = np.broadcast_to(total, rest.shape)
    return (quotient, rest), (None, fit(wide, rest))


# ---- comparisons of whole arrays, and questions about their elements and dtypes ----


def _truth(x: Any) -> Any:
    """Return one bool for all elements: Python's where it is known, as NumPy does."""
    found = np.all(x)
    return found if value_of(found) is None else bool(found)


def _operand(x: Any) -> Any:
    return x if isinstance(x, NUMBERS) else stop_gradient(as_array(x))


# ---- equal or close ----


@register_numpy_function(np.isclose)
def _isclose(
    a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False
) -> Any:
    x, y, rtol, atol = (_operand(v) for v in (a, b, rtol, atol))
    if isinstance(y, int):
        y = float(y)
    elif hasattr(y, "dtype"):  # the absolute value of the smallest integer is none
        y = y.astype(np.result_type(dtype_of(y), 1.0))
    with np.errstate(invalid="ignore"):
        # Infinity minus infinity would warn where lazy arrays are computed, later.
        is_finite = np.isfinite(y)
        known = np.where(is_finite, y, 0) if hasattr(y, "dtype") else y
        # The absolute value of a number by NumPy would be a scalar, which casts the others.
        size = np.absolute(known) if hasattr(known, "dtype") else abs(known)
        near = np.less_equal(np.absolute(x - known), atol + rtol * size)
        found = near & is_finite | (x == y)
        return found | (np.isnan(x) & np.isnan(y)) if equal_nan else found


@register_numpy_function(np.allclose)
def _(
    a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False
) -> Any:
    return _truth(_isclose(a, b, rtol, atol, equal_nan))


@register_numpy_function(np.array_equal)
def _(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    x, y = stop_gradient(as_array(a1)), stop_gradient(as_array(a2))
    if shape_of(x) != shape_of(y):
        return False
    same = np.equal(x, y)
    return _truth(same | (np.isnan(x) & np.isnan(y)) if equal_nan else same)


@register_numpy_function(np.array_equiv)
def _(a1: Any, a2: Any) -> Any:
    x, y = stop_gradient(as_array(a1)), stop_gradient(as_array(a2))
    try:
        broadcast(shape_of(x), shape_of(y))
    except ValueError:
        return False
    return _truth(np.equal(x, y))


# ---- elements ----


@register_numpy_function(np.isreal)
def _(x: Any) -> Any:
    return np.equal(np.imag(stop_gradient(x)), 0)


@register_numpy_function(np.iscomplex)
def _(x: Any) -> Any:
    if is_complex(x):
        return np.not_equal(np.imag(stop_gradient(x)), 0)
    return (
        np.zeros(x.shape, np.bool_, like=x)
        if x.ndim > 1
        else np.zeros_like(x, np.bool_)
    )


def _infinite(name: str, *, is_negative: bool) -> None:
    """Make ``np.isposinf`` or ``np.isneginf``."""

    def infinite(x: Any, out: None = None) -> Any:
        if is_complex(x):
            raise ArgumentError(
                f"np.{name} of {dtype_of(x)}: complex numbers have no sign",
                do=f"use np.{name}(x.real), np.{name}(x.imag) or np.isinf(x)",
            )
        plain = stop_gradient(x)
        signs = np.signbit(plain)
        return np.logical_and(
            np.isinf(plain), signs if is_negative else np.logical_not(signs)
        )

    register_numpy_function(getattr(np, name), infinite)


_infinite("isposinf", is_negative=False)
_infinite("isneginf", is_negative=True)


# ---- dtypes ----


@register_numpy_function(np.can_cast)
def _(from_: Any, to: Any, casting: Any = "safe") -> bool:
    return np.can_cast(dtype_of(from_), to, casting)


@register_numpy_function(np.common_type)
def _(*arrays: Any) -> Any:
    return np.common_type(*[np.empty(0, dtype_of(a)) for a in arrays])


@register_numpy_function(np.min_scalar_type)
def _(a: Any, /) -> Any:
    if shape_of(a):
        return dtype_of(a)
    value = value_of(a)
    if value is None:
        raise DataDependentError(
            "np.min_scalar_type of a number that is not known: under vmap, or a fake array",
            do="use x.dtype, or np.result_type(x, y)",
        )
    return np.min_scalar_type(value)


# ---- functions of numbers that are not ufuncs ----


def _of_order(name: str, kernel: Any, function: Any) -> Operator[..., Any]:
    """Make a function of one array with a number: the derivative, or the Bessel order."""
    op = numpy_operator(
        name, "(Array x, int order=0) -> Array", kernel, tags=Tag.pointwise
    )

    @op.register_fake
    def _(x: Any, order: int) -> FakeArray:
        return keep_order([x], function(np.zeros(0, x.dtype)).dtype)

    register_numpy_function(function, lambda x: op(as_array(x)))
    return op


def _register_slope(op: Operator[..., Any], slope: Callable[..., Any]) -> None:
    """Register autograd and jvp by the derivative times a cotangent or tangent."""

    def jvp(primals: Any, tangents: Any) -> Any:
        t = tangents[0]
        return op(*primals), None if t is None else slope(t, *primals)

    op.register_autograd(partials({"x": (slope, ["x", "order"])}))
    op.register_jvp(jvp)


# ---- sinc ----


def _sinc(x: Any, order: int) -> Any:
    """Return a derivative of sin(pi x) / (pi x)."""
    if not order:
        return np.sinc(x)
    z = math.pi * x
    is_near = _is_near(z, order)
    near, far = np.where(is_near, z, 0.0), np.where(is_near, 1.0, z)
    return math.pi**order * np.where(is_near, _series(near, order), _ratio(far, order))


def _is_near(z: Any, order: int) -> Any:
    # The recurrence loses order! / |z| ** order of the precision, the series exp(|z|).
    return np.absolute(z) < max(1.0, order / 2)


def _ratio(z: Any, order: int) -> Any:
    """Return a derivative of sin(z) / z, by the product rule for z times it.

    z h[k] + k h[k - 1] is the derivative of order k of the sine.
    """
    turns = (np.sin(z), np.cos(z))
    found = turns[0] / z
    for k in range(1, order + 1):
        turn = turns[k % 2]
        found = ((turn if k % 4 < 2 else -turn) - k * found) / z
    return found


def _series(z: Any, order: int) -> Any:
    """Sum the series of a derivative of (-1) ** k z ** (2 k) / (2 k + 1)!."""
    square, (total, *factors) = z * z, _factors(order)
    for factor in factors:
        total = total * square + factor
    return total * z if order % 2 else total


@lru_cache(maxsize=64)
def _factors(order: int) -> tuple[float, ...]:
    """Return the factors of the even or odd powers, from the highest one."""
    first = (order + 1) // 2
    power = 2 * first - order
    # Within order / 2 the terms fall below the precision in so many steps; within 1, of
    # the first two derivatives, in 10.
    steps = 10 if order <= 2 else int(0.75 * order) + 20
    factors, scale = [], float((-1) ** first)
    for k in range(first, first + steps):
        at = power + 2 * (k - first)
        factors.append(scale / (2 * k + 1))
        scale /= -(at + 1) * (at + 2)
    return tuple(reversed(factors))


sinc: Operator[..., Any] = _of_order("sinc", _sinc, np.sinc)


def _sinc_slope(g: Any, x: Any, order: int) -> Any:
    return g * sinc(x, order + 1)


_register_slope(sinc, _sinc_slope)


# ---- modified Bessel functions ----


def _bessel_values(x: Any, order: int) -> Any:
    """Return the modified Bessel function I of the first kind of a whole order."""
    if not order:
        return np.i0(x)
    x = x if x.dtype.kind == "f" else x.astype(float)
    size = np.absolute(x)
    # From here on the asymptotic series has the precision of double numbers.
    is_near = size < 20.0 + order * order
    near, far = np.where(is_near, size, 0.0), np.where(is_near, 20.0, size)
    found = np.where(is_near, _bessel_series(near, order), _bessel_tail(far, order))
    return (np.sign(x) * found if order % 2 else found).astype(x.dtype)


def _bessel_series(x: Any, order: int) -> Any:
    """Sum of (x / 2) ** (2 k + order) / (k! (k + order)!).

    Source: NIST Digital Library of Mathematical Functions, 10.25.2.
    """
    quarter = x * x / 4.0
    term = (x / 2.0) ** order / math.factorial(order)
    total, k = term, 0
    while np.any(term > 1e-17 * total):
        k += 1
        term = term * quarter / (k * (k + order))
        total = total + term
    return total


def _bessel_tail(x: Any, order: int) -> Any:
    """Compute exp(x) / sqrt(2 pi x) times a series in 1 / x.

    Source: NIST Digital Library of Mathematical Functions, 10.40.1.
    """
    inverse = 1.0 / (8.0 * x)
    term = total = np.ones_like(x)
    for k in range(1, 30):
        term = term * (((2 * k - 1) ** 2 - 4 * order * order) / k) * inverse
        total = total + term
    return np.exp(x) / np.sqrt(2.0 * math.pi * x) * total


_bessel_i: Operator[..., Any] = _of_order("bessel_i", _bessel_values, np.i0)


def _bessel_slope(g: Any, x: Any, order: int) -> Any:
    """Apply I0' = I1, and In' = (I(n - 1) + I(n + 1)) / 2.

    Source: NIST Digital Library of Mathematical Functions, 10.29.1.
    """
    if not order:
        return g * _bessel_i(x, 1)
    return g * (0.5 * (_bessel_i(x, order - 1) + _bessel_i(x, order + 1)))


_register_slope(_bessel_i, _bessel_slope)


# ---- angles of complex numbers ----


_angle: Operator[..., Any] = numpy_operator(
    "angle",
    "(Array z) -> Array",
    lambda z: np.arctan2(np.imag(z), np.real(z)),
    tags=Tag.pointwise,
)
_angle.register_fake(lambda z: keep_order([z], _dtype_of_angle(z.dtype)))


def _dtype_of_angle(dtype: Any) -> Any:
    part = np.zeros(0, dtype).real
    return np.arctan2(part, part).dtype


# The change of the angle is the imaginary part of t / z.
_angle.register_autograd(partials({"z": lambda g, z: np.multiply(g / z, -1j)}))


@_angle.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    (z,), (t,) = primals, tangents
    return _angle(z), None if t is None else np.imag(t / z)


# ---- made of other operators ----


@register_numpy_function(np.angle)
def _(z: Any, deg: bool = False) -> Any:
    z = as_array(z)
    angle = _angle.run(z) if is_complex(z) else np.arctan2(0, z)
    return angle * (180 / math.pi) if deg else angle


@register_numpy_function(np.nan_to_num)
def _(
    x: Any,
    copy: bool = True,
    nan: Any = 0.0,
    posinf: Any = None,
    neginf: Any = None,
) -> Any:
    x = as_array(x)
    if is_inexact(x):
        parts = (x.real, x.imag) if is_complex(x) else (x,)
        limits = nan, posinf, neginf
        if is_complex(x) or not _PLAIN.issuperset(map(type, limits)):
            found = [_numbers(part, *limits) for part in parts]
        else:
            found = [_replaced.run(x, *_plain_limits(x, *limits))]
        y = found[0] if len(found) == 1 else found[0] + 1j * found[1]
    else:
        y = np.copy(x) if copy else x
    if not copy and y is not x:
        x[...] = y
        y = x
    return as_scalar(y)


_PLAIN = {int, float, type(None)}


def _plain_limits(x: Any, nan: Any, posinf: Any, neginf: Any) -> tuple[float, ...]:
    limits = np.finfo(dtype_of(x))
    above = limits.max if posinf is None else posinf
    below = limits.min if neginf is None else neginf
    return float(nan), float(above), float(below)


def _replaced_kernel(x: Any, nan: float, posinf: float, neginf: float) -> Any:
    y = np.where(np.isnan(x), nan, x)
    y = np.where(np.equal(x, np.inf), posinf, y)
    return np.where(np.equal(x, -np.inf), neginf, y)


_replaced: Operator[..., Any] = numpy_operator(
    "nan_to_num",
    "(Array x, float nan, float posinf, float neginf) -> Array",
    _replaced_kernel,
    tags=Tag.pointwise,
)
_replaced.register_kernel(
    "cpu",
    lambda x, nan, posinf, neginf: np.nan_to_num(
        x, nan=nan, posinf=posinf, neginf=neginf
    ),
)
_replaced.register_fake(lambda x, nan, posinf, neginf: keep_order([x], x.dtype))
# Numbers stay, and the rest is replaced by constants.
register_formulas(_replaced, ("x",), (lambda g, x: np.where(np.isfinite(x), g, 0.0),))


def _numbers(x: Any, nan: Any, posinf: Any, neginf: Any) -> Any:
    """Replace nan and the infinities by numbers."""
    limits = np.finfo(dtype_of(x))
    above = limits.max if posinf is None else posinf
    below = limits.min if neginf is None else neginf
    y = np.where(np.isnan(x), _written("nan", nan, x), x)
    y = np.where(np.equal(x, np.inf), _written("posinf", above, x), y)
    return np.where(np.equal(x, -np.inf), _written("neginf", below, x), y)


def _written(name: str, value: Any, x: Any) -> Any:
    """Return a value as it is when it is written into an array."""
    if isinstance(value, int | float):
        return float(value)
    dtype = dtype_of(x)
    if isinstance(value, np.floating) and dtype.itemsize <= 8:
        return value.item()
    value = as_array(value)
    if not np.can_cast(dtype_of(value), dtype, "same_kind"):
        raise ArgumentError(
            f"np.nan_to_num({name}=...) of dtype {dtype_of(value)} cannot be written into"
            f" an array of {dtype}",
            do="give a real number, or an array of them",
        )
    return cast(value, dtype)


@register_numpy_function(np.real_if_close)
def _(a: Any, tol: float = 100) -> Any:
    a = as_array(a)
    if not is_complex(a):
        return unless_scalar(a)
    limit = np.finfo(dtype_of(a)).eps * tol if tol > 1 else tol
    return unless_scalar(a.real if np.all(np.absolute(a.imag) < limit) else a)


# ---- scimath ----
# The functions of `numpy.emath`, whose results are complex where real ones do not
# exist.
#
# Their dtypes depend on the values, so the values must be known: not under vmap, and
# not for fake arrays, unless the argument is complex.


def _is_any(name: str, x: Any, test: Callable[[Any], Any]) -> bool:
    """Return whether some elements pass a test; raise where they are not known."""
    if is_complex(x):
        return False
    value = value_of(x)
    if value is None:
        raise DataDependentError(
            f"np.emath.{name}: whether the result is complex depends on data, which is not"
            " known under vmap and for fake arrays",
            do=f"cast first: np.{name}(x.astype(complex)); or use np.{name}(x)",
        )
    return bool(np.any(test(value)))


def _as_complex(x: Any) -> Any:
    """Return the array in the complex dtype of its precision."""
    is_short = dtype_of(x).char in "bBhHfF"
    return x.astype(np.complex64 if is_short else np.complex128)


def _wide(name: str, x: Any, test: Callable[[Any], Any]) -> Any:
    x = as_array(x)
    return _as_complex(x) if _is_any(name, x, test) else x


def _is_negative(x: Any) -> Any:
    return x < 0


def _is_beyond_one(x: Any) -> Any:
    return np.absolute(x) > 1


def _serve(name: str, test: Callable[[Any], Any]) -> None:
    ufunc: Any = getattr(np, name)
    register_numpy_function(
        getattr(np.emath, name), lambda x: ufunc(_wide(name, x, test))
    )


for _name in ("sqrt", "log", "log2", "log10"):
    _serve(_name, _is_negative)
for _name in ("arccos", "arcsin", "arctanh"):
    _serve(_name, _is_beyond_one)


@register_numpy_function(np.emath.logn)
def _(n: Any, x: Any) -> Any:
    x, n = _wide("logn", x, _is_negative), _wide("logn", n, _is_negative)
    return np.log(x) / np.log(n)


@register_numpy_function(np.emath.power)
def _(x: Any, p: Any) -> Any:
    like = x if hasattr(x, "dtype") else p
    x, p = _wide("power", array_like(x, like), _is_negative), array_like(p, like)
    is_whole = dtype_of(p).kind in "iu" and not is_complex(x)
    if is_whole and _is_any("power", p, _is_negative):
        p = p * 1.0  # NumPy has no negative powers of integers
    return np.power(x, p)
