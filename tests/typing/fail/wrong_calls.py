"""Calls that both checkers refuse, at the argument that is wrong."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

import customop as co

F64 = npt.NDArray[np.float64]


@co.custom_op("typing::wrong_scale", mutates_args=())
def scale(x: F64, factor: float = 2.0, *, shift: float = 0.0) -> F64:
    return x * factor + shift


@co.custom_op("typing::wrong_twice", mutates_args=())
def twice(x: co.ArrayT) -> co.ArrayT:
    return x


@co.custom_op("typing::wrong_first", mutates_args=())
def first(x: F64, at: int, /) -> F64:
    return x[at:]


def arguments(x: F64, y: npt.NDArray[np.int64], op: co.Operator[[F64], F64]) -> None:
    scale(x, 2.0, shift=1.0)
    scale()  # mypy: call-arg  pyright: reportCallIssue
    scale(x, "2")  # mypy: arg-type  pyright: reportArgumentType
    scale(x, 2.0, 1.0)  # mypy: call-arg  pyright: reportCallIssue
    scale(x, shift=None)  # mypy: arg-type  pyright: reportArgumentType
    scale(x, beta=2.0)  # mypy: call-arg  pyright: reportCallIssue
    scale(y)  # mypy: arg-type  pyright: reportArgumentType
    scale([1.0, 2.0])  # mypy: arg-type  pyright: reportArgumentType
    scale(co.fake_like(x))  # mypy: arg-type  pyright: reportArgumentType
    scale.call(x, "2")  # mypy: arg-type  pyright: reportArgumentType
    first(x, at=1)  # mypy: call-arg  pyright: reportCallIssue
    twice("x")  # mypy: type-var  pyright: reportArgumentType
    twice(1.0)  # mypy: type-var  pyright: reportArgumentType
    twice(x, x)  # mypy: call-arg  pyright: reportCallIssue
    op(x, 1.0)  # mypy: call-arg  pyright: reportCallIssue


def results(x: F64) -> None:
    text: str = scale(x)  # mypy: assignment  pyright: reportAssignmentType
    fake: co.FakeArray = twice(x)  # mypy: assignment  pyright: reportAssignmentType
    ints: npt.NDArray[np.int64] = twice(x)
    # by mypy: arg-type
    # by pyright: reportAssignmentType
    del text, fake, ints


def definitions(fn: int) -> None:
    co.custom_op("typing::number", fn, mutates_args=())
    # by mypy: call-overload
    # by pyright: reportArgumentType, reportCallIssue
    co.custom_op("typing::unsaid")  # mypy: call-overload  pyright: reportCallIssue
    co.custom_op("typing::tagged", mutates_args=(), tags="pointwise")
    # by mypy: arg-type
    # by pyright: reportArgumentType
    co.custom_op("typing::on", mutates_args=(), device_types=1)
    # by mypy: call-overload
    # by pyright: reportArgumentType
    co.fake_like("x")
    # by mypy: call-overload
    # by pyright: reportArgumentType, reportCallIssue
    co.fake_like(np.ones(2), shape="3")
    # by mypy: arg-type
    # by pyright: reportArgumentType, reportCallIssue
    co.variable("x")  # mypy: arg-type  pyright: reportArgumentType
    co.backward(1)  # mypy: arg-type  pyright: reportArgumentType
