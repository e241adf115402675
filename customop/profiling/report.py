"""A profile as a table, as a timeline of events, and as collapsed stacks."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from customop.errors import ArgumentError, did_you_mean, quoted
from customop.profiling.page import page_html
from customop.profiling.tree import (
    Event,
    ProfileRow,
    Track,
    outline_text,
    root_of,
    size_of,
)
from customop.profiling.units import show_bytes, show_time

__all__ = ["save", "table_of"]

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
    """Rows as aligned text, the largest first, and a line that sums them up."""
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
    """The lines of a table: words to the left, numbers to the right."""
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
    """Write the calls of threads to a file; its suffix names the format."""
    file = Path(path)
    write = _WRITERS.get(file.suffix)
    if write is None:
        raise ArgumentError(
            f"profile.save: {file.name!r} has no known suffix",
            do=f"end the name in one of {quoted(_WRITERS)}",
        )
    file.write_text(write(tracks, dropped, wall_ns), encoding="utf-8")


def _chrome(tracks: Sequence[Track], dropped: int, wall_ns: int) -> str:
    """Trace events as JSON.

    Source: "Trace Event Format", a document of the Chromium project; times in us.
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
    """The event of one call."""
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
    """Bytes that have gone through innermost calls so far, at the end of each."""
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
    """A line for each stack: its calls, the outermost first, and its self time.

    Source: the format of stackcollapse in Gregg's FlameGraph. All calls are in, also
    those that the timeline has dropped.
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
