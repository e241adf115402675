"""Layouts of arrays: the order of their axes in memory, and their strides."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from customop.arrays.kinds import (
    has_device,
)
from customop.arrays.strides import axis_order, strides_of

__all__ = [
    "differ_in_order",
    "differ_in_strides",
    "has_certain_order",
    "is_broadcast",
]


def has_certain_order(leaves: Sequence[Any]) -> bool:
    """Whether a fake kernel can know the order of axes of a result.

    They do where all lie in C order, and none is broadcast against another. From other
    arguments NumPy's functions choose for themselves: ``x.copy()`` gives C order, and
    ``x * 2`` that of `x`.
    """
    arrays = [v for v in leaves if has_device(v)]
    if any(is_broadcast(v) or not _in_c_order(v) for v in arrays):
        return False
    shapes = {tuple(v.shape) for v in arrays if len(v.shape)}
    return len(shapes) < 2 or not _fit_together(shapes)


def _in_c_order(value: Any) -> bool:
    order = _long_axes(tuple(value.shape), strides_of(value))
    return order == sorted(order)


def _fit_together(shapes: Iterable[tuple[int, ...]]) -> bool:
    """Whether two of these shapes broadcast against each other."""
    return any(
        all(a == b or 1 in (a, b) for a, b in zip(x[::-1], y[::-1], strict=False))
        for x, y in itertools.combinations(shapes, 2)
    )


def is_broadcast(value: Any) -> bool:
    """Whether elements of an array share memory, since an axis has no stride."""
    if not has_device(value):
        return False
    pairs = zip(value.shape, strides_of(value), strict=True)
    return any(stride == 0 and length > 1 for length, stride in pairs)


def _long_axes(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    """The axes longer than one, in their order in memory."""
    return [axis for axis in axis_order(shape, strides) if shape[axis] > 1]


def differ_in_order(real: Any, fake: Any) -> bool:
    """Whether axes longer than one have another order in memory."""
    if not has_device(real) or not real.size:
        return False
    shape = tuple(real.shape)
    first, second = (_long_axes(shape, strides_of(x)) for x in (real, fake))
    return first != second


def differ_in_strides(real: Any, fake: Any) -> bool:
    """Whether axes longer than one have other strides."""
    if not has_device(real) or not real.size:
        return False
    triples = zip(real.shape, strides_of(real), strides_of(fake), strict=True)
    return any(length > 1 and a != b for length, a, b in triples)
