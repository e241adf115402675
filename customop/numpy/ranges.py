"""Sequences of numbers: linspace, logspace, geomspace, arange; and tri, identity."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from customop import (
    FakeArray,
    Operator,
    SymInt,
    partials,
    register_numpy_function,
    stop_gradient,
)
from customop.numpy.arguments import (
    NUMBERS,
    as_array,
    as_dtype,
    cast,
    dtype_of,
    is_below,
    is_inexact,
    larger,
    numpy_refuses,
    only,
    plain,
    same_shape,
    shape_of,
    size_of,
    value_of,
    whole,
)
from customop.numpy.create import arange, array_like, eye, full
from customop.numpy.index_operators import numbers
from customop.numpy.rules import (
    batch_first,
    fit,
    in_order_of,
    keep_order,
    numpy_operator,
    padded_rows,
)

# ---- between two values ----


def _dtype_of(*values: Any) -> np.dtype[Any]:
    """Return the inexact dtype that fits arrays and numbers."""
    kinds = [plain(v) if isinstance(v, NUMBERS) else dtype_of(v) for v in values]
    return np.result_type(*kinds, 0.0)


def _arrays(*values: Any) -> list[Any]:
    """Convert values to arrays; numbers stay numbers."""
    return [v if isinstance(v, NUMBERS) else as_array(v) for v in values]


def _in_dtype(values: Sequence[Any], dtype: Any) -> list[Any]:
    """Cast values to a dtype; numbers become arrays where the others are."""
    like = next(v for v in values if hasattr(v, "dtype"))
    return [cast(array_like(v, like, dtype), dtype) for v in values]


def _steps(counts: Any, delta: Any, div: int) -> tuple[Any, Any]:
    """Return the step and its multiples.

    A step that underflows is not used, as in NumPy.
    """
    step = delta / div
    has_zero = np.any(np.equal(step, 0))
    is_zero = value_of(has_zero)
    if is_zero is not None:
        return step, counts / div * delta if is_zero else counts * step
    return step, np.where(has_zero, counts / div * delta, counts * step)


_ENDS = (0, -1)


def _lines(
    places: Any, start: Any, stop: Any, num: int, endpoint: bool, rank: int
) -> Any:
    """Return numbers from each start to each stop along the first axis, as NumPy does.

    `places` are the integers from 0 on, along that axis. A call of NumPy has the ends in
    the last `rank` axes.
    """
    dtype, div = _dtype_of(start, stop), num - endpoint
    start, stop = _inexact(start), _inexact(stop)
    delta = stop - start
    wide = np.reshape(places, (num, *(1,) * len(delta.shape)))
    counts = wide.astype(dtype)
    if div > 0:
        step = delta / div
        # If a step underflows, none is used.
        has_zero = np.equal(step, 0)
        if rank:
            has_zero = np.any(has_zero, axis=tuple(range(-rank, 0)), keepdims=True)
        line = np.where(has_zero, counts / div * delta, counts * step) + start
    else:
        line = counts * delta + start
    if endpoint and num > 1:
        line = np.where(np.equal(wide, num - 1), stop, line)
    return line.astype(dtype)


def _inexact(end: Any) -> Any:
    """Return an end as numbers whose differences do not wrap."""
    is_whole = not isinstance(end, NUMBERS) and not is_inexact(end)
    return end * 1.0 if is_whole else end


def _rank_of(*ends: Any) -> int:
    return max(len(shape_of(end)) for end in ends)


_between: Operator[..., Any] = numpy_operator(
    "linspace",
    "(Array|Scalar start, Array|Scalar stop, int num, bool endpoint) -> Array",
    lambda start, stop, num, endpoint: _lines(
        np.arange(num), start, stop, num, endpoint, _rank_of(start, stop)
    ),
)
_between.register_kernel(
    "cpu", lambda start, stop, num, endpoint: np.linspace(start, stop, num, endpoint)
)


@_between.register_kernel("cuda")
def _(start: Any, stop: Any, num: int, endpoint: bool) -> Any:
    places = numbers(0, num, stop if isinstance(start, NUMBERS) else start)
    return _lines(places, start, stop, num, endpoint, _rank_of(start, stop))


@_between.register_fake
def _(start: Any, stop: Any, num: int, endpoint: bool) -> FakeArray:
    if num < 0:
        numpy_refuses(np.linspace, 0, 0, num)
    dtype = _dtype_of(start, stop)
    delta = keep_order((stop, start), dtype)
    lengths = (num, *(1,) * len(delta.shape))
    return keep_order((FakeArray(lengths, dtype, device=delta.device), delta), dtype)


@_between.register_vmap
def _(info: Any, in_dims: Any, start: Any, stop: Any, num: int, endpoint: bool) -> Any:
    pairs = list(zip((start, stop), in_dims[:2], strict=True))
    rank = max(len(shape_of(x)) - (dim is not None) for x, dim in pairs)
    first, last = (
        x if dim is None else padded_rows(batch_first(x, dim), rank) for x, dim in pairs
    )
    places = numbers(0, num, last if in_dims[0] is None else first)
    return _lines(places, first, last, num, endpoint, rank), 1


def _shares(g: Any, num: int, endpoint: bool) -> Any:
    """Return where each number lies between the two ends, from 0 to 1."""
    places = numbers(0, num, g)
    return places / max(num - endpoint, 1)


def _weighted(g: Any, weights: Any) -> Any:
    """Return the sum of the first axis, weighted."""
    if type(g) is np.ndarray and g.ndim > 1:  # half the time of np.tensordot
        rest = g.shape[1:]
        return np.dot(weights, g.reshape(len(g), math.prod(rest))).reshape(rest)
    return np.tensordot(weights, g, 1) if len(g.shape) > 1 else np.dot(g, weights)


def _start_pull(g: Any, num: int, endpoint: bool) -> Any:
    weights = 1.0 - _shares(g, num, endpoint)
    if len(g.shape) > 1 and endpoint and num > 1:  # the last number is the stop
        g, weights = g[:-1], weights[:-1]
    return _weighted(g, weights)


_between.register_autograd(
    partials(
        {
            "start": _start_pull,
            "stop": lambda g, num, endpoint: _weighted(g, _shares(g, num, endpoint)),
        }
    )
)


@_between.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    (_, _, num, endpoint), (first, last, *_) = primals, tangents
    ends = [0.0 if t is None else t for t in (first, last)]
    y = _between(*primals)
    moved = fit(_between(*ends, num, endpoint), y)
    # One of the ends may be a number here.
    alike = same_shape(moved.shape, y.shape)
    return y, moved if alike else np.broadcast_to(_spread(moved, y), y.shape)


def _spread(line: Any, like: Any) -> Any:
    """Add axes of length one to lines after the first axis, for those of others."""
    count = len(like.shape) - len(line.shape)
    return np.reshape(line, (line.shape[0], *(1,) * count, *line.shape[1:]))


@register_numpy_function(np.linspace)
def _linspace(
    start: Any,
    stop: Any,
    num: Any = 50,
    endpoint: Any = True,
    retstep: bool = False,
    dtype: Any = None,
    axis: int = 0,
    *,
    device: str | None = None,
) -> Any:
    only("np.linspace", device=(device, None, "cpu"))
    num = size_of(num)
    if is_below(num, 0):
        numpy_refuses(np.linspace, 0, 0, num)
    ends = _arrays(start, stop)
    if type(num) is int and not retstep:
        line = _between.run(*ends, num, bool(endpoint))
        if axis not in _ENDS or (axis and len(line.shape) > 1):
            line = np.moveaxis(line, 0, axis)
        if dtype is not None and as_dtype(dtype).kind in "iu":
            line = np.floor(line)
        return cast(line, dtype)
    kind = _dtype_of(*ends)
    first, last = _in_dtype(ends, kind)
    delta = last - first
    counts = numbers(0, num, delta).astype(kind)
    counts = np.reshape(counts, (-1, *(1,) * delta.ndim))
    step, div = np.nan, num - 1 if endpoint else num
    is_open = type(num) is SymInt and not retstep
    if is_open:
        div = larger(div, 1)
    if is_open or div > 0:
        step, line = _steps(counts, delta, div)
    else:
        line = counts * delta
    line = line + first
    if endpoint and is_open:  # one number alone is the first
        line = np.where(np.equal(counts, div), last, line)
    elif endpoint and num > 1:
        end = np.broadcast_to(last, delta.shape)
        whole = np.concatenate([line[:-1], np.expand_dims(end, 0)])
        line = in_order_of(whole, line)
    line = line if axis == 0 else np.moveaxis(line, 0, axis)
    if dtype is not None and as_dtype(dtype).kind in "iu":
        line = np.floor(line)
    line = cast(line, dtype)
    return (line, step) if retstep else line


@register_numpy_function(np.logspace)
def _logspace(
    start: Any,
    stop: Any,
    num: Any = 50,
    endpoint: Any = True,
    base: Any = 10.0,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    if not isinstance(base, float | int) and shape_of(as_array(base)):
        values = _arrays(start, stop, base)
        like = next(v for v in values if hasattr(v, "dtype"))
        rank = max(len(shape_of(v)) for v in values)
        start, stop, base = (_with_rank(array_like(v, like), rank) for v in values)
        base = np.expand_dims(base, axis=axis)
    powers = _linspace(start, stop, num=num, endpoint=endpoint, axis=axis)
    return cast(np.power(base, powers), dtype)


def _with_rank(x: Any, rank: int) -> Any:
    return np.expand_dims(x, tuple(range(rank - x.ndim))) if x.ndim < rank else x


@register_numpy_function(np.geomspace)
def _(
    start: Any,
    stop: Any,
    num: Any = 50,
    endpoint: Any = True,
    dtype: Any = None,
    axis: int = 0,
) -> Any:
    ends = _arrays(start, stop)
    for end in ends:
        known = value_of(end)
        # A zero that is not known, in a row of vmap, gives infinities and NaNs.
        if known is not None and np.any(np.equal(known, 0)):
            np.geomspace(0, 0)  # NumPy's error
    kinds = [
        np.asarray(plain(v)).dtype if isinstance(v, NUMBERS) else dtype_of(v)
        for v in ends
    ]
    kind = np.result_type(*kinds, as_dtype(float if dtype is None else dtype), 0.0)
    first, last = _in_dtype(ends, kind)
    # The result does not depend on the sign, which is taken out and put back.
    sign = stop_gradient(np.sign(first))
    first, last = first / sign, last / sign
    line = _logspace(np.log10(first), np.log10(last), num, endpoint, dtype=kind)
    count = line.shape[0]
    shape = tuple(line.shape[1:])
    rows = [np.expand_dims(np.broadcast_to(end, shape), 0) for end in (first, last)]
    if count:
        # Between ends of other signs there is NaN, which two elements do not need.
        inner = [line[1:-1], rows[1]] if count > 1 and endpoint else [line[1:]]
        parts = [rows[0], *[part for part in inner if part.shape[0]]]
        line = np.concatenate(parts)
    line = line * sign
    line = line if axis == 0 else np.moveaxis(line, 0, axis)
    return cast(line, kind if dtype is None else dtype)


# ---- arange, identity and tri, also with the argument `like` ----


@register_numpy_function(np.arange)
def _(
    start_or_stop: Any,
    /,
    stop: Any = None,
    step: Any = 1,
    *,
    dtype: Any = None,
    device: str | None = None,
) -> Any:
    start, end = (0, start_or_stop) if stop is None else (start_or_stop, stop)
    step = 1 if step is None else step
    given = [np.asarray(plain(v)) for v in (start, end, step)]
    kind = np.result_type(*given) if dtype is None else as_dtype(dtype)
    return arange(start, end, step, kind, device or "cpu")


@register_numpy_function(np.identity)
def _(n: int, dtype: Any = None, *, device: str | None = None) -> Any:
    return eye(whole(n), n, 0, float if dtype is None else dtype, device or "cpu")


@register_numpy_function(np.tri)
def _(
    N: int,  # noqa: N803  # NumPy's names
    M: int | None = None,  # noqa: N803  # NumPy's name
    k: int = 0,
    dtype: Any = float,
    *,
    device: str | None = None,
) -> Any:
    kind = float if dtype is None else dtype
    return np.tril(full([N, N if M is None else M], 1, kind, device or "cpu"), k)
