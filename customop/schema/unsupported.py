"""Annotations and names without a schema type: the error, and what to write instead."""

from __future__ import annotations

import collections.abc
import numbers
import re
import typing
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from customop.errors import SchemaError, shown
from customop.later import later

__all__ = ["FOREIGN", "INSTEAD", "instead_of", "no_type", "show_annotation"]

dataclasses: ModuleType = later(import_module, "dataclasses")

_SUPPORTED = (
    "Array (or a class of arrays), bool, int, float, complex, str, Scalar, DType,"
    " Device, np.random.Generator, Literal, Enum, frozen dataclasses, NamedTuple,"
    " TypedDict, and Optional, list, Sequence, tuple and dict[str, ...] of these"
)

_SPLIT = "pass each value as a separate parameter"
_LIST = "write list[T], such as list[int]"
_DICT = "write dict[str, T], such as dict[str, float]"
_TUPLE = "write tuple[T, ...] or tuple[A, B]"
_TYPE = "write DType, or pass a name as str"
_NAME_TYPE = "name the type: Array, or one of the others"

# Annotation -> what to use instead.
INSTEAD: dict[Any, str] = {
    Any: _NAME_TYPE,
    object: _NAME_TYPE,
    list: _LIST,
    set: _LIST,
    frozenset: _LIST,
    tuple: _TUPLE,
    dict: _DICT,
    collections.abc.Mapping: _DICT,
    collections.abc.Sequence: _LIST,
    collections.abc.Iterable: "write Sequence[T]",
    collections.abc.Iterator: "write Sequence[T]",
    collections.abc.Callable: "make an operator for each function",
    bytes: "write str, or Array of the dtype uint8",
    type: _TYPE,
    slice: "pass start, stop and step as int parameters",
    range: "write list[int]: a range fits it",
    numbers.Number: "write Scalar",
    numbers.Real: "write float",
    numbers.Integral: "write int",
}

# Name in a schema string that is not a type -> what to write.
FOREIGN: dict[str, str] = {
    "double": "write float",
    "int64_t": "write int",
    "ndarray": "write Array",
    "string": "write str",
    "list": "write T[], such as int[]",
    "List": "write T[], such as int[]",
    "tuple": "write (A, B)",
    "Optional": "write T?, such as float?",
    "Dict": "write Dict(str, T), such as Dict(str, Array)",
    "dict": "write Dict(str, T), such as Dict(str, Array)",
    "Literal": 'write str{"a", "b"}, or int{1, 2}',
    "Any": "name the type",
}


def no_type(annotation: Any, instead: str = "") -> SchemaError:
    """The error for an annotation; `instead` says what to write."""
    return SchemaError(
        f"annotation {show_annotation(annotation)}, which has no schema type",
        f"supported: {_SUPPORTED}",
        do=instead or instead_of(annotation) or f"use a supported type, or {_SPLIT}",
    )


def instead_of(annotation: Any) -> str:
    """The remedy for an annotation without a schema type, or nothing."""
    if isinstance(annotation, type):
        return _instead_of_class(annotation)
    try:
        return INSTEAD.get(annotation, "")
    except TypeError:  # an unhashable annotation
        return ""


def _instead_of_class(cls: type) -> str:
    if cls in INSTEAD:
        return INSTEAD[cls]
    if issubclass(cls, np.generic):
        return "write Array, which takes NumPy scalars too, or float, int or Scalar"
    if issubclass(cls, tuple):
        return _TUPLE
    if dataclasses.is_dataclass(cls):
        name = show_annotation(cls)
        return f"make it @dataclass(frozen=True), or call register_config_type({name})"
    return _DICT if issubclass(cls, dict) else ""


def show_annotation(annotation: Any) -> str:
    """An annotation as a user would write it."""
    if isinstance(annotation, str):
        return annotation.strip("'\"")
    if isinstance(annotation, type) and typing.get_origin(annotation) is None:
        return annotation.__qualname__.rpartition("<locals>.")[2]
    text = shown(annotation, 400).replace("typing.", "").replace("collections.abc.", "")
    return re.sub(r"[\w.]*<locals>\.", "", text)
