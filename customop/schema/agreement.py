"""Checks that a function agrees with the schema given for it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from customop.errors import SchemaError, place, quoted
from customop.schema.coerce import check_default
from customop.schema.fit import Mismatch
from customop.schema.infer import check_mutates_args
from customop.schema.parameters import MISSING, Parameter
from customop.schema.schema import Schema
from customop.schema.signatures import has_exactly, mismatch, parameters_of
from customop.schema.types import has_shape, holds_arrays

__all__ = ["check_agrees"]


def check_agrees(
    fn: Callable[..., Any], schema: Schema, mutates_args: Iterable[str] | str
) -> None:
    """Raise unless a schema string fits the function and `mutates_args`."""
    names = check_mutates_args(mutates_args)
    arrays = {p.name for p in schema.parameters if holds_arrays(p.type)}
    declared = arrays if names is None else names
    if declared != set(schema.written):
        raise SchemaError(
            f"mutates_args names {quoted(sorted(declared)) or 'nothing'}, the schema marks"
            f" {quoted(sorted(schema.written)) or 'nothing'} as written",
            str(schema),
            do="make them agree: 'Array(a!) x' is an array that is written",
        )
    if schema.has_shapes:
        _check_same_shapes(fn, schema)
    positional = [p.name for p in schema.positional]
    keywords = [p.name for p in schema.keyword_only]
    has_defaults = getattr(fn, "__defaults__", None) or getattr(
        fn, "__kwdefaults__", None
    )
    if has_exactly(fn, positional, keywords) and not has_defaults:
        return
    given = parameters_of(fn)
    if given is None:
        return
    problem = mismatch(given, positional, keywords) or _default_mismatch(given, schema)
    if problem:
        raise SchemaError(
            f"the function {getattr(fn, '__name__', type(fn).__name__)} {problem}",
            str(schema),
            f"at {place(fn)}",
            do="use the names and defaults of the schema, in its order, with its '*'",
        )


def _check_same_shapes(fn: Callable[..., Any], schema: Schema) -> None:
    """Raise if an annotation of the function has another shape than the schema."""
    try:
        own = Schema.infer(fn)
    except SchemaError:  # a schema may be given because annotations cannot make one
        return
    mine = {p.name: p.type for p in own.parameters}
    named = [
        (f"parameter '{p.name}'", p.type, mine.get(p.name)) for p in schema.parameters
    ]
    pairs = zip(schema.returns, own.returns, strict=False)
    named += [(f"result {i}", r.type, q.type) for i, (r, q) in enumerate(pairs)]
    for what, given, annotated in named:
        if annotated is None or given == annotated or not has_shape(given):
            continue
        if has_shape(annotated):
            raise SchemaError(
                f"{what} is {given} in the schema, and {annotated} in its annotation",
                str(schema),
                f"at {place(fn)}",
                do="write one shape in both places, or leave out the schema",
            )


def _default_mismatch(given: list[inspect.Parameter], schema: Schema) -> str:
    """How the defaults of a function differ from those of a schema, or nothing.

    A default that only the schema has is always passed to the function.
    """
    mine = {p.name: p.default for p in given if p.default is not p.empty}
    for p in schema.parameters:
        if p.name in mine and not _is_default(mine[p.name], p):
            says = "has none" if p.default is MISSING else f"says {p}"
            return f"has the default {p.name}={mine[p.name]!r} where the schema {says}"
    return ""


def _is_default(value: Any, p: Parameter) -> bool:
    try:
        return replace(p, default=check_default(value, p.type)) == p
    except Mismatch:
        return False
