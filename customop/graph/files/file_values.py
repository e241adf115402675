"""Convert values to JSON for graph files and back, checking every tag and number.

Meanwhile the tables that values refer to (classes, expressions, graphs) grow.
"""

from __future__ import annotations

import enum
import functools
import operator
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from customop.arrays.array import c_strides
from customop.arrays.fake import FakeArray, make_fake
from customop.arrays.kinds import is_array, normalize_device
from customop.errors import (
    ArgumentError,
    CustomOpError,
    GraphFileError,
    shown,
    with_article,
)
from customop.graph.files.fields import (
    KnownClass,
    NotWritable,
    as_entries,
    as_integer,
    as_list,
    as_text,
    class_entry,
    entry_of,
    is_graph_class,
    known_class,
    read_dtype,
    read_float,
    read_int,
    written_dtype,
    written_number,
)
from customop.graph.files.file_sizes import SizeWriter
from customop.graph.guards import GENERATOR, AnyGenerator
from customop.graph.node import Node
from customop.shapes.sizes import same_shape
from customop.shapes.symbolic import SymBool, SymFloat, SymInt

# ---- values to JSON ----
# A value without a JSON form becomes an object with one tag.


# How deep values may be nested; Python cannot walk much deeper ones.
DEEPEST = 100
# The classes that a file may name as the factory of a `defaultdict`.
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
    """Replaces a leaf in the structure of a pytree."""


