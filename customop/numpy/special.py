"""Functions of numbers that are not ufuncs: sinc, i0, angle, nan_to_num, real_if_close."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from customop import (
    ArgumentError,
    FakeArray,
    Operator,
    Tag,
    partials,
    register_numpy_function,
)
from customop.numpy.arguments import (
    as_array,
    as_scalar,
    cast,
    dtype_of,
    is_inexact,
    unless_scalar,
)
from customop.numpy.fakes import keep_order
from customop.numpy.rules import is_complex, numpy_operator, register_formulas

__all__ = ["bessel_i", "sinc"]


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
    """A derivative of sin(pi x) / (pi x)."""
    if not order:
        return np.sinc(x)
    z = np.asanyarray(math.pi * x)
    is_near = _is_near(z, order)
    near, far = np.where(is_near, z, 0.0), np.where(is_near, 1.0, z)
    return math.pi**order * np.where(is_near, _series(near, order), _ratio(far, order))


def _is_near(z: Any, order: int) -> Any:
    # The recurrence loses order! / |z| ** order of the precision, the series exp(|z|).
    return np.absolute(z) < max(1.0, order / 2)


def _quick_sinc(x: Any, order: int) -> Any:
    """As `_sinc`, with the series of those elements alone that need it."""
    if not order:
        return np.sinc(x)
    z = np.asarray(math.pi * x)
    is_near = _is_near(z, order)
    found = np.asarray(_ratio(np.where(is_near, 1.0, z), order))
    if np.count_nonzero(is_near):
        found[is_near] = _series(z[is_near], order)
    return math.pi**order * found


def _ratio(z: Any, order: int) -> Any:
    """A derivative of sin(z) / z, by the product rule for z times it.

    z h[k] + k h[k - 1] is the derivative of order k of the sine.
    """
    turns = (np.sin(z), np.cos(z))
    found = turns[0] / z
    for k in range(1, order + 1):
        turn = turns[k % 2]
        found = ((turn if k % 4 < 2 else -turn) - k * found) / z
    return found


def _series(z: Any, order: int) -> Any:
    """A derivative of the sum of (-1) ** k z ** (2 k) / (2 k + 1)!."""
    square, (total, *factors) = z * z, _factors(order)
    for factor in factors:
        total = total * square + factor
    return total * z if order % 2 else total


@lru_cache(maxsize=64)
def _factors(order: int) -> tuple[float, ...]:
    """The factors of the even or odd powers, from the highest one."""
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
sinc.register_kernel("cpu", _quick_sinc)


def _sinc_slope(g: Any, x: Any, order: int) -> Any:
    return g * sinc(x, order + 1)


_register_slope(sinc, _sinc_slope)


# ---- modified Bessel functions ----


def _bessel_i(x: Any, order: int) -> Any:
    """The modified Bessel function I of the first kind of a whole order."""
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
    """exp(x) / sqrt(2 pi x) times a series in 1 / x.

    Source: NIST Digital Library of Mathematical Functions, 10.40.1.
    """
    inverse = 1.0 / (8.0 * x)
    term = total = np.ones_like(x)
    for k in range(1, 30):
        term = term * (((2 * k - 1) ** 2 - 4 * order * order) / k) * inverse
        total = total + term
    return np.exp(x) / np.sqrt(2.0 * math.pi * x) * total


bessel_i: Operator[..., Any] = _of_order("bessel_i", _bessel_i, np.i0)


def _bessel_slope(g: Any, x: Any, order: int) -> Any:
    """I0' = I1, and In' = (I(n - 1) + I(n + 1)) / 2.

    Source: NIST Digital Library of Mathematical Functions, 10.29.1.
    """
    if not order:
        return g * bessel_i(x, 1)
    return g * (0.5 * (bessel_i(x, order - 1) + bessel_i(x, order + 1)))


_register_slope(bessel_i, _bessel_slope)


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
    """Real numbers in place of nan and the infinities."""
    limits = np.finfo(dtype_of(x))
    above = limits.max if posinf is None else posinf
    below = limits.min if neginf is None else neginf
    y = np.where(np.isnan(x), _written("nan", nan, x), x)
    y = np.where(np.equal(x, np.inf), _written("posinf", above, x), y)
    return np.where(np.equal(x, -np.inf), _written("neginf", below, x), y)


def _written(name: str, value: Any, x: Any) -> Any:
    """A value as it is when it is written into an array."""
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
