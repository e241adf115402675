"""Whether results for short dtypes are those for wide ones, as far as they can be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from customop.arrays.kinds import is_array
from customop.testing.checks.session import same_bits

__all__ = ["same_numbers"]


def same_numbers(short: Any, wide: Any, given: Sequence[np.dtype[Any]]) -> bool:
    """Whether results are equal, as far as the dtype of the first can hold.

    `given` are those of the arguments: a result may be wider than what it is made of.
    """
    if not (is_array(short) and is_array(wide)):
        return True
    if short.dtype.kind not in "iufc":
        return True
    if short.shape != wide.shape or wide.dtype.kind not in "iufc":
        return bool(short.shape == wide.shape)
    if short.dtype.kind in "iu":
        return np.array_equal(short, wide) or _are_near(*_held(short, wide))
    if short.dtype.kind == wide.dtype.kind == "f":
        with np.errstate(over="ignore"):
            wide = wide.astype(short.dtype)  # too large a number becomes infinite
    if same_bits(short, wide) or np.array_equal(short, wide):
        return True
    bound = max(map(_loosest, [short.dtype, *given]))
    return _are_close(short, wide.astype(np.result_type(short, wide)), bound)


def _are_near(short: Any, wide: Any) -> bool:
    """Whether whole numbers are as close as rounding leaves them."""
    return bool(np.all(np.abs(short - wide) <= 1.0))


def _are_close(short: Any, wide: Any, bound: float) -> bool:
    """Whether numbers are as close as a share of the greatest; np.allclose takes 30 us."""
    finite = np.isfinite(wide)
    scale = np.abs(wide[finite]).max(initial=1.0)
    with np.errstate(all="ignore"):
        apart = np.abs(short - wide)
    is_nan = np.isnan(wide)
    same = np.where(finite, apart <= bound * scale, (short == wide) | is_nan)
    return bool(np.all(same & (np.isnan(short) == is_nan)))


def _held(short: Any, wide: Any) -> tuple[Any, Any]:
    """The elements that the integers of `short` can hold; the others wrap around."""
    limits = np.iinfo(short.dtype)
    fits = (wide >= limits.min) & (wide <= limits.max)
    return short[fits].astype(np.float64), wide[fits].astype(np.float64)


# How far results may be off, relative to the greatest of them; integers by one. Loose:
# memory that is read as another dtype is off by far.
_LOOSE = {2: 1e-1, 4: 1e-2}


def _loosest(dtype: np.dtype[Any]) -> float:
    if dtype.kind not in "fc":
        return 0.0
    return _LOOSE.get(dtype.itemsize // (2 if dtype.kind == "c" else 1), 1e-3)
