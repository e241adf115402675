"""Checks that functions and their overloads agree with the schema of an operator."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import repeat
from linecache import checkcache, getline
from types import FrameType, FunctionType
from typing import Any, get_overloads

import numpy as np

from customop.errors import (
    RegistrationError,
    SchemaError,
    did_you_mean,
    innermost,
    place,
    quoted,
    shown,
)
from customop.frozen import Frozen
from customop.schema.annotations import schema_type
from customop.schema.coerce import Mismatch, check_default
from customop.schema.infer import (
    PlainParameter,
    check_mutates_args,
    hints_of,
    outline_of,
    signature_of,
)
from customop.schema.schema import Schema
from customop.schema.types import (
    MISSING,
    POSITIONAL_ONLY,
    SCALAR,
    ArrayType,
    Base,
    Choice,
    ClassOf,
    DictOf,
    ListOf,
    Maybe,
    Parameter,
    SchemaType,
    TupleOf,
    holds_arrays,
)

# ---- checks that a function agrees with the schema of its operator ----


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
    """Describe how defaults of a function differ from those of a schema, or nothing.

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
    """Return the first type of a schema that the annotations of a function exclude.

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
    """Pair the parameters of a function with those of the schema that they get."""
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
    """Return the type that an annotation means; None where it says nothing."""
    hint = hints.get(name)
    if hint is None or hint is Any:
        return None
    try:
        return schema_type(hint)
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
    """Return the type of a schema's results, and the one that an annotation means."""
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


# The rules of type checkers.
_TAKEN: dict[str, tuple[str, ...]] = {
    "int": ("bool",),
    "float": ("bool", "int"),
    "complex": ("bool", "int", "float", "Scalar"),
    "Scalar": ("bool", "int", "float", "complex"),
    "str": ("device",),
    "device": ("str",),
}
# The rules of the contract of results.
_GIVEN: dict[str, tuple[str, ...]] = {
    "Scalar": ("bool", "int", "float", "complex"),
    "str": ("device",),
    "device": ("str",),
}


def takes(
    annotated: SchemaType, declared: SchemaType, *, with_shapes: bool = True
) -> bool:
    """Return whether a parameter takes all values of the type in the schema.

    A number may come in place of an array, since NumPy computes with it as with one.
    """
    return _fits(annotated, declared, _Relation(_TAKEN, with_shapes))


def gives(
    declared: SchemaType, annotated: SchemaType, *, with_shapes: bool = True
) -> bool:
    """Return whether results of an annotation's type can be those of the schema."""
    if _NOTHING in (declared, annotated):
        return declared == annotated
    return _fits(declared, annotated, _Relation(_GIVEN, with_shapes))


def _fits(wide: SchemaType, narrow: SchemaType, by: _Relation) -> bool:
    """Return whether all values of the narrow type are known to be of the wide one."""
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
    """Return the types of the items of a tuple, which may be a NamedTuple."""
    if isinstance(declared, TupleOf):
        return declared.items
    if isinstance(declared, ClassOf) and issubclass(declared.cls, tuple):
        return tuple(declared.items.values())
    return None


