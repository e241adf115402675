"""The command ``check`` and its JUnit file."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

import customop as co
from customop.cli import check as junit
from customop.cli.plain import CheckOutcome, Report
from customop.testing.checks.check_jobs import CHECKS
from tests.cli._commands import Run, lines


def timeless(text: str) -> str:
    """The text without its times."""
    return re.sub(r"\d+\.\d\d s", "T s", text)


def test_check_passes(run: Run) -> None:
    """An operator that passes is printed as a table; the status is 0."""
    found = run("check", "cli_checked:right", "--test-utils", "test_schema,test_jvp")
    assert timeless(found) == lines("""
        passed  cli_checked::right  1 passed, 1 skipped in T s
          test_schema  passed
          test_jvp     skipped  no jvp rule, and no autograd rule to transpose

        1 operator: 1 passed, 1 skipped in T s
    """)
    assert run.status == 0


def test_check_fails(run: Run) -> None:
    """A failure is printed with its input and code that repeats it; the status is 1."""
    found = run("check", "cli_checked:wrong", "--test-utils", "test_faketensor")
    with pytest.raises(co.OpCheckError) as error:
        co.testing.opcheck(
            co.ops.cli_checked.wrong.default, test_utils="test_faketensor"
        )
    first = str(error.value).splitlines()[0]
    reason = first.removeprefix("cli_checked::wrong: test_faketensor: ")
    assert timeless(found) == (
        "FAILED  cli_checked::wrong  1 failed in T s\n"
        "  test_faketensor  FAILED\n\n"
        + textwrap.indent(str(error.value), "    ")
        + f"\n\n\nFAILED  cli_checked::wrong  test_faketensor  {reason}\n"
        "1 operator: 1 failed in T s\n"
    )
    assert "test_utils='test_faketensor'" in found
    assert run.status == 1


def test_check_cannot_try(run: Run) -> None:
    """An operator without inputs is an error, and the status is 1."""
    found = run.json("check", "cli_checked.py:cli_checked::shy")
    (check,) = found["operators"][0]["checks"]
    assert (check["check"], check["status"]) == ("inputs", "error")
    assert check["type"] == "ArgumentError"
    assert "register_sample_inputs" in check["text"]
    assert found["summary"]["error"] == 1
    assert run.status == 1


def test_check_takes_modules(run: Run) -> None:
    """All operators of a module are checked in order; imported ones are not."""
    argv = ("cli_checked", "cli_package", "-m", "cli_package.inner")
    found = run.json("check", *argv, "--test-utils=test_schema")
    assert [(op["name"], op["status"]) for op in found["operators"]] == [
        ("cli_checked::right", "passed"),
        ("cli_checked::shy", "error"),
        ("cli_checked::wrong", "passed"),
        ("cli_package::one", "passed"),
    ]
    seconds = sum(op["seconds"] for op in found["operators"])
    counts = {"operators": 4, "passed": 3, "failed": 0, "error": 1, "skipped": 0}
    counts["waived"] = 0
    assert found["summary"] == {**counts, "seconds": pytest.approx(seconds)}


def test_check_imports_submodules(run: Run) -> None:
    """A package has the operators of all its submodules."""
    found = run.json("check", "cli_package", "--test-utils=test_schema")
    assert [op["name"] for op in found["operators"]] == ["cli_package::one"]


def test_check_goes_on_after_a_submodule_that_does_not_import(run: Run) -> None:
    """It is an error in the report; programs (`__main__`) are not imported."""
    found = run.json("check", "cli_parts", "--test-utils=test_schema")
    assert [(op["name"], op["status"]) for op in found["operators"]] == [
        ("cli_parts.broken", "error"),
        ("cli_parts::one", "passed"),
    ]
    (check,) = found["operators"][0]["checks"]
    assert check["check"] == "import"
    assert "No module named 'cli_nowhere'" in check["text"]
    assert run.status == 1


def test_check_goes_on_after_a_wrong_target(run: Run) -> None:
    """The others are checked first; the status is 2."""
    for wrong in ("cli_raises", "cli_nowhere", "cli_checked:wong", "cli_checked::wong"):
        found = run("check", wrong, "cli_package", "--test-utils=test_schema")
        assert "passed  cli_package::one" in found
        assert run.status == 2
        assert "customop: error: " in run.err


def test_check_takes_the_name_of_an_operator(run: Run) -> None:
    """As in show: namespace::name, after -m MODULE."""
    argv = ("-m", "cli_checked", "--test-utils=test_schema")
    found = run.json("check", "cli_checked::right", *argv)
    assert [op["name"] for op in found["operators"]] == ["cli_checked::right"]
    assert "did you mean 'cli_checked::right'?" in run.error(
        "check", "cli_checked::rigt", "-m", "cli_checked"
    )


def test_a_file_may_begin_with_a_number(run: Run) -> None:
    """`import` cannot take such a file, but it is a script."""
    found = run.json("check", "10_course.py", "--test-utils=test_schema")
    assert [op["name"] for op in found["operators"]] == ["cli_course::ten"]
    assert "cli_course::ten" in run("list", "cli_course", "-m", "10_course.py")


def test_check_leaves_out_modules_with_longer_names(run: Run) -> None:
    """`name_more` is not a submodule of `name`."""
    run("list", "cli_checked_more", "-m", "cli_checked_more")
    assert run.status == 0
    found = run.json("check", "cli_checked", "--test-utils=test_pickle")
    assert len(found["operators"]) == 3


@pytest.mark.parametrize("name", ["right", "cli_checked::right", "r*", "*::right"])
def test_check_takes_one_operator(run: Run, name: str) -> None:
    """An operator is chosen by attribute, name or glob."""
    found = run.json("check", f"cli_checked:{name}", "--test-utils", "test_pickle")
    assert [op["name"] for op in found["operators"]] == ["cli_checked::right"]


@pytest.mark.parametrize("module", ["cli_importer", "cli_package.inner"])
def test_check_takes_imported_operators_by_name(run: Run, module: str) -> None:
    """An attribute of a module may be an operator of another module."""
    found = run.json("check", f"{module}:scale", "--test-utils", "test_pickle")
    assert [op["name"] for op in found["operators"]] == ["cli_ops::scale"]


def test_check_stops_after_the_first_failure(run: Run) -> None:
    """With --exitfirst nothing is checked after an operator that fails."""
    found = run.json("check", "cli_checked", "-x", "--test-utils=test_schema")
    assert [op["name"] for op in found["operators"]] == [
        "cli_checked::right",
        "cli_checked::shy",
    ]


def test_quiet_check(run: Run) -> None:
    """With --quiet an operator that passes takes one line."""
    found = run("check", "cli_checked:right", "-q", "--test-utils=test_schema")
    assert timeless(found) == (
        "passed  cli_checked::right  1 passed in T s\n\n1 operator: 1 passed in T s\n"
    )


def test_check_prints_notes(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The note of a check that passes is printed."""

    def opcheck(op: co.Operator[..., Any], **settings: Any) -> Any:
        found = co.testing.OpCheckResult(op.qualname)
        found["test_sizes"], found.seconds["test_sizes"] = "SUCCESS", 0.0
        found.notes["test_sizes"] = "of one size"
        return found

    monkeypatch.setattr("customop.cli.check.opcheck", opcheck)
    assert timeless(run("check", "cli_checked:right")) == lines("""
        passed  cli_checked::right  1 passed in T s
          test_sizes  passed  of one size

        1 operator: 1 passed in T s
    """)


