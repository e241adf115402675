"""Output in colours, by rich."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from customop.cli.outcomes import STATUSES
from customop.cli.output import STYLES, Plain

__all__ = ["Rich"]

# Columns that are wider than this are wrapped, down to it where need be.
_NARROW = 20


class Rich(Plain):
    """Text in colours, wrapped to the width of the terminal."""

    def __init__(self, stream: TextIO, *, has_colors: bool) -> None:
        super().__init__(stream)
        # It draws into a string: the stream, and when it breaks, is our own affair.
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
        self._stream.write(drawn.get())
        self._stream.flush()

    def _text(self, text: str, style: str = "") -> Text:
        return Text(text, style=STYLES.get(style, style))

    def heading(self, text: str) -> None:
        """Print the line in bold."""
        self._draw(self._text(text, "bold"))

    def line(self, text: str = "", style: str = "") -> None:
        """Print the text, in the colour of a word."""
        if style:
            self._draw(self._text(text, style))
        else:
            super().line(text)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print columns; the wide ones are wrapped where the terminal is narrow."""
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
        # Where nothing helps the terminal breaks the lines: their text stays whole.
        self._draw(table, 0 if fits else sum(widths) + 2 * len(widths))

    def _cell(self, index: int, text: str) -> Text:
        is_title = index == 0 and text not in STATUSES.values()
        return self._text(text, "" if is_title else STYLES.get(text, ""))

    def source(self, text: str) -> None:
        """Print the code as an editor shows it."""
        code = Syntax(
            text.rstrip(),
            "python",
            theme="ansi_dark",
            background_color="default",
            word_wrap=True,
        )
        self._draw(Padding(code, (0, 0, 0, 2)))

    def document(self, value: Mapping[str, Any]) -> None:
        """Print JSON without colours: programs read it."""
        Plain(self._stream).document(value)


def _width(stream: TextIO) -> int | None:
    """Columns of the terminal that a stream is; None for what rich finds."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(stream.fileno()).columns or None
    except (OSError, ValueError):  # no terminal, or no file at all
        return None
