"""The table between annotations of Python and types of a schema."""

from __future__ import annotations

import collections.abc
import enum
import numbers
import re
import sys
import types
import typing
from collections.abc import Iterator
from dataclasses import dataclass, field, is_dataclass
from typing import Annotated, Any, Protocol, TypeAlias, Union

import numpy as np
import numpy.typing as npt
from typing_extensions import TypeVar, get_type_hints

from customop.devices import is_array_class
from customop.errors import SchemaError

__all__ = ["Array", "ArrayT", "DType", "Device", "Scalar"]


class Array(Protocol):
    """What an array of any kind has: the annotation for "an array" in an operator.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> @co.custom_op("doc::twice", mutates_args=())
    ... def twice(x: co.Array) -> co.Array:
    ...     return x + x
    >>> twice(np.array([1.0, 2.0]))
    array([2., 4.])
    """

    @property
    def shape(self) -> Any:
        """Lengths of the axes."""

    @property
    def dtype(self) -> Any:
        """Type of the elements."""

    @property
    def ndim(self) -> int:
        """Number of axes."""
        ...

    # With it NumPy's functions take an `Array` in the eyes of type checkers.
    def __array__(self, *args: Any, **kwargs: Any) -> npt.NDArray[Any]: ...
    def __add__(self, other: Any, /) -> Any: ...
    def __radd__(self, other: Any, /) -> Any: ...
    def __sub__(self, other: Any, /) -> Any: ...
    def __rsub__(self, other: Any, /) -> Any: ...
    def __mul__(self, other: Any, /) -> Any: ...
    def __rmul__(self, other: Any, /) -> Any: ...
    def __truediv__(self, other: Any, /) -> Any: ...
    def __rtruediv__(self, other: Any, /) -> Any: ...
    def __pow__(self, other: Any, /) -> Any: ...
    def __matmul__(self, other: Any, /) -> Any: ...
    def __neg__(self) -> Any: ...
    def __getitem__(self, key: Any, /) -> Any: ...


ArrayT = TypeVar("ArrayT", bound=Array)
Scalar: TypeAlias = int | float | bool | complex


@dataclass(frozen=True, slots=True)
class _Meaning:
    """What tells an alias of ours from the type that it stands for."""

    name: str

    def __repr__(self) -> str:
        return self.name


DType: TypeAlias = Annotated[npt.DTypeLike, _Meaning("dtype")]
Device: TypeAlias = Annotated[str, _Meaning("device")]


# ---- types of a schema ----


@dataclass(frozen=True, slots=True)
class Base:
    """A type with a name and no parts: ``Array``, ``int``, ``dtype``."""

    name: str

    def __str__(self) -> str:
        return self.name


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
class TupleOf:
    """A tuple with a type for each place: ``(A, B)``."""

    items: tuple[SchemaType, ...]

    def __str__(self) -> str:
        inside = ", ".join(str(item) for item in self.items)
        return f"({inside},)" if len(self.items) == 1 else f"({inside})"


SchemaType: TypeAlias = Base | Maybe | ListOf | TupleOf

ARRAY = Base("Array")
# An array, or a Python number that takes its dtype from the arrays beside it.
OPERAND = Base("Array|Scalar")
DTYPE = Base("dtype")
DEVICE = Base("device")
GENERATOR = Base("Generator")
SCALAR = Base("Scalar")

# ---- annotation -> schema type: one row, one line ----
_ANNOTATIONS: dict[Any, SchemaType] = {
    Array: ARRAY,
    int: Base("int"),
    float: Base("float"),
    bool: Base("bool"),
    complex: Base("complex"),
    str: Base("str"),
    np.dtype: DTYPE,
    npt.DTypeLike: DTYPE,
    DType: DTYPE,
    Device: DEVICE,
}

# Name in a schema string -> schema type; torch's names stand beside ours.
NAMES: dict[str, SchemaType] = {
    "Array": ARRAY,
    "Tensor": ARRAY,
    "Array|Scalar": OPERAND,
    "int": Base("int"),
    "SymInt": Base("int"),
    "float": Base("float"),
    "bool": Base("bool"),
    "complex": Base("complex"),
    "str": Base("str"),
    "Scalar": SCALAR,
    "dtype": DTYPE,
    "ScalarType": DTYPE,
    "device": DEVICE,
    "Device": DEVICE,
    "Generator": GENERATOR,
}

