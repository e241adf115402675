"""Operations, NumPy's ufuncs and calls with ``like=`` on symbolic numbers.

The class of a result is that of the same operation on numbers: an operation of an int of
Python and a number of NumPy gives one of NumPy.
"""

from __future__ import annotations

import dis
import math
import operator
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from customop.shapes.conditions import Calculation, Compared, calculate, result_class
from customop.shapes.expressions import Expr, Number, add, modulo, multiply, subtract
from customop.shapes.sizes import with_arrays
from customop.shapes.symbolic import (
    WHOLE,
    InContext,
    SymBool,
    SymFloat,
    SymInt,
    as_side,
    class_of,
    context_of,
    has_numbers,
    make_float,
    make_int,
    mixed,
    read_numbers,
    whole_of,
)

if TYPE_CHECKING:
    from customop.shapes.size_context import SizeContext


# ---- operations on symbolic numbers: arithmetic and comparisons ----


def operated(context: SizeContext, sign: str, left: Any, right: Any) -> Any:
    """Compute an operation of Python, of which one side is symbolic."""
    a, b = as_side(left), as_side(right)
    if a is None or b is None:
        return NotImplemented
    if isinstance(a, _NUMBERS) and isinstance(b, _NUMBERS) and sign in _INTEGER:
        return _whole(context, sign, left, right, int)
    cls = result_class(sign, (class_of(left), class_of(right)))
    is_whole = None not in (whole_of(left), whole_of(right)) and cls in WHOLE
    if sign in _INTEGER and is_whole:
        return _whole(context, sign, left, right, cls)
    if sign == "**" and type(left) is SymInt and is_whole:
        return _power(left, right, cls)
    if sign == "**" and context.numbers and not _is_certain_power(left, right):
        read_numbers(left, right)
    context_of(left, right)
    if sign == "/" and not issubclass(cls, np.generic):
        context.assume_nonzero(right)  # NumPy's numbers may be divided by 0
    return make_float(context, Calculation(sign, (a, b)))


def _whole(context: SizeContext, sign: str, left: Any, right: Any, cls: type) -> Any:
    """Compute integer arithmetic in a class of integers."""
    if type(left) is type(right) and left.context is not right.context:
        raise mixed((left, right))
    a, b = whole_of(left), whole_of(right)
    assert a is not None
    assert b is not None
    if sign in _DIVISIONS:
        if context.numbers:
            read_numbers(right)
        context.assume_nonzero(right)
    found = context.results.get((sign, a, b))
    if found is None:
        found = context.results[(sign, a, b)] = _INTEGER[sign](context, a, b)
    hints = [_hint(left), _hint(right)]
    hint = None if None in hints else calculate(sign, hints)
    return make_int(context, found, hint, cls)


def _hint(value: Any) -> Any:
    return value.hint if type(value) is SymInt else int(value)


def _is_certain_power(base: Any, exponent: Any) -> bool:
    """Return whether a power of numbers that are inputs always has one class."""
    is_positive = isinstance(base, float) and base > 0
    is_whole = type(exponent) is int and type(base) is not SymInt
    is_integer = type(base) is SymInt and type(exponent) is SymInt
    is_base = type(base) is int and base > 0 and type(exponent) is SymFloat
    return (is_positive or is_whole or is_base) and not is_integer


def _power(left: SymInt, right: Any, cls: type) -> Any:
    """Return a power in a class of NumPy, where negative integer ones are errors."""
    whole = whole_of(right)
    if type(whole) is int and whole >= 0:
        return with_class(left.context, left.weak**whole, cls)
    sides = (as_side(left), as_side(right))
    context_of(left, right)
    return make_float(left.context, Calculation("power", sides))


_NUMBERS: Final = (int, Expr)
_DIVISIONS: Final = ("//", "%")
_INTEGER: Final[dict[str, Callable[[SizeContext, Number, Number], Number]]] = {
    "+": lambda _, a, b: add(a, b),
    "-": lambda _, a, b: subtract(a, b),
    "*": lambda _, a, b: multiply(a, b),
    "//": lambda context, a, b: context.knowledge.quotient(a, b),
    "%": lambda context, a, b: context.knowledge.simpler(modulo(a, b)),
}


def with_class(context: SizeContext, value: Any, cls: type) -> Any:
    """Return a number, which may be symbolic, in another class of Python or NumPy."""
    if class_of(value) is cls:
        return value
    if not isinstance(value, InContext):
        return cls(value)
    if type(value) is SymInt and (cls is int or cls in WHOLE):
        return make_int(context, value.expr, value.hint, cls)
    side = as_side(value)
    return make_float(context, Calculation(cls.__name__, (side,)))


