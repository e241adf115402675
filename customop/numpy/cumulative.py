"""Products of elements, and running sums and products along an axis.

The derivative by an element is the product of the others. It is an operator, and so is
its own derivative: their kernels divide where no factor is zero, in a fifth of the time.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from customop import (
    FakeArray,
    Operator,
    ShapeError,
    fake_like,
    jvp,
    partials,
    register_numpy_function,
    vjp,
)
from customop.numpy.arguments import (
    as_axis,
    as_line,
    cast,
    counted_axes,
    dtype_of,
    kept,
    lined,
    numpy_refuses,
    whole,
)
from customop.numpy.reductions import (
    batched_axes,
    before_each,
    recurrence,
    reduction_of,
    reversed_recurrence,
    serve_cast,
    solved,
)
from customop.numpy.rules import (
    along_axis,
    batch_first,
    in_order_of,
    numpy_operator,
    register_linear,
)

# Prod, and its derivatives, which are right beside zeros too.


# ---- prod ----


def _prod(x: Any, axis: Any = None, keepdims: bool = False) -> Any:
    return np.prod(x, axis=as_axis(axis), keepdims=keepdims)


prod: Operator[..., Any] = reduction_of("prod", _prod)


def _prod_pull(g: Any, x: Any, axis: Any, keepdims: bool) -> Any:
    return kept(g, x.shape, axis, keepdims) * _others_.run(x, axis)


prod.register_autograd(partials({"x": _prod_pull}))


@prod.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    x, axis, keepdims = primals
    moved = tangents[0] * _others_(x, axis)
    return prod(x, axis, keepdims), np.sum(moved, axis=as_axis(axis), keepdims=keepdims)


serve_cast(np.prod, prod, np.multiply)


# ---- running sums and products along an axis ----


def _running(name: str) -> Operator[..., Any]:
    """Make np.cumsum or np.cumprod."""

    def kernel(x: Any, axis: int) -> Any:
        return getattr(x, name)(axis=axis)

    op = numpy_operator(name, "(Array x, int axis) -> Array", kernel)

    def fake(x: Any, axis: Any) -> FakeArray:
        normalize_axis_index(axis, len(x.shape))
        return fake_like(x, dtype=np.ones(1, x.dtype).cumsum().dtype)

    def running(a: Any, axis: Any = None, dtype: Any = None, out: None = None) -> Any:
        line = np.reshape(a, (-1,)) if axis is None else lined(a, axis)
        axis = 0 if axis is None else operator.index(axis)
        # Small integers become larger ones unless a dtype is given.
        return cast(op(cast(line, dtype), axis), dtype)

    op.register_fake(fake)
    op.register_vmap(along_axis(op))
    register_numpy_function(getattr(np, name), running)
    return op


cumsum: Operator[..., Any] = _running("cumsum")
cumprod: Operator[..., Any] = _running("cumprod")


def _cumsum_pull(g: Any, shape: Any, axis: int) -> Any:
    if type(g) is np.ndarray:
        back: Any = (*(slice(None),) * (axis % g.ndim), slice(None, None, -1))
        return g[back].cumsum(axis)[back]
    return np.flip(np.cumsum(np.flip(g, axis), axis=axis), axis)


register_linear(cumsum, _cumsum_pull)


# The derivatives of y[k] = x[k] * y[k - 1] are right where elements are zero.


def _cumprod_backward(ctx: Any, g: Any) -> tuple[Any, None]:
    x, y = ctx.saved_arrays
    gains = reversed_recurrence(_last(x, ctx.axis), _last(g, ctx.axis))
    found = gains * before_each(_last(y, ctx.axis), 1)
    return np.moveaxis(found, -1, ctx.axis), None


def _last(x: Any, axis: int) -> Any:
    return np.moveaxis(x, axis, -1)


def _note_product(ctx: Any, inputs: Any, output: Any) -> None:
    x, ctx.axis = inputs
    ctx.save_for_backward(x, output)


cumprod.register_autograd(_cumprod_backward, setup_context=_note_product)


@cumprod.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    x, axis = primals
    y = cumprod(x, axis)
    steps = _last(tangents[0], axis) * before_each(_last(y, axis), 1)
    return y, np.moveaxis(recurrence(_last(x, axis), steps), -1, axis)


# ---- running sums with the start ----


def _serve_with_start(function: Any, op: Operator[..., Any], start: int) -> None:
    def running(
        x: Any,
        /,
        *,
        axis: Any = None,
        dtype: Any = None,
        out: None = None,
        include_initial: bool = False,
    ) -> Any:
        line = np.atleast_1d(x)
        if axis is None:
            if line.ndim >= 2:
                numpy_refuses(function, line)
            axis = 0
        (only,) = axis if isinstance(axis, tuple) else (axis,)
        at = normalize_axis_index(whole(only), line.ndim)
        found = cast(op(cast(line, dtype), at), dtype)
        if not include_initial:
            return found
        shape = [*found.shape]
        shape[at] = 1
        first = np.full_like(found, start, shape=shape)
        return np.concatenate([first, found], axis=at)

    register_numpy_function(function, running)


_serve_with_start(np.cumulative_sum, cumsum, 0)
_serve_with_start(np.cumulative_prod, cumprod, 1)


# ---- the products of all other factors ----


def _off_line(line: Any, x: Any, axes: Sequence[int]) -> Any:
    """Undo `as_line`: put the axes of a line back into their places in `x`."""
    order = [*[i for i in range(x.ndim) if i not in axes], *axes]
    wide = np.reshape(line, tuple([x.shape[i] for i in order]))
    return np.transpose(wide, tuple([order.index(i) for i in range(x.ndim)]))


def _others_formula(x: Any, axis: Any) -> Any:
    """Multiply the products before and after each element, along a line of all axes."""
    axes = counted_axes(axis, x.ndim)
    line = as_line(x, axes)
    lower = before_each(np.cumprod(line, axis=-1), 1)
    upper = before_each(np.cumprod(np.flip(line, -1), axis=-1), 1)
    return cast(_off_line(lower * np.flip(upper, -1), x, axes), x.dtype)


def _moved_formula(x: Any, t: Any, axis: Any, solve: Any = recurrence) -> Any:
    """Return the derivative of `_others_formula` in the direction t."""
    axes = counted_axes(axis, x.ndim)
    line, step = as_line(x, axes), as_line(t, axes)
    lower, moved_lower = _before(line, step, solve)
    upper, moved_upper = _before(np.flip(line, -1), np.flip(step, -1), solve)
    found = moved_lower * np.flip(upper, -1) + lower * np.flip(moved_upper, -1)
    return cast(_off_line(found, x, axes), np.result_type(dtype_of(x), dtype_of(t)))


def _moved_kernel(x: Any, t: Any, axis: Any) -> Any:
    return _moved_formula(x, t, axis, solved)


def _before(line: Any, step: Any, solve: Any) -> tuple[Any, Any]:
    """Return the products before each element, and their derivatives."""
    y = np.cumprod(line, axis=-1)
    before = before_each(y, 1)
    return before, before_each(solve(line, step * before), 0)


def _along(axis: Sequence[int] | None, x: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Put the factors along the last axis; return them and the way back for a result.

    Return them and the way back for a result.
    """
    if axis is None:
        return x.reshape(-1), lambda found: in_order_of(found.reshape(x.shape), x)
    if len(axis) == 1:
        (at,) = axis
        return x.swapaxes(at, -1), lambda found: in_order_of(found.swapaxes(at, -1), x)
    axes = counted_axes(axis, x.ndim)
    return as_line(x, axes), lambda found: in_order_of(_off_line(found, x, axes), x)


