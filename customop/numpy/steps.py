"""Elementwise operators without a derivative: rounding, comparison, logic, bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from customop import (
    Array,
    FakeArray,
    Tag,
    custom_op,
    fake_like,
    register_numpy_function,
)
from customop.numpy.arguments import SINCE_2_5, warn_user
from customop.numpy.fakes import fake_of_ufunc, packed_as
from customop.numpy.rules import no_gradient
from customop.numpy.ufuncs import ufunc_operator

__all__: list[str] = []


@custom_op("np::round", mutates_args=(), tags=Tag.pointwise)
def _rounded(x: Array, decimals: int = 0) -> Array:
    found = np.round(x, decimals)
    return found if not found.ndim else np.copy(found, order="C")


@_rounded.register_kernel("cpu")
def _(x: Any, decimals: int) -> Any:
    return np.round(x, decimals)


@_rounded.register_fake
def _(x: Any, decimals: int) -> Any:
    dtype = np.round(np.empty(0, x.dtype), decimals).dtype
    device = fake_like(x).device
    if device != "cpu":
        return FakeArray(x.shape, dtype, device=device)
    if dtype.kind == "c" or (dtype.kind in "iu" and decimals >= 0):
        return fake_like(x)
    if not decimals and dtype.kind == "f":
        return fake_of_ufunc(np.rint)(x)
    return packed_as(x, x.shape, dtype)  # seen in NumPy 2.4


no_gradient(_rounded)


def _round(a: Any, decimals: int = 0, out: None = None) -> Any:
    return _rounded(a, decimals)


register_numpy_function(np.round, _round)
register_numpy_function(np.around, _round)


@register_numpy_function(np.fix)
def _(x: Any, out: None = None) -> Any:
    if SINCE_2_5:
        warn_user(
            "numpy.fix is deprecated. Use numpy.trunc instead, which is faster and"
            " follows the Array API standard.",
            DeprecationWarning,
        )
    return np.trunc(x)


_STEPS = (
    "floor",
    "ceil",
    "trunc",
    "rint",
    "signbit",
    "isnan",
    "isinf",
    "isfinite",
    "spacing",
    "bitwise_count",
)
_COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
_LOGIC = (
    "logical_and",
    "logical_or",
    "logical_xor",
    "logical_not",
    "bitwise_and",
    "bitwise_or",
    "bitwise_xor",
    "invert",
    "left_shift",
    "right_shift",
    "gcd",
    "lcm",
)
for _name in (*_STEPS, *_COMPARISONS, *_LOGIC, "floor_divide"):
    no_gradient(ufunc_operator(_name))

_isnat = no_gradient(ufunc_operator("isnat"))
_isnat.register_sample_inputs(
    lambda: [
        (np.array("NaT", "M8[s]"),),
        (np.array(["2001-02-03", "NaT"], "M8[D]"),),
        (np.array([[1, 2, 3], [4, 5, 6]], "m8[h]"),),
    ]
)
