"""What the checks say of recorded calls."""

from __future__ import annotations

import random
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from customop.errors import CustomOpError
from customop.pytest.known_failures import Outcome
from customop.pytest.recording import RecordedCall
from customop.testing.opcheck import opcheck

__all__ = ["Finding", "findings_of"]


class Finding(NamedTuple):
    """What one check says of one operator, over all calls of a test.

    Attributes
    ----------
    op : str
        Qualified name of the operator.
    check : str
        Name of the check; empty where none could be made.
    outcome : Outcome
    text : str
        All that is to be said of a failure, or of calls that cannot be checked.
    """

    op: str
    check: str
    outcome: Outcome
    text: str = ""


def findings_of(
    calls: Sequence[RecordedCall], checks: Sequence[str], bounds: Mapping[str, Any]
) -> list[Finding]:
    """Check calls.

    Parameters
    ----------
    calls : sequence of Call
    checks : sequence of str
        Names of the checks to make.
    bounds : mapping
        `rtol` and `atol`, or nothing.

    Returns
    -------
    list of Finding
        By operator and check.
    """
    by_op: dict[str, list[RecordedCall]] = {}
    for call in calls:
        by_op.setdefault(call.op.qualname, []).append(call)
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
) -> Iterator[Finding]:
    gone = [_without_check(op, call.gone) for call in calls if call.gone]
    present = [call for call in calls if not call.gone]
    found: dict[str, Finding] = {}
    for number, call in enumerate(present, 1):
        # One call that fails is enough: to make each of them small takes its time.
        left = [name for name in checks if not _has_failed(found.get(name))]
        try:
            said = _checked(call, left, bounds)
        except CustomOpError as error:  # of the arguments, which no check can use
            gone.append(Finding(op, "", Outcome("skipped", error.what), str(error)))
            continue
        which = f"call {number} of {len(present)} unlike ones"
        for check, outcome in said.items():
            finding = _finding(op, check, outcome, which if len(present) > 1 else "")
            if _weight(finding) >= _weight(found.get(check)):
                found[check] = finding
    yield from gone[:1]
    yield from found.values()


def _without_check(op: str, gone: str) -> Finding:
    reason = f"{op} was {gone}"
    text = f"{reason}\n  do: define it in a fixture, or in a module"
    return Finding(op, "", Outcome("skipped", reason), text)


def _has_failed(finding: Finding | None) -> bool:
    return finding is not None and finding.outcome.status == "failed"


# What one call says of a check goes before what another says.
_WEIGHTS = ("skipped", "passed", "failed")


def _weight(finding: Finding | None) -> int:
    return -1 if finding is None else _WEIGHTS.index(finding.outcome.status)


def _checked(
    call: RecordedCall, checks: Sequence[str], bounds: Mapping[str, Any]
) -> Mapping[str, Any]:
    if not checks:
        return {}
    args, kwargs = call.sample.args, call.sample.kwargs
    with _undisturbed():
        return opcheck(
            call.op, args, kwargs, test_utils=checks, raise_exception=False, **bounds
        )


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Leave Python's random numbers as they are; opcheck does so with NumPy's."""
    before = random.getstate()
    try:
        yield
    finally:
        random.setstate(before)


def _finding(op: str, check: str, said: str | Exception, which: str) -> Finding:
    if isinstance(said, Exception):
        text = _text_of(said)
        first = text.partition("\n")[0].removeprefix(f"{op}: {check}: ")
        more = f"\n\n({which})" if which else ""
        return Finding(op, check, Outcome("failed", first), text + more)
    if said == "SUCCESS":
        return Finding(op, check, Outcome("passed"))
    return Finding(op, check, Outcome("skipped", said.removeprefix("SKIPPED: ")))


def _text_of(error: BaseException) -> str:
    """The message, and the way through the user's code to where it raised."""
    cause = error.__cause__
    if cause is None or isinstance(cause, CustomOpError):
        return str(error)
    trace = cause.__traceback__
    while trace is not None and _is_ours(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    lines = traceback.format_exception(type(cause), cause, trace, chain=False)
    return f"{error}\n\n{''.join(lines)}".rstrip()


def _is_ours(path: str) -> bool:
    # The text of a generated call has a name in place of a path.
    return path.startswith("<customop ") or Path(path).is_relative_to(_PACKAGE)


_PACKAGE = Path(__file__).parents[1]
