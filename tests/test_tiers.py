"""Both tiers together run every test, and a test of many cases names those that fail."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.cases import cases
from tests.tiers import fifth_of, is_in_fifth

ROOT = Path(__file__).parent.parent
HOOKS = "from tests.conftest import pytest_ignore_collect, pytest_pycollect_makeitem"
SUITE = """
import pytest

exhaustive = pytest.mark.exhaustive
rows = pytest.mark.parametrize("x", [1, pytest.param(2, marks=exhaustive)], ids=str)

def test_plain(): ...

@exhaustive
def test_large(): ...

@rows
def test_rows(x): ...

@rows
@pytest.mark.parametrize("y", [3, pytest.param(4, marks=exhaustive)])
def test_products(x, y): ...

@pytest.mark.parametrize("x", [pytest.param(5, marks=exhaustive)])
def test_none(x): ...
"""
DEFAULT = {"test_plain", "test_rows[1]", "test_products[3-1]"}
EXHAUSTIVE = {"test_large", "test_rows[2]", "test_none[5]", "test_module"} | {
    f"test_products[{row}]" for row in ("3-2", "4-1", "4-2")
}


@pytest.mark.parametrize(
    ("tier", "expected"),
    [
        ("not exhaustive", DEFAULT),
        ("exhaustive", EXHAUSTIVE),
        ("", DEFAULT | EXHAUSTIVE),
    ],
)
def test_a_tier_has_its_tests(tier: str, expected: set[str], tmp_path: Path) -> None:
    """Each test is in one tier, whatever is left out before it is made."""
    whole = "import pytest\npytestmark = pytest.mark.exhaustive\ndef test_module(): ..."
    files = {"conftest": HOOKS, "test_suite": SUITE, "test_whole": whole}
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = exhaustive")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", tier],
        cwd=tmp_path,
        env=os.environ
        | {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert set(re.findall(r"::(\S+)$", done.stdout, re.MULTILINE)) == expected


def test_fifths_are_all() -> None:
    """Five fifths are the whole; a table has all rows, of which a fifth is default."""
    names = [f"name {i}" for i in range(200)]
    fifths = [[n for n in names if is_in_fifth(n, i)] for i in range(5)]
    assert sorted(n for fifth in fifths for n in fifth) == sorted(names)
    assert all(20 < len(fifth) < 60 for fifth in fifths)
    rows = fifth_of(names)
    assert [row.id for row in rows] == names
    assert [row.id for row in rows if not row.marks] == fifths[0]


def _run(acts: dict[str, Callable[[], object]]) -> None:
    with cases() as case:
        for name, act in acts.items():
            with case(name):
                act()


def _fail() -> None:
    assert X.sum() == 0, "not zero"


def _skip() -> None:
    pytest.skip("no")


X = np.ones(2)


def test_all_cases_run_and_the_failing_ones_are_named() -> None:
    seen: list[int] = []
    acts = {"a": _fail, "b": lambda: seen.append(1), "c": _skip, "d": _fail}
    with pytest.raises(ExceptionGroup) as caught:
        _run(acts)
    assert seen == [1]
    assert caught.value.message == "2 of 4 cases failed: a, d"
    notes = [error.__notes__ for error in caught.value.exceptions]
    assert notes == [["in the case a"], ["in the case d"]]


def test_a_case_that_skips_stops_no_other() -> None:
    seen: list[int] = []
    acts = {"a": _skip, "b": lambda: seen.append(1)}
    with pytest.raises(pytest.skip.Exception, match="the other 1 cases passed; a: no"):
        _run(acts)
    assert seen == [1]


def test_no_cases_are_a_failure() -> None:
    with pytest.raises(AssertionError, match="there are no cases"):
        _run({})
