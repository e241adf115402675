"""How arrays of one run lie in memory: which blocks they are cut into, and in what order.

The axes are put in the order of the results in memory, and axes that lie one inside the
other in all arrays are made one. An array that broadcasts along such an axis has the
length one there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from customop.compiling.numpy_backend.limits import limits

__all__ = [
    "Cuts",
    "Fold",
    "cuts_from",
    "cuts_of",
    "fold_arrays",
    "packed_order",
    "strides_of",
]


def packed_order(
    shape: Sequence[int], strides: Sequence[int], itemsize: int
) -> tuple[int, ...] | None:
    """The axes from the slowest to the fastest; None if there are gaps between elements."""
    axes = [i for i, n in enumerate(shape) if n != 1]
    order = sorted(axes, key=lambda i: -strides[i])
    step = itemsize
    for i in reversed(order):
        if strides[i] != step:
            return None
        step *= shape[i]
    return (*[i for i, n in enumerate(shape) if n == 1], *order)


def strides_of(shape: Sequence[int], itemsize: int) -> np.ndarray[Any, Any]:
    """The strides of an array in C order."""
    steps = [itemsize]
    for n in reversed(shape[1:]):
        steps.append(steps[-1] * n)
    return np.array(steps[::-1][: len(shape)], np.intp)


class Fold(NamedTuple):
    """How an array becomes one of few axes.

    Attributes
    ----------
    shape : tuple of int
        With all axes of the run.
    order : tuple of int
        Of these.
    folded : tuple of int
        The shape with axes made one.
    is_in_order : bool
        Whether the axes keep their order.
    """

    shape: tuple[int, ...]
    order: tuple[int, ...]
    folded: tuple[int, ...]
    is_in_order: bool

    def of(self, x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """A view of an array."""
        if len(self.shape) == len(self.folded) == 1 and x.ndim == 1:
            return x
        if self.is_in_order:
            return x.reshape(self.folded)
        return x.reshape(self.shape).transpose(self.order).reshape(self.folded)


def fold_arrays(
    shape: Sequence[int],
    order: Sequence[int],
    arrays: Sequence[tuple[Sequence[int], Sequence[int]]],
) -> tuple[tuple[int, ...], list[Fold]]:
    """Make axes one.

    Parameters
    ----------
    shape : sequence of int
        Of the results.
    order : sequence of int
        Of their axes in memory.
    arrays : sequence of pairs
        Shape and strides of each array.

    Returns
    -------
    tuple of int
        The lengths of the new axes.
    list of Fold
        For each array.
    """
    wide = [_over(shape, *array) for array in arrays]
    groups: list[list[int]] = []
    for axis in order:
        if shape[axis] == 1:
            continue
        if groups and all(_is_inside(s, groups[-1][-1], axis, shape) for s in wide):
            groups[-1].append(axis)
        else:
            groups.append([axis])
    lengths = tuple([math.prod([shape[i] for i in group]) for group in groups])
    axes = [axis for group in groups for axis in group]
    is_in_order = axes == sorted(axes)
    folds = []
    for own, _ in arrays:
        full = (1,) * (len(shape) - len(own)) + tuple(own)
        folded = [math.prod([full[i] for i in group]) for group in groups]
        folds.append(Fold(full, tuple(order), tuple(folded), is_in_order))
    return lengths, folds


def _over(
    shape: Sequence[int], own: Sequence[int], strides: Sequence[int]
) -> list[int | None]:
    """Strides along the axes of the results; None along those that it does not have."""
    missing = len(shape) - len(own)
    return [
        *[None] * missing,
        *[None if n == 1 else s for n, s in zip(own, strides, strict=True)],
    ]


def _is_inside(
    strides: Sequence[int | None], outer: int, inner: int, shape: Sequence[int]
) -> bool:
    """Whether a step along one axis is as many along another as that is long."""
    a, b = strides[outer], strides[inner]
    if a is None or b is None:
        return a is b
    return a == b * shape[inner]


class Cuts(NamedTuple):
    """Blocks of one shape, in order.

    Attributes
    ----------
    shape : tuple of int
    keys : list of tuple of slice
        For each block one slice of each axis.
    """

    shape: tuple[int, ...]
    keys: list[tuple[slice, ...]]


def cuts_of(lengths: Sequence[int], usual: int, most: int) -> list[Cuts] | None:
    """Cut an array into blocks.

    Parameters
    ----------
    lengths : sequence of int
        Of the axes, which lie in this order in memory.
    usual, most : int
        Numbers of elements of a block.

    Returns
    -------
    list of Cuts or None
        None where blocks of these lengths cannot begin at whole registers of the processor.
        NumPy computes the elements after the last whole register by other instructions,
        of which the sum of two nan has the sign of the other one (NumPy 2.4, x86).
    """
    if math.prod(lengths) <= usual:
        return [Cuts(tuple(lengths), [tuple([slice(0, n) for n in lengths])])]
    keys = _keys(lengths, usual, most)
    return None if keys is None else _by_shape(keys)


def cuts_from(first: int, length: int, usual: int) -> tuple[list[Cuts], list[Cuts]]:
    """Cut an array of one axis into blocks of which the first begins at an element.

    Parameters
    ----------
    first, length : int
        The element, and the length of the array.
    usual : int
        The number of elements of a block.

    Returns
    -------
    list of Cuts
        The two ends. They overlap other blocks, so that what is in whole registers in a
        call for the whole array is so here, and what is left over is so, too.
    list of Cuts
        The other blocks; empty where the array is too short.
    """
    unit = limits.multiple
    stop = first + (length // unit * unit - first) // unit * unit
    if stop - first < 2 * unit:
        return [], []
    starts = range(first, stop, usual)
    keys = [(slice(a, min(a + usual, stop)),) for a in starts]
    last = stop // unit * unit - unit
    ends = [(slice(0, -(-first // unit) * unit),), (slice(last, length),)]
    return _by_shape(ends), _by_shape(keys)


def _by_shape(keys: Sequence[tuple[slice, ...]]) -> list[Cuts]:
    found: dict[tuple[int, ...], Cuts] = {}
    for key in keys:
        shape = tuple([k.stop - k.start for k in key])
        found.setdefault(shape, Cuts(shape, [])).keys.append(key)
    return [*found.values()]


def _keys(
    lengths: Sequence[int], usual: int, most: int
) -> list[tuple[slice, ...]] | None:
    inner = math.prod(lengths[1:])
    unit = limits.multiple // math.gcd(inner, limits.multiple)
    step = max(usual // (inner * unit), 1) * unit
    if step * inner <= most:
        whole = tuple([slice(0, n) for n in lengths[1:]])
        return [(own, *whole) for own in _steps(lengths[0], step, unit, inner)]
    if inner % limits.multiple:
        return None
    rest = _keys(lengths[1:], usual, most)
    if rest is None:
        return None
    return [(slice(i, i + 1), *key) for i in range(lengths[0]) for key in rest]


def _steps(length: int, step: int, unit: int, inner: int) -> list[slice]:
    """Blocks of about the same length, the last one of more than a register."""
    count = -(-length // step)
    step = -(-length // (count * unit)) * unit
    starts = [*range(0, length, step)]
    if len(starts) > 1 and (length - starts[-1]) * inner < limits.multiple:
        del starts[-1]
    return [slice(a, b) for a, b in pairwise([*starts, length])]
