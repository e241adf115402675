"""The marker ``opcheck``."""

from __future__ import annotations

import textwrap

import pytest

from tests.pytest._project import Project, lines
from tests.tiers import all_but

pytest_plugins = ("pytester",)


def test_a_check_that_fails_fails_the_test(project: Project) -> None:
    """The failure is the message of the check with code that repeats it."""
    project.tests("""
    @pytest.mark.opcheck
    def test_far():
        far(x)
    """)
    result = project.run()
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines(
        [
            r"_+ test_far _+",
            r"mylib::far: test_vmap: .*",
            r"  mylib::far\(Array x\) -> Array",
            r"  to repeat it:",
            r"    co.testing.opcheck\(",
            r"        co.ops.mylib.far.default,",
            r"FAILED test_it.py::test_far - Failed: mylib::far: test_vmap: .*",
        ]
    )
    assert lines(result, "Traceback") == []


def test_correct_operators_pass(project: Project) -> None:
    """Correct operators pass all checks."""
    project.tests("""
    @pytest.mark.opcheck
    def test_good():
        y = x.copy()
        bump(y)
        double(y)
    """)
    project.run("-W", "error").assert_outcomes(passed=1)


def test_all_failures_are_shown(project: Project) -> None:
    """Each check that fails is shown, for every operator."""
    project.tests("""
    @pytest.mark.opcheck
    def test_both():
        far(x), steep(x)
    """)
    result = project.run()
    result.assert_outcomes(failed=1)
    assert lines(result, "mylib::far: test_vmap: ")
    assert lines(result, "mylib::steep: test_jvp: ")


def test_unmarked_tests_are_left_alone(project: Project) -> None:
    """A test without the marker is not checked."""
    project.tests("""
    @pytest.mark.opcheck
    def test_marked():
        double(x)

    def test_unmarked():
        far(x)
    """)
    project.run().assert_outcomes(passed=2)


# Arguments of the marker -> whether the checks of far fail, and those of alien.
MARKED = {
    "": (True, True),
    "far": (True, False),
    "far, alien": (True, True),
    "co.ops.mylib.far": (True, False),
    "'mylib::far'": (True, False),
    "'mylib'": (True, False),
    "'mylib::*'": (True, False),
    "'ALL'": (True, True),
    "double, 'other'": (False, True),
    "double": (False, False),
    "test_utils='test_schema'": (False, False),
    "far, test_utils=('test_schema', 'test_vmap')": (True, False),
    "far, rtol=1.0, atol=10.0": (False, False),
}


@pytest.mark.parametrize("given", all_but(MARKED, ["double"]))
def test_arguments_of_the_marker(project: Project, given: str) -> None:
    """The marker takes operators, their names, and the options of opcheck."""
    project.tests(f"""
    @pytest.mark.opcheck({given})
    def test_it():
        double(x), far(x), alien(x)
    """)
    result = project.run()
    found = tuple(
        bool(lines(result, f"{name}: test_vmap: "))
        for name in ("mylib::far", "other::alien")
    )
    assert found == MARKED[given]
    result.assert_outcomes(**{"failed" if any(found) else "passed": 1})


PLACES = {
    "class": """
    @pytest.mark.opcheck
    class TestIt:
        def test_it(self):
            far(x)
    """,
    "module": """
    pytestmark = pytest.mark.opcheck

    def test_it():
        far(x)
    """,
    "module, with an operator": """
    pytestmark = pytest.mark.opcheck(far)

    def test_it():
        far(x)
    """,
    "unittest": """
    import unittest

    @pytest.mark.opcheck
    class TestIt(unittest.TestCase):
        def test_it(self):
            far(x)
    """,
    "one of several parameters": """
    @pytest.mark.parametrize("op", [double, pytest.param(far, marks=pytest.mark.opcheck)])
    def test_it(op):
        op(x)
    """,
    "in a thread": """
    import threading

    @pytest.mark.opcheck
    def test_it():
        thread = threading.Thread(target=far, args=(x,))
        thread.start()
        thread.join()
    """,
    "under grad": """
    @pytest.mark.opcheck
    def test_it():
        co.grad(lambda x: np.sum(far(x)))(x)
    """,
}


@pytest.mark.parametrize("place", all_but(PLACES, ["under grad"]))
def test_places_of_the_marker(project: Project, place: str) -> None:
    """The marker covers all tests under it."""
    project.tests(PLACES[place])
    result = project.run()
    assert lines(result, "mylib::far: test_vmap: ")
    assert result.parseoutcomes()["failed"] == 1


