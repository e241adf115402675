"""Values that are written into arrays, read as NumPy reads them there.

Numbers of Python and NumPy are read one by one: one that does not fit is an error. Arrays,
also those without axes, are cast, and wrap around.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from customop import ArgumentError, FakeArray, Operator, Tracer, fake_like
from customop.numpy.arguments import as_array, dtype_of
from customop.numpy.rules import no_gradient, numpy_operator

__all__ = ["is_listed", "one_element", "read_number"]


# ---- single numbers ----


def _read(x: Any, dtype: Any, is_flat: bool) -> Any:
    """Numbers in a dtype of integers, each as NumPy reads it; for ``x.flat`` if so."""
    _check_integer(dtype)
    out = np.empty(x.shape, dtype)
    with np.errstate(invalid="ignore"):
        cast = np.asarray(x).astype(dtype)
        if np.array_equal(cast, x):  # in one go where all are such integers
            return cast[()]
    for i, place in enumerate(np.ndindex(x.shape)):
        if is_flat:
            out.flat[i] = x[place]
        else:
            out[place] = x[place]
    return out[()]


def _check_integer(dtype: Any) -> None:
    if np.dtype(dtype).kind not in "iu":
        raise ArgumentError(
            f"np::read_integer: dtype={dtype} is not a dtype of integers",
            do="use x.astype(dtype)",
        )


def _cast(x: Any, dtype: Any, is_flat: bool) -> Any:
    _check_integer(dtype)
    return x.astype(dtype)


# Integers have no derivative. Arrays of other libraries are cast.
_read_integer: Operator[..., Any] = numpy_operator(
    "read_integer", "(Array x, dtype dtype, bool is_flat) -> Array", _cast
)
_read_integer.register_kernel("cpu", _read)
_read_integer.register_sample_inputs(
    lambda: [
        (np.array([3.5, -2.0]), np.dtype("i1"), False),
        (np.array(7), np.dtype("u2"), True),
        (np.array([[True, False]]), np.dtype("i8"), False),
    ]
)


@_read_integer.register_fake
def _(x: Any, dtype: Any, is_flat: bool) -> FakeArray:
    _check_integer(dtype)
    return fake_like(x, dtype=dtype)


_read_integer.register_vmap(
    lambda info, in_dims, x, *rest: (_read_integer(x, *rest), in_dims[0])
)
no_gradient(_read_integer)


def read_number(x: Any, value: Any, *, is_flat: bool = False) -> Any:
    """A number, or a list of them, as an array takes it at a key without index arrays.

    At index arrays and masks a number is cast. For ``x.flat[place]`` NumPy has another
    error for one that does not fit. Source: NumPy 2.1 to 2.4.
    """
    if isinstance(value, list | tuple):
        return [_item(x, v) for v in value] if _holds_traced(value) else value
    if isinstance(value, np.generic):
        return value if value.dtype == x.dtype else _read_plain(x, value)
    is_read = isinstance(value, Tracer) and getattr(x.dtype, "kind", "") in ("i", "u")
    if not is_read or not value.box_is_scalar or np.can_cast(value.dtype, x.dtype):
        return value
    return _read_integer(value, x.dtype, is_flat)


def _read_plain(x: Any, value: Any) -> Any:
    """A number in the dtype of an array, with the errors of NumPy."""
    read = np.empty((), x.dtype)
    read[()] = value
    return read


def _holds_traced(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_holds_traced, value))
    return isinstance(value, Tracer)


def _item(x: Any, item: Any) -> Any:
    """An item of a list beside traced ones."""
    is_number = type(item) in (bool, int, float, complex)
    return _read_plain(x, item) if is_number else read_number(x, item)


# ---- values for one element ----


def is_listed(value: Any) -> bool:
    """Whether a value is an array with axes, or a list."""
    return isinstance(value, list | tuple) or bool(getattr(value, "shape", ()))


def one_element(x: Any, value: Any) -> Any:
    """A value for one element of an array; raise as NumPy does for one with axes."""
    if not is_listed(value):
        return value
    given = as_array(value)
    one = np.empty(1, x.dtype)
    if type(given) is np.ndarray:
        one[0] = value
        return one[0]
    if isinstance(value, list | tuple):
        one[0] = [0] * len(value)
        return one[0]  # a flag: whether there are items
    one[0] = np.zeros((1,) * len(given.shape), dtype_of(given))
    return given
