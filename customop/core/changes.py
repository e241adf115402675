"""The lock held while tables of operators change."""

from __future__ import annotations

import os
from _thread import RLock  # `threading` takes 0.5 ms more to import
from collections import deque
from collections.abc import Callable

__all__ = ["changing"]


class _ChangeLock:
    """A lock that finalizers may request at any moment.

    The garbage collector runs finalizers between any two lines, also while this thread
    holds the lock. Their work waits until the lock is free.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        self._depth = 0
        self.later: deque[Callable[[], None]] = deque()
        # Changes of any table so far: the tables are the same while it is the same.
        self.count: int = 0

    def __enter__(self) -> None:
        self._lock.acquire()
        self._depth += 1

    def __exit__(self, *exc: object) -> None:
        try:
            while self._depth == 1 and self.later:
                self.later.popleft()()
        finally:
            self._depth -= 1
            self._lock.release()


# Held while a table changes or a kernel is marked as proven; calls never wait for it.
changing: _ChangeLock = _ChangeLock()

# The lock must be free in a process that is forked while a table changes.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=changing.__enter__,
        after_in_parent=changing.__exit__,
        after_in_child=changing.__exit__,
    )
