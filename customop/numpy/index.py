"""The operator for indexing by arrays, ``np::index``, and its transpose, which adds.

An index is taken apart into two operators: ``np::slice`` of `slices` gives a view by
integers, slices and new axes, ``np::index`` a copy by arrays of integers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from customop import (
    ArgumentError,
    FakeArray,
    Operator,
    ShapeError,
    Tracer,
    array_kind,
    fake_like,
    partials,
)
from customop.numpy.arguments import in_c_order
from customop.numpy.create import arange, from_list
from customop.numpy.fakes import device_of, keep_order
from customop.numpy.flat import gathered, scattered
from customop.numpy.rules import (
    batch_first,
    dtype_kind,
    numpy_operator,
    padded_rows,
    register_linear_jvp,
)
from customop.numpy.sizes import broadcast, typical

__all__ = [
    "check_bounds",
    "constant",
    "gathered_shape",
    "index_",
    "is_integer",
    "layout",
    "numbers",
    "rank_of",
    "scatter_add",
    "with_rows",
]

# ---- copies: arrays of integers ----


def layout(indices: Sequence[Any]) -> tuple[bool, int]:
    """Whether the index arrays are adjacent, and where their axes are in the result.

    As in NumPy: if they are not adjacent, their axes come first.
    """
    slots = [i for i, a in enumerate(indices) if a is not None]
    is_adjacent = slots[-1] - slots[0] + 1 == len(slots)
    return is_adjacent, slots[0] if is_adjacent else 0


def _as_index(a: Any) -> Any:
    """An index array that `take` accepts: it refuses unsigned ones of 64 bits."""
    return a.astype(np.intp) if a.dtype.kind == "u" else a


def _check_indices(indices: Sequence[Any], rank: int) -> None:
    """Raise unless these are index arrays for an array of so many axes."""
    given = [a.dtype for a in indices if a is not None]
    wrong = [dtype for dtype in given if not is_integer(dtype)]
    if wrong or not given:
        seen = f"an array of {wrong[0]}" if wrong else "none"
        raise ArgumentError(
            f"np::index and np::scatter_add take arrays of integers, got {seen}",
            do="call customop.getitem(x, key), which takes masks too",
        )
    if len(indices) > rank:
        raise ShapeError(
            f"too many indices: {len(indices)} for an array of {rank} axes",
            do="give at most one index array, or None, for each axis",
        )


def is_integer(dtype: Any) -> bool:
    """Whether index arrays may have a dtype."""
    return dtype_kind(dtype) in ("i", "u")


def _are_usual(indices: Sequence[Any], rank: int) -> bool:
    """Whether these are plain arrays of integers of one shape, for the first axes."""
    places = getattr(indices[0], "shape", None) if indices else None
    return 0 < len(indices) <= rank and all(
        type(a) is np.ndarray and a.dtype.kind in "iu" and a.shape == places
        for a in indices
    )


def _gather(x: Any, indices: Sequence[Any], packed: bool) -> Any:
    """Elements by index arrays, which lie in memory as NumPy's."""
    is_usual = _are_usual(indices, x.ndim)
    if is_usual and len(indices) > 1 and indices[0].ndim == 1 and not packed:
        return x[tuple(indices)]  # as below, in half of the time
    if not is_usual:
        _check_indices(indices, x.ndim)
    slots = [i for i, a in enumerate(indices) if a is not None]
    is_line = slots == [0] and x.flags.c_contiguous
    if is_line and not packed and x.ndim == 1 < indices[0].ndim:
        is_line = indices[0].flags.c_contiguous
    # It is quicker, and in C order. Without elements it does not look at the indices.
    if x.size and (is_line or (packed and len(slots) == 1)):
        return np.take(x, _as_index(indices[slots[0]]), axis=slots[0])
    places = indices if len(slots) == x.ndim else map(_in_c_order, indices)
    out = x[tuple([slice(None) if a is None else a for a in places])]
    if not any(indices[i].ndim for i in slots):
        return out.copy("K")  # for NumPy they are integers, which give a view
    return in_c_order(out) if packed else out


def _in_c_order(indices: Any) -> Any:
    """Index arrays whose order in memory does not become that of the elements."""
    is_line = indices is None or indices.ndim < 2
    return indices if is_line else np.ascontiguousarray(indices)


def _gather_on_gpu(x: Any, indices: Sequence[Any], packed: bool) -> Any:
    _check_indices(indices, x.ndim)
    return in_c_order(x[tuple([slice(None) if a is None else a for a in indices])])


def _gather_any(x: Any, indices: Sequence[Any], packed: bool) -> Any:
    _check_indices(indices, len(x.shape))
    return gathered(x, indices, layout(indices)[1])


