"""The file of known failures: which checks of which operators fail in which tests."""

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
    "CheckKey",
    "KnownFailure",
    "KnownFailures",
    "Outcome",
    "Ran",
]

# The name of all tests in the file.
ANY_TEST = "*"
# The status of a check that the file says to skip.
LEFT_OUT = "left out"
_STATUSES = ("xfail", "skip")
_ABOUT = (
    "Known failures of operators: operator, test, check. The status is 'xfail' or"
    " 'skip'; 'pytest --opcheck ... --opcheck-accept' updates this file and keeps all"
    " reasons."
)


class CheckKey(NamedTuple):
    """A check of an operator in a test."""

    op: str
    test: str
    check: str

    def __str__(self) -> str:
        return " -> ".join(self)

    @property
    def in_any_test(self) -> CheckKey:
        """The same check of the same operator in any test."""
        return self._replace(test=ANY_TEST)


class KnownFailure(NamedTuple):
    """One entry of the file; `text` is written back as it was read."""

    key: CheckKey
    text: Any

    @property
    def status(self) -> str:
        """``"xfail"`` or ``"skip"``."""
        return self.text if isinstance(self.text, str) else str(self.text["status"])

    @property
    def reason(self) -> str:
        """Why it fails, or an empty text."""
        return "" if isinstance(self.text, str) else str(self.text.get("reason", ""))

    @property
    def is_strict(self) -> bool:
        """Whether it is an error that the check passes."""
        return self.key.test != ANY_TEST and self.status == "xfail"


class Outcome(NamedTuple):
    """The result of a check: "passed", "failed", "skipped", "waived" or "left out"."""

    status: str
    reason: str = ""


@dataclass(slots=True)
class Ran:
    """The results of a run of tests.

    Attributes
    ----------
    asked : callable
        ``asked(qualname)`` says whether an operator was to be checked.
    checks : collection of str
        Names of the checks that were to run.
    outcomes : dict
        Check of an operator in a test -> its outcome.
    tests : set of str
        Tests that passed, whatever they called.
    """

    asked: Callable[[str], bool]
    checks: tuple[str, ...]
    outcomes: dict[CheckKey, Outcome] = field(default_factory=dict)
    tests: set[str] = field(default_factory=set)

    def concerns(self, key: CheckKey) -> bool:
        """Whether the run would have met a check."""
        is_tested = key.test in self.tests or key.test == ANY_TEST
        return is_tested and key.check in self.checks and self.asked(key.op)

    def having(self, status: str) -> list[CheckKey]:
        """The checks with a status."""
        return [key for key, o in self.outcomes.items() if o.status == status]


class Changes(NamedTuple):
    """The number of entries that an update added, removed and kept."""

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
        Names of all checks.

    Raises
    ------
    ArgumentError
        If the file is not JSON, or has an unknown check or status.
    """

    def __init__(self, path: Path, checks: Iterable[str]) -> None:
        self.path = path
        self._checks = tuple(checks)
        # Fields other than the entries are written back.
        self._text: dict[str, Any] = {"about": _ABOUT, "operators": {}}
        if path.exists():
            self._text = self._read()
        self.entries: dict[CheckKey, KnownFailure] = {
            entry.key: entry for entry in self._entries()
        }

    def find(self, key: CheckKey) -> KnownFailure | None:
        """The entry for a check of an operator in a test, or None."""
        return self.entries.get(key) or self.entries.get(key.in_any_test)

    def unused(self, ran: Ran) -> list[CheckKey]:
        """Entries that a run should have met, and did not."""
        met = {key for found in ran.outcomes for key in (found, found.in_any_test)}
        return [key for key in self.entries if ran.concerns(key) and key not in met]

    def needless(self, ran: Ran) -> list[CheckKey]:
        """Entries for any test whose check passes in some tests and fails in none."""
        failed = {key.in_any_test for key in ran.having("failed")}
        passed = {key.in_any_test for key in ran.having("passed")}
        return [key for key in self.entries if key in passed - failed]

    def accept(self, ran: Ran) -> Changes:
        """Update the file, so that a run like this one passes."""
        added = {
            key: KnownFailure(key, _new_text(ran.outcomes[key].reason))
            for key in ran.having("failed")
            if self.find(key) is None
        }
        gone = {key for key in self.unused(ran) if key.test != ANY_TEST}
        gone |= {k for k in ran.having("passed") if self._is_strict(k)}
        kept = {key: entry for key, entry in self.entries.items() if key not in gone}
        removed = len(self.entries) - len(kept)
        self.entries = {**kept, **added}
        if added or removed:
            self._write()
        return Changes(len(added), removed, len(kept))

    def _is_strict(self, key: CheckKey) -> bool:
        return key in self.entries and self.entries[key].is_strict

    # ---- the file ----

    def _read(self) -> dict[str, Any]:
        try:
            text = json.loads(self.path.read_text(encoding="utf-8"))
        except ValueError as error:  # of JSON, or of UTF-8
            raise self._error(f"is not JSON: {error}") from None
        if not isinstance(text, dict) or not isinstance(text.get("operators"), dict):
            raise self._error("has no object 'operators'")
        return text

    def _entries(self) -> Iterator[KnownFailure]:
        for op, tests in self._text["operators"].items():
            for test, checks in self._object(tests, op).items():
                for check, text in self._object(checks, f"{op} -> {test}").items():
                    yield self._entry(CheckKey(op, test, check), text)

    def _object(self, value: Any, where: str) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise self._error(f"has {value!r} at {where}, must be an object")
        return value

    def _entry(self, key: CheckKey, text: Any) -> KnownFailure:
        if key.check not in self._checks:
            near = did_you_mean(key.check, self._checks)
            raise self._error(f"names an unknown check at {key}{near}")
        status = text.get("status") if isinstance(text, dict) else text
        if status not in _STATUSES:
            near = did_you_mean(str(status), _STATUSES)
            raise self._error(f"has the status {status!r} at {key}{near}")
        return KnownFailure(key, text)

    def _error(self, what: str) -> ArgumentError:
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
            tests = operators.setdefault(key.op, {})
            tests.setdefault(key.test, {})[key.check] = self.entries[key].text
        self._text["operators"] = operators
        text = json.dumps(self._text, indent=2, ensure_ascii=False)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text(text + "\n", encoding="utf-8")


def _new_text(reason: str) -> dict[str, str]:
    return {"status": "xfail", **({"reason": reason} if reason else {})}
