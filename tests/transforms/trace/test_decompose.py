"""Which operators stay nodes, and which are opened."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import customop as co

X = np.array([[0.5, -1.0, 2.0], [3.0, 0.25, -0.5]])


def targets(module: co.GraphModule) -> list[str]:
    """Names of the operators that are called."""
    return [n.target.qualname for n in module.graph.nodes if n.op == "call"]


def same(first: Any, second: Any) -> bool:
    """Whether two trees of arrays have the same bits."""
    pairs = zip(co.tree.leaves(first), co.tree.leaves(second), strict=True)
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in pairs)


def soft(x: np.ndarray, axis: int = -1) -> np.ndarray:
    """An operator whose gradient goes through its body."""
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / np.sum(e, axis=axis, keepdims=True)


SOFT = co.custom_op("opened::soft", soft, mutates_args=())
SOFT.register_fake(lambda x, axis=-1: co.fake_like(x))
SOFT.register_autograd(co.native)

LIB = co.Library("opened", "FRAGMENT")
LIB.define("twice(Array x) -> (Array, Array)")
LIB.impl("twice", lambda x: (SOFT(x), np.tanh(x)), "CompositeImplicitAutograd")
TWICE = co.ops.opened.twice.default
LIB.define("outer(Array x) -> Array")
LIB.impl("outer", lambda x: TWICE(x)[1] * 2.0, "CompositeImplicitAutograd")
OUTER = co.ops.opened.outer.default

SOFT_PARTS = ["np::max", "np::subtract", "np::exp", "np::sum", "np::divide"]


def program(x: Any) -> Any:
    """Uses an operator in an operator in an operator."""
    return OUTER(x) + TWICE(x)[0]


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_keep_and_decompose_when_tracing(mode: Any) -> None:
    """Bodies are opened by default, but for operators with rules of their own."""
    expected = program(X)

    def made(**options: Any) -> list[str]:
        module = co.make_fx(program, mode, **options)(X)
        assert same(module(X), expected)
        return targets(module)

    twice = ["opened::soft", "np::tanh"]
    assert made() == [*twice, "np::multiply", *twice, "np::add"]
    assert made(keep=[OUTER]) == ["opened::outer", *twice, "np::add"]
    kept = ["opened::twice", "np::multiply", "opened::twice", "np::add"]
    assert made(keep=["opened::twice"]) == kept
    assert made(keep=co.ops.opened.twice) == kept
    assert made(keep=lambda op: op.namespace == "opened")[0] == "opened::outer"
    parts = made(decompose=[SOFT], keep=[OUTER])
    assert parts == ["opened::outer", *SOFT_PARTS, "np::tanh", "np::add"]


def test_decompose_opens_what_was_kept() -> None:
    """Levels are opened one after the other."""
    module = co.make_fx(program, keep=[OUTER, TWICE])(X)
    assert targets(module) == ["opened::outer", "opened::twice", "np::add"]
    first = co.decompose(module, [OUTER])
    assert "opened::soft" in targets(first)
    assert "opened::outer" in targets(module)
    last = co.decompose(first, ["opened::twice", SOFT])
    assert set(targets(last)) == {*SOFT_PARTS, "np::tanh", "np::multiply", "np::add"}
    for changed in (first, last):
        assert same(changed(X), program(X))
        assert all(n.meta["place"] for n in changed.graph.nodes if n.op == "call")


def test_decompose_by_a_table() -> None:
    """A function in the table may call its own operator, and others of the table."""

    def exp(x: Any) -> Any:
        return np.exp(x - 1.0) * np.exp(1.0)

    def largest(x: Any, axis: Any, keepdims: bool) -> Any:
        return -np.min(-x, axis=tuple(axis), keepdims=keepdims)

    module = co.make_fx(SOFT)(X)
    opened = co.decompose(module, {SOFT: soft, "np::exp": exp, "np::max": largest})
    expected = ["np::negative", "np::min", "np::negative", "np::subtract"]
    expected += ["np::subtract", "np::exp", "np::multiply"]
    assert targets(opened) == [*expected, "np::sum", "np::divide"]
    np.testing.assert_allclose(opened(X), module(X), rtol=1e-14)
    found = co.grad(lambda x: np.sum(opened(x) ** 2))(X)
    np.testing.assert_allclose(found, co.grad(lambda x: np.sum(soft(x) ** 2))(X))


def test_the_gradient_of_an_opened_operator() -> None:
    """An operator with `native` is one node, and has the gradient of its opened form."""
    module = co.make_fx(lambda x: np.sum(SOFT(x) * X))(X)
    assert targets(module) == ["opened::soft", "np::multiply", "np::sum"]
    opened = co.decompose(module, [SOFT])
    assert same(co.grad(opened)(X), co.grad(module)(X))
    assert same(co.vmap(co.grad(opened))(X[None]), co.grad(module)(X)[None])


def test_an_in_place_operator_is_opened() -> None:
    """What its body does to an argument is a write at the end."""

    def kernel(x: np.ndarray, k: float) -> None:
        x *= k
        x[0] += 1.0

    op = co.custom_op("opened::change", kernel, mutates_args=("x",))
    op.register_fake(lambda x, k: None)

    def f(x: Any) -> Any:
        y = np.sin(x)
        op(y, 2.0)
        return y + x

    opened = co.decompose(co.make_fx(f)(X), [op])
    assert "opened::change" not in targets(opened)
    assert same(opened(X), f(X))


def test_mistakes() -> None:
    """A function that gives something else, and things that are not operators."""
    module = co.make_fx(SOFT)(X)
    with pytest.raises(co.GraphError) as error:
        co.decompose(module, {SOFT: lambda x, axis=-1: np.sum(x)})
    assert str(error.value).startswith(
        "decompose: the function for opened::soft gives f64[], the operator gives"
        " f64[2, 3]\n"
    )
    with pytest.raises(
        co.ArgumentError, match="decompose: 3 is not a list of operators"
    ):
        co.decompose(module, 3)  # type: ignore[arg-type]
    with pytest.raises(co.ArgumentError, match="make_fx: keep: 3 is not an operator"):
        co.make_fx(program, keep=[3])  # type: ignore[list-item]
    with pytest.raises(
        co.MissingRuleError, match="no operator is named 'opened::sofd'"
    ):
        co.decompose(module, ["opened::sofd"])
    with pytest.raises(co.ArgumentError, match="decompose"):
        co.decompose(module, {SOFT: 3})  # type: ignore[dict-item]
