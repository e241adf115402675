"""The fast way to read functions gives what `inspect` and `typing` give."""

from __future__ import annotations

import inspect
import typing
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.schema.infer import infer, outline_of
from customop.schema.schema import Schema


def one(x: np.ndarray) -> np.ndarray: ...
def two(x: np.ndarray, k: float = 2.0, /) -> None: ...
def three(x: co.Array, *, n: int, flag: bool = True) -> co.Array: ...
def four(x: np.ndarray, y: np.ndarray = None, *, z: str = "a") -> float: ...  # type: ignore[assignment]
def five(x, y: int = 3): ...  # type: ignore[no-untyped-def]
def nothing() -> None: ...


@pytest.mark.parametrize("fn", [one, two, three, four, five, nothing])
def test_outline_is_that_of_inspect(fn: Any) -> None:
    found = outline_of(fn)
    assert found is not None
    expected = inspect.signature(fn).parameters.values()
    assert [(p.name, p.kind, p.default) for p in found.parameters] == [
        (p.name, p.kind, p.default) for p in expected
    ]
    hints = typing.get_type_hints(fn)
    plain = {k: None if hint is type(None) else hint for k, hint in hints.items()}
    assert found.hints == plain


def stars(x: np.ndarray, *rest: int) -> None: ...
def listed(x: list[int]) -> None: ...
def unknown(x: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def wrong(x: "np.") -> None: ...  # type: ignore[syntax]  # noqa: F722


def wrapped(x: np.ndarray) -> None: ...


wrapped.__wrapped__ = one  # type: ignore[attr-defined]


@pytest.mark.parametrize("fn", [stars, listed, unknown, wrong, wrapped, np.sin, len])
def test_other_functions_have_none(fn: Any) -> None:
    assert outline_of(fn) is None


def _schema(fn: Any, mutates_args: Any = ()) -> Schema:
    return Schema.infer(fn, mutates_args, inspect.currentframe())


def test_equal_functions_have_one_schema() -> None:
    def other(x: np.ndarray) -> np.ndarray: ...

    assert _schema(one) is _schema(other)
    assert str(_schema(one, ["x"])) == "(Array(a!) x) -> Array"
    assert str(_schema(one)) == "(Array x) -> Array"


def test_equal_defaults_of_other_types_are_kept_apart() -> None:
    def of(value: Any) -> Any:
        def fn(x: np.ndarray, k: float = value) -> np.ndarray: ...

        return fn

    fns = [of(value) for value in (0.0, -0.0, 1, True, 1.0)]
    found = [repr(_schema(fn).parameters[1].default) for fn in fns]
    assert found == [repr(infer(fn, ())[0][1].default) for fn in fns]
    assert found[:2] == ["0.0", "-0.0"]


def test_text_names_what_is_around_the_function() -> None:
    """A class of the same name in a function is another class."""

    def inner(kind: type) -> str:
        K = kind  # noqa: N806

        def fn(x: np.ndarray, k: K) -> np.ndarray: ...

        return str(_schema(fn))

    assert inner(float) == "(Array x, float k) -> Array"
    assert inner(int) == "(Array x, int k) -> Array"


def test_annotations_that_were_changed() -> None:
    def fn(x: np.ndarray, y: int) -> np.ndarray: ...

    fn.__annotations__ = {"x": np.ndarray, "z": int, "return": np.ndarray}
    with pytest.raises(co.SchemaError, match="'y' has no annotation"):
        _schema(fn)
