"""Schemas: inferred, parsed, printed, and what calls may pass for their types."""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
import pickle
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Optional

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import customop as co
from customop.schema.annotations import class_type
from customop.schema.coerce import Mismatch, coerce
from customop.schema.parameters import (
    KEYWORD_ONLY,
    MISSING,
    POSITIONAL,
    POSITIONAL_ONLY,
    Alias,
    Parameter,
    Return,
)
from customop.schema.types import (
    ARRAY,
    DEVICE,
    DTYPE,
    OPERAND,
    SCALAR,
    Base,
    Choice,
    DictOf,
    ListOf,
    Maybe,
    SchemaType,
    TupleOf,
    holds_arrays,
)

pytestmark = pytest.mark.usefixtures("built_in_kinds")

ModuleArray = np.ndarray


def inferred(fn: Any, mutates_args: Any = ()) -> str:
    return co.infer_schema(fn, mutates_args=mutates_args)


# ---- inference ----


def every_kind(
    a: co.Array, /, b: int = 1, *, c: co.Array | None = None
) -> co.Array: ...  # type: ignore[empty-body]
def keyword_array(*, x: co.Array, k: float = 2.0) -> co.Array: ...  # type: ignore[empty-body]
def nothing(x: co.Array) -> None: ...
def pair(x: co.Array) -> tuple[co.Array, int]: ...  # type: ignore[empty-body]
def one_tuple(x: co.Array) -> tuple[co.Array]: ...  # type: ignore[empty-body]
def several(x: co.Array) -> tuple[co.Array, ...]: ...  # type: ignore[empty-body]
def maybe(x: co.Array) -> co.Array | None: ...
def numbers(n: int) -> tuple[int, float, bool, co.Scalar]: ...  # type: ignore[empty-body]
def by_text(x: "co.Array", y: "Optional[int]" = None) -> "list[co.Array]": ...  # type: ignore[empty-body]  # noqa: UP037, UP045
def text_inside(x: list["co.Array"]) -> None: ...  # noqa: UP037
def of_module(x: ModuleArray) -> ModuleArray: ...  # type: ignore[empty-body]


