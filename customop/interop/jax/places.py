"""Where the arrays of a call are, and what stands in all other places."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from customop.arrays.nested import map_outline
from customop.frozen import Frozen
from customop.graph.passes.common import frozen_key

__all__ = ["ArraySlot", "CallPlaces"]


class ArraySlot(Frozen):
    """The place of an array."""

    index: int


class CallPlaces:
    """The arguments of a call without its arrays; equal where the others are, to the bit.

    Parameters
    ----------
    values : sequence
        Nested, with an `ArraySlot` in the place of each array.
    """

    __slots__ = ("_key", "_values")

    def __init__(self, values: Sequence[Any]) -> None:
        self._values = [*values]
        # Of an object that has no hash it is the identity: the values keep it alive.
        self._key: Hashable = frozen_key(self._values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CallPlaces) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return "..."

    @property
    def count(self) -> int:
        """How many arrays there are."""
        found = 0

        def seen(leaf: Any) -> Any:
            nonlocal found
            found += isinstance(leaf, ArraySlot)
            return leaf

        for nested in self._values:
            map_outline(nested, seen)
        return found

    def filled(self, arrays: Sequence[Any]) -> list[Any]:
        """The values with these arrays."""

        def value(leaf: Any) -> Any:
            return arrays[leaf.index] if isinstance(leaf, ArraySlot) else leaf

        return [map_outline(nested, value) for nested in self._values]