class ValueWriter:
    """Writes values as JSON, and fills the tables that they refer to.

    Parameters
    ----------
    add_graph : callable
        Takes a GraphModule and returns its number.
    """

    def __init__(self, add_graph: Callable[[Any], int]) -> None:
        self.classes: list[dict[str, Any]] = []
        self.sizes: SizeWriter = SizeWriter()
        self._add_graph: Callable[[Any], int] = add_graph
        self._class_numbers: dict[type, tuple[int, KnownClass]] = {}
        # The numbers of the nodes in the graph that is being written.
        self.nodes: dict[Node, int] = {}

    def __call__(self, value: Any, depth: int = 0) -> Any:
        """Return the JSON form of a value.

        Raises
        ------
        NotWritable
            If files have no form for the value.
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
        """Return the number of a node in the graph that is being written."""
        number = self.nodes.get(node)
        if number is None:
            raise NotWritable(f"'{node.name}' is a node of another graph")
        return number

    def _other(self, value: Any, depth: int) -> Any:
        """Return the JSON form of a subclass of a known class, or of an object."""
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
        """Return the keys and values of a dict in order."""
        return [[self(k, depth), self(v, depth)] for k, v in value.items()]

    def fake(self, value: FakeArray) -> dict[str, Any]:
        """Return the JSON form of a fake array."""
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
    """Return the name of a number class, such as ``"float"`` or ``"numpy.float32"``."""
    if cls in _NAMES:
        return _NAMES[cls]
    if issubclass(cls, np.generic) and getattr(np, cls.__name__, None) is cls:
        return f"numpy.{cls.__name__}"
    raise NotWritable(why_not(cls))


def _members(value: enum.Enum) -> list[str]:
    """Return the names that make up a member: several for combined flags."""
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
    """Return the reason why a value cannot be written."""
    name = f"{type(value).__module__}.{type(value).__qualname__}"
    if is_array(value):
        return f"it is an array of {name}, and files hold NumPy arrays"
    if callable(value):
        return f"{shown(value)} is a function or class, and files hold no code"
    return f"it is {with_article(name)}, for which files have no form"


# ---- writers for exact classes ----


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


# ---- values from JSON, where every tag and every number is checked ----


class ValueReader:
    """Reads values that refer to tables of the file.

    Parameters
    ----------
    classes : sequence of KnownClass
    sizes : sequence
        Symbolic sizes, and numbers computed from them.
    graphs : sequence of GraphModule
        The graphs that have been read so far.
    """

    def __init__(
        self, classes: Sequence[KnownClass], sizes: Sequence[Any], graphs: Sequence[Any]
    ) -> None:
        self.classes = classes
        self.sizes = sizes
        self.graphs = graphs
        # The nodes made so far for the graph that is being read.
        self.nodes: list[Any] = []

    def __call__(self, written: Any, depth: int = 0) -> Any:
        """Return the value for its JSON form."""
        cls = type(written)
        if written is None or cls is bool or cls is str or cls is int or cls is float:
            return written
        if depth > DEEPEST:
            raise GraphFileError("values are nested too deep")
        if cls is list:
            return [self(item, depth + 1) for item in written]
        if cls is not dict or len(written) != 1:
            raise GraphFileError(f"{shown(written)} is not a value")
        ((tag, inner),) = written.items()
        if tag == "node":
            return entry_of(self.nodes, inner, "earlier node")
        if tag in ("int", "float"):
            return read_int(written) if tag == "int" else read_float(written)
        read = _READERS.get(tag)
        if read is None:
            raise GraphFileError(f"there are no values of the kind {shown(tag)}")
        return read(self, inner, depth + 1)

    def pairs(self, written: Any, depth: int) -> list[tuple[Any, Any]]:
        """Return the keys and values of a dict."""
        found = []
        for pair in as_list(written, "a dict"):
            key, value = as_list(pair, "an entry of a dict", 2)
            found.append((hashable(self(key, depth)), self(value, depth)))
        if len(dict(found)) != len(found):
            raise GraphFileError("a dict has the same key twice")
        return found

    def items(self, written: Any, what: str, depth: int) -> list[Any]:
        """Return the items of a list."""
        return [self(item, depth) for item in as_list(written, what)]

    def size(self, written: Any, what: str, least: int = 0) -> Any:
        """Return a length, which may be symbolic."""
        if isinstance(written, dict) and written.keys() == {"size"}:
            found = self(written)
            if type(found) is not SymInt:
                raise GraphFileError(
                    f"{what} is {shown(found)}, must be a whole number"
                )
            return found
        return as_integer(written, what, least=least)


def hashable(value: Any) -> Hashable:
    """Return a value after checking that it can be a key or an item of a set."""
    try:
        hash(value)
    except TypeError:
        raise GraphFileError(f"{shown(value)} cannot be a key") from None
    found: Hashable = value
    return found


# ---- one function for each tag ----


def _slice_read(read: ValueReader, written: Any, depth: int) -> slice:
    return slice(*[read(part, depth) for part in as_list(written, "a slice", 3)])


def _range(read: ValueReader, written: Any, depth: int) -> range:
    start, stop, step = [read_int(n) for n in as_list(written, "a range", 3)]
    if step == 0:
        raise GraphFileError("a range has the step 0")
    return range(start, stop, step)


def _complex_read(read: ValueReader, written: Any, depth: int) -> complex:
    return complex(*map(read_float, as_list(written, "a complex number", 2)))


def _bytes(read: ValueReader, written: Any, depth: int) -> bytes:
    try:
        return bytes.fromhex(as_text(written, "bytes"))
    except ValueError:
        raise GraphFileError("bytes are not hexadecimal") from None


def _default_dict_read(read: ValueReader, written: Any, depth: int) -> Any:
    name, pairs = as_list(written, "a defaultdict", 2)
    if name is not None and as_text(name, "a class") not in FACTORIES:
        raise GraphFileError(f"there is no defaultdict of {shown(name)}")
    factory = None if name is None else FACTORIES[name]
    return defaultdict(factory, read.pairs(pairs, depth))


def _deque_read(read: ValueReader, written: Any, depth: int) -> Any:
    most, items = as_list(written, "a deque", 2)
    found = read.items(items, "the items of a deque", depth)
    if most is not None and len(found) > as_integer(most, "the length of a deque"):
        raise GraphFileError("a deque has more items than it can hold")
    return deque(found, most)


def _set_read(read: ValueReader, written: Any, depth: int) -> set[Any]:
    return {hashable(item) for item in read.items(written, "a set", depth)}


def _scalar(read: ValueReader, written: Any, depth: int) -> Any:
    dtype, text = as_list(written, "a scalar", 2)
    found = read_dtype(dtype)
    data = _bytes(read, text, depth)
    if len(data) != found.itemsize:
        raise GraphFileError(f"a scalar of {found} has {len(data)} bytes")
    return np.frombuffer(data, found)[0]


def _class(read: ValueReader, written: Any, depth: int) -> type:
    name = as_text(written, "the name of a class")
    if name in FACTORIES:
        found: Any = FACTORIES[name]
    else:
        package, _, rest = name.partition(".")
        found = vars(np).get(rest) if package == "numpy" else None
    if not isinstance(found, type) or (
        name not in FACTORIES and not issubclass(found, np.generic)
    ):
        raise GraphFileError(f"{shown(name)} is not a class of numbers")
    return found


def _member(read: ValueReader, written: Any, depth: int) -> Any:
    number, names = as_list(written, "a member", 2)
    known = _class_of(read, number, "enum")
    members: Any = known.cls.__members__  # type: ignore[attr-defined]  # an Enum
    found = []
    for name in as_list(names, "the names of a member"):
        if as_text(name, "the name of a member") not in members:
            raise GraphFileError(f"{known.cls.__name__} has no member {shown(name)}")
        found.append(members[name])
    if len(found) == 1:
        return found[0]
    if not issubclass(known.cls, enum.Flag):
        raise GraphFileError(f"a member of {known.cls.__name__} has {len(found)} names")
    return functools.reduce(operator.or_, found, known.cls(0))


def _object(read: ValueReader, written: Any, depth: int) -> Any:
    number, parts, rest = as_list(written, "an object", 3)
    known = _class_of(read, number)
    items = read.items(parts, "the parts of an object", depth)
    constant = read(rest, depth)
    try:
        return known.make(items, constant)
    except CustomOpError:
        raise
    except Exception as error:
        # A user's class may refuse any values.
        raise GraphFileError(
            f"an object of {known.cls.__name__} cannot be made: {shown(error)}"
        ) from error


def _class_of(read: ValueReader, number: Any, form: str = "") -> KnownClass:
    found: KnownClass = entry_of(read.classes, number, "class")
    if (found.form == "enum") != (form == "enum"):
        raise GraphFileError(f"{found.cls.__name__} is used as what it is not")
    return found


def _fake(read: ValueReader, written: Any, depth: int) -> FakeArray:
    entries = as_entries(written, "a fake array", "shape dtype", "device strides")
    lengths = as_list(entries["shape"], "a shape")
    shape = tuple([read.size(length, "a length of a shape") for length in lengths])
    dtype = read_dtype(entries["dtype"])
    try:
        device = normalize_device(as_text(entries.get("device", "cpu"), "a device"))
        # Nothing is compared with sizes here, since that could add a guard.
        if "strides" not in entries:
            return make_fake(shape, dtype, c_strides(shape, dtype.itemsize), device)
    except (ArgumentError, OverflowError) as error:
        raise GraphFileError(f"a fake array cannot be made: {shown(error)}") from error
    steps = as_list(entries["strides"], "the strides", len(shape))
    strides = tuple([read.size(step, "a stride", -(2**63)) for step in steps])
    return make_fake(shape, dtype, strides, device)


_READERS: dict[str, Callable[[ValueReader, Any, int], Any]] = {
    "leaf": lambda read, written, depth: LeafMark(),
    "tuple": lambda read, written, depth: tuple(read.items(written, "a tuple", depth)),
    "dict": lambda read, written, depth: dict(read.pairs(written, depth)),
    "ordered": lambda read, written, depth: OrderedDict(read.pairs(written, depth)),
    "defaultdict": _default_dict_read,
    "deque": _deque_read,
    "set": _set_read,
    "frozenset": lambda read, written, depth: frozenset(
        _set_read(read, written, depth)
    ),
    "slice": _slice_read,
    "range": _range,
    "complex": _complex_read,
    "bytes": _bytes,
    "ellipsis": lambda read, written, depth: ...,
    "dtype": lambda read, written, depth: read_dtype(written),
    "scalar": _scalar,
    "class": _class,
    "member": _member,
    "object": _object,
    "fake": _fake,
    "any generator": lambda read, written, depth: GENERATOR,
    "size": lambda read, written, depth: entry_of(read.sizes, written, "size"),
    "graph": lambda read, written, depth: entry_of(read.graphs, written, "graph"),
}
