"""Record operator calls, run checks on them, and summarize the results."""

from __future__ import annotations

import math
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple

import numpy as np
import pytest

from customop.arrays.kinds import has_data, is_array
from customop.arrays.nested import children, flat
from customop.core.interpreter import Interpreter
from customop.core.observe import Observer
from customop.core.registry import all_operators
from customop.core.rule_kind import COMPOSITE, RuleKind
from customop.core.samples import Sample
from customop.core.table import RuleTable
from customop.errors import CustomOpError, counted, did_you_mean, is_ours, quoted
from customop.pytest.options import (
    ANY_TEST,
    LEFT_OUT,
    Changes,
    CheckKey,
    Option,
    Outcome,
    Ran,
    is_named,
)
from customop.testing.checks.child_reuse import undisturbed
from customop.testing.inputs.sample_values import fresh
from customop.testing.opcheck import opcheck, status_of
from customop.testing.processes.child import child_traceback

# ---- record operator calls, with a copy of their arguments ----


@dataclass(slots=True, eq=False)
class RecordedCall:
    """A call that returned, and the number of similar calls.

    Attributes
    ----------
    op : Operator
    sample : Sample
        A copy of the arguments.
    invoke : callable
        The `op.invoke` at the time of the call; it does not keep the kernel alive.
    rules : frozenset
        The kinds of kernels and rules that the operator had.
    count : int
        The number of calls with the same signature.
    """

    op: RuleTable
    sample: Sample
    invoke: Callable[..., Any]
    rules: frozenset[str | RuleKind]
    count: int = 0

    @property
    def gone(self) -> str:
        """Why the operator is not the one that was called, or ""."""
        if self.op.closed:
            return "taken back before the test ended"
        if self.op.invoke is not self.invoke:
            return "defined again after the call"
        lost = self.rules - self.op.rows.keys()
        if lost:
            names = sorted(k if isinstance(k, str) else k.name for k in lost)
            return f"left without its rule for {quoted(names)} before the test ended"
        return ""


class Recorder(Observer):
    """Record the kernels that a block of code runs, in all threads.

    Calls inside a kernel are not recorded. Calls inside a composite body are.

    Parameters
    ----------
    wants : callable
        ``wants(qualname)`` says whether to record the calls of an operator.

    Attributes
    ----------
    calls : dict
        One call from each set of similar calls that returned.
    raised : int
        The number of calls whose kernel raised.
    without_values : int
        The number of calls with fake arrays.
    """

    def __init__(self, wants: Callable[[str], bool]) -> None:
        super().__init__(threads=True)
        self.calls: dict[Hashable, RecordedCall] = {}
        self.raised: int = 0
        self.without_values: int = 0
        self._wants = wants
        self._wanted: dict[str, bool] = {}
        self._depth = _Depth()
        self._lock = threading.Lock()

    def enter(
        self,
        op: RuleTable,
        by: str | Interpreter,
        fn: Callable[..., Any],
        args: Sequence[Any],
    ) -> _Entered | None:
        """Copy the arguments when a kernel begins."""
        if by != "kernel":
            return None
        body = op.rows.get(COMPOSITE)
        entered = _Entered(1 if body is None or body.fn is not fn else 0)
        if not self._depth.value and self._is_wanted(op.qualname):
            self._copy(entered, op, args)
        self._depth.value += entered.depth
        return entered

    def leave(self, entered: _Entered | None, out: Any) -> None:
        """Record the call when the kernel returns."""
        if entered is None:
            return
        self._depth.value -= entered.depth
        if entered.call is not None:
            with self._lock:
                self.calls.setdefault(entered.key, entered.call).count += 1

    def fail(
        self, entered: _Entered | None, error: BaseException, *, again: bool
    ) -> None:
        """Count the call as raised."""
        if entered is None:
            return
        self._depth.value -= entered.depth
        if entered.call is not None and not again:
            with self._lock:
                self.raised += 1

    def _is_wanted(self, name: str) -> bool:
        if name not in self._wanted:
            self._wanted[name] = self._wants(name)
        return self._wanted[name]

    def _copy(self, entered: _Entered, op: RuleTable, args: Sequence[Any]) -> None:
        if not all(has_data(leaf) for value in args for leaf in flat(value)):
            with self._lock:
                self.without_values += 1
            return
        entered.key = (op.qualname, id(op.invoke), *_signatures(args))
        entered.call = self.calls.get(entered.key)
        if entered.call is None:
            positional, keywords = op.schema.split(args)
            sample = fresh(Sample(tuple(positional), keywords))
            entered.call = RecordedCall(op, sample, op.invoke, frozenset(op.rows))


