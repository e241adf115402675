"""What a profile counts: a tree of calls for each thread, and rows made of them."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from numpy import ndarray

from customop.arrays.kinds import TRACED, ArrayKind, is_traced, kind_of
from customop.arrays.nested import flat

__all__ = ["Entered", "Event", "Outline", "ProfileRow", "Track", "rows_of"]


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """What one rule of one operator has cost.

    Attributes
    ----------
    operator : str
        Qualified name.
    rule : str
        What ran: ``"cpu kernel"``, ``"vmap rule"``, ``"autograd backward"``, ...
    count : int
        Calls that have ended, by a result or by an error.
    errors : int
        Those that ended by an error.
    total_ns : int
        Nanoseconds from beginning to end, of calls that are inside no other of this row.
    self_ns : int
        Nanoseconds in all calls, without those in operators that they call.
    min_ns, mean_ns, max_ns : int
        Shortest, mean and longest call.
    bytes_in, bytes_out : int
        Bytes of the arrays in the arguments and in the results of all calls.
    kinds : tuple of str
        Kinds of these arrays, and of the transforms that trace them, by name.
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


class Branch:
    """All calls of one rule of one operator that came the same way."""

    __slots__ = (
        "above",
        "below",
        "bytes_in",
        "bytes_out",
        "count",
        "depth",
        "errors",
        "kinds",
        "longest",
        "operator",
        "own",
        "rule",
        "shortest",
        "total",
    )

    operator: str
    rule: str
    count: int
    errors: int
    total: int
    own: int
    longest: int
    bytes_in: int
    bytes_out: int

    def __init__(self, above: Branch | None, names: tuple[str, str]) -> None:
        self.above: Branch | None = above
        self.operator, self.rule = names
        self.depth: int = 0 if above is None else above.depth + 1
        self.below: dict[tuple[str, str], Branch] = {}
        self.kinds: set[str] = set()
        self.count = self.errors = self.total = self.own = self.longest = 0
        self.shortest: int = sys.maxsize
        self.bytes_in = self.bytes_out = 0

    @property
    def name(self) -> str:
        """Operator and rule in one."""
        return f"{self.operator} ({self.rule})"

    def walk(self) -> Iterator[Branch]:
        """All branches below, each before its own."""
        for branch in list(self.below.values()):
            yield branch
            yield from branch.walk()

    def path(self) -> list[Branch]:
        """The branches that lead here, from the outermost on."""
        steps: list[Branch] = []
        branch = self
        while branch.above is not None:
            steps.append(branch)
            branch = branch.above
        return steps[::-1]


# Shape and dtype of an array of a call: the array itself is not kept alive.
Outline = tuple[Any, Any]
# One call, for the timeline: when it began and ended by the profile's clock, its branch,
# the outlines of its arrays and of its results, and the class of its error. A plain
# tuple, 300 ns less than a named one.
Event = tuple[int, int, Branch, list[Outline], list[Outline], str]
# One call that runs: the branch it was made from, its own, the nanoseconds that calls of
# the one around it had taken, the bytes and outlines of its arrays, and its beginning.
Entered = tuple[Branch, Branch, int, int, list[Outline] | None, int]