def compared(left: Any, sign: str, right: object) -> Any:
    """Return whether a comparison holds; a `SymBool` where that is not certain."""
    a, b = _exact(left), _exact(right)
    is_unordered = isinstance(b, complex) and sign not in ("==", "!=")
    if a is None or b is None or is_unordered:
        return NotImplemented
    context = left.context
    if isinstance(right, InContext) and right.context is not context:
        raise mixed((left, right))
    if a is b and not (context.numbers and has_numbers(left)):  # it may be nan
        return sign in ("==", "<=", ">=")
    known = context.compare(a, sign, b)
    return SymBool(context, Compared(a, sign, b)) if known is None else known


def _exact(value: Any) -> Any:
    """Return a side without the class of an integer: integers compare exactly."""
    whole = whole_of(value)
    return as_side(value) if whole is None else whole


# ---- NumPy's ufuncs of symbolic numbers: `np.sqrt(n)`, `np.minimum(n, 3)` ----
# The results have the classes that NumPy gives: ``np.minimum(5, 3)`` is an np.int64.


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
    """Compute a ufunc of symbolic numbers, and of others beside them."""
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
    """Return whether it is found by its name, so that a graph can call it."""
    name = ufunc.__name__
    return name == "clip" or getattr(np, name, None) is ufunc


def _compared(name: str, inputs: Sequence[Any]) -> Any:
    found = _COMPARISONS[name](*map(_plain, inputs))
    if type(found) is not SymBool:
        return np.bool_(found)
    return SymBool(found.context, found.condition, np.bool_)


def _scalar(value: Any) -> Any:
    """Return the number in an array without axes."""
    is_number = type(value) is np.ndarray and not value.ndim
    return value[()] if is_number else value


def _calculated(
    name: str, inputs: Sequence[Any], sides: tuple[Any, ...], cls: type
) -> Any:
    """Return the result of a ufunc of numbers, of the class that NumPy gives."""
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
    """Return whether the exponent may be negative, an error of NumPy for integers."""
    return name == "power" and (type(wholes[1]) is not int or wholes[1] < 0)


def _of_values(
    ufunc: Any, method: str, inputs: Sequence[Any], kwargs: dict[str, Any]
) -> Any:
    """Return the result for the numbers of this call, which become guards."""
    values = [v.value if isinstance(v, InContext) else v for v in inputs]
    return getattr(ufunc, method)(*values, **kwargs)


def _weak(value: Any) -> Any:
    """Return an integer, which may be symbolic, as one of Python."""
    return value.weak if isinstance(value, SymInt) else int(value)


def _plain(value: Any) -> Any:
    """Return a number whose own operators do not call the ufunc again."""
    return value.item() if isinstance(value, np.generic) else value


# ---- calls such as `np.zeros(n, like=x)`, in which NumPy asks for an unused number ----
# NumPy turns the shape into numbers before it hands the call to the array `like`, which
# gets the shape as it was given. So the number needs no guard, and may be any.


# Functions in C that convert the shape first; the others leave it alone.
_MAKERS: Final = ("zeros", "empty")


def is_handed_over(frame: FrameType) -> bool:
    """Return whether a frame calls a NumPy function that hands its shape to `like`.

    Only a variable is looked at, and only one that is not NumPy's: for anything else the
    answer is no, and the number becomes a guard.
    """
    name = _variable_of_like(frame.f_code, frame.f_lasti)
    if name is None:
        return False
    values = frame.f_locals
    value = values[name] if name in values else frame.f_globals.get(name)
    handler = getattr(type(value), "__array_function__", None)
    return handler is not None and handler is not np.ndarray.__array_function__


@lru_cache(maxsize=1024)
def _variable_of_like(code: CodeType, at: int) -> str | None:
    """Return the variable that is the last keyword argument `like` of a call."""
    before = [i for i in dis.get_instructions(code) if i.offset <= at]
    names, rest = _keywords(code, before)
    if not names or names[-1] != "like" or not rest:
        return None
    near = rest[-_FAR:]
    # Adapted code has jumped to the instruction and back.
    jumps = {i.argval for i in near if i.opname == "JUMP_FORWARD"}
    near = [*near, *[i for i in dis.get_instructions(code) if i.offset in jumps]]
    if not any(i.argval in _MAKERS for i in near):
        return None
    load = rest[-1]
    is_plain = load.opname.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_NAME"))
    if not is_plain and load.opname != "LOAD_GLOBAL":
        return None
    # Python 3.13 loads two variables at once.
    found = load.argval[-1] if isinstance(load.argval, tuple) else load.argval
    return found if isinstance(found, str) else None


# Instructions in which the name of the function must be.
_FAR: Final = 60


def _keywords(
    code: CodeType, before: Sequence[dis.Instruction]
) -> tuple[Sequence[Any], Sequence[dis.Instruction]]:
    """Return the keyword names of the last call, and what comes before them."""
    for i in range(len(before) - 1, max(len(before) - 4, -1), -1):
        found = before[i]
        names = code.co_consts[found.arg or 0] if found.opname in _NAMES else None
        if type(names) is tuple:
            return names, before[:i]
    return (), ()


# Up to Python 3.12, and from 3.13 on.
_NAMES: Final = ("KW_NAMES", "LOAD_CONST")