def test_the_closest_marker_counts(project: Project) -> None:
    """The marker of a test goes before that of its class."""
    project.tests("""
    @pytest.mark.opcheck
    class TestIt:
        @pytest.mark.opcheck(double)
        def test_it(self):
            double(x), far(x)
    """)
    project.run().assert_outcomes(passed=1)


def test_only_the_failing_parameters_fail(project: Project) -> None:
    """Each set of parameters is a separate test."""
    project.tests("""
    @pytest.mark.opcheck
    @pytest.mark.parametrize("op", [double, far, steep, bump])
    def test_it(op):
        op(x.copy())
    """)
    project.run().assert_outcomes(passed=2, failed=2)


def test_fixtures_are_there_when_checks_run(project: Project) -> None:
    """An operator of a fixture's library is checked before the library closes."""
    project.tests("""
    @pytest.fixture
    def passing():
        with co.Library("mylib", "FRAGMENT") as lib:
            lib.define("passing(Array x) -> Array")
            lib.impl("passing", lambda x: x * 2, "CPU")
            wrong = lambda info, in_dims, x: (x * 3, in_dims[0])
            co.register_vmap("mylib::passing", wrong, lib=lib)
            yield co.ops.mylib.passing

    @pytest.mark.opcheck
    def test_it(passing):
        passing(x)
    """)
    result = project.run()
    result.assert_outcomes(failed=1)
    assert lines(result, "mylib::passing: test_vmap: ")


def test_fixtures_are_there_for_the_option_too(project: Project) -> None:
    """The option checks calls before the fixtures end."""
    project.tests("""
    @pytest.fixture
    def passing():
        with co.Library("mylib", "FRAGMENT") as lib:
            lib.define("passing(Array x) -> Array")
            lib.impl("passing", lambda x: x * 2, "CPU")
            yield co.ops.mylib.passing

    def test_it(passing):
        passing(x)
    """)
    args = ("--opcheck", "mylib", "--opcheck-checks", "test_schema")
    result = project.run(*args)
    result.assert_outcomes(passed=1)
    assert lines(result, "1 call of 1 operator: 1 check passed, 0 failed")


def test_a_failing_test_is_not_checked(project: Project) -> None:
    """A test that fails by itself shows its error, and no check runs."""
    project.tests("""
    @pytest.mark.opcheck
    def test_it():
        far(x)
        assert x is None
    """)
    result = project.run()
    result.assert_outcomes(failed=1)
    assert lines(result, "E       assert ")
    assert lines(result, "mylib::far") == []


def test_random_states_are_restored(project: Project) -> None:
    """Checks do not change the random states of NumPy and Python."""
    project.tests("""
    import random

    @co.custom_op("mylib::noisy", mutates_args=(), tags=co.Tag.nondeterministic_seeded)
    def noisy(x: np.ndarray) -> np.ndarray:
        return x + np.random.random() + random.random()

    @pytest.mark.opcheck(noisy, test_utils="test_schema")
    def test_before():
        np.random.seed(1)
        random.seed(1)
        noisy(x)

    def test_after():
        expected = (np.random.RandomState(1), random.Random(1))
        [source.random() for source in expected]
        assert np.random.random() == expected[0].random()
        assert random.random() == expected[1].random()
    """)
    project.run().assert_outcomes(passed=2)


UNKNOWN = """
class Toy:
    shape, dtype, ndim, size = (3,), np.dtype(float), 1, 3

co.register_array_type("toy", Toy)

@co.custom_op("mylib::toys", mutates_args=(), device_types="toy")
def toys(x: co.Array) -> co.Array:
    return Toy()
"""


@pytest.mark.usefixtures("built_in_kinds")
def test_arrays_that_cannot_be_checked(project: Project) -> None:
    """Arguments that opcheck cannot use are reported once."""
    project.tests(
        textwrap.dedent(UNKNOWN)
        + """
@pytest.mark.opcheck
def test_marked():
    toys(Toy()), double(x)

@pytest.fixture
def ends():
    yield
    print("the fixture has ended")

def test_option(ends):
    toys(Toy()), far(x)
"""
    )
    result = project.run("--opcheck", "mylib", "-rs", "-s")
    result.assert_outcomes(passed=2, skipped=1, failed=1, warnings=1)
    message = "Toy f64[3] cannot be converted to NumPy"
    result.stdout.fnmatch_lines(
        [
            "*the fixture has ended",
            f"*CustomOpWarning: calls are not checked: {message}".replace(
                "[3]", "[[]3[]]"
            ),
            f"OPCHECK SKIPPED[[]mylib::toys[]] * {message}".replace(
                "f64[3]", "f64[[]3[]]"
            ),
        ]
    )


