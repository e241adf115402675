"""Elements at places given by index arrays, for arrays of any kind.

Libraries differ in what several index arrays select, and most cannot add at places. These
kernels need one index array at a time, and matrix products. NumPy and CuPy have their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from customop.numpy.arguments import is_inexact
from customop.numpy.rules import is_complex

__all__ = ["gathered", "scattered"]


def _flat_places(lengths: Sequence[int], places: Sequence[Any]) -> Any:
    """Places along several axes as places along one, in one axis.

    One that is out of bounds stays so.
    """
    flat: Any = 0
    fits: Any = True
    for place, n in zip(places, lengths, strict=True):
        fits = np.logical_and(fits, np.logical_and(place >= -n, place < n))
        flat = flat * n + np.where(place < 0, place + n, place)
    inside = np.where(fits, flat, math.prod(lengths))
    return np.reshape(inside, (math.prod(inside.shape),))


def _check_bounds(lengths: Sequence[int], places: Sequence[Any]) -> None:
    """Raise for an index of NumPy that is out of bounds."""
    for place, n in zip(places, lengths, strict=True):
        if isinstance(place, np.ndarray) and ((place < -n) | (place >= n)).any():
            raise IndexError(f"an index is out of bounds for an axis of length {n}")


def gathered(x: Any, indices: Sequence[Any], at: int) -> Any:
    """The elements at index arrays; the axes of the arrays come at `at`."""
    slots = [i for i, a in enumerate(indices) if a is not None]
    lengths = [x.shape[i] for i in slots]
    places = np.broadcast_arrays(*[indices[i] for i in slots])
    _check_bounds(lengths, places)
    shape = tuple(places[0].shape)
    first = np.moveaxis(x, tuple(slots), tuple(range(len(slots))))
    rest = tuple(first.shape[len(slots) :])
    lines = np.reshape(first, (math.prod(lengths), *rest))
    found = np.take(lines, _flat_places(lengths, places), axis=0)
    found = np.reshape(found, (*shape, *rest))
    own = tuple(range(len(shape)))
    return np.moveaxis(found, own, tuple([at + i for i in own]))


def _sums(hot: Any, lines: Any) -> Any:
    """The sums of the lines that flags select.

    Infinite values and nan are added apart: 0 times them is nan.
    """
    if not is_inexact(lines):
        return np.matmul(hot.astype(lines.dtype), lines)
    is_pair = is_complex(lines)
    parts = (np.real(lines), np.imag(lines)) if is_pair else (lines,)
    kept = [np.where(np.isfinite(p), p, np.zeros_like(p)) for p in parts]
    finite = kept[0] + 1j * kept[1] if is_pair else kept[0]
    sums = np.matmul(hot.astype(lines.dtype), finite)
    for i, part in enumerate(parts):
        for value in (math.inf, -math.inf, math.nan):
            is_there = np.isnan(part) if math.isnan(value) else np.equal(part, value)
            dtype = part.dtype
            count = np.matmul(hot.astype(dtype), is_there.astype(dtype))
            number = complex(0.0, value) if i else value
            apart = np.full_like(sums, number)
            sums = sums + np.where(np.greater(count, 0), apart, np.zeros_like(sums))
    return sums


def scattered(g: Any, shape: Sequence[int], indices: Sequence[Any], at: int) -> Any:
    """Zeros with `g` added at index arrays: a product with a matrix of zeros and ones."""
    slots = [i for i, a in enumerate(indices) if a is not None]
    lengths = [shape[i] for i in slots]
    places = np.broadcast_arrays(*[indices[i] for i in slots])
    _check_bounds(lengths, places)
    own = tuple(range(len(places[0].shape)))
    first = np.moveaxis(g, tuple([at + i for i in own]), own)
    rest = tuple(first.shape[len(own) :])
    flat = _flat_places(lengths, places)
    hot = np.equal(np.arange(math.prod(lengths))[:, None], flat[None, :])
    lines = np.reshape(first, (flat.shape[0], math.prod(rest)))
    sums = _sums(hot, lines)
    whole = np.reshape(sums, (*lengths, *rest))
    return np.moveaxis(whole, tuple(range(len(slots))), tuple(slots))
