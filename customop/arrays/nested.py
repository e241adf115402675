"""Nested values: lists, tuples, dicts and config objects that hold arrays.

Everything here walks the arguments and results of operators. A class of config objects
becomes known when an operator first names it, if its fields hold arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from operator import is_
from typing import Any, Protocol

from customop.arrays.kinds import is_array

__all__ = [
    "Nest",
    "aligned",
    "children",
    "flat",
    "like",
    "map_beside",
    "map_nested",
    "map_outline",
    "map_paths",
    "map_result",
    "nests",
    "outline",
    "steps",
]


class Nest(Protocol):
    """How values of one class are taken apart and put together."""

    def steps(self, value: Any) -> Sequence[Hashable]:
        """Names or keys of its parts."""
        ...

    def items(self, value: Any) -> list[Any]:
        """Its parts, in order."""
        ...

    def like(self, value: Any, items: list[Any]) -> Any:
        """A value of the same class that holds other values in their places."""
        ...

    def outline(self, value: Any, items: list[Any]) -> Any:
        """The same nesting around items that are not values: axes, gradients, None."""
        ...


class _DictNest:
    """Dicts. Their keys stay."""

    def steps(self, value: Any) -> Sequence[Hashable]:
        return list(value)

    def items(self, value: Any) -> list[Any]:
        return list(value.values())

    def like(self, value: Any, items: list[Any]) -> Any:
        return dict(zip(value, items, strict=True))

    outline = like


# Class -> how its values are taken apart. Lists and tuples are not here, since each
# walk handles them first. Classes of config objects are here if they hold arrays.
nests: dict[type, Nest] = {dict: _DictNest()}


def children(value: Any) -> Sequence[Any] | None:
    """The parts of a value that holds others, in order; None for any other value."""
    cls = type(value)
    if cls is list or cls is tuple:
        parts: Sequence[Any] = value
        return parts
    nest = nests.get(cls)
    return None if nest is None else nest.items(value)


def steps(value: Any) -> Sequence[Hashable]:
    """Positions, keys or names of fields of the parts of a value."""
    nest = nests.get(type(value))
    return range(len(value)) if nest is None else nest.steps(value)


def like(value: Any, items: list[Any]) -> Any:
    """A value that holds `items` in the places of the parts of `value`."""
    cls = type(value)
    if cls is list:
        return items
    if cls is tuple:
        return tuple(items)
    nest = nests[cls]
    # An object whose items are the same stays itself; no constructor is called.
    same = cls is not dict and all(map(is_, nest.items(value), items))
    return value if same else nest.like(value, items)


def outline(value: Any, items: list[Any]) -> Any:
    """As `like`, for items that are not values, such as axes."""
    cls = type(value)
    if cls is list or cls is tuple:
        return cls(items)
    return nests[cls].outline(value, items)


def flat(value: Any) -> list[Any]:
    """The leaves of a value, in order; None is a leaf."""
    cls = type(value)
    if cls is not list and cls is not tuple:
        nest = nests.get(cls)
        if nest is None:
            return [value]
        value = nest.items(value)
    found = []
    for item in value:
        cls = type(item)
        if cls is list or cls is tuple or cls in nests:
            found += flat(item)
        else:
            found.append(item)
    return found


def map_nested(value: Any, fn: Callable[[Any], Any]) -> Any:
    """Apply `fn` to each leaf. The result must be a value too: see `map_outline`."""
    cls = type(value)
    if cls is list:
        return [map_nested(item, fn) for item in value]
    if cls is tuple:
        return tuple(map_nested(item, fn) for item in value)
    nest = nests.get(cls)
    if nest is None:
        return fn(value)
    return like(value, [map_nested(item, fn) for item in nest.items(value)])


def map_result(value: Any, fn: Callable[[Any], Any]) -> Any:
    """Apply `fn` to the arrays of a result; scalars and None stay."""
    return map_nested(value, lambda v: fn(v) if is_array(v) else v)


def map_outline(value: Any, fn: Callable[[Any], Any]) -> Any:
    """The nesting of a value with what `fn` makes of each leaf: axes, flags, None."""
    cls = type(value)
    if cls is list:
        return [map_outline(item, fn) for item in value]
    if cls is tuple:
        return tuple(map_outline(item, fn) for item in value)
    nest = nests.get(cls)
    if nest is None:
        return fn(value)
    return nest.outline(value, [map_outline(item, fn) for item in nest.items(value)])


def map_paths(
    value: Any,
    fn: Callable[[Any, tuple[int, ...]], Any],
    build: Callable[[Any, list[Any]], Any] = like,
    path: tuple[int, ...] = (),
) -> Any:
    """Apply `fn` to each leaf and its path: the index at each depth.

    `build` is `like`, or `outline` if `fn` does not return values.
    """
    found = children(value)
    if found is None:
        return fn(value, path)
    pairs = enumerate(found)
    return build(value, [map_paths(v, fn, build, (*path, i)) for i, v in pairs])


def map_beside(value: Any, other: Any, fn: Callable[[Any, Any], Any]) -> Any:
    """Apply `fn` to each leaf and to what `other` has in its place, such as an axis.

    `other` is nested as `value` is, or None for all leaves.
    """
    found = children(value)
    if found is None:
        return fn(value, other)
    others = [None] * len(found) if other is None else children(other) or ()
    pairs = zip(found, others, strict=True)
    return like(value, [map_beside(v, o, fn) for v, o in pairs])


def aligned(value: Any, other: Any) -> Sequence[Any] | None:
    """The parts of `other` in the order of those of `value`; None if it does not fit.

    For a config object, `other` is an object of its class, or a dict with names of its
    fields; the fields left out get None.
    """
    if type(value) is list and type(other) is list and len(value) == len(other):
        return other  # the usual case
    if type(value) in (list, tuple) or not isinstance(other, Mapping):
        return _by_place(value, other)
    names = steps(value)
    fits = all(name in names for name in other)
    return [other.get(name) for name in names] if fits else None


def _by_place(value: Any, other: Any) -> Sequence[Any] | None:
    if type(other) is type(value) and type(value) in nests:
        return nests[type(value)].items(other)
    is_sequence = isinstance(value, list | tuple) and isinstance(other, list | tuple)
    return other if is_sequence and len(other) == len(value) else None
