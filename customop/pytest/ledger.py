"""The summary of a run of pytest with `--opcheck`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from customop.core.registry import all_operators
from customop.errors import counted, did_you_mean, quoted
from customop.pytest.findings import NEEDLESS
from customop.pytest.known_failures import (
    ANY_TEST,
    LEFT_OUT,
    Changes,
    CheckKey,
    Outcome,
    Ran,
)
from customop.pytest.requests import Option, is_named

__all__ = ["Ledger", "unchecked"]


class Ledger:
    """Sums up the reports and updates the file of known failures.

    Under pytest-xdist it runs in the process that gets the reports of all workers.

    Parameters
    ----------
    option : Option
    """

    def __init__(self, option: Option) -> None:
        self._option = option
        self._ran = Ran(option.request.wants, option.request.checks)
        self._calls: Counter[str] = Counter()
        # Also those that only a marker checked.
        self._called: set[str] = set()
        self._raised = 0
        self._without_values = 0
        self._operators: set[str] = set()
        self._collected: set[str] = set()
        self._changes: Changes | None = None
        self._unmatched: list[str] = []

    # ---- reports ----

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Read the report of a test, or of one of its checks."""
        found = getattr(report, "opcheck", None)
        if found is not None and found["check"]:
            key = CheckKey(found["op"], report.nodeid, found["check"])
            self._ran.outcomes[key] = Outcome(found["status"], found["reason"])
        seen = getattr(report, "opcheck_seen", None)
        if seen is not None:
            self._add(seen)
            if report.passed:
                self._ran.tests.add(report.nodeid)

    def _add(self, seen: dict[str, Any]) -> None:
        self._calls.update(seen["calls"])
        self._called.update(seen["called"])
        self._raised += seen["raised"]
        self._without_values += seen["without_values"]

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Keep the names of the tests."""
        self._collected.update(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(
        self, node: Any, ids: Sequence[str]
    ) -> None:
        """Keep the names of the tests that a worker found."""
        self._collected.update(ids)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: Any) -> None:
        """Keep the names of the operators of a worker."""
        output = getattr(node, "workeroutput", {})
        self._operators.update(output.get("customop_operators", ()))

    # ---- the end ----

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Update the file; fail if no test called an operator that was asked for."""
        complete = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
        if exitstatus not in complete or session.config.getoption("collectonly"):
            return
        self._operators.update(all_operators())
        patterns = self._option.request.patterns
        self._unmatched = [
            p for p in patterns if not any(is_named(op, p) for op in self._called)
        ]
        if self._option.accepts:
            self._changes = self._option.known.accept(self._ran)
        if self._unmatched and exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.USAGE_ERROR

    def pytest_terminal_summary(
        self, terminalreporter: pytest.TerminalReporter
    ) -> None:
        """Print the summary, and which entries of the file are out of date."""
        terminalreporter.section("opcheck", "-")
        for line in self._lines():
            terminalreporter.line(line)
        for line in self._remarks():
            terminalreporter.line(f"warning: {line}", yellow=True)
        for pattern in self._unmatched:
            terminalreporter.line(f"error: {self._no_match(pattern)}", red=True)

    def _lines(self) -> Iterator[str]:
        known = self._option.known
        counts = Counter(o.status for o in self._ran.outcomes.values())
        failed = self._ran.having("failed")
        yield (
            f"{counted(self._calls.total(), 'call')} of"
            f" {counted(len(self._calls), 'operator')}:"
            f" {counted(counts['passed'], 'check')} passed, {counts['failed']} failed"
            f" ({sum(known.find(key) is not None for key in failed)} known),"
            f" {counts['skipped']} did not apply"
            + (f", {counts['waived']} waived" if counts["waived"] else "")
            + (f", {counts[LEFT_OUT]} left out" if counts[LEFT_OUT] else "")
        )
        others = unchecked(self._raised, self._without_values)
        if others:
            yield f"calls that are not checked: {others}"
        if self._changes is not None:
            added, removed, kept = self._changes
            yield f"{known.path}: {added} added, {removed} removed, {kept} kept"

    def _remarks(self) -> Iterator[str]:
        known = self._option.known
        name = known.path.name
        # --opcheck-accept removes these.
        if not self._option.accepts:
            for key in known.unused(self._ran):
                yield f"{name}: {key}: the test does not call the operator"
        for op, check in self._needless_waivers():
            yield f"{op}: {check}: no test needs its waiver: remove waive({check!r}, ...)"
        for key in known.needless(self._ran):
            yield f"{name}: {key}: no test fails this check"
        for test in sorted(self._missing_tests()):
            near = did_you_mean(test, self._similar(test))
            yield f"{name}: there is no test {test}{near}"
        for op in sorted({key.op for key in known.entries} - self._operators):
            if self._option.request.wants(op) and self._calls:
                near = did_you_mean(op, self._operators)
                yield f"{name}: there is no operator {op}{near}"

    def _needless_waivers(self) -> list[tuple[str, str]]:
        """Operators and checks that are waived and pass in all tests."""
        outcomes = self._ran.outcomes.items()
        passed = dict.fromkeys((k.op, k.check) for k, o in outcomes if o == NEEDLESS)
        waived = {(key.op, key.check) for key in self._ran.having("waived")}
        return [pair for pair in passed if pair not in waived]

    def _missing_tests(self) -> set[str]:
        """Tests in the file that no longer exist; empty if not all tests were asked for."""
        config = self._option.config
        narrowed = any(config.getoption(name, None) for name in _NARROWING)
        if narrowed or any("::" in arg for arg in config.args):
            return set()
        files = {test.partition("::")[0] for test in self._collected}
        tests = {key.test for key in self._option.known.entries} - {ANY_TEST}
        return {
            test
            for test in tests - self._collected
            if (path := test.partition("::")[0]) in files
            or not (config.rootpath / path).exists()
        }

    def _similar(self, test: str) -> set[str]:
        """Tests of the same file, and tests with the same name in other files."""
        path, _, name = test.partition("::")
        return {
            other
            for other in self._collected
            if other.startswith(f"{path}::") or other.endswith(f"::{name}")
        }

    def _no_match(self, pattern: str) -> str:
        defined = sorted(op for op in self._operators if is_named(op, pattern))
        if defined:
            more = ", ..." if len(defined) > 8 else ""
            return f"--opcheck {pattern}: no test calls {quoted(defined[:8])}{more}"
        return f"--opcheck {pattern}: there is no such operator{self._near(pattern)}"

    def _near(self, pattern: str) -> str:
        namespace, colons, name = pattern.partition("::")
        spaces = {op.partition("::")[0] for op in self._operators}
        if namespace not in spaces:
            return did_you_mean(namespace, sorted(spaces))
        prefix = namespace + colons
        names = {
            op.removeprefix(prefix) for op in self._operators if op.startswith(prefix)
        }
        return did_you_mean(name, sorted(names))


# Options that leave tests out.
_NARROWING = ("keyword", "markexpr", "lf", "deselect", "stepwise")


def unchecked(raised: int, without_values: int) -> str:
    """The calls that are not checked, and why; or an empty text."""
    parts = [f"{raised} raised"] if raised else []
    if without_values:
        parts.append(f"{without_values} had fake arrays")
    return ", ".join(parts)
