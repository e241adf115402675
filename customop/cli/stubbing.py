"""``customop stubs``: what type checkers without a plugin know of operators."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from customop.cli.command import Command
from customop.cli.finding import import_target
from customop.cli.output import Output
from customop.stubgen.stubs import check_stubs, write_stubs

__all__ = ["COMMAND"]


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "modules",
        nargs="+",
        metavar="MODULE",
        help="a module, a package or a file.py that defines operators",
    )
    parser.add_argument(
        "--out",
        default="typings",
        metavar="DIR",
        help="the folder of stubs (typings, where pyright looks by itself)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing; print how the stubs differ, with status 1 if they do",
    )


def _run(options: Namespace, output: Output) -> int:
    modules = [import_target(target).__name__ for target in options.modules]
    if options.check:
        return _compare(options, output, modules)
    written = [str(path) for path in write_stubs(modules, options.out)]
    if options.json:
        output.document({"written": written, "differences": ""})
        return 0
    for path in written:
        output.line(path)
    return 0


def _compare(options: Namespace, output: Output, modules: list[str]) -> int:
    differences = check_stubs(modules, options.out)
    if options.json:
        output.document({"written": [], "differences": differences})
    elif differences:
        for line in differences.splitlines():
            output.line(line)
        names = " ".join(options.modules)
        output.line()
        output.line(f"write them anew: customop stubs {names} --out {options.out}")
    return int(bool(differences))


COMMAND = Command(
    "stubs",
    "write stubs of operators for type checkers",
    "Write stubs for the operators that modules define, so that pyright, and mypy without"
    " the\nplugin, know `customop.library.ops` with names, types and overloads. pyright reads"
    " them from\n`typings` by itself, mypy with `mypy_path = typings`.",
    '{"written": [str], "differences": a unified diff as str}',
    _add_arguments,
    _run,
)
