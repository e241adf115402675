"""Differences along an axis, slopes of sampled functions, and interpolation."""

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
    Tracer,
    check,
    fake_like,
    getitem,
    partials,
    register_numpy_function,
    vmap,
)
from customop.numpy.arguments import (
    NO_VALUE,
    SINCE_2_5,
    as_array,
    broadcast,
    cast,
    counted_axes,
    dtype_of,
    in_c_order,
    is_below,
    is_known,
    larger,
    listed_axes,
    numpy_refuses,
    shape_of,
    typical,
    value_of,
    warn_user,
    whole,
    wide_to,
)
from customop.numpy.create import array_like
from customop.numpy.index_operators import scatter_add
from customop.numpy.rules import (
    aligned_rows,
    along_axis,
    device_of,
    in_order_of,
    is_complex,
    keep_order,
    linear,
    numpy_operator,
    register_bilinear,
    result_dtype,
    sum_of,
    whole_operator,
)

# ---- differences along an axis, and what is made of them ----


def part_of(axis: int, ndim: int, *key: Any) -> tuple[Any, ...]:
    """Return the index of a slice along one axis."""
    entries: list[Any] = [slice(None)] * ndim
    entries[axis] = slice(*key)
    return tuple(entries)


# ---- diff ----


def _fake_diff(x: Any, axis: int, n: int) -> FakeArray:
    axis = normalize_axis_index(axis, len(x.shape))
    out = keep_order([x], x.dtype)
    shape = list(x.shape)
    shape[axis] = larger(shape[axis] - n, 0)
    strides = typical(out.strides)
    order = sorted(range(len(shape)), key=lambda i: -strides[i])
    return FakeArray(shape, x.dtype, device=out.device, order=order)


def _fake_undiff(x: Any, axis: int, n: int) -> FakeArray:
    shape = [*x.shape]
    shape[axis] += n
    return FakeArray(shape, x.dtype, device=device_of(x))


def _padded_diff(g: Any, axis: int, n: int) -> Any:
    """Return differences of a gradient between zeros, with the transpose's sign."""
    ndim = len(g.shape)
    widths = [(0, 0)] * ndim
    widths[axis] = (n, n)
    found = np.pad(g, widths)
    later, earlier = part_of(axis, ndim, 1, None), part_of(axis, ndim, None, -1)
    for _ in range(n):
        found = found[earlier] - found[later]
    return found


def _diff_pull(g: Any, shape: Sequence[int], axis: int, n: int) -> Any:
    length = shape[axis]
    if type(length) is int:
        if length <= n:
            return np.zeros_like(g, shape=tuple(shape))
        return _undiff.run(g, axis, n)
    found = _padded_diff(g, axis, n)
    # Of fewer than n elements there are no differences.
    return in_c_order(found[part_of(axis, len(shape), length)])


diff: Operator[..., Any] = linear(
    "diff",
    "(Array x, int axis, int n) -> Array",
    lambda x, axis, n: np.diff(x, n, axis),
    fake=_fake_diff,
    transpose=_diff_pull,
)
diff.register_vmap(along_axis(diff))
# The transpose of diff, for known lengths: one operator, so that graphs have its bits.
_undiff: Operator[..., Any] = linear(
    "undiff",
    "(Array x, int axis, int n) -> Array",
    lambda x, axis, n: in_c_order(_padded_diff(x, axis, n)),
    fake=_fake_undiff,
    transpose=lambda g, shape, axis, n: diff(g, axis, n),
)
_undiff.register_vmap(along_axis(_undiff))


@register_numpy_function(np.diff)
def _(
    a: Any, n: int = 1, axis: int = -1, prepend: Any = NO_VALUE, append: Any = NO_VALUE
) -> Any:
    if n == 0:
        return a
    a = as_array(a)
    if n < 0 or not a.ndim:
        numpy_refuses(
            np.diff, a, n, do="give n of at least 0, and an array with an axis"
        )
    axis = normalize_axis_index(axis, a.ndim)
    more = [_ends(x, a, axis) for x in (prepend, append)]
    joined = [x for x in (more[0], a, more[1]) if x is not None]
    whole = np.concatenate(joined, axis) if len(joined) > 1 else a
    return diff(whole, axis, operator.index(n))


