"""Padding: np.pad with its modes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from customop import (
    ArgumentError,
    FakeArray,
    ShapeError,
    Tracer,
    check,
    partials,
    register_numpy_function,
)
from customop.numpy.arguments import as_array, dtype_of, only
from customop.numpy.fakes import packed_as
from customop.numpy.index import numbers
from customop.numpy.layouts import is_fortran, packed_like
from customop.numpy.rules import batch_first, numpy_operator
from customop.numpy.sizes import (
    array_of_sizes,
    has_none,
    is_below,
    larger,
    size_of,
    smaller,
    wide_to,
)

__all__: list[str] = []


def _padded(x: Any, pad_width: Sequence[Sequence[int]], value: Any) -> Any:
    """The array with a value around it; NumPy refuses an empty list of pairs."""
    return np.pad(x, pad_width, constant_values=value) if pad_width else np.copy(x)


_pad = numpy_operator(
    "pad",
    "(Array x, int[][] pad_width, Scalar value=0) -> Array",
    _padded,
)


def _quick_pad(x: Any, pad_width: Sequence[Sequence[int]], value: Any = 0) -> Any:
    """As `numpy.pad`, which takes eight times the time for a small array.

    The result is filled with the value, and the array is written into it.
    """
    widths = [n for pair in pad_width for n in pair]
    if not any(widths) or min(widths) < 0 or x.dtype.kind not in "biufc":
        return _padded(x, pad_width, value)
    shape, key = [], []
    for n, (before, after) in zip(x.shape, pad_width, strict=True):
        shape.append(before + n + after)
        key.append(slice(before, before + n))
    order: Any = "F" if x.flags.fnc else "C"
    if type(value) is int and value == 0:
        out = np.zeros(shape, x.dtype, order)
    else:
        out = np.empty(shape, x.dtype, order)
        # A scalar of NumPy is cast into an array where Python's number is refused.
        out[...] = np.array([value])[0]
    out[tuple(key)] = x
    return out


_pad.register_kernel("cpu", _quick_pad)


@_pad.register_fake
def _(x: Any, pad_width: Any, value: Any) -> FakeArray:
    if type(value) is int:
        np.pad(np.zeros(1, x.dtype), 1, constant_values=value)  # raises as NumPy does
    shape = [b + n + a for n, (b, a) in zip(x.shape, pad_width, strict=True)]
    return packed_as(x, shape, x.dtype)


@_pad.register_vmap
def _(info: Any, in_dims: Any, x: Any, pad_width: Any, value: Any) -> Any:
    return _pad(batch_first(x, in_dims[0]), [(0, 0), *pad_width], value), 0


@_pad.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    t, pad_width = tangents[0], primals[1]
    return _pad(*primals), None if t is None else _pad(t, pad_width)


def _unpadded(g: Any, shape: Sequence[Any], pad_width: Any) -> Any:
    """The part of a gradient that belongs to the array."""
    pairs = zip(shape, pad_width, strict=True)
    return g[tuple([slice(b, b + n) for n, (b, _) in pairs])]


_pad.register_autograd(partials({"x": (_unpadded, ("x_shape", "pad_width"))}))

# Modes that pad with a value of the elements near the edge.
_STATISTICS: dict[str, Any] = {
    "maximum": np.max,
    "minimum": np.min,
    "mean": np.mean,
    "median": np.median,
}
# Mode -> the keyword that it takes.
_KEYWORDS = {
    "constant": "constant_values",
    "linear_ramp": "end_values",
    **dict.fromkeys(_STATISTICS, "stat_length"),
    **dict.fromkeys(("reflect", "symmetric"), "reflect_type"),
    **dict.fromkeys(("edge", "empty", "wrap"), ""),
}
_WITH_VALUES = ("constant", "empty", "linear_ramp")


@register_numpy_function(np.pad)
def _(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    x = as_array(array)
    widths = _pad_widths(x, pad_width)
    _check_mode(mode, kwargs)
    given = kwargs.get(_KEYWORDS[mode], 0 if mode in _WITH_VALUES else None)
    if mode in ("constant", "empty"):
        return _pad_constant(x, widths, given)
    _check_axes(x.shape, widths)
    if has_none(x.shape):
        return _pad(x, widths, 0)
    if mode == "linear_ramp":
        if given is None:
            raise ArgumentError(
                "np.pad: end_values=None is not a number", do="leave end_values= away"
            )
        out = _pad_ramp(x, widths, given)
    elif mode in _STATISTICS:
        out = _pad_statistic(x, widths, mode, given)
    elif given == "odd":
        out = x
        for axis, width in enumerate(widths):
            out = _pad_odd(out, axis, width, includes_edge=mode == "symmetric")
    elif is_fortran(x):
        return _pad_by_index(x.T, widths[::-1], mode).T
    else:
        return _pad_by_index(x, widths, mode)
    return packed_like(out, x)


def _pad_by_index(x: Any, widths: Sequence[tuple[int, int]], mode: Any) -> Any:
    """Pad with elements of the array."""
    for axis, width in enumerate(widths):
        if width != (0, 0):
            x = np.take(x, _places(x, axis, width, mode), axis)
    return x


def _places(x: Any, axis: int, width: tuple[int, int], mode: Any) -> Any:
    """Which elements are in the padded array, for a mode that repeats elements."""
    length, (before, after) = x.shape[axis], width
    if all(type(n) is int for n in (length, before, after)):
        return np.pad(np.arange(length), width, mode=mode)
    # As NumPy 2.4 does it, also for widths beyond the length.
    at = numbers(-before, length + after, x)
    if mode == "edge":
        return np.clip(at, 0, length - 1)
    if mode == "wrap":
        return np.remainder(at, length)
    last = length - int(mode == "reflect")
    at = np.remainder(at, larger(2 * last, 1))
    return np.minimum(at, 2 * last - int(mode == "symmetric") - at)


def _check_mode(mode: Any, keywords: dict[str, Any]) -> None:
    if callable(mode):
        raise ArgumentError(
            "np.pad: mode is a function, which writes into slices of plain arrays",
            do="pad with mode='constant', and write into the result",
        )
    if mode not in _KEYWORDS:
        raise ValueError(f"mode '{mode}' is not supported")
    for name in keywords:
        if name != _KEYWORDS[mode]:
            raise ArgumentError(
                f"np.pad: mode={mode!r} does not take {name}=", do=f"leave {name}= away"
            )
    if mode in ("reflect", "symmetric"):
        only(
            "np.pad", reflect_type=(keywords.get("reflect_type", "even"), "even", "odd")
        )


def _check_axes(shape: Sequence[int], widths: Sequence[tuple[int, int]]) -> None:
    for axis, (length, width) in enumerate(zip(shape, widths, strict=True)):
        if width == (0, 0):
            continue
        if is_below(length, 1):
            raise ValueError(
                f"can't extend empty axis {axis} using modes other than 'constant' or"
                " 'empty'"
            )
        check(length > 0)


def _part(x: Any, axis: int, start: int, stop: int) -> Any:
    return x[(*(slice(None),) * axis, slice(start, stop))]


def _edge(x: Any, axis: int, at: int) -> Any:
    """One element of each line; its axis stays, with length one."""
    return x[(*(slice(None),) * axis, at, None)]


def _around(before: Any, x: Any, after: Any, axis: int) -> Any:
    """An array with blocks before and after it, in its own dtype."""
    blocks = [b.astype(x.dtype) if b.dtype != x.dtype else b for b in (before, after)]
    return np.concatenate([blocks[0], x, blocks[1]], axis)


def _pad_ramp(x: Any, widths: Sequence[tuple[int, int]], given: Any) -> Any:
    """Pad with values that go from `given` to the edge in equal steps."""
    ends = np.broadcast_to(as_array(given), (x.ndim, 2))
    for axis, width in enumerate(widths):
        if width == (0, 0):
            continue
        edges = _edge(x, axis, 0), _edge(x, axis, -1)
        ramps = [
            np.linspace(
                end,
                np.squeeze(edge, axis),
                count,
                False,
                False,
                dtype_of(x),
                axis,
            )
            for end, edge, count in zip(_numbers(ends[axis]), edges, width, strict=True)
        ]
        x = _around(ramps[0], x, np.flip(ramps[1], axis), axis)
    return x


def _numbers(values: Any) -> Any:
    """The two values of an axis: plain ones as Python's numbers."""
    return values if isinstance(values, Tracer | FakeArray) else values.tolist()


