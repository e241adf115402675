"""The forms in which an operator can be called, and their parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from customop.core.operator import Operator
from customop.schema.infer import signature_of
from customop.schema.overloads import overloads_of
from customop.schema.parameters import (
    KEYWORD_ONLY,
    MISSING,
    POSITIONAL,
    POSITIONAL_ONLY,
    Parameter,
)
from customop.schema.types import SCALAR, Base, SchemaType

__all__ = ["Form", "forms_of", "marked", "narrowest_first", "parameters_of"]

# An operator, and an overload of its function if that has any.
Form: TypeAlias = tuple[Operator[..., Any], Callable[..., Any] | None]

_KINDS: dict[Any, str] = {
    inspect.Parameter.POSITIONAL_ONLY: POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD: POSITIONAL,
    inspect.Parameter.KEYWORD_ONLY: KEYWORD_ONLY,
}
# The narrower type comes first among overloads: a checker takes the first that fits.
_NUMBERS = ("bool", "int", "float", "complex")
_WIDTHS: dict[SchemaType, int] = {Base(name): i for i, name in enumerate(_NUMBERS)}
_WIDTHS[SCALAR] = len(_WIDTHS)


def forms_of(op: Operator[..., Any]) -> list[Form]:
    """An operator with each overload of its function, or with None."""
    overloads = overloads_of(op.__wrapped__)
    return [(op, overload) for overload in overloads] or [(op, None)]


def parameters_of(
    op: Operator[..., Any], overload: Callable[..., Any] | None
) -> Sequence[Parameter]:
    """Parameters of an operator as an overload of its function has them."""
    if overload is None:
        return op.schema.parameters
    by_name = {p.name: p for p in op.schema.parameters}
    places = iter(op.schema.positional)
    return [
        _as_given(by_name[p.name] if p.kind is p.KEYWORD_ONLY else next(places), p)
        for p in signature_of(overload).parameters.values()
    ]


def _as_given(p: Parameter, given: inspect.Parameter) -> Parameter:
    default = MISSING if given.default is given.empty else p.default
    return p.replaced(name=given.name, kind=_KINDS[given.kind], default=default)


def marked(
    parameters: Sequence[Parameter], text: Callable[[Parameter], str]
) -> list[str]:
    """Parameters as text, with "/" and "*" between their kinds."""
    parts = []
    before = ""
    for p in parameters:
        if before == POSITIONAL_ONLY and p.kind != POSITIONAL_ONLY:
            parts.append("/")
        if p.kind == KEYWORD_ONLY and before != KEYWORD_ONLY:
            parts.append("*")
        parts.append(text(p))
        before = p.kind
    return [*parts, "/"] if before == POSITIONAL_ONLY else parts


def narrowest_first(ops: Sequence[Operator[..., Any]]) -> list[Operator[..., Any]]:
    """Overloads in their order, except that narrower numbers come before wider ones."""
    ordered: list[Operator[..., Any]] = []
    for op in ops:
        at = next((i for i, o in enumerate(ordered) if _is_narrower(op, o)), None)
        ordered.insert(len(ordered) if at is None else at, op)
    return ordered


def _is_narrower(op: Operator[..., Any], other: Operator[..., Any]) -> bool:
    mine, its = (o.schema.parameters for o in (op, other))
    if len(mine) != len(its):
        return False
    pairs = [(p.type, q.type) for p, q in zip(mine, its, strict=True)]
    widths = [(_WIDTHS.get(p, 0), _WIDTHS.get(q, 0)) for p, q in pairs if p != q]
    known = all(p in _WIDTHS and q in _WIDTHS for p, q in pairs if p != q)
    return known and bool(widths) and all(p <= q for p, q in widths)
