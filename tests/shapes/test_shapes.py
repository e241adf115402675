"""Shapes in annotations and schemas: reading them, and holding calls to them."""
# ruff: noqa: F722, F821, UP037 - the texts of jaxtyping's annotations are no code
# ruff: noqa: ISC004 - a message stands in the table line by line

from __future__ import annotations

import subprocess
import sys
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import jaxtyping
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jaxtyping import Bool, Float, Float32, Int, Num, Shaped, UInt8, jaxtyped

import customop as co
from customop.arrays.dtypes import ELEMENTS
from customop.core.codegen import set_fast_kernel
from customop.core.shape_guards import _as_function
from customop.schema.annotations import schema_type
from customop.schema.shape_check import argument_fault
from customop.schema.types import ArrayType
from customop.shapes.notation import Shape, parse_shape


def define(schema: str, fn: Callable[..., Any], **kwargs: Any) -> co.Operator[..., Any]:
    """Make an operator of the one name that messages in this file have."""
    return co.custom_op("ns::f", fn, mutates_args=(), schema=schema, **kwargs)


def taking(schema: str) -> Any:
    """Make a function with the parameters of a schema, which returns None."""
    parameters = co.Schema.parse(schema).parameters
    names = [("*, " if p.kind == "keyword_only" else "") + p.name for p in parameters]
    fn: Any = eval(compile(f"lambda {', '.join(names)}: None", __file__, "eval"))
    fn.__kwdefaults__ = {p.name: None for p in parameters if p.default is None}
    return fn


# ---- what can be written ----

# Text of an annotation -> what stands between the brackets of a schema, and the rank.
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
    """Axes stand with spaces between in annotations, with commas in schemas."""
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
def test_a_text_that_is_no_shape_says_why(text: str, why: str) -> None:
    """A note beside an array is a shape, and one that cannot be read is an error."""
    with pytest.raises(co.errors.SchemaError) as caught:
        schema_type(Annotated[co.Array, text])
    assert str(caught.value) == (
        f"an annotation with the shape {text!r}: {why}\n"
        '  do: write axes with spaces between, such as "m k", "... n", "*batch 3",'
        ' "n+1 _"'
    )


def test_an_error_in_a_shape_names_the_parameter() -> None:
    """The function, the parameter and the remedy are told, as for other annotations."""

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
    """A text beside an array, or jaxtyping's annotation, is read into the schema."""
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
    """An array has a class of elements where jaxtyping says that it has."""
    annotation = getattr(jaxtyping, name)[np.ndarray, "..."]
    assert schema_type(annotation) == ArrayType(
        element, Shape((), parse_shape("...").loop)
    )
    schema = co.Schema.parse(f"({element}[...] x) -> ()")
    for dtype in DTYPES.split():
        x = np.zeros(2, dtype)
        fits = argument_fault("f", schema, (x,)) is None
        assert (dtype, fits) == (dtype, isinstance(x, annotation))


def test_dtypes_that_are_no_class_of_elements_are_an_error() -> None:
    """A class of one's own with an odd choice of dtypes is refused, with the classes."""

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
    """Which of two texts is the shape, nobody can know."""
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
    """What is printed is what was read."""
    assert str(co.Schema.parse(text)) == text


def test_schemas_are_read_with_spaces_and_torchs_names() -> None:
    """Spaces around commas, a comma at the end, and Tensor for Array."""
    schema = co.Schema.parse("(Tensor[ m , k, ] x) -> float[ () ]")
    assert str(schema) == "(Array[m,k] x) -> float[()]"


def test_types_with_shapes_compare_and_hash() -> None:
    """Types are equal when element, shape and the place of a number are."""
    texts = ["float[m,k]", "float[k,m]", "int[m,k]", "Array[m,k]", "Array", "float[m]"]
    texts += ["float[m,k]|Scalar", "float[()]", "float[3,]", "float[#m,k]"]
    kinds = [co.Schema.parse(f"({t} x) -> ()").parameters[0].type for t in texts]
    again = [co.Schema.parse(f"({t}  x)->()").parameters[0].type for t in texts]
    assert len(set(kinds)) == len(texts)
    assert again == kinds
    assert [hash(kind) for kind in again] == [hash(kind) for kind in kinds]


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
    kind: Any = read.parameters[0].type
    assert (kind.item if suffix else kind) == ArrayType(element, shape)


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
    """The caret stands under the axis."""
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


# ---- calls: jaxtyping says which arrays fit ----

_shapes = st.lists(st.integers(0, 3), max_size=3).map(tuple)
_usual = st.sampled_from(
    [
        "n",
        "m",
        "k",
        "n",
        "m",
        "_",
        "1",
        "2",
        "#n",
        "#m",
        "#2",
        "n+1",
        "m-1",
        "2*n",
        "m+n",
    ]
)


@st.composite
def _spec(draw: st.DrawFn) -> str:
    axes = draw(st.lists(_usual, max_size=3))
    if draw(st.integers(0, 2)) == 0:
        place = draw(st.integers(0, len(axes)))
        axes.insert(place, draw(st.sampled_from(["...", "*b", "*b", "*#b"])))
    return " ".join(axes)


