"""Choose between plain text, colors and JSON."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from importlib.util import find_spec
from pathlib import Path
from typing import TextIO

from customop.cli.plain import Html, Json, Plain, UsageError
from customop.errors import CustomOpError
from customop.progress import Progress, check_channel, progress

COLORS = ("auto", "always", "never")


def make_output(
    stream: TextIO,
    *,
    color: str = "auto",
    as_json: bool = False,
    html: str | None = None,
) -> Plain:
    """Return the output that the options, the environment and the stream select.

    `html` is a file for a page, "" for a page on the stream, or None for no page.

    `NO_COLOR` and `FORCE_COLOR` apply if `color` is ``"auto"``. Source: no-color.org
    and force-color.org, read in 2026: any value but the empty one.

    Raises
    ------
    CustomOpError
        If `color` is ``"always"`` and rich is not installed.
    """
    if html == "":
        return Html(stream)
    output = Json(stream) if as_json else _text_output(stream, color)
    output.page_path = html or ""
    return output


def check_path(option: str, path: str) -> None:
    """Raise before a command runs if the file named by an option cannot be written."""
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).open("a").close()
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{option}: {path!r} cannot be written:"
            f" {getattr(error, 'strerror', None) or error}",
            do="name another file",
        ) from error


def watched(
    options: Namespace, title: str, total: int, *, is_quiet: bool = False
) -> Progress:
    """Show the progress of a command, unless that could disturb a program.

    Programs that read JSON or a page may also read standard error.
    """
    for_program = options.json or options.html == ""
    is_quiet = is_quiet or options.no_progress
    is_quiet = is_quiet or (for_program and not sys.stderr.isatty())
    return progress(title, total, channel=check_channel, is_quiet=is_quiet)


def _text_output(stream: TextIO, color: str) -> Plain:
    """Return an output for text, with colors or without."""
    if color == "auto" and os.environ.get("NO_COLOR"):
        color = "never"
    elif color == "auto" and os.environ.get("FORCE_COLOR"):
        color = "always"
    if find_spec("rich") is None:
        if color == "always":
            raise CustomOpError(
                "--color always needs rich, which is not installed",
                do="pip install 'customop[terminal]', or leave the option out",
            )
        return Plain(stream)
    if not stream.isatty() and color != "always":
        return Plain(stream)
    # Importing rich takes as long as the rest of the command line.
    from customop.cli.colored import Rich  # noqa: PLC0415  # rich is optional

    return Rich(stream, has_colors=color != "never")
