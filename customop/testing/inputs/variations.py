"""Variations of a sample: the same values in other layouts and dtypes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

import numpy as np

from customop.arrays.fake import c_strides
from customop.arrays.nested import children, like, steps
from customop.core.samples import Sample
from customop.errors import CustomOpError
from customop.testing.inputs.memory import fresh, laid_out
from customop.testing.inputs.oracle import CLEAN, Oracle, strict_numbers
from customop.testing.inputs.patterns import is_symmetric

__all__ = ["LAYOUTS", "arrays_in", "dtypes", "layouts", "replaced"]

_Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
# A variation of an array; None where it has none.
_Vary: TypeAlias = Callable[[_Array], _Array | None]

# Seconds that a kernel may take to answer whether it takes empty arrays and the like.
_BUDGET = 1.0


# ---- arrays of a sample by their places ----


def arrays_in(op: Any, sample: Sample) -> list[tuple[str, _Array, bool]]:
    """Arrays of a sample, each with its place in words and whether it is written."""
    found: list[tuple[str, _Array, bool]] = []
    for name, value in _by_name(op, sample).items():
        p = op.schema.parameters[op.schema.index(name)]
        found += [(place, x, p.is_written) for place, x in _arrays(value, name)]
    return found


def _by_name(op: Any, sample: Sample) -> dict[str, Any]:
    names = [p.name for p in op.schema.positional]
    return {**dict(zip(names, sample.args, strict=False)), **sample.kwargs}


def _arrays(value: Any, place: str) -> Iterator[tuple[str, _Array]]:
    items = children(value)
    if items is None:
        if isinstance(value, np.ndarray):
            yield place, value
        return
    for step, item in zip(steps(value), items, strict=True):
        yield from _arrays(item, _deeper(value, place, step))


def _deeper(value: Any, place: str, step: Any) -> str:
    """A place in words: ``x[0]``, ``window['a']``, ``window.taps``."""
    is_key = isinstance(value, list | dict) or type(value) is tuple
    return f"{place}[{step!r}]" if is_key else f"{place}.{step}"


def replaced(op: Any, sample: Sample, new: dict[str, _Array], note: str) -> Sample:
    """The sample with other arrays in some places."""

    def within(value: Any, place: str) -> Any:
        items = children(value)
        if items is None:
            return new.get(place, value)
        pairs = zip(steps(value), items, strict=True)
        return like(value, [within(v, _deeper(value, place, s)) for s, v in pairs])

    names = [p.name for p in op.schema.positional]
    args = zip(sample.args, names, strict=False)
    return Sample(
        tuple(within(value, name) for value, name in args),
        {name: within(value, name) for name, value in sample.kwargs.items()},
        note,
    )


# ---- layouts ----


def _dense(x: _Array) -> tuple[int, ...]:
    return c_strides(x.shape, x.dtype.itemsize)


def _every_other(x: _Array) -> _Array | None:
    """Every other element of an array of twice the length."""
    if not x.ndim or not x.size:
        return None
    return laid_out(x, [2 * s for s in _dense(x)])


def _outer_gaps(x: _Array) -> _Array | None:
    """Rows of a wider array: dense inside, with gaps between."""
    if x.ndim < 2 or not x.size:
        return None
    wide = (*x.shape[:-1], 2 * x.shape[-1])
    return laid_out(x, c_strides(wide, x.dtype.itemsize))


def _reversed(x: _Array) -> _Array | None:
    if not x.ndim or x.size < 2:
        return None
    return laid_out(x, [-s for s in _dense(x)])


def _fortran(x: _Array) -> _Array | None:
    out = np.asfortranarray(x)
    return None if out.flags.c_contiguous else out


def _transposed(x: _Array) -> _Array | None:
    """The last axis first in memory; differs from Fortran order from three axes on."""
    if x.ndim < 3:
        return None
    out = np.moveaxis(np.moveaxis(x, -1, 0).copy(), 0, -1)
    return None if out.flags.c_contiguous or out.flags.f_contiguous else out


def _read_only(x: _Array) -> _Array | None:
    out = x.copy()
    out.flags.writeable = False
    return out


def _unaligned(x: _Array) -> _Array | None:
    if x.dtype.alignment == 1 or x.dtype.hasobject or not x.size:
        return None
    return laid_out(x, _dense(x), 1)


def _broadcast(x: _Array) -> _Array | None:
    """One row for all, of the same shape: the values are others."""
    axis = next((i for i, n in enumerate(x.shape) if n > 1), None)
    if axis is None or not x.size:
        return None
    strides = [0 if i == axis else s for i, s in enumerate(_dense(x))]
    out = laid_out(x, strides)
    out.flags.writeable = False
    return out


# Note -> (layout, whether an array that is written can have it). Values are those of
# the sample, but for the last.
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


def layouts(op: Any, sample: Sample) -> Iterator[Sample]:
    """The arrays of a sample in other layouts: each by itself, then all at once.

    Parameters
    ----------
    op : Operator
    sample : Sample

    Yields
    ------
    Sample
        With equal values where the note says nothing else: strides, order, flags.
        Then with arrays of other shapes that the operator accepts: ones without axes,
        and empty ones.
    """
    arrays = arrays_in(op, sample)
    for note, (vary, fits_written) in LAYOUTS.items():
        yield from _varied(op, sample, arrays, note, vary, fits_written=fits_written)
    yield from _other_shapes(op, sample, arrays)


def _varied(
    op: Any,
    sample: Sample,
    arrays: Sequence[tuple[str, _Array, bool]],
    note: str,
    vary: _Vary,
    *,
    fits_written: bool,
) -> Iterator[Sample]:
    new: dict[str, _Array] = {}
    for place, x, is_written in arrays:
        made = None if is_written and not fits_written else vary(x)
        if made is not None:
            new[place] = made
            yield replaced(op, sample, {place: made}, f"{note} of '{place}'")
    if len(new) > 1:
        yield replaced(op, sample, new, f"{note} of all arrays")


# ---- arrays without axes and without elements ----


def _other_shapes(
    op: Any, sample: Sample, arrays: Sequence[tuple[str, _Array, bool]]
) -> Iterator[Sample]:
    judge = _Judge(op, sample)
    yield from (s for s in _shape_trials(op, sample, arrays) if judge.takes(s))


def _shape_trials(
    op: Any, sample: Sample, arrays: Sequence[tuple[str, _Array, bool]]
) -> Iterator[Sample]:
    scalars = {place: _without_axes(x) for place, x, _ in arrays if x.ndim}
    if scalars:
        yield replaced(op, sample, scalars, "no axes in all arrays")
    singles = list(scalars)[0 if is_symmetric(op) else 1 :]
    for place in singles if len(arrays) > 1 else ():
        yield replaced(op, sample, {place: scalars[place]}, f"no axes in '{place}'")
    for length in dict.fromkeys(n for _, x, _ in arrays for n in x.shape if n):
        new = {p: _emptied(x, length) for p, x, _ in arrays if length in x.shape}
        yield replaced(op, sample, new, f"no length for axes of length {length}")
    for place, x, _ in arrays:
        for axis in range(x.ndim):
            shape = [*x.shape[:axis], 0, *x.shape[axis + 1 :]]
            note = f"no length for axis {axis} of '{place}'"
            yield replaced(op, sample, {place: np.zeros(shape, x.dtype)}, note)


def _without_axes(x: _Array) -> _Array:
    return x.reshape(-1)[:1].reshape(()).copy() if x.size else np.zeros((), x.dtype)


def _emptied(x: _Array, length: int) -> _Array:
    return np.zeros([0 if n == length else n for n in x.shape], x.dtype)


class _Judge:
    """Tells whether the kernels of an operator take variations of a sample.

    The fake kernel says what the operator is meant for, if it takes the sample itself.
    """

    def __init__(self, op: Any, sample: Sample) -> None:
        self.op = op
        self.oracle = Oracle(op, _BUDGET)
        if not self.oracle.fake_takes(self._values(sample)):
            self.oracle.fake = None

    def _values(self, sample: Sample) -> Sequence[Any]:
        own = fresh(sample)
        found: Sequence[Any] = self.op.bind(*own.args, **own.kwargs)
        return found

    def takes(self, sample: Sample) -> bool:
        """Whether the kernels take it without a complaint."""
        try:
            values = self._values(sample)
        except CustomOpError:  # shapes and dtypes that annotations rule out
            return False
        if not self.oracle.fake_takes(values):
            return False
        # The fake kernel has had fakes of them: the kernel is the first to write.
        with strict_numbers():
            return self.oracle.outcome_of(values) == CLEAN

    def agrees(self, sample: Sample) -> bool:
        """Whether the fake kernel, where there is one, tells the dtypes it gives."""
        values = self._values(sample)
        told = self.oracle.told(values)
        if told is None:
            return True
        with strict_numbers():
            return told == self.oracle.given(values)


# ---- dtypes ----

_FLOATS = ("f4", "f2", "g", "f8")
_COMPLEX = ("c8", "c16")
_WHOLE = ("i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1")
_NAMES = (*_FLOATS, *_COMPLEX, *_WHOLE, "?")
# For one array beside others, where all together have been in all dtypes.
_ALONE = ("f4", "f2", "c16", "i8", "i4", "u1", "?")


def dtypes(
    op: Any, sample: Sample, left_out: list[Sample] | None = None
) -> Iterator[Sample]:
    """The arrays of a sample in other dtypes: all at once, then each by itself.

    Masks and indices stay what they are. Dtypes of another kind of number, and of one
    array alone where others have more to say, are left out where the fake kernel tells
    another result: the operator is not meant for them.

    Parameters
    ----------
    op : Operator
    sample : Sample
    left_out : list, optional
        Gets those that the fake kernel is wrong for.

    Yields
    ------
    Sample
        That the kernels of the operator accept, with values that are the same where
        the dtype has them.
    """
    arrays = [(place, x) for place, x, _ in arrays_in(op, sample)]
    judge = _Judge(op, sample)
    for trial, is_certain in _dtype_trials(op, sample, arrays):
        if not judge.takes(trial):
            continue
        if is_certain or judge.agrees(trial):
            yield trial
        elif left_out is not None:
            left_out.append(trial)


def _dtype_trials(
    op: Any, sample: Sample, arrays: Sequence[tuple[str, _Array]]
) -> Iterator[tuple[Sample, bool]]:
    """Variations, and whether the operator must be right for what it accepts."""
    for dtype in map(np.dtype, _NAMES):
        new = {p: _cast(x, dtype) for p, x in arrays if _is_free(x, dtype)}
        if new:
            is_certain = all(_same_kind(x.dtype, dtype) for p, x in arrays if p in new)
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


def _same_kind(a: np.dtype[Any], b: np.dtype[Any]) -> bool:
    return a.kind == b.kind or {a.kind, b.kind} == {"i", "u"}


def _is_free(x: _Array, dtype: np.dtype[Any]) -> bool:
    """Whether the array may be cast: indices and masks stay what they are."""
    if x.dtype == dtype:
        return False
    return x.dtype.kind in "fc" or (x.dtype.kind in "iu" and dtype.kind in "iu")


def _cast(x: _Array, dtype: np.dtype[Any]) -> _Array:
    if dtype.kind == "c":
        return x.astype(dtype)
    real = np.real(x)
    if dtype.kind == "u":
        real = np.abs(real)
    if dtype.kind in "iu":  # away from zero: no small number becomes one
        real = np.where(real < 0, np.floor(real), np.ceil(real))
    return real > 0 if dtype.kind == "b" else real.astype(dtype)


def _swapped(x: _Array) -> _Array:
    return x.astype(x.dtype.newbyteorder("S"))
