"""Slopes of sampled functions: np.gradient."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from customop import (
    ArgumentError,
    FakeArray,
    Operator,
    ShapeError,
    check,
    fake_like,
    register_numpy_function,
)
from customop.numpy.arguments import (
    as_array,
    cast,
    counted_axes,
    dtype_of,
    listed_axes,
    shape_of,
)
from customop.numpy.differences import part_of
from customop.numpy.layouts import in_order_of
from customop.numpy.rules import numpy_operator, register_linear
from customop.numpy.running import along_axis
from customop.numpy.sizes import is_below

__all__: list[str] = []

# ---- steps of length one ----


def _check_slopes(x: Any, axis: int) -> None:
    if dtype_of(x).kind not in "fc":
        raise ArgumentError(
            f"np::slopes: x is an array of {dtype_of(x)}, whose differences may wrap",
            do="cast it first: x.astype(float)",
        )
    _check_length(x.shape, normalize_axis_index(axis, len(x.shape)), 2)


def _slopes_kernel(x: Any, axis: int) -> Any:
    _check_slopes(x, axis)
    first = x[_at(x, axis, 1, 2)] - x[_at(x, axis, 0, 1)]
    inner = x[_at(x, axis, 2, None)] - x[_at(x, axis, None, -2)]
    last = x[_at(x, axis, -1, None)] - x[_at(x, axis, -2, -1)]
    return np.concatenate([first, inner / 2.0, last], axis)


def _written_slopes(x: Any, axis: int) -> Any:
    """As `_slopes_kernel`, in the order in memory of the array, as in NumPy."""
    _check_slopes(x, axis)
    found = np.empty_like(x)
    inner = x[_at(x, axis, 2, None)] - x[_at(x, axis, None, -2)]
    found[_at(x, axis, 1, -1)] = inner / 2.0
    first, second = _at(x, axis, 0, 1), _at(x, axis, 1, 2)
    last, before = _at(x, axis, -1, None), _at(x, axis, -2, -1)
    found[first] = x[second] - x[first]
    found[last] = x[last] - x[before]
    return found


def _at(x: Any, axis: int, *key: Any) -> tuple[Any, ...]:
    return part_of(axis, len(x.shape), *key)


_slopes: Operator[..., Any] = numpy_operator(
    "slopes", "(Array x, int axis) -> Array", _slopes_kernel
)
_slopes.register_kernel(["cpu", "cuda"], _written_slopes)
_slopes.register_vmap(along_axis(_slopes))


@_slopes.register_fake
def _(x: Any, axis: int) -> FakeArray:
    _check_slopes(x, axis)
    return fake_like(x)


def _slopes_pull(g: Any, shape: Any, axis: int) -> Any:
    """Each slope gives its gradient to the element after it, and takes it from the other."""
    first, last = g[_at(g, axis, 0, 1)], g[_at(g, axis, -1, None)]
    inner = g[_at(g, axis, 1, -1)] / 2.0
    given = np.concatenate([-first, first, inner], axis)
    return given - np.concatenate([inner, last, -last], axis)


register_linear(_slopes, _slopes_pull)

# ---- the arguments of np.gradient ----


@register_numpy_function(np.gradient)
def _(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    f = as_array(f)
    axes = counted_axes(listed_axes(axis), f.ndim)
    if edge_order > 2:
        raise ShapeError(
            "'edge_order' greater than 2 not supported", do="give edge_order=1 or 2"
        )
    steps = _spacings(f, varargs, axes)
    if dtype_of(f).kind not in "fcmM":
        f = f.astype(np.float64)
    found = [
        _slope(f, i, step, edge_order) for i, step in zip(axes, steps, strict=True)
    ]
    return found[0] if len(found) == 1 else tuple(found)


def _spacings(f: Any, given: Sequence[Any], axes: Sequence[int]) -> list[Any]:
    """The distance of the elements along each axis: one, or one for each pair."""
    if not given:
        return [1.0] * len(axes)
    if len(given) == 1 and not np.ndim(given[0]):
        return [given[0]] * len(axes)
    if len(given) != len(axes):
        raise TypeError("np.gradient: invalid number of arguments")
    return [_spacing(as_array(x), f.shape[i]) for x, i in zip(given, axes, strict=True)]


def _spacing(x: Any, length: int) -> Any:
    if x.ndim == 0:
        return x
    if x.ndim != 1:
        raise ShapeError(
            "distances must be either scalars or 1d",
            f"np.gradient: distances of shape {tuple(x.shape)}",
            do="give a number, or the places of the elements along the axis",
        )
    if x.shape[0] != length:
        raise ShapeError(
            "when 1d, distances must match the length of the corresponding dimension",
            f"np.gradient: {x.shape[0]} distances for {length} elements",
            do="give the places of the elements along the axis",
        )
    steps = np.diff(x.astype(np.float64) if dtype_of(x).kind in "iu" else x)
    is_even = type(steps) is np.ndarray and steps.size and np.all(steps == steps[0])
    return steps[0] if is_even else steps


def _slope(f: Any, axis: int, step: Any, edge_order: int) -> Any:
    """Central differences inside, differences to one side at the two ends."""
    _check_length(f.shape, axis, edge_order + 1)
    check(f.shape[axis] > edge_order)
    if edge_order == 1 and not shape_of(step) and dtype_of(f).kind in "fc":
        found = _slopes.run(f, axis)
        is_unit = type(step) is float and step == 1.0
        return found if is_unit else cast(found / step, f.dtype)
    parts = [
        _edge(f, axis, step, edge_order, at_end=False),
        _inside(f, axis, step),
        _edge(f, axis, step, edge_order, at_end=True),
    ]
    return in_order_of(cast(np.concatenate(parts, axis), f.dtype), f)


def _check_length(shape: Sequence[Any], axis: int, least: int) -> None:
    if is_below(shape[axis], least):
        raise ShapeError(
            "Shape of array too small to calculate a numerical gradient, at least"
            " (edge_order + 1) elements are required.",
            f"np.gradient: {shape[axis]} elements along axis {axis}",
            do="give a longer array, or axis=",
        )


def _inside(f: Any, axis: int, step: Any) -> Any:
    ahead, here, behind = (
        f[part_of(axis, f.ndim, *key)] for key in ((2, None), (1, -1), (None, -2))
    )
    if not shape_of(step):
        return (ahead - behind) / (2.0 * step)
    before, after = step[:-1], step[1:]
    weights = (
        -after / (before * (before + after)),
        (after - before) / (before * after),
        before / (after * (before + after)),
    )
    shape = [-1 if i == axis else 1 for i in range(f.ndim)]
    a, b, c = (np.reshape(w, shape) for w in weights)
    return a * behind + b * here + c * ahead


def _edge(f: Any, axis: int, step: Any, order: int, *, at_end: bool) -> Any:
    """The slope at one end, from the two or three elements that are nearest to it."""
    # Indices of elements and steps, counted from this end; the other way the sign turns.
    places = [-1, -2, -3] if at_end else [0, 1, 2]
    sign = -1.0 if at_end else 1.0
    near = [f[part_of(axis, f.ndim, i, i + 1 or None)] for i in places[: 1 + order]]
    steps = [step[i] if shape_of(step) else step for i in places[:order]]
    if order == 1:
        return sign * ((near[1] - near[0]) / steps[0])
    first, second = steps
    if not shape_of(step):
        a, b, c = -1.5 / step, 2.0 / step, -0.5 / step
    else:
        a = -(2.0 * first + second) / (first * (first + second))
        b = (first + second) / (first * second)
        c = -first / (second * (first + second))
    return sign * (a * near[0] + b * near[1] + c * near[2])
