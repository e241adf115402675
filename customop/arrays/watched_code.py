"""Copies of functions that tell what they write, and whether they ask for NumPy's arrays.

A write of the bytes that an array holds already leaves no trace in it. So functions run
copies of their code in which each store tells first what it stores into.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from types import CodeType, FunctionType, MethodType
from typing import Any, Self

import numpy as np

from customop.arrays.kinds import is_fake, is_traced
from customop.arrays.nested import flat
from customop.arrays.refusals import is_installed_at
from customop.arrays.trampolines import Hook, asks_class, noting, without_notes
from customop.errors import warn_caller
from customop.forks import free_after_fork

# ---- writes ----


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


_open: list[WriteWatch] = []
# Identity of a function -> how many watches let it run the copy.
_users: dict[int, int] = {}
_lock = free_after_fork(threading.Lock())

# ---- questions for the class of an array ----


def asking(fn: Any) -> Any:
    """Return a copy of a function that warns where it takes a traced array for another object.

    The function itself if its code does not ask for the class of an array.
    """
    if type(fn) is MethodType:
        inner = asking(fn.__func__)
        return fn if inner is fn.__func__ else MethodType(inner, fn.__self__)
    # An operator has no code, and takes 2 us to say so.
    if type(fn) is not FunctionType or not _look_at(fn.__code__)[1]:
        return fn
    copy = _copy_of(fn.__code__)
    if copy is None:
        return fn
    made = FunctionType(
        copy, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__
    )
    made.__kwdefaults__ = fn.__kwdefaults__
    made.__dict__.update(fn.__dict__)
    made.__qualname__, made.__module__ = fn.__qualname__, fn.__module__
    return made


def may_ask(fn: FunctionType) -> bool:
    """Return whether code of the user asks for the class of an array."""
    return _look_at(fn.__code__)[1]


def _look_at(code: Any) -> tuple[Any, bool]:
    """Return code, and whether it asks; None does not."""
    known = askers.get(id(code))
    if known is None or known[0] is not code:
        if len(askers) > _MOST_CODES:
            askers.clear()
        is_own = isinstance(code, CodeType) and without_notes(code) is code
        asks = is_own and _may_ask(code) and not is_installed_at(code.co_filename)
        known = askers[id(code)] = code, asks
    return known


def _may_ask(code: CodeType) -> bool:
    inner = [c for c in code.co_consts if isinstance(c, CodeType)]
    return asks_class(code) or any(map(_may_ask, inner))


def _ask(asked: tuple[Any, Any]) -> None:
    """Warn if a traced array is not of a class that NumPy's arrays are of."""
    value, cls = asked
    classes = cls if isinstance(cls, tuple) else getattr(cls, "__args__", (cls,))
    is_asked = any(c is np.ndarray for c in classes)
    if (
        not is_asked
        or not (is_traced(value) or is_fake(value))
        or isinstance(value, cls)
    ):
        return
    frame = sys._getframe(2)  # behind that of the hook
    line = f"{frame.f_code.co_filename}:{frame.f_lineno}"
    if line in _told:
        return
    _told.add(line)
    warn_caller(
        f"isinstance(value, np.ndarray) is False for a {type(value).__name__}, at {line}\n"
        "so the function takes it for another object, and may give another result\n"
        "do: write isinstance(value, np.ndarray | customop.Tracer), or use"
        " customop.traceable(f)"
    )


# Identity of code -> itself, which stays alive, and whether it asks.
askers: dict[int, tuple[Any, bool]] = {}
# Lines that a warning has named, so that each is named once.
_told: set[str] = set()

# ---- copies ----


def _copy_of(code: CodeType) -> CodeType | None:
    """Return a copy of code that tells what it writes and asks; None if it does neither."""
    known = _copies.get(id(code))
    if known is None:
        if len(_copies) > _MOST_CODES:
            _copies.clear()
        made = noting(code, _NOTE, _ASK)
        known = _copies[id(code)] = code, None if made is code else made
    return known[1]


_NOTE, _ASK = Hook(_note), Hook(_ask)
# Identity of code -> itself, which stays alive, and its copy.
_copies: dict[int, tuple[CodeType, CodeType | None]] = {}
_MOST_CODES = 4096
