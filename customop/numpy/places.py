"""Places of elements: nonzero, ravel_multi_index, packbits, and sliding windows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple
from numpy.lib.stride_tricks import sliding_window_view

from customop import (
    DataDependentError,
    FakeArray,
    Operator,
    ShapeError,
    Tag,
    fake_like,
    get_ctx,
    register_numpy_function,
    write_back,
)
from customop.numpy.arguments import (
    as_array,
    as_ints,
    copied,
    dtype_of,
    is_below,
    is_known,
    larger,
    lined,
    list_of_ints,
    numpy_refuses,
    only,
    product,
    with_zeros,
)
from customop.numpy.create import full
from customop.numpy.index_operators import numbers, scatter_add
from customop.numpy.rules import (
    aligned_rows,
    along_axis,
    device_of,
    in_c_order,
    keep_order,
    linear,
    no_gradient,
    numpy_operator,
    packed_as,
    past_rows,
    read_only,
    view_of,
    with_count,
)

# ---- the places of elements that are not zero: their number depends on data ----


_nonzero = numpy_operator(
    "nonzero",
    "(Array x) -> Array[]",
    lambda x: [_column(places, x.ndim) for places in np.nonzero(x)],
    tags=Tag.dynamic_output_shape,
)


def _column(places: Any, count: int) -> Any:
    """Copy a column of NumPy's result, as one of an array: results share no memory."""
    if type(places) is not np.ndarray or count < 2:
        return copied(places)
    found = np.empty((len(places), count), places.dtype)[:, 0]
    found[...] = places
    return found


@_nonzero.register_fake
def _(x: Any) -> list[FakeArray]:
    if not x.shape:
        np.nonzero(np.zeros((), x.dtype))  # raises as NumPy does
    count, device = _count_of(x), device_of(x)
    steps = (np.dtype(np.intp).itemsize * len(x.shape),)
    return [FakeArray((count,), np.intp, steps, device=device) for _ in x.shape]


def _count_of(x: Any) -> Any:
    """Return how many elements are not zero: a size that depends on data.

    An array has one such size until it is written, so that ``x[mask] += 1`` fits.
    """
    size = product(x.shape)
    if is_known(size, 0):
        return 0
    if getattr(x, "nonzero_count", None) is None:
        x.nonzero_count = get_ctx().new_dynamic_size(max=size)
    return x.nonzero_count


@_nonzero.register_vmap
def _(info: Any, in_dims: Any, x: Any) -> Any:
    raise DataDependentError(
        f"np.nonzero, or a mask as an index, under vmap of {info.batch_size} rows: the"
        " shape of the result depends on data",
        do="use np.where(mask, x, 0), which keeps the shape; or map(f, rows), which runs f"
        " once for each row",
    )


no_gradient(_nonzero)


@register_numpy_function(np.nonzero)
def _(a: Any) -> Any:
    return tuple(_nonzero(a))


register_numpy_function(np.flatnonzero, lambda a: _nonzero(np.ravel(a))[0])


@register_numpy_function(np.argwhere)
def _(a: Any) -> Any:
    places = np.transpose(np.stack(_nonzero(np.atleast_1d(a))))
    return places if a.ndim else places[:, :0]


# ---- numbers of elements ----

