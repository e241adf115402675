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
from customop.arrays.numpy_functions import place_of_out, run
from customop.arrays.on_demand import ALONE, CALLS

__all__ = [
    "ARITHMETIC",
    "COMPARISONS",
    "SIGNS",
    "as_method",
    "binary",
    "raising",
    "reflected_of",
    "unary",
]

# Python's operators by the names of their methods: those that have a reflected method of
# the name with r before it, comparisons with the name of the reflected one, and those of
# one array. Powers are apart, since they are several ufuncs.
ARITHMETIC: dict[str, np.ufunc] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "truediv": np.true_divide,
    "floordiv": np.floor_divide,
    "mod": np.remainder,
    "matmul": np.matmul,
    "divmod": np.divmod,
    "lshift": np.left_shift,
    "rshift": np.right_shift,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
}
COMPARISONS: dict[str, tuple[np.ufunc, str]] = {
    "lt": (np.less, "__gt__"),
    "le": (np.less_equal, "__ge__"),
    "gt": (np.greater, "__lt__"),
    "ge": (np.greater_equal, "__le__"),
    "eq": (np.equal, ""),
    "ne": (np.not_equal, ""),
}
SIGNS: dict[str, np.ufunc] = {
    "neg": np.negative,
    "pos": np.positive,
    "abs": np.absolute,
    "invert": np.invert,
}


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
        return power(self, other) if ufunc is np.power else CALLS[ufunc](self)

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


def as_method(function: Any) -> Callable[..., Any]:
    """The method of arrays that does what a function of NumPy does."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not args and not kwargs:
            return ALONE[function](self)
        refuse_own_rules((*args, *kwargs.values()))
        if "out" in kwargs or len(args) >= place_of_out[function] >= 0:
            return run(function, (self, *args), kwargs, self)
        return CALLS[function](self, *args, **kwargs)

    method.__name__ = function.__name__
    method.__doc__ = f"As `numpy.{function.__name__}`."
    return method
