"""Variables and backward in a function that is captured."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import customop as co

X = np.array([0.3, 1.2, -0.7])
W, B = np.array([[0.5, -0.2, 1.0], [0.1, 0.4, -0.3]]), np.zeros(2)


def cubed(x: Any) -> Any:
    """The gradient of the sum of cubes."""
    v = co.variable(x)
    np.sum(v * v * v).backward()
    return v.grad


def steps(weights: Any, bias: Any, x: Any) -> Any:
    """Two steps of gradient descent, as written with variables."""
    w, b = co.variable(weights), co.variable(bias)
    for _ in range(2):
        loss = np.sum(np.tanh(w @ x + b) ** 2)
        loss.backward()
        with co.no_grad():
            w -= 0.1 * w.grad
            b -= 0.1 * b.grad
        w.grad = b.grad = None
    return w, b, loss


def plain_steps(w: Any, b: Any, x: Any) -> Any:
    """The same in plain NumPy, with the derivative by hand."""
    for _ in range(2):
        y = np.tanh(w @ x + b)
        loss, slope = np.sum(y**2), 2 * y * (1 - y**2)
        w, b = w - 0.1 * np.outer(slope, x), b - 0.1 * slope
    return w, b, loss


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_a_step_of_an_optimizer(mode: Any) -> None:
    """What backward computes is in the graph; variables come out as their values."""
    graph = co.make_fx(steps, mode)(W, B, X)
    graph.graph.lint()
    for given in ((W, B, X), (2 * W, B + 1, -X)):
        before = [a.copy() for a in given]
        for found, want in zip(graph(*given), plain_steps(*given), strict=True):
            assert not isinstance(found, co.Tracer)
            np.testing.assert_allclose(found, want)
        for a, b in zip(given, before, strict=True):
            np.testing.assert_array_equal(a, b)


def test_gradients_add_up() -> None:
    """Two calls of backward, the second with a gradient, add to one grad."""

    def fn(x: Any) -> Any:
        v = co.variable(x)
        np.sum(v * v).backward()
        (v * 2).backward(np.ones(3) * x)
        return v.grad

    np.testing.assert_allclose(co.make_fx(fn)(X)(-X), -4 * X)


def test_transforms() -> None:
    """Such a graph is differentiated and batched, and such a function in a batch."""
    graph = co.make_fx(cubed)(X)
    rows = np.stack([X, -2 * X])
    np.testing.assert_allclose(co.grad(lambda x: np.sum(graph(x)))(X), 6 * X)
    np.testing.assert_allclose(co.vmap(graph)(rows), 3 * rows**2)
    batched = lambda x: co.vmap(cubed)(x) + cubed(x) + co.vmap(cubed)(x)  # short
    np.testing.assert_allclose(co.make_fx(batched)(rows)(rows), 9 * rows**2)
    of_sum = co.grad(lambda x: np.sum(cubed(x)))
    np.testing.assert_allclose(co.make_fx(of_sum)(X)(2 * X), 12 * X)


def test_control_flow() -> None:
    """Backward through loops and branches, and variables of a branch."""

    def outside(x: Any) -> Any:
        v = co.variable(x)
        y = co.cond(np.sum(v) > 0, lambda v: v * v, lambda v: v * v * v, v)
        co.while_loop(lambda c: c < 9, lambda c: c * c + 1, np.sum(y)).backward()
        return v.grad

    def inside(x: Any) -> Any:
        return co.cond(np.sum(x) > 0, cubed, lambda x: x, x)

    graph, branch = co.make_fx(outside)(X), co.make_fx(inside)(X)
    for x in (X, -X, 9 * X):
        y, slope = (x * x, 2 * x) if np.sum(x) > 0 else (x**3, 3 * x * x)
        c, product = np.sum(y), 1.0
        while c < 9:
            c, product = c * c + 1, product * 2 * c
        np.testing.assert_allclose(graph(x), product * slope)
        np.testing.assert_allclose(branch(x), 3 * x * x if np.sum(x) > 0 else x)


def refusal(fn: Any) -> list[str]:
    with pytest.raises(co.CustomOpError) as caught:
        co.make_fx(fn)(X)
    return str(caught.value).splitlines()


def test_values_without_variables() -> None:
    """The error says what to write."""
    lines = refusal(lambda x: np.sum(x * x).backward())
    assert lines[0] == (
        "backward() of GraphTracer f64[], a value of make_fx(<lambda>), which depends on no"
        " variable"
    )
    assert lines[1].startswith(f"  at {__file__}:")
    assert lines[2:] == [
        "  do: make variables in the function, w = variable(w), or capture make_fx(grad(f))"
    ]


def test_variables_from_outside() -> None:
    """They are constants of the graph, so it cannot bring gradients to them."""
    outside = co.variable(X)
    lines = refusal(lambda x: np.sum(outside * x).backward())
    assert lines[0].endswith(
        "which depends on no variable that was made in the function"
    )
    do = "pass their arrays as arguments, and make the variables in the function"
    assert lines[2:] == [
        "  variables that were made outside of it are constants of the graph",
        f"  do: {do}: w = variable(w)",
    ]
    assert outside.grad is None
    graph = co.make_fx(lambda x: np.sum(outside * x))(X)
    graph(2 * X).backward()
    np.testing.assert_allclose(outside.grad, 2 * X)


def test_variables_of_two_transforms() -> None:
    """Gradients would reach only those that were made inside."""

    def fn(x: Any) -> Any:
        v = co.variable(x)

        def of_row(row: Any) -> Any:
            u = co.variable(row)
            np.sum(u * v).backward()
            return u.grad

        return co.vmap(of_row)(np.stack([x, x]))

    lines = refusal(fn)
    assert lines[0].endswith(
        "depends on variables that were made in the function of a transform, and on others"
        " that were made outside of it"
    )
    assert lines[1] == "  do: make all of them outside, or take the gradient by grad"


def test_variables_end_with_the_capture() -> None:
    """One that leaks is an error."""
    kept: list[Any] = []

    def fn(x: Any) -> Any:
        kept.append(co.variable(x))
        return kept[0] * 2

    np.testing.assert_array_equal(co.make_fx(fn)(X)(X), 2 * X)
    with pytest.raises(co.LeakedTracerError, match=r"a value of variable\(x\)"):
        kept[0] * 2
    eager = co.variable(X)  # and others are as before
    np.sum(eager * eager).backward()
    np.testing.assert_array_equal(eager.grad, 2 * X)
