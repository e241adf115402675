"""Locks that are free in a process that is forked while another thread holds them.

A child has one thread. A lock that another thread held at the fork would stay taken, and
what it guards may be half changed. So a thread that forks first takes all these locks.
It does not wait for ever: the holder of one may fork, too, and wait for a lock of another
library that this thread has taken to fork.
"""

from __future__ import annotations

import os
from _thread import RLock, get_ident  # `threading` takes 0.5 ms more to import
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar
from weakref import WeakSet

P = ParamSpec("P")
T = TypeVar("T")


class _Lock(Protocol):
    def acquire(self, blocking: bool = ..., timeout: float = ...) -> bool: ...
    def release(self) -> None: ...


L = TypeVar("L", bound=_Lock)

_locks: list[_Lock] = []
# Held for a moment when an import begins, so that none begins during a fork.
_beginning = RLock()
# A lock for each import on demand that runs now, since Python has one for each module.
# It is not one lock for all: an import may wait for a module that another thread imports.
_imports: WeakSet[Any] = WeakSet()
# Thread -> the locks that it has taken to fork.
_taken: dict[int, list[_Lock]] = {}
# Longest wait of a fork for one lock, in seconds.
_PATIENCE = 5.0


def free_after_fork(lock: L) -> L:
    """Have a lock of the whole process taken by each thread that forks.

    Parameters
    ----------
    lock : lock
        A reentrant one if its holder may fork. Its holder must not wait for another
        thread that may fork.

    Returns
    -------
    lock
    """
    _locks.append(lock)
    return lock


def importing(make: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function that imports modules; other threads fork before or after it."""
    lock = RLock()
    with _beginning:
        _imports.add(lock)
    with lock:
        return make(*args, **kwargs)


def _take() -> None:
    """Take all locks. It never waits for one while it holds another."""
    taken = _taken[get_ident()] = []
    waited: _Lock | None = _beginning
    while waited is not None:
        _free()
        if not waited.acquire(timeout=_PATIENCE):
            _take_others(taken, waited, goes_on=True)
            return
        taken.append(waited)
        waited = _take_others(taken, waited)


def _take_others(
    taken: list[_Lock], first: _Lock, goes_on: bool = False
) -> _Lock | None:
    """Take the other locks, and return one that another thread holds, if any."""
    for lock in _all():
        if lock is first:
            continue
        if lock.acquire(blocking=False):
            taken.append(lock)
        elif not goes_on:
            return lock
    return None


def _all() -> list[_Lock]:
    return [_beginning, *_locks, *_imports]


def _free() -> None:
    taken = _taken[get_ident()]
    while taken:
        taken.pop().release()


def _free_in_child() -> None:
    """Free all locks, also those that another thread of the parent holds."""
    held = {id(lock) for lock in _taken[get_ident()]}
    _free()
    for lock in _all():
        if id(lock) not in held:
            lock._at_fork_reinit()  # type: ignore[attr-defined]  # noqa: SLF001  # as `threading` does


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(
        before=_take, after_in_parent=_free, after_in_child=_free_in_child
    )
