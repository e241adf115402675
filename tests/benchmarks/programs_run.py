"""A run of the whole programs: how it is stored, and shown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
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
    "in_words",
    "later_calls",
    "ratios",
    "read_json",
]

EAGER, COMPILED = "eager", "compiled"
# "first" or "later" -> library -> seconds.
Times = dict[str, dict[str, float]]
_COLUMNS = {
    "NumPy": "NumPy",
    EAGER: "eager",
    COMPILED: "compiled",
    "jax": "jax.jit",
    "torch": "torch",
    "HIPS": "HIPS",
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


def later_calls(run: ProgramRun, names: Sequence[str] | None = None) -> str:
    """A table of later calls in ms."""
    rows = {name: run.rows[name]["later"] for name in names or run.rows}
    return _table([*_COLUMNS.values()], {n: _ms(t, _COLUMNS) for n, t in rows.items()})


def ratios(run: ProgramRun) -> str:
    """A table of what is compiled as a part of the time of each peer."""
    peers = {name: title for name, title in _COLUMNS.items() if name != COMPILED}
    rows = {}
    for program, times in run.rows.items():
        ours, later = times["later"][COMPILED], times["later"]
        rows[program] = [_digits(ours / later[p]) if p in later else "" for p in peers]
    return _table([*peers.values()], rows)


def first_calls(run: ProgramRun) -> str:
    """A table of first calls in ms, of what compiles."""
    kinds = (COMPILED, "jax")
    rows = {name: _ms(times["first"], kinds) for name, times in run.rows.items()}
    return _table([_COLUMNS[kind] for kind in kinds], rows)


def _table(head: Sequence[str], rows: Mapping[str, Sequence[str]]) -> str:
    lines = [["program", *head], ["---"] + ["---:"] * len(head)]
    lines += [[name, *cells] for name, cells in rows.items()]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _ms(times: Mapping[str, float], names: Iterable[str]) -> list[str]:
    return [_digits(times[name] * 1e3) if name in times else "" for name in names]


def _digits(value: float) -> str:
    """A number with two digits, or more before the point."""
    return f"{value:.0f}" if value >= 9.95 else f"{value:.2g}"


def in_words(run: ProgramRun, most: int | None = None) -> str:
    """Where JAX and torch are faster and by how much, and the machine.

    With `most`, only so many programs are named for each.
    """
    firsts = [t["first"][COMPILED] / t["first"]["jax"] for t in run.rows.values()]
    return (
        f"It is not faster everywhere. {_faster(run, 'jax', 'jax.jit', most)}"
        f" {_faster(run, 'torch', 'torch', most)} The first call of a compiled function takes"
        f" {min(firsts):.2f} to {max(firsts):.2f} of the time of that of jax.jit. Measured on"
        f" {run.date} in one run, on one core, in processor time; compare the times in a row:"
        f" {run.machine}"
    )


def _faster(run: ProgramRun, peer: str, name: str, most: int | None) -> str:
    """The programs on which a peer needs less time than what is compiled; worst first."""
    ratios = {
        program: times["later"][COMPILED] / times["later"][peer]
        for program, times in run.rows.items()
        if peer in times["later"]
    }
    slower = sorted((ratio, p) for p, ratio in ratios.items() if ratio > 1.05)[::-1]
    if not slower:
        return f"{name} is not faster than compiled on any of {len(ratios)} programs."
    shown = [f"{ratio:.2g} times on {_in_brackets(p)}" for ratio, p in slower[:most]]
    rest = len(slower) - len(shown)
    if rest:
        shown.append(f"{slower[len(shown)][0]:.2g} times or less on {rest} others")
    return (
        f"{name} is faster than compiled on {len(slower)} of {len(ratios)} programs:"
        f" {', '.join(shown)}."
    )


def _in_brackets(program: str) -> str:
    """The name of a program for a list: ``RNN (50 steps)``."""
    name, _, rest = program.partition(", ")
    return f"{name} ({rest})" if rest else name
