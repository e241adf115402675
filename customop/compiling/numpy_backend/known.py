"""Kernels of NumPy's operators, and whether they are still the original ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from customop.core.table import RuleTable
from customop.graph.replay import can_be_direct, kernel_of

__all__ = ["builtin_kernel", "is_builtin", "ufunc_of"]


def builtin_kernel(op: object) -> Callable[..., Any] | None:
    """The kernel of an operator of NumPy, if it is the one of the package."""
    if not isinstance(op, RuleTable) or op.namespace != "np":
        return None
    kernel = kernel_of(op)
    if isinstance(kernel, np.ufunc):
        return kernel if kernel.__name__ == op.name else None
    module = getattr(kernel, "__module__", None) or ""
    return kernel if module.startswith("customop.numpy.") else None


def is_builtin(op: object) -> bool:
    """Whether an operator is one of NumPy, with the kernel of the package."""
    return builtin_kernel(op) is not None


def ufunc_of(op: RuleTable) -> np.ufunc | None:
    """The ufunc that is the kernel of an operator, or None."""
    if not can_be_direct(op):
        return None
    kernel = kernel_of(op)
    is_own = isinstance(kernel, np.ufunc) and kernel.__name__ == op.name
    return kernel if is_own else None  # type: ignore[return-value]  # a ufunc
