"""Checks as test cases of pytest's JUnit file."""

from __future__ import annotations

from typing import Any

import pytest
from _pytest.junitxml import LogXML

__all__ = ["label_of", "separate_cases"]


def label_of(found: dict[str, str]) -> str:
    """How reports name an operator and its check."""
    return f"[{' '.join(filter(None, (found['op'], found['check'])))}]"


def separate_cases(config: pytest.Config) -> None:
    """Give each check that ran a test case next to that of its test.

    pytest would add all reports of a test to the one case, so that a test that passes
    would have a "skipped" for each check that does not apply.
    """
    plugins = config.pluginmanager
    for xml in [p for p in plugins.get_plugins() if isinstance(p, LogXML)]:
        log = xml.pytest_runtest_logreport

        def report(report: pytest.TestReport, log: Any = log) -> None:
            case = _case(report)
            if case is not None:
                log(case)

        # A hook is looked up when its plugin is registered.
        plugins.unregister(xml)
        xml.pytest_runtest_logreport = report  # type: ignore[method-assign]  # of this object
        plugins.register(xml)


def _case(report: pytest.TestReport) -> pytest.TestReport | None:
    """The report of the test case; None for a check that does not apply."""
    found = getattr(report, "opcheck", None)
    if found is None:
        return report
    if found["status"] == "skipped" and found["check"]:
        return None
    case = pytest.TestReport(
        f"{report.nodeid} {label_of(found)}",
        report.location,
        report.keywords,
        report.outcome,
        report.longrepr,
        report.when,
        duration=report.duration,
    )
    if hasattr(report, "wasxfail"):
        case.wasxfail = report.wasxfail
    return case
