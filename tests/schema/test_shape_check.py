"""Arguments of calls are checked against their shapes."""
# ruff: noqa: F821, UP037 - texts in jaxtyping's annotations are not code
# ruff: noqa: ISC004 - the table has messages line by line

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import jaxtyping
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jaxtyping import Float

import customop as co
from customop.core.codegen import set_fast_kernel
from customop.core.shape_guards import _as_function
from customop.schema.shape_check import argument_fault
from customop.shapes.notation import parse_shape
from tests.shapes._define import definer, taking
from tests.shapes._jaxtyped import Camera, by_jaxtyping, some_shapes, some_spec

define = definer("ns::f")

# ---- calls: jaxtyping says which arrays fit ----


@pytest.mark.exhaustive
@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(some_spec(), some_shapes), min_size=1, max_size=3))
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
        st.tuples(some_spec(), st.lists(some_shapes, max_size=3), st.booleans()),
        min_size=1,
        max_size=2,
    )
)
@pytest.mark.exhaustive
def test_arrays_of_lists_are_held_to_the_others(rows: list[Any]) -> None:
    """Each array of a list is checked like an argument, in the fast path too."""
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
    """Lists of arrays and ``*#batch`` are checked without the complete check."""
    op = define(schema, taking(schema))
    assert "_fits" not in op.source
    assert _as_function(co.Schema.parse(schema)) is not None


@pytest.mark.exhaustive
@settings(max_examples=250, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["*b", "*#b", "#n", "n"]), some_shapes),
        min_size=2,
        max_size=4,
    )
)
def test_broadcasting_is_that_of_jaxtyping(pairs: list[tuple[str, Any]]) -> None:
    """Which axes of several arrays may broadcast does not depend on the order."""
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
@given(
    st.lists(st.tuples(some_spec(), some_shapes), min_size=1, max_size=2), st.booleans()
)
def test_optional_arrays_are_held_to_the_others(
    pairs: list[tuple[str, Any]], is_given: bool
) -> None:
    """An optional array is checked if it is given; the fast path checks it too."""
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


# ---- calls: messages ----

F3 = np.zeros((3, 2))


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
        "(tests.shapes._jaxtyped.Camera camera, Array[n] weights) -> ()",
        (Camera(np.eye(3), np.zeros((4, 3))), np.zeros(5)),
        "ShapeError: ns::f: argument 'weights' has 5 for axis 'n', which is 4 by 'camera'"
        " at field 'points'\n"
        "  ns::f(tests.shapes._jaxtyped.Camera camera, Array[n] weights) -> ()\n"
        f"        {' ' * len(Camera.__module__)}                ^^^^^^^^^^^^^^^^\n"
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
    """The error names axis, lengths, their sources and the argument, on every path."""
    fn = taking(schema)
    op = define(schema, fn)
    if path == "later":
        op.compile()
        set_fast_kernel(op, fn)
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
def test_the_remedy_says_where_arrays_may_broadcast(schema: str, do: str) -> None:
    """The remedy follows from the notation of the array that does not fit."""
    with pytest.raises(co.errors.ShapeError) as caught:
        define(schema, taking(schema))(np.ones(3), np.ones(2))
    assert caught.value.do == do


def test_an_error_of_a_call_shows_one_frame() -> None:
    """Internal frames are hidden from the caller."""
    op = define("(Array[n] x) -> ()", lambda x: None)
    op(np.zeros(2))
    with pytest.raises(co.errors.ShapeError) as caught:
        op(F3)
    frames = [entry.frame.f_globals.get("__name__") for entry in caught.traceback[1:]]
    assert len(frames) == 1


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
    """A name that is also an `int` parameter has its value, in results too."""

    @co.custom_op("shapes::repeat", mutates_args=())
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
    """The shape of the traced value counts: under vmap that of a row."""
    with pytest.raises(co.errors.ShapeError, match="for axis 'n', which is 2 by 'x'"):
        UNDER[name]()


def test_rows_are_what_is_checked_under_vmap() -> None:
    """The operator does not see the batch axis."""
    assert co.vmap(plus, in_dims=(1, 0))(np.zeros((2, 4)), np.zeros((4, 2))).shape == (
        4,
        2,
    )
