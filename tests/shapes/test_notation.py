"""Shapes as text: in annotations and in schemas."""

# ruff: noqa: ISC004 - the table has messages line by line

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import customop as co
from customop.arrays.array import ELEMENTS
from customop.schema.annotations import schema_type
from customop.schema.types import ArrayType
from customop.shapes.notation import parse_shape

# ---- what can be written ----

# Text of an annotation -> the text in the brackets of a schema, and the rank.
TEXTS = [
    ("m k", "m,k", 2),
    ("n", "n", 1),
    ("", "()", 0),
    ("3", "3,", 1),
    ("3 1", "3,1", 2),
    ("_", "_", 1),
    ("_channels n", "_,n", 2),
    ("...", "...", None),
    ("... n", "...,n", None),
    ("n ... m", "n,...,m", None),
    ("*_", "...", None),
    ("*batch n", "*batch,n", None),
    ("*#batch n", "*#batch,n", None),
    ("#*batch n", "*#batch,n", None),
    ("#n m", "#n,m", 2),
    ("#3", "#3", 1),
    ("n+1", "n+1", 1),
    ("n-1 m+n", "n-1,m+n", 2),
    ("2*n+1", "2*n+1", 1),
    ("2*(n+1)", "2*(n+1)", 1),
    ("n//2+1", "n//2+1", 1),
    ("a-(b-c)", "a-(b-c)", 1),
    ("(a-b)-c", "a-b-c", 1),
    ("m*n", "m*n", 1),
    ("2+1", "3,", 1),
    ("rows=3 n", "3,n", 2),
    ("  m   k ", "m,k", 2),
]


@pytest.mark.parametrize(("text", "shown", "rank"), TEXTS)
def test_a_text_is_read(text: str, shown: str, rank: int | None) -> None:
    """Axes have spaces between them in annotations, and commas in schemas."""
    shape = parse_shape(text)
    assert (str(shape), shape.rank) == (shown, rank)
    assert parse_shape(shape.text) == shape


# Text -> why it is not a shape.
WRONG = [
    ("m,k", "'m,k': write spaces between axes, not commas"),
    ("n + 1", "'+' is not a length: a length is made of names and whole numbers with +, -,"
     " * and //"),
    ("n/2", "'n/2' is not a length: a length is made of names and whole numbers with +, -,"
     " * and //"),
    ("min(m,n)", "'min(m,n)' is not a length: a length is made of names and whole numbers"
     " with +, -, * and //"),
    ("{n}", "'{n}' is not a length: a length is made of names and whole numbers with +, -,"
     " * and //"),
    ("-1", "'-1' is not a length: a length is made of names and whole numbers with +, -, *"
     " and //"),
    ("2-3", "'2-3' is a negative length"),
    ("n//m", "'n//m' must divide by a positive number"),
    ("n//0", "'n//0' must divide by a positive number"),
    ("... *b", "'...' and '*b' cannot both be any number of axes"),
    ("**b", "'**b' has a mark twice"),
    ("*3", "'*3': write a name after '*', such as *batch"),
    ("#_", "'#_': an unnamed axis cannot broadcast"),
    ("?n", "'?n': operators have no pytrees, so leave out the '?'"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "why"), WRONG)
def test_a_text_that_is_not_a_shape_says_why(text: str, why: str) -> None:
    """A text after an array is a shape; a text that cannot be read is an error."""
    with pytest.raises(co.errors.SchemaError) as caught:
        schema_type(Annotated[co.Array, text])
    assert str(caught.value) == (
        f"an annotation with the shape {text!r}: {why}\n"
        '  do: write axes with spaces between, such as "m k", "... n", "*batch 3",'
        ' "n+1 _"'
    )


def test_an_error_in_a_shape_names_the_parameter() -> None:
    """The error names the function, the parameter and the remedy."""

    def f(x: Annotated[co.Array, "m,k"]) -> co.Array: ...

    with pytest.raises(co.errors.SchemaError) as caught:
        co.infer_schema(f, mutates_args=())
    lines = str(caught.value).splitlines()
    assert [*lines[:3], lines[4]] == [
        "f: parameter 'x' has an annotation with the shape 'm,k': 'm,k': write"
        " spaces between axes, not commas",
        "  f(x: Annotated[co.Array, 'm,k']) -> co.Array",
        "    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^",
        '  do: write axes with spaces between, such as "m k", "... n", "*batch 3",'
        ' "n+1 _"',
    ]


# ---- schemas ----

SCHEMAS = [
    "(float[m,k] x, float[k,n] y) -> float[m,n]",
    "(float[3,] x, float[3] l, Array[3] xs, float[] q, int[2] s, Array[3,] z) -> ()",
    "(float[()] x) -> Array[()]",
    "(float[m,k](a!) x, Array[n](b)[] xs, bool[n]? y=None) -> float[m,k](a)",
    "(float[m,k][] xs, float[m][2] ys, float[m]?[] zs, Dict(str, int[n]) d) -> num[m][]",
    "(float[n]|Scalar x=1.0, *, float[n](a)|Scalar y) -> ()",
    "((float[m], int) pair) -> (float[*b,n+1] mean, int[...])",
    "(Array[#n,_] x, float32[*#b,2*n] y, /, uint8[...,n//2] z) -> real[n-1]",
]


