"""Types of a schema, classes of config objects, and parameters, with their texts."""

from __future__ import annotations

import enum
import inspect
import typing
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, Final, TypeAlias

import numpy as np

from customop.arrays.nested import register_node
from customop.frozen import Frozen, cached
from customop.later import later
from customop.shapes.notation import Shape, as_name

dataclasses: ModuleType = later(import_module, "dataclasses")
# Only fields of a TypedDict need it.
typing_extensions: ModuleType = later(import_module, "typing_extensions")
json: ModuleType = later(import_module, "json")


# ---- classes of config objects, and their fields ----


class ClassFields(Frozen, compare=()):
    """The fields of a class of config objects, and how its objects are made.

    Attributes
    ----------
    cls : type
    hints : dict
        Name of a field -> its annotation.
    required : frozenset of str
        Names of the fields that an object must have: all but for a TypedDict.
    by_call : tuple of str or None
        Fields that the constructor takes; None where there is none to call.
    is_frozen : bool
        Whether objects never change.
    """

    cls: type
    hints: dict[str, Any]
    required: frozenset[str]
    by_call: tuple[str, ...] | None = None
    is_frozen: bool = True

    @cached
    def is_dict(self) -> bool:
        """Whether objects are plain dicts: those of a TypedDict."""
        return _is_typed_dict(self.cls)

    def steps(self, value: Any) -> Sequence[Hashable]:
        """Names of the fields."""
        return list(self.hints)

    def items(self, value: Any) -> list[Any]:
        """Values of the fields."""
        return [getattr(value, name) for name in self.hints]

    def like(self, value: Any, items: list[Any]) -> Any:
        """An object with other values in its fields.

        The constructor is called if `value` is None or keeps more than its fields.
        Otherwise it is not: its checks have passed, and need not hold for a batch.
        """
        if self.by_call is None or (value is not None and not self.keeps_more(value)):
            return self.outline(value, items)
        given = dict(zip(self.hints, items, strict=True))
        made = self.cls(**{name: given.pop(name) for name in self.by_call})
        for name, item in given.items():  # fields that the constructor does not take
            object.__setattr__(made, name, item)
        return made

    def keeps_more(self, value: Any) -> bool:
        """Whether an object has attributes in addition to its fields."""
        own = [*getattr(value, "__dict__", ()), *_slots(self.cls)]
        return any(name not in self.hints and hasattr(value, name) for name in own)

    def outline(self, value: Any, items: list[Any]) -> Any:
        """An object with anything in its fields, without calling the constructor."""
        if issubclass(self.cls, tuple):
            return tuple.__new__(self.cls, items)
        made = object.__new__(self.cls)
        for name, item in zip(self.hints, items, strict=True):
            object.__setattr__(made, name, item)
        return made


def _slots(cls: type) -> list[str]:
    found = [vars(base).get("__slots__", ()) for base in cls.__mro__]
    names = [n for slots in found for n in ([slots] if type(slots) is str else slots)]
    return [name for name in names if not name.startswith("__")]


def register_pytree(fields: ClassFields, moving: Sequence[str]) -> bool:
    """Make a class of config objects a pytree; the `moving` fields hold its leaves.

    NamedTuples and dicts are pytrees already, with all their fields as leaves; members
    of an Enum are leaves. Returns whether the class was new.
    """
    cls: Any = fields.cls
    if issubclass(cls, tuple) or fields.is_dict or not fields.hints:
        return False
    fixed = [name for name in fields.hints if name not in moving]

    def take_apart(value: Any) -> tuple[list[Any], Any, tuple[str, ...]]:
        rest = tuple(getattr(value, name) for name in fixed)
        found = [getattr(value, name) for name in moving]
        return found, (fields.keeps_more(value), rest), tuple(moving)

    def make(constant: Any, found: Any) -> Any:
        keeps_more, rest = constant
        given = dict(zip((*fixed, *moving), (*rest, *found), strict=True))
        items = [given[name] for name in fields.hints]
        return fields.like(None, items) if keeps_more else fields.outline(None, items)

    return register_node(cls, take_apart, make)


# ---- fields of classes ----


# Classes that `register_config_type` was given.
_declared: set[type] = set()


def declare(cls: type) -> None:
    """Allow objects of a class as arguments, even if they can change."""
    _declared.add(cls)


def withdraw(cls: type) -> None:
    """Undo `declare` for a class that cannot be taken apart."""
    _declared.discard(cls)


def is_config_class(annotation: object) -> bool:
    """Whether an annotation is a class whose objects may be arguments."""
    if not isinstance(annotation, type) or typing.get_origin(annotation) is not None:
        return False
    return (
        annotation in _declared
        or issubclass(annotation, enum.Enum)
        or _is_typed_dict(annotation)
        or is_frozen_dataclass(annotation)
        or (issubclass(annotation, tuple) and hasattr(annotation, "_fields"))
    )


