"""First arguments of rules: contexts, with attributes of known types, and batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, assert_type

import numpy as np
import numpy.typing as npt

import customop as co

F64 = npt.NDArray[np.float64]


@co.custom_op("typing::context", mutates_args=())
def scale(x: F64, factor: float) -> F64:
    return x * factor


# ---- a context with free attributes ----


def keep(ctx: co.Context, inputs: tuple[F64, float], output: F64) -> None:
    ctx.factor = inputs[1]
    ctx.save_for_backward(output, None)
    ctx.set_materialize_grads(True)


def backward(ctx: co.Context, grad: F64) -> tuple[F64, None]:
    assert_type(ctx.needs_input_grad, tuple[Any, ...])
    assert_type(ctx.saved_arrays, tuple[Any, ...])
    assert_type(ctx.saved_tensors, tuple[Any, ...])
    return grad * ctx.factor, None


scale.register_autograd(backward, setup_context=keep)
assert_type(co.grad(lambda x: scale(x, 2.0)), Callable[[Any], Any])


# ---- a context with declared attributes ----


class Scaled(co.Context, Protocol):
    factor: float

    @property
    def saved_arrays(self) -> tuple[F64, F64]: ...


def keep_factor(ctx: Scaled, inputs: tuple[F64, float], output: F64) -> None:
    ctx.factor = inputs[1]
    ctx.save_for_backward(inputs[0], output)


def backward_by_factor(ctx: Scaled, grad: F64) -> tuple[F64, None]:
    assert_type(ctx.factor, float)
    x, y = ctx.saved_arrays
    assert_type(x * y, F64)
    return grad * ctx.factor, None


scale.register_autograd(
    backward_by_factor, setup_context=keep_factor, override=True
).register_autograd(backward, setup_context=keep_factor, override=True)
co.register_autograd(
    "typing::context", backward_by_factor, setup_context=keep_factor, override=True
)
co.register_autograd(
    scale,
    lambda ctx, grad: (grad * ctx.factor, None),
    setup_context=keep_factor,
    override=True,
)


# ---- batches ----


@scale.register_vmap
def _(
    info: co.BatchInfo, in_dims: tuple[int | None, ...], x: F64, factor: float
) -> tuple[F64, int | None]:
    assert_type(info.batch_size, int)
    assert_type(info.randomness, str)
    return scale(x, factor), in_dims[0]


# ---- decorators that return the function itself ----


def shifted(x: F64, by: float = 1.0) -> F64:
    return x + by


@co.register_numpy_function(np.sinc)
def sinc(x: F64, *, eps: float = 0.0) -> F64:
    return np.sinc(x + eps)


assert_type(co.register_numpy_function((np.hypot, "reduce"), shifted)(np.ones(2)), F64)
assert_type(co.register_numpy_function(np.heaviside, scale)(np.ones(2), 1.0), F64)
assert_type(sinc(np.ones(2), eps=1.0), F64)
assert_type(co.vmap(shifted)(np.ones((2, 3)), by=2.0), F64)
assert co.grad(lambda x: scale(x, 3.0))(np.array(1.0)) == 3.0
