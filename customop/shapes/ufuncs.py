"""NumPy's ufuncs of symbolic numbers: ``np.sqrt(n)``, ``np.minimum(n, 3)``."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from customop.errors import ArgumentError, shown
from customop.shapes.conditions import Calculation
from customop.shapes.expressions import Expr
from customop.shapes.symbolic import as_side, context_of, make_float, read_numbers
from customop.shapes.symbols import with_arrays

__all__ = ["apply_ufunc"]

# Ufuncs of integers with integer results.
_INTEGERS: Final[dict[str, Callable[..., Any]]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "divmod": divmod,
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
    assert context is not None
    return context.extreme(sign, a, b)


def apply_ufunc(
    ufunc: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The result of a ufunc of symbolic numbers, and of others beside them."""
    sides = tuple(map(as_side, inputs))
    if None in sides or kwargs or method != "__call__":
        return with_arrays[0](ufunc, method, inputs, kwargs)
    name = ufunc.__name__
    if name in _COMPARISONS:
        return _COMPARISONS[name](*map(_plain, inputs))
    if name in _INTEGERS and all(isinstance(side, int | Expr) for side in sides):
        read_numbers(*inputs)  # as a scalar of NumPy
        return _INTEGERS[name](*map(_plain, inputs))
    if not _gives_float(ufunc):
        raise ArgumentError(
            f"np.{name} of the symbolic {shown(inputs[0])} has no rule",
            do="use arithmetic, or int(n), whose value becomes a guard",
        )
    context = context_of(*inputs)
    assert context is not None
    if name == "divide":
        context.assume_nonzero(inputs[1])
    # A calculation by the ufunc gives a float of NumPy, not one of Python.
    return make_float(context, Calculation(name, sides))


def _plain(value: Any) -> Any:
    """A number whose own operators do not call the ufunc again."""
    return value.item() if isinstance(value, np.generic) else value


def _gives_float(ufunc: Any) -> bool:
    """Whether a ufunc of floats has one result, a float."""
    if ufunc.nout != 1 or ufunc.signature is not None:
        return False
    return f"{'d' * ufunc.nin}->d" in ufunc.types
