"""Runs with a file of known failures, and ``--opcheck-accept``."""

from __future__ import annotations

import pytest

from tests.pytest._project import FAR, SUITE, Project, lines

pytest_plugins = ("pytester",)


def test_known_failures_do_not_fail(project: Project) -> None:
    """A known failure is an expected failure with its reason."""
    project.tests(SUITE)
    entry = {"status": "xfail", "reason": "rows are long"}
    project.known({"mylib::far": {FAR: {"test_vmap": entry}}})
    result = project.run("--opcheck", "mylib::far", "-rx")
    assert result.ret == 0
    result.assert_outcomes(passed=4, xfailed=1)
    assert (
        f"OPCHECK XFAIL[mylib::far test_vmap] {FAR} - rows are long" in result.outlines
    )


def test_a_known_failure_covers_one_test(project: Project) -> None:
    """In another test the same check of the same operator fails."""
    project.tests(SUITE + "\ndef test_far_too(): far(x)\n")
    project.known({"mylib::far": {FAR: {"test_vmap": "xfail"}}})
    result = project.run("--opcheck", "mylib::far")
    result.assert_outcomes(passed=5, xfailed=1, failed=1)
    assert lines(
        result, "OPCHECK FAILED[mylib::far test_vmap] test_it.py::test_far_too"
    )


def test_a_known_failure_that_passes_is_an_error(project: Project) -> None:
    """If the check of an entry passes, it fails and says to remove the entry."""
    project.tests(SUITE)
    test = "test_it.py::test_good"
    path = project.known({"mylib::double": {test: {"test_vmap": "xfail"}}})
    result = project.run("--opcheck", "mylib::double")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=4, failed=1)
    start = result.outlines.index(
        "mylib::double: test_vmap passes, but is a known failure"
    )
    assert result.outlines[start + 1 : start + 3] == [
        f"  at {path}: mylib::double -> {test} -> test_vmap",
        "  do: remove the entry, or run once with --opcheck-accept",
    ]


def test_a_skipped_check_does_not_run(project: Project) -> None:
    """A check that the file skips does not start."""
    project.tests("""
    @co.custom_op("mylib::fragile", mutates_args=())
    def fragile(x: np.ndarray) -> np.ndarray:
        return x + 1

    @fragile.register_vmap
    def _(info, in_dims, x):
        pytest.exit("the rule has run")

    def test_it():
        fragile(x)
    """)
    entry = {"status": "skip", "reason": "it ends the run"}
    project.known({"mylib::fragile": {"test_it.py::test_it": {"test_vmap": entry}}})
    args = ("--opcheck", "mylib", "--opcheck-checks", "test_schema,test_vmap")
    result = project.run(*args, "-rs")
    result.assert_outcomes(passed=1, skipped=1)
    assert lines(result, "1 call of 1 operator: ")[0].endswith(", 1 left out")
    result.stdout.fnmatch_lines(
        ["OPCHECK SKIPPED[[]mylib::fragile test_vmap[]] [[]1[]] *: it ends the run"]
    )


def test_an_entry_for_any_test(project: Project) -> None:
    """An entry for `*` covers every test; some of them may pass."""
    project.tests(SUITE + "\ndef test_far_too(): far(x)\n")
    project.known({"mylib::far": {"*": {"test_vmap": "xfail", "test_jvp": "xfail"}}})
    result = project.run("--opcheck", "mylib::far")
    result.assert_outcomes(passed=5, xfailed=2)
    assert lines(result, "warning: ") == [
        (
            "warning: opcheck_failures.json: mylib::far -> * -> test_jvp: no test fails this"
            " check"
        )
    ]


def test_accepting_writes_the_file(project: Project) -> None:
    """After --opcheck-accept the same run passes, and accepts nothing more."""
    project.tests(SUITE)
    result = project.run("--opcheck", "mylib", "--opcheck-accept")
    assert result.ret == 0
    result.assert_outcomes(passed=4, xfailed=2)
    path = project.path / "opcheck_failures.json"
    assert f"{path}: 2 added, 0 removed, 0 kept" in result.outlines
    other = "test_it.py::TestOthers::test_other[steep]"
    entries = project.entries()
    assert {op: [*tests] for op, tests in entries.items()} == {
        "mylib::far": [FAR],
        "mylib::steep": [other],
    }
    entry = entries["mylib::far"][FAR]["test_vmap"]
    assert entry["status"] == "xfail"
    assert entry["reason"]
    assert not entry["reason"].startswith("mylib::far")
    before = path.read_bytes()
    assert project.run("--opcheck", "mylib").ret == 0
    assert project.run("--opcheck", "mylib", "--opcheck-accept").ret == 0
    assert path.read_bytes() == before


