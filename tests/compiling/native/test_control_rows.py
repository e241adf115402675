"""Loops and branches as tables, beside the graph run by NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.compiling.native_backend import blocked_rows
from customop.compiling.native_backend.native_code import build
from tests.compiling.native.random_programs import difference

RNG = np.random.default_rng(3)
X = RNG.normal(size=(5, 4))
W = RNG.normal(size=(4, 4)) / 2.0


def _turning(c: Any, r: Any) -> Any:
    return np.outer(r, r).T @ c, np.sum(c, axis=0)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "fori_loop": (lambda x: co.fori_loop(0, 5, lambda i, c: c * 1.5 + i, x), (X,)),
    "map": (lambda x: co.map(lambda v: np.sin(v) * 2.0, x), (X,)),
    "map of scalars": (lambda x: co.map(lambda v: v * 2.0 + 1.0, x), (X[0],)),
    "while_loop": (
        lambda x: co.while_loop(lambda c: np.sum(c) < 99.0, lambda c: c * 2.0, x),
        (np.abs(X),),
    ),
    "while_loop of no steps": (
        lambda x: co.while_loop(lambda c: np.sum(c) < 0.0, lambda c: c * 2.0, x),
        (np.abs(X),),
    ),
    "cond": (
        lambda x: co.cond(np.sum(x) > 0, lambda q: q * 2, lambda q: q + 3, x),
        (X,),
    ),
    "scan": (lambda x: co.scan(lambda c, r: (c @ W + r, c * r), x[0], x), (X,)),
    "scan of columns": (
        lambda x: co.scan(lambda c, r: (np.tanh(c) + r, c), x[0, 0], x[:, 1]),
        (X,),
    ),
    "scan of other strides": (
        lambda x: co.scan(lambda c, r: (c + r, r[::-1]), x[:, 0], x.T[::-1]),
        (X,),
    ),
    "scan in reverse": (
        lambda x: co.scan(lambda c, r: (c * r, c), x[0], x, reverse=True),
        (X,),
    ),
    "scan of large rows": (
        lambda x: co.scan(lambda c, r: (c + np.sin(r), c * r), x[0] * 0.0, x),
        (RNG.normal(size=(3, 20, 30)),),
    ),
    "large rows that are results": (
        lambda x: co.scan(lambda c, r: (c + r, r), x[0] * 0.0, x),
        (RNG.normal(size=(3, 20, 30)),),
    ),
    "a carry that lies otherwise after a step": (
        lambda x: co.scan(lambda c, r: ((c + np.outer(r, r)).T, np.sum(c)), W, x),
        (X,),
    ),
    "carries that change places": (
        lambda x: co.scan(lambda c, r: ((c[1], c[0] + r), c[0]), (x[0], x[1]), x),
        (X,),
    ),
    "scan within scan": (
        lambda x: co.scan(
            lambda c, r: (co.fori_loop(0, 3, lambda i, d: d * 0.5 + r, c), c), x[0], x
        ),
        (X,),
    ),
    "an island within": (
        lambda x: co.scan(lambda c, r: (np.sort(c) + r, np.max(c)), x[0], x),
        (X,),
    ),
    "gradient": (
        co.grad(
            lambda x: np.sum(co.scan(lambda c, r: (np.tanh(c @ W + r), c), x[0], x)[1])
        ),
        (X,),
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_loops_and_branches(name: str) -> None:
    """Bits, dtypes, classes and layouts are those of the graph run by NumPy."""
    program, args = PROGRAMS[name]
    module = co.make_fx(program)(*args)
    run = build(module)
    for given in (args, args, tuple(-a for a in args)):
        if name.startswith("while_loop") and given[0].min() < 0:
            continue  # it would not end
        expected, found = module.run_list(*given), run(*given)
        assert [difference(a, b) for a, b in zip(expected, found, strict=True)] == [
            ""
        ] * len(expected)
    calls = [group for group in run.explain() if group.done == "call"]  # type: ignore[attr-defined]
    allowed = ("sort", "while_loop") if name == "an island within" else ()
    assert [g.nodes for g in calls if not g.nodes[0].startswith(allowed or "-")] == []


def test_an_error_in_a_step_is_numpys() -> None:
    """A warning of a step is NumPy's, and the next call is right."""
    f = co.compile(
        lambda x: co.scan(lambda c, r: (c / r, c), x[0], x)[0], backend="native"
    )
    good = np.abs(X) + 1.0
    expected = f(good)
    with np.errstate(all="raise"), pytest.raises(FloatingPointError, match="divide"):
        f(np.where(np.arange(5)[:, None] == 3, 0.0, good))
    assert np.array_equal(f(good), expected)


# ---- rows that a step goes over in blocks ----


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("reverse", [False, True])
def test_scan_over_rows_in_blocks(
    threads: int, reverse: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables within the table of a step go to the row of each step, and so do threads."""
    monkeypatch.setattr(co.config, "_compile_threads", threads)
    monkeypatch.setattr(blocked_rows, "_SHARED", 1 << 15)

    def f(carry: Any, xs: Any) -> Any:
        def step(c: Any, x: Any) -> Any:
            y = np.sin(x) * x[0] + x * x - np.exp(-x * x)
            c = c * 0.5 + y
            return c, np.tanh(y) * c

        return co.scan(step, carry, xs, reverse=reverse)

    def total(xs: Any) -> Any:
        return np.sum(f(start, xs)[1])

    xs, start = np.random.default_rng(0).normal(size=(3, 40_001)), np.zeros(40_001)
    compiled = co.compile(f, backend="native")
    for given in (xs, xs + 1.0):
        for found, wanted in zip(compiled(start, given), f(start, given), strict=True):
            assert found.tobytes() == wanted.tobytes()
    assert "table of" in str(compiled.explain())
    slope = co.grad(total)
    found, wanted = co.compile(slope, backend="native")(xs), co.make_fx(slope)(xs)(xs)
    assert found.tobytes() == wanted.tobytes()
