"""Calls by `ops` that are wrong, at the lines where both checkers say so."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from signals import Window

import customop as co

F64 = npt.NDArray[np.float64]
signals = co.ops.signals


def arguments(x: F64, y: npt.NDArray[np.int64]) -> None:
    signals.scale()  # mypy: call-arg  pyright: reportCallIssue
    signals.scale("x")  # mypy: type-var  pyright: reportArgumentType
    signals.scale(x, "2")  # mypy: arg-type  pyright: reportArgumentType
    signals.scale(x, k=2.0)  # mypy: call-arg  pyright: reportCallIssue
    signals.scale.default(x, "2")  # mypy: arg-type  pyright: reportArgumentType
    signals.mean(y)  # mypy: type-var  pyright: reportArgumentType
    signals.cut(x, at=1)  # mypy: call-arg  pyright: reportCallIssue
    signals.cut(x, 1, 2, None)  # mypy: call-arg  pyright: reportCallIssue
    signals.smooth(x, 3)  # mypy: arg-type  pyright: reportArgumentType
    signals.smooth(x, Window(), "m")  # mypy: arg-type  pyright: reportArgumentType
    signals.split([y], {})  # mypy: list-item  pyright: reportArgumentType
    signals.noise([3])  # mypy: call-arg  pyright: reportCallIssue
    signals.shift.int(x, 1.0)  # mypy: arg-type  pyright: reportArgumentType
    signals.shift(x, "1")
    # mypy: call-overload  pyright: reportArgumentType, reportCallIssue
    signals.turn(x, self=x)  # mypy: call-arg, misc  pyright: reportCallIssue


def results(x: F64) -> None:
    text: str = signals.scale(x)  # mypy: assignment  pyright: reportAssignmentType
    y: F64 = signals.shift(x, 1)  # mypy: assignment  pyright: reportAssignmentType
    del text, y


def names() -> None:
    signals.scall  # mypy: attr-defined  pyright: reportAttributeAccessIssue
    signals.scale = 3  # mypy: assignment, misc  pyright: reportAttributeAccessIssue
    co.ops.signals = 3  # mypy: assignment, misc  pyright: reportAttributeAccessIssue
