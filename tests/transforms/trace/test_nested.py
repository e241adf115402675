"""Transforms traced through, and graphs that are differentiated and batched in turn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import optree
import pytest

import customop as co

X = np.linspace(0.1, 0.9, 3)
SQUARE = np.random.default_rng(0).normal(size=(3, 3))


def f(x: Any) -> Any:
    return np.sum(np.sin(x) * x**2)


def wave(x: Any) -> Any:
    return np.sin(x) * x


# Rules that are wrong on purpose: they show that the rule is used, not the body.


@co.custom_vjp
def own_vjp(x: Any) -> Any:
    return np.sin(x)


own_vjp.defvjp(lambda x: (np.sin(x), x), lambda saved, g: (g * 7.0,))


@co.custom_jvp
def own_jvp(x: Any) -> Any:
    return np.sin(x)


own_jvp.defjvp(lambda primals, tangents: (np.sin(primals[0]), tangents[0] * 5.0))
light = co.checkpoint(lambda x: np.tanh(np.sin(x) ** 2))


@co.custom_op("tracing::native", mutates_args=())
def native(x: co.Array) -> co.Array:
    return np.sin(x) * x


native.register_fake(lambda x: co.fake_like(x))
native.register_autograd(co.native)
native.register_vmap(lambda info, in_dims, x: (native(x), in_dims[0]))


def stopped(x: Any) -> Any:
    with co.no_grad():
        y = x * 2.0
    return np.sum(co.stop_gradient(x) * x * y)


def made(x: Any) -> Any:
    zeros = np.zeros_like(x) + np.ones(3, like=x)
    return zeros + co.array([x[0], x[1], 2.0]) + np.arange(3.0)


def algebra(x: Any) -> Any:
    inverse = np.linalg.inv(x) @ np.linalg.svd(x)[0]
    return inverse + np.fft.fft(x).real + np.einsum("ij,jk->ik", x, x)


CASES: dict[str, tuple[Callable[..., Any], Any]] = {
    "grad": (co.grad(f), X),
    "value_and_grad": (co.value_and_grad(f), X),
    "vmap": (co.vmap(f), SQUARE),
    "jvp": (lambda x: co.jvp(f, (x,), (x * 2.0,)), X),
    "hessian": (co.hessian(f), X),
    "jacrev": (co.jacrev(wave), X),
    "jacfwd": (co.jacfwd(wave), X),
    "vmap of grad": (co.vmap(co.grad(f)), SQUARE),
    "hvp": (lambda x: co.hvp(f, (x,), (x,)), X),
    "linearize": (lambda x: co.linearize(f, x)[1](x), X),
    "vjp": (lambda x: co.vjp(f, x)[1](np.array(2.0)), X),
    "custom_vjp": (own_vjp, X),
    "grad of custom_vjp": (co.grad(lambda x: np.sum(own_vjp(x))), X),
    "vmap of custom_vjp": (co.vmap(own_vjp), SQUARE),
    "custom_jvp": (own_jvp, X),
    "grad of custom_jvp": (co.grad(lambda x: np.sum(own_jvp(x))), X),
    "checkpoint": (light, X),
    "grad of checkpoint": (co.grad(lambda x: np.sum(light(x))), X),
    "native": (native, X),
    "grad of native": (co.grad(lambda x: np.sum(native(x))), X),
    "stop_gradient": (stopped, X),
    "makers": (made, X),
    "algebra": (algebra, SQUARE),
    "of a graph": (lambda x: co.make_fx(co.grad(f), "fake")(x)(x), X),
}


def total(h: Any) -> Any:
    """The sum of all results."""
    return lambda x: sum(np.sum(np.real(v)) for v in optree.tree_leaves(h(x)))


AROUND: dict[str, Any] = {
    "none": lambda h: h,
    "grad": lambda h: co.grad(total(h)),
    "vmap": lambda h: lambda x: co.vmap(h)(np.stack([x, 0.9 * x])),
    "jvp": lambda h: lambda x: co.jvp(h, (x,), (x,)),
}


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
@pytest.mark.parametrize("name", CASES)
def test_graphs_under_transforms(name: str, mode: Any) -> None:
    """A graph of a transformed function gives what the function gives, also transformed."""
    fn, x = CASES[name]
    graph = co.make_fx(fn, mode)(x)
    for around in AROUND.values():
        found, expected = around(graph)(1.1 * x), around(fn)(1.1 * x)
        pairs = zip(
            optree.tree_leaves(found), optree.tree_leaves(expected), strict=True
        )
        for a, b in pairs:
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_a_function_with_its_own_rule_is_one_node() -> None:
    """So is an operator whose gradient goes through its body."""
    calls = [n.op for n in co.make_fx(own_vjp)(X).graph.nodes]
    graph = co.make_fx(native)(X).graph

    assert calls == ["placeholder", "call", "item", "output"]
    assert [n.target for n in graph.nodes if n.op == "call"] == [native]


@pytest.mark.usefixtures("unadapted")
@pytest.mark.parametrize(
    ("ask", "name"),
    [
        (float, "float() of"),
        (lambda x: x.item(), "item() of"),
        (np.asarray, "np.array(), or a NumPy kernel, is given"),
        (range, "an index, or range(), of"),
        (bool, "bool() of"),
    ],
)
def test_a_value_that_is_asked_for_is_an_error(ask: Any, name: str) -> None:
    """The error says what asked, and where."""
    with pytest.raises(co.DataDependentError) as caught:
        co.make_fx(lambda x: x * ask(x))(np.array(1.0))

    assert str(caught.value).startswith(
        f"{name} GraphTracer f64[], a value of make_fx(<lambda>)\n  asked at {__file__}:"
    )


def test_a_symbolic_trace_in_a_symbolic_trace() -> None:
    """The outer graph has the calls of the inner graph, not those that made it."""

    def outer(x: Any) -> Any:
        return co.make_fx(lambda q: q * q.shape[0], "symbolic")(x)(x)

    graph = co.make_fx(outer, "symbolic")(np.ones(3))
    calls = [node for node in graph.graph.nodes if node.op == "call"]
    assert [node.target.qualname for node in calls] == ["np::multiply"]
    assert graph.constants == {}
    assert np.array_equal(graph(np.arange(5.0)), np.arange(5.0) * 5)


@pytest.mark.parametrize("inner", ["real", "fake", "symbolic"])
def test_sizes_of_a_capture_outside_of_a_capture(inner: Any) -> None:
    """A graph has names for its own sizes, and takes those of others as values."""

    def rows(a: Any, b: Any) -> Any:
        both = np.concatenate([b, a]).reshape(a.shape[0] + b.shape[0])
        return both[: b.shape[0]], b.reshape(b.shape[0], 1)

    def swapped(x: Any, y: Any) -> Any:
        graph = co.make_fx(lambda b, a: rows(a * 1.0, b + x.shape[0]), inner)(y, x)
        text: dict[str, Any] = {"constants": graph.named_constants()}
        exec(graph.print_readable(False), text)  # which this package made
        found = zip(graph(y, x), text["graph"](y, x), strict=True)
        return [np.where(a == b, a, np.nan) for a, b in found]

    module = co.make_fx(swapped, "symbolic")(np.ones(3), np.arange(5.0))
    for n, m in ((3, 5), (4, 2)):
        x, y = np.ones(n), np.arange(float(m))
        expected = rows(x, y + n)
        for found, array in zip(module(x, y), expected, strict=True):
            np.testing.assert_array_equal(found, array, strict=True)
