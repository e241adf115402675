"""The command line: ``python -m customop`` and ``customop``.

It may import every folder but `mypy` and `pytest`. Start with `plain`, then one of
the commands, such as `show`. A new command is a module with a `Command` and a row
of the table below.
"""

from __future__ import annotations

import io
import os
import signal
import sys
from argparse import (
    REMAINDER,
    SUPPRESS,
    ArgumentParser,
    Namespace,
    RawDescriptionHelpFormatter,
)
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from importlib import metadata
from typing import NoReturn

from customop.cli import bench, check, show
from customop.cli.output import COLORS, check_path, make_output
from customop.cli.plain import Command, UsageError
from customop.cli.targets import import_target
from customop.errors import CustomOpError, did_you_mean, quoted

__all__ = ["main"]

# In the order of `--help`.
COMMANDS = {
    command.name: command
    for command in (
        show.LIST,
        show.SHOW,
        show.EXPLAIN,
        check.COMMAND,
        show.COVERAGE,
        bench.COMMAND,
        show.STUBS,
    )
}

PASSED, MISUSED = 0, 2
# The statuses that shells report for SIGPIPE and SIGINT.
_BROKEN_PIPE, _INTERRUPTED = 128 + 13, 128 + signal.SIGINT


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    argv : sequence of str, optional
        The words after the name of the program; by default those of the process.

    Returns
    -------
    int
        0 for success, 1 if a check failed, 2 for wrong input.

    Examples
    --------
    >>> from customop.cli import main
    >>> main(["explain", "np::sin", "f64[3]"])
    np::sin(f64[3])
      np::sin(Array x) -> Array
      takes the default kernel from ...
    0
    """
    arguments = sys.argv[1:] if argv is None else argv
    if argv is None and isinstance(sys.stdout, io.TextIOWrapper):
        # Print characters that the terminal cannot show as escapes.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status = _run(arguments)
        # Raise BrokenPipeError here, not when the interpreter ends.
        sys.stdout.flush()
    except CustomOpError as error:
        if "--traceback" in arguments:
            raise
        # A word that is not text has lone surrogates, which some streams refuse.
        text = str(error).encode(errors="backslashreplace").decode()
        sys.stderr.write(f"customop: error: {text}\n")
        return MISUSED
    except BrokenPipeError:
        _drop_output()
        return _BROKEN_PIPE
    except KeyboardInterrupt:
        return _INTERRUPTED
    return status


def _drop_output() -> None:
    """Discard what is left in the buffer, or the interpreter complains at exit.

    Source: the note on SIGPIPE in the documentation of Python's `signal`.
    """
    with suppress(OSError):  # a stream of a test has no file
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(arguments: Sequence[str]) -> int:
    parser = _main_parser()
    try:
        options = parser.parse_args(arguments)
        command = _command(options)
        if command is not None:
            _parser_of(command).parse_args(options.rest, options)
    except SystemExit:  # argparse printed a help text
        return PASSED
    if options.version:
        sys.stdout.write(f"customop {_version()}\n")
        return PASSED
    if command is None:
        parser.print_help(sys.stderr)
        return MISUSED
    if options.html is not None:
        _check_page(command, options)
    output = make_output(
        sys.stdout, color=options.color, as_json=options.json, html=options.html
    )
    # Keep what modules and kernels print out of the report.
    with _searching_here(), redirect_stdout(sys.stderr):
        for module in options.imports:
            import_target(module)
        return command.run(options, output)


def _command(options: Namespace) -> Command | None:
    """Return the command that the options name, or None."""
    name = options.command
    if name is not None and name not in COMMANDS:
        raise UsageError(
            f"there is no command '{name}'{did_you_mean(name, COMMANDS)}",
            f"there are {quoted(COMMANDS)}",
            do="see customop --help",
        )
    return None if name is None else COMMANDS[name]


def _check_page(command: Command, options: Namespace) -> None:
    """Raise if the command has no page, or the page cannot be written."""
    path: str = options.html
    if not command.has_page:
        raise UsageError(f"customop {command.name} has no page", do="leave out --html")
    if path == "" and options.json:
        raise UsageError(
            "--html and --json would both print to standard output",
            do="name a file for the page: --html page.html",
        )
    if path:
        check_path("--html", path)


def _page_path(text: str) -> str:
    """Return the file of a page; refuse a word that is likely another argument."""
    if text and not text.lower().endswith((".html", ".htm")):
        raise UsageError(
            f"--html: {text!r} does not end in .html",
            do="name such a file, or write --html last to print the page",
        )
    return text


def _version() -> str:
    try:
        return metadata.version("customop")
    except metadata.PackageNotFoundError as error:
        raise UsageError(
            "customop is not installed, so it has no version",
            do="install it: pip install -e .",
        ) from error


@contextmanager
def _searching_here() -> Iterator[None]:
    """Allow imports from the current directory, as `python -m` does."""
    before = sys.path.copy()
    if not sys.flags.safe_path and "" not in sys.path:
        sys.path.insert(0, "")
    try:
        yield
    finally:
        sys.path[:] = before


# ---- the parsers ----


def _main_parser() -> ArgumentParser:
    listed = "\n".join(f"  {c.name:<10} {c.summary}" for c in COMMANDS.values())
    parser = _Parser(
        "customop",
        usage="customop [options] COMMAND ...",
        description="Look at custom operators, check them and time them.",
        epilog=f"commands:\n{listed}\n\n'customop COMMAND --help' shows its options.",
        formatter_class=RawDescriptionHelpFormatter,
        parents=[_common()],
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    # argparse's own subcommands would not suggest a near name.
    parser.add_argument("command", nargs="?", help=SUPPRESS)
    parser.add_argument("rest", nargs=REMAINDER, help=SUPPRESS)
    return parser


def _parser_of(command: Command) -> ArgumentParser:
    parser = _Parser(
        f"customop {command.name}",
        description=command.description,
        epilog=f"--json prints:\n{command.shape}",
        formatter_class=RawDescriptionHelpFormatter,
        parents=[_common()],
    )
    command.add_arguments(parser)
    return parser


def _common() -> ArgumentParser:
    """Return a parser for the options that may come before or after a command."""
    parser = ArgumentParser(add_help=False)
    group = parser.add_argument_group("common options")
    group.add_argument(
        "-m",
        "--import",
        action="append",
        default=[],
        dest="imports",
        metavar="MODULE",
        help="a module or file.py to import first, for its operators",
    )
    group.add_argument("--json", action="store_true", help="print JSON")
    group.add_argument(
        "--html",
        nargs="?",
        const="",
        type=_page_path,
        metavar="FILE",
        help="print a page in HTML; with FILE, print text and write the page to FILE",
    )
    group.add_argument(
        "--color",
        choices=COLORS,
        default="auto",
        help="colors; auto: in a terminal, if rich is installed",
    )
    group.add_argument(
        "--no-progress",
        action="store_true",
        help="do not show how far long work is, on standard error",
    )
    group.add_argument(
        "--traceback", action="store_true", help="show the traceback of an error"
    )
    return parser


class _Parser(ArgumentParser):
    """A parser that raises, so that its errors are printed like all others."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, do=f"see {self.prog} --help")
