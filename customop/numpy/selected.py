"""Reductions of selected elements, or from an initial value: `where` and `initial`."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from customop import ArgumentError, ShapeError
from customop.numpy.arguments import (
    NO_VALUE,
    as_line,
    cast,
    counted_axes,
    dtype_of,
    kept_shape,
    shape_of,
)
from customop.numpy.sizes import has_none, is_known

__all__ = ["Reduction", "mask_like", "mean_of_selected", "reduce_selected"]

# A reduction by a ufunc: of an array, along axes or all, whether they are kept.
Reduction = Callable[[Any, Sequence[int] | None, bool], Any]

# Ufuncs for which an initial value that comes again changes nothing.
_IDEMPOTENT = ("maximum", "minimum", "fmax", "fmin", "lcm")


def mask_like(where: Any, shape: tuple[int, ...]) -> Any:
    """The mask of a reduction, in the shape of its array.

    Raises
    ------
    ArgumentError
        If it is an array of other values than flags, as in NumPy.
    ShapeError
        If it does not broadcast to that shape.
    """
    mask = where if hasattr(where, "shape") else np.asarray(where, bool)
    if mask.dtype != bool:
        raise ArgumentError(
            f"where= is an array of {mask.dtype}, must be of bool",
            do="pass where=mask != 0",
        )
    try:
        return np.broadcast_to(mask, shape)
    except ValueError:
        raise ShapeError(
            f"where= of shape {shape_of(mask)} cannot be broadcast to the shape {shape}"
            " of the array",
            do="give a mask of the shape of the array",
        ) from None


def reduce_selected(
    ufunc: np.ufunc,
    reduce: Reduction,
    a: Any,
    axis: Sequence[int] | None,
    keepdims: bool,
    initial: Any,
    where: Any,
) -> Any:
    """A reduction with `initial` or `where`, made of the reduction without them."""
    axes = counted_axes(axis, len(a.shape))
    # NumPy's own errors, and the dtype in which it reduces.
    sample = np.ones((1,) * len(axes), dtype_of(a))
    dtype = dtype_of(reduce(sample, None, False))
    line = as_line(cast(a, dtype), axes)
    start = _start(ufunc, initial, dtype)
    if (
        initial is None
        and is_known(line.shape[-1], 0)
        and not has_none(line.shape[:-1])
    ):
        raise ShapeError(
            f"zero-size array to reduction operation {ufunc.__name__} which has no"
            " identity",
            do="leave initial= away, or give a number",
        )
    if where is not True:
        mask = as_line(mask_like(where, tuple(a.shape)), axes)
        if start is None:
            raise ShapeError(
                f"reduction operation '{ufunc.__name__}' does not have an identity, so to"
                " use a where mask one has to specify 'initial'",
                do="give initial=",
            )
        filler = _filler(ufunc, start, dtype)
        if filler is None:
            return _kept(_in_turns(ufunc, line, mask, start), a, axes, keepdims)
        line = np.where(mask, line, filler)
    if initial is not NO_VALUE and start is not None:
        line = np.concatenate([_first(start, line), line], axis=-1)
    return _kept(reduce(line, [-1], False), a, axes, keepdims)


def _kept(y: Any, a: Any, axes: Sequence[int], keepdims: bool) -> Any:
    return np.reshape(y, kept_shape(a.shape, axes)) if keepdims else y


def _number(value: Any, dtype: Any) -> Any:
    """A number in a dtype; NumPy's errors, as of an element that is written."""
    element = np.zeros((), dtype)
    element[()] = value
    return element.item()


def _start(ufunc: np.ufunc, initial: Any, dtype: Any) -> Any:
    """The value that a reduction begins with, or None for its first element."""
    if initial is NO_VALUE:
        return None if ufunc.identity is None else _identity(ufunc, dtype)
    if initial is None:
        return None
    if shape_of(initial):
        raise ShapeError(
            f"initial= has the shape {shape_of(initial)}, must be a single value",
            do="combine the result with the array: np.add(np.sum(x), initial)",
        )
    is_plain = isinstance(initial, np.ndarray | np.generic)
    if hasattr(initial, "shape") and not is_plain:
        return cast(initial, dtype)
    return _number(initial, dtype)


def _identity(ufunc: np.ufunc, dtype: Any) -> Any:
    # -1 is all bits, also of unsigned integers.
    return np.asarray(ufunc.identity).astype(dtype).item()


def _first(start: Any, line: Any) -> Any:
    """The value before each line."""
    shape = (*line.shape[:-1], 1)
    if hasattr(start, "shape"):
        return np.broadcast_to(start, shape)
    return np.full_like(line, start, shape=shape)


def _filler(ufunc: np.ufunc, start: Any, dtype: Any) -> Any:
    """An element that leaves the result as it is, or None."""
    if ufunc.identity is not None:
        return _identity(ufunc, dtype)
    return start if ufunc.__name__ in _IDEMPOTENT else None


def _in_turns(ufunc: np.ufunc, line: Any, mask: Any, start: Any) -> Any:
    """Reduce along the last axis, element by element."""
    y = _first(start, line)[..., 0]
    for k in range(line.shape[-1]):
        y = np.where(mask[..., k], ufunc(y, line[..., k]), y)
    return y


def mean_of_selected(a: Any, axis: Any, dtype: Any, keepdims: bool, where: Any) -> Any:
    """The mean of the elements of a mask; it warns where there are none, as NumPy does."""
    mask = mask_like(where, tuple(a.shape))
    count = np.sum(mask, axis=axis, dtype=np.intp, keepdims=keepdims)
    if isinstance(count, np.ndarray | np.generic) and np.any(count == 0):
        warnings.warn("Mean of empty slice.", RuntimeWarning, stacklevel=2)
    if dtype is None and dtype_of(a).kind in "biu":
        dtype = np.float64
    is_half = dtype is None and dtype_of(a) == np.float16
    total = np.sum(
        a,
        axis=axis,
        dtype=np.float32 if is_half else dtype,
        keepdims=keepdims,
        where=mask,
    )
    return cast(total / count, np.float16 if is_half else total.dtype)
