"""Places of elements: nonzero, ravel_multi_index, sliding windows; copyto, put and others."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple
from numpy.lib.stride_tricks import sliding_window_view

from customop import (
    ArgumentError,
    DataDependentError,
    FakeArray,
    Operator,
    ShapeError,
    Tag,
    Tracer,
    fake_like,
    get_ctx,
    getitem,
    register_numpy_function,
    sizes,
    write_back,
)
from customop.numpy.arguments import (
    as_array,
    as_ints,
    cast,
    copied,
    dtype_of,
    is_below,
    is_known,
    larger,
    lined,
    list_of_ints,
    only,
    product,
    same_size,
    shape_of,
    smaller,
)
from customop.numpy.create import full
from customop.numpy.cumulative import along_axis
from customop.numpy.index_operators import ALL, numbers, scatter_add, slice_, spread_to
from customop.numpy.indexing import parts_of, read_number, value_for, values_at
from customop.numpy.rules import (
    batch_first,
    device_of,
    keep_order,
    no_gradient,
    numpy_operator,
    packed_as,
    padded_rows,
    register_linear,
    view_of,
)

# ---- the places of elements that are not zero: their number depends on data ----


_nonzero = numpy_operator(
    "nonzero",
    "(Array x) -> Array[]",
    # NumPy returns columns of one array, and results must not share memory.
    lambda x: [copied(places) for places in np.nonzero(x)],
    tags=Tag.dynamic_output_shape,
)


@_nonzero.register_fake
def _(x: Any) -> list[FakeArray]:
    if not x.shape:
        np.nonzero(np.zeros((), x.dtype))  # raises as NumPy does
    count, device = _count_of(x), device_of(x)
    return [FakeArray((count,), np.intp, device=device) for _ in x.shape]


def _count_of(x: Any) -> Any:
    """How many elements are not zero: a size that depends on data.

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
    places = np.stack(_nonzero(np.atleast_1d(a)), 1)
    return places if a.ndim else places[:, :0]


# Ravel_multi_index, unravel_index, ix_, packbits.


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


# ---- the operator of np.lib.stride_tricks.sliding_window_view ----


_NAME = "sliding_window_view"


def _lengths(
    shape: Sequence[Any], widths: Sequence[Any], axes: Sequence[int]
) -> list[tuple[Any, ...]]:
    """Shapes of the array before the windows along each axis, and after the last."""
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
    """Where the elements of each window are along an axis."""
    first = np.expand_dims(numbers(0, count, like), 1)
    return first + numbers(0, width, like)


def _copied_windows(x: Any, widths: Any, axes: Any) -> Any:
    """The windows of an array that has no strides."""
    shapes = _lengths(x.shape, widths, axes)
    for at, width, shape in zip(axes, widths, shapes[1:], strict=True):
        keys = [slice(i, i + shape[at]) for i in range(max(width, 1))]
        parts = [x[(*[slice(None)] * at, key)] for key in keys]
        x = np.stack(parts, axis=-1)[..., :width]
    return x


_windows: Operator[..., Any] = numpy_operator(
    _NAME,
    "(Array(a) x, int[] widths, int[] axes) -> Array(a)",
    _copied_windows,
)


@_windows.register_kernel("cpu")
def _(x: Any, widths: Any, axes: Any) -> Any:
    return sliding_window_view(x, tuple(widths), tuple(axes))


@_windows.register_fake
def _(x: Any, widths: Any, axes: Any) -> FakeArray:
    shape = _lengths(x.shape, widths, axes)[-1]
    strides = (*x.strides, *[x.strides[at] for at in axes])
    return view_of(x, (*shape, *widths), strides)


@_windows.register_vmap
def _(info: Any, in_dims: Any, x: Any, widths: Any, axes: Any) -> Any:
    return _windows(batch_first(x, in_dims[0]), widths, [a + 1 for a in axes]), 0


@_windows.register(write_back)
def _(new: Any, x: Any, widths: Any, axes: Any) -> Any:
    raise ValueError("assignment destination is read-only")


def _overlaid(g: Any, shape: Any, widths: Any, axes: Any) -> Any:
    """The sum of all windows, each at its place: the transpose of taking them."""
    shapes = _lengths(shape, widths, axes)
    steps = list(zip(axes, widths, shapes[:-1], shapes[1:], strict=True))
    for i, (at, width, before, after) in reversed(list(enumerate(steps))):
        places = [*[None] * at, _places(after[at], width, g)]
        g = scatter_add(np.moveaxis(g, -1, at + 1), (*before, *widths[:i]), places)
    return g


register_linear(_windows, _overlaid)


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


# ---- NumPy's functions that write an array ----
# Copyto, put, place, fill_diagonal, add.at.


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
            raise ValueError("Cannot insert from an empty array!")
        np.put(arr, np.flatnonzero(mask), vals)
        return
    # The first place of the mask takes the first value, and so on.
    size = product(arr.shape)
    if product(mask.shape) != size:
        raise ValueError("place: mask and data must be the same size")
    line = np.reshape(value_for(arr, vals), (-1,))
    if is_known(line.shape[0], 0):
        raise ValueError("Cannot insert from an empty array!")
    flags = np.not_equal(np.reshape(mask, (-1,)), 0)
    places = np.remainder(np.maximum(np.cumsum(flags) - 1, 0), line.shape[0])
    new = np.where(flags, getitem(line, places), np.reshape(arr, (-1,)))
    arr[...] = np.reshape(new, arr.shape)


def _repeated(values: Any, count: int) -> Any:
    """Values in a line, repeated or cut to a length."""
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
    """Indices as a NumPy array; raise for those that a transform follows."""
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
    """As `numpy.fill_diagonal`, of an array of symbolic sizes."""
    if a.ndim < 2:
        raise ValueError("array must be at least 2-d")
    if a.ndim > 2 and any(n != a.shape[0] for n in a.shape[1:]):
        raise ValueError("All dimensions of input must be of equal length")
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
    values = cast(values, x.dtype)  # two flags, or two small integers, add up in it
    return ufunc(x, scatter_add(values, tuple(x.shape), list(arrays)))


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
    """Positions of the places, split so that no turn has a place twice."""
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
    """An array of one element of the dtype of a value; numbers as they are."""
    dtype = getattr(value, "dtype", None)
    return value if dtype is None else np.ones(1, dtype)


for _each in vars(np).values():
    if isinstance(_each, np.ufunc) and _each.nout == 1 and not _each.signature:
        _register_at(_each)
