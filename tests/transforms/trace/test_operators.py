"""Operators of all forms in a graph: lists, several results, writes, config objects."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import optree
import pytest

import customop as co


class Pair(NamedTuple):
    """Two results with names."""

    total: np.ndarray
    product: np.ndarray


@dataclass(frozen=True)
class Scale:
    """A config object with an array."""

    factor: np.ndarray
    power: int = 2


@co.custom_op("tracing::increase", mutates_args=("x",))
def increase(x: np.ndarray, by: float = 1.0) -> None:
    x += by


@co.custom_op("tracing::deal", mutates_args=())
def deal(x: np.ndarray, count: int = 2) -> list[np.ndarray]:
    return [x[i::count].copy() for i in range(count)]


@co.custom_op("tracing::pair", mutates_args=())
def pair(x: np.ndarray, *, y: np.ndarray, k: int = 3) -> Pair:
    return Pair(x + y, x * k)


@co.custom_op("tracing::join", mutates_args=())
def join(xs: list[np.ndarray], w: np.ndarray | None = None) -> np.ndarray:
    found: np.ndarray = np.concatenate(xs)
    return found if w is None else found * w


@co.custom_op("tracing::scaled", mutates_args=())
def scaled(x: np.ndarray, by: Scale, more: dict[str, np.ndarray]) -> np.ndarray:
    return (x * by.factor) ** by.power + more["k"]


@co.custom_op("tracing::count", mutates_args=())
def count(x: np.ndarray) -> int:
    return int(x[0] > 100.0)


@co.custom_op("tracing::steps", mutates_args=())
def steps(n: int, dtype: np.dtype) -> np.ndarray:
    return np.arange(n).astype(dtype)


deal.register_fake(
    lambda x, count: [
        co.FakeArray(((x.shape[0] - i + count - 1) // count,), x.dtype)
        for i in range(count)
    ]
)
pair.register_fake(lambda x, *, y, k: Pair(co.fake_like(x), co.fake_like(x)))
join.register_fake(
    lambda xs, w: co.FakeArray((sum(x.shape[0] for x in xs),), xs[0].dtype)
)
scaled.register_fake(lambda x, by, more: co.fake_like(x))
count.register_fake(lambda x: 0)
steps.register_fake(lambda n, dtype: co.FakeArray((n,), dtype))

BUFFER, WEIGHTS = np.zeros(4), np.arange(4.0)


def program(x: Any, y: Any) -> Any:
    parts = deal(x)
    both = pair(x, y=y)
    increase(x)
    increase(y, 0.5)
    z = x.copy()
    view = z[1:]
    increase(z)
    increase(BUFFER)
    config = Scale(y, 3)
    return (
        [*parts, join(parts), join(parts, w=WEIGHTS)],
        both,
        pair(x, y=both.total, k=1),
        {"view": view, "scaled": scaled(x, config, {"k": x}), "buffer": BUFFER + x},
        (count(x) * x, steps(3, np.dtype("f4")), steps(2, np.dtype("i8"))),
        (np.float32(3.0), 4, "a", None, WEIGHTS),
    )


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_a_graph_calls_operators_as_the_function_does(mode: Any) -> None:
    """Results, their classes, and writes to arguments and buffers are the same."""
    x, y = np.arange(4.0), np.ones(4)
    BUFFER[...] = 0.0
    graph = co.make_fx(program, mode)(x, y)
    assert (x.tolist(), y.tolist(), BUFFER.sum()) == ([0, 1, 2, 3], [1] * 4, 0.0)

    for run in (graph, copy.deepcopy(graph), graph):
        BUFFER[...] = 0.0
        a, b = [x * 2, y.copy()], [x * 2, y.copy()]
        found, spec = optree.tree_flatten(run(*a))
        written = 0.0 if run is not graph else BUFFER.sum()
        BUFFER[...] = 0.0
        expected, plain_spec = optree.tree_flatten(program(*b))

        assert spec == plain_spec
        assert [type(v) for v in found] == [type(v) for v in expected]
        for u, v in zip([*found, *a], [*expected, *b], strict=True):
            np.testing.assert_array_equal(u, v)
        assert written in (0.0, BUFFER.sum())  # a deep copy has a buffer of its own
        if run is not graph:
            run.constants["constant_1"][...] = 0.0


def test_a_number_that_an_operator_returns_is_checked() -> None:
    """The graph has it as a constant, so another number is an error."""
    graph = co.make_fx(lambda x: count(x) * x)(np.ones(2))

    np.testing.assert_array_equal(graph(np.ones(2)), np.zeros(2))
    with pytest.raises(co.GuardError) as caught:
        graph(np.full(2, 200.0))

    assert str(caught.value).startswith(
        "tracing::count gives a number: int 1\n"
        f"  it was int 0 when the graph was traced, at {__file__}:"
    )


def test_writes_stay_in_order() -> None:
    """A graph has one node for each write, and reads come before or after it."""

    def f(x: Any) -> Any:
        before = x * 2.0
        increase(x)
        after = x * 2.0
        increase(x, 2.0)
        return before, after

    graph = co.make_fx(f)(np.ones(2))
    names = [n.name for n in graph.graph.nodes if n.op == "call"]
    x = np.zeros(2)

    assert names == ["multiply", "increase", "multiply_1", "increase_1"]
    assert [v.tolist() for v in graph(x)] == [[0.0, 0.0], [2.0, 2.0]]
    assert x.tolist() == [3.0, 3.0]


def test_the_place_of_an_error_is_the_users() -> None:
    """An error of a kernel names the node, and the line that was traced."""

    @co.custom_op("tracing::fails", mutates_args=())
    def fails(x: np.ndarray) -> np.ndarray:
        if x[0] > 1.0:
            raise ZeroDivisionError("too large")
        return x * 2.0

    graph = co.make_fx(lambda x: fails(x))(np.ones(1))
    line = test_the_place_of_an_error_is_the_users.__code__.co_firstlineno + 9
    with pytest.raises(ZeroDivisionError) as caught:
        graph(np.full(1, 2.0))

    assert caught.value.__notes__ == [
        f"in the node 'fails', traced at {__file__}:{line}"
    ]


def test_closing_over_a_value_of_the_trace_inside_a_kernel_is_an_error() -> None:
    """A value that reaches an operator other than by its arguments would be lost."""
    held: list[Any] = []

    @co.custom_op("tracing::leaks", mutates_args=())
    def leaks(x: co.Array) -> co.Array:
        return x * held[0]

    def f(x: Any) -> Any:
        held[:] = [x]
        return leaks(x)

    with pytest.raises(co.GraphError, match="that is not among its arguments"):
        co.make_fx(f)(np.ones(2))


def test_values_do_not_outlive_their_trace() -> None:
    """A value that is used after the trace has ended is an error that names it."""
    held: list[Any] = []
    co.make_fx(lambda x: held.append(x * 2.0))(np.ones(2))

    with pytest.raises(co.LeakedTracerError, match="gets a value of make_fx"):
        np.sin(held[0])
