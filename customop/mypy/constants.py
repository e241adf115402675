"""Values of expressions that the source shows."""

from __future__ import annotations

import math
from typing import Any

from mypy.nodes import (
    ComplexExpr,
    Expression,
    FloatExpr,
    IntExpr,
    ListExpr,
    MemberExpr,
    NameExpr,
    RefExpr,
    SetExpr,
    StrExpr,
    TupleExpr,
    UnaryExpr,
    Var,
)

from customop.mypy.hints import Unfamiliar
from customop.mypy.names import own_name
from customop.schema.tags import Tag

__all__ = ["constant", "constant_or"]

_NAMED: dict[str, Any] = {
    "builtins.True": True,
    "builtins.False": False,
    "builtins.None": None,
    **{
        f"{module}.{name}": getattr(math, name)
        for module in ("math", "numpy")
        for name in ("inf", "nan", "pi", "e")
    },
}
_SEQUENCES: dict[type[Expression], Any] = {
    ListExpr: list,
    TupleExpr: tuple,
    SetExpr: set,
}


def constant(expression: Expression) -> Any:
    """The value of an expression.

    Raises
    ------
    Unfamiliar
        If the source does not show the value.
    """
    if isinstance(expression, StrExpr | IntExpr | FloatExpr | ComplexExpr):
        return expression.value
    if isinstance(expression, NameExpr | MemberExpr):
        return _of_name(expression)
    if isinstance(expression, UnaryExpr) and expression.op == "-":
        value = constant(expression.expr)
        if type(value) in (int, float, complex):
            return -value
    make = _SEQUENCES.get(type(expression))
    if make is None:
        raise Unfamiliar
    return make([constant(item) for item in expression.items])  # type: ignore[attr-defined]  # all three have it


def _of_name(expression: NameExpr | MemberExpr) -> Any:
    if expression.fullname in _NAMED:
        return _NAMED[expression.fullname]
    if isinstance(expression, MemberExpr) and isinstance(expression.expr, RefExpr):
        # mypy gives a member of an Enum no full name.
        owner = own_name(expression.expr.fullname)
        if owner == Tag.__name__ and expression.name in Tag.__members__:
            return Tag[expression.name]
    node = expression.node
    if isinstance(node, Var) and node.is_final and node.final_value is not None:
        return node.final_value
    raise Unfamiliar


def constant_or(expression: Expression | None, otherwise: Any) -> Any:
    """The value of an expression, or `otherwise` if the source does not show it."""
    if expression is None:
        return otherwise
    try:
        return constant(expression)
    except Unfamiliar:
        return otherwise
