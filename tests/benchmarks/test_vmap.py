"""The cost of vmap."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import operators
import peers
from table import ratio
from timing import Statement

import customop as co


def test_vmap(compare: Callable[..., None]) -> None:
    """An operator with a batching rule."""
    x = np.linspace(0.0, 1.0, 12).reshape(4, 3)
    fn = co.vmap(operators.sine)
    np.testing.assert_array_equal(fn(x), np.sin(x))
    statements = {"ours": Statement("fn(x)", {"fn": fn, "x": x}), **peers.vmapped(x)}
    compare("vmap(op)(x) with a rule", statements, ratio(peers.TORCH, 1 / 15))
