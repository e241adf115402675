"""Reductions: sum, mean, extremes, any and all, with `where` and `initial`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import methodcaller
from typing import Any

import numpy as np

from customop import (
    ArgumentError,
    FakeArray,
    Operator,
    ShapeError,
    axis_rule,
    partials,
    prepared,
    register_numpy_function,
    vjp,
)
from customop.numpy.arguments import (
    NO_VALUE,
    as_array,
    as_axis,
    as_dtype,
    as_line,
    broadcast,
    cast,
    copied,
    count_of,
    counted_axes,
    dtype_of,
    has_none,
    in_c_order,
    int_axes,
    is_below,
    is_known,
    keeps_axes,
    kept,
    kept_shape,
    larger,
    numpy_refuses,
    product,
    reduced_axes,
    shape_of,
    spread,
    typical,
    with_size,
)
from customop.numpy.rules import (
    batch_first,
    device_of,
    fit,
    no_gradient,
    numpy_operator,
    padded_rows,
    register_linear,
)

# ---- fake kernels and batching of reductions ----


@lru_cache(maxsize=1024)
def _reduced_dtype(
    kernel: Callable[..., Any], dtype: Any, rest: tuple[Any, ...]
) -> Any:
    return kernel(np.ones(2, dtype), None, False, *rest).dtype


def reduced(
    x: Any, axis: Sequence[int] | None, keepdims: bool, dtype: Any
) -> FakeArray:
    """Return the fake result of a reduction.

    Its axes have the order in memory of those of `x`.
    """
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
    """Return the axes of a row as axes of the batch."""
    return [i + (i >= dim) for i in counted_axes(axis, ndim - 1)]


def _batched_dim(axes: Sequence[int], dim: int, keepdims: bool) -> int:
    """Return the axis of the batch after `axes` are reduced."""
    return dim if keepdims else dim - sum(i < dim for i in axes)


def reduction_of(
    name: str,
    kernel: Callable[..., Any],
    more: str = "",
    *,
    needs_elements: bool = False,
    sample: Callable[..., Any] | None = None,
) -> Operator[..., Any]:
    """Make the operator of a reduction; `more` adds parameters to its schema.

    With `needs_elements` it has no value for no elements. The kernel, or `sample` in its
    place, tells the dtype of a result from two elements.
    """
    schema = f"(Array x, int[]? axis=None, bool keepdims=False{more}) -> Array"
    op = numpy_operator(name, schema, kernel)

    def fake(x: Any, axis: Any, keepdims: Any, *rest: Any) -> FakeArray:
        if needs_elements:
            check_elements(name, x.shape, axis)
        return reduced(
            x, axis, keepdims, _reduced_dtype(sample or kernel, x.dtype, rest)
        )

    def move(
        shape: Sequence[int], dim: int, axis: Any, keepdims: bool, *rest: Any
    ) -> tuple[Sequence[Any], int]:
        axes = batched_axes(axis, dim, len(shape))
        return (axes, keepdims, *rest), _batched_dim(axes, dim, keepdims)

    op.register_fake(fake)
    op.register_vmap(axis_rule(op, move))
    return op


def _by_function(name: str) -> Callable[..., Any]:
    """Make the kernel that calls a function of NumPy, on arrays of any kind."""
    function = getattr(np, name)

    def kernel(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
        return function(x, axis=as_axis(axis), keepdims=keepdims)

    kernel.__name__ = kernel.__qualname__ = name
    return kernel


def _method(name: str) -> Callable[..., Any]:
    """Make the kernel that calls a method of NumPy's arrays: twice as fast."""

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
    """Make the kernel that reduces by a ufunc, as a method of NumPy's arrays does.

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
    """Compute the mean of a small array in half the time of `numpy.mean`."""
    return _mean_along(x, None if axis is None else tuple(axis), keepdims)


def _mean_along(x: Any, axes: tuple[int, ...] | None, keepdims: bool) -> Any:
    # NumPy divides by a number of 64 bits, which a count below 2**24 cannot tell. Masked
    # arrays count what is not masked.
    is_plain = type(x) is np.ndarray and x.dtype.char in "fdD"
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
    return spread(g / larger(count, 1), x_shape, axis, keepdims)


register_linear(sum_, spread)
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
        return _mean_of_selected(as_array(a), axis, dtype, kept, where)
    axes = axis if axis is None else int_axes(axis)
    kept = keepdims if keepdims is False else keeps_axes(keepdims)
    if dtype is None:
        return mean_.run(a, axes, kept)
    if as_dtype(dtype).kind in "fc" and as_dtype(dtype) != np.float16:
        return mean_.run(cast(a, dtype), axes, kept)
    # NumPy sums and divides in this dtype, and then rounds to it.
    total = np.sum(a, axis=axis, dtype=dtype, keepdims=kept)
    return cast(total / count_of(a.shape, axes), dtype)


# ---- max and min ----


def _shares(x: Any, y: Any, axis: Any, keepdims: bool) -> Any:
    """Return the share of each element in the gradient; equal extremes share it evenly.

    JAX 0.10 and HIPS autograd 1.8 do the same.
    """
    mask = np.equal(x, kept(y, x.shape, axis, keepdims)).astype(y.dtype)
    return mask / np.sum(mask, axis=as_axis(axis), keepdims=True)


def _extreme_pull(g: Any, x: Any, y: Any, axis: Any, keepdims: bool) -> Any:
    if type(x) is np.ndarray and isinstance(g, np.ndarray | np.generic):
        return _plain_extreme_pull(g, x, y, axis, keepdims)
    return kept(g, x.shape, axis, keepdims) * _shares(x, y, axis, keepdims)


def _plain_extreme_pull(g: Any, x: Any, y: Any, axis: Any, keepdims: bool) -> Any:
    """Pull back arrays of NumPy without broadcast copies: a quarter of the time."""
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
    """Return the running results before each element of the last axis."""
    if has_none(y.shape[-1:]):
        return y
    parts = [np.full_like(y[..., :1], first), y[..., :-1]]
    return with_size(np.concatenate(parts, axis=-1), y)


# ---- shares ----
# How much each element of a reduction adds to the derivative of its result.
#
# The derivative of ``y = f(f(x0, x1), x2)`` is ``sum(share * dx)``. Some ufuncs have a
# formula for the share; the chain rule along the axis serves all others.


def solved(a: Any, b: Any) -> Any:
    """Solve ``t[k] = a[k] * t[k - 1] + b[k]`` along the last axis; a[0] is not used.

    The number of steps is the logarithm of the length. Source: Blelloch, "Prefix sums
    and their applications", 1990, section 1.4.
    """
    a, b = np.broadcast_arrays(a, b)
    dtype = np.result_type(dtype_of(a), dtype_of(b))
    a, b = cast(a, dtype), cast(b, dtype)
    step = 1
    while step < b.shape[-1]:
        b = _joined(b[..., :step], b[..., step:] + a[..., step:] * b[..., :-step])
        a = _joined(a[..., :step], a[..., step:] * a[..., :-step])
        step *= 2
    return in_c_order(b) if step > 1 else copied(b, "C")


# It is an operator since the number of steps depends on the length, which may be symbolic.
recurrence: Operator[..., Any] = numpy_operator(
    "recurrence", "(Array a, Array b) -> Array", solved
)


@recurrence.register_fake
def _(a: Any, b: Any) -> FakeArray:
    dtype = np.result_type(a.dtype, b.dtype)
    return FakeArray(broadcast(a.shape, b.shape), dtype, device=device_of(b))


def reversed_recurrence(a: Any, b: Any) -> Any:
    """Solve ``t[k] = a[k + 1] * t[k + 1] + b[k]`` along the last axis."""
    ahead = np.roll(np.flip(a, -1), 1, -1)
    return np.flip(recurrence(ahead, np.flip(b, -1)), -1)


recurrence.register_autograd(
    partials(
        {
            "a": lambda g, a, out: reversed_recurrence(a, g) * before_each(out, 0),
            "b": lambda g, a: reversed_recurrence(a, g),
        }
    )
)


@recurrence.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    (a, b), (ta, tb) = primals, tangents
    t = recurrence(a, b)
    parts = [] if ta is None else [ta * before_each(t, 0)]
    parts += [] if tb is None else [tb]
    steps = parts[0] if len(parts) == 1 else parts[0] + parts[1]
    return t, fit(recurrence(a, steps), t)


@recurrence.register_vmap
def _(info: Any, in_dims: Any, a: Any, b: Any) -> Any:
    pairs = ((a, in_dims[0]), (b, in_dims[1]))
    rank = max(x.ndim - (d is not None) for x, d in pairs)
    rows = [x if d is None else padded_rows(batch_first(x, d), rank) for x, d in pairs]
    return recurrence(*rows), 0


def _joined(*parts: Any) -> Any:
    return np.concatenate(parts, axis=-1)


def prefix_slopes(ufunc: np.ufunc, x: Any, y: Any) -> tuple[Any, Any]:
    """Return the derivatives of ``y[k] = f(y[k - 1], x[k])`` by both arguments.

    The first result is x[0] itself.
    """
    one = np.ones_like(x[..., :1])
    _, pullback = vjp(ufunc, y[..., :-1], x[..., 1:])
    by_last, by_x = pullback(np.ones_like(y[..., 1:]))
    parts = _joined(0 * one, by_last), _joined(one, by_x)
    return with_size(parts[0], x), with_size(parts[1], x)


def _chained(ufunc: np.ufunc, x: Any, runs: Sequence[slice]) -> Any:
    """Return the shares by the chain rule; the runs follow each other."""
    parts = []
    for run in runs:
        line = x[..., run]
        by_last, by_x = prefix_slopes(ufunc, line, ufunc.accumulate(line, axis=-1))
        end = _joined(np.zeros_like(by_x[..., 1:]), np.ones_like(by_x[..., :1]))
        # What the result of the run gains with each result before it.
        gains = reversed_recurrence(by_last, with_size(end, by_x))
        parts.append(by_x * gains)
    return _joined(*parts) if len(parts) > 1 else parts[0] if parts else x


def _even(x: Any, y: Any, total: Callable[[Any], Any]) -> Any:
    """Share evenly between equal extremes, as np.max does; where all are nan nothing.

    Where all are nan nothing.
    """
    mask = np.equal(x, y).astype(y.dtype)
    return mask / np.maximum(total(mask), 1)


# Ufunc -> shares of elements `x` in results `y`, both along the last axis; `total` gives
# each element the sum over the run that it is in.
_FORMULAS: dict[str, Callable[..., Any]] = {
    "add": lambda x, y, total: np.ones_like(x),
    "maximum": _even,
    "minimum": _even,
    "fmax": _even,
    "fmin": _even,
    "logaddexp": lambda x, y, total: np.exp(x - y),
    "logaddexp2": lambda x, y, total: np.exp2(x - y),
    # As for np.std of a constant, the derivative at 0 is 0.
    "hypot": lambda x, y, total: x / np.where(np.equal(y, 0), 1, y),
}


def shares_of(
    ufunc: np.ufunc,
    x: Any,
    y: Any,
    runs: Sequence[slice],
    total: Callable[[Any], Any],
) -> Any:
    """Return the share of each element in the result of its run.

    Parameters
    ----------
    ufunc : ufunc
    x, y : array
        The elements along the last axis, and for each the result of its run.
    runs : sequence of slice
        Runs that follow each other along the last axis.
    total : callable
        Gives each element the sum over the run that it is in.

    Returns
    -------
    array
        Of the shape of `x`.
    """
    formula = _FORMULAS.get(ufunc.__name__)
    return formula(x, y, total) if formula else _chained(ufunc, x, runs)


# ---- reductions of selected elements, or from an initial value ----
# `where` and `initial`.


# A reduction by a ufunc: of an array, along axes or all, whether they are kept.
_Reduction = Callable[[Any, Sequence[int] | None, bool], Any]

# Ufuncs for which an initial value that comes again changes nothing.
_IDEMPOTENT = ("maximum", "minimum", "fmax", "fmin", "lcm")


def mask_like(where: Any, shape: tuple[int, ...]) -> Any:
    """Return the mask of a reduction, in the shape of its array.

    Raises
    ------
    ArgumentError
        If it is an array of other values than flags, as in NumPy.
    ShapeError
        If it does not broadcast to that shape.
    """
    mask = where if hasattr(where, "shape") else np.asarray(where, bool)
    if mask.dtype != bool:
        raise ArgumentError(
            f"where= is an array of {mask.dtype}, must be of bool",
            do="pass where=mask != 0",
        )
    try:
        return np.broadcast_to(mask, shape)
    except ValueError:
        raise ShapeError(
            f"where= of shape {shape_of(mask)} cannot be broadcast to the shape {shape}"
            " of the array",
            do="give a mask of the shape of the array",
        ) from None


def reduce_selected(
    ufunc: np.ufunc,
    reduce: _Reduction,
    a: Any,
    axis: Sequence[int] | None,
    keepdims: bool,
    initial: Any,
    where: Any,
) -> Any:
    """Reduce with `initial` or `where`, by the reduction without them."""
    axes = counted_axes(axis, len(a.shape))
    # NumPy's own errors, and the dtype in which it reduces.
    sample = np.ones((1,) * len(axes), dtype_of(a))
    dtype = dtype_of(reduce(sample, None, False))
    line = as_line(cast(a, dtype), axes)
    start = _start(ufunc, initial, dtype)
    if (
        initial is None
        and is_known(line.shape[-1], 0)
        and not has_none(line.shape[:-1])
    ):
        numpy_refuses(
            ufunc.reduce,
            np.zeros(0, dtype),
            initial=None,
            do="leave initial= away, or give a number",
        )
    if where is not True:
        mask = as_line(mask_like(where, tuple(a.shape)), axes)
        if start is None:
            numpy_refuses(ufunc.reduce, sample, where=False, do="give initial=")
        filler = _filler(ufunc, start, dtype)
        if filler is None:
            return _kept(_in_turns(ufunc, line, mask, start), a, axes, keepdims)
        line = np.where(mask, line, filler)
    if initial is not NO_VALUE and start is not None:
        line = np.concatenate([_first(start, line), line], axis=-1)
    return _kept(reduce(line, [-1], False), a, axes, keepdims)


def _kept(y: Any, a: Any, axes: Sequence[int], keepdims: bool) -> Any:
    return np.reshape(y, kept_shape(a.shape, axes)) if keepdims else y


def _number(value: Any, dtype: Any) -> Any:
    """Return a number in a dtype, or raise NumPy's error for an element written."""
    element = np.zeros((), dtype)
    element[()] = value
    return element.item()


