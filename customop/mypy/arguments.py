"""The arguments of a call that a hook is asked about."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

from mypy.nodes import Expression, TempNode
from mypy.plugin import (
    AttributeContext,
    FunctionContext,
    MethodContext,
    MethodSigContext,
)
from mypy.types import Type

if TYPE_CHECKING:
    from mypy.checker import TypeChecker

__all__ = ["Argument", "Call", "checker"]


class Argument(NamedTuple):
    """One argument: its type, and its expression where it has one."""

    type: Type
    expression: Expression | None


def checker(
    context: FunctionContext | MethodContext | AttributeContext | MethodSigContext,
) -> TypeChecker:
    """The type checker, of which hooks are told a part alone."""
    return cast("TypeChecker", context.api)


class Call:
    """A call, by places and names of the parameters of the function called."""

    def __init__(self, context: FunctionContext | MethodContext) -> None:
        self._context = context

    @property
    def names(self) -> list[str | None]:
        """Names of the parameters, None for those without."""
        return self._context.callee_arg_names

    def at(self, place: int) -> Argument | None:
        """What is given for a parameter by its place; None for its default."""
        types, given = self._context.arg_types, self._context.args
        if place >= len(types) or len(types[place]) != 1:
            return None
        expression = given[place][0]
        is_made = isinstance(expression, TempNode)
        return Argument(types[place][0], None if is_made else expression)

    def named(self, name: str) -> Argument | None:
        """What is given for a parameter by its name."""
        return self.at(self.names.index(name)) if name in self.names else None

    def value(self, name: str) -> Expression | None:
        """The expression that is given for a parameter."""
        found = self.named(name)
        return None if found is None else found.expression
