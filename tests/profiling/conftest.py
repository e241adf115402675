"""A profile with rows to show."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import customop as co
from tests.profiling._profiled import (
    CLOCK,
    X,
    bare,
    both,
    composed,
)


@pytest.fixture
def ordered() -> Any:
    """A profile whose rows come in another order by each measure."""
    with co.profile(clock=CLOCK, max_events=2) as p:
        composed(X)
        bare(np.ones(1000))
        for _ in range(3):
            both(X, X)
    return p
