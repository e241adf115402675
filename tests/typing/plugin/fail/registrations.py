"""Kernels and rules that do not fit their operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import customop as co
from customop.core.rule_types import BatchInfo

if TYPE_CHECKING:
    import cupy as cp

F64 = npt.NDArray[np.float64]


@co.custom_op("plugin_fail::gauss", mutates_args=(), device_types="cpu")
def gauss(x: co.Array, width: float, *, shift: float = 0.0) -> co.Array:
    return x


@co.custom_op("plugin_fail::split", mutates_args=())
def split(x: F64, y: F64) -> tuple[F64, F64]:
    return x, y


@co.custom_op("plugin_fail::fill", mutates_args=("x",))
def fill(x: F64, k: float) -> None:
    x[...] = k


# ---- kernels ----


@gauss.register_kernel("cuda")  # plugin: customop-kernel
def _(x: cp.ndarray, widht: float, *, shift: float) -> cp.ndarray:
    return x


@gauss.register_kernel("cuda")  # plugin: customop-kernel
def _(x: cp.ndarray, width: int, *, shift: float) -> cp.ndarray:
    return x


@gauss.register_kernel("cuda")  # plugin: customop-kernel
def _(x: cp.ndarray, width: float, *, shift: float) -> tuple[cp.ndarray, cp.ndarray]:
    return x, x


@gauss.register_kernel("cuda")  # plugin: customop-kernel
def _(x: cp.ndarray, width: float) -> cp.ndarray:
    return x


@gauss.register_kernel("cuda")  # plugin: customop-kernel
def _(x: float, width: float, *, shift: float) -> cp.ndarray:
    raise NotImplementedError


def of_two(x: Any, y: Any) -> Any:
    return x


gauss.register_kernel(None, of_two)  # plugin: customop-kernel
gauss.register_kernel("fake", gauss.call)  # plugin: customop-kernel
gauss.register_kernel(())  # plugin: customop-kernel
co.register_kernel(gauss, "cuda", of_two)  # plugin: customop-kernel
co.register_kernel("plugin_fail::gauss", "cuda", of_two)  # plugin: customop-kernel
co.register_kernel("gauss", "cuda", of_two)  # plugin: customop-name
co.impl("plugin_fail::gauss", "CUDA", of_two)  # plugin: customop-kernel
co.impl("plugin_fail::gauss", 5, of_two)
# by mypy: call-overload
# by pyright: reportArgumentType, reportCallIssue
library = co.Library("plugin_fail", "IMPL", "CPU")
library.impl("gauss", of_two)  # plugin: customop-kernel
library.impl("gauss", of_two, "Meta")  # plugin: customop-fake

# ---- fake kernels ----


@gauss.register_fake  # plugin: customop-fake
def _(x: co.FakeArray, width: float) -> co.FakeArray:
    return x


@split.register_fake  # plugin: customop-fake
def _(x: co.FakeArray, y: co.FakeArray) -> co.FakeArray:
    return x


# ---- gradients ----


def keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    ctx.save_for_backward(*inputs)


def backward(ctx: Any, grad: F64) -> tuple[F64, None]:
    return grad, None


gauss.register_autograd(backward, setup_context=keep)  # plugin: customop-autograd


def of_one(ctx: Any, grad: F64) -> Any:
    return grad, grad


split.register_autograd(of_one, setup_context=keep)  # plugin: customop-autograd


def too_many(ctx: Any, left: F64, right: F64) -> Any:
    if ctx.needs_input_grad[0]:
        return left, right
    for _ in range(2):
        return left, right, None  # plugin: customop-autograd
    return (left,) if ctx.k else (left, right)  # plugin: customop-autograd


split.register_autograd(too_many)


@co.custom_op("plugin_fail::stretch", mutates_args=())
def stretch(x: F64, by: float) -> F64:
    return x * by


def of_both(ctx: Any, grad: F64) -> Any:
    if ctx.needs_input_grad[0]:
        return grad, grad  # plugin: customop-autograd
    if ctx.needs_input_grad[1]:
        return grad, grad * 2  # plugin: customop-autograd
    if len(ctx.needs_input_grad) > 2:
        return {"x": grad, "by": 1.0}  # plugin: customop-autograd
    return grad, None


def as_declared(ctx: Any, grad: F64) -> tuple[F64, F64]:
    both = (grad, grad)
    return both if ctx.needs_input_grad[0] else both[:2]


stretch.register_autograd(of_both)
stretch.register_autograd(as_declared)  # plugin: customop-autograd
stretch.register_autograd(lambda ctx, grad: (grad, 0.0))  # plugin: customop-autograd
fill.register_autograd(backward)  # plugin: customop-autograd

# ---- batches and tangents ----


@gauss.register_vmap  # plugin: customop-vmap
def _(
    info: BatchInfo, in_dims: tuple[Any, ...], x: F64, *, shift: float
) -> tuple[F64, int]:
    return x, 0


@gauss.register_vmap  # plugin: customop-vmap
def _(
    info: BatchInfo, in_dims: tuple[Any, ...], x: F64, width: str, *, shift: float
) -> tuple[F64, int]:
    return x, 0


@split.register_vmap
def _(info: BatchInfo, in_dims: tuple[Any, ...], x: F64, y: F64) -> tuple[Any, ...]:
    return x, y, in_dims  # plugin: customop-vmap


@gauss.register_jvp  # plugin: customop-jvp
def _(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[F64, F64]:
    return primals[0], tangents[0]


@split.register_jvp
def _(primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> tuple[Any, ...]:
    return primals[0], tangents[0], None  # plugin: customop-jvp


# ---- rules of other kinds ----

inverse = co.RuleKind("inverse", takes="(out, *inputs)", returns="input 0")


@gauss.register(inverse)  # plugin: customop-rule
def _(out: F64, x: F64, k: float, *, shift: float) -> F64:
    return out


@split.register(inverse)  # plugin: customop-rule
def _(out: F64, x: F64) -> F64:
    return out


# ---- chains ----

chained = (
    co.custom_op("plugin_fail::chained", gauss.call, mutates_args=())
    .register_kernel("cuda", gauss.call)
    .register_fake(of_two)  # plugin: customop-fake
)


# ---- gradients by name, and single ones ----


def by_name(ctx: Any, grad: F64, other: F64) -> dict[str, F64]:
    return {"x": grad, "z": other}  # plugin: customop-autograd


def in_a_list(ctx: Any, grad: F64, other: F64) -> Any:
    return [grad, other]  # plugin: customop-autograd


def alone(ctx: Any, grad: F64, other: F64) -> Any:
    if ctx.needs:  # plugin: customop-autograd
        return (grad - other) * ctx.k  # plugin: customop-autograd
    return -grad if ctx.all else {"x": grad, "y": other}  # plugin: customop-autograd


def annotated(ctx: Any, grad: F64, other: F64) -> F64:
    return grad  # plugin: customop-autograd


split.register_autograd(by_name)
split.register_autograd(in_a_list)
split.register_autograd(alone)
split.register_autograd(annotated)
split.register_autograd(lambda ctx, g, h: g * 2.0)  # plugin: customop-autograd


def nothing(ctx: Any, grad: F64, other: F64) -> None: ...


split.register_autograd(nothing)  # plugin: customop-autograd
