"""Profiles of the operators that a program calls, as tables, files and pages."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import islice
from operator import attrgetter
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Self

from customop.arrays.kinds import CUDA, DEFAULT, FAKE, kind_of
from customop.arrays.nested import flat
from customop.core.builtin_kinds import JVP, VMAP
from customop.core.call_arguments import kind_of_call
from customop.core.derived_rules import find_fake
from customop.core.dispatch import find_array_rule
from customop.core.interpreter import Interpreter, Mode
from customop.core.observe import Observer
from customop.core.rule_kind import COMPOSITE, RuleKind
from customop.core.table import RuleTable
from customop.errors import ArgumentError, counted, did_you_mean, quoted
from customop.pages.html import Element, application, frame, grid, title, visible
from customop.profiling.call_tree import (
    Begun,
    Branch,
    CallLog,
    Event,
    ProfileRow,
    Track,
    outline_text,
    root_of,
    rows_of,
    size_of,
    timed,
)

# ---- times and sizes as short texts ----


def show_time(nanoseconds: float) -> str:
    """Format a time with three digits and a unit."""
    return _with_unit(nanoseconds, 1000, ("ns", "us", "ms", "s"))


def show_bytes(count: int) -> str:
    """Format a number of bytes with three digits and a unit."""
    return _with_unit(count, 1000, ("B", "kB", "MB", "GB", "TB"))


def _with_unit(number: float, step: int, units: Sequence[str]) -> str:
    """Format a number in the largest unit in which it is at least one."""
    scale, at = 1, 0
    # Rounded to three digits, 999.5 of a unit is 1 of the next unit.
    while at + 1 < len(units) and number >= 0.9995 * scale * step:
        scale, at = scale * step, at + 1
    if scale == 1:
        return f"{number:.3g} {units[0]}"
    value = number / scale
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f} {units[at]}"


# ---- names of the kernels, rules and formulas in the rows ----


# The parts of a gradient that observers see -> the names of their rows.
_FORMULAS: dict[str, str] = {
    "setup_context": "setup_context",
    "backward": "autograd backward",
}
# Transform -> how it runs an operator that has no rule for it.
_WITHOUT_RULE: dict[RuleKind, str] = {VMAP: "vmap loop", JVP: "jvp by autograd"}


def names_of(
    op: RuleTable, by: str | Interpreter, fn: Callable[..., Any], args: Sequence[Any]
) -> tuple[str, str]:
    """Return names of an operator and of what runs; see `Observer.enter`."""
    if by == "kernel":
        return _kernel_names(op, fn, args)
    names = op.plans.rule_names
    key: Any = by if isinstance(by, str) else (type(by), by.kind)
    if key not in names:
        rule = _FORMULAS[by] if isinstance(by, str) else _rule_name(op, by, fn)
        names[key] = op.qualname, rule
    return names[key]


def _kernel_names(
    op: RuleTable, kernel: Callable[..., Any], args: Sequence[Any]
) -> tuple[str, str]:
    if op.disabled:
        return op.qualname, _kernel_name(op, kernel, args)
    names = op.plans.rule_names
    found = names.get(id(kernel))
    if found is None:
        found = op.qualname, _kernel_name(op, kernel, args)
        # A kernel that is in only one row has the same name for all arguments.
        if sum(row.fn is kernel for row in op.rows.values()) == 1:
            names[id(kernel)] = found
    return found


def _kernel_name(op: RuleTable, kernel: Callable[..., Any], args: Sequence[Any]) -> str:
    if find_array_rule(op, args) is not None:
        return "array rule"
    kind = kind_of_call(op, args)[0]
    if kind in op.disabled:
        return "wrapped function"
    names = {
        kind: f"{kind} kernel",
        DEFAULT: "default kernel",
        COMPOSITE: "composite body",
    }
    rows = op.rows
    for key, name in names.items():
        if key in rows and rows[key].fn is kernel:
            return name
    is_derived = kind == FAKE and kernel is find_fake(op)
    return "fake kernel" if is_derived else f"{kind} fallback"


def _rule_name(op: RuleTable, interpreter: Interpreter, fn: Callable[..., Any]) -> str:
    body = op.rows.get(COMPOSITE)
    if body is not None and body.fn is fn:
        return "composite body"
    kind = interpreter.kind
    if isinstance(interpreter, Mode):
        return f"{kind.name} mode"
    if kind.call_title:
        return kind.call_title
    if op.find_rule(kind) is not None:
        return f"{kind.name} rule"
    return _WITHOUT_RULE.get(kind, f"{kind.name} interpreter")


# ---- a page that shows a profile ----
# It has a flame graph, a timeline and a table, with zoom and search.


# The most calls in the timeline in a notebook, whose file stores everything it shows.
_MOST_IN_NOTEBOOK = 20_000


def page_html(tracks: Sequence[Track], wall_ns: int, most: int | None = None) -> str:
    """Return the page of a profile as HTML.

    Parameters
    ----------
    tracks : sequence of Track
    wall_ns : int
        How long the profile was open.
    most : int, optional
        The largest number of calls in the timeline.
    """
    files = ("profile.css", "profile.html", "profile.js")
    found = _ProfileData(tracks, wall_ns, most).as_json()
    return application("profile", "customop.profiling", files, found)


def notebook_html(tracks: Sequence[Track], wall_ns: int) -> str:
    """Return the page in a notebook's frame, and a table where there is none."""
    text = page_html(tracks, wall_ns, _MOST_IN_NOTEBOOK)
    ordered = sorted(rows_of(tracks), key=lambda row: -row.self_ns)
    head = title("profile", counted(sum(row.count for row in ordered), "call"))
    return frame(text, height=560, instead=[head, _longest_rows(ordered)])


