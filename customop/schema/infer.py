"""Schemas from the signatures and type hints of functions.

Reading a signature by `inspect` and evaluating three hints by `typing` takes 30 us. Most
functions are plain, and their hints are classes: those are read from the code in 5 us.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from customop.errors import (
    SchemaError,
    caret,
    did_you_mean,
    innermost,
    items_of,
    place,
    quoted,
    shown,
)
from customop.frozen import Frozen
from customop.schema.annotations import (
    is_fixed,
    meet_classes,
    schema_type,
    show_annotation,
)
from customop.schema.coerce import Mismatch, check_default
from customop.schema.types import (
    GENERATOR,
    KEYWORD_ONLY,
    MISSING,
    POSITIONAL,
    POSITIONAL_ONLY,
    Alias,
    Parameter,
    Return,
    SchemaType,
    TupleOf,
    holds_arrays,
    is_single_array,
    is_too_deep,
)
from customop.shapes.notation import as_name

# ---- schemas from the type hints of functions ----


_KINDS: dict[Any, str] = {
    inspect.Parameter.POSITIONAL_ONLY: POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD: POSITIONAL,
    inspect.Parameter.KEYWORD_ONLY: KEYWORD_ONLY,
}
_GIVE_SCHEMA = 'give the schema as a string: schema="(Array x) -> Array"'


class _Inferred(Frozen):
    """A function under inference, for messages."""

    fn: Callable[..., Any]
    signature: inspect.Signature

    @property
    def name(self) -> str:
        return str(getattr(innermost(self.fn), "__name__", type(self.fn).__name__))

    @property
    def is_plain(self) -> bool:
        """Return whether it has no annotation, like lambdas and builtins."""
        hints = [p.annotation for p in self.signature.parameters.values()]
        hints.append(self.signature.return_annotation)
        return all(hint is inspect.Signature.empty for hint in hints)

    def error(
        self, reason: str, fragment: str = "", do: str = "", parameter: str = ""
    ) -> SchemaError:
        text = f"{self.name}{_shown(self.signature)}"
        return SchemaError(
            f"{self.name}: {reason}",
            caret(text, fragment, len(self.name)),
            f"at {place(self.fn)}",
            do=do,
            parameter=parameter or None,
        )


class _Text:
    """An annotation or default that prints as a user would write it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _shown(signature: inspect.Signature) -> inspect.Signature:
    """Return a signature that prints as a user would write it."""
    result = signature.return_annotation
    return signature.replace(
        parameters=[_shown_parameter(p) for p in signature.parameters.values()],
        return_annotation=result
        if result is signature.empty
        else _Text(show_annotation(result)),
    )


def _shown_parameter(p: inspect.Parameter) -> inspect.Parameter:
    if p.annotation is not p.empty:
        p = p.replace(annotation=_Text(show_annotation(p.annotation)))
    return p if p.default is p.empty else p.replace(default=_Text(shown(p.default)))


def infer(
    fn: Callable[..., Any],
    mutates_args: Iterable[str] | str,
    scope: types.FrameType | None = None,
) -> tuple[tuple[Parameter, ...], tuple[Return, ...], bool]:
    """Return parameters and results of a function, and whether these are a tuple.

    Raises
    ------
    SchemaError
        If a hint is missing or has no schema type, a default does not fit, or
        `mutates_args` names something other than an array parameter.
    """
    source = _Inferred(fn, signature_of(fn))
    hints = _hints_of(source, scope)
    for hint in hints.values():
        meet_classes(hint, lambda: names_around(innermost(fn), scope))
    given = source.signature.parameters.values()
    plain = [_infer_parameter(source, p, hints) for p in given]
    written = _written_names(source, plain, mutates_args)
    names = iter(_alias_names(len(written)))
    parameters = tuple(
        p.replaced(alias=Alias(next(names), True)) if p.name in written else p
        for p in plain
    )
    return (parameters, *_infer_returns(source, hints))


def key_of(outline: PlainSignature, mutates_args: Any) -> Any:
    """Return all that a schema depends on; None if that cannot be compared."""
    hints = outline.hints
    given = outline.parameters
    if mutates_args != "unknown":
        if type(mutates_args) not in (list, tuple):
            return None
        mutates_args = tuple(mutates_args)
    is_known = (
        all(type(name) is str for name in mutates_args)
        and all(p.name in hints and is_fixed(hints[p.name]) for p in given)
        and "return" in hints
        and (hints["return"] is None or is_fixed(hints["return"]))
        and all(p.default is _EMPTY or type(p.default) in _CONSTANT for p in given)
    )
    return is_known and (
        mutates_args,
        hints["return"],
        *[(p.name, p.kind, hints[p.name], *_exactly(p.default)) for p in given],
    )


