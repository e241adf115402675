"""Annotations with a shape or a class of elements."""
# ruff: noqa: F722, F821 - texts in jaxtyping's annotations are not code

from __future__ import annotations

import subprocess
import sys
import typing
from typing import Annotated, Any

import jaxtyping
import numpy as np
import numpy.typing as npt
import pytest
from jaxtyping import Float, Float32, Int, Num, Shaped, UInt8

import customop as co
from customop.schema.annotations import schema_type
from customop.schema.shape_check import argument_fault
from customop.schema.types import ArrayType
from customop.shapes.notation import Shape, parse_shape

# ---- annotations ----

ANNOTATIONS = [
    (Annotated[co.Array, "m k"], "Array[m,k]"),
    (Annotated[np.ndarray, "m k"], "Array[m,k]"),
    (Annotated[co.ArrayT, "n"], "Array[n]"),
    (Annotated[co.Array, "metres"], "Array[metres]"),
    (Annotated[co.Array, 3, ("metres",)], "Array"),
    (Annotated[co.Array, 3, "n"], "Array[n]"),
    (Annotated[float, "metres"], "float"),
    (Annotated[list[co.Array], "metres"], "Array[]"),
    (list[Annotated[co.Array, "n"]], "Array[n][]"),
    (Annotated[co.Array | None, "n"], "Array[n]?"),
    (Annotated[co.Array, "n"] | None, "Array[n]?"),
    (Annotated[co.Array | float, "n"], "Array[n]|Scalar"),
    (Annotated[npt.NDArray[np.float32], "n"], "float32[n]"),
    (Annotated[npt.NDArray[np.floating], "n"], "float[n]"),
    (Annotated[npt.NDArray[np.bool_], "n"], "bool[n]"),
    (Annotated[npt.NDArray[Any], "n"], "Array[n]"),
    (Annotated[npt.NDArray[np.int64] | None, "n"], "int64[n]?"),
    (npt.NDArray[np.float32], "Array"),
    (Float[np.ndarray, "m k"], "float[m,k]"),
    (Float[co.Array, "m k"], "float[m,k]"),
    (Float[typing.Any, "m k"], "float[m,k]"),
    (Float[co.ArrayT, "m k"], "float[m,k]"),
    (Float[np.ndarray | co.Array, "m k"], "float[m,k]"),
    (Float[np.ndarray, "m"] | None, "float[m]?"),
    (Float[np.ndarray, "..."], "float[...]"),
    (Shaped[np.ndarray, "..."], "Array[...]"),
    (Float[np.ndarray, ""], "float[()]"),
    (Float[np.ndarray, "3"], "float[3,]"),
    (Float32[np.ndarray, "#n 3"], "float32[#n,3]"),
    (UInt8[np.ndarray, "*b _"], "uint8[*b,_]"),
    (Float[Float[np.ndarray, "n"], "m"], "float[m,n]"),
    (Annotated[Float[np.ndarray, "m"], 3], "float[m]"),
    (dict[str, Int[np.ndarray, "n"]], "Dict(str, int[n])"),
    (tuple[Num[np.ndarray, "n"], int], "(num[n], int)"),
]


@pytest.mark.parametrize(
    ("annotation", "text"), ANNOTATIONS, ids=map(str, range(len(ANNOTATIONS)))
)
def test_an_annotation_has_a_shape(annotation: Any, text: str) -> None:
    """A text after an array, or jaxtyping's annotation, is in the schema."""
    assert str(schema_type(annotation)) == text


# Class of jaxtyping's -> class of elements.
CLASSES = {
    "Shaped": "Array", "Bool": "bool", "Int": "int", "UInt": "uint", "Integer": "integer",
    "Float": "float", "Complex": "complex", "Inexact": "inexact", "Real": "real",
    "Num": "num", "Int8": "int8", "UInt64": "uint64", "Float64": "float64",
    "Complex64": "complex64", "BFloat16": "bfloat16", "Int4": "int4",
    "Float8e5m2": "float8_e5m2",
}  # fmt: skip
DTYPES = (
    "bool int8 int32 int64 uint8 uint64 float16 float32 float64 complex64 complex128"
)
DTYPES += " <U3 O M8[s] >f8 S2"


