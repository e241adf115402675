"""The order of calls in which arithmetic comes together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import customop as co
from customop.compiling.native_backend import planning
from customop.compiling.native_backend.native_code import build
from customop.compiling.native_backend.row_order import with_neighbors


def steps(x: Any, y: Any) -> Any:
    """A loop in which calls of cos stand between sums and products."""
    for _ in range(12):
        a = np.cos(x)
        x = x + a * 0.1
        b = np.cos(y)
        y = y - b * 0.2 + a
    return np.sum(x * y)


@pytest.mark.parametrize("has_gradient", [False, True])
def test_inputs_come_first(has_gradient: bool) -> None:
    """The order has the same nodes, each after those that it reads."""
    fn = co.value_and_grad(steps, argnums=(0, 1)) if has_gradient else steps
    nodes = [*co.make_fx(fn)(np.ones(3), np.ones(3)).graph.nodes]
    order = with_neighbors(nodes)
    assert order != nodes
    assert sorted(map(id, order)) == sorted(map(id, nodes))
    place = {node: k for k, node in enumerate(order)}
    for node in nodes:
        assert all(place[used] < place[node] for used in node.inputs)


def test_bits_and_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are fewer rows, with the same bits."""
    x, y = np.linspace(0.1, 1.0, 5), np.linspace(-1.0, 2.0, 5)
    module = co.make_fx(co.value_and_grad(steps, argnums=(0, 1)))(x, y)
    wanted = [np.asarray(v).tobytes() for v in module.run_list(x, y)]
    counts = []
    for order in (with_neighbors, list):
        monkeypatch.setattr(planning, "with_neighbors", order)
        run: Any = build(module)
        assert [np.asarray(v).tobytes() for v in run(x, y)] == wanted
        counts.append(int(run.explain()[0].done.split()[2]))
    assert counts[0] < 0.8 * counts[1]


def test_orders_that_stay() -> None:
    """Operators of the user's, writes and large values keep theirs."""

    @co.custom_op("row_order::doubled", mutates_args=())
    def own(x: np.ndarray) -> np.ndarray:
        return x * 2.0

    own.register_fake(lambda x: co.fake_like(x))

    def with_own(x: Any, y: Any) -> Any:
        return steps(own(x), y)

    def with_write(x: Any, y: Any) -> Any:
        y[0] = 1.0
        return steps(x, y)

    for fn, length in ((with_own, 3), (with_write, 3), (steps, 1000)):
        module = co.make_fx(fn)(np.ones(length), np.ones(length))
        nodes = [*module.graph.nodes]
        assert with_neighbors(nodes) == nodes
