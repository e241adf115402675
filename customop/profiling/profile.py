"""Profiles: which operators a program calls, by which rules, and what they cost."""

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
from customop.core.dispatch import Interpreter, nested_leaves
from customop.core.observe import Observer
from customop.core.table import RuleTable
from customop.errors import ArgumentError
from customop.profiling.names import FORMULAS, names_of
from customop.profiling.report import save, table_of
from customop.profiling.tree import Entered, ProfileRow, Track, rows_of

__all__ = ["profile"]


class profile(Observer):  # noqa: N801  # written as a call, as `autocast` is
    """While it is open, counts and times all that operators run.

    Each kernel, rule and formula that a call runs is a call of its own: the gradient of
    one operator shows its forward rule, the kernel inside of it, and its backward
    formula. A profile sees what runs in the thread or task that opened it. It can be
    opened again when it is closed, and goes on counting. A task that was started inside
    is seen too; a thread only with `threads`.

    Parameters
    ----------
    threads : bool
        Whether it sees what runs in all threads of the process.
    synchronize : bool
        Whether calls with CuPy arrays wait for the device before each look at the
        clock. Otherwise the time of a CUDA kernel is that of its launch.
    max_events : int
        Calls that are kept one by one for `save`, the first ones. What comes after
        them is counted in the rows alone.
    clock : callable
        Gives the time in whole nanoseconds.

    Raises
    ------
    ArgumentError
        If `max_events` is no number of calls.

    Notes
    -----
    Between the clock's two readings lies the kernel, rule or formula, with what it
    calls; not the choice of the kernel, nor the proof of its first call. To look at a
    call takes 2 to 4 us, which show in the times of what is around it. An event takes
    half a kilobyte.

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
                f"profile: max_events={max_events!r} is no number of calls",
                do="pass a whole number, 0 for rows without a timeline",
            )
        super().__init__(threads=threads)
        self._synchronize = _synchronize if synchronize else None
        self._tickets: Iterator[int] = iter(range(max_events))
        self._clock = clock
        self._local = threading.local()
        self._tracks: list[Track] = []
        self._began = 0
        self._wall = 0

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
    ) -> tuple[Track, Entered]:
        """Note that a kernel, rule or formula begins."""
        slots = op.array_slots
        if by in FORMULAS:
            arrays: Sequence[Any] = flat(list(args))
        elif len(slots) == 1 and not op.nested_slots:  # as most are: 100 ns less
            arrays = (args[slots[0]],)
        else:
            arrays = [*[args[slot] for slot in slots], *nested_leaves(op, args)]
        track = self._track()
        return track, track.enter(names_of(op, by, fn, args, arrays), arrays)

    def leave(self, entered: tuple[Track, Entered], out: Any) -> None:
        """Note that it has returned."""
        track, entry = entered
        track.leave(entry, out)

    def fail(
        self, entered: tuple[Track, Entered], error: BaseException, *, again: bool
    ) -> None:
        """Note that it has raised."""
        track, entry = entered
        track.fail(entry, error, again=again)

    def _track(self) -> Track:
        """What the running thread does."""
        try:
            return self._local.track  # type: ignore[no-any-return]
        except AttributeError:
            track = Track(self._clock, self._tickets, self._synchronize)
            self._local.track = track
            self._tracks.append(track)
            return track

    # ---- what it has seen ----

    @property
    def rows(self) -> list[ProfileRow]:
        """A row for each rule of each operator, of calls that have ended; by self time."""
        return sorted(rows_of(self._tracks), key=lambda row: -row.self_ns)

    @property
    def wall_ns(self) -> int:
        """Nanoseconds that it has been open."""
        return self._wall + (self._clock() - self._began if self.is_open else 0)

    @property
    def dropped(self) -> int:
        """Calls that are counted in the rows, and are not in the timeline."""
        kept = sum(len(track.events) for track in self._tracks)
        return sum(row.count for row in rows_of(self._tracks)) - kept

    def table(
        self,
        sort: Literal["self", "total", "count", "bytes"] = "self",
        limit: int | None = None,
    ) -> str:
        """The rows as text.

        Parameters
        ----------
        sort : str
            What the rows are ordered by, the largest first: ``"self"`` or ``"total"``
            time, ``"count"``, or ``"bytes"`` in and out.
        limit : int, optional
            Rows to show; all by default.

        Returns
        -------
        str

        Raises
        ------
        ArgumentError
            If `sort` names no order, or `limit` is no number of rows.
        """
        return table_of(self.rows, sort, limit, self.wall_ns, self.dropped)

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        state = "open" if self.is_open else "closed"
        return f"<profile, {state}, {sum(r.count for r in self.rows)} calls>"

    def to_dict(self) -> dict[str, Any]:
        """The rows as numbers, strings, lists and dicts, as JSON takes them.

        Returns
        -------
        dict
            ``"rows"``, each by the names of `ProfileRow`; ``"wall_ns"``, how long the
            profile was open; ``"threads"``, how many it has seen; ``"dropped"``, calls
            that the timeline lacks.
        """
        rows = [{**asdict(row), "kinds": list(row.kinds)} for row in self.rows]
        return {
            "rows": rows,
            "wall_ns": self.wall_ns,
            "threads": len(self._tracks),
            "dropped": self.dropped,
        }

    def save(self, path: str | PathLike[str]) -> None:
        """Write the calls to a file, of the kind that its suffix names.

        Parameters
        ----------
        path : str or path
            ``.json`` for Chrome's trace events, which Perfetto and chrome://tracing
            open; ``.folded`` for collapsed stacks with nanoseconds of self time, which
            speedscope and flame graphs are made of.

        Raises
        ------
        ArgumentError
            If the suffix is another one.
        """
        save(path, self._tracks, self.dropped)


def _synchronize(values: Sequence[Any]) -> None:
    """Wait for the current stream where there are CUDA arrays, so CuPy is imported."""
    if any(kind_of[type(value)] is CUDA for value in values):
        sys.modules["cupy"].cuda.get_current_stream().synchronize()
