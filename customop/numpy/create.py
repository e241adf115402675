"""Arrays made of values: full, zeros, eye, and from other values with ``like=``."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from customop import (
    ArgumentError,
    Array,
    Device,
    DType,
    FakeArray,
    Scalar,
    SymFloat,
    SymInt,
    Tracer,
    array_kind,
    custom_op,
    fake_like,
    ops,
    register_numpy_function,
)
from customop.numpy.arguments import (
    NUMBERS,
    as_array,
    as_dtype,
    as_order,
    cast,
    class_of,
    is_below,
    is_one,
    is_symbolic,
    larger,
    list_of_ints,
    numpy_refuses,
    only,
    plain,
    shape_of,
    unless_scalar,
    whole,
    wide_to,
)
from customop.numpy.rules import (
    check_held,
    contiguous,
    device_of,
    no_gradient,
    packed_like,
)

# ---- full_like ----


@custom_op("np::full_like", mutates_args=())
def full_like(
    x: Array, value: Scalar, dtype: DType | None = None, shape: list[int] | None = None
) -> Array:
    """Make an array with the shape of another one, filled with a value."""
    return np.full_like(x, value, dtype=dtype, shape=shape)


@full_like.register_fake
def _(x: Any, value: Any, dtype: Any, shape: Any) -> FakeArray:
    check_held(value, x.dtype if dtype is None else dtype)
    return fake_like(x, dtype=dtype, shape=shape)


@full_like.register_vmap
def _(info: Any, in_dims: Any, x: Any, value: Any, dtype: Any, shape: Any) -> Any:
    # The result is the same for all rows.
    dim = in_dims[0]
    own = [*x.shape[:dim], *x.shape[dim + 1 :]]
    return full_like(x, value, dtype, own if shape is None else shape), None


no_gradient(full_like)


@register_numpy_function(np.full_like)
def _(
    a: Any,
    fill_value: Any,
    dtype: Any = None,
    order: str = "K",
    subok: bool = True,
    shape: Any = None,
    *,
    device: str | None = None,
) -> Any:
    _check_like("np.full_like", order, subok, device)
    if _is_array(fill_value):
        target = shape_of(a) if shape is None else list_of_ints(shape)
        return _spread_over(fill_value, target, a.dtype if dtype is None else dtype)
    number = as_held(fill_value, a.dtype if dtype is None else dtype)
    return full_like(a, number, dtype, _given(shape))


def _given(shape: Any) -> list[int] | None:
    return None if shape is None else list_of_ints(shape)


def as_held(value: Any, dtype: Any) -> Any:
    """Return a number as arrays of a dtype hold it: only NumPy's integers wrap."""
    number = value[()] if type(value) is np.ndarray else value
    is_int = issubclass(class_of(number), np.integer) and as_dtype(dtype).kind in "iu"
    return number.astype(dtype) if is_int else number


def _is_array(value: Any) -> bool:
    """Return whether a value to fill with is an array, or may have a derivative."""
    is_traced = isinstance(value, Tracer | FakeArray)
    return is_traced or bool(shape_of(value)) or isinstance(value, list | tuple)


def _spread_over(value: Any, shape: Any, dtype: Any) -> Any:
    """Fill an array with the elements of another one."""
    array = as_array(value)
    while array.ndim > len(shape) and is_one(array.shape[0]):
        array = array[0]  # as an assignment does
    wide = wide_to(array, tuple(shape))
    return wide.astype(wide.dtype if dtype is None else dtype)


def _check_like(function: str, order: str, subok: bool, device: str | None) -> None:
    """Raise for arguments of ``np.zeros_like`` and others that would be lost."""
    as_order(function, order, "K", "C", "A")
    only(function, subok=(subok, True, False), device=(device, None, "cpu"))


def _like(name: str, value: float) -> None:
    """Make ``np.zeros_like`` and others."""

    def like(
        a: Any,
        dtype: Any = None,
        order: str = "K",
        subok: bool = True,
        shape: Any = None,
        *,
        device: str | None = None,
    ) -> Any:
        _check_like(f"np.{name}", order, subok, device)
        return full_like(a, value, dtype, _given(shape))

    register_numpy_function(getattr(np, name), like)


_like("zeros_like", 0)
_like("ones_like", 1)
_like("empty_like", 0)


def array_like(value: Any, like: Any, dtype: Any = None) -> Any:
    """Convert a value to an array; a number goes to the device of another array."""
    if not isinstance(value, (*NUMBERS, np.generic)):
        return as_array(value)
    kind = np.asarray(plain(value)).dtype if dtype is None else dtype
    number: Any = value
    return full_like(like, number, kind, [])


# ---- by shape and device ----


def _library_of(device: str) -> Any:
    """Return the module that makes arrays for a device."""
    if not device.startswith("cuda"):
        return np
    import cupy  # noqa: PLC0415  # optional: imported only for a CUDA array

    return cupy


