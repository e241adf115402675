"""Results, definitions and lengths by name."""
# ruff: noqa: F821, UP037 - texts in jaxtyping's annotations are not code
# ruff: noqa: ISC004 - the table has messages line by line

from __future__ import annotations

import typing
from collections.abc import Callable
from typing import Annotated, Any

import jaxtyping
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jaxtyping import Bool

import customop as co
from customop.shapes.notation import parse_shape
from tests.shapes._define import definer
from tests.shapes._jaxtyped import Camera, by_jaxtyping, some_shapes, some_spec

define = definer("df::f")
TWO, THREE, F3 = np.zeros(2), np.zeros(3), np.zeros((3, 2))

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
    assert lines[0] == f"df::f: the 'cpu' kernel {what}"
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


# ---- definitions ----


def test_a_sum_that_nothing_solves_is_an_error_of_the_definition() -> None:
    """Its length could not be checked."""
    with pytest.raises(co.errors.SchemaError) as caught:
        define("(Array[m+n] x, Array[2*k] y) -> ()", lambda x, y: None)
    assert str(caught.value) == (
        "df::f: the length 'm+n' of 'x' has names that no other axis fixes\n"
        "  df::f(Array[m+n] x, Array[2*k] y) -> ()\n"
        "        ^^^^^^^^^^^^\n"
        "  do: write each name as an axis too, or add an int parameter of that name"
    )


def shaped(x: Annotated[co.Array, "m k"]) -> Annotated[co.Array, "m"]:
    return x[:, 0] * 1


@pytest.mark.parametrize(
    ("schema", "marks", "what"),
    [
        ("(Array[m,n] x) -> Array[m]", " ^^^^^^^^^^^^", "parameter 'x' is Array[m,n] in the schema, and"
         " Array[m,k] in its annotation"),
        ("(Array[m,k] x) -> Array[k]", "                  ^^^^^^^^", "the result is Array[k] in the schema, and Array[m]"
         " in its annotation"),
    ],
)  # fmt: skip
def test_a_schema_agrees_with_the_shapes_of_annotations(
    schema: str, marks: str, what: str
) -> None:
    """Of two shapes, one would be wrong; where one place says none, there is one."""
    with pytest.raises(co.errors.SchemaError) as caught:
        define(schema, shaped)
    assert str(caught.value) == (
        f"df::f: {what}\n"
        f"  {schema}\n"
        f"  {marks}\n"
        f"  at {__file__}:{shaped.__code__.co_firstlineno}\n"
        "  do: write the same type in both places, or leave out the schema"
    )
    assert define("(Array[m,k] x) -> Array", shaped)(F3).shape == (3,)


@pytest.mark.parametrize("text", ["n//2", "n*n"])
def test_a_length_that_fixes_no_name_is_an_error_of_the_definition(text: str) -> None:
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
        "df::f: Tag.pointwise takes arrays of any shape, but 'x' is Array[n]\n"
        "  df::f(Array[n] x) -> Array[n]\n"
        "        ^^^^^^^^^^\n"
        "  do: leave the tag out, since the rules follow from 'n'; or write '...'"
    )


@pytest.mark.parametrize("text", ["*b", "*b,n", "n,...", "3,"])
def test_a_pointwise_operator_broadcasts(text: str) -> None:
    """Axes with a name are the same in all arrays; broadcasting does not allow that."""
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


def test_overloads_differ_by_shapes() -> None:
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
    """A dict with an array that has a shape."""

    knots: Annotated[np.ndarray, "n+1"]


def test_lengths_by_name_reach_into_objects_and_tuples() -> None:
    """An array in an object is named by how it is reached."""

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


def test_names_have_the_least_length_that_fits() -> None:
    """So that inputs can be drawn: sums must not be negative."""
    schema = co.Schema.parse(
        "(Array[n-3,m] x, Array[*b,2*k-3] y, Array[...,n+1] z) -> ()"
    )
    assert schema.least_sizes == {"n": 3, "m": 0, "k": 2}
    assert schema.loop_names == ("b", "")


@settings(max_examples=100, deadline=None)
@given(st.lists(some_spec(), min_size=1, max_size=3), st.data())
def test_drawn_lengths_fit_by_jaxtyping(specs: list[str], data: st.DataObject) -> None:
    """Arrays of the shapes that `shapes_for` gives are taken by jaxtyping."""
    parts = [f"float[{parse_shape(s)}] x{i}" for i, s in enumerate(specs)]
    schema = co.Schema.parse(f"({', '.join(parts)}) -> ()")
    sizes = {
        name: data.draw(st.integers(least, least + 3))
        for name, least in schema.least_sizes.items()
    }
    shapes = schema.shapes_for(sizes, data.draw(some_shapes))
    try:
        assert by_jaxtyping(specs, list(shapes.values()))
    except jaxtyping.AnnotationError:
        assume(False)


def test_lengths_that_are_missing_or_too_small_are_errors() -> None:
    """The error names the name and the parameter."""
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
    """A mask is not an array of numbers."""

    @co.custom_op("df::bools", mutates_args=())
    def count(mask: Bool[np.ndarray, "n"]) -> int:
        return int(mask.sum())

    assert count(np.array([True, False])) == 1
    with pytest.raises(
        co.errors.ArgumentError, match=r"expects bool\[n\], got an array"
    ):
        count(np.array([1, 0]))
