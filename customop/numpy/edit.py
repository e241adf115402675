"""Other numbers of elements: insert, delete, resize, block, and padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.array_utils import normalize_axis_index, normalize_axis_tuple

from customop import (
    ArgumentError,
    DataDependentError,
    FakeArray,
    Tracer,
    check,
    getitem,
    partials,
    register_numpy_function,
)
from customop.numpy.arguments import (
    array_of_sizes,
    as_array,
    dtype_of,
    has_none,
    is_below,
    is_known,
    is_plain,
    larger,
    list_of_ints,
    numpy_refuses,
    only,
    product,
    size_of,
    sliced,
    smaller,
    typical,
    value_of,
    wide_to,
)
from customop.numpy.create import array_like
from customop.numpy.index_operators import numbers, spread_to
from customop.numpy.indexing import value_for
from customop.numpy.rules import (
    numpy_operator,
    packed_as,
    packed_like,
    rows_first,
)

# ---- insert and delete ----


def _lined(arr: Any, axis: Any) -> tuple[Any, int]:
    """Return the array, in a line if there is no axis, and the axis from the front."""
    if axis is None:
        array = as_array(arr)
        return (array if array.ndim == 1 else np.ravel(array)), 0
    array = as_array(arr)
    return array, normalize_axis_index(axis, array.ndim)


def _known(name: str, obj: Any) -> Any:
    """Return places as plain integers; raise where they are not known."""
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
        return packed_like(np.take(array, kept, at), array)
    if type(length) is not int:
        obj = value_of(obj)
        if isinstance(obj, slice):
            if obj.step in (None, 1, -1):
                return _without_part(array, at, obj)
            kept = _places_between(array, length, obj)
            return packed_like(np.take(array, kept, at), array)
        gone = _sorted_places(obj, length, length - 1)
        if gone is not None:
            return _kept(array, _places_left(array, length, gone), at, obj)
        length = int(length)
    # NumPy finds the places, and says which ones do not exist.
    places = np.arange(length).reshape(
        (1,) * at + (length,) + (1,) * (array.ndim - at - 1)
    )
    obj = value_of(obj)
    kept = np.delete(places, obj, at).ravel()
    return _kept(array, kept, at, obj)


def _kept(array: Any, places: Any, at: int, obj: Any) -> Any:
    """Return elements along an axis in NumPy's order, once places are deleted."""
    if _is_one_part(obj):
        return packed_like(np.take(array, places, at), array)
    return getitem(array, (*(slice(None),) * at, places))


def _is_one_part(obj: Any) -> bool:
    """Return whether NumPy copies the two parts around; otherwise it uses a mask."""
    if isinstance(obj, slice):
        return True
    places = np.asarray(obj)
    return places.size == 1 and places.dtype != np.bool_


def _without_part(array: Any, at: int, part: slice) -> Any:
    """Return all elements along an axis but those of a slice of steps of one."""
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
    found = np.concatenate([array[(*key, part)] for part in parts], at)
    return packed_like(found, array)


def _steps_of(part: slice, length: Any) -> tuple[Any, Any, int]:
    """Return first place, number and distance of the places of a slice, going up."""
    count, step = sliced((part.start, part.stop, part.step), length)
    if step > 0:
        first = 0 if part.start is None else _bounded(part.start, 0, length)
        return first, count, step
    last = -1 if part.start is None else part.start
    return _bounded(last, -1, length - 1) + (count - 1) * step, count, -step


def _bounded(place: Any, least: int, most: Any) -> Any:
    """Count a place from the front, and keep it between the ends."""
    if (place >= 0) is not True:
        place = place + most - least
    return smaller(larger(place, least), most)


