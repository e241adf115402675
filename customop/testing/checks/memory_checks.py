"""Check that kernels keep to the memory of their arrays, in pages that fault."""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, TypeAlias

import numpy as np

from customop.arrays.nested import flat
from customop.core.samples import Sample
from customop.testing.checks.session import Session, same_runs
from customop.testing.faults import Fault
from customop.testing.inputs.sample_values import (
    Array,
    map_values,
)
from customop.testing.inputs.templates import call_of
from customop.testing.quiet import about_to_run

# The bytes around an array. As a float they are nan, as an integer -1.
_POISON: Final = 0xFF
_PAGE: Final = mmap.PAGESIZE
# The protections of pages, as `mprotect` knows them.
_NONE, _READ = 0, 1
# How many elements the arrays have, at most: each call takes new pages for them.
_MOST_BYTES: Final = 1 << 22

_KEEP = (
    "read and write only the elements of the arrays: compare each index with the length"
)
_PAST_THE_END = "right before a page that cannot be read"
_BEFORE_THE_START = "right after a page that cannot be read"
_LOCKED = "in memory that cannot be written"
_POISONED = "8 bytes after a multiple of 16, among bytes of nan"
# Where arrays lie -> what to do if the kernel crashes there.
REMEDIES: Final = {
    _PAST_THE_END: f"{_KEEP}; it goes past the end, perhaps with a load of several",
    _BEFORE_THE_START: f"{_KEEP}; it goes before the start",
    _LOCKED: "write only what mutates_args names, not even the same values: other"
    " threads may read the array, and it may lie in a file",
    _POISONED: "load several numbers with instructions that take any address which fits"
    " their dtype, such as _mm_loadu_pd",
}

# Makes an array with the same values in a memory of its own, and returns the memory.
_Place: TypeAlias = Callable[[Array], tuple[Array, Any]]


def check_surroundings(session: Session, sample: Sample) -> str:
    """Check that a call neither reads nor writes what lies around its arrays.

    A read past the end usually goes unseen, since other arrays lie there. Here a page
    lies there that ends the process.
    """
    values = session.values(sample)
    leaves: list[Any] = []
    map_values(leaves.append, values)
    arrays = [x for x in leaves if _can_be_placed(x)]
    if not arrays or not session.is_steady(sample) or not session.accepts(sample):
        return ""
    for place, note in ((_among_poison, _POISONED), *_paged()):
        _check_placed(session, sample, place, note)
    written = [p.is_written for p in session.op.schema.parameters]
    if _protect() is not None and not all(written):
        values = session.values(sample)
        held: list[Any] = []
        for i, is_written in enumerate(written):
            if not is_written:
                values[i] = map_values(_locked(held), [values[i]])[0]
        _announce(session, values, _LOCKED)
        session.call(values, is_announced=True)
    return ""


def check_end(session: Session, sample: Sample) -> None:
    """Check that a call does not read past the end of its arrays."""
    if _protect() is not None and session.accepts(sample) and session.is_steady(sample):
        _check_placed(session, sample, _at_the_end, _PAST_THE_END)


def _can_be_placed(x: Any) -> bool:
    return (
        type(x) is np.ndarray
        and 0 < x.nbytes <= _MOST_BYTES
        and x.flags.c_contiguous
        and x.flags.aligned
        and not x.dtype.hasobject
    )


def _announce(session: Session, values: Sequence[Any], note: str) -> None:
    """Announce a call; the note says where its arrays lie."""

    def sample() -> Sample:
        made = call_of(session.op.schema, values)
        return Sample(made.args, made.kwargs, note)

    about_to_run(sample)


def _check_placed(session: Session, sample: Sample, place: _Place, note: str) -> None:
    held: list[tuple[Array, Any, bytes]] = []
    is_changed = place is _at_the_end and _takes_others(session, sample)

    def placed(leaf: Any) -> Any:
        if not _can_be_placed(leaf):
            return leaf
        out, memory = place(_without_zeros(leaf) if is_changed else leaf)
        held.append((out, memory, _around(out, memory)))
        return out

    op = session.op
    values = session.values(sample)
    counts, new = [], []
    for value in values:
        known = len(held)
        new.append(map_values(placed, [value])[0])
        counts.append(len(held) - known)
    _announce(session, new, note)
    found = session.call(new, is_announced=True)
    names = [
        p.name
        for p, n in zip(op.schema.parameters, counts, strict=True)
        for _ in range(n)
    ]
    for name, (out, memory, before) in zip(names, held, strict=True):
        if _around(out, memory) != before:
            session.has_overwritten = True
            raise Fault(
                f"writes outside of argument '{name}'",
                "the bytes around its array have changed",
                do=f"{_KEEP}; and never write to {name}.base",
                parameter=name,
            )
    if is_changed:
        return
    expected = session.expected(sample)
    if not same_runs(found, expected):
        session.compare(
            found,
            expected,
            f"between arrays in their own memory and arrays {note}",
            do=_KEEP,
        )


