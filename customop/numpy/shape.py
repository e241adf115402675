"""Operators for the shape of arrays: views of them, and arrays joined or repeated.

Everything here is linear in its arrays. What is not an operator of its own is made
of those that are, and of indexing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from operator import index as as_int
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from customop import (
    ArgumentError,
    FakeArray,
    Operator,
    ShapeError,
    Tag,
    custom_op,
    fake_like,
    register_numpy_function,
)
from customop.numpy.rules import fit, keep_order, shape_of

__all__ = ["as_array", "as_tuple", "batch_first", "only", "register_linear"]


# ---- shared by the tables ----


def register_linear(op: Operator[..., Any], pull: Callable[..., Any]) -> None:
    """Register autograd and jvp of an operator that is linear in its first array.

    Parameters
    ----------
    op : Operator
        One array out; the other parameters are constants.
    pull : callable
        ``pull(g, shape, *constants)``: the gradient of an input of that shape.
    """
    rest = (None,) * (len(op.schema.positional) - 1)

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.shape = tuple(inputs[0].shape)
        ctx.constants = inputs[1:]

    def backward(ctx: Any, g: Any) -> tuple[Any, ...]:
        return (pull(g, ctx.shape, *ctx.constants), *rest)

    def jvp(primals: Any, tangents: Any) -> Any:
        t = tangents[0]
        return op(*primals), None if t is None else op(t, *primals[1:])

    op.register_autograd(backward, setup_context=setup)
    op.register_jvp(jvp)


def batch_first(x: Any, dim: int | None, size: int | None = None) -> Any:
    """The array with its batch axis at the front.

    An array without one gets an axis of length `size`, or of length one.
    """
    if dim is not None:
        return x if dim == 0 else np.moveaxis(x, dim, 0)
    wide = np.expand_dims(x, 0)
    return wide if size is None else np.broadcast_to(wide, (size, *x.shape))


def only(function: str, **given: tuple[Any, ...]) -> None:
    """Raise for a keyword whose value, the first of its tuple, is not among the rest."""
    for name, (value, *allowed) in given.items():
        if not any(value is v or (isinstance(value, str) and value == v) for v in allowed):
            known = " or ".join(repr(v) for v in allowed)
            raise ArgumentError(
                f"{function}: {name}={value!r} is not supported for traced or fake arrays",
                do=f"use {name}={known}",
            )


def as_tuple(value: Any) -> tuple[int, ...]:
    """Ints from one int or a sequence of them."""
    if isinstance(value, Iterable) and shape_of(value) != ():
        return tuple(value)
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def as_array(value: Any) -> Any:
    """An array as it is; else one made of a number, or of nested lists of arrays."""
    if hasattr(value, "shape"):
        return value
    if isinstance(value, list | tuple) and any(_holds_array(v) for v in value):
        return np.stack([as_array(v) for v in value])
    return np.asarray(value)


def _holds_array(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(_holds_array(v) for v in value)
    return hasattr(value, "shape") and not isinstance(value, np.generic)


def _view(x: Any, shape: Iterable[int], strides: Iterable[int]) -> FakeArray:
    return FakeArray(tuple(shape), x.dtype, tuple(strides), fake_like(x).device)


def _inverse(axes: Sequence[int]) -> list[int]:
    found = [0] * len(axes)
    for i, axis in enumerate(axes):
        found[axis] = i
    return found


# ---- reshape ----


def _lengths(shape: Sequence[int], new: Sequence[int]) -> tuple[int, ...]:
    """New lengths, with the one given as -1 worked out."""
    size = math.prod(shape)
    given = tuple(new)
    unknown = [i for i, n in enumerate(given) if n == -1]
    known = math.prod([n for n in given if n != -1])
    fits = size == known if not unknown else known > 0 and size % known == 0
    if len(unknown) > 1 or any(n < -1 for n in given) or not fits:
        raise ShapeError(
            f"cannot reshape array of size {size} into shape {given}",
            do="give lengths whose product is the number of elements",
        )
    if not unknown:
        return given
    at = unknown[0]
    return (*given[:at], size // known, *given[at + 1 :])


def _without_ones(shape: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    return [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]


def _reshaped_strides(
    shape: Sequence[int], strides: Sequence[int], new: Sequence[int]
) -> tuple[int, ...] | None:
    """Strides of a view of the new shape, or None where the elements must be copied.

    Groups of old axes that hold as many elements as a group of new axes must lie
    evenly in memory. Source: what numpy.reshape does, NumPy 2.4.
    """
    if math.prod(shape) == 0:
        return None
    old = _without_ones(shape, strides)
    found = [0] * len(new)
    at = 0
    axis = 0
    while axis < len(new):
        first, count, target = axis, 1, new[axis]
        group: list[tuple[int, int]] = []
        while count != target:
            if count < target:
                group.append(old[at])
                count *= old[at][0]
                at += 1
            else:
                axis += 1
                target *= new[axis]
        if any(a[1] != b[0] * b[1] for a, b in zip(group, group[1:], strict=False)):
            return None
        step = group[-1][1] if group else 0
        for i in range(axis, first - 1, -1):
            found[i] = step
            step *= new[i]
        axis += 1
    return tuple(found)


_reshape: Operator[..., Any] = custom_op(
    "np::reshape",
    lambda x, shape: np.reshape(x, tuple(shape)),
    mutates_args=(),
    schema="(Array(a) x, int[] shape) -> Array(a)",
)


@_reshape.register_fake
def _(x: Any, shape: Any) -> FakeArray:
    lengths = _lengths(x.shape, shape)
    return FakeArray(
        lengths, x.dtype, _reshaped_strides(x.shape, x.strides, lengths), fake_like(x).device
    )


@_reshape.register_vmap
def _(info: Any, in_dims: Any, x: Any, shape: Any) -> Any:
    first = batch_first(x, in_dims[0])
    return np.reshape(first, (first.shape[0], *_lengths(first.shape[1:], shape))), 0


register_linear(_reshape, lambda g, old, shape: np.reshape(g, old))


@register_numpy_function(np.reshape)
def _(a: Any, /, shape: Any, order: str = "C", *, copy: Any = None) -> Any:
    only("np.reshape", order=(order, "C", "F"), copy=(copy, None))
    lengths = as_tuple(shape)
    if order == "F":
        return _reshape(a.T, lengths[::-1]).T
    return _reshape(a, lengths)


@register_numpy_function(np.ravel)
def _(a: Any, order: str = "C") -> Any:
    only("np.ravel", order=(order, "C", "F"))
    return np.reshape(a, (-1,) if shape_of(a) else (1,), order=order)


def _at_least(rank: int, where: Callable[[int], tuple[int, ...]]) -> Callable[..., Any]:
    """``np.atleast_1d`` and the like: `where` tells the new axes for a rank."""

    def atleast(*arys: Any) -> Any:
        arrays = [as_array(a) for a in arys]
        found = [np.expand_dims(a, where(a.ndim)) if a.ndim < rank else a for a in arrays]
        return found[0] if len(found) == 1 else tuple(found)

    return atleast


register_numpy_function(np.atleast_1d, _at_least(1, lambda rank: (0,)))
register_numpy_function(np.atleast_2d, _at_least(2, lambda rank: ((0, 1), (0,))[rank]))
register_numpy_function(
    np.atleast_3d, _at_least(3, lambda rank: ((0, 1, 2), (0, 2), (2,))[rank])
)


# ---- transpose ----

_transpose: Operator[..., Any] = custom_op(
    "np::transpose",
    lambda x, axes: np.transpose(x, tuple(axes)),
    mutates_args=(),
    schema="(Array(a) x, int[] axes) -> Array(a)",
)


@_transpose.register_fake
def _(x: Any, axes: Any) -> FakeArray:
    return _view(x, [x.shape[a] for a in axes], [x.strides[a] for a in axes])


@_transpose.register_vmap
def _(info: Any, in_dims: Any, x: Any, axes: Any) -> Any:
    others = [axis for axis in range(x.ndim) if axis != in_dims[0]]
    return np.transpose(x, (in_dims[0], *[others[a] for a in axes])), 0


register_linear(_transpose, lambda g, shape, axes: np.transpose(g, _inverse(axes)))


@register_numpy_function(np.transpose)
def _(a: Any, axes: Any = None) -> Any:
    rank = a.ndim
    order = range(rank)[::-1] if axes is None else normalize_axis_tuple(axes, rank)
    if len(order) != rank:
        raise ShapeError(
            f"axes don't match array: {tuple(axes)} for an array of {rank} axes",
            do="name each axis once",
        )
    return _transpose(a, tuple(order))


@register_numpy_function(np.moveaxis)
def _(a: Any, source: Any, destination: Any) -> Any:
    start = normalize_axis_tuple(source, a.ndim, "source")
    end = normalize_axis_tuple(destination, a.ndim, "destination")
    if len(start) != len(end):
        raise ShapeError(
            "`source` and `destination` arguments must have the same number of elements",
            f"got {start} and {end}",
            do="give a destination for each axis",
        )
    order = [axis for axis in range(a.ndim) if axis not in start]
    for to, axis in sorted(zip(end, start, strict=True)):
        order.insert(to, axis)
    return _transpose(a, order)


@register_numpy_function(np.swapaxes)
def _(a: Any, axis1: int, axis2: int) -> Any:
    first, second = (normalize_axis_index(axis, a.ndim) for axis in (axis1, axis2))
    order = list(range(a.ndim))
    order[first], order[second] = second, first
    return _transpose(a, order)


@register_numpy_function(np.rollaxis)
def _(a: Any, axis: int, start: int = 0) -> Any:
    axis = normalize_axis_index(axis, a.ndim)
    start = normalize_axis_index(start, a.ndim + 1)
    return np.moveaxis(a, axis, start - 1 if axis < start else start)


@register_numpy_function(np.matrix_transpose)
def _(x: Any, /) -> Any:
    return np.swapaxes(x, -1, -2)


# ---- axes of length one ----

_expand_dims: Operator[..., Any] = custom_op(
    "np::expand_dims",
    lambda x, axis: np.expand_dims(x, tuple(axis)),
    mutates_args=(),
    schema="(Array(a) x, int[] axis) -> Array(a)",
)


def _expanded(x: Any, axis: Sequence[int]) -> tuple[list[int], list[int]]:
    """Shape and strides with axes of length one added; `axis` is sorted."""
    shape, strides = list(x.shape), list(x.strides)
    for at in axis:
        shape.insert(at, 1)
        strides.insert(at, 0)
    return shape, strides


@_expand_dims.register_fake
def _(x: Any, axis: Any) -> FakeArray:
    return _view(x, *_expanded(x, axis))


@_expand_dims.register_vmap
def _(info: Any, in_dims: Any, x: Any, axis: Any) -> Any:
    first = batch_first(x, in_dims[0])
    return np.expand_dims(first, tuple([a + 1 for a in axis])), 0


register_linear(_expand_dims, lambda g, shape, axis: np.squeeze(g, tuple(axis)))


@register_numpy_function(np.expand_dims)
def _(a: Any, axis: Any) -> Any:
    rank = a.ndim + (len(axis) if isinstance(axis, tuple | list) else 1)
    return _expand_dims(a, sorted(normalize_axis_tuple(axis, rank)))


_squeeze: Operator[..., Any] = custom_op(
    "np::squeeze",
    lambda x, axis: np.squeeze(x, tuple(axis)),
    mutates_args=(),
    schema="(Array(a) x, int[] axis) -> Array(a)",
)


@_squeeze.register_fake
def _(x: Any, axis: Any) -> FakeArray:
    kept = [i for i in range(x.ndim) if i not in axis]
    return _view(x, [x.shape[i] for i in kept], [x.strides[i] for i in kept])


@_squeeze.register_vmap
def _(info: Any, in_dims: Any, x: Any, axis: Any) -> Any:
    first = batch_first(x, in_dims[0])
    return np.squeeze(first, tuple([a + 1 for a in axis])), 0


register_linear(_squeeze, lambda g, shape, axis: np.expand_dims(g, tuple(axis)))


@register_numpy_function(np.squeeze)
def _(a: Any, axis: Any = None) -> Any:
    if axis is None:
        axis = tuple([i for i, length in enumerate(a.shape) if length == 1])
    axes = sorted(normalize_axis_tuple(axis, a.ndim))
    if any(a.shape[i] != 1 for i in axes):
        raise ShapeError(
            "cannot select an axis to squeeze out which has size not equal to one",
            f"axis {axis} of an array of shape {tuple(a.shape)}",
            do="name axes of length one",
        )
    return _squeeze(a, axes)


# ---- broadcasting ----

_broadcast_to: Operator[..., Any] = custom_op(
    "np::broadcast_to",
    lambda x, shape: np.broadcast_to(x, tuple(shape)),
    mutates_args=(),
    schema="(Array(a) x, int[] shape) -> Array(a)",
)


@_broadcast_to.register_fake
def _(x: Any, shape: Any) -> FakeArray:
    missing = len(shape) - x.ndim
    pairs = zip(x.shape, shape[max(missing, 0) :], strict=False)
    if missing < 0 or any(own not in (1, n) for own, n in pairs):
        raise ShapeError(
            f"operands could not be broadcast together: an array of shape"
            f" {tuple(x.shape)} into the shape {tuple(shape)}",
            do="give lengths that are equal, or one in the array",
        )
    own = zip(x.shape, x.strides, shape[missing:], strict=True)
    return _view(x, shape, [0] * missing + [s if n == to else 0 for n, s, to in own])


@_broadcast_to.register_vmap
def _(info: Any, in_dims: Any, x: Any, shape: Any) -> Any:
    first = batch_first(x, in_dims[0])
    missing = max(len(shape) - (first.ndim - 1), 0)
    wide = np.expand_dims(first, tuple(range(1, 1 + missing))) if missing else first
    return np.broadcast_to(wide, (first.shape[0], *shape)), 0


def _sum_to(g: Any, shape: tuple[int, ...]) -> Any:
    """The transpose of broadcasting: sums over the axes that it made or stretched."""
    extra = g.ndim - len(shape)
    pairs = enumerate(zip(shape, g.shape[extra:], strict=True), extra)
    axes = (*range(extra), *[i for i, (own, n) in pairs if own != n])
    return np.reshape(np.sum(g, axis=axes), shape) if axes else g


register_linear(_broadcast_to, lambda g, old, shape: _sum_to(g, old))


@register_numpy_function(np.broadcast_to)
def _(array: Any, shape: Any, subok: bool = False) -> Any:
    only("np.broadcast_to", subok=(subok, False))
    return _broadcast_to(array, as_tuple(shape))


@register_numpy_function(np.broadcast_arrays)
def _(*args: Any, subok: bool = False) -> Any:
    only("np.broadcast_arrays", subok=(subok, False))
    arrays = [as_array(a) for a in args]
    shape = np.broadcast_shapes(*[tuple(a.shape) for a in arrays])
    return tuple([np.broadcast_to(a, shape) for a in arrays])


@register_numpy_function(np.meshgrid)
def _(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    only("np.meshgrid", indexing=(indexing, "xy", "ij"))
    rank = len(xi)
    grids = []
    for i, x in enumerate(xi):
        at = 1 - i if indexing == "xy" and i < 2 and rank > 1 else i
        grids.append(np.reshape(as_array(x), (1,) * at + (-1,) + (1,) * (rank - at - 1)))
    return tuple(grids) if sparse else np.broadcast_arrays(*grids)


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
    strides = [0] * len(shape)
    step = dtype.itemsize
    for axis in reversed(_merged_order(pairs)):
        strides[axis] = step
        step *= max(shape[axis], 1)
    return FakeArray(shape, dtype, strides, fake_like(arrays[0]).device)


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
        ctx.axis = inputs[1]

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
        return op([batch_first(a, d, info.batch_size) for a, d in pairs], axis + 1), 0

    op.register_autograd(backward, setup_context=setup)
    op.register_jvp(jvp)
    op.register_vmap(batch)


_concatenate: Operator[..., Any] = custom_op(
    "np::concatenate",
    lambda arrays, axis: np.concatenate(arrays, axis),
    mutates_args=(),
    schema="(Array[] arrays, int axis) -> Array",
)


@_concatenate.register_fake
def _(arrays: Any, axis: int) -> FakeArray:
    shapes = [tuple(a.shape) for a in arrays]
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


def _cast_all(function: str, arrays: Iterable[Any], dtype: Any, casting: str) -> list[Any]:
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


_stack: Operator[..., Any] = custom_op(
    "np::stack",
    lambda arrays, axis: np.stack(arrays, axis),
    mutates_args=(),
    schema="(Array[] arrays, int axis) -> Array",
)


@_stack.register_fake
def _(arrays: Any, axis: int) -> FakeArray:
    shapes = [tuple(a.shape) for a in arrays]
    if len(set(shapes)) > 1:
        raise _misfit("np.stack", shapes)
    shape = (*shapes[0][:axis], len(arrays), *shapes[0][axis:])
    return _joined(arrays, shape, [_expanded(a, (axis,)) for a in arrays])


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
            do="use np.array_split, or give the places to cut",
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
                do="use np.split",
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


_pad: Operator[..., Any] = custom_op(
    "np::pad",
    _padded,
    mutates_args=(),
    schema="(Array x, int[][] pad_width, Scalar value=0) -> Array",
)


def _is_fortran(x: Any) -> bool:
    """Whether an array is dense in F order and not in C order."""
    pairs = _without_ones(x.shape, x.strides)
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
    device = fake_like(x).device
    if not _is_fortran(x):
        return FakeArray(shape, x.dtype, device=device)
    turned = FakeArray(shape[::-1], x.dtype)
    return FakeArray(shape, x.dtype, turned.strides[::-1], device)


@_pad.register_vmap
def _(info: Any, in_dims: Any, x: Any, pad_width: Any, value: Any) -> Any:
    return _pad(batch_first(x, in_dims[0]), [(0, 0), *pad_width], value), 0


@_pad.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    x, pad_width, _ = primals
    return _pad(*primals), None if tangents[0] is None else _pad(tangents[0], pad_width)


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


# ---- turning ----

_flip: Operator[..., Any] = custom_op(
    "np::flip",
    lambda x, axis: np.flip(x, tuple(axis)),
    mutates_args=(),
    schema="(Array(a) x, int[] axis) -> Array(a)",
)


@_flip.register_fake
def _(x: Any, axis: Any) -> FakeArray:
    strides = [-s if i in axis else s for i, s in enumerate(x.strides)]
    return _view(x, x.shape, strides)


@_flip.register_vmap
def _(info: Any, in_dims: Any, x: Any, axis: Any) -> Any:
    return _flip(batch_first(x, in_dims[0]), [a + 1 for a in axis]), 0


register_linear(_flip, lambda g, shape, axis: np.flip(g, tuple(axis)))


@register_numpy_function(np.flip)
def _(m: Any, axis: Any = None) -> Any:
    axes = range(m.ndim) if axis is None else normalize_axis_tuple(axis, m.ndim)
    return _flip(m, tuple(axes))


def _flipper(name: str, axis: int) -> Callable[[Any], Any]:
    def flip(m: Any) -> Any:
        if m.ndim <= axis:
            raise ShapeError(
                f"Input must be >= {axis + 1}-d.",
                f"np.{name} of an array of shape {tuple(m.shape)}",
                do="use np.flip",
            )
        return _flip(m, (axis,))

    return flip


register_numpy_function(np.flipud, _flipper("flipud", 0))
register_numpy_function(np.fliplr, _flipper("fliplr", 1))


@register_numpy_function(np.rot90)
def _(m: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    first, second = normalize_axis_tuple(axes, m.ndim)
    turns = as_int(k) % 4
    if turns in (0, 2):
        return m if turns == 0 else np.flip(m, (first, second))
    if turns == 1:
        return np.swapaxes(np.flip(m, second), first, second)
    return np.flip(np.swapaxes(m, first, second), second)


_roll: Operator[..., Any] = custom_op(
    "np::roll",
    lambda x, shift, axis: np.roll(x, tuple(shift), tuple(axis)),
    mutates_args=(),
    schema="(Array x, int[] shift, int[] axis) -> Array",
)


@_roll.register_fake
def _(x: Any, shift: Any, axis: Any) -> FakeArray:
    return fake_like(x)


@_roll.register_vmap
def _(info: Any, in_dims: Any, x: Any, shift: Any, axis: Any) -> Any:
    return _roll(batch_first(x, in_dims[0]), shift, [a + 1 for a in axis]), 0


register_linear(
    _roll, lambda g, shape, shift, axis: np.roll(g, [-s for s in shift], tuple(axis))
)


@register_numpy_function(np.roll)
def _(a: Any, shift: Any, axis: Any = None) -> Any:
    if axis is None:
        return np.reshape(np.roll(np.ravel(a), shift, 0), a.shape)
    axes = normalize_axis_tuple(axis, a.ndim, allow_duplicate=True)
    pairs = np.broadcast(np.asarray(shift), np.asarray(axes))
    if pairs.ndim > 1:
        raise ShapeError(
            "'shift' and 'axis' should be scalars or 1D sequences", do="give ints or lists"
        )
    moves = [(int(s), int(i)) for s, i in pairs]
    return _roll(a, [s for s, _ in moves], [i for _, i in moves])


# ---- triangles ----


def _triangle(name: str) -> None:
    """``np.tril`` or ``np.triu`` of the last two axes."""
    function = getattr(np, name)
    op: Operator[..., Any] = custom_op(
        f"np::{name}",
        lambda x, k: function(x, k),
        mutates_args=(),
        schema="(Array x, int k=0) -> Array",
    )


    @op.register_fake
    def _(x: Any, k: int) -> FakeArray:
        mask = FakeArray(x.shape[-2:], np.bool_, device=fake_like(x).device)
        return keep_order((mask, x), x.dtype)

    op.register_vmap(
        lambda info, in_dims, x, k: (op(batch_first(x, in_dims[0]), k), 0)
    )
    register_linear(op, lambda g, shape, k: function(g, k))

    @register_numpy_function(function)
    def _(m: Any, k: int = 0) -> Any:
        square = np.broadcast_to(m, (m.shape[0],) * 2) if m.ndim == 1 else m
        return op(square, k)


_triangle("tril")
_triangle("triu")


# ---- copies and casts ----

_copy: Operator[..., Any] = custom_op(
    "np::copy",
    lambda x: np.copy(x),
    mutates_args=(),
    schema="(Array x) -> Array",
    tags=Tag.pointwise,
)
_copy.register_fake(lambda x: fake_like(x))
register_linear(_copy, lambda g, shape: g)


@register_numpy_function(np.copy)
def _(a: Any, order: str = "K", subok: bool = False) -> Any:
    only("np.copy", order=(order, "K", "C", "A"), subok=(subok, False, True))
    return _copy(a)


_astype: Operator[..., Any] = custom_op(
    "np::astype",
    lambda x, dtype: x.astype(dtype),
    mutates_args=(),
    schema="(Array x, dtype dtype) -> Array",
    tags=Tag.pointwise,
)
_astype.register_fake(lambda x, dtype: fake_like(x, dtype=dtype))


def _astype_setup(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.like = fake_like(inputs[0], shape=())


def _astype_jvp(primals: Any, tangents: Any) -> Any:
    y = _astype(*primals)
    t = tangents[0]
    return y, None if t is None or y.dtype.kind not in "fc" else fit(t, y)


_astype.register_autograd(
    lambda ctx, g: (fit(g, ctx.like), None), setup_context=_astype_setup
)
_astype.register_jvp(_astype_jvp)


@register_numpy_function(np.astype)
def _(x: Any, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Any:
    only("np.astype", device=(device, None))
    return x if not copy and x.dtype == np.dtype(dtype) else _astype(x, dtype)


def _component(name: str, unit: complex) -> None:
    """``np.real`` or ``np.imag`` of complex arrays; its transpose times `unit`.

    Complex-linear: the real part of z has the derivative 1, the imaginary part -1j.
    """
    function = getattr(np, name)
    op: Operator[..., Any] = custom_op(
        f"np::{name}",
        lambda x: function(x),
        mutates_args=(),
        schema="(Array(a) x) -> Array(a)",
        tags=Tag.pointwise,
    )

    @op.register_fake
    def _(x: Any) -> FakeArray:
        dtype = np.dtype(f"f{x.dtype.itemsize // 2}")
        return FakeArray(x.shape, dtype, x.strides, fake_like(x).device)

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.dtype = inputs[0].dtype

    op.register_autograd(
        lambda ctx, g: g.astype(ctx.dtype) * unit, setup_context=setup
    )
    op.register_jvp(
        lambda primals, tangents: (
            op(*primals),
            None if tangents[0] is None else op(*tangents),
        )
    )

    @register_numpy_function(function)
    def _(val: Any) -> Any:
        if val.dtype.kind == "c":
            return op(val)
        return val if name == "real" else np.zeros_like(val)


_component("real", 1.0)
_component("imag", -1.0j)


# ---- plain answers ----

register_numpy_function(np.ndim, lambda a: a.ndim)
register_numpy_function(np.shape, lambda a: a.shape)
register_numpy_function(np.iscomplexobj, lambda x: x.dtype.kind == "c")
register_numpy_function(np.isrealobj, lambda x: x.dtype.kind != "c")


@register_numpy_function(np.size)
def _(a: Any, axis: Any = None) -> Any:
    if axis is None:
        return a.size
    return math.prod(a.shape[i] for i in normalize_axis_tuple(axis, a.ndim))


@register_numpy_function(np.result_type)
def _(*arrays_and_dtypes: Any) -> Any:
    return np.result_type(*[_kind_of(v) for v in arrays_and_dtypes])


def _kind_of(value: Any) -> Any:
    return value.dtype if hasattr(value, "interpreter") or isinstance(value, FakeArray) else value
