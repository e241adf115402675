"""Which annotation means which type of a schema, and what to use for the others."""
# ruff: noqa: UP006, UP007, UP035, UP045 - the old spellings are what is tested

from __future__ import annotations

import collections
import collections.abc
import dataclasses
import enum
import numbers
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, List, Literal, NamedTuple, Optional, Tuple, Union

import numpy as np
import numpy.typing as npt
import pytest
from typing_extensions import TypeAliasType, TypedDict, TypeVar

import customop as co
from customop.arrays.array import Array
from customop.errors import SchemaError
from customop.schema.annotations import schema_type
from customop.schema.types import holds_arrays


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass(frozen=True)
class Point:
    x: float


class Pair(NamedTuple):
    first: float
    second: float


class Options(TypedDict):
    k: int


class Holder(NamedTuple):
    array: co.Array
    name: str


Bound = TypeVar("Bound", bound=Array)
BoundByText = TypeVar("BoundByText", bound="Array")
BoundByNothing = TypeVar("BoundByNothing", bound="Missing")  # noqa: F821
OneOf = typing.TypeVar("OneOf", np.ndarray, Array)
OneOfTwo = typing.TypeVar("OneOfTwo", np.ndarray, int)
Free = TypeVar("Free")
Metres = typing.NewType("Metres", float)
Shape = TypeAliasType("Shape", list[int])
Item = TypeVar("Item")
Listed = TypeAliasType("Listed", list[Item], type_params=(Item,))


class Matrix(np.ndarray):
    """A class derived from a class of arrays."""


HERE = __name__


@dataclasses.dataclass
class Changing:
    x: float


Speed = Literal["fast", "exact"]

TYPES = [
    (Literal["a", "b"], 'str{"a", "b"}'),
    (Literal[1, -2], "int{1, -2}"),
    (Literal[True], "bool{True}"),
    (Literal["a", None], 'str{"a"}?'),  # noqa: PYI061 - as some write it
    (Speed | None, 'str{"fast", "exact"}?'),
    (list[Speed], 'str{"fast", "exact"}[]'),
    (Colour, f"{HERE}.Colour"),
    (Optional[Colour], f"{HERE}.Colour?"),
    (Point, f"{HERE}.Point"),
    (list[Point], f"{HERE}.Point[]"),
    (Pair, f"{HERE}.Pair"),
    (Options, f"{HERE}.Options"),
    (dict[str, int], "Dict(str, int)"),
    (typing.Dict[str, co.Array], "Dict(str, Array)"),
    (dict[str, list[co.Array | None]], "Dict(str, Array?[])"),
    (co.Array, "Array"),
    (co.ArrayT, "Array"),
    (Bound, "Array"),
    (BoundByText, "Array"),
    (OneOf, "Array"),
    (np.ndarray, "Array"),
    (Matrix, "Array"),
    (npt.NDArray[np.float64], "Array"),
    (np.ndarray | co.Array, "Array"),
    (int, "int"),
    (float, "float"),
    (bool, "bool"),
    (str, "str"),
    (complex, "complex"),
    (co.Scalar, "Scalar"),
    (int | float | bool, "Scalar"),
    (int | float, "Scalar"),
    (np.dtype, "dtype"),
    (np.dtype[Any], "dtype"),
    (npt.DTypeLike, "dtype"),
    (co.DType, "dtype"),
    (Annotated[co.DType, "of the result"], "dtype"),
    (co.Device, "device"),
    (Annotated[co.Device, "of the result"], "device"),
    (Annotated[str, "device"], "str"),
    (np.random.Generator, "Generator"),
    (Optional[int], "int?"),
    (int | None, "int?"),
    (co.Array | None, "Array?"),
    (Optional[Bound], "Array?"),
    (co.Scalar | None, "Scalar?"),
    (co.DType | None, "dtype?"),
    (co.Device | None, "device?"),
    (co.Array | float, "Array|Scalar"),
    (co.Array | float | None, "Array|Scalar?"),
    (list[int], "int[]"),
    (List[int], "int[]"),
    (Sequence[str], "str[]"),
    (typing.Sequence[bool], "bool[]"),
    (list[co.Array], "Array[]"),
    (list[co.Array | None], "Array?[]"),
    (list[co.Array] | None, "Array[]?"),
    (list[co.Array | None] | None, "Array?[]?"),
    (list[int | None], "int?[]"),
    (list[list[int]], "int[][]"),
    (list[list[co.Array]], "Array[][]"),
    (list[co.Scalar], "Scalar[]"),
    (list[co.DType], "dtype[]"),
    (tuple[int, ...], "int[]"),
    (Tuple[co.Array, ...], "Array[]"),
    (tuple[int, str], "(int, str)"),
    (tuple[int], "(int,)"),
    (tuple[co.Array, list[int]], "(Array, int[])"),
    (Annotated[float, "metres"], "float"),
    (Annotated[int, []], "int"),
    (Metres, "float"),
    (Shape, "int[]"),
    (Listed[int], "int[]"),
]


