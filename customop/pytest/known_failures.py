"""A file of checks that are known to fail, by operator, test and check."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from customop.errors import ArgumentError, did_you_mean, quoted

__all__ = [
    "ANY_TEST",
    "LEFT_OUT",
    "Changes",
    "Entry",
    "KnownFailures",
    "Outcome",
    "Ran",
]

# Name of a test in the file.
ANY_TEST = "*"
# Status of the outcome of a check that the file keeps from running.
LEFT_OUT = "left out"
_STATUSES = ("xfail", "skip")
_ABOUT = (
    "Checks of operators that are known to fail: operator, test, check. The status is"
    " 'xfail' or 'skip'; 'pytest --opcheck ... --opcheck-accept' brings this file up to"
    " date and keeps all reasons."
)


class Entry(NamedTuple):
    """One entry of the file: of which the text is written back as it was read."""

    op: str
    test: str
    check: str
    text: Any

    @property
    def status(self) -> str:
        """``"xfail"`` or ``"skip"``."""
        return self.text if isinstance(self.text, str) else str(self.text["status"])

    @property
    def reason(self) -> str:
        """Why it fails, or nothing."""
        return "" if isinstance(self.text, str) else str(self.text.get("reason", ""))

    @property
    def is_strict(self) -> bool:
        """Whether the check must fail, or the entry is to go."""
        return self.test != ANY_TEST and self.status == "xfail"

    def __str__(self) -> str:
        return f"{self.op} -> {self.test} -> {self.check}"


class Outcome(NamedTuple):
    """What a check said of an operator in a test: passed, failed, skipped, left out."""

    status: str
    reason: str = ""


@dataclass(slots=True)
class Ran:
    """What a run of the tests has found.

    Attributes
    ----------
    outcomes : dict
        (operator, test, check) -> outcome.
    tests : set of str
        Tests that ran to their end, whatever they called.
    asked : callable
        Whether an operator was to be checked, by name.
    checks : collection of str
        Names of the checks that were to run.
    """

    asked: Callable[[str], bool]
    checks: tuple[str, ...]
    outcomes: dict[tuple[str, str, str], Outcome] = field(default_factory=dict)
    tests: set[str] = field(default_factory=set)

    def concerns(self, entry: Entry) -> bool:
        """Whether the run would have met what an entry is about."""
        is_tested = entry.test in self.tests or entry.test == ANY_TEST
        return is_tested and entry.check in self.checks and self.asked(entry.op)


class Changes(NamedTuple):
    """How the file differs after it was brought up to date."""

    added: int
    removed: int
    kept: int


class KnownFailures:
    """The entries of a file.

    Parameters
    ----------
    path : Path
        The file; it need not exist.
    checks : collection of str
        Names of all checks there are.

    Raises
    ------
    ArgumentError
        If the file is no JSON, or says something that is not known.
    """

    def __init__(self, path: Path, checks: Iterable[str]) -> None:
        self.path = path
        self._checks = tuple(checks)
        # All that the file says beside the entries goes back into it.
        self._text: dict[str, Any] = {"about": _ABOUT, "operators": {}}
        if path.exists():
            self._text = self._read()
        found = list(self._entries())
        self.entries: dict[tuple[str, str, str], Entry] = {
            (e.op, e.test, e.check): e for e in found
        }

    def find(self, op: str, test: str, check: str) -> Entry | None:
        """The entry for a check of an operator in a test, or None."""
        exact = self.entries.get((op, test, check))
        return exact or self.entries.get((op, ANY_TEST, check))

    def unused(self, ran: Ran) -> list[Entry]:
        """Entries that a run should have met, and did not."""
        met = {(op, test, check) for op, test, check in ran.outcomes}
        met |= {(op, ANY_TEST, check) for op, _, check in ran.outcomes}
        return [
            entry
            for key, entry in self.entries.items()
            if ran.concerns(entry) and key not in met
        ]

    def needless(self, ran: Ran) -> list[Entry]:
        """Entries for any test of which no test fails; a part of them may not run."""
        failed = {
            (op, c) for (op, _, c), o in ran.outcomes.items() if o.status == "failed"
        }
        passed = {
            (op, c) for (op, _, c), o in ran.outcomes.items() if o.status == "passed"
        }
        return [
            e
            for e in self.entries.values()
            if e.test == ANY_TEST and (e.op, e.check) in passed - failed
        ]

    def accept(self, ran: Ran) -> Changes:
        """Write the file anew, so that a run like this one would not fail."""
        stale = {(e.op, e.test, e.check) for e in self.unused(ran)}
        kept = {
            key: entry
            for key, entry in self.entries.items()
            if entry.test == ANY_TEST or (key not in stale and self._holds(entry, ran))
        }
        added = {
            key: Entry(*key, _new_text(outcome.reason))
            for key, outcome in ran.outcomes.items()
            if outcome.status == "failed" and self.find(*key) is None
        }
        removed = len(self.entries) - len(kept)
        self.entries = {**kept, **added}
        if added or removed:
            self._write()
        return Changes(len(added), removed, len(kept))

    def _holds(self, entry: Entry, ran: Ran) -> bool:
        outcome = ran.outcomes.get((entry.op, entry.test, entry.check))
        passed = outcome is not None and outcome.status == "passed"
        return not (entry.is_strict and passed)

    # ---- the file ----

    def _read(self) -> dict[str, Any]:
        try:
            text = json.loads(self.path.read_text(encoding="utf-8"))
        except ValueError as error:  # of JSON, or of UTF-8
            raise self._fault(f"is no JSON: {error}") from None
        if not isinstance(text, dict) or not isinstance(text.get("operators"), dict):
            raise self._fault("has no object 'operators'")
        return text

    def _entries(self) -> Iterator[Entry]:
        for op, tests in self._text["operators"].items():
            for test, checks in self._object(tests, op).items():
                for check, text in self._object(checks, f"{op} -> {test}").items():
                    yield self._entry(op, test, check, text)

    def _object(self, value: Any, where: str) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise self._fault(f"has {value!r} at {where}, must be an object")
        return value

    def _entry(self, op: str, test: str, check: str, text: Any) -> Entry:
        where = f"{op} -> {test} -> {check}"
        if check not in self._checks:
            near = did_you_mean(check, self._checks)
            raise self._fault(f"names a check that there is not at {where}{near}")
        status = text.get("status") if isinstance(text, dict) else text
        if status not in _STATUSES:
            near = did_you_mean(str(status), _STATUSES)
            raise self._fault(f"has the status {status!r} at {where}{near}")
        return Entry(op, test, check, text)

    def _fault(self, what: str) -> ArgumentError:
        return ArgumentError(
            f"{self.path.name} {what}",
            f"at {self.path}",
            do='write {"operators": {"ns::name": {"test_x.py::test_y": {"test_schema":'
            f' {{"status": "xfail", "reason": "..."}}}}}}}}}}, with a status of'
            f" {quoted(_STATUSES)}",
        )

    def _write(self) -> None:
        operators: dict[str, Any] = {}
        for key in sorted(self.entries):
            op, test, check = key
            tests = operators.setdefault(op, {})
            tests.setdefault(test, {})[check] = self.entries[key].text
        self._text["operators"] = operators
        text = json.dumps(self._text, indent=2, ensure_ascii=False)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(text + "\n", encoding="utf-8")


def _new_text(reason: str) -> dict[str, str]:
    return {"status": "xfail", **({"reason": reason} if reason else {})}