def _places_between(array: Any, length: Any, part: slice) -> Any:
    """Return the places that a slice in steps leaves out."""
    first, count, step = _steps_of(part, length)
    at = numbers(0, length - count, array)
    gone = np.minimum((at - first) // (step - 1) + 1, count)
    return np.where(np.less(at, first), at, at + gone)


def _places_with_steps(array: Any, length: Any, part: slice) -> Any:
    """Return the source of each place after an insertion in steps; new ones are last.

    New ones are last.
    """
    first, count, step = _steps_of(part, length)
    at = numbers(0, length + count, array)
    turn = (at - first) // (step + 1)
    is_new = np.equal((at - first) % (step + 1), 0) & np.less(turn, count)
    number = turn if part.step is None or part.step > 0 else count - 1 - turn
    old = at - np.minimum(turn + 1, count)
    found = np.where(is_new, length + number, old)
    return np.where(np.less(at, first), at, found)


def _sorted_places(obj: Any, length: Any, last: Any) -> list[Any] | None:
    """Count the places of an axis of unknown length from the front, and sort them.

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
    """Sort the places that are counted from the end behind the others."""
    return place < 0, place


def _places_left(array: Any, length: Any, gone: Sequence[Any]) -> Any:
    """Return the places that are left when some, in order, are deleted."""
    gone = [n for i, n in enumerate(gone) if not i or not is_known(n, gone[i - 1])]
    rest = numbers(0, length - len(gone), array)
    for place in gone:
        rest = np.where(np.less(rest, place), rest, rest + 1)
    return rest


def _without(place: Any, length: int) -> Any:
    """Return all places but one that is not known."""
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
    found = np.take(np.concatenate([array, part], at), places, at)
    return packed_like(found, array)


def _inserted_in_steps(array: Any, at: int, part: slice, new: Any) -> Any:
    """Insert before the places of a slice, along an axis of symbolic length."""
    length = array.shape[at]
    shape = list(array.shape)
    shape[at] = _steps_of(part, length)[1]
    whole = np.concatenate([array, spread_to(new, shape)], at)
    found = np.take(whole, _places_with_steps(array, length, part), at)
    return packed_like(found, array)


def _places_with(
    array: Any, length: Any, new: Sequence[Any], order: Sequence[int], count: Any
) -> Any:
    """Return the source of each place after an insertion; the new ones are last.

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
    """Cast values to the dtype of an array; a number as NumPy casts it."""
    if not isinstance(values, int | float | complex):
        return value_for(array, as_array(values))
    number = np.array(values, dtype_of(array)).item()
    return array_like(number, array, array.dtype)


def _for_one_place(new: Any, obj: Any, rank: int, at: int) -> Any:
    """Return values with the axes of the array; one place may take several."""
    missing = rank - new.ndim
    wide = np.expand_dims(new, tuple(range(missing))) if missing > 0 else new
    # As in a[:, 0, :] = new, which is not a[:, [0], :] = new.
    is_number = not isinstance(obj, slice) and np.ndim(obj) == 0
    return np.moveaxis(wide, 0, at) if is_number else wide


def _numbers(obj: Any, length: int) -> Any:
    """Return the places that a slice, mask, int or sequence of ints names."""
    if isinstance(obj, slice):
        return np.arange(*obj.indices(length))
    found = np.asarray(obj)
    return np.flatnonzero(found) if found.dtype == np.bool_ else np.atleast_1d(found)


# ---- resize and trim ----


@register_numpy_function(np.resize)
def _(a: Any, new_shape: Any) -> Any:
    shape = list_of_ints(new_shape)
    if any(is_below(n, 0) for n in shape):
        numpy_refuses(np.resize, 0, shape, do="give lengths of 0 or more")
    line, size = np.ravel(as_array(a)), product(shape)
    count = line.shape[0]
    if not type(size) is type(count) is int:
        # Where there are no elements, NumPy gives zeros, and the one at the end is taken.
        places = np.remainder(numbers(0, size, line), larger(count, 1))
        padded = np.concatenate((line, np.zeros_like(line, shape=(1,))))
        return np.reshape(np.take(padded, places), shape)
    if not (size and count):
        return np.zeros_like(line, shape=shape)
    return np.reshape(np.concatenate((line,) * -(-size // count))[:size], shape)


@register_numpy_function(np.trim_zeros)
def _(filt: Any, trim: str = "fb", axis: Any = None) -> Any:
    array, ends = as_array(filt), trim.lower()
    if ends not in ("fb", "bf", "f", "b"):
        numpy_refuses(np.trim_zeros, filt, trim)
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


def _block_depth(arrays: Any, outer: Any) -> tuple[int, int]:
    """Return the depth of nested lists, and the largest number of axes in them."""
    if not isinstance(arrays, list | tuple):
        return 0, np.ndim(arrays)
    found = [_block_depth(a, outer) for a in arrays]
    if isinstance(arrays, tuple) or len({depth for depth, _ in found}) != 1:
        numpy_refuses(
            np.block, outer, do="nest all arrays in equally many lists, not tuples"
        )
    return found[0][0] + 1, max(rank for _, rank in found)


def _leaf(arrays: Any) -> Any:
    """Return the first array in nested lists."""
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
    depth, rank = _block_depth(arrays, arrays)
    found = _blocked(arrays, depth, max(depth, rank), _leaf(arrays))
    return found if depth else np.copy(found)


# ---- padding: np.pad with its modes ----


def _padded(x: Any, pad_width: Sequence[Sequence[int]], value: Any) -> Any:
    """Pad an array with a value; NumPy refuses an empty list of pairs."""
    return np.pad(x, pad_width, constant_values=value) if pad_width else np.copy(x)


def _fake_pad(x: Any, pad_width: Any, value: Any) -> FakeArray:
    if type(value) is int:
        np.pad(np.zeros(1, x.dtype), 1, constant_values=value)  # raises as NumPy does
    shape = [b + n + a for n, (b, a) in zip(x.shape, pad_width, strict=True)]
    return packed_as(x, shape, x.dtype)


def _unpadded(g: Any, shape: Sequence[Any], pad_width: Any) -> Any:
    """Return the part of a gradient that belongs to the array."""
    pairs = zip(shape, pad_width, strict=True)
    return g[tuple([slice(b, b + n) for n, (b, _) in pairs])]


_pad = numpy_operator(
    "pad", "(Array x, int[][] pad_width, Scalar value=0) -> Array", _padded
)
_pad.register_fake(_fake_pad)
_pad.register_vmap(
    rows_first(_pad, pad_width=lambda width, shape: [[0, 0], *map(list, width)])
)
_pad.register_autograd(partials({"x": (_unpadded, ("x_shape", "pad_width"))}))


@_pad.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    # It is linear but for the value, whose tangent is 0.
    t, pad_width = tangents[0], primals[1]
    return _pad(*primals), None if t is None else _pad(t, pad_width)


# Modes that pad with a value of the elements near the edge.
_STATISTICS: dict[str, Any] = {
    "maximum": np.max,
    "minimum": np.min,
    "mean": np.mean,
    "median": np.median,
}
# Mode -> the keyword that it takes.
_KEYWORDS = {
    "constant": "constant_values",
    "linear_ramp": "end_values",
    **dict.fromkeys(_STATISTICS, "stat_length"),
    **dict.fromkeys(("reflect", "symmetric"), "reflect_type"),
    **dict.fromkeys(("edge", "empty", "wrap"), ""),
}
_WITH_VALUES = ("constant", "empty", "linear_ramp")


@register_numpy_function(np.pad)
def _(array: Any, pad_width: Any, mode: Any = "constant", **kwargs: Any) -> Any:
    x = as_array(array)
    widths = _pad_widths(x, pad_width)
    _check_mode(mode, kwargs)
    given = kwargs.get(_KEYWORDS[mode], 0 if mode in _WITH_VALUES else None)
    if mode in ("constant", "empty"):
        return _pad_constant(x, widths, given)
    _check_axes(x.shape, widths)
    if has_none(x.shape):
        return _pad(x, widths, 0)
    if mode == "linear_ramp":
        if given is None:
            raise ArgumentError(
                "np.pad: end_values=None is not a number", do="leave end_values= away"
            )
        out = _pad_ramp(x, widths, given)
    elif mode in _STATISTICS:
        out = _pad_statistic(x, widths, mode, given)
    elif given == "odd":
        out = x
        for axis, width in enumerate(widths):
            out = _pad_odd(out, axis, width, includes_edge=mode == "symmetric")
    else:
        out = _pad_by_index(x, widths, mode)
    return packed_like(out, x)


def _pad_by_index(x: Any, widths: Sequence[tuple[int, int]], mode: Any) -> Any:
    """Pad with elements of the array."""
    for axis, width in enumerate(widths):
        if width != (0, 0):
            x = np.take(x, _places(x, axis, width, mode), axis)
    return x


def _places(x: Any, axis: int, width: tuple[int, int], mode: Any) -> Any:
    """Return which elements a padded array has, for modes that repeat elements."""
    length, (before, after) = x.shape[axis], width
    if all(type(n) is int for n in (length, before, after)):
        return np.pad(np.arange(length), width, mode=mode)
    # As NumPy 2.4 does it, also for widths beyond the length.
    at = numbers(-before, length + after, x)
    if mode == "edge":
        return np.clip(at, 0, length - 1)
    if mode == "wrap":
        return np.remainder(at, length)
    last = length - int(mode == "reflect")
    at = np.remainder(at, larger(2 * last, 1))
    return np.minimum(at, 2 * last - int(mode == "symmetric") - at)


def _check_mode(mode: Any, keywords: dict[str, Any]) -> None:
    if callable(mode):
        raise ArgumentError(
            "np.pad: mode is a function, which writes into slices of plain arrays",
            do="pad with mode='constant', and write into the result",
        )
    if mode not in _KEYWORDS:
        numpy_refuses(np.pad, 0, 0, mode)
    for name in keywords:
        if name != _KEYWORDS[mode]:
            raise ArgumentError(
                f"np.pad: mode={mode!r} does not take {name}=", do=f"leave {name}= away"
            )
    if mode in ("reflect", "symmetric"):
        only(
            "np.pad", reflect_type=(keywords.get("reflect_type", "even"), "even", "odd")
        )


def _check_axes(shape: Sequence[int], widths: Sequence[tuple[int, int]]) -> None:
    for length, width in zip(shape, widths, strict=True):
        if width == (0, 0):
            continue
        if is_below(length, 1):
            numpy_refuses(np.pad, np.zeros(typical(shape)), widths, "edge")
        check(length > 0)


def _part(x: Any, axis: int, start: int, stop: int) -> Any:
    return x[(*(slice(None),) * axis, slice(start, stop))]


def _edge(x: Any, axis: int, at: int) -> Any:
    """Return one element of each line; its axis stays, with length one."""
    return x[(*(slice(None),) * axis, at, None)]


def _around(before: Any, x: Any, after: Any, axis: int) -> Any:
    """Join an array and blocks before and after it, in its own dtype."""
    blocks = [b.astype(x.dtype) if b.dtype != x.dtype else b for b in (before, after)]
    return np.concatenate([blocks[0], x, blocks[1]], axis)


def _pad_ramp(x: Any, widths: Sequence[tuple[int, int]], given: Any) -> Any:
    """Pad with values that go from `given` to the edge in equal steps."""
    given = as_array(given)
    ends = np.broadcast_to(given, (x.ndim, 2))
    # One value, or one for each side, keeps its precision; more are numbers of Python.
    is_strong = given.size <= 2 and tuple(given.shape) != (2, 1)
    for axis, width in enumerate(widths):
        if width == (0, 0):
            continue
        edges = _edge(x, axis, 0), _edge(x, axis, -1)
        ramps = [
            np.linspace(
                end,
                np.squeeze(edge, axis),
                count,
                False,
                False,
                dtype_of(x),
                axis,
            )
            for end, edge, count in zip(
                _end_values(ends[axis], is_strong), edges, width, strict=True
            )
        ]
        x = _around(ramps[0], x, np.flip(ramps[1], axis), axis)
    return x


def _end_values(values: Any, is_strong: bool) -> Any:
    """Return the two values of an axis; plain ones as Python's numbers unless strong."""
    is_kept = is_strong or isinstance(values, Tracer | FakeArray)
    return values if is_kept else values.tolist()


def _pad_statistic(
    x: Any, widths: Sequence[tuple[int, int]], mode: str, given: Any
) -> Any:
    """Pad with a statistic of so many elements near each edge; None for all."""
    counts = [(None, None)] * x.ndim if given is None else _pairs(given, x.ndim)
    for axis, (width, count) in enumerate(zip(widths, counts, strict=True)):
        if width == (0, 0):
            continue
        length = x.shape[axis]
        near = [length if c is None else smaller(c, length) for c in count]
        if has_none(near) and mode in ("maximum", "minimum"):
            numpy_refuses(np.pad, np.zeros(1), 1, mode, stat_length=0)
        sides = _part(x, axis, 0, near[0]), _part(x, axis, length - near[1], length)
        x = _around(*_blocks(x, axis, width, sides, mode), axis)
    return x


def _blocks(
    x: Any, axis: int, width: tuple[int, int], sides: tuple[Any, Any], mode: str
) -> tuple[Any, Any, Any]:
    found = []
    for side, count in zip(sides, width, strict=True):
        value = _STATISTICS[mode](side, axis=axis, keepdims=True)
        value = np.round(value) if dtype_of(x).kind in "iu" else value
        shape = list(value.shape)
        shape[axis] = count
        found.append(wide_to(value, shape))
    return found[0], x, found[1]


def _pad_odd(x: Any, axis: int, width: tuple[int, int], *, includes_edge: bool) -> Any:
    """Pad with elements reflected at the point of the edge, until there are enough.

    One turn cannot add more than there are elements that make a whole period.
    """
    period = x.shape[axis]
    left, right = width
    if period == 1 and (left or right):
        return np.take(x, np.zeros(left + 1 + right, np.intp), axis)
    skip = 0 if includes_edge else 1
    while left or right:
        length = x.shape[axis]
        known = (length - skip) // (period - skip) * (period - skip)
        before, after = min(known, left), min(known, right)
        first = 2 * _edge(x, axis, 0) - np.flip(
            _part(x, axis, skip, skip + before), axis
        )
        last = 2 * _edge(x, axis, -1) - np.flip(
            _part(x, axis, length - skip - after, length - skip), axis
        )
        x = _around(first, x, last, axis)
        left, right = left - before, right - after
    return x


def _pairs(given: Any, rank: int) -> list[tuple[int, int]]:
    """Return the numbers of elements at both ends of each axis."""
    counts = np.round(np.asarray(given)).astype(np.intp)
    if np.any(counts < 0):
        numpy_refuses(np.pad, [0], -1)
    return [(int(b), int(a)) for b, a in np.broadcast_to(counts, (rank, 2))]


def _pad_widths(x: Any, pad_width: Any) -> list[tuple[int, int]]:
    """Return the numbers of elements to add before and after each axis."""
    if type(pad_width) is int and pad_width >= 0:  # as usual
        return [(pad_width, pad_width)] * x.ndim
    if isinstance(pad_width, dict):
        given: list[Any] = [(0, 0)] * x.ndim
        for axis, width in pad_width.items():
            given[axis] = width if isinstance(width, tuple) else (width, width)
        pad_width = given
    widths = array_of_sizes(pad_width)
    if widths.dtype.kind not in "iuO" and widths.size:
        numpy_refuses(np.pad, x, pad_width, do="give ints: ((before, after), ...)")
    if any(is_below(width, 0) for width in widths.ravel().tolist()):
        numpy_refuses(np.pad, x, pad_width, do="slice the array to make it shorter")
    pairs = np.broadcast_to(widths, (x.ndim, 2))
    return [(size_of(b), size_of(a)) for b, a in pairs]


def _pad_constant(x: Any, widths: Sequence[tuple[int, int]], values: Any) -> Any:
    """Pad with one value in one go, or with several one after the other."""
    if type(values) in _NUMBERS and x.ndim:  # as usual
        return _pad.run(x, widths, values)
    given = as_array(values)
    if isinstance(given, Tracer | FakeArray):
        return _pad_traced(x, widths, given)
    if given.dtype.hasobject:  # None is nan where NumPy says so
        given = given.astype(dtype_of(x))
    constants = np.broadcast_to(given, (x.ndim, 2))
    if not x.ndim:
        return np.copy(x)
    if given.dtype.char in "gG":  # a scalar of an operator is a double
        return packed_like(_pad_traced(x, widths, given.astype(dtype_of(x))), x)
    if np.all(constants == constants[0, 0]):
        return _pad(x, widths, constants[0, 0].item())
    for axis, (b, a) in enumerate(widths):
        for side, width in enumerate(((b, 0), (0, a))):
            around = [(0, 0)] * x.ndim
            around[axis] = width
            x = _pad(x, around, constants[axis, side].item())
    return x


_NUMBERS = {int, float}


def _pad_traced(x: Any, widths: Sequence[tuple[int, int]], values: Any) -> Any:
    """Pad with values that have a derivative, or differ between rows."""
    constants = np.broadcast_to(values, (x.ndim, 2))
    for axis, width in enumerate(widths):
        shapes = [[*x.shape[:axis], n, *x.shape[axis + 1 :]] for n in width]
        before, after = (
            wide_to(constants[axis, side], shapes[side]) for side in (0, 1)
        )
        x = _around(before, x, after, axis)
    return x
