"""Operators that only graphs call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from customop.arrays.fake import FakeArray
from customop.core.kinds import COMPOSITE
from customop.core.operator import Operator
from customop.library.define import custom_op

__all__ = ["assign", "lay_out", "number", "set_slice"]


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


def _lay_out(x: Any, strides: Sequence[int]) -> Any:
    steps = [(n - 1) * step for n, step in zip(x.shape, strides, strict=True)]
    first = -sum(step for step in steps if step < 0)
    memory = np.empty(first + sum(map(max, steps, [0] * len(steps))) + x.itemsize, "u1")
    out: Any = np.ndarray(x.shape, x.dtype, memory, first, strides)
    new = np.empty_like(out)
    if new.strides == out.strides:  # there are no gaps
        out = new
    out[...] = x
    return out


# A copy that lies in memory as NumPy's array, which was written in place, does.
lay_out: Operator[..., Any] = custom_op(
    "customop::lay_out",
    _lay_out,
    mutates_args=(),
    schema="(Array x, int[] strides) -> Array",
)


@lay_out.register_fake
def _(x: Any, strides: Sequence[int]) -> Any:
    return FakeArray(x.shape, x.dtype, tuple(strides))


def _number(value: Any, dtype: Any) -> Any:
    return np.array(value, dtype)


# A number of Python that differs between calls, in the dtype of the array beside it.
number: Operator[..., Any] = custom_op(
    "customop::number",
    _number,
    mutates_args=(),
    schema="(Scalar value, dtype dtype) -> Array",
)


@number.register_fake
def _(value: Any, dtype: Any) -> Any:
    return FakeArray((), np.dtype(dtype))
