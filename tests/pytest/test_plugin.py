"""The pytest plugin, on small projects as users have them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import tomllib
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

# pytest_opcheck so that runs inside of this one need not import it each anew.
from customop.arrays import kinds
from customop.core import operator
from customop.core.operator import namespaces, remove_operator
from customop.pytest import entry, session  # noqa: F401

pytest_plugins = ("pytester",)

ROOT = Path(__file__).parents[2]
OPERATORS = '''
import numpy as np
import customop as co


def define(name, slope=2.0, row=2.0):
    """An operator that doubles, of which a rule may be wrong."""

    def double(x: np.ndarray) -> np.ndarray:
        return 2.0 * x

    double.__name__ = name.rpartition("::")[2]
    op = co.custom_op(name, double, mutates_args=())
    op.register_fake(lambda x: co.fake_like(x))
    op.register_autograd(lambda ctx, g: 2.0 * g)
    op.register_jvp(lambda primals, tangents: (op(*primals), slope * tangents[0]))
    op.register_vmap(lambda info, in_dims, x: (row * x, in_dims[0]))
    return op


double = define("mylib::double")
steep = define("mylib::steep", slope=3.0)
far = define("mylib::far", row=3.0)
alien = define("other::alien", row=3.0)


@co.custom_op("mylib::bump", mutates_args=("x",))
def bump(x: np.ndarray) -> None:
    x += 1


@co.custom_op("mylib::positive", mutates_args=())
def positive(x: np.ndarray) -> np.ndarray:
    if x.min() < 0:
        raise ValueError("negative")
    return x.copy()


x = np.ones(3)
'''
HEAD = "import numpy as np, pytest, customop as co\nfrom ops import *\n"


class Project:
    """A directory with operators and tests, and pytest to run there."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        pytester.makeini("[pytest]\npythonpath = .\nfilterwarnings = default\n")
        pytester.makepyfile(ops=OPERATORS)

    @property
    def path(self) -> Path:
        """The directory."""
        return self.pytester.path

    def tests(self, text: str, name: str = "test_it") -> None:
        """Write a file of tests; they know the operators, numpy, pytest and co."""
        self.pytester.makepyfile(**{name: HEAD + textwrap.dedent(text)})

    def run(self, *args: str) -> pytest.RunResult:
        """Run pytest with the plugin, in this process."""
        return self.pytester.runpytest_inprocess("-p", "customop.pytest.plugin", *args)

    def known(self, operators: Any, name: str = "opcheck_failures.json") -> Path:
        """Write the file of known failures."""
        path = self.path / name
        path.write_text(json.dumps({"operators": operators}), encoding="utf-8")
        return path

    def entries(self) -> dict[str, Any]:
        """Read the file of known failures."""
        text = (self.path / "opcheck_failures.json").read_text(encoding="utf-8")
        return json.loads(text)["operators"]


@pytest.fixture
def project(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Project]:
    """A project, of which the operators are gone after the test."""
    # Without the plugins that happen to be installed: hypothesis' own takes a second.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    # pytest warns of a plugin that something has imported before it, as doctests do.
    monkeypatch.delitem(sys.modules, "customop.pytest.plugin", raising=False)
    yield Project(pytester)
    names = [n for n in namespaces if n in {"mylib", "other"}]
    ops = [op for n in names for o in namespaces[n].values() for op in o.values()]
    for op in ops:
        remove_operator(op)
    # The next project is in another file: it must not revive these.
    for op in ops:
        operator._retired.pop(op.qualname, None)


def lines(result: pytest.RunResult, start: str) -> list[str]:
    """Return the lines of the output that begin in a way."""
    return [line for line in result.outlines if line.startswith(start)]


# ---- the marker ----


def test_a_marked_test_fails_where_a_check_does(project: Project) -> None:
    """The failure is the message of the check, with code that repeats it, alone."""
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


def test_a_marked_test_passes_with_its_operators(project: Project) -> None:
    """Correct operators pass all checks."""
    project.tests("""
    @pytest.mark.opcheck
    def test_good():
        y = x.copy()
        bump(y)
        double(y)
    """)
    project.run("-W", "error").assert_outcomes(passed=1)


