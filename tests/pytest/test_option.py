"""The option ``--opcheck`` and what it reports."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from customop.testing.checks.check_jobs import CHECKS
from tests.pytest._project import FAR, SUITE, Project, lines
from tests.tiers import all_but

pytest_plugins = ("pytester",)


def test_the_option_checks_every_call(project: Project) -> None:
    """Each check that fails is a separate report; the tests themselves pass."""
    project.tests(SUITE)
    result = project.run("--opcheck", "mylib")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=4, failed=2)
    result.stdout.re_match_lines(
        [
            r"test_it.py \.\.F\.F\. .*",
            r"_+ test_far \[mylib::far test_vmap\] _+",
            r"mylib::far: test_vmap: .*",
            r"_+ TestOthers.test_other.steep. \[mylib::steep test_jvp\] _+",
            r"mylib::steep: test_jvp: .*",
            r"-+ opcheck -+",
            (
                r"3 calls of 3 operators: \d+ checks passed, 2 failed \(0 known\), \d+ did not"
                r" apply"
            ),
            r"OPCHECK FAILED\[mylib::far test_vmap\] test_it.py::test_far",
            r"OPCHECK FAILED\[mylib::steep test_jvp\] .*",
        ]
    )


# Patterns -> operators whose checks fail.
OPTIONS = {
    ("mylib",): {"mylib::far", "mylib::steep"},
    ("mylib::*",): {"mylib::far", "mylib::steep"},
    ("mylib::far",): {"mylib::far"},
    ("mylib::far.default",): {"mylib::far"},
    ("other", "mylib::s*"): {"other::alien", "mylib::steep"},
    ("ALL",): {"mylib::far", "mylib::steep", "other::alien"},
}


@pytest.mark.parametrize(
    "patterns", all_but(OPTIONS, [("other", "mylib::s*"), ("ALL",)]), ids=" ".join
)
def test_patterns_of_the_option(project: Project, patterns: tuple[str, ...]) -> None:
    """The option takes namespaces, names with wildcards, and ALL, and may be repeated."""
    project.tests(SUITE)
    result = project.run(*(part for p in patterns for part in ("--opcheck", p)))
    failed = lines(result, "OPCHECK FAILED[")
    assert {line.split("[")[1].split()[0] for line in failed} == OPTIONS[patterns]


def test_every_check_is_listed(project: Project) -> None:
    """With -v each check of each operator has a line."""
    project.tests(SUITE)
    result = project.run("--opcheck", "mylib", "-v", "-k", "far or good")
    result.stdout.fnmatch_lines(
        [
            "test_it.py::test_good PASSED *",
            "test_it.py::test_good OPCHECK PASSED[[]mylib::double test_schema[]] *",
            "test_it.py::test_good OPCHECK PASSED[[]mylib::double test_vmap[]] *",
            (
                "test_it.py::test_good OPCHECK DOES NOT APPLY[[]mylib::double"
                " test_out_variant[]] *"
            ),
            "test_it.py::test_far PASSED *",
            "test_it.py::test_far OPCHECK FAILED[[]mylib::far test_vmap[]] *",
        ]
    )


def test_checks_may_be_chosen(project: Project) -> None:
    """--opcheck-checks chooses the checks."""
    project.tests(SUITE)
    checks = "test_schema, test_jvp"
    result = project.run("--opcheck", "mylib", "--opcheck-checks", checks)
    result.assert_outcomes(passed=4, failed=1)
    message = (
        "3 calls of 3 operators: 5 checks passed, 1 failed (0 known), 0 did not apply"
    )
    assert message in result.outlines


def test_calls_that_cannot_be_checked_are_counted(project: Project) -> None:
    """The summary counts calls that raised or had fake arrays."""
    project.tests("""
    def test_it():
        double(x)
        co.eval_shape(double, x)
        with pytest.raises(ValueError):
            positive(-x)
    """)
    result = project.run("--opcheck", "mylib")
    result.assert_outcomes(passed=1)
    message = "calls that are not checked: 1 raised, 1 had fake arrays"
    assert message in result.outlines


def test_tests_that_fail_are_not_checked(project: Project) -> None:
    """A test that fails by itself is reported once."""
    project.tests("""
    def test_it():
        far(x)
        assert x is None
    """)
    result = project.run("--opcheck", "mylib")
    result.assert_outcomes(failed=1)
    assert lines(result, "OPCHECK") == []


def test_unittests_that_fail_are_not_checked(project: Project) -> None:
    """A failing method of a TestCase is reported once."""
    project.tests("""
    import unittest

    class TestIt(unittest.TestCase):
        def test_it(self):
            far(x)
            self.fail("no")
    """)
    result = project.run("--opcheck", "mylib")
    result.assert_outcomes(failed=1)
    assert lines(result, "OPCHECK") == []


@pytest.mark.exhaustive
def test_reports_are_not_captured(project: Project) -> None:
    """The reports are printed although the output of a teardown is captured."""
    project.tests(SUITE)
    result = project.pytester.runpytest_subprocess(
        "-p", "customop.pytest.plugin", "-v", "--opcheck", "mylib::far"
    )
    result.assert_outcomes(passed=4, failed=1)
    start = f"{FAR} OPCHECK FAILED[mylib::far test_vmap]"
    assert len(lines(result, start)) == 1
    assert [line for line in result.outlines if "Captured" in line] == []


def test_exitfirst(project: Project) -> None:
    """-x stops after a check that fails."""
    project.tests(SUITE)
    project.run("--opcheck", "mylib", "-x").assert_outcomes(passed=2, failed=1)


def test_last_failed(project: Project) -> None:
    """--lf runs the tests again that have a failed check."""
    project.tests(SUITE)
    project.run("--opcheck", "mylib", "-p", "cacheprovider")
    result = project.run("--opcheck", "mylib", "-p", "cacheprovider", "--lf")
    result.assert_outcomes(passed=2, failed=2, deselected=1)


def test_a_marked_operator_is_checked_once(project: Project) -> None:
    """Calls that a marker checks fail the test and are not reported again."""
    project.tests("""
    @pytest.mark.opcheck(far)
    def test_far():
        far(x)

    @pytest.mark.opcheck(double)
    def test_both():
        double(x), far(x)
    """)
    result = project.run("--opcheck", "mylib", "-v")
    result.assert_outcomes(passed=1, failed=2)
    assert len(lines(result, "OPCHECK FAILED")) == 1
    assert [line for line in result.outlines if "PASSED[mylib::double" in line] == []


def test_an_operator_that_is_gone_is_skipped(project: Project) -> None:
    """An operator that the test removed is skipped with a reason."""
    project.tests("""
    def test_it():
        with co.Library("mylib", "FRAGMENT") as lib:
            lib.define("passing(Array x) -> Array")
            lib.impl("passing", lambda x: x * 2, "CPU")
            co.ops.mylib.passing(x)
    """)
    result = project.run("--opcheck", "mylib", "-rs")
    result.assert_outcomes(passed=1, skipped=1)
    message = "mylib::passing was taken back before the test ended"
    result.stdout.fnmatch_lines(
        [f"OPCHECK SKIPPED[[]mylib::passing[]] [[]1[]] test_it.py:*: {message}"]
    )


def test_the_message_of_a_kernel_that_raises(project: Project) -> None:
    """If a kernel raises in a check, only its own traceback is shown."""
    project.tests("""
    @co.custom_op("mylib::inner", mutates_args=())
    def inner(x: np.ndarray) -> np.ndarray:
        return x * 2

    @inner.register_vmap
    def rule(info, in_dims, x):
        return deeper(x), 0

    def deeper(x):
        raise RuntimeError("not that deep")

    def test_it():
        inner(np.ones((3, 4)))
    """)
    result = project.run("--opcheck", "mylib", "--opcheck-checks", "test_vmap")
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.re_match_lines(
        [
            r"mylib::inner: test_vmap: raises RuntimeError.*not that deep",
            r"Traceback \(most recent call last\):",
            r'  File ".*test_it.py", line 10, in rule',
            r'  File ".*test_it.py", line 13, in deeper',
            r"RuntimeError: not that deep",
        ]
    )
    assert [line for line in result.outlines if "customop/check" in line] == []


@pytest.mark.parametrize("workers", all_but([0, 2], [0]))
def test_junit_has_a_case_for_each_check_that_ran(
    project: Project, workers: int
) -> None:
    """Checks that ran are cases; those that do not apply are left out."""
    project.tests(SUITE)
    xdist = ("-p", "xdist", "-n", str(workers)) if workers else ()
    project.run("--opcheck", "mylib", "--junitxml", "out.xml", *xdist)
    (suite,) = ET.parse(project.path / "out.xml").getroot()
    cases = [
        case for case in suite.iter("testcase") if "[mylib" in case.get("name", "")
    ]
    ran = {
        (case.get("name", "").partition(" [")[2], tuple(part.tag for part in case))
        for case in cases
    }
    assert ("mylib::double test_schema]", ()) in ran
    assert {name for name, parts in ran if "failure" in parts} == {
        "mylib::far test_vmap]",
        "mylib::steep test_jvp]",
    }
    assert not any("skipped" in parts for _, parts in ran)
    tests = [case for case in suite.iter("testcase") if case not in cases]
    assert [len(case) for case in tests] == [0] * len(tests)
    assert suite.get("tests") == str(len(tests) + len(cases))
    assert suite.get("failures") == "2"


# ---- options, misused ----

WRONG = {
    ("--opcheck-accept",): [
        "ERROR: --opcheck-accept is given without --opcheck",
        "  do: name the operators too: --opcheck NAMESPACE --opcheck-accept",
    ],
    ("--opcheck", "mylib", "--opcheck-failures", "no.json"): [
        "ERROR: --opcheck-failures: there is no file no.json",
        "  do: run once with --opcheck-accept, which writes it",
    ],
    ("--opcheck", "mylib", "--opcheck-checks", "test_vmp"): [
        (
            "ERROR: --opcheck-checks: opcheck: no check is named 'test_vmp' (did you mean"
            " 'test_vmap'?)"
        ),
        f"  known: {', '.join(repr(check.name) for check in CHECKS)}",
        "  do: write names with commas between them, or ALL",
    ],
}


@pytest.mark.parametrize("args", WRONG, ids=" ".join)
def test_misused_options(project: Project, args: tuple[str, ...]) -> None:
    """Wrong options are an error before any test runs."""
    project.tests(SUITE)
    result = project.run(*args)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert result.errlines[: len(WRONG[args])] == WRONG[args]


UNMATCHED = {
    "mylob": "error: --opcheck mylob: there is no such operator (did you mean 'mylib'?)",
    "mylib::ster": "error: --opcheck mylib::ster: there is no such operator (did you"
    " mean 'steep'?)",
    "mylib::nothing": "error: --opcheck mylib::nothing: there is no such operator",
    "mylib::pos*": "error: --opcheck mylib::pos*: no test calls 'mylib::positive'",
}


@pytest.mark.parametrize("pattern", all_but(UNMATCHED, ["mylib::ster"]))
def test_names_that_match_nothing(project: Project, pattern: str) -> None:
    """A run that calls no operator of a pattern fails and says why."""
    project.tests("def test_it(): double(x)")
    result = project.run("--opcheck", "mylib", "--opcheck", pattern)
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert lines(result, "error: ") == [UNMATCHED[pattern]]


def test_operators_of_marked_tests_are_called(project: Project) -> None:
    """Operators that a marker checked count as called."""
    project.tests("""
    @pytest.mark.opcheck
    def test_it():
        double(x)
    """)
    result = project.run("--opcheck", "mylib::double")
    result.assert_outcomes(passed=1)
    assert lines(result, "error: ") == []


def test_collecting_alone_checks_nothing(project: Project) -> None:
    """With --collect-only the file stays as it is."""
    project.tests(SUITE)
    project.known({"mylib::far": {FAR: {"test_vmap": "xfail"}}})
    args = ("--opcheck", "mylib", "--opcheck-accept", "--collect-only")
    assert project.run(*args).ret == 0
    assert [*project.entries()] == ["mylib::far"]
