"""Checks that a function agrees with the schema of its operator."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from itertools import repeat
from types import FrameType
from typing import Any

from customop.errors import SchemaError, innermost, place, quoted, shown
from customop.frozen import Frozen
from customop.schema.annotations import schema_type
from customop.schema.defaults import check_default
from customop.schema.fit import Mismatch
from customop.schema.infer import check_mutates_args, hints_of, signature_of
from customop.schema.outline import PlainParameter, outline_of
from customop.schema.parameters import MISSING, Parameter
from customop.schema.schema import Schema
from customop.schema.signatures import has_exactly, mismatch, parameters_of
from customop.schema.types import (
    SCALAR,
    ArrayType,
    Base,
    Choice,
    ClassOf,
    DictOf,
    ListOf,
    Maybe,
    SchemaType,
    TupleOf,
    holds_arrays,
)

__all__ = [
    "Contradiction",
    "check_agrees",
    "contradiction",
    "gives",
    "result_types",
    "takes",
    "type_of",
]


def check_agrees(
    fn: Callable[..., Any],
    schema: Schema,
    mutates_args: Iterable[str] | str,
    scope: FrameType | None = None,
) -> None:
    """Raise unless a schema string fits the function and `mutates_args`.

    Annotations that are strings may use the names of the frames from `scope` outwards,
    as for `Schema.infer`.
    """
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
    positional = [p.name for p in schema.positional]
    keywords = [p.name for p in schema.keyword_only]
    has_defaults = getattr(fn, "__defaults__", None) or getattr(
        fn, "__kwdefaults__", None
    )
    if not has_exactly(fn, positional, keywords) or has_defaults:
        _check_parameters(fn, schema, positional, keywords)
    found = contradiction(fn, schema, scope)
    if found is not None:
        raise SchemaError(
            f"{found.place} is {found.given} in the schema, and {found.annotated} in"
            " its annotation",
            schema.show("", found.parameter or "return"),
            f"at {place(fn)}",
            do="write the same type in both places, or leave out the schema",
            parameter=found.parameter or None,
        )


def _check_parameters(
    fn: Callable[..., Any], schema: Schema, positional: list[str], keywords: list[str]
) -> None:
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


def _default_mismatch(given: list[inspect.Parameter], schema: Schema) -> str:
    """How the defaults of a function differ from those of a schema, or nothing.

    A default that only the schema has is always passed to the function.
    """
    mine = {p.name: p.default for p in given if p.default is not p.empty}
    for p in schema.parameters:
        if p.name in mine and not _is_default(mine[p.name], p):
            says = "has none" if p.default is MISSING else f"says {p}"
            return f"has the default {p.name}={shown(mine[p.name])} where the schema {says}"
    return ""


def _is_default(value: Any, p: Parameter) -> bool:
    try:
        return p.replaced(default=check_default(value, p.type)) == p
    except Mismatch:
        return False


# ---- types ----


class Contradiction(Frozen):
    """A type of a schema that an annotation of a function excludes.

    Attributes
    ----------
    parameter : str
        Name of the parameter in the schema; empty for a result.
    place : str
        The parameter or result in words.
    given, annotated : str
        The type in the schema, and the one that the annotation means.
    """

    parameter: str
    place: str
    given: str
    annotated: str


def contradiction(
    fn: Callable[..., Any],
    schema: Schema,
    scope: FrameType | None = None,
    *,
    with_shapes: bool = True,
) -> Contradiction | None:
    """The first type of a schema that the annotations of a function exclude, if any.

    The function gets its arguments as the schema says. So an annotation may be wider
    than the schema at a parameter, and narrower at a result. One that has no schema
    type, or uses a name that is gone, says nothing. A kernel may name the axes of its
    arrays as it likes: `with_shapes` is False for those.
    """
    if not getattr(innermost(fn), "__annotations__", None):
        return None
    outline = outline_of(fn, scope)
    parameters: Sequence[PlainParameter | inspect.Parameter]
    if outline is not None:
        parameters, hints = outline.parameters, dict(outline.hints)
    else:
        try:
            signature = signature_of(fn)
        except SchemaError:  # its first call shows whether it fits
            return None
        parameters = [*signature.parameters.values()]
        hints = hints_of(fn, scope, signature)
    for mine, p in _pairs(parameters, schema):
        annotated = type_of(hints, mine.name)
        if annotated is None:
            continue
        if mine.default is None:  # as type checkers once read it
            annotated = Maybe(annotated)
        if not takes(annotated, p.type, with_shapes=with_shapes):
            where = f"parameter '{p.name}'"
            return Contradiction(p.name, where, str(p.type), str(annotated))
    return _contradicted_result(hints, schema, with_shapes)


def _pairs(
    parameters: Sequence[PlainParameter | inspect.Parameter], schema: Schema
) -> list[tuple[PlainParameter | inspect.Parameter, Parameter]]:
    """Parameters of a function, each with that of the schema that it gets."""
    places = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    )
    by_place = [p for p in parameters if p.kind in places]
    by_name = {p.name: p for p in parameters}
    pairs = [*zip(by_place, schema.positional, strict=False)]
    named = [p for p in schema.keyword_only if p.name in by_name]
    return [*pairs, *((by_name[p.name], p) for p in named)]


def type_of(hints: dict[str, Any], name: str) -> SchemaType | None:
    """The type that an annotation means; None where it says nothing."""
    if hints.get(name) is None:
        return None
    try:
        return schema_type(hints[name])
    except SchemaError:
        return None


_NOTHING = TupleOf(())


def _contradicted_result(
    hints: dict[str, Any], schema: Schema, with_shapes: bool
) -> Contradiction | None:
    declared, annotated = result_types(hints, schema)
    if annotated is None or gives(declared, annotated, with_shapes=with_shapes):
        return None
    place = "the result"
    if isinstance(declared, TupleOf) and isinstance(annotated, TupleOf):
        pairs = [*zip(declared.items, annotated.items, strict=False)]
        fits = [gives(*pair, with_shapes=with_shapes) for pair in pairs]
        wrong = [i for i, does_fit in enumerate(fits) if not does_fit]
        if wrong and len(declared.items) == len(annotated.items):
            place = f"result {wrong[0]}"
            declared, annotated = pairs[wrong[0]]
    return Contradiction("", place, str(declared), str(annotated))


def result_types(
    hints: dict[str, Any], schema: Schema
) -> tuple[SchemaType, SchemaType | None]:
    """The type of a schema's results, and the one that an annotation means."""
    is_none = hints.get("return", ...) in (None, type(None))
    annotated = _NOTHING if is_none else type_of(hints, "return")
    types = tuple(r.type for r in schema.returns)
    declared = TupleOf(types) if schema.is_tuple or not types else types[0]
    return declared, annotated


