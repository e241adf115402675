"""A schema string, or a kernel for it, against the annotations of a function."""

import types
import typing
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest

import customop as co
from customop.schema.agreement import contradiction
from customop.schema.schema import Schema


class Side(Enum):
    LEFT = "left"


class Pair(NamedTuple):
    first: np.ndarray
    second: np.ndarray


@pytest.fixture
def lib() -> Iterator[co.Library]:
    with co.Library("agree", "FRAGMENT") as made:
        yield made


def scaled(x: np.ndarray, n: int) -> np.ndarray:
    return x * n


@pytest.mark.parametrize(
    ("schema", "what", "marks"),
    [
        ("(Array x, str n) -> Array",
         "parameter 'n' is str in the schema, and int in its annotation",
         "          ^^^^^"),
        ("(Array x, float n) -> Array",
         "parameter 'n' is float in the schema, and int in its annotation",
         "          ^^^^^^^"),
        ("(Array? x, int n) -> Array",
         "parameter 'x' is Array? in the schema, and Array in its annotation",
         " ^^^^^^^^"),
        ("(Array[] x, int n) -> Array",
         "parameter 'x' is Array[] in the schema, and Array in its annotation",
         " ^^^^^^^^^"),
        ("(Array x, int n) -> (Array, Array)",
         "the result is (Array, Array) in the schema, and Array in its annotation",
         "                    ^^^^^^^^^^^^^^"),
        ("(Array x, int n) -> ()",
         "the result is () in the schema, and Array in its annotation",
         "                    ^^"),
    ],
)  # fmt: skip
def test_a_schema_that_contradicts_its_function_is_refused(
    schema: str, what: str, marks: str
) -> None:
    """The kernel gets what the schema says, which is not what it was written for."""
    with pytest.raises(co.SchemaError) as caught:
        co.custom_op("contradicts::scaled", scaled, mutates_args=(), schema=schema)
    assert str(caught.value) == (
        f"contradicts::scaled: {what}\n"
        f"  {schema}\n"
        f"  {marks}\n"
        f"  at {__file__}:{scaled.__code__.co_firstlineno}\n"
        "  do: write the same type in both places, or leave out the schema"
    )
    assert not hasattr(co.ops, "contradicts")


def test_one_of_several_results_is_named() -> None:
    """Its place says which."""

    def fn(x: np.ndarray) -> tuple[np.ndarray, int]: ...

    with pytest.raises(co.SchemaError) as caught:
        co.custom_op(
            "agree::f", fn, mutates_args=(), schema="(Array x) -> (Array, str)"
        )
    assert caught.value.what == (
        "agree::f: result 1 is str in the schema, and int in its annotation"
    )


def test_a_kernel_that_contradicts_the_schema_is_refused(lib: co.Library) -> None:
    """Kernels, fake kernels and bodies; whether they or the schema come first."""
    lib.define("f(Array x, float k) -> Array")
    op = co.ops.agree.f.default

    def wrong(x: np.ndarray, k: int) -> np.ndarray: ...

    text = (
        "agree::f: the {} contradicts the schema: parameter 'k' is float in the schema,"
        " and int in its annotation\n"
        "  agree::f(Array x, float k) -> Array\n"
        "                    ^^^^^^^\n"
        f"  at {__file__}:{wrong.__code__.co_firstlineno}\n"
        "  do: write the type of the schema, or no annotation"
    )
    ways: list[tuple[Callable[[], Any], str]] = [
        (lambda: op.register_kernel("cpu", wrong), "kernel for 'cpu'"),
        (lambda: op.register_fake(wrong), "fake kernel"),
        (lambda: lib.impl("f", wrong), "composite body"),
        (lambda: co.impl("agree::f", "CPU", wrong), "kernel for 'cpu'"),
    ]
    for register, name in ways:
        with pytest.raises(co.RegistrationError) as caught:
            register()
        assert str(caught.value) == text.format(name)
    lib.impl("later", wrong, "CPU")
    with pytest.raises(co.RegistrationError, match="contradicts the schema"):
        lib.define("later(Array x, float k) -> Array")
    assert "later" not in dir(co.ops.agree)


def test_the_parameters_of_a_kernel_may_have_other_names(lib: co.Library) -> None:
    """Those by position are compared by position, and keyword-only ones by name."""
    lib.define("f(Array x, int k, *, str s) -> Array")
    op = co.ops.agree.f.default

    def good(_x: np.ndarray, k: int, /, *, s: str) -> np.ndarray: ...
    def wrong(_x: int, k: int, /, *, s: str) -> np.ndarray: ...
    def also(x: np.ndarray, k: int, *, s: int) -> np.ndarray: ...

    op.register_kernel("cpu", good)
    for fn, name in [(wrong, "'x'"), (also, "'s'")]:
        with pytest.raises(co.RegistrationError, match=f"parameter {name} is"):
            op.register_kernel("cpu", fn)


