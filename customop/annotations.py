"""The table between annotations of Python and types of a schema."""

from __future__ import annotations

import collections.abc
import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, TypeAlias, Union

import numpy as np
import numpy.typing as npt
from typing_extensions import TypeAliasType, TypeVar

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
Scalar: TypeAlias = Union[int, float, bool, complex]
DType: TypeAlias = Annotated[npt.DTypeLike, "dtype"]
Device: TypeAlias = Annotated[str, "device"]


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
    """A list: ``T[]``, or ``T[n]`` of a given length."""

    item: SchemaType
    length: int | None = None

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
    np.random.Generator: GENERATOR,
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

_LISTS = (list, collections.abc.Sequence)
_NUMBERS = (int, float, bool, complex)
SUPPORTED = (
    "Array (or a class of arrays), bool, int, float, complex, str, Scalar, DType,"
    " Device, np.random.Generator, and Optional, list, Sequence and tuple of these"
)

# Annotation -> what to use instead.
_INSTEAD: dict[Any, str] = {
    Any: "name the type",
    object: "name the type",
    list: "write list[T], such as list[int]",
    tuple: "write tuple[T, ...] or tuple[A, B]",
    dict: "pass the values as parameters of their own",
    set: "pass a list",
    bytes: "pass a str or an array of uint8",
    collections.abc.Callable: "make an operator for each function",
    collections.abc.Iterable: "write Sequence[T]",
    np.number: "write Scalar or float",
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
    if isinstance(annotation, TypeVar | typing.TypeVar):
        return _of_type_variable(annotation)
    if isinstance(annotation, TypeAliasType) or hasattr(annotation, "__value__"):
        return schema_type(annotation.__value__)
    origin = typing.get_origin(annotation)
    if origin is Annotated:
        return schema_type(typing.get_args(annotation)[0])
    if origin is Union or isinstance(annotation, types.UnionType):
        return _of_union(typing.get_args(annotation))
    if origin is not None:
        return _of_generic(annotation, origin, typing.get_args(annotation))
    raise _no_type(annotation)


def _lookup(annotation: Any) -> SchemaType | None:
    try:
        known = _ANNOTATIONS.get(annotation)
    except TypeError:  # an unhashable annotation, such as Annotated[int, []]
        return None
    if known is None and is_array_class(annotation):
        return ARRAY
    return known


def _of_type_variable(variable: Any) -> SchemaType:
    bound = variable.__bound__
    options = variable.__constraints__
    if bound is not None:
        return schema_type(bound)
    found = {schema_type(option) for option in options}
    if len(found) == 1:
        return found.pop()
    raise _no_type(variable, f"give it a bound: TypeVar('{variable.__name__}', bound=Array)")


def _of_union(options: tuple[Any, ...]) -> SchemaType:
    rest = [option for option in options if option is not type(None)]
    found = _of_options(rest)
    return Maybe(found) if len(rest) < len(options) else found


def _of_options(rest: list[Any]) -> SchemaType:
    if len(rest) == 1:
        return schema_type(rest[0])
    numbers = [option for option in rest if option in _NUMBERS]
    others = [option for option in rest if option not in _NUMBERS]
    if not others:
        return SCALAR
    found = {schema_type(option) for option in others}
    if len(found) > 1:
        raise _no_type(Union[tuple(rest)], "make an operator for each type")
    if not numbers:
        return found.pop()
    if found == {ARRAY}:
        return OPERAND
    raise _no_type(Union[tuple(rest)], "make an operator for each type")


def _of_generic(annotation: Any, origin: Any, items: tuple[Any, ...]) -> SchemaType:
    if origin in _LISTS:
        return ListOf(schema_type(items[0]))
    if origin is tuple:
        return _of_tuple(items)
    if _lookup(origin) is not None:
        return schema_type(origin)
    raise _no_type(annotation, _INSTEAD.get(origin, ""))


def _of_tuple(items: tuple[Any, ...]) -> SchemaType:
    if len(items) == 2 and items[1] is Ellipsis:
        return ListOf(schema_type(items[0]))
    return TupleOf(tuple(schema_type(item) for item in items if item != ()))


def _no_type(annotation: Any, instead: str = "") -> SchemaError:
    if not instead:
        try:
            instead = _INSTEAD.get(annotation, "")
        except TypeError:
            instead = ""
    return SchemaError(
        f"annotation {show_annotation(annotation)}, which has no schema type",
        f"supported: {SUPPORTED}",
        do=instead or "use a supported type, or split the value into parameters",
    )


def show_annotation(annotation: Any) -> str:
    """An annotation as a user would write it."""
    if isinstance(annotation, str):
        return annotation
    if isinstance(annotation, type) and typing.get_origin(annotation) is None:
        return annotation.__qualname__
    return str(annotation).replace("typing.", "").replace("collections.abc.", "")


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


Coercion: TypeAlias = Callable[[Any], Any]
