"""Choices by a condition or number, and functions that call functions."""

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
    NUMBERS,
    SINCE_2_5,
    are_equal,
    as_array,
    cast,
    dtype_of,
    has_none,
    in_order,
    is_inexact,
    is_known,
    numpy_refuses,
    plain,
    product,
    refuse,
    shape_of,
    value_of,
)
from customop.numpy.indexing import mask_of
from customop.numpy.rules import (
    check_held,
    in_c_order,
    keep_order,
    no_gradient,
    numpy_operator,
    of_winner,
    register_formulas,
    whole_operator,
)

# ---- choice by a condition: where, select, clip ----


_where = numpy_operator(
    "where",
    "(Array condition, Array|Scalar x1, Array|Scalar x2) -> Array",
    lambda condition, x1, x2: np.where(condition, x1, x2),
    tags=Tag.pointwise,
)


@_where.register_fake
def _(condition: Any, x1: Any, x2: Any) -> FakeArray:
    dtype = np.result_type(*[getattr(x, "dtype", plain(x)) for x in (x1, x2)])
    if SINCE_2_5:  # NumPy 2.4 takes an int modulo the range of the dtype
        check_held(x1, dtype)
        check_held(x2, dtype)
    return keep_order((condition, x1, x2), dtype)


register_formulas(
    _where,
    ("condition", "x1", "x2"),
    (
        None,
        lambda g, condition: np.where(condition, g, 0.0),
        lambda g, condition: np.where(condition, 0.0, g),
    ),
)

_NOT_GIVEN: Any = object()


def _operand(value: Any) -> Any:
    """Convert a value to an array; numbers stay, since they adapt to other dtypes."""
    return value if isinstance(value, NUMBERS) else as_array(value)


@register_numpy_function(np.where)
def _where_of(condition: Any, x: Any = _NOT_GIVEN, y: Any = _NOT_GIVEN, /) -> Any:
    if x is _NOT_GIVEN and y is _NOT_GIVEN:
        return np.nonzero(condition)
    if x is _NOT_GIVEN or y is _NOT_GIVEN:
        numpy_refuses(np.where, True, 1, do="write np.where(condition, x, y)")
    return _where(as_array(condition), _operand(x), _operand(y))


