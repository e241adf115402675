"""What a replay keeps alive, counted beside the same program without a graph."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co

# An array is so large that all else of a call is less than a hundredth of it.
X = np.random.default_rng(0).normal(size=40_000)
SQUARE = X.reshape(200, 200)


def peak(run: Callable[[], Any], array: Any = X) -> float:
    """The most memory that was allocated at one time, in arrays of this size."""
    run()  # compiles, and proves kernels
    run()
    gc.disable()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        out = run()
        found = tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()
        gc.enable()
    del out
    return found / array.nbytes


def chain(x: Any) -> Any:
    for _ in range(6):
        x = np.sin(x) * 2.0 + 1.0
    return x


def branching(x: Any) -> Any:
    a, b = np.sin(x), np.cos(x)
    c = a * b
    return np.sum(np.exp(-np.abs(c)) + a)


def layers(x: Any) -> Any:
    for _ in range(4):
        x = np.tanh(x.T + x)
    return np.sum(x)


def views(x: Any) -> Any:
    return np.concatenate([x[::2].reshape(-1, 2).sum(1), x.reshape(-1, 4).max(1)])


def looped(x: Any) -> Any:
    return co.scan(lambda c, row: (np.sin(c) + row, None), x[0] * 0, x)[0]


def either(x: Any) -> Any:
    return co.cond(np.sum(x) < 1e9, chain, np.sin, x)


def written(x: Any) -> Any:
    y = x.copy()
    for _ in range(5):
        y *= 1.5
        y += x
    return y


PROGRAMS: dict[str, tuple[Any, Any]] = {
    "chain": (chain, X),
    "branching": (branching, X),
    "layers": (layers, SQUARE),
    "views": (views, X),
    "scan": (looped, SQUARE),
    "cond": (either, X),
    "grad of chain": (co.grad(lambda x: np.sum(chain(x))), X),
    "grad of branching": (co.grad(branching), X),
    "grad of layers": (co.grad(layers), SQUARE),
    "vmap": (co.vmap(chain), SQUARE),
    "jvp": (lambda x: co.jvp(branching, (x,), (x,)), X),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_replay_takes_no_more_than_the_program(name: str) -> None:
    """At no time does it keep more than the program that was captured."""
    fn, x = PROGRAMS[name]
    graph: Any = co.make_fx(fn, "fake")(x)
    assert peak(lambda: graph(x)) <= peak(lambda: fn(x)) + 0.05


def test_writes_in_place() -> None:
    """A graph has new arrays in the place of writes; `reuse_buffers` takes them back."""
    graph: Any = co.make_fx(written, "fake")(X)
    reusing: Any = co.reuse_buffers(graph)
    found = [peak(lambda f=f: f(X)) for f in (written, reusing, graph)]
    assert [round(n, 1) for n in found] == [1.0, 1.0, 2.0]


def test_arguments_that_are_consumed() -> None:
    """They are freed after their last use; those of a call when it returns."""
    graph: Any = co.make_fx(chain, "fake")(X)
    assert round(peak(lambda: graph(X.copy())), 1) == 3.0
    assert round(peak(lambda: graph.consume([X.copy()])), 1) == 2.0
    np.testing.assert_array_equal(graph.consume([X]), chain(X))


def test_an_argument_dies_in_the_middle_of_a_call() -> None:
    """Also one inside of a pytree, whatever kind of arrays the graph gets."""
    alive: list[bool] = []
    given: list[weakref.ref[Any]] = []

    class Own(np.ndarray):
        pass

    @co.custom_op("memory_tests::look", mutates_args=())
    def look(x: np.ndarray) -> np.ndarray:
        alive.append(given[-1]() is not None)
        return x + 1.0

    look.register_fake(lambda x: co.fake_like(x))

    def fn(tree: Any) -> Any:
        return look(look(tree["a"] * 2.0) * 2.0) + 1.0

    graph: Any = co.make_fx(fn, "fake")({"a": np.ones(3)})
    for cls in (np.ndarray, Own):
        array = np.ones(3).view(cls)
        given.append(weakref.ref(array))
        args = [{"a": array}]
        del array
        alive.clear()
        np.testing.assert_array_equal(graph.consume(args), 8 * np.ones(3))
        assert args == []
        assert alive == [False, False]


def test_consume_takes_a_list() -> None:
    """Nothing else can be emptied."""
    graph: Any = co.make_fx(chain)(np.ones(3))
    with pytest.raises(co.ArgumentError) as caught:
        graph.consume((np.ones(3),))
    assert str(caught.value).splitlines() == [
        "chain.consume: args is tuple (array([1., 1., 1.]),), must be a list",
        "  do: write graph.consume([x, y])",
    ]
    args = [np.ones(4)]
    with pytest.raises(co.GuardError, match="another shape"):
        graph.consume(args)
    with pytest.raises(co.GuardError, match="it was traced as"):
        graph.consume([1, 2])
