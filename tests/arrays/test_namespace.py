"""The array namespace of traced, batched and fake arrays, and what NumPy cannot hook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co

X = np.array([1.5, -2.0, 3.0])

CONVERSIONS: dict[str, Callable[[Any, Any], Any]] = {
    "asarray": lambda xp, x: xp.asarray(x) * x,
    "asarray of a list": lambda xp, x: xp.asarray([x[0], 2.0, x[2]]) * x,
    "nested": lambda xp, x: xp.sum(
        xp.asarray([[x[0], 1.0], (x[1], x[2])]) ** 2, axis=0
    ),
    "dtype": lambda xp, x: xp.asarray(x, dtype=xp.float32) * 2,
    "copy": lambda xp, x: xp.asarray(x, copy=True) ** 2,
    "array": lambda xp, x: xp.array([x, x]) * x,
    "contiguous": lambda xp, x: xp.ascontiguousarray(x) * x,
    "plain": lambda xp, x: xp.asarray([1.0, 2.0, 3.0]) * x,
}


@pytest.mark.parametrize("name", CONVERSIONS)
def test_conversions_keep_traced_values(name: str) -> None:
    """The namespace of an array converts lists of it: values and gradients are NumPy's."""
    fn = CONVERSIONS[name]
    of = lambda x: fn(x.__array_namespace__(), x)
    expected = fn(np, X)
    steps = 1e-6 * np.eye(3)
    slopes = [(fn(np, X + h) - fn(np, X - h)) / 2e-6 for h in steps]

    jacobian = co.jacrev(of)(X)
    batch = co.vmap(of)(np.stack([X, X]))
    fake = co.eval_shape(of, X)

    tolerance = 1e-1 if expected.dtype == np.float32 else 1e-8
    np.testing.assert_allclose(np.moveaxis(jacobian, -1, 0), slopes, atol=tolerance)
    np.testing.assert_array_equal(batch, np.stack([expected, expected]))
    assert (fake.shape, fake.dtype) == (expected.shape, expected.dtype)


def test_the_namespace_is_that_of_numpy() -> None:
    """It equals NumPy, and has all that NumPy has."""

    def look(x: Any) -> Any:
        xp = x.__array_namespace__()
        assert xp == np
        assert np == xp
        assert {xp, np} == {np}
        assert xp.__name__ == "numpy"
        assert xp.linalg is np.linalg
        assert set(dir(np)) <= set(dir(xp))
        assert not hasattr(xp, "nothing")
        return xp.sum(xp.sin(x))

    np.testing.assert_array_equal(co.grad(look)(X), np.cos(X))


def test_array_api_compat_converts() -> None:
    """So does the namespace that array-api-compat finds for several arrays."""
    compat = pytest.importorskip("array_api_compat", reason="not installed")

    def fn(x: Any) -> Any:
        xp = compat.array_namespace(x, X)
        assert compat.is_numpy_namespace(xp)
        y = xp.asarray([x[1], x[0]])
        return xp.sum(xp.concat([y, xp.asarray(x)]) ** 2)

    np.testing.assert_allclose(co.grad(fn)(X), [6.0, -8.0, 6.0])


class Twice:
    """An array class whose `__array__` returns what is not an array."""

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return self


@pytest.mark.usefixtures("unadapted")
def test_numpy_has_no_other_hook_for_conversions() -> None:
    """np.asarray takes plain arrays alone from `__array__`, so a traced value is refused."""
    with pytest.raises((TypeError, ValueError), match="__array__"):
        np.asarray(Twice())
    with pytest.raises(
        co.DataDependentError, match=r"write np.asarray\(x, like=x\) in place of np.as"
    ):
        co.grad(lambda x: np.sum(np.asarray(x)))(X)
    kept = co.grad(lambda x: np.sum(np.asarray(x, like=x) * x))(X)
    np.testing.assert_array_equal(kept, 2.0 * X)


@pytest.mark.usefixtures("unadapted")
def test_the_error_names_the_installed_function_that_converts() -> None:
    """The user's own line may not show it."""
    with pytest.raises(co.DataDependentError) as caught:
        co.grad(lambda x: np.sum(np.polynomial.Polynomial(x)(2.0)))(X)
    asked = "np.array(), called by np.polynomial.Polynomial, is given"
    assert caught.value.what.startswith(f"{asked} GradTracer f64[3]")
    assert "use np.polynomial.polynomial.polyval(x, coefficients)" in str(caught.value)
    with pytest.raises(co.DataDependentError) as caught:
        co.grad(lambda x: np.sum(np.full(3, x)))(X)  # it calls np.array
    assert caught.value.what.startswith("np.array(), called by np.full, is given")
    with pytest.raises(co.DataDependentError) as caught:
        np.asarray_chkfinite(co.FakeArray((3,), "float64"))
    assert caught.value.what.startswith("np.asarray() in np.asarray_chkfinite, of")


CLASSES = {
    "r_": (lambda x: np.r_[x, 1.0], "np.r_ or np.c_", "np.hstack([x, [1.0]])"),
    "r_, slices": (lambda x: np.r_[x, 0:2], "np.r_ or np.c_", "np.concatenate([...])"),
    "c_": (lambda x: np.c_[x, x], "np.r_ or np.c_", "np.column_stack([x, x])"),
    "mgrid": (lambda x: np.mgrid[0.0 : x[0]], "np.mgrid or np.ogrid", "np.meshgrid"),
    "ma": (np.ma.array, "np.ma.array", "np.where(mask, 0, x)"),
    "ndenumerate": (np.ndenumerate, "np.ndenumerate", "np.ndindex(x.shape)"),
    "vectorize": (np.vectorize(abs), "np.vectorize", "vmap(f)(x)"),
    "full": (lambda x: np.full(3, x), "np.full", "np.full(3, x, like=x)"),
}


@pytest.mark.usefixtures("unadapted")
@pytest.mark.parametrize("name", CLASSES)
def test_classes_of_numpy_have_their_own_advice(name: str) -> None:
    """`traceable` does not reach them."""
    fn, called, instead = CLASSES[name]
    with pytest.raises(co.DataDependentError) as caught:
        co.grad(lambda x: np.sum(fn(x)))(X)
    assert caught.value.what.startswith(f"np.array(), called by {called}, is given")
    assert instead in str(caught.value)
    assert "traceable" not in str(caught.value)


def test_advice_for_classes_of_numpy_works() -> None:
    """Gradients through it are those of the formulas."""
    instead = {
        "r_": lambda x: np.concatenate([x, [1.0]]),
        "c_": lambda x: np.stack([x, x], axis=-1),
        "full": lambda x: np.full(3, x[0], like=x),
        "vectorize": co.vmap(np.abs),
        "map": lambda x: co.map(np.abs, x),
    }
    found = {k: co.grad(lambda x, f=f: np.sum(f(x)))(X) for k, f in instead.items()}
    expected = {
        "r_": np.ones(X.shape),
        "c_": np.full(X.shape, 2.0),
        "full": np.array([3.0, *np.zeros(len(X) - 1)]),
        "vectorize": np.sign(X),
        "map": np.sign(X),
    }
    np.testing.assert_equal(found, expected)
