"""Chains keep the type of their operator, for rules with any class of arrays."""

from __future__ import annotations

from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

import customop as co

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]


class Points(np.ndarray):
    """A class of arrays."""


def np_scale(x: co.ArrayT, factor: float = 2.0) -> co.ArrayT:
    result: Any = np.multiply(np.asarray(x), factor)
    return result  # type: ignore[no-any-return]  # of the class of x


# ---- rules with hints, for arrays of other classes ----


def points_scale(x: Points, factor: float) -> Points:
    return x.copy()


def fake_scale(x: co.FakeArray, factor: float) -> co.FakeArray:
    return co.fake_like(x)


def int_vmap(
    info: co.BatchInfo, in_dims: tuple[int | None, ...], x: I64, factor: float
) -> tuple[I64, int | None]:
    return x * int(factor), in_dims[0]


def keep(ctx: co.Context, inputs: tuple[I64, float], output: I64) -> None:
    ctx.factor = inputs[1]


def backward(ctx: co.Context, grad: I64) -> tuple[I64, None]:
    return grad * ctx.factor, None


def jvp(primals: tuple[I64, float], tangents: tuple[I64, None]) -> tuple[I64, I64]:
    return primals[0], tangents[0]


scale = (
    co.custom_op("typing::hinted_chain", np_scale, mutates_args=())
    .register_kernel("cpu", points_scale)
    .register_fake(fake_scale)
    .register_autograd(backward, setup_context=keep)
    .register_jvp(jvp)
    .register_vmap(int_vmap)
)


def all_keep_it(x: F64, y: I64, fake: co.FakeArray) -> None:
    assert_type(scale(x), F64)
    assert_type(scale(y, factor=2.0), I64)
    assert_type(scale(fake), co.FakeArray)
    assert_type(co.register_kernel(scale, "cpu", points_scale)(x), F64)
    assert_type(co.register_fake(scale, fake_scale, override=True)(x), F64)
    assert_type(co.register_vmap(scale, int_vmap, override=True)(x), F64)
    assert_type(scale.register_kernel("cpu", points_scale)(x), F64)
    assert_type(scale.register_fake(fake_scale, override=True)(x), F64)
    assert_type(scale.register_vmap(int_vmap, override=True)(x), F64)
    kept = scale.register_autograd(backward, setup_context=keep, override=True)
    assert_type(kept(x), F64)
    assert_type(scale.register_jvp(jvp, override=True)(x), F64)


# ---- lambdas, whose parameters have no hints ----


@co.custom_op("typing::lambdas", mutates_args=())
def blend(x: F64, y: F64, at: float = 0.5, power: int = 1) -> F64:
    return x * at + y * (1.0 - at) ** power


by_lambdas = (
    blend.register_kernel("cpu", lambda x, y, at, power: x * at + y * (1 - at) ** power)
    .register_fake(lambda x, y, at, power: co.fake_like(x))
    .register_autograd(
        lambda ctx, g: (g * ctx.at, None, None, None),
        setup_context=lambda ctx, inputs, output: setattr(ctx, "at", inputs[2]),
    )
    .register_jvp(lambda primals, tangents: (blend(*primals), tangents[0]))
)


@co.custom_op("typing::lambdas_of_two", mutates_args=())
def both(x: F64, at: float) -> tuple[F64, F64]:
    return x * at, x.copy()


both_by_lambdas = (
    both.register_kernel(("cpu", "cuda"), lambda x, at: (x * at, x.copy()))
    .register_fake(lambda x, at: (co.fake_like(x), co.fake_like(x)))
    .register_autograd(lambda ctx, g, h: (g + h, None))
    .register_vmap(lambda info, in_dims, x, at: (both(x, at), (in_dims[0],) * 2))
)


def lambdas_keep_it(x: F64) -> None:
    assert_type(by_lambdas(x, x, power=2), F64)
    assert_type(both_by_lambdas(x, 0.5), tuple[F64, F64])


all_keep_it(np.ones(2), np.ones(2, np.int64), co.fake_like(np.ones(2)))
lambdas_keep_it(np.ones(2))
