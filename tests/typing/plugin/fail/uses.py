"""Names, kinds, positions and attributes that are wrong where operators are used."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import customop as co

F64 = npt.NDArray[np.float64]


class Plain:
    """Has no schema type, and nothing in the module gives it one."""


@co.custom_op("plugin_uses::scale", mutates_args=())
def scale(x: F64, factor: float) -> F64:
    return x * factor


@co.custom_op("plugin_uses::offset", mutates_args=())
def offset(x: F64, by: float) -> F64:
    return x + by


def product(x: F64, y: F64, power: int = 1) -> Any:
    return np.sum((x * y) ** power)


def of_plain(x: F64, settings: Plain) -> F64:  # plugin: customop-schema
    return x


def of_number(x: F64, n: int) -> F64:
    return x


# ---- names ----

co.ops.plugin_uses.scael(np.ones(2), 2.0)  # plugin: customop-name
co.register_fake("plugin_uses::scael", lambda x, k: x)  # plugin: customop-name
co.register_kernel("plugin_uses::ofset", "cpu", scale.call)  # plugin: customop-name

# ---- kinds of arrays ----

scale.register_kernel("gpu", lambda x, factor: x)  # plugin: customop-kernel
scale.register_kernel("CUDA", lambda x, factor: x)  # plugin: customop-kernel
co.custom_op("plugin_uses::on_gpu", of_number, mutates_args=(), device_types="gpu")
# by plugin: customop-kernel

# ---- schemas ----

co.custom_op("plugin_uses::plain", of_plain, mutates_args=())
co.custom_op(
    "plugin_uses::other_type",
    of_number,
    mutates_args=(),
    schema="(Array x, str n) -> Array",  # plugin: customop-schema
)
co.custom_op(
    "plugin_uses::other_result",
    of_number,
    mutates_args=(),
    schema="(Array x, int n) -> (Array, Array)",  # plugin: customop-schema
)

# ---- transforms ----

co.grad(scale)(np.array(1.0), 2.0)  # plugin: customop-autograd
co.grad(product, argnums=3)  # plugin: customop-transform
co.value_and_grad(product, argnums=(0, -4))  # plugin: customop-transform
co.jacfwd(product, 5)  # plugin: customop-transform
co.vmap(product, in_dims=(0,))  # plugin: customop-transform
co.vmap(scale, in_dims=(0, None, None))  # plugin: customop-transform

# ---- attributes of ctx ----


def keep(ctx: co.Context, inputs: tuple[F64, float], output: F64) -> None:
    ctx.by = inputs[1]


def backward(ctx: co.Context, grad: F64) -> tuple[F64, None]:
    return grad * ctx.bye, None  # plugin: customop-autograd


offset.register_autograd(backward, setup_context=keep)
offset.register_autograd(
    lambda ctx, grad: (grad * ctx.by, None),  # plugin: customop-autograd
    override=True,
)


def keep_by_name(ctx: co.Context, inputs: tuple[F64, float], output: F64) -> None:
    ctx.save_for_backwards(inputs[0])  # plugin: customop-autograd


offset.register_autograd(
    lambda ctx, grad: (grad, None), setup_context=keep_by_name, override=True
)