def by_jaxtyping(specs: list[str], shapes: list[tuple[int, ...]]) -> bool:
    """Whether jaxtyping takes arrays of these shapes for arguments of one call."""
    with jaxtyped("context"):
        return all(
            isinstance(np.zeros(shape), Float[np.ndarray, spec])
            for spec, shape in zip(specs, shapes, strict=True)
        )


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(_spec(), _shapes), min_size=1, max_size=3))
def test_calls_fit_where_jaxtyping_says_so(pairs: list[tuple[str, Any]]) -> None:
    """Both the whole check and the expression of the fast path agree with jaxtyping."""
    specs, shapes = ([pair[i] for pair in pairs] for i in (0, 1))
    try:
        expected = by_jaxtyping(specs, shapes)
    except jaxtyping.AnnotationError:  # a sum before the names in it
        assume(False)
    parts = [f"float[{parse_shape(s)}] x{i}" for i, s in enumerate(specs)]
    schema = co.Schema.parse(f"({', '.join(parts)}) -> ()")
    args = [np.zeros(shape) for shape in shapes]
    assert (argument_fault("f", schema, args) is None) == expected
    quick = _as_function(schema)
    if quick is not None:
        assert bool(quick(*args)) == expected


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(_spec(), st.lists(_shapes, max_size=3), st.booleans()),
        min_size=1,
        max_size=2,
    )
)
def test_arrays_of_lists_are_held_to_the_others(rows: list[Any]) -> None:
    """Each array of a list counts as an argument of its own, in the fast path too."""
    rows = [("n m", [(2, 3)], True), *rows]
    flat = [(spec, shape) for spec, shapes, _ in rows for shape in shapes]
    try:
        expected = by_jaxtyping([pair[0] for pair in flat], [pair[1] for pair in flat])
    except jaxtyping.AnnotationError:
        assume(False)
    parts = [
        f"float[{parse_shape(spec)}][]{'' if is_given else '?'} x{i}"
        for i, (spec, _, is_given) in enumerate(rows)
    ]
    schema = co.Schema.parse(f"({', '.join(parts)}) -> ()")
    args = [[np.zeros(shape) for shape in shapes] for _, shapes, _ in rows]
    assert (argument_fault("f", schema, args) is None) == expected
    quick = _as_function(schema)
    if quick is not None:
        assert bool(quick(*args)) == expected


UNUSUAL_ONCE = [
    "(float[*#b,n] x, float[*#b,n] y) -> ()",
    "(float[*#b] x, float[*b] y, float[*#b,3] z) -> ()",
    "(float[m,k][] xs) -> ()",
    "(float[...,k][] xs, float[k] w) -> ()",
    "(float[*b,_][] xs, float[n+1]? w=None, Array[...]? z=None) -> ()",
]


@pytest.mark.parametrize("schema", UNUSUAL_ONCE)
def test_lists_and_broadcast_axes_are_compared_in_the_fast_path(schema: str) -> None:
    """Lists of arrays and ``*#batch`` need no call of the whole check."""
    op = define(schema, taking(schema))
    assert "_fits" not in op.source
    assert _as_function(co.Schema.parse(schema)) is not None


@settings(max_examples=250, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["*b", "*#b", "#n", "n"]), _shapes),
        min_size=2,
        max_size=4,
    )
)
def test_broadcasting_is_that_of_jaxtyping(pairs: list[tuple[str, Any]]) -> None:
    """What of several arrays may grow, and what must be as it is, in any order."""
    specs, shapes = ([pair[i] for pair in pairs] for i in (0, 1))
    shapes = [
        s[:1] if "n" in spec else s for spec, s in zip(specs, shapes, strict=True)
    ]
    parts = [f"float[{parse_shape(s)}] x{i}" for i, s in enumerate(specs)]
    schema = co.Schema.parse(f"({', '.join(parts)}) -> ()")
    args = [np.zeros(shape) for shape in shapes]
    expected = by_jaxtyping(specs, shapes)
    assert (argument_fault("f", schema, args) is None) == expected
    quick = _as_function(schema)
    if quick is not None:
        assert bool(quick(*args)) == expected


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(_spec(), _shapes), min_size=1, max_size=2), st.booleans())
def test_optional_arrays_are_held_to_the_others(
    pairs: list[tuple[str, Any]], is_given: bool
) -> None:
    """An array that may be None counts where it is there; the fast path takes no other."""
    specs, shapes = ([pair[i] for pair in pairs] for i in (0, 1))
    specs, shapes = ["n m", *specs], [(2, 3), *shapes]
    held = len(specs) if is_given else 1
    try:
        expected = by_jaxtyping(specs[:held], shapes[:held])
    except jaxtyping.AnnotationError:
        assume(False)
    parts = [
        f"float[{parse_shape(s)}]{'?' if i else ''} x{i}" for i, s in enumerate(specs)
    ]
    schema = co.Schema.parse(f"({', '.join(parts)}) -> ()")
    args = [np.zeros(s) if i < held else None for i, s in enumerate(shapes)]
    assert (argument_fault("f", schema, args) is None) == expected
    quick = _as_function(schema)
    if quick is not None:
        assert bool(quick(*args)) == expected