def _start(ufunc: np.ufunc, initial: Any, dtype: Any) -> Any:
    """Return the value that a reduction begins with, or None for its first element."""
    if initial is NO_VALUE:
        return None if ufunc.identity is None else _identity(ufunc, dtype)
    if initial is None:
        return None
    if shape_of(initial):
        raise ShapeError(
            f"initial= has the shape {shape_of(initial)}, must be a single value",
            do="combine the result with the array: np.add(np.sum(x), initial)",
        )
    is_plain = isinstance(initial, np.ndarray | np.generic)
    if hasattr(initial, "shape") and not is_plain:
        return cast(initial, dtype)
    return _number(initial, dtype)


def _identity(ufunc: np.ufunc, dtype: Any) -> Any:
    # -1 is all bits, also of unsigned integers.
    return np.asarray(ufunc.identity).astype(dtype).item()


def _first(start: Any, line: Any) -> Any:
    """Return the value before each line."""
    shape = (*line.shape[:-1], 1)
    if hasattr(start, "shape"):
        return np.broadcast_to(start, shape)
    return np.full_like(line, start, shape=shape)


def _filler(ufunc: np.ufunc, start: Any, dtype: Any) -> Any:
    """Return an element that leaves the result as it is, or None."""
    if ufunc.identity is not None:
        return _identity(ufunc, dtype)
    return start if ufunc.__name__ in _IDEMPOTENT else None


def _in_turns(ufunc: np.ufunc, line: Any, mask: Any, start: Any) -> Any:
    """Reduce along the last axis, element by element."""
    y = _first(start, line)[..., 0]
    for k in range(line.shape[-1]):
        y = np.where(mask[..., k], ufunc(y, line[..., k]), y)
    return y


def _mean_of_selected(a: Any, axis: Any, dtype: Any, keepdims: bool, where: Any) -> Any:
    """Return the mean of the elements of a mask; warn where there are none."""
    mask = mask_like(where, tuple(a.shape))
    count = np.sum(mask, axis=axis, dtype=np.intp, keepdims=keepdims)
    if isinstance(count, np.ndarray | np.generic) and np.any(count == 0):
        warnings.warn("Mean of empty slice.", RuntimeWarning, stacklevel=2)
    if dtype is None and dtype_of(a).kind in "biu":
        dtype = np.float64
    is_half = dtype is None and dtype_of(a) == np.float16
    total = np.sum(
        a,
        axis=axis,
        dtype=np.float32 if is_half else dtype,
        keepdims=keepdims,
        where=mask,
    )
    return cast(total / count, np.float16 if is_half else total.dtype)


# The axes of a result have the order in memory that those of the input have, as in
# NumPy 2.4.
