"""The cost of a gradient."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import operators
import peers
from table import ratio
from timing import Statement

import customop as co

X = np.array([0.1, 0.2, 0.3])


def test_chain(compare: Callable[..., None]) -> None:
    """Forward and backward through a chain of operators, for each of them."""
    fn = co.grad(lambda x: operators.chain(x).sum())
    np.testing.assert_array_equal(fn(X), operators.loop(X))
    statements = {
        "ours": Statement("fn(x)", {"fn": fn, "x": X}),
        "hand-written loop": Statement("fn(x)", {"fn": operators.loop, "x": X}),
        **peers.chained(X),
    }
    limits = ratio("hand-written loop", 2.5), ratio(peers.HIPS, 0.4)
    what = f"grad of a chain of {operators.LENGTH}, per operator"
    compare(what, statements, *limits, per=operators.LENGTH)


def test_grad(compare: Callable[..., None]) -> None:
    """The gradient of one operator and a sum."""
    fn = co.grad(lambda x: operators.sine(x).sum())
    np.testing.assert_array_equal(fn(X), np.cos(X))
    statements = {"ours": Statement("fn(x)", {"fn": fn, "x": X}), **peers.graded(X)}
    compare("grad of op(x).sum(), 3 elements", statements, ratio(peers.HIPS, 0.4))
