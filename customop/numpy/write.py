"""Operators for writing in place: a copy of an array with some elements replaced.

They are what ``x[key] = value`` computes for traced arrays. The second half says how
views are written back into the array that they are views of.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from customop import (
    FakeArray,
    Operator,
    ShapeError,
    fake_like,
    partials,
    write_back,
)
from customop.numpy.arguments import copied, in_c_order
from customop.numpy.index import (
    gathered_shape,
    index_,
    layout,
    numbers,
    rank_of,
    with_rows,
)
from customop.numpy.rules import batch_first, numpy_operator
from customop.numpy.sizes import fits_into, is_one, product, same_shape, wide_to
from customop.numpy.slices import ALL, check_placed, key_of, slice_

__all__ = ["index_set", "slice_set", "spread_to"]


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
    check_placed("slice_set", "v", v.shape, x.shape, key)
    return fake_like(x)


@slice_set.register_vmap
def _(info: Any, in_dims: Any, x: Any, v: Any, key: Any) -> Any:
    first = batch_first(x, in_dims[0], info.batch_size)
    values = batch_first(v, in_dims[1], info.batch_size)
    return slice_set(first, values, [ALL, *key]), 0


# In a key that holds no symbolic size.
_NUMBERS = frozenset((int, type(None)))


def _without(g: Any, v_shape: Any, key: Any) -> Any:
    """A gradient with zeros in the place of the view."""
    if type(g) is np.ndarray and all(_NUMBERS.issuperset(map(type, e)) for e in key):
        found = g.copy()
        found[key_of(key)] = 0.0
        return found
    return slice_set.run(g, _zeros(g, v_shape), key)


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
    """Indices or values in C order: of a place written twice, the last value stays.

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
    rank = rank_of(indices, dims)
    is_adjacent, at = layout(indices)
    first, values = batch_first(x, dim_x, size), batch_first(v, dim_v, size)
    if all(d is None for d in dims):
        turned = values if is_adjacent else np.moveaxis(values, 0, rank)
        return index_set(first, turned, [None, *indices]), 0
    if at and rank:
        own, there = range(1 + at, 1 + at + rank), range(1, 1 + rank)
        values = np.moveaxis(values, tuple(own), tuple(there))
    return index_set(first, values, with_rows(x, size, indices, dims, rank)), 0


def _of_last(g: Any, shape: Any, whole: Any, indices: Any) -> Any:
    """The gradient of the values: of a place written twice, the last value stays."""
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
    """A value in the shape of the place that it is written to.

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