def test_all_faults_of_a_test_are_told(project: Project) -> None:
    """Each check that fails is told, whichever operator it is of."""
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
    """Nothing is checked in a test without the marker."""
    project.tests("""
    @pytest.mark.opcheck
    def test_marked():
        double(x)

    def test_unmarked():
        far(x)
    """)
    project.run().assert_outcomes(passed=2)


# What the marker is given -> whether the fault of far counts, and that of alien.
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


@pytest.mark.parametrize("given", MARKED)
def test_what_the_marker_takes(project: Project, given: str) -> None:
    """The marker takes operators, their names, and what opcheck takes."""
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


@pytest.mark.parametrize("place", PLACES)
def test_where_the_marker_may_stand(project: Project, place: str) -> None:
    """The marker holds for all tests under it, whatever their form."""
    project.tests(PLACES[place])
    result = project.run()
    assert lines(result, "mylib::far: test_vmap: ")
    assert result.parseoutcomes()["failed"] == 1


def test_the_closest_marker_counts(project: Project) -> None:
    """What stands at a test holds in place of what stands at its class."""
    project.tests("""
    @pytest.mark.opcheck
    class TestIt:
        @pytest.mark.opcheck(double)
        def test_it(self):
            double(x), far(x)
    """)
    project.run().assert_outcomes(passed=1)


def test_only_the_failing_parameters_fail(project: Project) -> None:
    """Each set of parameters is a test of its own."""
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
    """What the option asks for is checked before fixtures are torn down."""
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


def test_a_failing_test_fails_as_ever(project: Project) -> None:
    """A test that fails by itself shows its own error, and no check runs."""
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


def test_the_random_numbers_of_later_tests_stay(project: Project) -> None:
    """Checks leave the random states of NumPy and Python as they were."""
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


@pytest.mark.usefixtures("boxed")
def test_arrays_that_cannot_be_checked(project: Project) -> None:
    """Where opcheck can do nothing with the arguments, that is said once."""
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
    said = "Toy f64[3] gives its values to nobody"
    result.stdout.fnmatch_lines(
        [
            "*the fixture has ended",
            f"*CustomOpWarning: calls are not checked: {said}".replace(
                "[3]", "[[]3[]]"
            ),
            f"OPCHECK SKIPPED[[]mylib::toys[]] * {said}".replace(
                "f64[3]", "f64[[]3[]]"
            ),
        ]
    )


@pytest.mark.usefixtures("boxed")
def test_fixtures_end_whatever_happens(project: Project) -> None:
    """Arrays that raise in the midst of a check are an error, after which fixtures end."""
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
        "ERROR: test_it.py::test_it: the marker opcheck takes no 'util'",
        DO,
    ],
    "test_util='test_vmap'": [
        (
            "ERROR: test_it.py::test_it: the marker opcheck takes no 'test_util' (did you"
            " mean 'test_utils'?)"
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
            "ERROR: test_it.py::test_it: the marker opcheck is given 3, which is no operator"
            " and no name of one"
        ),
        DO,
    ],
}


@pytest.mark.parametrize("given", MISUSES)
def test_a_misused_marker(project: Project, given: str) -> None:
    """What the marker does not take is an error before any test runs."""
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


VACUOUS = {
    "no call": ("pytest.mark.opcheck", "pass", "the test makes no call"),
    "another operator": (
        "pytest.mark.opcheck('mylib::far', double)",
        "bump(x.copy())",
        "the test makes no call of 'mylib::far', 'mylib::double.default'",
    ),
    "a call that raises": (
        "pytest.mark.opcheck",
        "with pytest.raises(ValueError): positive(-x)",
        "the test makes no call that gives values (1 raised)",
    ),
    "fake arrays": (
        "pytest.mark.opcheck",
        "co.eval_shape(double, x)",
        "the test makes no call that gives values (1 had fake or traced arrays)",
    ),
}


@pytest.mark.parametrize("name", VACUOUS)
def test_a_marker_with_nothing_to_check(project: Project, name: str) -> None:
    """A marked test that calls nothing to check is warned of."""
    marker, body, said = VACUOUS[name]
    project.tests(f"""
    @{marker}
    def test_it():
        {body}
    """)
    result = project.run()
    result.assert_outcomes(passed=1, warnings=1)
    result.stdout.fnmatch_lines(
        [
            f"*CustomOpWarning: the marker opcheck has nothing to check: {said}",
            "*do: call an operator with arrays, or remove the marker",
        ]
    )


