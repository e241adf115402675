"""The warning, and the word of `explain`, on Python loops that are unrolled."""

from __future__ import annotations

import warnings
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


def test_an_unrolled_loop_is_a_warning_once() -> None:
    """A graph of thousands of nodes says how many equal steps it has; others do not."""
    compiled = co.compile(unrolled(300), backend="eager")
    with pytest.warns(co.CustomOpWarning) as caught:
        compiled(np.ones(3))
    (only,) = caught
    assert str(only.message) == (
        "compile: 'f' has become a graph of 2403 nodes, about 298 times the same steps"
        "\n  do: write the loop as co.scan or co.fori_loop, which are compiled for one step"
    )
    assert only.filename == __file__
    with warnings.catch_warnings(action="error"):
        compiled(np.ones(3))
        compiled(np.ones(4))
    assert str(compiled.explain()).count(f"about 298 {WORDS}") == 2
    compiled.clear()
    with pytest.warns(co.CustomOpWarning, match="2403 nodes"):
        compiled(np.ones(3))


def test_the_warning_can_be_silenced() -> None:
    """By its class; where warnings are errors, the second call runs what was compiled."""
    compiled = co.compile(unrolled(300), backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", co.CustomOpWarning)
        compiled(np.ones(3))
    compiled.clear()
    with warnings.catch_warnings(action="error"):
        with pytest.raises(co.CustomOpWarning, match="2403 nodes"):
            compiled(np.ones(3))
        assert np.array_equal(compiled(np.ones(3)), unrolled(300)(np.ones(3)))
    assert len(compiled.graphs) == 1


def test_a_short_loop_is_not_worth_a_word() -> None:
    compiled = co.compile(unrolled(10), backend="eager")
    compiled(np.ones(3))
    assert WORDS not in str(compiled.explain())


def test_a_loop_of_some_hundred_calls() -> None:
    """It is not worth a warning, but a word of `explain`, also by the default back end."""
    compiled = co.compile(unrolled(30))
    with warnings.catch_warnings(action="error"):
        compiled(np.ones(3))
    assert f"243 nodes, about 28 {WORDS}" in str(compiled.explain())


def test_a_loop_that_gets_long_later() -> None:
    """The warning is of the first graph that is large."""

    def f(x: Any, count: int) -> Any:
        for _ in range(count):
            x = np.sin(x) * 0.5 + np.cos(x) * 0.1
        return np.sum(x)

    compiled = co.compile(f, backend="eager")
    compiled(np.ones(3), 3)
    with pytest.warns(co.CustomOpWarning, match="compile: 'f' has become a graph of"):
        compiled(np.ones(3), 600)


def test_a_gradient_of_an_unrolled_loop() -> None:
    """The steps of the function differ from those of its gradient; both repeat."""
    compiled = co.compile(co.value_and_grad(unrolled(120)), backend="eager")
    with pytest.warns(co.CustomOpWarning, match="times the same steps"):
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
