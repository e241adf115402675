"""Operators behind indexing: index, slice, and copies with elements replaced.

Libraries differ in what several index arrays select, and most cannot add at places. These
kernels need one index array at a time, and matrix products. NumPy and CuPy have their own.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import itemgetter
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
    is_view,
    partials,
    prepared,
    write_back,
)
from customop.numpy.arguments import (
    OF_NUMPY,
    broadcast,
    copied,
    fits_into,
    in_c_order,
    is_inexact,
    is_one,
    product,
    same_shape,
    sliced,
    typical,
    wide_to,
)
from customop.numpy.create import arange, from_list
from customop.numpy.rules import (
    batch_first,
    device_of,
    dtype_kind,
    is_complex,
    keep_order,
    linear,
    numpy_operator,
    padded_rows,
    register_linear_jvp,
    with_count,
)

# ---- elements at places given by index arrays, for arrays of any kind ----


def _flat_places(lengths: Sequence[int], places: Sequence[Any]) -> Any:
    """Return places along several axes as places along one, in one axis.

    One that is out of bounds stays so.
    """
    flat: Any = 0
    fits: Any = True
    for place, n in zip(places, lengths, strict=True):
        fits = np.logical_and(fits, np.logical_and(place >= -n, place < n))
        flat = flat * n + np.where(place < 0, place + n, place)
    inside = np.where(fits, flat, math.prod(lengths))
    return np.reshape(inside, (math.prod(inside.shape),))


def _check_bounds(lengths: Sequence[int], places: Sequence[Any]) -> None:
    """Raise for an index of NumPy that is out of bounds."""
    for place, n in zip(places, lengths, strict=True):
        if isinstance(place, np.ndarray) and ((place < -n) | (place >= n)).any():
            raise IndexError(f"an index is out of bounds for an axis of length {n}")


def _gathered(x: Any, indices: Sequence[Any], at: int) -> Any:
    """Return the elements at index arrays; the axes of the arrays come at `at`."""
    slots = [i for i, a in enumerate(indices) if a is not None]
    lengths = [x.shape[i] for i in slots]
    places = np.broadcast_arrays(*[indices[i] for i in slots])
    _check_bounds(lengths, places)
    shape = tuple(places[0].shape)
    first = np.moveaxis(x, tuple(slots), tuple(range(len(slots))))
    rest = tuple(first.shape[len(slots) :])
    lines = np.reshape(first, (math.prod(lengths), *rest))
    found = np.take(lines, _flat_places(lengths, places), axis=0)
    found = np.reshape(found, (*shape, *rest))
    own = tuple(range(len(shape)))
    return np.moveaxis(found, own, tuple([at + i for i in own]))


def _sums(hot: Any, lines: Any) -> Any:
    """Return the sums of the lines that flags select.

    Infinite values and nan are added apart: 0 times them is nan.
    """
    if not is_inexact(lines):
        return np.matmul(hot.astype(lines.dtype), lines)
    is_pair = is_complex(lines)
    parts = (np.real(lines), np.imag(lines)) if is_pair else (lines,)
    kept = [np.where(np.isfinite(p), p, np.zeros_like(p)) for p in parts]
    finite = kept[0] + 1j * kept[1] if is_pair else kept[0]
    sums = np.matmul(hot.astype(lines.dtype), finite)
    for i, part in enumerate(parts):
        for value in (math.inf, -math.inf, math.nan):
            is_there = np.isnan(part) if math.isnan(value) else np.equal(part, value)
            dtype = part.dtype
            count = np.matmul(hot.astype(dtype), is_there.astype(dtype))
            number = complex(0.0, value) if i else value
            apart = np.full_like(sums, number)
            sums = sums + np.where(np.greater(count, 0), apart, np.zeros_like(sums))
    return sums


def scattered(g: Any, shape: Sequence[int], indices: Sequence[Any], at: int) -> Any:
    """Add `g` at index arrays to zeros: a product with a matrix of 0 and 1."""
    slots = [i for i, a in enumerate(indices) if a is not None]
    lengths = [shape[i] for i in slots]
    places = np.broadcast_arrays(*[indices[i] for i in slots])
    _check_bounds(lengths, places)
    own = tuple(range(len(places[0].shape)))
    first = np.moveaxis(g, tuple([at + i for i in own]), own)
    rest = tuple(first.shape[len(own) :])
    flat = _flat_places(lengths, places)
    hot = np.equal(np.arange(math.prod(lengths))[:, None], flat[None, :])
    lines = np.reshape(first, (flat.shape[0], math.prod(rest)))
    sums = _sums(hot, lines)
    whole = np.reshape(sums, (*lengths, *rest))
    return np.moveaxis(whole, tuple(range(len(slots))), tuple(slots))


# The operator for indexing by arrays, `np::index`, and its transpose, which adds.
#
# An index is taken apart into two operators: ``np::slice`` gives a view by
# integers, slices and new axes, ``np::index`` a copy by arrays of integers.


# ---- copies: arrays of integers ----


def layout(indices: Sequence[Any]) -> tuple[bool, int]:
    """Return whether index arrays are adjacent, and where the result has their axes.

    As in NumPy: if they are not adjacent, their axes come first.
    """
    slots = [i for i, a in enumerate(indices) if a is not None]
    is_adjacent = slots[-1] - slots[0] + 1 == len(slots)
    return is_adjacent, slots[0] if is_adjacent else 0


def _as_index(a: Any) -> Any:
    """Return an index array that `take` accepts; it refuses uint64."""
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
    """Return whether index arrays may have a dtype."""
    return dtype_kind(dtype) in ("i", "u")


def _are_usual(indices: Sequence[Any], rank: int) -> bool:
    """Return whether indices are plain, of one shape, and for the first axes."""
    places = getattr(indices[0], "shape", None) if indices else None
    return 0 < len(indices) <= rank and all(
        type(a) is np.ndarray and a.dtype.kind in "iu" and a.shape == places
        for a in indices
    )


def _gather(x: Any, indices: Sequence[Any], packed: bool) -> Any:
    """Return elements by index arrays, which lie in memory as NumPy's."""
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
    """Copy index arrays to C order, so that the result is in C order."""
    is_line = indices is None or indices.ndim < 2
    return indices if is_line else np.ascontiguousarray(indices)


