"""Random programs: the native back end has NumPy's bits, layouts, sharing and warnings."""

from __future__ import annotations

import pytest

from tests.compiling.native.random_programs import compare


@pytest.mark.parametrize("seed", range(60))
def test_random_programs(seed: int) -> None:
    """A program gives what its graph gives, run by NumPy."""
    assert compare(seed)[0] == ""


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(100, 112))
def test_more_random_programs(seed: int) -> None:
    """So it is for some hundreds of programs."""
    found = [compare(n)[0] for n in range(seed * 1000, seed * 1000 + 60)]
    assert [text for text in found if text] == []
