"""Logs of calls, and the call tree of each thread that is made from them."""

from __future__ import annotations

import math
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from customop.arrays.kinds import TRACED, kind_of
from customop.arrays.nested import abbreviated, children, nests
from customop.core.tracer import Tracer
from customop.errors import runs_kernels

# ---- the call tree of a thread, and the rows made from it ----


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """The cost of one rule of one operator.

    Attributes
    ----------
    operator : str
        Qualified name.
    rule : str
        Name of what ran: ``"cpu kernel"``, ``"vmap rule"``, ``"autograd backward"``, ...
    count : int
        Calls that have ended, with a result or with an error.
    errors : int
        Calls that ended with an error.
    total_ns : int
        Nanoseconds in calls. Calls inside another call of the same row are not added.
    self_ns : int
        Nanoseconds in calls, minus the operators that they call.
    min_ns, mean_ns, max_ns : int
        Shortest, mean and longest call.
    bytes_in, bytes_out : int
        Bytes of the arrays among the arguments and among the results, over all calls.
    kinds : tuple of str
        Kinds of these arrays; for traced arrays the name of their transform.
    """

    operator: str
    rule: str
    count: int
    errors: int
    total_ns: int
    self_ns: int
    min_ns: int
    mean_ns: int
    max_ns: int
    bytes_in: int
    bytes_out: int
    kinds: tuple[str, ...]


@dataclass(slots=True, eq=False)
class Branch:
    """All calls of one rule of one operator along the same path of callers."""

    above: Branch | None
    operator: str
    rule: str
    below: dict[tuple[str, str], Branch] = field(default_factory=dict)
    kinds: set[str] = field(default_factory=set)
    count: int = 0
    errors: int = 0
    # Nanoseconds: of all calls, of all calls minus inner operators, of one call.
    total: int = 0
    own: int = 0
    shortest: int = sys.maxsize
    longest: int = 0
    bytes_in: int = 0
    bytes_out: int = 0

    @property
    def name(self) -> str:
        """Operator and rule as one text."""
        return f"{self.operator} ({self.rule})"

    def walk(self) -> Iterator[Branch]:
        """Yield all branches below this one, parents first."""
        for branch in list(self.below.values()):
            yield branch
            yield from branch.walk()

    def path(self) -> list[Branch]:
        """Return the branches from the root to this one, without the root."""
        steps: list[Branch] = []
        branch = self
        while branch.above is not None:
            steps.append(branch)
            branch = branch.above
        return steps[::-1]


# Shape and dtype of an array; the array itself is not kept alive.
Outline = tuple[Any, Any]
# Arrays as a call found them: the outline of a NumPy array; for other arrays also the
# kind, and the bytes if they differ from those of the outline.
Looked = list[tuple[Any, Any] | tuple[Any, Any, str] | tuple[Any, Any, str, int]]
# What is noted when a call begins: the log, the names of the operator and of what runs,
# its arrays, and the time.
Begun = tuple[Any, tuple[str, str], Looked, int]
# A running call: what was noted, when it began, the branch around it, its own branch,
# the nanoseconds spent so far in other inner calls of the outer one, its bytes, and
# whether the timeline keeps it.
Opened = tuple[Begun, int, Branch, Branch, int, int, bool]
# A call in the timeline: begin and end by the profile's clock, branch, outlines of
# arguments and results, and the class of its error. A named tuple takes 300 ns more.
Event = tuple[int, int, Branch, list[Outline], list[Outline], str]


