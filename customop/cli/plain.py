"""How commands print: plain text for pipes, and JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

__all__ = ["STYLES", "Html", "Json", "Plain"]

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
        The file for the page of a command; empty for none.
    """

    page_path: str = ""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def heading(self, text: str) -> None:
        """Print a line that stands out."""
        self.line(text)

    def line(self, text: str = "", style: str = "") -> None:
        """Print a line as it is; `style` is one of the words of `STYLES`."""
        self._write(f"{text}\n")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print rows in columns; without a header where all `columns` are empty."""
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
        """Take what the command found; only `Json` prints it."""

    def page(self, make: Callable[[], str]) -> None:
        """Write what was found as a page in HTML, if one is asked for."""
        if self.page_path:
            Path(self.page_path).write_text(make(), encoding="utf-8")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class Json(Plain):
    """One JSON document and no text."""

    def line(self, text: str = "", style: str = "") -> None:
        """Print nothing."""

    def document(self, value: Mapping[str, Any]) -> None:
        """Print the document."""
        self._write(json.dumps(value, indent=2) + "\n")


class Html(Plain):
    """One page in HTML and no text."""

    def line(self, text: str = "", style: str = "") -> None:
        """Print nothing."""

    def page(self, make: Callable[[], str]) -> None:
        """Print the page."""
        self._write(make())
