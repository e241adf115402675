"""Threads that help with large arrays, and wait between calls.

Work is a function that takes what is left to do until nothing is left; any number of threads
may run it at once. The caller runs it too, so that it never waits for a thread to be free.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context, copy_context
from queue import SimpleQueue
from typing import Any, TypeVar

from customop.config import config

Work = Callable[[], object]
T = TypeVar("T")


class _Job:
    """One work, and the threads that run it beside the caller."""

    def __init__(self, work: Work) -> None:
        self._work: Work | None = work  # None when it is over
        self._lock = threading.Lock()
        self._running = 0
        self._ended = threading.Lock()
        self._ended.acquire()
        self._error: BaseException | None = None

    def help(self, context: Context) -> None:
        """Run the work in another thread, unless it is over."""
        with self._lock:
            work = self._work
            if work is None:
                return
            self._running += 1
        try:
            context.run(work)
        except BaseException as error:  # noqa: BLE001  # the caller raises it
            self._error = self._error or error
        del work
        with self._lock:
            self._running -= 1
            is_last = self._work is None and not self._running
        if is_last:
            self._ended.release()

    def end(self) -> None:
        """Let no more threads begin."""
        with self._lock:
            self._work = None

    def wait(self) -> None:
        """Wait for the threads that have begun, which write to arrays of the caller."""
        interrupt: BaseException | None = None
        while True:
            try:
                self.end()
                while self._running:  # it is 0 before `_ended` is free
                    self._ended.acquire()
                break
            except BaseException as error:  # noqa: BLE001  # raised when they have ended
                interrupt = error
        if interrupt is not None:
            raise interrupt

    def raise_error(self) -> None:
        """Raise the error of another thread."""
        if self._error is not None:
            raise self._error


class Team:
    """The threads of a process that help."""

    def __init__(self) -> None:
        self._cores = 0
        self.reset()

    def reset(self) -> None:
        """Begin without threads, as in a process that was forked."""
        self._jobs: SimpleQueue[tuple[_Job, Context] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []

    @property
    def size(self) -> int:
        """How many threads may run, with the one that calls."""
        asked = config.compile_threads
        if asked is not None:
            return asked
        if not self._cores:
            self._cores = _cores()
        return self._cores

    def run(self, work: Work, threads: int) -> None:
        """Run a work in this thread and in others.

        Parameters
        ----------
        work : callable
            It takes what is left to do until nothing is left.
        threads : int
            With this one. Fewer run it if others are busy.
        """
        if len(self._threads) < threads - 1:
            self._grow(threads - 1)
        job = _Job(work)
        try:
            for _ in range(threads - 1):
                # Each needs a context of its own, which has the settings of np.errstate.
                self._jobs.put((job, copy_context()))
            work()
        finally:
            job.wait()  # after an error, too: the caller may read what the others write
        job.raise_error()

    def run_over(
        self,
        parts: Iterable[T],
        begin: Callable[[], Callable[[T], object]],
        threads: int,
    ) -> None:
        """Call a function for each of several parts, in this thread and in others.

        Parameters
        ----------
        parts : iterable
        begin : callable
            Called in each thread; gives the function of a part.
        threads : int
        """
        left = deque(parts)

        def work() -> None:
            try:
                do = begin()
                while left:
                    try:
                        part = left.popleft()
                    except IndexError:  # another thread has the last one
                        return
                    do(part)
            except BaseException:
                left.clear()  # so that the other threads end, too
                raise

        if threads > 1:
            self.run(work, threads)
        else:
            work()

    def _grow(self, count: int) -> None:
        with self._lock:
            try:
                while len(self._threads) < count:
                    # A daemon: the interpreter may end while it waits.
                    thread = threading.Thread(
                        target=_serve,
                        args=(self._jobs,),
                        name="customop helper",
                        daemon=True,
                    )
                    thread.start()
                    self._threads.append(thread)
            except RuntimeError:
                pass  # there are too many, or the interpreter ends: the others do it

    def stop(self) -> None:
        """End the threads. Python warns of a fork where there are some."""
        with self._lock:
            threads, self._threads = self._threads, []
        for _ in threads:
            self._jobs.put(None)
        for thread in threads:
            thread.join()


def _serve(jobs: SimpleQueue[tuple[_Job, Context] | None]) -> None:
    """Work on jobs until None comes in place of one."""
    while (found := jobs.get()) is not None:
        job, context = found
        del found
        job.help(context)
        del job, context  # and what they hold


def _cores() -> int:
    """Return how many processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


team: Team = Team()
_register: Any = getattr(os, "register_at_fork", None)  # not on Windows
if _register is not None:
    _register(before=team.stop, after_in_child=team.reset)
