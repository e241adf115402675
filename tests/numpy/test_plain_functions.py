"""The table of functions of other packages that work as they are."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from customop.arrays.trampolines import IS_KNOWN
from tests.plain_functions import CALLS

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.skipif(not IS_KNOWN, reason="this Python's code is not known"),
    pytest.mark.xdist_group("plain functions"),
]
ROOT = Path(__file__).parents[2]
PAGE = ROOT / "examples/guide/scipy.md"


@pytest.fixture(scope="module")
def rows() -> list[str]:
    """The table of a process of its own.

    While other threads run, `vmap` does not look at NumPy's global generator.
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.plain_functions"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("module", CALLS)
def test_a_row_of_the_table(rows: list[str], module: str) -> None:
    """The guide says what each function does; none gives a wrong number."""
    package = module.partition(".")[0]
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    (found,) = [row for row in rows if row.startswith(f"| `{module}` |")]
    assert found in PAGE.read_text(encoding="utf-8").splitlines()
