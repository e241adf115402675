"""Symbolic sizes in graph files: names, bounds, guards and expressions as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from keyword import iskeyword
from typing import Any

import numpy as np

from customop.errors import GraphFileError, shown
from customop.graph.files.fields import (
    NotWritable,
    as_entries,
    as_integer,
    as_line,
    as_list,
    as_text,
    entry_of,
    one_line,
    read_float,
    read_int,
    written_number,
)
from customop.shapes.conditions import (
    Calculation,
    Compared,
    Condition,
    Guard,
    Logic,
    Size,
)
from customop.shapes.expressions import (
    Atom,
    Expr,
    Factor,
    Monomial,
    Number,
    add,
    check_text,
    floor_divide,
    largest,
    multiply,
    smallest,
    symbol,
    terms_of,
)
from customop.shapes.size_context import SizeContext
from customop.shapes.symbolic import SymBool, SymFloat, SymInt, make_int, make_number

# ---- expressions as lists of terms, conditions as trees ----


# Limits for reading one expression: its parts, and the products of terms that it takes.
# Real expressions stay far below.
_MOST_PARTS = 20_000
_MOST_WORK = 200_000
_DEEPEST = 150  # the same limit as in captures
_OPERATIONS = ("+", "-", "*", "/", "//", "%", "**")
# Functions other than ufuncs -> how many operands they have.
_FUNCTIONS = {"min": 2, "max": 2, "int": 1, "float": 1, "complex": 1, "clip": 3}
# Name -> class of NumPy numbers.
_CLASSES = {
    cls.__name__: cls
    for cls in (np.bool_, *(np.dtype(c).type for c in "bBhHiIlLqQefdFD"))
}
_COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")


# ---- writing ----


def written_expression(value: Any) -> Any:
    """Return the JSON form of an expression, number or floating-point calculation."""
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
    """Return the JSON form of a condition on sizes."""
    if isinstance(condition, Logic):
        return {condition.sign: [written_condition(part) for part in condition.parts]}
    sides = (condition.left, condition.right)
    return {condition.sign: [written_expression(side) for side in sides]}


# ---- reading ----


def read_name(written: Any, what: str) -> str:
    """Return a name that is safe in generated code."""
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
    """Return a NumPy number of the class with this name."""
    cls = _CLASSES.get(name) if isinstance(name, str) else None
    if cls is None or isinstance(number, np.generic):
        raise GraphFileError(f"{shown(name)} is not a class of numbers of NumPy")
    try:
        return cls(number)
    except (OverflowError, TypeError, ValueError):
        raise GraphFileError(f"{shown(number)} is not a number of {name}") from None


def _operands(name: str) -> tuple[int, ...]:
    """Return how many operands a calculation may have; empty if it is unknown."""
    if name in _OPERATIONS:
        return (1, 2) if name == "-" else (2,)
    if name in _FUNCTIONS:
        return (_FUNCTIONS[name],)
    ufunc = vars(np).get(name)
    if isinstance(ufunc, np.ufunc):
        return (ufunc.nin,)
    return (1,) if name in _CLASSES else ()


class ExpressionReader:
    """Reads one expression, and limits the work that this takes."""

    def __init__(self) -> None:
        self._parts = 0
        self._work = 0

    def read(self, written: Any, depth: int = 0) -> Any:
        """Return an expression, number or calculation from its JSON form."""
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
        """Return an expression or whole number from its JSON form."""
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
    """Return a condition from its JSON form."""
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


# ---- tables of sizes: names and bounds, guards, and expressions ----


# ---- writing ----


class SizeWriter:
    """Writes the sizes of several captures; each expression is written once."""

    def __init__(self) -> None:
        self.contexts: list[dict[str, Any]] = []
        self.sizes: list[dict[str, Any]] = []
        self._context_numbers: dict[int, int] = {}
        self._size_numbers: dict[tuple[int, Any], int] = {}
        # Contexts are found by their ids, so they must not be freed.
        self._kept: list[SizeContext] = []

    def __call__(self, size: SymInt | SymFloat | SymBool) -> int:
        """Return the number of a size in the table, and add it if it is new."""
        context = self._context_numbers.get(id(size.context))
        if context is None:
            raise NotWritable(
                f"it has the size {size} of another capture, which was open around it"
            )
        number = self._size_numbers.setdefault(
            (context, str(size)), len(self._size_numbers)
        )
        if number == len(self.sizes):
            self.sizes.append({"context": context, **_written_size(size)})
        return number

    def context(self, context: SizeContext) -> int:
        """Return the number of a capture's sizes, and add them if they are new."""
        number = self._context_numbers.setdefault(id(context), len(self.contexts))
        if number == len(self.contexts):
            self._kept.append(context)
            self.contexts.append(_written_context(context))
        return number


def _written_size(size: SymInt | SymFloat | SymBool) -> dict[str, Any]:
    if isinstance(size, SymBool):
        return {"condition": written_condition(size.condition)}
    found = {"size": written_expression(size.side)}
    if isinstance(size, SymFloat) and size.hint is not None:
        found["hint"] = written_expression(size.hint)
    return found


