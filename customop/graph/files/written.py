"""Values as JSON, for graph files: what JSON has no form for becomes an object of one tag.

The tables that values refer to (classes, expressions, graphs) grow on the way.
"""

from __future__ import annotations

import enum
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from customop.arrays.fake import FakeArray
from customop.arrays.kinds import is_array
from customop.arrays.strides import c_strides
from customop.errors import shown, with_article
from customop.graph.files.classes import (
    KnownClass,
    class_entry,
    is_graph_class,
    known_class,
)
from customop.graph.files.dtypes import written_dtype
from customop.graph.files.numbers import written_number
from customop.graph.files.refused import NotWritable
from customop.graph.files.sizes import SizeWriter
from customop.graph.guards import AnyGenerator
from customop.graph.node import Node
from customop.shapes.sizes import same_shape
from customop.shapes.sym_bool import SymBool
from customop.shapes.symbolic import SymFloat, SymInt

__all__ = ["FACTORIES", "LeafMark", "NotWritable", "ValueWriter"]

# Values inside values; Python cannot walk over much deeper ones.
DEEPEST = 100
# The classes that a `defaultdict` of a file may make values of.
FACTORIES: dict[str, Any] = {
    "bool": bool,
    "complex": complex,
    "dict": dict,
    "float": float,
    "int": int,
    "list": list,
    "set": set,
    "str": str,
    "tuple": tuple,
}
_NAMES: dict[Any, str] = {cls: name for name, cls in FACTORIES.items()}


class LeafMark:
    """Takes the place of a leaf in the structure of a pytree."""


class ValueWriter:
    """Writes values, and keeps the tables of what they refer to.

    Parameters
    ----------
    add_graph : callable
        Gives the number of a GraphModule.
    """

    def __init__(self, add_graph: Callable[[Any], int]) -> None:
        self.classes: list[dict[str, Any]] = []
        self.sizes: SizeWriter = SizeWriter()
        self._add_graph: Callable[[Any], int] = add_graph
        self._class_numbers: dict[type, tuple[int, KnownClass]] = {}
        # The numbers of the nodes of the graph that is being written.
        self.nodes: dict[Node, int] = {}

    def __call__(self, value: Any, depth: int = 0) -> Any:
        """The JSON of a value.

        Raises
        ------
        NotWritable
            If files have no form for it.
        """
        cls = type(value)
        if cls in _AS_THEY_ARE:
            return value
        if depth > DEEPEST:
            raise NotWritable(f"values are nested more than {DEEPEST} deep")
        write = _WRITERS.get(cls)
        if write is not None:
            return write(self, value, depth + 1)
        return self._other(value, depth + 1)

    def node(self, node: Node) -> int:
        """The number of a node of the graph that is being written."""
        number = self.nodes.get(node)
        if number is None:
            raise NotWritable(f"'{node.name}' is a node of another graph")
        return number

    def _other(self, value: Any, depth: int) -> Any:
        """The JSON of a value that is written by a base class, or is an object."""
        if isinstance(value, np.dtype):
            return {"dtype": self._dtype(value)}
        if isinstance(value, np.generic):
            dtype = self._dtype(value.dtype)
            return {"scalar": [dtype, np.asarray(value).tobytes().hex()]}
        if isinstance(value, type):
            return {"class": _class_name(value)}
        if is_graph_class(type(value)):
            return {"graph": self._add_graph(value)}
        known = known_class(type(value))
        if known is None:
            raise NotWritable(why_not(value))
        number = self._class_number(known)
        if isinstance(value, enum.Enum):
            return {"member": [number, _members(value)]}
        parts, rest = known.parts(value)
        items = [self(part, depth) for part in parts]
        return {"object": [number, items, self(rest, depth)]}

    def _dtype(self, dtype: np.dtype[Any]) -> Any:
        try:
            return written_dtype(dtype)
        except ValueError as error:
            raise NotWritable(str(error)) from None

    def _class_number(self, known: KnownClass) -> int:
        number, _ = self._class_numbers.setdefault(
            known.cls, (len(self.classes), known)
        )
        if number == len(self.classes):
            self.classes.append(class_entry(known))
        return number

    def pairs(self, value: dict[Any, Any], depth: int) -> list[Any]:
        """Keys and values of a dict, in order."""
        return [[self(k, depth), self(v, depth)] for k, v in value.items()]

    def fake(self, value: FakeArray) -> dict[str, Any]:
        """The JSON of a fake array."""
        found = {
            "shape": [self(length) for length in value.shape],
            "dtype": self._dtype(value.dtype),
        }
        if value.device != "cpu":
            found["device"] = value.device
        if not same_shape(value.strides, c_strides(value.shape, value.dtype.itemsize)):
            found["strides"] = [self(step) for step in value.strides]
        return found


