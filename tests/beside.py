"""Another thread that works at the same time, and often gets its turn."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def beside(work: Callable[[int], object]) -> Iterator[None]:
    """Call ``work(0)``, ``work(1)`` and so on in another thread until the block ends."""
    is_over = threading.Event()

    def run() -> None:
        for number in itertools.count():
            if is_over.is_set():
                return
            work(number)

    before = sys.getswitchinterval()
    thread = threading.Thread(target=run)
    sys.setswitchinterval(1e-6)
    thread.start()
    try:
        yield
    finally:
        sys.setswitchinterval(before)
        is_over.set()
        thread.join()
