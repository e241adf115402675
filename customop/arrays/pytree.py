"""Pytrees: a thin face over optree.

A class of one's own becomes a pytree by
``optree.register_pytree_node(cls, flatten, unflatten, namespace="customop")``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import optree

from customop.arrays.nested import ClassFields

__all__ = [
    "Structure",
    "flatten",
    "leaves",
    "map_leaves",
    "register_class",
    "spread",
    "unflatten",
]

Structure = optree.PyTreeSpec

_NAMESPACE = "customop"


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """Leaves of a pytree in order, and its structure. None is no leaf."""
    found, structure = optree.tree_flatten(tree, namespace=_NAMESPACE)
    return found, structure


def unflatten(structure: Structure, found: Sequence[Any]) -> Any:
    """Build the pytree of a structure from its leaves."""
    return optree.tree_unflatten(structure, found)


def leaves(tree: Any) -> list[Any]:
    """Leaves of a pytree in order. None is no leaf."""
    return optree.tree_leaves(tree, namespace=_NAMESPACE)


def map_leaves(fn: Callable[..., Any], tree: Any) -> Any:
    """Apply `fn` to each leaf."""
    return optree.tree_map(fn, tree, namespace=_NAMESPACE)


class _Nothing:
    """Stands for None in a prefix, since None is no leaf."""


_NOTHING = _Nothing()


def spread(prefix: Any, tree: Any) -> list[Any]:
    """The leaf of a prefix that stands for each leaf of a tree. None is a leaf here.

    Raises
    ------
    ValueError
        If the prefix does not fit the tree.
    """
    marked = optree.tree_map(
        lambda leaf: _NOTHING if leaf is None else leaf,
        prefix,
        none_is_leaf=True,
        namespace=_NAMESPACE,
    )
    found = optree.broadcast_prefix(marked, tree, namespace=_NAMESPACE)
    return [None if leaf is _NOTHING else leaf for leaf in found]


def register_class(fields: ClassFields, moving: Sequence[str]) -> None:
    """Make a class of config objects a pytree: `moving` fields hold its leaves.

    NamedTuples and dicts are pytrees already, of all that they hold; members of an
    Enum are leaves. What a user has registered stays.
    """
    cls: Any = fields.cls
    if issubclass(cls, tuple) or fields.is_dict or not fields.hints:
        return
    fixed = [name for name in fields.hints if name not in moving]

    def take_apart(value: Any) -> tuple[list[Any], Any, tuple[str, ...]]:
        rest = tuple(getattr(value, name) for name in fixed)
        found = [getattr(value, name) for name in moving]
        return found, (fields.keeps_more(value), rest), tuple(moving)

    def make(constant: Any, found: Any) -> Any:
        keeps_more, rest = constant
        given = dict(zip((*fixed, *moving), (*rest, *found), strict=True))
        items = [given[name] for name in fields.hints]
        return fields.like(None, items) if keeps_more else fields.outline(None, items)

    try:
        optree.register_pytree_node(cls, take_apart, make, namespace=_NAMESPACE)
    except ValueError as error:
        if "already registered" not in str(error):
            raise
