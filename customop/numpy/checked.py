"""Warnings and errors of NumPy that depend on values, also of rows under vmap."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from customop import Operator, Tag, fake_like
from customop.numpy.rules import no_gradient, numpy_operator

__all__ = ["require", "warn_unless"]


def _kernel(x: Any, message: str, warns: bool) -> Any:
    if not bool(np.all(x)):
        if not warns:
            raise ValueError(message)
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    return x.copy()


_checked: Operator[..., Any] = numpy_operator(
    "checked",
    "(Array x, str message, bool warns) -> Array",
    _kernel,
    tags=Tag.pointwise,
)
_checked.register_fake(lambda x, message, warns: fake_like(x))
no_gradient(_checked)


def warn_unless(condition: Any, message: str) -> Any:
    """The flags of an array; a RuntimeWarning if one is not set."""
    return _checked(condition, message, True)


def require(condition: Any, message: str) -> Any:
    """The flags of an array; a ValueError if one is not set."""
    return _checked(condition, message, False)
