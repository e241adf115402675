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
    typed_items,
)

__all__ = ["ARGUMENTS", "Mismatch", "NestedType", "Visitor", "typed_arrays"]

NestedType: TypeAlias = ListOf | TupleOf | DictOf | ClassOf


class Mismatch(Exception):
    """A value does not fit a schema type; the text says why."""


class Visitor:
    """A walk over a value and its type. Subclasses say what fits.

    A method raises `Mismatch` for a value that does not fit, or returns what the walk
    makes of it. As they stand, the methods accept everything.
    """

    def visit(self, value: Any, kind: SchemaType) -> Any:
        """Walk over a value.

        Raises
        ------
        Mismatch
            If it does not fit the type.
        """
        while isinstance(kind, Maybe):
            if value is None:
                return None
            kind = kind.item
        if isinstance(kind, Base):
            return self.base(value, kind)
        if isinstance(kind, ArrayType):
            return self.array(value, kind)
        if isinstance(kind, Choice):
            return self.choice(value, kind)
        if isinstance(kind, ClassOf) and kind.is_enum:
            return self.member(value, kind)
        opened = self.open(value, kind)
        parts = typed_items(opened, kind)
        items: list[Any] = []
        try:
            for _, item, item_kind in parts:
                items.append(self.visit(item, item_kind))
        except Mismatch as error:
            # Those that fit are in `items`, so the next one is at fault.
            raise Mismatch(f"at {parts[len(items)][0]} {error}") from None
        return self.close(opened, kind, items)

    def fault(self, value: Any, kind: SchemaType) -> str:
        """Why a value does not fit its type, or nothing."""
        try:
            self.visit(value, kind)
        except Mismatch as error:
            return str(error)
        return ""

    def base(self, value: Any, kind: Base) -> Any:
        """A number, string, dtype or the like."""
        return value

    def array(self, value: Any, kind: ArrayType) -> Any:
        """An array, or a number in its place."""
        return value

    def choice(self, value: Any, kind: Choice) -> Any:
        """One of several values."""
        return value

    def member(self, value: Any, kind: ClassOf) -> Any:
        """A member of an Enum."""
        return value

    def open(self, value: Any, kind: NestedType) -> Any:
        """A nested value as `typed_items` can take it apart."""
        return value

    def close(self, value: Any, kind: NestedType, items: list[Any]) -> Any:
        """What the walk makes of a nested value, from what it made of its items."""
        return value


class _Arguments(Visitor):
    """Arguments that were coerced, whose arrays nobody has looked at."""

    def array(self, value: Any, kind: ArrayType) -> Any:
        if is_array(value) or (
            kind.or_number and isinstance(value, int | float | complex)
        ):
            return value
        raise Mismatch(f"expects {kind}, got {show(value)}")


ARGUMENTS: Visitor = _Arguments()


def typed_arrays(
    value: Any, kind: SchemaType, where: str = ""
) -> Iterator[tuple[str, Any, ArrayType]]:
    """Arrays in a value, and numbers in their place: place in words, value and type.

    Parts that do not fit their type are left out.
    """
    if isinstance(kind, Maybe):
        kind = kind.item
        if value is None:
            return
    if isinstance(kind, ArrayType):
        yield where, value, kind
    elif holds_arrays(kind):
        for place, v, k in _items_that_fit(value, kind):
            yield from typed_arrays(v, k, f"{where} at {place}")


def _items_that_fit(
    value: Any, kind: SchemaType
) -> Sequence[tuple[str, Any, SchemaType]]:
    try:
        return typed_items(value, kind)
    except (TypeError, AttributeError, ValueError, KeyError):
        return ()