def test_what_says_nothing_contradicts_nothing() -> None:
    """A schema may be given because annotations cannot make one."""
    schema = "(Array x, Scalar k, int[] shape) -> Array"

    def fn(x: Any, k: object, shape: set[int]) -> np.float64: ...
    def gone(x: "Missing", k: "", shape: list["Missing"]) -> "Missing": ...  # noqa: F722, F821
    def raising(x: "0[0]", k: "1 / 0", shape: "int.a") -> np.ndarray: ...

    for i, given in enumerate((fn, gone, raising)):
        op = co.custom_op(f"agree::f{i}", given, mutates_args=(), schema=schema)
        assert str(op.schema) == schema


def test_a_callable_without_a_signature_says_nothing() -> None:
    """As builtins, which have none; here it has annotations besides."""

    class Odd:
        __annotations__ = {"x": int}
        __signature__ = "none"

        def __call__(self, x: int) -> int: ...

    op = co.custom_op("agree::odd", Odd(), mutates_args=(), schema="(Array x) -> Array")
    assert str(op.schema) == "(Array x) -> Array"


def test_a_class_of_the_function_around_is_known() -> None:
    """Its annotation is text here, and its name only that function has."""

    class Local(Enum):
        ONE = 1

    def fn(x: "np.ndarray", side: "Local") -> np.ndarray: ...

    with pytest.raises(co.SchemaError, match=r"parameter 'side' is int in the schema"):
        co.custom_op(
            "agree::f", fn, mutates_args=(), schema="(Array x, int side) -> Array"
        )


# ---- all pairs of types, with values as the oracle ----

A = np.ones(2)
# Annotation -> values of it, as a kernel could get them.
VALUES: dict[Any, list[Any]] = {
    np.ndarray: [A],
    np.ndarray | None: [A, None],
    list[np.ndarray]: [[], [A], [A, A, A]],
    list[np.ndarray | None]: [[A, None], [A, A, A]],
    tuple[np.ndarray, np.ndarray]: [(A, A)],
    dict[str, np.ndarray]: [{"a": A}],
    Pair: [Pair(A, A)],
    bool: [True],
    int: [2, 7],
    float: [0.5],
    complex: [1j],
    co.Scalar: [True, 2, 0.5, 1j],
    str: ["c", "a", ""],
    int | None: [2, 7, None],
    list[int]: [[1], [1, 2, 3]],
    list[float]: [[0.5], [0.5, 1.5, 2.5]],
    tuple[int, int]: [(1, 2)],
    tuple[int, str]: [(1, "a")],
    dict[str, float]: [{"a": 0.5}],
    Literal["a", "b"]: ["a", "b"],
    Literal["a"]: ["a"],
    Literal[1, 2]: [1, 2],
    np.dtype: [np.dtype("f4")],
    np.random.Generator: [np.random.default_rng(0)],
    Side: [Side.LEFT],
}
_TOWER = {float: (bool, int, float), complex: (bool, int, float, complex)}


def is_value(value: Any, annotation: Any) -> bool:
    """Whether type checkers let a value have this annotation; sequences are lists."""
    origin, items = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is types.UnionType:
        return any(is_value(value, item) for item in items)
    if origin is Literal:
        return any(type(value) is type(item) and value == item for item in items)
    if origin is None:
        return isinstance(value, _TOWER.get(annotation, annotation))
    if not isinstance(value, dict if origin is dict else list | tuple):
        return False
    if origin is tuple:
        return len(value) == len(items) and all(map(is_value, value, items))
    parts = value.values() if isinstance(value, dict) else value
    return all(is_value(part, items[-1]) for part in parts)


def _function(annotation: Any, result: Any) -> Any:
    def fn(x: Any) -> Any: ...

    fn.__annotations__ = {"x": annotation, "return": result}
    return fn


@pytest.mark.parametrize("given", VALUES, ids=str)
def test_a_parameter_takes_all_values_of_the_schema(given: Any) -> None:
    """There is a contradiction where some value of the schema is not of the annotation."""
    schema = Schema.infer(_function(given, None))
    for annotation in VALUES:
        found = contradiction(_function(annotation, None), schema)
        fits = all(is_value(value, annotation) for value in VALUES[given])
        assert (found is None) is fits, (annotation, found)


@pytest.mark.parametrize("wanted", VALUES, ids=str)
def test_the_contract_of_results_decides_what_may_be_annotated(wanted: Any) -> None:
    """No contradiction where a call accepts all values of the annotation."""
    for annotation, values in VALUES.items():
        fn = _function(annotation, annotation)
        schema = str(Schema.infer(_function(annotation, wanted)))
        found = contradiction(fn, Schema.parse(schema))
        accepted = [_accepts(schema, value) for value in values]
        if all(accepted):
            assert found is None, (schema, found)
        elif not any(accepted):
            assert found is not None, (schema, annotation)


def _accepts(schema: str, value: Any) -> bool:
    """Whether a call may return a copy of its argument, by its schema alone."""
    op = co.define("agree::any", schema)
    copied = np.copy if isinstance(value, np.ndarray) else _copy
    op.register_kernel(None, lambda x: copied(x))
    try:
        op(value)
    except co.ContractError:
        return False
    return True


def _copy(value: Any) -> Any:
    if isinstance(value, Pair):
        return Pair(*map(np.copy, value))
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_copy(item) for item in value)
    return np.copy(value) if isinstance(value, np.ndarray) else value
