"""Draws from NumPy's generators inside vmap, which no operator sees."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import customop as co

X = np.arange(6.0).reshape(2, 3)
GLOBAL = np.random.default_rng(1)
MERSENNE = np.random.RandomState(0)


def noise() -> Any:
    """A function that draws, named by others."""
    return GLOBAL.normal()


class Model:
    """An object that holds its generator."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(2)

    def __call__(self, x: Any) -> Any:
        return x + self.rng.normal()

    def run(self, x: Any) -> Any:
        return x + self.rng.normal()


def in_closure() -> Callable[[Any], Any]:
    rng = np.random.default_rng(3)
    return lambda x: x * rng.uniform()


DRAWS: dict[str, Callable[[], Callable[[Any], Any]]] = {
    "closure": in_closure,
    "default": lambda: lambda x, rng=GLOBAL: x + rng.normal(),
    "global": lambda: lambda x: x + GLOBAL.normal(),
    "named function": lambda: lambda x: x + noise(),
    "inner function": lambda: lambda x: sum(v + GLOBAL.normal() for v in [x]),
    "method": lambda: Model().run,
    "np.random": lambda: lambda x: x + np.random.normal(),  # noqa: NPY002
    "mersenne": lambda: lambda x, r=MERSENNE: x + r.normal(),
}


@pytest.mark.parametrize("name", DRAWS)
def test_a_draw_is_an_error(name: str) -> None:
    """All rows would get the same numbers; the error says what to write."""
    fn = DRAWS[name]()
    with pytest.raises(co.VmapError, match="the function draws from") as caught:
        co.vmap(fn)(X)
    assert "randomness='same'" in caught.value.do
    with pytest.raises(co.VmapError):  # until a run has not drawn
        co.vmap(fn)(X)


def test_an_argument() -> None:
    """A generator among the arguments."""
    with pytest.raises(co.VmapError, match="draws from a Generator"):
        co.vmap(lambda x, rng: x + rng.normal(), in_dims=(0, None))(X, GLOBAL)


@pytest.mark.parametrize("name", DRAWS)
def test_same_allows_it(name: str) -> None:
    """With randomness='same' the one draw is what is meant."""
    out = co.vmap(DRAWS[name](), randomness="same")(X)
    assert out.shape == X.shape


def test_a_generator_that_is_not_used() -> None:
    """One within reach is no fault, nor is one that another function uses later."""

    def fn(x: Any) -> Any:
        return noise() if x is None else x * 2.0

    run = co.vmap(fn)
    np.testing.assert_array_equal(run(X), X * 2.0)
    GLOBAL.normal()
    np.testing.assert_array_equal(run(X), X * 2.0)
    np.testing.assert_array_equal(co.vmap(partial(np.add, 1.0))(X), X + 1.0)
    np.testing.assert_array_equal(co.vmap(np.sin)(X), np.sin(X))
