"""Pytrees: a thin face over optree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import optree

__all__ = ["flatten", "leaves", "map_leaves", "unflatten"]

Structure = optree.PyTreeSpec


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """Leaves of a pytree in order, and its structure. None is no leaf."""
    found, structure = optree.tree_flatten(tree)
    return found, structure


def unflatten(structure: Structure, found: Sequence[Any]) -> Any:
    """Build the pytree of a structure from its leaves."""
    return optree.tree_unflatten(structure, found)


def leaves(tree: Any) -> list[Any]:
    """Leaves of a pytree in order. None is no leaf."""
    return optree.tree_leaves(tree)


def map_leaves(fn: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """Apply `fn` to each leaf, and to the leaves of further trees at its place."""
    return optree.tree_map(fn, tree, *rest)
