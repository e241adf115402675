"""Nested values: those of operators and those of transforms, one walk for each question.

Both are taken apart by a table of classes: `nests` for the arguments and results of
operators, optree's registry for the pytrees that transforms take and return. The two
differ: an operator's value keeps the order of dicts, has None as a leaf, and may hold
axes or flags in place of arrays. optree takes 2 to 8 times as long for it (Python 3.11,
optree 0.20; the same for one array and for a list of 1,000).

| question | values of operators | pytrees |
| --- | --- | --- |
| which leaves? | `flat` | `flatten`, `leaves` |
| the same nesting around others | `refill` | `unflatten` |
| a function of each leaf | `map_nested`, `map_outline` | `map_leaves` |
| where is each leaf? | `paths`, `map_paths` | `Structure.accessors` |
| what has another value in its place? | `beside`, `map_beside` | `spread` |
| what is one step below? | `children`, `steps`, `like` | `Structure` |
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from importlib import import_module
from operator import is_
from typing import Any, Protocol

import numpy as np

from customop.arrays.kinds import is_array
from customop.errors import CustomOpError, shown
from customop.forks import importing

# ---- values of operators: lists, tuples, dicts and config objects that hold arrays ----


class Nest(Protocol):
    """The way in which values of one class are taken apart and put together."""

    def steps(self, value: Any) -> Sequence[Hashable]:
        """Return the positions, keys or names of its parts."""
        ...

    def items(self, value: Any) -> Sequence[Any]:
        """Return its parts, in order."""
        ...

    def like(self, value: Any, items: list[Any]) -> Any:
        """Make a value of the same class that holds other values in their places."""
        ...

    def outline(self, value: Any, items: list[Any]) -> Any:
        """Put items that are not values into the same nesting: axes, gradients, None."""
        ...


class _ListNest:
    """Lists."""

    def steps(self, value: Any) -> Sequence[Hashable]:
        return range(len(value))

    def items(self, value: Any) -> Sequence[Any]:
        return value  # type: ignore[no-any-return]  # a list or tuple

    def like(self, value: Any, items: list[Any]) -> Any:
        return items

    outline = like


class _TupleNest(_ListNest):
    """Tuples; those of a subclass are config objects."""

    def like(self, value: Any, items: list[Any]) -> Any:
        return tuple(items)

    outline = like


class _DictNest:
    """Dicts. Their keys stay."""

    def steps(self, value: Any) -> Sequence[Hashable]:
        return list(value)

    def items(self, value: Any) -> Sequence[Any]:
        return list(value.values())

    def like(self, value: Any, items: list[Any]) -> Any:
        return dict(zip(value, items, strict=True))

    outline = like


# Class -> how its values are taken apart; values of all other classes are leaves. A class
# of config objects is here if its fields hold arrays, once an operator has named it.
nests: dict[type, Nest] = {list: _ListNest(), tuple: _TupleNest(), dict: _DictNest()}
# Tells whether there is no such class among others: most lists are flat.
_are_leaves = nests.keys().isdisjoint


def flat(value: Any) -> list[Any]:
    """Return the leaves of a value, in order; None is a leaf."""
    cls = type(value)
    if cls is not list and cls is not tuple:
        nest = nests.get(cls)
        if nest is None:
            return [value]
        value = nest.items(value)
    if _are_leaves(map(type, value)):
        return [*value]
    found = []
    for item in value:
        if type(item) in nests:
            found += flat(item)
        else:
            found.append(item)
    return found


def like(value: Any, items: list[Any]) -> Any:
    """Make a value that holds `items` in the places of the parts of `value`.

    An object whose parts are the same stays itself; no constructor is called.
    """
    cls = type(value)
    if cls is list:
        return items
    if cls is tuple:
        return tuple(items)
    nest = nests[cls]
    if cls is not dict and all(map(is_, nest.items(value), items)):
        return value
    return nest.like(value, items)


def outline(value: Any, items: list[Any]) -> Any:
    """Put items that are not values, such as axes, into the nesting of `value`."""
    return nests[type(value)].outline(value, items)


Build = Callable[[Any, list[Any]], Any]


def map_nested(value: Any, fn: Callable[[Any], Any], build: Build = like) -> Any:
    """Apply `fn` to each leaf. The result must be a value too: see `map_outline`."""
    cls = type(value)
    if cls is list or cls is tuple:
        items = value
    else:
        nest = nests.get(cls)
        if nest is None:
            return fn(value)
        items = nest.items(value)
    if _are_leaves(map(type, items)):
        found = [fn(item) for item in items]
    else:
        found = [map_nested(item, fn, build) for item in items]
    return found if cls is list else build(value, found)


def map_outline(value: Any, fn: Callable[[Any], Any]) -> Any:
    """Put what `fn` makes of each leaf into the same nesting: axes, flags, None."""
    return map_nested(value, fn, outline) if type(value) in nests else fn(value)


def map_result(value: Any, fn: Callable[[Any], Any]) -> Any:
    """Apply `fn` to the arrays of a result; scalars and None stay."""
    return map_nested(value, lambda v: fn(v) if is_array(v) else v)


def refill(value: Any, items: Iterable[Any], build: Build = like) -> Any:
    """Put other leaves, as many as `flat` gives, into the nesting of `value`."""
    found = children(value)
    if found is not None and _are_leaves(map(type, found)):
        return build(value, [*items])
    rest = iter(items)
    return map_nested(value, lambda _: next(rest), build)


def map_paths(
    value: Any, fn: Callable[[Any, tuple[int, ...]], Any], build: Build = like
) -> Any:
    """Apply `fn` to each leaf and its path. `build` is `outline` if it makes no values."""
    found = children(value)
    if found is None:
        return fn(value, ())
    if _are_leaves(map(type, found)):
        return build(value, [fn(leaf, (i,)) for i, leaf in enumerate(found)])
    return refill(value, map(fn, flat(value), paths(value)), build)


def paths(value: Any, start: tuple[int, ...] = ()) -> list[tuple[int, ...]]:
    """Return the path of each leaf: the position at each depth."""
    found = children(value)
    if found is None:
        return [start]
    if _are_leaves(map(type, found)):
        return [(*start, i) for i in range(len(found))]
    return [path for i, v in enumerate(found) for path in paths(v, (*start, i))]


def map_beside(value: Any, other: Any, fn: Callable[[Any, Any], Any]) -> Any:
    """Apply `fn` to each leaf and to what `other` has in its place, such as an axis.

    `other` is nested as `value` is, or None for all leaves.
    """
    if type(value) not in nests:
        return fn(value, other)
    return refill(value, map(fn, flat(value), beside(value, other)))


def beside(value: Any, other: Any) -> list[Any]:
    """Return for each leaf what `other` has in its place."""
    found = children(value)
    if found is None:
        return [other]
    if other is None:
        return [None] * len(flat(value))
    others = children(other) or ()
    if _are_leaves(map(type, found)) and len(found) == len(others):
        return [*others]
    pairs = zip(found, others, strict=True)
    return [item for pair in pairs for item in beside(*pair)]


# ---- one step into a value ----


def children(value: Any) -> Sequence[Any] | None:
    """Return the parts of a value that holds others, in order; None for a leaf."""
    nest = nests.get(type(value))
    return None if nest is None else nest.items(value)


def steps(value: Any) -> Sequence[Hashable]:
    """Return the positions, keys or names of fields of the parts of a value."""
    return nests[type(value)].steps(value)


def part_of(value: Any, step: Any) -> Any:
    """Return the part of a value at one of its `steps`."""
    if type(step) is int or isinstance(value, dict):
        return value[step]
    nest = nests[type(value)]
    return nest.items(value)[[*nest.steps(value)].index(step)]


def has_field(value: Any, name: Any) -> bool:
    """Return whether a value is a config object, and a name that of one of its fields."""
    if type(name) is int or isinstance(value, dict):
        return False
    nest = nests.get(type(value))
    return nest is not None and name in nest.steps(value)


def aligned(value: Any, other: Any) -> Sequence[Any] | None:
    """Return the parts of `other` in the order of those of `value`, None for a misfit.

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
    is_sequence = isinstance(value, list | tuple) and isinstance(other, list | tuple)
    if is_sequence and len(other) == len(value):
        return other  # type: ignore[no-any-return]  # a list or tuple
    same = type(other) is type(value) and type(value) not in (list, tuple)
    return nests[type(value)].items(other) if same else None


