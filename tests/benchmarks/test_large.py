"""Large programs: graphs of many nodes, many operators, one matrix for many rows."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import large
import numpy as np
import peers
import pytest
from operators import LENGTH
from table import Row, at_most, ratio
from timing import Statement

import customop as co
from customop.graph import writer

# Program and step -> what the row says, and the most seconds and bytes.
_LIMITS: dict[tuple[str, str], tuple[str, float, float | None]] = {
    ("leaves", "first call"): ("compiled grad of 10,000 leaves, first call", 2.0, 60e6),
    ("nodes", "first replay"): ("graph of 100,000 nodes, first replay", 0.5, 100e6),
    ("files", "save"): ("graph of 100,000 nodes, save", 1.0, None),
    ("files", "load"): ("graph of 100,000 nodes, load", 1.0, None),
    ("unrolled", "first call"): (
        "compiled loop of 50,000 calls, first call",
        2.0,
        None,
    ),
    ("operators", "register"): ("register 100,000 operators", 6.0, 300e6),
    ("operators", "typo"): ("a typo among 100,000 operators", 10e-3, None),
}


def _measured(program: str) -> Any:
    """Return what the steps of a program take, in a process of its own."""
    command = [sys.executable, str(Path(large.__file__)), program]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


@pytest.mark.parametrize("program", dict.fromkeys(name for name, _ in _LIMITS))
def test_large(note: Callable[[Row], None], program: str) -> None:
    """Time of the processor, and memory at the peak."""
    for step, (seconds, size) in _measured(program).items():
        if (program, step) not in _LIMITS:
            continue
        what, most, most_bytes = _LIMITS[program, step]
        note(Row(what, at_most(most), seconds))
        if most_bytes is not None:
            note(Row(f"{what}: memory", at_most(most_bytes), size, unit="B"))


def test_time_of_graphs_is_linear(note: Callable[[Row], None]) -> None:
    """A graph of ten times as many nodes takes as long for each of them."""
    short, long = _measured("nodes"), _measured("more_nodes")
    limit = ratio("of 100,000", 1.5)
    for step in ("capture", "first replay"):
        ours, other = long[step][0] / 1_000_000, short[step][0] / 100_000
        note(Row(f"{step} of 1,000,000 nodes, per node", limit, ours, other))


def test_later_replays_of_a_large_graph(compare: Callable[..., None]) -> None:
    """The rows of a table beside the lines of the same graph."""
    x = np.ones(3)
    module = co.make_fx(large.repeated(20_000))(x)
    names: dict[str, Any] = {"fn": module, "x": x}
    lines = module.with_graph(module.graph.copy())
    most, writer.LARGE = writer.LARGE, module.graph.count  # type: ignore[misc]  # to compare
    try:
        lines(x)
    finally:
        writer.LARGE = most  # type: ignore[misc]
    np.testing.assert_array_equal(module(x), lines(x))
    statements = {
        "ours": Statement("fn(x)", names),
        "lines": Statement("fn(x)", {"fn": lines, "x": x}),
    }
    what = "replay of 20,000 nodes, 3 elements"
    compare(what, statements, ratio("lines", 1.2), rounds=9)


def test_collector(note: Callable[[Row], None]) -> None:
    """The collector of cycles takes little of a gradient of many small calls."""
    found = _measured("pendulum")
    limit = ratio("the gradient", 0.05)
    ours, whole = found["collector"][0], found["gradient"][0]
    note(Row("collector of cycles, pendulum of 200 steps", limit, ours, whole))


def test_pendulum(compare: Callable[..., None]) -> None:
    """The gradient of the pendulum beside HIPS autograd."""
    start = np.array([9.8, 0.1])
    fn = co.grad(large.pendulum_of(np))
    statements = {"ours": Statement("fn(x)", {"fn": fn, "x": start})}
    if peers.HIPS not in peers.missing():
        program = large.pendulum_of(import_module("autograd.numpy"))
        by_hips = import_module("autograd").grad(program)
        statements[peers.HIPS] = Statement("fn(x)", {"fn": by_hips, "x": start})
    compare(
        "pendulum, grad of 200 steps", statements, ratio(peers.HIPS, 0.35), rounds=5
    )


# The product of a matrix and a row, as programs write it.
PRODUCTS: dict[str, Callable[[Any, Any], Any]] = {
    "w @ a": lambda w, a: w @ a,
    "dot(w, a)": lambda w, a: np.dot(w, a),
    "matvec(w, a)": lambda w, a: np.matvec(w, a),
    "einsum of w and a": lambda w, a: np.einsum("ij,j->i", w, a),
    "tensordot(w, a, 1)": lambda w, a: np.tensordot(w, a, 1),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_vmap_of_a_product(compare: Callable[..., None], name: str) -> None:
    """The gradient of one matrix times each row, beside the product of all rows."""
    rng = np.random.default_rng(0)
    w, x = rng.standard_normal((100, 100)), rng.standard_normal((5000, 100))
    product = PRODUCTS[name]
    fn = co.grad(lambda w: np.sum(co.vmap(lambda a: product(w, a))(x) ** 2))
    hand = co.grad(lambda w: np.sum((x @ w.T) ** 2))
    np.testing.assert_allclose(fn(w), hand(w))
    statements = {
        "ours": Statement("fn(w)", {"fn": fn, "w": w}),
        "x @ w.T": Statement("fn(w)", {"fn": hand, "w": w}),
    }
    what = f"grad of vmap of {name}, 5,000 rows"
    compare(what, statements, ratio("x @ w.T", 1.2), rounds=9)


def test_custom_vjp(compare: Callable[..., None]) -> None:
    """A chain of calls of a function with a gradient of its own."""
    sine = co.custom_vjp(lambda x: np.sin(x))
    sine.defvjp(lambda x: (np.sin(x), np.cos(x)), lambda cos, g: (g * cos,))

    def chain(x: Any) -> Any:
        for _ in range(LENGTH):
            x = sine(x)
        return np.sum(x)

    x = np.linspace(0.0, 1.0, 3)
    statements = {"ours": Statement("fn(x)", {"fn": co.grad(chain), "x": x})}
    statements |= peers.chained(x)
    what = f"grad of {LENGTH} calls of custom_vjp, per call"
    compare(what, statements, ratio(peers.HIPS, 1.0), per=LENGTH)
