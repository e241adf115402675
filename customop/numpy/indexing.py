"""Indexing as users write it, masks, take, and values that are written."""

from __future__ import annotations

from collections.abc import Sequence
from operator import getitem, setitem
from operator import index as as_int
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.lib.array_utils import normalize_axis_index
from numpy.lib.mixins import NDArrayOperatorsMixin

from customop import (
    ArgumentError,
    DataDependentError,
    FakeArray,
    Operator,
    SymFloat,
    SymInt,
    Tracer,
    check,
    fake_like,
    register_numpy_function,
)
from customop.numpy.arguments import (
    SIZES,
    as_array,
    broadcast,
    dtype_of,
    has_none,
    is_below,
    is_known,
    lined,
    numpy_refuses,
    only,
    shape_of,
    size_of,
    typical,
    value_of,
)
from customop.numpy.create import array_like, as_held, full_like
from customop.numpy.index_operators import (
    ALL,
    check_bounds,
    constant,
    gathered_shape,
    index_,
    index_set,
    is_integer,
    layout,
    numbers,
    slice_,
    slice_set,
    spread_to,
    view_shape,
)
from customop.numpy.rules import dtype_kind, no_gradient, numpy_operator

# ---- keys ----


def _raise_as_numpy(shape: Sequence[int], items: Sequence[Any]) -> NoReturn:
    """Raise the error of NumPy for a key, found with an array without memory."""

    def plain(item: Any) -> Any:
        if not hasattr(item, "shape") or isinstance(item, np.ndarray | np.generic):
            return item
        return np.zeros(tuple(item.shape), item.dtype)

    np.broadcast_to(np.zeros(()), tuple(shape))[tuple([plain(i) for i in items])]
    raise IndexError(f"the key {tuple(items)!r} does not fit the shape {tuple(shape)}")


def _plain_item(item: Any) -> Any:
    """Convert an item of a key to an int, slice, None, Ellipsis or array."""
    if item is None or item is Ellipsis or type(item) in (int, slice, SymInt):
        return item
    if isinstance(item, bool | np.bool_):
        return np.asarray(item)
    if isinstance(item, np.integer) or _is_python_index(item):
        return as_int(item)
    if isinstance(item, list | tuple | range):
        item = list(item)
        return np.zeros(0, np.intp) if len(item) == 0 else as_array(item)
    if isinstance(item, np.ndarray) and item.ndim == 0 and item.dtype.kind in "iu":
        return int(item)
    # A constant index of a library that takes no part in NumPy's protocols.
    is_foreign = hasattr(item, "shape") and not hasattr(item, "__array_ufunc__")
    return value_of(item) if is_foreign else item


def _is_python_index(item: Any) -> bool:
    return hasattr(item, "__index__") and not hasattr(item, "shape")


def _width(item: Any) -> int:
    """Return the number of axes that an item of a key indexes."""
    if item is None or item is Ellipsis:
        return 0
    return len(item.shape) if _is_mask(item) else 1


def _is_mask(item: Any) -> bool:
    if type(item) is np.ndarray:  # the names of its dtypes take 3 us
        return bool(item.dtype.kind == "b")
    return hasattr(item, "shape") and dtype_kind(item.dtype) == "b"


def _items(shape: Sequence[int], key: Any) -> tuple[list[Any], int | None]:
    """Return the checked items of a key, with slices for the Ellipsis.

    Also the place of an Ellipsis without axes.
    """
    given = key if isinstance(key, tuple) else (key,)
    items = [_plain_item(item) for item in given]
    missing = len(shape) - sum(_width(item) for item in items)
    dots = [i for i, item in enumerate(items) if item is Ellipsis]
    if missing < 0 or len(dots) > 1 or not all(_is_known(item) for item in items):
        pairs = zip(given, items, strict=True)
        _raise_as_numpy(shape, [g if type(i) is np.ndarray else i for g, i in pairs])
    for at in dots:
        items[at : at + 1] = [slice(None)] * missing
    axis = 0
    for item in items:
        if not _fits(item, shape[axis : axis + _width(item)]):
            _raise_as_numpy(shape, items)
        axis += _width(item)
    return items, dots[0] if dots and not missing else None