def test_a_marker_of_a_class_may_have_nothing_to_check(project: Project) -> None:
    """That one test of several calls nothing is no news."""
    project.tests("""
    @pytest.mark.opcheck
    class TestIt:
        def test_it(self):
            pass
    """)
    project.run("-W", "error").assert_outcomes(passed=1)


def test_an_operator_that_is_gone_is_told(project: Project) -> None:
    """An operator that the test itself took back is named, and what to do."""
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


# ---- the option ----

FAR = "test_it.py::test_far"
SUITE = """
def test_good():
    double(x)

def test_far():
    far(x)

class TestOthers:
    @pytest.mark.parametrize("op", [steep, alien])
    def test_other(self, op):
        op(x)
"""


def test_the_option_checks_every_call(project: Project) -> None:
    """Each check that fails is a report of its own; the tests themselves pass."""
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


# Patterns -> operators whose faults are found.
OPTIONS = {
    ("mylib",): {"mylib::far", "mylib::steep"},
    ("mylib::*",): {"mylib::far", "mylib::steep"},
    ("mylib::far",): {"mylib::far"},
    ("mylib::far.default",): {"mylib::far"},
    ("other", "mylib::s*"): {"other::alien", "mylib::steep"},
    ("ALL",): {"mylib::far", "mylib::steep", "other::alien"},
}


@pytest.mark.parametrize("patterns", OPTIONS, ids=" ".join)
def test_what_the_option_takes(project: Project, patterns: tuple[str, ...]) -> None:
    """The option takes namespaces, names with wildcards, and ALL; several times."""
    project.tests(SUITE)
    result = project.run(*(part for p in patterns for part in ("--opcheck", p)))
    failed = lines(result, "OPCHECK FAILED[")
    assert {line.split("[")[1].split()[0] for line in failed} == OPTIONS[patterns]


def test_every_check_is_listed(project: Project) -> None:
    """With -v each check of each operator has its line."""
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
    """--opcheck-checks names the checks that run."""
    project.tests(SUITE)
    checks = "test_schema, test_jvp"
    result = project.run("--opcheck", "mylib", "--opcheck-checks", checks)
    result.assert_outcomes(passed=4, failed=1)
    said = (
        "3 calls of 3 operators: 5 checks passed, 1 failed (0 known), 0 did not apply"
    )
    assert said in result.outlines


def test_calls_that_cannot_be_checked_are_counted(project: Project) -> None:
    """The sum says how many calls raised, or had no values."""
    project.tests("""
    def test_it():
        double(x)
        co.eval_shape(double, x)
        with pytest.raises(ValueError):
            positive(-x)
    """)
    result = project.run("--opcheck", "mylib")
    result.assert_outcomes(passed=1)
    said = "calls that are not checked: 1 raised, 1 had fake or traced arrays"
    assert said in result.outlines


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
    """A failing method of a TestCase is reported once, as other tests are."""
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


def test_reports_are_not_captured(project: Project) -> None:
    """The lines of the checks are printed though a teardown is captured."""
    project.tests(SUITE)
    result = project.pytester.runpytest_subprocess(
        "-p", "customop.pytest.plugin", "-v", "--opcheck", "mylib::far"
    )
    result.assert_outcomes(passed=4, failed=1)
    start = f"{FAR} OPCHECK FAILED[mylib::far test_vmap]"
    assert len(lines(result, start)) == 1
    assert [line for line in result.outlines if "Captured" in line] == []


def test_the_first_failure_can_be_the_last(project: Project) -> None:
    """-x stops after a check that fails."""
    project.tests(SUITE)
    project.run("--opcheck", "mylib", "-x").assert_outcomes(passed=2, failed=1)


def test_last_failed_runs_what_failed(project: Project) -> None:
    """--lf runs the tests again of which a check failed."""
    project.tests(SUITE)
    project.run("--opcheck", "mylib", "-p", "cacheprovider")
    result = project.run("--opcheck", "mylib", "-p", "cacheprovider", "--lf")
    result.assert_outcomes(passed=2, failed=2, deselected=1)


