"""Orders of elements: partition, lexsort, sort_complex, searchsorted."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index as as_int
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from customop import (
    FakeArray,
    Operator,
    ShapeError,
    fake_like,
    partials,
    register_numpy_function,
)
from customop.numpy.arguments import (
    as_array,
    below_of,
    dtype_of,
    lined,
    only,
    refuse,
)
from customop.numpy.create import array_like
from customop.numpy.fakes import device_of
from customop.numpy.rules import (
    batch_first,
    is_complex,
    no_gradient,
    numpy_operator,
)
from customop.numpy.running import along_axis
from customop.numpy.sizes import are_equal, is_below, product, size_of, whole
from customop.numpy.sort import placed, stable_order

__all__ = ["bisected"]

# ---- partition ----


def _check_places(kth: Sequence[Any], shape: Sequence[Any], axis: int) -> None:
    length = shape[normalize_axis_index(axis, len(shape))]
    if any(n == 0 if type(n) is int else n.hint == 0 for n in shape):
        return  # NumPy does not look at the places
    for place in kth:
        if is_below(place, -length) or is_below(length - 1, place):
            raise ShapeError(
                f"kth(={place}) out of bounds ({length})",
                f"np.partition along axis {axis} of an array of shape {tuple(shape)}",
                do="give places that the axis has",
            )


def _kernel(name: str) -> Any:
    return lambda x, axis, kth: getattr(np, name)(x, tuple(kth), axis)


_SCHEMA = "(Array x, int axis, int[] kth) -> Array"
_partition: Operator[..., Any] = numpy_operator(
    "partition", _SCHEMA, _kernel("partition")
)
_argpartition: Operator[..., Any] = numpy_operator(
    "argpartition", _SCHEMA, _kernel("argpartition")
)


@_partition.register_fake
def _(x: Any, axis: Any, kth: Any) -> FakeArray:
    _check_places(kth, x.shape, axis)
    return fake_like(x)


@_argpartition.register_fake
def _(x: Any, axis: Any, kth: Any) -> FakeArray:
    _check_places(kth, x.shape, axis)
    return FakeArray(x.shape, np.intp, device=device_of(x))


_partition.register_vmap(along_axis(_partition))
_argpartition.register_vmap(along_axis(_argpartition))
no_gradient(_argpartition)
_argpartition.waive(
    "test_dtypes", reason="NumPy chooses the order of the elements on either side"
)


def _ranks(x: Any, axis: int) -> Any:
    """The place of each element after sorting; equal elements keep their order."""
    return np.argsort(np.argsort(x, axis, kind="stable"), axis)


def _moves(x: Any, y: Any, axis: int) -> Any:
    """Where the elements of `y`, the same as those of `x` in another order, come from."""
    return np.take_along_axis(np.argsort(x, axis, kind="stable"), _ranks(y, axis), axis)


def _unparted(g: Any, x: Any, y: Any, axis: int) -> Any:
    known, parted = below_of(x), below_of(y)
    if type(known) is type(parted) is np.ndarray and known.size:
        line = np.sort(known, axis)
        there, own = (stable_order(v, line, axis) for v in (parted, known))
        moves = placed(there, own, axis)
        if type(g) is np.ndarray and g.ndim == 1:
            return g[moves]
        return np.take_along_axis(g, moves, axis)
    return np.take_along_axis(g, _moves(y, x, axis), axis)


_partition.register_autograd(partials({"x": _unparted}, result="y"))


@_partition.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    x, axis, kth = primals
    y = _partition(x, axis, kth)
    return y, np.take_along_axis(tangents[0], _moves(x, y, axis), axis)


def _place(k: Any) -> Any:
    if isinstance(k, bool | np.bool_):
        raise ValueError("Booleans unacceptable as partition index")  # noqa: TRY004  # as NumPy
    return size_of(k)


def _register_partition(name: str, op: Operator[..., Any]) -> None:
    def partition(
        a: Any, kth: Any, axis: Any = -1, kind: Any = "introselect", order: Any = None
    ) -> Any:
        refuse(name, order=order)
        only(f"np.{name}", kind=(kind, "introselect"))
        places = [_place(k) for k in (kth if np.iterable(kth) else (kth,))]
        if axis is None:
            return op(np.ravel(a), 0, places)
        if op is _argpartition:
            return op(lined(a, axis), whole(axis), places)
        return op(a, axis, places)

    register_numpy_function(getattr(np, name), partition)


_register_partition("partition", _partition)
_register_partition("argpartition", _argpartition)


# ---- sorting by several keys ----


@register_numpy_function(np.lexsort)
def _(keys: Any, axis: int = -1) -> Any:
    given = [as_array(key) for key in keys]
    if not given:
        raise ShapeError(
            "need sequence of keys with len > 0 in lexsort", do="pass keys"
        )
    if len({len(key.shape) for key in given}) > 1 or not are_equal(
        [key.shape for key in given]
    ):
        raise ShapeError(
            "all keys need to be the same shape",
            f"np.lexsort: {', '.join(str(tuple(key.shape)) for key in given)}",
            do="broadcast them to one shape",
        )
    axis = as_int(axis)
    order = np.argsort(given[0], axis, kind="stable")
    if not given[0].shape:
        return np.reshape(order, ())
    for key in given[1:]:
        turn = np.argsort(np.take_along_axis(key, order, axis), axis, kind="stable")
        order = np.take_along_axis(order, turn, axis)
    return order


@register_numpy_function(np.sort_complex)
def _(a: Any) -> Any:
    ordered = np.sort(a)
    if is_complex(a):
        return ordered
    kind = dtype_of(a).char
    return ordered.astype("F" if kind in "bhBH" else "G" if kind == "g" else "D")


# ---- places in sorted arrays ----

_searchsorted = numpy_operator(
    "searchsorted",
    "(Array a, Array v, bool right=False, Array? sorter=None) -> Array",
    lambda a, v, right, sorter: np.searchsorted(
        a, v, "right" if right else "left", sorter
    ),
)
# Of a number NumPy gives an int.
_searchsorted.register_kernel(
    "cpu",
    lambda a, v, right, sorter: np.asarray(
        np.searchsorted(a, v, "right" if right else "left", sorter)
    )[()],
)
no_gradient(_searchsorted)
_searchsorted.waive(
    "test_vmap", reason="rows have to be sorted; NumPy finds other places in others"
)


@_searchsorted.register_sample_inputs
def _() -> list[tuple[Any, ...]]:
    a, v = np.array([-1.2, 0.3, 0.9, 2.1]), np.array([[0.4, -2.0], [0.9, 3.0]])
    return [
        (a[:2], np.array(0.4)),
        (a, v[0], True),
        (a[::-1].copy(), v, False, np.array([3, 2, 1, 0])),
    ]


@_searchsorted.register_fake
def _(a: Any, v: Any, right: bool, sorter: Any) -> FakeArray:
    if len(a.shape) != 1:
        raise ShapeError(
            "object of too small depth for desired array"
            if not a.shape
            else "object too deep for desired array",
            f"np.searchsorted in an array of shape {tuple(a.shape)}",
            do="give an array of one axis",
        )
    if sorter is not None and tuple(sorter.shape) != tuple(a.shape):
        raise ShapeError(
            "sorter.size must equal len(a)",
            f"np.searchsorted: {tuple(sorter.shape)} for {tuple(a.shape)}",
            do="use np.argsort(a)",
        )
    return FakeArray(v.shape, np.intp, device=device_of(v))


@_searchsorted.register_vmap
def _(info: Any, in_dims: Any, a: Any, v: Any, right: bool, sorter: Any) -> Any:
    if in_dims[0] is None and in_dims[3] is None:
        return _searchsorted(a, v, right, sorter), in_dims[1]
    size = info.batch_size
    rows = batch_first(a, in_dims[0], size)
    if sorter is not None:
        rows = np.take_along_axis(rows, batch_first(sorter, in_dims[3], size), 1)
    values = batch_first(v, in_dims[1], size)
    flat = np.reshape(values, (size, product(values.shape[1:])))
    return np.reshape(bisected(rows, flat, is_right=right), values.shape), 0


def bisected(rows: Any, values: Any, *, is_right: bool) -> Any:
    """For each value of a row, how many elements of the sorted row come before it."""
    dtype = np.result_type(dtype_of(rows), dtype_of(values))
    rows, values = rows.astype(dtype), values.astype(dtype)
    length = rows.shape[1]
    if type(length) is int:
        return _searched(rows, values, length, is_right=is_right)
    return _merged(rows, values, is_right=is_right)


def _merged(rows: Any, values: Any, *, is_right: bool) -> Any:
    """The counts by sorting both together, in as many steps for all lengths."""
    parts = (rows, values) if is_right else (values, rows)
    order = np.argsort(np.concatenate(parts, 1), 1, kind="stable")
    places = np.argsort(order, 1)
    count = values.shape[1]
    own = places[:, rows.shape[1] :] if is_right else places[:, :count]
    among = np.argsort(np.argsort(values, 1, kind="stable"), 1)
    return own - among


def _searched(rows: Any, values: Any, length: int, *, is_right: bool) -> Any:
    """The counts by a binary search: bit by bit, from the highest one."""
    count = np.zeros_like(values, dtype=np.intp)
    step = 1 << length.bit_length() >> 1
    while step:
        more = count + step
        known = np.take_along_axis(rows, np.minimum(more, length) - 1, 1)
        comes_before = (
            np.logical_not(_is_less(values, known))
            if is_right
            else _is_less(known, values)
        )
        count = np.where(comes_before & (more <= length), more, count)
        step >>= 1
    return count


def _is_less(a: Any, b: Any) -> Any:
    """Whether `a` comes before `b` in sorted arrays, where NaNs are last."""
    if dtype_of(a).kind not in "fc":
        return np.less(a, b)
    if not is_complex(a):
        return np.less(a, b) | (np.isnan(b) & _is_number(a))
    # Real parts, then imaginary parts; a NaN in either one puts a number last.
    # Source: the order of numpy.sort, NumPy 2.4.
    ar, ai, br, bi = np.real(a), np.imag(a), np.real(b), np.imag(b)
    first = (np.less(ar, br) & (_is_number(ai) | np.isnan(bi))) | (
        np.greater(ar, br) & np.isnan(bi) & _is_number(ai)
    )
    is_tie = np.equal(ar, br) | (np.isnan(ar) & np.isnan(br))
    second = is_tie & (np.less(ai, bi) | (np.isnan(bi) & _is_number(ai)))
    return first | second | (np.isnan(br) & _is_number(ar))


def _is_number(x: Any) -> Any:
    return np.logical_not(np.isnan(x))


@register_numpy_function(np.searchsorted)
def _(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    np.searchsorted(np.zeros(1), 0.0, side=side)  # type: ignore[call-overload]  # raises for unknown sides
    order = None if sorter is None else as_array(sorter)
    array = as_array(a)
    return _searchsorted(array, array_like(v, array), side[0] in "rR", order)
