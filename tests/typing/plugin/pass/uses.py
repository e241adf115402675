"""Uses that are right, or that only the running program can judge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import customop as co

F64 = npt.NDArray[np.float64]


@co.register_config_type
@dataclass
class Settings:
    rate: float


@co.custom_op("plugin_right_uses::of_settings", mutates_args=())
def of_settings(x: F64, settings: Settings) -> F64:
    return x * settings.rate


@co.custom_op("plugin_right_uses::scale", mutates_args=())
def scale(x: F64, factor: float) -> F64:
    return x * factor


@co.custom_op("plugin_right_uses::conv1d", mutates_args=())
def conv1d(x: F64) -> F64:
    return x.copy()


# ---- contexts ----


def keep(ctx: co.Context, inputs: tuple[F64, float], output: F64) -> None:
    x, ctx.factor = inputs
    setattr(ctx, "shape", x.shape)  # noqa: B010
    ctx.save_for_backward(x)


def backward(ctx: co.Context, grad: F64) -> tuple[F64, None]:
    assert ctx.needs_input_grad[0]
    assert ctx.saved_arrays[0].shape == ctx.shape
    ctx.seen = True
    return grad * ctx.factor * ctx.seen, None


def keep_elsewhere(ctx: Any, inputs: Any, output: Any) -> None:
    fill(ctx, inputs)


def fill(ctx: Any, inputs: Any) -> None:
    ctx.factor = inputs[1]


def backward_of_any(ctx: Any, grad: F64) -> Any:
    return grad * ctx.factor, None


scale.register_autograd(backward, setup_context=keep)
scale.register_autograd(backward_of_any, setup_context=keep_elsewhere, override=True)


def register(setup_context: Callable[..., None] | None) -> None:
    scale.register_autograd(backward_of_any, setup_context=setup_context, override=True)


# ---- names that other modules may define ----


def by_name(name: str) -> None:
    co.ops.plugin_right_uses.conv2d(np.ones(2))
    co.ops.plugin_right_uses.entirely_different(np.ones(2))
    co.register_fake(f"plugin_right_uses::{name}", lambda x: x)
    scale.register_kernel("mine", lambda x, factor: x)
    getattr(co.ops.plugin_right_uses, name)


# ---- transforms ----


def loss(x: F64, y: F64, *more: F64, by: float = 1.0) -> Any:
    return np.sum(x * y) * by


def with_default(x: F64, y: float = 2.0) -> Any:
    return np.sum(x * y)


def transforms(count: int, any_function: Callable[..., Any]) -> None:
    co.grad(loss, argnums=4)
    co.grad(any_function, argnums=7)
    co.grad(loss, argnums=count)
    co.grad(with_default, argnums=-2)
    co.vmap(with_default, in_dims=(0,))
    co.vmap(with_default, in_dims=(0, None))
    co.vmap(loss, in_dims=(0,) * count)
    co.vmap(any_function, in_dims=(0, 0, 0))


co.grad(scale)(np.array(1.0), 2.0)
of_settings(np.ones(2), Settings(2.0))


# ---- schemas that say more than annotations ----


@co.custom_op(
    "plugin_right_uses::wider",
    mutates_args=(),
    schema="(Array x, int[] n, str? how=None) -> Array[]",
)
def wider(x: F64, n: Any, how: str | None = None) -> list[F64]:
    return [x.copy()]
