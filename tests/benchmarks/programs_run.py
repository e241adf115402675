"""A run of the whole programs: how it is stored, and shown."""

from __future__ import annotations

import json
from typing import NamedTuple

if __package__:
    from tests.benchmarks.table import show_time
else:
    from table import show_time  # python tests/benchmarks

__all__ = [
    "COMPILED",
    "EAGER",
    "ProgramRun",
    "Times",
    "as_json",
    "as_text",
    "first_calls",
    "later_calls",
    "read_json",
    "slower_than",
]

EAGER, COMPILED = "eager", "compiled"
# "first" or "later" -> library -> seconds.
Times = dict[str, dict[str, float]]
_COLUMNS = {
    "NumPy": "NumPy, value alone",
    EAGER: "eager",
    COMPILED: "compiled",
    "jax": "jax.jit",
    "torch": "torch",
    "HIPS": "HIPS autograd",
}


class ProgramRun(NamedTuple):
    """All programs of one run, with its date and the machine."""

    date: str
    machine: str
    rows: dict[str, Times]


def as_json(run: ProgramRun) -> str:
    """A run as JSON, with a line for each program."""
    rows = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(_rounded(row))}"
        for name, row in run.rows.items()
    )
    head = f'"date": {json.dumps(run.date)}, "machine": {json.dumps(run.machine)}'
    return f'{{{head}, "rows": {{\n{rows}\n}}}}\n'


def _rounded(times: Times) -> Times:
    """Three digits of each number are more than a run repeats."""
    return {
        when: {name: float(f"{seconds:.3g}") for name, seconds in found.items()}
        for when, found in times.items()
    }


def read_json(text: str) -> ProgramRun:
    """The run that `as_json` has written."""
    return ProgramRun(**json.loads(text))


def as_text(name: str, times: Times) -> str:
    """A line for a program: its first calls, and later ones with the ratio to each."""
    first, later = times["first"], times["later"]
    firsts = [f"{n} {show_time(first[n])}" for n in (COMPILED, "jax") if n in first]
    ours = later[COMPILED]
    others = [
        f"{n} {show_time(seconds)} ({ours / seconds:.2f})"
        for n, seconds in later.items()
        if n != COMPILED
    ]
    found = f"{show_time(ours)}; {', '.join(others)}; first {', '.join(firsts)}"
    return f"{name:34} {found}\n"


# ---- pages ----


def later_calls(run: ProgramRun) -> str:
    """A table of later calls, with the ratio of compiled to jax.jit."""
    head = ["program", *_COLUMNS.values(), "compiled / jax.jit"]
    lines = [head, ["---"] + ["---:"] * (len(head) - 1)]
    for name, times in run.rows.items():
        later = times["later"]
        ratio = f"{later[COMPILED] / later['jax']:.2g}"
        lines.append([name, *(_shown(later.get(n)) for n in _COLUMNS), ratio])
    return _as_markdown(lines)


def first_calls(run: ProgramRun) -> str:
    """A table of first calls of what compiles."""
    lines = [["program", "compiled", "jax.jit"], ["---", "---:", "---:"]]
    for name, times in run.rows.items():
        first = times["first"]
        lines.append([name, _shown(first[COMPILED]), _shown(first.get("jax"))])
    return _as_markdown(lines)


def slower_than(run: ProgramRun, peer: str, what: str = COMPILED) -> dict[str, float]:
    """The programs that take more time than a peer needs, with the ratio; worst first."""
    found = {
        name: times["later"][what] / times["later"][peer]
        for name, times in run.rows.items()
        if peer in times["later"]
    }
    slower = {name: ratio for name, ratio in found.items() if ratio > 1.05}
    return dict(sorted(slower.items(), key=lambda item: -item[1]))


def _shown(seconds: float | None) -> str:
    return "" if seconds is None else show_time(seconds)


def _as_markdown(lines: list[list[str]]) -> str:
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)