@pytest.mark.parametrize(
    ("fn", "text"),
    [
        (every_kind, "(Array a, /, int b=1, *, Array? c=None) -> Array"),
        (keyword_array, "(*, Array x, float k=2.0) -> Array"),
        (nothing, "(Array x) -> ()"),
        (pair, "(Array x) -> (Array, int)"),
        (one_tuple, "(Array x) -> (Array,)"),
        (several, "(Array x) -> Array[]"),
        (maybe, "(Array x) -> Array?"),
        (numbers, "(int n) -> (int, float, bool, Scalar)"),
        (by_text, "(Array x, int? y=None) -> Array[]"),
        (text_inside, "(Array[] x) -> ()"),
        (of_module, "(Array x) -> Array"),
        (lambda: None, None),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_schema_is_inferred_from_hints(fn: Any, text: str | None) -> None:
    """Parameters of every kind, and results of every form, have their schema."""
    if text is None:
        with pytest.raises(co.SchemaError):
            inferred(fn)
    else:
        assert inferred(fn) == text


@pytest.mark.parametrize(
    ("schema", "values", "expected"),
    [
        ("(Array x, int n) -> Array", (1, 2), ((1, 2), {})),
        ("(Array x, *, int n, int m) -> Array", [1, 2, 3], ([1], {"n": 2, "m": 3})),
        ("(*, int n) -> Array", (1,), ((), {"n": 1})),
        ("() -> Array", (), ((), {})),
    ],
)
def test_values_are_split_by_kind(schema: str, values: Any, expected: Any) -> None:
    """Values of all parameters come apart as positional ones and those by name."""
    assert co.Schema.parse(schema).split(values) == expected


def test_too_few_values_are_not_split() -> None:
    """Every keyword-only parameter has a value."""
    with pytest.raises(ValueError, match="shorter"):
        co.Schema.parse("(Array x, *, int n, int m) -> Array").split((1, 2))


def test_hints_may_name_what_the_enclosing_function_defines() -> None:
    """Hints of a nested function are evaluated where it is written."""
    Local = np.ndarray  # noqa: N806

    def twice(x: Local) -> Local: ...  # type: ignore[empty-body]

    assert inferred(twice) == "(Array x) -> Array"
    assert str(co.custom_op("schema_test::twice", twice, mutates_args=()).schema) == (
        "(Array x) -> Array"
    )


def test_hints_may_name_what_a_function_further_out_defines() -> None:
    """So are those of a function two levels deep."""
    Outer = np.ndarray  # noqa: N806

    def inner() -> str:
        def f(x: Outer) -> Outer: ...  # type: ignore[empty-body]

        return inferred(f)

    assert inner() == "(Array x) -> Array"


def test_hints_may_name_what_the_class_body_defines() -> None:
    """A static method sees the names of its class, and of the function around."""
    Outer = np.ndarray  # noqa: N806

    class Operators:
        Inner = np.ndarray

        @co.custom_op("schema_test::in_class", mutates_args=())
        @staticmethod
        def in_class(x: Inner, y: Outer) -> Inner:
            return x + y

    assert str(Operators.in_class.schema) == "(Array x, Array y) -> Array"
    assert Operators.in_class(np.ones(1), np.ones(1)).tolist() == [2.0]


def test_hints_do_not_see_names_of_the_caller() -> None:
    """Names where the operator is made do not hide those where the function is."""
    ModuleArray = int  # noqa: N806, F841

    assert inferred(of_module) == "(Array x) -> Array"


def test_decorators_with_wrapped_are_looked_through() -> None:
    """A decorator that keeps `__wrapped__` leaves the schema as it is."""

    def logged(fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return fn(*args, **kwargs)

        return wrapper

    Local = np.ndarray  # noqa: N806

    @logged
    def f(x: Local, k: int = 1) -> Local: ...  # type: ignore[empty-body]

    assert inferred(f) == "(Array x, int k=1) -> Array"


class Scaler:
    """A callable object."""

    def __call__(self, x: co.Array, k: float) -> co.Array: ...  # type: ignore[empty-body]

    def method(self, x: co.Array, k: float = 1.0) -> co.Array: ...  # type: ignore[empty-body]

    @classmethod
    def of_class(cls, x: co.Array) -> co.Array: ...  # type: ignore[empty-body]


@pytest.mark.parametrize(
    ("fn", "text"),
    [
        (Scaler(), "(Array x, float k) -> Array"),
        (Scaler().method, "(Array x, float k=1.0) -> Array"),
        (Scaler.of_class, "(Array x) -> Array"),
        (functools.partial(Scaler(), k=2.0), "(Array x, *, float k=2.0) -> Array"),
        (
            functools.partial(every_kind, np.zeros(1)),
            "(int b=1, *, Array? c=None) -> Array",
        ),
    ],
    ids=["callable object", "method", "class method", "partial by name", "partial"],
)
def test_what_is_called_like_a_function_has_a_schema(fn: Any, text: str) -> None:
    """Bound arguments and `self` are no parameters."""
    assert inferred(fn) == text


def test_hints_keep_working_without_the_future_import() -> None:
    """Hints that are objects are taken as they are."""
    names: dict[str, Any] = {"co": co, "npt": npt, "np": np}
    exec(
        "def f(x: npt.NDArray[np.float64], y: list['co.Array']) -> co.Array: ...", names
    )
    assert inferred(names["f"]) == "(Array x, Array[] y) -> Array"


@pytest.mark.skipif("sys.version_info < (3, 12)", reason="PEP 695 is of Python 3.12")
@pytest.mark.parametrize("future", ["", "from __future__ import annotations\n"])
def test_generic_functions_have_a_schema(future: str) -> None:
    """Type parameters of a function stand for their bounds, also in strings."""
    text = (
        f"{future}import customop as co\n"
        "type Shape = list[int]\n"
        "type Listed[T] = list[T]\n"
        "def outer():\n"
        "    Local = co.Array\n"
        "    def f[T: co.Array](x: T, y: Local, s: Shape, v: Listed[int]) -> T: ...\n"
        "    return co.infer_schema(f, mutates_args=())\n"
        "found = outer()"
    )
    names: dict[str, Any] = {"__name__": __name__}
    exec(text, names)
    assert names["found"] == "(Array x, Array y, int[] s, int[] v) -> Array"


# ---- defaults ----


def with_default(annotation: str, value: Any) -> Any:
    names: dict[str, Any] = {**globals(), "value": value}
    exec(f"def f(x: {annotation} = value) -> None: ...", names)
    return names["f"]


@pytest.mark.parametrize(
    ("annotation", "value", "text"),
    [
        ("int", 1, "int x=1"),
        ("int", True, "int x=1"),
        ("int", np.int64(3), "int x=3"),
        ("int", -(10**30), f"int x={-(10**30)}"),
        ("float", 1, "float x=1.0"),
        ("float", np.float32(0.5), "float x=0.5"),
        ("float", math.inf, "float x=inf"),
        ("float", -math.inf, "float x=-inf"),
        ("float", math.nan, "float x=nan"),
        ("float", -0.0, "float x=-0.0"),
        ("complex", 1j, "complex x=1j"),
        ("complex", complex(1, -math.inf), "complex x=(1-infj)"),
        ("complex", 2, "complex x=(2+0j)"),
        ("bool", True, "bool x=True"),
        ("bool", np.False_, "bool x=False"),
        ("str", "", 'str x=""'),
        ("str", 'a "b", \\n (c', 'str x="a \\"b\\", \\\\n (c"'),
        ("co.Scalar", 1, "Scalar x=1"),
        ("co.Scalar", True, "Scalar x=True"),
        ("co.Scalar", np.float64(2.0), "Scalar x=2.0"),
        ("co.DType", np.float32, "dtype x=float32"),
        ("co.DType", "f8", "dtype x=float64"),
        ("co.DType", np.dtype(">i4"), "dtype x=>i4"),
        ("co.DType", [("a", "<f8"), ("b", "<i4")], None),
        ("co.DType", np.dtype([("a", "<f8")]), "dtype x=[('a', '<f8')]"),
        ("co.DType", np.dtype("M8[ns]"), "dtype x=datetime64[ns]"),
        ("co.Device", "cuda:1", 'device x="cuda:1"'),
        ("int | None", None, "int? x=None"),
        ("co.Array | None", None, "Array? x=None"),
        ("co.Array | float", 1, "Array|Scalar x=1"),
        ("list[int]", (), "int[] x=[]"),
        ("list[int]", (1, 2), "int[] x=[1, 2]"),
        ("list[int] | None", (1,), "int[]? x=[1]"),
        ("list[int | None]", (1, None), "int?[] x=[1, None]"),
        ("list[list[int]]", ((1,), ()), "int[][] x=[[1], []]"),
        ("list[co.Array]", (), "Array[] x=[]"),
        ("list[co.Array | None]", (None,), "Array?[] x=[None]"),
        ("tuple[int, str]", (1, "a"), '(int, str) x=(1, "a")'),
        ("tuple[int]", (1,), "(int,) x=(1,)"),
    ],
)
def test_a_default_is_kept_and_read_back(
    annotation: str, value: Any, text: str | None
) -> None:
    """A default that fits is printed so that it can be read back."""
    if text is None:  # a list can change, whatever it describes
        with pytest.raises(co.SchemaError):
            inferred(with_default(annotation, value))
        return
    found = inferred(with_default(annotation, value))
    assert found == f"({text}) -> ()"
    assert str(co.Schema.parse(found)) == found


CHANGES = "a default must be immutable: write a tuple or a number"
NO_NONE = "only an Optional parameter has the default None"
NO_ARRAY = "an array can only have the default None"


@pytest.mark.parametrize(
    ("annotation", "value", "why", "do"),
    [
        ("int", 2.5, "expects int, got float 2.5", "give a default of type int"),
        ("int", "a", "expects int, got str 'a'", "give a default of type int"),
        ("int", None, NO_NONE, "write x: Optional[int] = None"),
        ("co.Array", None, NO_NONE, "write x: Optional[co.Array] = None"),
        ("list[int]", None, NO_NONE, "write x: Optional[list[int]] = None"),
        ("list[int]", [1], CHANGES, "give a default of type int[]"),
        ("list[int]", (1, "a"), "at index 1 expects int, got str 'a'", "give a default of type int[]"),
        ("float", 1j, "expects float, got complex 1j", "give a default of type float"),
        ("bool", 1, "expects bool, got int 1", "give a default of type bool"),
        ("bool | None", 1, "expects bool, got int 1", "give a default of type bool?"),
        ("str", 1, "expects str, got int 1", "give a default of type str"),
        ("tuple[int, int]", (1,), "expects (int, int), got 1 items", "give a default of type (int, int)"),
        ("co.DType", "flot", "expects dtype, got str 'flot'", "give a default of type dtype"),
        (
            "co.DType",
            np.dtypes.StringDType(),
            "this dtype has no text in a schema",
            "give a default of type dtype",
        ),
        (
            "co.Device",
            "cdua",
            "is an unknown device 'cdua' (did you mean 'cuda'?); known: 'cpu', 'cuda'",
            "give a default of type device",
        ),
        ("co.Array | None", np.float64(1), NO_ARRAY, "write x: Optional[co.Array | None] = None"),
        ("list[co.Array]", (np.float64(1),), f"at index 0 {NO_ARRAY}", "give a default of type Array[]"),
    ],
)  # fmt: skip
def test_a_default_that_does_not_fit_is_refused(
    annotation: str, value: Any, why: str, do: str
) -> None:
    """A default of another type, or one that can change, is an error."""
    fn = with_default(annotation, value)
    with pytest.raises(co.SchemaError) as caught:
        inferred(fn)
    assert str(caught.value).splitlines()[0] == (
        f"f: parameter 'x' has the default {value!r}: {why}"
    )
    assert caught.value.do == do


def test_a_generator_is_no_default() -> None:
    """Drawing changes a generator, so a call would change the schema."""
    fn = with_default("np.random.Generator", np.random.default_rng(0))
    with pytest.raises(co.SchemaError, match="since drawing changes it"):
        inferred(fn)


# ---- what is written ----


def writes(x: co.Array, ys: list[co.Array], k: int, z: co.Array | None) -> None: ...


@pytest.mark.parametrize(
    ("mutates_args", "text"),
    [
        ((), "(Array x, Array[] ys, int k, Array? z) -> ()"),
        (("x",), "(Array(a!) x, Array[] ys, int k, Array? z) -> ()"),
        (["z", "ys"], "(Array x, Array(a!)[] ys, int k, Array(b!)? z) -> ()"),
        ({"x"}, "(Array(a!) x, Array[] ys, int k, Array? z) -> ()"),
        ("unknown", "(Array(a!) x, Array(b!)[] ys, int k, Array(c!)? z) -> ()"),
    ],
    ids=str,
)
def test_written_arguments_are_marked(mutates_args: Any, text: str) -> None:
    """Each written argument has a letter of its own, also inside lists."""
    assert inferred(writes, mutates_args) == text


def test_mutates_args_may_be_a_generator() -> None:
    """Names may come from anything that is iterated once."""
    names = (name for name in ["x"])
    op = co.custom_op("schema_test::writes", writes, mutates_args=names)
    assert op.schema.written == ("x",)


# ---- the grammar ----


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("() -> ()", None),
        ("(Tensor x)->Tensor", "(Array x) -> Array"),
        (
            "  ( Array x ,\n int  y = 1 )  ->  ( Array )  ",
            "(Array x, int y=1) -> Array",
        ),
        ("(Array(a!) x, int y=1, *, float? z=None) -> (Array, Array)", None),
        ("(Array(a) x) -> Array(a)", None),
        ("(Array(a!)[] x) -> ()", None),
        ("(Array?[]? x) -> Array?", None),
        ("(Array(a!)?[]? x) -> ()", None),
        ("((Array(a!), int) x) -> ()", None),
        ("((int, Array(a!)) x) -> ()", None),
        ("(Array|Scalar x, Array(a!)|Scalar? y) -> ()", None),
        ("(Array[3] x, int[2] s=1) -> ()", "(Array[3] x, int[2] s=[1, 1]) -> ()"),
        ("(int x, /, int y, *, int z) -> ()", None),
        ("(int x, int y, /) -> ()", None),
        ("(*, Array out) -> Array", None),
        ("(Array x) -> (Array,)", None),
        ("(Array x) -> (Array, int,)", "(Array x) -> (Array, int)"),
        ("(Array x) -> ((Array, int))", None),
        ("(Array x) -> ((Array, int), Array[])", None),
        ("(Array x) -> (Array out)", None),
        ("(Array x) -> Array out", "(Array x) -> (Array out)"),
        ("(Array x) -> (Array values, Array indices)", None),
        (
            "(SymInt n, ScalarType d, Device v) -> ()",
            "(int n, dtype d, device v) -> ()",
        ),
        ("(str s='a, (b', str t=\"->\") -> ()", '(str s="a, (b", str t="->") -> ()'),
        ('(str s="a\\", (b", str t="\\\\") -> ()', None),
        ("(bool a=true, bool b=false) -> ()", "(bool a=True, bool b=False) -> ()"),
        ("(float x=inf, float y=-inf, float z=nan) -> ()", None),
        ('(dtype d="float64") -> ()', "(dtype d=float64) -> ()"),
        ("(dtype d=[('a', '<f8'), ('b', '<i4', (2,))]) -> ()", None),
        ("(Generator? g=None) -> ()", None),
    ],
)
def test_a_schema_string_is_read_and_printed(text: str, printed: str | None) -> None:
    """Torch's grammar is read; what is printed reads as the same schema."""
    schema = co.Schema.parse(text)
    assert str(schema) == (text if printed is None else printed)
    assert co.Schema.parse(str(schema)) == schema


TYPES = (
    "known: Array, Tensor, Array|Scalar, int, SymInt, float, bool, complex, str,"
    " Scalar, dtype, ScalarType, device, Device, Generator"
)

# A schema string, what is wrong with it, and where: place and number of carets.
FAULTS = [
    ("", "no '->' before the results", 0, 1),
    ("(Array x", "no '->' before the results", 8, 1),
    ("(Array x) Array", "no '->' before the results", 15, 1),
    ("(int[] s=[1) -> ()", "no '->' before the results", 18, 1),
    ("->", "the parameters must be in parentheses", 0, 1),
    ("Array x -> Array", "the parameters must be in parentheses", 0, 1),
    ("f(Array x) -> Array", "the parameters must be in parentheses", 0, 1),
    ("(Array x,) -> Array", "a parameter is missing here", 9, 1),
    ("(, Array x) -> Array", "a parameter is missing here", 1, 1),
    ("(Array) -> Array", "a parameter needs a type and a name", 1, 5),
    ("(Array 3) -> Array", "a parameter needs a type and a name", 1, 7),
    ("(Array(a|b) x) -> ()", "a parameter needs a type and a name", 1, 12),
    ("(Array if) -> ()", "'if' is a Python keyword, which cannot name a parameter", 7, 2),
    ("(Array x y) -> Array", "cannot read 'y'", 9, 1),
    ("(Array x, ...) -> ()", "a type is missing here", 10, 3),
    ("(Foo x) -> ()", f"unknown type 'Foo'; {TYPES}", 1, 3),
    ("(Arrai x) -> ()", "unknown type 'Arrai' (did you mean 'Array'?)", 1, 5),
    ("(double x) -> ()", "unknown type 'double': write float", 1, 6),
    ("(int64_t x) -> ()", "unknown type 'int64_t': write int", 1, 7),
    ("(Dict(int, str) x) -> ()", "unknown type 'Dict': write Dict(str, T), such as Dict(str, Array)", 1, 4),
    ("(Dict(str, ) x) -> ()", "a type is missing here", 11, 1),
    ("(Dict(str, int x) -> ()", "no '->' before the results", 23, 1),
    ("(str{} x) -> ()", "a choice needs values to choose from", 1, 5),
    ("(str{a} x) -> ()", "the choice a is not of type str", 5, 1),
    ('(str{"a", 1} x) -> ()', "the choice 1 is not of type str", 10, 1),
    ("(int{1, 1} x) -> ()", "the choice 1 appears twice", 8, 1),
    ("(int{True} x) -> ()", "the choice True is not of type int", 5, 4),
    ("(float{1.0} x) -> ()", "a choice has str, int or bool values, not float", 1, 5),
    ("(my.own.Class x) -> ()", "unknown type 'my.own.Class': import my.own first, which defines it", 1, 12),
    ('(str{"a", "b"} x="c") -> ()', 'default "c" does not fit str{"a", "b"}: expects str{"a", "b"}, got str \'c\'', 17, 3),
    ("(Any x) -> ()", "unknown type 'Any': name the type", 1, 3),
    ("(Array x, int x) -> ()", "parameter 'x' appears twice", 10, 5),
    ("(int x=1, int y) -> ()", "parameter 'y' has no default, but follows one that has", 10, 5),
    ("(*) -> ()", "no parameter follows '*'", 1, 1),
    ("(*, *, int x) -> ()", "'*' appears twice", 4, 1),
    ("(/) -> ()", "no parameter comes before '/'", 1, 1),
    ("(int x, /, /) -> ()", "'/' appears twice", 11, 1),
    ("(int x, *, int y, /) -> ()", "'/' must come before '*'", 18, 1),
    ("(int?? x) -> ()", "'?' appears twice", 5, 1),
    ("(int(a) x) -> ()", "only arrays have aliases", 1, 6),
    ("((Array, Array(a!)) x) -> ()", "write the alias of a tuple at its first array", 1, 18),
    ("(() x) -> ()", "a tuple needs a type for each place", 1, 2),
    ("((int, Array x) -> ()", "no '->' before the results", 21, 1),
    ("(int x=1.5) -> ()", "default 1.5 does not fit int: expects int, got float 1.5", 7, 3),
    ('(int y="a") -> ()', "default \"a\" does not fit int: expects int, got str 'a'", 7, 3),
    ("(int x=None) -> ()", "default None does not fit int: only an Optional parameter has the default None", 7, 4),
    ("(int x=) -> ()", "default nothing does not fit int", 7, 1),
    ("(int x=one) -> ()", "default one does not fit int", 7, 3),
    ("(int[] s=1) -> ()", "default 1 does not fit int[]: write [1]", 9, 1),
    ("(int[] s=[1,,2]) -> ()", "default [1,,2] does not fit int[]", 9, 6),
    ("(int[] s=[1,2)) -> ()", "default [1,2) does not fit int[]", 9, 5),
    ("(bool b=1) -> ()", "default 1 does not fit bool: expects bool, got int 1", 8, 1),
    ("(Array x) ->", "the results are missing", 12, 1),
    ("(Array x) -> (Array,,Array)", "an item is missing here", 20, 1),
    ("(Array x) -> (,)", "an item is missing here", 14, 1),
    ("(Array x) -> (Array a, Array a)", "result 'a' appears twice", 23, 7),
    ("(Array x) -> Array, Array", "cannot read ', Array'", 18, 7),
    ("(Array x) -> (Array", "'(' is never closed", 13, 1),
]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "reason", "at", "width"), FAULTS, ids=[r[0] for r in FAULTS]
)
def test_a_fault_of_a_schema_string_is_shown(
    text: str, reason: str, at: int, width: int
) -> None:
    """What does not follow the grammar is shown with carets under the place."""
    with pytest.raises(co.SchemaError) as caught:
        co.Schema.parse(text)
    assert str(caught.value) == (
        f"schema string: {reason}\n"
        f"  {text}\n"
        f"  {' ' * at}{'^' * width}\n"
        '  do: write it like "(Array x, int y=1, *, float? z=None) -> Array"'
    )


