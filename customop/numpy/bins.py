"""Counts and sums by place, and places by bin: bincount, digitize.

Counts have no derivative. Sums of weights are linear in the weights.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from customop import (
    DataDependentError,
    FakeArray,
    Operator,
    ShapeError,
    Tag,
    get_ctx,
    getitem,
    partials,
    register_numpy_function,
)
from customop.numpy.arguments import as_array, cast, dtype_of, value_of
from customop.numpy.fakes import device_of
from customop.numpy.rules import (
    batch_first,
    is_complex,
    no_gradient,
    numpy_operator,
    padded_rows,
    register_linear_jvp,
)
from customop.numpy.sizes import (
    broadcast,
    is_below,
    is_known,
    whole,
)

__all__ = ["bin_sum", "bincount", "real_weights"]

# ---- counts and sums by place ----


def _binned(x: Any, weights: Any, length: int) -> Any:
    """Count or add up along the last axes; those before them are broadcast."""
    if x.ndim == 1 and (weights is None or weights.ndim == 1):
        found = _counts(x, weights, length)
        return _of_length(found, found.shape[0], length)
    outer = x.shape[:-1]
    if weights is not None:
        outer = np.broadcast_shapes(outer, weights.shape[:-1])
        weights = np.broadcast_to(weights, (*outer, weights.shape[-1])).ravel()
    count = math.prod(outer)
    flat = np.broadcast_to(x, (*outer, x.shape[-1])).reshape((count, -1))
    if flat.size:
        _of_length(flat, int(flat.max()) + 1, length)
        if flat.min() < 0:
            np.bincount([-1])  # NumPy's error
    starts = np.arange(0, count * length, length, like=flat) if length else 0
    rows = (flat.T + starts).T.ravel()
    return _counts(rows, weights, count * length).reshape((*outer, length))


def _counts(x: Any, weights: Any, length: int) -> Any:
    found = np.bincount(x, weights, length)
    # Also the sums of no weights are integers in NumPy.
    return found if weights is None else found.astype(np.float64, copy=False)


def _of_length(found: Any, needed: int, length: int) -> Any:
    """Raise for a place beyond the end."""
    if needed > length:
        raise ShapeError(
            f"np.bincount: the largest place is {needed - 1}, and the result has a length"
            f" of {length} in all rows",
            do=f"give minlength={needed}",
        )
    return found


bincount: Operator[..., Any] = numpy_operator(
    "bincount",
    "(Array x, int length) -> Array",
    lambda x, length: _binned(x, None, length),
    device_types=("cpu", "cuda"),
)
bin_sum: Operator[..., Any] = numpy_operator(
    "bin_sum",
    "(Array weights, Array x, int length) -> Array",
    lambda weights, x, length: _binned(x, weights, length),
    device_types=("cpu", "cuda"),
)
no_gradient(bincount)


@bincount.register_fake
def _(x: Any, length: int) -> FakeArray:
    return FakeArray((*x.shape[:-1], length), np.intp, device=device_of(x))


@bin_sum.register_fake
def _(weights: Any, x: Any, length: int) -> FakeArray:
    outer = broadcast(weights.shape[:-1], x.shape[:-1])
    return FakeArray((*outer, length), np.float64, device=device_of(x))


@bincount.register_vmap
def _(info: Any, in_dims: Any, x: Any, length: int) -> Any:
    return bincount(batch_first(x, in_dims[0]), length), 0


@bin_sum.register_vmap
def _(info: Any, in_dims: Any, weights: Any, x: Any, length: int) -> Any:
    pairs = ((weights, in_dims[0]), (x, in_dims[1]))
    rank = max(a.ndim - (d is not None) for a, d in pairs)
    rows = [a if d is None else padded_rows(batch_first(a, d), rank) for a, d in pairs]
    return bin_sum(*rows, length), 0


def _bin_sum_pull(g: Any, x: Any) -> Any:
    """The gradient of the sum that each weight is added to."""
    if x.ndim == 1:
        return getitem(g, (..., x)) if g.ndim > 1 else getitem(g, x)
    outer = broadcast(g.shape[:-1], x.shape[:-1])
    sums = np.broadcast_to(g, (*outer, g.shape[-1]))
    return np.take_along_axis(sums, np.broadcast_to(x, (*outer, x.shape[-1])), -1)


bin_sum.register_autograd(partials({"weights": _bin_sum_pull, "x": None}))
register_linear_jvp(bin_sum)


# As many places as the largest one needs, which depends on data.
bincount_all: Operator[..., Any] = numpy_operator(
    "bincount_all",
    "(Array x) -> Array",
    lambda x: np.bincount(x),
    device_types=("cpu", "cuda"),
    tags=Tag.dynamic_output_shape,
)
bin_sum_all: Operator[..., Any] = numpy_operator(
    "bin_sum_all",
    "(Array weights, Array x) -> Array",
    lambda weights, x: np.bincount(x, weights).astype(np.float64, copy=False),
    device_types=("cpu", "cuda"),
    tags=Tag.dynamic_output_shape,
)
no_gradient(bincount_all)
bincount_all.register_sample_inputs(
    lambda: [(np.array([1, 0, 3]),), (np.array([2]),), (np.zeros(0, int),)]
)
bin_sum_all.register_sample_inputs(
    lambda: [
        (np.array([0.5, -1.0, 2.0]), np.array([1, 0, 1])),
        (np.array([1.5]), np.array([2])),
        (np.array([0.2, 0.3]), np.array([0, 3])),
    ]
)


@bincount_all.register_fake
def _(x: Any) -> FakeArray:
    return FakeArray((get_ctx().new_dynamic_size(),), np.intp, device=device_of(x))


@bin_sum_all.register_fake
def _(weights: Any, x: Any) -> FakeArray:
    return FakeArray((get_ctx().new_dynamic_size(),), np.float64, device=device_of(x))


def _no_rows(info: Any) -> DataDependentError:
    return DataDependentError(
        f"np.bincount under vmap of {info.batch_size} rows: the length of the result"
        " depends on data",
        do="give minlength= above the largest element",
    )


@bincount_all.register_vmap
def _(info: Any, in_dims: Any, x: Any) -> Any:
    raise _no_rows(info)


@bin_sum_all.register_vmap
def _(info: Any, in_dims: Any, weights: Any, x: Any) -> Any:
    raise _no_rows(info)


bin_sum_all.register_autograd(partials({"weights": _bin_sum_pull, "x": None}))


@bin_sum_all.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    y = bin_sum_all(*primals)
    t, x = tangents[0], primals[1]
    return y, None if t is None else bin_sum(t, x, y.shape[0])


@register_numpy_function(np.bincount)
def _(x: Any, /, weights: Any = None, minlength: Any = 0) -> Any:
    x = as_array(x)
    _check_line(x)
    value, length = value_of(x), whole(minlength)
    if is_below(length, 0):
        raise ShapeError(
            "'minlength' must not be negative", do="give a minlength of 0 or more"
        )
    if value is not None:
        length = np.bincount(value, minlength=length).shape[0]
    if weights is None:
        is_open = value is None and is_known(length, 0)
        return bincount_all(x) if is_open else bincount(x, length)
    weights = as_array(weights)
    if tuple(weights.shape) != tuple(x.shape):
        raise ShapeError(
            "The weights and list don't have the same length.",
            f"np.bincount: x has the shape {tuple(x.shape)}, weights"
            f" {tuple(weights.shape)}",
            do="give a weight for each element",
        )
    if value is None and is_known(length, 0):
        return bin_sum_all(real_weights(weights), x)
    return bin_sum(real_weights(weights), x, length)


def real_weights(weights: Any) -> Any:
    """Weights in double precision; complex ones are refused, as in NumPy."""
    if is_complex(weights):
        raise TypeError(
            f"Cannot cast array data from {dtype_of(weights)!r} to dtype('float64')"
            " according to the rule 'safe': weights are complex"
        )
    return cast(weights, np.dtype(np.float64))


def _check_line(x: Any) -> None:
    if x.ndim != 1:
        raise ShapeError(
            f"object {'too deep' if x.ndim else 'of too small depth'} for desired array",
            f"np.bincount: x has the shape {tuple(x.shape)}",
            do="ravel it, or use customop.vmap for rows",
        )


# ---- digitize ----


def _digitized(x: Any, bins: Any, right: bool) -> Any:
    if bins.ndim == 1:
        return np.digitize(x, bins, right)
    wide = np.broadcast_to(x, (*bins.shape[:-1], *x.shape[bins.ndim - 1 :]))
    found = np.zeros_like(wide, dtype=np.intp, order="C")
    for row in np.ndindex(bins.shape[:-1]):
        found[row] = np.digitize(wide[row], bins[row], right)
    return found


# Leading axes of `bins` are the first ones of `x`.
digitize: Operator[..., Any] = numpy_operator(
    "digitize",
    "(Array x, Array bins, bool right) -> Array",
    _digitized,
    device_types=("cpu", "cuda"),
)
no_gradient(digitize)


@digitize.register_fake
def _(x: Any, bins: Any, right: bool) -> FakeArray:
    shape = (*bins.shape[:-1], *x.shape[len(bins.shape) - 1 :])
    return FakeArray(shape, np.intp, device=device_of(x))


@digitize.register_vmap
def _(info: Any, in_dims: Any, x: Any, bins: Any, right: bool) -> Any:
    x = batch_first(x, in_dims[0], info.batch_size)
    if in_dims[1] is not None:
        bins = batch_first(bins, in_dims[1])
    elif bins.ndim > 1:
        bins = batch_first(bins, None, info.batch_size)
    return digitize(x, bins, right), 0


@register_numpy_function(np.digitize)
def _(x: Any, bins: Any, right: bool = False) -> Any:
    x, bins = as_array(x), as_array(bins)
    if is_complex(x):
        raise TypeError("x may not be complex")
    if bins.ndim != 1:
        raise ShapeError(
            f"object {'too deep' if bins.ndim else 'of too small depth'} for desired"
            " array",
            f"np.digitize: bins have the shape {tuple(bins.shape)}",
            do="give bins of one axis",
        )
    return digitize(x, bins, bool(right))
