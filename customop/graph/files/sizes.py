"""Symbolic sizes in a graph file: their names and bounds, guards, and expressions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from customop.errors import GraphFileError, shown
from customop.graph.files.expressions import (
    ExpressionReader,
    read_condition,
    read_name,
    written_condition,
    written_expression,
)
from customop.graph.files.fields import (
    as_entries,
    as_integer,
    as_line,
    as_list,
    as_text,
    entry_of,
    one_line,
)
from customop.graph.files.refused import NotWritable
from customop.shapes.conditions import Calculation
from customop.shapes.expressions import Expr
from customop.shapes.guards import Guard, Size
from customop.shapes.size_context import SizeContext
from customop.shapes.sym_bool import SymBool
from customop.shapes.symbolic import SymFloat, SymInt, make_int, make_number

__all__ = ["SizeWriter", "read_context", "read_size"]

# ---- writing ----


class SizeWriter:
    """Writes sizes of several captures, each expression once."""

    def __init__(self) -> None:
        self.contexts: list[dict[str, Any]] = []
        self.sizes: list[dict[str, Any]] = []
        self._context_numbers: dict[int, int] = {}
        self._size_numbers: dict[tuple[int, Any], int] = {}
        # They are found by their ids, so they must not be freed.
        self._kept: list[SizeContext] = []

    def __call__(self, size: SymInt | SymFloat | SymBool) -> int:
        """The number of a size in the table."""
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
        """The number of the sizes of a capture."""
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
    """The sizes of a capture."""
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
    # Its text goes into generated code, so it is not read from the file.
    return Guard(
        condition,
        str(condition),
        as_line(entries["place"], "the place of a condition"),
        entries["kind"],
        as_text(entries["message"], "the message of a condition"),
    )


def read_size(written: Any, contexts: list[SizeContext]) -> Any:
    """A size of one of these captures, or a condition on them."""
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
            # It is not worked out: a power can take all time and memory.
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