def test_a_fault_in_a_later_line_shows_that_line() -> None:
    """A schema string of several lines shows the one that is wrong."""
    with pytest.raises(co.SchemaError) as caught:
        co.Schema.parse("(Array x,\n Arrai y) -> ()")
    assert str(caught.value).splitlines()[1:3] == ["   Arrai y) -> ()", "   ^^^^^"]


@pytest.mark.parametrize("text", [3, None, b"() -> ()", ["() -> ()"]])
def test_a_schema_that_is_no_string_is_refused(text: Any) -> None:
    """Only strings are parsed."""
    with pytest.raises(co.SchemaError) as caught:
        co.Schema.parse(text)
    assert str(caught.value) == (
        f'a schema is a string, got {text!r}\n  do: write "(Array x) -> Array"'
    )


def test_a_deeply_nested_string_is_refused() -> None:
    """Nesting without end is an error as any other."""
    with pytest.raises(co.SchemaError, match="nested too deeply"):
        co.Schema.parse("(" + "(" * 10_000 + "int" + ")" * 10_000 + " x) -> ()")


# ---- equality ----


@pytest.mark.parametrize(
    ("one", "two"),
    [
        ("(Scalar x=1) -> ()", "(Scalar x=1.0) -> ()"),
        ("(Scalar x=1) -> ()", "(Scalar x=True) -> ()"),
        ("(float x=0.0) -> ()", "(float x=-0.0) -> ()"),
        ("(int x, /) -> ()", "(int x) -> ()"),
        ("(*, int x) -> ()", "(int x) -> ()"),
        ("(Array x) -> (Array,)", "(Array x) -> Array"),
        ("(Array(a) x) -> Array(a)", "(Array x) -> Array"),
        ("(Array x) -> (Array y)", "(Array x) -> Array"),
    ],
)
def test_schemas_that_print_differently_differ(one: str, two: str) -> None:
    """1, 1.0 and True are defaults of their own, and so are 0.0 and -0.0."""
    assert co.Schema.parse(one) != co.Schema.parse(two)