# Name in a schema string that is no type -> what to write.
FOREIGN: dict[str, str] = {
    "double": "write float",
    "int64_t": "write int",
    "ndarray": "write Array",
    "string": "write str",
    "list": "write T[], such as int[]",
    "List": "write T[], such as int[]",
    "tuple": "write (A, B)",
    "Optional": "write T?, such as float?",
    "Dict": "pass the values as parameters of their own",
    "dict": "pass the values as parameters of their own",
    "Any": "name the type",
}

_LISTS = (list, collections.abc.Sequence)
_NUMBERS = (int, float, bool, complex)
SUPPORTED = (
    "Array (or a class of arrays), bool, int, float, complex, str, Scalar, DType,"
    " Device, np.random.Generator, and Optional, list, Sequence and tuple of these"
)

_SPLIT = "pass the values as parameters of their own"
_LIST = "write list[T], such as list[int]"
_TUPLE = "write tuple[T, ...] or tuple[A, B]"
_TYPE = "write DType, or pass a name as str"
_NAME_TYPE = "name the type: Array, or one of the others"

# Annotation -> what to use instead.
_INSTEAD: dict[Any, str] = {
    Any: _NAME_TYPE,
    object: _NAME_TYPE,
    list: _LIST,
    set: _LIST,
    frozenset: _LIST,
    tuple: _TUPLE,
    dict: _SPLIT,
    collections.abc.Mapping: _SPLIT,
    collections.abc.Sequence: _LIST,
    collections.abc.Iterable: "write Sequence[T]",
    collections.abc.Iterator: "write Sequence[T]",
    collections.abc.Callable: "make an operator for each function",
    bytes: "write str, or Array of the dtype uint8",
    type: _TYPE,
    slice: "pass start, stop and step as int parameters",
    range: "write list[int]: a range fits it",
    numbers.Number: "write Scalar",
    numbers.Real: "write float",
    numbers.Integral: "write int",
}


def schema_type(annotation: Any) -> SchemaType:
    """Schema type of an annotation.

    Raises
    ------
    SchemaError
        If it has none; the text says what to use instead.
    """
    known = _lookup(annotation)
    if known is not None:
        return known
    if annotation is npt.ArrayLike:
        raise _no_type("ArrayLike", "write Array, and let the caller convert")
    if isinstance(annotation, TypeVar | typing.TypeVar):
        return _of_type_variable(annotation)
    origin = typing.get_origin(annotation)
    items = typing.get_args(annotation)
    for attribute in ("__supertype__", "__value__"):  # a NewType, a type alias
        if origin is None and hasattr(annotation, attribute):
            return schema_type(getattr(annotation, attribute))
    if origin is Annotated:
        return _of_annotated(*items)
    if origin is Union or isinstance(annotation, types.UnionType):
        return _of_union(items)
    if origin is not None:
        return _of_generic(annotation, origin, items)
    raise _no_type(annotation)


def _lookup(annotation: Any) -> SchemaType | None:
    try:
        known = _ANNOTATIONS.get(annotation)
    except TypeError:  # an unhashable annotation, such as Annotated[int, []]
        return None
    if _is_generator(annotation):
        return GENERATOR
    if known is None and is_array_class(annotation):
        # A NumPy scalar is a value that an array may be, but no class of arrays.
        return None if issubclass(annotation, np.generic) else ARRAY
    return known


def _is_generator(annotation: Any) -> bool:
    # By name, since naming the class imports numpy.random: 9 ms.
    module = str(getattr(annotation, "__module__", ""))
    name = getattr(annotation, "__name__", "")
    return name == "Generator" and module.startswith(("numpy.random", "cupy.random"))


def _of_annotated(inner: Any, *notes: Any) -> SchemaType:
    # Python flattens Annotated[DType, "note"]: what DType means is among the notes.
    meanings = [note for note in notes if isinstance(note, _Meaning)]
    return NAMES[meanings[0].name] if meanings else schema_type(inner)


def _of_type_variable(variable: Any) -> SchemaType:
    bound = _evaluated(variable.__bound__, variable)
    if bound is not None:
        return schema_type(bound)
    options = [_evaluated(option, variable) for option in variable.__constraints__]
    found = {schema_type(option) for option in options}
    if len(found) == 1:
        return found.pop()
    name = variable.__name__
    raise _no_type(variable, f'give it a bound: TypeVar("{name}", bound=Array)')


