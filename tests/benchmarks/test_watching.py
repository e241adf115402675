"""Costs of profiles and sampled checks: nothing when off, little when on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import operators
import pytest
from table import Row, over, ratio
from timing import Statement, alternate

import customop as co
from customop.transforms.autograd.reverse import GradInterpreter

X = np.ones(3)


def make(name: str) -> co.Operator[..., np.ndarray]:
    """An operator with a formula and little work."""

    @co.custom_op(f"bench::{name}", mutates_args=())
    def op(x: np.ndarray, k: float = 1.0) -> np.ndarray:
        return x + k

    op.register_autograd(lambda ctx, g: (g, None))
    op(X)
    return op


def calls(op: co.Operator[..., np.ndarray]) -> dict[str, Statement]:
    """A call on an array, on a traced value, and a gradient."""
    traced = GradInterpreter().variable(X)
    grad = co.grad(lambda x: np.sum(op(x)))
    grad(X)
    return {
        "call": Statement("op(x)", {"op": op, "x": X}),
        "traced call": Statement("op(x)", {"op": op, "x": traced}),
        "grad of op(x).sum()": Statement("grad(x)", {"grad": grad, "x": X}),
    }


@pytest.mark.parametrize("what", ["call", "traced call", "grad of op(x).sum()"])
def test_off(compare: Callable[..., None], what: str) -> None:
    """Calls of an operator that was profiled and sampled before, and of a new one."""
    old = make("once_watched")
    with co.profile():
        co.grad(lambda x: np.sum(old(x)))(X)
    co.config.sample_checks = 0.5
    old(X)
    co.config.sample_checks = 0
    old(X)
    theirs = calls(make("never_watched"))[what]
    statements = {"ours": calls(old)[what], "never watched": theirs}
    compare(f"{what}, profile closed", statements, ratio("never watched", 1.05))


def test_profile(note: Callable[[Row], None]) -> None:
    """The time that a profile adds for each kernel, rule and formula."""
    statements = calls(make("profiled"))
    off = alternate(statements)
    with co.profile(max_events=10**7):
        on = alternate(statements)
    for what, statement in statements.items():
        with co.profile() as p:
            statement()
        seen = sum(row.count for row in p.rows)
        limit = over("profile closed", 3e-6)
        name = f"{what} under profile, by {seen} seen"
        note(Row(name, limit, on[what] / seen, off[what] / seen))


def test_sample_checks(note: Callable[[Row], None]) -> None:
    """One call in a thousand proves its contract; the others pay for the draw."""
    statements = {"call": calls(make("sampled"))["call"]}
    statements["fake too"] = Statement("op(x)", {"op": operators.sine, "x": X})
    for statement in statements.values():
        statement()
    off = alternate(statements)
    co.config.sample_checks = 0.001
    try:
        on = alternate(statements)
    finally:
        co.config.sample_checks = 0
    for what in statements:
        limit = over("no sampling", 100e-9)
        note(Row(f"sample_checks = 0.001, {what}", limit, on[what], off[what]))
