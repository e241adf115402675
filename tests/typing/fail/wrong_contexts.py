"""Contexts, batches and NumPy functions that both checkers refuse."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

import customop as co

F64 = npt.NDArray[np.float64]


@co.custom_op("typing::wrong_context", mutates_args=())
def scale(x: F64, factor: float) -> F64:
    return x * factor


class Scaled(co.Context, Protocol):
    factor: float


def keep(ctx: Scaled, inputs: tuple[F64, float], output: F64) -> None:
    ctx.factor = inputs[0]  # mypy: assignment  pyright: reportAttributeAccessIssue
    ctx.saved_arrays = ()  # mypy: misc  pyright: reportAttributeAccessIssue
    ctx.set_materialize_grads("no")  # mypy: arg-type  pyright: reportArgumentType
    ctx.save_for_backward(arrays=inputs)  # mypy: call-arg  pyright: reportCallIssue


def backward_of_info(ctx: co.BatchInfo, grad: F64) -> tuple[F64, None]:
    return grad, None


def backward(ctx: co.Context, grad: F64) -> tuple[F64, None]:
    return grad, None


def keep_in_tuple(ctx: tuple[int, ...], inputs: Any, output: Any) -> None: ...


def of_context(
    info: co.Context, in_dims: tuple[int | None, ...], x: F64, factor: float
) -> tuple[F64, int]:
    return x, 0


scale.register_autograd(backward_of_info)
# by mypy: type-var
# by pyright: reportArgumentType, reportCallIssue
scale.register_autograd(backward, setup_context=keep_in_tuple)
# by pyright: reportArgumentType, reportCallIssue
scale.register_vmap(of_context)
# by mypy: arg-type
# by pyright: reportArgumentType, reportCallIssue


def info_is_read_only(info: co.BatchInfo) -> None:
    info.batch_size = 3  # mypy: misc  pyright: reportAttributeAccessIssue


co.register_numpy_function("sinc", scale)
# by mypy: call-overload
# by pyright: reportArgumentType, reportCallIssue
co.register_numpy_function(np.sinc, 3)
# by mypy: call-overload
# by pyright: reportArgumentType, reportCallIssue
co.register_numpy_function(np.sinc, scale)("x", 1.0)
# by mypy: arg-type
# by pyright: reportArgumentType
