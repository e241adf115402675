"""Tracing beside torch's, and graphs beside the same calls by hand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import peers
import pytest
from operators import sine
from table import ratio
from timing import Statement

import customop as co

LENGTH = 300
X = np.linspace(0.1, 0.9, 6).reshape(2, 3)
W = np.ones(3)


def chain(module: Any) -> Callable[[Any, Any], Any]:
    """A chain of small arrays, in plain code of NumPy or torch."""

    def program(x: Any, w: Any) -> Any:
        for _ in range(LENGTH // 3):
            x = module.sin(x)
            x = x * w
            x = x + 1.0
        return x

    return program


def layers(x: Any, w: Any) -> Any:
    """Products, a function, sums and a change of shape."""
    for _ in range(10):
        x = np.tanh(np.reshape(x, (3, 2)) @ np.reshape(x, (2, 3)) + w)
        x = np.mean(x, axis=0, keepdims=True) + np.ones((2, 1)) * w
    return np.sum(x)


def scalars(x: Any, w: Any) -> Any:
    """Arithmetic on scalars of NumPy."""
    total = np.sum(x)
    for _ in range(30):
        total = np.sqrt(total * 2.0 + 1.0)
    return total


def operators(x: Any, w: Any) -> Any:
    """A chain of custom operators."""
    for _ in range(50):
        x = sine(x)
    return x


def slices(x: Any, w: Any) -> Any:
    """Slices and changes of shape, which do no work of their own."""
    for _ in range(20):
        x = np.reshape(x[::-1], (3, 2))[:, ::-1]
        x = np.reshape(x, (2, 3))
    return x


_random = np.random.default_rng(0)
NESTED = {
    name: {"w": _random.normal(size=(n, m)), "b": np.zeros(m)}
    for name, n, m in (("first", 3, 8), ("second", 8, 8), ("last", 8, 2))
}


def nested(x: Any, w: Any) -> Any:
    """A network of small arrays with parameters in dicts of dicts."""
    for name in ("first", "second"):
        x = np.tanh(x @ w[name]["w"] + w[name]["b"])
    return np.mean((x @ w["last"]["w"] + w["last"]["b"]) ** 2)


def test_tracing(compare: Callable[..., None]) -> None:
    """A chain of NumPy calls, with symbolic sizes; the time is that of one call."""
    trace = co.make_fx(chain(np), "symbolic")
    assert trace(X, W).graph.count == LENGTH + 3
    statements = {
        "ours": Statement("trace(x, w)", {"trace": trace, "x": X, "w": W}),
        **peers.dispatched(LENGTH, X),
        **peers.traced(chain, X, W),
    }
    limits = ratio("singledispatch", 40.0), ratio(peers.TORCH, 0.01)
    limits = *limits, ratio(peers.JAX, 1.0)
    compare("tracing, symbolic sizes", statements, *limits, per=LENGTH, rounds=6)


def test_tracing_as_given(compare: Callable[..., None]) -> None:
    """The same with the sizes of the arguments: only shapes and dtypes are computed."""
    trace = co.make_fx(chain(np), "fake")
    statements = {
        "ours": Statement("trace(x, w)", {"trace": trace, "x": X, "w": W}),
        **peers.traced_as_given(chain, X, W),
    }
    compare(
        "tracing, fixed sizes", statements, ratio(peers.JAX, 1.0), per=LENGTH, rounds=6
    )


@pytest.mark.parametrize(
    ("what", "program", "w"),
    [
        ("chain of small arrays", chain(np), W),
        ("layers", layers, W),
        ("scalars", scalars, W),
        ("slices and reshapes", slices, W),
        ("network, nested parameters", nested, NESTED),
        ("custom operators", operators, W),
    ],
)
def test_replay(compare: Callable[..., None], what: str, program: Any, w: Any) -> None:
    """A graph, and the function that it was made of."""
    graph = co.make_fx(program)(X, w)
    np.testing.assert_allclose(graph(X, w), program(X, w), rtol=1e-14)
    statements = {
        "ours": Statement("fn(x, w)", {"fn": graph, "x": X, "w": w}),
        "by hand": Statement("fn(x, w)", {"fn": program, "x": X, "w": w}),
    }
    compare(f"replay: {what}", statements, ratio("by hand", 1.1))