# `packed` is for results in C order, such as those of `numpy.take`.
index_: Operator[..., Any] = numpy_operator(
    "index",
    "(Array x, Array?[] indices, bool packed=False) -> Array",
    _gather_any,
)
index_.register_kernel("cpu", _gather)
index_.register_kernel("cuda", _gather_on_gpu)


def gathered_shape(shape: Sequence[int], indices: Sequence[Any]) -> tuple[int, ...]:
    """Shape of the elements that index arrays take."""
    _check_indices(indices, len(shape))
    given = [tuple(a.shape) for a in indices if a is not None]
    places = given[0] if len(given) == 1 else broadcast(*given)
    kept = [n for n, a in zip(shape, indices, strict=False) if a is None]
    at = layout(indices)[1]
    rest = shape[len(indices) :]
    return (*kept[:at], *places, *kept[at:], *rest)


def check_bounds(x: Any, indices: Sequence[Any]) -> None:
    """Raise NumPy's error for an index of known value beyond an axis of a fake array.

    Kernels see for themselves what lies beyond a real one.
    """
    below = x
    while isinstance(below, Tracer):
        below = below.below
    if type(below) is not FakeArray:
        return
    plain = [a if type(a) is np.ndarray else None for a in indices]
    if any(a is not None and not a.size for a in plain):
        return  # NumPy does not look at indices into no elements
    for axis, (length, a) in enumerate(zip(x.shape, plain, strict=False)):
        if (
            a is not None
            and type(length) is int
            and not (-length <= a.min() <= a.max() < length)
        ):
            beyond = a[(a < -length) | (a >= length)].flat[0]
            raise IndexError(
                f"index {beyond} is out of bounds for axis {axis} with size {length}"
            )


@index_.register_fake
def _(x: Any, indices: Any, packed: bool) -> FakeArray:
    shape, device = gathered_shape(x.shape, indices), device_of(x)
    if packed or device != "cpu":
        return FakeArray(shape, x.dtype, device=device)
    return FakeArray(shape, x.dtype, _gathered_strides(x, shape, indices), device)


def _gathered_strides(
    x: Any, shape: Sequence[Any], indices: Sequence[Any]
) -> tuple[Any, ...]:
    """Strides of the elements that index arrays take.

    The axes of the index arrays are the slowest, in C order, wherever they are in the
    shape. Those of the array that stay are as in `numpy.empty_like`. If none stays, the
    order is that of the index arrays. Seen in NumPy 2.4.
    """
    at = layout(indices)[1]
    stays = [i for i in range(len(x.shape)) if i >= len(indices) or indices[i] is None]
    if not stays:
        return keep_order(indices, x.dtype).strides
    count = len(shape) - len(stays)
    part = FakeArray(
        [x.shape[i] for i in stays], x.dtype, [x.strides[i] for i in stays]
    )
    order = [i for i in range(len(shape)) if at <= i < at + count]
    rest = [i for i in range(len(shape)) if not at <= i < at + count]
    like = typical(fake_like(part).strides)
    order += [i for _, i in sorted(zip([-s for s in like], rest, strict=True))]
    return FakeArray(shape, x.dtype, order=order).strides


def _check_scattered(g: Any, shape: Sequence[int], indices: Sequence[Any]) -> None:
    """Raise unless `g` has the shape of the elements at those places.

    `add.at` of NumPy 2.4.6 reads beyond the memory of `g` if it has to broadcast it.
    """
    expected = gathered_shape(shape, indices)
    if tuple(g.shape) != expected:
        raise ShapeError(
            f"np::scatter_add: g has the shape {tuple(g.shape)}, the places {expected}",
            do="broadcast g to the shape of the places",
        )


def _scatter(g: Any, shape: Sequence[int], indices: Sequence[Any]) -> Any:
    _check_scattered(g, shape, indices)
    return scattered(g, shape, indices, layout(indices)[1])


def _scatter_in_place(g: Any, shape: Sequence[int], indices: Sequence[Any]) -> Any:
    is_usual = _are_usual(indices, len(shape))
    if not is_usual or g.shape != (*indices[0].shape, *shape[len(indices) :]):
        _check_scattered(g, shape, indices)
    return _added_at(g, shape, indices)


def _added_at(g: Any, shape: Sequence[int], indices: Sequence[Any]) -> Any:
    """Zeros with `g`, which has the shape of the places, added there."""
    zeros = np.zeros(tuple(shape), g.dtype)
    key: Any = tuple([slice(None) if a is None else a for a in indices])
    if g.size:  # indices into no elements may be out of bounds
        np.add.at(zeros, key, g)
    return zeros


# The transpose of `np::index`: zeros with `g` added at the places read.
scatter_add: Operator[..., Any] = numpy_operator(
    "scatter_add",
    "(Array g, int[] shape, Array?[] indices) -> Array",
    _scatter,
)
scatter_add.register_kernel("cpu", _scatter_in_place)


