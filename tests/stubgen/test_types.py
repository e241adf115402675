from __future__ import annotations

import ast
import enum
import typing
from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated, Any, Literal, NewType, Optional, Union

import numpy as np
import numpy.typing as npt
import pytest
from typing_extensions import TypeAliasType, TypeVar

import customop as co
from customop.schema.annotations import schema_type
from customop.schema.types import ArrayType
from customop.stubgen.stubs import TypeText, value_text

HERE = __name__


class Size(enum.IntEnum):
    SMALL = 1


class Outer:
    class Inner(enum.Enum):
        """A class within a class, which an import finds."""

        A = "a"


Metres = NewType("Metres", float)
Pairs = TypeAliasType("Pairs", list[tuple[float, float]])
BoxT = TypeVar("BoxT", bound=co.Array | float)
NumberT = TypeVar("NumberT", float, "int")

# Annotation -> its text.
TEXTS = [
    (int, "int"),
    (None, "None"),
    (float | None, "float | None"),
    (Optional[float], "float | None"),  # noqa: UP045  # written so by users
    (Union[int, str, None], "int | str | None"),  # noqa: UP007  # as above
    (list[int], "list[int]"),
    (typing.List[int], "list[int]"),  # noqa: UP006  # as above
    (Sequence[float], "Sequence[float]"),
    (tuple[int, ...], "tuple[int, ...]"),
    (tuple[()], "tuple[()]"),
    (dict[str, bool], "dict[str, bool]"),
    (
        Literal["a", 'the "b"', 3, None, True],  # noqa: PYI061  # as above
        """Literal["a", 'the "b"', 3, None, True]""",
    ),
    (Literal[Size.SMALL], f"Literal[{HERE}.Size.SMALL]"),
    (Outer.Inner, f"{HERE}.Outer.Inner"),
    (np.ndarray, "numpy.ndarray"),
    (np.float32, "numpy.float32"),
    (npt.NDArray[np.float32], "NDArray[numpy.float32]"),
    (npt.NDArray[Any], "NDArray[Any]"),
    (
        np.ndarray[tuple[int, int], np.dtype[np.int8]],
        "numpy.ndarray[tuple[int, int], numpy.dtype[numpy.int8]]",
    ),
    (np.random.Generator, "numpy.random.Generator"),
    (npt.DTypeLike, "DTypeLike"),
    (co.DType, "DType"),
    (co.DType | None, "DType | None"),
    (co.Device, "Device"),
    (co.Scalar, "Scalar"),
    (co.Array, "Array"),
    (co.Array | float, "Array | float"),
    (co.ArrayT, "ArrayT"),
    (BoxT, "_BoxT"),
    (co.FakeArray, "FakeArray"),
    (Annotated[co.Array, "m k"], "Array"),
    (Annotated[list[Annotated[int, ">0"]], "sizes"], "list[int]"),
    (Decimal, "decimal.Decimal"),
    (Metres, f"{HERE}.Metres"),
    (Pairs, f"{HERE}.Pairs"),
]

# Schema -> texts of the type as a parameter and as a result.
KINDS = [
    ("Array x", "Array", "Array"),
    ("Array? x", "Array | None", "Array | None"),
    ("Array[] x", "Sequence[Array]", "list[Array]"),
    ("int[2] x", "Sequence[int]", "list[int]"),
    ("(int, float?) x", "tuple[int, float | None]", "tuple[int, float | None]"),
    ("Dict(str, Array) x", "dict[str, Array]", "dict[str, Array]"),
    ("Array|Scalar x", "Array | Scalar", "Array | Scalar"),
    ("Scalar x", "Scalar", "Scalar"),
    ("dtype x", "DType", "DType"),
    ("device x", "Device", "Device"),
    ("Generator x", "numpy.random.Generator", "numpy.random.Generator"),
    ('str{"a", "b"} x', 'Literal["a", "b"]', 'Literal["a", "b"]'),
    ("int{1, 2} x", "Literal[1, 2]", "Literal[1, 2]"),
]