def test_check_passes_its_options_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tolerances and names of checks are passed to opcheck."""
    seen: list[dict[str, Any]] = []

    def opcheck(op: co.Operator[..., Any], **settings: Any) -> Any:
        seen.append(settings)
        return co.testing.OpCheckResult(op.qualname)

    monkeypatch.setattr("customop.cli.check.opcheck", opcheck)
    run("check", "cli_checked:right", "--rtol", "0.5", "--atol=1e-3")
    run("check", "cli_checked:right", "--test-utils", "test_vmap, test_jvp")
    quiet = {"raise_exception": False}
    names = [check.name for check in CHECKS]
    assert seen == [
        quiet | {"test_utils": names, "rtol": 0.5, "atol": 0.001},
        quiet | {"test_utils": ["test_vmap", "test_jvp"], "rtol": None, "atol": None},
    ]


def test_a_kernel_that_exits_is_an_error(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that calls sys.exit(0) does not end the run with status 0."""

    def opcheck(op: co.Operator[..., Any], **settings: Any) -> Any:
        raise SystemExit(0)

    monkeypatch.setattr("customop.cli.check.opcheck", opcheck)
    found = run.json("check", "cli_checked:right")
    assert found["operators"][0]["checks"][0]["text"] == "SystemExit: 0"
    assert run.status == 1
    with pytest.raises(SystemExit):
        run("check", "cli_checked:right", "--traceback")


