"""The cost of a call on fake arrays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import operators
import peers
from table import at_most
from timing import Statement

import customop as co


def test_fake(compare: Callable[..., None]) -> None:
    """An operator with a fake kernel."""
    fake = co.FakeArray((2, 3))
    assert operators.sine(fake).shape == (2, 3)
    ours = Statement("op(x)", {"op": operators.sine, "x": fake})
    statements = {"ours": ours, **peers.faked(np.ones((2, 3)))}
    compare("fake call", statements, at_most(3e-6))
