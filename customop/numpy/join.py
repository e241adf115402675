"""Operators that join, pad and repeat arrays, and functions that split them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from operator import index as as_int
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from customop import (
    ArgumentError,
    FakeArray,
    Operator,
    ShapeError,
    fake_like,
    register_numpy_function,
)
from customop.numpy.rules import fit, shape_of
from customop.numpy.shape import (
    as_array,
    as_tuple,
    batch_first,
    counted,
    device_of,
    expanded,
    numpy_operator,
    only,
    without_ones,
)

__all__: list[str] = []


# ---- joining ----


def _merged_order(pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[int]:
    """Axes from slowest to fastest that suit several arrays, given shape and strides.

    Insertion by the strides of the arrays that tell two axes apart; where arrays
    disagree, C order wins. Source: numpy.concatenate, NumPy 2.4.
    """
    order = list(range(len(pairs[0][0])))
    for i in range(1, len(order)):
        axis, to = order[i], i
        for j in range(i - 1, -1, -1):
            told = [
                abs(strides[axis]) > abs(strides[order[j]])
                for shape, strides in pairs
                if shape[axis] != 1 and shape[order[j]] != 1
            ]
            if told and not all(told):
                break
            to = j if told else to
        order.insert(to, order.pop(i))
    return order


def _joined(
    arrays: Sequence[Any], shape: Sequence[int], pairs: Sequence[Any]
) -> FakeArray:
    """The fake array of this shape that suits all arrays in dtype and order."""
    dtype = np.result_type(*[a.dtype for a in arrays])
    device = device_of(arrays[0])
    return FakeArray(shape, dtype, device=device, order=_merged_order(pairs))


def _misfit(function: str, shapes: Sequence[Any]) -> ShapeError:
    return ShapeError(
        f"{function}: arrays of the shapes {', '.join(map(str, shapes))} do not fit",
        do="join arrays that agree in all axes, but for the one they are joined along",
    )


def _register_join(op: Operator[..., Any], parts: Callable[..., Any]) -> None:
    """Register what the joining operators share.

    `parts` is ``parts(g, shapes, axis)``: the piece of a gradient for each array.
    """

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.arrays = [fake_like(a) for a in inputs[0]]
        (ctx.axis,) = counted([inputs[1]], output.ndim)

    def backward(ctx: Any, g: Any) -> Any:
        pieces = parts(g, [a.shape for a in ctx.arrays], ctx.axis)
        return [fit(p, a) for p, a in zip(pieces, ctx.arrays, strict=True)], None

    def jvp(primals: Any, tangents: Any) -> Any:
        arrays, axis = primals
        pairs = zip(arrays, tangents[0], strict=True)
        steps = [np.zeros_like(a) if t is None else t for a, t in pairs]
        out = op(arrays, axis)
        tangent = op(steps, axis)
        return out, tangent

    def batch(info: Any, in_dims: Any, arrays: Any, axis: int) -> Any:
        pairs = zip(arrays, in_dims[0], strict=True)
        first = [batch_first(a, d, info.batch_size) for a, d in pairs]
        # An axis counted from the end is the same one in a batch.
        return op(first, axis if axis < 0 else axis + 1), 0

    op.register_autograd(backward, setup_context=setup)
    op.register_jvp(jvp)
    op.register_vmap(batch)


_concatenate = numpy_operator(
    "concatenate",
    "(Array[] arrays, int axis) -> Array",
    lambda arrays, axis: np.concatenate(arrays, axis),
)


@_concatenate.register_fake
def _(arrays: Any, axis: int) -> FakeArray:
    shapes = [tuple(a.shape) for a in arrays]
    axis = normalize_axis_index(axis, len(shapes[0]))
    rests = {s[:axis] + s[axis + 1 :] for s in shapes}
    if len(rests) > 1 or len({len(s) for s in shapes}) > 1:
        raise _misfit("np.concatenate", shapes)
    shape = list(shapes[0])
    shape[axis] = sum(s[axis] for s in shapes)
    return _joined(arrays, shape, [(a.shape, a.strides) for a in arrays])


def _pieces(g: Any, shapes: Sequence[Any], axis: int) -> list[Any]:
    lead, start, found = (slice(None),) * axis, 0, []
    for shape in shapes:
        end = start + shape[axis]
        found.append(g[(*lead, slice(start, end))])
        start = end
    return found


_register_join(_concatenate, _pieces)


def _cast_all(
    function: str, arrays: Iterable[Any], dtype: Any, casting: str
) -> list[Any]:
    only(function, casting=(casting, "same_kind"))
    found = [as_array(a) for a in arrays]
    return found if dtype is None else [a.astype(dtype) for a in found]


@register_numpy_function(np.concatenate)
def concatenate(
    arrays: Any,
    /,
    axis: int | None = 0,
    *,
    dtype: Any = None,
    casting: str = "same_kind",
    out: None = None,
) -> Any:
    """As `numpy.concatenate`."""
    given = _cast_all("np.concatenate", arrays, dtype, casting)
    if axis is None:
        return _concatenate([np.ravel(a) for a in given], 0)
    if not all(a.ndim for a in given):
        raise ShapeError(
            "zero-dimensional arrays cannot be concatenated",
            do="use np.stack, or np.atleast_1d on each",
        )
    return _concatenate(given, normalize_axis_index(axis, given[0].ndim))


@register_numpy_function(np.append)
def _(arr: Any, values: Any, axis: int | None = None) -> Any:
    return concatenate((as_array(arr), as_array(values)), axis)


_stack = numpy_operator(
    "stack",
    "(Array[] arrays, int axis) -> Array",
    lambda arrays, axis: np.stack(arrays, axis),
)


@_stack.register_fake
def _(arrays: Any, axis: int) -> FakeArray:
    shapes = [tuple(a.shape) for a in arrays]
    if len(set(shapes)) > 1:
        raise _misfit("np.stack", shapes)
    axis = normalize_axis_index(axis, len(shapes[0]) + 1)
    shape = (*shapes[0][:axis], len(arrays), *shapes[0][axis:])
    return _joined(arrays, shape, [expanded(a, (axis,)) for a in arrays])


def _slabs(g: Any, shapes: Sequence[Any], axis: int) -> list[Any]:
    lead = (slice(None),) * axis
    return [g[(*lead, i)] for i in range(len(shapes))]


_register_join(_stack, _slabs)


@register_numpy_function(np.stack)
def _(
    arrays: Any,
    axis: int = 0,
    out: None = None,
    *,
    dtype: Any = None,
    casting: str = "same_kind",
) -> Any:
    given = _cast_all("np.stack", arrays, dtype, casting)
    if not given:
        raise ShapeError("need at least one array to stack", do="pass arrays")
    return _stack(given, normalize_axis_index(axis, given[0].ndim + 1))


def _joiner(name: str, prepare: Any, axis: Callable[[int], int]) -> Callable[..., Any]:
    """``np.vstack`` and the like: `axis` tells the axis for a rank."""

    def join(tup: Any, *, dtype: Any = None, casting: str = "same_kind") -> Any:
        arrays = [prepare(a) for a in _cast_all(f"np.{name}", tup, dtype, casting)]
        return concatenate(arrays, axis(arrays[0].ndim))

    return join


def _as_columns(x: Any) -> Any:
    return np.atleast_2d(x).T if x.ndim < 2 else x


register_numpy_function(np.vstack, _joiner("vstack", np.atleast_2d, lambda rank: 0))
register_numpy_function(
    np.hstack, _joiner("hstack", np.atleast_1d, lambda rank: 0 if rank == 1 else 1)
)
register_numpy_function(np.dstack, _joiner("dstack", np.atleast_3d, lambda rank: 2))
register_numpy_function(
    np.column_stack, _joiner("column_stack", _as_columns, lambda rank: 1)
)


# ---- splitting ----


def _cuts(length: int, where: Any, axis: int, *, is_even: bool) -> list[int]:
    """Places at which to cut an axis."""
    if isinstance(where, list | tuple) or shape_of(where):
        return [as_int(at) for at in where]
    count = as_int(where)
    if count <= 0 or (is_even and length % count):
        raise ShapeError(
            "array split does not result in an equal division"
            if count > 0
            else "number sections must be larger than 0",
            f"axis {axis} of length {length} in {count} parts",
            do="use np.array_split, or give the places to cut"
            if count > 0
            else "give a positive number of parts, or the places to cut",
        )
    size, longer = divmod(length, count)
    return [i * size + min(i, longer) for i in range(1, count)]


def _split(x: Any, where: Any, axis: int, *, is_even: bool) -> list[Any]:
    axis = normalize_axis_index(axis, x.ndim)
    cuts = _cuts(x.shape[axis], where, axis, is_even=is_even)
    lead = (slice(None),) * axis
    bounds = zip([0, *cuts], [*cuts, x.shape[axis]], strict=True)
    return [x[(*lead, slice(start, end))] for start, end in bounds]


@register_numpy_function(np.split)
def _(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    return _split(ary, indices_or_sections, axis, is_even=True)


@register_numpy_function(np.array_split)
def _(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    return _split(ary, indices_or_sections, axis, is_even=False)


def _splitter(name: str, rank: int, axis: Callable[[int], int]) -> Callable[..., Any]:
    def split(ary: Any, indices_or_sections: Any) -> Any:
        if ary.ndim < rank:
            raise ShapeError(
                f"{name} only works on arrays of {rank} or more dimensions",
                f"got an array of shape {tuple(ary.shape)}",
                do="use np.split" if ary.ndim else "use np.atleast_1d(x) first",
            )
        return _split(ary, indices_or_sections, axis(ary.ndim), is_even=True)

    return split


register_numpy_function(
    np.hsplit, _splitter("hsplit", 1, lambda rank: 0 if rank == 1 else 1)
)
register_numpy_function(np.vsplit, _splitter("vsplit", 2, lambda rank: 0))
register_numpy_function(np.dsplit, _splitter("dsplit", 3, lambda rank: 2))


@register_numpy_function(np.unstack)
def _(x: Any, /, *, axis: int = 0) -> Any:
    lead = (slice(None),) * normalize_axis_index(axis, x.ndim)
    return tuple([x[(*lead, i)] for i in range(x.shape[len(lead)])])


# ---- padding and repeating ----


def _padded(x: Any, pad_width: Sequence[Sequence[int]], value: Any) -> Any:
    """The array with a value around it; NumPy takes no list of no pairs."""
    return np.pad(x, pad_width, constant_values=value) if pad_width else np.copy(x)


_pad = numpy_operator(
    "pad",
    "(Array x, int[][] pad_width, Scalar value=0) -> Array",
    _padded,
)


def _is_fortran(x: Any) -> bool:
    """Whether an array is dense in F order and not in C order."""
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

# Modes that repeat elements of the array: an index array does each.
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
    """Elements to add before and after each axis."""
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
    """Pad by one value at once, or by several side by side as NumPy does."""
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
    counts = as_tuple(reps)
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
    axis = normalize_axis_index(axis, a.ndim)
    counts = np.asarray(repeats)
    if counts.size != 1:
        return np.take(a, np.repeat(np.arange(a.shape[axis]), counts), axis)
    count = as_int(counts.item())
    shape = tuple(a.shape)
    wide = np.broadcast_to(
        np.expand_dims(a, axis + 1), (*shape[: axis + 1], count, *shape[axis + 1 :])
    )
    return np.reshape(wide, (*shape[:axis], shape[axis] * count, *shape[axis + 1 :]))
