"""Pytrees: a thin face over optree.

A class of one's own becomes a pytree by
``optree.register_pytree_node(cls, flatten, unflatten, namespace="customop")``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import optree

__all__ = [
    "Structure",
    "flatten",
    "leaves",
    "map_leaves",
    "register_node",
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


def register_node(
    cls: Any, take_apart: Callable[[Any], Any], make: Callable[[Any, Any], Any]
) -> None:
    """Make a class a pytree, unless a user has registered it with optree."""
    try:
        optree.register_pytree_node(cls, take_apart, make, namespace=_NAMESPACE)
    except ValueError as error:
        if "already registered" not in str(error):
            raise
