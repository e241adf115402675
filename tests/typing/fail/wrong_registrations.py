"""Rules that both checkers refuse by the types of `customop` alone.

The types cannot say that a rule also takes the parameters of its operator, since it may
take other classes of arrays. Registration checks this when the program runs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import customop as co
from customop.core.rule_types import BatchInfo

F64 = npt.NDArray[np.float64]


@co.custom_op("typing::wrong_rules", mutates_args=())
def scale(x: F64, factor: float = 2.0) -> F64:
    return x * factor


def no_parameters() -> F64:
    return np.ones(1)


def setup_of_two(ctx: Any, inputs: tuple[Any, ...]) -> None:
    ctx.k = inputs[1]


def backward(ctx: Any, g: F64) -> tuple[F64, None]:
    return g * ctx.k, None  # plugin: customop-autograd


def jvp_of_one(primals: tuple[F64, float]) -> tuple[F64, F64]:
    return primals[0], primals[0]


def jvp_of_array(primals: tuple[F64, float], tangents: tuple[F64, None]) -> F64:
    return primals[0]


def vmap_without_info(x: F64, factor: float) -> tuple[F64, int]:
    return x * factor, 0


def vmap_of_array(
    info: BatchInfo, in_dims: tuple[int | None, ...], x: F64, factor: float
) -> F64:
    return x * factor


def rules(anything: Any) -> None:
    scale.register_kernel("cpu", 3)
    # by mypy: call-overload
    # by pyright: reportArgumentType, reportCallIssue
    scale.register_kernel(3, scale)
    # by mypy: call-overload
    # by pyright: reportArgumentType, reportCallIssue
    scale.register_fake("x")
    # by mypy: call-overload
    # by pyright: reportArgumentType, reportCallIssue
    scale.register_autograd(no_parameters)
    # by mypy: arg-type
    # by pyright: reportArgumentType, reportCallIssue
    # by plugin: arg-type, customop-autograd
    scale.register_autograd(backward, setup_context=setup_of_two)
    # by mypy: arg-type
    # by pyright: reportArgumentType, reportCallIssue
    # by plugin: arg-type, customop-autograd
    scale.register_autograd(setup_context=setup_of_two)
    # by mypy: call-overload
    # by pyright: reportCallIssue
    scale.register_jvp(jvp_of_one)
    # by mypy: arg-type
    # by pyright: reportArgumentType, reportCallIssue
    # by plugin: arg-type, customop-jvp
    scale.register_jvp(jvp_of_array)
    # by mypy: arg-type
    # by pyright: reportArgumentType, reportCallIssue
    scale.register_vmap(vmap_without_info)
    # by mypy: arg-type
    # by pyright: reportArgumentType, reportCallIssue
    # by plugin: arg-type, customop-vmap
    scale.register_vmap(vmap_of_array)
    # by mypy: arg-type
    # by pyright: reportArgumentType, reportCallIssue
    scale.register_fake(anything, overide=True)
    # by mypy: call-overload
    # by pyright: reportCallIssue
    scale.register("inverse", anything)
    # by mypy: call-overload
    # by pyright: reportArgumentType, reportCallIssue


def rules_by_name() -> None:
    co.register_kernel(scale, "cpu", 3)
    # by mypy: call-overload
    # by pyright: reportArgumentType, reportCallIssue
    co.register_fake(3, no_parameters)
    # by mypy: call-overload
    # by pyright: reportArgumentType, reportCallIssue
    co.register_autograd("typing::wrong_rules", no_parameters)
    # by mypy: arg-type
    # by pyright: reportArgumentType, reportCallIssue
    # by plugin: arg-type, customop-autograd
    co.register_jvp(scale, jvp_of_array)
    # by mypy: arg-type
    # by pyright: reportArgumentType, reportCallIssue
    co.register_vmap(scale, vmap_of_array)
    # by mypy: arg-type
    # by pyright: reportArgumentType, reportCallIssue
    co.register("typing::wrong_rules", "inverse", no_parameters)
    # by mypy: call-overload
    # by pyright: reportArgumentType, reportCallIssue


def links(x: F64) -> None:
    scale.register_fake(lambda x, factor=2.0: co.fake_like(x))("x")
    # by plugin: type-var
    # by mypy: arg-type
    # by pyright: reportArgumentType
    scale.register_autograd(backward)(x, "2")
    # by mypy: arg-type
    # by pyright: reportArgumentType
    co.register_autograd(scale, backward)(x, "2")
    # by mypy: arg-type
    # by pyright: reportArgumentType


co.Library("typing", "DEFINE")  # mypy: arg-type  pyright: reportArgumentType
