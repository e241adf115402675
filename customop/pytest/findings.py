"""Run the checks on recorded calls."""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from customop.errors import CustomOpError, is_ours
from customop.pytest.known_failures import Outcome
from customop.pytest.recording import RecordedCall
from customop.testing.apart.transport import child_traceback
from customop.testing.checks.kept import undisturbed
from customop.testing.opcheck import opcheck, status_of

__all__ = ["NEEDLESS", "CheckFinding", "findings_of"]


class CheckFinding(NamedTuple):
    """The result of one check of one operator, over all its calls in a test.

    Attributes
    ----------
    op : str
        Qualified name of the operator.
    check : str
        Name of the check; empty if none could run.
    outcome : Outcome
    text : str
        The message of a failure, or of calls that cannot be checked.
    """

    op: str
    check: str
    outcome: Outcome
    text: str = ""


def findings_of(
    calls: Sequence[RecordedCall], checks: Sequence[str], bounds: Mapping[str, Any]
) -> list[CheckFinding]:
    """Check calls.

    Parameters
    ----------
    calls : sequence of RecordedCall
    checks : sequence of str
        Names of the checks to run.
    bounds : mapping
        `rtol` and `atol`, or empty.

    Returns
    -------
    list of CheckFinding
        One for each operator and check.
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


# The outcome of a check that is waived and passes.
NEEDLESS: Final = Outcome("passed", "the waiver is not needed")

# Over several calls, the heaviest status counts.
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
    """The message, and the traceback of its cause in the user's code."""
    cause = error.__cause__
    if cause is None or isinstance(cause, CustomOpError):
        return str(error)
    trace = cause.__traceback__
    while trace is not None and is_ours(trace.tb_frame.f_globals):
        trace = trace.tb_next
    lines = traceback.format_exception(type(cause), cause, trace, chain=False)
    text = child_traceback(cause) or "".join(lines)
    return f"{error}\n\n{text}".rstrip()
