"""Random numbers in control flow: in order, drawn once, in graphs too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co

X = np.array([0.3, 1.2, -0.7])


@co.custom_op(
    "control_tests::noise", mutates_args=(), tags=co.Tag.nondeterministic_seeded
)
def noise(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=x.shape)


noise.register_fake(lambda x, rng: co.fake_like(x))
noise.register_autograd(lambda ctx, g: (None, None))


def scanned(draw: Any, checkpoint: bool = False) -> Callable[..., Any]:
    def fn(x: Any, rng: Any) -> Any:
        def step(c: Any, _: Any) -> Any:
            return np.sin(c) * draw(c, rng), draw(c, rng) * c

        return np.sum(co.scan(step, x, None, 3, checkpoint=checkpoint)[1])

    return fn


def branched(draw: Any) -> Callable[..., Any]:
    def fn(x: Any, rng: Any) -> Any:
        return co.cond(
            x[1] > 0,
            lambda x: np.sum(x * draw(x, rng) * draw(x, rng)),
            lambda x: np.sum(x * draw(x, rng)),
            x,
        )

    return fn


def repeated(draw: Any) -> Callable[..., Any]:
    def fn(x: Any, rng: Any) -> Any:
        return co.while_loop(
            lambda c: np.sum(c) < 9, lambda c: c + draw(c, rng) ** 2, x
        )

    return fn


def nested(draw: Any) -> Callable[..., Any]:
    def fn(x: Any, rng: Any) -> Any:
        inner = branched(draw)
        return co.fori_loop(0, 3, lambda i, c: c + np.sin(x) * inner(c, rng), x)

    return fn


def plain(x: Any, rng: Any) -> Any:
    return rng.normal(size=3)


PROGRAMS = {
    "scan": scanned(plain),
    "scan of operators": scanned(noise),
    "checkpoint": scanned(plain, checkpoint=True),
    "cond": branched(plain),
    "cond of operators": branched(noise),
    "while_loop": repeated(plain),
    "nested": nested(plain),
    "nested operators": nested(noise),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_graph_draws_as_the_program(name: str) -> None:
    """With any generator that it is called with, and tracing draws from none."""
    fn, rng = PROGRAMS[name], np.random.default_rng(5)
    graph = co.make_fx(fn)(X, rng)
    assert rng.normal() == np.random.default_rng(5).normal()
    for x in (X, -X):
        one, two = np.random.default_rng(8), np.random.default_rng(8)
        np.testing.assert_allclose(graph(x, one), fn(x, two))
        assert one.normal() == two.normal()


@pytest.mark.parametrize("name", [n for n in PROGRAMS if n != "while_loop"])
def test_a_gradient_draws_no_number_twice(name: str) -> None:
    """The backward graph has the numbers of the forward graph."""
    fn = PROGRAMS[name]
    of_sum = lambda x, rng: np.sum(fn(x, rng))  # short
    graph = co.make_fx(co.grad(of_sum))(X, np.random.default_rng(5))
    for x in (X, -X):
        one, two = np.random.default_rng(8), np.random.default_rng(8)
        found = graph(x, one)
        step = 1e-6
        pairs = [
            [of_sum(x + s * d, np.random.default_rng(8)) for s in (step, -step)]
            for d in np.eye(3)
        ]
        slopes = [(up - down) / (2 * step) for up, down in pairs]
        np.testing.assert_allclose(found, slopes, rtol=1e-5, atol=1e-7)
        fn(x, two)
        assert one.normal() == two.normal()


def test_a_generator_of_a_closure() -> None:
    """It becomes an operand of the operator, and the graph draws from it."""
    rng = np.random.default_rng(5)

    def fn(x: Any) -> Any:
        return co.scan(lambda c, _: (c * rng.normal(size=3), c), x, None, length=2)[0]

    graph = co.make_fx(fn)(X)
    first, second = np.random.default_rng(5).normal(size=(2, 3))
    np.testing.assert_allclose(graph(X), X * first * second)


@pytest.mark.parametrize("name", ["map", "fori_loop", "while_loop"])
def test_a_generator_of_a_body(name: str) -> None:
    """In the closure of any body."""
    rng = np.random.default_rng(5)
    fns = {
        "map": lambda x: co.map(lambda r: r * rng.normal(size=()), x),
        "fori_loop": lambda x: co.fori_loop(
            0, 3, lambda i, c: c + rng.normal(size=3), x
        ),
        "while_loop": lambda x: co.fori_loop(
            0, np.argmax(x) + 1, lambda i, c: c + rng.normal(size=3), x
        ),
    }
    graph = co.make_fx(fns[name])(X)
    assert rng.bit_generator.state == np.random.default_rng(5).bit_generator.state
    found, rng = graph(X), np.random.default_rng(5)
    np.testing.assert_allclose(found, fns[name](X))


def test_a_backward_graph_runs_no_random_operator_again() -> None:
    """Also one without a generator, whose arguments the backward graph has."""
    runs = []

    @co.custom_op(
        "control_tests::tossed", mutates_args=(), tags=co.Tag.nondeterministic_seeded
    )
    def tossed(x: np.ndarray) -> np.ndarray:
        runs.append(1)
        return x * 2

    tossed.register_fake(lambda x: co.fake_like(x))
    tossed.register_autograd(lambda ctx, g: g * 2)
    fn = lambda x: np.sum(
        co.cond(x[1] > 0, lambda x: tossed(x) + x * x, np.sin, x)
    )  # short
    graph = co.make_fx(co.grad(fn))(X)
    runs.clear()
    np.testing.assert_allclose(graph(X), 2 + 2 * X)
    assert len(runs) == 1


def test_batches() -> None:
    """A draw under vmap is an error in a graph too, unless randomness is given."""
    graph = co.make_fx(branched(noise))(X, np.random.default_rng(5))
    rows = np.stack([X, X + 1])
    one = lambda x: graph(x, np.random.default_rng(8))  # short
    with pytest.raises(co.VmapError, match="is random under vmap"):
        co.vmap(one)(rows)
    same = co.vmap(one, randomness="same")(rows)
    np.testing.assert_allclose(same, [one(row) for row in rows])
