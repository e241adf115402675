"""Operators of NumPy's ufuncs, with their fake kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from customop import Operator, Tag, custom_op, register_numpy_function
from customop.numpy.fakes import fake_of_ufunc
from customop.numpy.rules import register_formulas

__all__ = ["binary", "ufunc_operator", "unary"]

_UNARY = "(Array x) -> Array"
_BINARY = "(Array|Scalar x1, Array|Scalar x2) -> Array"


def ufunc_operator(name: str) -> Operator[..., Any]:
    """Make the operator of a ufunc, with its fake kernel."""
    ufunc = getattr(np, name)
    schema = _UNARY if ufunc.nin == 1 else _BINARY
    kernel: Callable[..., Any] = ufunc
    op = custom_op(
        f"np::{name}", kernel, mutates_args=(), schema=schema, tags=Tag.pointwise
    )
    op.register_fake(fake_of_ufunc(ufunc))
    register_numpy_function(ufunc, op)
    return op


def unary(name: str, formula: Any) -> Operator[..., Any]:
    """Make the operator of a ufunc of one array, with its derivative."""
    op = ufunc_operator(name)
    register_formulas(op, ("x",), (formula,))
    return op


def binary(name: str, first: Any, second: Any) -> Operator[..., Any]:
    """Make the operator of a ufunc of two arrays, with its two derivatives."""
    op = ufunc_operator(name)
    register_formulas(op, ("x1", "x2"), (first, second))
    return op
