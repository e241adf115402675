"""A profile as a table and as numbers."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.profiling.profile import show_bytes, show_time
from tests.profiling._profiled import (
    CLOCK,
    X,
    _raises,
    composed,
    define,
    events_of,
    square,
)


def test_the_table() -> None:
    """Rows are sorted by self time and aligned; the last line sums them up."""
    with co.profile(clock=CLOCK) as p:
        composed(np.ones(1000))
        CLOCK.now += 1_234_567
    assert str(p) == (
        "operator            rule            count  total   self    min   mean    max"
        "       in      out  kinds\n"
        "profiled::square    default kernel      2  10 ns  10 ns   5 ns   5 ns   5 ns"
        "  16.0 kB  16.0 kB  cpu\n"
        "profiled::composed  composite body      1  11 ns   1 ns  11 ns  11 ns  11 ns"
        "  8.00 kB  8.00 kB  cpu\n"
        "3 calls, 11 ns of 1.23 ms"
    )


def test_the_table_of_a_program_with_errors() -> None:
    """If calls have failed, a column counts them."""
    op = define("raises_again", _raises)
    with co.profile(clock=CLOCK) as p:
        square(X)
        for _ in range(12):
            with pytest.raises(KeyError):
                op(X)
    head, *lines = [line.split() for line in str(p).splitlines()[:-1]]
    assert head[3:5] == ["errors", "total"]
    # The name of a rule is two words.
    assert [line[4:6] for line in lines] == [["0", "5"], ["12", "0"]]


ORDERS = {
    "self": ["square", "composed", "both", "bare"],
    "total": ["composed", "square", "both", "bare"],
    "count": ["both", "square", "composed", "bare"],
    "bytes": ["bare", "both", "square", "composed"],
}


@pytest.mark.parametrize("sort", ORDERS)
def test_the_order_of_the_table(sort: Any, ordered: Any) -> None:
    """Rows are sorted as asked for, the largest first."""
    lines = ordered.table(sort=sort).splitlines()[1:-1]
    names = [line.split()[0].partition("::")[2] for line in lines]
    expected = ORDERS[sort]
    # Rows without time come in the order of their first calls.
    assert sorted(names) == sorted(expected)
    assert names[:2] == expected[:2]


@pytest.mark.parametrize(("limit", "rest"), [(0, 4), (1, 3), (3, 1)])
def test_the_limit_of_the_table(limit: int, rest: int, ordered: Any) -> None:
    """A line counts the rows beyond the limit."""
    lines = ordered.table(limit=limit).splitlines()
    assert len(lines) == 1 + limit + 2
    assert lines[-2] == f"... and {rest} more row{'s' * (rest != 1)}"


def test_a_limit_that_leaves_nothing_out(ordered: Any) -> None:
    """A limit that leaves out no row adds no line."""
    assert ordered.table(limit=4) == ordered.table()


def test_the_table_says_what_the_timeline_lacks(ordered: Any) -> None:
    """The last line counts calls that are not in the timeline."""
    assert (
        ordered.table().splitlines()[-1]
        == "7 calls, 11 ns of 11 ns; 5 not in the timeline"
    )


def test_an_empty_profile(tmp_path: Path) -> None:
    """An empty profile can be printed and saved."""
    with co.profile(clock=CLOCK) as p:
        pass
    assert str(p).splitlines()[1:] == ["0 calls, 0 ns of 0 ns"]
    assert (p.rows, p.dropped) == ([], 0)
    assert events_of(p, tmp_path) == []


def test_repr() -> None:
    """It says whether it is open and how many calls it has seen."""
    p = co.profile()
    with p:
        square(X)
        assert repr(p) == "<profile, open, 1 calls>"
    assert repr(p) == "<profile, closed, 1 calls>"


SORTS = "do: sort by one of 'self', 'total', 'count', 'bytes'"
SUFFIXES = "do: end the name in one of '.json', '.folded', '.html'"
MESSAGES: list[tuple[Callable[..., Any], str, str]] = [
    (
        lambda p, path: p.table(sort="slef"),
        "profile.table: sort is 'slef' (did you mean 'self'?)",
        SORTS,
    ),
    (lambda p, path: p.table(sort=3), "profile.table: sort is 3", SORTS),
    (
        lambda p, path: p.table(limit=-2),
        "profile.table: limit=-2 is not a number of rows",
        "do: pass a whole number, or None for all rows",
    ),
    (
        lambda p, path: p.save(path / "trace.txt"),
        "profile.save: 'trace.txt' has no known suffix",
        SUFFIXES,
    ),
    (
        lambda p, path: p.save(str(path / "trace")),
        "profile.save: 'trace' has no known suffix",
        SUFFIXES,
    ),
]


@pytest.mark.parametrize(("ask", "what", "do"), MESSAGES)
def test_messages(ask: Callable[..., Any], what: str, do: str, tmp_path: Path) -> None:
    """A wrong argument is refused with the right ones; no file is written."""
    with pytest.raises(co.ArgumentError) as caught:
        ask(co.profile(), tmp_path)
    assert str(caught.value) == f"{what}\n  {do}"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("number", "time", "size"),
    [
        (0, "0 ns", "0 B"),
        (999, "999 ns", "999 B"),
        (1000, "1.00 us", "1.00 kB"),
        (9994, "9.99 us", "9.99 kB"),
        (9996, "10.0 us", "10.0 kB"),
        (12345, "12.3 us", "12.3 kB"),
        (123456, "123 us", "123 kB"),
        (999499, "999 us", "999 kB"),
        (999600, "1.00 ms", "1.00 MB"),
        (5 * 10**9, "5.00 s", "5.00 GB"),
        (12 * 10**13, "120000 s", "120 TB"),
    ],
)
def test_units(number: int, time: str, size: str) -> None:
    """Times and sizes are shown with three digits and a unit."""
    assert (show_time(number), show_bytes(number)) == (time, size)


def test_rows_as_numbers(ordered: Any) -> None:
    """`to_dict` has the values of the rows, ready for JSON."""
    found = ordered.to_dict()
    assert json.loads(json.dumps(found)) == found
    assert [row["operator"] for row in found["rows"]] == [
        r.operator for r in ordered.rows
    ]
    assert found["rows"][0] == {
        "operator": "profiled::square",
        "rule": "default kernel",
        "count": 2,
        "errors": 0,
        "total_ns": 10,
        "self_ns": 10,
        "min_ns": 5,
        "mean_ns": 5,
        "max_ns": 5,
        "bytes_in": 48,
        "bytes_out": 48,
        "kinds": ["cpu"],
    }
    rest = {key: value for key, value in found.items() if key != "rows"}
    assert rest == {"wall_ns": 11, "threads": 1, "dropped": 5}
