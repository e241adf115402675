"""The operator for views by integers, slices and new axes, ``np::slice``, and its transpose."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from customop import FakeArray, Operator, ShapeError, axis_rule, is_view, prepared
from customop.numpy.arguments import OF_NUMPY
from customop.numpy.fakes import device_of
from customop.numpy.rules import batch_first, numpy_operator, register_linear
from customop.numpy.sizes import sliced

__all__ = ["ALL", "check_placed", "key_of", "slice_", "view_shape"]

# An entry of the key of `np::slice` is [] for a new axis, [i] for an integer, or
# [start, stop, step]. This one keeps an axis as it is.
ALL: list[int | None] = [None, None, None]


def key_of(entries: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
    """The key that NumPy takes."""
    return tuple(
        [slice(*e) if len(e) == 3 else e[0] if len(e) == 1 else None for e in entries]
    )


slice_: Operator[..., Any] = numpy_operator(
    "slice",
    "(Array(a) x, int?[][] key) -> Array(a)",
    prepared(lambda x, key: x[key_of(key)], lambda key: itemgetter(key_of(key))),
)


def _view(
    lengths: Sequence[int], steps: Sequence[int], key: Sequence[Sequence[Any]]
) -> tuple[list[int], list[int]]:
    """Shape and strides of the view, from those of the array."""
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


@slice_.register_fake
def _(x: Any, key: Any) -> FakeArray:
    shape, strides = _view(x.shape, x.strides, key)
    return FakeArray(shape, x.dtype, strides, device_of(x))


def _moved_key(shape: Any, dim: int, key: Any) -> tuple[Sequence[Any], int]:
    """The key for a batch, whose axis stays in front of the entry that comes next."""
    at = number = 0
    for entry in key:
        if number == dim:
            break
        number += len(entry) > 0
        at += 1
    moved = [*key[:at], *[ALL] * (dim - number + 1), *key[at:]]
    kept = sum(len(entry) != 1 for entry in key[:at])
    return [moved], kept + dim - number


slice_.register_vmap(axis_rule(slice_, _moved_key))


def view_shape(shape: Sequence[int], key: Sequence[Sequence[Any]]) -> tuple[int, ...]:
    """Shape of the view of an array of some shape."""
    return tuple(_view(shape, shape, key)[0])


def check_placed(
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
        check_placed("unslice", "g", g.shape, shape, key)
    zeros[at] = g
    return zeros


# The transpose of `np::slice`: zeros with `g` in the place of the view.
_unslice = numpy_operator(
    "unslice",
    "(Array g, int[] shape, int?[][] key) -> Array",
    _place,
)


@_unslice.register_fake
def _(g: Any, shape: Any, key: Any) -> FakeArray:
    check_placed("unslice", "g", g.shape, shape, key)
    return FakeArray(shape, g.dtype, device=device_of(g))


@_unslice.register_vmap
def _(info: Any, in_dims: Any, g: Any, shape: Any, key: Any) -> Any:
    first = batch_first(g, in_dims[0])
    return _unslice.run(first, [info.batch_size, *shape], [ALL, *key]), 0


# With an integer for each axis NumPy gives a scalar.
slice_.register(
    is_view,
    lambda strides, x, key: len(key) < x.ndim or not all(len(e) == 1 for e in key),
)


def _placed(g: Any, shape: Any, key: Any) -> Any:
    if isinstance(g, OF_NUMPY) and type(shape) is tuple:  # without symbolic sizes
        return _place(g, shape, key)  # half the time of the operator
    return _unslice.run(g, [*shape], key)


register_linear(slice_, _placed)
register_linear(_unslice, lambda g, own, shape, key: slice_.run(g, key))
