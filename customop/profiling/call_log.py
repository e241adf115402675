"""Logs of calls: they note as little as possible while a call runs.

A call under a profile adds two entries to a list: when it begins and when it ends. The tree
of calls is made of them later, when someone asks for it, or when many entries wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from threading import Lock
from typing import Any

import numpy as np
from numpy import ndarray

from customop.arrays.kinds import TRACED, kind_of
from customop.arrays.nested import children, nests
from customop.core.tracer import Tracer
from customop.errors import runs_kernels
from customop.profiling.tree import Begun, Looked, Track, size_of

__all__ = ["CallLog", "timed"]

# Entries that wait, about 3 MB of them.
_MOST_WAITING = 10_000
_CONSTANT = frozenset((int, float, bool, complex, str, type(None)))
# What is noted of the scalars that NumPy's functions return.
_SCALARS: dict[type, tuple[Any, Any, str, int]] = {
    cls: ((), np.dtype(cls), "scalar", np.dtype(cls).itemsize)
    for cls in (np.float64, np.float32, np.complex128, np.int64, np.bool_)
}
_PLAIN = frozenset((ndarray, *_SCALARS))
# All at once, in C: what runs between other code takes two to three times as long as in a
# loop, so each instruction of Python counts.
_outline_below: Callable[[Any], Any] = attrgetter(
    "below.shape", "below.dtype", "interpreter.kind.name"
)


class CallLog:
    """Notes the calls of one thread while a profile is open.

    Parameters
    ----------
    clock : callable
        Gives nanoseconds.
    tickets : iterator
        Gives one for each event that there is room for.
    synchronize : callable or None
        Called with the arrays of a call before the clock is read.
    """

    __slots__ = ("_lock", "_paused", "_track", "clock", "synchronize", "waiting")

    def __init__(
        self,
        clock: Callable[[], int],
        tickets: Iterator[int],
        synchronize: Callable[[Sequence[Any]], None] | None,
    ) -> None:
        self.clock: Callable[[], int] = clock
        self.synchronize: Callable[[Sequence[Any]], None] | None = synchronize
        # Calls that began; calls that ended, with the time, the result and the name of
        # an error; and times without calls.
        self.waiting: deque[Any] = deque()
        self._track = Track(tickets)
        self._lock = Lock()
        self._paused = 0

    def enter(self, names: tuple[str, str], values: Sequence[Any]) -> Begun:
        """Note that something begins, with the arrays in `values`."""
        given: Looked = []
        for value in values:
            if type(value) is ndarray:
                given.append((value.shape, value.dtype))
            elif type(value) not in _CONSTANT:
                _look(value, given)
        if self.synchronize is not None:
            self.synchronize(values)
        begun = self, names, given, self.clock()
        self.waiting.append(begun)
        return begun

    def leave(self, begun: Begun, out: Any) -> None:
        """Note that it has returned."""
        if self.synchronize is not None:
            self.synchronize((out,))
        end = self.clock()
        returned: Looked = []
        if type(out) is ndarray:
            returned.append((out.shape, out.dtype))
        else:
            _look(out, returned)
        self.waiting.append((begun, end, returned, ""))
        if len(self.waiting) > _MOST_WAITING:
            self.pause()

    def fail(self, begun: Begun, error: BaseException, *, again: bool) -> None:
        """Note that it has raised. A kernel that runs again is noted once, by then."""
        end = self.clock()
        self.waiting.append((begun, end, None if again else [], type(error).__name__))

    def pause(self) -> None:
        """Make the tree of what waits, which takes no time of the calls that run."""
        # Another thread may do it, or this one further out, where a finalizer calls.
        if self._lock.acquire(blocking=False):
            start = self.clock()
            try:
                self._settle()
            finally:
                self._lock.release()
            self.waiting.append((None, start, self.clock()))

    def track(self) -> Track:
        """The tree of the calls so far."""
        with self._lock:
            self._settle()
        return self._track

    def _settle(self) -> None:
        waiting, track = self.waiting, self._track
        for _ in range(len(waiting)):
            entry = waiting.popleft()
            paused = self._paused
            if entry[0] is self:
                track.begin(entry, entry[3] - paused)
            elif entry[0] is None:
                self._paused += entry[2] - entry[1]
            else:
                begun, end, *rest = entry
                track.end(begun, end - paused, *rest)


def timed(
    log: CallLog,
    names: tuple[str, str],
    shown: Sequence[Any],
    proof: Any,
    run: Callable[..., Any],
) -> Callable[..., Any]:
    """A function that runs what a log notes under these names."""

    # As `enter` and `leave`, without their frames. A closure takes 100 ns less than a
    # partial, which goes through C.
    def call(*args: Any, **keywords: Any) -> Any:
        given: Looked = []
        for value in shown:
            if type(value) is ndarray:
                given.append((value.shape, value.dtype))
            elif type(value) not in _CONSTANT:
                _look(value, given)
        begun = log, names, given, log.clock()
        log.waiting.append(begun)
        try:
            out = run(*args, **keywords)
        except BaseException as error:
            again = proof is not None and proof.retries(error)
            log.fail(begun, error, again=again)
            # Hide this frame: a traceback is the same as without a profile.
            trace = error.__traceback__
            error.__traceback__ = None if trace is None else trace.tb_next
            raise
        end = log.clock()
        returned: Looked = []
        if type(out) is ndarray:
            returned.append((out.shape, out.dtype))
        else:
            _look(out, returned)
        log.waiting.append((begun, end, returned, ""))
        if len(log.waiting) > _MOST_WAITING:
            log.pause()
        return out

    return call


# All such functions have the same code.
runs_kernels(timed(CallLog(int, iter(()), None), ("", ""), (), None, timed))

# ---- arrays of calls ----


def _look(value: Any, found: Looked) -> None:
    """Note an array, or those in a value."""
    cls = type(value)
    if cls is ndarray:
        found.append((value.shape, value.dtype))
    elif cls in _SCALARS:
        found.append(_SCALARS[cls])
    elif cls is tuple or cls is list:
        for item in value:
            if item is not None:
                _look(item, found)
    elif _is_outlined_below[cls]:
        if type(value.below) in _PLAIN:
            found.append(_outline_below(value))
        else:
            _look_below(value, found)
    else:
        _look_closely(value, found)


def _look_below(tracer: Any, found: Looked) -> None:
    """Note a traced value, whose outline is read without calls of properties."""
    name = tracer.interpreter.kind.name
    value = tracer.below
    while _is_outlined_below[type(value)]:
        value = value.below
    found.append((value.shape, value.dtype, name, _bytes_of(value)))


def _look_closely(value: Any, found: Looked) -> None:
    cls = type(value)
    kind = kind_of[cls]
    if kind is None:
        if cls in nests:
            for item in children(value) or ():
                _look(item, found)
        return
    if kind is TRACED:  # the name of the transform
        name = value.interpreter.kind.name
    else:
        name = kind.name if kind.has_device else "scalar"
    found.append((value.shape, value.dtype, name, _bytes_of(value)))


class _OutlinedBelow(dict[type, bool]):
    """Class -> whether its tracers have the shape and dtype of the value below."""

    def __missing__(self, cls: type) -> bool:
        is_same = (
            issubclass(cls, Tracer)
            and cls.shape is Tracer.shape
            and cls.dtype is Tracer.dtype
        )
        if cls.__module__.partition(".")[0] in _LASTING:
            self[cls] = is_same  # other classes may die
        return is_same


_LASTING = frozenset(("builtins", "customop", "cupy", "numpy"))


_is_outlined_below = _OutlinedBelow()


def _bytes_of(value: Any) -> int:
    """Bytes of an array; of the one below a tracer, or the one that a fake one describes."""
    while kind_of[type(value)] is TRACED:
        value = value.below
    known = getattr(value, "nbytes", None)
    if known is not None:
        return int(known)
    return size_of(value.shape, value.dtype)