# ---- calls: what is told ----

F3 = np.zeros((3, 2))


@dataclass(frozen=True)
class Camera:
    """Fields with shapes."""

    rotation: Annotated[np.ndarray, "3 3"]
    points: Annotated[np.ndarray, "n 3"]
    focal: float = 1.0


class Pair(NamedTuple):
    """Fields with shapes."""

    left: Float[np.ndarray, "n"]
    right: Float[np.ndarray, "n"]


# Schema, arguments -> the error of a call.
CALLS: list[tuple[str, tuple[Any, ...], str]] = [
    (
        "(float[m,k] x, float[k,n] y) -> ()",
        (np.zeros((3, 4)), np.zeros((5, 2))),
        "ShapeError: ns::f: argument 'y' has 5 for axis 'k', which is 4 by 'x'\n"
        "  ns::f(float[m,k] x, float[k,n] y) -> ()\n"
        "                      ^^^^^^^^^^^^\n"
        "  'x' is f64[3, 4], 'y' is f64[5, 2]\n"
        "  do: pass arrays with one length for 'k'",
    ),
    (
        "(float[m,k] x) -> ()",
        (np.zeros(3),),
        "ShapeError: ns::f: argument 'x' has 1 axis, must have 2: m k\n"
        "  ns::f(float[m,k] x) -> ()\n"
        "        ^^^^^^^^^^^^\n"
        "  'x' is f64[3]\n"
        "  do: pass an array with the axes m k",
    ),
    (
        "(Array[()] x) -> ()",
        (np.zeros(3),),
        "ShapeError: ns::f: argument 'x' has 1 axis, must have 0\n"
        "  ns::f(Array[()] x) -> ()\n"
        "        ^^^^^^^^^^^\n"
        "  'x' is f64[3]\n"
        "  do: pass an array without axes, such as np.asarray(1.0)",
    ),
    (
        "(Array[...,m,3] x) -> ()",
        (np.zeros(3),),
        "ShapeError: ns::f: argument 'x' has 1 axis, must have at least 2: ... m 3\n"
        "  ns::f(Array[...,m,3] x) -> ()\n"
        "        ^^^^^^^^^^^^^^^^\n"
        "  'x' is f64[3]\n"
        "  do: pass an array with the axes ... m 3",
    ),
    (
        "(Array[m,3] x) -> ()",
        (F3,),
        "ShapeError: ns::f: argument 'x' has 2 for axis 1, must have 3\n"
        "  ns::f(Array[m,3] x) -> ()\n"
        "        ^^^^^^^^^^^^\n"
        "  'x' is f64[3, 2]\n"
        "  do: pass an array with 3 there",
    ),
    (
        "(Array[n] x, Array[n+1] y) -> ()",
        (np.zeros(3), np.zeros(5)),
        "ShapeError: ns::f: argument 'y' has 5 for axis 'n+1', which is 4, since 'n' is 3"
        " by 'x'\n"
        "  ns::f(Array[n] x, Array[n+1] y) -> ()\n"
        "                    ^^^^^^^^^^^^\n"
        "  'x' is f64[3], 'y' is f64[5]\n"
        "  do: pass arrays that agree on 'n'",
    ),
    (
        "(Array[2*n] x) -> ()",
        (np.zeros(3),),
        "ShapeError: ns::f: argument 'x' has 3 for axis '2*n', but no length 'n' gives that\n"
        "  ns::f(Array[2*n] x) -> ()\n"
        "        ^^^^^^^^^^^^\n"
        "  'x' is f64[3]\n"
        "  do: pass an array with a length that '2*n' can have",
    ),
    (
        "(Array[n+1] x) -> ()",
        (np.zeros(0),),
        "ShapeError: ns::f: argument 'x' has 0 for axis 'n+1', but no length 'n' gives that\n"
        "  ns::f(Array[n+1] x) -> ()\n"
        "        ^^^^^^^^^^^^\n"
        "  'x' is f64[0]\n"
        "  do: pass an array with a length that 'n+1' can have",
    ),
    (
        "(Array[n,n] x) -> ()",
        (F3,),
        "ShapeError: ns::f: argument 'x' has 2 for axis 'n', which is 3 by 'x'\n"
        "  ns::f(Array[n,n] x) -> ()\n"
        "        ^^^^^^^^^^^^\n"
        "  'x' is f64[3, 2]\n"
        "  do: pass arrays with one length for 'n'",
    ),
    (
        "(Array[*b,n] x, Array[*b] y) -> ()",
        (F3, np.zeros(2)),
        "ShapeError: ns::f: argument 'y' has (2,) for axes '*b', which are (3,) by 'x'\n"
        "  ns::f(Array[*b,n] x, Array[*b] y) -> ()\n"
        "                       ^^^^^^^^^^^\n"
        "  'x' is f64[3, 2], 'y' is f64[2]\n"
        "  do: pass arrays with one shape for '*b'",
    ),
    (
        "(Array[n] x, int n) -> ()",
        (np.zeros(3), 4),
        "ShapeError: ns::f: argument 'x' has 3 for axis 'n', which is 4 by the number 'n'\n"
        "  ns::f(Array[n] x, int n) -> ()\n"
        "        ^^^^^^^^^^\n"
        "  'x' is f64[3]\n"
        "  do: pass arrays with one length for 'n'",
    ),
    (
        "(Array[n][] xs, *, Array[n]? y=None) -> ()",
        ([np.zeros(3), np.zeros(2)],),
        "ShapeError: ns::f: argument 'xs' at index 1 has 2 for axis 'n', which is 3 by"
        " 'xs' at index 0\n"
        "  ns::f(Array[n][] xs, *, Array[n]? y=None) -> ()\n"
        "        ^^^^^^^^^^^^^\n"
        "  'xs' at index 0 is f64[3], 'xs' at index 1 is f64[2]\n"
        "  do: pass arrays with one length for 'n'",
    ),
    (
        "(float[n] x, int32[n] y) -> ()",
        (np.zeros(3), np.zeros(3)),
        "ArgumentError: ns::f: argument 'y' expects int32[n], got an array of float64\n"
        "  ns::f(float[n] x, int32[n] y) -> ()\n"
        "                    ^^^^^^^^^^\n"
        '  do: pass y.astype("int32")',
    ),
    (
        "(float[n] x) -> ()",
        (np.arange(3),),
        "ArgumentError: ns::f: argument 'x' expects float[n], got an array of int64\n"
        "  ns::f(float[n] x) -> ()\n"
        "        ^^^^^^^^^^\n"
        "  do: pass x.astype(np.float64)",
    ),
    (
        "(float[n] x) -> ()",
        ("far",),
        "ArgumentError: ns::f: argument 'x' expects float[n], got str 'far'\n"
        "  ns::f(float[n] x) -> ()\n"
        "        ^^^^^^^^^^\n"
        "  do: pass an array, such as np.asarray(x)",
    ),
    (
        f"({__name__}.Camera camera, Array[n] weights) -> ()",
        (Camera(np.eye(3), np.zeros((4, 3))), np.zeros(5)),
        "ShapeError: ns::f: argument 'weights' has 5 for axis 'n', which is 4 by 'camera'"
        " at field 'points'\n"
        f"  ns::f({__name__}.Camera camera, Array[n] weights) -> ()\n"
        f"        {' ' * len(__name__)}                ^^^^^^^^^^^^^^^^\n"
        "  'camera' at field 'rotation' is f64[3, 3], 'camera' at field 'points' is"
        " f64[4, 3], 'weights' is f64[5]\n"
        "  do: pass arrays with one length for 'n'",
    ),
    (
        f"({__name__}.Pair pair) -> ()",
        (Pair(np.zeros(2), np.zeros(3)),),
        "ShapeError: ns::f: argument 'pair' at field 'right' has 3 for axis 'n', which is"
        " 2 by 'pair' at field 'left'\n"
        f"  ns::f({__name__}.Pair pair) -> ()\n"
        f"        {'^' * len(f'{__name__}.Pair pair')}\n"
        "  'pair' at field 'left' is f64[2], 'pair' at field 'right' is f64[3]\n"
        "  do: pass arrays with one length for 'n'",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "args", "text"), CALLS, ids=map(str, range(len(CALLS)))
)
@pytest.mark.parametrize("path", ["first", "later", "dispatch"])
def test_a_call_that_does_not_fit_says_which_axis(
    schema: str, args: tuple[Any, ...], text: str, path: str
) -> None:
    """Axis, lengths so far, what gave them, and the argument; on every path."""
    fn = taking(schema)
    op = define(schema, fn)
    if path == "later":
        set_fast_kernel(op.compile(), fn)
    call = op.dispatch if path == "dispatch" else op
    with pytest.raises(co.errors.CustomOpError) as caught:
        call(*args)
    assert f"{type(caught.value).__name__}: {caught.value!s}" == text


