"""Operators for indexing: slices, index arrays, masks, and choice by a condition.

A key is taken apart into two operators: ``np::slice`` gives a view by integers, slices
and new axes, ``np::index`` a copy by arrays of integers. Their transposes, which place
or add a gradient into zeros, are operators too.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import getitem
from operator import index as as_int
from typing import Any, NoReturn

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from customop import (
    ArgumentError,
    DataDependentError,
    FakeArray,
    Operator,
    ShapeError,
    Tag,
    register_numpy_function,
)
from customop.numpy.create import from_list
from customop.numpy.rules import keep_order, no_gradient, register_formulas, shape_of
from customop.numpy.shape import (
    as_array,
    batch_first,
    device_of,
    numpy_operator,
    only,
    register_linear,
)

__all__: list[str] = []

# An axis of a key for `np::slice`: [] a new axis, [i] an integer, [start, stop, step].
_ALL = (None, None, None)


# ---- views: integers, slices, new axes ----


def _key(entries: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
    """The key that NumPy takes."""
    return tuple(
        [slice(*e) if len(e) == 3 else e[0] if len(e) == 1 else None for e in entries]
    )


_slice = numpy_operator(
    "slice",
    "(Array(a) x, int?[][] key) -> Array(a)",
    lambda x, key: x[_key(key)],
)


def _view(
    lengths: Sequence[int], steps: Sequence[int], key: Sequence[Sequence[Any]]
) -> tuple[list[int], list[int]]:
    """Shape and strides of the view of an array by a key, from those of the array."""
    shape: list[int] = []
    strides: list[int] = []
    axis = 0
    for entry in key:
        if len(entry) == 0:
            shape.append(1)
            strides.append(0)
            continue
        length, stride = lengths[axis], steps[axis]
        axis += 1
        if len(entry) == 3:
            n, step = _sliced(entry, length)
            shape.append(n)
            strides.append(stride * step)
    return [*shape, *lengths[axis:]], [*strides, *steps[axis:]]


@_slice.register_fake
def _(x: Any, key: Any) -> FakeArray:
    shape, strides = _view(x.shape, x.strides, key)
    return FakeArray(shape, x.dtype, strides, device_of(x))


def _sliced(entry: Sequence[Any], length: int) -> tuple[int, int]:
    """Length and step of a slice of an axis."""
    if tuple(entry) == _ALL:
        return length, 1
    start, stop, step = slice(*entry).indices(length)
    return len(range(start, stop, step)), step


@_slice.register_vmap
def _(info: Any, in_dims: Any, x: Any, key: Any) -> Any:
    return _slice(batch_first(x, in_dims[0]), [_ALL, *key]), 0


def _check_placed(g: Any, shape: Sequence[int], key: Sequence[Sequence[Any]]) -> None:
    """Raise unless `g` has the shape of the view, of which it is the gradient."""
    expected = tuple(_view(shape, shape, key)[0])
    if tuple(g.shape) != expected:
        raise ShapeError(
            f"np::unslice: g has the shape {tuple(g.shape)}, the view {expected}",
            do="broadcast g to the shape of the view",
        )


def _place(g: Any, shape: Sequence[int], key: Sequence[Sequence[Any]]) -> Any:
    _check_placed(g, shape, key)
    zeros = np.zeros_like(g, shape=tuple(shape), order="C")
    zeros[_key(key)] = g
    return zeros


# The transpose of `np::slice`: zeros of a shape, with `g` in the place of the view.
_unslice = numpy_operator(
    "unslice",
    "(Array g, int[] shape, int?[][] key) -> Array",
    _place,
)


@_unslice.register_fake
def _(g: Any, shape: Any, key: Any) -> FakeArray:
    _check_placed(g, shape, key)
    return FakeArray(shape, g.dtype, device=device_of(g))


@_unslice.register_vmap
def _(info: Any, in_dims: Any, g: Any, shape: Any, key: Any) -> Any:
    first = batch_first(g, in_dims[0])
    return _unslice(first, (info.batch_size, *shape), [_ALL, *key]), 0


register_linear(_slice, lambda g, shape, key: _unslice(g, shape, key))
register_linear(_unslice, lambda g, own, shape, key: _slice(g, key))


# ---- copies: arrays of integers ----


def _layout(indices: Sequence[Any]) -> tuple[bool, int]:
    """Whether the index arrays stand side by side, and the axis that they give.

    As NumPy has it: apart, their axes come first in the result.
    """
    slots = [i for i, a in enumerate(indices) if a is not None]
    is_adjacent = slots[-1] - slots[0] + 1 == len(slots)
    return is_adjacent, slots[0] if is_adjacent else 0


def _as_index(a: Any) -> Any:
    """An index array that `take` accepts: unsigned ones of 64 bits it does not."""
    return a.astype(np.intp) if a.dtype.kind == "u" else a


def _check_indices(indices: Sequence[Any], rank: int) -> None:
    """Raise unless these are index arrays for an array of so many axes."""
    wrong = [a.dtype for a in indices if a is not None and not _is_integer(a.dtype)]
    if wrong or all(a is None for a in indices):
        seen = f"an array of {wrong[0]}" if wrong else "none"
        raise ArgumentError(
            f"np::index and np::scatter_add take arrays of integers, got {seen}",
            do="call customop.getitem(x, key), which takes masks too",
        )
    if len(indices) > rank:
        raise ShapeError(
            f"too many indices: {len(indices)} for an array of {rank} axes",
            do="give one index array, or None, for each axis at the most",
        )


def _is_integer(dtype: Any) -> bool:
    return getattr(dtype, "kind", "") in "iu" or "int" in str(dtype)


def _gather(x: Any, indices: Sequence[Any]) -> Any:
    """Elements by index arrays, in C order whatever the order that NumPy prefers."""
    _check_indices(indices, x.ndim)
    slots = [i for i, a in enumerate(indices) if a is not None]
    if len(slots) == 1:
        return np.take(x, _as_index(indices[slots[0]]), axis=slots[0])
    out = x[tuple([slice(None) if a is None else a for a in indices])]
    return out if out.flags.c_contiguous else np.copy(out, order="C")


_index = numpy_operator(
    "index",
    "(Array x, Array?[] indices) -> Array",
    _gather,
)


def _gathered_shape(shape: Sequence[int], indices: Sequence[Any]) -> tuple[int, ...]:
    """Shape of the elements that index arrays take from an array of a shape."""
    _check_indices(indices, len(shape))
    given = [tuple(a.shape) for a in indices if a is not None]
    kept = [n for n, a in zip(shape, indices, strict=False) if a is None]
    at = _layout(indices)[1]
    rest = shape[len(indices) :]
    return (*kept[:at], *np.broadcast_shapes(*given), *kept[at:], *rest)


@_index.register_fake
def _(x: Any, indices: Any) -> FakeArray:
    shape = _gathered_shape(x.shape, indices)
    return FakeArray(shape, x.dtype, device=device_of(x))


def _check_scattered(g: Any, shape: Sequence[int], indices: Sequence[Any]) -> None:
    """Raise unless `g` has the shape of the elements at those places.

    NumPy 2.4.6 adds what lies behind `g` in memory where `add.at` has to broadcast it.
    """
    expected = _gathered_shape(shape, indices)
    if tuple(g.shape) != expected:
        raise ShapeError(
            f"np::scatter_add: g has the shape {tuple(g.shape)}, the places {expected}",
            do="broadcast g to the shape of the places",
        )


def _scatter(g: Any, shape: Sequence[int], indices: Sequence[Any]) -> Any:
    _check_scattered(g, shape, indices)
    zeros = np.zeros_like(g, shape=tuple(shape), order="C")
    key: Any = tuple([slice(None) if a is None else a for a in indices])
    np.add.at(zeros, key, g)
    return zeros


# The transpose of `np::index`: zeros of a shape, with `g` added at the places read.
_scatter_add = numpy_operator(
    "scatter_add",
    "(Array g, int[] shape, Array?[] indices) -> Array",
    _scatter,
)


@_scatter_add.register_fake
def _(g: Any, shape: Any, indices: Any) -> FakeArray:
    _check_scattered(g, shape, indices)
    return FakeArray(shape, g.dtype, device=device_of(g))


@_scatter_add.register_kernel("cuda")
def _(g: Any, shape: Any, indices: Any) -> Any:
    import cupy  # noqa: PLC0415  # optional: imported where a CUDA array turns up

    zeros = cupy.zeros(tuple(shape), g.dtype)
    key = tuple([slice(None) if a is None else a for a in indices])
    cupy.add.at(zeros, key, g)
    return zeros


def _save_indices(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.shape = tuple(inputs[0].shape)
    ctx.save_for_backward(*inputs[-1])


_index.register_autograd(
    lambda ctx, g: (_scatter_add(g, ctx.shape, list(ctx.saved_arrays)), None),
    setup_context=_save_indices,
)
_scatter_add.register_autograd(
    lambda ctx, g: (_index(g, list(ctx.saved_arrays)), None, None),
    setup_context=_save_indices,
)


def _tangent_alone(op: Operator[..., Any]) -> None:
    """Register jvp of an operator that is linear in its first array."""

    def jvp(primals: Any, tangents: Any) -> Any:
        t = tangents[0]
        return op(*primals), None if t is None else op(t, *primals[1:])

    op.register_jvp(jvp)


_tangent_alone(_index)
_tangent_alone(_scatter_add)


# ---- batches of index arrays ----


def _rank(indices: Sequence[Any], dims: Sequence[Any]) -> int:
    """Number of axes that the index arrays of one row have together."""
    pairs = zip(indices, dims, strict=True)
    return max(a.ndim - (d is not None) for a, d in pairs if a is not None)


def _aligned(a: Any, dim: int | None, rank: int) -> Any:
    """An index array with its batch first, and its other axes at the end of `rank`."""
    if a is None or dim is None:
        return a
    first = batch_first(a, dim)
    missing = rank - (first.ndim - 1)
    shape = (first.shape[0], *(1,) * missing, *first.shape[1:])
    return np.reshape(first, shape) if missing else first


def _with_rows(
    like: Any, size: int, indices: Sequence[Any], dims: Sequence[Any], rank: int
) -> list[Any]:
    """Index arrays for a batch, with one for the rows before them."""
    rows = _constant(np.arange(size).reshape((size, *(1,) * rank)), like)
    pairs = zip(indices, dims, strict=True)
    return [rows, *[_aligned(a, d, rank) for a, d in pairs]]


@_index.register_vmap
def _(info: Any, in_dims: Any, x: Any, indices: Any) -> Any:
    dim, dims = in_dims
    rank = _rank(indices, dims)
    is_adjacent, at = _layout(indices)
    if all(d is None for d in dims):
        out = _index(batch_first(x, dim), [None, *indices])
        return out, 0 if is_adjacent else rank
    if dim is None:
        pairs = zip(indices, dims, strict=True)
        return _index(x, [_aligned(a, d, rank) for a, d in pairs]), at
    first = batch_first(x, dim)
    out = _index(first, _with_rows(x, info.batch_size, indices, dims, rank))
    if at and rank:
        own, there = range(1, 1 + rank), range(1 + at, 1 + at + rank)
        out = np.moveaxis(out, tuple(own), tuple(there))
    return out, 0


@_scatter_add.register_vmap
def _(info: Any, in_dims: Any, g: Any, shape: Any, indices: Any) -> Any:
    dim, dims = in_dims[0], in_dims[2]
    rank = _rank(indices, dims)
    is_adjacent, at = _layout(indices)
    wide = (info.batch_size, *shape)
    if all(d is None for d in dims):
        turned = np.moveaxis(g, dim, 0 if is_adjacent else rank)
        return _scatter_add(turned, wide, [None, *indices]), 0
    first = batch_first(g, dim, info.batch_size)
    if at and rank:
        own, there = range(1 + at, 1 + at + rank), range(1, 1 + rank)
        first = np.moveaxis(first, tuple(own), tuple(there))
    return _scatter_add(
        first, wide, _with_rows(g, info.batch_size, indices, dims, rank)
    ), 0


# ---- places that depend on data ----

_nonzero = numpy_operator(
    "nonzero",
    "(Array x) -> Array[]",
    # NumPy gives columns of one array: results must not share memory.
    lambda x: [places.copy() for places in np.nonzero(x)],
    tags=Tag.dynamic_output_shape,
)


def _by_data(where: str) -> DataDependentError:
    return DataDependentError(
        f"np.nonzero, or a mask as an index, {where}: the shape of the result depends on"
        " data",
        do="use np.where(mask, x, 0), which keeps the shape",
    )


@_nonzero.register_fake
def _(x: Any) -> Any:
    raise _by_data("of a fake array")


@_nonzero.register_vmap
def _(info: Any, in_dims: Any, x: Any) -> Any:
    raise _by_data(f"under vmap of {info.batch_size} rows")


no_gradient(_nonzero)


@register_numpy_function(np.nonzero)
def _(a: Any) -> Any:
    return tuple(_nonzero(a))


register_numpy_function(np.flatnonzero, lambda a: _nonzero(np.ravel(a))[0])
register_numpy_function(np.argwhere, lambda a: np.stack(_nonzero(a), 1))


# ---- keys as NumPy has them ----


def _constant(array: Any, like: Any) -> Any:
    """A NumPy array of indices on the device of another array."""
    if type(array) is not np.ndarray:
        return array
    device = device_of(like)
    if device == "cpu":
        return array
    return from_list(array.ravel().tolist(), list(array.shape), array.dtype, device)


def _raise_as_numpy(shape: Sequence[int], items: Sequence[Any]) -> NoReturn:
    """Raise the very error that NumPy has for a key, on an array without memory."""

    def plain(item: Any) -> Any:
        if not hasattr(item, "shape") or isinstance(item, np.ndarray | np.generic):
            return item
        return np.zeros(tuple(item.shape), item.dtype)

    np.broadcast_to(np.zeros(()), tuple(shape))[tuple([plain(i) for i in items])]
    raise IndexError(f"the key {tuple(items)!r} does not fit the shape {tuple(shape)}")


def _item(item: Any) -> Any:
    """An item of a key as an int, slice, None, Ellipsis or array."""
    if item is None or item is Ellipsis or type(item) in (int, slice):
        return item
    if isinstance(item, bool | np.bool_):
        return np.asarray(item)
    if isinstance(item, np.integer) or _is_python_index(item):
        return as_int(item)
    if isinstance(item, list | tuple | range):
        item = list(item)
        return np.zeros(0, np.intp) if len(item) == 0 else as_array(item)
    if isinstance(item, np.ndarray) and item.ndim == 0 and item.dtype.kind in "iu":
        return int(item)
    return item


def _is_python_index(item: Any) -> bool:
    return hasattr(item, "__index__") and not hasattr(item, "shape")


def _width(item: Any) -> int:
    """Number of axes that an item of a key takes."""
    if item is None or item is Ellipsis:
        return 0
    return len(item.shape) if _is_mask(item) else 1


def _is_mask(item: Any) -> bool:
    return hasattr(item, "shape") and "bool" in str(item.dtype)


def _spread(shape: Sequence[int], key: Any) -> list[Any]:
    """Items of a key, the Ellipsis written out, checked against the shape."""
    given = key if isinstance(key, tuple) else (key,)
    items = [_item(item) for item in given]
    missing = len(shape) - sum(_width(item) for item in items)
    dots = [i for i, item in enumerate(items) if item is Ellipsis]
    if missing < 0 or len(dots) > 1 or not all(_is_known(item) for item in items):
        pairs = zip(given, items, strict=True)
        _raise_as_numpy(shape, [g if type(i) is np.ndarray else i for g, i in pairs])
    if dots:
        items[dots[0] : dots[0] + 1] = [slice(None)] * missing
    axis = 0
    for item in items:
        if not _fits(item, shape[axis : axis + _width(item)]):
            _raise_as_numpy(shape, items)
        axis += _width(item)
    return items


def _is_known(item: Any) -> bool:
    if hasattr(item, "shape"):
        return any(kind in str(item.dtype) for kind in ("int", "bool"))
    return item is None or item is Ellipsis or isinstance(item, int | slice)


def _fits(item: Any, lengths: Sequence[int]) -> bool:
    if isinstance(item, int):
        return -lengths[0] <= item < lengths[0]
    return not _is_mask(item) or tuple(item.shape) == tuple(lengths)


def _bounds(part: slice) -> tuple[int | None, ...]:
    ends = (part.start, part.stop, part.step)
    return tuple([None if end is None else as_int(end) for end in ends])


def _parts(x: Any, items: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """The key for `np::slice`, and index arrays for the axes of its result."""
    is_plain = all(not hasattr(item, "shape") for item in items)
    entries: list[Any] = []
    arrays: list[Any] = []
    for item in items:
        if item is None or isinstance(item, slice):
            entries.append(() if item is None else _bounds(item))
            arrays.append(None)
        elif isinstance(item, int):
            entries.append((item,) if is_plain else _ALL)
            arrays += [] if is_plain else [np.asarray(item)]
        elif _is_mask(item) and not item.shape:
            entries.append(())
            arrays.append(np.zeros(int(bool(item)), np.intp))
        elif _is_mask(item):
            entries += [_ALL] * len(item.shape)
            arrays += np.nonzero(item)
        else:
            entries.append(_ALL)
            arrays.append(item)
    return entries, [_constant(a, x) for a in arrays]


@register_numpy_function(getitem)
def _getitem(x: Any, key: Any) -> Any:
    items = _spread(x.shape, key)
    entries, arrays = _parts(x, items)
    given = [a for a in arrays if a is not None]
    if not given:
        return _slice(x, entries)
    try:
        np.broadcast_shapes(*[tuple(a.shape) for a in given])
    except ValueError:
        _raise_as_numpy(x.shape, items)
    view = x if all(e == _ALL for e in entries) else _slice(x, entries)
    while arrays[-1] is None:
        arrays.pop()
    return _index(view, arrays)


# ---- taking along axes ----


@register_numpy_function(np.take)
def _(
    a: Any, indices: Any, axis: int | None = None, out: None = None, mode: str = "raise"
) -> Any:
    only("np.take", mode=(mode, "raise", "wrap", "clip"))
    if axis is None:
        a, axis = np.ravel(a), 0
    axis = normalize_axis_index(axis, len(shape_of(a)))
    places = as_array(indices)
    if mode == "wrap":
        places = np.remainder(places, a.shape[axis])
    elif mode == "clip":
        places = np.clip(places, 0, a.shape[axis] - 1)
    if "int" not in str(places.dtype):
        raise ArgumentError(
            f"np.take: indices of dtype {places.dtype}, must be integers",
            do="use indices.astype(int), or np.where(mask, x, 0) for a mask",
        )
    return _getitem(a, (*(slice(None),) * axis, places))


@register_numpy_function(np.take_along_axis)
def _(arr: Any, indices: Any, axis: int | None = -1) -> Any:
    if axis is None:
        return np.take(np.ravel(arr), indices)
    places = as_array(indices)
    if len(places.shape) != len(arr.shape):
        raise ShapeError(
            "`indices` and `arr` must have the same number of dimensions",
            f"np.take_along_axis: {tuple(places.shape)} for {tuple(arr.shape)}",
            do="give indices with the axes of the array",
        )
    rank = len(arr.shape)
    axis = normalize_axis_index(axis, rank)
    key = [
        np.arange(n).reshape((-1, *(1,) * (rank - i - 1)))
        for i, n in enumerate(arr.shape)
    ]
    return _getitem(arr, (*key[:axis], places, *key[axis + 1 :]))


@register_numpy_function(np.compress)
def _(condition: Any, a: Any, axis: int | None = None, out: None = None) -> Any:
    return np.take(a, np.flatnonzero(as_array(condition)), axis)


# ---- diagonals ----


@register_numpy_function(np.diagonal)
def _(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    last = np.moveaxis(a, (axis1, axis2), (-2, -1))
    down, right = max(-offset, 0), max(offset, 0)
    count = max(min(last.shape[-2] - down, last.shape[-1] - right), 0)
    return last[..., np.arange(down, down + count), np.arange(right, right + count)]


@register_numpy_function(np.diag)
def _(v: Any, k: int = 0) -> Any:
    if v.ndim == 2:
        return np.diagonal(v, k)
    if v.ndim != 1:
        raise ShapeError(
            "Input must be 1- or 2-d.",
            f"np.diag of an array of shape {tuple(v.shape)}",
            do="use np.diagonal" if v.ndim else "use np.atleast_1d(x) first",
        )
    count, size = v.shape[0], v.shape[0] + abs(k)
    places = [np.arange(start, start + count) for start in (max(-k, 0), max(k, 0))]
    return _scatter_add(v, (size, size), [_constant(p, v) for p in places])


register_numpy_function(np.diagflat, lambda v, k=0: np.diag(np.ravel(v), k))


@register_numpy_function(np.trace)
def _(
    a: Any,
    offset: int = 0,
    axis1: int = 0,
    axis2: int = 1,
    dtype: Any = None,
    out: None = None,
) -> Any:
    return np.sum(np.diagonal(a, offset, axis1, axis2), -1, dtype)


# ---- choice by a condition ----

_where = numpy_operator(
    "where",
    "(Array condition, Array|Scalar x1, Array|Scalar x2) -> Array",
    lambda condition, x1, x2: np.where(condition, x1, x2),
    tags=Tag.pointwise,
)


@_where.register_fake
def _(condition: Any, x1: Any, x2: Any) -> FakeArray:
    dtype = np.result_type(*[getattr(x, "dtype", x) for x in (x1, x2)])
    return keep_order((condition, x1, x2), dtype)


register_formulas(
    _where,
    ("condition", "x1", "x2"),
    (
        None,
        lambda g, condition: np.where(condition, g, 0.0),
        lambda g, condition: np.where(condition, 0.0, g),
    ),
)

_NOT_GIVEN: Any = object()


def _operand(value: Any) -> Any:
    """A number as it is, since it takes its dtype from the arrays; else an array."""
    return value if isinstance(value, int | float | complex) else as_array(value)


@register_numpy_function(np.where)
def _where_of(condition: Any, x: Any = _NOT_GIVEN, y: Any = _NOT_GIVEN, /) -> Any:
    if x is _NOT_GIVEN and y is _NOT_GIVEN:
        return np.nonzero(condition)
    if x is _NOT_GIVEN or y is _NOT_GIVEN:
        raise ShapeError(
            "either both or neither of x and y should be given",
            do="write np.where(condition, x, y)",
        )
    return _where(as_array(condition), _operand(x), _operand(y))


@register_numpy_function(np.select)
def _(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    if len(condlist) != len(choicelist) or not len(condlist):
        raise ShapeError(
            "list of cases must be same length as list of conditions, and not empty",
            f"np.select: {len(condlist)} conditions, {len(choicelist)} choices",
            do="give a choice for each condition",
        )
    chosen = default
    for condition, choice in zip(condlist[::-1], choicelist[::-1], strict=True):
        chosen = _where_of(condition, choice, chosen)
    return chosen


@register_numpy_function(np.clip)
def _(
    a: Any,
    a_min: Any = _NOT_GIVEN,
    a_max: Any = _NOT_GIVEN,
    out: None = None,
    *,
    min: Any = _NOT_GIVEN,  # noqa: A002  # NumPy's names
    max: Any = _NOT_GIVEN,  # noqa: A002
) -> Any:
    low = a_min if min is _NOT_GIVEN else min
    high = a_max if max is _NOT_GIVEN else max
    if low is not _NOT_GIVEN and low is not None:
        a = np.maximum(a, _operand(low))
    if high is not _NOT_GIVEN and high is not None:
        a = np.minimum(a, _operand(high))
    return a
