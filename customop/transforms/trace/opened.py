"""Which operators a graph keeps as nodes, and which it opens: takes their bodies apart."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from customop.core.operator import Operator
from customop.core.registry import find_operator
from customop.core.table import RuleTable
from customop.errors import ArgumentError, check_function, shown
from customop.library.ops import OperatorPacket

__all__ = ["Chosen", "Operators", "Table", "as_chosen", "as_table"]

Operators: TypeAlias = Iterable[Operator[..., Any] | str] | Callable[[Any], bool]
Table: TypeAlias = (
    Mapping[Operator[..., Any] | str, Callable[..., Any]]
    | Iterable[Operator[..., Any] | str]
)
Chosen: TypeAlias = Callable[[RuleTable], bool]


def as_chosen(given: Any, name: str) -> Chosen | None:
    """A test of operators, made of a list of them or of a function; None for no list."""
    if callable(given) and not isinstance(given, Operator | OperatorPacket):
        return lambda op: bool(given(op))
    chosen = frozenset([_operator(v, name) for v in _items(given, name)])
    return chosen.__contains__ if chosen else None


def as_table(given: Any, name: str) -> dict[RuleTable, Callable[..., Any]]:
    """Operator -> the function that takes its place: its own body if there is no other."""
    if isinstance(given, Mapping):
        for fn in given.values():
            check_function(name, fn)
        return {_operator(key, name): fn for key, fn in given.items()}
    found = [_operator(value, name) for value in _items(given, name)]
    return {op: op.definition.fn for op in found}


def _items(given: Any, name: str) -> list[Any]:
    if isinstance(given, Operator | OperatorPacket | str):
        return [given]
    try:
        return [*given]
    except TypeError:
        raise ArgumentError(
            f"{name}: {shown(given)} is not a list of operators",
            do='write ["mylib::op"], with operators or their names',
        ) from None


def _operator(given: Any, name: str) -> Operator[..., Any]:
    if isinstance(given, Operator):
        return given
    if isinstance(given, OperatorPacket):
        given = given.qualname
    if isinstance(given, str):
        return find_operator(given)
    raise ArgumentError(
        f"{name}: {shown(given)} is not an operator",
        do="pass operators or their names, such as 'mylib::op'",
    )
