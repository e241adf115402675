"""Wrong shapes, and calls and kernels that do not have the operator's shapes."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

import customop as co

F64 = npt.NDArray[np.float64]
Matrix = Annotated[F64, "m k"]
Vector = np.ndarray[tuple[int], np.dtype[np.float64]]


# ---- definitions ----


@co.custom_op("plugin_shapes::a0", mutates_args=())
def with_commas(x: Annotated[F64, "m,k"]) -> F64:  # plugin: customop-shape
    return x


@co.custom_op("plugin_shapes::a1", mutates_args=())
def within(x: list[Annotated[F64, "m k"] | None], y: Annotated[F64, "k("]) -> F64:
    # by plugin: customop-shape
    return y


@co.custom_op("plugin_shapes::a2", mutates_args=())  # plugin: customop-shape
def untold(x: Matrix, y: Annotated[F64, "k n"]) -> Annotated[F64, "m o"]:
    return np.asarray(x @ y)


@co.custom_op("plugin_shapes::a3", mutates_args=())  # plugin: customop-shape
def untold_axes(x: Matrix) -> "Annotated[F64, '*batch m']":  # noqa: UP037
    return x


@co.custom_op("plugin_shapes::a4", mutates_args=())
def sums(x: Annotated[F64, "m+k"]) -> F64:  # plugin: customop-shape
    return x


@co.custom_op("plugin_shapes::a5", mutates_args=(), tags=co.Tag.pointwise)
# by plugin: customop-shape
def tagged(x: Matrix) -> Matrix:
    return x


@co.custom_op(
    "plugin_shapes::a6",
    mutates_args=(),
    schema="(float64[m,n] x) -> float64[m,k]",  # plugin: customop-shape
)
def otherwise(x: Matrix) -> Matrix:
    return x


co.define("plugin_shapes::a7", "(Array[m*k] x) -> Array")  # plugin: customop-shape

# ---- kernels ----


@co.custom_op("plugin_shapes::mm", mutates_args=(), device_types="cpu")
def mm(
    x: Matrix, y: Annotated[F64, "... k n"], *, count: int = 1
) -> Annotated[F64, "m n"]:
    return np.asarray(x @ y)


@mm.register_kernel("cuda")
def _(
    x: Annotated[co.Array, "m k"],
    y: Annotated[co.Array, "... m n"],  # plugin: customop-shape
    *,
    count: int,
) -> co.Array:
    return y


@mm.register_fake
def _(
    x: Annotated[co.Array, "a b c"],  # plugin: customop-shape
    y: co.Array,
    *,
    count: int,
) -> co.Array:
    return y


@mm.register_kernel("torch")  # plugin: customop-shape
def _(x: co.Array, y: co.Array, *, count: int) -> Annotated[co.Array, "m 3"]:
    return y


# ---- calls ----


def called(x: F64, v: Vector, anything: Any) -> None:
    mm(x, x)
    mm(anything, anything)
    mm(np.zeros((2, 3)), np.zeros((4, 3, 2)))
    mm(v, x)  # plugin: customop-shape
    mm(x, y=np.zeros(3))  # plugin: customop-shape
    cube = np.zeros((2, 3, 4))
    mm(cube, x)  # plugin: customop-shape
    co.ops.plugin_shapes.mm.default(v, x)  # plugin: customop-shape
