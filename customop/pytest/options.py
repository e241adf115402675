"""Read markers, options and the file of known failures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from customop.arrays.convert import as_kind as as_kind_at_hand
from customop.arrays.convert import devices_at_hand
from customop.arrays.kinds import is_array, known_devices
from customop.core.operator import Operator
from customop.errors import ArgumentError, CustomOpError, did_you_mean, quoted
from customop.library.ops import OperatorPacket
from customop.testing.checks.check_jobs import CHECKS
from customop.testing.close import check_bounds
from customop.testing.opcheck import checks_in, checks_named

# ---- the file of known failures ----
# It says which checks of which operators fail in which tests.


# In the file, this name means every test.
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
        """The same check of the same operator, in any test."""
        return self._replace(test=ANY_TEST)


class KnownFailure(NamedTuple):
    """An entry of the file; `text` is written back as it was read."""

    key: CheckKey
    text: Any

    @property
    def status(self) -> str:
        """``"xfail"`` or ``"skip"``."""
        return self.text if isinstance(self.text, str) else str(self.text["status"])

    @property
    def reason(self) -> str:
        """Why the check fails, or ""."""
        return "" if isinstance(self.text, str) else str(self.text.get("reason", ""))

    @property
    def is_strict(self) -> bool:
        """Return whether it is an error if the check passes."""
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
        ``asked(qualname)`` returns whether an operator was to be checked.
    checks : collection of str
        Names of the checks that were to run.
    outcomes : dict
        Check of an operator in a test -> its outcome.
    tests : set of str
        Tests that passed, no matter which operators they called.
    """

    asked: Callable[[str], bool]
    checks: tuple[str, ...]
    outcomes: dict[CheckKey, Outcome] = field(default_factory=dict)
    tests: set[str] = field(default_factory=set)

    def concerns(self, key: CheckKey) -> bool:
        """Return whether the run should have met this check."""
        is_tested = key.test in self.tests or key.test == ANY_TEST
        return is_tested and key.check in self.checks and self.asked(key.op)

    def having(self, status: str) -> list[CheckKey]:
        """Return the checks that had this status."""
        return [key for key, o in self.outcomes.items() if o.status == status]


class Changes(NamedTuple):
    """The number of entries that an update added, removed and kept."""

    added: int
    removed: int
    kept: int


class KnownFailures:
    """The entries of the file of known failures.

    Parameters
    ----------
    path : Path
        The file; it need not exist.
    checks : collection of str
        Names of all checks.

    Raises
    ------
    ArgumentError
        If the file is not JSON, or contains an unknown check or status.
    """

    def __init__(self, path: Path, checks: Iterable[str]) -> None:
        self.path = path
        self._checks = tuple(checks)
        # Other fields of the file are written back unchanged.
        self._text: dict[str, Any] = {"about": _ABOUT, "operators": {}}
        if path.exists():
            self._text = self._read()
        self.entries: dict[CheckKey, KnownFailure] = {
            entry.key: entry for entry in self._entries()
        }

    def find(self, key: CheckKey) -> KnownFailure | None:
        """Return the entry for a check of an operator in a test, or None."""
        return self.entries.get(key) or self.entries.get(key.in_any_test)

    def unused(self, ran: Ran) -> list[CheckKey]:
        """Return entries that a run should have met but did not."""
        met = {key for found in ran.outcomes for key in (found, found.in_any_test)}
        return [key for key in self.entries if ran.concerns(key) and key not in met]

    def needless(self, ran: Ran) -> list[CheckKey]:
        """Return any-test entries whose check passes in some test and fails in none."""
        failed = {key.in_any_test for key in ran.having("failed")}
        passed = {key.in_any_test for key in ran.having("passed")}
        return [key for key in self.entries if key in passed - failed]

    def accept(self, ran: Ran) -> Changes:
        """Update the file so that a run like this one passes."""
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
        except ValueError as error:  # from JSON or from UTF-8
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


# ---- markers, options, and the kinds for `all_devices` ----


CHECK_NAMES = tuple(check.name for check in CHECKS)


def is_named(qualname: str, pattern: str) -> bool:
    """Return whether a pattern matches the name of an operator.

    Parameters
    ----------
    qualname : str
        ``"ns::name"`` or ``"ns::name.overload"``.
    pattern : str
        ``"ns"``, ``"ns::name"`` for all overloads, ``"ns::name.overload"``, any of
        these with ``*`` and ``?``; ``"ALL"`` for all but those of this package.

    Returns
    -------
    bool

    Examples
    --------
    >>> is_named("mylib::f", "mylib"), is_named("mylib::f.out", "mylib::g*")
    (True, False)
    """
    namespace, _, full = qualname.partition("::")
    if pattern == "ALL":
        return namespace not in _BUILT_IN
    wanted, colons, name = pattern.partition("::")
    if not fnmatchcase(namespace, wanted):
        return False
    short = full.partition(".")[0]
    overload = full if "." in full else f"{full}.default"
    return not colons or fnmatchcase(short, name) or fnmatchcase(overload, name)


# The operators of this package have their own tests.
_BUILT_IN = ("np", "customop")


