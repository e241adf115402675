"""Results of checks as JUnit XML, which continuous integration systems read.

Elements and attributes are those of the schema that Jenkins publishes for its xUnit
plugin, and of pytest's xunit2 family; both read in 2026.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree as ET

from customop.cli.command import UsageError
from customop.cli.outcomes import Outcome, Report, total

__all__ = ["check_path", "write"]

# What XML 1.0, section 2.2, does not allow in a document.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def check_path(path: str) -> None:
    """Raise, before anything runs, where the file cannot be written."""
    try:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).open("a").close()
    except OSError as error:
        raise UsageError(
            f"--junit: {path!r} cannot be written: {error.strerror}",
            do="name a file in a folder that can be written",
        ) from error


def write(path: str, reports: Sequence[Report]) -> None:
    """Write a test suite for each operator, and a test case for each check."""
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
        "skipped": str(counts["skipped"]),
        "time": _seconds(sum(report.seconds for report in reports)),
    }


def _seconds(value: float) -> str:
    return f"{value:.6f}"


def _add_case(suite: ET.Element, report: Report, outcome: Outcome) -> None:
    case = ET.SubElement(
        suite,
        "testcase",
        # Dots, by which viewers make a tree.
        classname=report.qualname.replace("::", "."),
        name=outcome.check,
        time=_seconds(outcome.seconds),
    )
    text = _FORBIDDEN.sub(lambda found: repr(found[0])[1:-1], outcome.text)
    if outcome.status == "skipped":
        ET.SubElement(case, "skipped", message=text)
    elif outcome.status in ("failed", "error"):
        name = "failure" if outcome.status == "failed" else "error"
        first = text.partition("\n")[0]
        ET.SubElement(case, name, message=first, type=outcome.type).text = text