def test_a_marked_operator_is_checked_once(project: Project) -> None:
    """What the marker of a test covers fails the test, and is not reported twice."""
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


def test_an_operator_gone_is_skipped(project: Project) -> None:
    """The report of an operator that was taken back says so."""
    project.tests("""
    def test_it():
        with co.Library("mylib", "FRAGMENT") as lib:
            lib.define("passing(Array x) -> Array")
            lib.impl("passing", lambda x: x * 2, "CPU")
            co.ops.mylib.passing(x)
    """)
    result = project.run("--opcheck", "mylib", "-rs")
    result.assert_outcomes(passed=1, skipped=1)
    said = "mylib::passing was taken back before the test ended"
    result.stdout.fnmatch_lines(
        [f"OPCHECK SKIPPED[[]mylib::passing[]] [[]1[]] test_it.py:*: {said}"]
    )


def test_the_message_of_a_kernel_that_raises(project: Project) -> None:
    """Where a kernel raises in a check, its own traceback is shown and no other."""
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


def test_junit_has_every_failure(project: Project) -> None:
    """The XML for other machines has the failing checks in their tests."""
    project.tests(SUITE)
    project.run("--opcheck", "mylib", "--junitxml", "out.xml")
    (suite,) = ET.parse(project.path / "out.xml").getroot()
    assert suite.get("failures") == "2"
    failed = [case.get("name") for case in suite if case.find("failure") is not None]
    assert failed == ["test_far", "test_other[steep]"]


# ---- options, misused ----

WRONG = {
    ("--opcheck-accept",): [
        "ERROR: --opcheck-accept: nothing is checked",
        "  do: name the operators too, as in --opcheck NAMESPACE --opcheck-accept",
    ],
    ("--opcheck", "mylib", "--opcheck-failures", "no.json"): [
        "ERROR: --opcheck-failures: there is no file no.json",
        "  do: write it by running once with --opcheck-accept",
    ],
    ("--opcheck", "mylib", "--opcheck-checks", "test_vmp"): [
        (
            "ERROR: --opcheck-checks: opcheck: no check is named 'test_vmp' (did you mean"
            " 'test_vmap'?)"
        ),
    ],
}


@pytest.mark.parametrize("args", WRONG, ids=" ".join)
def test_misused_options(project: Project, args: tuple[str, ...]) -> None:
    """Options that do not fit are an error before any test runs."""
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


@pytest.mark.parametrize("pattern", UNMATCHED)
def test_names_that_match_nothing(project: Project, pattern: str) -> None:
    """A run that checks nothing for a name fails, and says why."""
    project.tests("def test_it(): double(x)")
    result = project.run("--opcheck", "mylib", "--opcheck", pattern)
    result.assert_outcomes(passed=1)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert lines(result, "error: ") == [UNMATCHED[pattern]]


def test_operators_of_marked_tests_are_called(project: Project) -> None:
    """What the marker checks is not checked again, and counts as called."""
    project.tests("""
    @pytest.mark.opcheck
    def test_it():
        double(x)
    """)
    result = project.run("--opcheck", "mylib::double")
    result.assert_outcomes(passed=1)
    assert lines(result, "error: ") == []


def test_collecting_alone_checks_nothing(project: Project) -> None:
    """Where no test is to run, none is missed, and the file stays."""
    project.tests(SUITE)
    project.known({"mylib::far": {FAR: {"test_vmap": "xfail"}}})
    args = ("--opcheck", "mylib", "--opcheck-accept", "--collect-only")
    assert project.run(*args).ret == 0
    assert [*project.entries()] == ["mylib::far"]


# ---- known failures ----


def test_known_failures_do_not_fail(project: Project) -> None:
    """A check that is known to fail is an expected failure, with its reason."""
    project.tests(SUITE)
    said = {"status": "xfail", "reason": "rows are long"}
    project.known({"mylib::far": {FAR: {"test_vmap": said}}})
    result = project.run("--opcheck", "mylib::far", "-rx")
    assert result.ret == 0
    result.assert_outcomes(passed=4, xfailed=1)
    assert (
        f"OPCHECK XFAIL[mylib::far test_vmap] {FAR} - rows are long" in result.outlines
    )