@dataclass(frozen=True, slots=True)
class Request:
    """Which operators to check in a test, and how.

    Attributes
    ----------
    patterns : tuple of str
        Patterns for `is_named`.
    checks : tuple of str
        Names of the checks to run.
    bounds : dict
        `rtol` and `atol`, or empty.
    is_own : bool
        Whether the marker is on the test itself and not on its class or module.
    """

    patterns: tuple[str, ...]
    checks: tuple[str, ...]
    bounds: Mapping[str, float] = field(default_factory=dict)
    is_own: bool = False

    def wants(self, qualname: str) -> bool:
        """Return whether an operator is to be checked."""
        return any(is_named(qualname, pattern) for pattern in self.patterns)


@contextmanager
def _usage(where: str) -> Iterator[None]:
    """Turn a CustomOpError inside the block into a usage error without a traceback."""
    try:
        yield
    except CustomOpError as error:
        raise pytest.UsageError(f"{where}: {error}") from None


# ---- markers ----


def request_of(item: pytest.Item) -> Request | None:
    """Return the request of the closest marker of a test, or None.

    Raises
    ------
    pytest.UsageError
        If the marker has a wrong argument.
    """
    mark = item.get_closest_marker("opcheck")
    if mark is None:
        return None
    unknown = [name for name in mark.kwargs if name not in _SETTINGS]
    if unknown:
        near = did_you_mean(unknown[0], _SETTINGS)
        raise _misused(item, f"has no argument '{unknown[0]}'{near}")
    patterns = tuple(_pattern(item, value) for value in mark.args) or ("ALL",)
    bounds = {name: value for name, value in mark.kwargs.items() if name in _BOUNDS}
    with _usage(f"{item.nodeid}: the marker opcheck"):
        check_bounds("opcheck", bounds.get("rtol"), bounds.get("atol"))
        checks = checks_named(mark.kwargs.get("test_utils", "ALL"))
    names = tuple(check.name for check in checks)
    return Request(patterns, names, bounds, mark in item.own_markers)


_BOUNDS = ("rtol", "atol")
_SETTINGS = ("test_utils", *_BOUNDS)


def _pattern(item: pytest.Item, value: Any) -> str:
    if isinstance(value, Operator):
        return f"{value.namespace}::{value.name}.{value.overload or 'default'}"
    if isinstance(value, OperatorPacket):
        return value.qualname
    if isinstance(value, str):
        return value
    raise _misused(item, f"got {value!r}, which is neither an operator nor a name")


def _misused(item: pytest.Item, reason: str) -> pytest.UsageError:
    return pytest.UsageError(
        f"{item.nodeid}: the marker opcheck {reason}\n"
        '  do: write @pytest.mark.opcheck, or @pytest.mark.opcheck(my_op, "ns::other",'
        ' test_utils="test_schema")'
    )


# ---- options ----


class Option(NamedTuple):
    """What the options ``--opcheck...`` request."""

    config: pytest.Config
    request: Request
    known: KnownFailures

    @property
    def accepts(self) -> bool:
        """Return whether to update the file of known failures."""
        return bool(self.config.getoption("opcheck_accept"))


def option_of(config: pytest.Config) -> Option:
    """Read the options from pytest's configuration.

    Raises
    ------
    pytest.UsageError
        If the options contradict each other, or the file cannot be read.
    """
    patterns = tuple(config.getoption("opcheck") or ())
    if not patterns:
        raise pytest.UsageError(
            "--opcheck-accept is given without --opcheck\n"
            "  do: name the operators too: --opcheck NAMESPACE --opcheck-accept"
        )
    with _usage("--opcheck-checks"):
        checks = checks_in(str(config.getoption("opcheck_checks")))
    request = Request(patterns, tuple(check.name for check in checks))
    with _usage("--opcheck-failures"):
        known = KnownFailures(_path_of(config), CHECK_NAMES)
    return Option(config, request, known)


def _path_of(config: pytest.Config) -> Path:
    given = str(config.getoption("opcheck_failures"))
    if not given:
        beside = config.rootpath if config.inipath is None else config.inipath.parent
        return beside / "opcheck_failures.json"
    path = config.invocation_params.dir / given
    if not path.exists() and not config.getoption("opcheck_accept"):
        raise pytest.UsageError(
            f"--opcheck-failures: there is no file {given}\n"
            "  do: run once with --opcheck-accept, which writes it"
        )
    return path


# ---- arrays of every kind ----


def kinds_of_array(config: pytest.Config) -> list[Any]:
    """Return the parameters of the fixture `all_devices`.

    Raises
    ------
    pytest.UsageError
        If the option names an unknown kind.
    """
    at_hand = devices_at_hand()
    given = str(config.getoption("opcheck_devices"))
    names = [name.strip() for name in given.split(",")] if given else at_hand
    return [_parameter(kind, at_hand) for kind in dict.fromkeys(names)]


def _parameter(kind: str, at_hand: Sequence[str]) -> Any:
    if kind in at_hand:
        return pytest.param(kind, id=kind)
    known = known_devices()
    if kind not in known:
        raise pytest.UsageError(
            f"--opcheck-devices: there is no kind of array '{kind}'"
            f"{did_you_mean(kind, known)}; known: {quoted(known)}\n"
            f'  do: register_array_type("{kind}", cls, from_numpy=...) in conftest.py'
        )
    reason = f"arrays of the kind '{kind}' cannot be made here"
    return pytest.param(kind, id=kind, marks=pytest.mark.skip(reason=reason))


def as_kind(values: Any, kind: str, dtype: Any) -> Any:
    """Convert an array or nested numbers to an array of a kind."""
    if not is_array(values) or dtype is not None:
        values = np.asarray(values, dtype)
    return as_kind_at_hand(values, kind)