NEGATIVE: list[tuple[str, tuple[Any, ...], str]] = [
    ("(Array[n] x, Array[k] w) -> Array[n-k+1]", (np.ones(2), np.ones(5)),
     "'n-k+1', which is -2, since 'n' is 2 by 'x' and 'k' is 5 by 'w'"),
    ("(Array[n] x, int w) -> Array[w]", (np.ones(2), -1),
     "'w', which is -1 by the number 'w'"),
    ("(Array[n] x, Array[k]? w=None) -> Array[n-k]", (np.ones(2), np.ones(5)),
     "'n-k', which is -3, since 'n' is 2 by 'x' and 'k' is 5 by 'w'"),
]  # fmt: skip


@pytest.mark.parametrize("way", ["call", "fake", "vmap"])
@pytest.mark.parametrize(("schema", "args", "why"), NEGATIVE)
def test_a_result_has_no_negative_length(
    schema: str, args: tuple[Any, ...], why: str, way: str
) -> None:
    """It is the arguments that are at fault, not the kernel, which does not run."""
    op = define(schema, taking(schema))
    ways: dict[str, Callable[[], Any]] = {
        "call": lambda: op(*args),
        "fake": lambda: co.eval_shape(op, *args),
        "vmap": lambda: co.vmap(lambda x: op(x, *args[1:]))(np.ones((3, 2))),
    }
    with pytest.raises(co.errors.ShapeError) as caught:
        ways[way]()
    assert caught.value.what == (
        f"ns::f: these arguments would give a result of the length {why}"
    )
    assert caught.value.do == (
        "pass arguments for which no length of a result is negative"
    )


