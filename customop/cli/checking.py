"""``customop check``: `opcheck` on all operators of a module, for people and CI."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Any

from customop.cli import junit
from customop.cli.command import Command, UsageError
from customop.cli.finding import import_target, select, split_target
from customop.cli.outcomes import STATUSES, Outcome, Report, total
from customop.cli.output import Output, count
from customop.core.operator import Operator
from customop.errors import OpCheckError, did_you_mean, quoted
from customop.testing import opcheck
from customop.testing.opcheck import CHECKS

__all__ = ["COMMAND"]

_PASSED, _FAILED = 0, 1


# ---- running ----


def _chosen(targets: Sequence[str]) -> list[Operator[..., Any]]:
    """Operators of all targets, each once."""
    found: dict[str, Operator[..., Any]] = {}
    for target in targets:
        module, name = split_target(target)
        found |= {op.qualname: op for op in select(import_target(module), name)}
    return list(found.values())


def _names(text: str | None) -> list[str] | None:
    """Names of checks, known ones."""
    if text is None:
        return None
    known = [check.name for check in CHECKS]
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in (*known, "ALL"):
            raise UsageError(
                f"--test-utils: there is no check '{name}'{did_you_mean(name, known)}",
                f"known: {quoted(known)}",
                do="name known ones, with commas between",
            )
    return names


def _settings(options: Namespace) -> dict[str, Any]:
    """What `opcheck` is called with."""
    if (options.rtol is None) != (options.atol is None):
        raise UsageError(
            "--rtol and --atol go together", do="give both of them, or none"
        )
    names = _names(options.test_utils)
    chosen = {} if names is None else {"test_utils": "ALL" if "ALL" in names else names}
    return {**chosen, "rtol": options.rtol, "atol": options.atol}


def _report(
    op: Operator[..., Any], settings: dict[str, Any], *, reraise: bool
) -> Report:
    start = perf_counter()
    try:
        result = opcheck(op, raise_exception=False, **settings)
    # A kernel that ends the process must not end it well.
    except (Exception, SystemExit) as error:
        if reraise:
            raise
        outcomes = [Outcome("inputs", "error", _error_text(error), _class(error))]
    else:
        outcomes = [
            _outcome(check, value, result.seconds[check], result.notes.get(check, ""))
            for check, value in result.items()
        ]
    return Report(op.qualname, tuple(outcomes), perf_counter() - start)


def _error_text(error: BaseException) -> str:
    return f"{_class(error)}: {error}"


def _class(error: BaseException) -> str:
    return type(error).__name__


def _outcome(check: str, value: Any, seconds: float, note: str) -> Outcome:
    if isinstance(value, Exception):
        status = "failed" if isinstance(value, OpCheckError) else "error"
        text = str(value) if status == "failed" else _error_text(value)
        return Outcome(check, status, text, _class(value), seconds)
    if value == "SUCCESS":
        return Outcome(check, "passed", note, seconds=seconds)
    reason = str(value).removeprefix("SKIPPED: ")
    return Outcome(check, "skipped", reason, seconds=seconds)


def _reports(
    operators: Sequence[Operator[..., Any]], options: Namespace
) -> Iterator[Report]:
    settings = _settings(options)
    for op in operators:
        report = _report(op, settings, reraise=options.traceback)
        yield report
        if options.exitfirst and report.status in ("failed", "error"):
            return


# ---- printing ----


def _show(report: Report, output: Output, *, quiet: bool) -> None:
    word = STATUSES[report.status]
    output.table(["", "", ""], [[word, report.qualname, _counted([report])]])
    if not quiet:
        output.table(
            ["", "", "", ""],
            [["", o.check, STATUSES[o.status], _line(o)] for o in report.outcomes],
        )
    for outcome in report.outcomes:
        if outcome.status in ("failed", "error"):
            output.line()
            for line in outcome.text.splitlines():
                output.line(f"    {line}".rstrip())
            output.line()


def _reason(report: Report, outcome: Outcome) -> str:
    """The first line of an error, without the names that stand before it."""
    first = outcome.text.partition("\n")[0]
    return first.removeprefix(f"{report.qualname}: ").removeprefix(f"{outcome.check}: ")


def _line(outcome: Outcome) -> str:
    is_told_below = outcome.status in ("failed", "error")
    return "" if is_told_below else outcome.text.partition("\n")[0]


def _counted(reports: Sequence[Report]) -> str:
    """``"3 passed, 1 failed, 2 skipped in 0.12 s"``."""
    counts = [f"{n} {status}" for status, n in total(reports).items() if n]
    seconds = sum(report.seconds for report in reports)
    return f"{', '.join(counts) or 'nothing to check'} in {seconds:.2f} s"


def _summarize(reports: Sequence[Report], output: Output) -> None:
    failed = [
        [STATUSES[o.status], report.qualname, o.check, _reason(report, o)]
        for report in reports
        for o in report.outcomes
        if o.status in ("failed", "error")
    ]
    output.line()
    output.table(["", "", "", ""], failed)
    output.line(
        f"{count(len(reports), 'operator')}: {_counted(reports)}",
        "FAILED" if failed else "passed",
    )


def _document(reports: Sequence[Report]) -> dict[str, Any]:
    seconds = sum(report.seconds for report in reports)
    return {
        "operators": [
            {
                "name": report.qualname,
                "status": report.status,
                "seconds": report.seconds,
                "checks": [outcome._asdict() for outcome in report.outcomes],
            }
            for report in reports
        ],
        "summary": {"operators": len(reports), **total(reports), "seconds": seconds},
    }


# ---- the command ----


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "targets",
        nargs="+",
        metavar="MODULE[:NAME]",
        help="a module or file.py; its operators, or the one of that name or glob",
    )
    parser.add_argument(
        "--test-utils",
        metavar="NAMES",
        help="checks to run, with commas between; all without it",
    )
    parser.add_argument("--rtol", type=float, help="relative tolerance, with --atol")
    parser.add_argument("--atol", type=float, help="absolute tolerance, with --rtol")
    parser.add_argument("--junit", metavar="FILE", help="write JUnit XML to a file too")
    parser.add_argument(
        "-x",
        "--exitfirst",
        action="store_true",
        help="stop behind the first operator that fails",
    )
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="one line for each operator"
    )


def _run(options: Namespace, output: Output) -> int:
    if options.junit is not None:
        junit.check_path(options.junit)
    reports = []
    for report in _reports(_chosen(options.targets), options):
        reports.append(report)
        if not options.json:
            _show(report, output, quiet=options.quiet)
    if options.junit is not None:
        junit.write(options.junit, reports)
    if options.json:
        output.document(_document(reports))
    else:
        _summarize(reports, output)
    return _FAILED if any(r.status in ("failed", "error") for r in reports) else _PASSED


COMMAND = Command(
    "check",
    "opcheck on all operators of a module, with an exit status for CI",
    "Import modules and check all operators that they, or submodules that importing"
    " them\nimports, have defined; see customop.testing.opcheck for the checks. Inputs are"
    " the\nregistered samples, else found by trial.\n\nThe exit status is 0 where all"
    " pass, 1 where a check fails, 2 where a module cannot be\nimported or an argument"
    " does not fit. What cannot be checked counts as an error.",
    '{"operators": [{"name": str, "status": STATUS, "seconds": float,\n'
    '  "checks": [{"check": str, "status": STATUS, "text": str, "type": str,\n'
    '  "seconds": float}]}], "summary": {"operators": int, "passed": int, "failed": int,\n'
    '  "error": int, "skipped": int, "seconds": float}}\n'
    'STATUS is "passed", "failed", "error" or "skipped".',
    _add_arguments,
    _run,
)
