"""Operators in code that numba compiles: calls of their kernels."""

from __future__ import annotations

from typing import Any

from customop.arrays.kinds import DEFAULT
from customop.core.njit_kernels import compiled_of
from customop.core.operator import Operator
from customop.errors import MissingRuleError
from customop.interop.numba.framework import NumbaError, type_in_code, typeof_impl

__all__ = ["register_type"]


def register_type() -> None:
    """Tell numba the type of an operator: that of its kernel."""
    typeof_impl.register(Operator)(_type_of)


def _type_of(op: Operator[..., Any], context: Any) -> Any:
    row = op.rows.get("cpu") or op.rows.get(DEFAULT)
    try:
        if row is not None:
            return type_in_code(compiled_of(row.fn))
    except (NumbaError, ValueError):
        pass  # numba does not know what it is; the error below says so
    raise op.error(
        MissingRuleError,
        " has no kernel that numba can call in compiled code",
        do="put @numba.njit or @numba.vectorize between @custom_op and the function",
        kind="cpu",
    )
