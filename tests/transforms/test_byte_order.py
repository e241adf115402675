"""Derivatives of arrays in another byte order are those in the machine's order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co

SWAPPED = np.dtype(np.float64).newbyteorder("S")
X = np.array([1.5, -0.5, 2.0])
T = np.array([1.0, 0.5, -2.0])
PLACES = np.array([2, 0], np.dtype(np.int32).newbyteorder("S"))


def cast_back(x: Any) -> Any:
    return x.astype(SWAPPED) * x


def in_place(x: Any) -> Any:
    y = x.copy()
    y *= x
    y[0] += 3.0 * x[1]
    return y


def into_zeros(x: Any) -> Any:
    y = np.zeros_like(x)
    y[1] = x[0] * x[2]
    np.exp(x[:2], where=x[:2] > 0, out=y[:2])
    return y * x


def swapped_buffer(x: Any) -> Any:
    y = np.zeros(3, SWAPPED, like=x)
    y[:] = x * x
    return y


FUNCTIONS: list[Callable[[Any], Any]] = [
    cast_back,
    in_place,
    into_zeros,
    swapped_buffer,
]


def assert_near(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-8)


def slope(fn: Callable[[Any], Any], x: Any, t: Any) -> Any:
    """The derivative in a direction, by differences."""
    return (fn(x + 1e-6 * t) - fn(x - 1e-6 * t)) / 2e-6


@pytest.mark.parametrize("dtype", [SWAPPED, np.float64], ids=["swapped", "native"])
@pytest.mark.parametrize("fn", FUNCTIONS)
def test_derivatives(fn: Callable[[Any], Any], dtype: Any) -> None:
    x, t = X.astype(dtype), T.astype(dtype)
    expected = slope(fn, X, T)
    value, pushed = co.jvp(fn, (x,), (t,))
    assert value.dtype == fn(x).dtype
    assert_near(value, fn(X))
    assert_near(pushed, expected)
    assert_near(co.jvp(fn, (x,), (T,))[1], expected)
    (pulled,) = co.vjp(fn, x)[1](T)
    assert_near(np.vdot(pulled, T), np.vdot(T, expected))
    assert_near(
        co.vmap(lambda x: co.jvp(fn, (x,), (x,))[1])(x[None])[0], slope(fn, X, X)
    )

    def gradient(x: Any) -> Any:
        return co.grad(lambda x: np.sum(fn(x)))(x)

    assert_near(co.jvp(gradient, (x,), (t,))[1], slope(gradient, X, T))
    assert_near(co.hvp(lambda x: np.sum(fn(x)), x, T), slope(gradient, X, T))


def test_complex_gradients_keep_their_imaginary_parts() -> None:
    z = X + 2j * T
    swapped = z.astype(z.dtype.newbyteorder("S"))
    for fn in (lambda z: np.real(np.sum(z * z)), lambda z: np.sum(z.real * z.imag)):
        # Of z**2 it is 2z; of xy it is y - ix.
        known = 2 * z if fn(z) == np.real(np.sum(z * z)) else z.imag - 1j * z.real
        assert_near(co.grad(fn)(swapped), known)


def test_places_as_indices() -> None:
    def program(x: Any) -> Any:
        y = np.zeros_like(x)
        y[PLACES] = x[PLACES]
        np.add.at(y, PLACES, x[PLACES])
        return np.sum(np.take(y * x, PLACES))

    assert_near(co.grad(program)(X), [4 * X[0], 0.0, 4 * X[2]])
    rows = co.vmap(lambda x, i: x[i])(np.stack([X, T]), np.stack([PLACES, PLACES]))
    np.testing.assert_array_equal(rows, [X[[2, 0]], T[[2, 0]]])