def _exactly(default: Any) -> tuple[Any, ...]:
    """Wrap a constant so that it equals itself alone: 1 is not True, 0.0 not -0.0."""
    kind = type(default)
    return kind, str(default) if kind is float or kind is complex else default


_CONSTANT = frozenset((int, float, bool, complex, str, type(None)))


def _alias_names(count: int) -> list[str]:
    letters = "abcdefghijklmnopqrstuvwxyz"
    return [letters[i] if i < 26 else f"a{i}" for i in range(count)]


def signature_of(fn: Callable[..., Any]) -> inspect.Signature:
    """Return the signature of a function, also behind decorators (`__wrapped__`)."""
    try:
        return inspect.signature(fn)
    except Exception:  # noqa: BLE001  # it compares and prints objects of users
        if callable(fn):
            raise SchemaError(
                f"{shown(fn)} has no signature that Python can read", do=_GIVE_SCHEMA
            ) from None
        raise SchemaError(
            f"{shown(fn)} is not a function", do="pass a function with type hints"
        ) from None


# ---- hints, evaluated where the function was defined ----


def _hints_of(source: _Inferred, scope: types.FrameType | None) -> dict[str, Any]:
    hints = _written_hints(source)
    if not any(_has_text(hint) for hint in hints.values()):
        return hints
    return _evaluated(source, hints, scope)


def _written_hints(source: _Inferred) -> dict[str, Any]:
    signature, empty = source.signature, inspect.Signature.empty
    hints = {name: p.annotation for name, p in signature.parameters.items()}
    hints["return"] = signature.return_annotation
    return {name: hint for name, hint in hints.items() if hint is not empty}


def _evaluated(
    source: _Inferred, hints: dict[str, Any], scope: types.FrameType | None
) -> dict[str, Any]:
    for name, hint in hints.items():
        if isinstance(hint, str) and not hint.strip(" '\""):
            what = "the result" if name == "return" else f"parameter '{name}'"
            raise source.error(
                f"{what} has an empty annotation",
                do="write its type, such as Array",
                parameter="" if name == "return" else name,
            )
    fn = innermost(source.fn)
    holder = types.SimpleNamespace(__annotations__=hints)
    try:
        return typing.get_type_hints(
            holder, getattr(fn, "__globals__", {}), names_around(fn, scope), True
        )
    except NameError as error:
        missing = str(error.name)
        what, do = undefined(missing)
        raise source.error(what, missing, do=do) from None
    except Exception as error:  # it is code of the user, which may raise anything
        raise source.error(
            f"an annotation cannot be evaluated: {error or type(error).__name__}",
            do="write it so that Python can evaluate it, or give the schema as a string",
        ) from error


def undefined(name: str) -> tuple[str, str]:
    """Return the fault and the remedy for a name that an annotation cannot find."""
    return (
        f"annotation names '{name}', which is not defined there",
        f"define or import {name} before the operator",
    )


def hints_of(
    fn: Callable[..., Any],
    scope: types.FrameType | None = None,
    signature: inspect.Signature | None = None,
) -> dict[str, Any]:
    """Return the hints of a function by parameter, and by ``"return"``.

    A hint is left out if its name is gone, as a class in a function that has returned.
    Reading the signature takes 13 us, so it is taken where it is known.
    """
    source = _Inferred(fn, signature or signature_of(fn))
    found = _written_hints(source)
    texts = {name: hint for name, hint in found.items() if _has_text(hint)}
    if not texts:
        return found
    try:
        return found | _evaluated(source, texts, scope)
    except SchemaError:  # of one hint: the others are evaluated one by one
        pass
    for name, hint in texts.items():
        try:
            found |= _evaluated(source, {name: hint}, scope)
        except SchemaError:
            del found[name]
    return found


def _has_text(hint: Any) -> bool:
    """Return whether a hint is a string or holds one that must be evaluated."""
    if type(hint) is type:
        return False
    if isinstance(hint, str | typing.ForwardRef):
        return True
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return _has_text(typing.get_args(hint)[0])
    if origin is typing.Literal:
        return False
    return any(_has_text(item) for item in typing.get_args(hint) if item is not hint)


# ---- parameters and results ----