@dataclass(slots=True, eq=False)
class Track:
    """The call tree of one thread, and its timeline.

    Attributes
    ----------
    tickets : iterator
        Yields one item for each event that the timeline still has room for.
    """

    tickets: Iterator[int]
    # The branch of the running call, and the nanoseconds spent in its inner calls.
    here: Branch = field(default_factory=lambda: Branch(None, "", ""))
    inner: int = 0
    # Running calls, by the identity of what was noted when they began.
    open: dict[int, Opened] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    ident: int = field(default_factory=threading.get_native_id)
    name: str = field(default_factory=lambda: threading.current_thread().name)

    def begin(self, call: Begun, start: int) -> None:
        """Enter the branch of a call."""
        _, names, given, _ = call
        above = self.here
        branch = above.below.get(names)
        if branch is None:
            branch = above.below.setdefault(names, Branch(above, *names))
        size = _measure(given, branch.kinds)
        is_kept = next(self.tickets, None) is not None
        opened = call, start, above, branch, self.inner, size, is_kept
        self.open[id(call)] = opened
        self.inner = 0
        self.here = branch

    def end(self, call: Begun, end: int, returned: Looked | None, error: str) -> None:
        """Leave the branch of a call; `returned` is None if it runs again."""
        opened = self.open.pop(id(call), None)
        if opened is None:  # an interrupt came in between
            return
        _, start, above, branch, inner, size, is_kept = opened
        self.here = above
        if returned is None:
            self.inner = inner
            return
        spent = end - start
        branch.count += 1
        branch.errors += bool(error)
        branch.total += spent
        branch.own += spent - self.inner
        self.inner = inner + spent
        branch.bytes_in += size
        branch.bytes_out += _measure(returned, branch.kinds)
        branch.shortest = min(branch.shortest, spent)
        branch.longest = max(branch.longest, spent)
        if is_kept:
            outlines = _outlines(call[2]), _outlines(returned)
            self.events.append((start, end, branch, *outlines, error))


# ---- arrays of calls ----


def _measure(found: Looked, kinds: set[str]) -> int:
    """Return the bytes of arrays, and record their kinds."""
    size = 0
    for each in found:
        kinds.add("cpu" if len(each) == 2 else each[2])
        size += each[3] if len(each) == 4 else size_of(each[0], each[1])
    return size


def _outlines(found: Looked) -> list[Outline]:
    return [each if len(each) == 2 else (each[0], each[1]) for each in found]


def size_of(shape: Any, dtype: Any) -> int:
    """Return the bytes of an array; 0 if its dtype has no `itemsize`."""
    return int(math.prod(shape) * getattr(dtype, "itemsize", 0))


class _Outlined(NamedTuple):
    """Shape and dtype as attributes, as `abbreviated` needs them."""

    shape: Any
    dtype: Any


def outline_text(outline: Outline) -> str:
    """Return the short text of an array in a call, such as ``f64[3]``."""
    return abbreviated(_Outlined(*outline))


# ---- rows ----


def rows_of(tracks: Iterable[Track]) -> list[ProfileRow]:
    """Return a row for each rule of each operator that has run."""
    groups: dict[tuple[str, str], list[Branch]] = {}
    for track in tracks:
        for branch in root_of(track).walk():
            if branch.count:
                groups.setdefault((branch.operator, branch.rule), []).append(branch)
    return [_row(branches) for branches in groups.values()]


def root_of(track: Track) -> Branch:
    """Return the root of a thread's call tree."""
    branch = track.here
    while branch.above is not None:
        branch = branch.above
    return branch


def _row(branches: Sequence[Branch]) -> ProfileRow:
    count = sum(b.count for b in branches)
    spent = sum(b.total for b in branches)
    return ProfileRow(
        operator=branches[0].operator,
        rule=branches[0].rule,
        count=count,
        errors=sum(b.errors for b in branches),
        total_ns=sum(b.total for b in branches if not _is_inside_its_own(b)),
        self_ns=sum(b.own for b in branches),
        min_ns=min(b.shortest for b in branches),
        mean_ns=spent // count,
        max_ns=max(b.longest for b in branches),
        bytes_in=sum(b.bytes_in for b in branches),
        bytes_out=sum(b.bytes_out for b in branches),
        kinds=tuple(sorted(set().union(*(b.kinds for b in branches)))),
    )


