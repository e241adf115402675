"""Arguments of NumPy's functions: axes, shapes, keywords, lists, and symbolic lengths.

A comparison of symbolic sizes that cannot be proven fixes its answer for the whole graph.
So these functions ask only what is certain, and leave the rest to the size that they
return. Plain ints take the short way everywhere.
"""

from __future__ import annotations

import inspect
import math
import operator
import warnings
from collections.abc import Callable, Iterable, Sequence
from operator import index
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from customop import (
    ArgumentError,
    FakeArray,
    SymFloat,
    SymInt,
    Tracer,
    array_kind,
    check,
    fake_like,
    ops,
    sizes,
)

# ---- lengths of axes that may be symbolic ----
# Questions and sums that do not fix them.


broadcast: Callable[..., tuple[Any, ...]] = sizes.broadcast_sizes
class_of: Callable[[Any], type] = sizes.number_class
is_known: Callable[[Any, Any], bool] = sizes.is_known
is_symbolic: Callable[[Iterable[Any]], bool] = sizes.is_symbolic
product: Callable[[Iterable[Any]], Any] = math.prod
same_shape: Callable[[Sequence[Any], Sequence[Any]], bool] = sizes.same_shape
same_size: Callable[[Any, Any], bool] = sizes.same_size

# Classes of sizes, and of numbers that are not arrays.
SIZES = (int, SymInt)
NUMBERS = (int, float, complex, SymInt, SymFloat)
_INT = {int}
_BOUNDS = {int, type(None)}


def plain(value: Any) -> Any:
    """A number of the kind of a symbolic one; other values as they are."""
    cls = class_of(value)
    return value if cls is type(value) else cls()


# ---- questions ----


def is_one(n: Any) -> bool:
    """Whether a size is certainly 1."""
    return n == 1 if type(n) is int else is_known(n, 1)


def has_none(shape: Sequence[Any]) -> bool:
    """Whether a shape certainly has no elements."""
    if _INT.issuperset(map(type, shape)):
        return 0 in shape
    return any(is_known(n, 0) for n in shape)


def is_empty(shape: Sequence[Any]) -> bool:
    """Whether a shape has no elements; one of a symbolic size of 0 is kept so."""
    return any(n == 0 if type(n) is int else n.hint == 0 and n == 0 for n in shape)


def need_elements(what: str, shape: Sequence[Any]) -> None:
    """Require that an array has elements, where NumPy takes another way without."""
    for n in shape:
        if type(n) is not int:
            check(n >= 1, f"{what}: the graph is for arrays that have elements")


def is_below(n: Any, least: Any) -> bool:
    """Whether a size is less than another one, certainly or where it was traced.

    To raise as NumPy does for the arrays at hand. Other sizes are not refused here: NumPy
    refuses them when the graph runs.
    """
    if type(n) is int and type(least) is int:
        return n < least
    before, after = [getattr(m, "hint", m) for m in (n, least)]
    if before is None or after is None:
        return (n < least) is True
    return bool(before < after)


def fits_into(own: Any, n: Any) -> bool:
    """Whether an axis of length `own` broadcasts to the length `n`.

    One that is not known is taken to be 1 if it was so where it was traced.
    """
    if type(own) is int and type(n) is int:
        return own in (1, n)
    if same_size(own, n) or is_one(own):
        return True
    was_one = getattr(own, "hint", 0) == 1
    return bool(own == (1 if was_one else n))


def are_equal(shapes: Iterable[Sequence[Any]]) -> bool:
    """Whether shapes are equal; symbolic sizes are made so if they can be."""
    first, *others = shapes
    return all(
        len(first) == len(shape) and all(a == b for a, b in zip(first, shape))  # noqa: B905  # of one length
        for shape in others
    )


# ---- sizes from sizes ----


def smaller(a: Any, b: Any) -> Any:
    """The smaller size."""
    return min(a, b) if type(a) is int and type(b) is int else sizes.sym_min(a, b)


