"""Waived checks with ``--opcheck`` and the marker."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from tests.pytest._project import Project, lines

pytest_plugins = ("pytester",)

_TESTS = """
    far.waive("test_vmap", reason="rows are scaled on purpose")
    double.waive("test_vmap", reason="an old fault")

    def test_far():
        far(x)

    def test_double():
        double(x)

    @pytest.mark.opcheck(far)
    def test_marked():
        far(x)
"""


@pytest.fixture
def result(project: Project) -> pytest.RunResult:
    """Run the tests with the option, for one check."""
    project.tests(_TESTS)
    return project.run(
        "--opcheck", "mylib", "--opcheck-checks=test_vmap", "-rx", "--junitxml=out.xml"
    )


def test_waived_check_is_an_expected_failure(result: pytest.RunResult) -> None:
    """It has its reason, and fails neither the test nor a marked one."""
    result.assert_outcomes(passed=3, xfailed=1)
    assert lines(result, "OPCHECK XFAIL[mylib::far test_vmap]") == [
        (
            "OPCHECK XFAIL[mylib::far test_vmap] test_it.py::test_far - waived: rows are"
            " scaled on purpose"
        )
    ]
    assert lines(result, "2 calls of") == [
        (
            "2 calls of 2 operators: 1 check passed, 0 failed (0 known), 0 did not apply,"
            " 1 waived"
        )
    ]


def test_waiver_that_no_test_needs_is_reported(result: pytest.RunResult) -> None:
    assert lines(result, "warning: ") == [
        (
            "warning: mylib::double: test_vmap: no test needs its waiver: remove"
            " waive('test_vmap', ...)"
        )
    ]


def test_junit_has_the_reason(result: pytest.RunResult, project: Project) -> None:
    (suite,) = ET.parse(project.path / "out.xml").getroot()
    messages = [found.get("message") for found in suite.iter("skipped")]
    assert messages == ["waived: rows are scaled on purpose"]
