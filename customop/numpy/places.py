"""Numbers of elements and bits: ravel_multi_index, unravel_index, ix_, packbits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from customop import (
    FakeArray,
    Operator,
    ShapeError,
    fake_like,
    register_numpy_function,
)
from customop.numpy.arguments import as_array, as_ints, dtype_of, lined, only
from customop.numpy.create import full
from customop.numpy.fakes import device_of, keep_order, packed_as
from customop.numpy.index import numbers
from customop.numpy.rules import (
    batch_first,
    no_gradient,
    numpy_operator,
    padded_rows,
)
from customop.numpy.running import along_axis
from customop.numpy.sizes import is_below

__all__: list[str] = []

# ---- numbers of elements ----

_ravel_multi_index: Operator[..., Any] = numpy_operator(
    "ravel_multi_index",
    "(Array[] indices, int[] dims, str[] modes, str order) -> Array",
    lambda indices, dims, modes, order: np.asarray(
        np.ravel_multi_index(tuple(indices), tuple(dims), tuple(modes), order)
    )[()],
)
no_gradient(_ravel_multi_index)
_ravel_multi_index.register_sample_inputs(
    lambda: [
        ([np.array(1), np.array(2)], [2, 3], ["raise", "raise"], "C"),
        ([np.array([0, 1, 1]), np.array([2, 0, 1])], [2, 3], ["raise", "raise"], "F"),
        ([np.array([[0], [1]]), np.array([-4, 7])], [2, 3], ["clip", "wrap"], "C"),
    ]
)


@_ravel_multi_index.register_fake
def _(indices: Any, dims: Any, modes: Any, order: Any) -> FakeArray:
    if len(indices) != len(dims):
        raise ShapeError(
            f"parameter multi_index must be a sequence of length {len(dims)}",
            f"np.ravel_multi_index: it has {len(indices)} entries",
            do="give an index for each length",
        )
    return keep_order(indices, np.dtype(np.intp))


@_ravel_multi_index.register_vmap
def _(info: Any, in_dims: Any, indices: Any, dims: Any, modes: Any, order: Any) -> Any:
    pairs = list(zip(indices, in_dims[0], strict=True))
    rank = max(a.ndim - (d is not None) for a, d in pairs)
    rows = [a if d is None else padded_rows(batch_first(a, d), rank) for a, d in pairs]
    return _ravel_multi_index(rows, dims, modes, order), 0


@register_numpy_function(np.ravel_multi_index)
def _(multi_index: Any, dims: Any, mode: Any = "raise", order: str = "C") -> Any:
    indices = [as_array(index) for index in multi_index]
    modes = list(mode) if isinstance(mode, tuple | list) else [mode] * len(indices)
    _check_option("clipmode", modes, ("clip", "raise", "wrap"))
    _check_option("order", [order], ("C", "F"))
    return _ravel_multi_index(indices, as_ints(dims), modes, order)


def _check_option(name: str, given: Sequence[Any], known: tuple[str, ...]) -> None:
    for value in given:
        if value not in known:
            raise ValueError(f"{name} must be one of {known}, got {value!r}")


_unravel_index: Operator[..., Any] = numpy_operator(
    "unravel_index",
    "(Array indices, int[] shape, str order) -> Array[]",
    # NumPy returns views of one array, and results must not share memory.
    lambda indices, shape, order: [
        np.copy(places)[()] for places in np.unravel_index(indices, tuple(shape), order)
    ],
)
no_gradient(_unravel_index)
_unravel_index.register_sample_inputs(
    lambda: [
        (np.array(5), [2, 3], "C"),
        (np.array([1, 4, 0]), [2, 3], "F"),
        (np.array([[0, 5], [3, 7]]), [2, 2, 2], "C"),
    ]
)


@_unravel_index.register_fake
def _(indices: Any, shape: Any, order: Any) -> list[FakeArray]:
    return [fake_like(indices, dtype=np.dtype(np.intp)) for _ in shape]


@_unravel_index.register_vmap
def _(info: Any, in_dims: Any, indices: Any, shape: Any, order: Any) -> Any:
    found = _unravel_index(indices, shape, order)
    return found, [in_dims[0]] * len(found)


@register_numpy_function(np.unravel_index)
def _(indices: Any, shape: Any, order: str = "C") -> Any:
    _check_option("order", [order], ("C", "F"))
    return tuple(_unravel_index(as_array(indices), as_ints(shape), order))


@register_numpy_function(np.ix_)
def _(*args: Any) -> Any:
    return tuple([_axis_of(arg, i, len(args)) for i, arg in enumerate(args)])


def _axis_of(arg: Any, at: int, count: int) -> Any:
    """Indices along one axis of several."""
    line = as_array(arg)
    if line.ndim != 1:
        raise ShapeError(
            "Cross index must be 1 dimensional",
            f"np.ix_: argument {at} has the shape {tuple(line.shape)}",
            do="give lines of indices",
        )
    if not hasattr(arg, "shape") and not line.shape[0]:
        line = line.astype(np.intp)
    if dtype_of(line) == np.bool_:
        line = np.flatnonzero(line)
    return np.reshape(line, (1,) * at + (-1,) + (1,) * (count - at - 1))


# ---- places that the shape decides ----


def _triangle_of(
    name: str, places: Callable[..., Any], mask: Callable[..., Any]
) -> None:
    def of(arr: Any, k: int = 0) -> Any:
        if arr.ndim != 2:
            raise ShapeError(
                "input array must be 2-d",
                f"np.{name} of an array of shape {tuple(arr.shape)}",
                do="give a matrix",
            )
        rows, columns = arr.shape
        if type(rows) is int and type(columns) is int:
            return places(rows, k=k, m=columns)
        # How many there are depends on the sizes in a way that is not followed.
        ones = full([rows, columns], True, np.bool_, device_of(arr))
        return np.nonzero(mask(ones, k))

    register_numpy_function(getattr(np, name), of)


_triangle_of("tril_indices_from", np.tril_indices, np.tril)
_triangle_of("triu_indices_from", np.triu_indices, np.triu)


@register_numpy_function(np.diag_indices_from)
def _(arr: Any) -> Any:
    if arr.ndim < 2 or any(n != arr.shape[0] for n in arr.shape):
        raise ShapeError(
            "input array must be at least 2-d"
            if arr.ndim < 2
            else "All dimensions of input must be of equal length",
            f"np.diag_indices_from of an array of shape {tuple(arr.shape)}",
            do="use np.diag_indices(n, ndim)",
        )
    line = numbers(0, arr.shape[0], arr)
    return (line,) * arr.ndim


# ---- bits ----


def _check_bits(name: str, x: Any, kinds: str) -> None:
    if x.dtype.kind not in kinds or (name == "unpackbits" and x.dtype != np.uint8):
        raise TypeError(
            "Expected an input array of integer or boolean data type"
            if name == "packbits"
            else "Expected an input array of unsigned byte data type"
        )


_packbits: Operator[..., Any] = numpy_operator(
    "packbits",
    "(Array x, int axis, str bitorder) -> Array",
    lambda x, axis, bitorder: np.packbits(x, axis, bitorder),
)
_unpackbits: Operator[..., Any] = numpy_operator(
    "unpackbits",
    "(Array x, int axis, int? count, str bitorder) -> Array",
    lambda x, axis, count, bitorder: np.unpackbits(x, axis, count, bitorder),
)


def _of_length(x: Any, axis: int, length: int) -> FakeArray:
    shape = list(x.shape)
    shape[axis] = length
    return packed_as(x, shape, np.uint8)


@_packbits.register_fake
def _(x: Any, axis: int, bitorder: str) -> FakeArray:
    _check_bits("packbits", x, "biu")
    axis = normalize_axis_index(axis, len(x.shape))
    return _of_length(x, axis, -(-x.shape[axis] // 8))


@_unpackbits.register_fake
def _(x: Any, axis: int, count: int | None, bitorder: str) -> FakeArray:
    _check_bits("unpackbits", x, "u")
    axis = normalize_axis_index(axis, len(x.shape))
    bits = 8 * x.shape[axis]
    wanted = bits if count is None else count
    if is_below(wanted, -bits):
        raise ValueError("-count larger than number of elements")
    return _of_length(x, axis, wanted if wanted >= 0 else bits + wanted)


for _op in (_packbits, _unpackbits):
    _op.register_vmap(along_axis(_op))
    no_gradient(_op)


@_packbits.register_sample_inputs
def _() -> list[tuple[Any, ...]]:
    bits = np.array([1, 0, 0, 1, 1, 0, 1, 0, 1, 1], np.uint8)
    return [
        (bits[:3], 0, "big"),
        (bits, 0, "little"),
        (np.reshape(bits, (2, 5)), -1, "big"),
    ]


def _bits_of(a: Any, axis: int | None) -> tuple[Any, int]:
    array = as_array(a)
    return (np.ravel(array), 0) if axis is None else (lined(array, axis), axis)


@register_numpy_function(np.packbits)
def _(a: Any, /, axis: int | None = None, bitorder: str = "big") -> Any:
    only("np.packbits", bitorder=(bitorder, "big", "little"))
    return _packbits(*_bits_of(a, axis), bitorder)


@register_numpy_function(np.unpackbits)
def _(
    a: Any, /, axis: int | None = None, count: int | None = None, bitorder: str = "big"
) -> Any:
    only("np.unpackbits", bitorder=(bitorder, "big", "little"))
    return _unpackbits(*_bits_of(a, axis), count, bitorder)
