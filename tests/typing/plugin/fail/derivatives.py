"""Gradients and Jacobians that are used as something else."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

import customop as co

F64 = npt.NDArray[np.float64]


def loss(x: F64, y: F64, z: F64) -> F64:
    return x


def loss_and_name(x: F64, y: F64) -> tuple[F64, str]:
    return x, "x"


def uses(x: F64) -> None:
    a, b, c = co.grad(loss, (0, 1))(x, x, x)
    # by mypy: misc
    # by pyright: reportAssignmentType, reportUnknownVariableType
    d, e = co.grad(loss, (0, 1, 2))(x, x, x)  # plugin: misc
    f, g = co.grad(loss, [2, 0, 1])(x, x, x)  # plugin: misc
    h, i, j = co.grad(loss_and_name, 0, has_aux=True)(x, x)
    # by mypy: misc
    # by pyright: reportAssignmentType, reportUnknownVariableType
    value, (k, m, n) = co.value_and_grad(loss, (0, 2))(x, x, x)
    # by mypy: misc
    # by pyright: reportAssignmentType, reportUnknownVariableType
    text: str = co.grad(loss, -1)(x, x, x)  # plugin: assignment
    rows: list[F64] = co.jacrev(loss)(x, x, x)
    # by mypy: assignment
    # by pyright: reportAssignmentType
    (o,) = co.jacfwd(loss, (0, 1))(x, x, x)
    # by mypy: misc
    # by pyright: reportAssignmentType
    (p, q) = co.hessian(loss, (0, 1, 2))(x, x, x)  # plugin: misc
    co.jacrev(loss)(x=x, y=x, z=x)
    # by mypy: call-overload
    # by pyright: reportCallIssue
    # by plugin: call-arg
    co.grad(loss, -1)(x, "y", x)
    # by mypy: arg-type
    # by pyright: reportArgumentType
    # by plugin: call-overload
    del a, b, c, d, e, f, g, h, i, j, k, m, n, o, p, q, value, text, rows
