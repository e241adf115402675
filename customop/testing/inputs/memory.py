"""Copies of samples and of arrays, in memory laid out as before."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, Final

import numpy as np

from customop.arrays.bits import has_bits
from customop.arrays.nested import map_nested
from customop.arrays.python_text import FILLER, margin, reach
from customop.core.samples import Sample

__all__ = [
    "CONSTANT",
    "copy_array",
    "copy_leaf",
    "fresh",
    "laid_out",
    "map_arrays",
    "map_values",
    "plain_copies",
]


def fresh(sample: Sample) -> Sample:
    """Copy the arguments into new memory, so that a call may change them.

    Arrays keep their strides and flags. An array that is passed twice still is.
    """
    copies = None if sample.kwargs else plain_copies(sample.args)
    if copies is not None:
        return Sample(tuple(copies), {}, sample.note)
    known: dict[int, Any] = {}

    def copied(value: Any) -> Any:
        if id(value) not in known:
            known[id(value)] = copy_leaf(value)
        return known[id(value)]

    return map_arrays(copied, sample)


# Classes of values that a call cannot change.
CONSTANT: Final = frozenset((int, float, bool, str, complex, type(None)))


def plain_copies(values: Sequence[Any]) -> list[Any] | None:
    """Copies of arguments where these are different arrays, and constants.

    Takes a third of the time of `fresh`.
    """
    copies: list[Any] = []
    first: Any = None
    for value in values:
        if type(value) is np.ndarray:
            if first is not None and any(value is x for x in values[: len(copies)]):
                return None
            first = value
            copies.append(value.copy() if value.flags.carray else copy_array(value))
        elif type(value) in CONSTANT:
            copies.append(value)
        else:
            return None
    return copies


def map_arrays(fn: Callable[[Any], Any], sample: Sample) -> Sample:
    """Apply `fn` to every leaf of a sample."""
    args = tuple(map_nested(value, fn) for value in sample.args)
    kwargs = {name: map_nested(value, fn) for name, value in sample.kwargs.items()}
    return Sample(args, kwargs, sample.note)


def map_values(fn: Callable[[Any], Any], values: Sequence[Any]) -> list[Any]:
    """Apply `fn` to every leaf of the values of parameters but constants."""
    return [
        value
        if type(value) in CONSTANT
        else fn(value)
        if type(value) is np.ndarray
        else map_nested(value, fn)
        for value in values
    ]


def copy_leaf(value: Any) -> Any:
    """Copy a leaf that a call may change; other leaves as they are."""
    if type(value) is np.ndarray:
        return copy_array(value)
    # A Generator changes when it draws; arrays of other kinds copy themselves.
    changes = has_bits(value) or hasattr(value, "__array_namespace__")
    return deepcopy(value) if changes else value


def copy_array(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Copy an array into new memory, with the same strides and flags."""
    if x.flags.c_contiguous and x.flags.aligned:
        out = x.copy()
    else:
        shift = 0 if x.flags.aligned else x.ctypes.data % x.dtype.alignment
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
