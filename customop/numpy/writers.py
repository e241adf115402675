"""Functions that write an array: copyto, put, place, fill_diagonal, and ufunc.at."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from customop import (
    ArgumentError,
    FakeArray,
    Tracer,
    getitem,
    register_numpy_function,
    sizes,
)
from customop.numpy.arguments import (
    as_array,
    cast,
    dtype_of,
    is_below,
    is_known,
    larger,
    numpy_refuses,
    only,
    product,
    same_size,
    shape_of,
    smaller,
)
from customop.numpy.index_operators import (
    ALL,
    check_scattered,
    numbers,
    scatter_add,
    slice_,
    spread_to,
)
from customop.numpy.indexing import parts_of, read_number, value_for, values_at
from customop.numpy.rules import require, whole_operator

# ---- all elements, or those of a mask ----


@register_numpy_function(np.copyto)
def _(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    _check_box("np.copyto", dst)
    if not hasattr(src, "shape") and not isinstance(src, list | tuple):
        number, src = src, np.empty((), dst.dtype)
        np.copyto(src, number, casting)  # raises as NumPy does
    elif isinstance(src, list | tuple):
        src = as_array(src)
    _check_cast(src, dst, casting)
    if hasattr(where, "shape") and not isinstance(where, np.generic):
        like: Any = np.empty((), dtype_of(where))
        np.copyto(np.zeros(()), 0.0, where=like)  # raises as NumPy does
    if src is dst:
        return
    value = spread_to(value_for(dst, src), dst.shape)
    dst[...] = value if where is True else np.where(where, value, dst)


@register_numpy_function(np.putmask)
def _(a: Any, mask: Any, values: Any) -> None:
    _check_box("np.putmask", a)
    _check_safe(values, a)
    if _is_empty(values):
        return
    line = _repeated(value_for(a, values), product(a.shape))
    a[...] = np.where(mask, np.reshape(line, a.shape), a)


@register_numpy_function(np.place)
def _(arr: Any, mask: Any, vals: Any) -> None:
    _check_box("np.place", arr)
    _check_safe(vals, arr)
    if not isinstance(mask, Tracer | FakeArray):
        if _is_empty(vals) and np.any(mask):
            numpy_refuses(np.place, np.zeros(1), [True], [])
        np.put(arr, np.flatnonzero(mask), vals)
        return
    # The first place of the mask takes the first value, and so on.
    size = product(arr.shape)
    if product(mask.shape) != size:
        numpy_refuses(np.place, np.zeros(2), [True], [0.0])
    line = np.reshape(value_for(arr, vals), (-1,))
    flags = np.not_equal(np.reshape(mask, (-1,)), 0)
    if is_known(line.shape[0], 0):
        require(np.logical_not(np.any(flags)), "Cannot insert from an empty array!")
        return
    places = np.remainder(np.maximum(np.cumsum(flags) - 1, 0), line.shape[0])
    new = np.where(flags, getitem(line, places), np.reshape(arr, (-1,)))
    arr[...] = np.reshape(new, arr.shape)


def _repeated(values: Any, count: int) -> Any:
    """Return values in a line, repeated or cut to a length."""
    line = np.reshape(as_array(values), (-1,))
    if same_size(line.shape[0], count):
        return line
    places = np.remainder(numbers(0, count, line), larger(line.shape[0], 1))
    return getitem(line, places)


# ---- elements by their numbers ----


@register_numpy_function(np.put)
def _(a: Any, ind: Any, v: Any, mode: Any = "raise") -> None:
    _check_box("np.put", a)
    only("np.put", mode=(mode, "raise", "wrap", "clip"))
    if _is_empty(v):
        return  # before any place is looked at
    size = product(a.shape)
    places = np.ravel(_plain("np.put", ind))
    if mode == "wrap":
        places = places % size
    elif mode == "clip":
        places = np.clip(places, 0, size - 1)
    elif places.size and (
        is_below(int(places.min()), -size) or is_below(size - 1, int(places.max()))
    ):
        raise IndexError(f"an index of np.put is out of bounds for {size} elements")
    if not places.size:
        return
    if isinstance(v, list | tuple):
        v = read_number(a, v)
    values = _repeated(value_for(a, v), places.size)
    if not a.shape:
        a[...] = values[-1]
        return
    a[np.unravel_index(np.remainder(places, size), tuple(a.shape))] = values


@register_numpy_function((np.flatiter, "__setitem__"))
def _(x: Any, place: tuple[int, ...], value: Any) -> None:
    """Write one element of ``x.flat``."""
    is_one = isinstance(value, Tracer)
    x[place] = read_number(x, value, is_flat=True) if is_one else value


def _is_empty(values: Any) -> bool:
    given = as_array(values) if isinstance(values, list | tuple) else values
    return is_known(product(shape_of(given)), 0)


def _plain(name: str, indices: Any) -> Any:
    """Return indices as a NumPy array; raise for those that a transform follows."""
    if isinstance(indices, Tracer | FakeArray):
        raise ArgumentError(
            f"{name}: the indices are {type(indices).__name__}, must be plain integers",
            do="write x[indices] = values",
        )
    return np.asarray(indices).astype(np.intp)


@register_numpy_function(np.fill_diagonal)
def _(a: Any, val: Any, wrap: bool = False) -> None:
    _check_box("np.fill_diagonal", a)
    if sizes.is_symbolic(a.shape):
        _fill_diagonal(a, val, wrap)
        return
    # NumPy finds the places, and says which arrays have a diagonal.
    marks = np.zeros(tuple(a.shape), bool)
    np.fill_diagonal(marks, val=True, wrap=wrap)
    np.put(a, np.flatnonzero(marks), val)


def _fill_diagonal(a: Any, val: Any, wrap: bool) -> None:
    """Fill the diagonal of an array of symbolic sizes."""
    if a.ndim < 2:
        numpy_refuses(np.fill_diagonal, np.zeros(1), 0.0)
    if a.ndim > 2 and any(n != a.shape[0] for n in a.shape[1:]):
        numpy_refuses(np.fill_diagonal, np.zeros((1, 1, 2)), 0.0)
    rows, columns = a.shape[0], a.shape[-1]
    count = smaller(rows, columns)
    if a.ndim == 2 and wrap:
        count = (rows * columns + columns) // (columns + 1)
    places = numbers(0, count, a)
    key = [places] * a.ndim
    if a.ndim == 2 and wrap:
        flat = places * (columns + 1)
        key = [flat // columns, np.remainder(flat, columns)]
    a[tuple(key)] = _repeated(value_for(a, val), count)


@register_numpy_function(np.put_along_axis)
def _(arr: Any, indices: Any, values: Any, axis: Any) -> None:
    _check_box("np.put_along_axis", arr)
    if axis is None:
        np.put(arr, indices, values)
        return
    rank = len(arr.shape)
    at = normalize_axis_index(axis, rank)
    key = [
        np.reshape(numbers(0, n, arr), (-1, *(1,) * (rank - i - 1)))
        for i, n in enumerate(arr.shape)
    ]
    arr[(*key[:at], indices, *key[at + 1 :])] = values


# ---- ufunc.at ----


def _sums(ufunc: np.ufunc, x: Any, arrays: Sequence[Any], values: Any) -> Any:
    """Add or subtract values at places, also places that are named twice."""
    return _sums_at(x, list(arrays), values, ufunc is np.subtract)


def _sums_by_zeros(x: Any, indices: Any, values: Any, negative: bool) -> Any:
    values = cast(values, x.dtype)  # two flags, or two small integers, add up in it
    moved = scatter_add(values, tuple(x.shape), indices)
    return np.subtract(x, moved) if negative else np.add(x, moved)


def _sums_in_place(x: Any, indices: Any, values: Any, negative: bool) -> Any:
    check_scattered(values, x.shape, indices)
    out, values = np.copy(x, order="K"), values.astype(x.dtype)
    key: Any = tuple([slice(None) if a is None else a for a in indices])
    if values.size:  # indices into no elements may be out of bounds
        (np.subtract if negative else np.add).at(out, key, values)
    return out


_sums_at = whole_operator(
    "sums_at",
    "(Array x, Array?[] indices, Array values, bool negative) -> Array",
    _sums_by_zeros,
    _sums_in_place,
)
_sums_at.register_sample_inputs(
    lambda: [
        (np.arange(4.0), [np.array([0, 2, 0])], np.array([0.5, 1.5, -3.0]), False),
        (np.ones(2, np.float32), [np.array([1])], np.array([2.0], np.float32), True),
        (np.ones((3, 2)), [None, np.array([1, 1])], np.full((3, 2), 0.7), True),
    ]
)


def _in_turns(ufunc: np.ufunc, x: Any, arrays: Sequence[Any], values: Any) -> Any:
    """Apply a ufunc at places; a place that is named twice takes two turns."""
    key = [slice(None) if a is None else _plain(_at_name(ufunc), a) for a in arrays]
    numbers = np.arange(math.prod(x.shape)).reshape(tuple(x.shape))[tuple(key)]
    line = np.reshape(np.copy(x), (-1,))
    operands = () if values is None else (np.reshape(values, (-1,)),)
    for chosen in _turns(numbers.ravel()):
        places = numbers.ravel()[chosen]
        old = line[places]
        line[places] = ufunc(old, *[v[chosen] for v in operands])
    return np.reshape(line, x.shape)


def _turns(places: Any) -> list[Any]:
    """Split the positions of the places so that no turn has a place twice."""
    order = np.argsort(places, kind="stable")
    starts = np.flatnonzero(np.r_[True, np.diff(places[order]) != 0])
    lengths = np.diff(np.r_[starts, places.size])
    turn = np.empty(places.size, int)
    turn[order] = np.arange(places.size) - np.repeat(starts, lengths)
    return [np.flatnonzero(turn == k) for k in range(turn.max(initial=-1) + 1)]


def _at_name(ufunc: np.ufunc) -> str:
    return f"np.{ufunc.__name__}.at"


def _register_at(ufunc: np.ufunc) -> None:
    def at(a: Any, indices: Any, *operands: Any) -> None:
        name = _at_name(ufunc)
        _check_box(name, a)
        if a.dtype.kind in "biu":  # NumPy makes arrays of numbers, and casts in the end
            operands = tuple([as_array(v) if type(v) is int else v for v in operands])
        entries, arrays, is_split = parts_of(a, indices)
        view = a if all(e == ALL for e in entries) else slice_(a, entries)
        if not arrays:
            # A view: each place is there once.
            a[indices] = ufunc(a[indices], *operands)
            return
        sample = ufunc(np.ones(1, a.dtype), *[_one_of(v) for v in operands])
        # NumPy casts after each turn, to any dtype.
        adds = ufunc in (np.add, np.subtract) and sample.dtype == a.dtype
        change = _sums if adds else _in_turns
        values = None
        if operands:
            given = as_array(operands[0])
            values = values_at(given, view.shape, arrays, is_split=is_split)
        new = change(ufunc, view, arrays, values)
        view.box_write(new.astype(a.dtype) if new.dtype != a.dtype else new)

    register_numpy_function((ufunc, "at"), at)


def _one_of(value: Any) -> Any:
    """Return an array of one element of a value's dtype; numbers as they are."""
    dtype = getattr(value, "dtype", None)
    return value if dtype is None else np.ones(1, dtype)


for _each in vars(np).values():
    if isinstance(_each, np.ufunc) and _each.nout == 1 and not _each.signature:
        _register_at(_each)


# ---- checks before a write ----


def _check_box(name: str, x: Any) -> None:
    """Raise unless traced values can be written into an array."""
    if not isinstance(x, Tracer | FakeArray):
        raise ArgumentError(
            f"{name} would write a traced value into a plain array",
            do="make the array by np.zeros_like(x) of a traced x, or by np.zeros(shape,"
            " like=x)",
        )


def _check_cast(value: Any, x: Any, casting: Any) -> None:
    """Raise where NumPy does not cast the value to the dtype of the array."""
    dtype = getattr(value, "dtype", None)
    if dtype is not None and not np.can_cast(dtype, x.dtype, casting):
        raise ArgumentError(
            f"cannot cast from {dtype} to {x.dtype} (casting={casting!r})",
            do="write x[...] = value, which casts, or use value.astype(x.dtype)",
        )


def _check_safe(values: Any, x: Any) -> None:
    """Raise where NumPy does not cast values safely; of scalars it casts any."""
    is_scalar = isinstance(values, np.generic) or getattr(
        values, "box_is_scalar", False
    )
    if not is_scalar:
        _check_cast(values, x, "safe")
