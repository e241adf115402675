"""Memory of arrays: who shares it, and what operators have written."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Iterator, Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, Final

import numpy as np

from customop.arrays.kinds import (
    has_memory,
    is_array,
    is_traced,
    kind_of,
)
from customop.arrays.nested import children, flat, map_nested, steps
from customop.core.boxes import sealed
from customop.later import later
from customop.schema.parameters import Alias
from customop.schema.schema import Schema

__all__ = [
    "WRITE_ERRORS",
    "checksum",
    "copied",
    "equal",
    "last_write",
    "moments",
    "note_writes",
    "owner",
    "readonly",
    "share_memory",
    "shared_results",
    "with_copies",
    "writes",
    "written_of",
]

zlib: ModuleType = later(import_module, "zlib")


def readonly(value: Any) -> Any:
    """A value that cannot be written: a view of an array of NumPy, a sealed tracer."""
    if is_traced(value):
        return sealed(value)
    if not isinstance(value, np.ndarray) or not value.flags.writeable:
        return value
    view = value.view()
    view.flags.writeable = False
    return view


def copied(value: Any) -> Any:
    """A copy of an array of NumPy, in its order; other values as they are."""
    return value.copy("K") if isinstance(value, np.ndarray) else value


def equal(a: Any, b: Any) -> bool:
    """Whether arrays of NumPy are equal; other values always are."""
    if not isinstance(a, np.ndarray):
        return True
    return bool(
        np.array_equal(a.view(np.ndarray), b.view(np.ndarray)) or _same_bytes(a, b)
    )


def _same_bytes(a: Any, b: Any) -> bool:
    """Whether arrays have the same bytes, so that nan equals nan."""
    return bool(np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes())


def checksum(value: Any) -> int | None:
    """A checksum of the bytes of an array; None for a value that is not compared.

    These are values without memory that NumPy or a copy on the host can read, and arrays
    of objects, which may change without a change of their bytes.
    """
    if not isinstance(value, np.ndarray):
        kind = kind_of[type(value)]
        if kind is None or not kind.has_memory or kind.to_numpy is None:
            return None
        value = kind.to_numpy(value)
    if value.dtype.hasobject or not value.size:
        return None
    return int(zlib.crc32(np.ascontiguousarray(value).view(np.uint8).data))


# ---- arrays that share memory ----


def shared_results(
    schema: Schema, args: Sequence[Any], values: Sequence[Any]
) -> Iterator[tuple[int, str, str]]:
    """Results that share memory although the schema does not say so.

    The number of each among the arrays of all results, what messages call it, and
    what it shares memory with.
    """
    named = [
        (f"argument '{p.name}'", p.alias, array)
        for p, value in zip(schema.parameters, args, strict=True)
        for _, array in _arrays_in(p.name, value)
    ]
    seen = list(named)
    for i, (r, value) in enumerate(zip(schema.returns, values, strict=True)):
        # For an array that is passed twice, either parameter may name the alias.
        free = [a for _, alias, a in named if _is_same(r.alias, alias)]
        for name, array in _arrays_in(f"output {i}", value):
            for other, alias, earlier in seen:
                if _is_same(r.alias, alias) or not share_memory(array, earlier):
                    continue
                if not any(share_memory(earlier, a) for a in free):
                    yield len(seen) - len(named), name, other
                    break
            seen.append((name, r.alias, array))


def _is_same(first: Alias | None, second: Alias | None) -> bool:
    return first is not None and second is not None and first.name == second.name


def with_copies(out: Any, shared: Sequence[int]) -> Any:
    """A result in which the arrays with these numbers are copied."""
    numbers = itertools.count()

    def own(value: Any) -> Any:
        return value.copy() if next(numbers) in shared else value

    return map_nested(out, lambda v: own(v) if has_memory(v) else v)


def _arrays_in(name: str, value: Any) -> list[tuple[str, Any]]:
    """Arrays of a value, each with its name among lists and config objects."""
    found = children(value)
    if found is not None:
        items = zip(steps(value), found, strict=True)
        return [pair for i, v in items for pair in _arrays_in(f"{name}, item {i}", v)]
    return [(name, value)] if has_memory(value) else []


def share_memory(a: Any, b: Any) -> bool:
    """Whether two arrays share memory; arrays without elements never do.

    Disjoint views of one buffer count as sharing, as they do for torch: a write to
    the buffer reaches both.
    """
    if 0 in a.shape or 0 in b.shape:
        return False
    if owner(a) is owner(b):
        return True
    return (
        isinstance(a, np.ndarray)
        and isinstance(b, np.ndarray)
        and bool(np.may_share_memory(a, b))
    )


def owner(array: Any) -> Any:
    """The array that owns the memory of a view, for NumPy and CuPy."""
    base = getattr(array, "base", None)
    while base is not None and is_array(base):
        array, base = base, getattr(base, "base", None)
    return array


# ---- which arrays operators have written, and when ----


def written_of(schema: Schema, args: Sequence[Any]) -> list[Any]:
    """The arguments of a call that the schema marks as written."""
    pairs = zip(schema.parameters, args, strict=True)
    return [value for p, value in pairs if p.is_written]


# Numbers nodes of reverse mode and writes: the higher number came later.
moments: itertools.count[int] = itertools.count(1)

# Memory written by an operator -> (weak reference, moment of the last write). Most
# readers only ask whether it is empty.
writes: dict[int, tuple[weakref.ref[Any], int]] = {}


def note_writes(values: Sequence[Any]) -> None:
    """Note that an operator has written these arrays."""
    for leaf in flat(list(values)):
        if has_memory(leaf):
            _note(owner(leaf))


def _note(array: Any) -> None:
    key = id(array)
    reference = weakref.ref(array, lambda _: writes.pop(key, None))
    writes[key] = (reference, next(moments))


def last_write(array: Any) -> int:
    """Moment when an operator last wrote the memory of an array; 0 for never."""
    if not has_memory(array):
        return 0
    known = writes.get(id(owner(array)))
    return known[1] if known is not None else 0


# Messages of NumPy itself when it is about to write a read-only array (NumPy 2.4).
WRITE_ERRORS: Final = (
    "assignment destination is read-only",
    "output array is read-only",
    "sort array is read-only",
    "partition array is read-only",
    "array is read-only",
    "underlying array is read-only",
    "array to be byte-swapped is read-only",
    "operand array with iterator write flag set is read-only",
    "WRITEBACKIFCOPY base is read-only",
    "put: output array is read-only",
    "putmask: output array is read-only",
    "cannot modify read-only memory",
)
