"""Commands and reports, and how they are printed: as plain text or JSON."""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from customop.errors import CustomOpError
from customop.testing.opcheck import OpCheckResult

# ---- how commands print: plain text for pipes, and JSON for programs ----


# Words in tables and lines -> how rich shows them.
STYLES = {
    "own": "green",
    "tags": "cyan",
    "body": "cyan",
    "autograd": "cyan",
    "derived": "cyan",
    "loop": "yellow",
    "fallback": "yellow",
    "hidden": "dim",
    "disabled": "yellow",
    "-": "dim",
    "passed": "green",
    "skipped": "yellow",
    "FAILED": "bold red",
    "ERROR": "bold red",
}


class Plain:
    """Aligned text without colors or line breaks.

    Attributes
    ----------
    page_path : str
        The file for the page of a command; empty if there is none.
    """

    page_path: str = ""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def heading(self, text: str) -> None:
        """Print a line that stands out."""
        self.line(text)

    def line(self, text: str = "", style: str = "") -> None:
        """Print a line unchanged; `style` is one of the words of `STYLES`."""
        self._write(f"{text}\n")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print rows in columns, with a header unless all `columns` are empty."""
        lines = [*([columns] if any(columns) else []), *rows]
        if not lines:
            return
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        for cells in lines:
            padded = [c.ljust(w) for c, w in zip(cells, widths, strict=True)]
            self.line("  ".join(padded).rstrip())

    def source(self, text: str) -> None:
        """Print Python code, indented."""
        for line in text.splitlines():
            self.line(f"  {line}".rstrip())

    def document(self, value: Mapping[str, Any]) -> None:
        """Receive what the command found; only `Json` prints it."""

    def page(self, make: Callable[[], str]) -> None:
        """Write the result as an HTML page, if one is requested."""
        if self.page_path:
            Path(self.page_path).write_text(make(), encoding="utf-8")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class Json(Plain):
    """Output of one JSON document and no text."""

    def line(self, text: str = "", style: str = "") -> None:
        """Print nothing."""

    def document(self, value: Mapping[str, Any]) -> None:
        """Print the document."""
        self._write(json.dumps(value, indent=2) + "\n")


class Html(Plain):
    """Output of one HTML page and no text."""

    def line(self, text: str = "", style: str = "") -> None:
        """Print nothing."""

    def page(self, make: Callable[[], str]) -> None:
        """Print the page."""
        self._write(make())


# ---- the description of one command ----


class UsageError(CustomOpError):
    """The command line has wrong input."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its texts, its arguments and its function.

    Attributes
    ----------
    name : str
    summary : str
        One line, for the list of commands.
    description : str
        The text of `--help`.
    shape : str
        The document of `--json`, with types in place of values.
    add_arguments : callable
        ``add_arguments(parser)`` adds the arguments of this command.
    run : callable
        ``run(options, output)`` prints the result and returns the exit status. It
        prints text, a document and a page; the output keeps those that are requested.
    has_page : bool
        Whether the command makes a page.
    """

    name: str
    summary: str
    description: str
    shape: str
    add_arguments: Callable[[ArgumentParser], None]
    run: Callable[[Namespace, Plain], int]
    has_page: bool = True


# ---- the results of checks, and the reports of operators ----


# Status -> its word in tables, in the order of the counts.
STATUSES = {
    "passed": "passed",
    "failed": "FAILED",
    "error": "ERROR",
    "skipped": "skipped",
    "waived": "waived",
}


class CheckOutcome(NamedTuple):
    """The result of one check of an operator.

    Attributes
    ----------
    check : str
        Name of the check.
    status : str
        One of `STATUSES`; "error" if the check could not run.
    text : str
        A note, the reason for skipping or of the waiver, or the error.
    type : str
        Class of the error, or "".
    seconds : float
    """

    check: str
    status: str
    text: str = ""
    type: str = ""
    seconds: float = 0.0

    @property
    def has_failed(self) -> bool:
        """Return whether the check failed or could not run."""
        return self.status in ("failed", "error")


class Report(NamedTuple):
    """All outcomes of an operator, how long they took, and the result itself."""

    qualname: str
    outcomes: tuple[CheckOutcome, ...]
    seconds: float
    result: OpCheckResult | None = None

    @property
    def status(self) -> str:
        """The worst status among the outcomes."""
        seen = {outcome.status for outcome in self.outcomes}
        worst = ("error", "failed", "passed", "waived")
        return next((s for s in worst if s in seen), "skipped")

    @property
    def has_failed(self) -> bool:
        """Return whether a check failed or could not run."""
        return any(outcome.has_failed for outcome in self.outcomes)


def total(reports: Iterable[Report]) -> dict[str, int]:
    """Return how many outcomes have each status."""
    seen = Counter(o.status for report in reports for o in report.outcomes)
    return {status: seen[status] for status in STATUSES}