@pytest.mark.parametrize("text", ["(float x=nan) -> ()", "(complex x=(nan+0j)) -> ()"])
def test_a_default_of_nan_equals_itself(text: str) -> None:
    """Schemas are compared by their text, which nan does not spoil."""
    one, two = co.Schema.parse(text), pickle.loads(pickle.dumps(co.Schema.parse(text)))
    assert one == two
    assert hash(one) == hash(two)


def test_a_schema_pickles() -> None:
    """Also the mark of a missing default comes back as itself."""
    schema = co.Schema.parse("(Array x, int k=1) -> Array")
    again = pickle.loads(pickle.dumps(schema))
    assert again == schema
    assert again.parameters[0].default is MISSING


@pytest.mark.parametrize(
    ("text", "name", "at"),
    [
        ("(Array xs, Array x) -> ()", "x", 17),
        ("(int? y, int x) -> ()", "x", 15),
        ('(str s="Array x", Array x=None) -> ()', None, 0),
        ('(str s="int x", int x=1) -> ()', "x", 22),
    ],
)
def test_carets_stand_under_the_parameter(text: str, name: str | None, at: int) -> None:
    """A name within another one, or in a default, does not mislead them."""
    if name is None:
        with pytest.raises(co.SchemaError):
            co.Schema.parse(text)
        return
    mark = co.Schema.parse(text).show("ns::op", name).splitlines()[1]
    assert mark.index("^") == at


