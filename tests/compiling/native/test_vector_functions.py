"""Functions and products of `compile(exact=False)`, beside NumPy and long doubles."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.compiling.native_backend.ufunc_loops import call_loop
from customop.compiling.native_backend.vector_functions import near_loop

FUNCTIONS = ("cos", "exp", "expm1", "log", "log1p", "sin", "tanh")
needs_long_double = pytest.mark.skipif(
    float(np.finfo(np.longdouble).eps) > 1e-18,
    reason="long doubles have no more digits",
)


def arguments(name: str, seed: int, count: int) -> np.ndarray[Any, Any]:
    """Return numbers of all sizes, near what is hard for a function, and special ones."""
    rng = np.random.default_rng(seed)
    sizes = np.concatenate(
        [
            np.exp(rng.uniform(-745, 709, count)),
            np.exp(rng.uniform(-20, 12, count)),
            rng.uniform(0, 3, count),
            rng.uniform(0, 750, count),
        ]
    )
    multiples = np.arange(1, 6500) * (np.pi / 2)
    if name in {"sin", "cos"}:
        sizes = np.concatenate([sizes, multiples, np.nextafter(multiples, 0)])
    tiny = np.nextafter(0.0, 1.0)
    special = [0.0, np.inf, np.nan, tiny, 1.0, 709.78, 710.0, 745.1, 746.0]
    near = np.exp(rng.uniform(-36, 0, count))
    found = np.concatenate([sizes, -sizes, special, np.negative(special)])
    return np.concatenate([found, near - 1.0, 1.0 + rng.normal(size=count) * 1e-5])


def far(found: Any, right: Any, dtype: Any) -> float:
    """Return how many units in the last place values are apart at most."""
    unit = np.spacing(np.abs(right).astype(dtype)).astype(np.longdouble)
    least = np.longdouble(np.finfo(dtype).smallest_subnormal)
    apart = np.abs(found.astype(np.longdouble) - right) / np.maximum(unit, least)
    return float(np.max(apart, initial=0.0))


def check_function(name: str, count: int, seed: int) -> None:
    x = arguments(name, seed, count)
    loop = near_loop(name, (x.dtype, x.dtype), (None,))
    assert loop is not None
    with np.errstate(all="ignore"):
        found = np.empty_like(x)
        call_loop(loop.loop, [x, found], len(x))
        expected = getattr(np, name)(x)
        right = getattr(np, name)(x.astype(np.longdouble))
    finite = np.isfinite(expected)
    assert far(found[finite], right[finite], np.float64) <= 3.0
    np.testing.assert_array_equal(found[~finite], expected[~finite])
    zero = expected == 0.0
    np.testing.assert_array_equal(found[zero], 0.0)
    np.testing.assert_array_equal(np.signbit(found[zero]), np.signbit(expected[zero]))
    steps = np.empty((len(x), 2))
    steps[:, 0] = x
    with np.errstate(all="ignore"):
        call_loop(loop.loop, [steps[:, 0], steps[:, 1]], len(x))  # one by one
    assert far(steps[finite, 1], right[finite], np.float64) <= 3.0


@needs_long_double
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name: str) -> None:
    """A function is within 3 units in the last place, and NumPy's where it is special."""
    check_function(name, 5000, 1)


@pytest.mark.exhaustive
@needs_long_double
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_at_many_places(name: str) -> None:
    """So it is at millions of places."""
    for seed in range(2, 8):
        check_function(name, 100_000, seed)


@needs_long_double
@pytest.mark.parametrize("char", "fd")
def test_logaddexp(char: str) -> None:
    """Sums of exponentials are as right as their larger operand allows."""
    rng = np.random.default_rng(0)
    a = (rng.normal(size=40_000) * rng.choice([0.1, 1, 10, 300], 40_000)).astype(char)
    b = (a + rng.normal(size=a.size) * rng.choice([0.1, 1, 30], a.size)).astype(char)
    odd = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0], char)
    a = np.concatenate([a, np.repeat(odd, odd.size)])
    b = np.concatenate([b, np.tile(odd, odd.size)])
    near = near_loop("logaddexp", (a.dtype,) * 3, (None, None))
    assert near is not None
    found = np.empty_like(a)
    with np.errstate(all="ignore"):
        call_loop(near.loop, [a, b, found], a.size)
        expected = np.logaddexp(a, b)
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(found[~finite], expected[~finite])
    wide = np.logaddexp(a[finite].astype("g"), b[finite].astype("g"))
    sizes = np.abs([a[finite], b[finite], expected[finite]])
    largest = np.max(np.where(np.isinf(sizes), np.finfo(char).tiny, sizes), axis=0)
    apart = np.abs(found[finite] - wide) / np.spacing(largest)
    assert float(apart.max()) <= 2.0


@needs_long_double
@pytest.mark.parametrize("char", "fd")
@pytest.mark.parametrize("exponent", [-3, -2.0, -1, 1, 2, 3, 4.0, 5, 6])
def test_powers(exponent: float, char: str) -> None:
    """A power by products is within 4 units in the last place."""
    x = (np.random.default_rng(0).normal(size=20_000) * 3).astype(char)
    near = near_loop("power", (x.dtype,) * 3, (None, exponent))
    assert near is not None
    assert near.operands == 1
    found = np.empty_like(x)
    call_loop(near.loop, [x, found], x.size)
    assert far(found, x.astype("g") ** int(exponent), char) <= 4.0


