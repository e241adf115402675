"""The command line: ``python -m customop`` and ``customop``."""

from __future__ import annotations

import io
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
from contextlib import contextmanager, redirect_stdout
from importlib import metadata
from typing import NoReturn

from customop.cli import (
    benchmarking,
    checking,
    coverage,
    listing,
    showing,
    stubbing,
)
from customop.cli.command import Command, UsageError
from customop.cli.finding import import_target
from customop.cli.output import COLORS, make_output
from customop.errors import CustomOpError, did_you_mean, quoted

__all__ = ["main"]

# All commands, in the order of `--help`. A new one is a module with a COMMAND, and a
# line here.
COMMANDS = {
    command.name: command
    for command in (
        listing.COMMAND,
        showing.SHOW,
        showing.EXPLAIN,
        checking.COMMAND,
        coverage.COMMAND,
        benchmarking.COMMAND,
        stubbing.COMMAND,
    )
}

PASSED, FAILED, MISUSED = 0, 1, 2
# What a shell reports of a program that SIGPIPE or SIGINT has ended.
_BROKEN_PIPE, _INTERRUPTED = 128 + 13, 128 + signal.SIGINT


class _Parser(ArgumentParser):
    """Raises what does not fit, to be told as all other errors are."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(message, do=f"see {self.prog} --help")


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    argv : sequence of str, optional
        What follows the name of the program; that of the process by default.

    Returns
    -------
    int
        0 where all is well, 1 where a check has failed, 2 for an error of the user's.

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
        # Names in other scripts than the terminal knows are no reason to fail.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        status = _run(arguments)
        # A reader that is gone shows here, and not when the interpreter ends.
        sys.stdout.flush()
    except CustomOpError as error:
        if "--traceback" in arguments:
            raise
        sys.stderr.write(f"customop: error: {error}\n")
        return MISUSED
    except BrokenPipeError:
        return _BROKEN_PIPE
    except KeyboardInterrupt:
        return _INTERRUPTED
    return status


def _run(arguments: Sequence[str]) -> int:
    parser = _main_parser()
    try:
        options = parser.parse_args(arguments)
        command = _command(options)
        if command is not None:
            _parser_of(command).parse_args(options.rest, options)
    except SystemExit:  # argparse has printed a help text
        return PASSED
    if options.version:
        sys.stdout.write(f"customop {_version()}\n")
        return PASSED
    if command is None:
        parser.print_help(sys.stderr)
        return MISUSED
    output = make_output(options.color, sys.stdout)
    # What modules and kernels print does not belong to the report.
    with _searching_here(), redirect_stdout(sys.stderr):
        for module in options.imports:
            import_target(module)
        return command.run(options, output)


def _command(options: Namespace) -> Command | None:
    """The command that is named, or None where none is."""
    name = options.command
    if name is not None and name not in COMMANDS:
        raise UsageError(
            f"there is no command '{name}'{did_you_mean(name, COMMANDS)}",
            f"there are {quoted(COMMANDS)}",
            do="see customop --help",
        )
    return None if name is None else COMMANDS[name]


def _version() -> str:
    try:
        return metadata.version("customop")
    except metadata.PackageNotFoundError as error:
        raise UsageError(
            "customop runs from its source and has no version", do="pip install it"
        ) from error


@contextmanager
def _searching_here() -> Iterator[None]:
    """Find modules of the current directory, as `python -m` does."""
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
        epilog=f"commands:\n{listed}\n\n'customop COMMAND --help' tells what each takes.",
        formatter_class=RawDescriptionHelpFormatter,
        parents=[_common()],
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    # Not argparse's own commands: an unknown one is told with a near name.
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
    """Options that stand before a command or behind it."""
    parser = ArgumentParser(add_help=False)
    group = parser.add_argument_group("common options")
    group.add_argument(
        "-m",
        "--import",
        action="append",
        default=[],
        dest="imports",
        metavar="MODULE",
        help="a module, or a file.py, to import first: its operators are known then",
    )
    group.add_argument("--json", action="store_true", help="print JSON, for programs")
    group.add_argument(
        "--color",
        choices=COLORS,
        default="auto",
        help="colours: in a terminal where rich is installed (auto), or as said",
    )
    group.add_argument(
        "--traceback", action="store_true", help="show where an error comes from"
    )
    return parser
