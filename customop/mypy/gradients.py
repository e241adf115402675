"""Wrong values in what rules return: gradients in a tuple, by name or alone, and pairs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from mypy.nodes import (
    ConditionalExpr,
    DictExpr,
    Expression,
    FloatExpr,
    ListExpr,
    OpExpr,
    RefExpr,
    StarExpr,
    StrExpr,
    TupleExpr,
    UnaryExpr,
)
from mypy.types import Instance, NoneType, get_proper_type

from customop.mypy.functions import Function
from customop.mypy.hints import is_array
from customop.mypy.trees import returned_by
from customop.schema.parameters import MISSING
from customop.schema.schema import Schema
from customop.transforms.autograd.gradients import (
    wrong_count,
    wrong_list,
    wrong_name,
    wrong_single,
)

__all__ = ["WrongReturn", "wrong_gradients", "wrong_pairs"]

# Operators that arrays have, and tuples, dicts and None do not.
_OF_NUMBERS = ("-", "/", "//", "@", "**", "%")


class WrongReturn(NamedTuple):
    """A returned expression, if it is written, what is wrong, and what to do."""

    expression: Expression | None
    what: str
    do: str


def _returned(function: Function) -> Iterator[Expression]:
    """The expressions that a function returns, both of a conditional one."""
    for expression in returned_by(function.node) if function.node is not None else ():
        yield from _branches(expression)


def _branches(expression: Expression) -> Iterator[Expression]:
    if isinstance(expression, ConditionalExpr):
        yield from _branches(expression.if_expr)
        yield from _branches(expression.else_expr)
    else:
        yield expression


def _is_written_out(expression: Expression) -> bool:
    """Whether an expression is a tuple or a list of a known length."""
    return isinstance(expression, TupleExpr | ListExpr) and not any(
        isinstance(item, StarExpr) for item in expression.items
    )


def wrong_pairs(function: Function, returns: str) -> Iterator[WrongReturn]:
    """Tuples of a rule that must return a pair, and that are not one."""
    for found in _returned(function):
        if not isinstance(found, TupleExpr) or not _is_written_out(found):
            continue
        if len(found.items) != 2:
            what = f"returned {len(found.items)} values"
            yield WrongReturn(found, what, f"return {returns}")


def wrong_gradients(function: Function, schema: Schema) -> Iterator[WrongReturn]:
    """Values that a backward formula returns, and that cannot be the gradients."""
    result = get_proper_type(function.result)
    returns_array = isinstance(result, Instance) and is_array(result.type)
    if isinstance(result, NoneType) and not _is_count(1, schema):
        yield WrongReturn(None, *wrong_single([p.name for p in schema.positional]))
    for found in _returned(function):
        wrong = _wrong_value(found, schema, returns_array=returns_array)
        if wrong is not None:
            yield WrongReturn(found, *wrong)


def _wrong_value(
    found: Expression, schema: Schema, *, returns_array: bool
) -> tuple[str, str] | None:
    names = [p.name for p in schema.positional]
    if isinstance(found, TupleExpr | ListExpr):
        return _wrong_items(found, schema) if _is_written_out(found) else None
    if isinstance(found, DictExpr):
        known = [*names, *schema.keyword_names]
        keys = [key.value for key, _ in found.items if isinstance(key, StrExpr)]
        unknown = [key for key in keys if key not in known]
        return wrong_name(unknown[0], known) if unknown else None
    is_one = _is_one_value(found) or (returns_array and isinstance(found, RefExpr))
    if is_one and len(names) > 1 and not _is_count(1, schema):
        return wrong_single(names)
    return None


def _wrong_items(found: TupleExpr | ListExpr, schema: Schema) -> tuple[str, str] | None:
    names, count = [p.name for p in schema.positional], len(found.items)
    if isinstance(found, ListExpr):
        return wrong_list(count, names)
    return None if _is_count(count, schema) else wrong_count(count, names)


def _is_one_value(expression: Expression) -> bool:
    """Whether an expression gives a number or an array, whatever its names are."""
    if isinstance(expression, UnaryExpr):
        return expression.op in ("-", "~")
    if not isinstance(expression, OpExpr):
        return False
    sides = (expression.left, expression.right)
    return expression.op in _OF_NUMBERS or (
        expression.op in ("*", "+")
        and any(isinstance(side, FloatExpr) or _is_one_value(side) for side in sides)
    )


def _is_count(count: int, schema: Schema) -> bool:
    """Whether so many gradients can be right: those of defaults may be left out."""
    inputs = schema.positional
    if count >= len(inputs):
        return count in (len(inputs), len(schema.parameters))
    return all(p.default is not MISSING for p in inputs[count:])
