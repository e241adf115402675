"""Schemas: inferred from a function, parsed from a string, printed, and obeyed."""

from __future__ import annotations

import ast
import inspect
import json
import math
import operator
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np
import typing_extensions

from customop.annotations import (
    ARRAY,
    DEVICE,
    NAMES,
    OPERAND,
    Base,
    ListOf,
    Maybe,
    SchemaType,
    TupleOf,
    holds_arrays,
    is_single_array,
    parts,
    schema_type,
    show_annotation,
)
from customop.devices import normalize_device
from customop.errors import (
    ArgumentError,
    SchemaError,
    caret,
    did_you_mean,
    place,
    quoted,
)
from customop.kinds import mismatch

__all__ = ["Alias", "Parameter", "Return", "Schema", "infer_schema"]


class _Missing:
    def __repr__(self) -> str:
        return "<no default>"


MISSING: Final = _Missing()

POSITIONAL_ONLY: Final = "positional_only"
POSITIONAL: Final = "positional"
KEYWORD_ONLY: Final = "keyword_only"


@dataclass(frozen=True, slots=True)
class Alias:
    """The name of a memory that values share, and whether it is written."""

    name: str
    is_write: bool = False

    def __str__(self) -> str:
        return f"({self.name}{'!' if self.is_write else ''})"