def test_known_failures_are_of_one_test(project: Project) -> None:
    """The same check of the same operator fails in another test."""
    project.tests(SUITE + "\ndef test_far_too(): far(x)\n")
    project.known({"mylib::far": {FAR: {"test_vmap": "xfail"}}})
    result = project.run("--opcheck", "mylib::far")
    result.assert_outcomes(passed=5, xfailed=1, failed=1)
    assert lines(
        result, "OPCHECK FAILED[mylib::far test_vmap] test_it.py::test_far_too"
    )


def test_what_no_longer_fails_is_a_failure(project: Project) -> None:
    """An entry for a check that passes fails, and says to remove it."""
    project.tests(SUITE)
    test = "test_it.py::test_good"
    path = project.known({"mylib::double": {test: {"test_vmap": "xfail"}}})
    result = project.run("--opcheck", "mylib::double")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=4, failed=1)
    start = result.outlines.index(
        "mylib::double: test_vmap passes, and is known to fail"
    )
    assert result.outlines[start + 1 : start + 3] == [
        f"  at {path}: mylib::double -> {test} -> test_vmap",
        "  do: remove the entry, or run once with --opcheck-accept",
    ]


def test_what_is_to_be_skipped_does_not_run(project: Project) -> None:
    """A check that the file says to skip does not even start."""
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
    said = {"status": "skip", "reason": "it ends the run"}
    project.known({"mylib::fragile": {"test_it.py::test_it": {"test_vmap": said}}})
    args = ("--opcheck", "mylib", "--opcheck-checks", "test_schema,test_vmap")
    result = project.run(*args, "-rs")
    result.assert_outcomes(passed=1, skipped=1)
    assert lines(result, "1 call of 1 operator: ")[0].endswith(", 1 left out")
    result.stdout.fnmatch_lines(
        ["OPCHECK SKIPPED[[]mylib::fragile test_vmap[]] [[]1[]] *: it ends the run"]
    )


def test_an_entry_for_any_test(project: Project) -> None:
    """`*` stands for every test, of which some may pass."""
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
    """--opcheck-accept lists what fails; then the same run passes, and it is stable."""
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
    said = entries["mylib::far"][FAR]["test_vmap"]
    assert said["status"] == "xfail"
    assert said["reason"]
    assert not said["reason"].startswith("mylib::far")
    before = path.read_bytes()
    assert project.run("--opcheck", "mylib").ret == 0
    assert project.run("--opcheck", "mylib", "--opcheck-accept").ret == 0
    assert path.read_bytes() == before


def test_accepting_takes_out_what_passes(project: Project) -> None:
    """Entries that no longer fail go, and the reasons of others stay."""
    project.tests(SUITE)
    said = {"status": "xfail", "reason": "mine", "issue": 3}
    good = "test_it.py::test_good"
    project.known(
        {
            "mylib::double": {good: {"test_vmap": "xfail"}},
            "mylib::far": {FAR: {"test_vmap": said}, good: {"test_jvp": "xfail"}},
            "unasked::f": {FAR: {"test_vmap": "xfail"}},
        }
    )
    args = ("--opcheck", "mylib::far", "--opcheck", "mylib::double")
    result = project.run(*args, "--opcheck-accept")
    assert result.ret == 0
    result.assert_outcomes(passed=4, xfailed=1)
    assert project.entries() == {
        "mylib::far": {FAR: {"test_vmap": said}},
        "unasked::f": {FAR: {"test_vmap": "xfail"}},
    }


def test_accepting_keeps_what_did_not_run(project: Project) -> None:
    """A part of the tests says nothing of the others."""
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
def test_accepting_keeps_what_did_not_get_far(project: Project, test: str) -> None:
    """A test that fails by itself says nothing of its entries."""
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


def test_entries_out_of_date_are_warned_of(project: Project) -> None:
    """What matches nothing is named, with what is near."""
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
            f"{name} mylib::far -> test_it.py::test_good -> test_vmap: the test makes no such"
            " call"
        ),
        f"{name} mylib::dubble -> {FAR} -> test_vmap: the test makes no such call",
        f"{name} there is no test test_gone.py::test_it",
        f"{name} there is no test test_it.py::test_farr (did you mean '{FAR}'?)",
        f"{name} there is no operator mylib::dubble (did you mean 'mylib::double'?)",
    ]


