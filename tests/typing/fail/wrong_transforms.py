"""Uses of transforms that both checkers refuse."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import customop as co

F64 = npt.NDArray[np.float64]


def loss(x: F64, y: float = 1.0, *, power: int = 2) -> F64:
    result: Any = np.sum(y * x**power)
    return result  # type: ignore[no-any-return]  # without axes


def loss_and_name(x: F64, y: F64) -> tuple[F64, str]:
    return loss(x * y), "sum"


def no_position(*, x: F64) -> F64:
    return x


def gradients(x: F64) -> None:
    co.grad(loss)("x")  # mypy: arg-type  pyright: reportArgumentType
    co.grad(loss)(x=x)  # mypy: call-arg  pyright: reportCallIssue
    co.grad(loss)(x, power="2")  # mypy: arg-type  pyright: reportArgumentType
    co.grad(loss)(x, beta=2)  # mypy: call-arg  pyright: reportCallIssue
    co.grad(no_position)  # mypy: arg-type  pyright: reportArgumentType
    co.grad(loss, "x")  # mypy: arg-type  pyright: reportArgumentType, reportCallIssue
    co.grad(loss, has_aux=True)
    # by mypy: call-overload
    # by plugin: customop-transform
    # by pyright: reportArgumentType, reportCallIssue
    co.grad(3)
    # by mypy: call-overload
    # by pyright: reportArgumentType
    # by plugin: customop-transform
    co.value_and_grad(loss)(x, "y")  # mypy: arg-type  pyright: reportArgumentType
    wrong: str = co.grad(loss)(x)  # mypy: assignment  pyright: reportAssignmentType
    name: int = co.grad(loss_and_name, has_aux=True)(x, x)[1]
    # by mypy: assignment
    # by pyright: reportAssignmentType
    del wrong, name


def pullbacks(x: F64) -> None:
    co.vjp(loss, "x")  # mypy: arg-type  pyright: reportArgumentType
    co.vjp(loss_and_name, x)  # mypy: arg-type  pyright: reportArgumentType
    co.vjp(loss, x, has_aux=True)
    # by mypy: call-overload
    # by pyright: reportArgumentType, reportCallIssue
    co.vjp(loss, x)[1]("x")  # mypy: arg-type  pyright: reportArgumentType
    co.jvp(loss, (x,), ("x",))
    # by mypy: arg-type
    # by pyright: reportArgumentType, reportCallIssue
    co.jvp(loss, x, x)
    # by mypy: call-overload
    # by pyright: reportArgumentType, reportCallIssue


def matrices(x: F64) -> None:
    co.jacrev(loss)(x, power="2")
    # by mypy: call-overload
    # by pyright: reportArgumentType, reportCallIssue
    # by plugin: arg-type
    co.jacfwd(loss)(x, beta=2)
    # by mypy: call-overload
    # by pyright: reportCallIssue
    # by plugin: call-arg
    co.hessian(loss)("x")
    # by mypy: call-overload
    # by pyright: reportArgumentType, reportCallIssue
    # by plugin: arg-type
    co.jacrev(loss, has_aux=True)
    # by mypy: call-overload
    # by plugin: customop-transform
    # by pyright: reportArgumentType, reportCallIssue
    co.jacfwd(loss, chunk_size="all")
    # by mypy: call-overload
    # by pyright: reportArgumentType


def batches_and_shapes(x: F64) -> None:
    co.vmap(loss)("x")  # mypy: arg-type  pyright: reportArgumentType
    co.vmap(loss, randomness="some")  # mypy: arg-type  pyright: reportArgumentType
    co.eval_shape(loss, "x")
    # by mypy: call-overload
    # by pyright: reportArgumentType, reportCallIssue
    co.eval_shape(loss, x, beta=2)  # mypy: call-arg  pyright: reportCallIssue
    text: str = co.eval_shape(loss, x)
    # by mypy: assignment
    # by pyright: reportAssignmentType
    del text


@co.no_grad()
def untracked(x: F64) -> F64:
    return x


def by_hand(x: F64) -> None:
    untracked("x")  # mypy: arg-type  pyright: reportArgumentType
    text: str = co.stop_gradient(x)  # mypy: assignment  pyright: reportAssignmentType
    del text


@co.compile
def compiled(x: F64) -> F64:
    return x


def by_compiled(x: F64) -> None:
    compiled("x")  # mypy: arg-type  pyright: reportArgumentType
    compiled()  # mypy: call-arg  pyright: reportCallIssue
    text: str = compiled(x)  # mypy: assignment  pyright: reportAssignmentType
    del text