@pytest.mark.parametrize("text", SCHEMAS)
def test_schemas_with_shapes_parse_and_print(text: str) -> None:
    """A schema prints as it was read."""
    assert str(co.Schema.parse(text)) == text


def test_schemas_are_read_with_spaces_and_torchs_names() -> None:
    """Spaces around commas, a comma at the end, and Tensor for Array."""
    schema = co.Schema.parse("(Tensor[ m , k, ] x) -> float[ () ]")
    assert str(schema) == "(Array[m,k] x) -> float[()]"


def test_types_with_shapes_compare_and_hash() -> None:
    """Types are equal when element, shape and the place of a number are."""
    texts = ["float[m,k]", "float[k,m]", "int[m,k]", "Array[m,k]", "Array", "float[m]"]
    texts += ["float[m,k]|Scalar", "float[()]", "float[3,]", "float[#m,k]"]
    types = [co.Schema.parse(f"({t} x) -> ()").parameters[0].type for t in texts]
    again = [co.Schema.parse(f"({t}  x)->()").parameters[0].type for t in texts]
    assert len(set(types)) == len(texts)
    assert again == types
    assert [hash(declared) for declared in again] == [
        hash(declared) for declared in types
    ]


_names = st.sampled_from("mnkpq")
_lengths = st.recursive(
    st.one_of(_names, st.integers(0, 9).map(str)),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*"]), inner).map(
            lambda t: f"({t[0]}){t[1]}({t[2]})"
        ),
        inner.map(lambda t: f"({t})//3"),
    ),
    max_leaves=4,
)
_axes = st.one_of(_lengths, _lengths.map(lambda t: f"#{t}"), st.just("_"))


@st.composite
def _texts(draw: st.DrawFn) -> str:
    axes = draw(st.lists(_axes, max_size=4))
    if draw(st.booleans()):
        axes.insert(
            draw(st.integers(0, len(axes))), draw(st.sampled_from(["...", "*b", "*#b"]))
        )
    return " ".join(axes)


@settings(max_examples=150, deadline=None)
@given(
    _texts(), st.sampled_from(sorted(ELEMENTS)), st.sampled_from(["", "?", "[]", "[2]"])
)
def test_any_shape_survives_printing(text: str, element: str, suffix: str) -> None:
    """A shape that can be read is the same after printing, alone and in a schema."""
    try:
        shape = parse_shape(text)
    except co.errors.SchemaError:
        assume(False)
    assert parse_shape(shape.text) == shape
    schema = f"({element}[{shape}]{suffix} x) -> ()"
    read = co.Schema.parse(schema)
    assert str(read) == schema
    declared: Any = read.parameters[0].type
    assert (declared.item if suffix else declared) == ArrayType(element, shape)


GRAMMAR_ERRORS = [
    (
        "(float[m,**k] x) -> ()",
        "the shape of an array: '**k' has a mark twice\n"
        "  (float[m,**k] x) -> ()\n"
        "           ^^^",
    ),
    (
        "(str[m] x) -> ()",
        "'str' is not a class of array elements; known: Array, bool, int, uint,"
        " integer, float, complex, inexact, real, num, and names of dtypes such as"
        " float32\n"
        "  (str[m] x) -> ()\n"
        "   ^^^",
    ),
    (
        "(flaot[m] x) -> ()",
        "'flaot' is not a class of array elements (did you mean 'float'?)\n"
        "  (flaot[m] x) -> ()\n"
        "   ^^^^^",
    ),
    (
        "(float32[3] x) -> ()",
        "unknown type 'float32': write float32[...] for an array, or float32[m,k],"
        " float32[3,] by its axes\n"
        "  (float32[3] x) -> ()\n"
        "   ^^^^^^^",
    ),
    (
        "(float[m,,k] x) -> ()",
        "an item is missing here\n  (float[m,,k] x) -> ()\n           ^",
    ),
    (
        "(float[m,...,*b] x) -> ()",
        "the shape of an array: '...' and '*b' cannot both be any number of axes\n"
        "  (float[m,...,*b] x) -> ()\n"
        "               ^^",
    ),
]


@pytest.mark.parametrize(("text", "why"), GRAMMAR_ERRORS)
def test_a_shape_that_a_schema_misspells_is_shown(text: str, why: str) -> None:
    """The caret is under the axis."""
    with pytest.raises(co.errors.SchemaError) as caught:
        co.Schema.parse(text)
    assert str(caught.value) == (
        f"schema string: {why}\n"
        '  do: write it like "(Array x, int y=1, *, float? z=None) -> Array"'
    )


def test_define_takes_shapes() -> None:
    """A library defines operators by schema strings with shapes."""
    with co.Library("shapes_lib", "DEF") as lib:
        lib.define("trace(float[n,n] x) -> float[()]")
        lib.impl("trace", lambda x: np.asarray(np.trace(x)), "CPU")
        assert co.ops.shapes_lib.trace(np.eye(3)) == 3.0
        with pytest.raises(co.errors.ShapeError, match="has 2 for axis 'n'"):
            co.ops.shapes_lib.trace(np.ones((3, 2)))