# ---- checks that the overloads of a function fit the schema of its operator ----
# The schema is that of the implementation. An overload is what a type checker reads:
# every call that it allows must be one that the operator takes.


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
    """Return the overloads above a function in its file.

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
    """Return whether the file still has an overload, which a reload may drop."""
    code = innermost(overload).__code__
    checkcache(code.co_filename)
    line = getline(code.co_filename, code.co_firstlineno)
    return not line or line.lstrip().startswith("@")


_STARS: dict[Any, str] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}


class _Misfit(Frozen):
    """A difference between an overload and a schema, and its parameter."""

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
    """Describe how the place or the name of a parameter differs, or nothing."""
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


# ---- parameters of a function compared with the arguments that it gets ----


def check_callable(qualname: str, what: str, fn: Any, *, kind: str = "") -> None:
    """Raise unless `fn` can be called."""
    if not callable(fn):
        raise RegistrationError(
            f"{qualname}: the {what} must be a function, got {shown(fn)}",
            do="pass a function, or use the method as a decorator",
            op=qualname,
            kind=kind or what,
        )


_LATER = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def check_returns_at_once(qualname: str, what: str, fn: Any) -> None:
    """Raise for a function whose call computes nothing yet: `async def`, or a generator."""
    inner = fn.func if isinstance(fn, partial) else getattr(fn, "__func__", fn)
    if type(inner) is FunctionType and inner.__code__.co_flags & _LATER:
        is_generator = bool(inner.__code__.co_flags & inspect.CO_GENERATOR)
        where = f"at {place(fn)}"
        raise computes_later(qualname, what, where, is_generator=is_generator)


def computes_later(
    qualname: str, what: str, *where: str, is_generator: bool
) -> RegistrationError:
    """Make the error for `async def`, or for a generator."""
    return RegistrationError(
        f"{qualname}: the {what} is {'a generator' if is_generator else 'async'}: its"
        " call computes nothing yet",
        *where,
        do="return the result: return [...] in place of yield"
        if is_generator
        else "write def, and asyncio.run(...) inside where you need it",
        op=qualname,
    )


def check_parameters(
    what: str,
    fn: Callable[..., Any],
    positional: Sequence[str],
    keywords: Sequence[str],
    *,
    free: int = 0,
    do: Callable[[], str] = str,
) -> None:
    """Raise unless `fn` takes these parameters.

    The first `free` parameters may have any names, and so may those that are
    positional-only or begin with an underscore. `do` is called only for an error.
    """
    if has_exactly(fn, positional, keywords, free):
        return
    given = parameters_of(fn)
    if given is None:
        return
    problem = mismatch(given, positional, keywords, free)
    if problem:
        raise RegistrationError(f"{what} {problem}", f"at {place(fn)}", do=do())


_VARIADIC = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS


def has_exactly(
    fn: object, positional: Sequence[str], keywords: Sequence[str], free: int = 0
) -> bool:
    """Return whether a plain function has these parameters, whatever their defaults.

    It takes 0.5 us; `inspect.signature` takes 15 us.
    """
    # `__wrapped__` and the like, in `__dict__`, can change the signature.
    if type(fn) is not FunctionType or fn.__dict__:
        return False
    if fn.__code__.co_flags & _VARIADIC:
        return False
    count, names = fn.__code__.co_argcount, fn.__code__.co_varnames
    end = count + fn.__code__.co_kwonlyargcount
    return (
        count == len(positional)
        and list(names[free:count]) == list(positional[free:])
        and sorted(names[count:end]) == sorted(keywords)
    )


def parameters_of(fn: Callable[..., Any]) -> list[inspect.Parameter] | None:
    """Return the parameters of a function, or None if their names are unknown.

    Those of builtins and ufuncs are: their first call shows whether they fit.
    """
    if isinstance(fn, np.ufunc):
        return None
    try:
        return list(inspect.signature(fn).parameters.values())
    except Exception:  # noqa: BLE001  # it compares objects of users
        return None


def mismatch(
    parameters: list[inspect.Parameter],
    positional: Sequence[str],
    keywords: Sequence[str],
    free: int = 0,
) -> str:
    """Describe how parameters of a function differ from its arguments, or nothing."""
    return _positional_mismatch(
        parameters, positional, keywords, free
    ) or _keyword_mismatch(parameters, positional, keywords)


def _positional_mismatch(
    parameters: list[inspect.Parameter],
    positional: Sequence[str],
    keywords: Sequence[str],
    free: int,
) -> str:
    by_place = (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
    )
    own = [p for p in parameters if p.kind in by_place]
    takes_any = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    rest = [p.name for p in own[len(positional) :] if p.default is p.empty]
    too_many = any(name not in keywords for name in rest)
    if too_many or (len(own) < len(positional) and not takes_any):
        has = ", ".join(p.name for p in own)
        return (
            f"takes ({has}) by position, but is called with ({', '.join(positional)})"
        )
    for index, (mine, name) in enumerate(zip(own, positional, strict=False)):
        if index >= free and mine.name != name and not _may_differ(mine):
            where = f"'{name}' (position {index})"
            return f"has the parameter '{mine.name}' where the schema has {where}"
    return ""


def _keyword_mismatch(
    parameters: list[inspect.Parameter],
    positional: Sequence[str],
    keywords: Sequence[str],
) -> str:
    by_name = {p.name for p in parameters if p.kind is not p.POSITIONAL_ONLY}
    takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
    needed = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    extra = [name for name in needed if name not in keywords]
    required = [p.name for p in parameters if p.name in extra and p.default is p.empty]
    if required:
        near = did_you_mean(required[0], [*keywords, *positional])
        return (
            f"needs the keyword-only parameter '{required[0]}', not in the schema{near}"
        )
    missing = [name for name in keywords if name not in by_name]
    if missing and not takes_any:
        other = f", has {quoted(extra)}" if extra else ""
        return f"lacks the keyword-only parameter '{missing[0]}' of the schema{other}"
    return ""


def _may_differ(parameter: inspect.Parameter) -> bool:
    return parameter.kind is parameter.POSITIONAL_ONLY or parameter.name.startswith("_")