# ---- pytrees, which transforms take and return ----
# A user's class becomes a pytree by ``optree.register_pytree_node(cls, flatten,
# unflatten, namespace="customop")``.


_NAMESPACE = "customop"


class Accessor(Protocol):
    """The path of a leaf: an `optree.PyTreeAccessor`."""

    def __getitem__(self, key: Any, /) -> Any:
        """Return the entry of a step, or the rest of the path for a slice."""
        ...

    def codify(self, root: str, /) -> str:
        """Write the path as an expression, such as ``root[0]["w"]``."""
        ...


class NodeKind(Protocol):
    """The way in which a node is taken apart: an `optree.PyTreeKind`."""

    @property
    def name(self) -> str:
        """The name, such as LIST, NAMEDTUPLE or CUSTOM."""
        ...


class Structure(Protocol):
    """The structure of a pytree: an `optree.PyTreeSpec`."""

    @property
    def type(self) -> type | None:
        """The class of the outermost node; None for a leaf."""
        ...

    @property
    def kind(self) -> NodeKind:
        """The way in which the outermost node is taken apart."""
        ...

    @property
    def num_leaves(self) -> int:
        """The number of leaves."""
        ...

    def children(self) -> Sequence[Structure]:
        """Return the structures of its parts, in the order of their leaves."""
        ...

    def entries(self) -> Sequence[Any]:
        """Return the index, key or name of each part."""
        ...

    def accessors(self) -> Sequence[Accessor]:
        """Return the paths of the leaves in order."""
        ...