def larger(a: Any, b: Any) -> Any:
    """The larger size."""
    return max(a, b) if type(a) is int and type(b) is int else sizes.sym_max(a, b)


def size_of(value: Any) -> Any:
    """A size or index, as an int if it is not symbolic."""
    return value if isinstance(value, SymInt) else index(value)


def whole(value: Any) -> Any:
    """A size or axis, as `size_of`, for NumPy's own code in C: it takes no bools."""
    if isinstance(value, bool | np.bool_):
        raise ArgumentError(
            f"an integer is required, got {value!r}", do=f"write {int(value)}"
        )
    return size_of(value)


def array_of_sizes(value: Any) -> Any:
    """Numbers in nested lists as an array; of objects if a symbolic size is among them.

    NumPy itself would ask for the number that a symbolic size is.
    """
    numbers, shape = _flat(value)
    if not any(type(n) is SymInt for n in numbers):
        return np.asarray(value)
    found = np.empty(len(numbers), object)
    for i, number in enumerate(numbers):
        found[i] = number
    return found.reshape(shape)


def _flat(value: Any) -> tuple[list[Any], tuple[int, ...]]:
    """The numbers in nested lists of even lengths, and their shape."""
    if not isinstance(value, list | tuple):
        return [value], ()
    parts = [_flat(item) for item in value]
    inner = parts[0][1] if parts else ()
    return [n for numbers, _ in parts for n in numbers], (len(value), *inner)


def typical(values: Sequence[Any]) -> tuple[int, ...]:
    """Sizes or strides as numbers, to compare them: what they were at tracing.

    The order of axes in memory is decided by these, since it changes no result.
    """
    if _INT.issuperset(map(type, values)):
        return tuple(values)
    return tuple([n if type(n) is int else sizes.typical(n) for n in values])


