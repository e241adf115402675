"""Values in schema strings, written as `print_value` prints them."""

from __future__ import annotations

import ast
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, NoReturn

import numpy as np

from customop.later import later
from customop.schema.brackets import closing, split_items
from customop.schema.fit import Mismatch
from customop.schema.types import (
    DTYPE,
    ArrayType,
    Base,
    Choice,
    ClassOf,
    ListOf,
    Maybe,
    SchemaType,
    TupleOf,
)

__all__ = ["READ_ERRORS", "read_option", "read_value"]

json: ModuleType = later(import_module, "json")

# Errors of the readers of numbers, strings and dtypes.
READ_ERRORS = (ValueError, TypeError, SyntaxError, LookupError, AttributeError)


def read_value(text: str, declared: SchemaType) -> Any:
    """The value of a default of a type; raises `Mismatch` or one of `READ_ERRORS`."""
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
    """One value of a choice; None for text that cannot be read."""
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
    """A member by its name, or an object by its fields in order."""
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
