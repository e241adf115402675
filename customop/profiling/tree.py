"""A tree of calls for each thread, and the rows made from it."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from numpy import ndarray

from customop.arrays.describe import abbreviated
from customop.arrays.kinds import TRACED, ArrayKind, kind_of
from customop.arrays.nested import children, nests
from customop.errors import runs_kernels

__all__ = [
    "Branch",
    "Event",
    "Outline",
    "ProfileRow",
    "Running",
    "Track",
    "outline_text",
    "root_of",
    "rows_of",
    "size_of",
    "timed",
]


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
        Calls that have ended, with a result or an error.
    errors : int
        Calls that ended with an error.
    total_ns : int
        Nanoseconds in calls. A call inside another one of the same row is not added.
    self_ns : int
        Nanoseconds in calls, without the operators that they call.
    min_ns, mean_ns, max_ns : int
        Shortest, mean and longest call.
    bytes_in, bytes_out : int
        Bytes of the arrays among the arguments and the results of all calls.
    kinds : tuple of str
        Kinds of these arrays; for traced ones the name of their transform.
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
    """All calls of one rule of one operator that were made along the same path."""

    above: Branch | None
    operator: str
    rule: str
    below: dict[tuple[str, str], Branch] = field(default_factory=dict)
    kinds: set[str] = field(default_factory=set)
    count: int = 0
    errors: int = 0
    # Nanoseconds: in all calls, without the operators that they call, and of one call.
    total: int = 0
    own: int = 0
    shortest: int = sys.maxsize
    longest: int = 0
    bytes_in: int = 0
    bytes_out: int = 0

    @property
    def name(self) -> str:
        """Operator and rule together."""
        return f"{self.operator} ({self.rule})"

    def walk(self) -> Iterator[Branch]:
        """All branches below, each before those below it."""
        for branch in list(self.below.values()):
            yield branch
            yield from branch.walk()

    def path(self) -> list[Branch]:
        """The branches that lead here, the outermost first."""
        steps: list[Branch] = []
        branch = self
        while branch.above is not None:
            steps.append(branch)
            branch = branch.above
        return steps[::-1]


# Shape and dtype of an array; the array itself is not kept alive.
Outline = tuple[Any, Any]
# One call in the timeline: begin and end by the profile's clock, branch, outlines of
# arguments and results, and the class of its error. A named tuple takes 300 ns more.
Event = tuple[int, int, Branch, list[Outline], list[Outline], str]
# One call that runs: its track, the branch around it, its own branch, the nanoseconds
# spent so far in other calls of the one around it, its bytes, its outlines, and when it
# began.
Running = tuple["Track", Branch, Branch, int, int, list[Outline] | None, int]


@dataclass(slots=True, eq=False)
class Track:
    """The calls of one thread while a profile is open.

    Attributes
    ----------
    clock : callable
        Gives nanoseconds.
    tickets : iterator
        Gives one for each event that there is room for.
    synchronize : callable or None
        Called with the arrays of a call before the clock is read.
    """

    clock: Callable[[], int]
    tickets: Iterator[int]
    synchronize: Callable[[Sequence[Any]], None] | None
    # The branch of the call that runs, and the nanoseconds in calls that it has made.
    here: Branch = field(default_factory=lambda: Branch(None, "", ""))
    inner: int = 0
    events: list[Event] = field(default_factory=list)
    ident: int = field(default_factory=threading.get_native_id)
    name: str = field(default_factory=lambda: threading.current_thread().name)

    def enter(self, names: tuple[str, str], values: Sequence[Any]) -> Running:
        """Note that something begins, with the arrays in `values`."""
        above = self.here
        branch = above.below.get(names)
        if branch is None:
            branch = above.below.setdefault(names, Branch(above, *names))
        given: list[Outline] | None = None
        if next(self.tickets, None) is not None:
            given = []
        size = 0
        for value in values:
            if type(value) is ndarray:  # as `_measure`, without a call
                branch.kinds.add("cpu")
                size += value.nbytes
                if given is not None:
                    given.append((value.shape, value.dtype))
            elif type(value) not in _CONSTANT:
                size += _measure((value,), branch.kinds, given)
        inner, self.inner = self.inner, 0
        self.here = branch
        if self.synchronize is not None:
            self.synchronize(values)
        return self, above, branch, inner, size, given, self.clock()

    def leave(self, running: Running, out: Any) -> None:
        """Note that it has returned."""
        if self.synchronize is not None:
            self.synchronize((out,))
        _, above, branch, inner, size, given, start = running
        spent = self.clock() - start
        self.here = above
        self._note(branch, inner, spent, size)
        if type(out) is ndarray:  # as `_measure`, without a call
            branch.kinds.add("cpu")
            branch.bytes_out += out.nbytes
            if given is not None:
                returned = [(out.shape, out.dtype)]
                event = (start, start + spent, branch, given, returned, "")
                self.events.append(event)
            return
        found: list[Outline] | None = None if given is None else []
        branch.bytes_out += _measure((out,), branch.kinds, found)
        if given is not None:
            self.events.append((start, start + spent, branch, given, found or [], ""))

    def fail(self, running: Running, error: BaseException, *, again: bool) -> None:
        """Note that it has raised. A kernel that runs again is noted once, by then."""
        _, above, branch, inner, size, given, start = running
        spent = self.clock() - start
        self.here = above
        if again:
            self.inner = inner
            return
        self._note(branch, inner, spent, size)
        branch.errors += 1
        if given is not None:
            name = type(error).__name__
            self.events.append((start, start + spent, branch, given, [], name))

    def _note(self, branch: Branch, inner: int, spent: int, size: int) -> None:
        branch.count += 1
        branch.total += spent
        branch.own += spent - self.inner
        self.inner = inner + spent
        branch.bytes_in += size
        # `min` and `max` take 200 ns more.
        if spent < branch.shortest:  # noqa: PLR1730  # as said above
            branch.shortest = spent
        if spent > branch.longest:  # noqa: PLR1730  # as above
            branch.longest = spent


@runs_kernels
def timed(
    track: Track,
    names: tuple[str, str],
    shown: Sequence[Any],
    proof: Any,
    run: Callable[..., Any],
    /,
    *args: Any,
    **keywords: Any,
) -> Any:
    """Run what a track notes under these names."""
    running = track.enter(names, shown)
    try:
        out = run(*args, **keywords)
    except BaseException as error:
        again = proof is not None and proof.retries(error)
        track.fail(running, error, again=again)
        # Hide this frame: a traceback is the same as without a profile.
        trace = error.__traceback__
        error.__traceback__ = None if trace is None else trace.tb_next
        raise
    track.leave(running, out)
    return out


# ---- arrays of calls ----

_CONSTANT = frozenset((int, float, bool, complex, str, type(None)))


def _measure(
    values: Sequence[Any], kinds: set[str], outlines: list[Outline] | None
) -> int:
    """Bytes of the arrays in these values; notes their kinds and outlines."""
    size = 0
    for value in values:
        cls = type(value)
        if cls is ndarray:  # the lines below give the same, more slowly
            kinds.add("cpu")
            size += value.nbytes
        else:
            kind = kind_of[cls]
            if kind is None:
                if cls is tuple or cls is list or cls in nests:
                    size += _measure(children(value) or (), kinds, outlines)
                continue
            kinds.add(_kind_name(kind, value))
            size += _bytes_of(value)
        if outlines is not None:
            outlines.append((value.shape, value.dtype))
    return size


def _kind_name(kind: ArrayKind, value: Any) -> str:
    """The name of a kind in rows; for a traced value that of its transform."""
    if kind is TRACED:
        return str(value.interpreter.kind.name)
    return kind.name if kind.has_device else "scalar"


def _bytes_of(value: Any) -> int:
    """Bytes of an array; of the one below a tracer, or the one that a fake one describes."""
    while type(value) is not ndarray and kind_of[type(value)] is TRACED:
        value = value.below
    known = getattr(value, "nbytes", None)
    if known is not None:
        return int(known)
    return size_of(value.shape, value.dtype)


def size_of(shape: Any, dtype: Any) -> int:
    """Bytes of an array; 0 where its dtype has no `itemsize`."""
    return int(math.prod(shape) * getattr(dtype, "itemsize", 0))


class _Outlined(NamedTuple):
    """Shape and dtype as attributes, which `abbreviated` reads."""

    shape: Any
    dtype: Any


def outline_text(outline: Outline) -> str:
    """An array of a call in short: ``f64[3]``."""
    return abbreviated(_Outlined(*outline))


# ---- rows ----


def rows_of(tracks: Iterable[Track]) -> list[ProfileRow]:
    """A row for each rule of each operator that has run."""
    groups: dict[tuple[str, str], list[Branch]] = {}
    for track in tracks:
        for branch in root_of(track).walk():
            if branch.count:
                groups.setdefault((branch.operator, branch.rule), []).append(branch)
    return [_row(branches) for branches in groups.values()]


def root_of(track: Track) -> Branch:
    """The root of the tree of a thread."""
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
    """Whether a rule runs inside itself, so that its time is counted already."""
    above = branch.path()[:-1]
    return any((b.operator, b.rule) == (branch.operator, branch.rule) for b in above)
