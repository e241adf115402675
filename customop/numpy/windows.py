"""The operator of np.lib.stride_tricks.sliding_window_view."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple
from numpy.lib.stride_tricks import sliding_window_view

from customop import (
    FakeArray,
    Operator,
    ShapeError,
    register_numpy_function,
    write_back,
)
from customop.numpy.arguments import as_array, as_ints, list_of_ints, only
from customop.numpy.fakes import view_of
from customop.numpy.index import numbers, scatter_add
from customop.numpy.rules import batch_first, numpy_operator, register_linear
from customop.numpy.sizes import is_below, larger

__all__: list[str] = []

_NAME = "sliding_window_view"


def _lengths(
    shape: Sequence[Any], widths: Sequence[Any], axes: Sequence[int]
) -> list[tuple[Any, ...]]:
    """Shapes of the array before the windows along each axis, and after the last."""
    found = [tuple(shape)]
    for at, width in zip(axes, widths, strict=True):
        before = found[-1]
        count = before[at] - width + 1
        if is_below(width, 0) or is_below(count, 1):
            raise ShapeError(
                f"{_NAME}: a window of length {width} along axis {at}, which has the length"
                f" {before[at]}",
                do="give lengths from 0 to those of the array",
            )
        found.append((*before[:at], larger(count, 0), *before[at + 1 :]))
    return found


def _places(count: Any, width: Any, like: Any) -> Any:
    """Where the elements of each window are along an axis."""
    first = np.expand_dims(numbers(0, count, like), 1)
    return first + numbers(0, width, like)


def _copied_windows(x: Any, widths: Any, axes: Any) -> Any:
    """The windows of an array that has no strides."""
    shapes = _lengths(x.shape, widths, axes)
    for at, width, shape in zip(axes, widths, shapes[1:], strict=True):
        keys = [slice(i, i + shape[at]) for i in range(max(width, 1))]
        parts = [x[(*[slice(None)] * at, key)] for key in keys]
        x = np.stack(parts, axis=-1)[..., :width]
    return x


_windows: Operator[..., Any] = numpy_operator(
    _NAME,
    "(Array(a) x, int[] widths, int[] axes) -> Array(a)",
    _copied_windows,
)


@_windows.register_kernel("cpu")
def _(x: Any, widths: Any, axes: Any) -> Any:
    return sliding_window_view(x, tuple(widths), tuple(axes))


@_windows.register_fake
def _(x: Any, widths: Any, axes: Any) -> FakeArray:
    shape = _lengths(x.shape, widths, axes)[-1]
    strides = (*x.strides, *[x.strides[at] for at in axes])
    return view_of(x, (*shape, *widths), strides)


@_windows.register_vmap
def _(info: Any, in_dims: Any, x: Any, widths: Any, axes: Any) -> Any:
    return _windows(batch_first(x, in_dims[0]), widths, [a + 1 for a in axes]), 0


@_windows.register(write_back)
def _(new: Any, x: Any, widths: Any, axes: Any) -> Any:
    raise ValueError("assignment destination is read-only")


def _overlaid(g: Any, shape: Any, widths: Any, axes: Any) -> Any:
    """The sum of all windows, each at its place: the transpose of taking them."""
    shapes = _lengths(shape, widths, axes)
    steps = list(zip(axes, widths, shapes[:-1], shapes[1:], strict=True))
    for i, (at, width, before, after) in reversed(list(enumerate(steps))):
        places = [*[None] * at, _places(after[at], width, g)]
        g = scatter_add(np.moveaxis(g, -1, at + 1), (*before, *widths[:i]), places)
    return g


register_linear(_windows, _overlaid)


@register_numpy_function(sliding_window_view)
def _(
    x: Any,
    window_shape: Any,
    axis: Any = None,
    *,
    subok: bool = False,
    writeable: bool = False,
) -> Any:
    only(_NAME, subok=(subok, False), writeable=(writeable, False))
    array, widths = as_array(x), list_of_ints(window_shape)
    axes = range(array.ndim) if axis is None else as_ints(axis)
    if len(widths) != len(axes):
        raise ShapeError(
            f"{_NAME}: window_shape has {len(widths)} lengths for {len(axes)} axes",
            do="give a length for each axis",
        )
    places = normalize_axis_tuple(axes, array.ndim, None, True)
    _lengths(array.shape, widths, places)  # raises before a kernel is chosen
    return _windows(array, widths, list(places))
