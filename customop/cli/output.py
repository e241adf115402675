"""How commands print: coloured in a terminal, plain text in a pipe, or JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol, TextIO

from customop.errors import CustomOpError

__all__ = ["COLORS", "STYLES", "Output", "Plain", "count", "make_output"]

COLORS = ("auto", "always", "never")

# Words that tables and lines are made of -> how rich shows them.
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
    "yes": "green",
    "no": "red",
}


class Output(Protocol):
    """Where a command prints to."""

    def heading(self, text: str) -> None:
        """Print a line that stands out."""

    def line(self, text: str = "", style: str = "") -> None:
        """Print text as it is; `style` is one of the words of `STYLES`."""

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print rows in columns; without titles where `columns` are empty."""

    def source(self, text: str) -> None:
        """Print Python code."""

    def document(self, value: Mapping[str, Any]) -> None:
        """Print JSON."""


class Plain:
    """Aligned text without colours, lines as long as they are."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def heading(self, text: str) -> None:
        """Print the line as it is."""
        self.line(text)

    def line(self, text: str = "", style: str = "") -> None:
        """Print the text as it is."""
        self._stream.write(f"{text}\n")
        self._stream.flush()

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print columns two spaces apart."""
        lines = [*([columns] if any(columns) else []), *rows]
        if not lines:
            return
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        for cells in lines:
            padded = [c.ljust(w) for c, w in zip(cells, widths, strict=True)]
            self.line("  ".join(padded).rstrip())

    def source(self, text: str) -> None:
        """Print the code, indented."""
        for line in text.splitlines():
            self.line(f"  {line}".rstrip())

    def document(self, value: Mapping[str, Any]) -> None:
        """Print JSON, as every output does."""
        self.line(json.dumps(value, indent=2))


def count(number: int, noun: str) -> str:
    """``"1 operator"``, ``"2 operators"``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def make_output(color: str, stream: TextIO) -> Output:
    """The output that `--color`, the environment and the stream ask for.

    `NO_COLOR` and `FORCE_COLOR` count where `--color` is ``"auto"``. Source:
    no-color.org and force-color.org, read in 2026: any value but the empty one.

    Raises
    ------
    CustomOpError
        If colours are demanded and rich is not installed.
    """
    is_terminal = stream.isatty()
    if color == "auto" and os.environ.get("NO_COLOR"):
        color = "never"
    elif color == "auto" and os.environ.get("FORCE_COLOR"):
        color = "always"
    has_rich = find_spec("rich") is not None
    if color == "always" and not has_rich:
        raise CustomOpError(
            "--color always needs rich, which is not installed",
            do="pip install 'customop[terminal]', or leave the option out",
        )
    if not has_rich or not (is_terminal or color == "always"):
        return Plain(stream)
    # Imported where it is used: it takes as long as the rest of the command line.
    colored = import_module("customop.cli.colored")
    found: Output = colored.Rich(stream, has_colors=color != "never")
    return found