def _typed(kind: SchemaType, alias: Alias | None) -> str:
    """A type with its alias behind the word `Array`, as in ``Array(a!)[]``."""
    text = str(kind)
    return text if alias is None else text.replace("Array", f"Array{alias}", 1)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of an operator.

    Attributes
    ----------
    name : str
    type : SchemaType
    default : object
        `MISSING` where the argument is required.
    kind : str
        ``"positional_only"``, ``"positional"`` or ``"keyword_only"``.
    alias : Alias or None
    """

    name: str
    type: SchemaType
    default: Any = MISSING
    kind: str = POSITIONAL
    alias: Alias | None = None

    @property
    def is_written(self) -> bool:
        """Whether the operator writes into this argument."""
        return self.alias is not None and self.alias.is_write

    def __str__(self) -> str:
        text = f"{_typed(self.type, self.alias)} {self.name}"
        if self.default is MISSING:
            return text
        return f"{text}={_print_value(self.default, self.type)}"


@dataclass(frozen=True, slots=True)
class Return:
    """One result of an operator."""

    type: SchemaType
    name: str = ""
    alias: Alias | None = None

    def __str__(self) -> str:
        text = _typed(self.type, self.alias)
        return f"{text} {self.name}" if self.name else text


@dataclass(frozen=True)
class Schema:
    """What an operator takes and gives.

    Attributes
    ----------
    parameters : tuple of Parameter
        Positional ones first, in order, then keyword-only ones.
    returns : tuple of Return
        Empty where the operator returns None.
    is_tuple : bool
        Whether the results come as a tuple: false for a single result or none.

    Examples
    --------
    >>> import customop as co
    >>> schema = co.Schema.parse("(Array(a!) x, int y=1, *, float? z=None) -> ()")
    >>> print(schema)
    (Array(a!) x, int y=1, *, float? z=None) -> ()
    >>> [p.name for p in schema.parameters if p.is_written]
    ['x']
    """

    parameters: tuple[Parameter, ...]
    returns: tuple[Return, ...]
    is_tuple: bool = field(default=False)

    @cached_property
    def positional(self) -> tuple[Parameter, ...]:
        """Parameters that can be passed by position."""
        return tuple(p for p in self.parameters if p.kind != KEYWORD_ONLY)

    @cached_property
    def keyword_only(self) -> tuple[Parameter, ...]:
        """Parameters that can only be passed by name."""
        return tuple(p for p in self.parameters if p.kind == KEYWORD_ONLY)

    @cached_property
    def array_slots(self) -> tuple[int, ...]:
        """Places of the parameters that are one array each."""
        return tuple(
            i for i, p in enumerate(self.parameters) if is_single_array(p.type)
        )

    @cached_property
    def nested_slots(self) -> tuple[int, ...]:
        """Places of the parameters that hold arrays inside lists and the like."""
        return tuple(
            i
            for i, p in enumerate(self.parameters)
            if holds_arrays(p.type) and not is_single_array(p.type)
        )

    @cached_property
    def written(self) -> tuple[str, ...]:
        """Names of the parameters that the operator writes."""
        return tuple(p.name for p in self.parameters if p.is_written)

    @cached_property
    def single_return(self) -> bool:
        """Whether the result is one array."""
        return (
            len(self.returns) == 1
            and not self.is_tuple
            and self.returns[0].type == ARRAY
        )

    @cached_property
    def device_slot(self) -> int | None:
        """Place of the parameter that names the device, if there is one."""
        for i, p in enumerate(self.parameters):
            if DEVICE in (p.type, getattr(p.type, "item", None)) and p.name == "device":
                return i
        return None

    def index(self, name: str) -> int:
        """Place of a parameter."""
        return [p.name for p in self.parameters].index(name)

    def __str__(self) -> str:
        return f"({self._parameters_text()}) -> {self._returns_text()}"

    def _parameters_text(self) -> str:
        texts: list[str] = []
        previous = ""
        for p in self.parameters:
            if previous == POSITIONAL_ONLY and p.kind != POSITIONAL_ONLY:
                texts.append("/")
            if p.kind == KEYWORD_ONLY and previous != KEYWORD_ONLY:
                texts.append("*")
            texts.append(str(p))
            previous = p.kind
        return ", ".join([*texts, "/"] if previous == POSITIONAL_ONLY else texts)

    def _returns_text(self) -> str:
        if not self.is_tuple and len(self.returns) == 1:
            text = str(self.returns[0])
            needs_parentheses = text.startswith("(") or " " in text
            return f"({text})" if needs_parentheses else text
        inside = ", ".join(str(r) for r in self.returns)
        return f"({inside},)" if len(self.returns) == 1 else f"({inside})"

    def show(self, qualname: str, parameter: str = "") -> str:
        """The schema in a line, with carets under a parameter."""
        text = f"{qualname}{self}"
        for p in self.parameters:
            if p.name == parameter:
                return caret(text, str(p), len(qualname))
        return text

    @classmethod
    def parse(cls, text: str) -> Schema:
        """Read a schema in torch's grammar, with `Array` or `Tensor` for arrays.

        Parameters
        ----------
        text : str
            Such as ``"(Array x, int[] shape, *, float? eps=None) -> Array"``.

        Returns
        -------
        Schema

        Raises
        ------
        SchemaError
            If the text does not follow the grammar; a caret shows the place.
        """
        if not isinstance(text, str):
            raise SchemaError(
                f"a schema is a string, got {text!r}", do='write "(Array x) -> Array"'
            )
        return _parse(text)

    @classmethod
    def infer(
        cls,
        fn: Callable[..., Any],
        mutates_args: Iterable[str] | str = (),
        local_names: Mapping[str, Any] | None = None,
    ) -> Schema:
        """Infer a schema from type hints; see `infer_schema`."""
        return _infer(fn, mutates_args, local_names or {})


# ---- printing and reading values ----


def _print_value(value: Any, kind: SchemaType) -> str:
    if value is None:
        return "None"
    if isinstance(kind, Maybe):
        return _print_value(value, kind.item)
    if isinstance(value, tuple):
        return _print_items(value, kind)
    if isinstance(value, str) and kind != DEVICE:
        return _quote(value)
    if isinstance(value, np.dtype):
        return str(value) if value.names is None else repr(value.str)
    return _quote(value) if isinstance(value, str) else repr(value)


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _print_items(values: tuple[Any, ...], kind: SchemaType) -> str:
    if isinstance(kind, TupleOf):
        texts = [_print_value(v, k) for v, k in zip(values, kind.items, strict=True)]
        return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"
    item = kind.item if isinstance(kind, ListOf) else kind
    return f"[{', '.join(_print_value(v, item) for v in values)}]"


_CONSTANTS = {"inf": math.inf, "nan": math.nan, "infj": complex(0, math.inf)}


def _read_value(text: str, kind: SchemaType) -> Any:
    """The value that `_print_value` printed."""
    if isinstance(kind, Maybe):
        return None if text == "None" else _read_value(text, kind.item)
    if text[:1] in "[(" and isinstance(kind, ListOf | TupleOf):
        inside = [t for t, _ in _split(text[1:-1]) if t]
        kinds = kind.items if isinstance(kind, TupleOf) else [kind.item] * len(inside)
        if len(kinds) != len(inside):
            raise ValueError(text)
        return tuple(_read_value(t, k) for t, k in zip(inside, kinds, strict=True))
    if text in ("true", "false"):
        return text == "true"
    if kind == NAMES["dtype"] and text[:1] not in "'\"":
        return np.dtype(text)
    return _read_literal(text)


def _read_literal(text: str) -> Any:
    if text.startswith('"'):
        return json.loads(text)
    tree = ast.parse(text, mode="eval")
    return _evaluate(tree.body)


def _evaluate(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name) and node.id in (*_CONSTANTS, "nanj"):
        return _CONSTANTS.get(node.id, complex(0, math.nan))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate(node.operand)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
        sign = 1 if isinstance(node.op, ast.Add) else -1
        imaginary = _evaluate(node.right).imag
        return complex(_evaluate(node.left), sign * imaginary)
    raise ValueError(ast.unparse(node))


# ---- parsing ----

_TYPE = re.compile(
    r"(?P<name>Array(\((?P<alias>[a-zA-Z_]\w*)(?P<write>!?)\))?\|Scalar"
    r"|[A-Za-z_][\w.]*)(\((?P<alias2>[a-zA-Z_]\w*)(?P<write2>!?)\))?"
)
_SUFFIX = re.compile(r"\?|\[(\d*)\]")
_OPEN, _CLOSE = "([{", ")]}"


class _SyntaxError(Exception):
    """A reason and the place in the text that it concerns."""

    def __init__(self, reason: str, at: int, width: int = 1) -> None:
        super().__init__(reason)
        self.reason, self.at, self.width = reason, at, width


def _split(text: str, start: int = 0) -> list[tuple[str, int]]:
    """Parts between commas outside brackets and quotes, with their places."""
    found: list[tuple[str, int]] = []
    depth, begin, quote, i = 0, 0, "", 0
    while i < len(text):
        c = text[i]
        if quote:
            i += c == "\\"
            quote = "" if c == quote else quote
        elif c in "\"'":
            quote = c
        elif c in _OPEN + _CLOSE:
            depth += 1 if c in _OPEN else -1
        elif c == "," and not depth:
            found.append((text[begin:i], begin))
            begin = i + 1
        i += 1
    found.append((text[begin:], begin))
    return [
        (part.strip(), start + at + len(part) - len(part.lstrip())) for part, at in found
    ]


@lru_cache(maxsize=512)
def _parse(text: str) -> Schema:
    try:
        return _parse_checked(text)
    except _SyntaxError as error:
        mark = f"{text}\n{' ' * error.at}{'^' * max(error.width, 1)}"
        raise SchemaError(
            f"schema string: {error.reason}",
            mark,
            do='write it like "(Array x, int y=1, *, float? z=None) -> Array"',
        ) from None


def _parse_checked(text: str) -> Schema:
    arrow = _find_arrow(text)
    left = text[:arrow].rstrip()
    start = len(text) - len(text.lstrip())
    if left[start : start + 1] != "(" or not left.endswith(")"):
        raise _SyntaxError("the parameters stand in parentheses", start)
    parameters = _parse_parameters(left[start + 1 : -1], start + 1)
    returns, is_tuple = _parse_returns(text[arrow + 2 :], arrow + 2)
    return Schema(parameters, returns, is_tuple)


def _find_arrow(text: str) -> int:
    depth, quote, i = 0, "", 0
    while i < len(text):
        c = text[i]
        if quote:
            i += c == "\\"
            quote = "" if c == quote else quote
        elif c in "\"'":
            quote = c
        elif c in _OPEN + _CLOSE:
            depth += 1 if c in _OPEN else -1
        elif not depth and text.startswith("->", i):
            return i
        i += 1
    raise _SyntaxError("no '->' before the results", len(text))


def _parse_parameters(text: str, start: int) -> tuple[Parameter, ...]:
    found: list[Parameter] = []
    kind = POSITIONAL
    for part, at in _split(text, start):
        if part == "*":
            kind = KEYWORD_ONLY
        elif part == "/":
            found = [_positional_only(p, at) for p in found]
        elif part:
            found.append(_parse_parameter(part, at, kind, [p.name for p in found]))
            _check_order(found, at)
        elif text.strip():
            raise _SyntaxError("a parameter is missing here", at)
    return tuple(found)


def _positional_only(p: Parameter, at: int) -> Parameter:
    if p.kind == KEYWORD_ONLY:
        raise _SyntaxError("'/' must stand before '*'", at)
    return Parameter(p.name, p.type, p.default, POSITIONAL_ONLY, p.alias)


def _check_order(found: list[Parameter], at: int) -> None:
    if len(found) < 2 or found[-1].kind == KEYWORD_ONLY:
        return
    if found[-1].default is MISSING and found[-2].default is not MISSING:
        raise _SyntaxError("a parameter without default follows one with", at)


def _parse_parameter(part: str, at: int, kind: str, before: list[str]) -> Parameter:
    found, alias, end = _parse_type(part, at)
    match = re.match(r"\s*([^\W\d]\w*)\s*(=\s*)?", part[end:])
    if not match:
        raise _SyntaxError("a parameter needs a type and a name", at, len(part))
    name = match[1]
    if name in before:
        raise _SyntaxError(f"parameter '{name}' stands here twice", at, len(part))
    rest = part[end + match.end() :]
    if rest and not match[2]:
        raise _SyntaxError(f"cannot read {rest!r}", at + end + match.end(), len(rest))
    default = _parse_default(rest, found, at + end + match.end()) if match[2] else MISSING
    return Parameter(name, found, default, kind, alias)


def _parse_default(text: str, kind: SchemaType, at: int) -> Any:
    try:
        return check_default(_read_value(text, kind), kind)
    except (ValueError, TypeError, SyntaxError, AttributeError):
        reason = f"default {text or 'nothing'} does not fit {kind}"
        raise _SyntaxError(reason, at, len(text)) from None


def _parse_type(part: str, at: int) -> tuple[SchemaType, Alias | None, int]:
    """A type at the start of `part`, its alias, and where it ends."""
    if part.startswith("("):
        return _parse_suffix(part, *_parse_tuple(part, at))
    match = _TYPE.match(part)
    if not match:
        raise _SyntaxError("a type is missing here", at)
    name = re.sub(r"\(.*?\)", "", match["name"])
    if name not in NAMES:
        near = did_you_mean(name, NAMES) or f"; known: {', '.join(NAMES)}"
        raise _SyntaxError(f"unknown type '{name}'{near}", at, len(name))
    letter = match["alias"] or match["alias2"]
    alias = Alias(letter, bool(match["write"] or match["write2"])) if letter else None
    if alias and NAMES[name] not in (ARRAY, OPERAND):
        raise _SyntaxError("only arrays have aliases", at, match.end())
    return _parse_suffix(part, NAMES[name], alias, match.end())


def _parse_tuple(part: str, at: int) -> tuple[SchemaType, Alias | None, int]:
    end = _closing(part, at)
    inside = _split(part[1:end], at + 1)
    items = tuple(_whole_type(text, place) for text, place in inside if text)
    return TupleOf(items), None, end + 1


def _whole_type(text: str, at: int) -> SchemaType:
    found, _, end = _parse_type(text, at)
    if text[end:].strip():
        raise _SyntaxError(f"cannot read {text[end:]!r}", at + end, len(text) - end)
    return found


def _closing(part: str, at: int) -> int:
    depth = 0
    for i, c in enumerate(part):
        depth += (c in _OPEN) - (c in _CLOSE)
        if not depth:
            return i
    raise _SyntaxError("'(' is never closed", at)


def _parse_suffix(
    part: str, found: SchemaType, alias: Alias | None, end: int
) -> tuple[SchemaType, Alias | None, int]:
    while match := _SUFFIX.match(part, end):
        if match[0] == "?":
            found = Maybe(found)
        else:
            found = ListOf(found, int(match[1]) if match[1] else None)
        end = match.end()
    return found, alias, end


def _parse_returns(text: str, at: int) -> tuple[tuple[Return, ...], bool]:
    at += len(text) - len(text.lstrip())
    text = text.strip()
    if not text:
        raise _SyntaxError("the results are missing", at)
    whole = text.startswith("(") and _closing(text, at) == len(text) - 1
    if not whole:
        return (_parse_return(text, at),), False
    inside = _split(text[1:-1], at + 1)
    found = tuple(_parse_return(part, place) for part, place in inside if part)
    return found, len(inside) > 1


def _parse_return(part: str, at: int) -> Return:
    found, alias, end = _parse_type(part, at)
    name = part[end:].strip()
    if name and not name.isidentifier():
        raise _SyntaxError(f"cannot read {name!r}", at + end, len(part) - end)
    return Return(found, name, alias)


# ---- coercion: what a call may pass for each type ----


class Mismatch(Exception):
    """A value does not fit a schema type; the text says why."""


def _is_number(value: Any) -> bool:
    """Whether a value is a Python or NumPy number, or an array of one number."""
    if isinstance(value, int | float | complex | np.number | np.bool_):
        return True
    return isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "biufc"


def _to_int(value: Any) -> int:
    if isinstance(value, np.bool_):
        return int(value)
    if isinstance(value, float | complex | str | bytes):
        raise Mismatch
    return operator.index(value)


def _to_float(value: Any) -> float:
    if not _is_number(value) or np.iscomplexobj(value):
        raise Mismatch
    return float(value)


def _to_complex(value: Any) -> complex:
    if not _is_number(value):
        raise Mismatch
    return complex(value)


def _to_bool(value: Any) -> bool:
    if not _is_number(value) or isinstance(value, float | complex) or value not in (0, 1):
        raise Mismatch
    return bool(value)


def _to_str(value: Any) -> str:
    if not isinstance(value, str):
        raise Mismatch
    return str(value)


def _to_scalar(value: Any) -> Any:
    if not _is_number(value):
        raise Mismatch
    return value.item() if isinstance(value, np.generic | np.ndarray) else value


def _to_dtype(value: Any) -> np.dtype[Any]:
    if value is None or isinstance(value, int | float):
        raise Mismatch
    try:
        return np.dtype(value)
    except TypeError:  # a dtype of another library, known by its name
        return np.dtype(str(value).rpartition(".")[2])


def _to_device(value: Any) -> str:
    try:
        return normalize_device(value)
    except ArgumentError as error:
        raise Mismatch(error.what) from None


def _to_generator(value: Any) -> Any:
    if isinstance(value, np.random.Generator):
        return value
    if type(value).__name__ == "Generator" and hasattr(value, "bit_generator"):
        return value
    raise Mismatch


# Type -> (class that needs no coercion, coercion).
_EXACT: dict[str, tuple[type, Callable[[Any], Any]]] = {
    "int": (int, _to_int),
    "float": (float, _to_float),
    "bool": (bool, _to_bool),
    "complex": (complex, _to_complex),
    "str": (str, _to_str),
    "Scalar": (float, _to_scalar),
    "dtype": (np.dtype, _to_dtype),
    "device": (str, _to_device),
    "Generator": (np.random.Generator, _to_generator),
}

# Types whose exact class is proof enough: a str may still be no device.
PROVEN_BY_CLASS = {"int", "float", "bool", "complex", "str", "Scalar", "Generator"}


def exact_class(kind: Base) -> type:
    """The class whose values a parameter of this type takes as they are."""
    return _EXACT[kind.name][0]


def coerce(value: Any, kind: SchemaType) -> Any:
    """The value as a kernel gets it.

    Raises
    ------
    Mismatch
        If it does not fit the type.
    """
    if isinstance(kind, Maybe):
        return None if value is None else coerce(value, kind.item)
    if isinstance(kind, ListOf):
        return _coerce_list(value, kind)
    if isinstance(kind, TupleOf):
        return _coerce_tuple(value, kind)
    if kind in (ARRAY, OPERAND):
        return value
    return _coerce_base(value, kind)


def _coerce_base(value: Any, kind: Base) -> Any:
    exact, convert = _EXACT[kind.name]
    if type(value) is exact and kind.name in PROVEN_BY_CLASS:
        return value
    try:
        return convert(value)
    except (Mismatch, ValueError) as error:
        raise Mismatch(str(error) or f"expects {kind}, got {show(value)}") from None
    except TypeError as error:
        if hasattr(value, "interpreter"):  # a traced value says itself what to do
            raise
        raise Mismatch(f"expects {kind}, got {show(value)}") from error


def _coerce_list(value: Any, kind: ListOf) -> Any:
    if kind.length is not None and isinstance(value, int | float | bool):
        value = [value] * kind.length
    if isinstance(value, np.ndarray) and value.ndim == 1 and not holds_arrays(kind):
        value = value.tolist()
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise Mismatch(f"expects {kind}, a list, got {show(value)}")
    if kind.length is not None and len(value) != kind.length:
        raise Mismatch(f"expects {kind}, got {len(value)} items")
    items = [_coerce_item(v, kind.item, i) for i, v in enumerate(value)]
    return value if _same(value, items) else items


def _same(value: Any, items: list[Any]) -> bool:
    """Whether a list or tuple already is what coercion makes of it."""
    return isinstance(value, list | tuple) and all(map(operator.is_, value, items))


def _coerce_tuple(value: Any, kind: TupleOf) -> Any:
    if not isinstance(value, tuple | list):
        raise Mismatch(f"expects {kind}, a tuple, got {show(value)}")
    if len(value) != len(kind.items):
        raise Mismatch(f"expects {kind}, got {len(value)} items")
    pairs = enumerate(zip(value, kind.items, strict=True))
    return tuple(_coerce_item(v, k, i) for i, (v, k) in pairs)


def _coerce_item(value: Any, kind: SchemaType, index: int) -> Any:
    try:
        return coerce(value, kind)
    except Mismatch as error:
        raise Mismatch(f"at index {index} {error}") from None


def show(value: Any) -> str:
    """A value as an error message quotes it: its type, and itself when short."""
    if value is None:
        return "None"
    shape = getattr(value, "shape", None)
    if shape is not None:
        return f"{type(value).__name__} of shape {shape}"
    text = repr(value)
    name = type(value).__name__
    return f"{name} {text}" if len(text) <= 60 else name


def coercion(qualname: str, schema: Schema, parameter: Parameter) -> Callable[[Any], Any]:
    """A function that coerces one argument and names it when it does not fit."""
    kind, name = parameter.type, parameter.name

    def coerce_argument(value: Any) -> Any:
        try:
            return coerce(value, kind)
        except Mismatch as error:
            raise ArgumentError(
                f"{qualname}: argument '{name}' {error}",
                schema.show(qualname, name),
                do=_remedy(kind, value),
                op=qualname,
                parameter=name,
            ) from None

    return coerce_argument


def _remedy(kind: SchemaType, value: Any) -> str:
    if isinstance(kind, ListOf):
        return f"pass a list of {kind.item}"
    if kind == Base("int") and isinstance(value, float):
        return f"pass int({value!r}) if the fraction may be dropped"
    return f"pass a value of type {kind}"


def check_default(value: Any, kind: SchemaType) -> Any:
    """The default as the schema keeps it.

    Raises
    ------
    ValueError
        If it does not fit the type, or could change.
    """
    if holds_arrays(kind) and value is not None and kind != OPERAND:
        raise ValueError("an array has no default but None")
    if isinstance(value, list | dict | set | np.ndarray):
        raise ValueError("a default must be immutable: write a tuple")
    if kind == Base("bool") and not isinstance(value, bool | np.bool_):
        raise ValueError(f"{value!r} does not fit bool")
    try:
        return _freeze(coerce(value, kind))
    except Mismatch as error:
        raise ValueError(str(error)) from None


def _freeze(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(_freeze(item) for item in value)
    # One object for nan, since schemas are compared and nan is equal to itself only
    # by identity.
    return math.nan if isinstance(value, float) and value != value else value


# ---- inference ----


def infer_schema(
    fn: Callable[..., Any], /, *, mutates_args: Iterable[str] | str
) -> str:
    """Schema string of a function with type hints.

    Parameters
    ----------
    fn : callable
        Every parameter and the result carry a type hint. Hints may be strings; they
        are evaluated where the function was defined.
    mutates_args : iterable of str, or "unknown"
        Names of the array parameters that the function writes; ``"unknown"`` for all.

    Returns
    -------
    str

    Raises
    ------
    SchemaError
        If a hint is missing or has no schema type, a default does not fit, or
        `mutates_args` names no array parameter.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> def scale(x: np.ndarray, factor: float = 2.0) -> np.ndarray: ...
    >>> co.infer_schema(scale, mutates_args=())
    '(Array x, float factor=2.0) -> Array'
    """
    return str(_infer(fn, mutates_args, {}))


_KINDS: dict[Any, str] = {
    inspect.Parameter.POSITIONAL_ONLY: POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD: POSITIONAL,
    inspect.Parameter.KEYWORD_ONLY: KEYWORD_ONLY,
}


@dataclass(frozen=True, slots=True)
class _Source:
    """A function under inference, for messages."""

    fn: Callable[..., Any]
    signature: inspect.Signature

    @property
    def name(self) -> str:
        return str(getattr(self.fn, "__name__", self.fn))

    def error(self, reason: str, fragment: str = "", do: str = "", parameter: str = "") -> SchemaError:
        text = f"{self.name}{self.signature}"
        return SchemaError(
            f"{self.name}: {reason}",
            f"{caret(text, fragment, len(self.name))}",
            f"at {place(self.fn)}",
            do=do,
            parameter=parameter or None,
        )


def _infer(
    fn: Callable[..., Any],
    mutates_args: Iterable[str] | str,
    local_names: Mapping[str, Any],
) -> Schema:
    source = _Source(fn, signature_of(fn))
    hints = _hints(source, local_names)
    given = source.signature.parameters.values()
    plain = [_infer_parameter(source, p, hints) for p in given]
    written = _written_names(source, plain, mutates_args)
    aliases = iter(_alias_names(len(written)))
    parameters = [
        Parameter(p.name, p.type, p.default, p.kind, Alias(next(aliases), True))
        if p.name in written
        else p
        for p in plain
    ]
    returns, is_tuple = _infer_returns(source, hints)
    return Schema(tuple(parameters), returns, is_tuple)


def _alias_names(count: int) -> list[str]:
    letters = "abcdefghijklmnopqrstuvwxyz"
    return [letters[i] if i < 26 else f"a{i}" for i in range(count)]


def signature_of(fn: Callable[..., Any]) -> inspect.Signature:
    """Signature of a function, looking through decorators that keep `__wrapped__`."""
    try:
        return inspect.signature(fn)
    except (TypeError, ValueError):
        raise SchemaError(
            f"{fn!r} tells no signature",
            do='give the schema as a string: schema="(Array x) -> Array"',
        ) from None


def _hints(source: _Source, local_names: Mapping[str, Any]) -> dict[str, Any]:
    fn: Any = inspect.unwrap(source.fn)
    if not isinstance(fn, types.FunctionType) and hasattr(type(fn), "__call__"):
        fn = getattr(fn, "__func__", fn if hasattr(fn, "__annotations__") else fn.__call__)
    raw = getattr(fn, "__annotations__", {})
    if not any(_has_text(hint) for hint in raw.values()):
        return dict(raw)
    names = {**_closure(fn), **local_names}
    try:
        return typing_extensions.get_type_hints(fn, localns=names, include_extras=True)
    except NameError as error:
        missing = str(error.name)
        raise source.error(
            f"annotation names '{missing}', which is not defined there",
            missing,
            do=f"define or import {missing} before the operator",
        ) from None


def _has_text(hint: Any) -> bool:
    """Whether a hint is a string or holds one that must be evaluated."""
    if isinstance(hint, str | typing.ForwardRef):
        return True
    if typing.get_origin(hint) is typing.Annotated:
        return _has_text(typing.get_args(hint)[0])
    return any(_has_text(item) for item in typing.get_args(hint) if item is not hint)


def _closure(fn: Any) -> dict[str, Any]:
    """Names that a function takes from the functions around it."""
    names = getattr(getattr(fn, "__code__", None), "co_freevars", ())
    cells = getattr(fn, "__closure__", None) or ()
    filled = {}
    for name, cell in zip(names, cells, strict=True):
        try:
            filled[name] = cell.cell_contents
        except ValueError:  # a cell that is filled later
            continue
    return filled


def _infer_parameter(
    source: _Source, p: inspect.Parameter, hints: dict[str, Any]
) -> Parameter:
    if p.kind not in _KINDS:
        star = "*" if p.kind is p.VAR_POSITIONAL else "**"
        raise source.error(
            f"parameter '{star}{p.name}' has no fixed number of arguments",
            f"{star}{p.name}",
            do=f"write {p.name}: list[Array], or parameters of their own",
            parameter=p.name,
        )
    if p.name not in hints:
        raise source.error(
            f"parameter '{p.name}' has no annotation",
            str(p),
            do=f"write {p.name}: Array, or the type that it has",
            parameter=p.name,
        )
    try:
        found = schema_type(hints[p.name])
    except SchemaError as error:
        raise _at(source, f"parameter '{p.name}' has {error.what}", str(p), error) from None
    return Parameter(p.name, found, _infer_default(source, p, found), _KINDS[p.kind])


def _at(source: _Source, reason: str, fragment: str, inner: SchemaError) -> SchemaError:
    error = source.error(reason, fragment, do=inner.do)
    error.where = (*error.where, *inner.where)
    return error


def _infer_default(source: _Source, p: inspect.Parameter, kind: SchemaType) -> Any:
    if p.default is p.empty:
        return MISSING
    try:
        return check_default(p.default, kind)
    except ValueError as error:
        raise source.error(
            f"parameter '{p.name}' has the default {p.default!r}: {error}",
            str(p),
            do=f"give a default of type {kind}, or None with Optional",
            parameter=p.name,
        ) from None


def _infer_returns(
    source: _Source, hints: dict[str, Any]
) -> tuple[tuple[Return, ...], bool]:
    if "return" not in hints:
        raise source.error(
            "the result has no annotation", do="write -> Array, or -> None"
        )
    hint = hints["return"]
    if hint is None or hint is type(None):
        return (), False
    try:
        found = schema_type(hint)
    except SchemaError as error:
        reason = f"the result has {error.what}"
        raise _at(source, reason, show_annotation(hint), error) from None
    if isinstance(found, TupleOf):
        return tuple(Return(item) for item in found.items), True
    return (Return(found),), False


def _written_names(
    source: _Source, parameters: Sequence[Parameter], mutates_args: Iterable[str] | str
) -> set[str]:
    arrays = [p.name for p in parameters if holds_arrays(p.type)]
    names = check_mutates_args(mutates_args)
    if names is None:
        return set(arrays)
    for name in sorted(names):
        if name not in arrays:
            known = [p.name for p in parameters]
            what = "is no array" if name in known else f"is no parameter{did_you_mean(name, known)}"
            raise source.error(
                f"mutates_args names '{name}', which {what}",
                name,
                do=f"name array parameters: {quoted(arrays) or 'there are none'}",
                parameter=name,
            )
    return names


def check_mutates_args(mutates_args: Iterable[str] | str) -> set[str] | None:
    """The names as a set, or None for ``"unknown"``."""
    if mutates_args == "unknown":
        return None
    if not isinstance(mutates_args, str):
        try:
            names = set(mutates_args)
        except TypeError:
            names = {mutates_args}
        if all(isinstance(name, str) for name in names):
            return names
    raise SchemaError(
        f"mutates_args={mutates_args!r} is neither names nor 'unknown'",
        do="write mutates_args=() or mutates_args=('x',)",
    )


# ---- agreement of a given schema with a function ----


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
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return  # builtins tell no signature: the first call proves them
    _check_names(fn, schema, signature)


def _check_names(
    fn: Callable[..., Any], schema: Schema, signature: inspect.Signature
) -> None:
    problem = mismatch(
        list(signature.parameters.values()),
        [p.name for p in schema.positional],
        [p.name for p in schema.keyword_only],
    )
    if problem:
        name = getattr(fn, "__name__", "function")
        raise SchemaError(
            f"the function {name} {problem}",
            str(schema),
            f"at {place(fn)}",
            do="use the names of the schema, in the same order, with the same '*'",
        )


def needs_guard(kind: SchemaType) -> bool:
    """Whether a scalar of this type is proven by its exact class alone."""
    inner = kind.item if isinstance(kind, Maybe) else kind
    return isinstance(inner, Base) and inner.name in PROVEN_BY_CLASS


def array_names(schema: Schema) -> list[str]:
    """Names of the parameters that are or hold arrays."""
    return [p.name for p in schema.parameters if any(t == ARRAY for t in parts(p.type))]
