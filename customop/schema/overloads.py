"""Checks that the overloads of a function fit the schema of its operator.

The schema is that of the implementation. An overload is what a type checker reads: every
call that it allows must be one that the operator takes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from linecache import checkcache, getline
from types import FrameType
from typing import Any, get_overloads

from customop.errors import SchemaError, innermost, place
from customop.frozen import Frozen
from customop.schema.agreement import gives, result_types, takes, type_of
from customop.schema.infer import hints_of, signature_of
from customop.schema.parameters import MISSING, POSITIONAL_ONLY, Parameter
from customop.schema.schema import Schema
from customop.schema.types import Maybe

__all__ = ["check_overload", "check_overloads", "overloads_of"]


def check_overloads(
    fn: Callable[..., Any], schema: Schema, scope: FrameType | None = None
) -> None:
    """Raise unless all overloads of a function fit its schema."""
    for number, overload in enumerate(overloads_of(fn), 1):
        try:
            check_overload(overload, number, schema, scope)
        except SchemaError:
            if _is_written(overload):
                raise


def overloads_of(fn: Any) -> Sequence[Callable[..., Any]]:
    """The overloads above a function in its file.

    Python keeps those that another cell of a notebook or a reloaded module had.
    """
    inner = innermost(fn)
    code = getattr(inner, "__code__", None)
    if code is None or not hasattr(inner, "__qualname__"):
        return ()
    return [
        overload
        for overload in get_overloads(inner)
        for other in [getattr(innermost(overload), "__code__", None)]
        if other is not None
        and other.co_filename == code.co_filename
        and other.co_firstlineno < code.co_firstlineno
    ]


def _is_written(overload: Callable[..., Any]) -> bool:
    """Whether the file may still have an overload; a reloaded module may not."""
    code = innermost(overload).__code__
    checkcache(code.co_filename)
    line = getline(code.co_filename, code.co_firstlineno)
    return not line or line.lstrip().startswith("@")


_STARS: dict[Any, str] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}


class _Misfit(Frozen):
    """How an overload differs from a schema, and the parameter there."""

    reason: str
    parameter: str = ""


def check_overload(
    overload: Callable[..., Any],
    number: int,
    schema: Schema,
    scope: FrameType | None = None,
) -> None:
    """Raise unless each call that an overload allows fits a schema."""
    for found in _misfits(overload, schema, scope):
        raise SchemaError(
            f"overload {number} of {overload.__name__} {found.reason}",
            schema.show("", found.parameter or "return"),
            f"at {place(overload)}",
            do="allow only calls that the operator takes, or change its schema",
            parameter=found.parameter or None,
        )


def _misfits(
    overload: Callable[..., Any], schema: Schema, scope: FrameType | None
) -> Iterator[_Misfit]:
    signature = signature_of(overload)
    hints = hints_of(overload, scope, signature)
    left = {p.name: p for p in schema.parameters}
    positional = [*schema.positional]
    for index, mine in enumerate(signature.parameters.values()):
        if mine.kind in _STARS:
            name = f"{_STARS[mine.kind]}{mine.name}"
            yield _Misfit(f"takes '{name}', the operator has no such parameter")
            return
        is_named = mine.kind is mine.KEYWORD_ONLY
        p = left.get(mine.name) if is_named else [*positional, None][index]
        misplaced = _misplaced(mine, p)
        if misplaced or p is None:
            yield _Misfit(misplaced, "" if p is None else p.name)
            return
        del left[p.name]
        yield from _wrong_values(mine, p, hints)
    for p in left.values():
        if p.default is MISSING:
            yield _Misfit(f"leaves out '{p.name}', which has no default", p.name)
    yield from _wrong_result(hints, schema)


def _misplaced(mine: inspect.Parameter, p: Parameter | None) -> str:
    """How the place or the name of a parameter differs, or nothing."""
    if p is None:
        return f"takes '{mine.name}', the operator has no such parameter"
    if mine.kind is mine.KEYWORD_ONLY:
        is_wrong = p.kind == POSITIONAL_ONLY
        return f"takes '{p.name}' by name, the operator does not" if is_wrong else ""
    if mine.kind is mine.POSITIONAL_OR_KEYWORD and mine.name != p.name:
        return f"has the parameter '{mine.name}' where the schema has '{p.name}'"
    return ""


def _wrong_values(
    mine: inspect.Parameter, p: Parameter, hints: dict[str, Any]
) -> Iterator[_Misfit]:
    if mine.default is not mine.empty and p.default is MISSING:
        yield _Misfit(f"has a default for '{p.name}', the operator has none", p.name)
    if hints.get(mine.name, ...) in (None, type(None)):
        if not isinstance(p.type, Maybe):
            yield _Misfit(f"takes '{p.name}' as None, the operator as {p.type}", p.name)
        return
    annotated = type_of(hints, mine.name)
    if annotated is not None and not takes(p.type, annotated, with_shapes=False):
        what = f"takes '{p.name}' as {annotated}, the operator as {p.type}"
        yield _Misfit(what, p.name)


def _wrong_result(hints: dict[str, Any], schema: Schema) -> Iterator[_Misfit]:
    declared, annotated = result_types(hints, schema)
    if annotated is None:
        return
    is_narrower = gives(declared, annotated, with_shapes=False)
    if not is_narrower and not gives(annotated, declared, with_shapes=False):
        yield _Misfit(f"returns {annotated}, the operator {declared}")
