"""``customop stubs``: stubs of operators, for type checkers without a plugin."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from customop.cli.command import Command
from customop.cli.finding import import_target
from customop.cli.plain import Plain
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
        help="the folder of stubs (typings, where pyright looks)",
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="print how the stubs differ and write nothing; status 1 if they differ",
    )


def _run(options: Namespace, output: Plain) -> int:
    modules = [import_target(target).__name__ for target in options.modules]
    if options.check:
        return _compare(options, output, modules)
    written = [str(path) for path in write_stubs(modules, options.out)]
    for path in written:
        output.line(path)
    output.document({"written": written, "differences": ""})
    return 0


def _compare(options: Namespace, output: Plain, modules: list[str]) -> int:
    differences = check_stubs(modules, options.out)
    for line in differences.splitlines():
        output.line(line)
    if differences:
        names = " ".join(options.modules)
        output.line()
        output.line(f"to update them: customop stubs {names} --out {options.out}")
    output.document({"written": [], "differences": differences})
    return int(bool(differences))


COMMAND = Command(
    "stubs",
    "write stubs of operators for type checkers",
    "Write stubs for the operators that modules define. pyright, and mypy without the\n"
    "plugin, then know `customop.ops` with its names, types and overloads. pyright looks\n"
    "in `typings`; mypy needs `mypy_path = typings`.",
    '{"written": [str], "differences": a unified diff as str}',
    _add_arguments,
    _run,
    has_page=False,
)