# ---- agreement of a schema string with a function ----


def scaled(x: Any, k: Any = 2) -> Any:
    return x * k


@pytest.mark.parametrize(
    "schema",
    ["(Array x, int k=2) -> Array", "(Array x, float k=2.0) -> Array"],
)
def test_a_schema_string_that_agrees_is_taken(schema: str) -> None:
    """The schema says the types of a function without hints."""
    op = co.custom_op("schema_test::scaled", scaled, mutates_args=(), schema=schema)
    assert str(op.schema) == schema
    assert op(np.ones(1)).tolist() == [2.0]


def test_a_builtin_takes_any_schema_string() -> None:
    """A ufunc tells no names: its first call proves it."""
    op = co.custom_op(
        "schema_test::sin", np.sin, mutates_args=(), schema="(Array angle) -> Array"
    )
    assert op(angle=np.zeros(1)).tolist() == [0.0]


# ---- properties ----

NAMES = st.sampled_from(
    ["x", "y", "k", "out", "é", "a1", "Array", "int", "inf", "None_"]
)
Odd = enum.Enum("Odd", ["None", "a b", "RED", "lambda", 'q"t'])  # type: ignore[misc]  # names as a user may give them


class Access(enum.Flag):
    READ = enum.auto()
    WRITE = enum.auto()


@dataclasses.dataclass(frozen=True)
class Window:
    width: int
    taps: tuple[float, ...] = ()
    name: Literal["a", "b"] | None = None


class Range(NamedTuple):
    low: float
    high: float | None


