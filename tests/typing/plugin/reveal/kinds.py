"""Operators annotated with ndarray take the kinds that their module has kernels for."""

from __future__ import annotations

from typing import TYPE_CHECKING, reveal_type

import numpy as np
import numpy.typing as npt

import customop as co

if TYPE_CHECKING:
    import cupy as cp

F64 = npt.NDArray[np.float64]


@co.custom_op("plugin_kinds::relu", mutates_args=(), device_types="cpu")
def relu(x: F64) -> F64:
    return x * (x > 0)


@relu.register_kernel("cuda")
def _(x: cp.ndarray) -> cp.ndarray:
    return x * (x > 0)


@relu.register_fake
def _(x: co.FakeArray) -> co.FakeArray:
    return co.fake_like(x)


@co.custom_op("plugin_kinds::total", mutates_args=(), device_types="cpu")
def total(xs: list[F64], k: float = 1.0) -> F64:
    return sum(xs, np.zeros(1)) * k


co.register_kernel("plugin_kinds::total", ("cuda",), lambda xs, k: sum(xs) * k)


@co.custom_op("plugin_kinds::only", mutates_args=(), device_types="cpu")
def only(x: F64) -> F64:
    return x.copy()


def calls(x: F64, y: cp.ndarray, fake: co.FakeArray) -> None:
    reveal_type(relu(x))
    # by mypy: ndarray[tuple[Any, ...], dtype[float64]]
    # by pyright: ndarray[tuple[Any, ...], dtype[float64]]
    reveal_type(relu(y))
    # by mypy: arg-type, ndarray[tuple[Any, ...], dtype[float64]]
    # by pyright: ndarray[tuple[Any, ...], dtype[float64]], reportArgumentType
    # by plugin: ndarray[Any, Any]
    reveal_type(relu(fake))
    # by mypy: arg-type, ndarray[tuple[Any, ...], dtype[float64]]
    # by pyright: ndarray[tuple[Any, ...], dtype[float64]], reportArgumentType
    # by plugin: FakeArray
    reveal_type(total([y, y], k=2.0))
    # by mypy: list-item, ndarray[tuple[Any, ...], dtype[float64]]
    # by pyright: ndarray[tuple[Any, ...], dtype[float64]], reportArgumentType
    # by plugin: ndarray[Any, Any]
    relu("x")
    # by mypy: arg-type
    # by pyright: reportArgumentType
    # by plugin: type-var
    total([fake])
    # by mypy: list-item
    # by pyright: reportArgumentType
    # by plugin: type-var
    only(y)
    # by mypy: arg-type
    # by pyright: reportArgumentType


def doubled(x: F64) -> F64:
    return 2 * x


twice = co.custom_op("plugin_kinds::twice", doubled, mutates_args=())
twice.register_fake(lambda x: co.fake_like(x))


def called(fake: co.FakeArray) -> None:
    reveal_type(twice(fake))
    # by mypy: arg-type, ndarray[tuple[Any, ...], dtype[float64]]
    # by pyright: ndarray[tuple[Any, ...], dtype[float64]], reportArgumentType
    # by plugin: FakeArray
