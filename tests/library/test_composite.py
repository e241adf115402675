"""Kernels made of operators, and functions that replace an operator under a gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import customop as co
from tests.library._libraries import X, operator

# ---- CompositeImplicitAutograd: a body that everything sees ----


class Watch(co.Mode):
    """A mode that records the operators it sees."""

    kind = co.RuleKind("watch")

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def process(self, op: Any, args: Any) -> Any:
        self.seen.append(op.qualname)
        return op.invoke(args)


@pytest.fixture
def composite(lib: co.Library) -> co.Operator[..., Any]:
    """Return k sin(x), whose body is made of operators."""
    lib.define("ksin(Array x, *, float k=2.0) -> Array")
    lib.impl("ksin", lambda x, k: np.sin(x) * k)
    return operator(lib, "ksin")


def test_a_composite_body_is_a_kernel(composite: Any) -> None:
    """Without transforms, the body is an ordinary kernel."""
    np.testing.assert_allclose(composite(X, k=3.0), 3 * np.sin(X))


def test_a_composite_body_is_differentiated(composite: Any) -> None:
    """Gradients flow through the body, to any order, backward and forward."""
    total = lambda x: composite(x).sum()
    np.testing.assert_allclose(co.grad(total)(X), 2 * np.cos(X))
    np.testing.assert_allclose(co.hessian(total)(X), np.diag(-2 * np.sin(X)))
    _, tangent = co.jvp(composite, (X,), (np.ones(3),))
    np.testing.assert_allclose(tangent, 2 * np.cos(X))


def test_a_composite_body_is_differentiated_by_a_tape(composite: Any) -> None:
    """A variable's gradient flows through the body."""
    x = co.variable(X)
    composite(x).sum().backward()
    np.testing.assert_allclose(x.grad, 2 * np.cos(X))


@pytest.mark.parametrize("trace", [co.make_fx, lambda fn: lambda x: co.compile(fn)])
def test_a_graph_keeps_the_call_for_a_kernel_of_its_own(
    composite: Any, lib: co.Library, trace: Any
) -> None:
    """It runs that kernel, which the body may repeat only up to rounding."""
    calls = []

    def kernel(x: Any, k: float) -> Any:
        calls.append(1)
        return np.sin(x) * k

    lib.impl("ksin", kernel, "CPU")
    program = trace(lambda x: composite(x, k=3.0) + 1.0)(X)
    calls.clear()
    np.testing.assert_allclose(program(X), 3 * np.sin(X) + 1.0)
    assert calls == [1]
    slope = co.grad(lambda x: composite(x, k=3.0).sum())
    np.testing.assert_allclose(slope(X), 3 * np.cos(X))
    np.testing.assert_allclose(trace(slope)(X)(X), 3 * np.cos(X))
    rows = np.stack([X, 2 * X])
    np.testing.assert_allclose(trace(co.vmap(composite))(rows)(rows), 2 * np.sin(rows))


def test_a_composite_body_is_batched(composite: Any) -> None:
    """Vmap sees the body, without a rule and without a loop."""
    rows = np.arange(6.0).reshape(3, 2)
    out = co.vmap(composite, in_dims=1, out_dims=1)(rows)
    np.testing.assert_allclose(out, 2 * np.sin(rows))


def test_a_composite_body_is_nested(composite: Any) -> None:
    """Transforms nest through the body."""
    slopes = co.vmap(co.grad(lambda x: composite(x, k=3.0)))(X)
    np.testing.assert_allclose(slopes, 3 * np.cos(X))


def test_a_composite_body_has_a_shape(composite: Any) -> None:
    """Fake arrays go through the body."""
    assert co.eval_shape(composite, X).shape == (3,)
    assert composite(co.fake_like(X)).shape == (3,)


def test_a_mode_sees_the_inner_operators(lib: co.Library) -> None:
    """A mode sees the operators of the body, not the composite operator."""
    np_ops = co.ops.np
    lib.define("f(Array x) -> Array")
    lib.impl("f", lambda x: np_ops.multiply(np_ops.sin(x), x))
    with Watch() as watch:
        operator(lib, "f")(X)
    assert watch.seen == ["np::sin", "np::multiply"]


def test_a_composite_body_without_arrays_is_fake_under_a_mode(lib: co.Library) -> None:
    """FakeMode makes the operators of a body fake even if no argument is an array."""
    lib.define("pair(int n) -> Array")
    lib.impl("pair", lambda n: co.ops.np.sin(np.zeros(n)))
    with co.FakeMode():
        out = operator(lib, "pair")(4)
    assert isinstance(out, co.FakeArray)
    assert out.shape == (4,)


def test_an_own_rule_comes_before_the_body(lib: co.Library) -> None:
    """A transform prefers the operator's own rule to the body."""
    lib.define("f(Array x) -> Array")
    lib.impl("f", lambda x: np.sin(x))
    f = operator(lib, "f")
    lib.impl("f", co.Formula(lambda ctx, g: g * 7.0, None), "Autograd")
    np.testing.assert_array_equal(co.grad(lambda x: f(x).sum())(X), [7.0] * 3)
    lib.impl("f", lambda info, in_dims, x: (x * 5.0, in_dims[0]), "FuncTorchBatched")
    np.testing.assert_array_equal(co.vmap(f)(X), X * 5)
    lib.impl("f", lambda x: x * 11.0, "CPU")
    np.testing.assert_array_equal(f(X), X * 11)
    lib.impl("f", lambda x: co.fake_like(x, shape=(9,)), "Meta")
    assert co.eval_shape(f, X).shape == (9,)


