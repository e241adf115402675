"""A page that shows a profile: flame graph, timeline and table, with zoom and search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any

from customop.errors import counted
from customop.pages.blocks import grid, title
from customop.pages.markup import Element, visible
from customop.pages.write import application, frame
from customop.profiling.tree import (
    Branch,
    Event,
    ProfileRow,
    Track,
    outline_text,
    root_of,
    rows_of,
)
from customop.profiling.units import show_time

__all__ = ["notebook_html", "page_html"]

# Calls in the timeline that a notebook shows: its file keeps all that it shows.
_MOST_IN_NOTEBOOK = 20_000


def page_html(tracks: Sequence[Track], wall_ns: int, most: int | None = None) -> str:
    """A whole page in HTML.

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
    """The page in a frame of a notebook, and a table for where it has no frames."""
    text = page_html(tracks, wall_ns, _MOST_IN_NOTEBOOK)
    ordered = sorted(rows_of(tracks), key=lambda row: -row.self_ns)
    head = title("profile", counted(sum(row.count for row in ordered), "call"))
    return frame(text, height=560, instead=[head, _longest_rows(ordered)])


def _longest_rows(rows: Sequence[ProfileRow]) -> Element:
    """A table of the rows that took the most time themselves."""
    times_of = attrgetter("total_ns", "self_ns")
    texts = [
        [row.operator, row.rule, str(row.count), *map(show_time, times_of(row))]
        for row in rows[:10]
    ]
    return grid(["operator", "rule", "calls", "total", "self"], texts)


class _ProfileData:
    """The data of a page."""

    def __init__(self, tracks: Sequence[Track], wall_ns: int, most: int | None) -> None:
        self._tracks = tracks
        self._wall_ns = wall_ns
        self._most = most
        self._texts: dict[str, int] = {}
        self._numbers: dict[int, int] = {}

    def as_json(self) -> dict[str, Any]:
        """The calls as data for the script of the page."""
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
        """The branches of a thread, each after the one above it."""
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
        """The number of a text, which many calls have."""
        return self._texts.setdefault(visible(text, 300), len(self._texts))


def _times(branch: Branch) -> tuple[int, ...]:
    shortest = branch.shortest if branch.count else 0
    return branch.total, branch.own, shortest, branch.longest


def _listed(outlines: Sequence[tuple[Any, Any]]) -> str:
    return ", ".join(map(outline_text, outlines)) or "no arrays"