def _infer_parameter(
    source: _Inferred, p: inspect.Parameter, hints: dict[str, Any]
) -> Parameter:
    if p.kind not in _KINDS:
        star = "*" if p.kind is p.VAR_POSITIONAL else "**"
        raise source.error(
            f"parameter '{star}{p.name}' has no fixed number of arguments",
            str(_shown_parameter(p)),
            do=f"write {p.name}: list[Array], or separate parameters",
            parameter=p.name,
        )
    if p.name not in hints:
        raise source.error(
            f"parameter '{p.name}' has no annotation",
            str(_shown_parameter(p)),
            do=_annotate(source, p),
            parameter=p.name,
        )
    try:
        found = schema_type(hints[p.name])
    except SchemaError as error:
        raise _at(
            source, f"parameter '{p.name}' has", str(_shown_parameter(p)), error, p.name
        ) from None
    if is_too_deep(found):
        raise source.error(
            f"parameter '{p.name}' has an annotation that is nested too deeply",
            do="put the values into one array",
            parameter=p.name,
        )
    return Parameter(p.name, found, _infer_default(source, p, found), _KINDS[p.kind])


def _annotate(source: _Inferred, p: inspect.Parameter) -> str:
    if p.name in ("self", "cls"):
        return "use a function or a static method, which have no self"
    if source.is_plain:
        return (
            f"annotate every parameter, such as {p.name}: np.ndarray, or {_GIVE_SCHEMA}"
        )
    return f"write {p.name}: np.ndarray, or its type"


def _at(
    source: _Inferred,
    start: str,
    fragment: str,
    inner: SchemaError,
    parameter: str = "",
) -> SchemaError:
    """Make the error of an annotation, with the function that has it."""
    error = source.error(f"{start} {inner.what}", fragment, inner.do, parameter)
    error.where = (*error.where, *inner.where)
    return error


def _infer_default(
    source: _Inferred, p: inspect.Parameter, declared: SchemaType
) -> Any:
    if p.default is p.empty:
        return MISSING
    try:
        return check_default(p.default, declared)
    except Mismatch as error:
        raise source.error(
            f"parameter '{p.name}' has the default {shown(p.default)}: {error}",
            str(_shown_parameter(p)),
            do=_other_default(p, declared),
            parameter=p.name,
        ) from None


def _other_default(p: inspect.Parameter, declared: SchemaType) -> str:
    has_none_only = declared == GENERATOR or is_single_array(declared)
    if p.default is None or has_none_only:
        return f"write {p.name}: Optional[{show_annotation(p.annotation)}] = None"
    if isinstance(p.default, list):
        return f"write the default {shown(tuple(p.default))}"
    return f"give a default of type {declared}"


def _infer_returns(
    source: _Inferred, hints: dict[str, Any]
) -> tuple[tuple[Return, ...], bool]:
    if "return" not in hints:
        raise source.error(
            "the result has no annotation",
            do="write -> np.ndarray, or its type, or -> None",
        )
    hint = hints["return"]
    if hint is None or hint is type(None):
        return (), False
    try:
        found = schema_type(hint)
    except SchemaError as error:
        shown = show_annotation(source.signature.return_annotation)
        raise _at(source, "the result has", f"-> {shown}", error) from None
    if isinstance(found, TupleOf):
        return tuple(Return(item) for item in found.items), True
    return (Return(found),), False


# ---- what is written ----


def _written_names(
    source: _Inferred,
    parameters: Sequence[Parameter],
    mutates_args: Iterable[str] | str,
) -> set[str]:
    arrays = [p.name for p in parameters if holds_arrays(p.type)]
    names = check_mutates_args(mutates_args)
    if names is None:
        return set(arrays)
    for name in sorted(names - set(arrays)):
        raise _not_written(source, name, arrays)
    return names


def _not_written(source: _Inferred, name: str, arrays: list[str]) -> SchemaError:
    known = source.signature.parameters
    if name in known:
        what, fragment = "is not an array", str(_shown_parameter(known[name]))
    else:
        what, fragment = f"is not a parameter{did_you_mean(name, known)}", ""
    return source.error(
        f"mutates_args names '{name}', which {what}",
        fragment,
        do=f"name array parameters: {quoted(arrays) or 'there are none'}",
        parameter=name,
    )


def check_mutates_args(mutates_args: Iterable[str] | str) -> set[str] | None:
    """Return the names as a set, or None for ``"unknown"``."""
    if isinstance(mutates_args, str):
        if mutates_args == "unknown":
            return None
        raise _no_names(mutates_args, f"({shown(mutates_args)},)")
    names = items_of(mutates_args)
    if names is not None and all(isinstance(name, str) for name in names):
        return {as_name(name) for name in names}
    raise _no_names(mutates_args, "('x',)")


def _no_names(mutates_args: object, instead: str) -> SchemaError:
    return SchemaError(
        f"mutates_args={shown(mutates_args)} is neither names nor 'unknown'",
        do=f"write mutates_args=() or mutates_args={instead}",
    )


