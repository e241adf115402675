"""Operators that only graphs call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from customop.core.kinds import COMPOSITE
from customop.core.operator import Operator
from customop.library.define import custom_op

__all__ = ["assign", "set_slice"]


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


def _set_slice(target: Any, value: Any, key: Sequence[Sequence[int | None]]) -> None:
    entries = [slice(*e) if len(e) == 3 else e[0] if e else None for e in key]
    target[tuple(entries)] = value


# Writes a view, whose key is that of ``np::slice``.
set_slice: Operator[..., Any] = custom_op(
    "customop::set_slice",
    _set_slice,
    mutates_args=("target",),
    schema="(Array(a!) target, Array value, int?[][] key) -> ()",
)
set_slice.register(COMPOSITE, _set_slice)
