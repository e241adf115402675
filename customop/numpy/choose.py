"""Choice by a condition: where, select, clip."""

from __future__ import annotations

from typing import Any

import numpy as np

from customop import (
    ArgumentError,
    FakeArray,
    ShapeError,
    Tag,
    register_numpy_function,
)
from customop.numpy.arguments import (
    SINCE_2_5,
    as_array,
    cast,
    dtype_of,
    is_inexact,
    refuse,
)
from customop.numpy.fakes import check_held, keep_order
from customop.numpy.layouts import in_c_order
from customop.numpy.rules import numpy_operator, register_formulas
from customop.numpy.sizes import NUMBERS, plain

__all__: list[str] = []


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
    """A number unchanged, since it adapts to the dtype of the arrays; else an array."""
    return value if isinstance(value, NUMBERS) else as_array(value)


@register_numpy_function(np.where)
def _where_of(condition: Any, x: Any = _NOT_GIVEN, y: Any = _NOT_GIVEN, /) -> Any:
    if x is _NOT_GIVEN and y is _NOT_GIVEN:
        return np.nonzero(condition)
    if x is _NOT_GIVEN or y is _NOT_GIVEN:
        raise ShapeError(
            "either both or neither of x and y should be given",
            do="write np.where(condition, x, y)",
        )
    return _where(as_array(condition), _operand(x), _operand(y))


@register_numpy_function(np.select)
def _(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    if len(condlist) != len(choicelist) or not len(condlist):
        raise ShapeError(
            "list of cases must be same length as list of conditions, and not empty",
            f"np.select: {len(condlist)} conditions, {len(choicelist)} choices",
            do="give a choice for each condition",
        )
    conditions = [as_array(c) for c in condlist]
    for i, condition in enumerate(conditions):
        if dtype_of(condition) != np.bool_:
            raise ArgumentError(
                f"invalid entry {i} in condlist: should be boolean ndarray",
                f"np.select: it is an array of {condition.dtype}",
                do="compare: x > 0",
            )
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
        raise ShapeError(
            "Passing `min` or `max` keyword argument when `a_min` and `a_max` are"
            " provided is forbidden.",
            do="write np.clip(x, low, high)",
        )
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
    if type(low) not in _REAL or type(high) not in _REAL or not is_inexact(a):
        # One dtype for all three: of int16 and uint16 alone it would be int32.
        dtype = np.result_type(a, plain(low), plain(high))
        if np.result_type(a, plain(low)) != dtype:
            a = cast(a, dtype)
    return np.minimum(np.maximum(a, low), high)


def _clipped(a: Any, low: Any, high: Any, *, where: Any = True, **keywords: Any) -> Any:
    """np.clip with the keywords of ufuncs, which take one bound after the other."""
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
    """The bounds; None in place of a Python int that integers cannot pass."""
    if type(low) in _REAL and type(high) in _REAL and dtype.kind not in "iu":
        return low, high
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        low = None if type(low) is int and low <= limits.min else low
        high = None if type(high) is int and high >= limits.max else high
    return _given(low), _given(high)


def _given(bound: Any) -> Any:
    return None if bound is None else _operand(bound)
