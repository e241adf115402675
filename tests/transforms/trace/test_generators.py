"""Random numbers in graphs: each run draws anew, in the order of the function."""

from __future__ import annotations

from random import random
from typing import Any

import numpy as np
import pytest

import customop as co

X = np.ones(3)


@co.custom_op("tracing::noise", mutates_args=())
def noise(generator: np.random.Generator, x: np.ndarray) -> np.ndarray:
    """An operator that takes a generator."""
    return x + generator.normal(size=x.shape)


noise.register_fake(lambda generator, x: co.fake_like(x))


@co.custom_op("tracing::draw", mutates_args=(), tags=co.Tag.nondeterministic_seeded)
def global_draw(count: int) -> np.ndarray:
    """An operator that draws from the generator that all of NumPy shares."""
    return np.random.rand(count)  # noqa: NPY002  # what is tried


global_draw.register_fake(lambda count: co.FakeArray((count,)))


def make() -> Any:
    """A function that draws from an argument, from its closure, and from np.random."""
    own = np.random.default_rng(5)

    def draws(x: Any, rng: Any) -> Any:
        return (
            x * rng.normal(size=x.shape),
            own.integers(10, size=3),
            noise(own, x),
            noise(rng, x),
            rng.choice(5, size=(2,), p=[0.1, 0.2, 0.3, 0.2, 0.2]),
            rng.permutation(4),
            global_draw(3),
            rng.random((2, 2), dtype=np.float32),
            rng.multivariate_normal([0, 0], np.eye(2), size=3),
        )

    return draws


@pytest.mark.parametrize("size", [(), 3, (2, 3)])
@pytest.mark.parametrize("method", ["random", "standard_normal", "standard_gamma"])
def test_tracing_knows_the_dtype_of_a_draw(method: str, size: Any) -> None:
    """Also that of floats of four bytes, whose draws without a size are Python's."""
    given = (2.0,) if method == "standard_gamma" else ()
    seen = []

    def draws(rng: Any) -> Any:
        drawn = getattr(rng, method)(*given, size=size, dtype=np.float32)
        seen.append(drawn.dtype)
        return drawn

    graph = co.make_fx(draws)(np.random.default_rng(1))
    assert seen == [np.float32]
    found, expected = graph(np.random.default_rng(2)), draws(np.random.default_rng(2))
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_a_graph_draws_anew_in_order(mode: Any) -> None:
    """Two runs draw what two runs of the function draw from equal generators."""
    graph, plain = co.make_fx(make(), mode)(X, np.random.default_rng(1)), make()
    for seed in (7, 8):
        state = np.random.get_state()  # noqa: NPY002  # what is tried
        found = graph(X, np.random.default_rng(seed))
        np.random.set_state(state)  # noqa: NPY002  # what is tried
        expected = plain(X, np.random.default_rng(seed))
        for a, b in zip(found, expected, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)


def test_tracing_leaves_generators_as_they_are() -> None:
    """Tracing draws from copies."""
    rng, state = np.random.default_rng(1), np.random.get_state()  # noqa: NPY002  # what is tried
    before = rng.bit_generator.state
    co.make_fx(make())(X, rng)

    assert rng.bit_generator.state == before
    np.testing.assert_array_equal(np.random.get_state()[1], state[1])  # noqa: NPY002  # what is tried


RNG = np.random.default_rng(0)
LEGACY, BITS = np.random.RandomState(0), np.random.PCG64(0)
legacy_rand = np.random.rand  # what is tried


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (
            lambda x, rng: x * RNG.normal(size=3),
            "draws from a Generator, whose numbers",
        ),
        (lambda x, rng: x * np.random.rand(3), "draws from np.random, whose numbers"),  # noqa: NPY002  # what is tried
        (lambda x, rng: x * legacy_rand(3), "from np.random, whose numbers"),
        (lambda x, rng: x * random(), "draws from Python's random, whose numbers"),
        (lambda x, rng: x * LEGACY.rand(3), "draws from a RandomState, whose numbers"),
        (
            lambda x, rng: x * np.random.Generator(BITS).normal(size=3),
            "draws from a PCG64, whose numbers",
        ),
        (lambda x, rng: rng.shuffle(x), r"do: write x\[...\] = x\[rng.permutation"),
        (lambda x, rng: rng.normal(x), "do: write loc . scale . rng.normal"),
        (lambda x, rng: rng.choice(x, size=2), "do: write x.rng.choice"),
        (lambda x, rng: rng.permutation(np.ones(2)), "do: write x.rng.permutation"),
        (lambda x, rng: rng.random(out=np.ones(2)), "do: x.*= draw"),
        (lambda x, rng: x + rng.bit_generator.random_raw(), "its bits and its state"),
        (lambda x, rng: np.random.Generator(rng.bit_generator), "write rng.integers"),
    ],
)
def test_draws_that_a_graph_cannot_have(fn: Any, message: str) -> None:
    """Draws that no operator sees are errors."""
    with pytest.raises(co.GraphError, match=message):
        co.make_fx(fn)(X, np.random.default_rng(0))


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_draws_of_one_number(mode: Any) -> None:
    """A graph draws anew where plain code gets a Python number."""

    def draws(x: Any, rng: Any) -> Any:
        noise = rng.normal(1.0, 2.0) + rng.random() * rng.poisson(3.0)
        return x * noise + rng.choice(4) + rng.uniform(-1.0)

    graph = co.make_fx(draws, mode)(X, np.random.default_rng(0))
    compiled = co.compile(draws)
    for seed in range(3):
        want = draws(X, np.random.default_rng(seed))
        np.testing.assert_allclose(graph(X, np.random.default_rng(seed)), want)
        np.testing.assert_allclose(compiled(X, np.random.default_rng(seed)), want)


def test_raw_bits_are_whole_numbers_of_64_bits() -> None:
    """What the error advises in place of ``rng.bit_generator.random_raw()``."""

    def raw(rng: Any) -> Any:
        return rng.integers(2**64 - 1, size=(), dtype=np.uint64, endpoint=True)

    graph = co.make_fx(raw)(np.random.default_rng(0))
    for seed in range(3):
        bits = np.random.default_rng(seed).bit_generator
        assert graph(np.random.default_rng(seed)) == bits.random_raw()


@pytest.mark.parametrize("source", [LEGACY, BITS], ids=["RandomState", "PCG64"])
def test_other_sources_of_numbers_as_arguments(source: Any) -> None:
    """A graph takes them, but a function that draws from them is refused."""

    def draws(x: Any, source: Any) -> Any:
        is_bits = isinstance(source, np.random.BitGenerator)
        rng = np.random.Generator(source) if is_bits else source
        return x + rng.normal(size=3)

    graph = co.make_fx(lambda x, source: 2.0 * x)(X, source)
    np.testing.assert_array_equal(graph(X, source), 2.0 * X)
    with pytest.raises(co.GraphError, match=f"draws from a {type(source).__name__}, "):
        co.make_fx(draws)(X, source)
    with pytest.raises(co.VmapError, match=f"draws from a {type(source).__name__}, "):
        co.vmap(lambda x: draws(x, source))(np.stack([X, X]))
