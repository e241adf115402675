"""``customop check``: `opcheck` on all operators of a module, also as JUnit XML.

Source: the schema of the xUnit plugin of Jenkins, and pytest's xunit2 (read in 2026).
"""

from __future__ import annotations

import re
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Any, NamedTuple
from xml.etree import ElementTree as ET

from customop.cli import command_pages
from customop.cli.output import check_path, watched
from customop.cli.plain import (
    STATUSES,
    CheckOutcome,
    Command,
    Plain,
    Report,
    UsageError,
    total,
)
from customop.cli.targets import (
    import_submodules,
    import_target,
    is_operator_name,
    matching,
    select,
    split_target,
)
from customop.core.operator import Operator
from customop.errors import counted
from customop.progress import check_channel
from customop.testing import opcheck
from customop.testing.checks.child_reuse import undisturbed
from customop.testing.close import check_bounds
from customop.testing.opcheck import OpCheckResult, checks_in, status_of

# ---- the command ----


def _run(options: Namespace, output: Plain) -> int:
    if options.junit is not None:
        check_path("--junit", options.junit)
    chosen = _chosen(options.targets)
    if chosen.wrong and not (chosen.operators or chosen.broken):
        raise chosen.wrong[0]
    reports = []
    count = len(chosen.operators)
    with watched(options, "customop check", count, is_quiet=options.quiet) as shown:
        for report in _reports(chosen, options):
            reports.append(report)
            with shown.hidden():
                _show(report, output, quiet=options.quiet)
    if options.junit is not None:
        write(options.junit, reports)
    _summarize(reports, output)
    output.document(_document(reports))
    output.page(lambda: command_pages.check_page(reports))
    # Raise for wrong targets now that the others are checked.
    for error in chosen.wrong:
        raise error
    return int(any(report.has_failed for report in reports))


def _add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument(
        "targets",
        nargs="+",
        metavar="MODULE[:NAME]",
        help="a module, package or file.py: all its operators, or those that match a name"
        " or glob; or namespace::name",
    )
    parser.add_argument(
        "--test-utils",
        default="ALL",
        metavar="NAMES",
        help="checks to run, with commas between them (ALL)",
    )
    parser.add_argument("--rtol", type=float, help="relative tolerance; needs --atol")
    parser.add_argument("--atol", type=float, help="absolute tolerance; needs --rtol")
    parser.add_argument("--junit", metavar="FILE", help="also write JUnit XML to FILE")
    parser.add_argument(
        "-x",
        "--exitfirst",
        action="store_true",
        help="stop after the first operator that fails",
    )
    parser.add_argument(
        "-q", "--quiet", action="store_true", help="one line for each operator"
    )


COMMAND = Command(
    "check",
    "opcheck on all operators of a module, with an exit status for CI",
    "Import modules and packages, and run customop.testing.opcheck on the operators that\n"
    "they and their submodules define. Inputs are the registered samples, or are\n"
    "searched. A submodule that cannot be imported is an error in the report.\n\n"
    "The exit status is 0 if all checks pass, 1 if one fails or cannot run, and 2 for\n"
    "wrong input, such as a module that is named and cannot be imported; what else is\n"
    "named is checked before.",
    '{"operators": [{"name": str, "status": STATUS, "seconds": float,\n'
    '  "checks": [{"check": str, "status": STATUS, "text": str, "type": str,\n'
    '  "seconds": float}]}], "summary": {"operators": int, "passed": int, "failed": int,\n'
    '  "error": int, "skipped": int, "waived": int, "seconds": float}}\n'
    'STATUS is "passed", "failed", "error", "skipped" or "waived".',
    _add_arguments,
    _run,
)


# ---- running ----


class _Chosen(NamedTuple):
    """The operators that the command line names.

    Attributes
    ----------
    operators : dict
        By qualified name, so that each is checked once.
    broken : dict
        Submodules that cannot be imported -> why.
    wrong : list of UsageError
        Targets that name nothing.
    """

    operators: dict[str, Operator[..., Any]]
    broken: dict[str, UsageError]
    wrong: list[UsageError]


def _chosen(targets: Sequence[str]) -> _Chosen:
    chosen = _Chosen({}, {}, [])
    for target in targets:
        try:
            if is_operator_name(target):
                found = matching([target])
            else:
                found = _of_module(*split_target(target), chosen.broken)
        except UsageError as error:
            chosen.wrong.append(error)
        else:
            chosen.operators.update({op.qualname: op for op in found})
    return chosen


def _of_module(
    name: str, operator: str, broken: dict[str, UsageError]
) -> list[Operator[..., Any]]:
    """Return the operators of a module and its submodules; record broken modules."""
    module = import_target(name)
    inner = {} if operator else import_submodules(module)
    broken.update(inner)
    try:
        return select(module, operator)
    except UsageError:
        if inner:  # the broken modules are reported
            return []
        raise


def _settings(options: Namespace) -> dict[str, Any]:
    """Return the settings for `opcheck` from the options."""
    check_bounds("opcheck", options.rtol, options.atol)
    return {
        "test_utils": [check.name for check in checks_in(options.test_utils)],
        "rtol": options.rtol,
        "atol": options.atol,
    }


