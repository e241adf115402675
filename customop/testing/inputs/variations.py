"""Variations of a sample: other layouts, other dtypes, and special values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from customop.arrays.array import c_strides
from customop.core.operator import Operator
from customop.core.samples import Sample
from customop.errors import CustomOpError
from customop.testing.inputs.input_patterns import is_symmetric
from customop.testing.inputs.sample_values import (
    Array,
    Place,
    arrays_in,
    laid_out,
    replaced,
)
from customop.testing.inputs.search import CLEAN, NOISY, Oracle
from customop.testing.quiet import strict_numbers

# ---- layouts: the same values in other places of memory ----


def layouts(
    op: Operator[..., Any],
    sample: Sample,
    oracle: Oracle | None = None,
    *,
    keeps_shapes: bool = False,
) -> Iterator[Sample]:
    """Yield the sample with arrays in other layouts: each alone, then all at once.

    Parameters
    ----------
    op : Operator
    sample : Sample
    oracle : Oracle, optional
        An oracle made by `Oracle.around` this sample.
    keeps_shapes : bool
        Whether to keep the numbers of axes, and which lengths are equal.

    Yields
    ------
    Sample
        First with other strides, order and flags. Then with other shapes that the
        operator accepts: without axes, and empty.
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
    yield from _passed_twice(op, sample, arrays)
    oracle = oracle or Oracle.around(op, sample)
    others = _emptied_together(op, sample, arrays)
    others = chain(others, _emptied_dtypes(op, sample, arrays, oracle))
    if not keeps_shapes:
        others = chain(_scalars(op, sample, arrays), others)
        others = chain(others, _emptied_alone(op, sample, arrays))
    yield from (s for s in others if oracle.takes(s))


def _passed_twice(
    op: Operator[..., Any], sample: Sample, arrays: Sequence[Place]
) -> Iterator[Sample]:
    """Yield the sample with one array as two arguments, if they look alike."""
    read = [(p, x) for p, x, is_written in arrays if not is_written]
    for i, (place, x) in enumerate(read):
        for other, y in read[i + 1 :]:
            if x.shape == y.shape and x.dtype == y.dtype:
                note = f"one array as '{place}' and '{other}'"
                yield replaced(op, sample, {other: x}, note)


# Makes a variation of an array, or None if it cannot have one.
_Vary: TypeAlias = Callable[[Array], Array | None]


def _dense(x: Array) -> tuple[int, ...]:
    return c_strides(x.shape, x.dtype.itemsize)


def _every_other(x: Array) -> Array | None:
    """Lay an array out as every other element of a longer one."""
    if not x.ndim or not x.size:
        return None
    return laid_out(x, [2 * s for s in _dense(x)])


def _outer_gaps(x: Array) -> Array | None:
    """Lay an array out as rows of a wider one: dense rows with gaps between them."""
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
    """Put the last axis first in memory. With two axes that is Fortran order."""
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


