"""A view whose array was written since, wherever a transform meets it first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co

pytestmark = pytest.mark.filterwarnings("ignore:stale..weigh has no vmap rule")
X = np.array([0.5, -1.5, 2.0, 1.0])


def stale(x: Any) -> tuple[Any, Any]:
    """Return an array and a view of it, in which nothing was read since a write."""
    x = x * 1.0
    view = x[1:3]
    x *= 3.0
    x[2] = x[0] * x[1]
    return x, view


@co.custom_op("stale::weigh", mutates_args=())
def weigh(parts: list[np.ndarray], by: np.ndarray) -> np.ndarray:
    """Add the products of arrays with one."""
    return np.asarray(sum(part * by for part in parts))


weigh.register_autograd(
    lambda ctx, g: ([g * ctx.by for _ in ctx.parts], sum(g * p for p in ctx.parts)),
    setup_context=lambda ctx, inputs, output: vars(ctx).update(
        parts=inputs[0], by=inputs[1]
    ),
)
weigh.register_jvp(
    lambda primals, tangents: (
        weigh(*primals),
        sum(t * primals[1] for t in tangents[0] if t is not None)
        + (0.0 if tangents[1] is None else weigh(primals[0], tangents[1])),
    )
)

# What is done first with the view `v` of `x`.
FIRST: dict[str, Callable[[Any, Any], Any]] = {
    "returned": lambda v, x: v,
    "shape": lambda v, x: v * v.shape[0],
    "method": lambda v, x: v.sum(),
    "one": lambda v, x: np.sin(v),
    "constant after": lambda v, x: v * np.array([2.0, 3.0]),
    "constant before": lambda v, x: np.array([2.0, 3.0]) * v,
    "number": lambda v, x: 2.0 - v,
    "twice": lambda v, x: v * v,
    "with the array": lambda v, x: x[:2] * v,
    "view of it": lambda v, x: v[::-1],
    "list": lambda v, x: np.concatenate([v, v[:1]]),
    "list with a constant": lambda v, x: np.stack([np.ones(2), v]),
    "custom": lambda v, x: weigh([v, np.ones(2)], v),
    "three": lambda v, x: np.where(v > 0, v, x[:2]),
    "copy": lambda v, x: v.copy(),
    "real": lambda v, x: v.real,
    "written": lambda v, x: [v.__imul__(2.0), x][1],
    "loop": lambda v, x: sum(part * part for part in v),
}


def plain(name: str, x: Any) -> Any:
    """The result of one row of `FIRST`."""
    return FIRST[name](*stale(x)[::-1])


def differences(fn: Callable[[Any], Any], x: Any) -> Any:
    """The derivative by each element of a function, on its last axis."""
    steps = np.eye(x.size) * 1e-6
    return np.stack([(fn(x + h) - fn(x - h)) / 2e-6 for h in steps], axis=-1)


@pytest.mark.parametrize("name", FIRST)
@pytest.mark.parametrize("transform", [co.jacrev, co.jacfwd])
def test_derivatives(transform: Any, name: str) -> None:
    """They are those of NumPy's program."""
    expected = differences(lambda x: np.asarray(plain(name, x)), X)
    np.testing.assert_allclose(transform(lambda x: plain(name, x))(X), expected, 1e-5)


@pytest.mark.parametrize("name", FIRST)
def test_rows(name: str) -> None:
    """Vmap gives the results of the rows, also of their gradients."""
    rows = np.stack([X, X[::-1] + 0.25])
    found = co.vmap(lambda x: plain(name, x))(rows)
    np.testing.assert_allclose(found, [plain(name, row) for row in rows])

    def loss(x: Any) -> Any:
        return np.sum(plain(name, x) * 1.5)

    expected = [differences(loss, row) for row in rows]
    np.testing.assert_allclose(co.vmap(co.grad(loss))(rows), expected, 1e-5)


def test_an_inner_transform_takes_it_from_outside() -> None:
    """A closure reads the view as it is when the inner transform runs."""

    def outer(x: Any) -> Any:
        _, view = stale(x)
        return np.sum(co.grad(lambda z: np.sum(z * z * view))(np.ones(2)) ** 2)

    def expected(x: Any) -> Any:
        return np.sum((2 * stale(x)[1]) ** 2)

    np.testing.assert_allclose(co.grad(outer)(X), differences(expected, X), 1e-5)


def test_results_of_several_kinds() -> None:
    """A gradient of a view without axes; a view in a dict; and the pullback of one."""

    def scalar(x: Any) -> Any:
        x = x * 1.0
        view = x[1:2].reshape(())
        x *= 3.0
        return view

    np.testing.assert_array_equal(co.grad(scalar)(X), [0.0, 3.0, 0.0, 0.0])
    out, pullback = co.vjp(lambda x: {"v": stale(x)[1]}, X)
    np.testing.assert_array_equal(out["v"], stale(X)[1])
    rows = co.vmap(lambda x: {"v": stale(x)[1]})(np.stack([X, 2 * X]))
    np.testing.assert_array_equal(rows["v"], [stale(X)[1], stale(2 * X)[1]])
    (found,) = pullback({"v": np.ones(2)})
    np.testing.assert_allclose(
        found, differences(lambda x: np.sum(stale(x)[1]), X), 1e-5
    )


def test_backward_of_a_view() -> None:
    """A variable's graph can end in a view that is not up to date."""
    x = co.variable(X)
    _, view = stale(x)
    co.backward(view, np.ones(2))
    assert isinstance(x.grad, np.ndarray)
    np.testing.assert_allclose(
        x.grad, differences(lambda x: np.sum(stale(x)[1]), X), 1e-5
    )


def test_other_attributes_of_a_stale_view() -> None:
    """Errors name them, and the class looks as any other."""

    def look(x: Any) -> Any:
        _, view = stale(x)
        assert type(view).__name__ == "GradTracer"
        with pytest.raises(co.UnknownNameError, match="no attribute 'data'"):
            _ = view.data
        _, view = stale(x)
        with pytest.raises(AttributeError, match="no attribute 'unknown'"):
            _ = view.unknown
        return np.sum(view)

    co.grad(look)(X)