@dataclasses.dataclass(frozen=True)
class Holder:
    x: np.ndarray
    inside: dict[str, list[co.Array]]


@dataclasses.dataclass(frozen=True)
class Empty:
    pass


WINDOWS = st.builds(
    Window,
    st.integers(),
    st.lists(st.floats()).map(tuple),
    st.sampled_from(["a", "b", None]),
)
BASES = {
    Choice("str", ("a", 'b", "c', "\\", "None")): st.sampled_from(["a", "None", "\\"]),
    Choice("int", (1, -2)): st.sampled_from([1, -2]),
    Choice("bool", (True,)): st.just(True),
    class_type(Odd): st.sampled_from(list(Odd)),
    class_type(Access): st.sampled_from(
        [Access.READ, Access.READ | Access.WRITE, Access(0)]
    ),
    class_type(Window): WINDOWS,
    class_type(Range): st.builds(Range, st.floats(), st.none() | st.floats()),
    class_type(Empty): st.just(Empty()),
    Base("int"): st.integers(),
    Base("float"): st.floats(),
    Base("bool"): st.booleans(),
    Base("complex"): st.complex_numbers(),
    Base("str"): st.text(),
    SCALAR: st.one_of(st.integers(), st.floats(), st.booleans(), st.complex_numbers()),
    DTYPE: st.sampled_from(
        [np.dtype(t) for t in ("f4", ">i8", "?", "c16", "U5", "M8[s]")]
    ),
    DEVICE: st.sampled_from(["cpu", "cuda", "cuda:3"]),
    OPERAND: st.one_of(st.integers(), st.floats()),
}


def types_of(bases: st.SearchStrategy[SchemaType]) -> st.SearchStrategy[SchemaType]:
    """Types built from some, without an optional of an optional."""

    def wider(inner: st.SearchStrategy[SchemaType]) -> st.SearchStrategy[SchemaType]:
        return st.one_of(
            inner.map(lambda kind: kind if isinstance(kind, Maybe) else Maybe(kind)),
            st.builds(ListOf, inner, st.none() | st.integers(0, 3)),
            st.builds(DictOf, inner),
            st.lists(inner, min_size=1, max_size=3).map(
                lambda kinds: TupleOf(tuple(kinds))
            ),
        )

    return st.recursive(bases, wider, max_leaves=4)


ANY_TYPE = types_of(
    st.sampled_from([ARRAY, Base("Generator"), class_type(Holder), *BASES])
)


def values_of(kind: SchemaType) -> st.SearchStrategy[Any]:
    """Values that fit a type and can be defaults; none for arrays."""
    if isinstance(kind, Maybe):
        return st.none() | values_of(kind.item)
    if isinstance(kind, ListOf):
        low, high = (0, 2) if kind.length is None else (kind.length, kind.length)
        if values_of(kind.item).is_empty:
            return st.just(()) if low == 0 else st.nothing()
        return st.lists(values_of(kind.item), min_size=low, max_size=high).map(tuple)
    if isinstance(kind, TupleOf):
        return st.tuples(*map(values_of, kind.items))
    return BASES.get(kind, st.nothing())


def aliases(kind: SchemaType) -> st.SearchStrategy[Alias | None]:
    made = st.builds(Alias, st.sampled_from("abc"), st.booleans())
    return st.none() | made if holds_arrays(kind) else st.none()


@st.composite
def parameters(draw: st.DrawFn) -> tuple[Parameter, ...]:
    names = draw(st.lists(NAMES, unique=True, max_size=5))
    kinds = sorted(
        draw(st.sampled_from([POSITIONAL_ONLY, POSITIONAL, KEYWORD_ONLY]))
        for _ in names
    )
    kinds.sort(key=[POSITIONAL_ONLY, POSITIONAL, KEYWORD_ONLY].index)
    found: list[Parameter] = []
    for name, kind in zip(names, kinds, strict=True):
        typed = draw(ANY_TYPE)
        follows = kind != KEYWORD_ONLY and any(p.default is not MISSING for p in found)
        values = values_of(typed)
        default = MISSING
        if follows and values.is_empty:
            typed, values = Base("int"), st.integers()
        if follows or (not values.is_empty and draw(st.booleans())):
            default = draw(values)
        found.append(Parameter(name, typed, default, kind, draw(aliases(typed))))
    return tuple(found)


@st.composite
def schemas(draw: st.DrawFn) -> co.Schema:
    types = draw(st.lists(ANY_TYPE, max_size=3))
    names = draw(st.lists(NAMES, unique=True, min_size=3, max_size=3))
    named = draw(st.booleans())
    returns = tuple(
        Return(kind, name if named else "", draw(aliases(kind)))
        for kind, name in zip(types, names, strict=False)
    )
    is_tuple = len(returns) > 1 or (len(returns) == 1 and draw(st.booleans()))
    return co.Schema(draw(parameters()), returns, is_tuple)


SOME = settings(max_examples=150, deadline=None, derandomize=True)


def same_value(one: Any, two: Any) -> bool:
    """Whether two values are one in class and bits, nan being nan."""
    return type(one) is type(two) and repr(one) == repr(two)


@SOME
@given(schemas())
def test_what_is_printed_reads_as_the_same_schema(schema: co.Schema) -> None:
    """Parsing what was printed gives the same schema back, always."""
    again = co.Schema.parse(str(schema))
    assert again == schema
    assert hash(again) == hash(schema)
    assert again.returns == schema.returns
    assert again.is_tuple == schema.is_tuple
    for p, q in zip(again.parameters, schema.parameters, strict=True):
        assert (p.name, p.type, p.kind, p.alias) == (q.name, q.type, q.kind, q.alias)
        assert same_value(p.default, q.default)


