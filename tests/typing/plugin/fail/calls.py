"""Calls with arrays of two kinds, and calls by attribute."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import customop as co

if TYPE_CHECKING:
    import cupy as cp

F64 = npt.NDArray[np.float64]


@co.custom_op("plugin_calls::add", mutates_args=())
def add(x: co.Array, y: co.Array, *, z: co.Array | None = None) -> co.Array:
    return x


@co.custom_op("plugin_calls::join", mutates_args=())
def join(parts: list[co.Array], k: float = 1.0) -> co.Array:
    return parts[0]


@co.custom_op("plugin_calls::scale", mutates_args=())
def scale(x: F64, k: float) -> F64:
    return x * k


def mixed(a: F64, b: cp.ndarray, c: Any) -> None:
    add(a, a, z=a)
    add(b, b, z=b)
    add(a, c, z=None)
    add(a, b)  # plugin: customop-mixed
    add(a, a, z=b)  # plugin: customop-mixed
    add(y=a, x=b)  # plugin: customop-mixed
    join([a, a])
    join([b])


def by_attribute(a: F64, c: Any) -> None:
    co.ops.plugin_calls.scale(a, 2.0)
    co.ops.plugin_calls.scale(a, "2")  # plugin: arg-type
    co.ops.plugin_calls.scale(a)  # plugin: call-arg
    co.ops.plugin_calls.scale.default(a, k="2")  # plugin: arg-type
    co.ops.plugin_calls.scale.defalt(a, 2.0)  # plugin: customop-name
    co.ops.plugin_calls.unknown(a, "2")
    co.ops.elsewhere.scale(a, "2")
