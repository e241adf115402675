"""Piecewise linear interpolation."""

from __future__ import annotations

from typing import Any

import numpy as np

from customop import ShapeError, getitem, register_numpy_function
from customop.numpy.arguments import as_array, dtype_of
from customop.numpy.compare import value_of
from customop.numpy.rules import is_complex

__all__: list[str] = []


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
    numbers = np.dtype(np.complex128 if is_complex(fp) else np.float64)
    x, xp = (_real(name, v) for name, v in (("x", x), ("xp", xp)))
    fp = fp.astype(numbers)
    _check_points(xp, fp)
    if period is not None:
        x, xp, fp = _around(x, xp, fp, _checked_period(period))
        left = right = None
    y = _between(x, xp, fp)
    below, above = fp[0] if left is None else left, fp[-1] if right is None else right
    y = np.where(np.less(x, xp[0]), _like(below, numbers), y)
    return np.where(np.greater(x, xp[-1]), _like(above, numbers), y)


def _real(name: str, x: Any) -> Any:
    x = as_array(x)
    if is_complex(x):
        raise TypeError(
            f"Cannot cast array data from {dtype_of(x)!r} to dtype('float64') according to"
            f" the rule 'safe': np.interp takes real numbers as {name}"
        )
    return x.astype(np.float64)


def _like(value: Any, dtype: Any) -> Any:
    """A value in the dtype of the result."""
    return value if isinstance(value, int | float) else as_array(value).astype(dtype)


def _check_points(xp: Any, fp: Any) -> None:
    if xp.ndim != 1 or fp.ndim != 1:
        raise ShapeError(
            "Data points must be 1-D sequences",
            f"np.interp: xp has the shape {tuple(xp.shape)}, fp {tuple(fp.shape)}",
            do="use customop.vmap for rows",
        )
    if not xp.shape[0]:
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


def _between(x: Any, xp: Any, fp: Any) -> Any:
    """The values on the lines between points.

    The line begins at the last point that is not above x, whose value is then exact, and
    has the slope of the interval to the right of it; at the last point, to the left.
    """
    last = xp.shape[0] - 1
    near = np.clip(np.searchsorted(xp, x, side="right") - 1, 0, last)
    start, known = getitem(xp, near), getitem(fp, near)
    if not last:
        return known + 0.0 * (x - start)
    first = np.minimum(near, last - 1)
    width = getitem(xp, first + 1) - getitem(xp, first)
    rise = getitem(fp, first + 1) - getitem(fp, first)
    is_empty = np.equal(width, 0)
    slope = np.where(is_empty, 0.0, rise / np.where(is_empty, 1.0, width))
    y = slope * (x - start) + known
    return _finite(y, x, (slope, near, first, last), xp, fp)


def _finite(y: Any, x: Any, line: Any, xp: Any, fp: Any) -> Any:
    """What NumPy gives in place of a nan that infinite values make."""
    slope, near, first, last = line
    known, end = getitem(fp, near), getitem(fp, first + 1)
    other = slope * (x - getitem(xp, first + 1)) + end
    other = np.where(np.isnan(other) & np.equal(known, end), known, other)
    is_point = np.equal(x, getitem(xp, near)) | np.equal(near, last)
    other = np.where(is_point, known, other)
    return np.where(np.isnan(y) & np.logical_not(np.isnan(x)), other, y)
