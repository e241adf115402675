"""Functions of Python's `math` and NumPy's grids in code that `traceable` runs."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import customop as co

X = np.array([0.6, 0.35, 0.8])
NAMES = [name for name, f in vars(math).items() if callable(f) and name[0] != "_"]
# They take whole numbers that Python itself computes with, or have no gradient.
REFUSED = ("comb", "factorial", "isqrt", "perm", "fma")
FUNCTIONS: Any = math  # some are of later versions
CALLS: dict[str, Callable[[Any], Any]] = {
    "acosh": lambda x: math.acosh(1.0 + x[0]),
    "dist": lambda x: math.dist([x[0], x[1]], [1.0, 2.0]) + math.dist(x, 3.0 * X),
    "frexp": lambda x: math.frexp(x[0])[0] * math.frexp(x[1])[1],
    "fsum": lambda x: math.fsum([x[0], x[1], 1.0]),
    "gcd": lambda x: math.gcd(x[0].astype(int) + 6, 4) * x[1],
    "hypot": lambda x: math.hypot(x[0], x[1], x[2]) + math.hypot(x[0]),
    "isclose": lambda x: x[0] * math.isclose(x[0], x[1]) + x[1] * near(x[0]),
    "lcm": lambda x: math.lcm(x[0].astype(int) + 6, 4) * x[1],
    "ldexp": lambda x: math.ldexp(x[0], 3),
    "log": lambda x: math.log(x[0], x[1] + 2.0) + math.log(x[2]),
    "modf": lambda x: math.modf(3.0 * x[0])[0] * math.modf(9.0 * x[2])[1],
    "nextafter": lambda x: math.nextafter(x[0], 9.0),
    "prod": lambda x: math.prod([x[0], x[1]]),
    "sumprod": lambda x: FUNCTIONS.sumprod([x[0], x[1]], [x[2], 2.0]),
}
TWO = ("atan2", "copysign", "fmod", "pow", "remainder")


def near(v: Any) -> Any:
    return math.isclose(v, v * (1.0 + 1e-12)) * math.isclose(v, v + 0.1, abs_tol=0.2)


def called(name: str) -> Callable[[Any], Any]:
    f = getattr(math, name)
    if name in TWO:
        return lambda x: f(x[2], x[1]) + f(x[0], 2.0)
    return CALLS.get(name, lambda x: f(x[0]) * x[1])


@pytest.mark.parametrize("name", [n for n in NAMES if n not in REFUSED])
def test_a_function_of_math(name: str) -> None:
    """Each function that Python has computes values and slopes."""
    if name in ("erf", "erfc", "gamma", "lgamma"):
        pytest.importorskip("scipy", reason="SciPy is not installed")
    plain = called(name)
    fn = co.traceable(plain)
    steps = 1e-6 * np.eye(3)
    slopes = [(plain(X + h) - plain(X - h)) / 2e-6 for h in steps]
    close: Any = partial(np.testing.assert_allclose, rtol=1e-6, atol=1e-6)
    close(co.grad(fn)(X), slopes)
    close(co.vmap(fn)(np.stack([X, X[::-1]])), [plain(X), plain(X[::-1])])
    close(co.compile(fn)(X), plain(X))


@pytest.mark.parametrize("x", [5.0, -5.0, 4.5, -7.5, 2.5, 1.5, 0.0, -0.0, 1e300])
@pytest.mark.parametrize("y", [3.0, -3.0, 1.0, 5.0, math.inf])
def test_the_remainder_is_that_of_the_nearest_quotient(x: float, y: float) -> None:
    """`np.remainder` is another function."""
    fn = co.traceable(lambda v: math.remainder(v, y))
    expected = math.remainder(x, y)
    found: Any = co.vmap(fn)(np.array([x]))
    assert (found[0], np.signbit(found[0])) == (expected, np.signbit(expected))


def test_values_that_math_refuses_are_refused() -> None:
    """Where a transform knows the values, Python's own errors come."""
    fn = co.traceable(lambda x: math.log(x))
    with pytest.raises(ValueError, match=r"^(math domain error|expected a positive)"):
        co.grad(fn)(-1.0)
    caught = co.traceable(lambda x: guarded(x))
    found: Any = co.value_and_grad(caught)(-2.0)
    assert found == (4.0, -4.0)


def guarded(x: Any) -> Any:
    try:
        return math.sqrt(x)
    except ValueError:
        return x * x


def test_text_of_a_value() -> None:
    """The digits of a known value; text has no derivative."""
    seen: list[str] = []

    def fn(x: Any) -> Any:
        seen.append(f"{x:.3f} {x:>8.2g}")
        return x * x

    assert co.grad(fn)(1.25) == 2.5
    assert co.jvp(fn, (1.25,), (1.0,)) == (1.5625, 2.5)
    assert seen == [f"{1.25:.3f} {1.25:>8.2g}"] * 2
    with pytest.raises(co.DataDependentError, match=r"^format\('.3f'\) of"):
        co.vmap(fn)(np.ones(2))


