"""Run tests under a recorder, check the recorded calls, and report the results."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import pytest
from _pytest.junitxml import LogXML

from customop.core.registry import all_operators
from customop.errors import CustomOpWarning, quoted
from customop.pytest.findings import (
    CheckFinding,
    Ledger,
    RecordedCall,
    Recorder,
    findings_of,
    unchecked,
)
from customop.pytest.options import (
    LEFT_OUT,
    CheckKey,
    KnownFailure,
    Option,
    Outcome,
    Request,
    as_kind,
    kinds_of_array,
    option_of,
    request_of,
)

__all__ = ["add_marked", "as_kind", "configure", "kinds_of_array"]


# ---- checks as test cases of pytest's JUnit file ----


def label_of(found: dict[str, str]) -> str:
    """Return the name of an operator and its check in reports."""
    return f"[{' '.join(filter(None, (found['op'], found['check'])))}]"


def separate_cases(config: pytest.Config) -> None:
    """Give each check that ran its own test case, next to the case of its test.

    pytest would add all reports of a test to one case. A test that passes would then
    have a "skipped" for each check that does not apply.
    """
    plugins = config.pluginmanager
    for xml in [p for p in plugins.get_plugins() if isinstance(p, LogXML)]:
        log = xml.pytest_runtest_logreport

        def report(report: pytest.TestReport, log: Any = log) -> None:
            case = _case(report)
            if case is not None:
                log(case)

        # Hooks are looked up when a plugin is registered.
        plugins.unregister(xml)
        xml.pytest_runtest_logreport = report  # type: ignore[method-assign]  # of this object
        plugins.register(xml)


def _case(report: pytest.TestReport) -> pytest.TestReport | None:
    """Return the report for a test case, or None for a check that does not apply."""
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


# ---- run tests under a recorder, and check the recorded calls ----


_CHECKER = "customop-checker"
_LEDGER = "customop-ledger"


def configure(config: pytest.Config) -> None:
    """Start the checks that the options request."""
    option = option_of(config)
    config.pluginmanager.register(Checker(option), _CHECKER)
    # With pytest-xdist, only the process that started the workers makes the summary.
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Ledger(option), _LEDGER)
        separate_cases(config)


def add_marked(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Start the checks that markers request."""
    for item in items:
        request = request_of(item)
        if request is not None:
            item.stash[_marked] = request
    if not config.pluginmanager.has_plugin(_CHECKER):
        config.pluginmanager.register(Checker(None), _CHECKER)


@dataclass(slots=True)
class PendingCalls:
    """The calls of a test that are still to be checked, and their summary."""

    calls: Sequence[RecordedCall]
    summary: dict[str, Any]


_marked = pytest.StashKey[Request]()
_pending = pytest.StashKey[PendingCalls]()


class Checker:
    """Records the calls of tests, and checks them if the tests pass.

    Parameters
    ----------
    option : Option or None
        None if only markers request checks.
    """

    def __init__(self, option: Option | None) -> None:
        self._option = option

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Run a test under a recorder, and check the calls that its marker requests."""
        marked = item.stash.get(_marked, None)
        general = None if self._option is None else self._option.request
        requests = [r for r in (marked, general) if r is not None]
        if not requests:
            return (yield)
        recorder = Recorder(lambda name: any(r.wants(name) for r in requests))
        with recorder:
            result = yield
        calls = list(recorder.calls.values())
        called = sorted({call.op.qualname for call in calls})
        if marked is not None:
            own = [call for call in calls if marked.wants(call.op.qualname)]
            calls = [call for call in calls if not marked.wants(call.op.qualname)]
            _check_marked(item, marked, own, recorder)
        if general is not None:
            summary = {**_summary(recorder, calls), "called": called}
            item.stash[_pending] = PendingCalls(calls, summary)
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add a summary of the calls to the report of a test."""
        report = yield
        if report.when == "call" and _pending in item.stash:
            pending = item.stash[_pending]
            report.opcheck_seen = pending.summary  # type: ignore[attr-defined]  # extra
            if not report.passed:
                pending.calls = ()
        return report

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(
        self, item: pytest.Item
    ) -> Generator[None, object, object]:
        """Check the calls of a test that passed, before its fixtures are torn down.

        Failures are reported last, because `--lf` reads the last report of a test.
        """
        try:
            if self._option is not None and _pending in item.stash:
                _check_and_report(self._option, item)
        finally:
            result = yield
        return result

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(
        self, report: pytest.TestReport, config: pytest.Config
    ) -> tuple[str, str, str] | None:
        """Return the category, letter and word for the report of a check."""
        found = getattr(report, "opcheck", None)
        return None if found is None else _status(report, found, config)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Send the names of the operators from a pytest-xdist worker."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["customop_operators"] = list(all_operators())


def _check_and_report(option: Option, item: pytest.Item) -> None:
    calls = item.stash[_pending].calls
    del item.stash[_pending]
    start = time.time()
    reports = [_report(option, item, f) for f in _findings(option, item.nodeid, calls)]
    share = (time.time() - start) / max(len(reports), 1)
    for report in sorted(reports, key=lambda r: r.outcome == "failed"):
        report.start, report.stop, report.duration = start, start + share, share
        with _uncaptured(item.config):
            item.ihook.pytest_runtest_logreport(report=report)


