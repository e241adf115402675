"""Types of a schema: what they are made of, and their text."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from customop.configtypes import ClassFields

__all__ = [
    "ARRAY",
    "DEVICE",
    "DTYPE",
    "GENERATOR",
    "OPERAND",
    "SCALAR",
    "Base",
    "Choice",
    "ClassOf",
    "DictOf",
    "ListOf",
    "Maybe",
    "SchemaType",
    "TupleOf",
    "classes",
    "holds_arrays",
    "is_single_array",
    "parts",
    "typed_items",
]


@dataclass(frozen=True, slots=True)
class Base:
    """A type with a name and no parts: ``Array``, ``int``, ``dtype``."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Choice:
    """One of several values of ``str``, ``int`` or ``bool``: ``str{"a", "b"}``."""

    name: str
    options: tuple[Any, ...]

    def __str__(self) -> str:
        texts = [
            json.dumps(o, ensure_ascii=False) if self.name == "str" else repr(o)
            for o in self.options
        ]
        return f"{self.name}{{{', '.join(texts)}}}"


@dataclass(frozen=True, slots=True)
class Maybe:
    """A type or None: ``T?``."""

    item: SchemaType

    def __str__(self) -> str:
        return f"{self.item}?"


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list: ``T[]``, or ``T[n]`` of a given length.

    A kernel gets it as a list, or as a tuple where its annotation says ``tuple``.
    """

    item: SchemaType
    length: int | None = None
    is_tuple: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return f"{self.item}[{'' if self.length is None else self.length}]"


@dataclass(frozen=True, slots=True)
class DictOf:
    """A dict whose keys are strings: ``Dict(str, T)``."""

    item: SchemaType

    def __str__(self) -> str:
        return f"Dict(str, {self.item})"


@dataclass(frozen=True, slots=True)
class TupleOf:
    """A tuple with a type for each place: ``(A, B)``."""

    items: tuple[SchemaType, ...]

    def __str__(self) -> str:
        inside = ", ".join(str(item) for item in self.items)
        return f"({inside},)" if len(self.items) == 1 else f"({inside})"


@dataclass(frozen=True, slots=True)
class ClassOf:
    """Objects of a class, by its qualified name: ``package.module.Class``.

    Attributes
    ----------
    name : str
        Types of one name are equal.
    fields : ClassFields
        The class, and how its objects are made.
    items : dict
        Name of a field -> its type; empty for an Enum.
    """

    name: str
    fields: ClassFields = field(compare=False, repr=False)
    items: dict[str, SchemaType] = field(compare=False, repr=False)

    def __str__(self) -> str:
        return self.name

    @property
    def cls(self) -> type:
        """The class."""
        return self.fields.cls

    @property
    def is_enum(self) -> bool:
        """Whether objects are members of an Enum."""
        return issubclass(self.cls, enum.Enum)


SchemaType: TypeAlias = Base | Choice | Maybe | ListOf | DictOf | TupleOf | ClassOf

# Qualified name -> type, for all classes that operators name so far.
classes: dict[str, ClassOf] = {}


ARRAY: Final = Base("Array")
# An array, or a Python number that takes its dtype from the arrays beside it.
OPERAND: Final = Base("Array|Scalar")
DTYPE: Final = Base("dtype")
DEVICE: Final = Base("device")
GENERATOR: Final = Base("Generator")
SCALAR: Final = Base("Scalar")


def parts(kind: SchemaType) -> Iterator[SchemaType]:
    """A type and all types within it."""
    yield kind
    if isinstance(kind, Maybe | ListOf | DictOf):
        yield from parts(kind.item)
    elif isinstance(kind, TupleOf | ClassOf):
        inside = kind.items.values() if isinstance(kind, ClassOf) else kind.items
        for item in inside:
            yield from parts(item)


def holds_arrays(kind: SchemaType) -> bool:
    """Whether a value of this type can be or hold an array."""
    return any(part in (ARRAY, OPERAND) for part in parts(kind))


def is_single_array(kind: SchemaType) -> bool:
    """Whether a value of this type is one array, or None or a number in its place."""
    inner = kind.item if isinstance(kind, Maybe) else kind
    return inner in (ARRAY, OPERAND)


def typed_items(value: Any, kind: SchemaType) -> list[tuple[str, Any, SchemaType]]:
    """The parts of a value of a nested type: place in words, part and its type."""
    if isinstance(kind, ListOf):
        return [(f"index {i}", v, kind.item) for i, v in enumerate(value)]
    if isinstance(kind, TupleOf):
        pairs = zip(value, kind.items, strict=True)
        return [(f"index {i}", v, k) for i, (v, k) in enumerate(pairs)]
    if isinstance(kind, DictOf):
        return [(f"key {name!r}", v, kind.item) for name, v in value.items()]
    assert isinstance(kind, ClassOf)
    if kind.fields.is_dict:
        return [(f"key {n!r}", v, kind.items[n]) for n, v in value.items()]
    return [(f"field '{n}'", getattr(value, n), k) for n, k in kind.items.items()]
