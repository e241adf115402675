"""How values of a schema type are passed to torch: as one or several plain arguments.

Torch has no config objects, tuples, dicts, enums or lists of lists. Each of them is taken
apart into leaves that torch has: an object into its fields, a dict into keys and values, a
list of lists into one list and lengths. The code that takes a value apart is text, so that
it becomes part of one short function, which torch.compile reads.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from customop.interop.torch.framework import torch
from customop.schema.types import (
    ArrayType,
    Base,
    Choice,
    ClassOf,
    DictOf,
    ListOf,
    Maybe,
    SchemaType,
    TupleOf,
)

__all__ = ["Codec", "TorchLeaf", "Untranslatable", "codec_of"]


class Untranslatable(Exception):
    """A type that torch has nothing for: the reason."""


class TorchLeaf(NamedTuple):
    """One argument or result of a torch operator.

    Attributes
    ----------
    name : str
        What follows the name of the parameter: ``"_width"`` for a field.
    type : str
        Its type in torch's schema.
    """

    name: str
    type: str

    @property
    def is_array(self) -> bool:
        """Whether it is a tensor, or None or a list of them."""
        return self.type.startswith("Tensor")

    @property
    def is_list(self) -> bool:
        """Whether it is a list."""
        return "[]" in self.type


class Codec(NamedTuple):
    """How values of one type are taken apart and joined again.

    Attributes
    ----------
    leaves : tuple of TorchLeaf
    apart : callable
        Takes the text of an expression for a value, and gives one for each leaf.
    join : callable or None
        Takes the values of the leaves, and gives the value. None if it is the leaf.
    """

    leaves: tuple[TorchLeaf, ...]
    apart: Callable[[str], list[str]]
    join: Callable[[Sequence[Any]], Any] | None = None

    @property
    def is_same(self) -> bool:
        """Whether torch takes the value as it is."""
        return self.join is None

    def joined(self, leaves: Sequence[Any]) -> Any:
        """The value of these leaves."""
        return leaves[0] if self.join is None else self.join(leaves)


def _alone(name: str) -> Codec:
    return Codec((TorchLeaf("", name),), lambda text: [text])


def _generator(leaves: Sequence[Any]) -> np.random.Generator:
    """NumPy's generator with a seed that is drawn from torch's."""
    seed = torch.randint(2**63 - 1, (), generator=leaves[0])
    return np.random.default_rng(int(seed))


# The numbers of these are sizes: they may be symbolic while torch traces.
_BASES: Final[dict[str, Codec]] = {
    "int": _alone("SymInt"),
    "float": _alone("float"),
    "bool": _alone("bool"),
    "str": _alone("str"),
    "complex": _alone("complex"),
    "Scalar": _alone("Scalar"),
    "dtype": _alone("ScalarType"),
    "device": _alone("Device"),
    "Generator": Codec((TorchLeaf("", "Generator"),), lambda text: [text], _generator),
}


def codec_of(declared: SchemaType, depth: int = 0) -> Codec:
    """How values of a type are passed to torch.

    Raises
    ------
    Untranslatable
        If torch has nothing for it.
    """
    alone = _alone_of(declared)
    if alone is not None:
        return alone
    if isinstance(declared, Maybe):
        return _optional(codec_of(declared.item, depth))
    if isinstance(declared, ListOf):
        return _listed(declared, codec_of(declared.item, depth + 1), f"v{depth}")
    if isinstance(declared, DictOf):
        return _keyed(codec_of(declared.item, depth + 1), f"v{depth}")
    return _fixed(declared, depth)


def _alone_of(declared: SchemaType) -> Codec | None:
    """The codec of a type without parts."""
    if isinstance(declared, ArrayType):
        return _OPERAND if declared.or_number else _alone("Tensor")
    if isinstance(declared, Base):
        return _BASES.get(declared.name)
    # The operator checks the value.
    return _alone(declared.name) if isinstance(declared, Choice) else None


def _fixed(declared: SchemaType, depth: int) -> Codec:
    """The codec of a tuple, an object or a member of an enum."""
    if isinstance(declared, TupleOf):
        names = [f"_{i}" for i in range(len(declared.items))]
        places = [f"[{i}]" for i in range(len(names))]
        return _record(
            [codec_of(item, depth) for item in declared.items], names, places, tuple
        )
    if isinstance(declared, ClassOf):
        return _member(declared) if declared.is_enum else _object(declared, depth)
    raise Untranslatable(f"torch has no type for {declared}")


# ---- an array or a number ----


def _array_or_number(leaves: Sequence[Any]) -> Any:
    array, number = leaves
    return number if array is None else array


_OPERAND: Final = Codec(
    (TorchLeaf("", "Tensor?"), TorchLeaf("_number", "Scalar?")),
    lambda text: [
        f"({text} if isinstance({text}, _Tensor) else None)",
        f"(None if isinstance({text}, _Tensor) else {text})",
    ],
    _array_or_number,
)


# ---- optional values ----


def _optional(item: Codec) -> Codec:
    if len(item.leaves) == 1 and not item.leaves[0].type.endswith("?"):
        (leaf,) = item.leaves

        def join_one(leaves: Sequence[Any]) -> Any:
            return None if leaves[0] is None else item.joined(leaves)

        return Codec(
            (TorchLeaf(leaf.name, f"{leaf.type}?"),),
            (lambda text: [text])
            if item.is_same
            else lambda text: [f"(None if {text} is None else {item.apart(text)[0]})"],
            None if item.is_same else join_one,
        )
    rest = tuple(
        TorchLeaf(n, t if t.endswith("?") else f"{t}?") for n, t in item.leaves
    )

    def apart(text: str) -> list[str]:
        parts = [f"(None if {text} is None else {part})" for part in item.apart(text)]
        return [f"({text} is not None)", *parts]

    def join(leaves: Sequence[Any]) -> Any:
        return item.joined(leaves[1:]) if leaves[0] else None

    return Codec((TorchLeaf("_given", "bool"), *rest), apart, join)


# ---- lists and dicts: a list for each leaf ----


def _column(leaf: TorchLeaf) -> tuple[TorchLeaf, ...]:
    """A list of leaves; lists of lists are one list, and their lengths."""
    if leaf.type.endswith("[]?"):
        raise Untranslatable(f"torch has no list of {leaf.type}")
    if leaf.is_list:
        return leaf, TorchLeaf(f"{leaf.name}_lengths", "SymInt[]")
    return (TorchLeaf(leaf.name, f"{leaf.type}[]"),)


def _columns(item: Codec, each: str) -> Callable[[str], list[str]]:
    """Texts of the columns of a sequence."""

    def apart(text: str) -> list[str]:
        found = []
        for leaf, part in zip(item.leaves, item.apart(each), strict=True):
            if leaf.is_list:
                found.append(f"[{each}w for {each} in {text} for {each}w in {part}]")
                found.append(f"[len({part}) for {each} in {text}]")
            else:
                found.append(f"[{part} for {each} in {text}]")
        return found

    return apart


def _rows(item: Codec, columns: Sequence[Any]) -> list[Any]:
    """The values of the rows of columns."""
    given = iter(columns)
    parts = []
    for leaf in item.leaves:
        values = next(given)
        parts.append(_cut(values, next(given)) if leaf.is_list else values)
    return [item.joined(row) for row in zip(*parts, strict=True)]


def _cut(values: Sequence[Any], lengths: Sequence[int]) -> list[Any]:
    """One list as lists of these lengths."""
    rows, start = [], 0
    for length in lengths:
        rows.append(list(values[start : start + length]))
        start += length
    return rows


def _listed(declared: ListOf, item: Codec, each: str) -> Codec:
    leaves = tuple(column for leaf in item.leaves for column in _column(leaf))
    make = tuple if declared.is_tuple else list
    if len(leaves) == 1 and item.is_same:
        join = tuple if declared.is_tuple else None
        return Codec(leaves, lambda text: [text], join and (lambda v: make(v[0])))
    return Codec(leaves, _columns(item, each), lambda given: make(_rows(item, given)))


def _keyed(item: Codec, each: str) -> Codec:
    columns = tuple(column for leaf in item.leaves for column in _column(leaf))
    texts = _columns(item, each)

    def join(leaves: Sequence[Any]) -> Any:
        return dict(zip(leaves[0], _rows(item, leaves[1:]), strict=True))

    return Codec(
        (TorchLeaf("_keys", "str[]"), *columns),
        lambda text: [f"list({text})", *texts(f"{text}.values()")],
        join,
    )


# ---- objects and tuples: a leaf for each field ----


def _record(
    items: Sequence[Codec],
    names: Sequence[str],
    places: Sequence[str],
    make: Callable[[list[Any]], Any],
) -> Codec:
    leaves = tuple(
        TorchLeaf(f"{name}{leaf.name}", leaf.type)
        for name, item in zip(names, items, strict=True)
        for leaf in item.leaves
    )

    def apart(text: str) -> list[str]:
        pairs = zip(items, places, strict=True)
        return [t for item, place in pairs for t in item.apart(f"{text}{place}")]

    def join(given: Sequence[Any]) -> Any:
        values, start = [], 0
        for item in items:
            values.append(item.joined(given[start : start + len(item.leaves)]))
            start += len(item.leaves)
        return make(values)

    return Codec(leaves, apart, join)


def _object(declared: ClassOf, depth: int) -> Codec:
    fields = declared.fields
    if fields.required != {*fields.hints}:
        raise Untranslatable(
            f"{declared.name} has keys that may be missing, and torch has no such type"
        )
    is_dict = fields.is_dict
    return _record(
        [codec_of(item, depth) for item in declared.items.values()],
        [f"_{name}" for name in declared.items],
        [f"[{n!r}]" if is_dict else f".{n}" for n in declared.items],
        (lambda v: dict(zip(declared.items, v, strict=True)))
        if is_dict
        else lambda v: fields.like(None, v),
    )


def _member(declared: ClassOf) -> Codec:
    cls: Any = declared.cls
    if issubclass(cls, enum.Flag):  # which may have several bits, and then no name
        return Codec(
            (TorchLeaf("", "int"),), lambda text: [f"{text}.value"], lambda v: cls(v[0])
        )
    return Codec(
        (TorchLeaf("", "str"),), lambda text: [f"{text}.name"], lambda v: cls[v[0]]
    )