def _is_typed_dict(cls: type) -> bool:
    """Whether a class is a TypedDict, of typing or of typing_extensions."""
    return issubclass(cls, dict) and hasattr(cls, "__required_keys__")


def is_frozen_dataclass(cls: type) -> bool:
    """Whether a class is a dataclass whose objects never change."""
    own = "__dataclass_params__" in vars(cls)
    return own and bool(vars(cls)["__dataclass_params__"].frozen)


def fields_of(cls: type, names: Mapping[str, Any]) -> ClassFields:
    """The fields of a class of config objects.

    Their annotations may use `names` in addition to those of the module.

    Raises
    ------
    NameError
        If an annotation uses a name that is not defined.
    TypeError
        If the objects cannot be made of their fields; the text says why.
    """
    if issubclass(cls, enum.Enum):
        return ClassFields(cls, {}, frozenset())
    if _is_typed_dict(cls):
        return _of_typed_dict(cls, names)
    if issubclass(cls, tuple):
        return _of_named_tuple(cls, names)
    if dataclasses.is_dataclass(cls):
        return _of_dataclass(cls, names)
    return _of_constructor(cls, names)


def _hints(holder: Any, names: Mapping[str, Any]) -> dict[str, Any]:
    return typing.get_type_hints(holder, localns=dict(names), include_extras=True)


def _of_typed_dict(cls: Any, names: Mapping[str, Any]) -> ClassFields:
    extensions = typing_extensions
    marks = (extensions.Required, extensions.NotRequired, extensions.ReadOnly)
    required = set(cls.__required_keys__)
    hints = {}
    for name, written in _hints(cls, names).items():
        hint = written
        while (mark := typing.get_origin(hint)) in marks:
            # `__required_keys__` does not read annotations that are strings.
            if mark == extensions.NotRequired:
                required.discard(name)
            elif mark == extensions.Required:
                required.add(name)
            (hint,) = typing.get_args(hint)
        hints[name] = hint
    return ClassFields(cls, hints, frozenset(required), is_frozen=False)


def _of_named_tuple(cls: Any, names: Mapping[str, Any]) -> ClassFields:
    hints = _hints(cls, names)
    plain = [name for name in cls._fields if name not in hints]
    if plain:
        raise TypeError(f"its field '{plain[0]}' has no type: use typing.NamedTuple")
    hints = {name: hints[name] for name in cls._fields}
    return ClassFields(cls, hints, frozenset(hints))


def _of_dataclass(cls: Any, names: Mapping[str, Any]) -> ClassFields:
    hints = _hints(cls, names)
    fields = dataclasses.fields(cls)
    hidden = set(cls.__dataclass_fields__) - {f.name for f in fields}
    passed = [n for n in hidden if isinstance(hints[n], dataclasses.InitVar)]
    if passed:
        raise TypeError(
            f"'{passed[0]}' is an InitVar, which objects do not keep: make it a field"
        )
    return ClassFields(
        cls,
        {f.name: hints[f.name] for f in fields},
        frozenset(f.name for f in fields),
        tuple(f.name for f in fields if f.init)
        if cls.__dataclass_params__.init
        else None,
        is_frozen_dataclass(cls),
    )


def _of_constructor(cls: type, names: Mapping[str, Any]) -> ClassFields:
    """Fields with the names of the constructor's parameters."""
    parameters = inspect.signature(cls).parameters.values()
    found = _hints(cls.__init__, names)  # type: ignore[misc]  # of this class
    hints = {}
    for p in parameters:
        if p.kind not in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY):
            raise TypeError(f"its constructor cannot take '{p.name}' by name")
        if p.name not in found:
            raise TypeError(
                f"parameter '{p.name}' of its constructor has no annotation"
            )
        if isinstance(inspect.getattr_static(cls, p.name, None), property):
            raise TypeError(f"'{p.name}' is a property, must be a plain attribute")
        hints[p.name] = found[p.name]
    return ClassFields(cls, hints, frozenset(hints), tuple(hints), is_frozen=False)


# ---- the types of a schema, and their text ----


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
    """A type with its alias after its first array, such as ``Array(a!)[]``."""
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
    Python reads a name in its normal form (NFKC), and so does `name` have it.

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
        """Whether the operator writes into this argument."""
        return self.alias is not None and self.alias.is_write

    @cached
    def lead(self) -> int:
        """Number of axes that are always before those that broadcasting adds."""
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
    """The text of a default in a schema string."""
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
