"""The generated call: its fast path must agree with the slow path."""

from __future__ import annotations

import inspect
import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import customop as co
from customop.core.codegen import is_open

_numbers = itertools.count()
X = np.arange(6.0).reshape(2, 3)


def define(
    schema: str, fn: Callable[..., Any], written: tuple[str, ...] = (), **kwargs: Any
) -> co.Operator[..., Any]:
    """Make an operator with a new name."""
    name = f"codegen::op{next(_numbers)}"
    return co.custom_op(name, fn, mutates_args=written, schema=schema, **kwargs)


def seen(value: Any) -> str:
    """Describe a value by class and content; lists item by item."""
    if type(value) in (list, tuple):
        return f"{type(value).__name__}({', '.join(map(seen, value))})"
    if isinstance(value, np.ndarray):
        return f"{type(value).__name__} {value.dtype} {value.tolist()}"
    return f"{type(value).__name__} {value!r}"


def outcome(call: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[str, str]:
    """Return the result of a call, or the class and text of its error."""
    try:
        return "result", call(*args, **kwargs)
    except Exception as error:  # noqa: BLE001  # whatever it is, both paths must raise it
        return type(error).__name__, str(error)


# ---- both paths agree ----

# Schema type -> pairs of the value passed and the value that the kernel gets.
COERCIONS: dict[str, list[tuple[Any, Any]]] = {
    "int": [(1, 1), (True, 1), (np.int8(3), 3), (np.array(4), 4), (-(2**70), -(2**70))],
    "float": [
        (1.5, 1.5),
        (2, 2.0),
        (True, 1.0),
        (np.float32(0.5), 0.5),
        (math.inf, math.inf),
    ],
    "bool": [(True, True), (1, True), (0, False), (np.bool_(1), True)],
    "complex": [(1j, 1j), (2, 2 + 0j), (1.5, 1.5 + 0j), (np.complex64(2), 2 + 0j)],
    "str": [("a", "a"), ("", ""), (np.str_("b"), "b")],
    "Scalar": [(1.5, 1.5), (2, 2), (True, True), (2j, 2j), (np.float32(1), 1.0)],
    "dtype": [
        (np.float32, np.dtype("f4")),
        ("int8", np.dtype("i1")),
        (float, np.dtype(float)),
    ],
    "device": [("cpu", "cpu"), ("cuda:1", "cuda:1")],
    "int[]": [
        ([1, 2], [1, 2]),
        ((1, 2), [1, 2]),
        (range(2), [0, 1]),
        ([], []),
        (np.arange(2), [0, 1]),
    ],
    "float[]": [([1.0], [1.0]), ([1, np.float32(2)], [1.0, 2.0])],
    "bool[]": [([True, 0], [True, False])],
    "str[]": [(["a"], ["a"]), (("a", "b"), ["a", "b"])],
    "int[2]": [([1, 2], [1, 2]), (3, [3, 3])],
    "int[][]": [([[1], []], [[1], []]), (((1,), (2,)), [[1], [2]])],
    "int?": [(None, None), (2, 2), (np.int64(2), 2)],
    "float?": [(None, None), (2, 2.0)],
    "int[]?": [(None, None), ((1,), [1])],
    "int?[]": [([1, None], [1, None])],
    "dtype?": [(None, None), ("f4", np.dtype("f4"))],
    "(int, str)": [((1, "a"), (1, "a")), ([np.int8(1), "a"], (1, "a"))],
}
CASES = [
    pytest.param(kind, given, expected, id=f"{kind}-{i}")
    for kind, pairs in COERCIONS.items()
    for i, (given, expected) in enumerate(pairs)
]


@pytest.mark.parametrize(("kind", "given", "expected"), CASES)
def test_coercion(kind: str, given: Any, expected: Any) -> None:
    """Both paths pass the kernel the same value, of the class in the schema."""
    op = define(f"(Array x, {kind} v) -> str", lambda x, v: seen(v))
    calls = [op(X, given), op(X, given), op.call(X, v=given), op.dispatch(X, given)]
    assert calls == [seen(expected)] * 4


WRONG: dict[str, list[Any]] = {
    "int": [1.0, 1.5, "1", None, [1], np.float64(1), X],
    "float": ["a", None, 1j, [1.0], X],
    "bool": [2, 1.0, "True", None, np.float64(1)],
    "complex": ["1j", None, [1j]],
    "str": [1, None, b"a", ["a"]],
    "Scalar": ["1", None, [1.0], X],
    "dtype": ["nope", None, 3],
    "device": ["gpu", None, 3, "cuda:x"],
    "int[]": [1, [1.0], ["1"], None, "12", {1}, [None]],
    "int[2]": [[1], [1, 2, 3], "ab"],
    "str[]": ["abc", [1]],
    "(int, str)": [(1,), (1, 2), ("a", 1), 3],
    "Array": [1.0, None, "a", [1.0], [X]],
    "Array[]": [X, [1.0], [None], None, 3, [X, "a"]],
    "Array?": [1.0, "a", [X]],
    "Array|Scalar": ["a", None, [1.0]],
}
REFUSED = [
    pytest.param(kind, value, id=f"{kind}-{i}")
    for kind, values in WRONG.items()
    for i, value in enumerate(values)
]


@pytest.mark.parametrize(("kind", "value"), REFUSED)
def test_refusal(kind: str, value: Any) -> None:
    """A wrong argument raises the same ArgumentError on both paths."""
    op = define(f"(Array x, {kind} v) -> int", lambda x, v: 1)
    before = outcome(op, X, value)
    fits = {"Array": X, "Array[]": [X], "Array?": X, "Array|Scalar": X}
    op(X, fits[kind] if kind in fits else COERCIONS[kind][0][0])
    assert before[0] == "ArgumentError"
    assert f"{op.qualname}: argument 'v'" in before[1]
    assert outcome(op, X, value) == before
    assert outcome(op.dispatch, X, value) == before
    assert outcome(op.call, X, v=value) == before


ANYTHING = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.floats(allow_nan=False),
    st.complex_numbers(allow_nan=False),
    st.text(max_size=2),
    st.lists(st.integers(0, 3), max_size=3),
    st.tuples(st.integers(0, 3), st.integers(0, 3)),
    st.sampled_from(
        [
            X,
            X[0],
            np.float32(2),
            np.int8(1),
            np.array(3),
            np.array(2.5),
            np.arange(3),
            np.zeros(2).view(type("Sub", (np.ndarray,), {})),
            [X, X],
            [X, None],
            (X,),
            [],
            np.float64,
            "float32",
            "cpu",
            np.dtype(int),
            object(),
        ]
    ),
)
KINDS = [
    *COERCIONS,
    "Array",
    "Array?",
    "Array[]",
    "Array?[]",
    "Array[]?",
    "Array|Scalar",
]
OPERATORS = {
    kind: define(
        f"(Array x, {kind} v, float k=2.0) -> str", lambda x, v, k=2.0: seen([v, k])
    )
    for kind in KINDS
}


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None)
@given(x=ANYTHING, v=ANYTHING, k=ANYTHING)
def test_paths_agree(kind: str, x: Any, v: Any, k: Any) -> None:
    """For any values, both paths give the same result or the same error."""
    op = OPERATORS[kind]
    assert outcome(op.call, x, v, k) == outcome(op.dispatch, x, v, k)
    assert outcome(op.call, X, v) == outcome(op.dispatch, X, v)


