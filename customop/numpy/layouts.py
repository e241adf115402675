"""How results of several operators lie in memory, where NumPy makes one array.

The bits of later sums depend on it. Operators have their own order; here are the few
functions whose results NumPy lays out as their argument.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from customop import Tracer
from customop.numpy.arguments import dtype_of
from customop.numpy.fakes import is_fortran as is_fortran_array
from customop.numpy.fakes import order_of
from customop.numpy.sizes import has_none, typical

__all__ = [
    "columns_first",
    "contiguous",
    "in_c_order",
    "in_order_of",
    "is_fortran",
    "packed_like",
    "turned",
]


class _Lying(NamedTuple):
    """How an array lies in memory, as far as it is known."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: Any


def _lying(x: Any) -> _Lying | None:
    """How an array or tracer lies in memory; None for arrays that do not say so."""
    strides = _strides(x)
    if type(strides) is not tuple or len(strides) != len(x.shape):
        return None
    return _Lying(typical(x.shape), typical(strides), dtype_of(x))


def _strides(x: Any) -> Any:
    if not isinstance(x, Tracer):
        return getattr(x, "strides", None)
    below = _strides(x.below)
    is_row = type(below) is tuple and hasattr(x, "row_strides")
    return x.row_strides(below) if is_row else below


def is_fortran(x: Any) -> bool:
    """Whether an array is contiguous in F order and not in C order."""
    found = _lying(x) if len(x.shape) > 1 else None
    return found is not None and is_fortran_array(found)


def turned(fn: Callable[[Any, int], Any], x: Any, axis: int) -> Any:
    """A function of an array and an axis, whose result lies in F order if the array does."""
    if is_fortran(x):
        return fn(x.T, len(x.shape) - 1 - axis).T
    return fn(x, axis)


# ---- results that nobody else has ----


def in_order_of(out: Any, x: Any) -> Any:
    """A new array in the memory order of another one, as ``np.empty_like(x)`` has it."""
    found = _lying(x) if len(x.shape) > 1 else None
    if found is None:
        return out
    return _laid(out, order_of(len(x.shape), (found.strides,)))


def packed_like(out: Any, x: Any) -> Any:
    """A new array in F order if another one is contiguous in it, else in C order."""
    axes = range(len(out.shape))
    return _laid(out, axes[::-1] if is_fortran(x) else axes)


def in_c_order(out: Any) -> Any:
    """A new array in C order."""
    return _laid(out, range(len(out.shape)))


def columns_first(out: Any) -> Any:
    """New matrices in F order, each by itself, as LAPACK writes them."""
    *outer, row, column = range(len(out.shape))
    return _laid(out, (*outer, column, row))


def _laid(out: Any, order: Sequence[int]) -> Any:
    """A new array whose axes lie in memory in this order; itself if they do."""
    found = _lying(out) if len(out.shape) > 1 else None
    if found is None or has_none(found.shape):
        return out
    steps = [found.strides[i] for i in order if found.shape[i] != 1]
    if all(a > b for a, b in pairwise(steps)):
        return out
    return _copied(out, order)


def _copied(x: Any, order: Sequence[int]) -> Any:
    """A copy whose axes lie in memory in this order."""
    back = [order.index(i) for i in range(len(order))]
    return np.transpose(np.copy(np.transpose(x, order), order="C"), back)


# ---- arrays as they are, or copies ----


def contiguous(x: Any, order: str = "C") -> Any:
    """An array if it is contiguous in C or F order, else a copy that is."""
    found = _lying(x)
    if found is None or has_none(found.shape) or not found.shape:
        return x
    axes = range(len(found.shape))[:: -1 if order == "F" else 1]
    step = found.dtype.itemsize
    for i in reversed(axes):
        if found.shape[i] != 1 and found.strides[i] != step:
            return _copied(x, axes)
        step *= found.shape[i]
    return x
