"""What rules return, where they say it: gradients one by one or by name, pairs."""

from __future__ import annotations

from collections.abc import Iterator

from mypy.nodes import (
    ConditionalExpr,
    DictExpr,
    Expression,
    FloatExpr,
    ListExpr,
    OpExpr,
    ReturnStmt,
    StarExpr,
    StrExpr,
    TupleExpr,
    UnaryExpr,
)
from mypy.types import Instance, get_proper_type

from customop.mypy.functions import Function
from customop.mypy.hints import is_array
from customop.mypy.trees import statements

__all__ = ["is_one_value", "names_of", "returned", "returned_tuples", "returns_array"]

# Operators between arrays that no tuple, dict or None has.
_OF_NUMBERS = ("-", "/", "//", "@", "**", "%")


def returned(function: Function) -> Iterator[Expression]:
    """The expressions behind the `return` of a function, both of a conditional one."""
    body = function.body
    if body is None:
        return
    for statement in statements(body.body):
        if isinstance(statement, ReturnStmt) and statement.expr is not None:
            yield from _branches(statement.expr)


def _branches(expression: Expression) -> Iterator[Expression]:
    if isinstance(expression, ConditionalExpr):
        yield from _branches(expression.if_expr)
        yield from _branches(expression.else_expr)
    else:
        yield expression


def returned_tuples(function: Function) -> Iterator[TupleExpr | ListExpr]:
    """The tuples, and lists, whose items a function writes out behind its `return`."""
    for expression in returned(function):
        if isinstance(expression, TupleExpr | ListExpr) and not any(
            isinstance(item, StarExpr) for item in expression.items
        ):
            yield expression


def names_of(expression: Expression) -> list[str]:
    """The keys that a dict is written with, if it is one; those that are texts."""
    items = expression.items if isinstance(expression, DictExpr) else []
    return [key.value for key, _ in items if isinstance(key, StrExpr)]


def is_one_value(expression: Expression) -> bool:
    """Whether an expression gives a number or an array, whatever its names stand for."""
    if isinstance(expression, UnaryExpr):
        return expression.op in ("-", "~")
    if not isinstance(expression, OpExpr):
        return False
    sides = (expression.left, expression.right)
    return expression.op in _OF_NUMBERS or (
        expression.op in ("*", "+")
        and any(isinstance(side, FloatExpr) or is_one_value(side) for side in sides)
    )


def returns_array(function: Function) -> bool:
    """Whether a function is annotated to return an array."""
    kind = get_proper_type(function.result)
    return isinstance(kind, Instance) and is_array(kind.type)
