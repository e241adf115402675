"""One walk over a value and its schema type side by side, which says if they fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from customop.arrays.describe import show
from customop.arrays.kinds import is_array
from customop.schema.types import (
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
    place_in,
    typed_items,
)
from customop.shapes.symbols import Symbolic

__all__ = ["ARGUMENTS", "Mismatch", "NestedType", "Visitor", "typed_arrays"]

NestedType: TypeAlias = ListOf | TupleOf | DictOf | ClassOf


class Mismatch(Exception):
    """A value does not fit a schema type; the text says why."""


class Visitor:
    """A walk over a value and its type. Subclasses say what fits.

    A method raises `Mismatch` for a value that does not fit; otherwise it returns the
    result for that value. The methods of this class accept everything.
    """

    def visit(self, value: Any, declared: SchemaType) -> Any:
        """Walk over a value.

        Raises
        ------
        Mismatch
            If it does not fit the type.
        """
        if isinstance(declared, Base):
            return self.base(value, declared)
        if isinstance(declared, Maybe):
            return None if value is None else self.visit(value, declared.item)
        if isinstance(declared, ArrayType):
            return self.array(value, declared)
        if isinstance(declared, Choice):
            return self.choice(value, declared)
        if isinstance(declared, ClassOf) and declared.is_enum:
            return self.member(value, declared)
        opened = self.open(value, declared)
        parts = typed_items(opened, declared)
        items: list[Any] = []
        try:
            for _, item, item_type in parts:
                items.append(self.visit(item, item_type))
        except Mismatch as error:
            # Those that fit are in `items`, so the next one is at fault.
            place = place_in(declared, parts[len(items)][0])
            raise Mismatch(f"at {place} {error}") from None
        return self.close(opened, declared, items)

    def fault(self, value: Any, declared: SchemaType) -> str:
        """Why a value does not fit its type, or nothing."""
        try:
            self.visit(value, declared)
        except Mismatch as error:
            return str(error)
        return ""

    def base(self, value: Any, declared: Base) -> Any:
        """A number, string, dtype or the like."""
        return value

    def array(self, value: Any, declared: ArrayType) -> Any:
        """An array, or a number in its place."""
        return value

    def choice(self, value: Any, declared: Choice) -> Any:
        """One of several values."""
        return value

    def member(self, value: Any, declared: ClassOf) -> Any:
        """A member of an Enum."""
        return value

    def open(self, value: Any, declared: NestedType) -> Any:
        """A nested value as `typed_items` can take it apart."""
        return value

    def close(self, value: Any, declared: NestedType, items: list[Any]) -> Any:
        """The result for a nested value, from the results for its items."""
        return value


class _Arguments(Visitor):
    """Checks the arrays of arguments that were coerced."""

    def array(self, value: Any, declared: ArrayType) -> Any:
        if is_array(value) or (
            declared.or_number and isinstance(value, int | float | complex | Symbolic)
        ):
            return value
        raise Mismatch(f"expects {declared}, got {show(value)}")


ARGUMENTS: Visitor = _Arguments()


def typed_arrays(
    value: Any, declared: SchemaType, where: str = ""
) -> Iterator[tuple[str, Any, ArrayType]]:
    """Arrays in a value, and numbers in their place: place in words, value and type.

    Parts that do not fit their type are left out.
    """
    if isinstance(declared, Maybe):
        declared = declared.item
        if value is None:
            return
    if isinstance(declared, ArrayType):
        yield where, value, declared
    elif holds_arrays(declared):
        for step, item, item_type in _items_that_fit(value, declared):
            place = place_in(declared, step)
            yield from typed_arrays(item, item_type, f"{where} at {place}")


def _items_that_fit(
    value: Any, declared: SchemaType
) -> Sequence[tuple[Any, Any, SchemaType]]:
    try:
        return typed_items(value, declared)
    except (TypeError, AttributeError, ValueError, KeyError):
        return ()
