"""The table of functions of other packages that work as they are."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from customop.arrays.trampolines import IS_KNOWN
from tests.plain_functions import CALLS, row

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.skipif(not IS_KNOWN, reason="this Python's code is not known"),
]
PAGE = Path(__file__).parents[2] / "examples/guide/scipy.md"


@pytest.mark.parametrize("module", CALLS)
def test_a_row_of_the_table(module: str) -> None:
    """The guide says what each function does; none gives a wrong number."""
    package = module.partition(".")[0]
    pytest.importorskip(package, reason=f"{package} is not installed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = row(module)
    assert found in PAGE.read_text(encoding="utf-8").splitlines()