def _longest_rows(rows: Sequence[ProfileRow]) -> Element:
    """Return a table of the rows with the longest self time."""
    times_of = attrgetter("total_ns", "self_ns")
    texts = [
        [row.operator, row.rule, str(row.count), *map(show_time, times_of(row))]
        for row in rows[:10]
    ]
    return grid(["operator", "rule", "calls", "total", "self"], texts)


class _ProfileData:
    """The data that the script of the page needs."""

    def __init__(self, tracks: Sequence[Track], wall_ns: int, most: int | None) -> None:
        self._tracks = tracks
        self._wall_ns = wall_ns
        self._most = most
        self._texts: dict[str, int] = {}
        self._numbers: dict[int, int] = {}

    def as_json(self) -> dict[str, Any]:
        """Return the calls as data for the page's script."""
        branches = [
            row for i, t in enumerate(self._tracks) for row in self._below(t, i)
        ]
        chosen = [(t, e) for t in self._tracks for e in list(t.events)]
        chosen.sort(key=lambda pair: pair[1][0])
        zero = chosen[0][1][0] if chosen else 0
        events = [self._event(e, zero) for _, e in islice(chosen, self._most)]
        rows = sorted(rows_of(self._tracks), key=lambda row: -row.self_ns)
        return {
            "wall": self._wall_ns,
            "threads": [f"{visible(t.name, 100)} ({t.ident})" for t in self._tracks],
            "branches": branches,
            "events": events,
            "hidden": sum(row.count for row in rows) - len(events),
            "rows": [
                [
                    *(self._text(row.operator), self._text(row.rule), row.count),
                    *(row.errors, row.total_ns, row.self_ns, row.min_ns, row.mean_ns),
                    *(row.max_ns, row.bytes_in, row.bytes_out),
                    self._text(", ".join(row.kinds)),
                ]
                for row in rows
            ],
            "texts": [*self._texts],
        }

    def _below(self, track: Track, number: int) -> Iterator[list[int]]:
        """Yield the branches of a thread, parents first."""
        for branch in root_of(track).walk():
            above = self._numbers.get(id(branch.above), -1)
            self._numbers[id(branch)] = len(self._numbers)
            yield [above, number, *self._names(branch), branch.count, *_times(branch)]

    def _names(self, branch: Branch) -> tuple[int, int]:
        return self._text(branch.operator), self._text(branch.rule)

    def _event(self, event: Event, zero: int) -> list[int]:
        begin, end, branch, given, returned, error = event
        arrays = f"{_listed(given)} -> {_listed(returned)}"
        number = self._numbers.get(id(branch), -1)
        texts = self._text(arrays), self._text(error)
        return [begin - zero, end - begin, number, *texts]

    def _text(self, text: str) -> int:
        """Return the number of a text; equal texts share one."""
        return self._texts.setdefault(visible(text, 300), len(self._texts))