@pytest.mark.parametrize(
    ("statuses", "worst"),
    [
        (["passed", "failed", "error"], "error"),
        (["skipped", "failed", "passed"], "failed"),
        (["skipped", "passed"], "passed"),
        (["skipped"], "skipped"),
        ([], "skipped"),
    ],
    ids=["error", "failed", "passed", "skipped", "no outcome"],
)
def test_the_status_of_an_operator(statuses: list[str], worst: str) -> None:
    """An operator has the worst status of its checks."""
    outcomes = tuple(CheckOutcome("one", status) for status in statuses)
    assert Report("ns::f", outcomes, 1.0).status == worst


# ---- JUnit ----


def test_junit(run: Run, tmp_path: Path) -> None:
    """The file has a suite for each operator, a case for each check, and counts."""
    path = tmp_path / "new" / "report.xml"
    checks = "test_schema,test_faketensor,test_jvp"
    run("check", "cli_checked", "--test-utils", checks, "--junit", str(path))
    root = ET.parse(path).getroot()
    assert (root.tag, root.get("name")) == ("testsuites", "customop")
    counted = [
        [element.get(key) for key in ("tests", "failures", "errors", "skipped")]
        for element in (root, *root)
    ]
    assert counted == [
        ["7", "1", "1", "2"],
        ["3", "0", "0", "1"],
        ["1", "0", "1", "0"],
        ["3", "1", "0", "1"],
    ]
    cases = [
        (case.get("classname"), case.get("name"), [child.tag for child in case])
        for case in root.iter("testcase")
    ]
    assert cases == [
        ("cli_checked.right", "test_schema", []),
        ("cli_checked.right", "test_faketensor", []),
        ("cli_checked.right", "test_jvp", ["skipped"]),
        ("cli_checked.shy", "inputs", ["error"]),
        ("cli_checked.wrong", "test_schema", []),
        ("cli_checked.wrong", "test_faketensor", ["failure"]),
        ("cli_checked.wrong", "test_jvp", ["skipped"]),
    ]
    assert all(
        float(e.get("time") or -1) >= 0 for e in root.iter() if "time" in e.attrib
    )


def test_junit_keeps_messages(tmp_path: Path) -> None:
    """A failure has its class, first line and text; control characters are escaped."""
    path = tmp_path / "report.xml"
    text = "a <b> & \x1b[1mbold\x1b[0m \ud800\nsecond"
    outcomes = (
        CheckOutcome("one", "failed", text, "OpCheckError", 0.25),
        CheckOutcome("two", "skipped", "no rule", seconds=0.5),
    )
    junit.write(str(path), [Report("ns::f.a", outcomes, 1.0)])
    root = ET.parse(path).getroot()
    first, second = root.iter("testcase")
    assert first.attrib == {"classname": "ns.f.a", "name": "one", "time": "0.250000"}
    (failure,) = first
    clean = r"a <b> & \x1b[1mbold\x1b[0m \ud800"
    assert failure.attrib == {"message": clean, "type": "OpCheckError"}
    assert failure.text == f"{clean}\nsecond"
    (skipped,) = second
    assert (skipped.tag, skipped.attrib) == ("skipped", {"message": "no rule"})
    assert root.get("time") == "1.000000"
