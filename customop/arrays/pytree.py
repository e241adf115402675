"""Pytrees, which transforms take and return: a thin layer over optree.

A user's class becomes a pytree by
``optree.register_pytree_node(cls, flatten, unflatten, namespace="customop")``.
The arguments of operators go by `nested` instead: it keeps the order of dicts, treats
None as a leaf, and is 2 to 8 times as fast for up to ten arrays.
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
    """Leaves of a pytree in order, without None, and its structure."""
    found, structure = optree.tree_flatten(tree, namespace=_NAMESPACE)
    return found, structure


def unflatten(structure: Structure, found: Sequence[Any]) -> Any:
    """Build the pytree of a structure from its leaves."""
    return optree.tree_unflatten(structure, found)


def leaves(tree: Any) -> list[Any]:
    """Leaves of a pytree in order, without None."""
    return optree.tree_leaves(tree, namespace=_NAMESPACE)


def map_leaves(fn: Callable[..., Any], tree: Any) -> Any:
    """Apply `fn` to each leaf."""
    return optree.tree_map(fn, tree, namespace=_NAMESPACE)


class _Nothing:
    """The mark for None in a prefix, since optree does not count None as a leaf."""


_NOTHING = _Nothing()


def spread(prefix: Any, tree: Any) -> list[Any]:
    """For each leaf of a tree, the leaf of a prefix above it. Here None is a leaf.

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
