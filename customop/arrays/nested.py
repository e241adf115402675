"""Nested values: containers and config objects that hold arrays, their texts, and pytrees.

Everything here walks the arguments and results of operators. A class of config objects
becomes known when an operator first names it, if its fields hold arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from importlib import import_module
from operator import is_
from typing import Any, Protocol

import numpy as np

from customop.arrays.kinds import is_array
from customop.errors import shown

# ---- nested values: lists, tuples, dicts and config objects that hold arrays ----


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


# ---- how values read in messages ----


_LETTERS = frozenset("fiuc")
# Of the repr of one value in a call.
_LONGEST = 1000


def abbreviated(value: Any) -> str:
    """Dtype and shape of an array, such as ``f64[3, 2]``."""
    dtype = value.dtype
    letter = getattr(dtype, "kind", "")
    if letter == "b":
        name = "bool"
    else:
        name = f"{letter}{8 * dtype.itemsize}" if letter in _LETTERS else str(dtype)
    return f"{name}[{', '.join(str(length) for length in value.shape)}]"


def describe(value: Any) -> str:
    """Class, dtype and shape of an array, such as ``GradTracer f64[3, 2]``."""
    return f"{type(value).__name__} {abbreviated(value)}"


def show(value: Any) -> str:
    """The type of a value, and the value itself if that is short."""
    if value is None:
        return "None"
    name = type(value).__name__
    if not isinstance(value, type) and hasattr(value, "shape"):
        return f"{name} of shape {value.shape}"
    text = shown(value)
    return f"{name} {text}" if len(text) <= 60 else name


def show_values(values: Sequence[Any]) -> str:
    """The arguments of a call, with dtype and shape in place of each array."""
    return ", ".join(repr(map_outline(v, _InShort)) for v in values)


class _InShort:
    """A leaf whose repr is short if it is an array."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        value = self.value
        return abbreviated(value) if is_array(value) else shown(value, _LONGEST)


# ---- pytrees, which transforms take and return: a thin layer over optree ----
# A user's class becomes a pytree by ``optree.register_pytree_node(cls, flatten,
# unflatten, namespace="customop")``. The arguments of operators go by `nested` instead:
# it keeps the order of dicts, treats None as a leaf, and is 2 to 8 times as fast for up
# to ten arrays.


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


def outline_pytree(structure: Structure) -> str:
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
