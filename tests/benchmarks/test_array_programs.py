"""The cost of plain NumPy programs under transforms: the rows that come first."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import peers
import programs
import pytest
from table import Row, ratio
from timing import Statement

import customop as co

CALL = "fn(x)"


@pytest.mark.parametrize("name", programs.CHAINS)
def test_chain(compare: Callable[..., None], name: str) -> None:
    """The gradient of a step repeated 100 times."""
    step, x, most = programs.CHAINS[name]
    statements = {
        "ours": Statement(CALL, {"fn": co.grad(programs.chain(step, np)), "x": x}),
        **peers.gradient(lambda xp: programs.chain(step, xp), x),
    }
    _agree(statements)
    compare(f"grad of 100 times {name}", statements, ratio(peers.HIPS, most))


def test_network(compare: Callable[..., None]) -> None:
    """The gradient for a training step, batch of 32."""
    inputs, targets = programs.INPUTS, programs.TARGETS

    def loss(xp: Any) -> Callable[[Any], Any]:
        a, b = peers.constants(xp, inputs, targets)
        return lambda weights: programs.mlp(xp, a, b, weights)

    _compare(compare, "MLP step", loss, programs.WEIGHTS, (0.7, 0.9))


def test_recurrent(compare: Callable[..., None]) -> None:
    """The gradient of a loop in Python."""

    def loss(xp: Any) -> Callable[[Any], Any]:
        a, b = peers.constants(xp, programs.SEQUENCE, np.zeros(16))
        return lambda weights: programs.rnn(xp, a, b, weights)

    what = f"RNN, {programs.STEPS} steps"
    _compare(compare, what, loss, programs.RECURRENT, (0.4, 1.0), rounds=12)


def test_labels(compare: Callable[..., None]) -> None:
    """The gradient through elements that index arrays take."""

    def loss(xp: Any) -> Callable[[Any], Any]:
        (a,) = peers.constants(xp, programs.INPUTS)
        return lambda weights: programs.cross_entropy(xp, a, weights[0])

    _compare(compare, "cross-entropy", loss, [programs.CLASSES], (0.7, 1.0))


def test_numbers(compare: Callable[..., None]) -> None:
    """The gradient of a loop on single numbers, which NumPy gives as scalars."""

    def loss(xp: Any) -> Callable[[Any], Any]:
        return lambda weights: programs.hunters(xp, weights[0])

    what = "ODE of two numbers, 20 steps"
    _compare(compare, what, loss, [programs.RATES], (0.4, 1.0), rounds=12)


def _compare(
    compare: Callable[..., None],
    what: str,
    loss: Callable[[Any], Callable[[Any], Any]],
    weights: Any,
    most: tuple[float, float],
    **settings: Any,
) -> None:
    statements = {
        "ours": Statement(CALL, {"fn": co.grad(loss(np)), "x": weights}),
        **peers.gradient(loss, weights),
    }
    _agree(statements)
    limits = ratio(peers.HIPS, most[0]), ratio(peers.TORCH, most[1])
    compare(what, statements, *limits, **settings)


def _rosenbrock(v: Any) -> Any:
    return programs.rosenbrock(np, v)


def _product(v: Any) -> Any:
    """The product of the Hessian with the point itself."""
    return co.jvp(co.grad(_rosenbrock), (v,), (v,))[1]


DERIVATIVES = {
    "gradient": (co.grad(_rosenbrock), 0.6),
    "Hessian": (co.hessian(_rosenbrock), 0.2),
    "HVP": (_product, 0.7),
}


@pytest.mark.parametrize("name", DERIVATIVES)
def test_rosenbrock(compare: Callable[..., None], name: str) -> None:
    """Gradient, Hessian, and product of the Hessian with a vector."""
    x = programs.POINT
    fn, most = DERIVATIVES[name]
    statements = {
        "ours": Statement(CALL, {"fn": fn, "x": x}),
        **peers.second(programs.rosenbrock, x)[name],
    }
    _agree(statements)
    limit = ratio(peers.HIPS, most)
    compare(f"Rosenbrock of 50, {name}", statements, limit, rounds=12)


def test_rows(compare: Callable[..., None]) -> None:
    """A function of a vector over the rows of a batch."""
    x = programs.ROWS
    rows = co.vmap(lambda v: programs.softmax(np, v))
    statements = {
        "ours": Statement(CALL, {"fn": rows, "x": x}),
        "by hand on the batch": Statement(CALL, {"fn": programs.softmax_rows, "x": x}),
        **peers.batched(programs.softmax, x),
    }
    _agree(statements)
    compare("vmap of a softmax, 8 rows", statements, ratio(peers.TORCH, 0.1))


def test_samples(compare: Callable[..., None]) -> None:
    """The gradient of each sample."""
    inputs, targets, weights = programs.INPUTS, programs.TARGETS, programs.WEIGHTS

    def loss(w: Any, a: Any, b: Any) -> Any:
        return programs.mlp(np, a[None], b[None], w)

    each = co.vmap(co.grad(loss), in_dims=(None, 0, 0))
    names = {"fn": each, "w": weights, "a": inputs, "b": targets}
    statements = {
        "ours": Statement("fn(w, a, b)", names),
        **peers.by_sample(programs.mlp, weights, inputs, targets),
    }
    _agree(statements)
    compare("gradients of 32 samples", statements, ratio(peers.TORCH, 1.0), rounds=12)


def test_memory(note: Callable[[Row], None]) -> None:
    """1,000 layers with constant weights keep nothing but shapes."""
    weights = np.eye(256)

    def layers(x: Any) -> Any:
        for _ in range(1000):
            x = x @ weights
        return np.sum(x)

    def sines(x: Any) -> Any:
        for _ in range(1000):
            x = np.sin(x)
        return np.sum(x)

    ours, other = _peak(co.grad(layers)), _peak(co.grad(sines))
    limit = ratio("1,000 times np.sin", 0.02)
    note(Row("memory of 1,000 layers x @ W", limit, ours, other, unit="B"))


def _peak(fn: Callable[[Any], Any]) -> float:
    """The most memory that a call takes, in bytes, the second time."""
    x = np.ones((256, 256))
    fn(x)
    tracemalloc.start()
    fn(x)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return float(peak)


def _agree(statements: dict[str, Statement]) -> None:
    """All peers compute the same numbers."""
    ours, *others = [statement() for statement in statements.values()]
    for other in others:
        for a, b in zip(_flat(ours), _flat(other), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-10)


def _flat(value: Any) -> list[Any]:
    items = value if isinstance(value, list | tuple) else [value]
    return [np.asarray(item) for item in items]
