"""What rules return, where they say it: gradients one by one, pairs."""

from __future__ import annotations

from collections.abc import Iterator

from mypy.nodes import (
    ConditionalExpr,
    Expression,
    ReturnStmt,
    StarExpr,
    TupleExpr,
)

from customop.mypy.functions import Function
from customop.mypy.trees import statements

__all__ = ["returned_tuples"]


def returned_tuples(function: Function) -> Iterator[TupleExpr]:
    """The tuples whose items a function writes out behind its `return`."""
    body = function.body
    if body is None:
        return
    for statement in statements(body.body):
        if isinstance(statement, ReturnStmt) and statement.expr is not None:
            yield from _tuples(statement.expr)


def _tuples(expression: Expression) -> Iterator[TupleExpr]:
    if isinstance(expression, ConditionalExpr):
        yield from _tuples(expression.if_expr)
        yield from _tuples(expression.else_expr)
    elif isinstance(expression, TupleExpr) and not any(
        isinstance(item, StarExpr) for item in expression.items
    ):
        yield expression