def test_accepting_removes_what_passes(project: Project) -> None:
    """Entries that pass are removed; other entries keep their reasons."""
    project.tests(SUITE)
    entry = {"status": "xfail", "reason": "mine", "issue": 3}
    good = "test_it.py::test_good"
    project.known(
        {
            "mylib::double": {good: {"test_vmap": "xfail"}},
            "mylib::far": {FAR: {"test_vmap": entry}, good: {"test_jvp": "xfail"}},
            "unasked::f": {FAR: {"test_vmap": "xfail"}},
        }
    )
    args = ("--opcheck", "mylib::far", "--opcheck", "mylib::double")
    result = project.run(*args, "--opcheck-accept")
    assert result.ret == 0
    result.assert_outcomes(passed=4, xfailed=1)
    assert project.entries() == {
        "mylib::far": {FAR: {"test_vmap": entry}},
        "unasked::f": {FAR: {"test_vmap": "xfail"}},
    }


def test_accepting_keeps_what_did_not_run(project: Project) -> None:
    """Entries of tests that did not run stay."""
    project.tests(SUITE)
    project.known({"mylib::far": {FAR: {"test_vmap": "xfail"}}})
    result = project.run("--opcheck", "mylib", "--opcheck-accept", "-k", "steep")
    assert result.ret == 0
    assert [*project.entries()] == ["mylib::far", "mylib::steep"]


FAILING = {
    FAR: """
    def test_far():
        assert x is None
    """,
    "test_it.py::TestIt::test_far": """
    import unittest

    class TestIt(unittest.TestCase):
        def test_far(self):
            double(x)
            assert x is None
    """,
}


@pytest.mark.parametrize("test", FAILING)
def test_accepting_keeps_entries_of_failing_tests(project: Project, test: str) -> None:
    """Entries of a test that fails by itself stay."""
    project.tests(FAILING[test])
    project.known({"mylib::far": {test: {"test_vmap": "xfail"}}})
    project.run("--opcheck", "mylib", "--opcheck-accept").assert_outcomes(failed=1)
    assert [*project.entries()] == ["mylib::far"]


def test_the_file_may_be_elsewhere(project: Project) -> None:
    """--opcheck-failures names the file."""
    project.tests(SUITE)
    args = ("--opcheck", "mylib::far", "--opcheck-failures", "deep/known.json")
    assert project.run(*args, "--opcheck-accept").ret == 0
    assert project.run(*args).ret == 0
    assert (project.path / "deep" / "known.json").exists()
    assert not (project.path / "opcheck_failures.json").exists()


def test_warnings_for_entries_out_of_date(project: Project) -> None:
    """Entries that match nothing are named, with a near name."""
    project.tests(SUITE)
    project.known(
        {
            "mylib::far": {
                FAR: {"test_vmap": "xfail"},
                "test_it.py::test_farr": {"test_vmap": "xfail"},
                "test_it.py::test_good": {"test_vmap": "xfail"},
                "test_gone.py::test_it": {"test_vmap": "xfail"},
            },
            "mylib::dubble": {FAR: {"test_vmap": "skip"}},
        }
    )
    result = project.run("--opcheck", "mylib::far", "--opcheck", "mylib::d*")
    result.assert_outcomes(passed=4, xfailed=1)
    name = "warning: opcheck_failures.json:"
    assert lines(result, "warning: ") == [
        (
            f"{name} mylib::far -> test_it.py::test_good -> test_vmap: the test does not"
            " call the operator"
        ),
        f"{name} mylib::dubble -> {FAR} -> test_vmap: the test does not call the operator",
        f"{name} there is no test test_gone.py::test_it",
        f"{name} there is no test test_it.py::test_farr (did you mean '{FAR}'?)",
        f"{name} there is no operator mylib::dubble (did you mean 'mylib::double'?)",
    ]


def test_a_part_of_the_tests_does_not_warn(project: Project) -> None:
    """With -k, or a test by name, other tests are not reported as missing."""
    project.tests(SUITE)
    project.known({"mylib::double": {"test_it.py::gone": {"test_vmap": "xfail"}}})
    for args in (("-k", "good"), ("test_it.py::test_good",)):
        result = project.run("--opcheck", "mylib::double", *args)
        assert (lines(result, "warning: "), result.ret) == ([], 0)


def test_a_file_that_cannot_be_read(project: Project) -> None:
    """A wrong file is an error before any test runs."""
    project.tests(SUITE)
    project.known({"mylib::far": {FAR: {"test_vmp": "xfail"}}})
    result = project.run("--opcheck", "mylib")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert result.errlines[0] == (
        "ERROR: --opcheck-failures: opcheck_failures.json names an unknown check at"
        f" mylib::far -> {FAR} -> test_vmp (did you mean 'test_vmap'?)"
    )
