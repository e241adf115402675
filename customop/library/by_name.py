"""Shared code of the functions that register for an operator or for its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypedDict, TypeVar

from customop.core.operator import Operator
from customop.core.registration import chained
from customop.core.rule_kind import RuleKind
from customop.library.library import Library, check_library
from customop.library.ops import OperatorPacket
from customop.library.resolve import AnyOperator, resolve

__all__ = ["AnyOp", "FnT", "LibraryOption", "Named", "OpT", "RuleOptions", "by_name"]

# Overloads spell out Callable[[FnT], FnT]: in an alias, mypy would not leave FnT generic.
FnT = TypeVar("FnT", bound=Callable[..., Any])
OpT = TypeVar("OpT", bound=Operator[..., Any])
Named = OperatorPacket | str
AnyOp = Operator[..., Any]


class LibraryOption(TypedDict, total=False):
    """The option that all functions here take."""

    lib: Library | None


class RuleOptions(LibraryOption, total=False):
    """Options of the functions that can replace a rule."""

    override: bool


def by_name(
    op: AnyOperator,
    keys: Iterable[str | RuleKind],
    fn: Any,
    lib: Library | None,
    *,
    override: bool,
    of: Callable[[Any], Any] = lambda given: given,
) -> Any:
    """Register `of(fn)` for each key, or return a decorator that does it."""
    found = resolve(op)
    check_library(lib)

    def enter(given: Any) -> None:
        for key in keys:
            if lib is None:
                found.add(key, of(given), override=override)
            else:
                lib.add(found.qualname, key, of(given), override=override)

    return chained(found, fn, enter)