SPREAD = [
    ("(Array[#m] x, Array[#m] y) -> ()", "pass arrays with one length for 'm', or with 1"),
    ("(Array[*b] x, Array[*#b] y) -> ()",
     "pass arrays whose axes '*b' NumPy can broadcast"),
    ("(Array[*#b] x, Array[*b] y) -> ()", "pass arrays with one shape for '*b'"),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "do"), SPREAD)
def test_what_to_do_tells_where_arrays_may_broadcast(schema: str, do: str) -> None:
    """By the notation of the array that does not fit."""
    with pytest.raises(co.errors.ShapeError) as caught:
        define(schema, taking(schema))(np.ones(3), np.ones(2))
    assert caught.value.do == do


def test_a_call_is_told_in_two_frames() -> None:
    """How the fault was found is no news for the caller."""
    op = define("(Array[n] x) -> ()", lambda x: None)
    op(np.zeros(2))
    with pytest.raises(co.errors.ShapeError) as caught:
        op(F3)
    frames = [entry.frame.f_globals.get("__name__") for entry in caught.traceback[1:]]
    assert len(frames) <= 2


def test_errors_name_operator_and_parameter() -> None:
    """Programs read the fields of an error."""
    op = define("(Array[n] x, Array[n] y) -> ()", lambda x, y: None)
    with pytest.raises(co.errors.ShapeError) as caught:
        op(np.zeros(2), np.zeros(3))
    assert (caught.value.op, caught.value.parameter) == (op.qualname, "y")
    assert isinstance(caught.value, ValueError)


FITS: list[tuple[str, tuple[Any, ...]]] = [
    ("(Array[n+1] x, Array[n] y) -> ()", (np.zeros(4), np.zeros(3))),
    ("(Array[n+1] x, Array[m-n] y, Array[m] z) -> ()", (np.zeros(4), np.zeros(2), np.zeros(5))),
    ("(Array[m*n] x, Array[n] y, Array[m] z) -> ()", (np.zeros(6), np.zeros(3), np.zeros(2))),
    ("(Array[m*n] x, Array[n] y) -> ()", (np.zeros(6), np.zeros(3))),
    ("(Array[m*n] x, Array[n] y) -> ()", (np.zeros(0), np.zeros(0))),
    ("(Array[n] x, int n) -> ()", (np.zeros(3), 3)),
    ("(Array[n] x, int? n) -> ()", (np.zeros(3), None)),
    ("(Array[n] x, bool n) -> ()", (np.zeros(3), True)),
    ("(float[()] x) -> ()", (np.float64(3.0),)),
    ("(float[n]|Scalar x) -> ()", (3.0,)),
    ("(float[n]|Scalar x) -> ()", (np.zeros(2),)),
    ("(Array[...] x, Array[...,n] y) -> ()", (np.zeros(2), np.zeros((5, 3)))),
    ("(Array[*#b,n] x, Array[*#b] y) -> ()", (np.zeros((1, 4, 3)), np.zeros((5, 1)))),
    ("(Dict(str, Array[n]) d) -> ()", ({"a": np.zeros(2), "b": np.zeros(2)},)),
    ("(float[n] x) -> ()", (np.zeros(2, ">f8"),)),
    ("(Array[n]? x, Array[n]? y) -> ()", (None, np.zeros(2))),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "args"), FITS, ids=map(str, range(len(FITS))))
def test_a_call_that_fits_goes_through(schema: str, args: tuple[Any, ...]) -> None:
    """Twice: the first call proves the kernel, the second takes the fast path."""
    op = define(schema, taking(schema))
    assert [op(*args), op(*args), op.dispatch(*args)] == [None, None, None]


def test_an_int_parameter_is_a_length() -> None:
    """A name that is an `int` parameter too has its value, also in results."""

    @co.custom_op("ns::f", mutates_args=())
    def repeat(x: Annotated[co.Array, "k"], n: int) -> Annotated[co.Array, "n k"]:
        return np.tile(x, (n, 1))

    assert co.eval_shape(repeat, np.zeros(2), 3).shape == (3, 2)
    assert repeat(np.zeros(2), np.int64(4)).shape == (4, 2)


# ---- every transform, and fake arrays ----


def add(
    x: Annotated[co.Array, "n"], y: Annotated[co.Array, "n"]
) -> Annotated[co.Array, "n"]:
    return x + y


plus = co.custom_op("shapes::plus", add, mutates_args=())
plus.register_autograd(lambda ctx, g: (g, g))
plus.register_vmap(lambda info, dims, x, y: (np.zeros((info.batch_size, 2)), 0))