def _takes_others(session: Session, sample: Sample) -> bool:
    """Return whether there are zeros in arrays of bytes, and a call without them runs."""
    values = session.values(sample)
    others = map_values(_without_zeros, values)
    if all(a is b for a, b in zip(flat(values), flat(others), strict=True)):
        return False
    try:
        session.call(others)
    except Exception:  # noqa: BLE001  # values that it refuses
        return False
    return True


def _without_zeros(leaf: Any) -> Any:
    """Return an array of bytes without zeros: kernels may look for one as the end."""
    if not _can_be_placed(leaf) or leaf.dtype.itemsize != 1 or leaf.all():
        return leaf
    out = leaf.copy()
    out[out == 0] = 1
    return out


# ---- where an array lies ----


def _around(out: Array, memory: Any) -> bytes:
    """Return the bytes of a memory that are not those of its array, near its ends."""
    whole = np.frombuffer(memory, np.uint8)
    start = out.ctypes.data - whole.ctypes.data
    end = start + out.nbytes
    before, after = whole[max(0, start - _NEAR) : start], whole[end : end + _NEAR]
    return before.tobytes() + after.tobytes()


# How many bytes before and after an array are looked at.
_NEAR = 256


def _among_poison(x: Array) -> tuple[Array, Any]:
    """Lay an array out 8 bytes after a multiple of 16, among bytes of nan."""
    memory = bytearray([_POISON]) * (x.nbytes + 2 * _NEAR + 64)
    whole = np.frombuffer(memory, np.uint8)
    first = _NEAR + -(whole.ctypes.data + _NEAR) % 64
    step = max(x.dtype.alignment, min(8, x.dtype.itemsize))
    start = first + (step if step < 16 else 0)
    return _laid(x, whole, start), memory


def _laid(x: Array, whole: Array, start: int) -> Array:
    out = np.ndarray(x.shape, x.dtype, whole, start)
    out[...] = x
    out.flags.writeable = x.flags.writeable
    return out


def _paged() -> tuple[tuple[_Place, str], ...]:
    """Return the places beside pages that fault, if this system has them."""
    if _protect() is None:
        return ()
    return (
        (_at_the_end, _PAST_THE_END),
        (_at_the_start, _BEFORE_THE_START),
    )


def _at_the_end(x: Array) -> tuple[Array, Any]:
    return _in_pages(x, at_end=True)


def _at_the_start(x: Array) -> tuple[Array, Any]:
    return _in_pages(x, at_end=False)


def _in_pages(x: Array, *, at_end: bool) -> tuple[Array, Any]:
    """Lay an array out at the end, or start, of its pages; the next one faults."""
    size = -(-x.nbytes // _PAGE) * _PAGE
    pages = mmap.mmap(-1, size + 2 * _PAGE)
    whole = np.frombuffer(pages, np.uint8)
    inside = whole[_PAGE : _PAGE + size]
    inside[...] = _POISON
    out = _laid(x, inside, size - x.nbytes if at_end else 0)
    _set(whole.ctypes.data, _PAGE, _NONE)
    _set(whole.ctypes.data + _PAGE + size, _PAGE, _NONE)
    return out, inside


def _locked(held: list[Any]) -> Callable[[Any], Any]:
    """Return a function that copies arrays to pages that cannot be written."""

    def locked(x: Any) -> Any:
        if not _can_be_placed(x):
            return x
        size = -(-x.nbytes // _PAGE) * _PAGE
        pages = mmap.mmap(-1, size)
        whole = np.frombuffer(pages, np.uint8)
        out = _laid(x, whole, 0)
        _set(whole.ctypes.data, size, _READ)
        held.append(pages)
        return out

    return locked


def _set(address: int, size: int, protection: int) -> None:
    """Set what a process may do with pages."""
    protect = _protect()
    assert protect is not None
    if protect(ctypes.c_void_p(address), ctypes.c_size_t(size), protection):
        raise OSError(ctypes.get_errno(), "mprotect failed")


@cache
def _protect() -> Any:
    """Return the system's `mprotect`, or None on a system that has none."""
    if sys.platform == "win32":
        return None
    return getattr(ctypes.CDLL(None, use_errno=True), "mprotect", None)