_ravel_multi_index: Operator[..., Any] = numpy_operator(
    "ravel_multi_index",
    "(Array[] indices, int[] dims, str[] modes, str order) -> Array",
    lambda indices, dims, modes, order: np.ravel_multi_index(
        tuple(indices), tuple(dims), tuple(modes), order
    ),
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
        numpy_refuses(
            np.ravel_multi_index,
            tuple(indices),
            tuple(dims),
            do="give an index for each length",
        )
    return keep_order(indices, np.dtype(np.intp))


@_ravel_multi_index.register_vmap
def _(info: Any, in_dims: Any, indices: Any, dims: Any, modes: Any, order: Any) -> Any:
    rows = aligned_rows(in_dims[0], *indices)
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
    """Return indices along one axis of several."""
    line = as_array(arg)
    if line.ndim != 1:
        numpy_refuses(np.ix_, line, do="give lines of indices")
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
            numpy_refuses(getattr(np, name), arr, do="give a matrix")
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
        numpy_refuses(np.diag_indices_from, arr, do="use np.diag_indices(n, ndim)")
    line = numbers(0, arr.shape[0], arr)
    return (line,) * arr.ndim


# ---- bits ----


def _check_bits(name: str, x: Any, kinds: str) -> None:
    if x.dtype.kind not in kinds or (name == "unpackbits" and x.dtype != np.uint8):
        numpy_refuses(getattr(np, name), np.zeros(1, x.dtype))


def _unpacked(x: Any, axis: int, count: int | None, bitorder: Any) -> Any:
    """Unpack bits; NumPy (2.4) does not write the zeros that it adds to no bytes."""
    if type(x) is np.ndarray and not x.size and count is not None and count > 0:
        x = with_zeros(x, [axis])
    return np.unpackbits(x, axis, count, bitorder)


_packbits: Operator[..., Any] = numpy_operator(
    "packbits",
    "(Array x, int axis, str bitorder) -> Array",
    lambda x, axis, bitorder: np.packbits(x, axis, bitorder),
)
_unpackbits: Operator[..., Any] = numpy_operator(
    "unpackbits",
    "(Array x, int axis, int? count, str bitorder) -> Array",
    _unpacked,
)


def _packed_on_device(x: Any, axis: int, bitorder: str) -> Any:
    """Pack bits along an axis, which CuPy's own function does not take (14.2)."""
    bits = (np.moveaxis(x, axis, -1) != 0).astype(np.uint8)
    ends = np.zeros_like(bits, shape=(*bits.shape[:-1], -bits.shape[-1] % 8))
    bits = np.concatenate([bits, ends], -1)
    groups = np.reshape(bits, (*bits.shape[:-1], bits.shape[-1] // 8, 8))
    found: Any = np.sum(groups << _shifts(x, bitorder), axis=-1, dtype=np.uint8)
    return in_c_order(np.moveaxis(found, -1, axis))


def _unpacked_on_device(x: Any, axis: int, count: int | None, bitorder: str) -> Any:
    """Unpack bits along an axis, which CuPy's own function does not take (14.2)."""
    bits = np.expand_dims(np.moveaxis(x, axis, -1), -1) >> _shifts(x, bitorder) & 1
    *outer, length, _ = bits.shape
    bits = np.reshape(bits, (*outer, 8 * length))
    if count is not None and count > 8 * length:
        ends = np.zeros_like(bits, shape=(*outer, count - 8 * length))
        bits = np.concatenate([bits, ends], -1)
    return in_c_order(np.moveaxis(bits[..., :count], -1, axis))


def _shifts(x: Any, bitorder: str) -> Any:
    """Return how far each bit of a byte is from the last one."""
    shifts = numbers(0, 8, x).astype(np.uint8)
    return shifts if bitorder == "little" else 7 - shifts


_packbits.register_kernel("cuda", _packed_on_device)
_unpackbits.register_kernel("cuda", _unpacked_on_device)


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
        np.unpackbits(np.zeros(0, np.uint8), count=-1)  # NumPy's error
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


# ---- the operator of np.lib.stride_tricks.sliding_window_view ----


_NAME = "sliding_window_view"


def _lengths(
    shape: Sequence[Any], widths: Sequence[Any], axes: Sequence[int]
) -> list[tuple[Any, ...]]:
    """Return the shapes before the windows of each axis, and after the last."""
    found = [tuple(shape)]
    for at, width in zip(axes, widths, strict=True):
        before = found[-1]
        count = before[at] - width + 1
        if is_below(width, 0) or is_below(count, 1):
            raise ShapeError(
                f"{_NAME}: a window of length {width} along axis {at}, which has the length"
                f" {before[at]}",
                do="give lengths from 0 to those of the array",
            )
        found.append((*before[:at], larger(count, 0), *before[at + 1 :]))
    return found


def _places(count: Any, width: Any, like: Any) -> Any:
    """Return where the elements of each window are along an axis."""
    first = np.expand_dims(numbers(0, count, like), 1)
    return first + numbers(0, width, like)


def _copied_windows(x: Any, widths: Any, axes: Any) -> Any:
    """Return the windows of an array that has no strides."""
    shapes = _lengths(x.shape, widths, axes)
    for at, width, shape in zip(axes, widths, shapes[1:], strict=True):
        keys = [slice(i, i + shape[at]) for i in range(max(width, 1))]
        parts = [x[(*[slice(None)] * at, key)] for key in keys]
        x = np.stack(parts, axis=-1)[..., :width]
    return x


def _view_of_windows(x: Any, widths: Any, axes: Any) -> FakeArray:
    shape = _lengths(x.shape, widths, axes)[-1]
    strides = (*x.strides, *[x.strides[at] for at in axes])
    return view_of(x, (*shape, *widths), strides)


def _scattered_windows(g: Any, shape: Any, widths: Any, axes: Any) -> Any:
    shapes = _lengths(shape, widths, axes)
    steps = list(zip(axes, widths, shapes[:-1], shapes[1:], strict=True))
    for i, (at, width, before, after) in reversed(list(enumerate(steps))):
        places = [*[None] * at, _places(after[at], width, g)]
        g = scatter_add(np.moveaxis(g, -1, at + 1), (*before, *widths[:i]), places)
    return g


def _added_windows(g: Any, shape: Any, widths: Any, axes: Any) -> Any:
    """Add the elements at one place of all windows at once: a step for each place."""
    _check_windows(g, shape, widths, axes)
    is_numpy = isinstance(g, np.ndarray)
    if is_numpy and math.prod(widths) > 4 * math.prod([g.shape[at] for at in axes]):
        return _scattered_windows(g, shape, widths, axes)
    out: Any = np.zeros_like(g, shape=tuple(shape), order="C")
    for place in np.ndindex(*widths):
        starts = [0] * len(shape)
        for at, k in zip(axes, place, strict=True):
            starts[at] += k
        key = tuple([slice(i, i + n) for i, n in zip(starts, g.shape, strict=False)])
        part = out[key]
        if is_numpy:
            np.add(part, g[(..., *place)], out=part)
        else:  # not every library has out=
            out[key] = part + g[(..., *place)]
    return out


def _check_windows(g: Any, shape: Any, widths: Any, axes: Any) -> None:
    """Raise unless `g` has the shape of the windows of an array of that shape."""
    is_placed = all(0 <= at < len(shape) for at in axes)
    is_placed = is_placed and len(axes) == len(widths)
    expected = _lengths(shape, widths, axes)[-1] if is_placed else ()
    if not is_placed or tuple(g.shape) != (*expected, *widths):
        raise ShapeError(
            f"np::sliding_window_sum: g has the shape {tuple(g.shape)}, which is not that of"
            f" windows of the lengths {[*widths]} along the axes {[*axes]} of an array of"
            f" shape {tuple(shape)}",
            do="pass what sliding_window_view gives for that array",
        )


def _fake_added(g: Any, shape: Any, widths: Any, axes: Any) -> FakeArray:
    _check_windows(g, shape, widths, axes)
    return FakeArray(shape, g.dtype, device=device_of(g))


# Adds up all windows, each at its place: the transpose of taking them.
_overlay: Operator[..., Any] = linear(
    "sliding_window_sum",
    "(Array g, int[] shape, int[] widths, int[] axes) -> Array",
    _added_windows,
    fake=_fake_added,
    transpose=lambda g, found, shape, widths, axes: _windows(g, widths, axes),
    rows={"shape": with_count, "axes": past_rows},
)
_overlay.register_sample_inputs(
    lambda: [
        (np.array([[1.0, 2.0], [0.5, 3.0], [4.0, -1.0]]), [4], [2], [0]),
        (np.arange(12.0).reshape(2, 3, 2, 1) / 8.0, [3, 3], [2, 1], [0, 1]),
        (np.array([[[0.5], [2.0]], [[-1.0], [3.0]]]), [2, 2], [1], [1]),
    ]
)


def _overlaid(g: Any, shape: Any, widths: Any, axes: Any) -> Any:
    if type(g) is np.ndarray:
        return _added_windows(g, shape, widths, axes)
    return _overlay.run(g, [*shape], [*widths], [*axes])


_windows: Operator[..., Any] = linear(
    _NAME,
    "(Array(a) x, int[] widths, int[] axes) -> Array(a)",
    _copied_windows,
    cpu=lambda x, widths, axes: sliding_window_view(x, tuple(widths), tuple(axes)),
    fake=_view_of_windows,
    transpose=_overlaid,
    rows={"axes": past_rows},
)
_windows.register_kernel(
    "cuda",
    lambda x, widths, axes: sliding_window_view(x, tuple(widths), tuple(axes)),
)
_windows.register(write_back, read_only)


@register_numpy_function(sliding_window_view)
def _(
    x: Any,
    window_shape: Any,
    axis: Any = None,
    *,
    subok: bool = False,
    writeable: bool = False,
) -> Any:
    only(_NAME, subok=(subok, False), writeable=(writeable, False))
    array, widths = as_array(x), list_of_ints(window_shape)
    axes = range(array.ndim) if axis is None else as_ints(axis)
    if len(widths) != len(axes):
        raise ShapeError(
            f"{_NAME}: window_shape has {len(widths)} lengths for {len(axes)} axes",
            do="give a length for each axis",
        )
    places = normalize_axis_tuple(axes, array.ndim, None, True)
    _lengths(array.shape, widths, places)  # raises before a kernel is chosen
    return _windows(array, widths, list(places))