def _report(
    op: Operator[..., Any], settings: dict[str, Any], *, reraise: bool
) -> Report:
    start = perf_counter()
    result = None
    try:
        result = opcheck(op, raise_exception=False, **settings)
    # A kernel that calls sys.exit must not end the run with success.
    except (Exception, SystemExit) as error:
        if reraise:
            raise
        name = type(error).__name__
        outcomes = [CheckOutcome("inputs", "error", f"{name}: {error}", name)]
    else:
        outcomes = [_outcome(check, result) for check in result]
    return Report(op.qualname, tuple(outcomes), perf_counter() - start, result)


def _outcome(check: str, result: OpCheckResult) -> CheckOutcome:
    value, seconds = result[check], result.seconds[check]
    status, text = status_of(value)
    name = type(value).__name__ if isinstance(value, Exception) else ""
    note = result.notes.get(check, "")
    return CheckOutcome(check, status, text or note, name, seconds)


def _reports(chosen: _Chosen, options: Namespace) -> Iterator[Report]:
    settings = _settings(options)
    for name, error in chosen.broken.items():
        if options.traceback:
            raise error
        outcome = CheckOutcome("import", "error", str(error), type(error).__name__)
        yield Report(name, (outcome,), 0.0)
        if options.exitfirst:
            return
    with undisturbed():
        for op in chosen.operators.values():
            report = _report(op, settings, reraise=options.traceback)
            check_channel.advance()
            yield report
            if options.exitfirst and report.has_failed:
                return


# ---- printing ----


def _show(report: Report, output: Plain, *, quiet: bool) -> None:
    word = STATUSES[report.status]
    output.table(["", "", ""], [[word, report.qualname, _statuses([report])]])
    if not quiet:
        output.table(
            ["", "", "", ""],
            [["", o.check, STATUSES[o.status], _line(o)] for o in report.outcomes],
        )
    for outcome in report.outcomes:
        if outcome.has_failed:
            output.line()
            for line in outcome.text.splitlines():
                output.line(f"    {line}".rstrip())
    if report.has_failed:
        output.line()


def _reason(report: Report, outcome: CheckOutcome) -> str:
    """Return the first line of an error, without the operator and the check."""
    first = outcome.text.partition("\n")[0]
    return first.removeprefix(f"{report.qualname}: ").removeprefix(f"{outcome.check}: ")


def _line(outcome: CheckOutcome) -> str:
    # Errors are printed in full below the table.
    return "" if outcome.has_failed else outcome.text.partition("\n")[0]


def _statuses(reports: Sequence[Report]) -> str:
    """Return counts and time, as in ``"3 passed, 1 failed, 2 skipped in 0.12 s"``."""
    counts = [f"{n} {status}" for status, n in total(reports).items() if n]
    seconds = sum(report.seconds for report in reports)
    return f"{', '.join(counts) or 'nothing to check'} in {seconds:.2f} s"


def _summarize(reports: Sequence[Report], output: Plain) -> None:
    failed = [
        [STATUSES[o.status], report.qualname, o.check, _reason(report, o)]
        for report in reports
        for o in report.outcomes
        if o.has_failed
    ]
    output.line()
    output.table(["", "", "", ""], failed)
    output.line(
        f"{counted(len(reports), 'operator')}: {_statuses(reports)}",
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


# ---- results of checks as JUnit XML, for continuous integration ----

# Characters that XML does not allow. Source: XML 1.0, section 2.2.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write(path: str, reports: Sequence[Report]) -> None:
    """Write a test suite for each operator, with a test case for each check."""
    root = ET.Element("testsuites", {"name": "customop", **_counts(reports)})
    for report in reports:
        name = {"name": report.qualname}
        suite = ET.SubElement(root, "testsuite", {**name, **_counts([report])})
        for outcome in report.outcomes:
            _add_case(suite, report, outcome)
    ET.indent(root)
    ET.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def _counts(reports: Sequence[Report]) -> dict[str, str]:
    counts = total(reports)
    return {
        "tests": str(sum(counts.values())),
        "failures": str(counts["failed"]),
        "errors": str(counts["error"]),
        "skipped": str(counts["skipped"] + counts["waived"]),
        "time": _seconds(sum(report.seconds for report in reports)),
    }


def _seconds(value: float) -> str:
    return f"{value:.6f}"


def _add_case(suite: ET.Element, report: Report, outcome: CheckOutcome) -> None:
    case = ET.SubElement(
        suite,
        "testcase",
        # Viewers split the name at dots.
        classname=report.qualname.replace("::", "."),
        name=outcome.check,
        time=_seconds(outcome.seconds),
    )
    text = _FORBIDDEN.sub(lambda found: repr(found[0])[1:-1], outcome.text)
    if outcome.status == "skipped":
        ET.SubElement(case, "skipped", message=text)
    elif outcome.status == "waived":
        ET.SubElement(case, "skipped", message=f"waived: {text}")
    elif outcome.status in ("failed", "error"):
        name = "failure" if outcome.status == "failed" else "error"
        first = text.partition("\n")[0]
        ET.SubElement(case, name, message=first, type=outcome.type).text = text
