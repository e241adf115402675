"""Reductions that leave out nan: sums, products, extremes, means, deviations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from customop import ArgumentError, register_numpy_function
from customop.numpy.arguments import (
    NO_VALUE,
    as_array,
    as_axis,
    as_scalar,
    cast,
    dtype_of,
    is_inexact,
    is_set,
    keeps_axes,
    reduced_axes,
    refuse,
)
from customop.numpy.checked import require, warn_unless
from customop.numpy.rules import is_complex
from customop.numpy.selected import mask_like
from customop.numpy.statistics import root

__all__: list[str] = []

_EMPTY = "All-NaN slice encountered"


def _filled(a: Any, value: float) -> Any:
    """The array with a number for each nan."""
    if not is_inexact(a):
        return a
    return np.where(np.isnan(a), value, a)


def _keywords(
    keepdims: Any, initial: Any = NO_VALUE, where: Any = True
) -> dict[str, Any]:
    """The keywords of a reduction that are given."""
    given: dict[str, Any] = {"keepdims": keeps_axes(keepdims)}
    if initial is not NO_VALUE:
        given["initial"] = initial
    if where is not True and where is not NO_VALUE:
        given["where"] = where
    return given


# ---- sums and products ----


def _serve_total(function: Any, reduce: Callable[..., Any], start: float) -> None:
    def total(
        a: Any,
        axis: Any = None,
        dtype: Any = None,
        out: None = None,
        keepdims: Any = NO_VALUE,
        initial: Any = NO_VALUE,
        where: Any = NO_VALUE,
    ) -> Any:
        values = _filled(as_array(a), start)
        more = _keywords(keepdims, initial, where)
        return reduce(values, axis=axis, dtype=dtype, **more)

    register_numpy_function(function, total)


def _serve_running(function: Any, run: Callable[..., Any], start: float) -> None:
    def running(a: Any, axis: Any = None, dtype: Any = None, out: None = None) -> Any:
        return run(_filled(as_array(a), start), axis=axis, dtype=dtype)

    register_numpy_function(function, running)


_serve_total(np.nansum, np.sum, 0)
_serve_total(np.nanprod, np.prod, 1)
_serve_running(np.nancumsum, np.cumsum, 0)
_serve_running(np.nancumprod, np.cumprod, 1)

# ---- extremes ----


def _serve_extreme(function: Any, ufunc: np.ufunc) -> None:
    def extreme(
        a: Any,
        axis: Any = None,
        out: None = None,
        keepdims: Any = NO_VALUE,
        initial: Any = NO_VALUE,
        where: Any = NO_VALUE,
    ) -> Any:
        more = _keywords(keepdims, initial, where)
        found = ufunc.reduce(as_array(a), axis=axis, **more)
        if is_inexact(found):
            warn_unless(np.logical_not(np.isnan(found)), _EMPTY)
        return found

    register_numpy_function(function, extreme)


def _serve_place(function: Any, place: Callable[..., Any], start: float) -> None:
    def of_extreme(
        a: Any, axis: Any = None, out: None = None, *, keepdims: Any = NO_VALUE
    ) -> Any:
        a = as_array(a)
        if is_inexact(a):
            require(np.any(np.logical_not(np.isnan(a)), axis=axis), _EMPTY)
        return place(_filled(a, start), axis=axis, keepdims=is_set(keepdims))

    register_numpy_function(function, of_extreme)


_serve_extreme(np.nanmax, np.fmax)
_serve_extreme(np.nanmin, np.fmin)
_serve_place(np.nanargmax, np.argmax, -np.inf)
_serve_place(np.nanargmin, np.argmin, np.inf)

# ---- means and deviations ----


def _present(a: Any, axis: Any, keepdims: bool, where: Any = True) -> Any:
    """Number of elements that are not nan, as integers."""
    present = np.logical_not(np.isnan(a))
    if where is not True and where is not NO_VALUE:
        present = np.logical_and(present, mask_like(where, tuple(a.shape)))
    return np.sum(present, axis=axis, dtype=np.intp, keepdims=keepdims)


def _over(total: Any, count: Any) -> Any:
    """The quotient; nan where the count is not positive. It never warns."""
    has_any = np.greater(count, 0)
    share = total / np.where(has_any, count, 1)
    return cast(np.where(has_any, share, np.nan), total.dtype)


def _check_dtype(name: str, a: Any, dtype: Any) -> None:
    if dtype is not None and np.dtype(dtype).kind not in "fc":
        raise ArgumentError(
            f"np.{name}: dtype={dtype!r} of an array of {a.dtype}: if a is inexact,"
            " then dtype must be inexact",
            do="leave dtype= away, or cast the result",
        )


@register_numpy_function(np.nanmean)
def _(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    keepdims: Any = NO_VALUE,
    *,
    where: Any = NO_VALUE,
) -> Any:
    a, more = as_array(a), _keywords(keepdims, where=where)
    if not is_inexact(a):
        return np.mean(a, axis=axis, dtype=dtype, **more)
    _check_dtype("nanmean", a, dtype)
    count = _present(a, axis, keeps_axes(keepdims), where)
    total = np.sum(_filled(a, 0), axis=axis, dtype=dtype, **more)
    warn_unless(count > 0, "Mean of empty slice")
    return as_scalar(_over(total, count))


def _squares(x: Any) -> Any:
    return np.real(x * np.conjugate(x)) if is_complex(x) else x * x


def _nan_variance(
    name: str,
    a: Any,
    axis: Any,
    dtype: Any,
    keepdims: Any,
    where: Any,
    mean: Any,
    ddof: Any,
) -> Any:
    """The variance of the elements that are not nan."""
    _check_dtype(name, a, dtype)
    values, kept = _filled(a, 0), _keywords(True, where=where)
    count = _present(a, axis, True, where)
    if mean is NO_VALUE:
        mean = _over(np.sum(values, axis=axis, dtype=dtype, **kept), count)
    moved = cast(values - mean, dtype_of(values))
    centered = np.where(np.isnan(a), 0, moved)
    more = _keywords(keepdims, where=where)
    total = np.sum(_squares(centered), axis=axis, dtype=dtype, **more)
    if not keeps_axes(keepdims):
        count = np.squeeze(count, as_axis(reduced_axes(a, axis)))
    free = count - ddof
    warn_unless(free > 0, "Degrees of freedom <= 0 for slice.")
    return _over(total, free)


def _serve_deviation(function: Any, plain: Any, finish: Callable[[Any], Any]) -> None:
    def deviation(
        a: Any,
        axis: Any = None,
        dtype: Any = None,
        out: None = None,
        ddof: Any = 0,
        keepdims: Any = NO_VALUE,
        *,
        where: Any = NO_VALUE,
        mean: Any = NO_VALUE,
        correction: Any = NO_VALUE,
    ) -> Any:
        a = as_array(a)
        if correction is not NO_VALUE:
            if ddof != 0:
                raise ValueError(
                    "ddof and correction can't be provided simultaneously."
                )
            ddof = correction
        if is_inexact(a):
            name = function.__name__
            found = _nan_variance(name, a, axis, dtype, keepdims, where, mean, ddof)
            return as_scalar(finish(found))
        if plain is np.std and dtype is not None and np.dtype(dtype).kind in "biu":
            refuse("nanstd", dtype=dtype)
        more = _keywords(keepdims, where=where)
        more = more if mean is NO_VALUE else {**more, "mean": mean}
        return plain(a, axis=axis, dtype=dtype, ddof=ddof, **more)

    register_numpy_function(function, deviation)


_serve_deviation(np.nanvar, np.var, lambda variance: variance)
_serve_deviation(np.nanstd, np.std, root)
