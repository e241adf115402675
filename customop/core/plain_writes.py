"""Writes of plain code to arrays from outside of a function, seen while it runs.

A write of the bytes that an array holds already leaves no trace in it. So the functions run
copies of their code in which each store tells first what it stores into.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from types import CodeType, FunctionType
from typing import Any, Self

import numpy as np

from customop.arrays.kinds import is_traced
from customop.arrays.nested import flat
from customop.arrays.trampolines import Hook, noting, without_notes
from customop.forks import free_after_fork


class WriteWatch:
    """Notes which arrays the code of functions writes while it is open, in this thread.

    Functions written in C, and code of other packages, are not seen.

    Parameters
    ----------
    functions : iterable of FunctionType
    note : callable
        ``note(array, key)`` comes before ``array[key] = value``; the key is None where
        what an array gets depends on what it held.
    """

    def __init__(
        self,
        functions: Iterable[FunctionType],
        note: Callable[[np.ndarray, Any], None],
    ) -> None:
        self.note: Callable[[np.ndarray, Any], None] = note
        self.thread: int = threading.get_ident()
        pairs = [(fn, _copy_of(without_notes(fn.__code__))) for fn in functions]
        self._pairs = [(fn, code) for fn, code in pairs if code is not None]

    def __enter__(self) -> Self:
        if self._pairs:
            with _lock:
                for fn, code in self._pairs:
                    _users[id(fn)] = _users.get(id(fn), 0) + 1
                    fn.__code__ = code
            _open.append(self)
        return self

    def __exit__(self, *exc: object) -> None:
        if not self._pairs:
            return
        _open.remove(self)
        with _lock:
            for fn, _ in self._pairs:
                count = _users.pop(id(fn), 1) - 1
                if count:
                    _users[id(fn)] = count
                else:
                    fn.__code__ = without_notes(fn.__code__)


def _note(stored: tuple[Any, ...]) -> None:
    """Tell the watches of this thread what a step stores into.

    With traced values it is an operator that writes, if they can be stored at all.
    """
    written, key, *values = stored
    thread = threading.get_ident()
    for array in written if type(written) is tuple else (written,):
        if isinstance(array, np.ndarray) and not any(map(is_traced, flat(values))):
            for watch in [*_open]:
                if watch.thread == thread:
                    watch.note(array, key)


def _copy_of(code: CodeType) -> CodeType | None:
    """Return a copy of code that tells what it stores into; None if it stores nothing."""
    known = _copies.get(id(code))
    if known is None:
        if len(_copies) > _MOST_CODES:
            _copies.clear()
        made = noting(code, _HOOK)
        known = _copies[id(code)] = code, None if made is code else made
    return known[1]


_HOOK = Hook(_note)
_open: list[WriteWatch] = []
# Identity of a function -> how many watches let it run the copy.
_users: dict[int, int] = {}
_lock = free_after_fork(threading.Lock())
# Identity of code -> itself, which stays alive, and its copy.
_copies: dict[int, tuple[CodeType, CodeType | None]] = {}
_MOST_CODES = 4096