@pytest.mark.parametrize(("name", "element"), CLASSES.items())
def test_classes_of_elements_are_those_of_jaxtyping(name: str, element: str) -> None:
    """An array is in a class of elements if jaxtyping says so.

    The name of one dtype means native byte order too.
    """
    annotation = getattr(jaxtyping, name)[np.ndarray, "..."]
    assert schema_type(annotation) == ArrayType(
        element, Shape((), parse_shape("...").loop)
    )
    schema = co.Schema.parse(f"({element}[...] x) -> ()")
    for dtype in DTYPES.split():
        x = np.zeros(2, dtype)
        fits = argument_fault("f", schema, (x,)) is None
        expected = isinstance(x, annotation) and (
            x.dtype.isnative or element != "float64"
        )
        assert (dtype, fits) == (dtype, expected)


def test_dtypes_that_are_no_class_of_elements_are_an_error() -> None:
    """An odd choice of dtypes is an error that lists the classes of elements."""

    class Odd(jaxtyping.AbstractDtype):
        dtypes = ("float16", "int8")

    with pytest.raises(co.errors.SchemaError) as caught:
        schema_type(Odd[np.ndarray, "n"])
    assert str(caught.value) == (
        "annotation Odd[ndarray, 'n'], whose dtypes are not a class of elements\n"
        "  do: use Shaped, Bool, Int, UInt, Integer, Float, Complex, Inexact, Real, Num,"
        " or a single dtype such as Float32"
    )


def test_two_shapes_are_an_error() -> None:
    """An annotation with two texts is refused: either could be the shape."""
    for annotation in (
        Annotated[co.Array, "m", "n"],
        Annotated[Float[np.ndarray, "m"], "n"],
    ):
        with pytest.raises(co.errors.SchemaError) as caught:
            schema_type(annotation)
        assert str(caught.value) == (
            "an annotation with two shapes, 'm' and 'n'\n"
            "  do: keep one: a text after an array is its shape"
        )


def mm(
    x: Float[np.ndarray, "m k"], y: Float[np.ndarray, "k n"]
) -> Float[np.ndarray, "m n"]:
    return x @ y


@pytest.mark.parametrize("text", ["m x k", "3 x 3", "batch x h x w", "#m x ..."])
def test_an_x_between_axes_warns(text: str) -> None:
    """It is the name of an axis, and most who write it mean the sign of a product."""

    def f(a: Annotated[np.ndarray, text]) -> None: ...  # type: ignore[valid-type]

    with pytest.warns(co.CustomOpWarning) as seen:
        schema = co.infer_schema(f, mutates_args=())
    assert schema == f"(Array[{text.replace(' ', ',')}] a) -> ()"
    assert str(seen[0].message) == (
        f"an annotation with the shape '{text}': it has {len(text.split())} axes, since"
        f" 'x' is the name of an axis\n  do: write '{text.replace(' x', '')}', or give"
        " the axis another name"
    )
    assert seen[0].filename == __file__


@pytest.mark.parametrize(
    "text", ["x", "y x", "y x c", "z y x", "t x y", "x x x", "m x", "x m k", "m k x n"]
)
def test_other_axes_may_be_called_x(text: str) -> None:
    """Beside y or z it is a coordinate. Warnings are errors here."""

    def f(a: Annotated[np.ndarray, text]) -> None: ...  # type: ignore[valid-type]

    assert f"[{text.replace(' ', ',')}]" in co.infer_schema(f, mutates_args=())


def test_annotations_that_are_text_are_read() -> None:
    """Under ``from __future__ import annotations`` shapes are texts within texts."""
    assert isinstance(mm.__annotations__["x"], str)
    schema = co.infer_schema(mm, mutates_args=())
    assert schema == "(float[m,k] x, float[k,n] y) -> float[m,n]"


def test_jaxtyping_is_not_imported() -> None:
    """Its annotations are known by their attributes."""
    program = """
import sys, numpy as np, customop as co
from typing import Annotated
@co.custom_op("a::f", mutates_args=())
def f(x: Annotated[np.ndarray, "n"]) -> Annotated[np.ndarray, "n"]:
    return x * 2
assert f(np.ones(2)).tolist() == [2.0, 2.0]
assert "jaxtyping" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
