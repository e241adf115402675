"""Arrays rearranged and cast: flip, roll, tril, astype, and diagonals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index as as_int
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from customop import (
    ArgumentError,
    DataDependentError,
    FakeArray,
    Operator,
    ShapeError,
    Tag,
    Tracer,
    fake_like,
    partials,
    register_numpy_function,
    write_back,
)
from customop.numpy.arguments import (
    array_of_sizes,
    as_dtype,
    as_order,
    copied,
    dtype_of,
    in_order,
    is_plain,
    larger,
    numpy_refuses,
    only,
    same_shape,
    shape_of,
    size_of,
    smaller,
    value_of,
    wide_to,
)
from customop.numpy.create import full_like
from customop.numpy.index_operators import numbers, scattered
from customop.numpy.matrices import column
from customop.numpy.reductions import sum_
from customop.numpy.rules import (
    batch_first,
    device_of,
    dtype_kind,
    fit,
    in_order_of,
    is_complex,
    keep_order,
    linear,
    numpy_operator,
    packed_like,
    past_rows,
    read_only,
    register_linear,
    register_linear_jvp,
    view_of,
    with_count,
)

# ---- flip and roll ----


def _flipped_view(x: Any, axis: Any) -> FakeArray:
    axes = normalize_axis_tuple(axis, x.ndim)
    strides = [-s if i in axes else s for i, s in enumerate(x.strides)]
    return view_of(x, x.shape, strides)


_flip: Operator[..., Any] = linear(
    "flip",
    "(Array(a) x, int[] axis) -> Array(a)",
    lambda x, axis: np.flip(x, tuple(axis)),
    fake=_flipped_view,
    transpose=lambda g, shape, axis: _flip.run(g, axis),
    rows={"axis": past_rows},
    is_rearrangement=True,
)


@register_numpy_function(np.flip)
def _(m: Any, axis: Any = None) -> Any:
    axes = range(m.ndim) if axis is None else normalize_axis_tuple(axis, m.ndim)
    if not m.shape:
        return m[()]  # a scalar
    return _flip.run(m, [*axes])


def _flipper(name: str, axis: int) -> Callable[[Any], Any]:
    def flip(m: Any) -> Any:
        if m.ndim <= axis:
            numpy_refuses(getattr(np, name), m, do="use np.flip")
        return _flip.run(m, [axis])

    return flip


register_numpy_function(np.flipud, _flipper("flipud", 0))
register_numpy_function(np.fliplr, _flipper("fliplr", 1))


@register_numpy_function(np.rot90)
def _(m: Any, k: int = 1, axes: Any = (0, 1)) -> Any:
    first, second = normalize_axis_tuple(axes, m.ndim)
    turns = as_int(k) % 4
    if turns in (0, 2):
        return m if turns == 0 else np.flip(m, (first, second))
    if turns == 1:
        return np.swapaxes(np.flip(m, second), first, second)
    return np.flip(np.swapaxes(m, first, second), second)


def _like_rolled(x: Any, shift: Any, axis: Any) -> FakeArray:
    normalize_axis_tuple(axis, x.ndim, allow_duplicate=True)
    return fake_like(x)


_roll: Operator[..., Any] = linear(
    "roll",
    "(Array x, int[] shift, int[] axis) -> Array",
    lambda x, shift, axis: np.roll(x, tuple(shift), tuple(axis)),
    fake=_like_rolled,
    transpose=lambda g, shape, shift, axis: _roll.run(g, [-s for s in shift], axis),
    rows={"axis": past_rows},
)


@register_numpy_function(np.roll)
def _(a: Any, shift: Any, axis: Any = None) -> Any:
    if axis is None:
        if len(a.shape) == 1:
            return _rolled(a, shift, 0)
        return np.reshape(np.roll(np.ravel(a), shift, 0), a.shape)
    return _rolled(a, shift, axis)


def _rolled(a: Any, shift: Any, axis: Any) -> Any:
    if type(shift) is type(axis) is int and -1 <= axis < len(a.shape) > 0:
        return _roll.run(a, [shift], [axis])  # the usual call, the short way
    axes = normalize_axis_tuple(axis, a.ndim, allow_duplicate=True)
    if not is_plain(shift):
        return _rolled_by(a, shift, axes)
    if (
        type(shift) is list
        and len(shift) == len(axes)
        and _INT.issuperset(map(type, shift))
    ):
        return _roll.run(a, shift, [*axes])
    pairs = np.broadcast(array_of_sizes(value_of(shift)), np.asarray(axes))
    if pairs.ndim > 1:
        numpy_refuses(np.roll, a, shift, axis, do="give ints or lists")
    moves = [(size_of(s), int(i)) for s, i in pairs]
    return _roll(a, [s for s, _ in moves], [i for _, i in moves])


def _rolled_by(a: Any, shift: Any, axes: Sequence[int]) -> Any:
    """Roll by steps that are not known: each element is taken from another place."""
    if len(axes) != 1 or shape_of(shift):
        raise DataDependentError(
            "np.roll: several steps that are not known, under vmap or of a fake array",
            do="roll along one axis after the other",
        )
    (axis,) = axes
    length = a.shape[axis]
    places = np.remainder(numbers(0, length, a) - shift, larger(length, 1))
    return in_order_of(np.take(a, places, axis), a)


_INT = {int}


# ---- triangles ----


def _triangle(name: str) -> None:
    """Make ``np.tril`` or ``np.triu`` of the last two axes."""
    function = getattr(np, name)

    def check(rank: int) -> None:
        if not rank:
            raise ShapeError(f"np.{name} of an array without axes", do="use x itself")

    def fake(x: Any, k: int) -> FakeArray:
        check(x.ndim)
        # NumPy repeats one axis as the rows of a square.
        shape = x.shape[-2:] if x.ndim > 1 else (*x.shape, *x.shape)
        mask = FakeArray(shape, np.bool_, device=device_of(x))
        return keep_order((mask, x), x.dtype)

    def transpose(g: Any, shape: Any, k: int) -> Any:
        masked = function(g, k)
        return masked if len(shape) > 1 else np.sum(masked, axis=0)

    op = linear(
        name,
        "(Array x, int k=0) -> Array",
        lambda x, k: function(x, k),
        fake=fake,
        transpose=transpose,
    )

    @op.register_vmap
    def _(info: Any, in_dims: Any, x: Any, k: int) -> Any:
        first = batch_first(x, in_dims[0])
        check(x.ndim - 1)
        if x.ndim == 2:
            rows, length = first.shape
            first = np.broadcast_to(first[:, None], (rows, length, length))
        return op(first, k), 0

    register_numpy_function(function, lambda m, k=0: op(m, k))


_triangle("tril")
_triangle("triu")


# ---- copies and casts ----

_copy = numpy_operator(
    "copy",
    "(Array x) -> Array",
    copied,
    tags=Tag.pointwise,
)
_copy.register_fake(lambda x: fake_like(x))
register_linear(_copy, lambda g, shape: g)

_c_copy = numpy_operator(
    "c_copy",
    "(Array x) -> Array",
    lambda x: copied(x, "C"),
    tags=Tag.pointwise,
)
_c_copy.register_fake(lambda x: FakeArray(x.shape, x.dtype, device=device_of(x)))
register_linear(_c_copy, lambda g, shape: g)


@register_numpy_function(np.copy)
def _(a: Any, order: str = "K", subok: bool = False) -> Any:
    order = as_order("np.copy", order, "K", "C", "F", "A")
    only("np.copy", subok=(subok, False, True))
    if order == "C" and len(a.shape) > 1:
        return _c_copy(a)
    return _copy(in_order(a, order))


_astype = numpy_operator(
    "astype",
    "(Array x, dtype dtype) -> Array",
    lambda x, dtype: x.astype(dtype),
    tags=Tag.pointwise,
)
_astype.register_fake(lambda x, dtype: fake_like(x, dtype=dtype))


def _astype_jvp(primals: Any, tangents: Any) -> Any:
    y = _astype(*primals)
    t = tangents[0]
    return y, None if t is None or dtype_kind(y.dtype) not in ("f", "c") else fit(t, y)


# The gradient is cast to the dtype of the array, as every one is.
_astype.register_autograd(partials({"x": lambda g: g}))
_astype.register_jvp(_astype_jvp)


@register_numpy_function(np.astype)
def _(
    x: Any,
    dtype: Any,
    /,
    order: str = "K",
    casting: Any = "unsafe",
    subok: bool = True,
    copy: bool = True,
    *,
    device: Any = None,
) -> Any:
    # It serves the method too, so it has the keywords of both.
    order = as_order("astype", order, "K", "C", "F")
    only("astype", subok=(subok, True, False), device=(device, None))
    if casting != "unsafe" and not np.can_cast(dtype_of(x), dtype, casting):
        raise ArgumentError(
            f"cannot cast an array from {x.dtype} to {as_dtype(dtype)} (casting="
            f"{casting!r})",
            do="use casting='unsafe'",
        )
    if not copy and x.dtype == as_dtype(dtype):
        return in_order(x, order)
    dtype = as_dtype(dtype) if isinstance(dtype, type) else dtype
    known = isinstance(dtype, np.dtype)
    found = in_order(_astype.run(x, dtype) if known else _astype(x, dtype), order)
    if found.shape:
        return found
    is_scalar = getattr(x, "box_is_scalar", False)
    if isinstance(found, Tracer) and not is_scalar:
        found.box_pin()  # an array gives an array
    return found[()] if is_scalar and type(found) is np.ndarray else found


def _from_parts(real: Any, imag: Any) -> Any:
    _check_parts(real, imag)
    if not isinstance(real, np.ndarray | np.generic):
        return real + 1j * imag
    # A sum would lose the sign of 0, and make nan of an infinite part.
    out = np.empty_like(real, _complex_of(real))
    out.real, out.imag = real, imag
    return out


_complex = numpy_operator(
    "from_parts", "(Array real, Array imag) -> Array", _from_parts
)


@_complex.register_fake
def _(real: Any, imag: Any) -> FakeArray:
    _check_parts(real, imag)
    return fake_like(real, dtype=_complex_of(real))


_complex.register_autograd(lambda ctx, g: (np.real(g), -np.imag(g)))


def _check_parts(real: Any, imag: Any) -> None:
    if real.shape != imag.shape:
        raise ShapeError(
            f"real has the shape {real.shape} and imag {imag.shape}, and must have one",
            do="use np.broadcast_arrays",
        )


def _complex_of(real: Any) -> np.dtype[Any]:
    return np.dtype(f"c{2 * real.dtype.itemsize}")


@_complex.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    pairs = zip(primals, tangents, strict=True)
    moved = [np.zeros_like(x) if t is None else t for x, t in pairs]
    return _complex(*primals), _complex(*moved)


@_complex.register_vmap
def _(info: Any, in_dims: Any, real: Any, imag: Any) -> Any:
    size = info.batch_size
    first = batch_first(real, in_dims[0], size)
    return _complex(first, batch_first(imag, in_dims[1], size)), 0


def _component(name: str, unit: complex) -> None:
    """Make ``np.real`` or ``np.imag`` of complex arrays.

    The gradient is multiplied by `unit`: the derivative of the real part is 1, that of
    the imaginary part -1j.
    """
    function = getattr(np, name)

    def kernel(x: Any) -> Any:
        _check_complex(name, x)
        return function(x)

    op = numpy_operator(
        name,
        "(Array(a) x) -> Array(a)",
        kernel,
        tags=Tag.pointwise,
    )

    @op.register_fake
    def _(x: Any) -> FakeArray:
        _check_complex(name, x)
        order = x.dtype.byteorder
        dtype = np.dtype(f"f{x.dtype.itemsize // 2}").newbyteorder(order)
        return FakeArray(x.shape, dtype, x.strides, device_of(x))

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.dtype = inputs[0].dtype

    @op.register(write_back)
    def _(new: Any, x: Any) -> Any:
        if name == "real":
            return _complex(new, np.imag(x))
        return _complex(np.real(x), new)

    op.register_autograd(lambda ctx, g: g.astype(ctx.dtype) * unit, setup_context=setup)
    register_linear_jvp(op)

    @register_numpy_function(function)
    def _(val: Any) -> Any:
        if is_complex(val):
            return op(val)
        if name == "real":
            return val
        zeros = packed_like(full_like.run(val, 0, None, None), val)
        return np.broadcast_to(zeros, val.shape)  # cannot be written


def _check_complex(name: str, x: Any) -> None:
    if not is_complex(x):
        raise ArgumentError(
            f"np::{name} takes complex arrays, got {x.dtype}",
            do=f"call np.{name}, which takes real arrays too",
        )


_component("real", 1.0)
_component("imag", -1.0j)


# ---- diagonals ----


def _pair(ndim: int, axis1: int, axis2: int) -> tuple[int, int]:
    """Count two axes from the front; raise if they are the same."""
    first, second = (normalize_axis_index(axis, ndim) for axis in (axis1, axis2))
    if first == second:
        np.diagonal(np.zeros((1, 1)), 0, 0, 0)  # NumPy's error
    return first, second


def _count(rows: Any, columns: Any, offset: int) -> Any:
    """Return the length of a diagonal of a matrix."""
    return larger(smaller(rows - max(-offset, 0), columns - max(offset, 0)), 0)


def _view(x: Any, offset: int, axis1: int, axis2: int) -> FakeArray:
    axis1, axis2 = _pair(len(x.shape), axis1, axis2)
    kept = [i for i in range(x.ndim) if i not in (axis1, axis2)]
    count = _count(x.shape[axis1], x.shape[axis2], offset)
    step = x.strides[axis1] + x.strides[axis2]
    shape = [*[x.shape[i] for i in kept], count]
    return view_of(x, shape, [*[x.strides[i] for i in kept], step])


_BOTH_AXES = {"axis1": past_rows, "axis2": past_rows}

_diagonal: Operator[..., Any] = linear(
    "diagonal",
    "(Array(a) x, int offset, int axis1, int axis2) -> Array(a)",
    lambda x, offset, axis1, axis2: np.diagonal(x, offset, axis1, axis2),
    fake=_view,
    transpose=lambda g, shape, *at: _undiagonal.run(g, [*shape], *at),
    rows=_BOTH_AXES,
)
_diagonal.register(write_back, read_only)


def _check_lengths(x: Any, axis1: int, axis2: int) -> None:
    """Raise unless two axes have one length: np.einsum may then read other memory."""
    if x.shape[axis1] != x.shape[axis2]:
        raise ShapeError(
            f"the axes {axis1} and {axis2} have the lengths {x.shape[axis1]} and"
            f" {x.shape[axis2]}, and must have one",
            do="use np.diagonal",
        )


def _whole_diagonal(x: Any, axis1: int, axis2: int) -> Any:
    """Return the diagonal of two axes as a view that can be written, by np.einsum."""
    _check_lengths(x, axis1, axis2)
    axes = list(range(x.ndim))
    axes[axis2] = axis1
    return np.einsum(
        x, axes, [a for a in range(x.ndim) if a not in (axis1, axis2)] + [axis1]
    )


def _whole_view(x: Any, axis1: int, axis2: int) -> FakeArray:
    _check_lengths(x, axis1, axis2)
    return _view(x, 0, axis1, axis2)


# Unlike that of np.diagonal, this view can be written.
writable_diagonal: Operator[..., Any] = linear(
    "writable_diagonal",
    "(Array(a) x, int axis1, int axis2) -> Array(a)",
    _whole_diagonal,
    fake=_whole_view,
    transpose=lambda g, shape, *axes: _undiagonal.run(g, [*shape], 0, *axes),
    rows=_BOTH_AXES,
)


@writable_diagonal.register(write_back)
def _(new: Any, x: Any, axis1: int, axis2: int) -> Any:
    whole = np.copy(x)
    places = numbers(0, x.shape[axis1], x)
    np.moveaxis(whole, (axis1, axis2), (-2, -1))[..., places, places] = new
    return whole


def _placed(g: Any, shape: Any, offset: int, axis1: int, axis2: int) -> Any:
    _check_placed(g, shape, offset, axis1, axis2)
    axis1, axis2 = _pair(len(shape), axis1, axis2)
    rest = [n for i, n in enumerate(shape) if i not in (axis1, axis2)]
    count = g.shape[-1]
    starts = max(-offset, 0), max(offset, 0)
    places = [*[None] * len(rest), *[np.arange(i, i + count) for i in starts]]
    lengths = [*rest, shape[axis1], shape[axis2]]
    whole = scattered(g, lengths, places, len(rest))
    return np.moveaxis(whole, (-2, -1), (axis1, axis2))


def _check_placed(g: Any, shape: Any, offset: int, axis1: int, axis2: int) -> None:
    axis1, axis2 = _pair(len(shape), axis1, axis2)
    expected = [n for i, n in enumerate(shape) if i not in (axis1, axis2)]
    expected.append(_count(shape[axis1], shape[axis2], offset))
    if not same_shape(g.shape, expected) and tuple(g.shape) != tuple(expected):
        raise ShapeError(
            f"np::undiagonal: g has the shape {tuple(g.shape)}, the diagonals"
            f" {tuple(expected)}",
            do="broadcast g to the shape of the diagonals",
        )


def _written(g: Any, shape: Any, offset: int, axis1: int, axis2: int) -> Any:
    """Do the same by writing `g` into zeros."""
    zeros = np.zeros_like(g, shape=tuple(shape), order="C")
    view = zeros.diagonal(offset, axis1, axis2)
    if view.shape != g.shape:
        _check_placed(g, shape, offset, axis1, axis2)
    if isinstance(view, np.ndarray):  # CuPy's view can be written
        view.setflags(write=True)
    view[...] = g
    return zeros


def _fake_placed(g: Any, shape: Any, offset: int, axis1: int, axis2: int) -> FakeArray:
    _check_placed(g, shape, offset, axis1, axis2)
    return FakeArray(shape, g.dtype, device=device_of(g))


# The transpose of `np::diagonal`: zeros with `g` on the diagonals.
_undiagonal: Operator[..., Any] = linear(
    "undiagonal",
    "(Array g, int[] shape, int offset, int axis1, int axis2) -> Array",
    _placed,
    fake=_fake_placed,
    transpose=lambda g, own, shape, *at: _diagonal.run(g, *at),
    rows={"shape": with_count, **_BOTH_AXES},
)
_undiagonal.register_kernel(["cpu", "cuda"], _written)


@register_numpy_function(np.diagonal)
def _(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    return _diagonal(a, as_int(offset), *_pair(a.ndim, axis1, axis2))


@register_numpy_function(np.diag)
def _(v: Any, k: int = 0) -> Any:
    if v.ndim == 2:
        return np.diagonal(v, k)
    if v.ndim != 1:
        instead = "use np.diagonal" if v.ndim else "use np.atleast_1d(x) first"
        numpy_refuses(np.diag, v, do=instead)
    k, size = as_int(k), v.shape[0] + abs(k)
    return _undiagonal.run(v, [size, size], k, 0, 1)


register_numpy_function(np.diagflat, lambda v, k=0: np.diag(np.ravel(v), k))


# ---- trace ----


def _untraced(g: Any, shape: Any, offset: int, axis1: int, axis2: int) -> Any:
    """Return zeros with each element of `g` all along its diagonal."""
    axis1, axis2 = _pair(len(shape), axis1, axis2)
    count = _count(shape[axis1], shape[axis2], offset)
    wide = wide_to(column(g), (*g.shape, count))
    return _undiagonal.run(wide, [*shape], offset, axis1, axis2)


_trace = linear(
    "trace",
    "(Array x, int offset, int axis1, int axis2) -> Array",
    lambda x, *at: np.sum(np.diagonal(x, *at), axis=-1),
    cpu=lambda x, *at: x.trace(*at),
    fake=lambda x, *at: sum_(_view(x, *at), [-1]),
    transpose=_untraced,
    rows=_BOTH_AXES,
)


@register_numpy_function(np.trace)
def _(
    a: Any,
    offset: int = 0,
    axis1: int = 0,
    axis2: int = 1,
    dtype: Any = None,
    out: None = None,
) -> Any:
    if dtype is None:
        return _trace.run(a, as_int(offset), *_pair(a.ndim, axis1, axis2))
    return np.sum(np.diagonal(a, offset, axis1, axis2), -1, dtype)