def typical_pair(
    shape: Sequence[Any], new: Sequence[Any]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes of equally many elements as numbers of equally many elements."""
    if _INT.issuperset(map(type, shape)) and _INT.issuperset(map(type, new)):
        return tuple(shape), tuple(new)
    first, second = typical(shape), typical(new)
    if math.prod(first) == math.prod(second):
        return first, second
    return _at_tracing(shape), _at_tracing(new)


def _at_tracing(shape: Sequence[Any]) -> tuple[int, ...]:
    return tuple([n if type(n) is int else n.hint for n in shape])


def wide_to(x: Any, shape: Sequence[Any]) -> Any:
    """As `numpy.broadcast_to`, also for a constant and a symbolic shape."""
    if type(x) is np.ndarray and sizes.is_symbolic(shape):
        return ops.np.broadcast_to(x, shape)
    return np.broadcast_to(x, shape)


def with_size(x: Any, like: Any) -> Any:
    """An array of the shape of another one, joined of parts of symbolic sizes.

    Their sum is ``max(n - 1, 0) + min(n, 1)``, which is known to be n.
    """
    return np.broadcast_to(x, like.shape) if sizes.is_symbolic(like.shape) else x


# ---- slices ----


def sliced(entry: Sequence[Any], length: Any) -> tuple[Any, Any]:
    """Length and step of the slice ``[start, stop, step]`` of an axis."""
    start, stop, step = entry
    step = 1 if step is None else step
    if start is stop is None and type(step) is int and step == 1:
        return length, 1
    if type(length) is int and _BOUNDS.issuperset(map(type, entry)):
        return len(range(*slice(start, stop, step).indices(length))), step
    if step == 0:
        raise ValueError("slice step cannot be zero")
    if step > 0:
        low = 0 if start is None else _place(start, length)
        high = length if stop is None else _place(stop, length)
        return _steps(span(low, high, length), step), step
    # The same slice counted from the end, where it goes up.
    low = 0 if start is None else length - 1 - _place(start, length)
    high = length if stop is None else length - 1 - _place(stop, length)
    return _steps(span(low, high, length), -step), step


def _place(bound: Any, length: Any) -> Any:
    """A bound counted from the front; it may lie outside."""
    return bound if bound >= 0 else bound + length


def span(low: Any, high: Any, length: Any) -> Any:
    """How many places of an axis are from `low` to `high`, without the latter."""
    if not _is_certain(low >= 0):
        if same_size(high, length):
            return _not_negative(smaller(length - low, length))
        low = larger(low, 0)
    if not _is_certain(high <= length):
        high = smaller(high, length)
    return _not_negative(high - low)


def _is_certain(comparison: Any) -> bool:
    return comparison is True


def _not_negative(n: Any) -> Any:
    return n if _is_certain(n >= 0) else larger(n, 0)


def _steps(count: Any, step: Any) -> Any:
    return count if type(step) is int and step == 1 else (count + step - 1) // step


# ---- arguments of NumPy's functions ----
# Axes, shapes, keywords, nested lists of arrays.


NO_VALUE = np._NoValue  # NumPy's default of keepdims and initial
SINCE_2_5: bool = np.lib.NumpyVersion(np.__version__) >= "2.5.0"


# ---- arrays ----


def shape_of(x: Any) -> tuple[int, ...]:
    """Shape of an array, a number, or nested lists of them."""
    return tuple(
        getattr(as_array(x) if isinstance(x, list | tuple) else x, "shape", ())
    )


def as_array(value: Any) -> Any:
    """An array unchanged; numbers and nested lists of arrays as an array."""
    if hasattr(value, "shape"):
        return value
    if isinstance(value, SymInt | SymFloat):
        return ops.np.full([], value, np.asarray(plain(value)).dtype)
    if isinstance(value, list | tuple) and any(_holds_array(v) for v in value):
        return np.stack([as_array(v) for v in value])
    return np.asarray(value)


def _holds_array(value: Any) -> bool:
    """Whether an array that is not NumPy's is among nested values, or a symbolic size."""
    if isinstance(value, list | tuple):
        return any(_holds_array(v) for v in value)
    if isinstance(value, SymInt | SymFloat):
        return True
    return hasattr(value, "shape") and not isinstance(value, np.generic)


def dtype_of(x: Any) -> np.dtype[Any]:
    """NumPy's dtype of an array whose own dtype may be of another library."""
    dtype = x.dtype
    return dtype if isinstance(dtype, np.dtype) else fake_like(x).dtype


def value_of(x: Any) -> Any:
    """The plain value of an array, or None where it is unknown.

    An array without NumPy's protocols is given as one of NumPy.
    """
    value = below_of(x)
    if hasattr(value, "dtype") and not hasattr(value, "__array_ufunc__"):
        to_numpy = array_kind(value).to_numpy
        return value if to_numpy is None else to_numpy(value)
    return value


def below_of(x: Any) -> Any:
    """The array below all transforms, or None where its value is unknown.

    It is unknown under vmap, of fake arrays, and of arrays that are computed later.
    """
    while isinstance(x, Tracer):
        if not x.is_concrete:
            return None
        x = x.below
    if isinstance(x, np.ndarray | np.generic) or not hasattr(x, "dtype"):
        return x
    return None if isinstance(x, FakeArray) or array_kind(x).is_lazy else x


def is_inexact(x: Any) -> bool:
    """Whether the elements are floating-point or complex numbers."""
    return dtype_of(x).kind in "fc"


def unless_scalar(x: Any) -> Any:
    """The array itself; of a scalar, which never changes, an array without axes."""
    return np.copy(x) if getattr(x, "box_is_scalar", False) else x


def cast(x: Any, dtype: Any) -> Any:
    """The array in a dtype; unchanged for None and for its own."""
    return x if dtype is None or x.dtype == dtype else x.astype(dtype)


def in_order(x: Any, order: Any) -> Any:
    """The array with its axes in C or Fortran order in memory; unchanged for K and A."""
    if order not in ("C", "F") or len(x.shape) < 2:
        return x
    if order == "F":
        return np.transpose(in_order(np.transpose(x), "C"))
    return np.reshape(np.ravel(x), x.shape)


def as_scalar(found: Any) -> Any:
    """A result, which is a scalar where it has no axes.

    That is so for most of NumPy's functions, also where the operators that they are made
    of give arrays.
    """
    is_array = isinstance(found, Tracer) and not found.shape and not found.box_is_scalar
    return found[()] if is_array else found


def copied(x: Any, order: Any = "K") -> Any:
    """A copy; of an array that is not NumPy's in its own order.

    np.copy computes arrays of other libraries, or moves them to NumPy.
    """
    is_own = isinstance(x, np.ndarray | np.generic)
    return np.copy(x, order) if is_own else x.copy()


def in_c_order(x: Any) -> Any:
    """An array in C order; one without such an order as it is."""
    flags = getattr(x, "flags", None)
    return x if flags is None or flags.c_contiguous else copied(x, "C")


# ---- shapes and axes ----


def as_ints(value: Any) -> tuple[int, ...]:
    """A tuple of ints from one int or a sequence of them; symbolic sizes stay."""
    if isinstance(value, list | tuple | range) or shape_of(value):
        return tuple(value)
    return (value,)


def list_of_ints(value: Any) -> list[int]:
    """As `as_ints`, for NumPy's own code in C: a list, without bools."""
    if type(value) is int:
        return [value]
    if type(value) is tuple and _INT.issuperset(map(type, value)):
        return [*value]
    return [whole(item) for item in as_ints(value)]


def listed_axes(axis: Any) -> list[int] | None:
    """An axis argument as a list; None stays."""
    if type(axis) is int:
        return [axis]
    if axis is None:
        return None
    if isinstance(axis, list | tuple) or (isinstance(axis, np.ndarray) and axis.ndim):
        return [operator.index(item) for item in axis]
    return [operator.index(axis)]


def int_axes(axis: Any) -> list[int] | None:
    """As `listed_axes`, for NumPy's own loops: they take no lists, and no bools."""
    if type(axis) is int:  # as usual
        return [axis]
    if axis is None:
        return None
    return [whole(item) for item in (axis if isinstance(axis, tuple) else (axis,))]


def reduced_axes(a: Any, axis: Any) -> list[int] | None:
    """The axes of a reduction; 0 and -1 of an array without axes are none, as in NumPy."""
    if type(axis) is int:  # as usual
        return [axis] if axis not in _FIRST or shape_of(a) else None
    return None if _is_first_of_none(a, axis) else int_axes(axis)


_FIRST = frozenset((0, -1))


def lined(a: Any, axis: Any) -> Any:
    """An array without axes as one of one element, for the axes 0 and -1, as in NumPy."""
    if type(axis) is bool:
        whole(axis)  # raises
    return np.reshape(a, (1,)) if _is_first_of_none(a, axis) else a


def _is_first_of_none(a: Any, axis: Any) -> bool:
    return isinstance(axis, int | np.integer) and axis in _FIRST and not shape_of(a)


def as_axis(axes: Sequence[int] | None) -> tuple[int, ...] | None:
    """A list of axes as NumPy takes it; None stays."""
    return None if axes is None else tuple(axes)


def counted(axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """Axes counted from the front. They are not checked."""
    return tuple([a if a >= 0 else a + rank for a in axes])


def counted_axes(axis: Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Axes counted from the front, checked; all axes for None."""
    return tuple(range(ndim)) if axis is None else normalize_axis_tuple(axis, ndim)


def kept_shape(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    """The shape with length 1 along some axes."""
    return tuple(1 if i in axes else n for i, n in enumerate(shape))


def count_of(shape: Sequence[int], axis: Sequence[int] | None) -> int:
    """Number of elements that are reduced to one."""
    if axis is None:
        return product(shape)
    return product([shape[i] for i in counted_axes(axis, len(shape))])


def as_line(x: Any, axes: Sequence[int]) -> Any:
    """The array with some axes joined into one, which comes last."""
    rest = [i for i in range(x.ndim) if i not in axes]
    moved = np.transpose(x, (*rest, *axes))
    count = count_of(x.shape, axes)
    return np.reshape(moved, (*[x.shape[i] for i in rest], count))


def spread(
    value: Any, shape: tuple[int, ...], axis: Sequence[int] | None, keepdims: bool
) -> Any:
    """A reduced value, broadcast to the shape before the reduction."""
    return wide_to(kept(value, shape, axis, keepdims), shape)


def kept(
    value: Any, shape: tuple[int, ...], axis: Sequence[int] | None, keepdims: bool
) -> Any:
    """A reduced value in a shape that NumPy broadcasts to the one before the reduction."""
    if axis is None or keepdims:
        return value
    if isinstance(value, OF_NUMPY):  # a quarter of the time
        lengths = [*shape]
        for at in axis:
            lengths[at] = 1
        return value.reshape(lengths)
    return np.reshape(value, kept_shape(shape, counted_axes(axis, len(shape))))


# A union would be made again in each call.
OF_NUMPY = (np.ndarray, np.generic)


def widened(g: Any, shape: Any, axis: Any, keepdims: bool) -> Any:
    """As `spread`; small arrays of NumPy are copied.

    A copy takes a quarter of the time of np.broadcast_to (0.6 and 2.4 us, NumPy 2.4), and
    owns its memory.
    """
    if isinstance(g, OF_NUMPY) and math.prod(shape) < 1024:
        wide = np.empty(shape, g.dtype)
        wide[...] = kept(g, shape, axis, keepdims)
        return wide
    return spread(g, shape, axis, keepdims)


# ---- keywords and warnings ----


def is_set(keyword: Any) -> bool:
    """Whether a keyword, such as keepdims, is given and true."""
    return keyword is not NO_VALUE and bool(keyword)


def keeps_axes(keepdims: Any) -> bool:
    """Whether a reduction keeps its axes; NumPy's own loops take an integer alone."""
    if type(keepdims) is bool:
        return keepdims
    return keepdims is not NO_VALUE and bool(operator.index(keepdims))


def only(function: str, **given: tuple[Any, ...]) -> None:
    """Raise for a keyword whose value, the first of its tuple, is not among the rest."""
    for name, (value, *allowed) in given.items():
        if not any(
            value is v or (isinstance(value, str) and value == v) for v in allowed
        ):
            known = " or ".join(repr(v) for v in allowed)
            raise ArgumentError(
                f"{function}: {name}={value!r} is not supported for traced or fake arrays",
                do=f"use {name}={known}",
            )


def as_order(function: str, order: Any, *allowed: str | None) -> Any:
    """An order in memory; NumPy takes small letters too. Raise for one not allowed."""
    if isinstance(order, str):
        order = order.upper()
    only(function, order=(order, *allowed))
    return order


def refuse(name: str, **given: Any) -> None:
    """Raise for arguments of a NumPy function that its operator does not have."""
    for key, value in given.items():
        default = True if key == "where" else None
        if value is not default and value is not NO_VALUE:
            raise ArgumentError(
                f"np.{name}({key}={_short(value)}) has no operator for traced or fake"
                " arrays",
                do=_INSTEAD.get(key, f"leave {key}= away").replace("NAME", name),
            )


_INSTEAD = {
    "where": "select with np.where(mask, x, value) first",
    "initial": "combine afterwards: np.NAME(x) with the value",
}


def _short(value: Any) -> str:
    """A value as messages show it."""
    shape = getattr(value, "shape", None)
    return f"{type(value).__name__} of shape {shape}" if shape else repr(value)


def warn_user(text: str, category: type[Warning]) -> None:
    """Warn at the line that called NumPy, outside of this package and of NumPy."""
    frame, depth = inspect.currentframe(), 1
    while frame is not None and _is_library(frame.f_globals.get("__name__")):
        frame, depth = frame.f_back, depth + 1
    warnings.warn(text, category, depth)


def _is_library(module: Any) -> bool:
    """Whether a module belongs to NumPy or this package, whose new code has no name."""
    return module is None or module.partition(".")[0] in ("customop", "numpy")
