"""The values inside a sample, with their places as text, and copies of samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from customop.arrays.nested import children, like, map_nested, steps
from customop.arrays.python_text import FILLER, margin, reach
from customop.arrays.refusals import has_bits
from customop.core.operator import Operator
from customop.core.samples import Sample

# ---- copies of samples and arrays that keep the memory layout ----


def fresh(sample: Sample) -> Sample:
    """Copy the arguments into new memory, so that a call may change them.

    Arrays keep their strides and flags. An array passed twice is still one array.
    """
    copies = None if sample.kwargs else plain_copies(sample.args)
    if copies is not None:
        return Sample(tuple(copies), {}, sample.note)
    known: dict[int, Any] = {}

    def copied(value: Any) -> Any:
        if id(value) not in known:
            known[id(value)] = copy_leaf(value)
        return known[id(value)]

    return map_arrays(copied, sample)


# Classes of values that a call cannot change.
CONSTANT: Final = frozenset((int, float, bool, str, complex, type(None)))


def plain_copies(values: Sequence[Any]) -> list[Any] | None:
    """Return copies of arguments if all are different arrays or constants; else None.

    This takes a third of the time of `fresh`.
    """
    copies: list[Any] = []
    first: Any = None
    for value in values:
        if type(value) is np.ndarray:
            if first is not None and any(value is x for x in values[: len(copies)]):
                return None
            first = value
            copies.append(value.copy() if value.flags.carray else copy_array(value))
        elif type(value) in CONSTANT:
            copies.append(value)
        else:
            return None
    return copies


def map_arrays(fn: Callable[[Any], Any], sample: Sample) -> Sample:
    """Apply `fn` to every leaf of a sample."""
    args = tuple(map_nested(value, fn) for value in sample.args)
    kwargs = {name: map_nested(value, fn) for name, value in sample.kwargs.items()}
    return Sample(args, kwargs, sample.note)


def map_values(fn: Callable[[Any], Any], values: Sequence[Any]) -> list[Any]:
    """Apply `fn` to every leaf of some values; constants are kept as they are."""
    return [
        value
        if type(value) in CONSTANT
        else fn(value)
        if type(value) is np.ndarray
        else map_nested(value, fn)
        for value in values
    ]


def copy_leaf(value: Any) -> Any:
    """Copy a leaf if a call may change it."""
    if type(value) is np.ndarray:
        return copy_array(value)
    # A Generator changes when it draws. Arrays of other kinds have their own deepcopy.
    changes = has_bits(value) or hasattr(value, "__array_namespace__")
    return deepcopy(value) if changes else value


def copy_array(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Copy an array into new memory, with the same strides and flags."""
    if x.flags.c_contiguous and x.flags.aligned:
        out = x.copy()
    else:
        shift = 0 if x.flags.aligned else x.ctypes.data % x.dtype.alignment
        out = laid_out(x, x.strides, shift)
    out.flags.writeable = x.flags.writeable
    return out


def laid_out(
    values: np.ndarray[Any, Any], strides: Sequence[int], shift: int = 0
) -> np.ndarray[Any, Any]:
    """Return an array with these strides, `shift` bytes after an aligned address.

    The memory around and between the elements holds FILLER, so a kernel that assumes a
    contiguous array reads FILLER. Along an axis of stride 0 the first value repeats.
    """
    low, high = reach(values.shape, strides)
    before = margin(values)
    size = before + high - low + values.dtype.itemsize + shift + before
    memory = np.full(size, FILLER, np.uint8)
    out = np.ndarray(
        values.shape, values.dtype, memory, before + shift - low, tuple(strides)
    )
    if values.size:
        once = tuple(slice(0, 1) if s == 0 else slice(None) for s in strides)
        out[once] = values[once]
    return out


# ---- the values inside a sample, each with its place as text ----


Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


# Classes of arguments without values inside: NumPy arrays and constants.
WHOLE: Final = CONSTANT | {np.ndarray}


class Place(NamedTuple):
    """A value inside a sample.

    Attributes
    ----------
    name : str
        ``x``, ``arrays[0]``, ``window.taps`` or ``table['a']``.
    value : object
    is_written : bool
        Whether the operator writes to the argument that holds it.
    """

    name: str
    value: Any
    is_written: bool


def places_in(op: Operator[..., Any], sample: Sample) -> list[Place]:
    """Return all values of a sample: each argument, then the values inside it."""
    names = [p.name for p in op.schema.positional]
    given = {**dict(zip(names, sample.args, strict=False)), **sample.kwargs}
    return [
        Place(place, inner, name in op.schema.written)
        for name, value in given.items()
        for place, inner in _inside(value, name)
    ]


def _inside(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    yield place, value
    items = children(value)
    if items is None:
        return
    for step, item in zip(steps(value), items, strict=True):
        yield from _inside(item, _deeper(value, place, step))


def _deeper(value: Any, place: str, step: Any) -> str:
    is_key = isinstance(value, list | dict) or type(value) is tuple
    return f"{place}[{step!r}]" if is_key else f"{place}.{step}"


def leaves_in(value: Any, place: str) -> list[tuple[str, Any]]:
    """Return the leaves of a value with their places."""
    if children(value) is None:
        return [(place, value)]
    found = _inside(value, place)
    return [(name, leaf) for name, leaf in found if children(leaf) is None]


def arrays_in(op: Operator[..., Any], sample: Sample) -> list[Place]:
    """Return the NumPy arrays of a sample."""
    args, schema = sample.args, op.schema
    if not sample.kwargs and WHOLE.issuperset(map(type, args)):
        pairs = zip(schema.positional, args, strict=False)
        return [
            Place(p.name, x, p.name in schema.written)
            for p, x in pairs
            if type(x) is np.ndarray
        ]
    return [p for p in places_in(op, sample) if isinstance(p.value, np.ndarray)]


def replaced(
    op: Operator[..., Any], sample: Sample, new: Mapping[str, Any], note: str = ""
) -> Sample:
    """Copy a sample with new values at some places."""
    if not sample.kwargs:  # usually whole arguments change: a quarter of the time
        found, left = [*sample.args], len(new)
        for i, p in enumerate(op.schema.positional[: len(found)]):
            if p.name in new:
                found[i] = new[p.name]
                left -= 1
        if not left:
            return Sample((*found,), {}, note or sample.note)

    def put(value: Any, place: str) -> Any:
        if place in new:
            return new[place]
        items = children(value)
        if items is None:
            return value
        pairs = zip(steps(value), items, strict=True)
        return like(value, [put(v, _deeper(value, place, s)) for s, v in pairs])

    args = zip(sample.args, op.schema.positional, strict=False)
    return Sample(
        tuple(put(value, p.name) for value, p in args),
        {name: put(value, name) for name, value in sample.kwargs.items()},
        note or sample.note,
    )
