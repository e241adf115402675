"""make_fx with symbolic sizes: graphs for other sizes, guards, and names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import customop as co


def layer(x: Any, w: Any) -> Any:
    return np.tanh(x @ w) * x.shape[0]


@pytest.mark.parametrize("rows", [0, 1, 2, 5])
@pytest.mark.parametrize("traced", [1, 3])
def test_a_graph_is_for_every_size_of_a_name(rows: int, traced: int) -> None:
    """A named size may be anything afterwards, also 0 and 1, whatever it was."""
    trace = co.make_fx(layer, sizes={"x": ("batch", 4)})
    graph = trace(np.ones((traced, 4)), np.ones((4, 2)))
    x, w = np.random.default_rng(0).normal(size=(rows, 4)), np.eye(4, 2)

    np.testing.assert_array_equal(graph(x, w), layer(x, w))


def test_sizes_have_names_in_nodes_and_code() -> None:
    """A named size is part of the fake value of a node, and a variable of the code."""
    trace = co.make_fx(layer, sizes={"x": ("batch", None)})
    graph = trace(np.ones((3, 4)), np.ones((4, 2)))
    call = next(node for node in graph.graph.nodes if node.name == "matmul")

    assert str(call.meta["val"]) == "FakeArray(f64[batch, 2], device='cpu')"
    assert "batch = x.shape[0]" in graph.code
    assert "np_multiply(tanh, batch)" in graph.code


def test_unnamed_sizes_have_guards() -> None:
    """Without names each size is symbolic, and sizes that must agree are a guard."""
    graph = co.make_fx(layer, "symbolic")(np.ones((3, 4)), np.ones((4, 2)))
    x, w = np.ones((2, 5)), np.ones((5, 3))
    np.testing.assert_array_equal(graph(x, w), layer(x, w))

    with pytest.raises(co.GuardError) as caught:
        graph(np.ones((2, 5)), np.ones((4, 3)))

    assert str(caught.value).startswith(
        "the graph holds only where s1 == s2: s1 = x.shape[1] is 5, s2 = w.shape[0] is 4\n"
        f"  asked at {__file__}:"
    )


def test_a_branch_on_an_unnamed_size_is_a_guard() -> None:
    """The graph has the branch that was taken, and checks that it would be taken again."""
    graph = co.make_fx(lambda x: x * 2 if x.shape[0] > 2 else -x, "symbolic")(
        np.ones(3)
    )

    np.testing.assert_array_equal(graph(np.ones(4)), 2 * np.ones(4))
    with pytest.raises(co.GuardError, match="only where s0 > 2: s0 = x"):
        graph(np.ones(2))


def test_a_branch_on_a_name_is_an_error() -> None:
    """A size with a name stays symbolic, so Python cannot branch on it."""
    trace = co.make_fx(lambda x: x if x.shape[0] > 2 else -x, sizes={"x": ("n",)})

    with pytest.raises(co.SizeError, match="whether n > 2 is asked"):
        trace(np.ones(3))


def test_the_same_name_is_the_same_size() -> None:
    """Sizes with one name must agree when the graph is called."""
    trace = co.make_fx(np.multiply, sizes={"x1": ("n",), "x2": ("n",)})
    made = trace(np.ones(3), np.ones(3))

    np.testing.assert_array_equal(made(np.ones(2), np.ones(2)), np.ones(2))
    with pytest.raises(co.GuardError, match="do not fit together"):
        made(np.ones(2), np.ones(1))


def test_names_go_into_pytrees() -> None:
    """Names are nested as the argument is."""

    def total(data: dict[str, Any], scale: Any) -> Any:
        return np.sum(data["x"] * data["y"][0]) * scale

    trace = co.make_fx(total, sizes={"data": {"x": ("n",), "y": [("n",)]}})
    graph = trace({"x": np.ones(3), "y": [np.ones(3)]}, np.ones(()))
    found = graph({"x": np.ones(5), "y": [np.ones(5)]}, np.ones(()))

    assert found == 5.0


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"y": ("n",)}, "sizes has 'y', which is not an argument"),
        ({"x": "n"}, "sizes has 'n' for x, which is not a tuple"),
        ({"x": ("n", "m")}, "sizes="),
        ({"x": (4,)}, "x.shape.0. is 3, and sizes say 4"),
        (["n"], "is not a dict"),
    ],
)
def test_sizes_that_do_not_fit(sizes: Any, message: str) -> None:
    """Names for other arguments or other axes are an error."""
    with pytest.raises((co.ArgumentError, co.ShapeError), match=message):
        co.make_fx(lambda x: x, sizes=sizes)(np.ones(3))


def test_a_shape_that_depends_on_data_is_checked() -> None:
    """With values, the graph is for the number of elements that was met."""
    graph = co.make_fx(lambda x: np.nonzero(x)[0] * 2)(np.array([1.0, 0.0, 2.0]))

    np.testing.assert_array_equal(graph(np.array([0.0, 1.0, 2.0])), [2, 4])
    with pytest.raises(co.GuardError, match="np::nonzero gives a shape that depends"):
        graph(np.ones(3))
