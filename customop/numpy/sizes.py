"""Lengths of axes that may be symbolic: questions and sums that do not fix them.

A comparison of symbolic sizes that cannot be proven fixes its answer for the whole graph.
So these functions ask only what is certain, and leave the rest to the size that they
return. Plain ints take the short way everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from operator import index
from typing import Any

import numpy as np

from customop import ArgumentError, SymFloat, SymInt, check, ops, sizes

__all__ = [
    "NUMBERS",
    "SIZES",
    "are_equal",
    "array_of_sizes",
    "broadcast",
    "class_of",
    "fits_into",
    "has_none",
    "is_below",
    "is_empty",
    "is_known",
    "is_one",
    "is_symbolic",
    "larger",
    "need_elements",
    "plain",
    "product",
    "same_shape",
    "same_size",
    "size_of",
    "sliced",
    "smaller",
    "span",
    "typical",
    "typical_pair",
    "whole",
    "wide_to",
    "with_size",
]

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
