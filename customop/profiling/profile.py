"""Profiles: the operators that a program calls, by which rules, and their cost."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from os import PathLike
from typing import Any, Literal, Self

from customop.arrays.kinds import CUDA, kind_of
from customop.arrays.nested import flat
from customop.core.interpreter import Interpreter
from customop.core.observe import Observer
from customop.core.table import RuleTable
from customop.errors import ArgumentError
from customop.profiling.call_log import CallLog, timed
from customop.profiling.names import names_of
from customop.profiling.page import notebook_html
from customop.profiling.report import save, table_of
from customop.profiling.tree import Begun, ProfileRow, Track, rows_of

__all__ = ["profile"]


class profile(Observer):  # noqa: N801  # used like a function, as `autocast` is
    """Count and time all that operators run while it is open.

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
        # Whether no subclass sees the calls too, and no device is waited for.
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
        """Note that something begins: see `Observer.enter`."""
        return self._log().enter(names_of(op, by, fn, args), args)

    def _log(self) -> CallLog:
        """The log of this thread."""
        try:
            log: CallLog = self._local.log
        except AttributeError:
            log = CallLog(self._clock, self._tickets, self._synchronize)
            self._local.log = log
            self._logs.append(log)
        return log

    def leave(self, entered: Begun, out: Any) -> None:
        """Note that it has returned."""
        entered[0].leave(entered, out)

    def fail(self, entered: Begun, error: BaseException, *, again: bool) -> None:
        """Note that it has raised."""
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
        """As `Observer.around`, without the frames of `enter` and `leave`."""
        if not self._is_short:
            return super().around(op, by, fn, args, proof, run)
        try:
            log: CallLog = self._local.log
        except AttributeError:
            log = self._log()
        # The names of most calls are known, and found without the frames of `names_of`.
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
        """The trees of calls of all threads."""
        return [log.track() for log in self._logs]

    @property
    def rows(self) -> list[ProfileRow]:
        """A row for each rule of each operator, by self time. Calls that run are not in."""
        return sorted(rows_of(self._tracks), key=lambda row: -row.self_ns)

    @property
    def wall_ns(self) -> int:
        """Nanoseconds that it has been open."""
        return self._wall + (self._clock() - self._began if self.is_open else 0)

    @property
    def dropped(self) -> int:
        """How many calls are in the rows and not in the timeline."""
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
    """Wait for the current stream if there are CUDA arrays."""
    if any(kind_of[type(value)] is CUDA for value in flat(list(values))):
        sys.modules["cupy"].cuda.get_current_stream().synchronize()