def _is_inside_its_own(branch: Branch) -> bool:
    """Return whether a rule runs inside itself; then its time is already counted."""
    above = branch.path()[:-1]
    return any((b.operator, b.rule) == (branch.operator, branch.rule) for b in above)


# ---- logs of calls, which do as little as possible while a call runs ----
# A call under a profile adds two entries to a list, at its begin and at its end. The
# call tree is made from them later, when someone asks for it or many entries wait.


# The most entries that wait, about 3 MB.
_MOST_WAITING = 10_000
_CONSTANT = frozenset((int, float, bool, complex, str, type(None)))
# What is noted for the scalars that NumPy functions return.
_SCALARS: dict[type, tuple[Any, Any, str, int]] = {
    cls: ((), np.dtype(cls), "scalar", np.dtype(cls).itemsize)
    for cls in (np.float64, np.float32, np.complex128, np.int64, np.bool_)
}
_PLAIN = frozenset((ndarray, *_SCALARS))
# Reads all three at once, in C. Code that runs between other code takes two to three
# times as long as in a loop, so each Python instruction counts.
_outline_below: Callable[[Any], Any] = attrgetter(
    "below.shape", "below.dtype", "interpreter.kind.name"
)


class CallLog:
    """Notes the calls of one thread while a profile is open.

    Parameters
    ----------
    clock : callable
        Returns the time in nanoseconds.
    tickets : iterator
        Yields one item for each event that the timeline still has room for.
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
        # Calls that began; calls that ended, with time, result and the name of an
        # error; and pauses, which count for no call.
        self.waiting: deque[Any] = deque()
        self._track = Track(tickets)
        self._lock = Lock()
        self._paused = 0

    def enter(self, names: tuple[str, str], values: Sequence[Any]) -> Begun:
        """Note that a call begins, with the arrays in `values`."""
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
        """Note that a call has returned."""
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
        """Note that a call has raised. If it runs again, only that run counts."""
        end = self.clock()
        self.waiting.append((begun, end, None if again else [], type(error).__name__))

    def pause(self) -> None:
        """Turn waiting entries into the tree; the time for that counts for no call."""
        # Another thread may do this, or an outer frame that a finalizer interrupted.
        if self._lock.acquire(blocking=False):
            start = self.clock()
            try:
                self._settle()
            finally:
                self._lock.release()
            self.waiting.append((None, start, self.clock()))

    def track(self) -> Track:
        """Return the call tree of all calls so far."""
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
    """Return a function that runs `run` and notes the call in the log."""

    # This does the same as `enter` and `leave` without their frames. A closure takes
    # 100 ns less than a partial, which goes through C.
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
            # Hide this frame, so that tracebacks look the same as without a profile.
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


# All functions made by `timed` share this code.
runs_kernels(timed(CallLog(int, iter(()), None), ("", ""), (), None, timed))

# ---- arrays of calls ----


def _look(value: Any, found: Looked) -> None:
    """Note an array, or the arrays inside a value."""
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
    """Note a traced array. Its outline is read without calling properties."""
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
    """Class -> whether its tracers have the shape and dtype of the value below them."""

    def __missing__(self, cls: type) -> bool:
        is_same = (
            issubclass(cls, Tracer)
            and cls.shape is Tracer.shape
            and cls.dtype is Tracer.dtype
        )
        if cls.__module__.partition(".")[0] in _LASTING:
            self[cls] = is_same  # other classes may be deleted
        return is_same


_LASTING = frozenset(("builtins", "customop", "cupy", "numpy"))


_is_outlined_below = _OutlinedBelow()


def _bytes_of(value: Any) -> int:
    """Return the bytes of an array, or of the array under a tracer."""
    while kind_of[type(value)] is TRACED:
        value = value.below
    known = getattr(value, "nbytes", None)
    if known is not None:
        return int(known)
    return size_of(value.shape, value.dtype)