def _quotient(x: Any) -> Any:
    """Return the products over each factor; None if one is not a normal number.

    Such a quotient has the precision of the product.
    """
    if x.dtype.char not in _LIMITS or not x.shape[-1]:
        return None
    y = _multiply(x, -1, keepdims=True)
    size, (tiny, most) = np.absolute(y), _LIMITS[x.dtype.char]
    is_normal = np.less(tiny, size) & np.less(size, most)  # nan is not
    return y / x if is_normal.all() else None


_multiply = np.multiply.reduce
_FLOATS = {char: np.finfo(char) for char in "fdFD"}
_LIMITS = {char: (limits.tiny, limits.max) for char, limits in _FLOATS.items()}


def _others_along(x: Any) -> Any:
    """Return the products of others along the last axis, in an eighth of the time."""
    lower, upper = np.ones_like(x), np.ones_like(x)
    back: Any = (..., slice(None, None, -1))
    _accumulate(x[..., :-1], -1, None, lower[..., 1:])
    _accumulate(x[..., :0:-1], -1, None, upper[..., 1:])
    return lower * upper[back]


_accumulate = np.multiply.accumulate


def _quick_others(x: Any, axis: Any) -> Any:
    line, back = _along(axis, x)
    found = _quotient(line)
    return back(_others_along(line) if found is None else found)


