"""Piecewise linear interpolation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from customop import (
    FakeArray,
    Operator,
    ShapeError,
    Tracer,
    getitem,
    partials,
    register_numpy_function,
    vmap,
)
from customop.numpy.arguments import as_array, cast, dtype_of, value_of
from customop.numpy.fakes import device_of
from customop.numpy.index import scatter_add
from customop.numpy.rules import is_complex, numpy_operator, sum_of
from customop.numpy.sizes import is_known, larger

__all__: list[str] = []

# ---- operator ----

# Real numbers in double precision; outside of the points, the values at the ends.
interp: Operator[..., Any] = numpy_operator(
    "interp",
    "(Array x, Array xp, Array fp) -> Array",
    lambda x, xp, fp: np.interp(x, xp, fp),
    device_types=("cpu", "cuda"),
)


@interp.register_fake
def _(x: Any, xp: Any, fp: Any) -> FakeArray:
    return FakeArray(x.shape, _numbers(fp), device=device_of(x))


def _numbers(fp: Any) -> Any:
    """The dtype of the result."""
    return np.dtype(np.complex128 if is_complex(fp) else np.float64)


interp.waive(
    "test_gradients", reason="the points have to increase, and equal ones make a jump"
)


@interp.register_sample_inputs
def _() -> list[tuple[Any, ...]]:
    xp, fp = np.array([-1.2, 0.3, 0.9, 2.1]), np.array([0.7, -1.4, 2.6, 1.1])
    return [
        (np.array(0.5), xp[:2], fp[:2]),
        (np.array([-0.3, 0.6, 1.4]), xp, fp),
        (np.array([[-2.0, 0.1], [1.8, 3.0]]), xp, fp),
    ]


def _at(a: Any, places: Any) -> Any:
    """Elements by an array of places, which alone may be traced or fake."""
    # NumPy does not look at the places for a function of its own.
    is_open = isinstance(places, Tracer | FakeArray)
    return getitem(a, places) if is_open else np.take(a, places)


def _interval(x: Any, xp: Any) -> tuple[Any, Any, Any]:
    """The interval of each x: its first point, its width, and how far x is in it.

    The last point belongs to the interval to its left. Outside, x is at an end.
    """
    first = np.clip(
        np.searchsorted(xp, x, side="right") - 1, 0, larger(xp.shape[0] - 2, 0)
    )
    start = _at(xp, first)
    width = _at(xp, np.minimum(first + 1, xp.shape[0] - 1)) - start
    is_empty = np.equal(width, 0)
    part = np.where(
        is_empty, np.greater(x, start), (x - start) / np.where(is_empty, 1.0, width)
    )
    return first, width, np.clip(part, 0.0, 1.0)


def _slope(x: Any, xp: Any, fp: Any) -> Any:
    """The slope of the line at each x; 0 outside of the points and between equal ones."""
    first, width, _ = _interval(x, xp)
    rise = _at(fp, np.minimum(first + 1, fp.shape[0] - 1)) - _at(fp, first)
    is_inside = np.greater_equal(x, xp[0]) & np.less_equal(x, xp[-1])
    has_line = is_inside & np.not_equal(width, 0)
    return np.where(has_line, rise / np.where(has_line, width, 1.0), 0.0)


def _shared(g: Any, shape: Sequence[int], x: Any, xp: Any) -> Any:
    """Shares of each element of `g` for the two points beside its x."""
    first, _, part = _interval(x, xp)
    after = np.minimum(first + 1, shape[0] - 1)
    shape = list(shape)
    return scatter_add(g * (1.0 - part), shape, [first]) + scatter_add(
        g * part, shape, [after]
    )


interp.register_autograd(
    partials(
        {
            "x": lambda g, x, xp, fp: g * _slope(x, xp, fp),
            "xp": lambda g, x, xp, fp: _shared(-g * _slope(x, xp, fp), xp.shape, x, xp),
            "fp": (_shared, ["fp_shape", "x", "xp"]),
        }
    )
)


@interp.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    (x, xp, fp), (tx, txp, tfp) = primals, tangents
    y = interp(x, xp, fp)
    parts = [] if tfp is None else [interp(x, xp, tfp)]
    if tx is not None:
        parts.append(_slope(x, xp, fp) * tx)
    if txp is not None:
        parts.append(-_slope(x, xp, fp) * interp(x, xp, txp))
    return y, sum_of(parts, y)


@interp.register_vmap
def _(info: Any, in_dims: Any, x: Any, xp: Any, fp: Any) -> Any:
    if in_dims[1] is None and in_dims[2] is None:
        return interp(x, xp, fp), in_dims[0]
    fp = cast(fp, _numbers(fp))
    return vmap(_between, in_dims=tuple(in_dims))(x, xp, fp), 0


# ---- NumPy's function ----


@register_numpy_function(np.interp)
def _(
    x: Any,
    xp: Any,
    fp: Any,
    left: Any = None,
    right: Any = None,
    period: Any = None,
) -> Any:
    fp = as_array(fp)
    numbers = _numbers(fp)
    x, xp = (_real(name, v) for name, v in (("x", x), ("xp", xp)))
    fp = cast(fp, numbers)
    _check_points(xp, fp)
    if period is not None:
        x, xp, fp = _around(x, xp, fp, _checked_period(period))
        return interp(x, xp, fp)
    y = interp(x, xp, fp)
    if left is not None:
        y = np.where(np.less(x, xp[0]), _like(left, numbers), y)
    if right is not None:
        y = np.where(np.greater(x, xp[-1]), _like(right, numbers), y)
    return y


def _real(name: str, x: Any) -> Any:
    x = as_array(x)
    if is_complex(x):
        raise TypeError(
            f"Cannot cast array data from {dtype_of(x)!r} to dtype('float64') according to"
            f" the rule 'safe': np.interp takes real numbers as {name}"
        )
    return cast(x, np.dtype(np.float64))


def _like(value: Any, dtype: Any) -> Any:
    """A value in the dtype of the result."""
    if isinstance(value, int | float):
        return value
    if isinstance(value, np.ndarray) or not hasattr(value, "shape"):
        plain: Any = value
        np.interp([1.0], [0.0], np.zeros(1, dtype), right=plain)  # raises as NumPy does
    return as_array(value).astype(dtype)


def _check_points(xp: Any, fp: Any) -> None:
    if xp.ndim != 1 or fp.ndim != 1:
        raise ShapeError(
            "Data points must be 1-D sequences",
            f"np.interp: xp has the shape {tuple(xp.shape)}, fp {tuple(fp.shape)}",
            do="use customop.vmap for rows",
        )
    if is_known(xp.shape[0], 0):
        raise ShapeError(
            "array of sample points is empty", do="give at least one point"
        )
    if xp.shape[0] != fp.shape[0]:
        raise ShapeError(
            "fp and xp are not of the same length",
            f"np.interp: {fp.shape[0]} values at {xp.shape[0]} points",
            do="give a value for each point",
        )


def _checked_period(period: Any) -> Any:
    known = value_of(period)
    if known is not None and known == 0:
        raise ValueError("period must be a non-zero value")
    return np.absolute(period)


def _around(x: Any, xp: Any, fp: Any, period: Any) -> tuple[Any, Any, Any]:
    """Points in the first period, with one more on either side."""
    x, xp = np.remainder(x, period), np.remainder(xp, period)
    order = np.argsort(xp)
    xp, fp = np.take_along_axis(xp, order, 0), np.take_along_axis(fp, order, 0)
    wide = np.concatenate([xp[-1:] - period, xp, xp[:1] + period])
    return x, wide, np.concatenate([fp[-1:], fp, fp[:1]])


# ---- rows of points ----


def _between(x: Any, xp: Any, fp: Any) -> Any:
    """As `interp`, by operators that serve rows of points.

    The line begins at the last point that is not above x, whose value is then exact.
    """
    last = xp.shape[0] - 1
    near = np.clip(np.searchsorted(xp, x, side="right") - 1, 0, last)
    start, known = _at(xp, near), _at(fp, near)
    if is_known(last, 0):
        return known + 0.0 * (x - start)
    first = np.minimum(near, last - 1)
    width = _at(xp, first + 1) - _at(xp, first)
    rise = _at(fp, first + 1) - _at(fp, first)
    is_empty = np.equal(width, 0)
    slope = np.where(is_empty, 0.0, rise / np.where(is_empty, 1.0, width))
    y = slope * (x - start) + known
    y = _finite(y, x, (slope, near, first, last), xp, fp)
    y = np.where(np.less(x, xp[0]), fp[0], y)
    return np.where(np.greater(x, xp[-1]), fp[-1], y)


def _finite(y: Any, x: Any, line: Any, xp: Any, fp: Any) -> Any:
    """Replace a nan that infinite values make by the value that NumPy returns."""
    slope, near, first, last = line
    known, end = _at(fp, near), _at(fp, first + 1)
    other = slope * (x - _at(xp, first + 1)) + end
    other = np.where(np.isnan(other) & np.equal(known, end), known, other)
    is_point = np.equal(x, _at(xp, near)) | np.equal(near, last)
    other = np.where(is_point, known, other)
    return np.where(np.isnan(y) & np.logical_not(np.isnan(x)), other, y)
