"""checkpoint: memory, random numbers, closures, and values that differ."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import numpy as np
import pytest

import customop as co

X = np.linspace(0.1, 1.0, 5)


def steps(x: Any) -> Any:
    for _ in range(20):
        x = np.sin(x) * 1.1
    return x


def peak(layer: Any) -> int:
    """Most memory in use during a gradient through ten layers, in arrays of the input."""

    def loss(x: Any) -> Any:
        for _ in range(10):
            x = layer(x)
        return np.sum(x)

    x = np.ones(20_000)
    co.grad(loss)(x)  # what is made at the first use
    gc.collect()
    tracemalloc.start()
    co.grad(loss)(x)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most // x.nbytes


def test_memory() -> None:
    """Backward keeps the inputs of ten layers and one layer, not ten layers of 40 calls."""
    assert peak(steps) > 190
    assert peak(co.checkpoint(steps)) < 60


def test_same_numbers() -> None:
    """Values and gradients are those of the function, to any order."""
    kept = co.checkpoint(steps)
    np.testing.assert_array_equal(kept(X), steps(X))
    want = co.value_and_grad(lambda x: np.sum(steps(x) ** 2))(X)
    found = co.value_and_grad(lambda x: np.sum(kept(x) ** 2))(X)
    np.testing.assert_allclose(found[0], want[0])
    np.testing.assert_allclose(found[1], want[1])
    step = 1e-6
    for i in range(2):
        e = np.eye(5)[i] * step
        up, down = np.sum(steps(X + e) ** 2), np.sum(steps(X - e) ** 2)
        np.testing.assert_allclose(found[1][i], (up - down) / (2 * step), rtol=1e-6)


def test_runs_again() -> None:
    """The function runs twice for a gradient, and once without."""
    runs = []

    @co.checkpoint
    def counted(x: Any, *, k: float = 2.0) -> Any:
        runs.append(k)
        return np.sin(x) * k

    counted(X)
    co.jvp(counted, (X,), (X,))
    assert len(runs) == 2
    co.grad(lambda x: np.sum(counted(x, k=3.0)))(X)
    assert runs[2:] == [3.0, 3.0]


def test_trees_and_integers() -> None:
    """Arguments and results are trees, also with integers and other values."""

    @co.checkpoint
    def fn(p: Any, n: Any, name: str) -> Any:
        return {"y": np.sin(p["x"]) * n, "n": n + 1, "name": name}

    def loss(x: Any) -> Any:
        out = fn({"x": x, "none": None}, np.array([1, 2, 3, 4, 5]), "me")
        assert out["name"] == "me"
        assert out["n"][0] == 2
        return np.sum(out["y"])

    np.testing.assert_allclose(co.grad(loss)(X), np.cos(X) * np.arange(1, 6))


def test_batches() -> None:
    """Rows of a batch; gradients of what they share are sums over the rows."""
    kept = co.checkpoint(lambda x, w: np.sin(x) * w)
    rows = np.stack([X, 2 * X])

    def loss(w: Any) -> Any:
        return np.sum(co.vmap(kept, (0, None))(rows, w))

    np.testing.assert_allclose(co.grad(loss)(X), np.sin(rows).sum(0))
    per_row = co.vmap(co.grad(lambda x: np.sum(kept(x, X))))(rows)
    np.testing.assert_allclose(per_row, np.cos(rows) * X)


GLOBAL = np.random.default_rng(1)


def test_generators_are_restored() -> None:
    """Generators of the closure, globals and arguments give the same numbers again."""
    rng = np.random.default_rng(0)

    @co.checkpoint
    def noisy(x: Any, other: Any) -> Any:
        noise = rng.normal(size=5) + other.normal(size=5) + GLOBAL.normal(size=5)
        return np.sin(x) * noise

    other = np.random.RandomState(3)
    states = [rng.bit_generator.state, GLOBAL.bit_generator.state]
    found = co.grad(lambda x: np.sum(noisy(x, other)))(X)
    after = rng.bit_generator.state
    rng.bit_generator.state, GLOBAL.bit_generator.state = states
    again = np.random.RandomState(3)
    noise = rng.normal(size=5) + again.normal(size=5) + GLOBAL.normal(size=5)
    np.testing.assert_allclose(found, np.cos(X) * noise)
    assert rng.bit_generator.state == after
    assert other.normal() == again.normal()


def test_other_values_are_an_error() -> None:
    """Numbers that nobody can restore are noticed."""
    hidden = {"rng": np.random.default_rng(0)}
    noisy = co.checkpoint(lambda x: np.sin(x) * hidden["rng"].normal(size=5))
    with pytest.raises(co.GradientError) as caught:
        co.grad(lambda x: np.sum(noisy(x)))(X)
    assert caught.value.what == (
        "checkpoint::<lambda> gives other values the second time, when backward runs it"
        " again"
    )


def test_global_random_state() -> None:
    """np.random is restored where the function names it."""
    noisy = co.checkpoint(lambda x: np.sin(x) * np.random.normal(size=5))  # noqa: NPY002  # what is tested
    np.random.seed(4)  # noqa: NPY002  # what is tested
    found = co.grad(lambda x: np.sum(noisy(x)))(X)
    noise = np.random.RandomState(4).normal(size=5)
    np.testing.assert_allclose(found, np.cos(X) * noise)


def test_saved_memory_of_variables() -> None:
    """Variables go through a checkpoint; backward frees what it kept."""
    v = co.variable(X)
    np.sum(co.checkpoint(steps)(v)).backward()
    want = co.grad(lambda x: np.sum(steps(x)))(X)
    np.testing.assert_allclose(v.grad, want)


def test_fake_arrays() -> None:
    """Shapes of gradients are known without numbers."""
    kept = co.checkpoint(steps)
    found = co.eval_shape(co.grad(lambda x: np.sum(kept(x))), X)
    assert found.shape == (5,)
