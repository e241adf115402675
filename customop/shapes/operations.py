"""Operations on symbolic numbers: arithmetic and comparisons.

The class of a result is that of the same operation on numbers: an operation of an int of
Python and a number of NumPy gives one of NumPy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from customop.shapes.conditions import Calculation, Compared, calculate, result_class
from customop.shapes.division import modulo
from customop.shapes.expressions import Expr, Number, add, multiply, subtract
from customop.shapes.real_number import InContext, has_numbers, read_numbers
from customop.shapes.sym_bool import SymBool
from customop.shapes.symbolic import (
    WHOLE,
    SymFloat,
    SymInt,
    as_side,
    class_of,
    context_of,
    make_float,
    make_int,
    mixed,
    whole_of,
)

if TYPE_CHECKING:
    from customop.shapes.size_context import SizeContext

__all__ = ["compared", "operated", "with_class"]


def operated(context: SizeContext, sign: str, left: Any, right: Any) -> Any:
    """The result of an operation of Python, of which one side is symbolic."""
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
    """The result of integer arithmetic, in a class of integers."""
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
    """Whether a power of inputs that are numbers has one class, whatever they are."""
    is_positive = isinstance(base, float) and base > 0
    is_whole = type(exponent) is int and type(base) is not SymInt
    is_integer = type(base) is SymInt and type(exponent) is SymInt
    is_base = type(base) is int and base > 0 and type(exponent) is SymFloat
    return (is_positive or is_whole or is_base) and not is_integer


def _power(left: SymInt, right: Any, cls: type) -> Any:
    """A power in a class of NumPy, in which negative ones of integers are errors."""
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
    """A number, which may be symbolic, in another class of Python or NumPy."""
    if class_of(value) is cls:
        return value
    if not isinstance(value, InContext):
        return cls(value)
    if type(value) is SymInt and (cls is int or cls in WHOLE):
        return make_int(context, value.expr, value.hint, cls)
    side = as_side(value)
    return make_float(context, Calculation(cls.__name__, (side,)))


def compared(left: Any, sign: str, right: object) -> Any:
    """Whether a comparison holds; a `SymBool` where that is not certain."""
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
    """A side, without the class of an integer: comparisons of integers are exact."""
    whole = whole_of(value)
    return as_side(value) if whole is None else whole