VALUES = [
    (1, "1"),
    (-2.5, "-2.5"),
    (True, "True"),
    (None, "None"),
    ("a", '"a"'),
    ('say "a"', "'say \"a\"'"),
    ("it's", '"it\'s"'),
    ("two\nlines", '"two\\nlines"'),
    (float("nan"), "..."),
    (float("inf"), "..."),
    (Size.SMALL, "..."),
    ([1], "..."),
]


@pytest.mark.parametrize(("hint", "text"), TEXTS)
def test_annotations(hint: Any, text: str) -> None:
    """The text of an annotation means the same."""
    assert TypeText().annotation(hint, None) == text


@pytest.mark.parametrize(("schema", "parameter", "result"), KINDS)
def test_schema_types(schema: str, parameter: str, result: str) -> None:
    """A schema type has a text as a parameter, and one as a result."""
    declared = co.Schema.parse(f"({schema}) -> ()").parameters[0].type
    assert TypeText().schema_type(declared) == parameter
    assert TypeText().schema_type(declared, result=True) == result


@pytest.mark.parametrize(("value", "text"), VALUES)
def test_values(value: Any, text: str) -> None:
    """A default is a literal, or `...`."""
    assert value_text(value) == text
    if text != "...":
        assert ast.literal_eval(text) == value


@pytest.mark.parametrize("row", range(len(TEXTS)))
def test_texts_mean_what_they_say(row: int) -> None:
    """With its imports the text evaluates to an annotation of the same schema type."""
    hint, text = TEXTS[row]
    types = TypeText()
    types.annotation(hint, None)
    names: dict[str, Any] = {"_BoxT": BoxT}
    for module in types.modules:
        exec(f"import {module}", names)
    for module, name in types.names:
        exec(f"from {module} import {name}", names)
    assert _meaning(eval(text, names)) == _meaning(hint)


def _meaning(hint: Any) -> Any:
    """The schema type of an annotation without shapes, or itself if it has none."""
    try:
        declared = schema_type(hint)
    except co.SchemaError:
        return hint
    return (
        ArrayType() if isinstance(declared, ArrayType) and declared.shape else declared
    )


def test_jaxtyping() -> None:
    """The text of an array with a shape is its class, which checkers see too."""
    jaxtyping = pytest.importorskip("jaxtyping", reason="jaxtyping is not installed")
    hint = jaxtyping.Float[np.ndarray, "m k"] | None
    assert TypeText().annotation(hint, None) == "numpy.ndarray | None"


def test_what_cannot_be_imported() -> None:
    """The text of a local class is its schema type, or Any, without an import."""

    class Local(enum.Enum):
        A = "a"

    Number = NewType("Number", float)
    types = TypeText()
    assert (
        types.annotation(list[Number], schema_type(list[Number])) == "Sequence[float]"
    )
    assert types.annotation(Decimal | Local, schema_type(Local)) == "Any"
    assert types.modules == set()


def test_any_says_less_than_the_schema() -> None:
    """In place of Any and object stands the schema type."""
    declared = co.Schema.parse("(int x) -> ()").parameters[0].type
    assert TypeText().annotation(Any, declared) == "int"
    assert TypeText().annotation(object, declared) == "int"


def test_type_variables() -> None:
    """Each type variable gets a name that is not taken yet."""
    types = TypeText(taken=("_R",))
    first = TypeVar("T", bound=int)  # noqa: PLC0132  # two of one name
    second = TypeVar("T", bound=float)  # noqa: PLC0132  # as above
    hints = [first, second, first, TypeVar("R"), NumberT]
    texts = [types.annotation(hint, None) for hint in hints]
    assert texts == ["_T", "_T_", "_T", "_R_", "_NumberT"]
    assert types.variables == {
        "_T": ["bound=int"],
        "_T_": ["bound=float"],
        "_R_": [],
        "_NumberT": ["float", "int"],
    }
