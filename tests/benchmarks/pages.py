"""Put the figures of the stored runs into the pages that show them.

``python tests/benchmarks --update`` on a quiet machine measures single calls, stores the run
as `examples/guide/benchmarks.json`, and renews these pages. ``python
tests/benchmarks/comparison.py --update`` does so with whole programs and `programs.json`.
``python tests/benchmarks/pages.py`` only does the last step. The site draws its plots from
the same files.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

if __package__:
    from tests.benchmarks import programs_run
    from tests.benchmarks.programs_run import ProgramRun
    from tests.benchmarks.table import Run, as_markdown, read_json
else:  # python tests/benchmarks
    import programs_run
    from programs_run import ProgramRun
    from table import Run, as_markdown, read_json

__all__ = ["PAGES", "PROGRAMS", "RUN", "Stored", "stored", "update"]

_ROOT = Path(__file__).parents[2]
RUN = _ROOT / "examples/guide/benchmarks.json"
PROGRAMS = _ROOT / "examples/guide/programs.json"


class Stored(NamedTuple):
    """The stored runs: of single calls, and of whole programs."""

    run: Run
    programs: ProgramRun


class Comparison(NamedTuple):
    """A row of the comparison with others: the row of the run, and a peer a column."""

    what: str
    torch: Mapping[str, str]
    jax: Mapping[str, str] = {}
    autograd: Mapping[str, str] = {}


# Programs of the front pages.
SHOWN = (
    "RNN, 50 steps",
    "VAE step, 128 rows",
    "attention, 16 x 16, 32 bits",
    "per-sample gradients, 256",
    "ODE, 25 steps unrolled",
    "Kalman filter, scan of 100",
    "Navier-Stokes, 64 x 64",
    "HMC, 64 chains",
    "Gaussian process, 200",
    "Sinkhorn, 100 iterations",
)

# In the cell of a library: the name of the timing -> the words before it.
_COMPARISONS = {
    "call of an empty kernel": Comparison(
        "call, array and default float, an empty kernel", {"torch": ""}
    ),
    "gradient of `op(x).sum()`, 3 elements": Comparison(
        "grad of op(x).sum(), 3 elements", {"torch": ""}, {}, {"HIPS autograd": ""}
    ),
    "`vmap` of an operator with a rule": Comparison(
        "vmap(op)(x) with a rule", {"torch": ""}, {"jax": ""}
    ),
    "call on arrays without data": Comparison(
        "fake call",
        {"torch": ""},
        {"jax, from its cache": "", "jax, new function": "new function "},
    ),
    "capture with symbolic sizes, each operator": Comparison(
        "tracing, symbolic sizes", {"torch": ""}, {"jax": ""}
    ),
    "import, after NumPy": Comparison("import, once NumPy is there", {"torch": ""}),
}


def timings(run: Run, what: str) -> dict[str, float]:
    """Everything that was measured under a name; ours is "ours"."""
    found: dict[str, float] = {}
    for row in run.rows:
        if row.what == what:
            found |= {"ours": row.ours, **row.others}
            if row.other is not None:
                found[row.limit.against] = row.other
    return found


def _short(seconds: float) -> str:
    """A time with two or three digits, in us or s."""
    if seconds > 5e-3:
        return f"{seconds:.2f} s"
    us = seconds * 1e6
    return (
        f"{us:.2f} us" if us < 1 else f"{us:.0f} us" if us >= 9.95 else f"{us:.1f} us"
    )


def _comparison(run: Run, label: str) -> str:
    found, row = timings(run, _COMPARISONS[label].what), _COMPARISONS[label]
    cells = [f"| {label} | **{_short(found['ours'])}** |"]
    for peers in (row.torch, row.jax, row.autograd):
        shown = [before + _short(found[name]) for name, before in peers.items()]
        cells.append(f" {', '.join(shown)} |" if shown else " |")
    return "".join(cells)


def _measured(run: Run) -> str:
    """What is not faster, and on which machine this is so."""
    start = "grad of 100 times "
    rows = [
        row.ours / row.other
        for row in run.rows
        if row.what.startswith(start) and row.other is not None
    ]
    slices = timings(run, f"{start}slices")
    words = (
        "Gradients of plain NumPy code that is not compiled take"
        f" {min(rows):.1f} to {max(rows):.1f} of the time with HIPS autograd, and code full of"
        f" slices {slices['ours'] / slices['torch']:.2f} times the time of eager torch."
        f" Measured on {run.date}, each beside its peers in one run: {run.machine}"
    )
    return _filled(words)


def _between(mark: str, text: str, new: str) -> str:
    """The text with what stands between two comments replaced."""
    start, end = f"<!-- {mark} -->\n", f"<!-- /{mark} -->"
    before, found, rest = text.partition(start)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"no lines between {start.strip()} and {end}")
    return before + start + new + end + after


def _programs(runs: Stored) -> str:
    """The programs that the front pages show, and where others are faster."""
    run = runs.programs
    table = programs_run.later_calls(run, SHOWN)
    return f"{table}\n{_filled(programs_run.in_words(run, 4))}"


def _filled(words: str) -> str:
    return textwrap.fill(words, 100, break_on_hyphens=False) + "\n"


def _costs(runs: Stored, text: str) -> str:
    run = runs.programs
    text = _between("benchmarks", text, as_markdown(runs.run))
    text = _between("later", text, programs_run.later_calls(run))
    text = _between("words", text, _filled(programs_run.in_words(run)))
    text = _between("ratios", text, programs_run.ratios(run))
    return _between("first", text, programs_run.first_calls(run))


def _compared(runs: Stored, text: str) -> str:
    for label in _COMPARISONS:
        line = rf"^\| {re.escape(label)} \|.*$"
        new = _comparison(runs.run, label)
        text, count = re.subn(line, new, text, flags=re.MULTILINE)
        if count != 1:
            raise ValueError(f"the page has {count} rows '{label}'")
    text = _between("programs", text, _programs(runs))
    return _between("measured", text, _measured(runs.run))


# Page -> what makes its text of the runs and its text of before.
PAGES: dict[str, Callable[[Stored, str], str]] = {
    "examples/guide/costs.md": _costs,
    "README.md": _compared,
    "examples/site/index.md": _compared,
}


def stored() -> Stored:
    """The runs that lie beside the guide."""
    return Stored(
        read_json(RUN.read_text(encoding="utf-8")),
        programs_run.read_json(PROGRAMS.read_text(encoding="utf-8")),
    )


def update() -> None:
    """Renew the figures of all pages."""
    runs = stored()
    for name, renewed in PAGES.items():
        path = _ROOT / name
        path.write_text(renewed(runs, path.read_text("utf-8")), encoding="utf-8")


if __name__ == "__main__":
    update()
