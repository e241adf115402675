"""A profile as a timeline and as collapsed stacks."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import customop as co
from tests.nesting.test_words import (
    by_operator,
)
from tests.profiling._profiled import (
    CLOCK,
    KERNEL,
    PROGRAMS,
    Ticks,
    X,
    _raises,
    bare,
    both,
    composed,
    counts,
    define,
    events_of,
    named,
    square,
    trace_of,
    value_of,
)

# ---- limits ----


@pytest.mark.parametrize("limit", [0, 1, 3, 5])
def test_the_limit_of_events(limit: int, tmp_path: Path) -> None:
    """The first calls to begin are in the timeline; rows and `dropped` count the others."""
    with co.profile(max_events=limit, clock=Ticks()) as p:
        composed(X)
        composed(X)
    names = [e["name"].partition(" ")[0] for e in events_of(p, tmp_path)]
    began = ["composed", "square", "square"] * 2
    assert names == [f"profiled::{name}" for name in began[:limit]]
    assert counts(p) == {("composed", "composite body"): 2, KERNEL: 4}
    assert (p.dropped, p.to_dict()["dropped"]) == (6 - limit, 6 - limit)


@pytest.mark.parametrize("value", [-1, 1.5, True, None, "all"])
def test_a_limit_that_is_none(value: Any) -> None:
    """Any other value than a number of calls is refused."""
    with pytest.raises(co.ArgumentError) as caught:
        co.profile(max_events=value)
    assert str(caught.value) == (
        f"profile: max_events={value!r} is not a number of calls\n"
        "  do: pass a whole number, 0 for rows without a timeline"
    )


# ---- files ----


NEEDED = {
    "M": {"name", "ph", "pid", "tid", "args"},
    "X": {"name", "cat", "ph", "ts", "dur", "pid", "tid", "args"},
    "C": {"name", "ph", "ts", "pid", "args"},
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore:profiled..bare has no vmap rule")
def test_traces_keep_the_rules_of_the_format(name: str, tmp_path: Path) -> None:
    """All events have the fields of their phase, are sorted and nested, and begin at 0."""
    with co.profile(clock=Ticks()) as p:
        PROGRAMS[name][0]()
    events = trace_of(p, tmp_path)["traceEvents"]
    assert all(set(event) == NEEDED[event["ph"]] for event in events)
    starts = [event["ts"] for event in events if event["ph"] != "M"]
    assert starts == sorted(starts)
    assert starts[:1] in ([], [0.0])
    named = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    found = events_of(p, tmp_path)
    assert {event["tid"] for event in found} == set(named)
    assert set(named.values()) <= {threading.current_thread().name}


@pytest.mark.parametrize("word", ["gv", "vg", "gg", "gvi", "vgg"])
def test_a_trace_has_what_the_rows_have(word: str, tmp_path: Path) -> None:
    """A row and the events of its name agree in count and times."""
    with co.profile(clock=Ticks()) as p:
        value_of(word, by_operator)
    spent: dict[str, list[int]] = {}
    for event in events_of(p, tmp_path):
        spent.setdefault(event["name"], []).append(event["dur"])
    rows = {
        f"{r.operator} ({r.rule})": (r.count, r.min_ns, r.max_ns, r.mean_ns)
        for r in p.rows
    }
    assert rows == {
        name: (len(all_of), min(all_of), max(all_of), sum(all_of) // len(all_of))
        for name, all_of in spent.items()
    }


def test_an_outer_event_comes_first(tmp_path: Path) -> None:
    """If two events begin at the same time, the caller comes first."""
    op = define("calls_bare", lambda x: bare(bare(x)), schema="(Array x) -> Array")
    with co.profile(clock=CLOCK) as p:
        op(X)
    names = [e["name"] for e in trace_of(p, tmp_path)["traceEvents"] if e["ph"] == "X"]
    assert [name.partition(" ")[0] for name in names] == [
        "profiled::calls_bare",
        "profiled::bare",
        "profiled::bare",
    ]


def test_the_arguments_of_an_event(tmp_path: Path) -> None:
    """An event shows the arrays in and out, and the error."""
    with co.profile(clock=CLOCK) as p:
        named(X, y=np.ones(3, np.float32), n=2)
        with pytest.raises(KeyError):
            define("raises_anew", _raises)(np.ones((2, 0), bool))
    assert [event["args"] for event in events_of(p, tmp_path)] == [
        {"in": ["f64[3]", "f32[3]"], "out": ["f64[3]", "f64[3]"]},
        {"in": ["bool[2, 0]"], "out": [], "error": "KeyError"},
    ]


def test_the_counter_of_bytes(tmp_path: Path) -> None:
    """It grows when a call that calls no other one ends."""
    with co.profile(clock=Ticks()) as p:
        composed(X)
        both(X, X)
    counters = [e for e in trace_of(p, tmp_path)["traceEvents"] if e["ph"] == "C"]
    assert [e["args"] for e in counters] == [
        {"in": 24, "out": 24},
        {"in": 48, "out": 48},
        {"in": 96, "out": 72},
    ]


def test_threads_have_rows_of_their_own_in_a_trace(tmp_path: Path) -> None:
    """Each thread is named, and its calls nest on their own."""
    with co.profile(threads=True) as p:
        composed(X)
        thread = threading.Thread(target=composed, args=(X,), name="worker")
        thread.start()
        thread.join()
    events = trace_of(p, tmp_path)["traceEvents"]
    named = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    found = [(named[e["tid"]], e["depth"]) for e in events_of(p, tmp_path)]
    main = threading.current_thread().name
    assert found == [
        (main, 0),
        (main, 1),
        (main, 1),
        ("worker", 0),
        ("worker", 1),
        ("worker", 1),
    ]


def test_collapsed_stacks(tmp_path: Path) -> None:
    """A line for each stack with its self time, also for calls not in the timeline."""
    with co.profile(clock=CLOCK, max_events=0) as p:
        composed(X)
        square(X)
    p.save(str(tmp_path / "calls.folded"))
    assert (tmp_path / "calls.folded").read_text(encoding="utf-8") == (
        "profiled::composed (composite body) 1\n"
        "profiled::composed (composite body);profiled::square (default kernel) 10\n"
        "profiled::square (default kernel) 5\n"
    )


@pytest.mark.parametrize("word", ["gv", "vg", "ggg", "gvi"])
def test_collapsed_stacks_sum_up(word: str, tmp_path: Path) -> None:
    """The lines that end in a rule sum to the self time of its row."""
    with co.profile(clock=Ticks()) as p:
        value_of(word, by_operator)
    p.save(tmp_path / "calls.folded")
    sums: dict[str, int] = {}
    for line in (tmp_path / "calls.folded").read_text(encoding="utf-8").splitlines():
        stack, _, own = line.rpartition(" ")
        name = stack.split(";")[-1]
        sums[name] = sums.get(name, 0) + int(own)
    assert sums == {f"{r.operator} ({r.rule})": r.self_ns for r in p.rows}
