"""Definitions of operators that raise when the program runs."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

import customop as co

F64 = npt.NDArray[np.float64]
T = TypeVar("T")


class Mode(enum.Enum):
    FAST = 1


@dataclass
class Loose:
    rate: float


@dataclass(frozen=True)
class Holder:
    names: set[str]


@dataclass(frozen=True)
class Window:
    taps: F64
    mode: Mode = Mode.FAST


class Pair(NamedTuple):
    left: F64
    right: F64


def as_it_is(x: F64) -> F64:
    return x


def with_default(x: Any, k: Any = 2.0) -> Any:
    return x


# ---- names ----

co.custom_op("scale", as_it_is, mutates_args=())  # plugin: customop-name
co.custom_op("my-lib::scale", as_it_is, mutates_args=())  # plugin: customop-name
co.custom_op("mylib::a.b.c", as_it_is, mutates_args=())  # plugin: customop-name
co.custom_op("mylib::", as_it_is, mutates_args=())  # plugin: customop-name
co.custom_op("mylib::class", as_it_is, mutates_args=())  # plugin: customop-schema
co.define("scale", "(Array x) -> Array")  # plugin: customop-name


@co.custom_op("mylib:scale", mutates_args=())  # plugin: customop-name
def one_colon(x: F64) -> F64:
    return x


# ---- annotations ----


@co.custom_op("plugin_fail::a0", mutates_args=())
def of_any(x: F64, k: Any) -> F64:  # plugin: customop-schema
    return x


@co.custom_op("plugin_fail::a1", mutates_args=())
def of_mapping(x: F64, k: dict[int, float]) -> F64:  # plugin: customop-schema
    return x


@co.custom_op("plugin_fail::a2", mutates_args=())
def of_function(x: F64, k: Callable[[float], float]) -> F64:  # plugin: customop-schema
    return x


@co.custom_op("plugin_fail::a3", mutates_args=())
def of_iterable(x: F64, k: Iterable[int]) -> F64:  # plugin: customop-schema
    return x


@co.custom_op("plugin_fail::a4", mutates_args=())
def of_bytes(x: F64, k: bytes | None = None) -> F64:  # plugin: customop-schema
    return x


@co.custom_op("plugin_fail::a5", mutates_args=())
def of_number(x: F64, k: np.float32) -> F64:  # plugin: customop-schema
    return x


@co.custom_op("plugin_fail::a6", mutates_args=())
def of_likeness(x: npt.ArrayLike) -> F64:  # plugin: customop-schema
    return np.asarray(x, np.float64)


@co.custom_op("plugin_fail::a7", mutates_args=())
def of_loose(x: F64, k: Loose) -> F64:  # plugin: customop-schema
    return x


@co.custom_op("plugin_fail::a8", mutates_args=())
def of_holder(x: F64, k: Sequence[Holder]) -> F64:  # plugin: customop-schema
    return x


@co.custom_op("plugin_fail::a9", mutates_args=())
def of_variable(x: F64, k: T) -> T:  # plugin: customop-schema
    return k


@co.custom_op("plugin_fail::a10", mutates_args=())
def of_options(x: F64, k: Window | Mode) -> F64:  # plugin: customop-schema
    return x


@co.custom_op("plugin_fail::a11", mutates_args=())
def of_choices(x: F64, k: Literal["a", 1]) -> F64:  # plugin: customop-schema
    return x


@co.custom_op("plugin_fail::a12", mutates_args=())  # plugin: customop-schema
def of_result(x: F64) -> object:
    return x


@co.custom_op("plugin_fail::a13", mutates_args=())
def of_many(*x: F64) -> F64:  # plugin: customop-schema
    return x[0]


@co.custom_op("plugin_fail::a14", mutates_args=())
def of_names(x: F64, **k: float) -> F64:  # plugin: customop-schema
    return x


class Layer:
    @co.custom_op("plugin_fail::a15", mutates_args=())
    def method(self, x: F64) -> F64:  # plugin: customop-schema
        return x


# ---- defaults ----


@co.custom_op("plugin_fail::d0", mutates_args=())
def mutable(x: F64, k: list[int] = [1]) -> F64:  # noqa: B006  # plugin: customop-schema
    return x


@co.custom_op("plugin_fail::d1", mutates_args=())
def not_one(x: F64, k: Literal["a", "b"] = "c") -> F64:
    # by mypy: assignment
    # by pyright: reportArgumentType
    # by plugin: assignment, customop-schema
    return x


# ---- parameters that are written ----


@co.custom_op("plugin_fail::m0", mutates_args=("y",))  # plugin: customop-mutates
def no_parameter(x: F64) -> None:
    x[0] = 1.0


@co.custom_op("plugin_fail::m1", mutates_args=["x", "k"])  # plugin: customop-mutates
def no_array(x: F64, k: float) -> None:
    x[0] = k


co.custom_op("plugin_fail::m2", as_it_is, mutates_args="x")  # plugin: customop-mutates
co.custom_op(
    "plugin_fail::m3",
    as_it_is,
    mutates_args=("x",),  # plugin: customop-mutates
    schema="(Array x) -> Array",
)

# ---- schema strings ----

co.custom_op(
    "plugin_fail::s0",
    as_it_is,
    mutates_args=(),
    schema="(Arry x) -> Array",  # plugin: customop-schema
)
co.custom_op(
    "plugin_fail::s1",
    as_it_is,
    mutates_args=(),
    schema="(Array y) -> Array",  # plugin: customop-schema
)
co.custom_op(
    "plugin_fail::s2",
    with_default,
    mutates_args=(),
    schema="(Array x, float k=1.0) -> Array",  # plugin: customop-schema
)
co.define("plugin_fail::s3", "(Array x, int k=) -> Array")  # plugin: customop-schema
co.define("plugin_fail::s4", "s4(Array x) -> Array")  # plugin: customop-schema
library = co.Library("plugin_fail", "FRAGMENT")
library.define("s5(Array x) -> Arrays")  # plugin: customop-schema
library.define("other::s6(Array x) -> Array")  # plugin: customop-schema

# ---- kernels for kinds of array that no argument selects ----


@co.custom_op("plugin_fail::f0", mutates_args=(), device_types=("cpu", "cuda"))
# by plugin: customop-device
def zeros(n: int, device: str = "cpu") -> F64:
    return np.zeros(n)


# ---- tags that exclude each other ----


@co.custom_op(
    "plugin_fail::t0",
    mutates_args=(),
    tags=(co.Tag.pointwise, co.Tag.reduction),  # plugin: customop-schema
)
def both(x: F64, axis: int) -> F64:
    return x


# ---- names used twice ----


@co.custom_op("plugin_fail::twice", mutates_args=())
def first(x: F64) -> F64:
    return x


@co.custom_op("plugin_fail::twice", mutates_args=())  # plugin: customop-duplicate
def second(x: F64) -> F64:
    return x


# ---- functions whose call computes nothing yet ----


@co.custom_op("plugin_fail::later", mutates_args=())  # plugin: customop-schema
async def later(x: F64) -> F64:
    return x


@co.custom_op("plugin_fail::rows", mutates_args=())  # plugin: customop-schema
def rows(x: F64) -> Iterator[F64]:
    yield x