@contextmanager
def _uncaptured(config: pytest.Config) -> Iterator[None]:
    """Allow output inside the block, although the output of teardowns is captured."""
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    if capture is None:
        yield
    else:
        with capture.global_and_fixture_disabled():
            yield


def _summary(recorder: Recorder, calls: Sequence[RecordedCall]) -> dict[str, Any]:
    counts: Counter[str] = Counter()
    for call in calls:
        counts[call.op.qualname] += call.count
    return {
        "calls": dict(counts),
        "raised": recorder.raised,
        "without_values": recorder.without_values,
    }


# ---- marked tests ----


def _check_marked(
    item: pytest.Item,
    request: Request,
    calls: Sequence[RecordedCall],
    recorder: Recorder,
) -> None:
    """Check the calls of a marked test, and fail the test if a check fails."""
    findings = findings_of(calls, request.checks, request.bounds)
    failed = [f.text for f in findings if f.outcome.status == "failed"]
    if failed:
        raise pytest.fail.Exception("\n\n".join(failed), pytrace=False)
    for finding in findings:
        if not finding.check:
            item.warn(CustomOpWarning(f"calls are not checked: {finding.text}"))
    if not calls and request.is_own:
        item.warn(CustomOpWarning(_nothing_called(request, recorder)))


def _nothing_called(request: Request, recorder: Recorder) -> str:
    is_any = request.patterns == ("ALL",)
    others = unchecked(recorder.raised, recorder.without_values)
    return (
        "the marker opcheck has nothing to check: no call of"
        f" {'an operator' if is_any else quoted(request.patterns)} returned values"
        f"{others and f' ({others})'}\n"
        "  do: call an operator with arrays, or remove the marker"
    )


# ---- one report for each check ----


def _findings(
    option: Option, test: str, calls: Sequence[RecordedCall]
) -> Iterator[CheckFinding]:
    """Run the checks on the calls of a test, except those that the file skips."""
    checks = option.request.checks
    for op in dict.fromkeys(call.op.qualname for call in calls):
        keys = {name: CheckKey(op, test, name) for name in checks}
        entries = {name: option.known.find(key) for name, key in keys.items()}
        run = [name for name, e in entries.items() if e is None or e.status != "skip"]
        own = [call for call in calls if call.op.qualname == op]
        yield from findings_of(own, run, option.request.bounds)
        for name, entry in entries.items():
            if entry is not None and entry.status == "skip":
                yield CheckFinding(op, name, Outcome(LEFT_OUT, entry.reason))


class Verdict(NamedTuple):
    """The result that a report shows, after looking at the known failures."""

    outcome: Literal["passed", "failed", "skipped"]
    text: str = ""
    # The reason of a known failure.
    known: str | None = None


def _report(
    option: Option, item: pytest.Item, finding: CheckFinding
) -> pytest.TestReport:
    key = CheckKey(finding.op, item.nodeid, finding.check)
    verdict = _verdict(option, key, finding)
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
        (path, line, f"{domain} {label_of(found)}"),
        dict.fromkeys(item.keywords, 1),
        verdict.outcome,
        longrepr,
        "call",
        opcheck=found,
    )
    if verdict.known is not None:
        report.wasxfail = verdict.known
    return report


def _verdict(option: Option, key: CheckKey, finding: CheckFinding) -> Verdict:
    status, reason = finding.outcome
    entry = option.known.find(key)
    if status == LEFT_OUT:
        return Verdict("skipped", reason or f"by {option.known.path.name}")
    if status == "failed":
        if entry is None and not option.accepts:
            return Verdict("failed", finding.text)
        why = "accepted now" if entry is None else entry.reason
        return Verdict("skipped", finding.text, why)
    if status == "waived":
        return Verdict("skipped", "", f"waived: {reason}")
    if status == "passed" and entry is not None and entry.is_strict:
        text = "" if option.accepts else _passes_now(option, entry)
        return Verdict("failed" if text else "passed", text)
    return Verdict("passed" if status == "passed" else "skipped", reason)


def _passes_now(option: Option, entry: KnownFailure) -> str:
    return (
        f"{entry.key.op}: {entry.key.check} passes, but is a known failure\n"
        f"  at {option.known.path}: {entry.key}\n"
        "  do: remove the entry, or run once with --opcheck-accept"
    )


def _status(
    report: pytest.TestReport, found: dict[str, str], config: pytest.Config
) -> tuple[str, str, str]:
    """Return category, letter and word; without a category pytest does not count it."""
    label = label_of(found)
    if hasattr(report, "wasxfail"):
        return "xfailed", "x", f"OPCHECK XFAIL{label}"
    if report.failed:
        return "failed", "F", f"OPCHECK FAILED{label}"
    if found["status"] == LEFT_OUT or not found["check"]:
        return "skipped", "s", f"OPCHECK SKIPPED{label}"
    # The others are in the summary, and listed with -v.
    word = "OPCHECK PASSED" if report.passed else "OPCHECK DOES NOT APPLY"
    return "", "", f"{word}{label}" if config.get_verbosity() > 0 else ""
