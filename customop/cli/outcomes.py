"""What checking operators gives: outcomes of checks, reports of operators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["STATUSES", "Outcome", "Report", "total"]

# In the order in which they are counted up; the text of each in tables.
STATUSES = {
    "passed": "passed",
    "failed": "FAILED",
    "error": "ERROR",
    "skipped": "skipped",
}


class Outcome(NamedTuple):
    """What one check of an operator has given.

    Attributes
    ----------
    check : str
        Name of the check.
    status : str
        One of `STATUSES`; "error" where the check could not run.
    text : str
        What it leaves open, the reason for which it was skipped, or all of the error.
    type : str
        Class of the error; empty without one.
    seconds : float
    """

    check: str
    status: str
    text: str = ""
    type: str = ""
    seconds: float = 0.0


class Report(NamedTuple):
    """All outcomes of one operator, and the time that they took."""

    qualname: str
    outcomes: tuple[Outcome, ...]
    seconds: float

    @property
    def status(self) -> str:
        """The worst that has happened."""
        seen = {outcome.status for outcome in self.outcomes}
        return next((s for s in ("error", "failed", "passed") if s in seen), "skipped")


def total(reports: Iterable[Report]) -> dict[str, int]:
    """How many outcomes of each status there are."""
    seen = Counter(o.status for report in reports for o in report.outcomes)
    return {status: seen[status] for status in STATUSES}
