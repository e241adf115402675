"""The types of a schema, and their text."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from importlib import import_module
from types import ModuleType
from typing import Any, Final, TypeAlias

from customop.frozen import Frozen, cached
from customop.later import later
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
    "is_too_deep",
    "item_shape",
    "lead_of",
    "parts",
    "place_in",
    "places_of_shapes",
    "shapes_in",
    "text_of",
    "typed_items",
]


json: ModuleType = later(import_module, "json")

# Deeper types are refused: Python cannot walk over them.
_DEEPEST = 64


def text_of(value: str) -> str:
    """A string as schema strings have it."""
    if value.isascii() or not any("\ud800" <= c <= "\udfff" for c in value):
        return str(json.dumps(value, ensure_ascii=False))
    return repr(value)  # a lone surrogate can only be written with an escape


class Base(Frozen):
    """A type with a name and no parts: ``int``, ``dtype``."""

    name: str

    def __str__(self) -> str:
        return self.name


class ArrayType(Frozen):
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


class Choice(Frozen):
    """One of several values of ``str``, ``int`` or ``bool``: ``str{"a", "b"}``."""

    name: str
    options: tuple[Any, ...]

    def __str__(self) -> str:
        texts = [text_of(o) if self.name == "str" else repr(o) for o in self.options]
        return f"{self.name}{{{', '.join(texts)}}}"


class Maybe(Frozen):
    """A type or None: ``T?``."""

    item: SchemaType

    def __str__(self) -> str:
        return f"{self.item}?"


class ListOf(Frozen, compare=("item", "length")):
    """A list: ``T[]``, or ``T[n]`` of a given length.

    A kernel gets a list, or a tuple if its annotation says ``tuple``.
    """

    item: SchemaType
    length: int | None = None
    is_tuple: bool = False

    def __str__(self) -> str:
        return f"{self.item}[{'' if self.length is None else self.length}]"


class DictOf(Frozen):
    """A dict whose keys are strings: ``Dict(str, T)``."""

    item: SchemaType

    def __str__(self) -> str:
        return f"Dict(str, {self.item})"


class TupleOf(Frozen):
    """A tuple with a type for each item: ``(A, B)``."""

    items: tuple[SchemaType, ...]

    def __str__(self) -> str:
        inside = ", ".join(str(item) for item in self.items)
        return f"({inside},)" if len(self.items) == 1 else f"({inside})"


class ClassOf(Frozen, compare=("name",)):
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
    fields: ClassFields
    items: dict[str, SchemaType]

    def __str__(self) -> str:
        return self.name

    @property
    def cls(self) -> type:
        """The class."""
        return self.fields.cls

    @cached
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


# A tuple: `Maybe | ListOf | DictOf` in a check is built again each time.
_WITH_ITEM = (Maybe, ListOf, DictOf)
# Types without parts.
_SINGLE = frozenset({Base, ArrayType, Choice})


def parts(declared: SchemaType) -> Iterator[SchemaType]:
    """A type and all types within it."""
    yield declared
    if isinstance(declared, _WITH_ITEM):
        yield from parts(declared.item)
    elif isinstance(declared, TupleOf):
        for item in declared.items:
            yield from parts(item)
    elif isinstance(declared, ClassOf):
        for item in declared.items.values():
            yield from parts(item)


def is_too_deep(declared: SchemaType) -> bool:
    """Whether the parts of a type are nested too deeply for a walk over them."""
    if type(declared) in _SINGLE:
        return False
    level: list[SchemaType] = [declared]
    for _ in range(_DEEPEST):
        level = [item for each in level for item in _items(each)]
        if not level:
            return False
    return True


def _items(declared: SchemaType) -> Iterable[SchemaType]:
    if isinstance(declared, _WITH_ITEM):
        return (declared.item,)
    if isinstance(declared, ClassOf):
        return declared.items.values()
    return declared.items if isinstance(declared, TupleOf) else ()


def holds_arrays(declared: SchemaType) -> bool:
    """Whether a value of this type can be or hold an array."""
    if type(declared) in _SINGLE:
        return type(declared) is ArrayType
    return any(isinstance(part, ArrayType) for part in parts(declared))


def has_shape(declared: SchemaType) -> bool:
    """Whether a type has a shape for an array in its values."""
    return bool(shapes_in(declared))


def shapes_in(declared: SchemaType) -> list[Shape]:
    """Shapes of the arrays in values of a type."""
    arrays = [part for part in parts(declared) if isinstance(part, ArrayType)]
    return [array.shape for array in arrays if array.shape is not None]


def item_shape(declared: SchemaType) -> Shape | None:
    """Shape of an array, or of the arrays of a list, that has one."""
    while isinstance(declared, Maybe | ListOf):
        declared = declared.item
    return declared.shape if isinstance(declared, ArrayType) else None


def places_of_shapes(declared: SchemaType, place: str) -> Iterator[tuple[str, Shape]]:
    """Arrays with a shape in a type: how each is reached, and its shape.

    All items of a list or a dict count as one.
    """
    if isinstance(declared, _WITH_ITEM):
        yield from places_of_shapes(declared.item, place)
    elif isinstance(declared, TupleOf):
        for i, item in enumerate(declared.items):
            yield from places_of_shapes(item, f"{place}[{i}]")
    elif isinstance(declared, ClassOf):
        for name, item in declared.items.items():
            part = f"[{name!r}]" if declared.fields.is_dict else f".{name}"
            yield from places_of_shapes(item, f"{place}{part}")
    elif isinstance(declared, ArrayType) and declared.shape is not None:
        yield place, declared.shape


def lead_of(declared: SchemaType) -> int:
    """Number of axes before ``...``, if it is the same in all arrays; otherwise 0."""
    arrays = [p for p in parts(declared) if isinstance(p, ArrayType)]
    leads = {len(a.shape.before) if a.shape else 0 for a in arrays}
    return leads.pop() if len(leads) == 1 else 0


def is_array_type(declared: SchemaType) -> bool:
    """Whether a value of this type is always one array."""
    return isinstance(declared, ArrayType) and not declared.or_number


def is_single_array(declared: SchemaType) -> bool:
    """Whether a value of this type is one array, or None or a number instead."""
    inner = declared.item if isinstance(declared, Maybe) else declared
    return isinstance(inner, ArrayType)


def typed_items(value: Any, declared: SchemaType) -> list[tuple[Any, Any, SchemaType]]:
    """The parts of a nested value: the index, key or name, the part and its type."""
    if isinstance(declared, ListOf):
        return [(i, v, declared.item) for i, v in enumerate(value)]
    if isinstance(declared, TupleOf):
        pairs = zip(value, declared.items, strict=True)
        return [(i, v, t) for i, (v, t) in enumerate(pairs)]
    if isinstance(declared, DictOf):
        return [(name, v, declared.item) for name, v in value.items()]
    assert isinstance(declared, ClassOf)
    if declared.fields.is_dict:
        return [(n, v, declared.items[n]) for n, v in value.items()]
    return [(n, getattr(value, n), t) for n, t in declared.items.items()]


def place_in(declared: SchemaType, step: Any) -> str:
    """The place of a part in words, from the step that `typed_items` gives."""
    if isinstance(declared, ListOf | TupleOf):
        return f"index {step}"
    if isinstance(declared, ClassOf) and not declared.fields.is_dict:
        return f"field '{step}'"
    return f"key {step!r}"