V, M, C = np.arange(3.0), np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(2, 2, 3)
F = V.astype(np.float32)
GRIDS: dict[str, Callable[[Any], Any]] = {
    "rows": lambda x: np.r_[M * x, M],
    "values": lambda x: np.r_[x, x[0], 3.0, 0:3, 0:1:5j, [1, 2]],
    "single precision": lambda x: np.r_[F, x[0].astype(np.float32), 1.5, 2],
    "whole numbers": lambda x: np.r_[x[0], 1, True],
    "columns": lambda x: np.c_[x, V, V + 1j],
    "columns of a matrix": lambda x: np.c_[M * x, V[:2], M],
    "blocks": lambda x: np.c_[C * x, C],
    "numbers": lambda x: np.c_[x[0], 2.0],
    "a range": lambda x: np.c_[x, 0:3],
}


@pytest.mark.parametrize("name", GRIDS)
def test_grids(name: str) -> None:
    """Values, shapes and types are NumPy's."""
    plain = GRIDS[name]
    expected = plain(V)
    for transform in (lambda f: co.vmap(f)(V[None])[0], lambda f: co.compile(f)(V)):
        found = transform(co.traceable(plain))
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        np.testing.assert_array_equal(found, expected)


# ---- SciPy's compiled functions ----

FFT = ("fft", "ifft", "rfft", "hfft", "ihfft", "fftn", "ifftn", "rfftn", "fft2")
INVERSE = ("irfft", "irfftn", "irfft2")
SQUARE = np.random.default_rng(2).normal(size=(4, 4))


def scipy_calls() -> dict[str, Callable[[Any], Any]]:
    pytest.importorskip("scipy", reason="SciPy is not installed")
    fft: Any = import_module("scipy.fft")
    linalg: Any = import_module("scipy.linalg")
    distance: Any = import_module("scipy.spatial.distance")

    calls: dict[str, Callable[[Any], Any]] = {
        name: partial(lambda f, x: np.abs(f(x * SQUARE)), getattr(fft, name))
        for name in (*FFT, *INVERSE)
    }
    calls |= {
        "fft, cut": lambda x: np.abs(fft.fft(x * SQUARE, 3, 0, norm="ortho")),
        "fftn, cut": lambda x: np.abs(fft.fftn(x * SQUARE, (3,), norm="forward")),
        "norm": lambda x: linalg.norm(x),
        "norm of a list": lambda x: linalg.norm([x[0], x[1], 1.0], 1),
        "norm of a matrix": lambda x: linalg.norm(x * SQUARE, "fro"),
        "norms": lambda x: linalg.norm(x * SQUARE, axis=1, keepdims=True),
        "solve": lambda x: linalg.solve(SQUARE + np.diag(x), x),
        "det": lambda x: linalg.det(SQUARE + np.diag(x)),
    }
    for metric in ("euclidean", "sqeuclidean", "cityblock", "chebyshev", "minkowski"):
        calls[f"cdist {metric}"] = partial(
            lambda m, x: distance.cdist(x * SQUARE, SQUARE + 1.0, m), metric
        )
    calls["cdist minkowski 3"] = lambda x: distance.cdist(
        (x * SQUARE).astype(np.float32), SQUARE, "minkowski", p=3
    )
    return calls


def test_compiled_functions_of_scipy() -> None:
    """They give SciPy's values, and slopes of those by differences."""
    x = np.array([1.1, 0.7, 1.4, 0.9])
    for name, plain in scipy_calls().items():
        fn = co.traceable(plain)
        expected = plain(x)
        for found in (co.vmap(fn)(x[None])[0], co.compile(fn)(x)):
            assert (np.shape(found), found.dtype) == (
                np.shape(expected),
                np.asarray(expected).dtype,
            ), name
            np.testing.assert_allclose(found, expected, rtol=1e-6)
        total = lambda x, plain=plain: np.sum(np.sin(plain(x)))
        if "minkowski 3" not in name:
            steps = 1e-6 * np.eye(4)
            slopes = [(total(x + h) - total(x - h)) / 2e-6 for h in steps]
            found = co.grad(co.traceable(total))(x)
            np.testing.assert_allclose(found, slopes, rtol=1e-4, atol=1e-7)


def test_what_scipy_has_and_customop_lacks_is_refused() -> None:
    distance = pytest.importorskip(
        "scipy.spatial.distance", reason="SciPy is not installed"
    )
    fn = co.traceable(lambda x: distance.cdist(x * SQUARE, SQUARE, "canberra"))
    with pytest.raises(co.DataDependentError):
        co.compile(fn)(np.ones(4))


def test_stand_ins_take_what_scipy_takes() -> None:
    pytest.importorskip("scipy", reason="SciPy is not installed")
    from customop.arrays import scipy_functions  # noqa: PLC0415  # of SciPy

    for module in ("fft", "signal"):
        own_module = import_module(f"customop.scipy.{module}")
        for name in scipy_functions._STAND_INS[f"scipy.{module}"]:
            own = inspect.signature(getattr(own_module, name)).parameters
            scipys = getattr(import_module(f"scipy.{module}"), name)
            theirs = inspect.signature(scipys).parameters
            assert [(p.name, p.default) for p in own.values()] == [
                (p.name, p.default) for p in theirs.values()
            ], name
            pairs = zip(own.values(), theirs.values(), strict=True)
            anyhow = inspect.Parameter.POSITIONAL_OR_KEYWORD
            assert all(p.kind in (q.kind, anyhow) for p, q in pairs)
