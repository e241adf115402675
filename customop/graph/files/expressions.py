"""Symbolic sizes as JSON: polynomials as lists of terms, conditions as trees."""

from __future__ import annotations

from collections.abc import Callable
from keyword import iskeyword
from typing import Any

import numpy as np

from customop.errors import GraphFileError, shown
from customop.graph.files.fields import as_entries, as_list, as_text
from customop.graph.files.numbers import read_float, read_int, written_number
from customop.shapes.conditions import Calculation, Compared, Condition, Logic
from customop.shapes.division import floor_divide, largest, smallest
from customop.shapes.expressions import (
    Atom,
    Expr,
    Factor,
    Monomial,
    Number,
    add,
    check_text,
    multiply,
    symbol,
    terms_of,
)

__all__ = [
    "ExpressionReader",
    "read_condition",
    "read_name",
    "written_condition",
    "written_expression",
]

# Parts of one expression, and products of terms that reading it may take: real ones are
# far below.
_MOST_PARTS = 20_000
_MOST_WORK = 200_000
_DEEPEST = 150  # as captures allow
_OPERATIONS = ("+", "-", "*", "/", "//", "%", "**")
# Functions of Python and others that are not ufuncs -> how many operands they have.
_FUNCTIONS = {"min": 2, "max": 2, "int": 1, "float": 1, "complex": 1, "clip": 3}
# Name -> a class of numbers of NumPy.
_CLASSES = {
    cls.__name__: cls
    for cls in (np.bool_, *(np.dtype(c).type for c in "bBhHiIlLqQefdFD"))
}
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


# ---- writing ----


def written_expression(value: Any) -> Any:
    """The JSON of an expression, a number or a calculation in floating point."""
    if isinstance(value, Expr):
        terms = sorted(value.terms.items(), key=lambda term: [*map(str, term[0])])
        return {"sum": [_term(monomial, c) for monomial, c in terms]}
    if isinstance(value, Calculation):
        return {"calculation": [value.name, *map(written_expression, value.parts)]}
    if isinstance(value, np.generic):
        return {"numpy": [type(value).__name__, written_expression(value.item())]}
    if isinstance(value, complex):
        return {"complex": [written_number(value.real), written_number(value.imag)]}
    return written_number(int(value) if isinstance(value, bool) else value)


def _term(monomial: Monomial, coefficient: int) -> list[Any]:
    return [written_number(coefficient), *map(_factor, monomial)]


def _factor(factor: Factor) -> Any:
    if isinstance(factor, Atom):
        return {factor.sign: [written_expression(part) for part in factor.parts]}
    return factor


def written_condition(condition: Condition) -> Any:
    """The JSON of a condition on sizes."""
    if isinstance(condition, Logic):
        return {condition.sign: [written_condition(part) for part in condition.parts]}
    sides = (condition.left, condition.right)
    return {condition.sign: [written_expression(side) for side in sides]}


# ---- reading ----


def read_name(written: Any, what: str) -> str:
    """A name that may stand in generated code."""
    name = as_text(written, what)
    if not name.isidentifier() or iskeyword(name) or name.startswith("__"):
        raise GraphFileError(f"{what} is {shown(name)}, which is not a name")
    return name


_SIGNS: dict[str, Callable[..., Number]] = {
    "//": floor_divide,
    "min": smallest,
    "max": largest,
}


def _of_numpy(name: Any, number: Any) -> Any:
    """A number of NumPy, of the class with this name."""
    cls = _CLASSES.get(name) if isinstance(name, str) else None
    if cls is None or isinstance(number, np.generic):
        raise GraphFileError(f"{shown(name)} is not a class of numbers of NumPy")
    try:
        return cls(number)
    except (OverflowError, TypeError, ValueError):
        raise GraphFileError(f"{shown(number)} is not a number of {name}") from None


def _operands(name: str) -> tuple[int, ...]:
    """How many operands a calculation may have; nothing if there is none of the name."""
    if name in _OPERATIONS:
        return (1, 2) if name == "-" else (2,)
    if name in _FUNCTIONS:
        return (_FUNCTIONS[name],)
    ufunc = vars(np).get(name)
    if isinstance(ufunc, np.ufunc):
        return (ufunc.nin,)
    return (1,) if name in _CLASSES else ()


