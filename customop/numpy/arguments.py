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
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import index
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_tuple

from customop import (
    ArgumentError,
    FakeArray,
    ShapeError,
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
    """Return a plain number of the kind of a symbolic one; other values as they are."""
    cls = class_of(value)
    return value if cls is type(value) else cls()


# ---- questions ----


def is_one(n: Any) -> bool:
    """Return whether a size is certainly 1."""
    return n == 1 if type(n) is int else is_known(n, 1)


def has_none(shape: Sequence[Any]) -> bool:
    """Return whether a shape certainly has no elements."""
    if _INT.issuperset(map(type, shape)):
        return 0 in shape
    return any(is_known(n, 0) for n in shape)


def is_empty(shape: Sequence[Any]) -> bool:
    """Return whether a shape has no elements; a symbolic size of 0 is guarded."""
    return any(n == 0 if type(n) is int else n.hint == 0 and n == 0 for n in shape)


def need_elements(what: str, shape: Sequence[Any]) -> None:
    """Require that an array has elements, where NumPy takes another way without."""
    for n in shape:
        if type(n) is not int:
            check(n >= 1, f"{what}: the graph is for arrays that have elements")


def is_below(n: Any, least: Any) -> bool:
    """Return whether a size is less than another one, certainly or where it was traced.

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
    """Return whether an axis of length `own` broadcasts to the length `n`.

    One that is not known is taken to be 1 if it was so where it was traced.
    """
    if type(own) is int and type(n) is int:
        return own in (1, n)
    if same_size(own, n) or is_one(own):
        return True
    was_one = getattr(own, "hint", 0) == 1
    return bool(own == (1 if was_one else n))


def are_equal(shapes: Iterable[Sequence[Any]]) -> bool:
    """Return whether shapes are equal; symbolic sizes are made equal if possible."""
    first, *others = shapes
    return all(
        len(first) == len(shape) and all(a == b for a, b in zip(first, shape))  # noqa: B905  # of one length
        for shape in others
    )


# ---- sizes from sizes ----


def smaller(a: Any, b: Any) -> Any:
    """Return the smaller size."""
    return min(a, b) if type(a) is int and type(b) is int else sizes.sym_min(a, b)


def larger(a: Any, b: Any) -> Any:
    """Return the larger size."""
    return max(a, b) if type(a) is int and type(b) is int else sizes.sym_max(a, b)


def size_of(value: Any) -> Any:
    """Return a size or index, as an int if it is not symbolic."""
    return value if isinstance(value, SymInt) else index(value)


def whole(value: Any) -> Any:
    """Return a size or axis for NumPy's own code in C, which takes no bools."""
    if isinstance(value, bool | np.bool_):
        raise ArgumentError(
            f"an integer is required, got {value!r}", do=f"write {int(value)}"
        )
    return size_of(value)


def array_of_sizes(value: Any) -> Any:
    """Convert nested lists of numbers to an array; of objects if a size is symbolic.

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
    """Return the numbers in nested lists of even lengths, and their shape."""
    if not isinstance(value, list | tuple):
        return [value], ()
    parts = [_flat(item) for item in value]
    inner = parts[0][1] if parts else ()
    return [n for numbers, _ in parts for n in numbers], (len(value), *inner)


def typical(values: Sequence[Any]) -> tuple[int, ...]:
    """Return sizes or strides as numbers, to compare them: those at tracing.

    The order of axes in memory is decided by these, since it changes no result.
    """
    if _INT.issuperset(map(type, values)):
        return tuple(values)
    return tuple([n if type(n) is int else sizes.typical(n) for n in values])


def typical_pair(
    shape: Sequence[Any], new: Sequence[Any]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return two shapes of one size as numbers, which have one size too."""
    if _INT.issuperset(map(type, shape)) and _INT.issuperset(map(type, new)):
        return tuple(shape), tuple(new)
    first, second = typical(shape), typical(new)
    if math.prod(first) == math.prod(second):
        return first, second
    return _at_tracing(shape), _at_tracing(new)


def _at_tracing(shape: Sequence[Any]) -> tuple[int, ...]:
    return tuple([n if type(n) is int else n.hint for n in shape])


def wide_to(x: Any, shape: Sequence[Any]) -> Any:
    """Broadcast an array as NumPy does, also a constant to a symbolic shape."""
    if isinstance(x, np.ndarray | np.generic) and sizes.is_symbolic(shape):
        return ops.np.broadcast_to(x, shape)
    return np.broadcast_to(x, shape)


def with_size(x: Any, like: Any) -> Any:
    """Return an array joined of parts in the known shape of another one.

    Their sum is ``max(n - 1, 0) + min(n, 1)``, which is known to be n.
    """
    return np.broadcast_to(x, like.shape) if sizes.is_symbolic(like.shape) else x


# ---- slices ----


def sliced(entry: Sequence[Any], length: Any) -> tuple[Any, Any]:
    """Return length and step of the slice ``[start, stop, step]`` of an axis."""
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
    """Return a bound counted from the front; it may lie outside."""
    return bound if bound >= 0 else bound + length


def span(low: Any, high: Any, length: Any) -> Any:
    """Count the places of an axis from `low` up to `high`, without it."""
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
    """Return the shape of an array, a number, or nested lists of them."""
    return tuple(
        getattr(as_array(x) if isinstance(x, list | tuple) else x, "shape", ())
    )


def as_array(value: Any) -> Any:
    """Convert nested lists of arrays to an array, a number to a scalar of NumPy.

    Return arrays unchanged. A scalar goes with the arrays of all devices.
    """
    if hasattr(value, "shape"):
        return value
    if isinstance(value, SymInt | SymFloat):
        return ops.np.full([], value, np.asarray(plain(value)).dtype)
    if isinstance(value, list | tuple) and any(_holds_array(v) for v in value):
        return np.stack([as_array(v) for v in value])
    found = np.asarray(value)
    return found if found.dtype == object else found[()]  # an object has no shape


def _holds_array(value: Any) -> bool:
    """Return whether nested values hold a symbolic size, or an array not of NumPy."""
    if isinstance(value, list | tuple):
        return any(_holds_array(v) for v in value)
    if isinstance(value, SymInt | SymFloat):
        return True
    return hasattr(value, "shape") and not isinstance(value, np.generic)


def dtype_of(x: Any) -> np.dtype[Any]:
    """Return NumPy's dtype of an array whose own dtype may be of another library."""
    dtype = x.dtype
    return dtype if isinstance(dtype, np.dtype) else fake_like(x).dtype


def value_of(x: Any) -> Any:
    """Return the plain value of an array, or None where it is unknown.

    An array without NumPy's protocols is given as one of NumPy.
    """
    value = below_of(x)
    if hasattr(value, "dtype") and not hasattr(value, "__array_ufunc__"):
        to_numpy = array_kind(value).to_numpy
        return value if to_numpy is None else to_numpy(value)
    return value


def below_of(x: Any) -> Any:
    """Return the array below all transforms, or None where its value is unknown.

    It is unknown under vmap, of fake arrays, and of arrays that are computed later.
    """
    while isinstance(x, Tracer):
        if not x.is_concrete:
            return None
        x = x.below
    if isinstance(x, np.ndarray | np.generic) or not hasattr(x, "dtype"):
        return x
    return None if isinstance(x, FakeArray) or array_kind(x).is_lazy else x


def is_plain(x: Any) -> bool:
    """Return whether NumPy can read a value: it is known, and of NumPy."""
    value = below_of(x)
    return value is not None and (
        isinstance(value, np.ndarray | np.generic) or not hasattr(value, "dtype")
    )


def is_inexact(x: Any) -> bool:
    """Return whether the elements are floating-point or complex numbers."""
    return dtype_of(x).kind in "fc"


def unless_scalar(x: Any) -> Any:
    """Return an array; a scalar, which never changes, as an array without axes."""
    return np.copy(x) if getattr(x, "box_is_scalar", False) else x


def as_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the dtype that an argument names, also one of the classes `np.dtypes`."""
    # ``np.dtype(np.dtypes.Float32DType)`` is that of objects.
    is_class = isinstance(dtype, _DTYPE_CLASS)
    return np.empty(0, dtype).dtype if is_class else np.dtype(dtype)


_DTYPE_CLASS = type(np.dtype)


def cast(x: Any, dtype: Any) -> Any:
    """Cast an array to a dtype; return it unchanged for None and for its own."""
    return x if dtype is None or x.dtype == dtype else x.astype(dtype)


def in_order(x: Any, order: Any) -> Any:
    """Return a packed array in C or Fortran order, the array itself for K and A.

    One that is packed already is returned as a view, others are copied.
    """
    if order not in ("C", "F") or not x.shape:
        return x
    if order == "F":
        return np.transpose(in_order(np.transpose(x), "C"))
    flat = np.ravel(x)
    return flat if len(x.shape) == 1 else np.reshape(flat, x.shape)


def as_scalar(found: Any) -> Any:
    """Return a result as a scalar if it has no axes.

    That is so for most of NumPy's functions, also where the operators that they are made
    of give arrays.
    """
    is_array = isinstance(found, Tracer) and not found.shape and not found.box_is_scalar
    return found[()] if is_array else found


def copied(x: Any, order: Any = "K") -> Any:
    """Copy an array; one that is not NumPy's in its own order.

    np.copy computes arrays of other libraries, or moves them to NumPy.
    """
    is_own = isinstance(x, np.ndarray | np.generic)
    return np.copy(x, order) if is_own else x.copy()


def in_c_order(x: Any) -> Any:
    """Return an array in C order; one without such an order as it is."""
    flags = getattr(x, "flags", None)
    return x if flags is None or flags.c_contiguous else copied(x, "C")


# ---- shapes and axes ----


def as_ints(value: Any) -> tuple[int, ...]:
    """Return one int, or a sequence of ints, as a tuple; symbolic sizes stay."""
    if isinstance(value, list | tuple | range) or shape_of(value):
        return tuple(value)
    return (value,)


def list_of_ints(value: Any) -> list[int]:
    """Return ints as a list for NumPy's own code in C, which takes no bools."""
    if type(value) is int:
        return [value]
    if type(value) is tuple and _INT.issuperset(map(type, value)):
        return [*value]
    return [whole(item) for item in as_ints(value)]


def listed_axes(axis: Any) -> list[int] | None:
    """Return an axis argument as a list; None stays."""
    if type(axis) is int:
        return [axis]
    if axis is None:
        return None
    if isinstance(axis, list | tuple) or (isinstance(axis, np.ndarray) and axis.ndim):
        return [operator.index(item) for item in axis]
    return [operator.index(axis)]


def int_axes(axis: Any) -> list[int] | None:
    """Return an axis argument as a list for NumPy's loops, which take no lists or bools."""
    if type(axis) is int:  # as usual
        return [axis]
    if axis is None:
        return None
    return [whole(item) for item in (axis if isinstance(axis, tuple) else (axis,))]


def with_zeros(x: Any, axes: Sequence[int]) -> Any:
    """Return an array without elements, with one zero along these axes if it has none."""
    shape = [*x.shape]
    for axis in axes:
        shape[axis] = shape[axis] or 1
    return np.zeros(shape, x.dtype)


def reduced_axes(a: Any, axis: Any) -> list[int] | None:
    """Return the axes of a reduction; None for 0 and -1 of an array without axes."""
    if type(axis) is int:  # as usual
        return [axis] if axis not in _FIRST or shape_of(a) else None
    return None if _is_first_of_none(a, axis) else int_axes(axis)


_FIRST = frozenset((0, -1))


def lined(a: Any, axis: Any) -> Any:
    """Return an array without axes as one of one element, for the axes 0 and -1."""
    if type(axis) is bool:
        whole(axis)  # raises
    return np.reshape(a, (1,)) if _is_first_of_none(a, axis) else a


def _is_first_of_none(a: Any, axis: Any) -> bool:
    return isinstance(axis, int | np.integer) and axis in _FIRST and not shape_of(a)


def as_axis(axes: Sequence[int] | None) -> tuple[int, ...] | None:
    """Return a list of axes as NumPy takes it; None stays."""
    return None if axes is None else tuple(axes)


def counted(axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """Count axes from the front, without checking them."""
    return tuple([a if a >= 0 else a + rank for a in axes])


def counted_axes(axis: Sequence[int] | None, ndim: int) -> tuple[int, ...]:
    """Count axes from the front and check them; None means all axes."""
    return tuple(range(ndim)) if axis is None else normalize_axis_tuple(axis, ndim)


def kept_shape(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    """Return the shape with length 1 along some axes."""
    return tuple(1 if i in axes else n for i, n in enumerate(shape))


def count_of(shape: Sequence[int], axis: Sequence[int] | None) -> int:
    """Return the number of elements that are reduced to one."""
    if axis is None:
        return product(shape)
    return product([shape[i] for i in counted_axes(axis, len(shape))])


def as_line(x: Any, axes: Sequence[int]) -> Any:
    """Join some axes of an array into one, which comes last."""
    rest = [i for i in range(x.ndim) if i not in axes]
    moved = np.transpose(x, (*rest, *axes))
    count = count_of(x.shape, axes)
    return np.reshape(moved, (*[x.shape[i] for i in rest], count))


def spread(
    value: Any, shape: tuple[int, ...], axis: Sequence[int] | None, keepdims: bool
) -> Any:
    """Broadcast a reduced value to the shape before the reduction.

    A copy would be cheaper to compute with where there are few elements, but what comes
    after it would have other last bits and layouts than in a graph.
    """
    wide = kept(value, shape, axis, keepdims)
    if isinstance(wide, OF_NUMPY) and not sizes.is_symbolic(shape):
        return _wide_view(wide, shape)
    return wide_to(wide, shape)


def _wide_view(x: Any, shape: tuple[int, ...]) -> Any:
    """Return ``np.broadcast_to(x, shape)`` in a sixth of the time (NumPy 2.4)."""
    if x.dtype.hasobject:
        return np.broadcast_to(x, shape)
    if x.size == 1:
        wide = np.ndarray(shape, x.dtype, x, 0, (0,) * len(shape))
    elif not x.flags.c_contiguous:
        return np.broadcast_to(x, shape)
    else:
        steps = [0 if n == 1 else s for n, s in zip(x.shape, x.strides, strict=True)]
        wide = np.ndarray(shape, x.dtype, x, 0, steps)
    wide.setflags(write=False)
    return wide


def kept(
    value: Any, shape: tuple[int, ...], axis: Sequence[int] | None, keepdims: bool
) -> Any:
    """Reshape a reduced value so that it broadcasts to the shape before."""
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


# ---- keywords and warnings ----


def is_set(keyword: Any) -> bool:
    """Return whether a keyword, such as keepdims, is given and true."""
    return keyword is not NO_VALUE and bool(keyword)


def keeps_axes(keepdims: Any) -> bool:
    """Return whether a reduction keeps its axes; NumPy's loops take only integers."""
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


def numpy_refuses(
    function: Callable[..., Any], *args: Any, do: str = "", **keywords: Any
) -> None:
    """Raise NumPy's own error for a call, if it has one.

    NumPy gets an array of zeros without memory in the place of each traced or fake one.

    Parameters
    ----------
    function : callable
        NumPy's function, whose message depends on its version.
    *args, **keywords
        The arguments of the call; arrays in lists are replaced too.
    do : str
        What to do instead. With it, a ValueError becomes a ShapeError and a TypeError an
        ArgumentError, and they show the call.
    """
    given = [_stand_in(x) for x in args]
    named = {name: _stand_in(x) for name, x in keywords.items()}
    try:
        function(*given, **named)
    except (TypeError, ValueError) as error:
        if not do or isinstance(error, np.exceptions.AxisError):
            raise
        kind = ShapeError if isinstance(error, ValueError) else ArgumentError
        raise kind(str(error), _shown(function, given, named), do=do) from None


def _stand_in(x: Any) -> Any:
    """Return what NumPy's own code can look at in the place of a value."""
    if type(x) in (list, tuple):
        return type(x)(map(_stand_in, x))
    if isinstance(x, np.ndarray | np.generic) or not hasattr(x, "shape"):
        return sizes.typical(x) if isinstance(x, SymInt) else plain(x)
    return np.broadcast_to(np.zeros((), dtype_of(x)), typical(x.shape))


def _shown(function: Any, args: Sequence[Any], named: Mapping[str, Any]) -> str:
    """Return a call as text, with dtypes and shapes of arrays."""
    module = getattr(function, "__module__", None) or "numpy"
    values = [
        *map(_brief, args),
        *[f"{name}={_brief(value)}" for name, value in named.items()],
    ]
    owner = getattr(function, "__self__", None)  # of the method of a ufunc
    of = f".{owner.__name__}" if isinstance(owner, np.ufunc) else ""
    name = f"np{module.removeprefix('numpy')}{of}.{function.__name__}"
    return f"{name}({', '.join(values)})"


def _brief(x: Any) -> str:
    if type(x) in (list, tuple):
        text = ", ".join(map(_brief, x))
        comma = "," * (len(x) == 1)
        return f"[{text}]" if type(x) is list else f"({text}{comma})"
    return f"{x.dtype}{[*x.shape]}" if hasattr(x, "shape") else repr(x)


def as_order(function: str, order: Any, *allowed: str | None) -> Any:
    """Return an order in memory in capitals; raise for one that is not allowed."""
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
    """Return a value as messages show it."""
    shape = getattr(value, "shape", None)
    return f"{type(value).__name__} of shape {shape}" if shape else repr(value)


def warn_user(text: str, category: type[Warning]) -> None:
    """Warn at the line that called NumPy, outside of this package and of NumPy."""
    frame, depth = inspect.currentframe(), 1
    while frame is not None and _is_library(frame.f_globals.get("__name__")):
        frame, depth = frame.f_back, depth + 1
    warnings.warn(text, category, depth)


def _is_library(module: Any) -> bool:
    """Return whether a module is of NumPy or this package; generated code has no name.

    Generated code has no name.
    """
    return module is None or module.partition(".")[0] in ("customop", "numpy")