def _times(branch: Branch) -> tuple[int, ...]:
    shortest = branch.shortest if branch.count else 0
    return branch.total, branch.own, shortest, branch.longest


def _listed(outlines: Sequence[tuple[Any, Any]]) -> str:
    return ", ".join(map(outline_text, outlines)) or "no arrays"


# ---- a profile as a table, as a timeline of events, and as collapsed stacks ----


_ORDERS = {
    "self": lambda row: row.self_ns,
    "total": lambda row: row.total_ns,
    "count": lambda row: row.count,
    "bytes": lambda row: row.bytes_in + row.bytes_out,
}


# ---- the table ----

_TIMES = ("total", "self", "min", "mean", "max")
_HEAD = ("operator", "rule", "count", "errors", *_TIMES, "in", "out", "kinds")
_TEXT = ("operator", "rule", "kinds")


def table_of(
    rows: Sequence[ProfileRow], sort: str, limit: int | None, wall_ns: int, dropped: int
) -> str:
    """Return the rows as aligned text, the largest first, with a summary line."""
    if sort not in _ORDERS:
        raise ArgumentError(
            f"profile.table: sort is {sort!r}{did_you_mean(str(sort), _ORDERS)}",
            do=f"sort by one of {quoted(_ORDERS)}",
        )
    if limit is not None and (type(limit) is not int or limit < 0):
        raise ArgumentError(
            f"profile.table: limit={limit!r} is not a number of rows",
            do="pass a whole number, or None for all rows",
        )
    ordered = sorted(rows, key=_ORDERS[sort], reverse=True)
    shown = ordered if limit is None else ordered[:limit]
    columns = list(zip(_HEAD, *map(_cells, shown), strict=True))
    if not any(row.errors for row in rows):
        columns = [column for column in columns if column[0] != "errors"]
    lines = _aligned(columns)
    if len(shown) < len(rows):
        rest = len(rows) - len(shown)
        lines.append(f"... and {rest} more row{'s' if rest > 1 else ''}")
    return "\n".join([*lines, _summary(rows, wall_ns, dropped)])


def _cells(row: ProfileRow) -> tuple[str, ...]:
    times = (row.total_ns, row.self_ns, row.min_ns, row.mean_ns, row.max_ns)
    return (
        row.operator,
        row.rule,
        str(row.count),
        str(row.errors),
        *map(show_time, times),
        show_bytes(row.bytes_in),
        show_bytes(row.bytes_out),
        ", ".join(row.kinds),
    )