# Classes that are leaves for certain: numbers, NumPy's arrays, and those of tracers.
leaf_classes: set[type] = {np.ndarray, bool, int, float, complex, str}
leaf_classes.update(np.sctypeDict.values())
# Number of leaves -> structure of a tuple or list of so many, or of a leaf: most trees.
_tuples: dict[int, Structure] = {}
_lists: dict[int, Structure] = {}
_single: dict[int, Structure] = {}
# So many lengths are kept of each, so that programs with ever new ones do not grow.
_MOST_KEPT = 100


def add_leaf_class(cls: type) -> None:
    """Note that objects of a class are leaves, so that optree need not be asked."""
    leaf_classes.add(cls)


def flatten(tree: Any) -> tuple[list[Any], Structure]:
    """Return the leaves of a pytree in order, without None, and its structure."""
    cls = type(tree)
    if cls in leaf_classes:
        return [tree], _single.get(1) or _kept(_single, tree)
    if cls is tuple or cls is list:
        for item in tree:
            if type(item) not in leaf_classes:
                break
        else:
            known = _tuples if cls is tuple else _lists
            return [*tree], known.get(len(tree)) or _kept(known, tree)
    return _optree.tree_flatten(tree, namespace=_NAMESPACE)  # type: ignore[no-any-return]  # a pair


def _kept(known: dict[int, Structure], tree: Any) -> Structure:
    """Return the structure of a flat tree, the same object for each length."""
    found: Structure = _optree.tree_structure(tree, namespace=_NAMESPACE)
    return (
        found if len(known) > _MOST_KEPT else known.setdefault(found.num_leaves, found)
    )


def unflatten(structure: Structure, found: Sequence[Any]) -> Any:
    """Build the pytree of a structure from its leaves."""
    count = len(found)
    if structure is _single.get(count):
        return found[0]
    if structure is _tuples.get(count):
        return tuple(found)
    if structure is _lists.get(count):
        return [*found]
    return _optree.tree_unflatten(structure, found)


def placed(values: Sequence[Any], at: Sequence[int], new: Sequence[Any]) -> list[Any]:
    """Return a list with the values at some places replaced."""
    found = list(values)
    for place, value in zip(at, new, strict=True):
        found[place] = value
    return found


def leaves(tree: Any) -> list[Any]:
    """Return the leaves of a pytree in order, without None."""
    found: list[Any] = _optree.tree_leaves(tree, namespace=_NAMESPACE)
    return found


def map_leaves(fn: Callable[..., Any], tree: Any, *rest: Any) -> Any:
    """Apply `fn` to each leaf, and to those of other trees in its place."""
    if not rest:
        cls = type(tree)
        if cls in leaf_classes:
            return fn(tree)
        if (cls is tuple or cls is list) and leaf_classes.issuperset(map(type, tree)):
            found = [fn(leaf) for leaf in tree]
            return found if cls is list else tuple(found)
    return _optree.tree_map(fn, tree, *rest, namespace=_NAMESPACE)


class _Nothing:
    """The mark for None in a prefix, since optree does not count None as a leaf."""


_NOTHING = _Nothing()


