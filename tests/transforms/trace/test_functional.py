"""functionalize: nothing is written but inputs and constants, by the last nodes."""

from __future__ import annotations

from typing import Any

import numpy as np

import customop as co

X = np.array([[0.5, -1.0, 2.0], [3.0, 0.25, -0.5]])


@co.custom_op("functional::grow", mutates_args=())
def grow(x: np.ndarray, k: float = 2.0) -> np.ndarray:
    """A fresh array."""
    return x * k


@co.custom_op("functional::grow_", mutates_args=("x",), tags=co.Tag.inplace)
def grow_(x: np.ndarray, k: float = 2.0) -> np.ndarray:
    """The same in place."""
    x *= k
    return x


@co.custom_op("functional::grow.out", mutates_args=("out",), tags=co.Tag.out)
def grow_out(x: np.ndarray, k: float = 2.0, *, out: np.ndarray) -> np.ndarray:
    """The same into an array."""
    np.multiply(x, k, out=out)
    return out


@co.custom_op("functional::mix", mutates_args=("x", "parts"))
def mix(
    x: np.ndarray, parts: list[np.ndarray], rng: np.random.Generator
) -> tuple[np.ndarray, float, list[np.ndarray]]:
    """Writes several arrays, draws, and returns others."""
    for part in parts:
        np.add(part, x[0], out=part)
    x -= rng.standard_normal(x.shape)
    return np.sum(x, axis=0), 2.5, [p * 2.0 for p in parts]


grow.register_fake(lambda x, k=2.0: co.fake_like(x))
mix.register_fake(
    lambda x, parts, rng: (
        co.FakeArray(x.shape[1:], x.dtype),
        2.5,
        [co.fake_like(p) for p in parts],
    )
)


def targets(module: co.GraphModule) -> list[str]:
    """Names of the operators that are called."""
    return [n.target.qualname for n in module.graph.nodes if n.op == "call"]


def checked(fn: Any, *args: Any, mode: Any = "real") -> co.GraphModule:
    """The functional graph of a function, with the same numbers and writes."""
    module = co.make_fx(fn, mode)(*args)
    found = co.functionalize(module)
    runs = []
    for run in (fn, module, found):
        given = co.tree.map(np.copy, args)
        runs.append(
            [np.asarray(v).tobytes() for v in co.tree.leaves((run(*given), given))]
        )
    assert runs[0] == runs[1] == runs[2]
    *calls, output = [n for n in found.graph.nodes if n.op in ("call", "output")]
    assert output.op == "output"
    ends = [n.target.qualname == "customop::assign" for n in calls if n.has_effects]
    assert all(ends)
    assert [n for n in calls if n.has_effects] == calls[len(calls) - len(ends) :]
    return found


def test_operators_with_a_functional_form() -> None:
    """In place and out become the operator without them."""

    def f(x: Any) -> Any:
        y = np.sin(x)
        z = grow_(y, 3.0)
        out = np.zeros_like(x)
        grow_out(z, out=out)
        return y + out

    found = checked(f, X)
    assert targets(found) == [
        "np::sin", "functional::grow", "np::full_like", "functional::grow", "np::add",
    ]  # fmt: skip
    places = [n.meta["place"] for n in found.graph.nodes if n.op == "call"]
    assert all(place.startswith(__file__) for place in places)


def test_views_and_what_they_are_views_of() -> None:
    """A write to a view reaches the array and its other views, and the reverse."""

    def f(x: Any) -> Any:
        y = x * 1.0
        row, rest, line = y[0], y[:, 1:], np.reshape(y, (6,))
        grow_(rest, 0.5)
        grow_(y)
        grow_(row[1:], 4.0)
        return y, row, rest, line

    for mode in ("real", "symbolic"):
        found = checked(f, X, mode=mode)
        assert targets(found).count("functional::grow") == 1  # the write of all of y


def test_inputs_and_constants() -> None:
    """What happened to them is the last thing that the graph does."""
    table = np.zeros((2, 3))

    def f(x: Any, y: Any) -> Any:
        grow_(x)
        grow_(y[0])
        grow_out(x, 3.0, out=table)
        return x, y[1], table + y

    found = checked(f, X, X + 1.0)
    assert targets(found)[-3:] == ["customop::assign"] * 3
    first = found.graph.output_node.args[0][0]
    assert first.op == "placeholder"
    assert np.array_equal(table, X * 6.0)


def test_an_operator_that_does_many_things() -> None:
    """Without a functional form, a graph writes to copies, with draws in order."""
    rng = np.random.default_rng(3)

    def g(x: Any, a: Any, b: Any) -> Any:
        y = x * 1.0
        total, number, parts = mix(y, [a[0], b], rng)
        again, _, _ = mix(y, [b, a[1]], rng)
        return y, total * number, parts, again, a, b

    args = (X, X + 1.0, X[0] + 2.0)
    module = co.make_fx(g)(*args)
    found = co.functionalize(module)
    runs = []
    for run in (g, module, found):
        rng.bit_generator.state = np.random.default_rng(7).bit_generator.state
        given = [np.copy(v) for v in args]
        runs.append(
            [np.asarray(v).tobytes() for v in co.tree.leaves((run(*given), given))]
        )
    assert runs[0] == runs[1] == runs[2]
    assert "functional::mix" not in targets(found)


def test_the_same_array_twice() -> None:
    """An operator that reads what it writes, also by a view, still does."""

    def kernel(x: np.ndarray, y: np.ndarray) -> None:
        for i in range(len(x)):
            x[i] += y[i]

    add_to = co.custom_op("functional::add_to", kernel, mutates_args=("x",))
    add_to.register_fake(lambda x, y: None)

    def f(x: Any) -> Any:
        y = np.reshape(x * 1.0, (6,))
        add_to(y, y)
        add_to(y[1:], y[:-1])  # each element is read after the one before is written
        return y

    checked(f, X)


def test_passes_work_on_what_is_functional() -> None:
    """Calls on equal values are one again, and gradients go through."""

    def f(x: Any) -> Any:
        a, b = np.sin(x), np.sin(x)
        grow_(a)
        grow_(b)
        return np.sum(a * b)

    grow.register_autograd(co.native)
    module = co.make_fx(f)(X)
    smaller = co.eliminate_common_subexpressions(co.functionalize(module))
    assert targets(smaller) == [
        "np::sin",
        "functional::grow",
        "np::multiply",
        "np::sum",
    ]
    np.testing.assert_allclose(
        co.grad(smaller)(X), co.grad(lambda x: np.sum((2.0 * np.sin(x)) ** 2))(X)
    )
