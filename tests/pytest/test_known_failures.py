"""The file of known failures: its format, and how it is updated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import customop as co
from customop.pytest.options import Changes, CheckKey, KnownFailures, Outcome, Ran

CHECKS = ("test_schema", "test_faketensor", "test_vmap")
A, B = "tests/test_a.py::test_a", "tests/test_a.py::test_b[x]"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The path of the file."""
    return tmp_path / "known.json"


def write(path: Path, operators: Any, **others: Any) -> str:
    """Write a file; return its text."""
    text = json.dumps({**others, "operators": operators}, indent=2) + "\n"
    path.write_text(text, encoding="utf-8")
    return text


def known(path: Path) -> KnownFailures:
    """Read a file."""
    return KnownFailures(path, CHECKS)


def ran(
    outcomes: dict[tuple[str, str, str], str] | None = None,
    tests: tuple[str, ...] = (A, B),
    checks: tuple[str, ...] = CHECKS,
) -> Ran:
    """Return the results of a run with operators of 'lib'."""
    found = {
        CheckKey(*key): Outcome(s, f"why {s}") for key, s in (outcomes or {}).items()
    }
    return Ran(lambda op: op.startswith("lib"), checks, found, set(tests))


def entries(path: Path) -> dict[tuple[str, str, str], Any]:
    """Return the entries of a file."""
    text = json.loads(path.read_text(encoding="utf-8"))
    return {
        (op, test, check): entry
        for op, tests in text["operators"].items()
        for test, checks in tests.items()
        for check, entry in checks.items()
    }


# ---- reading ----


def test_a_missing_file(path: Path) -> None:
    """Without a file there are no known failures."""
    assert known(path).entries == {}


def test_an_entry_is_a_status_or_an_object(path: Path) -> None:
    """An entry may be the status alone; a reason needs an object."""
    write(
        path,
        {
            "lib::f": {
                A: {
                    "test_schema": "skip",
                    "test_vmap": {"status": "xfail", "reason": "no rule"},
                }
            }
        },
    )
    found = known(path)
    skip = found.find(CheckKey("lib::f", A, "test_schema"))
    xfail = found.find(CheckKey("lib::f", A, "test_vmap"))
    assert skip is not None
    assert xfail is not None
    assert (skip.status, skip.reason, skip.is_strict) == ("skip", "", False)
    assert (xfail.status, xfail.reason, xfail.is_strict) == ("xfail", "no rule", True)


@pytest.mark.parametrize(
    "key",
    [
        ("lib::g", A, "test_schema"),
        ("lib::f", B, "test_schema"),
        ("lib::f", A, "test_vmap"),
    ],
    ids=["another operator", "another test", "another check"],
)
def test_an_entry_covers_one_check(path: Path, key: tuple[str, str, str]) -> None:
    """An entry covers one check of one operator in one test."""
    write(path, {"lib::f": {A: {"test_schema": "xfail"}}})
    assert known(path).find(CheckKey(*key)) is None


def test_a_star_is_any_test(path: Path) -> None:
    """An entry for `*` covers every test, and need not fail in each."""
    write(path, {"lib::f": {"*": {"test_schema": "xfail"}}})
    entry = known(path).find(CheckKey("lib::f", B, "test_schema"))
    assert entry is not None
    assert not entry.is_strict


def test_the_entry_of_a_test_goes_before_a_star(path: Path) -> None:
    """An entry for one test goes before an entry for `*`."""
    checks = {"*": {"test_schema": "xfail"}, A: {"test_schema": "skip"}}
    write(path, {"lib::f": checks})
    entry = known(path).find(CheckKey("lib::f", A, "test_schema"))
    assert entry is not None
    assert entry.status == "skip"


