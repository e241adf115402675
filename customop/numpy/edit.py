"""Functions that change how many elements an array has: insert, delete, resize, block."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from customop import (
    ArgumentError,
    DataDependentError,
    ShapeError,
    check,
    getitem,
    register_numpy_function,
)
from customop.numpy.arguments import as_array, dtype_of, list_of_ints, value_of
from customop.numpy.compare import is_plain
from customop.numpy.create import array_like
from customop.numpy.index import numbers
from customop.numpy.keys import value_for
from customop.numpy.layouts import is_fortran, packed_like, turned
from customop.numpy.sizes import (
    is_below,
    is_known,
    larger,
    product,
    sliced,
    smaller,
)
from customop.numpy.write import spread_to

__all__: list[str] = []


# ---- insert and delete ----


def _lined(arr: Any, axis: Any) -> tuple[Any, int]:
    """The array, in a line if no axis is given, and the axis counted from the front."""
    if axis is None:
        array = as_array(arr)
        return (array if array.ndim == 1 else np.ravel(array)), 0
    array = as_array(arr)
    return array, normalize_axis_index(axis, array.ndim)


def _known(name: str, obj: Any) -> Any:
    """Places as plain integers; raise where they are not known."""
    value = value_of(obj)
    if value is None:
        raise DataDependentError(
            f"{name}: the places are {type(obj).__name__}, and must be known to find the"
            " shape of the result",
            do="give plain integers, or write np.where(mask, a, b), which keeps the shape",
        )
    return value


@register_numpy_function(np.delete)
def _(arr: Any, obj: Any, axis: int | None = None) -> Any:
    array, at = _lined(arr, axis)
    length = array.shape[at]
    if not is_plain(obj):
        kept = _without(obj, length)
        return turned(lambda x, axis: np.take(x, kept, axis), array, at)
    if type(length) is not int:
        obj = value_of(obj)
        if isinstance(obj, slice):
            if obj.step in (None, 1, -1):
                return _without_part(array, at, obj)
            return np.take(array, _places_between(array, length, obj), at)
        gone = _sorted_places(obj, length, length - 1)
        if gone is not None:
            return np.take(array, _places_left(array, length, gone), at)
        length = int(length)
    # NumPy finds the places, and says which ones do not exist.
    places = np.arange(length).reshape(
        (1,) * at + (length,) + (1,) * (array.ndim - at - 1)
    )
    obj = value_of(obj)
    kept = np.delete(places, obj, at).ravel()
    if _is_one_part(obj):
        return turned(lambda x, axis: np.take(x, kept, axis), array, at)
    return getitem(array, (*(slice(None),) * at, kept))


def _is_one_part(obj: Any) -> bool:
    """Whether NumPy copies the parts around what goes; it indexes with a mask otherwise."""
    if isinstance(obj, slice):
        return True
    places = np.asarray(obj)
    return places.size == 1 and places.dtype != np.bool_


def _without_part(array: Any, at: int, part: slice) -> Any:
    """All elements along an axis but those of a slice of steps of one."""
    length = array.shape[at]
    ends = [part.start, part.stop]
    ends = [n if n is None or (n >= 0) is True else n + length for n in ends]
    if part.step == -1:
        ends = [None if n is None else n + 1 for n in reversed(ends)]
    low, high = (
        default if n is None else smaller(larger(n, 0), length)
        for n, default in zip(ends, (0, length), strict=True)
    )
    key = (slice(None),) * at
    parts = (slice(0, low), slice(larger(low, high), length))
    return np.concatenate([array[(*key, part)] for part in parts], at)


def _steps_of(part: slice, length: Any) -> tuple[Any, Any, int]:
    """The first place, the number of places and the distance of a slice, going up."""
    count, step = sliced((part.start, part.stop, part.step), length)
    if step > 0:
        first = 0 if part.start is None else _bounded(part.start, 0, length)
        return first, count, step
    last = -1 if part.start is None else part.start
    return _bounded(last, -1, length - 1) + (count - 1) * step, count, -step


def _bounded(place: Any, least: int, most: Any) -> Any:
    """A place counted from the front, no further out than the ends."""
    if (place >= 0) is not True:
        place = place + most - least
    return smaller(larger(place, least), most)


def _places_between(array: Any, length: Any, part: slice) -> Any:
    """The places that a slice in steps leaves out."""
    first, count, step = _steps_of(part, length)
    at = numbers(0, length - count, array)
    gone = np.minimum((at - first) // (step - 1) + 1, count)
    return np.where(np.less(at, first), at, at + gone)


def _places_with_steps(array: Any, length: Any, part: slice) -> Any:
    """Which element is at each place after an insertion in steps; the new ones come last."""
    first, count, step = _steps_of(part, length)
    at = numbers(0, length + count, array)
    turn = (at - first) // (step + 1)
    is_new = np.equal((at - first) % (step + 1), 0) & np.less(turn, count)
    number = turn if part.step is None or part.step > 0 else count - 1 - turn
    old = at - np.minimum(turn + 1, count)
    found = np.where(is_new, length + number, old)
    return np.where(np.less(at, first), at, found)


def _sorted_places(obj: Any, length: Any, last: Any) -> list[Any] | None:
    """Places of an axis of a length that is not known, counted from the front and sorted.

    None where their number or order depends on the length.
    """
    given = None if isinstance(obj, slice) else np.asarray(obj)
    if given is None or given.ndim > 1 or (given.size and given.dtype.kind not in "iu"):
        return None
    places = sorted(given.ravel().tolist(), key=_from_the_front)
    if not places:
        return None
    if (
        places[-1] < 0 <= places[0]
    ):  # the order depends on the length, unless it is long
        most, least = (max(n for n in places if n >= 0), min(places))
        if (length + least > most) is not True:
            return None
    for place in places:
        if is_below(place, -length) or is_below(last, place):
            raise IndexError(
                f"index {place} is out of bounds for an axis of length {length}"
            )
        check(last >= place if place >= 0 else length >= -place)
    return [i + length if i < 0 else i for i in places]


def _from_the_front(place: int) -> tuple[bool, int]:
    """Sorts the places that are counted from the end behind the others."""
    return place < 0, place


def _places_left(array: Any, length: Any, gone: Sequence[Any]) -> Any:
    """The places that are left where some, in order, are deleted."""
    gone = [n for i, n in enumerate(gone) if not i or not is_known(n, gone[i - 1])]
    rest = numbers(0, length - len(gone), array)
    for place in gone:
        rest = np.where(np.less(rest, place), rest, rest + 1)
    return rest


def _without(place: Any, length: int) -> Any:
    """All places but one that is not known."""
    if place.shape or dtype_of(place).kind not in "iu":
        _known("np.delete", place)
    rest = numbers(0, length - 1, place)
    return np.where(np.less(rest, place % length), rest, rest + 1)


@register_numpy_function(np.insert)
def _(arr: Any, obj: Any, values: Any, axis: int | None = None) -> Any:
    array, at = _lined(arr, axis)
    length = array.shape[at]
    obj = _known("np.insert", obj)
    new = _new_elements(array, values)
    sorted_places = None
    if type(length) is not int and isinstance(obj, slice):
        return _inserted_in_steps(array, at, obj, new)
    if type(length) is not int:
        sorted_places = _sorted_places(obj, length, length)
        length = length if sorted_places else int(length)
    shape = list(array.shape)
    shape[at] = len(_numbers(obj, length) if sorted_places is None else sorted_places)
    if shape[at] == 1:
        new = _for_one_place(new, obj, array.ndim, at)
        shape[at] = new.shape[at]
    part = spread_to(new, shape)
    if sorted_places is not None:
        raw = np.ravel(obj).tolist()
        order = sorted(range(len(raw)), key=lambda i: _from_the_front(raw[i]))
        places = _places_with(array, length, sorted_places, order, shape[at])
    else:
        added = np.arange(length, length + shape[at])
        places = np.insert(np.arange(length), obj, added)
    if is_fortran(array):
        at, array, part = array.ndim - 1 - at, array.T, part.T
        return np.take(np.concatenate([array, part], at), places, at).T
    return np.take(np.concatenate([array, part], at), places, at)


def _inserted_in_steps(array: Any, at: int, part: slice, new: Any) -> Any:
    """An insertion before the places of a slice, along an axis of symbolic length."""
    length = array.shape[at]
    shape = list(array.shape)
    shape[at] = _steps_of(part, length)[1]
    whole = np.concatenate([array, spread_to(new, shape)], at)
    found = np.take(whole, _places_with_steps(array, length, part), at)
    return packed_like(found, array)


def _places_with(
    array: Any, length: Any, new: Sequence[Any], order: Sequence[int], count: Any
) -> Any:
    """Which element is at each place after an insertion; the new ones come last.

    `new` are the places before which they are inserted, and `order` are their numbers.
    """
    at = numbers(0, length + count, array)
    if len(new) == 1:
        (start,) = new
        found = np.where(np.less(at, start + count), at - start + length, at - count)
        return np.where(np.less(at, start), at, found)
    found = at
    for number, place in enumerate(new):
        found = np.where(np.greater(at, place + number), found - 1, found)
    for number, place in enumerate(new):
        found = np.where(np.equal(at, place + number), length + order[number], found)
    return found


def _new_elements(array: Any, values: Any) -> Any:
    """Values in the dtype of an array; a number is cast as NumPy does it."""
    if not isinstance(values, int | float | complex):
        return value_for(array, as_array(values))
    number = np.array(values, dtype_of(array)).item()
    return array_like(number, array, array.dtype)


def _for_one_place(new: Any, obj: Any, rank: int, at: int) -> Any:
    """Values with the axes of the array; those for one place may be several."""
    missing = rank - new.ndim
    wide = np.expand_dims(new, tuple(range(missing))) if missing > 0 else new
    # As in a[:, 0, :] = new, which is not a[:, [0], :] = new.
    is_number = not isinstance(obj, slice) and np.ndim(obj) == 0
    return np.moveaxis(wide, 0, at) if is_number else wide


def _numbers(obj: Any, length: int) -> Any:
    """The places that a slice, mask, int or sequence of ints names."""
    if isinstance(obj, slice):
        return np.arange(*obj.indices(length))
    found = np.asarray(obj)
    return np.flatnonzero(found) if found.dtype == np.bool_ else np.atleast_1d(found)


# ---- resize and trim ----


@register_numpy_function(np.resize)
def _(a: Any, new_shape: Any) -> Any:
    shape = list_of_ints(new_shape)
    if any(is_below(n, 0) for n in shape):
        raise ShapeError(
            "all elements of `new_shape` must be non-negative",
            f"np.resize: new_shape={new_shape!r}",
            do="give lengths of 0 or more",
        )
    line, size = np.ravel(as_array(a)), product(shape)
    # Sizes of 0 give zeros: a question only where they are 0 at tracing.
    if any(is_below(n, 1) and n == 0 for n in (size, line.shape[0])):
        return np.zeros_like(line, shape=shape)
    if not type(size) is type(line.shape[0]) is int:
        places = np.remainder(numbers(0, size, line), line.shape[0])
        return np.reshape(np.take(line, places), shape)
    repeats = -(-size // line.shape[0])
    return np.reshape(np.concatenate((line,) * repeats)[:size], shape)


@register_numpy_function(np.trim_zeros)
def _(filt: Any, trim: str = "fb", axis: Any = None) -> Any:
    array, ends = as_array(filt), trim.lower()
    if ends not in ("fb", "bf", "f", "b"):
        raise ValueError(f"unexpected character(s) in `trim`: {ends!r}")
    rank = array.ndim
    axes = range(rank) if axis is None else normalize_axis_tuple(axis, rank, "axis")
    if not axes:
        return filt
    value = value_of(array)
    if value is None:
        raise DataDependentError(
            "np.trim_zeros under vmap, or of a fake array: the shape of the result depends"
            " on data",
            do="leave the zeros in, or slice with plain integers",
        )
    places = np.argwhere(value)
    first, last = np.zeros(rank, int), np.zeros(rank, int)
    if places.shape[0]:
        first, last = np.min(places, axis=0), np.max(places, axis=0) + 1
        first = first if "f" in ends else np.zeros(rank, int)
        last = last if "b" in ends else np.array(array.shape)
    key = [
        slice(int(first[i]), int(last[i])) if i in axes else slice(None)
        for i in range(rank)
    ]
    return array[tuple(key)]


@register_numpy_function(np.extract)
def _(condition: Any, arr: Any) -> Any:
    return getitem(np.ravel(arr), np.flatnonzero(as_array(condition)))


# ---- blocks ----


def _block_depth(arrays: Any, place: str = "arrays") -> tuple[int, int]:
    """Depth of nested lists, and the largest number of axes in them."""
    if isinstance(arrays, tuple):
        raise ArgumentError(
            f"np.block: {place} is a tuple. Only lists can be used to arrange blocks",
            do="write a list",
        )
    if not isinstance(arrays, list):
        return 0, np.ndim(arrays)
    if not arrays:
        raise ShapeError(
            f"np.block: the list at {place} cannot be empty", do="give arrays"
        )
    found = [_block_depth(a, f"{place}[{i}]") for i, a in enumerate(arrays)]
    if len({depth for depth, _ in found}) > 1:
        raise ShapeError(
            f"np.block: list depths are mismatched in {place}",
            do="nest all arrays in the same number of lists",
        )
    return found[0][0] + 1, max(rank for _, rank in found)


def _leaf(arrays: Any) -> Any:
    """An array of nested lists that is not a number."""
    found = (_leaf(a) for a in arrays) if isinstance(arrays, list) else (arrays,)
    return next((a for a in found if hasattr(a, "shape")), None)


def _blocked(arrays: Any, depth: int, rank: int, like: Any) -> Any:
    if not depth:
        array = array_like(arrays, like)
        missing = rank - array.ndim
        return np.expand_dims(array, tuple(range(missing))) if missing else array
    parts = [_blocked(a, depth - 1, rank, like) for a in arrays]
    return np.concatenate(parts, axis=-depth)


@register_numpy_function(np.block)
def _(arrays: Any) -> Any:
    depth, rank = _block_depth(arrays)
    found = _blocked(arrays, depth, max(depth, rank), _leaf(arrays))
    return found if depth else np.copy(found)
