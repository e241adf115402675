"""The description of one command."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from dataclasses import dataclass

from customop.cli.plain import Plain
from customop.errors import CustomOpError

__all__ = ["Command", "UsageError"]


class UsageError(CustomOpError):
    """The command line has wrong input."""


@dataclass(frozen=True, slots=True)
class Command:
    """One command: its texts, its arguments and its function.

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
        ``run(options, output)`` prints, and returns the exit status. It prints text,
        a document and a page; the output shows those that are asked for.
    has_page : bool
        Whether it makes a page.
    """

    name: str
    summary: str
    description: str
    shape: str
    add_arguments: Callable[[ArgumentParser], None]
    run: Callable[[Namespace, Plain], int]
    has_page: bool = True
