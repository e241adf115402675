"""Operators that rearrange and cast arrays: flip, roll, tril, copy, astype, real."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index as as_int
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from customop import (
    ArgumentError,
    DataDependentError,
    FakeArray,
    ShapeError,
    Tag,
    fake_like,
    partials,
    register_numpy_function,
    write_back,
)
from customop.numpy.arguments import (
    as_order,
    copied,
    counted,
    dtype_of,
    in_order,
    only,
    shape_of,
    value_of,
)
from customop.numpy.compare import is_plain
from customop.numpy.create import full_like
from customop.numpy.fakes import device_of, keep_order, view_of
from customop.numpy.index import numbers
from customop.numpy.layouts import in_order_of, packed_like
from customop.numpy.rules import (
    batch_first,
    dtype_kind,
    fit,
    is_complex,
    numpy_operator,
    register_linear,
    register_linear_jvp,
)
from customop.numpy.sizes import array_of_sizes, larger, size_of

__all__: list[str] = []


# ---- flip and roll ----

_flip = numpy_operator(
    "flip",
    "(Array(a) x, int[] axis) -> Array(a)",
    lambda x, axis: np.flip(x, tuple(axis)),
)


def _quick_flip(x: Any, axis: Sequence[int]) -> Any:
    """As `numpy.flip`, along one axis in half of its time."""
    if len(axis) != 1 or not -x.ndim <= axis[0] < x.ndim:
        return np.flip(x, tuple(axis))
    return x[(*(slice(None),) * (axis[0] % x.ndim), slice(None, None, -1))]


_flip.register_kernel("cpu", _quick_flip)


@_flip.register_fake
def _(x: Any, axis: Any) -> FakeArray:
    axes = normalize_axis_tuple(axis, x.ndim)
    strides = [-s if i in axes else s for i, s in enumerate(x.strides)]
    return view_of(x, x.shape, strides)


@_flip.register_vmap
def _(info: Any, in_dims: Any, x: Any, axis: Any) -> Any:
    axes = counted(axis, x.ndim - 1)
    return _flip(batch_first(x, in_dims[0]), [a + 1 for a in axes]), 0


@_flip.register(write_back)
def _(new: Any, x: Any, axis: Any) -> Any:
    return np.flip(new, tuple(axis))


register_linear(_flip, lambda g, shape, axis: _flip.run(g, axis))


@register_numpy_function(np.flip)
def _(m: Any, axis: Any = None) -> Any:
    axes = range(m.ndim) if axis is None else normalize_axis_tuple(axis, m.ndim)
    if not m.shape:
        return m[()]  # a scalar
    return _flip.run(m, [*axes])


def _flipper(name: str, axis: int) -> Callable[[Any], Any]:
    def flip(m: Any) -> Any:
        if m.ndim <= axis:
            raise ShapeError(
                f"Input must be >= {axis + 1}-d.",
                f"np.{name} of an array of shape {tuple(m.shape)}",
                do="use np.flip",
            )
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


_roll = numpy_operator(
    "roll",
    "(Array x, int[] shift, int[] axis) -> Array",
    lambda x, shift, axis: np.roll(x, tuple(shift), tuple(axis)),
)


def _quick_roll(x: Any, shift: Sequence[int], axis: Sequence[int]) -> Any:
    """As `numpy.roll`, along one axis in a third of its time."""
    if len(shift) != 1 or len(axis) != 1 or not -x.ndim <= axis[0] < x.ndim:
        return np.roll(x, tuple(shift), tuple(axis))
    before = (slice(None),) * (axis[0] % x.ndim)
    length = x.shape[axis[0]]
    step = shift[0] % length if length else 0
    out = np.empty_like(x)
    out[(*before, slice(step, None))] = x[(*before, slice(None, length - step))]
    out[(*before, slice(None, step))] = x[(*before, slice(length - step, None))]
    return out


_roll.register_kernel("cpu", _quick_roll)


@_roll.register_fake
def _(x: Any, shift: Any, axis: Any) -> FakeArray:
    normalize_axis_tuple(axis, x.ndim, allow_duplicate=True)
    return fake_like(x)


@_roll.register_vmap
def _(info: Any, in_dims: Any, x: Any, shift: Any, axis: Any) -> Any:
    axes = counted(axis, x.ndim - 1)
    return _roll(batch_first(x, in_dims[0]), shift, [a + 1 for a in axes]), 0


register_linear(
    _roll, lambda g, shape, shift, axis: _roll.run(g, [-s for s in shift], axis)
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
        raise ShapeError(
            "'shift' and 'axis' should be scalars or 1D sequences",
            do="give ints or lists",
        )
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
    op = numpy_operator(
        name,
        "(Array x, int k=0) -> Array",
        lambda x, k: function(x, k),
    )

    def check(rank: int) -> None:
        if not rank:
            raise ShapeError(f"np.{name} of an array without axes", do="use x itself")

    @op.register_fake
    def _(x: Any, k: int) -> FakeArray:
        check(x.ndim)
        # NumPy repeats one axis as the rows of a square.
        shape = x.shape[-2:] if x.ndim > 1 else (*x.shape, *x.shape)
        mask = FakeArray(shape, np.bool_, device=device_of(x))
        return keep_order((mask, x), x.dtype)

    @op.register_vmap
    def _(info: Any, in_dims: Any, x: Any, k: int) -> Any:
        first = batch_first(x, in_dims[0])
        check(x.ndim - 1)
        if x.ndim == 2:
            rows, length = first.shape
            first = np.broadcast_to(first[:, None], (rows, length, length))
        return op(first, k), 0

    def pull(g: Any, shape: Any, k: int) -> Any:
        masked = function(g, k)
        return masked if len(shape) > 1 else np.sum(masked, axis=0)

    register_linear(op, pull)
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
            f"cannot cast an array from {x.dtype} to {np.dtype(dtype)} (casting="
            f"{casting!r})",
            do="use casting='unsafe'",
        )
    if not copy and x.dtype == np.dtype(dtype):
        return in_order(x, order)
    dtype = np.dtype(dtype) if isinstance(dtype, type) else dtype
    known = isinstance(dtype, np.dtype)
    found = in_order(_astype.run(x, dtype) if known else _astype(x, dtype), order)
    is_scalar = type(found) is np.ndarray and getattr(x, "box_is_scalar", False)
    return found[()] if is_scalar else found


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