def _ends(x: Any, a: Any, axis: int) -> Any:
    """Return the values before or after an array.

    One value is repeated along other axes.

    One value is repeated along other axes.
    """
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
    """Return the ends of differences in the dtype of the numbers."""
    x, dtype = array_like(x, line), dtype_of(line)
    if not np.can_cast(dtype_of(x), dtype, casting="same_kind"):
        numpy_refuses(
            np.ediff1d, line, **{name: x}, do=f"cast it: {name}.astype({dtype})"
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
    """Return the distances of points; those along one axis serve all lines."""
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


cross: Operator[..., Any] = numpy_operator(
    "cross", "(Array a, Array b) -> Array", _cross_kernel
)


@cross.register_fake
def _(a: Any, b: Any) -> FakeArray:
    _check_vectors(a, b)
    shape = broadcast(a.shape[:-1], b.shape[:-1])
    dtype = np.promote_types(a.dtype, b.dtype)
    result_dtype(np.subtract, (dtype, dtype))  # raises for bool, as NumPy does
    return FakeArray((*shape, 3), dtype, device=device_of(a))


register_bilinear(cross, lambda g, b: cross(b, g), lambda g, a: cross(g, a))


@cross.register_vmap
def _(info: Any, in_dims: Any, a: Any, b: Any) -> Any:
    return cross(*aligned_rows(in_dims, a, b)), 0


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
    lengths = [x.shape[-1] for x in (a, b)]
    allowed = (3,) if SINCE_2_5 else (3, 2)
    if any(n not in allowed for n in lengths):
        numpy_refuses(np.cross, a, b, do="give vectors of 3 elements")
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
    """Put vectors along the last axis."""
    if not x.ndim:
        numpy_refuses(np.cross, x, x, do="give arrays of vectors")
    place = normalize_axis_index(axis, x.ndim, msg_prefix=name)
    return x if place == x.ndim - 1 else np.moveaxis(x, place, -1)


def _with_third(x: Any) -> Any:
    """Return vectors of 3 elements; the third element of short ones is zero."""
    return x if x.shape[-1] == 3 else np.pad(x, [(0, 0)] * (x.ndim - 1) + [(0, 1)])


# ---- np.gradient: the operator for steps of length one ----


def _check_slopes(x: Any, axis: int) -> None:
    if dtype_of(x).kind not in "fc":
        raise ArgumentError(
            f"np::slopes: x is an array of {dtype_of(x)}, whose differences may wrap",
            do="cast it first: x.astype(float)",
        )
    _check_length(x.shape, normalize_axis_index(axis, len(x.shape)), 2)


def _slopes_kernel(x: Any, axis: int) -> Any:
    _check_slopes(x, axis)
    first = x[_at(x, axis, 1, 2)] - x[_at(x, axis, 0, 1)]
    inner = x[_at(x, axis, 2, None)] - x[_at(x, axis, None, -2)]
    last = x[_at(x, axis, -1, None)] - x[_at(x, axis, -2, -1)]
    return np.concatenate([first, inner / 2.0, last], axis)


def _written_slopes(x: Any, axis: int) -> Any:
    """Compute slopes in the order in memory of the array, as NumPy does."""
    _check_slopes(x, axis)
    found = np.empty_like(x)
    inner = x[_at(x, axis, 2, None)] - x[_at(x, axis, None, -2)]
    found[_at(x, axis, 1, -1)] = inner / 2.0
    first, second = _at(x, axis, 0, 1), _at(x, axis, 1, 2)
    last, before = _at(x, axis, -1, None), _at(x, axis, -2, -1)
    found[first] = x[second] - x[first]
    found[last] = x[last] - x[before]
    return found


def _at(x: Any, axis: int, *key: Any) -> tuple[Any, ...]:
    return part_of(axis, len(x.shape), *key)


def _fake_slopes(x: Any, axis: int) -> FakeArray:
    _check_slopes(x, axis)
    return fake_like(x)


def _slopes_pull(g: Any, shape: Any, axis: int) -> Any:
    """Add each gradient to the element after it, and take it from the one before."""
    first, last = g[_at(g, axis, 0, 1)], g[_at(g, axis, -1, None)]
    inner = g[_at(g, axis, 1, -1)] / 2.0
    given = np.concatenate([-first, first, inner], axis)
    return given - np.concatenate([inner, last, -last], axis)


_slopes: Operator[..., Any] = linear(
    "slopes",
    "(Array x, int axis) -> Array",
    _slopes_kernel,
    fake=_fake_slopes,
    transpose=_slopes_pull,
)
_slopes.register_kernel(["cpu", "cuda"], _written_slopes)
_slopes.register_vmap(along_axis(_slopes))


# ---- np.gradient: its arguments, and other steps ----


@register_numpy_function(np.gradient)
def _(f: Any, *varargs: Any, axis: Any = None, edge_order: int = 1) -> Any:
    f = as_array(f)
    axes = counted_axes(listed_axes(axis), f.ndim)
    edge_order = _known_order(f, edge_order)
    steps = _spacings(f, varargs, axes)
    f = _wide(f)
    found = [
        _slopes_by(f, i, step, edge_order) for i, step in zip(axes, steps, strict=True)
    ]
    return found[0] if len(found) == 1 else tuple(found)


def _known_order(f: Any, edge_order: int) -> int:
    """Return 1 or 2: NumPy takes smaller numbers than 1 for 2."""
    if edge_order > 2:
        numpy_refuses(
            np.gradient, f, edge_order=edge_order, do="give edge_order=1 or 2"
        )
    return 1 if edge_order == 1 else 2


def _wide(f: Any) -> Any:
    """Return integers as floats and dates as times; NumPy subtracts no bools."""
    own = dtype_of(f)
    if own.kind == "M":
        return f - np.zeros((), own)
    return f.astype(np.float64) if own.kind in "iu" else f


def _spacings(f: Any, given: Sequence[Any], axes: Sequence[int]) -> list[Any]:
    """Return for each axis a distance, or the places of the elements along it."""
    if not given:
        return [1.0] * len(axes)
    if len(given) == 1 and not np.ndim(given[0]):
        return [given[0]] * len(axes)
    if len(given) != len(axes):
        numpy_refuses(np.gradient, f, *given, axis=tuple(axes))
    return [*given]


def _slopes_by(f: Any, axis: int, step: Any, edge_order: int) -> Any:
    """Return the slopes along one axis."""
    is_number = not hasattr(step, "dtype") and not np.ndim(step)
    if (
        type(step) is float
        and step == 1.0
        and edge_order == 1
        and dtype_of(f).kind in "fc"
    ):
        _check_length(f.shape, axis, 2)
        check(f.shape[axis] > 1)
        return _slopes.run(f, axis)
    if dtype_of(f).kind in "mM":
        return _slope(f, axis, _spacing(as_array(step), f.shape[axis]), edge_order)
    points, number = (None, step) if is_number else (as_array(step), 1.0)
    if points is not None:
        _check_spacing(points, f.shape[axis])
    # Transforms that see values run the body anyway: that saves 12 us of a gradient's 58.
    slopes = _gradient_body if getattr(f, "is_concrete", False) else _gradient
    return slopes(f, points, number, axis, edge_order)


def _gradient_body(f: Any, points: Any, step: Any, axis: int, edge_order: int) -> Any:
    axis, order = normalize_axis_index(axis, f.ndim), _known_order(f, edge_order)
    given = step if points is None else _spacing(points, f.shape[axis])
    return _slope(_wide(f), axis, given, order)


def _gradient_kernel(f: Any, points: Any, step: Any, axis: int, edge_order: int) -> Any:
    order: Any = _known_order(f, edge_order)  # NumPy's types take 1 and 2 alone
    _check_length(f.shape, normalize_axis_index(axis, f.ndim), order + 1)
    given = step
    if points is not None:
        _check_spacing(points, f.shape[axis])
        given = points
    return np.gradient(f, given, axis=axis, edge_order=order)


_gradient = whole_operator(
    "gradient",
    "(Array f, Array? points, Scalar step, int axis, int edge_order) -> Array",
    _gradient_body,
    _gradient_kernel,
)


def _spacing(x: Any, length: int) -> Any:
    """Return the distances of places: one number, or one for each pair."""
    _check_spacing(x, length)
    if x.ndim == 0:
        return x
    steps = np.diff(x.astype(np.float64) if dtype_of(x).kind in "ium" else x)
    is_even = type(steps) is np.ndarray and steps.size and np.all(steps == steps[0])
    return steps[0] if is_even else steps


def _check_spacing(x: Any, length: int) -> None:
    if x.ndim and (x.ndim != 1 or x.shape[0] != length):
        numpy_refuses(
            np.gradient,
            np.zeros(typical([length])),
            x,
            do="give a number, or the places of the elements along the axis",
        )
    if x.ndim and dtype_of(x).kind == "b":
        raise ArgumentError(
            "np.gradient: the places are bools, which NumPy takes at equal distances only",
            do="cast them first: x.astype(float)",
        )


def _slope(f: Any, axis: int, step: Any, edge_order: int) -> Any:
    """Return central differences inside, and one-sided differences at the two ends."""
    _check_length(f.shape, axis, edge_order + 1)
    check(f.shape[axis] > edge_order)
    if edge_order == 1 and not shape_of(step) and dtype_of(f).kind in "fc":
        found = _slopes.run(f, axis)
        is_unit = type(step) is float and step == 1.0
        return found if is_unit else cast(found / step, f.dtype)
    parts = [
        _edge(f, axis, step, edge_order, at_end=False),
        _inside(f, axis, step),
        _edge(f, axis, step, edge_order, at_end=True),
    ]
    own = np.float64 if dtype_of(f).kind == "b" else f.dtype
    return in_order_of(cast(np.concatenate(parts, axis), own), f)


def _check_length(shape: Sequence[Any], axis: int, least: int) -> None:
    if is_below(shape[axis], least):
        numpy_refuses(
            np.gradient,
            np.zeros(typical([shape[axis]])),
            edge_order=least - 1,
            do="give a longer array, or axis=",
        )


def _inside(f: Any, axis: int, step: Any) -> Any:
    ahead, here, behind = (
        f[part_of(axis, f.ndim, *key)] for key in ((2, None), (1, -1), (None, -2))
    )
    if not shape_of(step):
        return (ahead - behind) / (2.0 * step)
    before, after = step[:-1], step[1:]
    weights = (
        -after / (before * (before + after)),
        (after - before) / (before * after),
        before / (after * (before + after)),
    )
    shape = [-1 if i == axis else 1 for i in range(f.ndim)]
    a, b, c = (np.reshape(w, shape) for w in weights)
    return a * behind + b * here + c * ahead


def _edge(f: Any, axis: int, step: Any, order: int, *, at_end: bool) -> Any:
    """Return the slope at one end, by the two or three nearest elements."""
    # Indices of elements and steps, counted from this end; the other way the sign turns.
    places = [-1, -2, -3] if at_end else [0, 1, 2]
    sign = -1.0 if at_end else 1.0
    near = [f[part_of(axis, f.ndim, i, i + 1 or None)] for i in places[: 1 + order]]
    steps = [step[i] if shape_of(step) else step for i in places[:order]]
    if order == 1:
        return sign * ((near[1] - near[0]) / steps[0])
    first, second = steps
    if not shape_of(step):
        a, b, c = -1.5 / step, 2.0 / step, -0.5 / step
    else:
        a = -(2.0 * first + second) / (first * (first + second))
        b = (first + second) / (first * second)
        c = -first / (second * (first + second))
    if at_end:  # NumPy adds from the third-last element on
        return (-c) * near[2] + (-b) * near[1] + (-a) * near[0]
    return a * near[0] + b * near[1] + c * near[2]


# ---- np.interp: the operator ----

# Real numbers in double precision; outside of the points, the values at the ends.
interp: Operator[..., Any] = numpy_operator(
    "interp",
    "(Array x, Array xp, Array fp) -> Array",
    lambda x, xp, fp: np.interp(x, xp, fp),
    device_types=("cpu", "cuda"),
)


@interp.register_fake
def _(x: Any, xp: Any, fp: Any) -> FakeArray:
    return FakeArray(x.shape, _numbers(fp), device=device_of(x))


def _numbers(fp: Any) -> Any:
    """Return the dtype of the result."""
    return np.dtype(np.complex128 if is_complex(fp) else np.float64)


interp.waive(
    "test_gradients", reason="the points have to increase, and equal ones make a jump"
)


@interp.register_sample_inputs
def _() -> list[tuple[Any, ...]]:
    xp, fp = np.array([-1.2, 0.3, 0.9, 2.1]), np.array([0.7, -1.4, 2.6, 1.1])
    return [
        (np.array(0.5), xp[:2], fp[:2]),
        (np.array([-0.3, 0.6, 1.4]), xp, fp),
        (np.array([[-2.0, 0.1], [1.8, 3.0]]), xp, fp),
    ]


def _taken(a: Any, places: Any) -> Any:
    """Return elements by an array of places, which alone may be traced or fake."""
    # NumPy does not look at the places for a function of its own.
    is_open = isinstance(places, Tracer | FakeArray)
    return getitem(a, places) if is_open else np.take(a, places)


def _interval(x: Any, xp: Any) -> tuple[Any, Any, Any]:
    """Return the interval of each x: its first point, its width, and the part before x.

    The last point belongs to the interval to its left. Outside, x is at an end.
    """
    first = np.clip(
        np.searchsorted(xp, x, side="right") - 1, 0, larger(xp.shape[0] - 2, 0)
    )
    start = _taken(xp, first)
    width = _taken(xp, np.minimum(first + 1, xp.shape[0] - 1)) - start
    is_empty = np.equal(width, 0)
    part = np.where(
        is_empty, np.greater(x, start), (x - start) / np.where(is_empty, 1.0, width)
    )
    return first, width, np.clip(part, 0.0, 1.0)


def _line_slope(x: Any, xp: Any, fp: Any) -> Any:
    """Return the slope of the line at each x; 0 outside, and between equal points."""
    first, width, _ = _interval(x, xp)
    rise = _taken(fp, np.minimum(first + 1, fp.shape[0] - 1)) - _taken(fp, first)
    is_inside = np.greater_equal(x, xp[0]) & np.less_equal(x, xp[-1])
    has_line = is_inside & np.not_equal(width, 0)
    return np.where(has_line, rise / np.where(has_line, width, 1.0), 0.0)


def _shared(g: Any, shape: Sequence[int], x: Any, xp: Any) -> Any:
    """Share each element of `g` between the two points beside its x."""
    first, _, part = _interval(x, xp)
    after = np.minimum(first + 1, shape[0] - 1)
    shape = list(shape)
    return scatter_add(g * (1.0 - part), shape, [first]) + scatter_add(
        g * part, shape, [after]
    )


interp.register_autograd(
    partials(
        {
            "x": lambda g, x, xp, fp: g * _line_slope(x, xp, fp),
            "xp": lambda g, x, xp, fp: _shared(
                -g * _line_slope(x, xp, fp), xp.shape, x, xp
            ),
            "fp": (_shared, ["fp_shape", "x", "xp"]),
        }
    )
)


@interp.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    (x, xp, fp), (tx, txp, tfp) = primals, tangents
    y = interp(x, xp, fp)
    parts = [] if tfp is None else [interp(x, xp, tfp)]
    if tx is not None:
        parts.append(_line_slope(x, xp, fp) * tx)
    if txp is not None:
        parts.append(-_line_slope(x, xp, fp) * interp(x, xp, txp))
    return y, sum_of(parts, y)


@interp.register_vmap
def _(info: Any, in_dims: Any, x: Any, xp: Any, fp: Any) -> Any:
    if in_dims[1] is None and in_dims[2] is None:
        return interp(x, xp, fp), in_dims[0]
    fp = cast(fp, _numbers(fp))
    return vmap(_between, in_dims=tuple(in_dims))(x, xp, fp), 0


# ---- np.interp: its arguments ----


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
    numbers = _numbers(fp)
    x, xp = (_real(name, v) for name, v in (("x", x), ("xp", xp)))
    fp = cast(fp, numbers)
    _check_points(xp, fp)
    if period is not None:
        x, xp, fp = _around(x, xp, fp, _checked_period(period))
        return interp(x, xp, fp)
    y = interp(x, xp, fp)
    if left is not None:
        y = np.where(np.less(x, xp[0]), _like(left, numbers), y)
    if right is not None:
        y = np.where(np.greater(x, xp[-1]), _like(right, numbers), y)
    is_of_where = left is not None or right is not None
    return y[()] if is_of_where and not shape_of(x) else y  # a scalar, as NumPy's


def _real(name: str, x: Any) -> Any:
    x = as_array(x)
    if is_complex(x):
        numpy_refuses(np.interp, **{"x": [0.0], "xp": [0.0], "fp": [0.0], name: x})
    return cast(x, np.dtype(np.float64))


def _like(value: Any, dtype: Any) -> Any:
    """Return a value in the dtype of the result."""
    if isinstance(value, int | float):
        return value
    if isinstance(value, np.ndarray) or not hasattr(value, "shape"):
        plain: Any = value
        np.interp([1.0], [0.0], np.zeros(1, dtype), right=plain)  # raises as NumPy does
    return as_array(value).astype(dtype)


def _check_points(xp: Any, fp: Any) -> None:
    is_empty = xp.ndim == 1 and is_known(xp.shape[0], 0)
    if is_empty or xp.ndim != 1 or fp.ndim != 1 or xp.shape[0] != fp.shape[0]:
        numpy_refuses(
            np.interp,
            0.0,
            xp,
            fp,
            do="give lines of points, and a value for each point",
        )


def _checked_period(period: Any) -> Any:
    known = value_of(period)
    if known is not None and known == 0:
        np.interp(0.0, [0.0], [0.0], period=0)  # NumPy's error
    return np.absolute(period)


def _around(x: Any, xp: Any, fp: Any, period: Any) -> tuple[Any, Any, Any]:
    """Move points into the first period, and add one more on either side."""
    x, xp = np.remainder(x, period), np.remainder(xp, period)
    order = np.argsort(xp)
    xp, fp = np.take_along_axis(xp, order, 0), np.take_along_axis(fp, order, 0)
    wide = np.concatenate([xp[-1:] - period, xp, xp[:1] + period])
    return x, wide, np.concatenate([fp[-1:], fp, fp[:1]])


# ---- np.interp: rows of points ----


def _between(x: Any, xp: Any, fp: Any) -> Any:
    """Interpolate by operators that serve rows of points.

    The line begins at the last point that is not above x, whose value is then exact.
    """
    last = xp.shape[0] - 1
    near = np.clip(np.searchsorted(xp, x, side="right") - 1, 0, last)
    start, known = _taken(xp, near), _taken(fp, near)
    if is_known(last, 0):
        return known + 0.0 * (x - start)
    first = np.minimum(near, last - 1)
    width = _taken(xp, first + 1) - _taken(xp, first)
    rise = _taken(fp, first + 1) - _taken(fp, first)
    is_empty = np.equal(width, 0)
    slope = np.where(is_empty, 0.0, rise / np.where(is_empty, 1.0, width))
    y = slope * (x - start) + known
    y = _finite(y, x, (slope, near, first, last), xp, fp)
    y = np.where(np.less(x, xp[0]), fp[0], y)
    return np.where(np.greater(x, xp[-1]), fp[-1], y)


def _finite(y: Any, x: Any, line: Any, xp: Any, fp: Any) -> Any:
    """Replace a nan that infinite values make by the value that NumPy returns."""
    slope, near, first, last = line
    known, end = _taken(fp, near), _taken(fp, first + 1)
    other = slope * (x - _taken(xp, first + 1)) + end
    other = np.where(np.isnan(other) & np.equal(known, end), known, other)
    is_point = np.equal(x, _taken(xp, near)) | np.equal(near, last)
    other = np.where(is_point, known, other)
    return np.where(np.isnan(y) & np.logical_not(np.isnan(x)), other, y)
