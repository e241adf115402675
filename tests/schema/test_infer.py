"""Schemas inferred from type hints."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Optional

import numpy as np
import numpy.typing as npt
import pytest

import customop as co

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
    """Bound arguments and `self` are not parameters."""
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
    """Type parameters of a function count as their bounds, in strings too."""
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
        ("list[int]", [1], CHANGES, "write the default (1,)"),
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


def test_a_generator_is_not_a_default() -> None:
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
    """Each written argument has its own letter, also inside lists."""
    assert inferred(writes, mutates_args) == text


def test_mutates_args_may_be_a_generator() -> None:
    """Names may come from anything that is iterated once."""
    names = (name for name in ["x"])
    op = co.custom_op("schema_test::writes", writes, mutates_args=names)
    assert op.schema.written == ("x",)
