"""The pytest plugin at work: tests run under a recorder, and their calls are checked."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import pytest

from customop.errors import CustomOpWarning, quoted
from customop.pytest.findings import Finding, findings_of
from customop.pytest.known_failures import LEFT_OUT, Outcome
from customop.pytest.ledger import Ledger, operator_names, unchecked
from customop.pytest.recording import RecordedCall, Recorder
from customop.pytest.requests import (
    Option,
    Request,
    as_kind,
    kinds_of_array,
    option_of,
    request_of,
)

__all__ = ["add_marked", "as_kind", "configure", "kinds_of_array"]

_CHECKER = "customop-checker"
_LEDGER = "customop-ledger"


def configure(config: pytest.Config) -> None:
    """Do what the options ask for."""
    option = option_of(config)
    config.pluginmanager.register(Checker(option), _CHECKER)
    # A worker of pytest-xdist leaves the sum to the process that started it.
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Ledger(option), _LEDGER)


def add_marked(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Note what markers ask for, and have it done."""
    for item in items:
        request = request_of(item)
        if request is not None:
            item.stash[_marked] = request
    if not config.pluginmanager.has_plugin(_CHECKER):
        config.pluginmanager.register(Checker(None), _CHECKER)


@dataclass(slots=True)
class Seen:
    """What a test has called, for the option."""

    due: Sequence[RecordedCall]
    summary: dict[str, Any]


_marked = pytest.StashKey[Request]()
_seen = pytest.StashKey[Seen]()


class Checker:
    """Records the calls of tests, and checks them when the tests have passed.

    Parameters
    ----------
    option : Option or None
        What is asked for beside markers.
    """

    def __init__(self, option: Option | None) -> None:
        self._option = option

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Run a test under a recorder; what its marker asks for is a part of it."""
        marked = item.stash.get(_marked, None)
        general = None if self._option is None else self._option.request
        requests = [r for r in (marked, general) if r is not None]
        if not requests:
            return (yield)
        log = Recorder(lambda name: any(r.wants(name) for r in requests))
        with log:
            result = yield
        due = list(log.calls.values())
        called = sorted({call.op.qualname for call in due})
        if marked is not None:
            own = [call for call in due if marked.wants(call.op.qualname)]
            due = [call for call in due if not marked.wants(call.op.qualname)]
            _check_marked(item, marked, own, log)
        if general is not None:
            item.stash[_seen] = Seen(due, {**_summary(log, due), "called": called})
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Say in the report of a test what it called."""
        report = yield
        if report.when == "call" and _seen in item.stash:
            seen = item.stash[_seen]
            report.opcheck_seen = seen.summary  # type: ignore[attr-defined]  # extra
            if not report.passed:
                seen.due = ()
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(
        self, item: pytest.Item
    ) -> Generator[None, object, object]:
        """Check the calls of a test that has passed, while its fixtures are there.

        The reports come after that of the test, and failures last: what pytest holds
        of a test for `--lf` is the last of its reports.
        """
        try:
            if self._option is not None and _seen in item.stash:
                _check_and_report(self._option, item)
        finally:
            result = yield
        return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(
        self, report: pytest.TestReport, config: pytest.Config
    ) -> tuple[str, str, str] | None:
        """How the report of a check is shown."""
        found = getattr(report, "opcheck", None)
        return None if found is None else _status(report, found, config)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Tell the process that collects the reports which operators there are."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["customop_operators"] = operator_names()


def _check_and_report(option: Option, item: pytest.Item) -> None:
    due = item.stash[_seen].due
    del item.stash[_seen]
    start = time.time()
    reports = [_report(option, item, f) for f in _findings(option, item.nodeid, due)]
    share = (time.time() - start) / max(len(reports), 1)
    for report in sorted(reports, key=lambda r: r.outcome == "failed"):
        report.start, report.stop, report.duration = start, start + share, share
        with _uncaptured(item.config):
            item.ihook.pytest_runtest_logreport(report=report)


@contextmanager
def _uncaptured(config: pytest.Config) -> Iterator[None]:
    """Let reports be printed: what a teardown prints is captured."""
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    if capture is None:
        yield
    else:
        with capture.global_and_fixture_disabled():
            yield


def _summary(log: Recorder, calls: Sequence[RecordedCall]) -> dict[str, Any]:
    counts: Counter[str] = Counter()
    for call in calls:
        counts[call.op.qualname] += call.count
    return {
        "calls": dict(counts),
        "raised": log.raised,
        "without_values": log.without_values,
    }


# ---- marked tests ----