def _evaluated(hint: Any, variable: Any) -> Any:
    """What the text of a bound means where the type variable was made."""
    if not isinstance(hint, typing.ForwardRef):
        return hint
    names = vars(sys.modules[variable.__module__])
    holder = types.SimpleNamespace(__annotations__={"bound": hint})
    try:
        return get_type_hints(holder, names)["bound"]
    except NameError as error:
        missing = (
            f"define {error.name} in {variable.__module__}, or give a class as bound"
        )
        raise _no_type(variable, missing) from None


def _of_union(options: tuple[Any, ...]) -> SchemaType:
    rest = [option for option in options if option is not type(None)]
    found = _of_options(rest)
    is_optional = len(rest) < len(options) and not isinstance(found, Maybe)
    return Maybe(found) if is_optional else found


def _of_options(rest: list[Any]) -> SchemaType:
    if len(rest) == 1:
        return schema_type(rest[0])
    numbers = [option for option in rest if option in _NUMBERS]
    others = [option for option in rest if option not in _NUMBERS]
    if not others:
        return SCALAR
    found = {schema_type(option) for option in others}
    if found == {ARRAY}:
        return OPERAND if numbers else ARRAY
    if len(found) == 1 and not numbers:
        return found.pop()
    shown = " | ".join(show_annotation(option) for option in rest)
    raise _no_type(shown, "make an operator for each type")


def _of_generic(annotation: Any, origin: Any, items: tuple[Any, ...]) -> SchemaType:
    if origin in _LISTS and items:
        return ListOf(schema_type(items[0]))
    if origin is tuple and items and items != ((),):
        return _of_tuple(items)
    if hasattr(origin, "__value__"):
        return schema_type(_substituted(origin, items))
    if _lookup(origin) is not None:
        return schema_type(origin)
    raise _no_type(annotation, _instead(origin))


def _substituted(alias: Any, items: tuple[Any, ...]) -> Any:
    """The value of a generic type alias with its type parameters filled in."""
    given = dict(zip(alias.__type_params__, items, strict=True))
    value = alias.__value__
    order = getattr(value, "__parameters__", ())
    return value[tuple(given[variable] for variable in order)] if order else value


def _of_tuple(items: tuple[Any, ...]) -> SchemaType:
    if len(items) == 2 and items[1] is Ellipsis:
        return ListOf(schema_type(items[0]), is_tuple=True)
    return TupleOf(tuple(schema_type(item) for item in items))


def _no_type(annotation: Any, instead: str = "") -> SchemaError:
    return SchemaError(
        f"annotation {show_annotation(annotation)}, which has no schema type",
        f"supported: {SUPPORTED}",
        do=instead or _instead(annotation) or f"use a supported type, or {_SPLIT}",
    )


def _instead(annotation: Any) -> str:
    """What to use in the place of an annotation, where that is known."""
    if annotation is typing.Literal:
        return "write str or int, and check the value in the function"
    if isinstance(annotation, type):
        return _instead_of_class(annotation)
    try:
        return _INSTEAD.get(annotation, "")
    except TypeError:  # an unhashable annotation
        return ""


def _instead_of_class(cls: type) -> str:
    if cls in _INSTEAD:
        return _INSTEAD[cls]
    if issubclass(cls, enum.Enum):
        return "write str, and pass the name of the member"
    if issubclass(cls, np.generic):
        return "write Array, which NumPy scalars fit too, or float, int or Scalar"
    if issubclass(cls, tuple):
        return _TUPLE
    if is_dataclass(cls) or issubclass(cls, dict):
        return _SPLIT
    return ""


def show_annotation(annotation: Any) -> str:
    """An annotation as a user would write it."""
    if isinstance(annotation, str):
        return annotation.strip("'\"")
    if isinstance(annotation, type) and typing.get_origin(annotation) is None:
        return annotation.__qualname__.rpartition("<locals>.")[2]
    text = str(annotation).replace("typing.", "").replace("collections.abc.", "")
    return re.sub(r"[\w.]*<locals>\.", "", text)


def parts(kind: SchemaType) -> Iterator[SchemaType]:
    """A type and all types within it."""
    yield kind
    if isinstance(kind, Maybe | ListOf):
        yield from parts(kind.item)
    if isinstance(kind, TupleOf):
        for item in kind.items:
            yield from parts(item)


def holds_arrays(kind: SchemaType) -> bool:
    """Whether a value of this type can be or hold an array."""
    return any(part in (ARRAY, OPERAND) for part in parts(kind))


def is_single_array(kind: SchemaType) -> bool:
    """Whether a value of this type is one array, or None or a number in its place."""
    inner = kind.item if isinstance(kind, Maybe) else kind
    return inner in (ARRAY, OPERAND)
