"""Default values: they fit their types, cannot change, and have a text."""

from __future__ import annotations

from typing import Any

import numpy as np

from customop.arrays.describe import show
from customop.schema.base_types import number_letter, to_scalar
from customop.schema.coerce import coerce
from customop.schema.fit import Mismatch, NestedType, Visitor
from customop.schema.types import (
    DTYPE,
    GENERATOR,
    ArrayType,
    Base,
    Choice,
    ClassOf,
    DictOf,
    Maybe,
    SchemaType,
)

__all__ = ["check_default"]


_MUTABLE = "a default must be immutable: write a tuple or a number"


def check_default(value: Any, declared: SchemaType) -> Any:
    """The default as the schema keeps it: it cannot change, and has a text.

    Raises
    ------
    Mismatch
        If it does not fit the type, could change, or has no text.
    """
    inner = declared.item if isinstance(declared, Maybe) else declared
    if value is None and inner is declared:
        raise Mismatch("only an Optional parameter has the default None")
    if isinstance(value, list | dict | set | bytearray | np.ndarray):
        raise Mismatch(_MUTABLE)
    if value is not None and inner == Base("bool") and number_letter(value) != "b":
        raise Mismatch(f"expects bool, got {show(value)}")
    return _DEFAULT.visit(coerce(value, declared), declared)


class _Default(Visitor):
    """Turns a coerced default into a value that cannot change."""

    def base(self, value: Any, declared: Base) -> Any:
        if declared == GENERATOR:
            raise Mismatch(
                "a Generator can only have the default None, since drawing changes it"
            )
        if declared == DTYPE and not _has_text(value):
            raise Mismatch("this dtype has no text in a schema")
        _check_digits(value)
        return value

    def choice(self, value: Any, declared: Choice) -> Any:
        _check_digits(value)
        return value

    def array(self, value: Any, declared: ArrayType) -> Any:
        if declared.or_number and number_letter(value):
            _check_digits(value)
            return to_scalar(value)
        raise Mismatch("an array can only have the default None")

    def open(self, value: Any, declared: NestedType) -> Any:
        if isinstance(declared, DictOf):
            raise Mismatch(_MUTABLE)
        if isinstance(declared, ClassOf) and not declared.fields.is_frozen:
            raise Mismatch(_MUTABLE)
        return value

    def close(self, value: Any, declared: NestedType, items: list[Any]) -> Any:
        if isinstance(declared, ClassOf):
            return declared.fields.like(value, items)
        return tuple(items)


_DEFAULT = _Default()


def _check_digits(value: Any) -> None:
    """Raise for an int that Python cannot print, and so a schema cannot show.

    Raises
    ------
    Mismatch
    """
    try:
        repr(value)
    except ValueError as error:
        raise Mismatch(f"a number in a schema must have a text: {error}") from None


def _has_text(dtype: np.dtype[Any]) -> bool:
    """Whether the text of a dtype, or of its fields, can be read back."""
    describe, read = np.lib.format.dtype_to_descr, np.lib.format.descr_to_dtype
    text: Any = str(dtype) if dtype.names is None else describe(dtype)
    try:
        return bool(read(text) == dtype)
    except (TypeError, ValueError, SyntaxError):  # its text means another dtype
        return False
