"""linearize and hvp, compared with derivatives written by hand and with each other."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import numpy as np
import pytest

import customop as co

RNG = np.random.default_rng(5)
X, T = RNG.normal(size=(2, 4))
W = RNG.normal(size=(4, 4))


def layer(x: Any) -> Any:
    return np.tanh(W @ x) * x


def layer_jacobian(x: np.ndarray) -> np.ndarray:
    h = np.tanh(W @ x)
    return x[:, None] * (1 - h[:, None] ** 2) * W + np.diag(h)


def cubic(x: Any) -> Any:
    """A function whose derivatives are polynomials."""
    return np.sum(x**3) + x[0] * x[1]


def cubic_product(x: np.ndarray, v: np.ndarray) -> np.ndarray:
    return 6 * x * v + np.array([v[1], v[0], 0.0, 0.0])


# ---- linearize ----


def test_linearize_is_the_jacobian() -> None:
    """The pushforward multiplies with the Jacobian, at as many directions as you like."""
    value, push = co.linearize(layer, X)
    np.testing.assert_allclose(value, layer(X))
    for direction in np.eye(4):
        np.testing.assert_allclose(push(direction), layer_jacobian(X) @ direction)


def test_linearize_runs_the_function_once() -> None:
    """No later call of the pushforward runs the function."""
    runs = []

    def counted(x: Any) -> Any:
        runs.append(1)
        return np.sin(x)

    _, push = co.linearize(counted, X)
    push(T), push(2 * T)
    assert len(runs) == 1


def test_linearize_of_trees() -> None:
    """Arguments and results are trees; results that do not move have zero tangents."""

    def both(p: Any, y: Any) -> Any:
        return {"xy": p["x"] * y, "none": np.ones(2), "count": 3, "again": p["x"]}

    value, push = co.linearize(both, {"x": X}, 2.0)
    assert value["count"] == 3
    found = push({"x": T}, 1.0)
    np.testing.assert_allclose(found["xy"], 2 * T + X)
    np.testing.assert_array_equal(found["again"], T)
    assert not np.any(found["none"])
    assert found["count"] == 0
    assert found["again"] is not T


def test_linearize_writes_nothing() -> None:
    """Results share no memory with each other or with what was given."""
    _, push = co.linearize(lambda x: (x, x), X)
    first, second = push(T)
    assert not np.shares_memory(first, second)
    assert not np.shares_memory(first, T)
    first += 1
    np.testing.assert_array_equal(push(T)[0], T)
    _, push = co.linearize(lambda x: (x, np.arange(2)), X)
    whole = push(T)[1]
    whole += 1
    np.testing.assert_array_equal(push(T)[1], [0, 0])


def test_linearize_complex() -> None:
    """For a complex function the pushforward is the complex derivative, not conjugated."""
    z = X[:2] + 1j * X[2:]
    _, push = co.linearize(lambda z: z * z, z)
    np.testing.assert_allclose(push(1j * z), 2j * z * z)
    _, push = co.linearize(lambda x: np.exp(1j * x), X)
    np.testing.assert_allclose(push(T), 1j * np.exp(1j * X) * T)


def test_linearize_in_place() -> None:
    """A function that writes in place is linearized at its values."""

    def written(x: Any) -> Any:
        y = np.zeros_like(x)
        y[1:] = x[:-1] ** 2
        y *= 3.0
        return y

    _, push = co.linearize(written, X)
    np.testing.assert_allclose(push(T), np.r_[0.0, 6 * X[:-1] * T[:-1]])


WORDS = ["".join(word) for word in itertools.product("gjv", repeat=2)]


@pytest.mark.parametrize("word", WORDS)
def test_linearize_inside_transforms(word: str) -> None:
    """A pushforward inside other transforms: the polynomial sum of x^4 and its relatives."""

    def pushed(x: Any) -> Any:
        return np.sum(co.linearize(lambda x: x**3, x)[1](x))  # sum of 3 x^3

    fn: Any = pushed
    exact = [0.0, 0.0, 3.0]  # coefficients of x, x^2, x^3 in the elements of the sum
    for letter in word:
        fn, exact = _nested(letter, fn, exact)
    powers = np.stack([X, X**2, X**3])
    want = np.sum(np.tensordot(exact, powers, 1))
    np.testing.assert_allclose(np.sum(fn(X)), want, rtol=1e-10)


def _nested(letter: str, fn: Any, c: list[float]) -> tuple[Any, list[float]]:
    """A transform that multiplies the coefficient of x^n by n, or leaves it as it is."""
    if letter == "v":
        return lambda x: np.sum(co.vmap(fn)(np.stack([x, x]))) / 2, c
    moved = [n * a for n, a in zip((1, 2, 3), c, strict=True)]
    if letter == "j":
        return lambda x: co.jvp(fn, (x,), (x,))[1], moved
    return lambda x: np.sum(co.grad(fn)(x) * x), moved


def test_linearize_under_vmap_of_directions() -> None:
    """Many directions at once: the columns of the Jacobian."""
    _, push = co.linearize(layer, X)
    columns = co.vmap(push, out_dims=1)(np.eye(4))
    np.testing.assert_allclose(columns, layer_jacobian(X))


def test_linearize_in_threads() -> None:
    """One pushforward serves several threads."""
    _, push = co.linearize(layer, X)
    want = layer_jacobian(X) @ T
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(push(T))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    for each in found:
        np.testing.assert_allclose(each, want)


def test_linearize_errors() -> None:
    """Tangents that do not fit are refused, as by jvp."""
    _, push = co.linearize(np.sin, X)
    with pytest.raises(co.GradientError) as caught:
        push(np.zeros(3))
    assert str(caught.value) == (
        "linearize: tangent 0 is f64[3], must be f64[4] like the primal\n"
        "  do: pass an array of the shape and dtype of the primal"
    )
    with pytest.raises(co.GradientError, match="linearize: 2 tangents for 1 primal"):
        push(T, T)  # type: ignore[call-arg]  # on purpose
    with pytest.raises(co.ArgumentError, match="linearize: 3 is not a function"):
        co.linearize(3, X)  # type: ignore[arg-type]  # on purpose


# ---- hvp ----


def test_hvp_of_one_argument() -> None:
    """The product has the structure of the argument."""
    np.testing.assert_allclose(co.hvp(cubic, X, T), cubic_product(X, T))
    found = co.hvp(lambda p: cubic(p["x"]), {"x": X}, {"x": T})
    np.testing.assert_allclose(found["x"], cubic_product(X, T))


def test_hvp_of_several_arguments() -> None:
    """A tuple has the arguments, and the product mixes their derivatives."""
    found = co.hvp(lambda x, y: np.sum(x * x * y), (X, X + 1), (T, 2 * T))
    np.testing.assert_allclose(found[0], 2 * (X + 1) * T + 2 * X * 2 * T)
    np.testing.assert_allclose(found[1], 2 * X * T)


def test_hvp_with_aux() -> None:
    """What the function returns with its value comes back."""
    product, aux = co.hvp(lambda x: (cubic(x), x + 1), X, T, has_aux=True)
    np.testing.assert_allclose(product, cubic_product(X, T))
    np.testing.assert_array_equal(aux, X + 1)


def test_hvp_inside_transforms() -> None:
    """Rows of a batch, and the third derivative."""
    rows = np.stack([X, 2 * X])
    found = co.vmap(lambda x: co.hvp(cubic, x, T))(rows)
    np.testing.assert_allclose(found, [cubic_product(r, T) for r in rows])
    third = co.grad(lambda x: np.sum(co.hvp(cubic, x, T) * T))(X)
    np.testing.assert_allclose(third, 6 * T * T)


def test_hvp_errors() -> None:
    """Values with axes and wrong tangents are refused, as by grad and jvp."""
    with pytest.raises(co.GradientError, match="must be a real float without axes"):
        co.hvp(np.sin, X, T)
    with pytest.raises(co.GradientError) as caught:
        co.hvp(cubic, X, np.zeros(3))
    assert str(caught.value) == (
        "hvp: the tangent of x is f64[3], must be f64[4] like the primal\n"
        "  do: pass an array of the shape and dtype of the primal"
    )
    with pytest.raises(co.ArgumentError, match="hvp: None is not a function"):
        co.hvp(None, X, T)  # type: ignore[call-overload]  # on purpose