def _aligned(columns: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table, words aligned left and numbers right."""
    padded = []
    for column in columns:
        width = max(map(len, column))
        is_text = column[0] in _TEXT
        padded.append([c.ljust(width) if is_text else c.rjust(width) for c in column])
    return ["  ".join(cells).rstrip() for cells in zip(*padded, strict=True)]


def _summary(rows: Sequence[ProfileRow], wall_ns: int, dropped: int) -> str:
    count = sum(row.count for row in rows)
    spent = show_time(sum(row.self_ns for row in rows))
    text = f"{count} calls, {spent} of {show_time(wall_ns)}"
    return f"{text}; {dropped} not in the timeline" if dropped else text


# ---- files ----


def save(
    path: str | PathLike[str], tracks: Sequence[Track], dropped: int, wall_ns: int
) -> None:
    """Write the calls of all threads to a file in the format that its suffix names."""
    file = Path(path)
    write = _WRITERS.get(file.suffix)
    if write is None:
        raise ArgumentError(
            f"profile.save: {file.name!r} has no known suffix",
            do=f"end the name in one of {quoted(_WRITERS)}",
        )
    file.write_text(write(tracks, dropped, wall_ns), encoding="utf-8")


def _chrome(tracks: Sequence[Track], dropped: int, wall_ns: int) -> str:
    """Return trace events as JSON.

    Source: "Trace Event Format", a document of the Chromium project. Times are in us.
    """
    pid = os.getpid()
    events = sorted(
        ((e, track) for track in tracks for e in list(track.events)),
        key=lambda pair: (pair[0][0], len(pair[0][2].path())),
    )
    zero = events[0][0][0] if events else 0
    content = [_metadata(pid, "process_name", 0, "customop")]
    content += [_metadata(pid, "thread_name", t.ident, t.name) for t in tracks]
    timed = [_complete(pid, track.ident, zero, event) for event, track in events]
    timed += _counters(pid, zero, [event for event, _ in events])
    content += sorted(timed, key=lambda event: event["ts"])
    return json.dumps(
        {
            "traceEvents": content,
            "displayTimeUnit": "ns",
            "otherData": {"dropped": dropped},
        },
        allow_nan=False,
    )


def _metadata(pid: int, kind: str, tid: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}


def _complete(pid: int, tid: int, zero: int, event: Event) -> dict[str, Any]:
    """Return the trace event of one call."""
    begin, end, branch, given, returned, error = event
    args: dict[str, Any] = {
        "in": [outline_text(v) for v in given],
        "out": [outline_text(v) for v in returned],
    }
    return {
        "name": branch.name,
        "cat": branch.rule,
        "ph": "X",
        "ts": (begin - zero) / 1000,
        "dur": (end - begin) / 1000,
        "pid": pid,
        "tid": tid,
        "args": {**args, "error": error} if error else args,
    }


def _counters(pid: int, zero: int, events: Sequence[Event]) -> Iterator[dict[str, Any]]:
    """Yield the bytes that went through innermost calls so far, at each end."""
    taken = given = 0
    innermost = (event for event in events if not event[2].below)
    for event in sorted(innermost, key=lambda event: event[1]):
        taken += sum(size_of(*pair) for pair in event[3])
        given += sum(size_of(*pair) for pair in event[4])
        yield {
            "name": "bytes of arrays",
            "ph": "C",
            "ts": (event[1] - zero) / 1000,
            "pid": pid,
            "args": {"in": taken, "out": given},
        }


def _folded(tracks: Sequence[Track], dropped: int, wall_ns: int) -> str:
    """Return a line for each stack: its calls, the outermost first, and its self time.

    Source: the format of stackcollapse in Gregg's FlameGraph. It includes all calls,
    even those that the timeline has dropped.
    """
    stacks: dict[str, int] = {}
    for track in tracks:
        for branch in root_of(track).walk():
            stack = ";".join(step.name for step in branch.path())
            if branch.count:
                stacks[stack] = stacks.get(stack, 0) + branch.own
    return "".join(f"{stack} {own}\n" for stack, own in sorted(stacks.items()))


def _html(tracks: Sequence[Track], dropped: int, wall_ns: int) -> str:
    return page_html(tracks, wall_ns)


_WRITERS = {".json": _chrome, ".folded": _folded, ".html": _html}


# ---- profiles: which operators a program calls, by which rules, and their cost ----


class profile(Observer):  # noqa: N801  # used like a function, as `autocast` is
    """Count and time everything that operators run while the profile is open.

    Each kernel, rule and formula counts as a call: the gradient of one operator shows
    its forward rule, the kernel inside it, and its backward formula. A profile sees the
    thread or task that opened it, and tasks started from there. It can be opened again,
    and goes on counting.

    Parameters
    ----------
    threads : bool
        Whether it sees all threads of the process.
    synchronize : bool
        Whether the clock is read only after the device has finished, for calls with
        CuPy arrays. Otherwise the time of a CUDA kernel is that of its launch.
    max_events : int
        How many calls are kept for `save`, the first ones. Rows count all calls.
    clock : callable
        Gives the time in whole nanoseconds.

    Raises
    ------
    ArgumentError
        If `max_events` is not a number of calls.

    Notes
    -----
    The time of a call is that of the kernel, rule or formula, with the operators that it
    calls. Choosing the kernel and proving its first call are not part of it. Noting a
    call takes 2 to 4 us, which count as time of the call around it. After every 5,000
    calls, and when you ask for results, they are put in order, which takes 2.5 us a call
    and counts for none of them. An event takes half a kilobyte.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> with co.profile() as p:
    ...     for _ in range(3):
    ...         _ = co.ops.np.sin(np.zeros(1000))
    >>> row = p.rows[0]
    >>> row.operator, row.rule, row.count, row.bytes_out, row.kinds
    ('np::sin', 'default kernel', 3, 24000, ('cpu',))
    """

    def __init__(
        self,
        *,
        threads: bool = False,
        synchronize: bool = False,
        max_events: int = 100_000,
        clock: Callable[[], int] = time.perf_counter_ns,
    ) -> None:
        if type(max_events) is not int or max_events < 0:
            raise ArgumentError(
                f"profile: max_events={max_events!r} is not a number of calls",
                do="pass a whole number, 0 for rows without a timeline",
            )
        super().__init__(threads=threads)
        self._synchronize = _synchronize if synchronize else None
        self._tickets: Iterator[int] = iter(range(max_events))
        self._clock = clock
        self._local = threading.local()
        self._logs: list[CallLog] = []
        self._began = 0
        self._wall = 0
        # Whether no subclass sees the calls too, and no device has to be waited for.
        cls = type(self)
        own = (profile.enter, profile.leave, profile.fail)
        is_whole = (cls.enter, cls.leave, cls.fail) == own
        self._is_short: bool = is_whole and not synchronize

    def __enter__(self) -> Self:
        super().__enter__()
        self._began = self._clock()
        return self

    def __exit__(self, *exc: object) -> None:
        now = self._clock()
        super().__exit__(*exc)
        self._wall += now - self._began

    # ---- what it sees ----

    def enter(
        self,
        op: RuleTable,
        by: str | Interpreter,
        fn: Callable[..., Any],
        args: Sequence[Any],
    ) -> Begun:
        """Note that a kernel, rule or formula begins; see `Observer.enter`."""
        return self._log().enter(names_of(op, by, fn, args), args)

    def _log(self) -> CallLog:
        """Return the log of this thread."""
        try:
            log: CallLog = self._local.log
        except AttributeError:
            log = CallLog(self._clock, self._tickets, self._synchronize)
            self._local.log = log
            self._logs.append(log)
        return log

    def leave(self, entered: Begun, out: Any) -> None:
        """Note that a kernel, rule or formula has returned."""
        entered[0].leave(entered, out)

    def fail(self, entered: Begun, error: BaseException, *, again: bool) -> None:
        """Note that a kernel, rule or formula has raised."""
        entered[0].fail(entered, error, again=again)

    def around(
        self,
        op: RuleTable,
        by: str | Interpreter,
        fn: Callable[..., Any],
        args: Sequence[Any],
        proof: Any,
        run: Callable[..., Any],
    ) -> Callable[..., Any]:
        """Do as `Observer.around`, without the frames of `enter` and `leave`."""
        if not self._is_short:
            return super().around(op, by, fn, args, proof, run)
        try:
            log: CallLog = self._local.log
        except AttributeError:
            log = self._log()
        # Most names are known, and are found here without the frames of `names_of`.
        if by == "kernel":
            key: Any = id(fn)
        else:
            key = by if type(by) is str else (type(by), by.kind)  # type: ignore[union-attr]  # an interpreter
        names = op.plans.rule_names.get(key)
        if names is None:
            names = names_of(op, by, fn, args)
        return timed(log, names, args, proof, run)

    # ---- results ----

    @property
    def _tracks(self) -> list[Track]:
        """The call trees of all threads."""
        return [log.track() for log in self._logs]

    @property
    def rows(self) -> list[ProfileRow]:
        """A row for each rule of each operator, by self time, without running calls."""
        return sorted(rows_of(self._tracks), key=lambda row: -row.self_ns)

    @property
    def wall_ns(self) -> int:
        """Return how many nanoseconds the profile has been open."""
        return self._wall + (self._clock() - self._began if self.is_open else 0)

    @property
    def dropped(self) -> int:
        """Return how many calls are in the rows but not in the timeline."""
        kept = sum(len(track.events) for track in self._tracks)
        return sum(row.count for row in rows_of(self._tracks)) - kept

    def table(
        self,
        sort: Literal["self", "total", "count", "bytes"] = "self",
        limit: int | None = None,
    ) -> str:
        """Return the rows as text.

        Parameters
        ----------
        sort : str
            The order of the rows, the largest first: by ``"self"`` or ``"total"`` time,
            ``"count"``, or ``"bytes"`` in and out.
        limit : int, optional
            How many rows to show; all by default.

        Returns
        -------
        str

        Raises
        ------
        ArgumentError
            If `sort` is another word, or `limit` is not a number of rows.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> with co.profile() as p:
        ...     _ = co.ops.np.sin(np.zeros(1000))
        >>> print(p.table(sort="total", limit=1))  # doctest: +ELLIPSIS
        operator ...
        np::sin ...
        """
        return table_of(self.rows, sort, limit, self.wall_ns, self.dropped)

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        state = "open" if self.is_open else "closed"
        return f"<profile, {state}, {sum(r.count for r in self.rows)} calls>"

    def _repr_html_(self) -> str:
        return notebook_html(self._tracks, self.wall_ns)

    def to_dict(self) -> dict[str, Any]:
        """Return the rows as numbers, strings, lists and dicts, ready for JSON.

        Returns
        -------
        dict
            ``"rows"``, dicts with the fields of `ProfileRow`; ``"wall_ns"``, how long
            the profile was open; ``"threads"``, how many it has seen; ``"dropped"``, how
            many calls are not in the timeline.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> with co.profile() as p:
        ...     _ = co.ops.np.sin(np.zeros(1000))
        >>> found = p.to_dict()
        >>> found["threads"], found["rows"][0]["operator"], found["rows"][0]["bytes_in"]
        (1, 'np::sin', 8000)
        """
        rows = [{**asdict(row), "kinds": list(row.kinds)} for row in self.rows]
        return {
            "rows": rows,
            "wall_ns": self.wall_ns,
            "threads": len(self._tracks),
            "dropped": self.dropped,
        }

    def save(self, path: str | PathLike[str]) -> None:
        """Write the calls to a file; its suffix names the format.

        Parameters
        ----------
        path : str or path
            ``.html`` for a page with a flame graph, a timeline and a table;
            ``.json`` for trace events, which Perfetto and chrome://tracing open;
            ``.folded`` for collapsed stacks with nanoseconds of self time, for
            speedscope and flame graphs.

        Raises
        ------
        ArgumentError
            If the suffix is another one.

        Examples
        --------
        >>> import pathlib, tempfile, numpy as np, customop as co
        >>> with co.profile() as p:
        ...     _ = co.ops.np.sin(np.zeros(1000))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = pathlib.Path(folder, "calls.folded")
        ...     p.save(path)
        ...     print(path.read_text())  # doctest: +ELLIPSIS
        np::sin...
        """
        save(path, self._tracks, self.dropped, self.wall_ns)


def _synchronize(values: Sequence[Any]) -> None:
    """Wait for the current CUDA stream if any value is a CUDA array."""
    if any(kind_of[type(value)] is CUDA for value in flat(list(values))):
        sys.modules["cupy"].cuda.get_current_stream().synchronize()
