"""make_fx: plain programs as graphs, compared with NumPy."""

from __future__ import annotations

import sys
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


def scale(x: Any, k: Any = 3) -> Any:
    return {"out": np.sin(x["a"]) * k}


OF_ARRAY = "traced with f64[3]", "trace the function again for such arguments"


@pytest.mark.parametrize(
    ("args", "what", "was", "do"),
    [
        (
            ({"a": np.zeros(4)}, 3),
            "with another shape: x['a'] is ndarray f64[4]",
            *OF_ARRAY,
        ),
        (
            ({"a": np.zeros(3, "f4")}, 3),
            "with another dtype: x['a'] is ndarray f32[3]",
            *OF_ARRAY,
        ),
        (({"a": 1.5}, 3), "with what is not an array: x['a'] is float 1.5", *OF_ARRAY),
        (
            ({"a": np.zeros((3, 1))}, 3),
            "with another number of axes: x['a'] is ndarray f64[3, 1]",
            *OF_ARRAY,
        ),
        (
            ({"a": np.zeros(3)}, 3.0),
            "with another value: k is float 3.0",
            "traced with int 3",
            OF_ARRAY[1],
        ),
        (
            ({"b": np.zeros(3)}, 3),
            "as scale({'b': *}, *)",
            "traced as scale({'a': *}, *)",
            "call it with arguments that are nested as those",
        ),
    ],
    ids=["shape", "dtype", "float", "axes", "value", "structure"],
)
def test_a_graph_checks_its_arguments(args: Any, what: str, was: str, do: str) -> None:
    """A call with other arguments says which, what was traced, and where."""
    graph, line = co.make_fx(scale)({"a": np.zeros(3)}, 3), sys._getframe().f_lineno
    with pytest.raises(co.GuardError) as caught:
        graph(*args)

    assert str(caught.value) == (
        f"the graph is called {what}\n  it was {was} at {__file__}:{line}\n  do: {do}"
    )


@pytest.mark.parametrize(
    ("ask", "what", "do"),
    [
        (
            lambda: co.make_fx(3),  # type: ignore[arg-type]  # what is tried
            "3 is not a function",
            "write make_fx(f) with a function f",
        ),
        (
            lambda: co.make_fx(scale, "sym"),  # type: ignore[arg-type]  # what is tried
            "unknown tracing_mode='sym'",
            "use 'real', 'fake' or 'symbolic'",
        ),
        (
            lambda: co.make_fx(scale, "real", sizes={"x": ("n",)}),
            "sizes have names only where no values are computed",
            "leave tracing_mode='real' out, or use 'symbolic'",
        ),
    ],
    ids=["function", "mode", "sizes"],
)
def test_wrong_arguments_of_make_fx(ask: Any, what: str, do: str) -> None:
    """They are errors at once, not when the function is traced."""
    with pytest.raises(co.ArgumentError) as caught:
        ask()

    assert str(caught.value) == f"make_fx: {what}\n  do: {do}"


def test_a_branch_on_a_value_is_an_error() -> None:
    """Python cannot branch on a value of a graph; the error names the line."""
    with pytest.raises(co.DataDependentError) as caught:
        co.make_fx(lambda x: x if x > 0 else -x)(np.array(1.0))

    asked = "x if x > 0 else -x"
    assert f"write np.where(x > 0, x, -x) in place of {asked}" in str(caught.value)
    assert f"asked at {__file__}:" in str(caught.value)


def test_the_place_of_a_node_is_not_in_numpys_own_code() -> None:
    """Python code of NumPy may call operators; the line is the one that called NumPy."""
    graph = co.make_fx(lambda x: np.broadcast_to(x, (2, 3)) + 1.0)(np.zeros(3)).graph
    places = [node.meta["place"] for node in graph.nodes if node.op == "call"]

    assert all(place.startswith(f"{__file__}:") for place in places)


def test_lists_that_change_after_tracing() -> None:
    """A graph has the lists of a call as they were."""
    shape = [3, 2]
    graph = co.make_fx(lambda x: co.ops.np.reshape.default(x, shape))(np.arange(6.0))
    shape[:] = [2, 3]
    assert graph(np.arange(6.0)).shape == (3, 2)


def test_inputs_of_one_shape_share_its_tuple() -> None:
    """Facts of calls are remembered by the identity of shapes and strides."""
    arrays = [np.ones((2, 3)), np.zeros((2, 3), "f4"), np.ones((3, 2)).T, np.ones(())]

    def fn(xs: Any) -> Any:
        return [np.broadcast_to(x, (2, 3)) * x for x in xs]

    module = co.make_fx(fn)(arrays)
    *vals, scalar = [node.val for node in module.inputs]
    assert vals[0].shape is vals[1].shape
    assert vals[0].strides != vals[1].strides != vals[2].strides
    assert [v.dtype for v in vals] == [x.dtype for x in arrays[:3]]
    assert [v.strides for v in vals] == [x.strides for x in arrays[:3]]
    assert scalar.shape == ()
    for a, b in zip(module(arrays), fn(arrays), strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.strides == b.strides
