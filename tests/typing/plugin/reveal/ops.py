"""Types that `ops` has for the operators that are defined here."""

from __future__ import annotations

from typing import Any, reveal_type

import numpy as np
import numpy.typing as npt

import customop as co

F64 = npt.NDArray[np.float64]


@co.custom_op("plugin_ops::scale", mutates_args=())
def scale(x: F64, k: float) -> F64:
    return x * k


@co.custom_op("plugin_ops::twice", mutates_args=())
def twice(x: co.ArrayT) -> co.ArrayT:
    return x


@co.custom_op("plugin_ops::cut.int", mutates_args=())
def cut_at(x: F64, at: int) -> F64:
    return x[at:]


@co.custom_op("plugin_ops::cut.list", mutates_args=())
def cut_between(x: F64, at: list[int]) -> list[F64]:
    return np.split(x, at)


def revealed(x: F64, anything: Any) -> None:
    reveal_type(co.ops.plugin_ops.scale(x, 2.0))
    # by mypy: Any
    # by pyright: Any
    # by plugin: ndarray[tuple[Any, ...], dtype[float64]]
    reveal_type(co.ops.plugin_ops.twice(x))
    # by mypy: Any
    # by pyright: Any
    # by plugin: ndarray[tuple[Any, ...], dtype[float64]]
    reveal_type(co.ops.plugin_ops.cut(x, 1))
    # by mypy: Any
    # by pyright: Any
    # by plugin: ndarray[tuple[Any, ...], dtype[float64]]
    reveal_type(co.ops.plugin_ops.cut(x, [1, 2]))
    # by mypy: Any
    # by pyright: Any
    # by plugin: list[ndarray[tuple[Any, ...], dtype[float64]]]
    reveal_type(co.ops.plugin_ops.scale.default)
    # by mypy: Operator[..., Any]
    # by pyright: Operator[..., Any]
    # by plugin: Operator[[x: ndarray[tuple[Any, ...], dtype[float64]], k: float], ndarray[tuple[Any, ...], dtype[float64]]]
    reveal_type(co.ops.plugin_ops.cut.int)
    # by mypy: Operator[..., Any]
    # by pyright: Operator[..., Any]
    # by plugin: Operator[[x: ndarray[tuple[Any, ...], dtype[float64]], at: int], ndarray[tuple[Any, ...], dtype[float64]]]
    reveal_type(co.ops.plugin_ops.unknown(x))
    # by mypy: Any
    # by pyright: Any
    reveal_type(scale.register_fake(lambda x, k: co.fake_like(x)))
    # by mypy: Operator[[x: ndarray[tuple[Any, ...], dtype[float64]], k: float], ndarray[tuple[Any, ...], dtype[float64]]]
    # by pyright: Operator[(x: ndarray[tuple[Any, ...], dtype[float64]], k: float), ndarray[tuple[Any, ...], dtype[float64]]]
    reveal_type(co.register_fake("plugin_ops::scale", scale.call))
    # by mypy: Operator[..., Any]
    # by pyright: Operator[..., Any]
    # by plugin: Operator[[x: ndarray[tuple[Any, ...], dtype[float64]], k: float], ndarray[tuple[Any, ...], dtype[float64]]]


# ---- operators of this package ----


def own(x: F64, f: co.FakeArray, a: co.ArrayT, anything: Any) -> co.ArrayT:
    reveal_type(co.ops.np.sin(x))
    # by mypy: Any
    # by pyright: Any
    # by plugin: ndarray[Any, Any]
    reveal_type(co.ops.np.add(x, x2=2.0))
    # by mypy: Any
    # by pyright: Any
    # by plugin: ndarray[Any, Any]
    reveal_type(co.ops.np.modf(x))
    # by mypy: Any
    # by pyright: Any
    # by plugin: tuple[ndarray[Any, Any], ndarray[Any, Any]]
    reveal_type(co.ops.np.argmax(x))
    # by mypy: Any
    # by pyright: Any
    reveal_type(co.ops.np.sin(f))
    # by mypy: Any
    # by pyright: Any
    # by plugin: FakeArray
    reveal_type(co.ops.np.add(x, f))
    # by mypy: Any
    # by pyright: Any
    reveal_type(co.ops.np.sin(anything))
    # by mypy: Any
    # by pyright: Any
    co.ops.np.sin()  # plugin: call-arg
    co.ops.np.sin(x, wrong=1)  # plugin: call-arg
    result: co.ArrayT = co.ops.np.sin(a)
    return result
