"""Operators that only graphs call."""

from __future__ import annotations

from typing import Any

from customop.core.kinds import COMPOSITE
from customop.core.operator import Operator
from customop.library.define import custom_op

__all__ = ["assign"]


def _assign(target: Any, value: Any) -> None:
    target[...] = value


# Writes what a function has written into an input; transforms see the body.
assign: Operator[..., Any] = custom_op(
    "customop::assign",
    _assign,
    mutates_args=("target",),
    schema="(Array(a!) target, Array value) -> ()",
)
assign.register(COMPOSITE, _assign)
