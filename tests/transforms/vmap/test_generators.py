"""Draws from NumPy's generators inside vmap, which no operator sees."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import customop as co

X = np.arange(6.0).reshape(2, 3)
GLOBAL = np.random.default_rng(1)
MERSENNE = np.random.RandomState(0)
SYSTEM = random.SystemRandom()


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
    "system": lambda: lambda x: x + SYSTEM.gauss(0.0, 1.0),
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


def _draws_at_times() -> Any:
    """A function that draws once it has got a generator."""
    held: list[Any] = [None]

    def fn(x: Any) -> Any:
        return x + held[0].normal() if held[0] else x * 2.0

    return co.vmap(fn), held


def test_a_function_that_can_reach_a_generator_is_watched_in_each_run() -> None:
    rng, flag = np.random.default_rng(5), [False]

    def fn(x: Any) -> Any:
        return x + rng.normal() if flag[0] else x * 2.0

    run = co.vmap(fn)
    run(X)
    flag[0] = True
    with pytest.raises(co.VmapError, match="draws from a Generator"):
        run(X)


def test_settings_decide_which_runs_are_watched() -> None:
    """As for grad: "first" the first that ends, "always" each one, "never" none."""
    run, held = _draws_at_times()
    run(X)
    held[0] = GLOBAL
    assert run(X).shape == X.shape
    co.config.checks = "always"
    run, held = _draws_at_times()
    run(X)
    held[0] = GLOBAL
    with pytest.raises(co.VmapError, match="draws from a Generator"):
        run(X)
    co.config.checks = "never"
    run, held = _draws_at_times()
    held[0] = GLOBAL
    assert run(X).shape == X.shape


def test_settings_that_change_later_count() -> None:
    """Also for a function that vmap has taken before."""
    run, held = _draws_at_times()
    run(X)
    held[0] = GLOBAL
    run(X)
    co.config.checks = "always"
    with pytest.raises(co.VmapError):
        run(X)


def test_runs_chosen_at_random() -> None:
    """`on_failure` says what a draw in one of them does."""
    run, held = _draws_at_times()
    run(X)
    held[0] = GLOBAL
    co.config.sample_checks = 1.0
    co.config.on_failure = "warn"
    with pytest.warns(co.CustomOpWarning, match="draws from a Generator"):
        run(X)
    co.config.on_failure = "error"
    with pytest.raises(co.VmapError, match="draws from a Generator"):
        run(X)


def test_functions_of_one_code_are_told_apart_by_what_they_call() -> None:
    """The wrapper has run before, but not around a function that draws."""

    def wrapped(inner: Any) -> Any:
        return co.vmap(lambda x: inner(x))

    np.testing.assert_array_equal(wrapped(lambda x: x * 2.0)(X), X * 2.0)
    rng = np.random.default_rng(6)
    with pytest.raises(co.VmapError, match="draws from a Generator"):
        wrapped(lambda x: x + rng.normal())(X)


def test_a_source_without_a_state() -> None:
    """Its draws are counted; where they would have to be repeated it is refused."""

    def reaches(x: Any, draws: Any = False) -> Any:
        return x * SYSTEM.random() if draws else 2 * x

    for transformed in (co.vmap(reaches), co.compile(reaches), co.make_fx(reaches)(X)):
        np.testing.assert_array_equal(transformed(X), 2 * X)
    for transform in (co.compile, co.make_fx):
        with pytest.raises(co.GraphError, match="draws from a SystemRandom"):
            transform(lambda x: reaches(x, draws=True))(X)
    with pytest.raises(co.ArgumentError, match="SystemRandom, whose draws"):
        co.grad(co.checkpoint(lambda x: np.sum(reaches(x))))(X)


def test_a_sequence_of_seeds_spawns_other_children_each_time() -> None:
    """To spawn is to draw; a function may read it."""
    seeds = np.random.SeedSequence(1)

    def noisy(x: Any) -> Any:
        return x * np.random.default_rng(seeds.spawn(1)[0]).random()

    for transform in (co.compile, co.make_fx):
        with pytest.raises(co.GraphError, match="draws from a SeedSequence"):
            transform(noisy)(X)
    for randomness in ("error", "different"):
        with pytest.raises(co.VmapError, match="draws from a SeedSequence"):
            co.vmap(noisy, randomness=randomness)(X)
    with pytest.raises(co.ArgumentError, match="SeedSequence, whose draws"):
        co.grad(co.checkpoint(lambda x: np.sum(noisy(x))))(X)
    size = co.grad(co.checkpoint(lambda x: np.sum(x * seeds.pool_size)))
    np.testing.assert_array_equal(size(X), np.full_like(X, 4))
