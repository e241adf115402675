"""Warnings and errors of NumPy that depend on values, also of rows under vmap."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from customop import FakeArray, Operator, Tag, fake_like
from customop.numpy.arguments import dtype_of
from customop.numpy.rules import no_gradient, numpy_operator

__all__ = ["require", "warn_unless"]


def _check_flags(x: Any) -> None:
    if dtype_of(x) != np.bool_:
        raise TypeError(f"np::checked takes an array of flags, got {dtype_of(x)}")


def _kernel(x: Any, message: str, warns: bool) -> Any:
    _check_flags(x)
    if not bool(np.all(x)):
        if not warns:
            raise ValueError(message)
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    return x.copy()


def _without_warning(x: Any, message: str, warns: bool) -> Any:
    # A warning is not worth the computation of a lazy array.
    return x.copy() if warns else _kernel(x, message, warns)


_checked: Operator[..., Any] = numpy_operator(
    "checked",
    "(Array x, str message, bool warns) -> Array",
    _without_warning,
    tags=Tag.pointwise,
)
for _kind in ("cpu", "cuda"):
    _checked.register_kernel(_kind, _kernel)
no_gradient(_checked)
_checked.register_sample_inputs(
    lambda: [
        (np.array(True), "never", False),
        (np.array([True, True]), "never", True),
        (np.ones((2, 3), bool), "never", False),
    ]
)


@_checked.register_fake
def _(x: Any, message: str, warns: bool) -> FakeArray:
    _check_flags(x)
    return fake_like(x)


def warn_unless(condition: Any, message: str) -> None:
    """Give a RuntimeWarning if a flag of an array is not set."""
    _check(condition, message, True)


def require(condition: Any, message: str) -> None:
    """Raise a ValueError if a flag of an array is not set."""
    _check(condition, message, False)


def _check(condition: Any, message: str, warns: bool) -> None:
    # Flags of NumPy are known also where fake arrays are made.
    is_plain = isinstance(condition, np.ndarray | np.generic)
    check = _kernel if is_plain else _checked
    check(condition, message, warns)