@custom_op("np::full", mutates_args=(), device_types=("cpu", "cuda"))
def full(
    shape: list[int], value: Scalar, dtype: DType | None = None, device: Device = "cpu"
) -> Array:
    """Make an array filled with a value."""
    return _library_of(device).full(shape, value, dtype=dtype)


@full.register_fake
def _(shape: Any, value: Any, dtype: Any, device: Any) -> FakeArray:
    found = np.asarray(plain(value), dtype).dtype
    check_held(value, found)
    return FakeArray(shape, found, device=device)


no_gradient(full)


@custom_op("np::eye", mutates_args=(), device_types=("cpu", "cuda"))
def eye(
    n: int,
    m: int | None = None,
    k: int = 0,
    dtype: DType = "float64",
    device: Device = "cpu",
) -> Array:
    """Make a matrix with ones on a diagonal."""
    return _library_of(device).eye(n, m, k, dtype=dtype)


@eye.register_fake
def _(n: Any, m: Any, k: Any, dtype: Any, device: Any) -> FakeArray:
    return FakeArray((n, n if m is None else m), dtype, device=device)


no_gradient(eye)


@custom_op("np::arange", mutates_args=(), device_types=("cpu", "cuda"))
def arange(
    start: Scalar, stop: Scalar, step: Scalar, dtype: DType, device: Device = "cpu"
) -> Array:
    """Make an array of the numbers from `start` up to `stop`, without it."""
    return _library_of(device).arange(start, stop, step, dtype=dtype)


@arange.register_fake
def _(start: Any, stop: Any, step: Any, dtype: Any, device: Any) -> FakeArray:
    count = _steps_between(start, stop, step)
    if dtype == np.bool_ and is_below(2, count):
        numpy_refuses(np.arange, 3, dtype=bool)
    return FakeArray((count,), dtype, device=device)