@scatter_add.register_fake
def _(g: Any, shape: Any, indices: Any) -> FakeArray:
    _check_scattered(g, shape, indices)
    return FakeArray(shape, g.dtype, device=device_of(g))


@scatter_add.register_kernel("cuda")
def _(g: Any, shape: Any, indices: Any) -> Any:
    import cupy  # noqa: PLC0415  # optional: imported only for a CUDA array

    zeros = cupy.zeros(tuple(shape), g.dtype)
    key = tuple([slice(None) if a is None else a for a in indices])
    cupy.add.at(zeros, key, g)
    return zeros


def _read_at(g: Any, indices: Any) -> Any:
    return index_.run(g, indices, False)


def _scattered(g: Any, shape: Any, indices: Any) -> Any:
    if type(g) is np.ndarray and _are_plain(indices):
        return _added_at(g, shape, indices)
    return scatter_add.run(g, [*shape], indices)


def _are_plain(indices: Sequence[Any]) -> bool:
    """Whether no index is traced, as one is in ``vmap(grad(lambda x: x[i]))``."""
    for a in indices:  # noqa: SIM110  # all() takes twice as long
        if a is not None and type(a) is not np.ndarray:
            return False
    return True


index_.register_autograd(
    partials(
        {
            "x": (_scattered, ["x_shape", "indices"]),
            "indices": None,
        }
    )
)
scatter_add.register_autograd(partials({"g": _read_at, "indices": None}))


register_linear_jvp(index_)
register_linear_jvp(scatter_add)


# ---- batches of index arrays ----


def rank_of(indices: Sequence[Any], dims: Sequence[Any]) -> int:
    """The largest number of axes of the index arrays of a row."""
    pairs = zip(indices, dims, strict=True)
    return max(a.ndim - (d is not None) for a, d in pairs if a is not None)


def _aligned(a: Any, dim: int | None, rank: int) -> Any:
    """An index array with its batch first, and rows of `rank` axes."""
    if a is None or dim is None:
        return a
    return padded_rows(batch_first(a, dim), rank)


def constant(array: Any, like: Any) -> Any:
    """A NumPy array of indices, moved to the device of another array."""
    if type(array) is not np.ndarray:
        return array
    device = device_of(like)
    if device == "cpu" or "cpu" in array_kind(device).accepts:
        return array
    return from_list(like, array.ravel().tolist(), list(array.shape), array.dtype)


def numbers(start: Any, stop: Any, like: Any) -> Any:
    """The integers from `start` to `stop` on the device of another array."""
    if type(start) is int and type(stop) is int:
        return constant(np.arange(start, stop), like)
    return arange(start, stop, 1, np.dtype(np.intp), device_of(like))


def with_rows(
    like: Any, size: int, indices: Sequence[Any], dims: Sequence[Any], rank: int
) -> list[Any]:
    """Index arrays for a batch; the first one counts its rows."""
    rows = np.reshape(numbers(0, size, like), (size, *(1,) * rank))
    pairs = zip(indices, dims, strict=True)
    return [rows, *[_aligned(a, d, rank) for a, d in pairs]]


@index_.register_vmap
def _(info: Any, in_dims: Any, x: Any, indices: Any, packed: bool) -> Any:
    dim, dims, _ = in_dims
    rank = rank_of(indices, dims)
    is_adjacent, at = layout(indices)
    if all(d is None for d in dims):
        out = index_(batch_first(x, dim), [None, *indices], packed)
        return out, 0 if is_adjacent else rank
    if dim is None:
        pairs = zip(indices, dims, strict=True)
        return index_(x, [_aligned(a, d, rank) for a, d in pairs], packed), at
    first = batch_first(x, dim)
    out = index_(first, with_rows(x, info.batch_size, indices, dims, rank), packed)
    if at and rank:
        own, there = range(1, 1 + rank), range(1 + at, 1 + at + rank)
        out = np.moveaxis(out, tuple(own), tuple(there))
    return out, 0


@scatter_add.register_vmap
def _(info: Any, in_dims: Any, g: Any, shape: Any, indices: Any) -> Any:
    dim, dims = in_dims[0], in_dims[2]
    rank = rank_of(indices, dims)
    is_adjacent, at = layout(indices)
    wide = (info.batch_size, *shape)
    if all(d is None for d in dims):
        turned = np.moveaxis(g, dim, 0 if is_adjacent else rank)
        return scatter_add(turned, wide, [None, *indices]), 0
    first = batch_first(g, dim, info.batch_size)
    if at and rank:
        own, there = range(1 + at, 1 + at + rank), range(1, 1 + rank)
        first = np.moveaxis(first, tuple(own), tuple(there))
    return scatter_add(
        first, wide, with_rows(g, info.batch_size, indices, dims, rank)
    ), 0
