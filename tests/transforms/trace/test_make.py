"""make_fx: plain programs as graphs, compared with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import customop as co

MODES = ["real", "fake"]


def program(x: Any, params: dict[str, Any]) -> Any:
    y = np.sin(x) @ params["w"] + params["b"]
    y *= 2
    x[0] = 5.0
    return {"sum": y.sum(axis=0), "part": y[:, 1:]}, x


@pytest.mark.parametrize("mode", MODES)
def test_a_graph_gives_what_the_function_gives(mode: Any) -> None:
    """Results, their structure, and what is written into arguments are the same."""
    rng = np.random.default_rng(0)
    params = {"w": rng.normal(size=(3, 4)), "b": np.arange(4.0)}
    graph = co.make_fx(program, mode)(rng.normal(size=(2, 3)), params)
    x = rng.normal(size=(2, 3))
    a, b = x.copy(), x.copy()

    found, expected = graph(a, params), program(b, params)

    assert list(found[0]) == list(expected[0])
    for name in expected[0]:
        np.testing.assert_array_equal(found[0][name], expected[0][name])
    assert found[1] is a
    np.testing.assert_array_equal(a, b)


def test_tracing_changes_no_argument() -> None:
    """The arguments that a function is traced with stay as they are."""
    x = np.ones((2, 3))
    co.make_fx(program)(x, {"w": np.ones((3, 4)), "b": np.ones(4)})

    assert (x == 1.0).all()


def test_each_call_is_one_node() -> None:
    """A node has its operator, arguments and users, a fake value, and the user's line."""
    graph = co.make_fx(lambda x: np.sum(np.sin(x), axis=0))(np.zeros((2, 3))).graph
    x, sin, total, output = graph.nodes

    assert [node.op for node in graph.nodes] == [
        "placeholder",
        "call",
        "call",
        "output",
    ]
    assert sin.target is co.ops.np.sin.default
    assert (sin.args, [*x.users], output.args) == ((x,), [sin], ([total],))
    assert repr(total.meta["val"]) == "FakeArray(f64[3], device='cpu')"
    assert sin.meta["place"].startswith(f"{__file__}:")


def test_a_graph_checks_its_arguments() -> None:
    """A call with another shape says which argument, what was traced, and where."""
    graph = co.make_fx(lambda x: np.sin(x))(np.zeros(3))
    with pytest.raises(co.GuardError) as caught:
        graph(np.zeros(4))

    assert str(caught.value).startswith(
        "the graph is called with another shape: x is ndarray of shape (4,)\n"
        f"  it was traced with FakeArray of shape (3,) at {__file__}:"
    )


def test_a_branch_on_a_value_is_an_error() -> None:
    """Python cannot branch on a value of a graph; the error names the line."""
    with pytest.raises(co.DataDependentError) as caught:
        co.make_fx(lambda x: x if x > 0 else -x)(np.array(1.0))

    assert "cond(pred, f, g, *operands) or np.where" in str(caught.value)
    assert f"asked at {__file__}:" in str(caught.value)


def test_the_place_of_a_node_is_not_in_numpys_own_code() -> None:
    """Python code of NumPy may call operators; the line is the one that called NumPy."""
    graph = co.make_fx(lambda x: np.broadcast_to(x, (2, 3)) + 1.0)(np.zeros(3)).graph
    places = [node.meta["place"] for node in graph.nodes if node.op == "call"]

    assert all(place.startswith(f"{__file__}:") for place in places)
