"""Comparisons of whole arrays, and questions about their elements and dtypes.

Their results have no derivative, so they are made of values without gradients.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from customop import (
    ArgumentError,
    DataDependentError,
    register_numpy_function,
    stop_gradient,
)
from customop.numpy.arguments import as_array, below_of, dtype_of, shape_of, value_of
from customop.numpy.rules import is_complex
from customop.numpy.sizes import NUMBERS, broadcast

__all__ = ["is_plain"]


def is_plain(x: Any) -> bool:
    """Whether NumPy can read a value: it is known, and not an array of another kind."""
    value = below_of(x)
    return value is not None and (
        isinstance(value, np.ndarray | np.generic) or not hasattr(value, "dtype")
    )


def _truth(x: Any) -> Any:
    """One bool for all elements: Python's where it is known, as NumPy returns it."""
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
        near = np.less_equal(np.absolute(x - known), atol + rtol * np.absolute(known))
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