def _written_context(context: SizeContext) -> dict[str, Any]:
    return {
        "names": [_written_name(size) for size in context.sizes.values()],
        "conditions": [
            _written_guard(guard) for guard in (*context.guards, *context.checks)
        ],
    }


def _written_name(size: Size) -> dict[str, Any]:
    if size.kind == "number":
        raise GraphFileError(
            f"'{size.origin}' is a number that differs between calls of the graph, for"
            " which files have no form",
            do=f"pass it as an array, np.float64({size.origin}), before it is captured",
        )
    return {
        "name": size.name,
        "kind": size.kind,
        "hint": size.hint,
        "sources": [*map(one_line, size.sources)],
        "origin": one_line(size.origin),
        "bounds": [*size.bounds],
    }


def _written_guard(guard: Guard) -> dict[str, Any]:
    return {
        "condition": written_condition(guard.condition),
        "place": one_line(guard.place),
        "kind": guard.kind,
        "message": guard.message,
    }


# ---- reading ----

_KINDS = ("input", "named", "data")


def read_context(written: Any) -> SizeContext:
    """Return the sizes of a capture from their JSON form."""
    entries = as_entries(written, "the sizes of a graph", "names conditions")
    context = SizeContext()
    for name in as_list(entries["names"], "the names of sizes"):
        size = _read_size_name(name)
        if size.name in context.sizes:
            raise GraphFileError(f"two sizes have the name '{size.name}'")
        context.add(size)
    for guard in as_list(entries["conditions"], "the conditions of sizes"):
        found = _read_guard(guard)
        _check_names(found.names, context)
        with _overflow():
            context.restore(found)
    return context


def _read_size_name(written: Any) -> Size:
    entries = as_entries(written, "a size", "name kind hint sources origin bounds")
    name, kind = read_name(entries["name"], "the name of a size"), entries["kind"]
    hint, (low, high) = entries["hint"], as_list(entries["bounds"], "the bounds", 2)
    if kind not in _KINDS:
        raise GraphFileError(f"{shown(kind)} is not a kind of size")
    if (hint is None) != (kind == "data"):
        raise GraphFileError(
            f"the size '{name}' of the kind '{kind}' has a wrong value"
        )
    low = as_integer(low, "a bound")
    size = Size(
        name,
        str(kind),
        None if hint is None else as_integer(hint, "the value of a size"),
        "",
        as_line(entries["origin"], "the origin of a size"),
        (low, None if high is None else as_integer(high, "a bound", least=low)),
    )
    sources = as_list(entries["sources"], "the sources of a size")
    size.sources = [as_line(source, "the source of a size") for source in sources]
    return size


def _read_guard(written: Any) -> Guard:
    entries = as_entries(written, "a condition", "condition place kind message")
    condition = read_condition(entries["condition"], ExpressionReader())
    if entries["kind"] not in ("guard", "number", "check"):
        raise GraphFileError(f"{shown(entries['kind'])} is not a kind of condition")
    # Its text becomes part of generated code, so it is not read from the file.
    return Guard(
        condition,
        str(condition),
        as_line(entries["place"], "the place of a condition"),
        entries["kind"],
        as_text(entries["message"], "the message of a condition"),
    )


def read_size(written: Any, contexts: list[SizeContext]) -> Any:
    """Return a size in one of these captures, or a condition on sizes."""
    if isinstance(written, dict) and "condition" in written:
        return _read_truth(written, contexts)
    entries = as_entries(written, "a size", "context size", "hint")
    context: SizeContext = entry_of(contexts, entries["context"], "context")
    found = ExpressionReader().read(entries["size"])
    if not isinstance(found, Expr | Calculation):
        raise GraphFileError(f"the size {shown(found)} is a plain number")
    _check_names(found.names, context)
    if isinstance(found, Calculation):
        hint = entries.get("hint")
        made = make_number(context, found, 0.0)
        if isinstance(made, SymFloat):
            # It is not computed, since a power could take any time and memory.
            made.hint = None if hint is None else _read_hint(hint)
        return made
    with _overflow():
        return make_int(context, found, context.hint_of(found))


def _read_truth(written: Any, contexts: list[SizeContext]) -> SymBool:
    entries = as_entries(written, "a condition on sizes", "context condition")
    context: SizeContext = entry_of(contexts, entries["context"], "context")
    condition = read_condition(entries["condition"], ExpressionReader())
    _check_names(condition.names, context)
    return SymBool(context, condition)


def _read_hint(written: Any) -> Any:
    found = ExpressionReader().read(written)
    if isinstance(found, Expr | Calculation):
        raise GraphFileError(f"the value of a size is {shown(found)}")
    return found


def _check_names(names: frozenset[str], context: SizeContext) -> None:
    unknown = names - context.sizes.keys()
    if unknown:
        raise GraphFileError(f"there is no size '{min(unknown)}'")


@contextmanager
def _overflow() -> Iterator[None]:
    try:
        yield
    except (OverflowError, ZeroDivisionError) as error:
        raise GraphFileError(f"a size cannot be read: {error}") from None
