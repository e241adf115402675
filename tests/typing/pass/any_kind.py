"""Operators of NumPy's and CuPy's arrays, fake kernels and lambdas by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_type

import numpy as np
import numpy.typing as npt

import customop as co

if TYPE_CHECKING:
    import cupy as cp

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]


@co.custom_op("typing::any_scale", mutates_args=())
def scale(x: co.ArrayT, factor: float = 2.0) -> co.ArrayT:
    return x * factor


@scale.register_fake
def _(x: co.ArrayT, factor: float) -> co.ArrayT:
    return co.fake_like(x)


@scale.register_kernel("cuda")
def _(x: cp.ndarray, factor: float) -> cp.ndarray:
    return x * factor


@co.custom_op("typing::any_gauss", mutates_args=())
def gauss(x: co.ArrayT, width: float = 1.0) -> co.ArrayT:
    result: co.ArrayT = np.exp(-0.5 * (x / width) ** 2)
    return result


@co.custom_op("typing::any_center", mutates_args=())
def center(x: co.ArrayT) -> co.ArrayT:
    return 2.0 * (x - x.mean(axis=0)).T[::-1].copy()


@co.custom_op("typing::any_add", mutates_args=())
def add(x: co.Array, y: co.Array) -> co.Array:
    return x + y


@add.register_fake
def _(x: co.Array, y: co.Array) -> co.Array:
    return co.fake_like(x)


def twice(x: co.ArrayT) -> co.ArrayT:
    return scale(scale(x))


def kinds(x: F64, y: I64, z: cp.ndarray, fake: co.FakeArray) -> None:
    assert_type(scale(x), F64)
    assert_type(twice(y), I64)
    assert_type(gauss(z), "cp.ndarray")
    assert_type(center(fake), co.FakeArray)
    assert_type(co.fake_like(x), co.FakeArray)
    assert_type(co.fake_like(z), co.FakeArray)
    assert_type(add(x, y), co.Array)


# ---- registrations by name ----


@co.custom_op("typing::any_roll", mutates_args=())
def roll(x: F64, by: int) -> F64:
    return np.roll(x, by)


co.register_kernel("typing::any_roll", "cuda", lambda x, by: x)
co.register_fake("typing::any_roll", lambda x, by: co.fake_like(x))
co.register_vmap(
    "typing::any_roll", lambda info, in_dims, x, by: (roll(x, by), in_dims[0])
)
co.register_autograd(
    "typing::any_roll",
    lambda ctx, g: (roll(g, -ctx.by), None),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "by", inputs[1]),
)

thrice = co.define("typing::any_thrice", "(Array x) -> Array")
assert_type(thrice, co.Operator[..., Any])


@co.impl("typing::any_thrice", "CPU")
def of_cpu(x: F64) -> F64:
    return 3.0 * x


co.impl("typing::any_thrice", "Meta", lambda x: co.fake_like(x))
assert_type(of_cpu(np.ones(2)), F64)
assert thrice(np.ones(2)).tolist() == [3.0, 3.0]
assert scale(np.ones(2)).tolist() == [2.0, 2.0]
assert gauss(np.zeros(2)).tolist() == [1.0, 1.0]
