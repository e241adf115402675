"""Differences along an axis, and what is made of them: trapezoid, unwrap, cross."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from customop import (
    ArgumentError,
    FakeArray,
    Operator,
    ShapeError,
    partials,
    register_numpy_function,
)
from customop.numpy.arguments import (
    NO_VALUE,
    SINCE_2_5,
    as_array,
    cast,
    dtype_of,
    warn_user,
)
from customop.numpy.create import array_like
from customop.numpy.fakes import device_of, keep_order, result_dtype
from customop.numpy.layouts import in_order_of
from customop.numpy.rules import (
    batch_first,
    numpy_operator,
    padded_rows,
    register_linear,
    sum_of,
)
from customop.numpy.running import along_axis
from customop.numpy.sizes import broadcast, larger, typical, whole, wide_to

__all__ = ["diff", "part_of"]


def part_of(axis: int, ndim: int, *key: Any) -> tuple[Any, ...]:
    """The index of a slice along one axis."""
    entries: list[Any] = [slice(None)] * ndim
    entries[axis] = slice(*key)
    return tuple(entries)


# ---- diff ----


diff: Operator[..., Any] = numpy_operator(
    "diff",
    "(Array x, int axis, int n) -> Array",
    lambda x, axis, n: np.diff(x, n, axis),
)


def _quick_diff(x: Any, axis: int, n: int) -> Any:
    """As `numpy.diff`, whose own code in Python takes half of its time."""
    if x.dtype.kind not in "fciu" or n < 0:
        return np.diff(x, n, axis)
    axis = normalize_axis_index(axis, x.ndim)
    later, earlier = part_of(axis, x.ndim, 1, None), part_of(axis, x.ndim, None, -1)
    for _ in range(n):
        x = x[later] - x[earlier]
    return x if n else x.copy()


diff.register_kernel("cpu", _quick_diff)


@diff.register_fake
def _(x: Any, axis: int, n: int) -> FakeArray:
    axis = normalize_axis_index(axis, len(x.shape))
    out = keep_order([x], x.dtype)
    shape = list(x.shape)
    shape[axis] = larger(shape[axis] - n, 0)
    strides = typical(out.strides)
    order = sorted(range(len(shape)), key=lambda i: -strides[i])
    return FakeArray(shape, x.dtype, device=out.device, order=order)


diff.register_vmap(along_axis(diff))


# The transpose of diff, for known lengths: one operator, so that graphs have its bits.
_undiff: Operator[..., Any] = numpy_operator(
    "undiff",
    "(Array x, int axis, int n) -> Array",
    lambda x, axis, n: _padded_diff(x, axis, n),
)


def _quick_undiff(x: Any, axis: int, n: int) -> Any:
    """As `_padded_diff`, in a third of the time."""
    later, earlier = part_of(axis, x.ndim, 1, None), part_of(axis, x.ndim, None, -1)
    for _ in range(n):
        shape = [*x.shape]
        shape[axis] += 1
        wide = np.zeros(shape, x.dtype)
        wide[later] = x
        wide[earlier] -= x
        x = wide
    return x if n else x.copy()


_undiff.register_kernel("cpu", _quick_undiff)


@_undiff.register_fake
def _(x: Any, axis: int, n: int) -> FakeArray:
    shape = [*x.shape]
    shape[axis] += n
    return FakeArray(shape, x.dtype, device=device_of(x))


_undiff.register_vmap(along_axis(_undiff))


def _padded_diff(g: Any, axis: int, n: int) -> Any:
    """Differences of the gradient between zeros, for odd n with the other sign."""
    widths = [(0, 0)] * len(g.shape)
    widths[axis] = (n, n)
    found = np.diff(np.pad(g, widths), n, axis)
    return -found if n % 2 else found


def _diff_pull(g: Any, shape: Sequence[int], axis: int, n: int) -> Any:
    length = shape[axis]
    if type(length) is int:
        if length <= n:
            return np.zeros_like(g, shape=tuple(shape))
        return _undiff.run(g, axis, n)
    found = _padded_diff(g, axis, n)
    # Of fewer than n elements there are no differences.
    return found[part_of(axis, len(shape), length)]


register_linear(_undiff, lambda g, shape, axis, n: diff(g, axis, n))
register_linear(diff, _diff_pull)


@register_numpy_function(np.diff)
def _(
    a: Any, n: int = 1, axis: int = -1, prepend: Any = NO_VALUE, append: Any = NO_VALUE
) -> Any:
    if n == 0:
        return a
    if n < 0:
        raise ShapeError(
            f"order must be non-negative but got {n!r}", do="give n of at least 0"
        )
    a = as_array(a)
    if not a.ndim:
        raise ShapeError(
            "diff requires input that is at least one dimensional",
            do="give an array with an axis",
        )
    axis = normalize_axis_index(axis, a.ndim)
    more = [_ends(x, a, axis) for x in (prepend, append)]
    joined = [x for x in (more[0], a, more[1]) if x is not None]
    whole = np.concatenate(joined, axis) if len(joined) > 1 else a
    return diff(whole, axis, operator.index(n))


def _ends(x: Any, a: Any, axis: int) -> Any:
    """The values put before or after an array; a single one is repeated along the other axes."""
    if x is NO_VALUE:
        return None
    x = array_like(x, a)
    if x.ndim:
        return x
    return wide_to(x, [1 if i == axis else n for i, n in enumerate(a.shape)])


@register_numpy_function(np.ediff1d)
def _(ary: Any, to_end: Any = None, to_begin: Any = None) -> Any:
    line = np.reshape(as_array(ary), (-1,))
    steps = line[1:] - line[:-1]
    parts = [
        None if x is None else _fitting(name, x, line)
        for name, x in (("to_begin", to_begin), ("to_end", to_end))
    ]
    joined = [x for x in (parts[0], steps, parts[1]) if x is not None]
    return np.concatenate(joined) if len(joined) > 1 else steps


def _fitting(name: str, x: Any, line: Any) -> Any:
    """Ends of differences, in the dtype of the numbers."""
    x, dtype = array_like(x, line), dtype_of(line)
    if not np.can_cast(dtype_of(x), dtype, casting="same_kind"):
        raise ArgumentError(
            f"np.ediff1d: dtype of `{name}` must be compatible with input `ary` under the"
            f" `same_kind` rule: {dtype_of(x)} and {dtype}",
            do=f"cast it: {name}.astype(...)",
        )
    return cast(np.reshape(x, (-1,)), dtype)


# ---- trapezoid and unwrap ----


@register_numpy_function(np.trapezoid)
def _(y: Any, x: Any = None, dx: Any = 1.0, axis: int = -1) -> Any:
    y = as_array(y)
    axis = normalize_axis_index(whole(axis), y.ndim)
    steps = dx if x is None else _steps(as_array(x), y.ndim, axis)
    ahead, behind = (y[part_of(axis, y.ndim, *key)] for key in ((1, None), (None, -1)))
    return np.sum(steps * (ahead + behind) / 2.0, axis)


def _steps(x: Any, ndim: int, axis: int) -> Any:
    """The distances of the points; those of one axis are the same for all lines."""
    if x.ndim != 1:
        return np.diff(x, axis=axis - ndim if x.ndim < ndim else axis)
    return np.reshape(np.diff(x), [-1 if i == axis else 1 for i in range(ndim)])


@register_numpy_function(np.unwrap)
def _(p: Any, discont: Any = None, axis: int = -1, *, period: Any = 2 * math.pi) -> Any:
    p = as_array(p)
    axis = normalize_axis_index(whole(axis), p.ndim)
    steps = np.diff(p, axis=axis)
    discont = period / 2 if discont is None else discont
    dtype = np.result_type(
        dtype_of(steps), dtype_of(period) if hasattr(period, "dtype") else period
    )
    is_whole = dtype.kind in "iu"
    high = period // 2 if is_whole else period / 2
    turned = np.remainder(steps + high, period) - high
    if not is_whole or period % 2 == 0:
        # A step of half a period keeps its sign.
        turned = np.where((turned == -high) & (steps > 0), high, turned)
    moved = np.where(np.absolute(steps) < discont, 0, turned - steps)
    ndim = p.ndim
    rest = p[part_of(axis, ndim, 1, None)] + np.cumsum(moved, axis)
    first = cast(p[part_of(axis, ndim, 0, 1)], dtype)
    return in_order_of(np.concatenate([first, cast(rest, dtype)], axis), p)


# ---- cross product ----


def _cross_kernel(a: Any, b: Any) -> Any:
    _check_vectors(a, b)
    return np.cross(a, b)


def _check_vectors(*arrays: Any) -> None:
    for x in arrays:
        if tuple(x.shape[-1:]) != (3,):
            raise ShapeError(
                f"np::cross: an array of shape {tuple(x.shape)} has no vectors of 3"
                " elements in its last axis",
                do="call np.cross, which takes vectors of 2 elements and other axes",
            )


def _quick_cross(a: Any, b: Any) -> Any:
    """As `numpy.cross`, whose own code in Python takes two thirds of its time."""
    _check_vectors(a, b)
    if a.dtype.kind not in "fciu" or b.dtype.kind not in "fciu":
        return np.cross(a, b)
    shape = np.broadcast_shapes(a.shape[:-1], b.shape[:-1])
    dtype = np.promote_types(a.dtype, b.dtype)
    out, part = np.empty((*shape, 3), dtype), np.empty(shape, dtype)
    for i, (j, k) in enumerate(((1, 2), (2, 0), (0, 1))):
        line = out[..., i]
        np.multiply(a[..., j], b[..., k], out=line)
        line -= np.multiply(a[..., k], b[..., j], out=part)
    return out


cross: Operator[..., Any] = numpy_operator(
    "cross", "(Array a, Array b) -> Array", _cross_kernel
)
cross.register_kernel("cpu", _quick_cross)


@cross.register_fake
def _(a: Any, b: Any) -> FakeArray:
    _check_vectors(a, b)
    shape = broadcast(a.shape[:-1], b.shape[:-1])
    dtype = np.promote_types(a.dtype, b.dtype)
    result_dtype(np.subtract, (dtype, dtype))  # raises for bool, as NumPy does
    return FakeArray((*shape, 3), dtype, device=device_of(a))


cross.register_autograd(
    partials({"a": lambda g, b: cross(b, g), "b": lambda g, a: cross(g, a)})
)


@cross.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    (a, b), (ta, tb) = primals, tangents
    y = cross(a, b)
    parts = [] if ta is None else [cross(ta, b)]
    parts += [] if tb is None else [cross(a, tb)]
    return y, sum_of(parts, y)


@cross.register_vmap
def _(info: Any, in_dims: Any, a: Any, b: Any) -> Any:
    pairs = ((a, in_dims[0]), (b, in_dims[1]))
    rank = max(x.ndim - (d is not None) for x, d in pairs)
    rows = [x if d is None else padded_rows(batch_first(x, d), rank) for x, d in pairs]
    return cross(*rows), 0


@register_numpy_function(np.cross)
def _(
    a: Any,
    b: Any,
    axisa: int = -1,
    axisb: int = -1,
    axisc: int = -1,
    axis: int | None = None,
) -> Any:
    if axis is not None:
        axisa, axisb, axisc = axis, axis, axis
    a = _vectors(as_array(a), axisa, "axisa")
    b = _vectors(as_array(b), axisb, "axisb")
    _check_lengths(a.shape[-1], b.shape[-1])
    is_flat = [x.shape[-1] == 2 for x in (a, b)]
    if any(is_flat):
        warn_user(
            "Arrays of 2-dimensional vectors are deprecated. Use arrays of 3-dimensional"
            " vectors instead. (deprecated in NumPy 2.0)",
            DeprecationWarning,
        )
    out = cross(_with_third(a), _with_third(b))
    if all(is_flat):
        return out[..., 2]
    place = normalize_axis_index(axisc, out.ndim, msg_prefix="axisc")
    return out if place == out.ndim - 1 else np.moveaxis(out, -1, place)


def _vectors(x: Any, axis: int, name: str) -> Any:
    """Vectors along the last axis."""
    if not x.ndim:
        raise ShapeError(
            "At least one array has zero dimension",
            do="give arrays of vectors to np.cross",
        )
    place = normalize_axis_index(axis, x.ndim, msg_prefix=name)
    return x if place == x.ndim - 1 else np.moveaxis(x, place, -1)


def _check_lengths(*lengths: Any) -> None:
    """Raise unless vectors have 3 elements, or 2 for NumPy before 2.5."""
    if SINCE_2_5 and any(n != 3 for n in lengths):
        raise ShapeError(
            "Both input arrays must be (arrays of) 3-dimensional vectors, but they are"
            f" {lengths[0]} and {lengths[1]} dimensional instead",
            do="give vectors of 3 elements; for those of 2 write"
            " a[..., 0] * b[..., 1] - a[..., 1] * b[..., 0]",
        )
    for n in lengths:
        if n not in (3, 2):
            raise ShapeError(
                "incompatible dimensions for cross product (dimension must be 2 or 3)",
                f"np.cross: vectors of {n} elements",
                do="give vectors of 3 elements",
            )


def _with_third(x: Any) -> Any:
    """Vectors of 3 elements; the third of those of 2 is zero."""
    return x if x.shape[-1] == 3 else np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, 1)])