class _Depth(threading.local):
    """The number of kernels that run in this thread, not counting composite bodies."""

    value = 0


@dataclass(slots=True)
class _Entered:
    depth: int
    key: Hashable = None
    call: RecordedCall | None = None


# ---- signatures ----


def _signatures(values: Sequence[Any]) -> list[Hashable]:
    """Return keys for similar calls: array elements and exact floats do not count."""
    seen: dict[int, int] = {}
    return [_signature(value, seen) for value in values]


def _signature(value: Any, seen: dict[int, int]) -> Hashable:
    items = children(value)
    if items is not None:
        return (type(value), *(_signature(item, seen) for item in items))
    if is_array(value):
        # It matters which arguments are the same array. It does not matter whether it
        # is read-only, because in the proof of a composite body all arrays are.
        place = seen.setdefault(id(value), len(seen))
        strides = getattr(value, "strides", None)
        shape = tuple(value.shape)
        dtype = value.dtype if isinstance(value.dtype, np.dtype) else str(value.dtype)
        return (type(value), shape, dtype, strides, place)
    if isinstance(value, float | complex):
        return (type(value), _sign(value))
    if isinstance(value, int) and abs(value) > _SMALL:
        return (type(value), value > 0, "large")
    return (type(value), value if isinstance(value, _COMPARED) else None)


# Integers up to this may be axes or lengths, so they are compared by value.
_SMALL = 16
# Classes compared by value. For others, such as Generator, only the class counts.
_COMPARED = (int, str, bytes, Enum, np.dtype, type)


def _sign(value: complex) -> Hashable:
    parts = (value.real, value.imag)
    return tuple("nan" if math.isnan(x) else (x > 0) - (x < 0) for x in parts)


# ---- run the checks on recorded calls ----


class CheckFinding(NamedTuple):
    """The result of a check of an operator, over all its calls in a test.

    Attributes
    ----------
    op : str
        Qualified name of the operator.
    check : str
        Name of the check; empty if no check could run.
    outcome : Outcome
    text : str
        The message of a failure, or why calls cannot be checked.
    """

    op: str
    check: str
    outcome: Outcome
    text: str = ""


def findings_of(
    calls: Sequence[RecordedCall], checks: Sequence[str], bounds: Mapping[str, Any]
) -> list[CheckFinding]:
    """Run checks on recorded calls.

    Parameters
    ----------
    calls : sequence of RecordedCall
    checks : sequence of str
        Names of the checks to run.
    bounds : mapping
        `rtol` and `atol`, or an empty mapping.

    Returns
    -------
    list of CheckFinding
        One finding for each operator and check.
    """
    by_op: dict[str, list[RecordedCall]] = {}
    for call in calls:
        by_op.setdefault(call.op.qualname, []).append(call)
    with undisturbed():
        return [
            finding
            for op, group in by_op.items()
            for finding in _of_one(op, group, checks, bounds)
        ]


def _of_one(
    op: str,
    calls: Sequence[RecordedCall],
    checks: Sequence[str],
    bounds: Mapping[str, Any],
) -> Iterator[CheckFinding]:
    gone = [_without_check(op, call.gone) for call in calls if call.gone]
    present = [call for call in calls if not call.gone]
    found: dict[str, CheckFinding] = {}
    for number, call in enumerate(present, 1):
        # One failure is enough, because shrinking its input takes long.
        left = [name for name in checks if not _has_failed(found.get(name))]
        try:
            results = _check(call, left, bounds)
        except CustomOpError as error:  # no check can use the arguments
            gone.append(
                CheckFinding(op, "", Outcome("skipped", error.what), str(error))
            )
            continue
        which = f"call {number} of {len(present)} different ones"
        for check, result in results.items():
            finding = _finding(op, check, result, which if len(present) > 1 else "")
            if check in call.op.waivers and finding.outcome.status == "passed":
                finding = finding._replace(outcome=NEEDLESS)
            if _weight(finding) >= _weight(found.get(check)):
                found[check] = finding
    yield from gone[:1]
    yield from found.values()