def _quick_moved(x: Any, t: Any, axis: Any) -> Any:
    """Multiply each product of others by the sum of their relative changes.

    Sums from both sides leave out the own change without taking a difference.
    """
    _check_equal(x, t)
    line, back = _along(axis, x)
    others = _quotient(line) if x.dtype == t.dtype else None
    if others is None:
        return in_order_of(_moved_kernel(x, t, axis), x)
    shares = _along(axis, t)[0] / line
    sums = np.zeros_like(shares)
    np.add.accumulate(shares[..., :-1], -1, None, sums[..., 1:])
    sums[..., -2::-1] += np.add.accumulate(shares[..., :0:-1], -1)
    if not np.isfinite(sums).all():  # a tiny factor, beside a huge one
        return in_order_of(_moved_kernel(x, t, axis), x)
    return back(others * sums)


_others_: Operator[..., Any] = numpy_operator(
    "others", "(Array x, int[]? axis=None) -> Array", _others_formula
)
_others_.register_kernel("cpu", _quick_others)
_others_.register_kernel(
    "cuda", lambda x, axis: in_order_of(_others_formula(x, axis), x)
)
_others_.register_fake(lambda x, axis: _checked_like(x, axis))
# The derivative of the products of others in the direction t. It is symmetric: with a
# third array g, sum(g * moved(x, t)) == sum(t * moved(x, g)).
_moved_: Operator[..., Any] = numpy_operator(
    "moved_others", "(Array x, Array t, int[]? axis=None) -> Array", _moved_kernel
)
_moved_.register_kernel("cpu", _quick_moved)
_moved_.register_kernel(
    "cuda", lambda x, t, axis: in_order_of(_moved_kernel(x, t, axis), x)
)


def _checked_like(x: Any, axis: Any) -> FakeArray:
    counted_axes(axis, len(x.shape))
    return fake_like(x)


@_moved_.register_fake
def _(x: Any, t: Any, axis: Any) -> FakeArray:
    _check_equal(x, t)
    counted_axes(axis, len(x.shape))
    return fake_like(x, dtype=np.result_type(x.dtype, t.dtype))


def _check_equal(x: Any, t: Any) -> None:
    if tuple(x.shape) != tuple(t.shape):
        raise ShapeError(
            f"np::moved_others: x has the shape {tuple(x.shape)}, t {tuple(t.shape)}",
            do="give a direction of the shape of the factors",
        )


@_others_.register_vmap
def _(info: Any, in_dims: Any, x: Any, axis: Any) -> Any:
    return _others_(x, batched_axes(axis, in_dims[0], x.ndim)), in_dims[0]


@_moved_.register_vmap
def _(info: Any, in_dims: Any, x: Any, t: Any, axis: Any) -> Any:
    rows = [
        batch_first(v, dim, info.batch_size)
        for v, dim in zip((x, t), in_dims, strict=False)
    ]
    return _moved_(*rows, batched_axes(axis, 0, rows[0].ndim)), 0


_others_.register_autograd(partials({"x": lambda g, x, axis: _moved_.run(x, g, axis)}))


@_others_.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    x, axis = primals
    return _others_(x, axis), _moved_(x, tangents[0], axis)


def _by_factors(g: Any, x: Any, t: Any, axis: Any) -> Any:
    return vjp(lambda v: _moved_formula(v, t, axis), x)[1](g)[0]


_moved_.register_autograd(
    partials({"x": _by_factors, "t": lambda g, x, axis: _moved_.run(x, g, axis)})
)


@_moved_.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    (x, t, axis), (tx, tt, _) = primals, tangents
    parts = [] if tt is None else [_moved_(x, tt, axis)]
    if tx is not None:
        parts.append(jvp(lambda v: _moved_formula(v, t, axis), (x,), (tx,))[1])
    return _moved_(x, t, axis), sum(parts[1:], parts[0])
