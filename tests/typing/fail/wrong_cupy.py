"""Code for CuPy that both checkers refuse because of the stub."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

import customop as co

if TYPE_CHECKING:
    import cupy as cp

F64 = npt.NDArray[np.float64]


@co.custom_op("typing::wrong_cube", mutates_args=())
def cube(x: F64) -> F64:
    return x**3


def mixed(x: cp.ndarray, y: F64) -> None:
    # They accept `x + y` as NumPy's sum, which takes any object with __array__.
    x += y  # mypy: arg-type  pyright: reportAssignmentType
    cube(x)  # mypy: arg-type  pyright: reportArgumentType
    back: F64 = x  # mypy: assignment  pyright: reportAssignmentType
    del back


def wrong_calls(x: cp.ndarray) -> None:
    import cupy  # noqa: PLC0415  # optional

    cupy.exp("x")  # mypy: arg-type  pyright: reportArgumentType
    cupy.exp(x, x, x)  # mypy: arg-type, call-arg  pyright: reportCallIssue
    cupy.zeros("3")  # mypy: arg-type  pyright: reportArgumentType
    cupy.sum(x, keepdim=True)  # mypy: call-arg  pyright: reportCallIssue
    cupy.RawKernel("source")  # mypy: call-arg  pyright: reportCallIssue
    cupy.einsums
    # by mypy: attr-defined
    # by pyright: reportAttributeAccessIssue, reportUnknownMemberType
    x.gett()
    # by mypy: attr-defined
    # by pyright: reportAttributeAccessIssue, reportUnknownMemberType
    x.shape = "3"  # mypy: assignment  pyright: reportAttributeAccessIssue
    x.size = 3  # mypy: misc  pyright: reportAttributeAccessIssue
    if x == 3:
        number: float = x  # mypy: assignment  pyright: reportAssignmentType
        del number


def used(x: cp.ndarray) -> Any:
    return {x: 1}
    # by pyright: reportUnhashable
