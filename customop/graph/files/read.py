"""Values from the JSON of graph files: every tag and every number is checked."""

from __future__ import annotations

import enum
import functools
import operator
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np

from customop.arrays.fake import FakeArray, make_fake
from customop.arrays.kinds import normalize_device
from customop.arrays.strides import c_strides
from customop.errors import ArgumentError, CustomOpError, GraphFileError, shown
from customop.graph.files.classes import KnownClass
from customop.graph.files.dtypes import read_dtype
from customop.graph.files.fields import (
    as_entries,
    as_integer,
    as_list,
    as_text,
    entry_of,
)
from customop.graph.files.numbers import read_float, read_int
from customop.graph.files.written import DEEPEST, FACTORIES, LeafMark
from customop.graph.guards import GENERATOR
from customop.shapes.symbolic import SymInt

__all__ = ["ValueReader"]


class ValueReader:
    """Reads values that refer to tables of the file.

    Parameters
    ----------
    classes : sequence of KnownClass
    sizes : sequence
        Symbolic sizes, and numbers made of them.
    graphs : sequence of GraphModule
        Those that have been read so far.
    """

    def __init__(
        self, classes: Sequence[KnownClass], sizes: Sequence[Any], graphs: Sequence[Any]
    ) -> None:
        self.classes = classes
        self.sizes = sizes
        self.graphs = graphs
        # The nodes of the graph that is being read, as far as they have been made.
        self.nodes: list[Any] = []

    def __call__(self, written: Any, depth: int = 0) -> Any:
        """The value of its JSON."""
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
        """Keys and values of a dict."""
        found = []
        for pair in as_list(written, "a dict"):
            key, value = as_list(pair, "an entry of a dict", 2)
            found.append((hashable(self(key, depth)), self(value, depth)))
        if len(dict(found)) != len(found):
            raise GraphFileError("a dict has the same key twice")
        return found

    def items(self, written: Any, what: str, depth: int) -> list[Any]:
        """The items of a list."""
        return [self(item, depth) for item in as_list(written, what)]

    def size(self, written: Any, what: str, least: int = 0) -> Any:
        """A length, fixed or symbolic."""
        if isinstance(written, dict) and written.keys() == {"size"}:
            found = self(written)
            if type(found) is not SymInt:
                raise GraphFileError(
                    f"{what} is {shown(found)}, must be a whole number"
                )
            return found
        return as_integer(written, what, least=least)


def hashable(value: Any) -> Hashable:
    """A value that can be a key or in a set."""
    try:
        hash(value)
    except TypeError:
        raise GraphFileError(f"{shown(value)} cannot be a key") from None
    found: Hashable = value
    return found


# ---- a function for each tag ----


def _slice(read: ValueReader, written: Any, depth: int) -> slice:
    return slice(*[read(part, depth) for part in as_list(written, "a slice", 3)])


def _range(read: ValueReader, written: Any, depth: int) -> range:
    start, stop, step = [read_int(n) for n in as_list(written, "a range", 3)]
    if step == 0:
        raise GraphFileError("a range has the step 0")
    return range(start, stop, step)


def _complex(read: ValueReader, written: Any, depth: int) -> complex:
    return complex(*map(read_float, as_list(written, "a complex number", 2)))


def _bytes(read: ValueReader, written: Any, depth: int) -> bytes:
    try:
        return bytes.fromhex(as_text(written, "bytes"))
    except ValueError:
        raise GraphFileError("bytes are not hexadecimal") from None


def _default_dict(read: ValueReader, written: Any, depth: int) -> Any:
    name, pairs = as_list(written, "a defaultdict", 2)
    if name is not None and as_text(name, "a class") not in FACTORIES:
        raise GraphFileError(f"there is no defaultdict of {shown(name)}")
    factory = None if name is None else FACTORIES[name]
    return defaultdict(factory, read.pairs(pairs, depth))


def _deque(read: ValueReader, written: Any, depth: int) -> Any:
    most, items = as_list(written, "a deque", 2)
    found = read.items(items, "the items of a deque", depth)
    if most is not None and len(found) > as_integer(most, "the length of a deque"):
        raise GraphFileError("a deque has more items than it can hold")
    return deque(found, most)


def _set(read: ValueReader, written: Any, depth: int) -> set[Any]:
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
        # The class of a user, which may refuse any values.
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
        # No question is asked about sizes: it could become a guard.
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
    "defaultdict": _default_dict,
    "deque": _deque,
    "set": _set,
    "frozenset": lambda read, written, depth: frozenset(_set(read, written, depth)),
    "slice": _slice,
    "range": _range,
    "complex": _complex,
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