def test_a_part_of_the_tests_warns_of_no_missing_one(project: Project) -> None:
    """With -k, or a test named, other tests are not said to be missing."""
    project.tests(SUITE)
    project.known({"mylib::double": {"test_it.py::gone": {"test_vmap": "xfail"}}})
    for args in (("-k", "good"), ("test_it.py::test_good",)):
        result = project.run("--opcheck", "mylib::double", *args)
        assert (lines(result, "warning: "), result.ret) == ([], 0)


def test_a_file_that_cannot_be_read(project: Project) -> None:
    """A fault of the file is an error before any test runs."""
    project.tests(SUITE)
    project.known({"mylib::far": {FAR: {"test_vmp": "xfail"}}})
    result = project.run("--opcheck", "mylib")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert result.errlines[0] == (
        "ERROR: --opcheck-failures: opcheck_failures.json names a check that there is not"
        f" at mylib::far -> {FAR} -> test_vmp (did you mean 'test_vmap'?)"
    )


# ---- arrays of every kind ----

KINDS = """
class Boxed:
    def __init__(self, array):
        self.array = array
        self.shape, self.dtype = array.shape, array.dtype

co.register_array_type("boxed", Boxed, from_numpy=Boxed, to_numpy=lambda b: b.array)

def test_it(all_devices):
    x = all_devices.asarray([[1, 2], [3, 4]])
    assert type(x).__name__ == {"cpu": "ndarray", "boxed": "Boxed"}[all_devices.kind]
    np.testing.assert_array_equal(all_devices.to_numpy(x), [[1, 2], [3, 4]])
    assert all_devices.asarray(np.ones(2), np.float32).dtype == np.float32
"""


