"""Calls that both checkers accept; results have the types of the functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, assert_type

import numpy as np
import numpy.typing as npt

import customop as co

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]


@co.custom_op("typing::sin", mutates_args=())
def sin(x: co.ArrayT) -> co.ArrayT:
    result: Any = np.sin(np.asarray(x))
    return result  # type: ignore[no-any-return]  # of the class of x


@co.custom_op("typing::scale", mutates_args=())
def scale(x: F64, factor: float = 2.0, *, shift: float = 0.0) -> F64:
    return x * factor + shift


@co.custom_op("typing::split", mutates_args=())
def split(x: F64, at: int, /) -> tuple[F64, F64]:
    return x[:at].copy(), x[at:].copy()


@co.custom_op("typing::stack", mutates_args=())
def stack(xs: Sequence[F64], axis: int | None = None) -> F64:
    return np.stack(xs, axis or 0)


@co.custom_op("typing::fill", mutates_args=("x",))
def fill(x: F64, value: float) -> None:
    x[...] = value


@co.custom_op("typing::size", mutates_args=())
def size(x: co.Array) -> int:
    return int(np.size(x))


def np_cos(x: F64, k: float = 1.0) -> F64:
    return np.cos(k * x)


cos = co.custom_op("typing::cos", np_cos, mutates_args=(), device_types="cpu")


class Layer:
    """An operator as an attribute of a class is not bound to the instance."""

    scale = scale


def dtype_and_class_stay(x: F64, y: F32) -> None:
    assert_type(sin(x), F64)
    assert_type(sin(y), F32)
    assert_type(sin(co.fake_like(x)), co.FakeArray)
    assert_type(sin(co.variable(x)), co.GradTracer)
    assert_type(sin(sin(y)), F32)


def names_defaults_and_keywords(x: F64) -> None:
    assert_type(scale(x), F64)
    assert_type(scale(x, 3.0), F64)
    assert_type(scale(x, factor=3, shift=1.0), F64)
    assert_type(scale(shift=1.0, x=x), F64)
    assert_type(scale.call(x, 3.0, shift=1.0), F64)
    assert_type(cos(x, k=2.0), F64)
    assert_type(Layer.scale(x, shift=1.0), F64)
    assert_type(Layer().scale(x), F64)


def results_of_every_form(x: F64) -> None:
    assert_type(split(x, 1), tuple[F64, F64])
    assert_type(stack([x, x], axis=0), F64)
    assert_type(size(x), int)
    fill(x, 1.0)


def arrays(x: F64) -> list[co.Array]:
    return [x, co.fake_like(x), co.variable(x)]


def called(fn: Callable[[F64], F64], x: F64) -> F64:
    return fn(x)


ones, singles = np.ones(3), np.ones(3, np.float32)
dtype_and_class_stay(ones, singles) if TYPE_CHECKING else None
names_defaults_and_keywords(ones)
results_of_every_form(ones)
arrays(ones)
called(sin, ones)
called(scale, ones)
