"""Calls are noted in short, and put in order later: that changes no result."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.profiling import call_tree
from customop.profiling.call_tree import Track
from tests.profiling._profiled import CLOCK, X, define, events_of


def double(x: co.Array) -> co.Array:
    CLOCK.now += 3
    return x * 2.0


def divide(x: co.Array) -> co.Array:
    CLOCK.now += 2
    return x + 1 / 0


twice = define("twice", double)
twice.register_autograd(lambda ctx, g: twice(g))
twice.register_vmap(lambda info, dims, x: (twice(x), dims[0]))
dividing = define("dividing", divide)


def work() -> None:
    """Gradients, rows and errors."""
    for _ in range(3):
        co.grad(lambda x: np.sum(twice(x)))(X)
        co.vmap(lambda v: np.sum(twice(v)))(np.ones((2, 3)))
        with pytest.raises(ZeroDivisionError):
            dividing(X)


def seen(most: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Rows, and the events of a trace but for when they begin."""
    monkeypatch.setattr(call_tree, "_MOST_WAITING", most)
    with co.profile(clock=CLOCK) as p:
        work()
    events = events_of(p, folder)
    keys = ("name", "cat", "dur", "args", "ts")
    first = events[0]["ts"]
    listed = [{**{k: e[k] for k in keys}, "ts": e["ts"] - first} for e in events]
    return sorted(p.rows, key=lambda row: (row.operator, row.rule)), listed


@pytest.mark.parametrize("most", [0, 1, 2, 7])
def test_order_after_any_number_of_calls(
    most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times leave out what it takes to put calls in order, so they are the same."""
    work()
    expected = seen(10_000, tmp_path, monkeypatch)
    begin = Track.begin

    def slowly(*args: Any) -> None:
        CLOCK.now += 100
        begin(*args)

    monkeypatch.setattr(Track, "begin", slowly)
    assert sum(row.count for row in expected[0]) > 20
    assert seen(most, tmp_path, monkeypatch) == expected


def test_rows_while_calls_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may ask at any time; in the end all calls are counted."""
    monkeypatch.setattr(call_tree, "_MOST_WAITING", 5)
    twice(X)
    counts: list[int] = []
    with co.profile() as p:
        asked = threading.Event()

        def ask() -> None:
            while not asked.is_set():
                counts.append(sum(row.count for row in p.rows))

        thread = threading.Thread(target=ask)
        thread.start()
        for _ in range(2000):
            twice(X)
        asked.set()
        thread.join()
    assert counts == sorted(counts)
    assert [row.count for row in p.rows] == [2000]


def test_arrays_do_not_live_longer() -> None:
    """What waits has shapes, not arrays: two calls may use the same memory."""
    places = set()
    with co.profile():
        for _ in range(50):
            out = twice(np.ones(1000))
            places.add(out.ctypes.data)
            del out
    assert len(places) < 50


def test_nested_arrays() -> None:
    """Arrays in tuples and lists, scalars, and rows of a batch with the whole batch."""
    with co.profile() as p:
        np.sum(twice(X))
        co.grad(lambda x: np.sum(np.stack([x, twice(x)])))(X)
        co.vmap(lambda v: np.sum(np.stack([v, v])))(np.ones((2, 3)))
    rows = {(row.operator, row.rule): row for row in p.rows}
    stack = rows["np::stack", "vmap rule"]
    assert (stack.bytes_in, stack.bytes_out, stack.kinds) == (96, 96, ("vmap",))
    total = rows["np::sum", "cpu kernel"]
    assert total.bytes_out == 8 + 16
    assert total.kinds == ("cpu", "scalar")