class ExpressionReader:
    """Reads one expression, within bounds of the work that it takes."""

    def __init__(self) -> None:
        self._parts = 0
        self._work = 0

    def read(self, written: Any, depth: int = 0) -> Any:
        """The expression, number or calculation of its JSON."""
        self._parts += 1
        if depth > _DEEPEST or self._parts > _MOST_PARTS:
            raise GraphFileError("an expression of sizes is too large")
        if isinstance(written, dict) and "sum" in written:
            terms = as_list(as_entries(written, "an expression", "sum")["sum"], "a sum")
            return self._sum(terms, depth)
        if isinstance(written, dict) and "calculation" in written:
            return self._calculation(written, depth)
        return self._number(written)

    def _number(self, written: Any) -> Any:
        if isinstance(written, dict) and written.keys() == {"numpy"}:
            name, number = as_list(written["numpy"], "a number of NumPy", 2)
            return _of_numpy(name, self._number(number))
        if isinstance(written, dict) and written.keys() == {"complex"}:
            parts = as_list(written["complex"], "a complex number", 2)
            return complex(*map(read_float, parts))
        if isinstance(written, float) or (
            isinstance(written, dict) and "float" in written
        ):
            return read_float(written)
        return read_int(written)

    def whole(self, written: Any, depth: int = 0) -> Number:
        """An expression or whole number."""
        found = self.read(written, depth)
        if not isinstance(found, int | Expr):
            raise GraphFileError(f"a size is {shown(written)}, must be a whole number")
        return found

    def _sum(self, terms: list[Any], depth: int) -> Number:
        total: Number = 0
        for term in terms:
            first, *factors = as_list(term, "a term") or [None]
            product: Number = read_int(first)
            for factor in factors:
                product = self._product(product, self._factor(factor, depth + 1))
            self._take(len(terms_of(total)) + len(terms_of(product)))
            total = add(total, product)
        return total

    def _product(self, a: Number, b: Number) -> Number:
        self._take(len(terms_of(a)) * len(terms_of(b)))
        try:
            return multiply(a, b)
        except OverflowError as error:
            raise GraphFileError(str(error)) from None

    def _take(self, work: int) -> None:
        self._work += work + 1
        if self._work > _MOST_WORK:
            raise GraphFileError("an expression of sizes takes too long to read")

    def _factor(self, written: Any, depth: int) -> Number:
        if isinstance(written, str):
            return symbol(read_name(written, "the name of a size"))
        if not isinstance(written, dict) or len(written) != 1:
            raise GraphFileError(f"{shown(written)} is not a factor of a size")
        ((sign, parts),) = written.items()
        if sign not in _SIGNS or not as_list(parts, f"the parts of {sign}"):
            raise GraphFileError(f"{shown(sign)} is not an operation on sizes")
        read = [self.whole(part, depth + 1) for part in parts]
        self._take(sum(len(terms_of(part)) for part in read) ** 2)
        if sign == "//" and (len(read) != 2 or read[1] == 0):
            raise GraphFileError("a division of sizes has no divisor")
        try:
            return _SIGNS[sign](*read)
        except (OverflowError, ZeroDivisionError) as error:
            raise GraphFileError(f"a size cannot be read: {error}") from None

    def _calculation(self, written: Any, depth: int) -> Calculation:
        entries = as_entries(written, "a calculation", "calculation")
        name, *parts = as_list(entries["calculation"], "a calculation") or [None]
        operands = _operands(name) if isinstance(name, str) else ()
        if not operands:
            raise GraphFileError(f"{shown(name)} is not a calculation with sizes")
        if len(parts) not in operands:
            raise GraphFileError(f"{shown(name)} has {len(parts)} operands")
        found = Calculation(name, tuple(self.read(part, depth + 1) for part in parts))
        try:
            check_text(found.depth, found.text)
        except OverflowError as error:
            raise GraphFileError(str(error)) from None
        return found


def read_condition(written: Any, reader: ExpressionReader, depth: int = 0) -> Condition:
    """The condition of its JSON."""
    if not isinstance(written, dict) or len(written) != 1 or depth > _DEEPEST:
        raise GraphFileError(f"{shown(written)} is not a condition")
    ((sign, parts),) = written.items()
    if sign in ("and", "or"):
        inner = as_list(parts, "the parts of a condition")
        return Logic(
            sign, tuple(read_condition(part, reader, depth + 1) for part in inner)
        )
    if sign not in _COMPARISONS:
        raise GraphFileError(f"{shown(sign)} is not a comparison")
    left, right = as_list(parts, "the sides of a comparison", 2)
    return Compared(reader.read(left), sign, reader.read(right))
