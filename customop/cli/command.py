"""What a command of the command line is."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass

from customop.cli.output import Output
from customop.errors import CustomOpError

__all__ = ["Command", "UsageError"]


class UsageError(CustomOpError):
    """What the command line is given does not fit."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command: its texts, its arguments, and what it does.

    Attributes
    ----------
    name : str
    summary : str
        One line, for the list of commands.
    description : str
        What `--help` says below the usage.
    shape : str
        What `--json` prints, as an example with the types of its values.
    add_arguments : callable
        ``add_arguments(parser)`` adds what the command alone takes.
    run : callable
        ``run(options, output)`` prints, and gives the exit status.
    """

    name: str
    summary: str
    description: str
    shape: str
    add_arguments: Callable[[ArgumentParser], None]
    run: Callable[[Namespace, Output], int]
