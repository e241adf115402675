"""Strides of arrays that NumPy makes: dense in C order, or in the order of another array."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from importlib import import_module
from types import ModuleType
from typing import Any

from customop.arrays.dtypes import dtype_of
from customop.later import later
from customop.shapes.symbols import made

sizes: ModuleType = later(import_module, "customop.shapes.sizes")

__all__ = [
    "all_plain",
    "axis_order",
    "c_strides",
    "like_strides",
    "packed_strides",
    "strides_of",
]


def strides_of(x: Any) -> tuple[int, ...]:
    """Strides in bytes; C order for arrays without strides."""
    strides = getattr(x, "strides", None)
    return (
        c_strides(tuple(x.shape), dtype_of(x).itemsize) if strides is None else strides
    )


def c_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """Strides of a new array in C order; zeros if it is empty, as in NumPy 2.4.

    Those of a symbolic shape are products, as if it were not empty.
    """
    if not made or all_plain(shape):
        return _c_strides(shape, itemsize)
    return packed_strides(shape, range(len(shape)), itemsize)


@lru_cache(maxsize=4096)
def _c_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    return packed_strides(shape, range(len(shape)), itemsize)


_INT = {int}


def all_plain(sizes: Sequence[Any]) -> bool:
    """Whether all sizes are numbers: none is symbolic."""
    return not made or _INT.issuperset(map(type, sizes))


def like_strides(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    itemsize: int,
    new_shape: tuple[int, ...],
    new_itemsize: int,
) -> tuple[int, ...]:
    """Strides of ``np.empty_like`` for an array of `shape` and `strides`."""
    if not made or all_plain((*shape, *new_shape, *strides)):
        return _known_like_strides(shape, strides, itemsize, new_shape, new_itemsize)
    if shape is new_shape and itemsize == new_itemsize:
        dense = packed_strides(shape, range(len(shape)), itemsize)
        if all(map(sizes.is_known, strides, dense)):
            return dense
    return _like_strides(shape, strides, itemsize, new_shape, new_itemsize)


def _like_strides(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    itemsize: int,
    new_shape: tuple[int, ...],
    new_itemsize: int,
) -> tuple[int, ...]:
    order = _like_order(shape, strides, itemsize, len(new_shape))
    return packed_strides(new_shape, order, new_itemsize)


_known_like_strides = lru_cache(maxsize=4096)(_like_strides)


def _like_order(
    shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int, ndim: int
) -> Sequence[int]:
    """Axes of an array that is made like another one, slowest in memory first."""
    order: Sequence[int] = range(ndim)
    if len(shape) == ndim and not _is_packed(shape, strides, order, itemsize):
        if _is_packed(shape, strides, order[::-1], itemsize):
            return order[::-1]
        return axis_order(shape, strides)
    return order


def _is_packed(
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    order: Sequence[int],
    itemsize: int,
) -> bool:
    """Whether an array is dense in this order; strides of axes of length 1 are free."""
    dense = packed_strides(shape, order, itemsize)
    return all(
        a is b or sizes.is_known(a, b) or sizes.is_known(length, 1)
        for a, b, length in zip(strides, dense, shape, strict=True)
    )


def axis_order(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    """Axes from the slowest in memory to the fastest; ties stay in C order."""
    if not all_plain(strides):
        strides = tuple(map(sizes.typical, strides))
    return sorted(range(len(shape)), key=lambda axis: -abs(strides[axis]))


def packed_strides(
    shape: tuple[int, ...], order: Sequence[int], itemsize: int
) -> tuple[int, ...]:
    """Strides of a dense array whose axes lie in memory in this order."""
    strides = [0] * len(shape)
    for length in shape:
        if type(length) is int and not length:
            return tuple(strides)
    step, last = itemsize, 0
    for i, axis in enumerate(reversed(order)):
        if i:
            step *= shape[last]
        strides[axis], last = step, axis
    return tuple(strides)
