"""Types of a schema, parameters and results, and their texts."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from importlib import import_module
from types import ModuleType
from typing import Any, Final, TypeAlias

import numpy as np

from customop.frozen import Frozen, cached
from customop.later import later
from customop.schema.config_classes import ClassFields
from customop.shapes.notation import Shape, as_name

json: ModuleType = later(import_module, "json")


# ---- the types of a schema, and their text ----


# Deeper types are refused: Python cannot walk over them.
_DEEPEST = 64


def text_of(value: str) -> str:
    """Write a string for schema strings."""
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
        A name of `customop.arrays.array.ELEMENTS`; ``"Array"`` for elements of any class.
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
        """Return whether objects are members of an Enum."""
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
    """Return a type and all types within it."""
    yield declared
    for item in _items(declared):
        yield from parts(item)


def is_too_deep(declared: SchemaType) -> bool:
    """Return whether the parts of a type are nested too deeply for a walk."""
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
    """Return whether a value of this type can be or hold an array."""
    if type(declared) in _SINGLE:
        return type(declared) is ArrayType
    return any(isinstance(part, ArrayType) for part in parts(declared))


def has_shape(declared: SchemaType) -> bool:
    """Return whether a type has a shape for an array in its values."""
    return bool(shapes_in(declared))


def shapes_in(declared: SchemaType) -> list[Shape]:
    """Return the shapes of the arrays in values of a type."""
    arrays = [part for part in parts(declared) if isinstance(part, ArrayType)]
    return [array.shape for array in arrays if array.shape is not None]


def item_shape(declared: SchemaType) -> Shape | None:
    """Return the shape of an array, or of the arrays of a list, that has one."""
    while isinstance(declared, Maybe | ListOf):
        declared = declared.item
    return declared.shape if isinstance(declared, ArrayType) else None


def places_of_shapes(declared: SchemaType, place: str) -> Iterator[tuple[str, Shape]]:
    """Return each array with a shape in a type: how it is reached, and its shape.

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
    """Return the number of axes before ``...``; 0 unless all arrays have the same."""
    arrays = [p for p in parts(declared) if isinstance(p, ArrayType)]
    leads = {len(a.shape.before) if a.shape else 0 for a in arrays}
    return leads.pop() if len(leads) == 1 else 0


def is_array_type(declared: SchemaType) -> bool:
    """Return whether a value of this type is always one array."""
    return isinstance(declared, ArrayType) and not declared.or_number


def is_single_array(declared: SchemaType) -> bool:
    """Return whether a value of this type is one array, or None or a number instead."""
    inner = declared.item if isinstance(declared, Maybe) else declared
    return isinstance(inner, ArrayType)


def typed_items(value: Any, declared: SchemaType) -> list[tuple[Any, Any, SchemaType]]:
    """Return the parts of a nested value: index, key or name, the part, its type."""
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
    """Return the place of a part in words, from the step that `typed_items` gives."""
    if isinstance(declared, ListOf | TupleOf):
        return f"index {step}"
    if isinstance(declared, ClassOf) and not declared.fields.is_dict:
        return f"field '{step}'"
    return f"key {step!r}"


# ---- parameters and results of an operator, and their text in a schema string ----


class _Missing:
    def __repr__(self) -> str:
        return "<no default>"

    def __reduce__(self) -> str:
        return "MISSING"


MISSING: Final = _Missing()

POSITIONAL_ONLY: Final = "positional_only"
POSITIONAL: Final = "positional"
KEYWORD_ONLY: Final = "keyword_only"


class Alias(Frozen):
    """The name of memory that values share, and whether it is written."""

    name: str
    is_write: bool = False

    def __str__(self) -> str:
        return f"({self.name}{'!' if self.is_write else ''})"


def _typed(declared: SchemaType, alias: Alias | None) -> str:
    """Write a type with its alias after its first array, such as ``Array(a!)[]``."""
    if alias is None or not holds_arrays(declared):
        return str(declared)
    if isinstance(declared, TupleOf):
        texts = [str(item) for item in declared.items]
        first = next(i for i, item in enumerate(declared.items) if holds_arrays(item))
        texts[first] = _typed(declared.items[first], alias)
        return _in_parentheses(texts)
    if isinstance(declared, Maybe | ListOf | DictOf):
        start, _, end = str(declared).partition(str(declared.item))
        return f"{start}{_typed(declared.item, alias)}{end}"
    name, bar, number = str(declared).partition("|")  # an array, or a class with arrays
    return f"{name}{alias}{bar}{number}"


class Parameter(Frozen):
    """One parameter of an operator.

    Parameters are equal if their texts are, so nan equals nan, and 1 differs from 1.0.
    `name` is in the normal form (NFKC) in which Python reads names.

    Attributes
    ----------
    name : str
    type : SchemaType
    default : object
        `MISSING` where the argument is required.
    kind : str
        ``"positional_only"``, ``"positional"`` or ``"keyword_only"``.
    alias : Alias or None
    """

    name: str
    type: SchemaType
    default: Any = MISSING
    kind: str = POSITIONAL
    alias: Alias | None = None

    def __post_init__(self) -> None:
        if not self.name.isascii():
            vars(self)["name"] = as_name(self.name)

    @property
    def is_written(self) -> bool:
        """Return whether the operator writes into this argument."""
        return self.alias is not None and self.alias.is_write

    @cached
    def lead(self) -> int:
        """Return the number of axes that are always before those that broadcasting adds."""
        return lead_of(self.type)

    def __str__(self) -> str:
        text = f"{_typed(self.type, self.alias)} {self.name}"
        if self.default is MISSING:
            return text
        return f"{text}={print_value(self.default, self.type)}"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Parameter):
            return NotImplemented
        return self.kind == other.kind and str(self) == str(other)

    def __hash__(self) -> int:
        return hash((self.kind, str(self)))


class Return(Frozen):
    """One result of an operator."""

    type: SchemaType
    name: str = ""
    alias: Alias | None = None

    def __str__(self) -> str:
        text = _typed(self.type, self.alias)
        return f"{text} {self.name}" if self.name else text


def print_value(value: Any, declared: SchemaType) -> str:
    """Write a default for schema strings."""
    if value is None:
        return "None"
    if isinstance(declared, Maybe):
        return print_value(value, declared.item)
    if isinstance(declared, ClassOf) and declared.is_enum:
        return _print_member(value, declared)
    if isinstance(declared, ListOf | TupleOf | ClassOf):
        texts = [print_value(v, t) for _, v, t in typed_items(value, declared)]
        is_list = isinstance(declared, ListOf)
        return f"[{', '.join(texts)}]" if is_list else _in_parentheses(texts)
    if declared == DTYPE:
        return _print_dtype(value)
    is_number = isinstance(value, int | float | complex)
    return repr(value) if is_number else text_of(str(value))


def _in_parentheses(texts: list[str]) -> str:
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def _print_member(value: Any, declared: ClassOf) -> str:
    name = value.name
    if name not in declared.cls.__members__:  # type: ignore[attr-defined]  # an Enum
        return repr(int(value.value))  # several flags at once
    return name if name.isidentifier() and name != "None" else text_of(name)


def _print_dtype(dtype: np.dtype[Any]) -> str:
    if dtype.names is None:
        return str(dtype)
    return repr(np.lib.format.dtype_to_descr(dtype))
