"""Fake kernels of elementwise operators, and fake arrays of views."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from customop import FakeArray, Tracer, fake_like
from customop.numpy.sizes import (
    broadcast,
    class_of,
    has_none,
    is_one,
    product,
    typical,
)

__all__ = [
    "check_held",
    "check_range",
    "device_of",
    "fake_of_ufunc",
    "is_fortran",
    "keep_order",
    "kind_of",
    "order_of",
    "packed_as",
    "result_dtype",
    "stack_strides",
    "view_of",
    "without_ones",
]


def device_of(x: Any) -> str:
    """Name of the device of an array."""
    while isinstance(x, Tracer):
        x = x.below
    if type(x) is np.ndarray:
        return "cpu"
    return x.device if type(x) is FakeArray else fake_like(x).device


def view_of(x: Any, shape: Iterable[int], strides: Iterable[int]) -> FakeArray:
    """The fake array of a view of another one."""
    return FakeArray(tuple(shape), x.dtype, tuple(strides), device_of(x))


def without_ones(shape: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Lengths and strides of the axes that are not of length one, as numbers."""
    pairs = zip(typical(shape), typical(strides), strict=True)
    return [(n, s) for n, s in pairs if n != 1]


def packed_as(x: Any, shape: Sequence[int], dtype: Any) -> FakeArray:
    """An array in F order if `x` is contiguous in F order and not in C order; else in C order."""
    if not is_fortran(x):
        return FakeArray(shape, dtype, device=device_of(x))
    last_to_first = range(len(shape))[::-1]
    return FakeArray(shape, dtype, device=device_of(x), order=last_to_first)


def is_fortran(x: Any) -> bool:
    """Whether an array is contiguous in F order and not in C order."""
    pairs = without_ones(x.shape, x.strides)
    if len(pairs) < 2 or has_none(x.shape):
        return False
    step = x.dtype.itemsize
    for length, stride in pairs:
        if stride != step:
            return False
        step *= length
    return True


@lru_cache(maxsize=4096)
def result_dtype(ufunc: Any, kinds: tuple[Any, ...]) -> Any:
    """Dtype of the result of a ufunc for dtypes, and Python classes of numbers."""
    samples = [np.empty(0, k) if isinstance(k, np.dtype) else k(1) for k in kinds]
    return ufunc(*samples).dtype


def fake_of_ufunc(ufunc: Any) -> Callable[..., FakeArray]:
    """The fake kernel of a ufunc with one output."""

    def unary(x: Any) -> FakeArray:
        dtype = result_dtype(ufunc, (x.dtype,))
        # Unlike numpy.empty_like, ufuncs do not look at axes of stride 0.
        return keep_order((x,), dtype) if _repeats(x) else fake_like(x, dtype=dtype)

    def binary(x1: Any, x2: Any) -> FakeArray:
        kinds = kind_of(x1), kind_of(x2)
        if int in kinds:
            check_range(ufunc, x1, x2)
        return keep_order((x1, x2), result_dtype(ufunc, kinds))

    return unary if ufunc.nin == 1 else binary


def check_range(ufunc: Any, *operands: Any) -> None:
    """Raise as NumPy does for an int of Python that an array beside it cannot hold."""
    samples = [np.empty(0, x.dtype) if hasattr(x, "dtype") else x for x in operands]
    is_whole = any(getattr(s, "dtype", _FLOAT).kind in "biu" for s in samples)
    numbers = [_large_int(s) for s in samples]
    if is_whole and any(n is not None for n in numbers):
        pairs = zip(samples, numbers, strict=True)
        ufunc(*[s if n is None else n for s, n in pairs])


def check_held(value: Any, dtype: Any) -> None:
    """Raise as NumPy does for an int of Python that arrays of a dtype cannot hold."""
    number = _large_int(value)
    if number is not None and np.dtype(dtype).kind in "iu":
        np.asarray(number, dtype)


def _large_int(value: Any) -> int | None:
    """An int of Python, which a symbolic one is at tracing, unless every dtype holds it."""
    if hasattr(value, "dtype") or class_of(value) is not int:
        return None
    number = getattr(value, "hint", value)
    return None if number is None or 0 <= number <= _SMALLEST else number


_FLOAT = np.dtype(float)
_SMALLEST = np.iinfo(np.int8).max


def kind_of(x: Any) -> Any:
    """The dtype of an array, or the Python class of a number."""
    return x.dtype if hasattr(x, "dtype") else class_of(x)


def keep_order(operands: Sequence[Any], dtype: Any) -> FakeArray:
    """The fake result of an elementwise operation.

    Its shape is broadcast. Its axes have the order in memory that fits the operands,
    as with ``order="K"`` in ``numpy.nditer``, NumPy 2.4.
    """
    arrays = [x for x in operands if hasattr(x, "shape")]
    first = next((x for x in arrays if isinstance(x, FakeArray)), arrays[0])
    are_alike = all(
        x.shape is first.shape and x.strides is first.strides for x in arrays
    )
    if are_alike and not _repeats(first):
        return fake_like(first, dtype=dtype)  # of one array, or of equal ones
    shapes = [tuple(x.shape) for x in arrays]
    shape = shapes[0] if len(set(shapes)) == 1 else broadcast(*shapes)
    strides = tuple(typical(_broadcast_strides(x, shape)) for x in arrays)
    order = order_of(len(shape), strides)
    return FakeArray(shape, dtype, device=device_of(first), order=order)


def _repeats(x: Any) -> bool:
    """Whether an array has elements that are one in memory, along an axis of stride 0."""
    return any(type(step) is int and step == 0 for step in getattr(x, "strides", ()))


def _broadcast_strides(x: Any, shape: Sequence[int]) -> tuple[int, ...]:
    missing = len(shape) - len(x.shape)
    own = zip(x.shape, x.strides, strict=True)
    return (0,) * missing + tuple(0 if is_one(n) else s for n, s in own)


@lru_cache(maxsize=4096)
def order_of(ndim: int, strides: tuple[tuple[int, ...], ...]) -> tuple[int, ...]:
    """Axes from slowest to fastest, sorted by the strides of all operands."""
    order = list(range(ndim))
    for i in range(len(order) - 2, -1, -1):
        to = i
        for j in range(i + 1, len(order)):
            votes = _votes(order[i], order[j], strides)
            if votes and not all(votes):
                break
            # An axis without votes does not end the search.
            to = j if votes else to
        order.insert(to, order.pop(i))
    return tuple(order)


def _votes(a: int, b: int, strides: Sequence[tuple[int, ...]]) -> list[bool]:
    """For each operand with strides along both axes, whether `a` lies inside `b`."""
    return [abs(s[a]) < abs(s[b]) for s in strides if s[a] and s[b]]


def stack_strides(
    operands: Sequence[Any], ranks: Sequence[int], core: Sequence[int], dtype: Any
) -> list[int]:
    """Strides of a result of a generalized ufunc, whose own axes are `core`.

    These are in C order; the axes before them are in the order of those of the operands,
    whose last `ranks` axes are their own. Source: NumPy 2.4.
    """
    batches = []
    for x, rank in zip(operands, ranks, strict=True):
        count = max(len(x.shape) - rank, 0)
        batches.append(FakeArray(x.shape[:count], dtype, x.strides[:count]))
    outer = keep_order(batches, dtype).strides
    size = product(core)
    size = max(size, 1) if type(size) is int else size
    inner = FakeArray(core, dtype).strides
    return [*(stride * size for stride in outer), *inner]
