"""Calls of operators on objects that hold arrays and are not arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.arrays import kinds
from customop.errors import RegistrationError

X = np.array([0.5, 1.0, -2.0])


class Meters:
    """Numbers with a unit."""

    def __init__(self, values: Any) -> None:
        self.values = values


class Kilometers(Meters):
    """A subclass."""


def in_meters(op: Any, values: Sequence[Any]) -> Any:
    """Call the operator on the numbers."""
    return Meters(op.run(*map(inside, values)))


def inside(value: Any) -> Any:
    """What objects hold, also in lists."""
    if isinstance(value, list):
        return [*map(inside, value)]
    return value.values if isinstance(value, Meters) else value


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """The class, for each test alone."""
    monkeypatch.setattr(kinds, "_handlers", {})
    co.register_array_wrapper(Meters, in_meters)


@co.custom_op(
    "wrapper_tests::product",
    mutates_args=(),
    schema="(Array x, Array y) -> Array",
    tags=(co.Tag.pointwise,),
)
def product(x: Any, y: Any) -> Any:
    return x * y


product.register_autograd(
    lambda ctx, g: (g * ctx.saved_arrays[1], g * ctx.saved_arrays[0]),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


@co.custom_op(
    "wrapper_tests::total", mutates_args=(), schema="(Array[n][] xs) -> Array[n]"
)
def total(xs):
    return np.sum(np.stack(xs), axis=0)


total.register_autograd(lambda ctx, g: ([g] * 2,))


def test_the_handler_gets_the_call() -> None:
    for cls in (Meters, Kilometers):
        found = product(cls(X), X)
        assert type(found) is Meters
        np.testing.assert_array_equal(found.values, X * X)
    np.testing.assert_array_equal(total([Meters(X), X]).values, 2 * X)


@pytest.mark.filterwarnings("ignore:wrapper_tests..total has no vmap rule")
def test_what_an_object_holds_keeps_its_gradient() -> None:
    def loss(x: Any) -> Any:
        first, second = product(Meters(x), X), product(x, Meters(2.0 * x))
        listed = total([Meters(x * x), x])
        return np.sum(first.values + second.values + listed.values)

    expected = X + 4 * X + 2 * X + 1
    np.testing.assert_allclose(co.grad(loss)(X), expected)
    tangents = co.jvp(loss, (X,), (np.ones(3),))
    np.testing.assert_allclose(tangents[1], np.sum(expected))
    rows = np.stack([X, 2 * X])
    np.testing.assert_allclose(
        co.vmap(loss)(rows), [loss(row) for row in rows], rtol=1e-12
    )
    second = co.grad(lambda x: np.sum(co.grad(loss)(x) ** 2))(X)
    np.testing.assert_allclose(second, 12 * expected)


def test_a_graph_holds_the_inner_call() -> None:
    graph = co.make_fx(lambda x: product(Meters(x), x).values)(X)
    np.testing.assert_array_equal(graph(2 * X), 4 * X * X)


def test_bodies_of_operators_see_what_is_inside() -> None:
    co.define("wrapper_tests::body", "(Array x, Array y) -> Array")
    co.impl("wrapper_tests::body", "CompositeImplicitAutograd", lambda x, y: x * y + x)

    def loss(x: Any) -> Any:
        return np.sum(co.ops.wrapper_tests.body(Meters(x), x).values)

    np.testing.assert_allclose(co.grad(loss)(X), 2 * X + 1)


def test_a_rule_of_the_operator_comes_first() -> None:
    @co.custom_op("wrapper_tests::own", mutates_args=(), schema="(Array x) -> Array")
    def own(x: Any) -> Any:
        return x + 1

    own.register_array_dispatch(Meters, lambda op, args, kwargs: "own")
    assert own(Meters(X)) == "own"


def test_explain_names_the_handler() -> None:
    text = str(product.explain(Meters(X), X))
    assert "takes the handler of objects that hold arrays" in text
    assert "an object of the class Meters is among the arguments" in text


def test_without_a_handler_the_object_is_refused() -> None:
    kinds._handlers.clear()  # nothing else forgets a class
    with pytest.raises(
        co.ArgumentError, match="argument 'x' expects Array, got Meters"
    ):
        product(Meters(X), X)


def test_mistakes_are_refused() -> None:
    for given, text in (
        (("Meters", in_meters), "'Meters' is neither a class nor a path"),
        ((3, in_meters), "3 is neither a class nor a path"),
        ((Meters, 3), "3 is not a function"),
    ):
        with pytest.raises(RegistrationError) as caught:
            co.register_array_wrapper(*given)  # type: ignore[arg-type]  # on purpose
        assert text in str(caught.value)