def _without_check(op: str, gone: str) -> CheckFinding:
    reason = f"{op} was {gone}"
    text = f"{reason}\n  do: define it in a fixture, or in a module"
    return CheckFinding(op, "", Outcome("skipped", reason), text)


def _has_failed(finding: CheckFinding | None) -> bool:
    return finding is not None and finding.outcome.status == "failed"


# The outcome of a check that passes although it is waived.
NEEDLESS: Final = Outcome("passed", "the waiver is not needed")

# Over several calls, the last of these statuses that occurs counts.
_WEIGHTS = ("skipped", "passed", "waived", "failed")


def _weight(finding: CheckFinding | None) -> int:
    return -1 if finding is None else _WEIGHTS.index(finding.outcome.status)


def _check(
    call: RecordedCall, checks: Sequence[str], bounds: Mapping[str, Any]
) -> Mapping[str, Any]:
    if not checks:
        return {}
    args, kwargs = call.sample.args, call.sample.kwargs
    return opcheck(
        call.op, args, kwargs, test_utils=checks, raise_exception=False, **bounds
    )


def _finding(op: str, check: str, result: str | Exception, which: str) -> CheckFinding:
    status, reason = status_of(result)
    if not isinstance(result, Exception):
        return CheckFinding(op, check, Outcome(status, reason))
    text = _text_of(result)
    first = text.partition("\n")[0].removeprefix(f"{op}: {check}: ")
    more = f"\n\n({which})" if which else ""
    return CheckFinding(op, check, Outcome(status, first), text + more)


def _text_of(error: BaseException) -> str:
    """Return the message of an error, and the traceback of its cause in user code."""
    cause = error.__cause__
    if cause is None or isinstance(cause, CustomOpError):
        return str(error)
    trace = cause.__traceback__
    while trace is not None and is_ours(trace.tb_frame.f_globals):
        trace = trace.tb_next
    lines = traceback.format_exception(type(cause), cause, trace, chain=False)
    text = child_traceback(cause) or "".join(lines)
    return f"{error}\n\n{text}".rstrip()


# ---- the summary of a run of pytest with `--opcheck` ----


class Ledger:
    """Sums up the reports and updates the file of known failures.

    Under pytest-xdist it runs in the process that receives the workers' reports.

    Parameters
    ----------
    option : Option
    """

    def __init__(self, option: Option) -> None:
        self._option = option
        self._ran = Ran(option.request.wants, option.request.checks)
        self._calls: Counter[str] = Counter()
        # This includes operators that only a marker checked.
        self._called: set[str] = set()
        self._raised = 0
        self._without_values = 0
        self._operators: set[str] = set()
        self._collected: set[str] = set()
        self._changes: Changes | None = None
        self._unmatched: list[str] = []

    # ---- reports ----

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Read the report of a test or of one of its checks."""
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
        """Remember the names of the collected tests."""
        self._collected.update(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(
        self, node: Any, ids: Sequence[str]
    ) -> None:
        """Remember the names of the tests that a worker collected."""
        self._collected.update(ids)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any, error: Any) -> None:
        """Remember the names of the operators that a worker has."""
        output = getattr(node, "workeroutput", {})
        self._operators.update(output.get("customop_operators", ()))

    # ---- the end ----

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Update the file; fail if no test called an operator that was requested."""
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
        """Print the summary and warn about entries of the file that are out of date."""
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
        # --opcheck-accept removes these entries.
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
        """Return pairs of operator and check whose waiver no test needs."""
        outcomes = self._ran.outcomes.items()
        passed = dict.fromkeys((k.op, k.check) for k, o in outcomes if o == NEEDLESS)
        waived = {(key.op, key.check) for key in self._ran.having("waived")}
        return [pair for pair in passed if pair not in waived]

    def _missing_tests(self) -> set[str]:
        """Return tests in the file that do not exist; none if only some tests ran."""
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
        """Return tests of the same file, and tests of the same name in other files."""
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


# Options that deselect tests.
_NARROWING = ("keyword", "markexpr", "lf", "deselect", "stepwise")


def unchecked(raised: int, without_values: int) -> str:
    """Describe the calls that were not checked, or return ""."""
    parts = [f"{raised} raised"] if raised else []
    if without_values:
        parts.append(f"{without_values} had fake arrays")
    return ", ".join(parts)