# ---- signatures of functions, read fast, and the names around them ----


class PlainParameter:
    """A parameter of a function, as an `inspect.Parameter` names its attributes."""

    __slots__ = ("default", "kind", "name")

    def __init__(self, name: str, kind: Any, default: Any) -> None:
        self.name: str = name
        self.kind: Any = kind
        self.default: Any = default


class PlainSignature(Frozen):
    """The parameters of a function, and the hints by their names and ``"return"``."""

    parameters: list[PlainParameter]
    hints: dict[str, type | None]


_VARIADIC = 0x04 | 0x08


def outline_of(
    fn: Callable[..., Any], scope: types.FrameType | None = None
) -> PlainSignature | None:
    """Return parameters and hints of a plain function whose hints are classes, or None.

    Hints that are text may use the names of the frames from `scope` outwards.
    """
    # `__wrapped__` and the like, in `__dict__`, can change the signature.
    if type(fn) is not types.FunctionType or fn.__dict__:
        return None
    code = fn.__code__
    if code.co_flags & _VARIADIC:
        return None
    hints = _classes_of_hints(fn, scope)
    if hints is None:
        return None
    count, by_place = code.co_argcount, code.co_posonlyargcount
    end = count + code.co_kwonlyargcount
    defaults: dict[str, Any] = dict(fn.__kwdefaults__ or ())
    own = fn.__defaults__ or ()
    defaults.update(zip(code.co_varnames[count - len(own) : count], own, strict=True))
    kinds = (
        *(inspect.Parameter.POSITIONAL_ONLY,) * by_place,
        *(inspect.Parameter.POSITIONAL_OR_KEYWORD,) * (count - by_place),
        *(inspect.Parameter.KEYWORD_ONLY,) * (end - count),
    )
    pairs = zip(code.co_varnames, kinds, strict=False)
    found = [
        PlainParameter(name, kind, defaults.get(name, _EMPTY)) for name, kind in pairs
    ]
    return PlainSignature(found, hints)


_EMPTY = inspect.Parameter.empty


def _classes_of_hints(
    fn: types.FunctionType, scope: types.FrameType | None
) -> dict[str, type | None] | None:
    """Return the classes that annotations are; None if one of them is not a class."""
    found: dict[str, type | None] = {}
    names: dict[str, Any] | None = None
    for name, hint in fn.__annotations__.items():
        value = hint
        if type(hint) is str:
            if names is None:
                names = names_around(fn, scope)
            try:
                value = eval(_compiled(hint), fn.__globals__, names)  # noqa: S307  # text of the user's program
            except Exception:  # noqa: BLE001  # it says nothing, or raises an error there
                return None
        # `list[int]` is an instance of type, but its class is not.
        if value is not None and not issubclass(type(value), type):
            return None
        found[name] = value
    return found


@lru_cache(maxsize=512)
def _compiled(text: str) -> types.CodeType:
    return compile(text.lstrip(), "<annotation>", "eval")


# ---- names around a function ----


def names_around(fn: Any, scope: types.FrameType | None) -> dict[str, Any]:
    """Return the names around a function, without its module, outermost first."""
    names: dict[str, Any] = {}
    for frame in reversed(list(_enclosing(fn, scope))):
        names.update(frame.f_locals)
    names.update(_closure(fn))
    names.update({p.__name__: p for p in getattr(fn, "__type_params__", ())})
    return names


def _enclosing(fn: Any, scope: types.FrameType | None) -> Iterator[types.FrameType]:
    """Return the running frames that contain a function's code, innermost first."""
    code = getattr(fn, "__code__", None)
    file = getattr(code, "co_filename", None)
    while scope is not None:
        outer = scope.f_code
        # Code of another file is ruled out first: `f_locals` is made again each time.
        is_near = outer.co_filename == file and scope.f_locals is not scope.f_globals
        if is_near and _holds(outer, code):
            yield scope
        scope = scope.f_back


def _holds(outer: types.CodeType, inner: object) -> bool:
    """Return whether code contains other code, at any depth."""
    nested = [c for c in outer.co_consts if isinstance(c, types.CodeType)]
    return any(c is inner or _holds(c, inner) for c in nested)


def _closure(fn: Any) -> dict[str, Any]:
    """Return the names that a function takes from the functions around it."""
    names = getattr(getattr(fn, "__code__", None), "co_freevars", ())
    filled = {}
    for name, cell in zip(names, getattr(fn, "__closure__", None) or (), strict=True):
        try:
            filled[name] = cell.cell_contents
        except ValueError:  # a cell that is filled later
            continue
    return filled