TWO, THREE = np.zeros(2), np.zeros(3)
UNDER: dict[str, Callable[[], Any]] = {
    "grad": lambda: co.grad(lambda x: np.sum(plus(x, THREE)))(TWO),
    "grad of both": lambda: co.grad(lambda x: np.sum(plus(x, x[:1])))(TWO),
    "jvp": lambda: co.jvp(lambda x: plus(x, THREE), (TWO,), (TWO,)),
    "vmap": lambda: co.vmap(plus)(np.zeros((5, 2)), np.zeros((5, 3))),
    "vmap of one": lambda: co.vmap(lambda x: plus(x, THREE))(np.zeros((3, 2))),
    "variable": lambda: plus(co.variable(TWO), THREE),
    "fake": lambda: plus(co.FakeArray((2,)), co.FakeArray((3,))),
    "eval_shape": lambda: co.eval_shape(plus, TWO, THREE),
    "explain": lambda: plus.explain(TWO, THREE),
    "keywords": lambda: plus(y=THREE, x=TWO),
}


@pytest.mark.parametrize("name", UNDER)
def test_shapes_are_checked_under(name: str) -> None:
    """What a traced value says of its shape counts: under vmap that of a row."""
    with pytest.raises(co.errors.ShapeError, match="for axis 'n', which is 2 by 'x'"):
        UNDER[name]()


def test_rows_are_what_is_checked_under_vmap() -> None:
    """A batch axis is none of the operator's."""
    assert co.vmap(plus, in_dims=(1, 0))(np.zeros((2, 4)), np.zeros((4, 2))).shape == (
        4,
        2,
    )


# ---- results ----

RESULTS: list[tuple[str, Callable[..., Any], tuple[Any, ...], str]] = [
    (
        "(Array[n] x) -> Array[n+1]",
        lambda x: x * 2,
        (THREE,),
        "returns output 0 that has 3 for axis 'n+1', which is 4, since 'n' is 3 by 'x'",
    ),
    (
        "(Array[m] x, Array[n] y) -> (Array[m,n], Array[n])",
        lambda x, y: (np.zeros((2, 3)), np.zeros(2)),
        (TWO, THREE),
        "returns output 1 that has 2 for axis 'n', which is 3 by 'y'",
    ),
    (
        "(Array[n] x) -> Array[n,n]",
        lambda x: x * 2,
        (THREE,),
        "returns output 0 that has 1 axis, must have 2: n n",
    ),
    (
        "(Array[n] x) -> float32[n]",
        lambda x: x * 2,
        (THREE,),
        "returns output 0 of float64, must be float32[n]",
    ),
    (
        "(Array[n] x) -> Array[k][]",
        lambda x: [np.zeros(2), np.zeros(3)],
        (THREE,),
        "returns output 0 at index 1 that has 3 for axis 'k', which is 2 by output 0 at"
        " index 0",
    ),
    (
        "(Array[*b,n] x) -> Array[*b]",
        lambda x: x * 2,
        (THREE,),
        "returns output 0 that has (3,) for axes '*b', which are () by 'x'",
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "kernel", "args", "what"), RESULTS, ids=map(str, range(len(RESULTS)))
)
def test_results_are_held_to_their_shapes(
    schema: str, kernel: Callable[..., Any], args: tuple[Any, ...], what: str
) -> None:
    """A kernel that returns another shape breaks its contract."""
    op = define(schema, kernel)
    with pytest.raises(co.errors.ContractError) as caught:
        op(*args)
    lines = str(caught.value).splitlines()
    assert lines[0] == f"ns::f: the 'cpu' kernel {what}"
    assert lines[-1] == (
        "  do: return what the schema says, or change the annotation of the result"
    )


@pytest.mark.parametrize(
    ("checks", "raises"), [("first", 0), ("always", 1), ("never", 0)]
)
def test_results_are_checked_as_the_settings_say(checks: str, raises: int) -> None:
    """The first call proves the kernel; all calls do under ``"always"``."""
    co.config.checks = typing.cast("Any", checks)
    grown = [0, 1]
    op = define("(Array[n] x) -> Array[n]", lambda x: np.zeros(3 + grown.pop(0)))
    op(THREE)
    seen = []
    try:
        op(THREE)
    except co.errors.ContractError as error:
        seen.append(error)
    assert len(seen) == raises


# ---- without shapes nothing changes ----

SOURCES = {
    "(Array x, float k=1.0) -> Array": """\
def NAME(x, k=1.0):
    if _type(x) is _array and _type(k) is _float and not _modes:
        return _kernel(x, k)
    if not (_type(k) is _float): k = _coerce_k(k)
    _plan = _op.plans.by_tracer.get(_type(x))
    if _plan is not None and not _modes and x.interpreter.alive:
        return _plan(x.interpreter, (x, k, ))
    return _dispatch(_op, (x, k, ))
""",
    "(Array x, Array|Scalar y, Array? z=None, *, Array[] xs) -> ()": """\
def NAME(x, y, z=None, *, xs):
    if _type(xs) is not _list: xs = _coerce_xs(xs)
    if _type(x) is _array and (_type(y) is _array or _type(y) in _numbers) and (z is\
 None or _type(z) is _array) and _all_arrays(xs) and not _modes:
        return _kernel(x, y, z, xs=xs)
    return _dispatch(_op, (x, y, z, xs, ))
""",
}


