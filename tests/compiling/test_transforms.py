"""Compiled functions under transforms and modes, and programs of many kinds."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import optree
import pytest

import customop as co


def _cube(x: Any) -> Any:
    return np.sum(x**3)


def _twice(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The result of the second call."""
    fn(*args, **kwargs)
    return fn(*args, **kwargs)


# ---- transforms, inside and outside ----


def test_derivatives_inside_and_outside() -> None:
    x = np.array([1.0, -2.0, 3.0])
    c = co.compile
    for fn in (c(co.grad(_cube)), co.grad(c(_cube)), c(co.grad(c(_cube)))):
        assert np.array_equal(_twice(fn, x), 3 * x**2)
    for fn in (
        c(co.hessian(_cube)),
        co.hessian(c(_cube)),
        co.jacfwd(c(co.grad(_cube))),
    ):
        assert np.array_equal(_twice(fn, x), np.diag(6 * x))
    rows = np.stack([x, 2 * x])
    for fn in (c(co.vmap(_cube)), co.vmap(c(_cube)), co.vmap(c(co.grad(_cube)))):
        expected = 3 * rows**2 if fn(rows).ndim == 2 else (rows**3).sum(1)
        assert np.array_equal(_twice(fn, rows), expected)
    value, slope = co.jvp(c(_cube), (x,), (np.ones(3),))
    assert (value, slope) == (20.0, 42.0)
    value, slope = _twice(c(lambda x, t: co.jvp(_cube, (x,), (t,))), x, np.ones(3))
    assert (value, slope) == (20.0, 42.0)


def test_a_compiled_function_in_another_one_compiles_once() -> None:
    """`hasattr` may ask for any attribute, so all that an object holds is watched."""
    inner = co.compile(lambda x: np.sum(x * 2.0) if hasattr(x, "sum") else x)
    outer = co.compile(inner)
    x = np.arange(3.0)
    for _ in range(3):
        assert outer(x) == inner(x) == 6.0
        assert np.array_equal(co.grad(outer)(x), np.full(3, 2.0))
        assert np.array_equal(co.grad(inner)(x), np.full(3, 2.0))
    assert (len(outer.graphs), len(outer.explain().transforms)) == (1, 1)


def test_values_of_outer_transforms_next_to_plain_arrays() -> None:
    f = co.compile(lambda x, y: np.sum(x * y))
    x = np.arange(3.0)
    f(x, x)
    assert np.array_equal(
        co.grad(lambda x: f(x, np.ones(3)) + f(np.ones(3), x))(x), [2, 2, 2]
    )
    assert len(f.graphs) == 1


def test_fake_arrays_captures_and_variables() -> None:
    f = co.compile(lambda x: np.sin(x) + 1.0)
    fake = f(co.FakeArray((2, 3), "f4"))
    assert (fake.shape, fake.dtype) == ((2, 3), np.float32)
    graph = co.make_fx(lambda x: f(x) * 2.0)(np.zeros(2))
    names = [node.target.name for node in graph.graph.nodes if node.op == "call"]
    assert names == ["sin", "add", "multiply"]
    x = co.variable(np.zeros(2))
    co.backward(np.sum(f(x)))
    assert np.array_equal(x.grad, [1.0, 1.0])
    assert f.graphs == []


def test_autocast_is_as_in_the_function() -> None:
    a = np.ones((2, 2), "f4")
    f = co.compile(lambda a: scale_half(a))
    with co.autocast("cpu"):
        assert f(a).dtype == scale_half(a).dtype == np.float16
    assert f(a).dtype == np.float32


@co.custom_op("compiling::scale_half", mutates_args=())
def scale_half(a: co.Array) -> co.Array:
    return a * a.dtype.type(0.5)


scale_half.register_fake(lambda a: co.fake_like(a))
scale_half.register_autocast("cpu", np.float16)


def test_profiles_and_observers_see_the_operators() -> None:
    seen = []

    class Names(co.Observer):
        def enter(self, op: Any, by: Any, fn: Any, args: Any) -> Any:
            seen.append(op.qualname)

    f = co.compile(lambda a: scale_half(a) + 1.0)
    x = np.ones(2)
    f(x)
    with Names():
        f(x)
    assert seen == ["compiling::scale_half"]


# ---- custom operators ----


@co.custom_op("compiling::fill", mutates_args={"out"})
def fill(out: co.Array, value: float) -> None:
    out[:] = value


fill.register_fake(lambda out, value: None)


@co.custom_op("compiling::both", mutates_args=())
def both(x: co.Array) -> tuple[co.Array, co.Array]:
    if x.sum() > 100:
        raise KeyError("too large")
    return x + 1, x - 1


both.register_fake(lambda x: (co.fake_like(x), co.fake_like(x)))


def test_custom_operators_that_write_return_several_and_raise() -> None:
    def f(x: Any, buffer: Any) -> Any:
        up, down = both(x)
        fill(buffer, 2.0)
        return up * down + buffer

    fast = co.compile(f)
    x = np.arange(3.0)
    for _ in range(2):
        buffers = np.zeros(3), np.zeros(3)
        assert np.array_equal(fast(x, buffers[0]), f(x, buffers[1]))
        assert np.array_equal(*buffers)
    for fn in (f, fast):
        with pytest.raises(KeyError, match="too large"):
            fn(x + 100, np.zeros(3))


