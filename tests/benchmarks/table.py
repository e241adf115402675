"""The table of budgets: rows as measured, and how they are printed."""

from __future__ import annotations

import datetime as dt
import json
import platform
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

__all__ = [
    "Limit",
    "Row",
    "Run",
    "as_json",
    "as_markdown",
    "as_text",
    "at_most",
    "machine",
    "over",
    "ratio",
    "read_json",
    "show_time",
    "shown",
    "this_run",
    "today",
]

_HEAD = ("what", "ours", "against", "measured", "budget", "met", "others")
_PACKAGES = ("numpy", "optree", "autograd", "torch", "plum-dispatch", "jax")
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"), (1e-9, "ns"))


@dataclass(frozen=True, slots=True)
class Limit:
    """A budget, relative to another statement.

    Attributes
    ----------
    form : str
        ``"ratio"`` of ours to the other, ours ``"over"`` the other in seconds, or
        ``"at most"`` for ours alone, in seconds.
    most : float or None
        None for a comparison without a budget.
    """

    form: str
    against: str
    most: float | None

    def value(self, ours: float, other: float | None) -> float | None:
        """The value to compare with `most`; None without the other statement."""
        if self.form == "at most":
            return ours
        if other is None:
            return None
        return ours / other if self.form == "ratio" else ours - other

    def show(self, value: float | None, unit: str = "s") -> str:
        """A value of this form, as it is printed."""
        if value is None:
            return ""
        if self.form == "ratio":
            return f"{value:.3g} x"
        return f"{show_time(value)} over" if self.form == "over" else shown(value, unit)


def ratio(against: str, most: float | None) -> Limit:
    """Ours is at most `most` times the other."""
    return Limit("ratio", against, most)


def over(against: str, most: float | None) -> Limit:
    """Ours is at most `most` seconds over the other."""
    return Limit("over", against, most)


def at_most(most: float) -> Limit:
    """Ours takes at most `most` seconds."""
    return Limit("at most", "", most)


@dataclass(frozen=True, slots=True)
class Row:
    """One budget, as measured."""

    what: str
    limit: Limit
    ours: float
    # Seconds of the other statement; None where it is not installed.
    other: float | None = None
    others: Mapping[str, float] = field(default_factory=dict)
    # What ours and the other are measured in: seconds, or bytes ("B").
    unit: str = "s"

    @property
    def value(self) -> float | None:
        """The measured value; None where the other statement is missing."""
        return self.limit.value(self.ours, self.other)

    @property
    def met(self) -> str:
        """Whether the budget holds."""
        if self.value is None or self.limit.most is None:
            return ""
        return "yes" if self.value <= self.limit.most else "NO"

    def cells(self) -> tuple[str, ...]:
        """The row as text, in the order of the head."""
        against = self.limit.against
        if against and self.other is not None:
            against = f"{against} {self._show(self.other)}"
        measured = self.limit.show(self.value, self.unit)
        if self.value is None:
            measured = f"not measured: {against} is not installed"
        others = ", ".join(f"{name} {show_time(t)}" for name, t in self.others.items())
        budget = self.limit.show(self.limit.most, self.unit)
        cells = (self.what, self._show(self.ours), against, measured)
        return (*cells, budget, self.met, others)

    def beside(self, peers: Mapping[str, float]) -> Iterator[tuple[str, ...]]:
        """A line for each peer, with the ratio to it; the first line names the row."""
        head = (self.what, self._show(self.ours))
        for name, value in peers.items():
            yield (*head, name, self._show(value), f"{self.ours / value:.2g}")
            head = ("", "")
        if not peers:
            yield (*head, "", "", "")

    def _show(self, value: float) -> str:
        return shown(value, self.unit)


def shown(value: float, unit: str) -> str:
    """A time in seconds, or memory in bytes, with a unit that fits."""
    return show_time(value) if unit == "s" else f"{value / 1e6:.3g} MB"


def show_time(seconds: float) -> str:
    """A time with three digits and the unit that fits."""
    for size, unit in _UNITS:
        if abs(seconds) >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.2g} ns"


def as_text(rows: Iterable[Row]) -> list[str]:
    """Lines of the table, with its columns aligned."""
    lines = [_HEAD, *(row.cells() for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return [_aligned(cells, widths).rstrip() for cells in lines]


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(c.ljust(w) for c, w in zip(cells, widths, strict=True))


class Run(NamedTuple):
    """All rows of one run, with its date and the machine."""

    date: str
    machine: str
    rows: list[Row]


def this_run(rows: Iterable[Row]) -> Run:
    """The run that ends now, on this machine."""
    return Run(today(), machine(), list(rows))


def today() -> str:
    """The date of a run that ends now."""
    return dt.datetime.now(dt.UTC).date().isoformat()


def as_markdown(run: Run) -> str:
    """Ours and each peer with the ratio, the machine and the date, as Markdown."""
    found: dict[str, tuple[Row, dict[str, float]]] = {}
    for row in run.rows:
        _, peers = found.setdefault(row.what, (row, {}))
        peers |= {} if row.other is None else {row.limit.against: row.other}
        peers |= row.others
    lines = [("what", "ours", "peer", "its time", "ours / peer"), ("---",) * 5]
    for row, peers in found.values():
        lines += row.beside(peers)
    table = "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
    return f"{table}\n\n{run.machine}\nMeasured on {run.date}.\n"


def as_json(run: Run) -> str:
    """A run as JSON, with a line for each row; times in seconds, memory in bytes."""
    rows = ",\n".join(json.dumps(_rounded(asdict(row))) for row in run.rows)
    head = f'"date": {json.dumps(run.date)}, "machine": {json.dumps(run.machine)}'
    return f'{{{head}, "rows": [\n{rows}\n]}}\n'


def _rounded(value: object) -> object:
    """Four digits of each number are more than a run repeats."""
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value


def read_json(text: str) -> Run:
    """The run that `as_json` has written."""
    found = json.loads(text)
    rows = [Row(**row | {"limit": Limit(**row["limit"])}) for row in found["rows"]]
    return Run(found["date"], found["machine"], rows)


def machine() -> str:
    """Versions and processor of the measurement."""
    found = [f"Python {platform.python_version()}"]
    for name in _PACKAGES:
        try:
            found.append(f"{name} {metadata.version(name)}")
        except metadata.PackageNotFoundError:
            found.append(f"{name} not installed")
    return f"{', '.join(found)}; {_processor()}, {sys.platform}."


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        return platform.processor() or platform.machine()
    lines = cpuinfo.read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    return f"{models[0]}, {len(models)} cores" if models else platform.machine()
