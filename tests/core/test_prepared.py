"""Kernels that take their constants beforehand, and batching rules that move axes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

import customop as co

_numbers = itertools.count()
X = np.arange(24.0).reshape(4, 3, 2)


class Counted:
    """A running sum along an axis that counts the calls of its two forms."""

    def __init__(self, *, by_rule: bool = True) -> None:
        self.plain: list[int] = []
        self.prepared: list[int] = []
        self.ran: list[int] = []

        def kernel(x: np.ndarray, axis: int, factors: list[int]) -> np.ndarray:
            self.plain.append(axis)
            return np.cumsum(x, axis) * sum(factors)

        def prepare(axis: int, factors: list[int]) -> Callable[..., Any]:
            self.prepared.append(axis)

            def run(x: np.ndarray) -> np.ndarray:
                self.ran.append(axis)
                return np.cumsum(x, axis) * sum(factors)

            return run

        self.op = co.custom_op(
            f"prepared::op{next(_numbers)}",
            co.prepared(kernel, prepare),
            mutates_args=(),
        )
        self.op.register_fake(lambda x, axis, factors: co.fake_like(x))
        if by_rule:
            self.op.register_vmap(co.axis_rule(self.op, self.move))

    def move(self, shape: Any, dim: int, axis: int, factors: Any) -> Any:
        axis %= len(shape) - 1
        return [axis + (axis >= dim), factors], dim


def expected(x: np.ndarray, axis: int, factors: Sequence[int]) -> np.ndarray:
    return np.cumsum(x, axis) * sum(factors)


@pytest.fixture
def _settings() -> Iterator[None]:
    yield
    co.config.sample_checks = 0
    co.config.checks = "first"


# ---- batching ----


@pytest.mark.parametrize("dim", [0, 1, 2, -1])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_an_axis_rule_gives_the_rows(dim: int, axis: int) -> None:
    """Of each axis, the first time and again."""
    counted = Counted()
    rows = [expected(row, axis, [2, 3]) for row in np.moveaxis(X, dim, 0)]
    batched = co.vmap(lambda row: counted.op(row, axis, [2, 3]), in_dims=dim)
    for _ in range(4):
        np.testing.assert_array_equal(batched(X), np.stack(rows))
    assert counted.prepared == [axis % 2 + (axis % 2 >= dim % 3)]
    assert len(counted.ran) >= 2


def test_constants_and_shapes_have_forms_of_their_own() -> None:
    """Lists that the caller changes afterwards do not reach what is kept."""
    counted = Counted()
    factors = [1, 2]

    def call(x: Any, axis: int) -> Any:
        return co.vmap(lambda row: counted.op(row, axis, factors))(x)

    for _ in range(3):
        for x in (X, X[:2], np.ones((3, 2, 5))):
            for axis in (0, 1):
                np.testing.assert_array_equal(
                    call(x, axis), [expected(row, axis, factors) for row in x]
                )
    factors.append(10)
    np.testing.assert_array_equal(call(X, 0), [expected(r, 0, factors) for r in X])


def test_rows_that_must_come_first() -> None:
    """A rule that returns None for another axis is asked again."""
    op = co.custom_op(
        "prepared::flat",
        lambda x, shape: x.reshape(shape).copy(),
        mutates_args=(),
        schema="(Array x, int[] shape) -> Array",
    )
    op.register_vmap(
        co.axis_rule(
            op, lambda batch, dim, shape: None if dim else ([[batch[0], *shape]], 0)
        )
    )
    for dim in (0, 1, 2):
        rows = [row.reshape(-1) for row in np.moveaxis(X, dim, 0)]
        run = co.vmap(lambda x: op(x, [x.size]), in_dims=dim)
        for _ in range(3):
            np.testing.assert_array_equal(run(X), rows)


def test_nested_and_traced_batches() -> None:
    """The rule runs the operator, so what is outside sees the call."""
    counted = Counted()
    counted.op.register_autograd(
        lambda ctx, g: (np.flip(np.cumsum(np.flip(g, 0), 0), 0) * 3.0, None, None)
    )

    def loss(x: Any) -> Any:
        return np.sum(co.vmap(lambda row: counted.op(row, 0, [3]), in_dims=1)(x) * x.T)

    twice = co.vmap(co.vmap(lambda row: counted.op(row, 0, [3])))
    for _ in range(2):
        np.testing.assert_array_equal(twice(X), 3.0 * np.cumsum(X, 2))
        found = co.grad(loss)(X[0])
        step = 1e-6
        for at in np.ndindex(3, 2):
            moved = np.zeros((3, 2))
            moved[at] = step
            slope = (loss(X[0] + moved) - loss(X[0] - moved)) / (2 * step)
            assert abs(found[at] - slope) < 1e-6
    assert co.eval_shape(twice, X).shape == X.shape


def test_a_wrong_axis_is_an_error_each_time() -> None:
    """Nothing is kept of a call that has failed."""
    op = co.custom_op(
        "prepared::wrong",
        lambda x, axis: np.cumsum(x, axis),
        mutates_args=(),
        schema="(Array x, int axis) -> Array",
    )
    op.register_vmap(
        co.axis_rule(op, lambda shape, dim, axis: ([axis + 1], dim + axis))
    )
    np.testing.assert_array_equal(
        co.vmap(lambda x: op(x, 0))(np.ones((2, 3))), np.cumsum(np.ones((2, 3)), 1)
    )
    for _ in range(3):
        with pytest.raises(co.ContractError, match="the batch has 2 rows"):
            co.vmap(lambda x: op(x, 1))(np.ones((2, 3, 4)))


# ---- which kernel ----


@pytest.mark.usefixtures("_settings")
def test_checks_and_modes_see_the_kernel() -> None:
    """The second form runs only where a plain call would take the kernel at once."""
    counted = Counted()
    batched = co.vmap(lambda row: counted.op(row, 0, [1]))
    for _ in range(3):  # the kernel is proven, the call is met, and then it is known
        batched(X)
    ran = len(counted.ran)
    assert ran > 0

    with co.profile() as report:
        batched(X)
    assert counted.op.name in str(report.table())
    for name, value in (("sample_checks", 1.0), ("checks", "always")):
        setattr(co.config, name, value)
        batched(X)
        batched(X)
        setattr(co.config, name, 0 if name == "sample_checks" else "first")
    assert len(counted.ran) == ran


def test_a_kernel_that_is_registered_later() -> None:
    """The second form belongs to the kernel."""
    counted = Counted()
    batched = co.vmap(lambda row: counted.op(row, 0, [1]))
    graph = co.make_fx(lambda x: counted.op(x, 0, [1]))(X)
    for _ in range(3):
        np.testing.assert_array_equal(batched(X), np.cumsum(X, 1))
        np.testing.assert_array_equal(graph(X), np.cumsum(X, 0))
    counted.op.register_kernel("cpu", lambda x, axis, factors: x * 7.0)
    for _ in range(3):
        np.testing.assert_array_equal(batched(X), X * 7.0)
        np.testing.assert_array_equal(graph(X), X * 7.0)


def test_graphs_prepare_kernels_once() -> None:
    """One form for equal constants, after the first calls have proven the kernel."""
    counted = Counted()
    factors = [2, 1]
    graph = co.make_fx(lambda x: counted.op(counted.op(x, 0, factors), 0, [2, 1]))(X)
    factors.append(5)
    counted.prepared.clear()
    for _ in range(4):
        np.testing.assert_array_equal(graph(X), expected(expected(X, 0, [3]), 0, [3]))
    assert counted.prepared == [0]
    assert counted.ran
    name = counted.op.name
    assert f"prepared_{name}(x)  # 0, [2, 1]" in graph.code

    found = co.vmap(graph)(X[None])
    np.testing.assert_array_equal(found[0], graph(X))
    assert co.eval_shape(graph, X).shape == X.shape


# ---- errors ----


def test_what_is_refused() -> None:
    """At registration."""
    with pytest.raises(co.RegistrationError) as caught:
        co.prepared(np.sin, lambda: np.sin)
    assert str(caught.value) == (
        "prepared takes a function for the kernel, and one that makes functions\n"
        "  do: write prepared(kernel, lambda axis: lambda x: ...)"
    )

    two = co.custom_op(
        "prepared::two",
        lambda x, y: x + y,
        mutates_args=(),
        schema="(Array x, Array y) -> Array",
    )
    with pytest.raises(co.RegistrationError) as caught:
        co.axis_rule(two, lambda shape, dim, y: ((), dim))
    assert str(caught.value) == (
        "prepared::two: axis_rule is for operators whose only array comes first\n"
        "  prepared::two(Array x, Array y) -> Array\n"
        "  do: write a rule of info, in_dims and the inputs for register_vmap"
    )

    with pytest.raises(co.RegistrationError) as caught:
        co.axis_rule(Counted().op, lambda shape, dim, axes: ((), dim))
    message = str(caught.value)
    assert "the function of axis_rule takes (shape, dim, axes) by position" in message
    assert "do: write def move(shape, dim, axis, factors): ..." in message
