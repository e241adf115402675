"""Where the arrays of a call are, and what stands in all other places."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from customop.arrays.nested import children, map_outline, steps

__all__ = ["ArraySlot", "CallPlaces"]


class ArraySlot:
    """The place of an array."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index: int = index


class CallPlaces:
    """The arguments of a call without its arrays; the same for the same other values.

    Parameters
    ----------
    values : sequence
        Nested, with a `ArraySlot` in the place of each array.
    """

    __slots__ = ("_key", "_values")

    def __init__(self, values: Sequence[Any]) -> None:
        self._values = [*values]
        self._key = _key(self._values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CallPlaces) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return "..."

    def filled(self, arrays: Sequence[Any]) -> list[Any]:
        """The values with these arrays."""

        def value(leaf: Any) -> Any:
            return arrays[leaf.index] if isinstance(leaf, ArraySlot) else leaf

        return [map_outline(nested, value) for nested in self._values]


def _key(value: Any) -> Hashable:
    """Equal for values that mean the same; of others the identity."""
    if isinstance(value, ArraySlot):
        return (ArraySlot, value.index)
    parts = children(value)
    if parts is not None:
        return (type(value), tuple(steps(value)), tuple([_key(part) for part in parts]))
    try:
        hash(value)
    except TypeError:
        return _OneObject(value)
    return (type(value), value)


class _OneObject:
    """Equal to the same object alone, which it keeps."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _OneObject) and self._value is other._value

    def __hash__(self) -> int:
        return id(self._value)