@pytest.fixture
def boxed(built_in_kinds: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the kind that a project makes known, also how it is converted."""
    monkeypatch.setattr(kinds, "_conversions", {})


@pytest.mark.usefixtures("boxed")
def test_all_devices_runs_a_test_for_each_kind(project: Project) -> None:
    """The fixture gives each kind of array at hand in turn, with its name as id."""
    project.tests(KINDS)
    result = project.run("-v")
    result.stdout.fnmatch_lines(
        [
            "test_it.py::test_it[[]cpu[]] PASSED*",
            "test_it.py::test_it[[]boxed[]] PASSED*",
        ]
    )


@pytest.mark.usefixtures("boxed")
@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("cpu", {"passed": 1}),
        ("boxed, cpu", {"passed": 2}),
        ("cpu,cpu", {"passed": 1}),
    ],
)
def test_kinds_may_be_chosen(
    project: Project, given: str, expected: dict[str, int]
) -> None:
    """--opcheck-devices names the kinds."""
    project.tests(KINDS)
    project.run("--opcheck-devices", given).assert_outcomes(**expected)


def test_a_kind_that_is_not_at_hand_is_skipped(project: Project) -> None:
    """A kind that is asked for by name and cannot be made is skipped, with why."""
    project.tests("""
    co.register_array_type("distant", "nowhere.Array")

    def test_it(all_devices):
        assert all_devices.kind == "cpu"
    """)
    result = project.run("--opcheck-devices", "distant,cpu", "-rs")
    result.assert_outcomes(passed=1, skipped=1)
    said = "no array of the kind 'distant' can be made here"
    result.stdout.fnmatch_lines([f"SKIPPED [[]1[]] *: {said}"])


def test_an_unknown_kind(project: Project) -> None:
    """A kind that nobody knows is an error with what is near."""
    project.tests("def test_it(all_devices): pass")
    result = project.run("--opcheck-devices", "cpuu")
    assert result.ret != 0
    result.stdout.fnmatch_lines(
        [
            (
                "*--opcheck-devices: there is no kind of array 'cpuu' (did you mean 'cpu'?);"
                " known: 'cpu', *"
            ),
            '*do: register_array_type("cpuu", cls, from_numpy=...) in conftest.py',
        ]
    )


def test_a_fixture_of_the_user_goes_first(project: Project) -> None:
    """A fixture of that name in a project is not touched."""
    project.tests("""
    @pytest.fixture
    def all_devices():
        return 1

    def test_it(all_devices, request):
        assert (all_devices, request.node.name) == (1, "test_it")
    """)
    project.run().assert_outcomes(passed=1)


# ---- other plugins, and none ----


def test_nothing_is_imported_unless_asked_for(pytester: pytest.Pytester) -> None:
    """What an installed package has pytest load brings in pytest alone, and works."""
    path = ROOT / "customop" / "pytest" / "entry.py"
    (pytester.path / "_customop_pytest.py").write_bytes(path.read_bytes())
    pytester.makeconftest("""
    from _customop_pytest import plugin
    pytest_plugins = [plugin.__name__]
    """)
    light = """
    import sys
    def test_it(pytestconfig):
        assert pytestconfig.getoption("opcheck") == []
        heavy = {"customop", "numpy", "hypothesis"}
        assert heavy & {name.partition(".")[0] for name in sys.modules} == set()
    """
    with_kinds = """
    def test_it(all_devices):
        assert all_devices.kind == "cpu"
    """
    pytester.makepyfile(test_light=light, test_kinds=with_kinds)
    paths = os.pathsep.join([str(ROOT), str(pytester.path)])
    settings = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": paths}
    for name in ("test_light.py", "test_kinds.py"):
        run = subprocess.run(
            [sys.executable, "-m", "pytest", "--strict-markers", name],
            cwd=pytester.path,
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("order", [1, -1])
def test_the_plugin_may_come_twice(project: Project, order: int) -> None:
    """As an entry point and by -p: two modules of one file, which work once."""
    project.tests(SUITE + "\ndef test_kind(all_devices): pass\n")
    names = ["customop.pytest.plugin", entry.plugin.__name__][::order]
    result = project.pytester.runpytest_inprocess(
        *(part for name in names for part in ("-p", name)), "--opcheck", "mylib::far"
    )
    result.assert_outcomes(passed=5, failed=1)


def test_the_wheel_has_the_entry_point() -> None:
    """The entry point is in the file that the wheel has outside of the package."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    (point,) = settings["project"]["entry-points"]["pytest11"].values()
    module, _, name = point.partition(":")
    wheel = settings["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert wheel["force-include"] == {"customop/pytest/entry.py": f"{module}.py"}
    assert name in entry.__all__


@pytest.mark.parametrize("before", [{}, {"opcheck": "that of the outer run"}])
def test_markers_are_as_before_afterwards(
    project: Project, monkeypatch: pytest.MonkeyPatch, before: dict[str, str]
) -> None:
    """A run inside a run leaves the markers of the outer one as they were."""
    monkeypatch.delitem(vars(pytest.mark), "opcheck", raising=False)
    for name, marker in before.items():
        monkeypatch.setitem(vars(pytest.mark), name, marker)
    project.tests("def test_it(): pass")
    project.run()
    found = {n: m for n, m in vars(pytest.mark).items() if n == "opcheck"}
    assert found == before


def test_without_capture(project: Project) -> None:
    """Reports come also where nothing is captured."""
    project.tests(SUITE)
    for args in (("-s",), ("-p", "no:capture")):
        result = project.run("--opcheck", "mylib::far", *args)
        assert result.parseoutcomes() == {"passed": 4, "failed": 1}


def test_with_workers(project: Project) -> None:
    """Under pytest-xdist all is reported and accepted as without it."""
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    project.tests(SUITE)
    result = project.run("--opcheck", "mylib", "-p", "xdist", "-n", "2")
    result.assert_outcomes(passed=4, failed=2)
    assert lines(result, "3 calls of 3 operators: ")
    assert (
        project.run(
            "--opcheck", "mylib", "-p", "xdist", "-n", "2", "--opcheck-accept"
        ).ret
        == 0
    )
    assert [*project.entries()] == ["mylib::far", "mylib::steep"]
    result = project.run("--opcheck", "mylob", "-p", "xdist", "-n", "2")
    assert UNMATCHED["mylob"] in result.outlines