def test_a_jvp_takes_the_formula_before_the_body(lib: co.Library) -> None:
    """The backward formula also decides the derivative in forward mode."""
    lib.define("f(Array x) -> Array")
    lib.impl("f", lambda x: np.sin(x))
    lib.impl("f", co.Formula(lambda ctx, g: g * 7.0, None), "Autograd")
    _, tangent = co.jvp(operator(lib, "f"), (X,), (np.ones(3),))
    np.testing.assert_array_equal(tangent, [7.0] * 3)


def test_a_default_kernel_comes_before_the_body(lib: co.Library) -> None:
    """Arrays use the default kernel, transforms use the body."""
    lib.define("f(Array x) -> Array")
    lib.impl("f", lambda x: np.sin(x))
    lib.impl("f", lambda x: np.sin(x) + 100.0, "CompositeExplicitAutograd")
    f = operator(lib, "f")
    np.testing.assert_array_equal(f(X), np.sin(X) + 100)
    np.testing.assert_allclose(co.grad(lambda x: f(x).sum())(X), np.cos(X))


def test_a_body_registered_late_is_seen(lib: co.Library) -> None:
    """Registering a body also changes calls that were generated before."""
    lib.define("f(Array x) -> Array")
    f = operator(lib, "f")
    lib.impl("f", lambda x: np.sin(x), "CPU")
    call = f.compile()
    f(X)
    with co.Library(lib.ns, "IMPL") as body:
        body.impl("f", lambda x: np.cos(x))
        got = co.grad(lambda x: call(x).sum())(X)
        np.testing.assert_allclose(got, -np.sin(X))
    with pytest.raises(co.MissingRuleError, match="no 'autograd' rule"):
        co.grad(lambda x: call(x).sum())(X)


def test_a_body_is_checked_under_a_transform(lib: co.Library) -> None:
    """Under a transform, the result of a body is checked against the schema."""
    lib.define("f(Array x) -> Array")
    lib.impl("f", lambda x: (x, x))
    f = operator(lib, "f")
    with pytest.raises(co.ContractError, match="returns output 0"):
        co.grad(lambda x: f(x).sum())(X)


# ---- Autograd: a function that replaces the operator ----


def test_an_autograd_function_replaces_the_operator(
    lib: co.Library,
) -> None:
    """While gradients are computed, the function gets the tracked values."""
    lib.define("f(Array x, Array[] ys, *, float k=2.0) -> Array")
    lib.impl("f", lambda x, ys, k: x * 0, "CPU")
    lib.impl("f", lambda x, ys, k: np.sin(x) * ys[0] * ys[1] * k, "Autograd")
    f = operator(lib, "f")
    np.testing.assert_array_equal(f(X, [X, X]), X * 0)

    def total(x: Any, y: Any) -> Any:
        return f(x, [y, X], k=3.0).sum()

    dx, dy = co.grad(total, argnums=(0, 1))(X, X)
    np.testing.assert_allclose(dx, 3 * np.cos(X) * X * X)
    np.testing.assert_allclose(dy, 3 * np.sin(X) * X)


def test_an_autograd_function_serves_jvp(lib: co.Library) -> None:
    """Forward mode differentiates the function too."""
    lib.define("f(Array x) -> Array")
    lib.impl("f", lambda x: x * 0, "CPU")
    lib.impl("f", lambda x: np.sin(x), "Autograd")
    out, tangent = co.jvp(operator(lib, "f"), (X,), (np.ones(3),))
    np.testing.assert_allclose(out, np.sin(X))
    np.testing.assert_allclose(tangent, np.cos(X))


def test_below_an_autograd_function_is_the_operator_untracked(
    lib: co.Library,
) -> None:
    """With a keyset, the function can call the operator below, which is not tracked."""
    lib.define("f(Array x) -> Array")
    lib.impl("f", lambda x: x * x, "CPU")
    lib.impl(
        "f", lambda below, x: below.redispatch(x) * x, "Autograd", with_keyset=True
    )
    f = operator(lib, "f")
    np.testing.assert_allclose(co.grad(lambda x: f(x).sum())(X), X * X)


def test_a_gradient_falls_through_untracked(lib: co.Library) -> None:
    """With a fallthrough for Autograd, the operator runs and is not tracked."""
    lib.define("f(Array x) -> Array")
    lib.impl("f", lambda x: x * x, "CPU")
    lib.impl("f", co.fallthrough_kernel, "Autograd")
    f = operator(lib, "f")
    np.testing.assert_allclose(co.grad(lambda x: (f(x) * x).sum())(X), X * X)


def test_native_is_an_autograd_rule(lib: co.Library) -> None:
    """`native` can be registered for Autograd."""
    op = co.custom_op(
        f"{lib.ns}::f",
        lambda x: np.sin(x),
        mutates_args=(),
        schema="(Array x) -> Array",
    )
    lib.impl("f", co.native, "Autograd")
    np.testing.assert_allclose(co.grad(lambda x: op(x).sum())(X), np.cos(X))