def _gather_on_gpu(x: Any, indices: Sequence[Any], packed: bool) -> Any:
    _check_indices(indices, x.ndim)
    return in_c_order(x[tuple([slice(None) if a is None else a for a in indices])])


def _gather_any(x: Any, indices: Sequence[Any], packed: bool) -> Any:
    _check_indices(indices, len(x.shape))
    return _gathered(x, indices, layout(indices)[1])


# `packed` is for results in C order, such as those of `numpy.take`.
index_: Operator[..., Any] = numpy_operator(
    "index",
    "(Array x, Array?[] indices, bool packed=False) -> Array",
    _gather_any,
)
index_.register_kernel("cpu", _gather)
index_.register_kernel("cuda", _gather_on_gpu)


def gathered_shape(shape: Sequence[int], indices: Sequence[Any]) -> tuple[int, ...]:
    """Return the shape of the elements that index arrays take."""
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
    """Return the strides of the elements that index arrays take.

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


def check_scattered(g: Any, shape: Sequence[int], indices: Sequence[Any]) -> None:
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
    check_scattered(g, shape, indices)
    return scattered(g, shape, indices, layout(indices)[1])


def _scatter_in_place(g: Any, shape: Sequence[int], indices: Sequence[Any]) -> Any:
    is_usual = _are_usual(indices, len(shape))
    if not is_usual or g.shape != (*indices[0].shape, *shape[len(indices) :]):
        check_scattered(g, shape, indices)
    return _added_at(g, shape, indices)


def _added_at(g: Any, shape: Sequence[int], indices: Sequence[Any]) -> Any:
    """Return zeros with `g`, which has the shape of the places, added there."""
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
    check_scattered(g, shape, indices)
    return FakeArray(shape, g.dtype, device=device_of(g))


@scatter_add.register_kernel("cuda")
def _(g: Any, shape: Any, indices: Any) -> Any:
    key = tuple([slice(None) if a is None else a for a in indices])
    if g.dtype.kind == "c":
        return _added_on_gpu(g.real, shape, key) + 1j * _added_on_gpu(
            g.imag, shape, key
        )
    # Sums that wrap are the same in a wider dtype.
    wide = g if g.dtype.kind == "f" else g.astype(np.int64)
    return _added_on_gpu(wide, shape, key).astype(g.dtype, copy=False)


def _added_on_gpu(g: Any, shape: Any, key: Any) -> Any:
    """Add in a dtype that CuPy has atomic additions for."""
    import cupy  # noqa: PLC0415  # optional: imported only for a CUDA array

    zeros = cupy.zeros(tuple(shape), g.dtype)
    cupy.add.at(zeros, key, g)
    return zeros


def _read_at(g: Any, indices: Any) -> Any:
    return index_.run(g, indices, False)


def _scattered(g: Any, shape: Any, indices: Any) -> Any:
    if type(g) is np.ndarray and _are_plain(indices):
        return _added_at(g, shape, indices)
    return scatter_add.run(g, [*shape], indices)


def _are_plain(indices: Sequence[Any]) -> bool:
    """Return whether no index is traced, as in ``vmap(grad(lambda x: x[i]))``."""
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


def _rank_of(indices: Sequence[Any], dims: Sequence[Any]) -> int:
    """Return the largest number of axes of the index arrays of a row."""
    pairs = zip(indices, dims, strict=True)
    return max(a.ndim - (d is not None) for a, d in pairs if a is not None)


def _aligned(a: Any, dim: int | None, rank: int) -> Any:
    """Return an index array with its batch first, and rows of `rank` axes."""
    if a is None or dim is None:
        return a
    return padded_rows(batch_first(a, dim), rank)


def constant(array: Any, like: Any) -> Any:
    """Return a NumPy array of indices, moved to the device of another array."""
    if type(array) is not np.ndarray:
        return array
    device = device_of(like)
    if device == "cpu" or "cpu" in array_kind(device).accepts:
        return array
    return from_list(like, array.ravel().tolist(), list(array.shape), array.dtype)


def numbers(start: Any, stop: Any, like: Any) -> Any:
    """Return the integers from `start` to `stop` on the device of another array."""
    if type(start) is int and type(stop) is int:
        return constant(np.arange(start, stop), like)
    return arange(start, stop, 1, np.dtype(np.intp), device_of(like))


def _with_rows(
    like: Any, size: int, indices: Sequence[Any], dims: Sequence[Any], rank: int
) -> list[Any]:
    """Return index arrays for a batch, of which the first one counts the rows."""
    rows = np.reshape(numbers(0, size, like), (size, *(1,) * rank))
    pairs = zip(indices, dims, strict=True)
    return [rows, *[_aligned(a, d, rank) for a, d in pairs]]


@index_.register_vmap
def _(info: Any, in_dims: Any, x: Any, indices: Any, packed: bool) -> Any:
    dim, dims, _ = in_dims
    rank = _rank_of(indices, dims)
    is_adjacent, at = layout(indices)
    if all(d is None for d in dims):
        out = index_(batch_first(x, dim), [None, *indices], packed)
        return out, 0 if is_adjacent else rank
    if dim is None:
        pairs = zip(indices, dims, strict=True)
        return index_(x, [_aligned(a, d, rank) for a, d in pairs], packed), at
    first = batch_first(x, dim)
    out = index_(first, _with_rows(x, info.batch_size, indices, dims, rank), packed)
    if at and rank:
        own, there = range(1, 1 + rank), range(1 + at, 1 + at + rank)
        out = np.moveaxis(out, tuple(own), tuple(there))
    return out, 0


@scatter_add.register_vmap
def _(info: Any, in_dims: Any, g: Any, shape: Any, indices: Any) -> Any:
    dim, dims = in_dims[0], in_dims[2]
    rank = _rank_of(indices, dims)
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
        first, wide, _with_rows(g, info.batch_size, indices, dims, rank)
    ), 0


# ---- slices ----
# The operator for views by integers, slices and new axes, `np::slice`, and its
# transpose.


# An entry of the key of `np::slice` is [] for a new axis, [i] for an integer, or
# [start, stop, step]. This one keeps an axis as it is.
ALL: list[int | None] = [None, None, None]


def key_of(entries: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
    """Return the key that NumPy takes."""
    return tuple(
        [slice(*e) if len(e) == 3 else e[0] if len(e) == 1 else None for e in entries]
    )


def _view(
    lengths: Sequence[int], steps: Sequence[int], key: Sequence[Sequence[Any]]
) -> tuple[list[int], list[int]]:
    """Return shape and strides of the view, from those of the array."""
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
            n, step = sliced(entry, length)
            shape.append(n)
            strides.append(stride * step)
    return [*shape, *lengths[axis:]], [*strides, *steps[axis:]]


def _sliced_view(x: Any, key: Any) -> FakeArray:
    shape, strides = _view(x.shape, x.strides, key)
    return FakeArray(shape, x.dtype, strides, device_of(x))


def _moved_key(shape: Any, dim: int, key: Any) -> tuple[Sequence[Any], int]:
    """Return the key for a batch; its axis stays before the entry that comes next."""
    at = number = 0
    for entry in key:
        if number == dim:
            break
        number += len(entry) > 0
        at += 1
    moved = [*key[:at], *[ALL] * (dim - number + 1), *key[at:]]
    kept = sum(len(entry) != 1 for entry in key[:at])
    return [moved], kept + dim - number


def view_shape(shape: Sequence[int], key: Sequence[Sequence[Any]]) -> tuple[int, ...]:
    """Return the shape of the view of an array of some shape."""
    return tuple(_view(shape, shape, key)[0])


def _check_placed(
    name: str, g: str, own: Any, shape: Sequence[int], key: Sequence[Sequence[Any]]
) -> None:
    """Raise unless `g`, of the shape `own`, has the shape of the view."""
    expected = view_shape(shape, key)
    if tuple(own) != expected:
        raise ShapeError(
            f"np::{name}: {g} has the shape {tuple(own)}, the view {expected}",
            do=f"broadcast {g} to the shape of the view",
        )


def _place(g: Any, shape: Sequence[int], key: Sequence[Sequence[Any]]) -> Any:
    if isinstance(g, OF_NUMPY):  # half the time of np.zeros_like
        zeros = np.zeros(shape, g.dtype)
    else:
        zeros = np.zeros_like(g, shape=tuple(shape), order="C")
        if [] in key:  # not every library writes to a new axis
            key = [entry for entry in key if entry]
            g = np.reshape(g, view_shape(shape, key))
    at = key_of(key)
    if zeros[at].shape != g.shape:
        _check_placed("unslice", "g", g.shape, shape, key)
    zeros[at] = g
    return zeros if len(shape) else zeros[()]  # a scalar, as most calls give


def _fake_placed(g: Any, shape: Any, key: Any) -> FakeArray:
    _check_placed("unslice", "g", g.shape, shape, key)
    return FakeArray(shape, g.dtype, device=device_of(g))


def _placed(g: Any, shape: Any, key: Any) -> Any:
    if isinstance(g, OF_NUMPY) and type(shape) is tuple:  # without symbolic sizes
        return _place(g, shape, key)  # half the time of the operator
    return _unslice.run(g, [*shape], key)


slice_: Operator[..., Any] = linear(
    "slice",
    "(Array(a) x, int?[][] key) -> Array(a)",
    prepared(lambda x, key: x[key_of(key)], lambda key: itemgetter(key_of(key))),
    fake=_sliced_view,
    transpose=_placed,
    rows=_moved_key,
)
# With an integer for each axis NumPy gives a scalar.
slice_.register(
    is_view,
    lambda strides, x, key: len(key) < x.ndim or not all(len(e) == 1 for e in key),
)
# The transpose of `np::slice`: zeros with `g` in the place of the view.
_unslice: Operator[..., Any] = linear(
    "unslice",
    "(Array g, int[] shape, int?[][] key) -> Array",
    _place,
    fake=_fake_placed,
    transpose=lambda g, own, shape, key: slice_.run(g, key),
    rows={"shape": with_count, "key": lambda key, shape: [ALL, *key]},
)


# ---- operators for writing in place ----
# A copy of an array with some elements replaced.
#
# They are what ``x[key] = value`` computes for traced arrays. The second half says how
# views are written back into the array that they are views of.


def _replaced(x: Any, v: Any, key: Any) -> Any:
    out = copied(x)
    out[key] = v
    return out


def _zeros(like: Any, shape: Sequence[int]) -> Any:
    return np.zeros_like(like, shape=tuple(shape))


def _register_jvp(op: Operator[..., Any]) -> None:
    """Register jvp of ``op(x, v, places)``, linear in `x` and `v` together."""

    def jvp(primals: Any, tangents: Any) -> Any:
        x, v, places = primals
        tx, tv = tangents[:2]
        out = op(x, v, places)
        if tx is None and tv is None:
            return out, None
        tx = _zeros(x, x.shape) if tx is None else tx
        return out, op(tx, _zeros(x, v.shape) if tv is None else tv, places)

    op.register_jvp(jvp)


# ---- a view replaced: integers, slices, new axes ----

slice_set: Operator[..., Any] = numpy_operator(
    "slice_set",
    "(Array x, Array v, int?[][] key) -> Array",
    lambda x, v, key: _replaced(x, v, key_of(key)),
)
_register_jvp(slice_set)


@slice_set.register_fake
def _(x: Any, v: Any, key: Any) -> FakeArray:
    _check_placed("slice_set", "v", v.shape, x.shape, key)
    return fake_like(x)


@slice_set.register_vmap
def _(info: Any, in_dims: Any, x: Any, v: Any, key: Any) -> Any:
    first = batch_first(x, in_dims[0], info.batch_size)
    values = batch_first(v, in_dims[1], info.batch_size)
    return slice_set(first, values, [ALL, *key]), 0


# In a key that holds no symbolic size.
_NUMBERS = frozenset((int, type(None)))


def _without(g: Any, v_shape: Any, key: Any) -> Any:
    """Return a gradient with zeros in the place of the view."""
    if type(g) is np.ndarray and all(_NUMBERS.issuperset(map(type, e)) for e in key):
        found = g.copy()
        found[key_of(key)] = 0.0
        return found
    found = slice_set.run(g, _zeros(g, v_shape), key)
    if isinstance(found, Tracer) and not found.shape:
        found.box_pin()  # an array, also where it has no axes
    return found


slice_set.register_autograd(
    partials(
        {
            "x": (_without, ["v_shape", "key"]),
            "v": (lambda g, key: slice_.run(g, key), ["key"]),
        }
    )
)


# ---- elements replaced: arrays of integers ----


def _index_key(indices: Sequence[Any]) -> tuple[Any, ...]:
    return tuple([slice(None) if a is None else a for a in indices])


def _in_order(a: Any) -> Any:
    """Return indices or values in C order, so that the last value of a place stays.

    NumPy 2.4 goes through negative strides backward.
    """
    return a if a is None else in_c_order(a)


index_set: Operator[..., Any] = numpy_operator(
    "index_set",
    "(Array x, Array v, Array?[] indices) -> Array",
    lambda x, v, indices: _replaced(
        x, _in_order(v), _index_key([_in_order(a) for a in indices])
    ),
)
_register_jvp(index_set)


@index_set.register_fake
def _(x: Any, v: Any, indices: Any) -> FakeArray:
    expected = gathered_shape(x.shape, indices)
    if tuple(v.shape) != expected:
        raise ShapeError(
            f"np::index_set: v has the shape {tuple(v.shape)}, the places {expected}",
            do="broadcast v to the shape of the places",
        )
    return fake_like(x)


@index_set.register_vmap
def _(info: Any, in_dims: Any, x: Any, v: Any, indices: Any) -> Any:
    size = info.batch_size
    dim_x, dim_v, dims = in_dims
    rank = _rank_of(indices, dims)
    is_adjacent, at = layout(indices)
    first, values = batch_first(x, dim_x, size), batch_first(v, dim_v, size)
    if all(d is None for d in dims):
        turned = values if is_adjacent else np.moveaxis(values, 0, rank)
        return index_set(first, turned, [None, *indices]), 0
    if at and rank:
        own, there = range(1 + at, 1 + at + rank), range(1, 1 + rank)
        values = np.moveaxis(values, tuple(own), tuple(there))
    return index_set(first, values, _with_rows(x, size, indices, dims, rank)), 0


def _of_last(g: Any, shape: Any, whole: Any, indices: Any) -> Any:
    """Return the gradient of the values: of a place written twice, the last one stays.

    Of a place written twice, the last one stays.
    """
    order = np.reshape(numbers(0, product(shape), g), tuple(shape))
    zeros = np.zeros_like(g, shape=tuple(whole), dtype=order.dtype)
    last = index_(index_set(zeros, order, indices), indices)
    return index_(g, indices) * np.equal(last, order).astype(g.dtype)


index_set.register_autograd(
    partials(
        {
            "x": (
                lambda g, shape, indices: index_set.run(g, _zeros(g, shape), indices),
                ["v_shape", "indices"],
            ),
            "v": (_of_last, ["v_shape", "x_shape", "indices"]),
            "indices": None,
        }
    )
)


def spread_to(v: Any, shape: Sequence[int]) -> Any:
    """Return a value in the shape of the place that it is written to.

    As NumPy, it drops leading axes of length one.
    """
    own, shape = tuple(v.shape), tuple(shape)
    if same_shape(own, shape):
        return v
    extra = max(len(own) - len(shape), 0)
    if all(map(is_one, own[:extra])):
        v = np.reshape(v, own[extra:]) if extra else v
        missing = len(shape) - len(v.shape)
        if all(map(fits_into, v.shape, shape[missing:])):
            return wide_to(v, shape)
    raise ShapeError(
        f"could not broadcast input array from shape {own} into shape {shape}",
        do="give a value that broadcasts to the place that it is written to",
    )


@slice_.register(write_back)
def _(new: Any, x: Any, key: Any) -> Any:
    return slice_set(x, new, key)
