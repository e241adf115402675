"""The functions of ``numpy.emath``, whose results are complex where real ones do not exist.

Their dtypes depend on the values, so the values must be known: not under vmap, and not
for fake arrays, unless the argument is complex.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from customop import DataDependentError, register_numpy_function
from customop.numpy.arguments import as_array, dtype_of, value_of
from customop.numpy.create import array_like
from customop.numpy.rules import is_complex

__all__: list[str] = []


def _is_any(name: str, x: Any, test: Callable[[Any], Any]) -> bool:
    """Whether some elements pass a test; raise where they are not known."""
    if is_complex(x):
        return False
    value = value_of(x)
    if value is None:
        raise DataDependentError(
            f"np.emath.{name}: whether the result is complex depends on data, which is not"
            " known under vmap and for fake arrays",
            do=f"cast first: np.{name}(x.astype(complex)); or use np.{name}(x)",
        )
    return bool(np.any(test(value)))


def _as_complex(x: Any) -> Any:
    """The array in the complex dtype of its precision."""
    is_short = dtype_of(x).char in "bBhHfF"
    return x.astype(np.complex64 if is_short else np.complex128)


def _wide(name: str, x: Any, test: Callable[[Any], Any]) -> Any:
    x = as_array(x)
    return _as_complex(x) if _is_any(name, x, test) else x


def _is_negative(x: Any) -> Any:
    return x < 0


def _is_beyond_one(x: Any) -> Any:
    return np.absolute(x) > 1


def _serve(name: str, test: Callable[[Any], Any]) -> None:
    ufunc: Any = getattr(np, name)
    register_numpy_function(
        getattr(np.emath, name), lambda x: ufunc(_wide(name, x, test))
    )


for _name in ("sqrt", "log", "log2", "log10"):
    _serve(_name, _is_negative)
for _name in ("arccos", "arcsin", "arctanh"):
    _serve(_name, _is_beyond_one)


@register_numpy_function(np.emath.logn)
def _(n: Any, x: Any) -> Any:
    x, n = _wide("logn", x, _is_negative), _wide("logn", n, _is_negative)
    return np.log(x) / np.log(n)


@register_numpy_function(np.emath.power)
def _(x: Any, p: Any) -> Any:
    like = x if hasattr(x, "dtype") else p
    x, p = _wide("power", array_like(x, like), _is_negative), array_like(p, like)
    is_whole = dtype_of(p).kind in "iu" and not is_complex(x)
    if is_whole and _is_any("power", p, _is_negative):
        p = p * 1.0  # NumPy has no negative powers of integers
    return np.power(x, p)