@pytest.mark.parametrize(("schema", "text"), SOURCES.items())
def test_a_schema_without_shapes_makes_the_call_that_it_made(
    schema: str, text: str
) -> None:
    """Shapes cost nothing where there are none."""
    names = schema.partition(")")[0].count(",")
    fn = (lambda x, k=1.0: x) if names == 1 else (lambda x, y, z=None, *, xs: None)
    op = define(schema, fn)
    assert op.source == text.replace("NAME", op.name)


def test_shapes_are_compared_in_the_guard_of_the_fast_path() -> None:
    """A call that fits goes from comparisons straight to the kernel."""
    op = define("(float[m,k] x, float[k,n+1] y) -> ()", lambda x, y: None)
    assert op.source.splitlines()[1] == (
        "    if _type(x) is _array and _type(y) is _array and not _modes and"
        " _len(_shape0 := x.shape) == 2 and (x.dtype is _float64 or x.dtype in"
        " _float_dtypes) and _len(_shape1 := y.shape) == 2 and _shape1[0] == _shape0[1]"
        " and _shape1[1] >= 1 and (y.dtype is _float64 or y.dtype in _float_dtypes):"
    )


# ---- definitions ----


def test_a_sum_that_nothing_solves_is_an_error_of_the_definition() -> None:
    """Its length could not be checked."""
    with pytest.raises(co.errors.SchemaError) as caught:
        define("(Array[m+n] x, Array[2*k] y) -> ()", lambda x, y: None)
    assert str(caught.value) == (
        "ns::f: the length 'm+n' of 'x' has names that no other axis fixes\n"
        "  ns::f(Array[m+n] x, Array[2*k] y) -> ()\n"
        "        ^^^^^^^^^^^^\n"
        "  do: write each name as an axis too, or add an int parameter of that name"
    )


def shaped(x: Annotated[co.Array, "m k"]) -> Annotated[co.Array, "m"]:
    return x[:, 0] * 1


@pytest.mark.parametrize(
    ("schema", "what"),
    [
        ("(Array[m,n] x) -> Array[m]", "parameter 'x' is Array[m,n] in the schema, and"
         " Array[m,k] in its annotation"),
        ("(Array[m,k] x) -> Array[k]", "result 0 is Array[k] in the schema, and Array[m]"
         " in its annotation"),
    ],
)  # fmt: skip
def test_a_schema_agrees_with_the_shapes_of_annotations(schema: str, what: str) -> None:
    """Of two shapes, one would be wrong; where one place says none, there is one."""
    with pytest.raises(co.errors.SchemaError) as caught:
        define(schema, shaped)
    assert str(caught.value) == (
        f"ns::f: {what}\n"
        f"  {schema}\n"
        f"  at {__file__}:{shaped.__code__.co_firstlineno}\n"
        "  do: write one shape in both places, or leave out the schema"
    )
    assert define("(Array[m,k] x) -> Array", shaped)(F3).shape == (3,)


@pytest.mark.parametrize("text", ["n//2", "n*n"])
def test_a_length_that_tells_no_name_is_an_error_of_the_definition(text: str) -> None:
    """Several lengths have one half, and few are squares."""
    with pytest.raises(
        co.errors.SchemaError, match="has names that no other axis fixes"
    ):
        define(f"(Array[{text}] x) -> ()", lambda x: None)


def test_a_pointwise_operator_takes_any_shape() -> None:
    """Batches of a pointwise operator are more axes, which a fixed number excludes."""
    with pytest.raises(co.errors.SchemaError) as caught:
        define("(Array[n] x) -> Array[n]", lambda x: x * 2, tags=co.Tag.pointwise)
    assert str(caught.value) == (
        "ns::f: Tag.pointwise takes arrays of any shape, but 'x' is Array[n]\n"
        "  ns::f(Array[n] x) -> Array[n]\n"
        "        ^^^^^^^^^^\n"
        "  do: leave the tag out, since the rules follow from 'n'; or write '...'"
    )


@pytest.mark.parametrize("text", ["*b", "*b,n", "n,...", "3,"])
def test_a_pointwise_operator_broadcasts(text: str) -> None:
    """Axes of a name are the same for all arrays, which broadcasting is not."""
    with pytest.raises(
        co.errors.SchemaError, match=r"Tag\.pointwise takes arrays of any"
    ):
        define(f"(Array[{text}] x) -> Array", lambda x: x * 2, tags=co.Tag.pointwise)
    for free in ("...", "*#b", "...,n"):
        define(f"(Array[{free}] x) -> Array", lambda x: x * 2, tags=co.Tag.pointwise)


def test_a_reduction_takes_any_shape() -> None:
    """Which axes are left of a reduction, its `axis` says."""
    with pytest.raises(
        co.errors.SchemaError, match=r"Tag\.reduction takes arrays of any"
    ):
        define(
            "(Array[...,n] x, int axis) -> Array",
            lambda x, axis: x,
            tags=co.Tag.reduction,
        )
    op = define(
        "(float[...] x, int axis) -> float[...]",
        lambda x, axis: np.asarray(np.sum(x, axis)),
        tags=co.Tag.reduction,
    )
    assert co.eval_shape(op, np.zeros((2, 3)), 0).shape == (3,)