ANNOTATIONS: list[tuple[Any, st.SearchStrategy[Any] | None]] = [
    (co.Array, None),
    (np.ndarray, None),
    (co.Array | None, st.none()),
    (list[co.Array], None),
    (list[co.Array | None] | None, st.none()),
    (tuple[co.Array, int], None),
    (int, st.integers()),
    (float, st.floats() | st.integers(-9, 9)),
    (bool, st.booleans()),
    (complex, st.complex_numbers()),
    (str, st.text()),
    (co.Scalar, st.integers() | st.floats() | st.booleans()),
    (co.DType, st.sampled_from([np.float32, "i8", np.dtype(">c8")])),
    (co.Device, st.sampled_from(["cpu", "cuda:1"])),
    (Optional[int], st.none() | st.integers()),  # noqa: UP045
    (list[int], st.lists(st.integers()).map(tuple)),
    (Sequence[str], st.lists(st.text()).map(tuple)),
    (tuple[float, ...], st.lists(st.floats()).map(tuple)),
    (tuple[int, str], st.tuples(st.integers(), st.text())),
    (list[list[bool]], st.just(((True,), ()))),
    (Literal["a", "None"] | None, st.sampled_from(["a", "None", None])),
    (Literal[3, 4], st.sampled_from([3, 4])),
    (Odd, st.sampled_from(list(Odd))),
    (Access | None, st.none() | st.just(Access.READ)),
    (Window, WINDOWS),
    (Range, st.builds(Range, st.floats(), st.none())),
    (list[Window], st.lists(WINDOWS).map(tuple)),
    (Holder, None),
    (Holder | None, st.none()),
    (dict[str, co.Array], None),
    (dict[str, int] | None, st.none()),
]
RESULTS = [
    None,
    co.Array,
    list[co.Array],
    tuple[co.Array, int],
    tuple[co.Array],
    float,
    Range,
    tuple[Holder, Odd],
    dict[str, co.Array],
    co.Array | None,
]


@st.composite
def functions(draw: st.DrawFn) -> Any:
    """Functions with hints and defaults, of all kinds of parameter."""
    names = draw(st.lists(st.sampled_from("abcdefg"), unique=True, max_size=6))
    only = draw(st.integers(0, len(names)))
    keyword = draw(st.integers(only, len(names)))
    hints: dict[str, Any] = {"return": draw(st.sampled_from(RESULTS))}
    values: dict[str, Any] = {}
    texts: list[str] = []
    for index, name in enumerate(names):
        texts += ["*"] if index == keyword else []
        hints[name], strategy = draw(st.sampled_from(ANNOTATIONS))
        follows = index < keyword and bool(values)
        if follows and strategy is None:
            hints[name], strategy = int, st.integers()
        if strategy is not None and (follows or draw(st.booleans())):
            values[f"_{name}"] = draw(strategy)
            texts.append(f"{name}=_{name}")
        else:
            texts.append(name)
        texts += ["/"] if index == only - 1 else []
    exec(f"def f({', '.join(texts)}): ...", values)
    values["f"].__annotations__ = hints
    return values["f"]


@SOME
@given(functions(), st.booleans())
def test_an_inferred_schema_reads_as_the_same(fn: Any, is_unknown: bool) -> None:
    """What is inferred from a function is printed and read back unchanged."""
    schema = co.Schema.infer(fn, "unknown" if is_unknown else ())
    again = co.Schema.parse(str(schema))
    assert again == schema
    assert [p.type for p in again.parameters] == [p.type for p in schema.parameters]
    assert again.returns == schema.returns
    assert pickle.loads(pickle.dumps(schema)) == schema


@SOME
@given(st.data())
def test_coercion_is_done_once(data: st.DataObject) -> None:
    """A coerced value is what coercion makes of it."""
    kind = data.draw(ANY_TYPE)
    values = values_of(kind)
    assume(not values.is_empty)
    once = coerce(data.draw(values), kind)
    assert same_value(coerce(once, kind), once)


# NumPy has deprecated some texts of dtypes, Python some escapes in strings.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::SyntaxWarning")
@settings(max_examples=400, deadline=None, derandomize=True)
@given(
    st.one_of(
        st.text(max_size=40),
        st.text(alphabet="()[]{}?!,*/->=|'\"\\. \nAray intxbs123eEjf_", max_size=40),
        st.lists(
            st.sampled_from(
                ["(", ")", "[", "]", "?", ",", " ", "->", "Array", "int", "x", "y", "=",
                 "1", "None", "(a!)", "*", "/", "dtype", "f8", '"', "'", "str", "nan", "-"]
            ),
            max_size=16,
        ).map("".join),
    )
)  # fmt: skip
def test_any_string_is_read_or_refused(text: str) -> None:
    """No string makes the parser fail but by a SchemaError."""
    for candidate in (
        text,
        f"({text}) -> Array",
        f"(dtype d={text}, str s={text}) -> ()",
    ):
        try:
            schema = co.Schema.parse(candidate)
        except co.SchemaError:
            continue
        assert co.Schema.parse(str(schema)) == schema


# ---- coercion ----


class Level(enum.IntEnum):
    HIGH = 3


