"""Convolutions, differences and functions of one number: derivatives and errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.numpy.arguments import SINCE_2_5

_rng = np.random.default_rng(6)
X = _rng.standard_normal((2, 3))
WAYS: dict[str, Callable[..., Any]] = {
    "grad": lambda fn, x: co.grad(lambda x: np.sum(fn(x)))(x),
    "vmap": lambda fn, x: co.vmap(fn)(x[None]),
    "fake": co.eval_shape,
}
ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def nth_derivative(fn: Callable[[Any], Any], order: int) -> Callable[[Any], Any]:
    """A derivative of a function of one number."""
    for _ in range(order):
        fn = co.grad(fn)
    return fn


# ---- convolution ----


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize(("rows", "count"), [(2, 7), (9, 3)])
def test_batches_of_convolutions_are_one_call(mode: Any, rows: int, count: int) -> None:
    """Many rows or many taps: the result is that of row by row."""
    a, v = _rng.standard_normal((rows, 8)), _rng.standard_normal((rows, count))
    expected = np.stack([np.convolve(a[i], v[i], mode) for i in range(rows)])
    found = co.vmap(lambda a, v: np.convolve(a, v, mode))(a, v)
    np.testing.assert_allclose(found, expected, atol=1e-13)
    shared = np.stack([np.convolve(a[i], v[0], mode) for i in range(rows)])
    found = co.vmap(lambda a: np.convolve(a, v[0], mode))(a)
    np.testing.assert_allclose(found, shared, atol=1e-13)


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_modes_may_be_numbers(mode: Any) -> None:
    """NumPy takes 0, 1 and 2 for "valid", "same" and "full"."""
    expected = np.convolve(X[0], X[1, :2], mode)
    out, _ = co.vjp(lambda x: np.convolve(x, X[1, :2], mode), X[0])
    np.testing.assert_array_equal(out, expected)


# ---- functions of one number ----


def sinc_by_integral(x: float, order: int) -> float:
    """A derivative of sinc, the integral of cos(pi x t) over t from 0 to 1."""
    points, weights = np.polynomial.legendre.leggauss(100)
    t = (points + 1) / 2
    turned = np.cos(math.pi * x * t + order * math.pi / 2)
    return float(math.pi**order * np.sum(weights / 2 * t**order * turned))


@pytest.mark.parametrize("order", [1, 2, 3, 6])
def test_derivatives_of_sinc_are_right_everywhere(order: int) -> None:
    """At 0, near it and far from it, for all orders."""
    fn = nth_derivative(np.sinc, order)
    for x in (0.0, 1e-9, -0.01, 0.31, 0.32, 0.9, 5.3):
        expected = sinc_by_integral(x, order)
        assert abs(fn(np.float64(x)) - expected) < 2e-14 * math.pi**order


def bessel_by_integral(x: float, order: int) -> float:
    """A derivative of I0, the mean of cos(t) ** order exp(x cos(t)) over t."""
    t = np.arange(400) * (2 * math.pi / 400)
    return float(np.mean(np.cos(t) ** order * np.exp(x * np.cos(t))))


@pytest.mark.parametrize("order", [1, 2, 5])
def test_derivatives_of_i0_are_right_everywhere(order: int) -> None:
    """In the series, in the asymptotic one, and where they meet."""
    fn = nth_derivative(np.i0, order)
    for x in (0.0, 0.5, -3.0, 19.9, 20.1, -45.5, 100.0):
        assert fn(np.float64(x)) == pytest.approx(
            bessel_by_integral(x, order), rel=1e-13, abs=1e-15
        )


def test_angle_of_a_real_number_has_derivative_zero() -> None:
    """It is 0 or pi."""
    assert np.angle(X).dtype == np.float64
    assert co.grad(lambda x: np.sum(np.angle(x)))(X).tolist() == [[0.0] * 3] * 2


def test_numbers_for_nan_have_no_derivative_by_the_element() -> None:
    """But by the number itself, if it is traced."""
    x = np.array([np.nan, 2.0, np.inf])
    g = co.grad(lambda x: np.sum(np.nan_to_num(x, nan=3.0, posinf=4.0) ** 2))(x)
    assert g.tolist() == [0.0, 4.0, 0.0]

    def total(fill: Any) -> Any:
        return np.sum(np.nan_to_num(x + 0 * fill, nan=fill, posinf=5.0) ** 2)

    assert co.grad(total)(3.0) == 6.0


def test_nan_to_num_writes_the_array_itself() -> None:
    """With copy=False, as in NumPy."""

    def total(x: Any) -> Any:
        y = x * np.array([1.0, 3.0, 2.0]) + np.array([0.0, np.nan, 0.0])
        assert np.nan_to_num(y, copy=False) is y
        return np.sum(y**2)

    assert co.grad(total)(np.ones(3)).tolist() == [2.0, 0.0, 8.0]


@pytest.mark.parametrize("size", [1e-20, 1.0])
def test_real_if_close_looks_at_the_values(size: float) -> None:
    """Under grad they are known."""
    z = X + 1j * size * X
    expected = np.real_if_close(z)
    out, pullback = co.vjp(np.real_if_close, z)
    assert out.dtype == expected.dtype
    assert pullback(np.ones_like(out))[0].dtype == np.complex128


def test_window_of_kaiser_with_a_traced_beta_is_refused() -> None:
    """NumPy takes the number itself; its formula in np.i0 has a derivative."""
    with pytest.raises(co.CustomOpError):
        co.grad(lambda beta: np.sum(np.kaiser(5, beta)))(2.0)

    def window(beta: Any) -> Any:
        u = np.linspace(-1, 1, 5)
        return np.i0(beta * np.sqrt(1 - u**2)) / np.i0(beta)

    np.testing.assert_allclose(co.jvp(window, (2.0,), (1.0,))[0], np.kaiser(5, 2.0))
    slope = (np.kaiser(5, 2.0 + 1e-6) - np.kaiser(5, 2.0 - 1e-6)) / 2e-6
    np.testing.assert_allclose(co.jacfwd(window)(2.0), slope, atol=1e-9)


# ---- JAX ----

TWINS: dict[str, tuple[Callable[[Any, Any], Any], Any]] = {
    "convolve": (lambda np, x: np.convolve(x[0], x[1], "same"), X),
    "correlate": (lambda np, x: np.correlate(x[0], x[1, :2], "full"), X),
    "cross": (lambda np, x: np.cross(x, x[::-1] ** 2), X),
    "diff": (lambda np, x: np.diff(x, 2, append=x[:, :1]), X),
    "ediff1d": (lambda np, x: np.ediff1d(x, to_end=x[0, :1]), X),
    "gradient": (lambda np, x: np.gradient(x, 0.5, axis=1), X),
    "trapezoid": (lambda np, x: np.trapezoid(x, x**2), X),
    "unwrap": (lambda np, x: np.unwrap(9 * x), X),
    "angle": (lambda np, x: np.angle(x + 1j * x[::-1]), X),
    "sinc": (lambda np, x: np.sinc(x), X * [0, 1, 1]),
    "i0": (lambda np, x: np.i0(x), X),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", TWINS)
def test_hessian_is_that_of_jax(name: str) -> None:
    """First and second derivatives agree with an independent library."""
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    jax.config.update("jax_enable_x64", True)
    fn, x = TWINS[name]
    theirs = lambda x: jax.numpy.sum(fn(jax.numpy, x) ** 3)
    both = jax.jit(lambda x: (jax.grad(theirs)(x), jax.hessian(theirs)(x)))
    ours = lambda x: np.sum(fn(np, x) ** 3)
    for transform, expected in zip((co.grad, co.hessian), both(x), strict=True):
        np.testing.assert_allclose(transform(ours)(x), expected, rtol=1e-9, atol=1e-9)


# ---- slopes ----

SLOPES: Any = co.ops.np.gradient.default
PLACES = {
    "one": None,
    "uneven": np.array([1.0, 2.0, 4.0, 7.0]),
    "uneven bytes": np.array([9, 7, 4, 3], "u1"),
    "even": np.arange(4),
    "times": np.array([1, 2, 4, 7], "m8[s]"),
}
DATES = ["M8[s]", "m8[s]"]


@pytest.mark.exhaustive
@pytest.mark.parametrize("order", [-1, 0, 1, 2])
@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("dtype", ["i8", "u1", "f4", "f8", "c16", *DATES])
def test_slopes_are_those_of_numpy(dtype: str, places: str, order: int) -> None:
    """Of the operator, whose axis counts from the end, and of np.gradient in a graph."""
    x = np.array([[3, 5, 9, 20], [8, 2, 7, 7], [1, 4, 0, 6]]).astype(dtype)
    at = PLACES[places]
    given = () if at is None else (at,)
    call = lambda x: np.gradient(x, *given, axis=-1, edge_order=order)  # type: ignore[call-overload]  # numbers below 1
    direct = lambda x: SLOPES(x, at, 1.0, -1, order)
    expected = call(x)
    found = [direct(x), co.make_fx(call)(x)(x), co.make_fx(direct)(x)(x)]
    if dtype not in DATES:
        found += [co.vmap(direct)(x), co.vmap(call)(x)]
    for out in found:
        assert out.dtype == expected.dtype
        if dtype in DATES:
            np.testing.assert_array_equal(out, expected)
        else:
            rtol = 1e-5 if dtype == "f4" else 1e-13
            np.testing.assert_allclose(out, expected, rtol=rtol, atol=rtol)
    for fn in (call, direct):
        assert co.eval_shape(fn, x).dtype == expected.dtype


def test_slopes_at_places_that_are_nan() -> None:
    """Distances that are nan are not even; of two places there are none inside."""
    x, at = np.array([2.7, -1.2]), np.array([np.nan, -2.2])
    for fn in (SLOPES, co.make_fx(SLOPES)(x, at, 1.0, -1, 1)):
        np.testing.assert_array_equal(fn(x, at, 1.0, -1, 1), np.gradient(x, at))


def test_slopes_of_bools_need_no_differences() -> None:
    """NumPy weighs bools at uneven places, and refuses to subtract them elsewhere."""
    x, at = np.array([True, True, False]), np.array([1.0, 2.0, 4.0])
    call = lambda x: np.gradient(x, at, edge_order=2)
    expected = call(x)
    assert co.eval_shape(call, x).dtype == expected.dtype
    rows = co.vmap(call)(x[None])[0]
    for out in (SLOPES(x, at, 1.0, 0, 2), co.make_fx(call)(x)(x), rows):
        assert out.dtype == expected.dtype
        np.testing.assert_array_equal(out, expected)
    for fn in (
        np.gradient,
        co.make_fx(np.gradient),
        lambda x: co.vmap(np.gradient)(x[None]),
    ):
        with pytest.raises(TypeError, match="boolean subtract"):
            fn(x)


def test_places_that_are_bools_are_refused() -> None:
    """Also even ones, since a graph cannot tell them from others."""
    x, at = np.array([2.7, -1.2]), np.array([True, False])
    direct = lambda x: SLOPES(x, at, 1.0, 0, 1)
    for fn in (direct, co.make_fx(direct), co.make_fx(lambda x: np.gradient(x, at))):
        with pytest.raises(co.ArgumentError, match="places are bools"):
            fn(x)


@pytest.mark.parametrize("size", [0, 1, 2])
def test_slopes_of_few_elements_are_refused(size: int) -> None:
    """Also where NumPy looks for a distance of places that are too few to have one."""
    x = np.zeros(size)
    for at in (None, np.arange(size)):
        direct = lambda x, at=at: SLOPES(x, at, 1.0, 0, 2)
        for fn in (direct, co.make_fx(direct)):
            with pytest.raises(co.ShapeError, match="too small to calculate"):
                fn(x)


# ---- errors ----

WRONG: dict[str, Callable[[Any], Any]] = {
    "no elements": lambda x: np.convolve(x[0, :0], x[0]),
    "no taps": lambda x: np.convolve(x[0], x[0, :0]),
    "rows": lambda x: np.convolve(x, x[0]),
    "number": lambda x: np.correlate(x[0], x[0, 0]),
    "mode": lambda x: np.convolve(x[0], x[1], "some"),  # type: ignore[call-overload]  # wrong
    "order of diff": lambda x: np.diff(x, -1),
    "diff of a number": lambda x: np.diff(x[0, 0]),
    "edge order": lambda x: np.gradient(x, edge_order=3),  # type: ignore[call-overload]  # wrong
    "distances": lambda x: np.gradient(x[0], x),
    "count of distances": lambda x: np.gradient(x[0], [1.0, 2.0]),
    "elements": lambda x: np.gradient(x, axis=0, edge_order=2),
    "distances for axes": lambda x: np.gradient(x, 1.0, 2.0, 3.0),
    "vectors": lambda x: np.cross(x[:, :1], x[:, :1]),
    "numbers": lambda x: np.cross(x[0, 0], x[0]),
    "axis": lambda x: np.cross(x, x, axisc=2),
    "dtype": lambda x: np.ediff1d(x, to_end=1j),
    "complex": lambda x: np.i0(x + 1j),
}


if SINCE_2_5:
    WRONG |= {
        "two elements": lambda x: np.cross(x[:, :2], x[:, :2]),
        "two and three elements": lambda x: np.cross(x[:, :2], x),
        "four elements": lambda x: np.linalg.cross(x, np.tile(x, 2)[:, :4]),
    }


@pytest.mark.parametrize("name", WRONG)
@ways
def test_what_numpy_refuses_is_refused(way: Any, name: str) -> None:
    """In its words, by an exception that a handler of NumPy's catches."""
    with pytest.raises((ValueError, TypeError)) as numpys:
        WRONG[name](X)
    with pytest.raises(type(numpys.value)) as ours:
        way(WRONG[name], X)
    words = str(numpys.value).replace("\n", " ").rstrip(".")
    assert words in " ".join(str(ours.value).split())


@pytest.mark.skipif(SINCE_2_5, reason="NumPy 2.5 refuses vectors of two elements")
@ways
def test_vectors_of_two_warn(way: Any) -> None:
    """As in NumPy, at the line of the user; the results are NumPy's."""
    for a, b in ((2, 2), (2, 3), (3, 2)):
        call = lambda x, a=a, b=b: np.cross(x[:, :a], x[::-1, :b])
        with pytest.warns(DeprecationWarning, match="2-dimensional vectors"):
            expected = call(X)
        with pytest.warns(DeprecationWarning, match="2-dimensional vectors") as seen:
            found = way(call, X)
        assert seen[0].filename == __file__
        if way is WAYS["vmap"]:
            np.testing.assert_allclose(found[0], expected)