def _is_known(item: Any) -> bool:
    if type(item) is np.ndarray:
        return item.dtype.kind in "iub"
    if hasattr(item, "shape"):
        return dtype_kind(item.dtype) in ("i", "u", "b")
    return item is None or item is Ellipsis or isinstance(item, int | slice | SymInt)


def _fits(item: Any, lengths: Sequence[int]) -> bool:
    if isinstance(item, SIZES):
        return _is_place(item, lengths[0])
    if not _is_mask(item):
        return True
    # NumPy compares no length of 0, in a mask that selects nothing.
    pairs = zip(item.shape, lengths, strict=False)
    return len(item.shape) == len(lengths) and all(
        is_known(n, 0) or n == own for n, own in pairs
    )


def _bounds(part: slice) -> list[int | None]:
    ends = (part.start, part.stop, part.step)
    return [None if end is None else size_of(end) for end in ends]


def _parts(x: Any, items: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """Return the key of `np::slice`, and index arrays for the axes of its result."""
    is_plain = all(not hasattr(item, "shape") for item in items)
    entries: list[Any] = []
    arrays: list[Any] = []
    for item in items:
        if item is None or isinstance(item, slice):
            entries.append([] if item is None else _bounds(item))
            arrays.append(None)
        elif isinstance(item, SIZES):
            entries.append([item] if is_plain else ALL)
            arrays += [] if is_plain else [_as_place(item, x)]
        elif _is_mask(item) and not item.shape:
            entries.append([])
            arrays.append(np.nonzero(np.reshape(item, (1,)))[0])
        elif _is_mask(item):
            entries += [ALL] * len(item.shape)
            arrays += np.nonzero(item)
        else:
            entries.append(ALL)
            arrays.append(item)
    return entries, [constant(a, x) for a in arrays]


def _as_place(item: Any, x: Any) -> Any:
    """Return an index as an array without axes."""
    return np.asarray(item) if type(item) is int else array_like(item, x, np.intp)


_INT = {int}
_BASIC = (int, slice, type(Ellipsis), type(None))
_BOUNDS = {int, type(None), SymInt}
_INDEX = (int, SymInt)


def _quick_entries(x: Any, key: Any) -> list[list[Any]] | None:
    """Return the key for `np::slice` if it has no arrays; else None.

    None if the key has something else, or does not fit.

    The usual keys, at an eighth of the time of `parts_of`.
    """
    shape = x.shape
    entries: list[list[Any]] = []
    axis, rank = 0, len(shape)
    items = key if type(key) is tuple else (key,)
    for at, item in enumerate(items):
        kind = type(item)
        if item is None:
            entries.append([])
            continue
        if axis == rank:
            return None
        if item is Ellipsis:
            count = _width_of_dots(items[at + 1 :], rank - axis)
            if count < 1:
                return None
            entries += [ALL] * count
            axis += count
            continue
        if kind is slice:
            bounds = [item.start, item.stop, item.step]
            if not _BOUNDS.issuperset(map(type, bounds)):
                return None
            entries.append(bounds)
        elif kind in _INDEX and _is_place(item, shape[axis]):
            entries.append([item])
        else:
            return None
        axis += 1
    return entries


def _width_of_dots(rest: Sequence[Any], left: int) -> int:
    """Return how many of the axes left belong to an Ellipsis.

    Less than 1 for one without axes, which may say that a result without axes is an array,
    and before a second Ellipsis.
    """
    for item in rest:
        if item is Ellipsis:
            return 0
        left -= item is not None
    return left


def _quick_arrays(x: Any, key: Any) -> list[Any] | None:
    """Return the indices for `np::index` from a key of plain index arrays; else None.

    The usual keys, at an eighth of the time of `parts_of`: arrays of integers of one
    shape beside full slices, for an array of NumPy.
    """
    below = x
    while isinstance(below, Tracer):
        below = below.below
    items = key if type(key) is tuple else (key,)
    if type(below) is not np.ndarray or len(items) > len(x.shape):
        return None
    arrays: list[Any] = []
    places: Any = None
    for item in items:
        if type(item) is slice:
            if item.start is not None or item.stop is not None or item.step is not None:
                return None
            arrays.append(None)
            continue
        if type(item) is not np.ndarray or item.dtype.kind not in "iu":
            return None
        if not item.shape or (places is not None and item.shape != places):
            return None
        places = item.shape
        arrays.append(item)
    while arrays and arrays[-1] is None:
        arrays.pop()
    return arrays


def _is_place(item: Any, length: Any) -> bool:
    """Return whether an index may be one of an axis."""
    if type(item) is type(length) is int:
        return bool(-length <= item < length)
    return not (is_below(item, -length) or is_below(length - 1, item))


class _KeyParts(NamedTuple):
    """The parts of a key: what `np::slice` takes, and index arrays for its result."""

    entries: list[Any]
    # Empty where the key has none; None for axes without one.
    arrays: list[Any]
    # Whether an empty Ellipsis separates adjacent index arrays: as in NumPy their axes
    # come first then, as if there were an axis between them.
    is_split: bool


def parts_of(x: Any, key: Any) -> _KeyParts:
    """Return the parts of a key of an array."""
    items, empty = _items(x.shape, key)
    entries, arrays = _parts(x, items)
    while arrays and arrays[-1] is None:
        arrays.pop()
    if not arrays:
        return _KeyParts(entries, arrays, is_split=False)
    try:
        broadcast(*[tuple(a.shape) for a in arrays if a is not None])
    except ValueError:
        _raise_as_numpy(x.shape, items)
    check_bounds(x, _by_axis(items))
    return _KeyParts(entries, arrays, _is_split(items, empty) and layout(arrays)[0])


def _by_axis(items: Sequence[Any]) -> list[Any]:
    """Return for each axis the index array of it, or something else."""
    found: list[Any] = []
    for item in items:
        found += [None] * _width(item) if _is_mask(item) else [item][: _width(item)]
    return found


def _is_split(items: Sequence[Any], empty: int | None) -> bool:
    if empty is None:
        return False
    return _is_array_in(items[:empty]) and _is_array_in(items[empty:])


def _is_array_in(items: Sequence[Any]) -> bool:
    return any(hasattr(item, "shape") or isinstance(item, SIZES) for item in items)


@register_numpy_function(getitem)
def _item_at(x: Any, key: Any) -> Any:
    """Return the elements at a key, ``x[key]``."""
    if key is Ellipsis and not x.shape:  # an array, also of a scalar
        is_scalar = getattr(x, "box_is_scalar", False)
        return np.copy(x) if is_scalar else np.reshape(x, ())
    quick = _quick_entries(x, key)
    if quick is not None:
        return slice_.run(x, quick)
    if type(key) not in _BASIC:
        if type(key) is list and key and _INT.issuperset(map(type, key)):
            key = np.array(key)
        if places := _quick_arrays(x, key):
            return index_.run(x, places, False)
        if (mask := mask_of(key)) is not None:
            return _masked_elements(x, key, mask)
    return _by_parts(x, key)


def _by_parts(x: Any, key: Any) -> Any:
    """Return the elements at any key."""
    entries, arrays, is_split = parts_of(x, key)
    if arrays:
        view = x if all(e == ALL for e in entries) else slice_(x, entries)
        found = index_(view, arrays)
        return np.moveaxis(found, *_turn_of(arrays)) if is_split else found
    if _has_dots(key) and x.shape and all(len(e) == 1 for e in entries):
        return _without_axes(x, entries)
    found = slice_.run(x, entries)
    return np.copy(found) if found.shape and _has_place(key) else found


def _turn_of(arrays: Sequence[Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the axes of index arrays in the result, and the first axes."""
    shapes = [tuple(a.shape) for a in arrays if a is not None]
    rank = max(map(len, shapes))
    at = layout(arrays)[1]
    return tuple(range(at, at + rank)), tuple(range(rank))


def _has_place(key: Any) -> bool:
    """Return whether an item is an array without axes, for which NumPy makes a copy."""
    items = key if type(key) is tuple else (key,)
    return any(type(item) is np.ndarray for item in items)


def _has_dots(key: Any) -> bool:
    return key is Ellipsis or (type(key) is tuple and any(k is Ellipsis for k in key))


def _without_axes(x: Any, entries: Sequence[Any]) -> Any:
    """Return ``x[0, ...]``: a view without axes, where ``x[0]`` is a scalar."""
    at = entries[0][0]
    at = at if at >= 0 else at + x.shape[0]
    check(at < x.shape[0])  # so that there is one element
    return np.reshape(slice_.run(x, [[at, at + 1, None], *entries[1:]]), ())


# ---- x[key] = value ----


def value_for(x: Any, value: Any) -> Any:
    """Return a value in the dtype of the array that takes it, cast as NumPy does."""
    given = value
    # An input that is a number says that it is an int or float, which sizes do not. One
    # that does not fit into an array of integers is an error, so its value must be known.
    if _is_input_number(value) and x.dtype.kind not in "fc":
        value = given = value.value
    if isinstance(value, SymInt | SymFloat):
        return full_like(x, as_held(value, x.dtype), x.dtype, [])
    if not hasattr(value, "shape"):
        value = as_array(value)
    is_number = isinstance(value, np.generic) and not hasattr(given, "shape")
    if (is_number or type(value) is np.ndarray) and value.dtype != x.dtype:
        cast = np.empty(value.shape, x.dtype)
        cast[...] = given  # with NumPy's errors and warnings
        return cast[()]
    if value.dtype == x.dtype:
        return value
    return value.astype(x.dtype)


def _is_input_number(value: object) -> bool:
    return isinstance(value, int | float) and isinstance(value, SymInt | SymFloat)


@register_numpy_function(setitem)
def _setitem(x: Any, key: Any, value: Any) -> Any:
    quick = _quick_entries(x, key)
    if quick is not None:
        if _is_own_view(x, value, quick):  # x[key] += y, which has written the view
            return x
        return _with_view(x, value, quick, key)
    mask = mask_of(key)
    if mask is None and (found := _unknown_mask(key)) is not None:
        # Without data one value is written by np.where, several to places found first.
        mask = found if _is_one_value(x, key, found, value) else None
    if mask is not None:
        return _where_masked(x, key, mask, value, value_for)
    entries, arrays, is_split = parts_of(x, key)
    if not arrays:
        return _with_view(x, value, entries, key)
    value = value_for(x, value)
    is_whole = all(e == ALL for e in entries)
    view = x if is_whole else slice_(x, entries)
    values = values_at(value, view.shape, arrays, is_split=is_split)
    new = index_set(view, values, arrays)
    return new if is_whole else slice_set(x, new, entries)


def _is_own_view(x: Any, value: Any, entries: Any) -> bool:
    """Return whether a value is this very view of the array, which sees all writes."""
    place = getattr(value, "box_place", None)
    if type(place) is not tuple or place[0] is not slice_:
        return False
    base, own = place[1]
    if base is not x or own != entries:  # it may have no place, as fake arrays
        return False
    return not getattr(x.box_place, "is_sealed", False)


def _with_view(x: Any, value: Any, entries: Any, key: Any) -> Any:
    """Return the array with a value in the place of a view."""
    shape = view_shape(x.shape, entries)
    if not shape and _is_listed(value) and not _has_dots(key):
        value = _one_element(x, value)
    value = read_number(x, value)
    if hasattr(value, "shape") and any(type(n) is int and n == 0 for n in shape):
        value = spread_to(value, shape)  # no item is cast, and nothing warns
    return slice_set.run(x, spread_to(value_for(x, value), shape), entries)


def values_at(value: Any, shape: Any, arrays: Any, *, is_split: bool) -> Any:
    """Return a value in the shape of the places of index arrays."""
    places = gathered_shape(shape, arrays)
    if not is_split:
        return spread_to(value, places)
    own, first = _turn_of(arrays)
    rest = [n for i, n in enumerate(places) if i not in own]
    turned = (*[places[i] for i in own], *rest)
    return np.moveaxis(spread_to(value, turned), first, own)


# ---- functions that take elements along axes ----


def _as_places(indices: Any) -> Any:
    """Return index arrays; a number is one without axes, whose bounds are checked."""
    found = as_array(indices)
    return np.asarray(found) if isinstance(found, np.generic) else found


@register_numpy_function(np.take)
def _(
    a: Any, indices: Any, axis: int | None = None, out: None = None, mode: str = "raise"
) -> Any:
    only("np.take", mode=(mode, "raise", "wrap", "clip"))
    if axis is None:
        a, axis = np.ravel(a), 0
    a = lined(a, axis)
    axis = normalize_axis_index(axis, len(shape_of(a)))
    places = _as_places(indices)
    if has_none(a.shape[:axis]):  # NumPy does not look at the indices
        return np.reshape(a, (*a.shape[:axis], *places.shape, *a.shape[axis + 1 :]))
    if mode == "wrap":
        places = np.remainder(places, a.shape[axis])
    elif mode == "clip":
        places = np.minimum(np.maximum(places, 0), a.shape[axis] - 1)
    if not is_integer(places.dtype):
        raise ArgumentError(
            f"np.take: indices of dtype {places.dtype}, must be integers",
            do="use indices.astype(int), or np.where(mask, x, 0) for a mask",
        )
    # Not a key: one of an int is a view.
    key = [*[None] * axis, places]
    check_bounds(a, key)
    return index_(a, [constant(k, a) for k in key], packed=True)


@register_numpy_function(np.take_along_axis)
def _(arr: Any, indices: Any, axis: int | None = -1) -> Any:
    places = _as_places(indices)
    if not is_integer(places.dtype):
        raise ArgumentError(
            f"np.take_along_axis: indices of dtype {places.dtype}, must be integers",
            do="use indices.astype(int), or np.where(mask, x, 0) for a mask",
        )
    if axis is None and len(places.shape) == 1:
        return np.take(np.ravel(arr), places)
    if axis is None or len(places.shape) != len(arr.shape):
        numpy_refuses(
            np.take_along_axis,
            arr,
            np.zeros(typical(places.shape), int),
            axis,
            do="give indices with the axes of the array",
        )
    assert axis is not None  # NumPy refused that
    rank = len(arr.shape)
    axis = normalize_axis_index(axis, rank)
    key = [
        np.reshape(numbers(0, n, arr), (-1, *(1,) * (rank - i - 1)))
        for i, n in enumerate(arr.shape)
    ]
    return _item_at(arr, (*key[:axis], places, *key[axis + 1 :]))


@register_numpy_function(np.compress)
def _(condition: Any, a: Any, axis: int | None = None, out: None = None) -> Any:
    mask = as_array(condition)
    if len(mask.shape) != 1:
        numpy_refuses(
            np.compress, mask, a, do="give an element for each place of the axis"
        )
    return np.take(a, np.flatnonzero(mask), axis)


# ---- masks that differ between rows: `x[mask]` has another length in each ----


def mask_of(key: Any) -> Any:
    """Return the mask of a key, if rows differ in the elements it takes; else None.

    That is a mask under vmap, alone or beside full slices.
    """
    items = key if type(key) is tuple else (key,)
    masks = [item for item in items if _is_unknown(item)]
    return masks[0] if masks else None


def _is_unknown(item: Any) -> bool:
    return isinstance(item, Tracer) and item.dtype == np.bool_ and _differs(item)


def _differs(x: Any) -> bool:
    """Return whether an array may differ between the rows of a vmap."""
    while isinstance(x, Tracer):
        if x.interpreter.kind.name == "vmap":
            return True
        x = x.below
    return False


def _unknown_mask(key: Any) -> Any:
    """Return the mask of a key, if its elements are not known; else None.

    Beside masks that differ between rows these are those without data.
    """
    items = key if type(key) is tuple else (key,)
    masks = [item for item in items if _has_no_data(item)]
    return masks[0] if masks else None


def _has_no_data(item: Any) -> bool:
    if not isinstance(item, Tracer | FakeArray) or item.dtype != np.bool_:
        return False
    return isinstance(item, FakeArray) or not item.is_concrete


def _is_full(item: Any) -> bool:
    return item is Ellipsis or (isinstance(item, slice) and item == slice(None))


def _wide(x: Any, key: Any, mask: Any) -> tuple[Any, int]:
    """Return the mask with axes for the whole array, and how many follow its own."""
    items = list(key) if type(key) is tuple else [key]
    at = next(i for i, item in enumerate(items) if item is mask)
    rest = items[:at] + items[at + 1 :]
    dots = [i for i, item in enumerate(rest) if item is Ellipsis]
    if len(dots) > 1 or not all(_is_full(item) for item in rest):
        raise _unknown("beside other indices")
    if any(i < at for i in dots):
        at = len(x.shape) - len(mask.shape) - (len(items) - 1 - at)
    last = len(x.shape) - at - len(mask.shape)
    own = x.shape[at : at + len(mask.shape)]
    if any(n != m for n, m in zip(own, mask.shape, strict=True)):
        raise IndexError(f"a mask of shape {mask.shape} for an array of {x.shape}")
    return np.reshape(mask, (1,) * at + tuple(mask.shape) + (1,) * last), last


def _unknown(where: str) -> DataDependentError:
    return DataDependentError(
        f"x[mask] under vmap {where}: each row takes another number of elements",
        do="use np.where(mask, x, 0), which keeps the shape; or map(f, rows), which runs f"
        " once for each row",
    )


class MaskedElements(NDArrayOperatorsMixin):
    """``x[mask]`` of an unknown length: to be computed with, and written to ``x[mask]``.

    It holds all elements of `x`, with ones in the places that the mask leaves out.
    """

    def __init__(self, mask: Any, elements: Any) -> None:
        self.mask: Any = mask
        self.elements: Any = elements

    def __len__(self) -> int:
        raise _unknown("is used as an array")

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise _unknown("is used as an array")

    def __array_function__(self, *args: Any) -> NoReturn:
        raise _unknown("is used as an array")

    def __getitem__(self, key: Any) -> NoReturn:
        raise _unknown("is indexed")

    def __setitem__(self, key: Any, value: Any) -> NoReturn:
        raise _unknown("is indexed")

    # `shape` too: it depends on data.
    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        raise _unknown("is used as an array")

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any
    ) -> Any:
        out = kwargs.pop("out", None)
        if method != "__call__" or kwargs or (out and out[0] is not self):
            raise _unknown("is used as an array")
        found = ufunc(*[_whole(self, value) for value in inputs])
        if out:
            self.elements = found
            return self
        return MaskedElements(self.mask, found)


def _whole(masked: MaskedElements, value: Any) -> Any:
    """Return all elements of an operand."""
    if isinstance(value, MaskedElements):
        if value.mask is not masked.mask:
            raise _unknown("meets elements of another mask")
        return value.elements
    if getattr(value, "shape", ()) or isinstance(value, list | tuple):
        raise _unknown("meets an array")
    return value


def _masked_elements(x: Any, key: Any, mask: Any) -> MaskedElements:
    """Return ``x[key]`` for a key with such a mask."""
    # Ones in the other places are safe for a logarithm or a division.
    return MaskedElements(mask, np.where(_wide(x, key, mask)[0], x, 1))


def _is_one_value(x: Any, key: Any, mask: Any, value: Any) -> bool:
    """Return whether ``x[key] = value`` writes the same to all elements of a mask."""
    if isinstance(value, MaskedElements):
        return True
    items = key if type(key) is tuple else (key,)
    if not all(item is mask or _is_full(item) for item in items):
        return False
    rank = len(getattr(value, "shape", ()))
    return not isinstance(value, list | tuple) and rank <= _wide(x, key, mask)[1]


def _where_masked(x: Any, key: Any, mask: Any, value: Any, cast: Any) -> Any:
    """Return `x` after ``x[key] = value`` for a key with such a mask."""
    wide, trailing = _wide(x, key, mask)
    if isinstance(value, MaskedElements):
        if value.mask is not mask:
            raise _unknown("takes elements of another mask")
        return np.where(wide, cast(x, value.elements), x)
    new = cast(x, value)
    if len(new.shape) > trailing:
        raise _unknown("takes several values")
    return np.where(wide, new, x)


# Numbers of Python and NumPy are read one by one: one that does not fit is an error.
# Arrays, also those without axes, are cast, and wrap around.


# ---- single numbers ----


def _read(x: Any, dtype: Any, is_flat: bool) -> Any:
    """Read numbers as a dtype of integers, each as NumPy does; for ``x.flat`` if so."""
    _check_integer(dtype)
    out = np.empty(x.shape, dtype)
    with np.errstate(invalid="ignore"):
        cast = np.asarray(x).astype(dtype)
        if np.array_equal(cast, x):  # in one go where all are such integers
            return cast[()]
    for i, place in enumerate(np.ndindex(x.shape)):
        if is_flat:
            out.flat[i] = x[place]
        else:
            out[place] = x[place]
    return out[()]


def _check_integer(dtype: Any) -> None:
    if np.dtype(dtype).kind not in "iu":
        raise ArgumentError(
            f"np::read_integer: dtype={dtype} is not a dtype of integers",
            do="use x.astype(dtype)",
        )


def _cast(x: Any, dtype: Any, is_flat: bool) -> Any:
    _check_integer(dtype)
    return x.astype(dtype)


# Integers have no derivative. Arrays of other libraries are cast.
_read_integer: Operator[..., Any] = numpy_operator(
    "read_integer", "(Array x, dtype dtype, bool is_flat) -> Array", _cast
)
_read_integer.register_kernel("cpu", _read)
_read_integer.register_sample_inputs(
    lambda: [
        (np.array([3.5, -2.0]), np.dtype("i1"), False),
        (np.array(7), np.dtype("u2"), True),
        (np.array([[True, False]]), np.dtype("i8"), False),
    ]
)


@_read_integer.register_fake
def _(x: Any, dtype: Any, is_flat: bool) -> FakeArray:
    _check_integer(dtype)
    return fake_like(x, dtype=dtype)


_read_integer.register_vmap(
    lambda info, in_dims, x, *rest: (_read_integer(x, *rest), in_dims[0])
)
no_gradient(_read_integer)


def read_number(x: Any, value: Any, *, is_flat: bool = False) -> Any:
    """Read a number, or a list, as an array does at a key without index arrays.

    At index arrays and masks a number is cast. For ``x.flat[place]`` NumPy has another
    error for one that does not fit. Source: NumPy 2.1 to 2.4.
    """
    if isinstance(value, list | tuple):
        return [_item(x, v) for v in value] if _holds_traced(value) else value
    if isinstance(value, np.generic):
        return value if value.dtype == x.dtype else _read_plain(x, value)
    is_read = isinstance(value, Tracer) and getattr(x.dtype, "kind", "") in ("i", "u")
    if not is_read or not value.box_is_scalar or np.can_cast(value.dtype, x.dtype):
        return value
    return _read_integer(value, x.dtype, is_flat)


def _read_plain(x: Any, value: Any) -> Any:
    """Return a number in the dtype of an array, with the errors of NumPy."""
    read = np.empty((), x.dtype)
    read[()] = value
    return read


def _holds_traced(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(map(_holds_traced, value))
    return isinstance(value, Tracer)


def _item(x: Any, item: Any) -> Any:
    """Return an item of a list beside traced ones."""
    is_number = type(item) in (bool, int, float, complex)
    return _read_plain(x, item) if is_number else read_number(x, item)


# ---- values for one element ----


def _is_listed(value: Any) -> bool:
    """Return whether a value is an array with axes, or a list."""
    return isinstance(value, list | tuple) or bool(getattr(value, "shape", ()))


def _one_element(x: Any, value: Any) -> Any:
    """Return a value for one element of an array; raise as NumPy for one with axes."""
    if not _is_listed(value):
        return value
    given = as_array(value)
    one = np.empty(1, x.dtype)
    if type(given) is np.ndarray:
        one[0] = value
        return one[0]
    if isinstance(value, list | tuple):
        one[0] = [0] * len(value)
        return one[0]  # a flag: whether there are items
    one[0] = np.zeros((1,) * len(given.shape), dtype_of(given))
    return given
