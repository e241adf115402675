"""Padding and repeating arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import index as as_int
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from customop import ArgumentError, FakeArray, ShapeError, register_numpy_function
from customop.numpy.arguments import as_ints, lined, only
from customop.numpy.fakes import device_of
from customop.numpy.rules import batch_first, numpy_operator
from customop.numpy.shape import without_ones

__all__: list[str] = []


def _padded(x: Any, pad_width: Sequence[Sequence[int]], value: Any) -> Any:
    """The array with a value around it; NumPy refuses an empty list of pairs."""
    return np.pad(x, pad_width, constant_values=value) if pad_width else np.copy(x)


_pad = numpy_operator(
    "pad",
    "(Array x, int[][] pad_width, Scalar value=0) -> Array",
    _padded,
)


def _is_fortran(x: Any) -> bool:
    """Whether an array is contiguous in F order and not in C order."""
    pairs = without_ones(x.shape, x.strides)
    if len(pairs) < 2 or math.prod(x.shape) == 0:
        return False
    step = x.dtype.itemsize
    for length, stride in pairs:
        if stride != step:
            return False
        step *= length
    return True


@_pad.register_fake
def _(x: Any, pad_width: Any, value: Any) -> FakeArray:
    shape = [b + n + a for n, (b, a) in zip(x.shape, pad_width, strict=True)]
    device = device_of(x)
    if not _is_fortran(x):
        return FakeArray(shape, x.dtype, device=device)
    last_to_first = range(len(shape))[::-1]
    return FakeArray(shape, x.dtype, device=device, order=last_to_first)


@_pad.register_vmap
def _(info: Any, in_dims: Any, x: Any, pad_width: Any, value: Any) -> Any:
    return _pad(batch_first(x, in_dims[0]), [(0, 0), *pad_width], value), 0


@_pad.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    t, pad_width = tangents[0], primals[1]
    return _pad(*primals), None if t is None else _pad(t, pad_width)


def _pad_setup(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.key = tuple(
        [slice(b, b + n) for n, (b, _) in zip(inputs[0].shape, inputs[1], strict=True)]
    )


_pad.register_autograd(
    lambda ctx, g: (g[ctx.key], None, None), setup_context=_pad_setup
)

# Modes that repeat elements of the array, each done with an index array.
_PAD_BY_INDEX = ("edge", "reflect", "symmetric", "wrap")


@register_numpy_function(np.pad)
def _(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    widths = _pad_widths(array, pad_width)
    if mode == "constant":
        values = kwargs.pop("constant_values", 0)
        only("np.pad", **{name: (value,) for name, value in kwargs.items()})
        return _pad_constant(array, widths, values)
    if mode not in _PAD_BY_INDEX:
        raise ArgumentError(
            f"np.pad: mode={mode!r} is not supported for traced or fake arrays",
            do=f"use 'constant' or one of {', '.join(map(repr, _PAD_BY_INDEX))}",
        )
    only("np.pad", reflect_type=(kwargs.pop("reflect_type", "even"), "even"))
    only("np.pad", **{name: (value,) for name, value in kwargs.items()})
    for axis, width in enumerate(widths):
        if width != (0, 0):
            places = np.pad(np.arange(array.shape[axis]), width, mode=mode)
            array = np.take(array, places, axis)
    return array


def _pad_widths(x: Any, pad_width: Any) -> list[tuple[int, int]]:
    """The numbers of elements to add before and after each axis."""
    if isinstance(pad_width, dict):
        given: list[Any] = [(0, 0)] * x.ndim
        for axis, width in pad_width.items():
            given[axis] = width if isinstance(width, tuple) else (width, width)
        pad_width = given
    widths = np.asarray(pad_width)
    if widths.dtype.kind not in "iu" and widths.size:
        raise ArgumentError(
            f"np.pad: `pad_width` must be of integral type, got {pad_width!r}",
            do="give ints: ((before, after), ...)",
        )
    if np.any(widths < 0):
        raise ShapeError(
            "index can't contain negative values",
            f"np.pad: pad_width={pad_width!r}",
            do="slice the array to make it shorter",
        )
    return [(int(b), int(a)) for b, a in np.broadcast_to(widths, (x.ndim, 2))]


def _pad_constant(x: Any, widths: Sequence[tuple[int, int]], values: Any) -> Any:
    """Pad with one value in one go, or with several one after the other."""
    constants = np.broadcast_to(np.asarray(values), (x.ndim, 2))
    if x.ndim == 0 or np.all(constants == constants[0, 0]):
        value = constants[0, 0].item() if x.ndim else 0
        return _pad(x, widths, value)
    for axis, (b, a) in enumerate(widths):
        for side, width in enumerate(((b, 0), (0, a))):
            around = [(0, 0)] * x.ndim
            around[axis] = width
            x = _pad(x, around, constants[axis, side].item())
    return x


@register_numpy_function(np.tile)
def _(A: Any, reps: Any) -> Any:  # noqa: N803  # NumPy's name
    counts = as_ints(reps)
    rank = max(A.ndim, len(counts))
    counts = (1,) * (rank - len(counts)) + tuple(counts)
    shape = (1,) * (rank - A.ndim) + tuple(A.shape)
    spread = [n for length in shape for n in (1, length)]
    wide = [n for pair in zip(counts, shape, strict=True) for n in pair]
    tiled = np.broadcast_to(np.reshape(A, spread), wide)
    return np.reshape(tiled, [c * n for c, n in zip(counts, shape, strict=True)])


@register_numpy_function(np.repeat)
def _(a: Any, repeats: Any, axis: int | None = None) -> Any:
    if axis is None:
        return np.repeat(np.ravel(a), repeats, 0)
    a = lined(a, axis)
    axis = normalize_axis_index(axis, a.ndim)
    counts = np.asarray(repeats).astype(np.intp)  # NumPy takes floats, too
    if counts.size != 1:
        return np.take(a, np.repeat(np.arange(a.shape[axis]), counts), axis)
    count = as_int(counts.item())
    shape = tuple(a.shape)
    wide = np.broadcast_to(
        np.expand_dims(a, axis + 1), (*shape[: axis + 1], count, *shape[axis + 1 :])
    )
    return np.reshape(wide, (*shape[:axis], shape[axis] * count, *shape[axis + 1 :]))
