"""The word of `explain` on Python loops that are unrolled to large graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import customop as co

WORDS = "times the same steps: co.scan or co.fori_loop"


def unrolled(count: int) -> Any:
    def f(x: Any) -> Any:
        y = x
        for _ in range(count):
            y = np.sin(y) * 0.5 + np.cos(x - y) / 3.0 + np.tanh(y)
        return np.sum(y)

    return f


@pytest.mark.parametrize("count", [10, 300])
def test_an_unrolled_loop(count: int) -> None:
    """A graph of thousands of nodes says how many equal steps it has; others do not."""
    compiled = co.compile(unrolled(count), backend="eager")
    compiled(np.ones(3))
    text = str(compiled.explain())
    assert (WORDS in text) == (count == 300)
    assert count == 10 or f"about 298 {WORDS}" in text


def test_a_gradient_of_an_unrolled_loop() -> None:
    """The steps of the function differ from those of its gradient; both repeat."""
    compiled = co.compile(co.value_and_grad(unrolled(120)), backend="eager")
    compiled(np.ones(3))
    assert WORDS in str(compiled.explain())


def test_steps_that_differ() -> None:
    """A large graph whose calls come in no order is not taken for a loop."""
    draw = np.random.default_rng(0)
    names = [str(n) for n in draw.choice(["sin", "cos", "tanh", "exp", "abs"], 2500)]

    def f(x: Any) -> Any:
        for name in names:
            x = getattr(np, name)(x) * 0.1
        return x

    compiled = co.compile(f, backend="eager")
    compiled(np.ones(3))
    assert WORDS not in str(compiled.explain())