def _check_marked(
    item: pytest.Item, request: Request, calls: Sequence[RecordedCall], log: Recorder
) -> None:
    """Check the calls of a marked test; it fails where a check does."""
    findings = findings_of(calls, request.checks, request.bounds)
    failed = [f.text for f in findings if f.outcome.status == "failed"]
    if failed:
        raise pytest.fail.Exception("\n\n".join(failed), pytrace=False)
    for finding in findings:
        if not finding.check:
            item.warn(CustomOpWarning(f"calls are not checked: {finding.text}"))
    if not calls and request.is_own:
        item.warn(CustomOpWarning(_nothing_called(request, log)))


def _nothing_called(request: Request, log: Recorder) -> str:
    names = "" if request.patterns == ("ALL",) else f" of {quoted(request.patterns)}"
    others = unchecked(log.raised, log.without_values)
    return (
        f"the marker opcheck has nothing to check: the test makes no call{names}"
        f"{others and f' that gives values ({others})'}\n"
        "  do: call an operator with arrays, or remove the marker"
    )


# ---- one report for each check ----


def _findings(
    option: Option, test: str, calls: Sequence[RecordedCall]
) -> Iterator[Finding]:
    """What the checks say of the calls of a test, but for those to be left out."""
    checks = option.request.checks
    for op in dict.fromkeys(call.op.qualname for call in calls):
        entries = {name: option.known.find(op, test, name) for name in checks}
        run = [name for name, e in entries.items() if e is None or e.status != "skip"]
        own = [call for call in calls if call.op.qualname == op]
        yield from findings_of(own, run, option.request.bounds)
        for name, entry in entries.items():
            if entry is not None and entry.status == "skip":
                yield Finding(op, name, Outcome(LEFT_OUT, entry.reason))


class Verdict(NamedTuple):
    """What the report of a finding says, in view of what is known to fail."""

    outcome: Literal["passed", "failed", "skipped"]
    text: str = ""
    # Why it is known to fail.
    known: str | None = None


def _report(option: Option, item: pytest.Item, finding: Finding) -> pytest.TestReport:
    verdict = _verdict(option, item, finding)
    path, line, domain = item.location
    longrepr: Any = verdict.text or None
    if verdict.outcome == "skipped" and verdict.known is None:
        longrepr = (str(item.path), (line or 0) + 1, f"Skipped: {verdict.text}")
    found = {
        "op": finding.op,
        "check": finding.check,
        "status": finding.outcome.status,
        "reason": finding.outcome.reason,
    }
    report = pytest.TestReport(
        item.nodeid,
        (path, line, f"{domain} {_label(found)}"),
        dict.fromkeys(item.keywords, 1),
        verdict.outcome,
        longrepr,
        "call",
        opcheck=found,
    )
    if verdict.known is not None:
        report.wasxfail = verdict.known
    return report


def _verdict(option: Option, item: pytest.Item, finding: Finding) -> Verdict:
    status, reason = finding.outcome
    entry = option.known.find(finding.op, item.nodeid, finding.check)
    if status == LEFT_OUT:
        return Verdict("skipped", reason or f"by {option.known.path.name}")
    if status == "failed":
        if entry is None and not option.accepts:
            return Verdict("failed", finding.text)
        why = "accepted now" if entry is None else entry.reason
        return Verdict("skipped", finding.text, why)
    if status == "passed" and entry is not None and entry.is_strict:
        text = "" if option.accepts else _passes_now(option, finding, item.nodeid)
        return Verdict("failed" if text else "passed", text)
    return Verdict("passed" if status == "passed" else "skipped", reason)


def _passes_now(option: Option, finding: Finding, test: str) -> str:
    return (
        f"{finding.op}: {finding.check} passes, and is known to fail\n"
        f"  at {option.known.path}: {finding.op} -> {test} -> {finding.check}\n"
        "  do: remove the entry, or run once with --opcheck-accept"
    )


def _label(found: dict[str, str]) -> str:
    return f"[{' '.join(filter(None, (found['op'], found['check'])))}]"


def _status(
    report: pytest.TestReport, found: dict[str, str], config: pytest.Config
) -> tuple[str, str, str]:
    """Category, letter and word of a report; without a category it is not counted."""
    label = _label(found)
    if hasattr(report, "wasxfail"):
        return "xfailed", "x", f"OPCHECK XFAIL{label}"
    if report.failed:
        return "failed", "F", f"OPCHECK FAILED{label}"
    if found["status"] == LEFT_OUT or not found["check"]:
        return "skipped", "s", f"OPCHECK SKIPPED{label}"
    # What did not fail is in the sum, and one by one where all tests are.
    word = "OPCHECK PASSED" if report.passed else "OPCHECK DOES NOT APPLY"
    return "", "", f"{word}{label}" if config.get_verbosity() > 0 else ""