@pytest.mark.parametrize("exponent", [7, 0.5, -4, True, "2", None])
def test_powers_that_numpy_computes(exponent: Any) -> None:
    """Products would not be near enough, or are not known."""
    dtypes = (np.dtype("d"),) * 3
    assert near_loop("power", dtypes, (None, exponent)) is None


@pytest.mark.parametrize("length", [1, 5, 8, 40, 5000])
def test_whole_functions(length: int) -> None:
    """Functions joined with arithmetic, small and in blocks, and NumPy's warnings."""

    def f(x: Any, y: Any) -> Any:
        z = np.tanh(x * y) + np.logaddexp(0.0, x) * np.exp(-(x**2))
        return np.log1p(np.sin(z) ** 2) / 4.0, np.log(x + 3.0), np.exp(x - y)

    rng = np.random.default_rng(length)
    x, y = rng.uniform(-2, 2, (2, length))
    near = co.compile(f, backend="native", exact=False)
    for _ in range(2):
        for found, right in zip(near(x, y), f(x, y), strict=True):
            np.testing.assert_allclose(found, right, rtol=1e-14, atol=1e-15)
    x[-1] = -4.0
    with pytest.warns(RuntimeWarning, match="invalid value encountered in log"):
        assert np.isnan(near(x, y)[1][-1])
    x[-1] = -3.0
    with pytest.warns(RuntimeWarning, match="divide by zero encountered in log"):
        near(x, y)
    y[0] = -1e4
    x[-1] = 1.0
    with pytest.warns(RuntimeWarning, match="overflow encountered in exp"):
        near(x, y)
    y[0] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.isnan(near(x, y)[0][0])


def test_scalars() -> None:
    """Powers of NumPy's scalars are rows as well."""

    def f(x: Any) -> Any:
        s = x[0] * x[1]
        return s**3 + np.sin(s) ** 2

    near = co.compile(f, backend="native", exact=False)
    x = np.array([1.5, -0.75])
    assert type(near(x)) is type(f(x))
    np.testing.assert_allclose(near(x), f(x), rtol=1e-15)
    assert "power" not in str(near.explain())


def check_products(seed: int) -> None:
    """Compare a random product of matrices with NumPy's."""
    rng = np.random.default_rng(seed)
    n, k, m = (int(v) for v in rng.integers(1, 40, 3))
    lead = tuple(int(v) for v in rng.integers(1, 5, rng.integers(0, 3)))
    dtype = rng.choice(["f8", "f4"])

    def made(*shape: int) -> Any:
        outer = tuple(v if rng.random() < 0.7 else 1 for v in lead)
        x = rng.normal(size=(*outer[rng.integers(0, len(lead) + 1) :], *shape))
        x = x.astype(dtype)
        if rng.random() < 0.4:
            x = np.ascontiguousarray(np.swapaxes(x, -1, -2)).swapaxes(-1, -2)
        return np.repeat(x, 2, -1)[..., ::2] if rng.random() < 0.2 else x

    a, b = made(n, k), made(k, m)
    if a.ndim == 2 and rng.random() < 0.15:
        a = a[0]
    elif b.ndim == 2 and rng.random() < 0.15:
        b = b[:, 0]
    expected = a @ b
    found = co.compile(np.matmul, backend="native", exact=False)(a, b)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape), seed
    assert found.strides == expected.strides, seed
    scale = max(float(np.max(np.abs(expected))), 1.0) * float(np.finfo(dtype).eps)
    assert float(np.max(np.abs(found - expected))) <= 20 * scale, seed


def test_products() -> None:
    """Many small products, or one for a matrix that is the same, as NumPy lays them out."""
    for seed in range(40):
        check_products(seed)


@pytest.mark.exhaustive
@pytest.mark.parametrize("start", range(1000, 1800, 100))
def test_many_products(start: int) -> None:
    """So it is for hundreds of them."""
    for seed in range(start, start + 100):
        check_products(seed)


def test_exact_is_the_default() -> None:
    """Without the option the bits are NumPy's; other back ends do not change."""
    x = np.random.default_rng(0).normal(size=4000)

    def f(x: Any) -> Any:
        return np.logaddexp(0.0, x) + x**5

    expected = f(x).tobytes()
    assert co.compile(f, backend="native")(x).tobytes() == expected
    assert co.compile(f, backend="numpy", exact=False)(x).tobytes() == expected
    assert co.compile(f, backend="native", exact=False)(x).tobytes() != expected
    with pytest.raises(co.ArgumentError, match="exact"):
        co.compile(f, exact="no")  # type: ignore[call-overload]


@pytest.mark.parametrize("shape", [(), (20,)])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_flags_of_earlier_steps_stay_up(name: str, shape: tuple[int, ...]) -> None:
    """Where NumPy's loop serves a nan, it lowers flags; the call before it still warns."""
    fn = getattr(np, name)
    near = co.compile(lambda x: fn(np.sqrt(x)), backend="native", exact=False)
    near(np.ones(shape))
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match="invalid value encountered in sqrt"):
            near(-np.ones(shape))
