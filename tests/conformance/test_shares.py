"""How many samples work on arrays of other libraries, as the guide says it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from customop.numpy.arguments import SINCE_2_5
from tests.conformance.foreign import share

_GUIDE = Path(__file__).parents[2] / "examples/guide/rules.md"
_NAMES = ("standard", "dask")


@pytest.mark.skipif(SINCE_2_5, reason="the guide has the figures of NumPy 2.4")
def test_the_guide_has_the_shares_of_the_lists() -> None:
    """Its figures are those of the lists of what is refused."""
    text = " ".join(_GUIDE.read_text(encoding="utf-8").split())
    found = re.search(
        r"values for (\d+) % of the samples and NumPy's gradients for (\d+) %; dask .*?"
        r" for (\d+) % and (\d+) %\.",
        text,
    )
    assert found is not None
    shares = [share(name, what) for name in _NAMES for what in ("kernel", "vjp")]
    assert [*map(int, found.groups())] == shares