# ---- kinds of parameter ----


def positional_only(x, k=1.0, /):
    return x * k


def keyword_only(x, *, y, k=1.0):
    return x * k + y


def everything(a, b=2, /, c=3.0, *, d, e="e", f=None):
    return f"{seen(a)} {b} {c} {seen(d)} {e} {seen(f)}"


def test_positional_only() -> None:
    """A positional-only parameter cannot be passed by name."""
    op = define("(Array x, float k=1.0, /) -> Array", positional_only)
    for call in (op, op.call, op.dispatch):
        np.testing.assert_array_equal(call(X, 3), 3 * X)
        with pytest.raises(TypeError, match="positional-only"):
            call(x=X)


def test_keyword_only_array() -> None:
    """A keyword-only array is guarded like other arrays."""
    op = define("(Array x, *, Array y, float k=1.0) -> Array", keyword_only)
    for call in (op, op, op.call, op.dispatch):
        np.testing.assert_array_equal(call(X, y=X, k=2), 3 * X)
        with pytest.raises(TypeError):
            call(X, X)
    with pytest.raises(co.ArgumentError, match="'y' expects Array"):
        op(X, y="a")


def test_every_kind_of_parameter() -> None:
    """Parameters of all kinds together keep their order and defaults."""
    schema = "(Array a, int b=2, /, float c=3.0, *, Array d, str e='e', Array? f=None) -> str"
    op = define(schema, everything)
    assert str(inspect.signature(op.call)) != ""
    for call in (op, op, op.call, op.dispatch):
        assert call(X, d=X) == everything(X, d=X)
        assert call(X, 5, d=X, f=X, e="g") == everything(X, 5, d=X, f=X, e="g")
        assert call(X, 5, 6, d=X) == everything(X, 5, 6.0, d=X)
        with pytest.raises(TypeError):
            call(X, b=3, d=X)


