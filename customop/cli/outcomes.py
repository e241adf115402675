"""The results of checks, and the reports of operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from customop.testing.opcheck import OpCheckResult

__all__ = ["STATUSES", "CheckOutcome", "Report", "total"]

# Status -> its word in tables, in the order of the counts.
STATUSES = {
    "passed": "passed",
    "failed": "FAILED",
    "error": "ERROR",
    "skipped": "skipped",
    "waived": "waived",
}


class CheckOutcome(NamedTuple):
    """The result of one check of an operator.

    Attributes
    ----------
    check : str
        Name of the check.
    status : str
        One of `STATUSES`; "error" where the check could not run.
    text : str
        A note, the reason for skipping or of the waiver, or the error.
    type : str
        Class of the error; empty without an error.
    seconds : float
    """

    check: str
    status: str
    text: str = ""
    type: str = ""
    seconds: float = 0.0

    @property
    def has_failed(self) -> bool:
        """Whether the check failed or could not run."""
        return self.status in ("failed", "error")


class Report(NamedTuple):
    """All outcomes of one operator, how long they took, and the result itself."""

    qualname: str
    outcomes: tuple[CheckOutcome, ...]
    seconds: float
    result: OpCheckResult | None = None

    @property
    def status(self) -> str:
        """The worst status of its outcomes."""
        seen = {outcome.status for outcome in self.outcomes}
        worst = ("error", "failed", "passed", "waived")
        return next((s for s in worst if s in seen), "skipped")

    @property
    def has_failed(self) -> bool:
        """Whether a check failed or could not run."""
        return any(outcome.has_failed for outcome in self.outcomes)


def total(reports: Iterable[Report]) -> dict[str, int]:
    """The number of outcomes with each status."""
    seen = Counter(o.status for report in reports for o in report.outcomes)
    return {status: seen[status] for status in STATUSES}
