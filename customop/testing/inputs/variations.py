"""Variations of a sample: the same values in other layouts and dtypes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, TypeAlias

import numpy as np

from customop.arrays.fake import c_strides
from customop.core.operator import Operator
from customop.core.samples import Sample
from customop.testing.inputs.memory import laid_out
from customop.testing.inputs.oracle import Oracle
from customop.testing.inputs.patterns import is_symmetric
from customop.testing.inputs.places import Array, Place, arrays_in, replaced

__all__ = ["LAYOUTS", "dtypes", "layouts"]

# Makes a variation of an array, or None where it has none.
_Vary: TypeAlias = Callable[[Array], Array | None]

# ---- layouts ----


def _dense(x: Array) -> tuple[int, ...]:
    return c_strides(x.shape, x.dtype.itemsize)


def _every_other(x: Array) -> Array | None:
    """Every other element of an array of twice the length."""
    if not x.ndim or not x.size:
        return None
    return laid_out(x, [2 * s for s in _dense(x)])


def _outer_gaps(x: Array) -> Array | None:
    """Rows of a wider array: dense inside, with gaps between."""
    if x.ndim < 2 or not x.size:
        return None
    wide = (*x.shape[:-1], 2 * x.shape[-1])
    return laid_out(x, c_strides(wide, x.dtype.itemsize))


def _reversed(x: Array) -> Array | None:
    if not x.ndim or x.size < 2:
        return None
    return laid_out(x, [-s for s in _dense(x)])


def _fortran(x: Array) -> Array | None:
    out = np.asfortranarray(x)
    return None if out.flags.c_contiguous else out


def _transposed(x: Array) -> Array | None:
    """The last axis first in memory; differs from Fortran order from three axes on."""
    if x.ndim < 3:
        return None
    out = np.moveaxis(np.moveaxis(x, -1, 0).copy(), 0, -1)
    return None if out.flags.c_contiguous or out.flags.f_contiguous else out


def _read_only(x: Array) -> Array | None:
    out = x.copy()
    out.flags.writeable = False
    return out


def _unaligned(x: Array) -> Array | None:
    if x.dtype.alignment == 1 or x.dtype.hasobject or not x.size:
        return None
    return laid_out(x, _dense(x), 1)


def _broadcast(x: Array) -> Array | None:
    """One row repeated along the first axis: the shape stays, the values do not."""
    axis = next((i for i, n in enumerate(x.shape) if n > 1), None)
    if axis is None or not x.size:
        return None
    strides = [0 if i == axis else s for i, s in enumerate(_dense(x))]
    out = laid_out(x, strides)
    out.flags.writeable = False
    return out


# Note -> (layout, whether an array that is written can have it). All but the last keep
# the values.
LAYOUTS: dict[str, tuple[_Vary, bool]] = {
    "non-contiguous": (_every_other, True),
    "rows with gaps between": (_outer_gaps, True),
    "negative strides": (_reversed, True),
    "Fortran order": (_fortran, True),
    "last axis first in memory": (_transposed, True),
    "unaligned": (_unaligned, True),
    "read-only": (_read_only, False),
    "broadcast": (_broadcast, False),
}


def layouts(
    op: Operator[..., Any], sample: Sample, *, keeps_shapes: bool = False
) -> Iterator[Sample]:
    """The arrays of a sample in other layouts: each by itself, then all at once.

    Parameters
    ----------
    op : Operator
    sample : Sample
    keeps_shapes : bool
        Whether numbers of axes stay, and lengths that are equal stay equal.

    Yields
    ------
    Sample
        First with other strides, order and flags. Then with arrays of other shapes
        that the operator accepts: without axes, and empty.
    """
    arrays = arrays_in(op, sample)
    for note, (vary, fits_written) in LAYOUTS.items():
        made = {
            p: vary(x) for p, x, is_written in arrays if fits_written or not is_written
        }
        new = {place: x for place, x in made.items() if x is not None}
        for place, x in new.items():
            yield replaced(op, sample, {place: x}, f"{note} of '{place}'")
        if len(new) > 1:
            yield replaced(op, sample, new, f"{note} of all arrays")
    oracle = Oracle.around(op, sample)
    others = _emptied_together(op, sample, arrays)
    if not keeps_shapes:
        others = chain(_scalars(op, sample, arrays), others)
        others = chain(others, _emptied_alone(op, sample, arrays))
    yield from (s for s in others if oracle.takes(s))


# ---- arrays without axes and without elements ----


def _scalars(
    op: Operator[..., Any], sample: Sample, arrays: Sequence[Place]
) -> Iterator[Sample]:
    scalars = {place: _without_axes(x) for place, x, _ in arrays if x.ndim}
    if scalars:
        yield replaced(op, sample, scalars, "no axes in all arrays")
    singles = list(scalars)[0 if is_symmetric(op) else 1 :]
    for place in singles if len(arrays) > 1 else ():
        yield replaced(op, sample, {place: scalars[place]}, f"no axes in '{place}'")


def _emptied_together(
    op: Operator[..., Any], sample: Sample, arrays: Sequence[Place]
) -> Iterator[Sample]:
    for length in dict.fromkeys(n for _, x, _ in arrays for n in x.shape if n):
        new = {p: _emptied(x, length) for p, x, _ in arrays if length in x.shape}
        yield replaced(op, sample, new, f"no length for axes of length {length}")


def _emptied_alone(
    op: Operator[..., Any], sample: Sample, arrays: Sequence[Place]
) -> Iterator[Sample]:
    for place, x, _ in arrays:
        for axis in range(x.ndim):
            shape = [*x.shape[:axis], 0, *x.shape[axis + 1 :]]
            note = f"no length for axis {axis} of '{place}'"
            yield replaced(op, sample, {place: np.zeros(shape, x.dtype)}, note)


def _without_axes(x: Array) -> Array:
    return x.reshape(-1)[:1].reshape(()).copy() if x.size else np.zeros((), x.dtype)


def _emptied(x: Array, length: int) -> Array:
    return np.zeros([0 if n == length else n for n in x.shape], x.dtype)


# ---- dtypes ----

_FLOATS = ("f4", "f2", "g", "f8")
_COMPLEX = ("c8", "c16")
_WHOLE = ("i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1")
_NAMES = (*_FLOATS, *_COMPLEX, *_WHOLE, "?")
# For one array alone.
_ALONE = ("f4", "f2", "c16", "i8", "i4", "u1", "?")


def dtypes(
    op: Operator[..., Any], sample: Sample, left_out: list[Sample] | None = None
) -> Iterator[Sample]:
    """The arrays of a sample in other dtypes: all at once, then each by itself.

    Masks and indices stay what they are. Some variations need the consent of the fake
    kernel, as the operator may not be meant for them: dtypes of another kind of number,
    and dtypes of one array alone. They are left out where the fake kernel announces
    other results.

    Parameters
    ----------
    op : Operator
    sample : Sample
    left_out : list, optional
        Gets the variations that the fake kernel is wrong for.

    Yields
    ------
    Sample
        Accepted by the kernels of the operator. The values are the same as far as the
        dtype can hold them.
    """
    arrays = [(place, x) for place, x, _ in arrays_in(op, sample)]
    oracle = Oracle.around(op, sample)
    for varied, is_certain in _dtype_trials(op, sample, arrays):
        if not oracle.takes(varied):
            continue
        if is_certain or oracle.agrees(lambda: oracle.bound(varied)) is not False:  # noqa: B023  # called at once
            yield varied
        elif left_out is not None:
            left_out.append(varied)


def _dtype_trials(
    op: Operator[..., Any], sample: Sample, arrays: Sequence[tuple[str, Array]]
) -> Iterator[tuple[Sample, bool]]:
    """Variations, and whether the operator must be right for them if it accepts them."""
    for dtype in map(np.dtype, _NAMES):
        new = {p: _cast(x, dtype) for p, x in arrays if _is_free(x, dtype)}
        if new:
            changed = [x.dtype for p, x in arrays if p in new]
            is_certain = all(_same_numbers(before, dtype) for before in changed)
            yield replaced(op, sample, new, f"{dtype.name} in all arrays"), is_certain
    swapped = {p: _swapped(x) for p, x in arrays if x.dtype.itemsize > 1}
    if swapped:
        yield replaced(op, sample, swapped, "other byte order in all arrays"), True
    if len(arrays) > 1:
        for place, x in arrays:
            for dtype in map(np.dtype, _ALONE):
                if _is_free(x, dtype):
                    note = f"{dtype.name} in '{place}'"
                    yield replaced(op, sample, {place: _cast(x, dtype)}, note), False
            if x.dtype.itemsize > 1:
                note = f"other byte order in '{place}'"
                yield replaced(op, sample, {place: _swapped(x)}, note), True


def _same_numbers(a: np.dtype[Any], b: np.dtype[Any]) -> bool:
    return a.kind == b.kind or {a.kind, b.kind} == {"i", "u"}


def _is_free(x: Array, dtype: np.dtype[Any]) -> bool:
    """Whether the array may be cast: indices and masks stay what they are."""
    if x.dtype == dtype:
        return False
    return x.dtype.kind in "fc" or (x.dtype.kind in "iu" and dtype.kind in "iu")


def _cast(x: Array, dtype: np.dtype[Any]) -> Array:
    if dtype.kind == "c":
        return x.astype(dtype)
    real = np.real(x)
    if dtype.kind == "u":
        real = np.abs(real)
    if dtype.kind in "iu":  # away from zero: small numbers do not become zero
        real = np.where(real < 0, np.floor(real), np.ceil(real))
    return real > 0 if dtype.kind == "b" else real.astype(dtype)


def _swapped(x: Array) -> Array:
    return x.astype(x.dtype.newbyteorder("S"))
