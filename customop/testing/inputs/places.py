"""The values inside a sample, each with its place in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from customop.arrays.nested import children, like, steps
from customop.core.operator import Operator
from customop.core.samples import Sample
from customop.testing.inputs.memory import CONSTANT

__all__ = ["WHOLE", "Array", "Place", "arrays_in", "leaves_in", "places_in", "replaced"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]


# Classes of arguments that hold no others: arrays of NumPy and constants.
WHOLE: Final = CONSTANT | {np.ndarray}


class Place(NamedTuple):
    """A value inside a sample.

    Attributes
    ----------
    name : str
        ``x``, ``arrays[0]``, ``window.taps`` or ``table['a']``.
    value : object
    is_written : bool
        Whether the operator writes the argument that holds it.
    """

    name: str
    value: Any
    is_written: bool


def places_in(op: Operator[..., Any], sample: Sample) -> list[Place]:
    """All values of a sample: each argument, followed by the values inside it."""
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
    """The leaves of a value, each with its place."""
    if children(value) is None:
        return [(place, value)]
    found = _inside(value, place)
    return [(name, leaf) for name, leaf in found if children(leaf) is None]


def arrays_in(op: Operator[..., Any], sample: Sample) -> list[Place]:
    """The NumPy arrays of a sample."""
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
    """Copy a sample with other values in some places."""
    if not sample.kwargs:  # usually it is whole arguments: a quarter of the time
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
