"""Methods of arrays, and operators of Python, made of NumPy's functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from customop.arrays.foreign import (
    UNDECIDED,
    answer,
    at_home,
    refuse_own_rules,
)
from customop.arrays.numpy_functions import call_numpy, run
from customop.arrays.on_demand import CALLS

__all__ = ["as_method", "binary", "both", "reflected_of", "squaring", "unary"]


def unary(function: Any) -> Callable[[Any], Any]:
    """The method that calls a function of one array."""

    def method(self: Any) -> Any:
        return CALLS[function](self)

    return method


def binary(ufunc: np.ufunc, reflected: str = "") -> Callable[[Any, Any], Any]:
    """The method of an operator of Python, whose reflected one has this name."""

    def method(self: Any, other: Any) -> Any:
        if not at_home[type(other)]:
            found = answer(ufunc, reflected, other, self, other)
            if found is not UNDECIDED:
                return found
        return CALLS[ufunc](self, other)

    return method


def reflected_of(ufunc: np.ufunc) -> Callable[[Any, Any], Any]:
    """The reflected method of an operator of Python."""

    def method(self: Any, other: Any) -> Any:
        if not at_home[type(other)]:
            found = answer(ufunc, "", other, other, self)
            if found is not UNDECIDED:
                return found
        return CALLS[ufunc](other, self)

    return method


def squaring(power: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """``x ** y`` that squares for 2, as arrays of NumPy do: flags become int8."""

    def method(self: Any, other: Any) -> Any:
        if type(other) is not int or other != 2:
            return power(self, other)
        if self.dtype == np.bool_ and self.box_is_scalar:
            return power(self, other)  # NumPy's scalars of bool become int64
        return call_numpy(np.square, self)

    return method


def both(ufunc: np.ufunc, reflected: str) -> tuple[Any, Any]:
    """The method of an operator of Python and its reflected one, of this name."""
    return binary(ufunc, reflected), reflected_of(ufunc)


def as_method(function: Any) -> Callable[..., Any]:
    """The method of arrays that does what a function of NumPy does."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not args and not kwargs:
            return call_numpy(function, self)
        refuse_own_rules((*args, *kwargs.values()))
        return run(function, (self, *args), kwargs, self)

    method.__name__ = function.__name__
    method.__doc__ = f"As `numpy.{function.__name__}`."
    return method
