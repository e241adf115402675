"""The lock held while tables of operators change."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable

__all__ = ["changing"]


class _Changes:
    """A lock that a finalizer may ask for at any moment.

    The garbage collector runs finalizers between any two lines, so also inside the
    block of the thread that holds the lock. What they want done waits until it ends.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        self.later: deque[Callable[[], None]] = deque()

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


# Held while a table changes, or a kernel of it is marked as proven: calls never wait.
changing: _Changes = _Changes()

# A process forked while another thread changes a table must find the lock free.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=changing.__enter__,
        after_in_parent=changing.__exit__,
        after_in_child=changing.__exit__,
    )