def _steps_between(start: Any, stop: Any, step: Any) -> Any:
    """Count the numbers from `start` up to `stop`, without it."""
    if not any(isinstance(v, SymInt | SymFloat) for v in (start, stop, step)):
        return max(math.ceil((stop - start) / step), 0)
    start, stop, step = map(_whole, (start, stop, step))
    if isinstance(stop, SymFloat) and (start, step) == (0, 1):
        return larger(math.ceil(stop), 0)  # a size where it is a quotient
    classes = [*map(class_of, (start, stop, step))]
    if any(issubclass(cls, float | np.inexact) for cls in classes):
        # There is no size of a quotient of floats: the numbers at tracing decide.
        return max(math.ceil(float((stop - start) / step)), 0)
    if step < 0:
        start, stop, step = stop, start, -step
    return larger((stop - start + step - 1) // step, 0)


def _whole(value: Any) -> Any:
    """Return a float that is a whole number as an int; the count stays the same."""
    is_whole = isinstance(value, float) and value.is_integer()
    return int(value) if is_whole else value


no_gradient(arange)


@custom_op(
    "np::from_list",
    mutates_args=(),
    schema="(Array like, int[] values, int[] shape, dtype dtype) -> Array",
)
def from_list(like: Any, values: Any, shape: Any, dtype: Any) -> Any:
    """Make an array of integers of the kind of another array."""
    array = np.asarray(values, dtype=dtype).reshape(shape)
    if hasattr(like, "__array_namespace__"):
        return like.__array_namespace__().asarray(array)
    make = array_kind(like).from_numpy
    if make is None:
        raise ArgumentError(
            f"arrays of the kind '{array_kind(like)}' cannot be made of NumPy arrays",
            do="give register_array_type a function from_numpy=",
        )
    return make(array)


@from_list.register_fake
def _(like: Any, values: Any, shape: Any, dtype: Any) -> FakeArray:
    return FakeArray(shape, dtype, device=device_of(like))


@from_list.register_vmap
def _(info: Any, in_dims: Any, like: Any, values: Any, shape: Any, dtype: Any) -> Any:
    return from_list(like, values, shape, dtype), None


no_gradient(from_list)


def _filled(name: str, value: float) -> None:
    """Make ``np.zeros``, ``np.ones`` or ``np.empty``."""

    def filled(
        shape: Any, dtype: Any = None, order: str = "C", *, device: str | None = None
    ) -> Any:
        as_order(f"np.{name}", order, "C")
        kind = float if dtype is None else dtype
        return full(list_of_ints(shape), value, kind, device or "cpu")

    register_numpy_function(getattr(np, name), filled)


_filled("zeros", 0)
_filled("ones", 1)
_filled("empty", 0)


@register_numpy_function(np.full)
def _(
    shape: Any,
    fill_value: Any,
    dtype: Any = None,
    order: str = "C",
    *,
    device: str | None = None,
) -> Any:
    as_order("np.full", order, "C")
    if _is_array(fill_value):
        return _spread_over(fill_value, list_of_ints(shape), dtype)
    kind = np.asarray(plain(fill_value)).dtype if dtype is None else dtype
    return full(list_of_ints(shape), as_held(fill_value, kind), kind, device or "cpu")


@register_numpy_function(np.eye)
def _(
    N: int,  # noqa: N803  # NumPy's names
    M: int | None = None,  # noqa: N803  # NumPy's name
    k: int = 0,
    dtype: Any = float,
    order: str = "C",
    *,
    device: str | None = None,
) -> Any:
    as_order("np.eye", order, "C")
    count = None if M is None else whole(M)
    return eye(whole(N), count, k, float if dtype is None else dtype, device or "cpu")


# ---- arrays from other values, with the argument `like` ----
# `np.array([a, b], like=x)`.
#
# NumPy calls an operator for these functions only where `like` is a traced or fake
# array.


# Names in NumPy's enumeration of ways to copy -> the argument `copy`.
_COPIES = {"ALWAYS": True, "IF_NEEDED": None, "NEVER": False}


def _array_of(value: Any, dtype: Any, *, copy: Any) -> Any:
    """Convert a value to an array that is not a scalar; copy one of another dtype."""
    copy = _COPIES.get(getattr(copy, "name", ""), copy)
    array = as_array(value)
    found = cast(array, dtype)
    if found is not array:
        if copy is False:
            numpy_refuses(np.array, np.zeros(1), np.float32, copy=False)
        return found
    return np.copy(array) if copy else unless_scalar(array)


def _in_order(array: Any, order: Any) -> Any:
    """Return the array, or a copy of it, in the order in memory that is asked for."""
    return contiguous(array) if order == "C" else array


@register_numpy_function(np.array)
def _(
    object: Any,  # noqa: A002  # NumPy's name
    dtype: Any = None,
    *,
    copy: Any = True,
    order: Any = "K",
    subok: bool = False,
    ndmin: int = 0,
    ndmax: int = 0,
) -> Any:
    order = as_order("np.array", order, "K", "C", "A", None)
    only("np.array", subok=(subok, False, True), ndmax=(ndmax, 0))
    found = _array_of(object, dtype, copy=copy)
    is_new = copy is True and hasattr(object, "shape") and order == "A"
    found = packed_like(found, object) if is_new else _in_order(found, order)
    missing = ndmin - found.ndim
    return np.expand_dims(found, tuple(range(missing))) if missing > 0 else found


def _as_array(name: str) -> None:
    """Make ``np.asarray`` or ``np.asanyarray``."""

    def convert(
        a: Any,
        dtype: Any = None,
        order: Any = None,
        *,
        device: str | None = None,
        copy: Any = None,
    ) -> Any:
        order = as_order(f"np.{name}", order, None, "K", "C", "A")
        only(f"np.{name}", device=(device, None, "cpu"))
        return _in_order(_array_of(a, dtype, copy=copy), order)

    register_numpy_function(getattr(np, name), convert)


_as_array("asarray")
_as_array("asanyarray")


@register_numpy_function(np.ascontiguousarray)
def _(a: Any, dtype: Any = None) -> Any:
    return np.atleast_1d(contiguous(_array_of(a, dtype, copy=None)))


@register_numpy_function(np.asfortranarray)
def _(a: Any, dtype: Any = None) -> Any:
    return contiguous(_array_of(a, dtype, copy=None), "F")


# What `np.require` may ask for: operators choose how arrays lie in memory.
_FLAGS = "C CONTIGUOUS C_CONTIGUOUS A ALIGNED W WRITEABLE O OWNDATA E ENSUREARRAY"


@register_numpy_function(np.require)
def _(a: Any, dtype: Any = None, requirements: Any = None) -> Any:
    asked = {str(flag).upper() for flag in _listed(requirements)}
    if unknown := asked - set(_FLAGS.split()):
        raise ArgumentError(
            f"np.require: requirements={unknown.pop()!r} is not supported for traced or"
            " fake arrays",
            do="leave it out: operators choose how arrays lie in memory",
        )
    found = _array_of(a, dtype, copy=bool(asked & {"O", "OWNDATA"}) or None)
    is_dense = asked & {"C", "CONTIGUOUS", "C_CONTIGUOUS"}
    return contiguous(found) if is_dense else found


def _listed(requirements: Any) -> Iterable[Any]:
    return requirements or ()


@register_numpy_function(np.fromfunction)
def _(function: Any, shape: Any, *, dtype: Any = float, **kwargs: Any) -> Any:
    if not is_symbolic(shape):
        return np.fromfunction(function, shape, dtype=dtype, **kwargs)
    lines = [ops.np.arange(0, n, 1, as_dtype(dtype)) for n in shape]
    rank = len(lines)
    open_grid = [
        np.reshape(x, (-1, *(1,) * (rank - i))) for i, x in enumerate(lines, 1)
    ]
    return function(*[wide_to(x, tuple(shape)) for x in open_grid], **kwargs)
