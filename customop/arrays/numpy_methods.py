"""Methods of arrays, and operators of Python, made of NumPy's functions."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from customop.arrays.dtypes import dtype_of
from customop.arrays.foreign import (
    UNDECIDED,
    answer,
    at_home,
    joined,
    refuse_own_rules,
)
from customop.arrays.numpy_functions import call_numpy, run
from customop.arrays.on_demand import CALLS

__all__ = ["as_method", "binary", "both", "raising", "reflected_of", "unary"]


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
            other = joined(other, self)
        return CALLS[ufunc](self, other)

    return method


def reflected_of(ufunc: np.ufunc) -> Callable[[Any, Any], Any]:
    """The reflected method of an operator of Python."""

    def method(self: Any, other: Any) -> Any:
        if not at_home[type(other)]:
            found = answer(ufunc, "", other, other, self)
            if found is not UNDECIDED:
                return found
            other = joined(other, self)
        return CALLS[ufunc](other, self)

    return method


def raising(power: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """``x ** y``, which is another ufunc for some numbers, as for arrays of NumPy.

    ``x ** 0.5`` is np.sqrt(x), whose bits differ from those of np.power(x, 0.5).
    """

    def method(self: Any, other: Any) -> Any:
        # NumPy's scalars have code of their own, which rounds as np.power.
        if type(other) not in _PLAIN or other not in _QUICK or self.box_is_scalar:
            return power(self, other)
        ufunc = _ufunc_of_power(dtype_of(self), type(other) is int, other)
        return power(self, other) if ufunc is np.power else call_numpy(ufunc, self)

    return method


_PLAIN = frozenset((int, float))
# Exponents that some version of NumPy has another ufunc for.
_QUICK = frozenset((-1, 0, 0.5, 1, 2))


@cache
def _ufunc_of_power(dtype: np.dtype[Any], is_int: bool, exponent: float) -> np.ufunc:
    """The ufunc that NumPy runs for ``array ** exponent``."""
    asked: list[np.ufunc] = []

    class AskedUfunc(np.ndarray[Any, Any]):
        def __array_ufunc__(self, ufunc: Any, *args: Any, **kwargs: Any) -> Any:
            asked.append(ufunc)
            return 0

    try:
        _ = np.ones(1, dtype).view(AskedUfunc) ** (int if is_int else float)(exponent)
    except ValueError:  # integers have no negative powers
        return np.power
    return asked[0]


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
