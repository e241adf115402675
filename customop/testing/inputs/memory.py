"""Copies of samples and of arrays, in memory laid out as before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any

import numpy as np

from customop.arrays.nested import map_nested
from customop.arrays.python_text import FILLER, margin, reach
from customop.core.samples import Sample

__all__ = [
    "copy_array",
    "fresh",
    "laid_out",
    "map_arrays",
    "plain_copies",
]


def fresh(sample: Sample) -> Sample:
    """Copy the arguments into new memory, so that a call may change them.

    Arrays keep their strides and flags. An array that is passed twice still is.
    """
    copies = plain_copies(sample)
    if copies is not None:
        return Sample(copies, {}, sample.note)
    known: dict[int, Any] = {}

    def copied(value: Any) -> Any:
        if id(value) not in known:
            known[id(value)] = _copy(value)
        return known[id(value)]

    return map_arrays(copied, sample)


_CONSTANT = frozenset((int, float, bool, str, complex, type(None)))


def plain_copies(sample: Sample) -> tuple[Any, ...] | None:
    """Copies of the arguments where these are different arrays, and constants.

    Takes a third of the time of `fresh`.
    """
    if sample.kwargs:
        return None
    copies: list[Any] = []
    first: Any = None
    for value in sample.args:
        if type(value) is np.ndarray:
            if first is not None and any(
                value is x for x in sample.args[: len(copies)]
            ):
                return None
            first = value
            copies.append(value.copy() if value.flags.carray else copy_array(value))
        elif type(value) in _CONSTANT:
            copies.append(value)
        else:
            return None
    return tuple(copies)


def map_arrays(fn: Callable[[Any], Any], sample: Sample) -> Sample:
    """Apply `fn` to every leaf of a sample."""
    args = tuple(map_nested(value, fn) for value in sample.args)
    kwargs = {name: map_nested(value, fn) for name, value in sample.kwargs.items()}
    return Sample(args, kwargs, sample.note)


def _copy(value: Any) -> Any:
    if type(value) is np.ndarray:
        return copy_array(value)
    # A Generator changes when it draws; arrays of other kinds copy themselves.
    changes = hasattr(value, "bit_generator") or hasattr(value, "__array_namespace__")
    return deepcopy(value) if changes else value


def copy_array(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Copy an array into new memory, with the same strides and flags."""
    if x.flags.c_contiguous and x.flags.aligned:
        out = x.copy()
    else:
        shift = x.ctypes.data % x.dtype.alignment
        out = laid_out(x, x.strides, shift)
    out.flags.writeable = x.flags.writeable
    return out


def laid_out(
    values: np.ndarray[Any, Any], strides: Sequence[int], shift: int = 0
) -> np.ndarray[Any, Any]:
    """Lay values out with these strides, `shift` bytes from an aligned address.

    The memory around and between the elements holds FILLER, which a kernel reads that
    takes the array for contiguous. Along an axis of stride 0 the first value repeats.
    """
    low, high = reach(values.shape, strides)
    before = margin(values)
    size = before + high - low + values.dtype.itemsize + shift + before
    memory = np.full(size, FILLER, np.uint8)
    out = np.ndarray(
        values.shape, values.dtype, memory, before + shift - low, tuple(strides)
    )
    if values.size:
        once = tuple(slice(0, 1) if s == 0 else slice(None) for s in strides)
        out[once] = values[once]
    return out