def test_overloads_are_told_apart_by_shapes() -> None:
    """Of overloads with the same types, the one whose axes fit is taken."""
    with co.Library("shapes_overloads", "DEF") as lib:
        lib.define("norm(Array[n] x) -> str")
        lib.define("norm.matrix(Array[m,n] x) -> str")
        lib.impl("norm", lambda x: "vector", "CPU")
        lib.impl("norm.matrix", lambda x: "matrix", "CPU")
        found = [co.ops.shapes_overloads.norm(x) for x in (THREE, F3)]
    assert found == ["vector", "matrix"]


# ---- lengths by name ----

LENGTHS: list[tuple[str, dict[str, int], Any, dict[str, tuple[int, ...]]]] = [
    ("(float[m,k] x, float[k,n] y) -> ()", {"m": 2, "k": 3, "n": 4}, (),
     {"x": (2, 3), "y": (3, 4)}),
    ("(float[...,n+1] x, int k, float[n,3]? y) -> ()", {"n": 4}, (2, 5),
     {"x": (2, 5, 5), "y": (4, 3)}),
    ("(float[*b,#n] x, float[*c,2*n-1][] ys, Array z) -> ()", {"n": 2},
     {"b": (7,), "c": ()}, {"x": (7, 2), "ys": (3,)}),
    ("(float[()] x, float[_,1] y) -> ()", {}, (), {"x": (), "y": (1, 1)}),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "sizes", "loops", "shapes"), LENGTHS)
def test_lengths_by_name_give_shapes_that_fit(
    schema: str, sizes: dict[str, int], loops: Any, shapes: dict[str, tuple[int, ...]]
) -> None:
    """`shapes_for` gives the shape of every array that a call needs."""
    assert co.Schema.parse(schema).shapes_for(sizes, loops) == shapes


class Grid(typing.TypedDict):
    """A dict whose array has a shape."""

    knots: Annotated[np.ndarray, "n+1"]


def test_lengths_by_name_reach_into_objects_and_tuples() -> None:
    """An array in an object goes by how it is reached."""

    def fn(
        camera: Camera,
        grid: Grid,
        pair: tuple[Annotated[np.ndarray, "n"], int],
        more: dict[str, Annotated[np.ndarray, "n 2"]],
    ) -> None: ...

    schema = co.Schema.infer(fn)
    assert schema.shapes_for({"n": 4}) == {
        "camera.rotation": (3, 3),
        "camera.points": (4, 3),
        "grid['knots']": (5,),
        "pair[0]": (4,),
        "more": (4, 2),
    }


def test_names_are_told_with_the_least_length_they_can_have() -> None:
    """So that inputs can be drawn: sums must not be negative."""
    schema = co.Schema.parse(
        "(Array[n-3,m] x, Array[*b,2*k-3] y, Array[...,n+1] z) -> ()"
    )
    assert schema.least_sizes == {"n": 3, "m": 0, "k": 2}
    assert schema.loop_names == ("b", "")


@settings(max_examples=100, deadline=None)
@given(st.lists(_spec(), min_size=1, max_size=3), st.data())
def test_drawn_lengths_fit_by_jaxtyping(specs: list[str], data: st.DataObject) -> None:
    """Arrays of the shapes that `shapes_for` gives are taken by jaxtyping."""
    parts = [f"float[{parse_shape(s)}] x{i}" for i, s in enumerate(specs)]
    schema = co.Schema.parse(f"({', '.join(parts)}) -> ()")
    sizes = {
        name: data.draw(st.integers(least, least + 3))
        for name, least in schema.least_sizes.items()
    }
    shapes = schema.shapes_for(sizes, data.draw(_shapes))
    try:
        assert by_jaxtyping(specs, list(shapes.values()))
    except jaxtyping.AnnotationError:
        assume(False)


def test_lengths_that_are_missing_or_too_small_are_errors() -> None:
    """The name and the parameter are told."""
    schema = co.Schema.parse("(Array[n-3] x) -> ()")
    with pytest.raises(co.errors.ShapeError) as caught:
        schema.shapes_for({})
    assert str(caught.value) == (
        "shapes_for: no length for 'n' of 'x'\n"
        "  (Array[n-3] x) -> ()\n"
        "  do: give one: {'n': 3}"
    )
    with pytest.raises(co.errors.ShapeError) as caught:
        schema.shapes_for({"n": 1})
    assert str(caught.value) == (
        "shapes_for: 'x' would have the shape (-2,)\n"
        "  (Array[n-3] x) -> ()\n"
        "  do: give lengths of at least {'n': 3}"
    )


def test_bool_arrays_have_a_class() -> None:
    """A mask is no array of numbers."""

    @co.custom_op("ns::f", mutates_args=())
    def count(mask: Bool[np.ndarray, "n"]) -> int:
        return int(mask.sum())

    assert count(np.array([True, False])) == 1
    with pytest.raises(
        co.errors.ArgumentError, match=r"expects bool\[n\], got an array"
    ):
        count(np.array([1, 0]))