DEFAULTS = {
    "int": "-3",
    "float": "inf",
    "float?": "None",
    "bool": "True",
    "complex": "(1+2j)",
    "str": '"it\'s"',
    "Scalar": "2",
    "dtype": "float32",
    "device": '"cpu"',
    "int[]": "[1, 2]",
    "int[2]": "[1, 1]",
    "str[]": '["a", "b"]',
    "int[][]": "[[1], []]",
    "Array?": "None",
    "Array[]?": "None",
    "Array|Scalar": "1.5",
    "(int, str)": '(1, "a")',
}


@pytest.mark.parametrize("kind", DEFAULTS)
def test_default(kind: str) -> None:
    """A default reaches the kernel like the same value passed explicitly."""
    op = define(f"(Array x, {kind} v={DEFAULTS[kind]}) -> str", lambda x, v: seen(v))
    calls = {op(X), op(X), op.call(X), op.dispatch(X)}
    assert len(calls) == 1
    assert calls == {op(X, op.schema.parameters[1].default)}


def test_nan_default() -> None:
    """A default of nan works, although nan does not equal itself."""
    op = define("(Array x, float v=nan) -> bool", lambda x, v: math.isnan(v))
    assert [op(X), op(X), op.dispatch(X)] == [True] * 3


def test_list_default_is_fresh_for_every_call() -> None:
    """A kernel that changes a list does not change the default."""
    op = define("(Array x, int[] v=[1]) -> int", lambda x, v: v.append(2) or len(v))
    assert [op(X), op(X), op.dispatch(X)] == [2, 2, 2]


# ---- arrays in different places ----


def test_no_array() -> None:
    """An operator with only numbers has a fast path."""
    op = define("(int n, float k=2.0) -> float", lambda n, k=2.0: n * k)
    assert [op(2), op(3), op.dispatch(3), op(3, 1)] == [4.0, 6.0, 6.0, 3.0]
    assert is_open(op.call)


def test_no_parameter() -> None:
    """An operator may have no parameters."""
    op = define("() -> int", lambda: 7)
    assert [op(), op(), op.call(), op.dispatch()] == [7] * 4


def test_many_arrays() -> None:
    """An operator can take sixty arrays."""
    names = [f"x{i}" for i in range(60)]
    total = eval(f"lambda {', '.join(names)}: {' + '.join(names)}")
    op = define(f"({', '.join(f'Array {n}' for n in names)}) -> Array", total)
    for call in (op, op, op.dispatch):
        np.testing.assert_array_equal(call(*[X] * 60), 60 * X)
    with pytest.raises(co.ArgumentError, match="'x59' expects Array"):
        op(*[X] * 59, 3.0)


@pytest.mark.parametrize("count", [0, 1, 2, 9])
def test_list_of_arrays(count: int) -> None:
    """A list or tuple of arrays arrives as a list, even if it is empty."""
    op = define("(Array[] many) -> str", lambda many: seen(many))
    expected = seen([X] * count)
    for call in (op, op, op.call, op.dispatch):
        assert call([X] * count) == expected
        assert call((X,) * count) == expected


def test_optional_array() -> None:
    """None for an optional array uses the fast path."""
    op = define(
        "(Array x, Array? y=None) -> Array", lambda x, y: x if y is None else x + y
    )
    co.config.checks = "never"
    for call in (op, op, op.dispatch):
        np.testing.assert_array_equal(call(X), X)
        np.testing.assert_array_equal(call(X, None), X)
        np.testing.assert_array_equal(call(X, y=X), 2 * X)


@pytest.mark.parametrize("operand", [2, 2.5, True, 1j, np.float32(2), np.array(3.0), X])
def test_array_or_number(operand: Any) -> None:
    """Array|Scalar accepts both; a Python number stays one, so that NumPy promotes it."""
    op = define("(Array x, Array|Scalar y) -> Array", lambda x, y: x * y)
    x = np.arange(3, dtype=np.float32) if np.ndim(operand) == 0 else X
    for call in (op, op, op.call, op.dispatch):
        out = call(x, operand)
        np.testing.assert_array_equal(out, x * operand)
    if isinstance(operand, int | float):
        assert op(x, operand).dtype == np.float32


def test_annotation_array_or_float() -> None:
    """`co.Array | float` is the annotation for an array or a number."""

    @co.custom_op("codegen::operand", mutates_args=())
    def operand(x: co.Array, y: co.Array | float = 1.0) -> co.Array:
        return x * y

    np.testing.assert_array_equal(operand(X), X)
    np.testing.assert_array_equal(operand(X, X), X * X)
    np.testing.assert_array_equal(operand(X, 3), 3 * X)


@pytest.mark.parametrize("checks", ["first", "always", "never"])
def test_written_list(checks: str) -> None:
    """Kernels can write to arrays in a list on both paths."""
    co.config.checks = checks

    def add_one(many: list[np.ndarray]) -> None:
        for x in many:
            np.add(x, 1, out=x)

    op = define("(Array(a!)[] many) -> ()", add_one, ("many",))
    for call in (op, op, op.dispatch):
        many = [np.zeros(2), np.zeros(3)]
        call(many)
        call(tuple(many))
        assert [x.tolist() for x in many] == [[2.0] * 2, [2.0] * 3]


