"""Operators that make arrays: full, zeros, ones, eye, full_like and others."""

from __future__ import annotations

import math
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
    register_numpy_function,
)
from customop.numpy.arguments import (
    as_array,
    as_order,
    list_of_ints,
    only,
    shape_of,
)
from customop.numpy.fakes import check_held, device_of
from customop.numpy.rules import no_gradient
from customop.numpy.sizes import (
    NUMBERS,
    class_of,
    is_below,
    is_one,
    larger,
    plain,
    whole,
    wide_to,
)

__all__ = [
    "arange",
    "array_like",
    "as_held",
    "eye",
    "from_list",
    "full",
    "full_like",
    "library_of",
]


# ---- full_like ----


@custom_op("np::full_like", mutates_args=())
def full_like(
    x: Array, value: Scalar, dtype: DType | None = None, shape: list[int] | None = None
) -> Array:
    """An array with the shape of another one, filled with a value."""
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
    """A number as arrays of a dtype hold it: NumPy's integers wrap, Python's may not."""
    number = value[()] if type(value) is np.ndarray else value
    is_int = issubclass(class_of(number), np.integer) and np.dtype(dtype).kind in "iu"
    return number.astype(dtype) if is_int else number


def _is_array(value: Any) -> bool:
    """Whether a value to fill with is an array, or may have a derivative."""
    is_traced = isinstance(value, Tracer | FakeArray)
    return is_traced or bool(shape_of(value)) or isinstance(value, list | tuple)


def _spread_over(value: Any, shape: Any, dtype: Any) -> Any:
    """An array filled with the elements of another one."""
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
    """A value as an array; a number becomes one on the device of another array."""
    if not isinstance(value, NUMBERS):
        return as_array(value)
    kind = np.asarray(plain(value)).dtype if dtype is None else dtype
    number: Any = value
    return full_like(like, number, kind, [])


# ---- by shape and device ----


def library_of(device: str) -> Any:
    """The module that makes arrays for a device."""
    if not device.startswith("cuda"):
        return np
    import cupy  # noqa: PLC0415  # optional: imported only for a CUDA array

    return cupy


@custom_op("np::full", mutates_args=(), device_types=("cpu", "cuda"))
def full(
    shape: list[int], value: Scalar, dtype: DType | None = None, device: Device = "cpu"
) -> Array:
    """An array filled with a value."""
    return library_of(device).full(shape, value, dtype=dtype)


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
    """A matrix with ones on a diagonal."""
    return library_of(device).eye(n, m, k, dtype=dtype)


@eye.register_fake
def _(n: Any, m: Any, k: Any, dtype: Any, device: Any) -> FakeArray:
    return FakeArray((n, n if m is None else m), dtype, device=device)


no_gradient(eye)


@custom_op("np::arange", mutates_args=(), device_types=("cpu", "cuda"))
def arange(
    start: Scalar, stop: Scalar, step: Scalar, dtype: DType, device: Device = "cpu"
) -> Array:
    """Numbers from `start` to `stop`, without it."""
    return library_of(device).arange(start, stop, step, dtype=dtype)


@arange.register_fake
def _(start: Any, stop: Any, step: Any, dtype: Any, device: Any) -> FakeArray:
    count = _steps_between(start, stop, step)
    if dtype == np.bool_ and is_below(2, count):
        raise TypeError("arange() is only supported for booleans of at most length 2")
    return FakeArray((count,), dtype, device=device)


def _steps_between(start: Any, stop: Any, step: Any) -> Any:
    """How many numbers there are from `start` to `stop`, without it."""
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
    """A float that is a whole number as an int; the count of numbers is the same."""
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
