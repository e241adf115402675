"""Walks over graphs, forward with other rules and backward."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import customop as co

X = np.array([0.5, 1.0, 2.0])


def program(params: Any, x: Any) -> Any:
    """Pytrees, a constant, and an operator with two results."""
    low, high = np.linalg.qr(x)
    return {"a": low * params["k"] + 1.0, "b": [high, np.arange(3.0)]}


def test_forward_is_the_program() -> None:
    """With the calls themselves it gives the same; other rules may do anything."""
    args = ({"k": np.full(2, 2.0)}, np.ones((2, 2)) + np.eye(2))
    module = co.make_fx(program)(*args)
    seen: list[str] = []

    def call(node: co.Node, values: Any) -> Any:
        seen.append(node.name)
        return node.target.run(*values)

    out = co.walk_graph(module, call, *args)
    expected = program(*args)
    pairs = zip(co.tree.leaves(out), co.tree.leaves(expected), strict=True)
    assert all(np.array_equal(a, b) for a, b in pairs)
    assert out.keys() == expected.keys()
    assert seen == [n.name for n in module.graph.nodes if n.op == "call"]
    # An interval for each value: a transform that is not about arrays at all.
    line = co.make_fx(lambda x: x * -2.0 + 1.0)(X)

    def interval(node: co.Node, values: Any) -> Any:
        (low, high), number = values
        ends = [node.target.run(low, number), node.target.run(high, number)]
        return min(ends), max(ends)

    with pytest.raises(co.ArgumentError, match="the arguments are nested as"):
        co.walk_graph(line, interval, (0.0, 1.0))
    flat = co.GraphModule(line.graph)
    assert co.walk_graph(flat, lambda node, values: 7, X) == 7


def test_a_walk_is_differentiated() -> None:
    """It calls operators, so transforms see it."""
    module = co.make_fx(lambda x: np.sum(np.exp(np.sin(x))))(X)

    def run(x: Any) -> Any:
        return co.walk_graph(module, lambda node, values: node.target.run(*values), x)

    found = co.vmap(co.grad(run))(np.stack([X, -X]))
    np.testing.assert_allclose(found, [np.cos(x) * np.exp(np.sin(x)) for x in (X, -X)])


def undo(node: co.Node, out: Any, values: Any) -> Any:
    """Inverses of three operators."""
    name = node.target.name
    if name == "exp":
        return np.log(out)
    known = values[1] if values[0] is None else values[0]
    return out - known if name == "add" else out / known


def test_backward() -> None:
    """From the result to arguments, with what follows from constants computed."""
    table = co.ops.np.sin.default(X)

    def f(tree: Any, y: Any) -> Any:
        return {"x": np.exp(tree["x"] * 2.0 + table), "y": (3.0 + y, None)}

    args = ({"x": X}, X + 1.0)
    module = co.make_fx(f)(*args)
    tree, y = co.walk_graph_back(module, undo, module(*args))
    np.testing.assert_allclose(tree["x"], X)
    np.testing.assert_allclose(y, X + 1.0)
    with pytest.raises(co.ArgumentError, match="the result is nested as"):
        co.walk_graph_back(module, undo, X)


def test_backward_through_several_results() -> None:
    """All results of a call come together; one that nobody uses is None."""
    halves = co.custom_op(
        "walk::halves",
        lambda x: (np.floor(x), x - np.floor(x)),
        mutates_args=(),
        schema="(Array x) -> (Array, Array)",
    )

    def both(x: Any) -> Any:
        whole, rest = halves(x)
        return whole * 2.0, rest + 1.0

    def join(node: co.Node, out: Any, values: Any) -> Any:
        return out[0] + out[1] if node.target is halves else undo(node, out, values)

    module = co.make_fx(both)(X)
    np.testing.assert_allclose(co.walk_graph_back(module, join, both(X)), X)


@pytest.mark.parametrize(
    ("fn", "message"),
    [
        (
            lambda x: (np.exp(x), x + 1.0),
            "'x' is used more than once: its value does not follow",
        ),
        (lambda x: (np.exp(x), 2.0), None),
        (lambda x: np.ones(3), "'x' does not lead to the result"),
    ],
    ids=["twice", "number", "unused"],
)
def test_what_cannot_be_undone(fn: Any, message: str | None) -> None:
    """The errors name the node."""
    module = co.make_fx(fn)(X)
    if message is None:
        np.testing.assert_allclose(co.walk_graph_back(module, undo, module(X)), X)
        return
    with pytest.raises(co.GraphError) as error:
        co.walk_graph_back(module, undo, module(X))
    assert str(error.value).startswith(message)


def test_an_undo_with_the_wrong_number_of_values() -> None:
    """Each None in the values asks for one."""
    module = co.make_fx(lambda x, y: np.add(x, y))(X, X)
    with pytest.raises(co.GraphError) as error:
        co.walk_graph_back(module, lambda node, out, values: (out,), X)
    assert str(error.value).startswith(
        "undo of 'add' returned 1 value, it has 2 inputs to find\n  traced at "
    )
    first, second = co.walk_graph_back(module, lambda node, out, v: (out, out * 0), X)
    assert np.array_equal(first + second, X)