@pytest.mark.parametrize(("annotation", "text"), TYPES, ids=[str(a) for a, _ in TYPES])
def test_an_annotation_has_a_schema_type(annotation: Any, text: str) -> None:
    """Every row of the table of annotations."""
    assert str(schema_type(annotation)) == text


LIST = "write list[T], such as list[int]"
TUPLE = "write tuple[T, ...] or tuple[A, B]"
DICT = "write dict[str, T], such as dict[str, float]"
LITERAL = "give values that are all str, all int or all bool"
NAME = "name the type: Array, or one of the others"
DTYPE = "write DType, or pass a name as str"
SCALARS = "write Array, which takes NumPy scalars too, or float, int or Scalar"
SPLIT = "make an operator for each type"

REFUSED = [
    (Literal["a", 1], "Literal['a', 1]", LITERAL),
    (Literal[b"a"], "Literal[b'a']", LITERAL),
    (Literal[Colour.RED], "Literal[<Colour.RED: 1>]", LITERAL),
    (
        Changing,
        "Changing",
        "make it @dataclass(frozen=True), or call register_config_type(Changing)",
    ),
    (
        collections.namedtuple("Bare", "a b"),  # noqa: PYI024 - it is refused
        "Bare",
        "change the class: its field 'a' has no type: use typing.NamedTuple",
    ),
    (dict[int, str], "dict[int, str]", DICT),
    (dict, "dict", DICT),
    (Mapping[str, int], "Mapping[str, int]", DICT),
    (Any, "Any", NAME),
    (object, "object", NAME),
    (
        Callable[[int], int],
        "Callable[[int], int]",
        "make an operator for each function",
    ),
    (collections.abc.Callable, "Callable", "make an operator for each function"),
    (list, "list", LIST),
    (List, "List", LIST),
    (Sequence, "Sequence", LIST),
    (set, "set", LIST),
    (set[int], "set[int]", LIST),
    (frozenset[int], "frozenset[int]", LIST),
    (tuple, "tuple", TUPLE),
    (Tuple, "Tuple", TUPLE),
    (tuple[()], "tuple[()]", TUPLE),
    (Iterable[int], "Iterable[int]", "write Sequence[T]"),
    (bytes, "bytes", "write str, or Array of the dtype uint8"),
    (type, "type", DTYPE),
    (type[int], "type[int]", DTYPE),
    (slice, "slice", "pass start, stop and step as int parameters"),
    (range, "range", "write list[int]: a range fits it"),
    (numbers.Number, "Number", "write Scalar"),
    (np.float64, "float64", SCALARS),
    (np.number, "number", SCALARS),
    (npt.ArrayLike, "ArrayLike", "write Array, and let the caller convert"),
    (Free, "~Free", 'give it a bound: TypeVar("Free", bound=Array)'),
    (OneOfTwo, "~OneOfTwo", 'give it a bound: TypeVar("OneOfTwo", bound=Array)'),
    (
        BoundByNothing,
        "~BoundByNothing",
        f"define Missing in {__name__}, or give a class as bound",
    ),
    (int | str, "int | str", SPLIT),
    (Union[co.Array, str], "Array | str", SPLIT),
    (list[int] | int, "list[int] | int", SPLIT),
    (
        None,
        "None",
        "use a supported type, or pass each value as a separate parameter",
    ),
]


@pytest.mark.parametrize(
    ("annotation", "shown", "instead"), REFUSED, ids=[row[1] for row in REFUSED]
)
def test_an_annotation_without_a_type_says_what_to_use(
    annotation: Any, shown: str, instead: str
) -> None:
    """An annotation without a schema type is refused, with a replacement."""
    with pytest.raises(SchemaError) as caught:
        schema_type(annotation)
    assert str(caught.value) == (
        f"annotation {shown}, which has no schema type\n"
        "  supported: Array (or a class of arrays), bool, int, float, complex, str,"
        " Scalar, DType, Device, np.random.Generator, Literal, Enum, frozen"
        " dataclasses, NamedTuple, TypedDict, and Optional, list, Sequence, tuple and"
        " dict[str, ...] of these\n"
        f"  do: {instead}"
    )


def test_a_refusal_within_a_list_names_the_part() -> None:
    """Of a nested annotation the part without a type is named."""
    with pytest.raises(SchemaError, match=r"^annotation dict\[int, int\], which has"):
        schema_type(list[dict[int, int]])


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (co.Array, True),
        (list[co.Array | None], True),
        (tuple[int, co.Array], True),
        (co.Array | float, True),
        (dict[str, co.Array], True),
        (Holder, True),
        (list[Holder | None], True),
        (Point, False),
        (Colour, False),
        (Literal["a"], False),
        (list[int], False),
        (tuple[int, str], False),
    ],
    ids=str,
)
def test_types_know_whether_they_hold_arrays(annotation: Any, expected: bool) -> None:
    """A type holds arrays when some part of it is an array."""
    assert holds_arrays(schema_type(annotation)) is expected
