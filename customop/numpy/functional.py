"""Functions that call functions, and choices by number: apply_along_axis, piecewise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index

from customop import (
    DataDependentError,
    FakeArray,
    Operator,
    ShapeError,
    Tag,
    register_numpy_function,
    vmap,
)
from customop.numpy.arguments import (
    as_array,
    cast,
    dtype_of,
    in_order,
    shape_of,
    value_of,
)
from customop.numpy.fakes import keep_order
from customop.numpy.masked import mask_of
from customop.numpy.rules import no_gradient, numpy_operator
from customop.numpy.sizes import are_equal, has_none, is_known, product

__all__: list[str] = []

# ---- functions of rows ----


@register_numpy_function(np.apply_along_axis)
def _(
    func1d: Callable[..., Any], axis: Any, arr: Any, *args: Any, **kwargs: Any
) -> Any:
    arr = as_array(arr)
    axis = normalize_axis_index(axis, arr.ndim)
    rows = np.moveaxis(arr, axis, -1)
    outer = tuple(rows.shape[:-1])
    if has_none(outer):
        raise ShapeError(
            "Cannot apply_along_axis when any iteration dimensions are 0",
            f"np.apply_along_axis: the shape is {tuple(arr.shape)}, the axis {axis}",
            do="handle arrays without elements before the call",
        )
    if any(type(n) is not int for n in outer):
        return _batched(lambda row: func1d(row, *args, **kwargs), axis, rows)
    found = [
        as_array(func1d(rows[index], *args, **kwargs)) for index in np.ndindex(outer)
    ]
    inner = tuple(found[0].shape)
    flat = cast(np.stack([np.broadcast_to(x, inner) for x in found]), found[0].dtype)
    whole = np.reshape(flat, (*outer, *inner))
    places = range(len(outer), whole.ndim)
    return np.moveaxis(whole, tuple(places), tuple(axis + i for i in range(len(inner))))


def _batched(fn: Callable[[Any], Any], axis: int, rows: Any) -> Any:
    """The results of all rows at once: their number is not known."""
    outer = tuple(rows.shape[:-1])
    line = np.reshape(rows, (product(outer), rows.shape[-1]))
    found = in_order(vmap(lambda row: as_array(fn(row)))(line), "C")
    whole = np.reshape(found, (*outer, *found.shape[1:]))
    rank = found.ndim - 1
    places = range(len(outer), whole.ndim)
    return np.moveaxis(whole, tuple(places), tuple(range(axis, axis + rank)))


@register_numpy_function(np.apply_over_axes)
def _(func: Callable[..., Any], a: Any, axes: Any) -> Any:
    value = as_array(a)
    for axis in axes if np.shape(axes) else (axes,):
        place = axis + a.ndim if axis < 0 else axis
        found = func(value, place)
        if found.ndim != value.ndim:
            found = np.expand_dims(found, place)
        if found.ndim != value.ndim:
            raise ShapeError(
                "function is not returning an array of the correct shape",
                f"np.apply_over_axes: {found.ndim - 1} axes, not {value.ndim} or one less",
                do="reduce over one axis, with keepdims or without",
            )
        value = found
    return value


# ---- functions of parts of an array ----


@register_numpy_function(np.piecewise)
def _(x: Any, condlist: Any, funclist: Sequence[Any], *args: Any, **kw: Any) -> Any:
    x = as_array(x)
    conditions = _conditions(x, condlist)
    if len(conditions) == len(funclist) - 1:
        is_any = conditions[0]
        for condition in conditions[1:]:
            is_any = np.logical_or(is_any, condition)
        conditions.append(np.logical_not(is_any))
    if len(conditions) != len(funclist):
        count = len(conditions)
        raise ShapeError(
            f"with {count} condition(s), either {count} or {count + 1} functions are"
            " expected",
            f"np.piecewise: {len(funclist)} functions",
            do="give a function for each condition, and one for the rest",
        )
    y = np.zeros_like(x)
    for condition, fn in zip(conditions, funclist, strict=True):
        y = _on_part(y, x, condition, fn, args, kw)
    return y


def _conditions(x: Any, condlist: Any) -> list[Any]:
    """The masks of the parts."""
    is_one = _is_scalar(condlist)
    if not is_one:
        first = condlist[0]
        is_list = isinstance(first, list) or hasattr(first, "shape")
        is_one = x.ndim != 0 and (_is_scalar(first) or not is_list)
    masks = [as_array(c) for c in ([condlist] if is_one else condlist)]
    if masks and not are_equal([tuple(mask.shape) for mask in masks]):
        raise ShapeError(
            "np.piecewise: the conditions have the shapes"
            f" {', '.join(str(tuple(mask.shape)) for mask in masks)}",
            do="give conditions of one shape: np.broadcast_to(condition, x.shape)",
        )
    return [cast(mask, np.dtype(bool)) for mask in masks]


def _is_scalar(value: Any) -> bool:
    return np.isscalar(value) or getattr(value, "box_is_scalar", False)


def _on_part(y: Any, x: Any, mask: Any, fn: Any, args: Any, kw: Any) -> Any:
    """The array with a part computed by a function, or set to a value."""
    if not callable(fn):
        return _with_value(y, mask, fn)
    known = value_of(mask)
    if known is None and mask_of(mask) is not None:
        raise DataDependentError(
            "np.piecewise: a function gets the elements that its condition chooses, and"
            " their number depends on data, which differs between the rows of a vmap",
            do="call the functions on all elements: np.where(condition, f(x), g(x))",
        )
    chosen = mask if known is None else known
    part = x[chosen]
    if not is_known(part.size, 0):
        y[chosen] = fn(part, *args, **kw)
    return y


def _with_value(y: Any, mask: Any, value: Any) -> Any:
    """The array after ``y[mask] = value``."""
    rank = len(mask.shape)
    if shape_of(value) or not are_equal([y.shape[:rank], mask.shape]):
        y[mask] = value  # or NumPy's error
        return y
    # This holds on all rows of a vmap, and for arrays that cannot be written.
    wide = np.expand_dims(mask, tuple(range(rank, y.ndim)))
    return np.where(wide, _value_in(value, dtype_of(y)), y)


def _value_in(value: Any, dtype: Any) -> Any:
    """A value as it is when it is written into an array of a dtype."""
    if hasattr(value, "dtype"):
        return cast(value, dtype)
    written = np.zeros((), dtype)
    written[...] = value
    return written.item()


# ---- choice by number ----


def _numbered(x: Any, count: int, mode: str) -> Any:
    """Numbers of choices, from 0; those that do not exist by NumPy's mode."""
    if x.dtype.kind not in "biu":
        raise TypeError(
            f"Cannot cast array data from {x.dtype!r} to {np.dtype(np.intp)!r} according to"
            " the rule 'safe'"
        )
    places = x.astype(np.intp)
    if mode == "wrap":
        return places % count
    if mode == "raise" and ((places < 0) | (places >= count)).any():
        raise ValueError("invalid entry in choice array")
    return places if mode == "raise" else np.clip(places, 0, count - 1)


choice_number: Operator[..., Any] = numpy_operator(
    "choice_number",
    "(Array x, int count, str mode) -> Array",
    _numbered,
    tags=Tag.pointwise,
    device_types=("cpu", "cuda"),
)
no_gradient(choice_number)


@choice_number.register_fake
def _(x: Any, count: int, mode: str) -> FakeArray:
    return keep_order([x], np.dtype(np.intp))


@register_numpy_function(np.choose)
def _(a: Any, choices: Any, out: None = None, mode: str = "raise") -> Any:
    np.choose([0], [0], mode=mode)  # type: ignore[call-overload]  # raises for unknown modes
    given = [as_array(c) for c in choices]
    number = choice_number(as_array(a), len(given), mode)
    arrays = np.broadcast_arrays(number, *given)
    stacked = np.stack(arrays[1:])
    return np.take_along_axis(stacked, np.expand_dims(arrays[0], 0), 0)[0]
