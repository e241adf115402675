"""A compiled function gives what the function gives."""

import numpy as np
import pytest

import customop as co


def test_the_graph_is_captured_once_for_each_dtype_and_shape() -> None:
    runs = []

    @co.compile
    def f(x):
        runs.append(x)
        return {"a": np.sin(x) + 1.0}

    for _ in range(2):
        for x in (np.arange(3.0), np.arange(4.0), np.arange(3)):
            assert np.array_equal(f(x)["a"], np.sin(x) + 1.0)
    assert len(runs) == 3


def test_a_registered_back_end_gets_the_graph_and_is_called_with_leaves() -> None:
    seen = []

    def doubling(module):
        seen.append([node.op for node in module.graph.nodes])
        return lambda x, y: 2 * (x + y)

    co.register_backend("doubling", doubling)
    f = co.compile(lambda x, y: x + y, backend="doubling")
    assert f(np.float64(1.0), y=np.float64(2.0)) == 6.0
    assert seen == [["placeholder", "placeholder", "call", "output"]]
    line = rf"{__file__}:{doubling.__code__.co_firstlineno}"
    with pytest.raises(
        co.RegistrationError, match=f"a back end 'doubling' already, at {line}\n"
    ):
        co.register_backend("doubling", doubling)


def test_a_cell_that_runs_again_replaces_its_back_end() -> None:
    cell = (
        "def running(module):\n"
        "    return module.run_list\n"
        "co.register_backend('running', running)\n"
    )
    file = "/tmp/ipykernel_7/{}.py"
    names = {"co": co}
    for number in range(2):
        exec(compile(cell, file.format(number), "exec"), names)
    f = co.compile(lambda x: x + 1.0, backend="running")
    assert f(np.ones(1)) == [2.0]
    with pytest.raises(co.RegistrationError, match="there is a back end 'running'"):
        exec(
            compile(
                cell.replace("def running", "def other").replace(
                    ", running", ", other"
                ),
                file.format(3),
                "exec",
            ),
            names,
        )
    with pytest.raises(co.RegistrationError, match="'numpy' already\n"):
        co.register_backend("numpy", names["running"])


def test_an_unknown_back_end_is_an_error_that_names_a_near_one() -> None:
    with pytest.raises(co.ArgumentError) as error:
        co.compile(np.sin, backend="nunpy")
    assert "unknown backend 'nunpy' (did you mean 'numpy'?)" in str(error.value)


def test_under_transforms_it_is_the_function() -> None:
    f = co.compile(lambda x: np.sum(x**3))
    x = np.arange(3.0)
    assert np.array_equal(co.grad(f)(x), 3 * x**2)
    assert np.array_equal(co.vmap(f)(np.ones((2, 3))), [3.0, 3.0])
    assert np.array_equal(co.compile(co.grad(f))(x), 3 * x**2)
