"""Functions that draw run as tables: the same numbers, and the generator as after them."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import customop as co

X = np.linspace(0.5, 1.5, 3)


def _noise(x: Any, rng: Any) -> Any:
    noise = rng.normal(size=3)
    return x * noise + rng.uniform(0.0, 2.0, size=(2, 3)), rng.integers(9, size=2)


def _two_generators(x: Any, rng: Any, other: Any) -> Any:
    return rng.random(size=3) - other.random(size=3) * x + rng.random(size=3)


def _unused(x: Any, rng: Any) -> Any:
    rng.normal(size=4)
    return x * 2.0


def _writes(x: Any, rng: Any) -> Any:
    x += rng.standard_normal(size=3)
    return x


def _states(rngs: Any) -> list[Any]:
    return [rng.bit_generator.state for rng in rngs]


@pytest.mark.parametrize("fn", [_noise, _two_generators, _unused, _writes])
def test_numbers_and_generators_are_those_of_the_function(fn: Any) -> None:
    compiled = co.compile(fn, backend="native")
    count = fn.__code__.co_argcount - 1
    for seed in range(3):
        pairs = [[np.random.default_rng([seed, i]) for i in range(count)] for _ in "ab"]
        mine, own = X.copy(), X.copy()
        found, expected = compiled(mine, *pairs[0]), fn(own, *pairs[1])
        for a, b in zip(co.tree.leaves(found), co.tree.leaves(expected), strict=True):
            assert a.tobytes() == b.tobytes()
        assert mine.tobytes() == own.tobytes()
        assert _states(pairs[0]) == _states(pairs[1])
    assert "NumPy code" not in str(compiled.explain())


def test_a_call_that_runs_again_draws_once() -> None:
    """A warning lets the call run by NumPy's code, with the numbers that there are."""
    fn = lambda x, rng: np.log(x * 0.0) + rng.normal(size=3)
    compiled = co.compile(fn, backend="native")
    rngs = [np.random.default_rng(4) for _ in "ab"]
    for _ in range(2):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            compiled(X, rngs[0])
        rngs[1].normal(size=3)
        assert [str(w.message) for w in caught] == ["divide by zero encountered in log"]
        assert rngs[0].bit_generator.state == rngs[1].bit_generator.state


def test_gradients_of_functions_that_draw() -> None:
    fn = co.grad(lambda x, rng: np.sum(np.tanh(x * rng.normal(size=3)) ** 2))
    compiled = co.compile(fn, backend="native")
    for seed in range(3):
        found, expected = (
            f(X, np.random.default_rng(seed)).tobytes() for f in (compiled, fn)
        )
        assert found == expected
    assert "NumPy code" not in str(compiled.explain())
