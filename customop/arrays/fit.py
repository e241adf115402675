"""Results that are written in place, cast and broadcast to the array as by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from customop.arrays.describe import describe
from customop.arrays.dtypes import in_byte_order
from customop.arrays.kinds import is_fake, is_traced
from customop.errors import ArgumentError, ShapeError

__all__ = ["check_outs", "fit_into", "plain_refused", "write_out"]


def fit_into(
    box: Any, new: Any, name: str, casting: Any = "same_kind", *, widens: bool = True
) -> Any:
    """A result in the dtype and shape of the array that it is written into.

    Ufuncs broadcast it there (`widens`), other functions do not.

    Raises
    ------
    ArgumentError
        If NumPy does not cast it by this rule.
    ShapeError
        If it does not broadcast to the array.
    """
    if not hasattr(new, "shape"):
        new = np.asarray(new)
    if new.dtype != box.dtype:
        new = _cast(box, new, name, casting)
    if tuple(new.shape) == tuple(box.shape):
        return new
    return _widened(box, new, name, widens=widens)


def _cast(box: Any, new: Any, name: str, casting: Any) -> Any:
    if not np.can_cast(new.dtype, box.dtype, casting):
        raise ArgumentError(
            f"{name}: cannot cast the result of dtype {new.dtype} to the dtype"
            f" {box.dtype} of the array that it is written into (casting={casting!r})",
            do=f"use a new array: x = {name}(...), or write x[...] = value, which"
            " casts",
        )
    return new.astype(box.dtype)


def _widened(box: Any, new: Any, name: str, *, widens: bool) -> Any:
    shape, own = tuple(box.shape), tuple(new.shape)
    try:
        fits = widens and np.broadcast_shapes(own, shape) == shape
    except ValueError:
        fits = False
    if not fits:
        raise ShapeError(
            f"{name}: the result of shape {own} cannot be broadcast to the shape {shape}"
            " of the array that it is written into",
            do=f"use a new array: x = {name}(...)",
        )
    # A broadcast array alone would be read-only, and its elements one in memory.
    return np.copy(np.broadcast_to(new, shape), order="C")


def check_outs(outs: tuple[Any, ...], name: str, value: Any) -> None:
    """Raise for an array of ``out=`` that cannot take a value like this one."""
    for out in outs:
        if out is None:
            continue
        if not is_traced(out) and not is_fake(out):
            raise plain_refused(f"{name}(out=...)", value)
        if out.box_is_scalar:
            raise ArgumentError(
                f"{name}(out=...) is given {describe(out)}, a scalar, which never"
                " changes",
                do="use the result",
            )


def write_out(
    out: Any, new: Any, name: str, casting: Any, where: Any, *, widens: bool
) -> None:
    """Write the result of a NumPy function into the array of ``out=``."""
    fitted = fit_into(out, new, name, casting, widens=widens)
    if where is not True:
        fitted = in_byte_order(np.where(where, fitted, out), out.dtype)
    out.box_write(fitted)


def plain_refused(name: str, value: Any) -> ArgumentError:
    """The error for a traced or fake value that is written into a plain array."""
    return ArgumentError(
        f"{name} would write {describe(value)} into a plain array",
        do="make the array by np.zeros_like(x) of a traced x, or by np.zeros(shape,"
        " like=x); or use the result: x = x + y instead of x += y or out=x",
    )