class Name(str):
    """A string that prints something else."""

    __slots__ = ()

    def __str__(self) -> str:
        return "something else"


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("float", 2, 2.0),
        ("float", np.float32(0.5), 0.5),
        ("float", np.array(2), 2.0),
        ("float", True, 1.0),
        ("int", True, 1),
        ("int", np.int8(3), 3),
        ("int", np.array(3), 3),
        ("int", Level.HIGH, 3),
        ("bool", 1, True),
        ("bool", 0, False),
        ("bool", np.True_, True),
        ("bool", np.array(1), True),
        ("complex", 1, 1 + 0j),
        ("complex", np.complex64(1j), 1j),
        ("Scalar", np.float64(2.0), 2.0),
        ("Scalar", np.array(3), 3),
        ("Scalar", 1j, 1j),
        ("Scalar", True, True),
        ("str", Name("text"), "text"),
        ("dtype", np.float32, np.dtype("float32")),
        ("dtype", "i8", np.dtype("int64")),
        ("dtype", float, np.dtype("float64")),
        ("device", "cuda:0", "cuda:0"),
        ("int?", None, None),
        ("int[]", (1, 2), [1, 2]),
        ("int[]", range(3), [0, 1, 2]),
        ("int[]", np.array([1, 2]), [1, 2]),
        ("int[]", [np.int64(1)], [1]),
        ("int[2]", 3, [3, 3]),
        ("float[]", (1, 2), [1.0, 2.0]),
        ("int[][]", ((1,), [2]), [[1], [2]]),
        ("(int, float)", [1, 2], (1, 2.0)),
    ],
    ids=repr,
)
def test_a_value_is_coerced(kind: str, value: Any, expected: Any) -> None:
    """What fits a type reaches the kernel as a plain Python value."""
    found = coerce(value, co.Schema.parse(f"({kind} x) -> ()").parameters[0].type)
    assert same_value(found, expected)


def test_a_tuple_annotation_gives_the_kernel_a_tuple() -> None:
    """`tuple[int, ...]` and `list[int]` are one schema type, and keep their class."""
    seen: list[Any] = []

    @co.custom_op("schema_test::both", mutates_args=())
    def both(x: co.Array, a: list[int], b: tuple[int, ...] = (1,)) -> None:
        seen.append((a, b))

    both(np.zeros(1), (1, 2), [3])
    both(np.zeros(1), [1])
    assert seen == [([1, 2], (3,)), ([1], (1,))]


def test_a_list_of_arrays_keeps_its_class_too() -> None:
    """Arrays come in a tuple where the annotation says so, whatever was passed."""
    seen: list[type] = []

    @co.custom_op("schema_test::arrays", mutates_args=())
    def arrays(xs: tuple[co.Array, ...], ys: list[co.Array]) -> None:
        seen.extend([type(xs), type(ys)])

    for _ in range(2):
        arrays([np.zeros(1)], (np.zeros(1),))
    assert seen == [tuple, list] * 2


def test_a_list_that_fits_stays_itself() -> None:
    """A list whose items need no change is not copied."""
    value = [1, 2]
    assert coerce(value, ListOf(Base("int"))) is value


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        ("int", 2.0, "expects int, got float 2.0"),
        ("int", np.float64(2.0), "expects int, got float64 of shape ()"),
        ("int", "1", "expects int, got str '1'"),
        ("int", None, "expects int, got None"),
        ("int", np.array([1]), "expects int, got ndarray of shape (1,)"),
        ("float", "1", "expects float, got str '1'"),
        ("float", 1j, "expects float, got complex 1j"),
        ("float", np.zeros(2), "expects float, got ndarray of shape (2,)"),
        ("float", 10**400, "expects float, got a number out of its range"),
        ("bool", 2, "expects bool, got int 2"),
        ("bool", 1.0, "expects bool, got float 1.0"),
        ("bool", np.float32(1), "expects bool, got float32 of shape ()"),
        ("str", b"a", "expects str, got bytes b'a'"),
        ("Scalar", "1", "expects Scalar, got str '1'"),
        ("dtype", "flot", "expects dtype, got str 'flot'"),
        ("dtype", 3, "expects dtype, got int 3"),
        ("dtype", None, "expects dtype, got None"),
        ("dtype", np.zeros(1), "expects dtype, got ndarray of shape (1,)"),
        ("device", 3, "is an unknown device 3; known: 'cpu', 'cuda'"),
        ("Generator", 3, "expects Generator, got int 3"),
        ("int[]", 3, "expects int[], a list, got int 3"),
        ("int[]", "12", "expects int[], a list, got str '12'"),
        ("int[]", {1}, "expects int[], a list, got set {1}"),
        ("int[]", [1, 2.5], "at index 1 expects int, got float 2.5"),
        ("int[][]", [[1], ["a"]], "at index 1 at index 0 expects int, got str 'a'"),
        ("int[2]", [1], "expects int[2], got 1 items"),
        ("(int, int)", [1], "expects (int, int), got 1 items"),
        ("(int, int)", 1, "expects (int, int), a tuple, got int 1"),
        (
            "Array[]",
            np.zeros((2, 2)),
            "expects Array[], a list, got ndarray of shape (2, 2)",
        ),
    ],
    ids=repr,
)
def test_a_value_that_does_not_fit_is_refused(kind: str, value: Any, why: str) -> None:
    """What does not fit a type is refused, with the value that was seen."""
    typed = co.Schema.parse(f"({kind} x) -> ()").parameters[0].type
    with pytest.raises(Mismatch) as caught:
        coerce(value, typed)
    assert str(caught.value) == why


CALLS = [
    ("int", 2),
    ("float", 2),
    ("complex", 1.0),
    ("bool", 1),
    ("Scalar", np.float32(1.0)),
    ("str", "a"),
    ("dtype", "f4"),
    ("int[]", (1, 2)),
]


@pytest.mark.parametrize(("kind", "value"), CALLS, ids=[kind for kind, _ in CALLS])
def test_both_paths_of_a_call_coerce_alike(kind: str, value: Any) -> None:
    """The generated call gives a kernel what coercion gives, on its fast path too."""
    seen: list[Any] = []
    schema = co.Schema.parse(f"(Array x, {kind} k) -> ()")
    op = co.custom_op(
        "schema_test::coerced",
        lambda x, k: seen.append(k),
        mutates_args=(),
        schema=str(schema),
    )
    for _ in range(2):
        op(np.zeros(1), value)
    op.dispatch(np.zeros(1), value)
    expected = coerce(value, schema.parameters[1].type)
    assert all(same_value(found, expected) for found in seen)
