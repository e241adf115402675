"""The types of a schema, and their text."""

from __future__ import annotations

import enum
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from customop.schema.classes import ClassFields
from customop.shapes.notation import Shape

__all__ = [
    "ARRAY",
    "DEVICE",
    "DTYPE",
    "GENERATOR",
    "OPERAND",
    "SCALAR",
    "ArrayType",
    "Base",
    "Choice",
    "ClassOf",
    "DictOf",
    "ListOf",
    "Maybe",
    "SchemaType",
    "TupleOf",
    "classes",
    "has_shape",
    "holds_arrays",
    "is_array_type",
    "is_single_array",
    "item_shape",
    "lead_of",
    "parts",
    "places_of_shapes",
    "shapes_in",
    "typed_items",
]


@dataclass(frozen=True, slots=True)
class Base:
    """A type with a name and no parts: ``int``, ``dtype``."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class ArrayType:
    """An array: ``Array``, or ``float[m,k]`` by class of elements and shape.

    Attributes
    ----------
    element : str
        A name of `customop.arrays.dtypes.ELEMENTS`; ``"Array"`` for elements of any class.
    shape : Shape or None
        None for any shape; then `element` is ``"Array"``.
    or_number : bool
        Whether a Python number may be passed, which takes its dtype from the other
        arrays: ``Array|Scalar``.
    """

    element: str = "Array"
    shape: Shape | None = None
    or_number: bool = False

    def __str__(self) -> str:
        axes = "" if self.shape is None else f"[{self.shape}]"
        return f"{self.element}{axes}{'|Scalar' if self.or_number else ''}"


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

    A kernel gets a list, or a tuple if its annotation says ``tuple``.
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
    """A tuple with a type for each item: ``(A, B)``."""

    items: tuple[SchemaType, ...]

    def __str__(self) -> str:
        inside = ", ".join(str(item) for item in self.items)
        return f"({inside},)" if len(self.items) == 1 else f"({inside})"


@dataclass(frozen=True, slots=True)
class ClassOf:
    """Objects of a class, named ``package.module.Class``.

    Attributes
    ----------
    name : str
        Qualified name of the class. Types with the same name are equal.
    fields : ClassFields
        The fields of the class, and how its objects are made.
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


SchemaType: TypeAlias = (
    Base | ArrayType | Choice | Maybe | ListOf | DictOf | TupleOf | ClassOf
)

# Qualified name -> type, for all classes that operators have used so far.
classes: dict[str, ClassOf] = {}


ARRAY: Final = ArrayType()
OPERAND: Final = ArrayType(or_number=True)
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
    return any(isinstance(part, ArrayType) for part in parts(kind))


def has_shape(kind: SchemaType) -> bool:
    """Whether a type has a shape for an array in its values."""
    return any(isinstance(p, ArrayType) and p.shape is not None for p in parts(kind))


def shapes_in(kind: SchemaType) -> list[Shape]:
    """Shapes of the arrays in values of a type."""
    arrays = [part for part in parts(kind) if isinstance(part, ArrayType)]
    return [array.shape for array in arrays if array.shape is not None]


def item_shape(kind: SchemaType) -> Shape | None:
    """Shape of an array, or of the arrays of a list, that has one."""
    while isinstance(kind, Maybe | ListOf):
        kind = kind.item
    return kind.shape if isinstance(kind, ArrayType) else None


def places_of_shapes(kind: SchemaType, place: str) -> Iterator[tuple[str, Shape]]:
    """Arrays with a shape in a type: how each is reached, and its shape.

    All items of a list or a dict count as one.
    """
    if isinstance(kind, Maybe | ListOf | DictOf):
        yield from places_of_shapes(kind.item, place)
    elif isinstance(kind, TupleOf):
        for i, item in enumerate(kind.items):
            yield from places_of_shapes(item, f"{place}[{i}]")
    elif isinstance(kind, ClassOf):
        for name, item in kind.items.items():
            inner = f"{place}[{name!r}]" if kind.fields.is_dict else f"{place}.{name}"
            yield from places_of_shapes(item, inner)
    elif isinstance(kind, ArrayType) and kind.shape is not None:
        yield place, kind.shape


def lead_of(kind: SchemaType) -> int:
    """Number of axes before ``...``, if it is the same in all arrays; otherwise 0."""
    arrays = [p for p in parts(kind) if isinstance(p, ArrayType)]
    leads = {len(a.shape.before) if a.shape else 0 for a in arrays}
    return leads.pop() if len(leads) == 1 else 0


def is_array_type(kind: SchemaType) -> bool:
    """Whether a value of this type is always one array."""
    return isinstance(kind, ArrayType) and not kind.or_number


def is_single_array(kind: SchemaType) -> bool:
    """Whether a value of this type is one array, or None or a number instead."""
    inner = kind.item if isinstance(kind, Maybe) else kind
    return isinstance(inner, ArrayType)


def typed_items(value: Any, kind: SchemaType) -> list[tuple[str, Any, SchemaType]]:
    """The parts of a nested value: the place in words, the part and its type."""
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