@pytest.mark.usefixtures("built_in_kinds")
def test_fixtures_end_whatever_happens(project: Project) -> None:
    """If arrays raise during a check, the test has an error and its fixtures end."""
    broken = UNKNOWN.replace('"toy", Toy)', '"toy", Toy, to_numpy=lambda x: 1 / 0)')
    project.tests(
        textwrap.dedent(broken)
        + """
@pytest.fixture
def ends():
    yield
    print("the fixture has ended")

def test_option(ends):
    toys(Toy())

def test_next():
    pass
"""
    )
    result = project.run("--opcheck", "mylib", "-s")
    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(
        ["*the fixture has ended", "E * ZeroDivisionError: division by zero"]
    )


# ---- the marker, misused ----

DO = (
    "  do: write @pytest.mark.opcheck, or @pytest.mark.opcheck(my_op,"
    ' "ns::other", test_utils="test_schema")'
)
MISUSES = {
    "util='test_vmap'": [
        "ERROR: test_it.py::test_it: the marker opcheck has no argument 'util'",
        DO,
    ],
    "test_util='test_vmap'": [
        (
            "ERROR: test_it.py::test_it: the marker opcheck has no argument 'test_util' (did"
            " you mean 'test_utils'?)"
        ),
        DO,
    ],
    "test_utils='test_vmp'": [
        (
            "ERROR: test_it.py::test_it: the marker opcheck: opcheck: no check is named"
            " 'test_vmp' (did you mean 'test_vmap'?)"
        ),
    ],
    "rtol=0.5": [
        (
            "ERROR: test_it.py::test_it: the marker opcheck: opcheck: rtol is given without"
            " atol"
        ),
        "  do: pass both, as atol=0.0, or none",
    ],
    "3": [
        (
            "ERROR: test_it.py::test_it: the marker opcheck got 3, which is neither an"
            " operator nor a name"
        ),
        DO,
    ],
}


@pytest.mark.parametrize("given", all_but(MISUSES, ["3"]))
def test_a_misused_marker(project: Project, given: str) -> None:
    """A wrong argument of the marker is an error before any test runs."""
    project.tests(f"""
    @pytest.mark.opcheck({given})
    def test_it():
        double(x)
    """)
    result = project.run()
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    expected = MISUSES[given]
    start = result.errlines.index(expected[0])
    assert result.errlines[start : start + 1] == expected[:1]
    assert set(expected) <= set(result.errlines)


NOTHING = {
    "no call": (
        "pytest.mark.opcheck",
        "pass",
        "no call of an operator returned values",
    ),
    "another operator": (
        "pytest.mark.opcheck('mylib::far', double)",
        "bump(x.copy())",
        "no call of 'mylib::far', 'mylib::double.default' returned values",
    ),
    "a call that raises": (
        "pytest.mark.opcheck",
        "with pytest.raises(ValueError): positive(-x)",
        "no call of an operator returned values (1 raised)",
    ),
    "fake arrays": (
        "pytest.mark.opcheck",
        "co.eval_shape(double, x)",
        "no call of an operator returned values (1 had fake arrays)",
    ),
}


@pytest.mark.parametrize("name", all_but(NOTHING, ["a call that raises"]))
def test_a_marker_with_nothing_to_check(project: Project, name: str) -> None:
    """A marked test without a call to check gives a warning."""
    marker, body, message = NOTHING[name]
    project.tests(f"""
    @{marker}
    def test_it():
        {body}
    """)
    result = project.run()
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(
        [
            f"*CustomOpWarning: the marker opcheck has nothing to check: {message}",
            "*do: call an operator with arrays, or remove the marker",
        ]
    )


def test_a_marker_of_a_class_may_have_nothing_to_check(project: Project) -> None:
    """A marked class may have tests without a call to check."""
    project.tests("""
    @pytest.mark.opcheck
    class TestIt:
        def test_it(self):
            pass
    """)
    project.run("-W", "error").assert_outcomes(passed=1)


def test_an_operator_that_is_gone(project: Project) -> None:
    """An operator that the test removed gives a warning."""
    project.tests("""
    @pytest.mark.opcheck
    def test_it():
        with co.Library("mylib", "FRAGMENT") as lib:
            lib.define("passing(Array x) -> Array")
            lib.impl("passing", lambda x: x * 2, "CPU")
            co.ops.mylib.passing(x)
    """)
    result = project.run()
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(
        [
            (
                "*CustomOpWarning: calls are not checked: mylib::passing was taken back"
                " before the test ended"
            ),
            "*do: define it in a fixture, or in a module",
        ]
    )
