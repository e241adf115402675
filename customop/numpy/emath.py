"""Functions of ``np.emath``, whose results are complex where real ones do not exist.

The dtype of a result depends on data, so these functions need values: fake arrays and rows
of vmap have an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from customop import DataDependentError, register_numpy_function
from customop.numpy.arguments import as_array, dtype_of
from customop.numpy.compare import value_of
from customop.numpy.rules import is_complex

__all__: list[str] = []

# Dtypes whose results are complex numbers of single precision.
_SINGLE = (np.float32, np.complex64, np.int8, np.uint8, np.int16, np.uint16)


def _any(name: str, x: Any, test: Callable[[Any], Any]) -> bool:
    """Whether a test holds for an element of a real array."""
    if is_complex(x):
        return False
    value = value_of(x)
    if value is None:
        raise DataDependentError(
            f"np.emath.{name} under vmap, or of a fake array: the dtype of the result"
            " depends on data",
            do="use the function of np: of x for real results, or of x.astype(complex)",
        )
    return bool(np.any(test(value)))


def _as_complex(x: Any) -> Any:
    kind = np.complex64 if dtype_of(x) in _SINGLE else np.complex128
    return x.astype(kind)


def _below_zero(name: str, value: Any) -> Any:
    """The array, complex if an element is negative."""
    x = as_array(value)
    return _as_complex(x) if _any(name, x, lambda v: np.less(v, 0)) else x


def _beyond_one(name: str, value: Any) -> Any:
    """The array, complex if an element is beyond one."""
    x = as_array(value)
    is_beyond = _any(name, x, lambda v: np.greater(np.absolute(v), 1))
    return _as_complex(x) if is_beyond else x


def _register(name: str, fixed: Callable[[str, Any], Any]) -> None:
    function = getattr(np, name)
    register_numpy_function(getattr(np.emath, name), lambda x: function(fixed(name, x)))


for _name in ("sqrt", "log", "log2", "log10"):
    _register(_name, _below_zero)
for _name in ("arccos", "arcsin", "arctanh"):
    _register(_name, _beyond_one)


@register_numpy_function(np.emath.logn)
def _(n: Any, x: Any) -> Any:
    return np.log(_below_zero("logn", x)) / np.log(_below_zero("logn", n))


@register_numpy_function(np.emath.power)
def _(x: Any, p: Any) -> Any:
    exponent = as_array(p)
    if _any("power", exponent, lambda v: np.less(v, 0)):
        exponent = exponent * 1.0
    return np.power(_below_zero("power", x), exponent)