class Track:
    """What one thread does while a profile watches.

    Parameters
    ----------
    clock : callable
        Gives nanoseconds.
    tickets : iterator
        Gives one for each event that there is room for.
    synchronize : callable or None
        Called with the arrays of a call before each look at the clock.
    """

    __slots__ = (
        "_clock",
        "_inner",
        "_synchronize",
        "_tickets",
        "events",
        "here",
        "ident",
        "name",
    )

    def __init__(
        self,
        clock: Callable[[], int],
        tickets: Iterator[int],
        synchronize: Callable[[Sequence[Any]], None] | None,
    ) -> None:
        self._clock = clock
        self._tickets = tickets
        self._synchronize = synchronize
        # Nanoseconds in calls that the running one has made.
        self._inner = 0
        self.here: Branch = Branch(None, ("", ""))
        self.ident: int = threading.get_native_id()
        self.name: str = threading.current_thread().name
        self.events: list[Event] = []

    def enter(self, names: tuple[str, str], values: Sequence[Any]) -> Entered:
        """Note that a rule begins, with the arrays among `values`."""
        above = self.here
        branch = above.below.get(names)
        if branch is None:
            branch = above.below.setdefault(names, Branch(above, names))
        given: list[Outline] | None = None
        if next(self._tickets, None) is not None:
            given = []
        size = _measure(values, branch.kinds, given)
        inner, self._inner = self._inner, 0
        self.here = branch
        if self._synchronize is not None:
            self._synchronize(values)
        return above, branch, inner, size, given, self._clock()

    def leave(self, entered: Entered, out: Any) -> None:
        """Note that it has returned."""
        results = (out,) if type(out) is ndarray else flat(out)
        if self._synchronize is not None:
            self._synchronize(results)
        above, branch, inner, size, given, start = entered
        spent = self._clock() - start
        self.here = above
        self._note(branch, inner, spent, size)
        returned: list[Outline] | None = None if given is None else []
        branch.bytes_out += _measure(results, branch.kinds, returned)
        if given is not None:
            event = (start, start + spent, branch, given, returned or [], "")
            self.events.append(event)

    def fail(self, entered: Entered, error: BaseException, *, again: bool) -> None:
        """Note that it has raised; not where it runs again."""
        above, branch, inner, size, given, start = entered
        spent = self._clock() - start
        self.here = above
        if again:
            self._inner = inner
            return
        self._note(branch, inner, spent, size)
        branch.errors += 1
        if given is not None:
            name = type(error).__name__
            self.events.append((start, start + spent, branch, given, [], name))

    def _note(self, branch: Branch, inner: int, spent: int, size: int) -> None:
        branch.count += 1
        branch.total += spent
        branch.own += spent - self._inner
        self._inner = inner + spent
        branch.bytes_in += size
        # `min` and `max` take 200 ns more.
        if spent < branch.shortest:  # noqa: PLR1730
            branch.shortest = spent
        if spent > branch.longest:  # noqa: PLR1730
            branch.longest = spent


# ---- arrays of calls ----


def _measure(
    values: Sequence[Any], kinds: set[str], outlines: list[Outline] | None
) -> int:
    """Bytes of the arrays among these values; notes their kinds and outlines."""
    size = 0
    for value in values:
        if type(value) is ndarray:  # for speed alone: what follows says the same
            kinds.add("cpu")
            size += value.nbytes
        else:
            kind = kind_of[type(value)]
            if kind is None:
                continue
            kinds.add(_kind_name(kind, value))
            size += _bytes_of(value)
        if outlines is not None:
            outlines.append((value.shape, value.dtype))
    return size


def _kind_name(kind: ArrayKind, value: Any) -> str:
    """What rows call a kind: a traced value is of its transform."""
    if kind is TRACED:
        return str(value.interpreter.kind.name)
    return kind.name if kind.has_device else "scalar"


def _bytes_of(value: Any) -> int:
    """Bytes of an array, of the one below a tracer, or that a fake one stands for."""
    while is_traced(value):
        value = value.value
    known = getattr(value, "nbytes", None)
    if known is not None:
        return int(known)
    return size_of(value.shape, value.dtype)


def size_of(shape: Any, dtype: Any) -> int:
    """Bytes of an array; 0 where its dtype does not tell those of an element."""
    return int(math.prod(shape) * getattr(dtype, "itemsize", 0))


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
    """Where the tree of a thread begins."""
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
    """Whether a rule runs inside of itself, so that its time is counted already."""
    above = branch.path()[:-1]
    return any((b.operator, b.rule) == (branch.operator, branch.rule) for b in above)