def spread(prefix: Any, tree: Any) -> list[Any]:
    """Return for each leaf of a tree the leaf of a prefix above it. Here None is a leaf.

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


def key_orders(tree: Any) -> list[list[Any]]:
    """Return the keys of all dicts in a pytree as they were put in; `flatten` sorts them."""
    found: list[list[Any]] = []

    def look(value: Any) -> bool:
        if isinstance(value, dict):
            found.append([*value])
        return False

    _optree.tree_leaves(tree, is_leaf=look, namespace=_NAMESPACE)
    return found


def structure_text(structure: Structure) -> str:
    """Write a structure without the name of its class: ``{'w': *}``."""
    text = str(structure)
    head, _, rest = text.partition("(")
    return rest[:-1].partition(", namespace=")[0] if head == "PyTreeSpec" else text


# ---- classes that are pytrees, and the import of optree ----


class TreeRules(Protocol):
    """A class that is a pytree: an `optree.PyTreeNodeRegistryEntry`."""

    @property
    def flatten_func(self) -> Callable[[Any], Any]:
        """The function that returns the children of an object and the rest of it."""
        ...

    @property
    def unflatten_func(self) -> Callable[[Any, Any], Any]:
        """The function that makes an object of that rest and the children."""
        ...


def register_node(
    cls: Any, take_apart: Callable[[Any], Any], make: Callable[[Any, Any], Any]
) -> bool:
    """Make a class a pytree, and return whether it was not one already."""
    try:
        _optree.register_pytree_node(cls, take_apart, make, namespace=_NAMESPACE)
    except ValueError as error:
        if "already registered" not in str(error):
            raise
        return False
    return True


# Classes of the package that become pytrees when optree is imported.
_own_nodes: list[tuple[Any, Callable[[Any], Any], Callable[[Any, Any], Any]]] = []


def add_own_node(
    cls: Any, take_apart: Callable[[Any], Any], make: Callable[[Any, Any], Any]
) -> None:
    """Make a class of the package a pytree, without an import of optree for it."""
    _own_nodes.append((cls, take_apart, make))
    if not isinstance(_optree, _Optree):
        register_node(*_own_nodes.pop())


def registered_nodes() -> dict[type, TreeRules]:
    """Return all classes that are pytrees by registration, here or in every namespace."""
    found: dict[type, TreeRules] = _optree.register_pytree_node.get(
        None, namespace=_NAMESPACE
    )
    return found


class _Optree:
    """Import optree when one of its functions is needed: 6 ms of the import.

    An import statement would make mypy read torch and JAX where they are installed,
    because optree imports them: 40 s and 1 GB.
    """

    def __getattr__(self, name: str) -> Any:
        # From now on the functions above find the module itself.
        module = globals()["_optree"] = importing(import_module, "optree")
        while _own_nodes:
            register_node(*_own_nodes.pop())
        return getattr(module, name)


_optree: Any = _Optree()


# ---- values in messages ----


_LETTERS = frozenset("fiuc")
# The longest repr of one value in a call.
_LONGEST = 1000


def abbreviated(value: Any) -> str:
    """Write the dtype and shape of an array, such as ``f64[3, 2]``."""
    dtype = value.dtype
    letter = getattr(dtype, "kind", "")
    if letter == "b":
        name = "bool"
    else:
        name = f"{letter}{8 * dtype.itemsize}" if letter in _LETTERS else str(dtype)
    return f"{name}[{', '.join(str(length) for length in value.shape)}]"


def describe(value: Any) -> str:
    """Write class, dtype and shape of an array, such as ``GradTracer f64[3, 2]``."""
    return f"{type(value).__name__} {abbreviated(value)}"


def show(value: Any) -> str:
    """Write the type of a value, and the value itself if that is short."""
    if value is None:
        return "None"
    name = type(value).__name__
    try:
        has_shape = not isinstance(value, type) and hasattr(value, "shape")
    except CustomOpError:  # it says what to write, as that of x[mask] under vmap does
        raise
    except Exception:  # noqa: BLE001  # of another library: torch's nested tensors
        return name
    if has_shape:
        return f"{name} of shape {value.shape}"
    text = shown(value)
    return f"{name} {text}" if len(text) <= 60 else name


def show_values(values: Sequence[Any]) -> str:
    """Write the arguments of a call, with dtype and shape in place of each array."""
    return ", ".join(repr(map_outline(v, _InShort)) for v in values)


class _InShort:
    """A leaf whose repr is short if it is an array."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        value = self.value
        return abbreviated(value) if is_array(value) else shown(value, _LONGEST)
