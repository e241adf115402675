"""Pytrees, which transforms take and return: a thin layer over optree.

A user's class becomes a pytree by
``optree.register_pytree_node(cls, flatten, unflatten, namespace="customop")``.
The arguments of operators go by `nested` instead: it keeps the order of dicts, treats
None as a leaf, and is 2 to 8 times as fast for up to ten arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Protocol

import numpy as np

__all__ = [
    "Accessor",
    "Structure",
    "TreeRules",
    "add_leaf_class",
    "add_own_node",
    "flatten",
    "key_orders",
    "leaf_classes",
    "leaves",
    "map_leaves",
    "outline",
    "register_node",
    "registered_nodes",
    "spread",
    "unflatten",
]

_NAMESPACE = "customop"


class Accessor(Protocol):
    """The path of a leaf: an `optree.PyTreeAccessor`."""

    def __getitem__(self, key: Any, /) -> Any:
        """The entry of a step, or the rest of the path for a slice."""
        ...

    def codify(self, root: str, /) -> str:
        """Write the path as an expression, such as ``root[0]["w"]``."""
        ...


class NodeKind(Protocol):
    """How a node is taken apart: an `optree.PyTreeKind`."""

    @property
    def name(self) -> str:
        """Such as LIST, NAMEDTUPLE or CUSTOM."""
        ...


class Structure(Protocol):
    """The structure of a pytree: an `optree.PyTreeSpec`."""

    @property
    def type(self) -> type | None:
        """The class of the outermost node; None for a leaf."""
        ...

    @property
    def kind(self) -> NodeKind:
        """How the outermost node is taken apart."""
        ...

    @property
    def num_leaves(self) -> int:
        """The number of leaves."""
        ...

    def children(self) -> Sequence[Structure]:
        """The structures of its parts, in the order of their leaves."""
        ...

    def entries(self) -> Sequence[Any]:
        """The index, key or name of each part."""
        ...

    def accessors(self) -> Sequence[Accessor]:
        """Paths of the leaves in order."""
        ...


class TreeRules(Protocol):
    """How objects of a class are taken apart: an `optree.PyTreeNodeRegistryEntry`."""

    @property
    def flatten_func(self) -> Callable[[Any], Any]:
        """Gives the children of an object, and what else is needed to make it."""
        ...

    @property
    def unflatten_func(self) -> Callable[[Any, Any], Any]:
        """Makes an object of that constant and the children."""
        ...


class _Optree:
    """Import optree when one of its functions is needed: 6 ms of the import.

    An import statement would make mypy read torch and JAX where they are installed,
    because optree imports them: 40 s and 1 GB.
    """

    def __getattr__(self, name: str) -> Any:
        # From now on the functions below find the module itself.
        module = globals()["_optree"] = import_module("optree")
        while _own_nodes:
            register_node(*_own_nodes.pop())
        return getattr(module, name)


_optree: Any = _Optree()
# Classes of the package that become pytrees when optree is imported.
_own_nodes: list[tuple[Any, Callable[[Any], Any], Callable[[Any, Any], Any]]] = []


# Classes that are leaves for certain: numbers, NumPy's arrays, and those of tracers.
leaf_classes: set[type] = {np.ndarray, bool, int, float, complex, str}
leaf_classes.update(np.sctypeDict.values())
# By the length of a tuple of leaves its structure; by -1 that of a leaf.
_known: dict[int, Structure] = {}


def add_leaf_class(cls: type) -> None:
    """Note that objects of a class are leaves, so that nobody has to ask optree."""
    leaf_classes.add(cls)


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """Leaves of a pytree in order, without None, and its structure."""
    # Arguments and results mostly are an array or a tuple of some: a third of the time.
    cls = type(tree)
    if cls in leaf_classes:
        return [tree], _known.get(-1) or _structure(-1, tree)
    if cls is tuple:
        for item in tree:
            if type(item) not in leaf_classes:
                break
        else:
            count = len(tree)
            return [*tree], _known.get(count) or _structure(count, tree)
    return _optree.tree_flatten(tree, namespace=_NAMESPACE)  # type: ignore[no-any-return]  # a pair


def outline(structure: Structure) -> str:
    """A structure in words, without the name of its class: ``{'w': *}``."""
    text = str(structure)
    head, _, rest = text.partition("(")
    return rest[:-1].partition(", namespace=")[0] if head == "PyTreeSpec" else text


def _structure(count: int, tree: Any) -> Structure:
    """The structure of a leaf, or of a tuple of so many, which is kept."""
    found: Structure = _optree.tree_structure(tree, namespace=_NAMESPACE)
    return _known.setdefault(count, found)


def unflatten(structure: Structure, found: Sequence[Any]) -> Any:
    """Build the pytree of a structure from its leaves."""
    if structure is _known.get(-1):
        return found[0]
    if structure is _known.get(len(found)):
        return tuple(found)
    return _optree.tree_unflatten(structure, found)


def leaves(tree: Any) -> list[Any]:
    """Leaves of a pytree in order, without None."""
    found: list[Any] = _optree.tree_leaves(tree, namespace=_NAMESPACE)
    return found


def key_orders(tree: Any) -> list[list[Any]]:
    """The keys of all dicts in a pytree, as they were put in; `flatten` sorts them."""
    found: list[list[Any]] = []

    def look(value: Any) -> bool:
        if isinstance(value, dict):
            found.append([*value])
        return False

    _optree.tree_leaves(tree, is_leaf=look, namespace=_NAMESPACE)
    return found


def map_leaves(fn: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """Apply `fn` to each leaf, and to those of other trees in its place."""
    if not rest:  # results mostly are an array or a tuple of some: 5 us less
        cls = type(tree)
        if cls in leaf_classes:
            return fn(tree)
        if cls is tuple and leaf_classes.issuperset(map(type, tree)):
            return tuple([fn(leaf) for leaf in tree])
    return _optree.tree_map(fn, tree, *rest, namespace=_NAMESPACE)


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
    if prefix is None or type(prefix) is int:  # the usual case: a sixth of the time
        return [prefix] * len(flatten(tree)[0])
    marked = _optree.tree_map(
        lambda leaf: _NOTHING if leaf is None else leaf,
        prefix,
        none_is_leaf=True,
        namespace=_NAMESPACE,
    )
    found = _optree.broadcast_prefix(marked, tree, namespace=_NAMESPACE)
    return [None if leaf is _NOTHING else leaf for leaf in found]


def register_node(
    cls: Any, take_apart: Callable[[Any], Any], make: Callable[[Any, Any], Any]
) -> bool:
    """Make a class a pytree, unless it is one already; say whether it was new."""
    try:
        _optree.register_pytree_node(cls, take_apart, make, namespace=_NAMESPACE)
    except ValueError as error:
        if "already registered" not in str(error):
            raise
        return False
    return True


def add_own_node(
    cls: Any, take_apart: Callable[[Any], Any], make: Callable[[Any, Any], Any]
) -> None:
    """Make a class of the package a pytree, without an import of optree for it."""
    _own_nodes.append((cls, take_apart, make))
    if not isinstance(_optree, _Optree):
        register_node(*_own_nodes.pop())


def registered_nodes() -> dict[type, TreeRules]:
    """All classes that are pytrees by registration, here or in every namespace."""
    found: dict[type, TreeRules] = _optree.register_pytree_node.get(
        None, namespace=_NAMESPACE
    )
    return found