def _pad_statistic(
    x: Any, widths: Sequence[tuple[int, int]], mode: str, given: Any
) -> Any:
    """Pad with a statistic of so many elements near each edge; None for all."""
    counts = [(None, None)] * x.ndim if given is None else _pairs(given, x.ndim)
    for axis, (width, count) in enumerate(zip(widths, counts, strict=True)):
        if width == (0, 0):
            continue
        length = x.shape[axis]
        near = [length if c is None else smaller(c, length) for c in count]
        if has_none(near) and mode in ("maximum", "minimum"):
            raise ValueError("stat_length of 0 yields no value for padding")
        sides = _part(x, axis, 0, near[0]), _part(x, axis, length - near[1], length)
        x = _around(*_blocks(x, axis, width, sides, mode), axis)
    return x


def _blocks(
    x: Any, axis: int, width: tuple[int, int], sides: tuple[Any, Any], mode: str
) -> tuple[Any, Any, Any]:
    found = []
    for side, count in zip(sides, width, strict=True):
        value = _STATISTICS[mode](side, axis=axis, keepdims=True)
        value = np.round(value) if dtype_of(x).kind in "iu" else value
        shape = list(value.shape)
        shape[axis] = count
        found.append(wide_to(value, shape))
    return found[0], x, found[1]


