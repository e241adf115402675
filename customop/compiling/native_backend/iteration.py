"""The order in which NumPy goes over the items of arrays, on which its rounding depends.

Checked on NumPy 2.4. Axes are sorted by the sizes of their strides, and those that can be
one axis become one. A result that NumPy makes has its axes in that order, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

# Items in a buffer of NumPy's iterator: ``np.getbufsize()`` as long as nobody sets it.
BUFFER: Final = 8192


class LoopAxis(NamedTuple):
    """An axis that a loop goes over: its length, and the step of each operand in bytes."""

    length: int
    strides: tuple[int, ...]


def merged_axes(
    shape: Sequence[int], strides: Sequence[Sequence[int]]
) -> list[LoopAxis]:
    """Return the axes that NumPy's iterator goes over, the innermost first.

    Parameters
    ----------
    shape : sequence of int
        None of the lengths is 0.
    strides : sequence of sequence of int
        For each operand its strides, 0 where it is broadcast.

    Returns
    -------
    list of LoopAxis
        Empty for one item.
    """
    columns = [*zip(*strides, strict=True)] if shape else []
    axes = [
        LoopAxis(length, steps)
        for length, steps in zip(shape, columns, strict=True)
        if length != 1
    ]
    axes.reverse()
    if len(axes) > 1:
        _sort(axes)
    return _merged(axes)


def _merged(axes: Sequence[LoopAxis]) -> list[LoopAxis]:
    """Join neighbors where each operand goes on in the same step."""
    found: list[LoopAxis] = []
    for axis in axes:
        if found:
            inner = found[-1]
            if all(
                a * inner.length == b
                for a, b in zip(inner.strides, axis.strides, strict=True)
            ):
                found[-1] = LoopAxis(inner.length * axis.length, inner.strides)
                continue
        found.append(axis)
    return found


def _sort(axes: list[LoopAxis]) -> None:
    """Sort axes as NumPy does: by insertion, and C order where operands disagree."""
    for i in range(1, len(axes)):
        axis, place = axes[i], i
        for j in range(i - 1, -1, -1):
            order = _compared(axis.strides, axes[j].strides)
            if order is None:
                continue
            if not order:
                break
            place = j
        if place != i:
            axes.insert(place, axes.pop(i))


def _compared(strides: Sequence[int], inner: Sequence[int]) -> bool | None:
    """Return whether an axis belongs inside of another one; None if no operand says."""
    swaps: bool | None = None
    for a, b in zip(strides, inner, strict=True):
        if a and b:
            if abs(b) <= abs(a):
                return False
            swaps = True
    return swaps


def result_strides(
    shape: tuple[int, ...], itemsize: int, operands: Sequence[np.ndarray[Any, Any]]
) -> tuple[int, ...] | None:
    """Return the strides of a new result that has the order of its operands.

    Parameters
    ----------
    shape : tuple of int
    itemsize : int, bytes
    operands : sequence of array
        They broadcast to `shape`.

    Returns
    -------
    tuple of int or None
        None for C order.
    """
    if len(shape) < 2 or all(a.flags.c_contiguous for a in operands):
        return None
    steps = [strides_within(a, shape) for a in operands]
    axes = [
        LoopAxis(i, tuple([0 if shape[i] == 1 else s[i] for s in steps]))
        for i in range(len(shape) - 1, -1, -1)
    ]
    _sort(axes)
    found, step = [0] * len(shape), itemsize
    for axis in axes:
        found[axis.length] = step
        step *= shape[axis.length]
    return tuple(found)


def strides_within(
    array: np.ndarray[Any, Any], shape: tuple[int, ...]
) -> tuple[int, ...]:
    """Return the strides of an array that is broadcast to a shape."""
    own = array.shape
    if own == shape:
        return array.strides
    more = len(shape) - len(own)
    steps = [
        step if length == whole else 0
        for step, length, whole in zip(array.strides, own, shape[more:], strict=True)
    ]
    return (*[0] * more, *steps)


def reduction_axes(
    shape: Sequence[int], source: Sequence[int], result: Sequence[int]
) -> list[LoopAxis]:
    """Return the axes of a reduction, the innermost first: strides of result and source.

    The result, which NumPy has not made yet when it sorts the axes, has no say.

    Parameters
    ----------
    shape : sequence of int
        Of the source; none of the lengths is 0.
    source, result : sequence of int
        Strides; those of the result are 0 along the axes that are reduced.
    """
    axes = [
        LoopAxis(length, (step,))
        for length, step in zip(shape, source, strict=True)
        if length != 1
    ]
    pairs = [
        LoopAxis(length, (own, step))
        for length, own, step in zip(shape, result, source, strict=True)
        if length != 1
    ]
    if len(axes) < 2:
        return pairs
    places = [LoopAxis(i, axis.strides) for i, axis in enumerate(axes)]
    places.reverse()
    _sort(places)
    return _merged([pairs[place.length] for place in places])
