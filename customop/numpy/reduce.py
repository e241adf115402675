"""Reductions: sum, mean, max, min, any, all.

The axes of a result have the order in memory that those of the input have, as in
NumPy 2.4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import methodcaller
from typing import Any

import numpy as np

from customop import (
    FakeArray,
    Operator,
    ShapeError,
    axis_rule,
    partials,
    prepared,
    register_numpy_function,
)
from customop.numpy.arguments import (
    NO_VALUE,
    as_array,
    as_axis,
    cast,
    count_of,
    counted_axes,
    int_axes,
    keeps_axes,
    kept,
    kept_shape,
    reduced_axes,
    widened,
)
from customop.numpy.rules import no_gradient, numpy_operator, register_linear
from customop.numpy.selected import mean_of_selected
from customop.numpy.sizes import has_none, is_below, larger, product, typical, with_size

__all__ = [
    "batched_axes",
    "check_elements",
    "max_",
    "mean_",
    "min_",
    "reduced",
    "reduction_of",
    "serve_cast",
    "sum_",
]

# ---- fake kernels and batching of reductions ----


@lru_cache(maxsize=1024)
def _reduced_dtype(
    kernel: Callable[..., Any], dtype: Any, rest: tuple[Any, ...]
) -> Any:
    return kernel(np.ones(2, dtype), None, False, *rest).dtype


def reduced(
    x: Any, axis: Sequence[int] | None, keepdims: bool, dtype: Any
) -> FakeArray:
    """The fake result of a reduction; its axes have the order in memory of those of `x`."""
    ndim = len(x.shape)
    axes = counted_axes(axis, ndim)
    if axis is None and not keepdims:
        return FakeArray((), dtype, (), device=x.device)
    strides = typical(x.strides)
    order = sorted(range(ndim), key=lambda i: -abs(strides[i]))
    shape = kept_shape(x.shape, axes)
    if not keepdims:
        order = [i for i in order if i not in axes]
    kept = sorted(order)
    return FakeArray(
        [shape[i] for i in kept],
        dtype,
        device=x.device,
        order=[kept.index(i) for i in order],
    )


def check_elements(name: str, shape: Sequence[int], axis: Any) -> None:
    """Raise if a result is made of no elements."""
    if is_below(count_of(shape, axis), 1):
        raise ShapeError(
            f"np.{name} of no elements: an array of shape {tuple(shape)}"
            + ("" if axis is None else f" along axis {as_axis(axis)}"),
            do="give an array that is not empty",
        )


def batched_axes(axis: Sequence[int] | None, dim: int, ndim: int) -> list[int]:
    """The axes of a row as axes of the batch."""
    return [i + (i >= dim) for i in counted_axes(axis, ndim - 1)]


def _batched_dim(axes: Sequence[int], dim: int, keepdims: bool) -> int:
    """The axis of the batch after `axes` are reduced."""
    return dim if keepdims else dim - sum(i < dim for i in axes)


def reduction_of(
    name: str,
    kernel: Callable[..., Any],
    more: str = "",
    *,
    needs_elements: bool = False,
) -> Operator[..., Any]:
    """The operator of a reduction; `more` adds parameters to its schema.

    With `needs_elements` it has no value for no elements.
    """
    schema = f"(Array x, int[]? axis=None, bool keepdims=False{more}) -> Array"
    op = numpy_operator(name, schema, kernel)

    def fake(x: Any, axis: Any, keepdims: Any, *rest: Any) -> FakeArray:
        if needs_elements:
            check_elements(name, x.shape, axis)
        return reduced(x, axis, keepdims, _reduced_dtype(kernel, x.dtype, rest))

    def move(
        shape: Sequence[int], dim: int, axis: Any, keepdims: bool, *rest: Any
    ) -> tuple[Sequence[Any], int]:
        axes = batched_axes(axis, dim, len(shape))
        return (axes, keepdims, *rest), _batched_dim(axes, dim, keepdims)

    op.register_fake(fake)
    op.register_vmap(axis_rule(op, move))
    return op


def _by_function(name: str) -> Callable[..., Any]:
    """The kernel that calls a function of NumPy, on arrays of any kind."""
    function = getattr(np, name)

    def kernel(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        return function(x, axis=as_axis(axis), keepdims=keepdims)

    kernel.__name__ = kernel.__qualname__ = name
    return kernel


def _method(name: str) -> Callable[..., Any]:
    """The kernel that calls a method of NumPy's arrays: half the time of the function."""

    def kernel(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        # Not by `as_axis`, which takes 60 ns more.
        axes = None if axis is None else tuple(axis)
        return getattr(x, name)(axis=axes, keepdims=keepdims)

    def prepare(axis: Any, keepdims: bool) -> Callable[..., Any]:
        axes = None if axis is None else tuple(axis)
        return methodcaller(name, axis=axes, keepdims=keepdims)

    kernel.__name__ = kernel.__qualname__ = name
    return prepared(kernel, prepare)


def _reduction(name: str, ufunc: np.ufunc) -> Callable[..., Any]:
    """The kernel that reduces by a ufunc, as a method of NumPy's arrays does.

    It takes half the time of the method, which goes through code in Python.
    """
    reduce = ufunc.reduce

    def kernel(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        axes = None if axis is None else tuple(axis)
        if type(x) is np.ndarray:
            return reduce(x, axes, keepdims=keepdims)
        return getattr(x, name)(axis=axes, keepdims=keepdims)

    def prepare(axis: Any, keepdims: bool) -> Callable[..., Any]:
        axes = None if axis is None else tuple(axis)
        if keepdims:
            return lambda x: reduce(x, axes, keepdims=True)
        return lambda x: reduce(x, axes)

    kernel.__name__ = kernel.__qualname__ = name
    return prepared(kernel, prepare)


def _serve(function: Any, op: Operator[..., Any], ufunc: np.ufunc) -> None:
    """Register a reduction by a ufunc for a NumPy function that takes no dtype."""

    def reduction(
        a: Any,
        axis: Any = None,
        out: None = None,
        keepdims: Any = False,
        initial: Any = NO_VALUE,
        where: Any = True,
    ) -> Any:
        if initial is NO_VALUE and where is True and axis is None and keepdims is False:
            return op.run(a, None, False)  # the usual call, the short way
        if initial is not NO_VALUE or where is not True:
            given = {
                "keepdims": keeps_axes(keepdims),
                "initial": initial,
                "where": where,
            }
            return ufunc.reduce(a, axis, **given)
        axes = axis if axis is None else reduced_axes(a, axis)
        return op.run(a, axes, keepdims if keepdims is False else keeps_axes(keepdims))

    register_numpy_function(function, reduction, alone=op)


def serve_cast(function: Any, op: Operator[..., Any], ufunc: np.ufunc) -> None:
    """Register a reduction by a ufunc for a NumPy function that takes a dtype."""

    def reduction(
        a: Any,
        axis: Any = None,
        dtype: Any = None,
        out: None = None,
        keepdims: Any = False,
        initial: Any = NO_VALUE,
        where: Any = True,
    ) -> Any:
        is_whole = initial is NO_VALUE and where is True
        if is_whole and axis is dtype is None and keepdims is False:
            return op.run(a, None, False)  # the usual call, the short way
        if not is_whole:
            kept = keeps_axes(keepdims)
            given = {"keepdims": kept, "initial": initial, "where": where}
            return ufunc.reduce(a, axis, dtype, **given)
        axes = axis if axis is None else reduced_axes(a, axis)
        kept = keepdims if keepdims is False else keeps_axes(keepdims)
        if dtype is None:
            return op.run(a, axes, kept)
        # Small integers become larger ones unless a dtype is given.
        return cast(op.run(cast(a, dtype), axes, kept), dtype)

    register_numpy_function(function, reduction, alone=op)


# ---- sum and mean ----


_quick_sum = _reduction("sum", np.add)


sum_: Operator[..., Any] = reduction_of("sum", _by_function("sum"))
sum_.register_kernel("cpu", _quick_sum)
mean_: Operator[..., Any] = reduction_of("mean", _by_function("mean"))


def _quick_mean(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    """As `numpy.mean`, which takes twice the time for a small array of floats."""
    return _mean_along(x, None if axis is None else tuple(axis), keepdims)


def _mean_along(x: Any, axes: tuple[int, ...] | None, keepdims: bool) -> Any:
    # NumPy divides by a number of 64 bits, which a count below 2**24 cannot tell. Masked
    # arrays count what is not masked.
    is_plain = type(x) is np.ndarray and x.dtype.char in "fdFD"
    if not is_plain or not 0 < x.size < 1 << 24:
        return x.mean(axis=axes, keepdims=keepdims)
    total = _add_up(x, axes, keepdims=keepdims)
    share = total / (x.size / max(total.size, 1))
    return share if share.dtype == x.dtype else share.astype(x.dtype)


_add_up: Callable[..., Any] = np.add.reduce


def _prepare_mean(axis: Any, keepdims: bool) -> Callable[..., Any]:
    axes = None if axis is None else tuple(axis)
    return lambda x: _mean_along(x, axes, keepdims)


mean_.register_kernel("cpu", prepared(_quick_mean, _prepare_mean))


def _mean_pull(g: Any, x_shape: Any, axis: Any, keepdims: bool) -> Any:
    count = product(x_shape if axis is None else [x_shape[i] for i in axis])
    return widened(g / larger(count, 1), x_shape, axis, keepdims)


register_linear(sum_, widened)
register_linear(mean_, _mean_pull)
serve_cast(np.sum, sum_, np.add)


@register_numpy_function(np.mean, alone=mean_)
def _(
    a: Any,
    axis: Any = None,
    dtype: Any = None,
    out: None = None,
    keepdims: Any = False,
    *,
    where: Any = True,
) -> Any:
    if where is not True:
        kept = keeps_axes(keepdims)
        return mean_of_selected(as_array(a), axis, dtype, kept, where)
    axes = axis if axis is None else int_axes(axis)
    kept = keepdims if keepdims is False else keeps_axes(keepdims)
    if dtype is None:
        return mean_.run(a, axes, kept)
    if np.dtype(dtype).kind in "fc" and np.dtype(dtype) != np.float16:
        return mean_.run(cast(a, dtype), axes, kept)
    # NumPy sums and divides in this dtype, and then rounds to it.
    total = np.sum(a, axis=axis, dtype=dtype, keepdims=kept)
    return cast(total / count_of(a.shape, axes), dtype)


# ---- max and min ----


def _shares(x: Any, y: Any, axis: Any, keepdims: bool) -> Any:
    """The share of each element in the gradient; equal extremes share it evenly.

    JAX 0.10 and HIPS autograd 1.8 do the same.
    """
    mask = np.equal(x, kept(y, x.shape, axis, keepdims)).astype(y.dtype)
    return mask / np.sum(mask, axis=as_axis(axis), keepdims=True)


def _extreme_pull(g: Any, x: Any, y: Any, axis: Any, keepdims: bool) -> Any:
    if type(x) is np.ndarray and isinstance(g, np.ndarray | np.generic):
        return _plain_extreme_pull(g, x, y, axis, keepdims)
    return kept(g, x.shape, axis, keepdims) * _shares(x, y, axis, keepdims)


def _plain_extreme_pull(g: Any, x: Any, y: Any, axis: Any, keepdims: bool) -> Any:
    """As for other arrays, without their broadcast copies: a quarter of the time."""
    mask = (x == kept(y, x.shape, axis, keepdims)).astype(y.dtype)
    count = _add_up(mask, None if axis is None else tuple(axis), keepdims=True)
    return kept(g, x.shape, axis, keepdims) * (mask / count)


def _extreme(name: str, ufunc: np.ufunc) -> Operator[..., Any]:
    op = reduction_of(name, _by_function(name), needs_elements=True)
    op.register_kernel("cpu", _reduction(name, ufunc))

    def forward(primals: Any, tangents: Any) -> Any:
        x, axis, keepdims = primals
        y = op(x, axis, keepdims)
        part = tangents[0] * _shares(x, y, axis, keepdims)
        return y, np.sum(part, axis=as_axis(axis), keepdims=keepdims)

    op.register_autograd(partials({"x": _extreme_pull}, result="y"))
    op.register_jvp(forward)
    return op


max_: Operator[..., Any] = _extreme("max", np.maximum)
min_: Operator[..., Any] = _extreme("min", np.minimum)
for _function in (np.max, np.amax):
    _serve(_function, max_, np.maximum)
for _function in (np.min, np.amin):
    _serve(_function, min_, np.minimum)

# ---- any and all ----


def _truth(name: str) -> Operator[..., Any]:
    op = reduction_of(name, _by_function(name))
    return no_gradient(op.register_kernel("cpu", _method(name)))


any_: Operator[..., Any] = _truth("any")
all_: Operator[..., Any] = _truth("all")
_serve(np.any, any_, np.logical_or)
_serve(np.all, all_, np.logical_and)


# ---- along an axis ----


def before_each(y: Any, first: float) -> Any:
    """The running results before each element of the last axis."""
    if has_none(y.shape[-1:]):
        return y
    parts = [np.full_like(y[..., :1], first), y[..., :-1]]
    return with_size(np.concatenate(parts, axis=-1), y)