def _pad_odd(x: Any, axis: int, width: tuple[int, int], *, includes_edge: bool) -> Any:
    """Pad with elements reflected at the point of the edge, until there are enough.

    One turn cannot add more than there are elements that make a whole period.
    """
    period = x.shape[axis]
    left, right = width
    if period == 1 and (left or right):
        return np.take(x, np.zeros(left + 1 + right, np.intp), axis)
    skip = 0 if includes_edge else 1
    while left or right:
        length = x.shape[axis]
        known = (length - skip) // (period - skip) * (period - skip)
        before, after = min(known, left), min(known, right)
        first = 2 * _edge(x, axis, 0) - np.flip(
            _part(x, axis, skip, skip + before), axis
        )
        last = 2 * _edge(x, axis, -1) - np.flip(
            _part(x, axis, length - skip - after, length - skip), axis
        )
        x = _around(first, x, last, axis)
        left, right = left - before, right - after
    return x


def _pairs(given: Any, rank: int) -> list[tuple[int, int]]:
    """Numbers of elements at both ends of each axis."""
    counts = np.round(np.asarray(given)).astype(np.intp)
    if np.any(counts < 0):
        raise ValueError("index can't contain negative values")
    return [(int(b), int(a)) for b, a in np.broadcast_to(counts, (rank, 2))]


def _pad_widths(x: Any, pad_width: Any) -> list[tuple[int, int]]:
    """The numbers of elements to add before and after each axis."""
    if type(pad_width) is int and pad_width >= 0:  # as usual
        return [(pad_width, pad_width)] * x.ndim
    if isinstance(pad_width, dict):
        given: list[Any] = [(0, 0)] * x.ndim
        for axis, width in pad_width.items():
            given[axis] = width if isinstance(width, tuple) else (width, width)
        pad_width = given
    widths = array_of_sizes(pad_width)
    if widths.dtype.kind not in "iuO" and widths.size:
        raise ArgumentError(
            f"np.pad: `pad_width` must be of integral type, got {pad_width!r}",
            do="give ints: ((before, after), ...)",
        )
    if any(is_below(width, 0) for width in widths.ravel().tolist()):
        raise ShapeError(
            "index can't contain negative values",
            f"np.pad: pad_width={pad_width!r}",
            do="slice the array to make it shorter",
        )
    pairs = np.broadcast_to(widths, (x.ndim, 2))
    return [(size_of(b), size_of(a)) for b, a in pairs]


def _pad_constant(x: Any, widths: Sequence[tuple[int, int]], values: Any) -> Any:
    """Pad with one value in one go, or with several one after the other."""
    if type(values) in _NUMBERS and x.ndim:  # as usual
        return _pad.run(x, widths, values)
    given = as_array(values)
    if isinstance(given, Tracer | FakeArray):
        return _pad_traced(x, widths, given)
    if given.dtype.hasobject:  # None is nan where NumPy says so
        given = given.astype(dtype_of(x))
    constants = np.broadcast_to(given, (x.ndim, 2))
    if not x.ndim:
        return np.copy(x)
    if np.all(constants == constants[0, 0]):
        return _pad(x, widths, constants[0, 0].item())
    for axis, (b, a) in enumerate(widths):
        for side, width in enumerate(((b, 0), (0, a))):
            around = [(0, 0)] * x.ndim
            around[axis] = width
            x = _pad(x, around, constants[axis, side].item())
    return x


_NUMBERS = {int, float}


def _pad_traced(x: Any, widths: Sequence[tuple[int, int]], values: Any) -> Any:
    """Pad with values that have a derivative, or differ between rows."""
    constants = np.broadcast_to(values, (x.ndim, 2))
    for axis, width in enumerate(widths):
        shapes = [[*x.shape[:axis], n, *x.shape[axis + 1 :]] for n in width]
        before, after = (
            wide_to(constants[axis, side], shapes[side]) for side in (0, 1)
        )
        x = _around(before, x, after, axis)
    return x
