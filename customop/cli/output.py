"""Choose between plain text, colors and JSON."""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TextIO

from customop.cli.plain import Json, Plain
from customop.errors import CustomOpError

__all__ = ["COLORS", "make_output"]

COLORS = ("auto", "always", "never")


def make_output(stream: TextIO, *, color: str = "auto", as_json: bool = False) -> Plain:
    """The output that the options, the environment and the stream ask for.

    `NO_COLOR` and `FORCE_COLOR` count where `color` is ``"auto"``. Source:
    no-color.org and force-color.org, read in 2026: any value but the empty one.

    Raises
    ------
    CustomOpError
        If `color` is ``"always"`` and rich is not installed.
    """
    if as_json:
        return Json(stream)
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
    # It takes as long to import as the rest of the command line.
    from customop.cli.colored import Rich  # noqa: PLC0415  # rich is optional

    return Rich(stream, has_colors=color != "never")