def _class_name(cls: type) -> str:
    """The name of a class of numbers, such as ``"float"`` or ``"numpy.float32"``."""
    if cls in _NAMES:
        return _NAMES[cls]
    if issubclass(cls, np.generic) and getattr(np, cls.__name__, None) is cls:
        return f"numpy.{cls.__name__}"
    raise NotWritable(why_not(cls))


def _members(value: enum.Enum) -> list[str]:
    """The names that make a member: several for a combination of flags."""
    members: Any = type(value).__members__
    if value.name in members:
        return [value.name]
    parts = [*value] if isinstance(value, enum.Flag) else []
    names = [str(part.name) for part in parts]
    made = type(value)(0) if isinstance(value, enum.Flag) else None
    for name in names:
        made = made | members[name]
    if made != value:
        raise NotWritable(why_not(value))
    return names


def why_not(value: Any) -> str:
    """Why a value cannot be written, in words."""
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    if is_array(value):
        return f"it is an array of {name}, and files hold NumPy arrays"
    if callable(value):
        return f"{shown(value)} is a function or class, and files hold no code"
    return f"it is {with_article(name)}, for which files have no form"


# ---- values by their exact class ----


def _slice(write: ValueWriter, value: slice, depth: int) -> Any:
    parts = (value.start, value.stop, value.step)
    return {"slice": _items(write, parts, depth)}


def _complex(write: ValueWriter, value: complex, depth: int) -> Any:
    return {"complex": [write(value.real), write(value.imag)]}


def _default_dict(write: ValueWriter, value: Any, depth: int) -> Any:
    factory = value.default_factory
    name = None if factory is None else _NAMES.get(factory)
    if factory is not None and name is None:
        raise NotWritable(f"it is a defaultdict of {shown(factory)}")
    return {"defaultdict": [name, write.pairs(value, depth)]}


def _deque(write: ValueWriter, value: Any, depth: int) -> Any:
    return {"deque": [value.maxlen, _items(write, value, depth)]}


def _set(write: ValueWriter, value: Any, depth: int) -> Any:
    items = _items(write, value, depth)
    return {type(value).__name__: sorted(items, key=repr)}


def _items(write: ValueWriter, value: Sequence[Any], depth: int) -> list[Any]:
    return [write(item, depth) for item in value]


_AS_THEY_ARE = frozenset((type(None), bool, str))
_WRITERS: dict[type, Callable[[ValueWriter, Any, int], Any]] = {
    int: lambda write, value, depth: written_number(value),
    float: lambda write, value, depth: written_number(value),
    Node: lambda write, value, depth: {"node": write.node(value)},
    list: _items,
    tuple: lambda write, value, depth: {"tuple": _items(write, value, depth)},
    LeafMark: lambda write, value, depth: {"leaf": None},
    dict: lambda write, value, depth: {"dict": write.pairs(value, depth)},
    OrderedDict: lambda write, value, depth: {"ordered": write.pairs(value, depth)},
    defaultdict: _default_dict,
    deque: _deque,
    set: _set,
    frozenset: _set,
    slice: _slice,
    complex: _complex,
    range: lambda write, value, depth: {
        "range": [write(n) for n in (value.start, value.stop, value.step)]
    },
    bytes: lambda write, value, depth: {"bytes": value.hex()},
    type(...): lambda write, value, depth: {"ellipsis": None},
    AnyGenerator: lambda write, value, depth: {"any generator": None},
    SymInt: lambda write, value, depth: {"size": write.sizes(value)},
    SymFloat: lambda write, value, depth: {"size": write.sizes(value)},
    SymBool: lambda write, value, depth: {"size": write.sizes(value)},
    FakeArray: lambda write, value, depth: {"fake": write.fake(value)},
}