def _field(x: Array) -> Array | None:
    """Lay an array out as a field of records without padding."""
    if x.dtype.alignment == 1 or x.dtype.hasobject or not x.size or not x.ndim:
        return None
    size = x.dtype.itemsize
    return laid_out(x, [stride // size * (size + 1) for stride in _dense(x)])


def _broadcast(x: Array) -> Array | None:
    """Repeat one row along the first long axis. The shape stays; the values change."""
    axis = next((i for i, n in enumerate(x.shape) if n > 1), None)
    if axis is None or not x.size:
        return None
    strides = [0 if i == axis else s for i, s in enumerate(_dense(x))]
    out = laid_out(x, strides)
    out.flags.writeable = False
    return out


# Note -> (layout, whether written arrays can have it). All but the last keep values.
LAYOUTS: dict[str, tuple[_Vary, bool]] = {
    "non-contiguous": (_every_other, True),
    "rows with gaps between": (_outer_gaps, True),
    "negative strides": (_reversed, True),
    "Fortran order": (_fortran, True),
    "last axis first in memory": (_transposed, True),
    "unaligned": (_unaligned, True),
    "a field of packed records": (_field, True),
    "read-only": (_read_only, False),
    "broadcast": (_broadcast, False),
}


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


def _emptied_dtypes(
    op: Operator[..., Any], sample: Sample, arrays: Sequence[Place], oracle: Oracle
) -> Iterator[Sample]:
    """Yield empty arrays with other dtypes: NumPy makes floats of empty lists."""
    length = next((n for _, x, _ in arrays for n in x.shape[::-1] if n), None)
    if length is None:
        return
    for dtype in _EMPTY:
        new = {p: _cast(x, dtype) for p, x, _ in arrays if _is_free(x, dtype)}
        whole = replaced(op, sample, new)
        if new and oracle.takes_as_announced(whole):
            empty = {p: _emptied(x, length) for p, x in new.items()}
            note = f"no length for axes of length {length}, of {_NAMES[dtype]}"
            yield replaced(op, sample, empty, note)


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


def dtypes(
    op: Operator[..., Any], sample: Sample, oracle: Oracle | None = None
) -> Iterator[Sample]:
    """Yield the sample with arrays in other dtypes: all at once, then each alone.

    Masks and indices keep their dtypes. If a single array changes, the fake kernel must
    agree, because the operator may not be meant for such a mix.

    Parameters
    ----------
    op : Operator
    sample : Sample
    oracle : Oracle, optional
        An oracle that keeps the results of the kernels, if the caller needs them.

    Yields
    ------
    Sample
        A sample that the kernel accepts. The values are the same as far as the dtype
        can represent them.
    """
    arrays = [(place, x) for place, x, _ in arrays_in(op, sample)]
    asked = Oracle.around(op, sample) if oracle is None else oracle
    with strict_numbers():  # entered once, which takes as long as three calls
        trials = [
            (trial, replaced(op, sample, trial.new, trial.note))
            for trial in _dtype_trials(arrays)
        ]
        found = [varied for trial, varied in trials if _is_meant(asked, varied, trial)]
    yield from found


class _Variation(NamedTuple):
    """Arrays with other dtypes, by place.

    Attributes
    ----------
    new : dict
    note : str
    is_certain : bool
        Whether the operator must be right for them whenever its kernel accepts them.
    is_whole : bool
        Whether all arrays have changed, so that the fake kernel must handle them.
    """

    new: dict[str, Array]
    note: str
    is_certain: bool
    is_whole: bool = True


_FLOATS = ("f4", "f2", "g", "f8")
_COMPLEX = ("c8", "c16")
_WHOLE = ("i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1")
# Making a name takes as long as a call.
_NAMES = {np.dtype(n): np.dtype(n).name for n in (*_FLOATS, *_COMPLEX, *_WHOLE, "?")}
# Dtypes for one array while the others stay.
_ALONE = [*map(np.dtype, ("f4", "f2", "c16", "i8", "i4", "u1", "?"))]
# Dtypes for empty arrays.
_EMPTY = [*map(np.dtype, ("i8", "f4"))]
# Dtypes with numbers so large that their sums and products wrap around, or that do not
# fit into integers of 32 bits.
_LARGE = [*map(np.dtype, ("i1", "u1", "i8"))]
_ABOVE_32_BITS = 1 << 31


def has_large_numbers(op: Operator[..., Any], sample: Sample) -> bool:
    """Return whether integers of a sample are about as large as fit into 32 bits."""
    arrays = [x for _, x, _ in arrays_in(op, sample)]
    return any(
        x.dtype.kind in "iu" and bool(np.any(x >= _ABOVE_32_BITS // 2)) for x in arrays
    )


def _is_meant(oracle: Oracle, varied: Sample, trial: _Variation) -> bool:
    """Return whether the operator accepts a variation and must be right for it."""
    outcome, out = oracle.run(varied)
    if outcome > (NOISY if trial.is_certain else CLEAN):
        return False
    if trial.is_certain or oracle.fake is None:
        return True
    if not oracle.fits_sample(varied):
        return False
    if trial.is_whole:
        return True
    values = oracle.op.bind(*varied.args, **varied.kwargs)
    return oracle.announces(values, out) is not False


def _dtype_trials(arrays: Sequence[tuple[str, Array]]) -> Iterator[_Variation]:
    of_kind: dict[tuple[str, str], Array] = {}
    for dtype in _NAMES:
        yield from _whole_trials(arrays, dtype, of_kind)
    yield from _swapped_trial(arrays, "all arrays")
    if len(arrays) > 1:
        for place, x in arrays:
            for dtype in _ALONE:
                if _is_free(x, dtype):
                    note = f"{_NAMES[dtype]} in '{place}'"
                    yield _Variation({place: _cast(x, dtype)}, note, False, False)
            yield from _swapped_trial([(place, x)], f"'{place}'")


def _whole_trials(
    arrays: Sequence[tuple[str, Array]],
    dtype: np.dtype[Any],
    of_kind: dict[tuple[str, str], Array],
) -> Iterator[_Variation]:
    """Yield all arrays in a dtype; one-byte integers also with large numbers.

    `of_kind` caches the numbers of each array for each kind of dtype.
    """
    new, is_certain = {}, True
    for place, x in arrays:
        if _is_free(x, dtype):
            key = place, dtype.kind
            if key not in of_kind:
                of_kind[key] = _of_kind(x, dtype.kind)
            new[place] = of_kind[key].astype(dtype)
            is_certain = is_certain and _same_numbers(x.dtype, dtype)
    if not new:
        return
    note = f"{_NAMES[dtype]} in all arrays"
    yield _Variation(new, note, is_certain)
    if dtype in _LARGE:
        large = {p: _enlarged(x) for p, x in new.items()}
        yield _Variation(large, f"large {note}", False)


def _swapped_trial(
    arrays: Sequence[tuple[str, Array]], where: str
) -> Iterator[_Variation]:
    new = {p: _swapped(x) for p, x in arrays if x.dtype.itemsize > 1}
    if new:
        yield _Variation(new, f"other byte order in {where}", True)


def byte_order_note(op: Operator[..., Any], sample: Sample) -> str:
    """Return the note of a sample, some of whose arrays have swapped bytes."""
    arrays = [(p, x.dtype) for p, x, _ in arrays_in(op, sample) if x.dtype.itemsize > 1]
    swapped = [f"'{p}'" for p, dtype in arrays if not dtype.isnative]
    is_all = len(swapped) == len(arrays)
    where = "all arrays" if is_all else " and ".join(swapped)
    return f"other byte order in {where}"


def _same_numbers(a: np.dtype[Any], b: np.dtype[Any]) -> bool:
    return a.kind == b.kind or {a.kind, b.kind} == {"i", "u"}


def _is_free(x: Array, dtype: np.dtype[Any]) -> bool:
    """Return whether an array may be cast; indices and masks may not."""
    if x.dtype == dtype:
        return False
    return x.dtype.kind in "fc" or (x.dtype.kind in "iu" and dtype.kind in "iu")


def _cast(x: Array, dtype: np.dtype[Any]) -> Array:
    return _of_kind(x, dtype.kind).astype(dtype)


def _of_kind(x: Array, kind: str) -> Array:
    """Return the numbers of an array, ready to be cast to dtypes of this kind."""
    if kind == "c":
        return complex_of(x)
    real = np.real(x)
    if kind == "u":
        real = np.abs(real)
    if kind in "iu":  # rounds away from zero, so that small numbers do not become zero
        real = np.where(real < 0, np.floor(real), np.ceil(real))
    return real > 0 if kind == "b" else real


def complex_of(x: Array) -> Array:
    """Return an array as complex numbers with imaginary parts other than 0."""
    if x.dtype.kind == "c":
        return x
    parts = x.reshape(-1)[::-1].reshape(x.shape)
    out: Array = x + 0.5j * np.where(parts == 0, 1, parts)
    return out


def _enlarged(x: Array) -> Array:
    """Scale integers of one byte up, as far as they fit; move long ones up."""
    if x.dtype.itemsize > 1:
        moved: Array = x + x.dtype.type(_ABOVE_32_BITS)
        return moved
    most = max(1, int(np.abs(x.astype(int)).max(initial=0)))
    out: Array = x * x.dtype.type(120 // min(most, 120))
    return out


def _swapped(x: Array) -> Array:
    return x.astype(x.dtype.newbyteorder("S"))


# ---- special values for the arrays of a sample ----
# Zeros, nan, large, equal and complex numbers.


def specials(
    op: Operator[..., Any], sample: Sample, table: dict[str, _Make]
) -> Iterator[Sample]:
    """Yield the sample with special values in all arrays that can have them.

    Parameters
    ----------
    op : Operator
    sample : Sample
    table : dict
        `SMOOTH` or `SPECIAL`.

    Yields
    ------
    Sample
        A sample with the same shapes that fits the annotations. The kernel may refuse
        it.
    """
    arrays = [(p, x) for p, x, _ in arrays_in(op, sample)]
    for note, make in table.items():
        made = {p: make(x) for p, x in arrays}
        new = {p: x for p, x in made.items() if x is not None}
        if op.schema.has_shapes:
            new = {p: x for p, x in new.items() if _is_declared(op, sample, p, x)}
        if new:
            yield replaced(op, sample, new, f"{note} in all arrays")
        if len(new) > 1 and note in _ALONE_TOO:
            for place, x in new.items():
                yield replaced(op, sample, {place: x}, f"{note} in '{place}'")
    same = _same_numbers_in(op, arrays)
    if same:
        yield replaced(op, sample, same, "the same numbers in arrays of one shape")


# Special values that a kernel may treat rightly in all arrays, and wrongly in one.
_ALONE_TOO = frozenset(("zeros", "nan", "infinity"))


def _same_numbers_in(
    op: Operator[..., Any], arrays: Sequence[tuple[str, Array]]
) -> dict[str, Array]:
    """Return arrays with the numbers of the first one of their shape and dtype."""
    first: dict[Any, Array] = {}
    new = {}
    for place, x in arrays:
        key = x.shape, x.dtype
        if key in first and x.dtype.kind in "fc":
            new[place] = first[key].copy()
        first.setdefault(key, x)
    return new


def _is_declared(op: Operator[..., Any], sample: Sample, place: str, x: Array) -> bool:
    """Return whether the annotations accept an array; some refuse complex numbers."""
    varied = replaced(op, sample, {place: x})
    try:
        op.bind(*varied.args, **varied.kwargs)
    except CustomOpError:
        return False
    return True


# Makes special values for an array, or None if it has none.
_Make: TypeAlias = Callable[[Array], Array | None]

# Added to the size of numbers: exp overflows, and squares are still exact enough.
_FAR = 1000.0


def _of_floats(make: Callable[[Array], Any]) -> _Make:
    def made(x: Array) -> Array | None:
        is_meant = x.dtype.kind in "fc" and x.size > 0
        return np.asarray(make(x), x.dtype) if is_meant else None

    return made


def _with_first(value: float) -> _Make:
    def put(x: Array) -> Array:
        out = x.copy()
        out.reshape(-1)[:1] = value
        return out

    return _of_floats(put)


def _large(x: Array) -> Array:
    out: Array = x + _FAR * np.where(np.real(x) < 0, -1, 1)
    return out


def _equal(x: Array) -> Array | None:
    """Make the first two numbers equal, and the largest: ties and repeated indices."""
    if x.size < 2 or x.dtype.kind not in "iufc":
        return None
    out = x.copy()
    order = out.reshape(-1)
    order[:2] = order.max() if x.dtype.kind != "c" else order[0]
    return out


def _complex(x: Array) -> Array | None:
    is_real = x.dtype.kind == "f" and x.dtype.itemsize <= np.dtype(float).itemsize
    return complex_of(x).astype(np.complex128) if is_real and x.size else None


def _negative(x: Array) -> Array | None:
    return -x if x.dtype.kind == "i" and (x > 0).any() else None


# Note -> special values at which functions still have derivatives.
SMOOTH: dict[str, _Make] = {
    "zeros": _of_floats(np.zeros_like),
    "large numbers": _of_floats(_large),
    "complex numbers": _complex,
    "equal numbers": _equal,
}
# Note -> special values for which every kernel must give the same results.
SPECIAL: dict[str, _Make] = {
    "zeros": SMOOTH["zeros"],
    "large numbers": SMOOTH["large numbers"],
    "equal numbers": _equal,
    "negative integers": _negative,
    "nan": _with_first(np.nan),
    "negative zero": _with_first(-0.0),
    "infinity": _with_first(np.inf),
    "negative infinity": _with_first(-np.inf),
}
