"""The grammar of schema strings: torch's, with `Array` in addition to `Tensor`."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Callable, Iterator
from importlib import import_module
from types import ModuleType
from typing import Any, NoReturn, TypeAlias

import numpy as np

from customop.arrays.array import ELEMENTS, KNOWN_ELEMENTS
from customop.errors import SchemaError, did_you_mean, shortened, shown
from customop.later import later
from customop.schema.annotations import FOREIGN, NAMES, find_class
from customop.schema.coerce import Mismatch, check_default
from customop.schema.types import (
    DTYPE,
    KEYWORD_ONLY,
    MISSING,
    POSITIONAL,
    POSITIONAL_ONLY,
    Alias,
    ArrayType,
    Base,
    Choice,
    ClassOf,
    DictOf,
    ListOf,
    Maybe,
    Parameter,
    Return,
    SchemaType,
    TupleOf,
    holds_arrays,
    is_too_deep,
)
from customop.shapes.notation import ShapeFault, as_name, read_axes

json: ModuleType = later(import_module, "json")


# ---- the grammar of schema strings: torch's, with `Array` in addition to `Tensor` ----


_DICT = later(re.compile, r"Dict\(\s*str\s*,")
_TYPE_NAME = later(re.compile, r"[^\W\d](?:[\w.]|<locals>)*")
_MARKS = later(
    re.compile,
    r"(\(\s*(?P<alias>[a-zA-Z_]\w*)(?P<write>!?)\s*\))?(?P<operand>\|Scalar\b)?",
)
_SUFFIX = later(re.compile, r"\?|\[(\d*)\]")
_NAME = later(re.compile, r"\s*((?:\w|[^\x00-\x7f\s])+)\s*(=\s*)?")
# Messages show this much of a longer line around the fault.
_LONG = 160
# More cannot be meant: such a length would be that of an array.
_MOST_ITEMS = 999_999
_EXAMPLE = 'write it like "(Array x, int y=1, *, float? z=None) -> Array"'


def parse(text: str) -> tuple[tuple[Parameter, ...], tuple[Return, ...], bool]:
    """Return parameters and results of a schema string, and whether these are a tuple.

    Raises
    ------
    SchemaError
        If the text does not follow the grammar; a caret shows the place.
    """
    try:
        arrow = _find_arrow(text)
        parameters = _parse_parameters(_between_parentheses(text[:arrow]))
        return (parameters, *_parse_returns(*stripped(text[arrow + 2 :], arrow + 2)))
    except SyntaxFault as fault:
        raise SchemaError(
            f"schema string: {shortened(fault.reason, 400)}",
            _mark(text, fault),
            do=_EXAMPLE,
        ) from None
    except RecursionError:
        raise SchemaError("schema string: nested too deeply", do=_EXAMPLE) from None


def _mark(text: str, fault: SyntaxFault) -> str:
    """Write the line of the fault, with carets under it."""
    start = text.rfind("\n", 0, fault.at) + 1
    line = text[start:].split("\n", 1)[0]
    place = fault.at - start
    width = max(min(fault.width, len(line) - place), 1)
    if len(line) > _LONG:
        first = max(place - _LONG // 2, 0)
        line = line[first : first + _LONG]
        place, width = place - first, min(width, len(line) - (place - first))
    return f"{line}\n{' ' * place}{'^' * max(width, 1)}"


def _find_arrow(text: str) -> int:
    for i, depth, _ in outside(text):
        if not depth and text.startswith("->", i):
            return i
    raise SyntaxFault("no '->' before the results", len(text))


def _between_parentheses(text: str) -> Part:
    text, at = stripped(text, 0)
    if text[:1] != "(" or closing(text, at) != len(text) - 1:
        raise SyntaxFault("the parameters must be in parentheses", at)
    return text[1:-1], at + 1


# ---- parameters ----


def _parse_parameters(inside: Part) -> tuple[Parameter, ...]:
    found: list[Parameter] = []
    parameter_kind = POSITIONAL
    parts = split(*inside)
    for index, (part, at) in enumerate(parts):
        if part == "*":
            _check_star(parameter_kind, index == len(parts) - 1, at)
            parameter_kind = KEYWORD_ONLY
        elif part == "/":
            found = _positional_only(found, at)
        else:
            found.append(_parse_parameter(part, at, parameter_kind))
            _check_place(found, part, at)
    return tuple(found)


def _check_star(parameter_kind: str, is_last: bool, at: int) -> None:
    if parameter_kind == KEYWORD_ONLY:
        raise SyntaxFault("'*' appears twice", at)
    if is_last:
        raise SyntaxFault("no parameter follows '*'", at)


def _positional_only(found: list[Parameter], at: int) -> list[Parameter]:
    parameter_kinds = {p.kind for p in found}
    if KEYWORD_ONLY in parameter_kinds:
        raise SyntaxFault("'/' must come before '*'", at)
    if POSITIONAL_ONLY in parameter_kinds or not found:
        reason = "'/' appears twice" if found else "no parameter comes before '/'"
        raise SyntaxFault(reason, at)
    return [
        Parameter(p.name, p.type, p.default, POSITIONAL_ONLY, p.alias) for p in found
    ]


def _check_place(found: list[Parameter], part: str, at: int) -> None:
    """Raise unless the last parameter may follow those before it."""
    *before, last = found
    if last.name in [p.name for p in before]:
        raise SyntaxFault(f"parameter '{last.name}' appears twice", at, len(part))
    if last.kind == KEYWORD_ONLY or last.default is not MISSING:
        return
    if any(p.default is not MISSING for p in before):
        raise SyntaxFault(
            f"parameter '{last.name}' has no default, but follows one that has",
            at,
            len(part),
        )


def _parse_parameter(part: str, at: int, parameter_kind: str) -> Parameter:
    if not part:
        raise SyntaxFault("a parameter is missing here", at)
    found, alias, end = _parse_type(part, at)
    match = _NAME.match(part, end)
    if not match or not match[1].isidentifier():
        raise SyntaxFault("a parameter needs a type and a name", at, len(part))
    name = as_name(match[1])
    if keyword.iskeyword(name):
        reason = f"'{name}' is a Python keyword, which cannot name a parameter"
        raise SyntaxFault(reason, at + match.start(1), len(match[1]))
    place = at + match.end()
    rest = part[match.end() :]
    if rest and not match[2]:
        raise SyntaxFault(f"cannot read {shown(rest)}", place, len(rest))
    default = _parse_default(rest, found, place) if match[2] else MISSING
    return Parameter(name, found, default, parameter_kind, alias)


def _parse_default(text: str, declared: SchemaType, at: int) -> Any:
    try:
        return check_default(read_value(text, declared), declared)
    except (Mismatch, SyntaxFault, *READ_ERRORS) as error:
        why = f": {error}" if isinstance(error, Mismatch) and str(error) else ""
        reason = f"default {shortened(text) or 'nothing'} does not fit {declared}{why}"
        raise SyntaxFault(reason, at, len(text)) from None


# ---- types ----


def _parse_type(part: str, at: int) -> tuple[SchemaType, Alias | None, int]:
    """Read a type at the start of `part`; return it, its alias, and where it ends."""
    if part.startswith("("):
        return _parse_suffix(part, at, *_parse_tuple(part, at))
    if _DICT.match(part):
        return _parse_suffix(part, at, *_parse_dict(part, at))
    match = _TYPE_NAME.match(part)
    if not match:
        raise SyntaxFault("a type is missing here", at, len(part))
    name, end = match[0], match.end()
    if part.startswith("{", end):
        return _parse_suffix(part, at, *_parse_choice(name, part, at, end))
    close = _end_of_axes(part, at, end)
    marks = _MARKS.match(part, close or end)
    assert marks is not None  # it matches the empty text too
    operand = marks["operand"] or ""
    found = (
        _parse_axes(name, bool(operand), part, at, end)
        if close
        else _find_type(f"{name}{operand}", at)
    )
    alias = Alias(marks["alias"], bool(marks["write"])) if marks["alias"] else None
    if alias and not holds_arrays(found):
        raise SyntaxFault("only arrays have aliases", at, marks.end())
    return _parse_suffix(part, at, found, alias, marks.end())


def _find_type(name: str, at: int) -> SchemaType:
    found = NAMES.get(name) or find_class(name)
    if found is None:
        raise SyntaxFault(f"unknown type '{name}'{_hint(name)}", at, len(name))
    return found


def _end_of_axes(part: str, at: int, start: int) -> int:
    """Return where the axes in brackets at `start` end; 0 where there are none.

    A number, or nothing, in brackets is the length of a list.
    """
    if not part.startswith("[", start):
        return 0
    end = start + closing(part[start:], at + start)
    inside = part[start + 1 : end].strip()
    return end + 1 if inside and not inside.isdecimal() else 0


def _parse_axes(
    name: str, or_number: bool, part: str, at: int, start: int
) -> ArrayType:
    element = "Array" if name == "Tensor" else name
    if element not in ELEMENTS:
        near = did_you_mean(name, ELEMENTS) or f"; known: {KNOWN_ELEMENTS}"
        reason = f"'{name}' is not a class of array elements{near}"
        raise SyntaxFault(reason, at, len(name))
    inside, place = part[start + 1 :], at + start + 1
    inside = inside[: closing(part[start:], place) - 1]
    texts = [] if inside.strip() == "()" else split_items(inside, place)
    try:
        return ArrayType(element, read_axes([text for text, _ in texts]), or_number)
    except ShapeFault as fault:
        text, where = texts[fault.index]
        raise SyntaxFault(
            f"the shape of an array: {fault.reason}", where, len(text)
        ) from None


def _hint(name: str) -> str:
    if name in FOREIGN:
        return f": {FOREIGN[name]}"
    if name in ELEMENTS:
        return (
            f": write {name}[...] for an array, or {name}[m,k], {name}[3,] by its axes"
        )
    module, _, _ = name.rpartition(".")
    if module:
        return f": import {module.partition('.<locals>')[0]} first, which defines it"
    return did_you_mean(name, NAMES) or f"; known: {', '.join(NAMES)}"


def _parse_dict(part: str, at: int) -> tuple[SchemaType, Alias | None, int]:
    start = part.index("(")
    end = start + closing(part[start:], at + start)
    inside = part.index(",", start) + 1
    item, alias = _whole_type(*stripped(part[inside:end], at + inside))
    return DictOf(item), alias, end + 1


# Name of the type of a choice -> class of its values.
_CHOICES: dict[str, type] = {"str": str, "int": int, "bool": bool}


def _parse_choice(
    name: str, part: str, at: int, start: int
) -> tuple[SchemaType, Alias | None, int]:
    end = start + closing(part[start:], at + start)
    if name not in _CHOICES:
        raise SyntaxFault(
            f"a choice has str, int or bool values, not {name}", at, len(name)
        )
    options: list[Any] = []
    for text, place in split_items(part[start + 1 : end], at + start + 1):
        option = read_option(text)
        if type(option) is not _CHOICES[name] or option in options:
            reason = "appears twice" if option in options else f"is not of type {name}"
            raise SyntaxFault(f"the choice {text} {reason}", place, len(text))
        options.append(option)
    if not options:
        raise SyntaxFault("a choice needs values to choose from", at, end + 1)
    return Choice(name, tuple(options)), None, end + 1


def _parse_tuple(part: str, at: int) -> tuple[SchemaType, Alias | None, int]:
    end = closing(part, at)
    found = [_whole_type(*item) for item in split_items(part[1:end], at + 1)]
    if not found:
        raise SyntaxFault("a tuple needs a type for each place", at, end + 1)
    # One name is for all arrays of an argument. It is written at the first.
    aliases = [alias for declared, alias in found if holds_arrays(declared)]
    if any(aliases[1:]):
        raise SyntaxFault("write the alias of a tuple at its first array", at, end + 1)
    alias = aliases[0] if aliases else None
    return TupleOf(tuple(declared for declared, _ in found)), alias, end + 1


def _whole_type(text: str, at: int) -> tuple[SchemaType, Alias | None]:
    found, alias, end = _parse_type(text, at)
    if text[end:].strip():
        raise SyntaxFault(f"cannot read {shown(text[end:])}", at + end, len(text) - end)
    return found, alias


def _parse_suffix(
    part: str, at: int, found: SchemaType, alias: Alias | None, end: int
) -> tuple[SchemaType, Alias | None, int]:
    while match := _SUFFIX.match(part, end):
        if match[0] != "?":
            found = ListOf(found, _read_count(match[1], at + end))
        elif isinstance(found, Maybe):
            raise SyntaxFault("'?' appears twice", at + end)
        else:
            found = Maybe(found)
        end = match.end()
    if is_too_deep(found):
        raise SyntaxFault("the type is nested too deeply", at, end)
    return found, alias, end


def _read_count(text: str, at: int) -> int | None:
    """Read the length of a list, in brackets; None for any."""
    if len(text) > len(str(_MOST_ITEMS)):
        raise SyntaxFault(f"a list has {_MOST_ITEMS:,} items at most", at, len(text))
    return int(text) if text else None


# ---- results ----


def _parse_returns(text: str, at: int) -> tuple[tuple[Return, ...], bool]:
    if not text:
        raise SyntaxFault("the results are missing", at)
    whole = text[0] == "(" and closing(text, at) == len(text) - 1
    if not whole:
        return (_parse_return(text, at, []),), False
    found: list[Return] = []
    for part, place in split_items(text[1:-1], at + 1):
        found.append(_parse_return(part, place, [r.name for r in found]))
    return tuple(found), len(split(text[1:-1], at + 1)) > 1


def _parse_return(part: str, at: int, before: list[str]) -> Return:
    found, alias, end = _parse_type(part, at)
    name, place = stripped(part[end:], at + end)
    name = as_name(name) if name.isidentifier() else name
    if name and not name.isidentifier():
        raise SyntaxFault(f"cannot read {shown(name)}", place, len(name))
    if name and name in before:
        raise SyntaxFault(f"result '{name}' appears twice", at, len(part))
    return Return(found, name, alias)


# ---- values in schema strings, written as `print_value` prints them ----


# Errors of the readers of numbers, strings and dtypes.
READ_ERRORS = (ValueError, TypeError, SyntaxError, LookupError, AttributeError)


def read_value(text: str, declared: SchemaType) -> Any:
    """Read a default of a type; raise `Mismatch` or one of `READ_ERRORS`."""
    declared = declared.item if isinstance(declared, Maybe) else declared
    if text == "None":
        return None
    if isinstance(declared, ClassOf):
        return _read_object(text, declared)
    if isinstance(declared, ListOf | TupleOf) and text[:1] in ("[", "("):
        return _read_items(text, declared)
    if isinstance(declared, ListOf) and declared.length is not None:
        return (read_value(text, declared.item),) * declared.length
    is_single = isinstance(declared, Base | ArrayType | Choice)
    if not is_single and text[:1] not in ("'", '"'):
        what = f"[{text}]" if isinstance(declared, ListOf) else "(...)"
        raise Mismatch(f"write {what}")
    return _read_base(text, declared)


def read_option(text: str) -> Any:
    """Read one value of a choice; return None for text that cannot be read."""
    try:
        return _read_string(text) if text[:1] in ("'", '"') else _read_number(text)
    except READ_ERRORS:
        return None


def _read_base(text: str, declared: SchemaType) -> Any:
    if text[:1] in ("'", '"'):
        return _read_string(text)
    return _read_dtype(text) if declared == DTYPE else _read_number(text)


def _read_items(text: str, declared: ListOf | TupleOf) -> tuple[Any, ...]:
    if closing(text, 0) != len(text) - 1 or text[0] + text[-1] not in ("[]", "()"):
        raise ValueError(text)
    inside = split_items(text[1:-1], 0)
    if isinstance(declared, ListOf):
        return tuple(read_value(part, declared.item) for part, _ in inside)
    pairs = zip(inside, declared.items, strict=True)
    return tuple(read_value(part, item_type) for (part, _), item_type in pairs)


def _read_object(text: str, declared: ClassOf) -> Any:
    """Read a member by its name, or an object by its fields in order."""
    if declared.is_enum:
        cls: Any = declared.cls
        if text.removeprefix("-").isdecimal():
            return cls(int(text))
        return cls[_read_string(text) if text[:1] in ("'", '"') else text]
    if declared.fields.is_dict:
        raise Mismatch("a default must be immutable")
    if text in ("()", "") and declared.items:
        raise ValueError(text)
    fields = TupleOf(tuple(declared.items.values()))
    return declared.fields.like(None, list(_read_items(text, fields)))


def _read_string(text: str) -> str:
    read: Callable[[str], Any] = json.loads if text[0] == '"' else ast.literal_eval
    found = read(text)
    return found if isinstance(found, str) else _refuse(text)


def _refuse(text: str) -> NoReturn:
    raise ValueError(text)


def _read_number(text: str) -> Any:
    if text in _TRUTHS:
        return _TRUTHS[text]
    if text.lstrip("+-").isdecimal():
        return int(text)  # or a ValueError for too many digits
    for read in (float, complex):
        try:
            return read(text)
        except ValueError:
            continue
    raise ValueError(text)


_TRUTHS = {"True": True, "true": True, "False": False, "false": False}


def _read_dtype(text: str) -> np.dtype[Any]:
    if text.startswith("["):
        return np.lib.format.descr_to_dtype(ast.literal_eval(text))
    return np.dtype(text)


# ---- schema strings as text: brackets, quotes, and parts between commas ----


_OPEN, _CLOSE = "([{", ")]}"

# A part of the text, and where it begins.
Part: TypeAlias = tuple[str, int]


class SyntaxFault(Exception):
    """An error in the text: the reason, and its place."""

    def __init__(self, reason: str, at: int, width: int = 1) -> None:
        super().__init__(reason)
        self.reason: str = reason
        self.at: int = at
        self.width: int = width


def outside(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield place, depth of brackets and character for all that is outside of quotes."""
    depth, quote, escaped = 0, "", False
    for i, c in enumerate(text):
        if quote:
            quote = "" if c == quote and not escaped else quote
            escaped = c == "\\" and not escaped
            continue
        depth -= c in _CLOSE
        yield i, depth, c
        depth += c in _OPEN
        quote = c if c in "\"'" else ""


def closing(text: str, at: int) -> int:
    """Return the place of the bracket that closes the first character."""
    for i, depth, c in outside(text):
        if not depth and c in _CLOSE:
            return i
    raise SyntaxFault(f"'{text[0]}' is never closed", at)


def stripped(text: str, at: int) -> Part:
    """Return a part without the spaces around it."""
    return text.strip(), at + len(text) - len(text.lstrip())


def split(text: str, at: int) -> list[Part]:
    """Split at commas outside brackets and quotes; an empty text has no parts."""
    commas = [i for i, depth, c in outside(text) if c == "," and not depth]
    starts, ends = [0, *(i + 1 for i in commas)], [*commas, len(text)]
    parts = [stripped(text[a:b], at + a) for a, b in zip(starts, ends, strict=True)]
    return parts if len(parts) > 1 or parts[0][0] else []


def split_items(text: str, at: int) -> list[Part]:
    """Split as `split` does, where a comma may end the last part."""
    found = split(text, at)
    if len(found) > 1 and not found[-1][0]:
        found.pop()
    for part, place in found:
        if not part:
            raise SyntaxFault("an item is missing here", place)
    return found
