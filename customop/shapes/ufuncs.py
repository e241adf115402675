"""NumPy's ufuncs of symbolic numbers: ``np.sqrt(n)``, ``np.minimum(n, 3)``.

The results have the classes that NumPy gives: ``np.minimum(5, 3)`` is an np.int64.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from customop.shapes.conditions import Calculation, Compared, result_class
from customop.shapes.operations import with_class
from customop.shapes.real_number import InContext
from customop.shapes.sym_bool import SymBool
from customop.shapes.symbolic import (
    WHOLE,
    SymInt,
    as_side,
    class_of,
    context_of,
    make_float,
    whole_of,
)
from customop.shapes.symbols import with_arrays

__all__ = ["apply_ufunc"]

# Ufuncs of integers with integer results.
_INTEGERS: Final[dict[str, Callable[..., Any]]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "power": operator.pow,
    "negative": operator.neg,
    "positive": operator.pos,
    "conjugate": operator.pos,
    "absolute": abs,
    "square": lambda n: n * n,
    "minimum": lambda a, b: _extreme("min", a, b),
    "maximum": lambda a, b: _extreme("max", a, b),
    "fmin": lambda a, b: _extreme("min", a, b),
    "fmax": lambda a, b: _extreme("max", a, b),
    "clip": lambda n, low, high: _extreme("min", _extreme("max", n, low), high),
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
}
_COMPARISONS: Final[dict[str, Callable[..., Any]]] = {
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}


def _extreme(sign: str, a: Any, b: Any) -> Any:
    context = context_of(a, b)
    if context is None:
        return min(a, b) if sign == "min" else max(a, b)
    return context.extreme(sign, a, b)


def apply_ufunc(
    ufunc: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The result of a ufunc of symbolic numbers, and of others beside them."""
    inputs = tuple([_scalar(value) for value in inputs])
    sides = tuple(map(as_side, inputs))
    if any(side is None for side in sides):
        return with_arrays[0](ufunc, method, inputs, kwargs)
    if kwargs or method != "__call__" or not _has_text(ufunc):
        return _of_values(ufunc, method, inputs, kwargs)
    name = ufunc.__name__
    if name in _COMPARISONS:
        return _compared(name, inputs)
    if name == "divmod":
        parts = (np.floor_divide, np.remainder)
        return tuple([apply_ufunc(part, method, inputs, {}) for part in parts])
    cls = result_class(name, tuple(map(class_of, inputs)))
    if type(cls) is tuple:
        return _of_values(ufunc, method, inputs, kwargs)
    return _calculated(name, inputs, sides, cls)


def _has_text(ufunc: Any) -> bool:
    """Whether it is found by its name, so that a graph can have a call of it."""
    name = ufunc.__name__
    return name == "clip" or getattr(np, name, None) is ufunc


def _compared(name: str, inputs: Sequence[Any]) -> Any:
    found = _COMPARISONS[name](*map(_plain, inputs))
    if type(found) is not SymBool:
        return np.bool_(found)
    return SymBool(found.context, found.condition, np.bool_)


def _scalar(value: Any) -> Any:
    """An array without axes as the number in it."""
    is_number = type(value) is np.ndarray and not value.ndim
    return value[()] if is_number else value


def _calculated(
    name: str, inputs: Sequence[Any], sides: tuple[Any, ...], cls: type
) -> Any:
    """The result of a ufunc of numbers, of the class that NumPy gives."""
    context = context_of(*inputs)
    assert context is not None
    wholes = [*map(whole_of, inputs)]
    is_exact = None not in wholes and cls in WHOLE
    if name in _INTEGERS and is_exact and not _is_open_power(name, wholes):
        return with_class(context, _INTEGERS[name](*map(_weak, inputs)), cls)
    # A calculation by the ufunc gives a number of NumPy, not one of Python.
    found = Calculation(name, sides)
    if cls is np.bool_:
        return SymBool(context, Compared(found, "!=", 0), cls)
    return make_float(context, found)


def _is_open_power(name: str, wholes: Sequence[Any]) -> bool:
    """Whether the exponent may be negative, which is an error of NumPy for integers."""
    return name == "power" and (type(wholes[1]) is not int or wholes[1] < 0)


def _of_values(
    ufunc: Any, method: str, inputs: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """The result for the numbers of this call, which become guards."""
    values = [v.value if isinstance(v, InContext) else v for v in inputs]
    return getattr(ufunc, method)(*values, **kwargs)


def _weak(value: Any) -> Any:
    """An integer, which may be symbolic, as one of Python."""
    return value.weak if isinstance(value, SymInt) else int(value)


def _plain(value: Any) -> Any:
    """A number whose own operators do not call the ufunc again."""
    return value.item() if isinstance(value, np.generic) else value
