"""A sample with longer axes: what is right at one length can be wrong at another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from customop.core.operator import Operator
from customop.core.samples import Sample
from customop.schema.fit import typed_arrays
from customop.schema.shape_check import sizes_of
from customop.shapes.notation import Shape, names_in
from customop.testing.inputs.oracle import Oracle
from customop.testing.inputs.places import Array, arrays_in, replaced

__all__ = ["Longer", "longer"]


class Longer(Sample, compare=()):
    """A sample whose axes are longer than those of a given one.

    Attributes
    ----------
    is_declared : bool
        Whether the shapes in the schema say that these axes may have any length. Else
        only the kernel says so, by taking them.
    """

    is_declared: bool

    def __init__(self, sample: Sample, *, is_declared: bool) -> None:
        super().__init__(sample.args, sample.kwargs, sample.note)
        object.__setattr__(self, "is_declared", is_declared)


# New shapes by place of the array.
_Shapes: TypeAlias = dict[str, tuple[int, ...]]


def longer(
    op: Operator[..., Any],
    sample: Sample,
    others: Sequence[Sample] = (),
    oracle: Oracle | None = None,
) -> Longer | None:
    """The sample with longer axes, as the kernel takes it; None if there is none.

    Axes that the schema gives one name get longer together, and so do axes of one
    length that it does not name. Axes stay that have other lengths in `others`.

    Parameters
    ----------
    op : Operator
    sample : Sample
    others : sequence of Sample
        The other calls that are checked.
    oracle : Oracle, optional
        One that is around the sample.

    Returns
    -------
    Longer or None
        Its values are close to those of the sample.
    """
    arrays = {place: x for place, x, _ in arrays_in(op, sample)}
    if not any(x.ndim and x.size for x in arrays.values()):
        return None
    varied = _varied(op, sample, arrays, others)
    named = _named(op, sample, arrays)
    seen: list[_Shapes] = []
    for is_declared, shapes in _candidates(op, sample, arrays, named, varied):
        if shapes in seen or all(shapes[p] == x.shape for p, x in arrays.items()):
            continue
        seen.append(shapes)
        oracle = oracle or Oracle.around(op, sample)
        new = {p: _filled(x, shapes[p]) for p, x in arrays.items()}
        made = replaced(op, sample, new, _note(arrays, shapes))
        if oracle.takes(made):
            return Longer(made, is_declared=is_declared)
    return None


def _note(arrays: Mapping[str, Array], shapes: _Shapes) -> str:
    pairs = {
        f"{b} for {a}": None
        for place, x in arrays.items()
        for a, b in zip(x.shape, shapes[place], strict=True)
        if a != b
    }
    return f"longer axes: {', '.join(pairs)}"


# ---- which lengths ----

# Single lengths that are tried where the kernel refuses that all of them change.
_SINGLE = 3


def _candidates(
    op: Operator[..., Any],
    sample: Sample,
    arrays: Mapping[str, Array],
    shapes: Mapping[str, Shape],
    varied: set[tuple[str, int]],
) -> Iterator[tuple[bool, _Shapes]]:
    """Longer shapes, the likeliest first, each with whether the schema declares them."""
    declared = _declared(op, sample, arrays, shapes, varied)
    if declared is not None:
        yield True, declared
    free = {
        (place, i)
        for place, x in arrays.items()
        for i in range(x.ndim)
        if (place, i) not in varied and _is_free(shapes.get(place), i, x.ndim)
    }
    lengths = [arrays[place].shape[i] for place, i in sorted(free)]
    taken = {arrays[place].shape[i] for place, i in varied}
    kept = [n for n in dict.fromkeys(lengths) if n and n not in taken]
    long = [n for n in kept if n > 1]
    for chosen in (kept, long, *([n] for n in kept[:_SINGLE])):
        yield False, _with_lengths(arrays, free, {n: n + 1 for n in chosen})
    yield False, _with_lengths(arrays, free, {n: 2 * n for n in long})


def _is_free(shape: Shape | None, axis: int, ndim: int) -> bool:
    """Whether the schema leaves the length of an axis open."""
    if shape is None:
        return True
    before, after = len(shape.before), ndim - len(shape.after)
    if before <= axis < after:
        return True
    return shape.axes[axis if axis < before else axis - ndim].length is None


def _with_lengths(
    arrays: Mapping[str, Array], free: set[tuple[str, int]], new: Mapping[int, int]
) -> _Shapes:
    return {
        place: tuple(
            new.get(n, n) if (place, i) in free else n for i, n in enumerate(x.shape)
        )
        for place, x in arrays.items()
    }


def _varied(
    op: Operator[..., Any],
    sample: Sample,
    arrays: Mapping[str, Array],
    others: Sequence[Sample],
) -> set[tuple[str, int]]:
    """The axes that other samples have with other lengths."""
    found: set[tuple[str, int]] = set()
    for other in others:
        if other is sample:
            continue
        for place, y, _ in arrays_in(op, other):
            x = arrays.get(place, y)
            if y.size and x.ndim == y.ndim:
                pairs = enumerate(zip(x.shape, y.shape, strict=True))
                found.update((place, i) for i, (a, b) in pairs if a != b)
    return found


# ---- lengths with names ----


def _named(
    op: Operator[..., Any], sample: Sample, arrays: Mapping[str, Array]
) -> dict[str, Shape]:
    """The shapes that the schema gives arrays, by place."""
    if not op.schema.has_shapes:
        return {}
    places = {id(x): place for place, x in arrays.items()}
    values = op.bind(*sample.args, **sample.kwargs)
    return {
        places[id(x)]: declared.shape
        for p, value in zip(op.schema.parameters, values, strict=True)
        for _, x, declared in typed_arrays(value, p.type)
        if id(x) in places and declared.shape is not None
    }


def _declared(
    op: Operator[..., Any],
    sample: Sample,
    arrays: Mapping[str, Array],
    shapes: Mapping[str, Shape],
    varied: set[tuple[str, int]],
) -> _Shapes | None:
    """Shapes with a greater length for each name in the schema that can have it."""
    if not shapes:
        return None
    schema = op.schema
    values = op.bind(*sample.args, **sample.kwargs)
    sizes = sizes_of(op.qualname, schema, values).lengths
    still = {p.name for p in schema.parameters}
    for place, axis in varied:
        still.update(_names_at(shapes.get(place), axis, arrays[place].ndim))
    more = {name: n + 1 for name, n in sizes.items() if n and name not in still}
    found = {place: x.shape for place, x in arrays.items()}
    for place, shape in shapes.items():
        found[place] = _longer_shape(shape, arrays[place].shape, {**sizes, **more})
    return found


def _longer_shape(
    shape: Shape, lengths: tuple[int, ...], sizes: Mapping[str, int]
) -> tuple[int, ...]:
    """A shape for other sizes. What broadcasts, or has no name, stays."""
    before, after = len(shape.before), len(lengths) - len(shape.after)
    name = "" if shape.loop is None else shape.loop.name
    new = shape.lengths(sizes, {name: lengths[before:after]})
    axes = [*shape.before, *[None] * (after - before), *shape.after]
    return tuple(
        old
        if axis is None or axis.length is None or (axis.is_broadcast and old == 1)
        else n
        for axis, old, n in zip(axes, lengths, new, strict=True)
    )


def _names_at(shape: Shape | None, axis: int, ndim: int) -> tuple[str, ...]:
    if shape is None or len(shape.before) <= axis < ndim - len(shape.after):
        return ()
    entry = shape.axes[axis if axis < len(shape.before) else axis - ndim]
    return tuple(names_in(entry.length))


# ---- values ----


def _filled(x: Array, shape: tuple[int, ...]) -> Array:
    """An array of a longer shape: the values of another one, over and over.

    A longer square matrix gets a large number on its diagonal, so that it has an inverse
    if the given one has one, and stays symmetric and positive definite.
    """
    if not x.size:
        return np.zeros(shape, x.dtype)
    out, is_inexact = x, x.dtype.kind in "fc"
    for axis, (old, n) in enumerate(zip(x.shape, shape, strict=True)):
        if n != old:
            source, shares = _steps(old, n)
            out = out.take(source, axis)
            if is_inexact:
                out = out * shares.reshape((-1,) + (1,) * (x.ndim - 1 - axis))
    out = np.ascontiguousarray(out, x.dtype).reshape(shape)
    if is_inexact and x.ndim > 1 and x.shape[-1] == x.shape[-2] < shape[-1]:
        new = np.arange(x.shape[-1], shape[-1])
        out[..., new, new] += np.abs(x).max(initial=0.0)
    return out


@lru_cache(maxsize=64)
def _steps(old: int, new: int) -> tuple[Array, Array]:
    """Which values come in which place, and what share of them.

    Floats get closer to zero, each by another share: no two are equal, at which a maximum
    has a kink, and they stay in most domains.
    """
    places = np.arange(new)
    shares = 1.0 - 0.03 * (0.618 * places % 1.0)
    return places % old, np.where(places < old, shares, 0.875 * shares)