DO = (
    '  do: write {"operators": {"ns::name": {"test_x.py::test_y": {"test_schema":'
    ' {"status": "xfail", "reason": "..."}}}}}, with a status of \'xfail\', \'skip\''
)
FAULTS = {
    "no JSON": (
        "{",
        (
            "is not JSON: Expecting property name enclosed in double quotes: line 1 column 2"
            " (char 1)"
        ),
    ),
    "no object": ("[]", "has no object 'operators'"),
    "no operators": ("{}", "has no object 'operators'"),
    "operator": ('{"operators": {"lib::f": 1}}', "has 1 at lib::f, must be an object"),
    "test": (
        '{"operators": {"lib::f": {"test_a": "xfail"}}}',
        "has 'xfail' at lib::f -> test_a, must be an object",
    ),
    "check": (
        '{"operators": {"lib::f": {"test_a": {"test_schemas": "xfail"}}}}',
        (
            "names an unknown check at lib::f -> test_a -> test_schemas (did you mean"
            " 'test_schema'?)"
        ),
    ),
    "status": (
        '{"operators": {"lib::f": {"test_a": {"test_vmap": "xfial"}}}}',
        (
            "has the status 'xfial' at lib::f -> test_a -> test_vmap (did you mean"
            " 'xfail'?)"
        ),
    ),
    "no status": (
        '{"operators": {"lib::f": {"test_a": {"test_vmap": {"reason": "none"}}}}}',
        "has the status None at lib::f -> test_a -> test_vmap",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_faults_of_the_file(path: Path, name: str) -> None:
    """A file that cannot be read is an error that says where and what to write."""
    text, what = FAULTS[name]
    path.write_text(text, encoding="utf-8")
    with pytest.raises(co.ArgumentError) as error:
        known(path)
    assert str(error.value) == f"known.json {what}\n  at {path}\n{DO}"


# ---- updating ----


def test_failures_are_added(path: Path) -> None:
    """Failures are added with their reasons, in sorted order."""
    found = {
        ("lib::g", B, "test_vmap"): "failed",
        ("lib::g", A, "test_vmap"): "failed",
        ("lib::f", A, "test_vmap"): "failed",
        ("lib::f", A, "test_schema"): "passed",
        ("lib::f", B, "test_schema"): "skipped",
    }
    assert known(path).accept(ran(found)) == Changes(3, 0, 0)
    new = {"status": "xfail", "reason": "why failed"}
    assert list(entries(path).items()) == [
        (("lib::f", A, "test_vmap"), new),
        (("lib::g", A, "test_vmap"), new),
        (("lib::g", B, "test_vmap"), new),
    ]


def test_accepting_twice_changes_nothing(path: Path) -> None:
    """The second time the file stays the same to the byte."""
    found = {("lib::f", A, "test_vmap"): "failed", ("lib::f", B, "test_vmap"): "failed"}
    known(path).accept(ran(found))
    before = path.read_bytes()
    assert known(path).accept(ran(found)) == Changes(0, 0, 2)
    assert path.read_bytes() == before


def test_a_file_in_another_format(path: Path) -> None:
    """A file that is up to date is not written."""
    path.write_text(
        '{"operators":{"lib::f":{"%s":{"test_vmap":"xfail"}}}}' % A,  # noqa: UP031  # braces
        encoding="utf-8",
    )
    before = path.read_bytes()
    known(path).accept(ran({("lib::f", A, "test_vmap"): "failed"}))
    assert path.read_bytes() == before


def test_other_fields_are_kept(path: Path) -> None:
    """Reasons and other fields stay as they are."""
    entry = {"issue": 7, "status": "xfail", "reason": "später"}
    write(path, {"lib::f": {A: {"test_vmap": entry}}}, owner="me")
    found = {("lib::f", A, "test_vmap"): "failed", ("lib::a", A, "test_vmap"): "failed"}
    assert known(path).accept(ran(found)) == Changes(1, 0, 1)
    assert list(entries(path).values())[1] == entry
    assert '"reason": "später"' in path.read_text(encoding="utf-8")
    assert json.loads(path.read_text(encoding="utf-8"))["owner"] == "me"


# Test and status of the entry, the run, and whether the entry stays.
CASES: dict[str, tuple[str, str, Ran, bool]] = {
    "fails": (A, "xfail", ran({("lib::f", A, "test_vmap"): "failed"}), True),
    "passes": (A, "xfail", ran({("lib::f", A, "test_vmap"): "passed"}), False),
    "does not apply": (A, "xfail", ran({("lib::f", A, "test_vmap"): "skipped"}), True),
    "left out": (A, "skip", ran({("lib::f", A, "test_vmap"): "left out"}), True),
    "no longer called": (A, "xfail", ran(), False),
    "no longer left out": (A, "skip", ran(), False),
    "test did not run": (A, "xfail", ran(tests=(B,)), True),
    "check did not run": (A, "xfail", ran(checks=("test_schema",)), True),
    "any test, one passes": (
        "*",
        "xfail",
        ran({("lib::f", A, "test_vmap"): "passed"}),
        True,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_which_entries_stay(path: Path, name: str) -> None:
    """An entry is removed if the run shows that it is not needed."""
    test, status, run, stays = CASES[name]
    write(path, {"lib::f": {test: {"test_vmap": {"status": status}}}})
    changes = known(path).accept(run)
    assert changes == (Changes(0, 0, 1) if stays else Changes(0, 1, 0))
    assert (("lib::f", test, "test_vmap") in entries(path)) is stays


def test_entries_of_other_operators_stay(path: Path) -> None:
    """A run does not remove entries of operators that it did not check."""
    write(path, {"other::f": {A: {"test_vmap": "xfail"}}})
    assert known(path).accept(ran()) == Changes(0, 0, 1)


def test_a_star_covers_new_failures(path: Path) -> None:
    """A failure that an entry for `*` covers is not added."""
    write(path, {"lib::f": {"*": {"test_vmap": "xfail"}}})
    changes = known(path).accept(ran({("lib::f", A, "test_vmap"): "failed"}))
    assert changes == Changes(0, 0, 1)


# ---- entries out of date ----


def test_unused_entries(path: Path) -> None:
    """Entries that the run should have met and did not are unused."""
    tests = {A: {"test_vmap": "xfail"}, B: {"test_vmap": "xfail"}}
    write(path, {"lib::f": tests, "other::f": tests})
    run = ran({("lib::f", A, "test_vmap"): "failed"})
    assert [str(entry) for entry in known(path).unused(run)] == [
        f"lib::f -> {B} -> test_vmap"
    ]


def test_needless_stars(path: Path) -> None:
    """An entry for `*` is needless if its check passes in some tests and fails in none."""
    write(path, {op: {"*": {"test_vmap": "xfail"}} for op in ("lib::f", "lib::g")})
    found = {
        ("lib::f", A, "test_vmap"): "passed",
        ("lib::f", B, "test_vmap"): "failed",
        ("lib::g", A, "test_vmap"): "passed",
    }
    needless = known(path).needless(ran(found))
    assert [str(entry) for entry in needless] == ["lib::g -> * -> test_vmap"]