def test_a_new_kernel_is_used_from_the_next_call_on() -> None:
    f = co.compile(lambda x: part(x) + 1.0)
    assert _twice(f, np.ones(1)) == 1.5
    part.register_kernel("cpu", lambda x: x / 4)
    assert f(np.ones(1)) == 1.25


@co.custom_op("compiling::part", mutates_args=(), device_types="cpu")
def part(x: co.Array) -> co.Array:
    return x / 2


part.register_fake(lambda x: co.fake_like(x))


# ---- programs ----


def test_control_flow_operators() -> None:
    def f(x: Any, n: Any) -> Any:
        total, rows = co.scan(lambda c, r: (c + r, c * r), np.zeros_like(x[0]), x)
        top = co.cond(np.sum(x) > 0, lambda a: a * 2, lambda a: a - 1, total)
        return co.while_loop(lambda c: np.sum(c) < n, lambda c: c + 10, top), rows

    fast = co.compile(f)
    for sign in (1.0, -1.0):
        x = sign * np.arange(6.0).reshape(3, 2)
        for a, b in zip(
            _twice(fast, x, np.array(50.0)), f(x, np.array(50.0)), strict=True
        ):
            assert np.array_equal(a, b)
    assert len(fast.graphs) == 1


def test_gradients_of_loops_whose_number_of_steps_is_data() -> None:
    """Without steps the shapes of a step are found out, for which kernels cannot run."""

    def turned(x: Any) -> Any:
        count = np.floor(np.abs(np.sum(x))).astype(int)
        return np.sum(co.fori_loop(0, count, lambda i, y: 2 * y[::-1] + i, x * x))

    fast = co.compile(co.grad(turned))
    # sum(x * x) times 2 ** count, and what does not depend on x
    for x in (np.array([0.1, 0.2]), np.array([1.0, 2.0]), np.array([-0.5, 0.25, 0.25])):
        assert np.array_equal(fast(x), 2 * x * 2.0 ** int(abs(x.sum())))


@dataclass
class State:
    """A pytree."""

    x: Any
    v: Any


co.register_dataclass(State)


class Pair:
    """A pytree by functions of its own."""

    def __init__(self, a: Any, b: Any) -> None:
        self.a, self.b = a, b


optree.register_pytree_node(
    Pair, lambda p: ((p.a, p.b), None), lambda _, c: Pair(*c), namespace="customop"
)


def test_dataclasses_and_registered_classes_are_trees() -> None:
    @co.compile
    def step(state: State, pair: Pair, dt: float = 0.5) -> tuple[State, Pair]:
        v = state.v - dt * state.x * pair.a
        return State(state.x + dt * v, v), Pair(v, {"n": None, "b": pair.b})

    state, pair = State(np.ones(2), np.zeros(2)), Pair(np.ones(2), np.ones(()))
    for _ in range(3):
        state, found = step(state, pair)
        assert isinstance(found, Pair)
        assert found.b == {"n": None, "b": pair.b}
    x, v = np.ones(2), np.zeros(2)
    for _ in range(3):
        v = v - 0.5 * x
        x = x + 0.5 * v
    assert np.array_equal(state.x, x)
    assert len(step.graphs) == 1


def test_decorators_partials_and_callables() -> None:
    def doubled(fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def inner(*args: Any, **kwargs: Any) -> Any:
            return 2.0 * fn(*args, **kwargs)

        return inner

    @co.compile
    @doubled
    def f(x: Any, *, power: int = 1) -> Any:
        return x**power

    x = np.arange(3.0)
    assert np.array_equal(_twice(f, x, power=2), 2 * x**2)
    assert np.array_equal(_twice(f, x), 2 * x)
    assert f.__name__ == "f"
    part = co.compile(functools.partial(np.add, 1.0))
    assert np.array_equal(_twice(part, x), x + 1)
    assert np.array_equal(_twice(co.compile(np.cumsum), x), [0, 1, 3])
    assert np.array_equal(_twice(doubled(f), x), 4 * x)


def test_long_in_place_code() -> None:
    def f(x: Any, steps: int) -> Any:
        u = np.zeros_like(x)
        for k in range(steps):
            u[1:-1] += 0.1 * (x[2:] - 2 * x[1:-1] + x[:-2])
            x += u
            x[k % len(x)] = u.max()
            u[u > 1] = 0.5
        return u

    fast = co.compile(f)
    for n in (6, 7, 8):
        a = np.linspace(0, 1, n) ** 2
        b = a.copy()
        assert np.array_equal(fast(a, 4), f(b, 4))
        assert np.array_equal(a, b)


def test_results_that_are_not_arrays() -> None:
    f = co.compile(lambda x: {"n": x.shape[0], "s": "text", "x": x + 1, "none": None})
    for n in (2, 3, 4, 2):
        found = f(np.zeros(n))
        assert found["n"] == n
        assert type(found["n"]) is int
        assert found["s"] == "text"
        assert found["none"] is None
    assert len(f.graphs) == 2


def test_named_sizes_are_symbolic_from_the_first_call_on() -> None:
    f = co.compile(lambda x: x.sum(0) / x.shape[0], sizes={"x": ("batch", None)})
    for n in (2, 5, 7):
        assert np.array_equal(f(np.ones((n, 3))), np.ones(3))
    assert len(f.graphs) == 1
    assert len(f.graphs[0].graph.sizes.sizes) == 1
