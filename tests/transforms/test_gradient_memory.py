"""Gradients can be written by who gets them, under other transforms and in graphs too."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co

X, Y = np.array([0.5, -1.0, 2.0]), np.array([1.0, -2.0, 4.0])


def of_two(a: Any, b: Any) -> Any:
    """Both have the same gradient, and one is written."""
    first, second = co.grad(lambda a, b: np.sum(np.sin(a + b)), (0, 1))(a, b)
    first *= 10.0
    return first, second


def of_cotangent(a: Any, b: Any) -> Any:
    """The gradients are the cotangent."""
    first, second = co.vjp(lambda a, b: a + b, a, b)[1](b)
    first *= 10.0
    return first, second, b * 1.0


def of_shapes(a: Any, b: Any) -> Any:
    """The gradients are one array in two shapes."""
    loss = lambda a, b: np.sum(np.sin(a + np.reshape(b, (3,))))
    first, second = co.grad(loss, (0, 1))(a, np.reshape(b, (3, 1)))
    second += 1.0
    return first, second


def of_tangent(a: Any, b: Any) -> Any:
    """The tangent of a sum with a constant is the tangent that was given."""
    tangent = co.linearize(lambda a: a + 1.0, a)[1](b)
    tangent *= 10.0
    return tangent, b * 1.0


def by_compile(fn: Callable[..., Any]) -> Any:
    fast = co.compile(fn)
    fast(X.copy(), Y.copy())
    return fast(X.copy(), Y.copy())


WAYS: dict[str, Callable[[Callable[..., Any]], Any]] = {
    "compile": by_compile,
    "make_fx": lambda fn: co.make_fx(fn)(X, Y)(X.copy(), Y.copy()),
    "fake": lambda fn: co.make_fx(fn, "fake")(X, Y)(X.copy(), Y.copy()),
    "jvp": lambda fn: co.jvp(fn, (X, Y), (Y, X))[0],
    "vjp": lambda fn: co.vjp(fn, X, Y)[0],
    "vmap": lambda fn: [
        out[1] for out in co.vmap(fn)(*[np.stack([v, v]) for v in (X, Y)])
    ],
}
FUNCTIONS = (of_two, of_cotangent, of_shapes, of_tangent)


@pytest.mark.parametrize("fn", FUNCTIONS, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("way", WAYS)
def test_a_write_to_one_gradient_is_not_seen_in_others(
    way: str, fn: Callable[..., Any]
) -> None:
    cosine = np.cos(X + Y)
    expected = {
        of_two: (10.0 * cosine, cosine),
        of_cotangent: (10.0 * Y, Y, Y),
        of_shapes: (cosine, cosine[:, None] + 1.0),
        of_tangent: (10.0 * Y, Y),
    }[fn]
    for found, known in zip(WAYS[way](fn), expected, strict=True):
        np.testing.assert_allclose(found, known, rtol=1e-12)


@pytest.mark.parametrize("backend", ["numpy", "eager"])
def test_gradients_of_compiled_functions_have_memory_of_their_own(backend: str) -> None:
    loss = lambda p: np.sum(np.sin(p["a"] + p["b"])) + np.sum(p["c"])
    step = co.compile(co.grad(loss), backend=backend)
    given = {"a": X, "b": Y, "c": X}
    for _ in range(2):
        found = step(given)
        for leaf in found.values():
            leaf.fill(0.0)
        arrays = [*found.values(), *given.values()]
        shared = [
            np.shares_memory(p, q) for p in arrays[:3] for q in arrays if p is not q
        ]
        assert not any(shared)


def test_gradients_of_each_row_have_memory_of_their_own() -> None:
    rows = co.vmap(co.grad(lambda a, b: np.sum(np.sin(a + b)), (0, 1)))
    first, second = rows(np.stack([X, Y]), np.stack([Y, X]))
    assert not np.shares_memory(first, second)


def test_the_first_gradient_of_an_operator_can_be_written_in_a_graph() -> None:
    """The first run of a formula looks whether it writes its cotangent."""

    @co.custom_op("gradient_memory::same", mutates_args=())
    def same(x: np.ndarray) -> np.ndarray:
        return x.copy()

    same.register_fake(lambda x: co.fake_like(x))
    same.register_autograd(lambda _ctx, g: g)

    def step(x: Any) -> Any:
        gradient = co.vjp(same, x)[1](x)[0]
        gradient *= 2.0
        return gradient

    np.testing.assert_allclose(co.compile(step)(X), 2.0 * X)