class _Relation(Frozen):
    """A sense in which values of one type are values of another.

    Attributes
    ----------
    also : dict
        Name of a type -> names of other types whose values it has.
    shapes : bool
        Whether arrays must have the same shape, where both types have one.
    """

    also: dict[str, tuple[str, ...]]
    shapes: bool


# As type checkers have it.
_TAKEN: dict[str, tuple[str, ...]] = {
    "int": ("bool",),
    "float": ("bool", "int"),
    "complex": ("bool", "int", "float", "Scalar"),
    "Scalar": ("bool", "int", "float", "complex"),
    "str": ("device",),
    "device": ("str",),
}
# As the contract of results has it.
_GIVEN: dict[str, tuple[str, ...]] = {
    "Scalar": ("bool", "int", "float", "complex"),
    "str": ("device",),
    "device": ("str",),
}


def takes(
    annotated: SchemaType, declared: SchemaType, *, with_shapes: bool = True
) -> bool:
    """Whether a parameter takes all values of the type in the schema.

    A number may come in place of an array, since NumPy computes with it as with one.
    """
    return _fits(annotated, declared, _Relation(_TAKEN, with_shapes))


def gives(
    declared: SchemaType, annotated: SchemaType, *, with_shapes: bool = True
) -> bool:
    """Whether results of the type in an annotation can be those of the schema."""
    if _NOTHING in (declared, annotated):
        return declared == annotated
    return _fits(declared, annotated, _Relation(_GIVEN, with_shapes))


def _fits(wide: SchemaType, narrow: SchemaType, by: _Relation) -> bool:
    """Whether values of the narrow type are values of the wide one, if that is known."""
    fits = _FITS.get(type(wide))
    return wide == narrow if fits is None else fits(wide, narrow, by)


def _fits_maybe(wide: Maybe, narrow: SchemaType, by: _Relation) -> bool:
    return _fits(wide.item, narrow.item if isinstance(narrow, Maybe) else narrow, by)


def _fits_array(wide: ArrayType, narrow: SchemaType, by: _Relation) -> bool:
    if not isinstance(narrow, ArrayType):
        return wide.or_number and _fits(SCALAR, narrow, by)
    if not by.shapes or wide.shape is None or narrow.shape is None:
        return True
    return narrow.replaced(or_number=wide.or_number) == wide


def _fits_dict(wide: DictOf, narrow: SchemaType, by: _Relation) -> bool:
    return isinstance(narrow, DictOf) and _fits(wide.item, narrow.item, by)


def _fits_choice(wide: Choice, narrow: SchemaType, by: _Relation) -> bool:
    if not isinstance(narrow, Choice):
        return False
    return {*map(repr, narrow.options)} <= {*map(repr, wide.options)}


def _fits_base(wide: Base, narrow: SchemaType, by: _Relation) -> bool:
    name = narrow.name if isinstance(narrow, Base | Choice) else ""
    return name == wide.name or name in by.also.get(wide.name, ())


def _fits_list(wide: ListOf, narrow: SchemaType, by: _Relation) -> bool:
    if isinstance(narrow, ListOf):
        return _fits(wide.item, narrow.item, by)
    items = _items(narrow)
    if items is None or wide.length not in (None, len(items)):
        return False
    return all(_fits(wide.item, item, by) for item in items)


def _fits_tuple(wide: TupleOf, narrow: SchemaType, by: _Relation) -> bool:
    if isinstance(narrow, ListOf):
        if narrow.length != len(wide.items) and not narrow.is_tuple:
            return False
        return all(_fits(item, narrow.item, by) for item in wide.items)
    items = _items(narrow)
    if items is None or len(items) != len(wide.items):
        return False
    return all(map(_fits, wide.items, items, repeat(by)))


_FITS: dict[type, Callable[[Any, SchemaType, _Relation], bool]] = {
    Maybe: _fits_maybe,
    ArrayType: _fits_array,
    DictOf: _fits_dict,
    Choice: _fits_choice,
    Base: _fits_base,
    ListOf: _fits_list,
    TupleOf: _fits_tuple,
}


def _items(declared: SchemaType) -> tuple[SchemaType, ...] | None:
    """The types of the items of a tuple, which may be a NamedTuple."""
    if isinstance(declared, TupleOf):
        return declared.items
    if isinstance(declared, ClassOf) and issubclass(declared.cls, tuple):
        return tuple(declared.items.values())
    return None
