"""Results of checks as JUnit XML, for continuous integration.

Source: the schema of the xUnit plugin of Jenkins, and pytest's xunit2 (read in 2026).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from customop.cli.outcomes import CheckOutcome, Report, total

__all__ = ["write"]

# Characters that XML does not allow. Source: XML 1.0, section 2.2.
_FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def write(path: str, reports: Sequence[Report]) -> None:
    """Write one test suite for each operator, with one test case for each check."""
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
