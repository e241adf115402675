"""Methods of ufuncs: reduce, accumulate, reduceat, outer; `at` is in `writers`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import accumulate as accumulate_sizes
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from customop import (
    ArgumentError,
    FakeArray,
    Operator,
    Tracer,
    check,
    fake_like,
    register_numpy_function,
    vjp,
)
from customop.numpy.arguments import (
    NO_VALUE,
    as_array,
    as_axis,
    as_dtype,
    as_line,
    cast,
    counted_axes,
    dtype_of,
    is_below,
    is_inexact,
    keeps_axes,
    numpy_refuses,
    reduced_axes,
    shape_of,
    spread,
    typical,
    whole,
)
from customop.numpy.cumulative import cumprod, cumsum, prod
from customop.numpy.index_operators import constant, numbers
from customop.numpy.reductions import (
    all_,
    any_,
    check_elements,
    max_,
    min_,
    prefix_slopes,
    recurrence,
    reduce_selected,
    reduced,
    reduction_of,
    reversed_recurrence,
    shares_of,
    sum_,
)
from customop.numpy.rules import (
    along_axis,
    device_of,
    fit,
    keep_order,
    numpy_operator,
    whole_operator,
)


def _note(ctx: Any, inputs: Any, output: Any) -> None:
    """Save the array and the result; integers and flags have no derivative."""
    x, *ctx.rest = inputs
    if not is_inexact(output):
        ctx.mark_non_differentiable(output)
    ctx.save_for_backward(x, output)


# ---- reduce ----


def _reduce_kernel(
    x: Any,
    axis: Any = None,
    keepdims: bool = False,
    ufunc: str = "add",
    dtype: Any = None,
) -> Any:
    function = getattr(np, ufunc)
    if ufunc in _REDUCED_WRONGLY and x.size and len(axis or range(x.ndim)) == 1:
        return _last(function, x, axis[0] if axis else 0, keepdims, dtype)
    return function.reduce(x, axis=as_axis(axis), dtype=dtype, keepdims=keepdims)


# NumPy 2.4.6 on processors with AVX-512 gives f(x[0], x[-1]) for these along an axis whose
# elements are next to each other; its running results are right.
_REDUCED_WRONGLY = ("power", "arctan2")


def _last(ufunc: np.ufunc, x: Any, axis: int, keepdims: bool, dtype: Any) -> Any:
    """Return the last of the running results."""
    last = np.take(ufunc.accumulate(x, axis=axis, dtype=dtype), [-1], axis)
    return last if keepdims else np.squeeze(last, axis)[()]


_reduce_: Operator[..., Any] = reduction_of(
    "reduce", _reduce_kernel, ", str ufunc='add', dtype? dtype=None"
)


@_reduce_.register_kernel("cuda")
def _(
    x: Any,
    axis: Any = None,
    keepdims: bool = False,
    ufunc: str = "add",
    dtype: Any = None,
) -> Any:
    # Of its ufuncs CuPy has `reduce` for additions and multiplications (14.2).
    function = _REDUCTIONS.get(ufunc)
    if function is None:
        return _reduce_kernel(x, axis, keepdims, ufunc, dtype)
    return function(cast(x, dtype), axis=as_axis(axis), keepdims=keepdims)


_REDUCTIONS = {"fmax": np.nanmax, "fmin": np.nanmin}


def _reduce_shares(x: Any, y: Any, axis: Any, keepdims: bool, name: str) -> Any:
    """Return the share of each element of a reduction."""
    axes = counted_axes(axis, x.ndim)

    def in_line(v: Any) -> Any:
        return as_line(v, axes)

    line, back = vjp(in_line, cast(x, y.dtype))
    count = line.shape[-1]
    wide = in_line(spread(y, x.shape, axis, keepdims))
    total = partial(np.sum, axis=-1, keepdims=True)
    shares = shares_of(getattr(np, name), line, wide, [slice(0, count)], total)
    return back(shares)[0]


def _reduce_backward(ctx: Any, g: Any) -> tuple[Any, ...]:
    (x, y), (axis, keepdims, name, _) = ctx.saved_arrays, ctx.rest
    shares = _reduce_shares(x, y, axis, keepdims, name)
    grad = spread(g, x.shape, axis, keepdims) * shares
    return fit(grad, x), None, None, None, None


_reduce_.register_autograd(_reduce_backward, setup_context=_note)


@_reduce_.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    x, axis, keepdims, name, _ = primals
    y = _reduce_(*primals)
    if not is_inexact(y):
        return y, None
    moved = tangents[0] * _reduce_shares(x, y, axis, keepdims, name)
    return y, fit(np.sum(moved, axis=as_axis(axis), keepdims=keepdims), y)


# ---- accumulate ----


@lru_cache(maxsize=1024)
def _dtype_after(method: str, ufunc: str, dtype: Any, given: Any) -> Any:
    """Return the dtype of the result of ``ufunc.accumulate`` or ``ufunc.reduceat``."""
    more = ([0],) if method == "reduceat" else ()
    called = getattr(getattr(np, ufunc), method)
    return called(np.ones(2, dtype), *more, dtype=given).dtype


def _accumulate_kernel(x: Any, axis: int, ufunc: str, dtype: Any = None) -> Any:
    return getattr(np, ufunc).accumulate(x, axis=axis, dtype=dtype)


accumulate: Operator[..., Any] = numpy_operator(
    "accumulate",
    "(Array x, int axis, str ufunc, dtype? dtype=None) -> Array",
    _accumulate_kernel,
)
accumulate.register_vmap(along_axis(accumulate))
_LINE = (0.7, 1.3, -0.4, 2.1, 0.9, 1.6)
accumulate.register_sample_inputs(
    lambda: [
        (np.array(_LINE[:3]), 0, "subtract"),
        (np.array(_LINE), -1, "maximum"),
        (np.reshape(_LINE, (2, 3)), 0, "logaddexp"),
        (np.reshape(_LINE, (2, 3)), 1, "divide"),
        (np.arange(1, 7), 0, "gcd"),
    ]
)


@accumulate.register_fake
def _(x: Any, axis: int, ufunc: str, dtype: Any) -> FakeArray:
    normalize_axis_index(axis, len(x.shape))
    return fake_like(x, dtype=_dtype_after("accumulate", ufunc, x.dtype, dtype))


def _last_slopes(x: Any, y: Any, axis: int, ufunc: str) -> tuple[Any, Any]:
    """Return the derivatives of each result by the last one and by its element."""
    line = np.moveaxis(cast(x, y.dtype), axis, -1)
    return prefix_slopes(getattr(np, ufunc), line, np.moveaxis(y, axis, -1))


def _accumulate_backward(ctx: Any, g: Any) -> tuple[Any, None, None, None]:
    (x, y), (axis, ufunc, _) = ctx.saved_arrays, ctx.rest
    by_last, by_x = _last_slopes(x, y, axis, ufunc)
    gains = reversed_recurrence(by_last, np.moveaxis(g, axis, -1))
    return fit(np.moveaxis(by_x * gains, -1, axis), x), None, None, None


accumulate.register_autograd(_accumulate_backward, setup_context=_note)


@accumulate.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    x, axis, ufunc, _ = primals
    y = accumulate(*primals)
    if not is_inexact(y):
        return y, None
    by_last, by_x = _last_slopes(x, y, axis, ufunc)
    moved = recurrence(by_last, by_x * np.moveaxis(tangents[0], axis, -1))
    return y, fit(np.moveaxis(moved, -1, axis), y)


# ---- reduceat ----


def _reduceat_kernel(
    x: Any, indices: Any, axis: int, ufunc: str, dtype: Any = None
) -> Any:
    function = getattr(np, ufunc)
    found = function.reduceat(x, list(indices), axis=axis, dtype=dtype)
    if ufunc in _REDUCED_WRONGLY:
        lines, taken = np.moveaxis(found, axis, 0), np.moveaxis(x, axis, 0)
        for line, (i, j) in zip(lines, _ends(indices, len(taken)), strict=True):
            line[...] = _last(function, taken[i:j], 0, False, dtype)
    return found


reduceat: Operator[..., Any] = numpy_operator(
    "reduceat",
    "(Array x, int[] indices, int axis, str ufunc, dtype? dtype=None) -> Array",
    _reduceat_kernel,
)
reduceat.register_kernel(
    "cuda",  # whose indices are an array of the device
    lambda x, indices, axis, ufunc, dtype: getattr(np, ufunc).reduceat(
        x, constant(np.asarray(indices), x), axis=axis, dtype=dtype
    ),
)
reduceat.register_sample_inputs(
    lambda: [
        (np.array(_LINE[:3]), [0, 1], 0, "add"),
        (np.array(_LINE), [0, 4, 2], -1, "multiply"),
        (np.reshape(_LINE, (2, 3)), [1, 0], 1, "maximum"),
        (np.reshape(_LINE, (2, 3)), [0], 0, "logaddexp"),
        (np.arange(1, 7), [3, 0, 2], 0, "lcm"),
    ]
)


@reduceat.register_fake
def _(x: Any, indices: Any, axis: int, ufunc: str, dtype: Any) -> FakeArray:
    at, shape = normalize_axis_index(axis, len(x.shape)), list(x.shape)
    for index in indices:
        if index < 0 or is_below(shape[at] - 1, index):
            line = np.zeros(typical([shape[at]]), x.dtype)
            numpy_refuses(getattr(np, ufunc).reduceat, line, [index], dtype=dtype)
        check(index < shape[at])
    shape[at] = len(indices)
    found = _dtype_after("reduceat", ufunc, x.dtype, dtype)
    # The other axes are in the order of those of the array (NumPy 2.4).
    strides = [0 if i == at else step for i, step in enumerate(x.strides)]
    return keep_order([FakeArray(shape, x.dtype, strides, device_of(x))], found)


@reduceat.register_vmap
def _(info: Any, in_dims: Any, x: Any, indices: Any, axis: int, *rest: Any) -> Any:
    rows = np.moveaxis(x, in_dims[0], 0)
    at = normalize_axis_index(axis, rows.ndim - 1)
    return reduceat(rows, indices, at + 1, *rest), 0


def _ends(indices: Sequence[int], length: int) -> list[tuple[int, int]]:
    """Return the first and last place of each run; it ends before the next begins."""
    stops = [*indices[1:], length][: len(indices)]
    # A symbolic length is more than an index of it.
    return [
        (i, j if type(j) is not int else max(j, i + 1))
        for i, j in zip(indices, stops, strict=True)
    ]


def _runs(x: Any, indices: Sequence[int], axis: int) -> tuple[Any, Any, list[slice]]:
    """Return the elements of all runs in a line, the run of each, and the runs."""
    pairs = _ends(indices, x.shape[axis])
    taken = [numbers(i, j, x) for i, j in pairs] or [numbers(0, 0, x)]
    of = [np.full_like(places, k) for k, places in enumerate(taken)]
    ends = [0, *accumulate_sizes(j - i for i, j in pairs)]
    runs = [slice(i, j) for i, j in pairwise(ends)]
    return np.concatenate(taken), np.concatenate(of), runs


def _run_sums(v: Any, runs: Sequence[slice]) -> Any:
    """Sum over the runs along the last axis."""
    if not runs:
        return v[..., :0]
    return reduceat(v, [run.start for run in runs], len(v.shape) - 1, "add")


def _run_shares(x: Any, y: Any, indices: Any, axis: int, ufunc: str) -> Any:
    """Return each element's share, its place, and its run's number, for all runs."""
    taken, of, runs = _runs(x, indices, axis)
    line = np.take(np.moveaxis(cast(x, y.dtype), axis, -1), taken, axis=-1)
    wide = np.take(np.moveaxis(y, axis, -1), of, axis=-1)

    def total(v: Any) -> Any:
        return np.take(_run_sums(v, runs), of, axis=-1)

    return shares_of(getattr(np, ufunc), line, wide, runs, total), taken, of, runs


def _reduceat_backward(ctx: Any, g: Any) -> tuple[Any, ...]:
    (x, y), (indices, axis, ufunc, _) = ctx.saved_arrays, ctx.rest
    shares, taken, of, _ = _run_shares(x, y, indices, axis, ufunc)
    wide = shares * np.take(np.moveaxis(g, axis, -1), of, axis=-1)
    like = np.zeros_like(cast(x, y.dtype))
    _, pullback = vjp(lambda v: np.take(np.moveaxis(v, axis, -1), taken, axis=-1), like)
    return fit(pullback(wide)[0], x), None, None, None, None


reduceat.register_autograd(_reduceat_backward, setup_context=_note)


@reduceat.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    x, indices, axis, ufunc, _ = primals
    y = reduceat(*primals)
    if not is_inexact(y):
        return y, None
    shares, taken, _, runs = _run_shares(x, y, indices, axis, ufunc)
    moved = shares * np.take(np.moveaxis(tangents[0], axis, -1), taken, axis=-1)
    return y, fit(np.moveaxis(_run_sums(moved, runs), -1, axis), y)


# ---- for each ufunc ----

# Ufuncs whose reductions and running results are operators of their own.
_REDUCED: dict[str, Operator[..., Any]] = {
    "add": sum_,
    "multiply": prod,
    "maximum": max_,
    "minimum": min_,
    "logical_or": any_,
    "logical_and": all_,
}
_RUNNING: dict[str, Operator[..., Any]] = {"add": cumsum, "multiply": cumprod}


def _reduce(
    ufunc: np.ufunc,
    array: Any,
    axis: Any = 0,
    dtype: Any = None,
    out: None = None,
    keepdims: Any = False,
    initial: Any = NO_VALUE,
    where: Any = True,
) -> Any:
    a, name = as_array(array), ufunc.__name__
    axes = reduced_axes(a, axis)
    if len(counted_axes(axes, len(a.shape))) > 1:  # NumPy raises for some ufuncs
        ufunc.reduce(np.ones((1, 1), dtype_of(a)), axis=None, dtype=dtype)
    if initial is NO_VALUE and where is True:
        if _own_reduction(name, dtype) is None and ufunc.identity is None:
            check_elements(f"{name}.reduce", a.shape, axes)
        return _reduce_all(a, axes, keeps_axes(keepdims), name, dtype)
    mask = None if where is True else as_array(where)
    known = [begin for begin, value in _BEGIN.items() if value is initial]
    begin, start = (known[0], 0) if known else ("value", initial)
    is_plain = isinstance(start, np.ndarray | np.generic) or not hasattr(start, "shape")
    if is_plain and not shape_of(start):
        with np.errstate(all="ignore"):  # NumPy's own errors for what does not fit
            ufunc.reduce(np.ones(1, dtype_of(a)), dtype=dtype, initial=start)
    return _reduce_some(a, axes, keeps_axes(keepdims), name, dtype, mask, begin, start)


def _own_reduction(name: str, dtype: Any) -> Operator[..., Any] | None:
    if name.startswith("logical") and dtype is not None and as_dtype(dtype) != np.bool_:
        return None  # NumPy has results of other kinds for arrays of objects alone
    return _REDUCED.get(name)


def _reduce_all(x: Any, axes: Any, keepdims: bool, name: str, dtype: Any) -> Any:
    own, x = _own_reduction(name, dtype), cast(x, dtype)
    if own is None:
        return _reduce_(x, axes, keepdims, name, dtype)
    return cast(own(x, axes, keepdims), dtype)


# How a reduction begins, but by a value -> the argument `initial` of NumPy.
_BEGIN: dict[str, Any] = {"identity": NO_VALUE, "first": None}


def _reduce_some_body(
    a: Any,
    axis: Any,
    keepdims: bool,
    ufunc: str,
    dtype: Any,
    where: Any,
    begin: str,
    initial: Any,
) -> Any:
    return reduce_selected(
        getattr(np, ufunc),
        partial(_reduce_all, name=ufunc, dtype=dtype),
        a,
        axis,
        keepdims,
        _BEGIN.get(begin, initial),
        True if where is None else where,
    )


def _reduce_some_kernel(
    a: Any,
    axis: Any,
    keepdims: bool,
    ufunc: str,
    dtype: Any,
    where: Any,
    begin: str,
    initial: Any,
) -> Any:
    return getattr(np, ufunc).reduce(
        a,
        as_axis(axis),
        dtype,
        keepdims=keepdims,
        initial=_BEGIN.get(begin, initial),
        where=True if where is None else where,
    )


_reduce_some = whole_operator(
    "reduce_some",
    "(Array a, int[]? axis, bool keepdims, str ufunc, dtype? dtype, Array? where,"
    " str begin, Array|Scalar initial) -> Array",
    _reduce_some_body,
    _reduce_some_kernel,
)


@_reduce_some.register_fake
def _(a: Any, axis: Any, keepdims: bool, *rest: Any) -> Any:
    found = _reduce_some_body(a, axis, keepdims, *rest)
    if not keepdims or not a.ndim:
        return found
    # The body gives axes of length 1 the stride 0, NumPy that of a packed array.
    packed = reduced(a, axis, keepdims, found.dtype)
    axes = set(range(a.ndim)).difference(counted_axes(axis, a.ndim))
    is_same = all(packed.strides[i] == found.strides[i] for i in axes)
    return packed if is_same else found


_ROWS = np.array([[0.3, -1.2, 2.0], [0.7, 0.4, -0.9]])
_reduce_some.register_sample_inputs(
    lambda: [
        (_ROWS, None, False, "add", None, _ROWS > 0, "identity", 0),
        (_ROWS, [1], True, "add", np.dtype("f4"), None, "value", 1.5),
        (_ROWS, [0], False, "maximum", None, _ROWS > 0, "value", -2.0),
        (_ROWS, [0], False, "multiply", None, None, "first", 0),
    ]
)


def _one_axis(name: str, x: Any, axis: Any) -> int:
    """Return the axis of a method that takes one only."""
    rank = len(x.shape)
    if not rank:
        raise ArgumentError(
            f"{name}: cannot work on an array without axes",
            do="give an array with axes",
        )
    axes = counted_axes(None, rank) if axis is None else axis
    if isinstance(axes, tuple | list):
        if len(axes) != 1:
            raise ValueError(f"{name} does not allow multiple axes")
        (axes,) = axes
    return int(whole(axes))


def _accumulate(
    ufunc: np.ufunc, array: Any, axis: Any = 0, dtype: Any = None, out: None = None
) -> Any:
    a, name = as_array(array), ufunc.__name__
    at = _one_axis(f"np.{name}.accumulate", a, axis)
    own = _RUNNING.get(name)
    x = cast(a, dtype)
    return cast(own(x, at), dtype) if own else accumulate(x, at, name, dtype)


def _reduceat(
    ufunc: np.ufunc,
    array: Any,
    indices: Any,
    axis: Any = 0,
    dtype: Any = None,
    out: None = None,
) -> Any:
    a, name = as_array(array), ufunc.__name__
    at = _one_axis(f"np.{name}.reduceat", a, axis)
    places = _plain_indices(name, indices)
    return reduceat(cast(a, dtype), places, at, name, dtype)


def _plain_indices(name: str, indices: Any) -> list[int]:
    if isinstance(indices, Tracer | FakeArray):
        raise ArgumentError(
            f"np.{name}.reduceat: the indices are {type(indices).__name__}, must be plain"
            " integers",
            do="pass a NumPy array, or np.asarray(stop_gradient(indices))",
        )
    places = np.asarray(indices)
    if places.ndim != 1:
        raise ValueError(f"np.{name}.reduceat: the indices must have one axis")
    return [int(i) for i in places]


def _outer(ufunc: np.ufunc, a: Any, b: Any, /, **keywords: Any) -> Any:
    a, b = _strong(a, b), _strong(b, a)
    wide = np.reshape(a, (*a.shape, *(1,) * b.ndim)) if b.ndim else a
    return ufunc(wide, b, **keywords)


def _strong(value: Any, other: Any) -> Any:
    """Return an operand of ``outer`` as an array, whose dtype counts."""
    if isinstance(value, int | float | complex):
        return np.full_like(other, value, shape=(), dtype=np.asarray(value).dtype)
    return as_array(value)


def _serve(ufunc: np.ufunc) -> None:
    """Register the methods of a ufunc of two arguments."""
    register_numpy_function((ufunc, "outer"), partial(_outer, ufunc))
    if ufunc.nout == 1:
        register_numpy_function((ufunc, "reduce"), partial(_reduce, ufunc))
        register_numpy_function((ufunc, "accumulate"), partial(_accumulate, ufunc))
        register_numpy_function((ufunc, "reduceat"), partial(_reduceat, ufunc))


for _ufunc in (getattr(np, _name) for _name in dir(np)):
    if isinstance(_ufunc, np.ufunc) and _ufunc.nin == 2 and _ufunc.signature is None:
        _serve(_ufunc)
