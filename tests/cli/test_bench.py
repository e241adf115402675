"""The command ``bench``."""

from __future__ import annotations

import re
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.cli import bench
from tests.cli._commands import Run


def test_bench_times_what_there_is(run: Run) -> None:
    """Each call with a rule is a row; inputs are the registered samples."""
    found = run("-m", "cli_ops", "bench", "cli_ops::scale", "--time", "0.0001")
    words = re.sub(r"[+-]?\d+(\.\d+)? (ns|us|ms|x)", "N", found)
    rows = [re.split("  +", line) for line in words.splitlines()]
    timed = [
        ["what", "median", "over the kernel", "of the kernel"],
        ["kernel", "N"],
        *[
            [what, "N", "N", "N"]
            for what in ("op(...)", "op.call(...)", "fake", "forward and backward")
        ],
        ["jvp", "N", "N", "N"],
        ["vmap, 8 rows", "N", "N", "N"],
    ]
    assert rows[: len(timed) + 1] == [["cli_ops::scale(f64[3], 2.0)"], *timed]
    assert rows[len(timed) + 1 :][:2] == [
        [""],
        ["cli_ops::scale(f64[2], factor=0.5)", "# a note"],
    ]


def test_bench_times_compiled_calls_where_asked(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The operator, and its gradient, by the back ends that are installed."""
    monkeypatch.setattr(bench, "_BACKENDS", ("eager", "not_installed"))
    argv = ("bench", "cli_ops::scale", "--samples", "1", "--time", "1e-5", "--compile")
    (sample,) = run.json("-m", "cli_ops", *argv)["samples"]
    times = {m["what"]: m["seconds"] for m in sample["times"]}
    both = "forward and backward, compiled"
    expected = ["compiled", both]
    assert [*times][-len(expected) :] == expected
    assert min(times.values()) > 0


def test_bench_leaves_out_missing_rules(run: Run) -> None:
    """A missing rule, or a loop in place of a vmap rule, is not timed."""
    argv = ("bench", "cli_ops::over.text", "--samples", "1", "--time", "1e-5")
    (sample,) = run.json("-m", "cli_ops", *argv)["samples"]
    assert [m["what"] for m in sample["times"]] == ["kernel", "op(...)", "op.call(...)"]


def test_bench_as_json(run: Run) -> None:
    """Times are numbers; a call that cannot be timed has a reason instead."""
    found = run.json("bench", "np::argmax", "i64[4]", "--time", "1e-5")
    (sample,) = found["samples"]
    assert (found["operator"], sample["call"]) == ("np::argmax", "np::argmax(i64[4])")
    times = {measure["what"]: measure for measure in sample["times"]}
    assert times["kernel"]["reason"] is None
    assert times["kernel"]["seconds"] > 0
    assert times["jvp"] == {
        "what": "jvp",
        "seconds": None,
        "reason": "no argument by position is an array of floats",
    }


def test_bench_takes_the_median(monkeypatch: pytest.MonkeyPatch) -> None:
    """A time is the median over the runs, divided by the calls of a run."""
    calls: list[int] = []
    clock = iter([0.0, 1.0, 1.0, 1.5, *range(2, 40)])

    class Timer:
        def __init__(self, statement: str, **kwargs: Any) -> None:
            assert statement == "fn(a0, k=k0)"

        def timeit(self, number: int) -> float:
            return -next(clock) + next(clock)

        def repeat(self, runs: int, number: int) -> list[float]:
            calls.extend([runs, number])
            return [6.0, 2.0, 4.0, 100.0, 4.0, 1.0, 5.0]

    monkeypatch.setattr(bench.timeit, "Timer", Timer)
    call = partial(len, (), k=1)
    assert bench._seconds(call, 7.0) == 4.0 / 2
    assert calls == [7, 2]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (9.12e-8, "91.2 ns"),
        (5e-10, "0.5 ns"),
        (1.234e-6, "1.23 us"),
        (0.0123, "12.3 ms"),
        (0.9996, "1.00 s"),
        (123.4, "123 s"),
    ],
)
def test_times_have_three_digits(seconds: float, text: str) -> None:
    """A time has three digits and a unit."""
    assert bench._time(seconds) == text


def test_bench_leaves_inputs_alone(run: Run) -> None:
    """An operator that writes is timed on copies, so all times have the same input."""
    run("list", "cli_ops", "-m", "cli_ops")
    x = np.zeros(2)
    sample = co.testing.Sample((x, np.ones(2)))
    options = SimpleNamespace(time=1e-5, compile=True)
    op = co.ops.cli_ops.add_.default
    measures = [
        bench._measured(op, sample, measure, options.time)
        for measure in bench._measures_of(op, options)
    ]
    assert x.tolist() == [0.0, 0.0]
    assert [m["what"] for m in measures if m["seconds"] is not None][:2] == [
        "kernel",
        "op(...)",
    ]
