"""Functions that take elements along axes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from customop import ArgumentError, ShapeError, register_numpy_function
from customop.numpy.arguments import as_array, lined, only, shape_of
from customop.numpy.index import check_bounds, constant, index_, is_integer, numbers
from customop.numpy.keys import item_at
from customop.numpy.sizes import has_none

__all__: list[str] = []


@register_numpy_function(np.take)
def _(
    a: Any, indices: Any, axis: int | None = None, out: None = None, mode: str = "raise"
) -> Any:
    only("np.take", mode=(mode, "raise", "wrap", "clip"))
    if axis is None:
        a, axis = np.ravel(a), 0
    a = lined(a, axis)
    axis = normalize_axis_index(axis, len(shape_of(a)))
    places = as_array(indices)
    if has_none(a.shape[:axis]):  # NumPy does not look at the indices
        return np.reshape(a, (*a.shape[:axis], *places.shape, *a.shape[axis + 1 :]))
    if mode == "wrap":
        places = np.remainder(places, a.shape[axis])
    elif mode == "clip":
        places = np.minimum(np.maximum(places, 0), a.shape[axis] - 1)
    if not is_integer(places.dtype):
        raise ArgumentError(
            f"np.take: indices of dtype {places.dtype}, must be integers",
            do="use indices.astype(int), or np.where(mask, x, 0) for a mask",
        )
    # Not a key: one of an int is a view.
    key = [*[None] * axis, places]
    check_bounds(a, key)
    return index_(a, [constant(k, a) for k in key], packed=True)


@register_numpy_function(np.take_along_axis)
def _(arr: Any, indices: Any, axis: int | None = -1) -> Any:
    places = as_array(indices)
    if not is_integer(places.dtype):
        raise ArgumentError(
            f"np.take_along_axis: indices of dtype {places.dtype}, must be integers",
            do="use indices.astype(int), or np.where(mask, x, 0) for a mask",
        )
    if axis is None and len(places.shape) == 1:
        return np.take(np.ravel(arr), places)
    if axis is None or len(places.shape) != len(arr.shape):
        raise ShapeError(
            "`indices` and `arr` must have the same number of dimensions",
            f"np.take_along_axis: {tuple(places.shape)} for {tuple(arr.shape)}",
            do="give indices with the axes of the array",
        )
    rank = len(arr.shape)
    axis = normalize_axis_index(axis, rank)
    key = [
        np.reshape(numbers(0, n, arr), (-1, *(1,) * (rank - i - 1)))
        for i, n in enumerate(arr.shape)
    ]
    return item_at(arr, (*key[:axis], places, *key[axis + 1 :]))


@register_numpy_function(np.compress)
def _(condition: Any, a: Any, axis: int | None = None, out: None = None) -> Any:
    mask = as_array(condition)
    if len(mask.shape) != 1:
        raise ShapeError(
            "condition must be a 1-d array",
            f"np.compress: it has the shape {tuple(mask.shape)}",
            do="give an element for each place of the axis",
        )
    return np.take(a, np.flatnonzero(mask), axis)
