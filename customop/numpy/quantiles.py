"""Quantiles and medians, also of the elements that are not nan.

The elements are sorted, and each quantile is a point between two of them. So it has a
derivative by both, and by `q`. Source of the methods: Hyndman and Fan, "Sample quantiles
in statistical packages", The American Statistician 50(4), 1996.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from customop import getitem, register_numpy_function
from customop.numpy.arguments import (
    NO_VALUE,
    as_array,
    as_line,
    as_scalar,
    cast,
    counted_axes,
    dtype_of,
    has_none,
    is_below,
    is_empty,
    is_inexact,
    is_known,
    is_set,
    kept_shape,
    larger,
    listed_axes,
    need_elements,
    numpy_refuses,
)
from customop.numpy.rules import device_of, is_complex, require, warn_unless
from customop.numpy.sort import argsort, sort
from customop.numpy.statistics import weights_like

# ---- functions ----


def _check(a: Any, q: Any, method: str, weights: Any) -> None:
    if is_complex(a) or q.ndim > 2:
        numpy_refuses(np.quantile, a, q)
    inside = np.logical_and(np.greater_equal(q, 0), np.less_equal(q, 1))
    require(inside, "Quantiles must be in the range [0, 1]")
    if weights is not None and method != "inverted_cdf":
        numpy_refuses(np.quantile, [0.0], 0.0, method=method, weights=[1.0])


def _sorted_lines(
    a: Any, axes: Sequence[int], weights: Any, axis: Any
) -> tuple[Any, Any]:
    """Return the elements in sorted lines, and their weights beside them."""
    line = as_line(a, axes)
    if weights is None:
        return sort(line, -1), None
    wide = np.broadcast_to(weights_like(a, as_array(weights), axis), a.shape)
    require(np.greater_equal(wide, 0), "Weights must be non-negative.")
    order = argsort(line, -1)
    along = np.take_along_axis(as_line(wide, axes), order, -1)
    return np.take_along_axis(line, order, -1), along


def _beside(q: Any, a: Any) -> Any:
    """Return the points as an array; plain ones go to the device of the other array."""
    if not isinstance(q, np.ndarray | np.generic) or device_of(a) == "cpu":
        return np.asarray(q) if isinstance(q, np.generic) else q
    numbers = [np.full_like(a, v, q.dtype, shape=()) for v in q.ravel().tolist()]
    return np.reshape(np.stack(numbers), q.shape)


def _quantiles(
    a: Any,
    points: Any,
    axis: Any,
    method: str,
    keepdims: bool,
    weights: Any,
    *,
    is_weak: bool,
    skips_nan: bool,
) -> Any:
    q = _beside(points, a)
    _check(a, q, method, weights)
    if skips_nan and (has_none(a.shape) or is_empty(a.shape)):
        return np.nanmean(a, axis, keepdims=keepdims)
    if skips_nan:
        need_elements("np.nanquantile", a.shape)
    axes = counted_axes(listed_axes(axis), a.ndim)
    line, along = _sorted_lines(a, axes, weights, axis)
    count = line.shape[-1]
    if is_known(count, 0):
        raise IndexError(f"np.quantile of no elements: an array of shape {a.shape}")
    flat = np.reshape(q, (-1,))
    absent = np.isnan(line) if is_inexact(line) else None
    n: Any = count
    if skips_nan and absent is not None:
        n = np.sum(np.logical_not(absent), axis=-1, keepdims=True)
        along = None if along is None else np.where(absent, 0, along)
        warn_unless(np.greater(n, 0), "All-NaN slice encountered")
    if along is None:
        if n is not count:
            n = cast(np.maximum(n, 1), dtype_of(flat))
        found = _at(line, n, flat, _method(method), is_weak)
    else:
        found = np.take_along_axis(line, _weighted_places(line, along, n, flat), -1)
    if absent is not None and not skips_nan:
        last = _last(line)  # nan comes last
        found = np.where(np.isnan(last), cast(last, found.dtype), found)
    shape = kept_shape(a.shape, axes) if keepdims else found.shape[:-1]
    moved = np.moveaxis(found, -1, 0)
    if along is not None:  # NumPy fills a new array, also with a single value
        return np.reshape(np.copy(moved, order="C"), (*q.shape, *shape))
    return as_scalar(np.reshape(moved, (*q.shape, *shape)))


def _serve(function: Any, scale: float, *, skips_nan: bool) -> None:
    def quantile(
        a: Any,
        q: Any,
        axis: Any = None,
        out: None = None,
        overwrite_input: bool = False,
        method: str = "linear",
        keepdims: Any = False,
        *,
        weights: Any = None,
    ) -> Any:
        a, is_weak = as_array(a), type(q) in (int, float)
        q = as_array(q)
        q = cast(q, np.intp) if dtype_of(q).kind == "b" else q
        q = q if scale == 1 else np.true_divide(q, scale)
        return _quantiles(
            a,
            q,
            axis,
            method,
            is_set(keepdims),
            weights,
            is_weak=is_weak,
            skips_nan=skips_nan,
        )

    register_numpy_function(function, quantile)


_serve(np.quantile, 1, skips_nan=False)
_serve(np.percentile, 100, skips_nan=False)
_serve(np.nanquantile, 1, skips_nan=True)
_serve(np.nanpercentile, 100, skips_nan=True)


# ---- medians ----


@register_numpy_function(np.median)
def _(
    a: Any,
    axis: Any = None,
    out: None = None,
    overwrite_input: bool = False,
    keepdims: Any = False,
) -> Any:
    a = as_array(a)
    axes = counted_axes(listed_axes(axis), a.ndim)
    line = sort(as_line(a, axes), -1)
    count = line.shape[-1]
    middle = line[..., larger((count - 1) // 2, 0) : count // 2 + 1]
    middle = np.mean(middle, axis=-1)
    if is_inexact(a) and not is_known(count, 0):
        last = _last_of(line)  # nan comes last
        middle = np.where(np.isnan(last), last, middle)
    wide = np.reshape(middle, kept_shape(a.shape, axes)) if is_set(keepdims) else middle
    return as_scalar(wide)


def _last_of(line: Any) -> Any:
    """Return the last elements of an axis, which is not empty.

    0 for a symbolic size of 0.
    """
    count = line.shape[-1]
    if type(count) is not int:
        return np.sum(line[..., larger(count - 1, 0) :], axis=-1)
    return line[-1] if line.ndim == 1 else line[..., -1]


@register_numpy_function(np.nanmedian)
def _(
    a: Any,
    axis: Any = None,
    out: None = None,
    overwrite_input: bool = False,
    keepdims: Any = NO_VALUE,
) -> Any:
    a, kept = as_array(a), is_set(keepdims)
    if any(is_below(n, 1) and n == 0 for n in a.shape):
        return np.nanmean(a, axis, keepdims=kept)
    if not is_inexact(a):
        return np.median(a, axis, keepdims=kept)
    axes = counted_axes(listed_axes(axis), a.ndim)
    line = sort(as_line(a, axes), -1)
    present = np.sum(np.logical_not(np.isnan(line)), axis=-1, keepdims=True)
    warn_unless(np.greater(present, 0), "All-NaN slice encountered")
    n = np.maximum(present, 1)
    places = np.concatenate([(n - 1) // 2, n // 2], axis=-1)
    if type(line.shape[-1]) is not int:  # the median of nothing is nan
        line = np.concatenate([line, np.full_like(present, np.nan, line.dtype)], -1)
    both = np.take_along_axis(line, places, axis=-1)
    middle = np.where(np.equal(n[..., 0] % 2, 1), both[..., 0], np.mean(both, axis=-1))
    return as_scalar(np.reshape(middle, kept_shape(a.shape, axes)) if kept else middle)


# ---- methods ----


class _Method(NamedTuple):
    """A way to find a quantile among `n` sorted elements.

    Attributes
    ----------
    place : callable
        ``place(n, q)``: the number of the element, from 0, perhaps between two.
    share : callable or None
        ``share(part, place)``: the share of the second of the two; None where the
        place is always that of an element.
    """

    place: Callable[[Any, Any], Any]
    share: Callable[[Any, Any], Any] | None


def _between(alpha: float, beta: float) -> _Method:
    """Return the place with the two constants of Hyndman and Fan."""
    return _Method(
        lambda n, q: n * q + (alpha + q * (1 - alpha - beta)) - 1,
        lambda part, place: part,
    )


def _next_unless(place: Any, stays: Any) -> Any:
    """Return the element at a place where `stays` is set, else the next one."""
    below = np.floor(place)
    return np.maximum(np.where(stays, below, below + 1), 0)


def _inverted(n: Any, q: Any) -> Any:
    place = n * q - 1
    return _next_unless(place, np.equal(place, np.floor(place)))


def _closest(n: Any, q: Any) -> Any:
    place = n * q - 1 - 0.5
    below = np.floor(place)
    is_odd = np.equal(below % 2, 1)
    return _next_unless(place, np.logical_and(np.equal(place, below), is_odd))


_METHODS: dict[str, _Method] = {
    "inverted_cdf": _Method(_inverted, None),
    "averaged_inverted_cdf": _Method(
        lambda n, q: n * q - 1,
        lambda part, place: np.where(np.equal(part, 0), 0.5, 1.0),
    ),
    "closest_observation": _Method(_closest, None),
    "interpolated_inverted_cdf": _between(0, 1),
    "hazen": _between(0.5, 0.5),
    "weibull": _between(0, 0),
    "linear": _Method(lambda n, q: (n - 1) * q, lambda part, place: part),
    "median_unbiased": _between(1 / 3.0, 1 / 3.0),
    "normal_unbiased": _between(3 / 8.0, 3 / 8.0),
    "lower": _Method(lambda n, q: np.floor((n - 1) * q), None),
    "higher": _Method(lambda n, q: np.ceil((n - 1) * q), None),
    "midpoint": _Method(
        lambda n, q: 0.5 * (np.floor((n - 1) * q) + np.ceil((n - 1) * q)),
        lambda part, place: np.where(np.equal(place % 1, 0), 0.0, 0.5),
    ),
    "nearest": _Method(lambda n, q: np.around((n - 1) * q), None),
}


def _method(name: str) -> _Method:
    if name not in _METHODS:
        numpy_refuses(np.quantile, [0.0], 0, method=name)
    return _METHODS[name]


# ---- elements at places ----


def _elements(line: Any, places: Any) -> Any:
    """Return the elements at places along the last axis, one for each line or all."""
    if places.ndim == 1:
        return getitem(line, (..., places))
    return np.take_along_axis(line, places, axis=-1)


def _last(line: Any) -> Any:
    """Return the last element of each line; its axis stays, with length one."""
    return line[..., -1, None]


def _at(line: Any, n: Any, q: Any, method: _Method, is_weak: bool) -> Any:
    """Return the quantiles of sorted lines, whose first `n` elements count."""
    place = method.place(n, q)
    is_whole = dtype_of(place).kind in "iu"
    if method.share is None or (is_whole and method is _METHODS["linear"]):
        return _elements(line, place.astype(np.intp))
    below = np.floor(place)
    last = np.maximum(n - 1, 0) if hasattr(n, "shape") else larger(n - 1, 0)
    first = np.clip(below, 0, last).astype(np.intp)
    second = np.clip(below + 1, 0, last).astype(np.intp)
    share = cast(method.share(place - below, place), dtype_of(place))
    if is_weak:
        # The share counts as a number of Python.
        share = cast(share, dtype_of(line) if is_inexact(line) else np.dtype(float))
    return _mixed(_elements(line, first), _elements(line, second), share)


def _mixed(a: Any, b: Any, share: Any) -> Any:
    """Return the point between two numbers, from the nearer one to stay between."""
    step = b - a
    from_b, from_a = b - step * (1 - share), a + step * share
    return np.where(np.greater_equal(share, 0.5), from_b, from_a)


def _weighted_places(line: Any, weights: Any, n: Any, q: Any) -> Any:
    """Return the first place whose share of the weights, with all before it, is q."""
    sums = np.cumsum(weights, axis=-1, dtype=np.float64)
    total = _last(sums)
    has_parts = np.logical_and(np.isfinite(total), np.not_equal(total, 0))
    if hasattr(n, "shape"):  # of elements that are not nan
        has_parts = np.logical_or(has_parts, np.equal(n, 0))
    require(has_parts, "Weights included NaN, inf or were all zero.")
    parts = sums / np.where(np.equal(total, 0), 1.0, total)
    if dtype_of(q).kind == "f":
        parts = cast(parts, dtype_of(q))
    # Elements without weight at the beginning are not chosen, even for q = 0.
    parts = np.where(np.equal(parts, 0), -1, parts)
    before = np.less(np.expand_dims(parts, -2), np.expand_dims(q, -1))
    return np.minimum(np.sum(before, axis=-1), line.shape[-1] - 1)
