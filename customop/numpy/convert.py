"""Arrays from other values, with the argument ``like``: ``np.array([a, b], like=x)``.

NumPy calls an operator for these functions only where `like` is a traced or fake array.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from customop import ArgumentError, ops, register_numpy_function
from customop.numpy.arguments import as_array, as_order, cast, only, unless_scalar
from customop.numpy.layouts import contiguous, packed_like
from customop.numpy.sizes import is_symbolic, wide_to

__all__: list[str] = []


# Names in NumPy's enumeration of ways to copy -> the argument `copy`.
_COPIES = {"ALWAYS": True, "IF_NEEDED": None, "NEVER": False}


def _array_of(value: Any, dtype: Any, *, copy: Any) -> Any:
    """An array that is not a scalar: of a value of another dtype, a copy."""
    copy = _COPIES.get(getattr(copy, "name", ""), copy)
    array = as_array(value)
    found = cast(array, dtype)
    if found is not array:
        if copy is False:
            raise ValueError(
                "Unable to avoid copy while creating an array as requested."
            )
        return found
    return np.copy(array) if copy else unless_scalar(array)


def _in_order(array: Any, order: Any) -> Any:
    """The array, or a copy of it, in the memory order that is asked for."""
    return contiguous(array) if order == "C" else array


@register_numpy_function(np.array)
def _(
    object: Any,  # noqa: A002  # NumPy's name
    dtype: Any = None,
    *,
    copy: Any = True,
    order: Any = "K",
    subok: bool = False,
    ndmin: int = 0,
    ndmax: int = 0,
) -> Any:
    order = as_order("np.array", order, "K", "C", "A", None)
    only("np.array", subok=(subok, False, True), ndmax=(ndmax, 0))
    found = _array_of(object, dtype, copy=copy)
    is_new = copy is True and hasattr(object, "shape") and order == "A"
    found = packed_like(found, object) if is_new else _in_order(found, order)
    missing = ndmin - found.ndim
    return np.expand_dims(found, tuple(range(missing))) if missing > 0 else found


def _as_array(name: str) -> None:
    """Make ``np.asarray`` or ``np.asanyarray``."""

    def convert(
        a: Any,
        dtype: Any = None,
        order: Any = None,
        *,
        device: str | None = None,
        copy: Any = None,
    ) -> Any:
        order = as_order(f"np.{name}", order, None, "K", "C", "A")
        only(f"np.{name}", device=(device, None, "cpu"))
        return _in_order(_array_of(a, dtype, copy=copy), order)

    register_numpy_function(getattr(np, name), convert)


_as_array("asarray")
_as_array("asanyarray")


@register_numpy_function(np.ascontiguousarray)
def _(a: Any, dtype: Any = None) -> Any:
    return np.atleast_1d(contiguous(_array_of(a, dtype, copy=None)))


@register_numpy_function(np.asfortranarray)
def _(a: Any, dtype: Any = None) -> Any:
    return contiguous(_array_of(a, dtype, copy=None), "F")


# What `np.require` may ask for: operators choose how arrays lie in memory.
_FLAGS = "C CONTIGUOUS C_CONTIGUOUS A ALIGNED W WRITEABLE O OWNDATA E ENSUREARRAY"


@register_numpy_function(np.require)
def _(a: Any, dtype: Any = None, requirements: Any = None) -> Any:
    asked = {str(flag).upper() for flag in _listed(requirements)}
    if unknown := asked - set(_FLAGS.split()):
        raise ArgumentError(
            f"np.require: requirements={unknown.pop()!r} is not supported for traced or"
            " fake arrays",
            do="leave it out: operators choose how arrays lie in memory",
        )
    found = _array_of(a, dtype, copy=bool(asked & {"O", "OWNDATA"}) or None)
    is_dense = asked & {"C", "CONTIGUOUS", "C_CONTIGUOUS"}
    return contiguous(found) if is_dense else found


def _listed(requirements: Any) -> Iterable[Any]:
    return requirements or ()


@register_numpy_function(np.fromfunction)
def _(function: Any, shape: Any, *, dtype: Any = float, **kwargs: Any) -> Any:
    if not is_symbolic(shape):
        return np.fromfunction(function, shape, dtype=dtype, **kwargs)
    lines = [ops.np.arange(0, n, 1, np.dtype(dtype)) for n in shape]
    rank = len(lines)
    open_grid = [
        np.reshape(x, (-1, *(1,) * (rank - i))) for i, x in enumerate(lines, 1)
    ]
    return function(*[wide_to(x, tuple(shape)) for x in open_grid], **kwargs)
