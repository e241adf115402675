"""Colored output, printed by rich."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from typing import TextIO

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from customop.cli.plain import STATUSES, STYLES, Plain

# Wider columns may be wrapped, but never to fewer characters than this.
_NARROW = 20


class Rich(Plain):
    """Text in colors, wrapped to the width of the terminal."""

    def __init__(self, stream: TextIO, *, has_colors: bool) -> None:
        super().__init__(stream)
        # Draw into a string, so that a broken pipe raises in `_write`.
        self._console = Console(
            file=io.StringIO(),
            force_terminal=True,
            color_system="auto" if has_colors else None,
            no_color=not has_colors,
            highlight=False,
            width=_width(stream),
        )
        self._columns = self._console.width

    def _draw(self, drawing: RenderableType, width: int = 0) -> None:
        self._console.width = max(width, self._columns)
        with self._console.capture() as drawn:
            self._console.print(drawing)
        self._write(drawn.get())

    def _text(self, text: str, style: str = "") -> Text:
        return Text(text, style=STYLES.get(style, style))

    def heading(self, text: str) -> None:
        """Print the line in bold."""
        self._draw(self._text(text, "bold"))

    def line(self, text: str = "", style: str = "") -> None:
        """Print a line in the color of a style."""
        if style:
            self._draw(self._text(text, style))
        else:
            super().line(text)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print rows; wrap wide columns if the terminal is narrow."""
        if not rows:
            return
        lines = [columns, *rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        wraps = [i > 0 and width > _NARROW for i, width in enumerate(widths)]
        table = Table(
            box=None,
            pad_edge=False,
            padding=(0, 2, 0, 0),
            show_header=any(columns),
            header_style="bold",
        )
        for title, wrapped in zip(columns, wraps, strict=True):
            table.add_column(title, no_wrap=not wrapped, overflow="fold")
        for cells in rows:
            table.add_row(*[self._cell(i, cell) for i, cell in enumerate(cells)])
        kept = [_NARROW if w else n for w, n in zip(wraps, widths, strict=True)]
        fits = sum(kept) + 2 * (len(kept) - 1) <= self._columns
        # A table that cannot fit keeps each row on one line.
        self._draw(table, 0 if fits else sum(widths) + 2 * len(widths))

    def _cell(self, index: int, text: str) -> Text:
        is_title = index == 0 and text not in STATUSES.values()
        return self._text(text, "" if is_title else STYLES.get(text, ""))

    def source(self, text: str) -> None:
        """Print Python code with its syntax in colors."""
        code = Syntax(
            text.rstrip(),
            "python",
            theme="ansi_dark",
            background_color="default",
            word_wrap=True,
        )
        self._draw(Padding(code, (0, 0, 0, 2)))


def _width(stream: TextIO) -> int | None:
    """Return the width of the terminal, or None to let rich find it."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError):  # not a terminal, or not a file
        return None
