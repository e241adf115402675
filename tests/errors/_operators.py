"""Operators, functions and lines that the messages of several files share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, Optional

import numpy as np
import pytest

import customop as co

X = np.array([1.0, 2.0])
XS = [X]

Row = tuple[Any, type, str]


def at(fn: Callable[..., Any]) -> str:
    """File and line of a function."""
    return f"{fn.__code__.co_filename}:{fn.__code__.co_firstlineno}"


def caught(act: Callable[[], Any]) -> BaseException:
    with pytest.raises(BaseException) as found:
        act()
    return found.value


def scaled(x: np.ndarray, k: float = 2.0, *, shift: float = 0.0) -> np.ndarray:
    return x * k + shift


op = co.custom_op("errors_test::scaled", scaled, mutates_args=(), device_types="cpu")
SCALED = "errors_test::scaled(Array x, float k=2.0, *, float shift=0.0) -> Array"


def plain(x: np.ndarray) -> np.ndarray:
    return x.copy()


plain_op = co.custom_op("errors_test::plain", plain, mutates_args=())
PLAIN = "errors_test::plain(Array x) -> Array"


def every(
    x: co.Array,
    xs: list[co.Array],
    n: int = 1,
    b: bool = True,
    s: str = "a",
    d: co.DType = np.float32,
    v: co.Device = "cpu",
    shape: list[int] = (1,),  # type: ignore[assignment]
    o: co.Array | None = None,
    c: co.Scalar = 1,
) -> co.Array:
    return x + 0


every_op = co.custom_op("errors_test::every", every, mutates_args=())


def written(x: np.ndarray) -> None:
    x += 1


written_op = co.custom_op("errors_test::written", written, mutates_args=("x",))
WRITTEN = "errors_test::written(Array(a!) x) -> ()"


def zeros(n: int, device: co.Device = "cpu") -> np.ndarray:
    return np.zeros(n)


zeros_op = co.custom_op(
    "errors_test::zeros", zeros, mutates_args=(), device_types="cpu"
)
ZEROS = 'errors_test::zeros(int n, device device="cpu") -> Array'


def other(y: Any) -> Any: ...
def few(x: Any) -> Any: ...
def many(x: Any, k: Any, z: Any, *, shift: Any) -> Any: ...
def no_shift(x: Any, k: Any) -> Any: ...
def misspelt(x: Any, k: Any, *, shfit: Any) -> Any: ...
def fake_one(x: Any) -> Any: ...
def fake_two(x: Any) -> Any: ...
def bad_setup(ctx: Any, inptus: Any, output: Any) -> None: ...
def unsaved(ctx: Any, g: Any) -> Any:
    return g * ctx.saved_arrays[0]


def short_setup(ctx: Any, inputs: Any) -> None: ...
def unannotated(x, y: int) -> None: ...
def unreturned(x: int): ...
def starred(*xs: int) -> None: ...
def literal(x: Literal["a", 1]) -> None: ...
def literal_result(x: int) -> Literal["a", 1]: ...
def unknown_name(x: Missing) -> None: ...  # type: ignore[name-defined]  # noqa: F821
def mixed(max: int, x: int, y: co.Array) -> None: ...  # noqa: A002
def none_default(x: int = None) -> None: ...  # type: ignore[assignment]  # noqa: RUF013
def optional(x: Optional[int]) -> None: ...  # noqa: UP045


class Holder:
    def method(self, x: co.Array) -> co.Array: ...  # type: ignore[empty-body]


def define(name: str, fn: Any, **kwargs: Any) -> Any:
    return lambda: co.custom_op(name, fn, **{"mutates_args": (), **kwargs})


NAME = (
    '\n  do: write "namespace::name", or "namespace::name.overload", in ASCII letters,'
    " digits and underscores"
)
SUPPORTED = (
    "  supported: Array (or a class of arrays), bool, int, float, complex, str, Scalar,"
    " DType, Device, np.random.Generator, Literal, Enum, frozen dataclasses, NamedTuple,"
    " TypedDict, and Optional, list, Sequence, tuple and dict[str, ...] of these"
)
EXAMPLE = '  do: write it like "(Array x, int y=1, *, float? z=None) -> Array"'
AGREE = "  do: use the names and defaults of the schema, in its order, with its '*'"
WRITES = "  do: make them agree: 'Array(a!) x' is an array that is written"
TAGS = "\n  do: use one of " + ", ".join(str(tag) for tag in co.Tag)
KNOWN = "\n  known: 'cpu', 'cuda'\n  do: use a known one, or register_array_type first"
DEVICES = '\n  do: write "cpu", ("cpu", "cuda"), or None for all kinds'
GIVE = 'give the schema as a string: schema="(Array x) -> Array"'


class NoSignature:
    __signature__ = 3  # what `inspect` cannot read

    def __call__(self, x: Any) -> Any: ...

    def __repr__(self) -> str:
        return "<max>"


NOT_A_FUNCTION = "pass a function, or use the method as a decorator"