@register_numpy_function(np.select)
def _(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    if len(condlist) != len(choicelist) or not len(condlist):
        numpy_refuses(
            np.select, condlist, choicelist, do="give a choice for each condition"
        )
    conditions = [as_array(c) for c in condlist]
    if any(dtype_of(condition) != np.bool_ for condition in conditions):
        numpy_refuses(np.select, conditions, choicelist, do="compare: x > 0")
    # One dtype for all: of int16 and uint16 alone it would be int32.
    values = [_operand(v) for v in (*choicelist, default)]
    dtype = np.result_type(*map(plain, values))
    *choices, chosen = [cast(v, dtype) if hasattr(v, "dtype") else v for v in values]
    for condition, choice in zip(conditions[::-1], choices[::-1], strict=True):
        chosen = _where_of(condition, choice, chosen)
    return in_c_order(cast(chosen, dtype))


@register_numpy_function(np.clip)
def _(
    a: Any,
    a_min: Any = _NOT_GIVEN,
    a_max: Any = _NOT_GIVEN,
    out: None = None,
    *,
    min: Any = _NOT_GIVEN,  # noqa: A002  # NumPy's names
    max: Any = _NOT_GIVEN,  # noqa: A002  # NumPy's
    **keywords: Any,
) -> Any:
    if a_min is _NOT_GIVEN and a_max is _NOT_GIVEN:
        a_min, a_max = _bound(min), _bound(max)
    elif a_min is _NOT_GIVEN or a_max is _NOT_GIVEN:
        raise TypeError("np.clip: give both a_min and a_max, or min= and max=")
    elif min is not _NOT_GIVEN or max is not _NOT_GIVEN:
        numpy_refuses(np.clip, 0, 0, 0, min=0, do="write np.clip(x, low, high)")
    a = as_array(a)
    if keywords:
        return _clipped(a, a_min, a_max, **keywords)
    low, high = _operands(dtype_of(a), a_min, a_max)
    if low is None and high is None:
        return np.positive(a)
    if low is None:
        return np.minimum(a, high)
    if high is None:
        return np.maximum(a, low)
    return _clip.run(a, low, high)


def _between(a: Any, low: Any, high: Any) -> Any:
    """Return the elements between two bounds, by two comparisons."""
    if type(low) not in _REAL or type(high) not in _REAL or not is_inexact(a):
        # One dtype for all three: of int16 and uint16 alone it would be int32.
        dtype = np.result_type(a, plain(low), plain(high))
        if np.result_type(a, plain(low)) != dtype:
            a = cast(a, dtype)
    return np.minimum(np.maximum(a, low), high)


_clip = whole_operator(
    "clip",
    "(Array a, Array|Scalar low, Array|Scalar high) -> Array",
    _between,
    lambda a, low, high: np.clip(a, low, high),
    tags=Tag.pointwise,
)


def _of_larger(g: Any, x: Any, other: Any, high: Any, y: Any) -> Any:
    """Return the gradient of `x`, where the larger of it and `other` is clipped to `y`."""
    larger = np.maximum(x, other)
    return of_winner(of_winner(g, larger, high, y), x, other, larger)


# The body has the same derivatives, by two operators in twice the time.
register_formulas(
    _clip,
    ("a", "low", "high"),
    (
        lambda g, a, low, high, y: _of_larger(g, a, low, high, y),
        lambda g, a, low, high, y: _of_larger(g, low, a, high, y),
        lambda g, a, low, high, y: of_winner(g, high, np.maximum(a, low), y),
    ),
)


def _clipped(a: Any, low: Any, high: Any, *, where: Any = True, **keywords: Any) -> Any:
    """Clip with the keywords of ufuncs, one bound after the other."""
    refuse("clip", where=where)
    if low is not None:
        a = np.maximum(a, low, **keywords)
    if high is not None:
        a = np.minimum(a, high, **keywords)
    return np.positive(a, **keywords) if low is None and high is None else a


_REAL = (int, float)


def _bound(value: Any) -> Any:
    return None if value is _NOT_GIVEN else value


def _operands(dtype: Any, low: Any, high: Any) -> tuple[Any, Any]:
    """Return the bounds, with None for a Python int that integers cannot pass."""
    if type(low) in _REAL and type(high) in _REAL and dtype.kind not in "iu":
        return low, high
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        low = None if type(low) is int and low <= limits.min else low
        high = None if type(high) is int and high >= limits.max else high
    return _given(low), _given(high)


def _given(bound: Any) -> Any:
    return None if bound is None else _operand(bound)


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
        numpy_refuses(
            np.apply_along_axis,
            func1d,
            axis,
            arr,
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
    """Call a function on all rows at once, since their number is not known."""
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
        numpy_refuses(
            np.piecewise,
            x,
            condlist,
            funclist,
            do="give a function for each condition, and one for the rest",
        )
    y = np.zeros_like(x)
    for condition, fn in zip(conditions, funclist, strict=True):
        y = _on_part(y, x, condition, fn, args, kw)
    return y


def _conditions(x: Any, condlist: Any) -> list[Any]:
    """Return the masks of the parts."""
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
    """Fill one part of an array by a function, or with a value."""
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
    """Return the array after ``y[mask] = value``."""
    rank = len(mask.shape)
    if shape_of(value) or not are_equal([y.shape[:rank], mask.shape]):
        y[mask] = value  # or NumPy's error
        return y
    # This holds on all rows of a vmap, and for arrays that cannot be written.
    wide = np.expand_dims(mask, tuple(range(rank, y.ndim)))
    return np.where(wide, _value_in(value, dtype_of(y)), y)


def _value_in(value: Any, dtype: Any) -> Any:
    """Return a value as it is when it is written into an array of a dtype."""
    if hasattr(value, "dtype"):
        return cast(value, dtype)
    written = np.zeros((), dtype)
    written[...] = value
    return written.item()


# ---- choice by number ----


def _numbered(x: Any, count: int, mode: str) -> Any:
    """Return numbers of choices from 0; those that do not exist go by NumPy's mode."""
    if x.dtype.kind not in "biu":
        np.choose(np.zeros(1, x.dtype), [0])  # NumPy's error
    places = x.astype(np.intp)
    if mode == "wrap":
        return places % count
    if mode == "raise" and ((places < 0) | (places >= count)).any():
        numpy_refuses(np.choose, [1], [0])
    return places if mode == "raise" else np.clip(places, 0, count - 1)


_choice_number: Operator[..., Any] = numpy_operator(
    "choice_number",
    "(Array x, int count, str mode) -> Array",
    _numbered,
    tags=Tag.pointwise,
    device_types=("cpu", "cuda"),
)
no_gradient(_choice_number)


@_choice_number.register_fake
def _(x: Any, count: int, mode: str) -> FakeArray:
    return keep_order([x], np.dtype(np.intp))


@register_numpy_function(np.choose)
def _(a: Any, choices: Any, out: None = None, mode: str = "raise") -> Any:
    np.choose([0], [0], mode=mode)  # type: ignore[call-overload]  # raises for unknown modes
    given = [as_array(c) for c in choices]
    number = _choice_number(as_array(a), len(given), mode)
    arrays = np.broadcast_arrays(number, *given)
    stacked = np.stack(arrays[1:])
    return np.take_along_axis(stacked, np.expand_dims(arrays[0], 0), 0)[0]