# ---- names ----

NAMES = [
    *("self", "op", "args", "kwargs", "out", "fn", "cls", "values", "call", "dispatch"),
    *("type", "list", "float", "int", "print", "numbers", "__class__", "match", "_"),
    *("_float", "_numbers", "_coerce_v", "_default_v", "_never", "_out"),
    *("_after_write", "_all_arrays", "_str", "__float", "kernel", "array", "modes"),
]


@pytest.mark.parametrize("name", NAMES)
def test_name_of_a_parameter(name: str) -> None:
    """A parameter may have any name, also one that the generated code uses."""
    fn = eval(f"lambda {name}, v, w=None, *, k: {name} * v * k")
    op = define(
        f"(Array {name}, float v, Array[]? w=None, *, float k=inf) -> Array", fn
    )
    for call in (op, op, op.dispatch):
        np.testing.assert_array_equal(call(X, 2, k=1), 2 * X)
        np.testing.assert_array_equal(call(**{name: X}, v=2.0, k=3.0), 6 * X)


@pytest.mark.parametrize("name", NAMES)
def test_name_of_a_number(name: str) -> None:
    """A number with such a name is guarded and converted."""
    fn = eval(f"lambda x, {name}=1.5: x * {name}")
    op = define(f"(Array x, float {name}=1.5) -> Array", fn)
    for call in (op, op, op.dispatch):
        np.testing.assert_array_equal(call(X), 1.5 * X)
        np.testing.assert_array_equal(call(X, **{name: 2}), 2 * X)


@pytest.mark.parametrize("name", NAMES)
def test_name_of_an_operator(name: str) -> None:
    """An operator may have such a name, or the name of its own parameter."""
    fn = eval(f"lambda {name}, k=2: {name} * k")
    schema = f"(Array {name}, int k=2) -> Array"
    if name == "__class__":  # of every object, so that `ops` cannot find it
        with pytest.raises(co.RegistrationError, match="ops could not find it"):
            co.define(f"codegen_names::{name}", schema)
        return
    op = co.custom_op(f"codegen_names::{name}", fn, mutates_args=(), schema=schema)
    for call in (op, op, op.dispatch):
        np.testing.assert_array_equal(call(X, np.int64(3)), 3 * X)


@pytest.mark.parametrize(
    "name",
    [
        "_array",
        "_kernel",
        "_dispatch",
        "_op",
        "_modes",
        "_type",
        "__debug__",
        "None",
        "if",
    ],
)
def test_reserved_name(name: str) -> None:
    """The few names that the generated code needs are refused at definition."""
    with pytest.raises(co.SchemaError, match=name):
        define(f"(Array x, float {name}=1.0) -> Array", lambda *args: args[0])


# ---- the fast path ----


def test_fast_path_calls_the_kernel_with_what_was_passed() -> None:
    """Values of the exact classes are not copied or converted."""
    got: list[Any] = []
    op = define(
        "(Array x, Array[] many, float k) -> int",
        lambda x, many, k: got.extend([x, many, k]) or 1,
    )
    many, k = [X], 2.5
    op(X, many, k)
    got.clear()
    op(X, many, k)
    assert got[0] is X
    assert got[1] is many
    assert got[2] is k


def test_open_mode_closes_the_fast_path() -> None:
    """While a mode is open, every call goes through dispatch."""
    op = define("(Array x) -> Array", lambda x: x * 2)
    op.register_fake(lambda x: co.fake_like(x))
    op(X)
    with co.FakeMode():
        assert isinstance(op(X), co.FakeArray)
    assert isinstance(op(X), np.ndarray)


def test_random_operators_have_no_fast_path() -> None:
    """Random operators have no fast path: vmap must see all their calls."""
    seeded = co.Tag.nondeterministic_seeded
    op = define("(int n) -> Array", lambda n: np.ones(n), tags=seeded)
    op(1)
    op(1)
    with pytest.raises(co.VmapError, match="random"):
        co.vmap(lambda x: x + op(1))(X)


def test_duplicate_and_unknown_arguments() -> None:
    """Missing and unknown arguments raise Python's errors with the operator's name."""
    op = define("(Array x, float k=1.0) -> Array", lambda x, k=1.0: x * k)
    with pytest.raises(
        TypeError, match=r"op\d+\(\) got multiple values for argument 'x'"
    ):
        op(X, x=X)
    with pytest.raises(TypeError, match=r"op\d+\(\) got an unexpected keyword .*'j'"):
        op(X, j=1)
