"""Code of others that converts its arguments: `traceable`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import numpy as np
import optree
import pytest
from numpy import asarray
from numpy import polynomial as series

import customop as co

RNG = np.random.default_rng(3)
X = np.array([0.5, -1.25, 2.0, 0.75])


def slopes(fn: Callable[[Any], Any], x: Any, step: float = 1e-6) -> Any:
    """The gradient of the sum of all results, by central differences."""
    found = np.zeros_like(x)
    for place in np.ndindex(x.shape):
        ends = [np.array(x), np.array(x)]
        ends[0][place] += step
        ends[1][place] -= step
        high, low = (sum_of(fn(end)) for end in ends)
        found[place] = (high - low) / (2.0 * step)
    return found


def sum_of(results: Any) -> Any:
    """The sum of the sines of all elements."""
    return sum(np.sum(np.sin(np.real(y))) for y in optree.tree_leaves(results))


# ---- a package of one's own ----


def decorated(fn: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(fn)
    def call(*args: Any) -> Any:
        return 2.0 * fn(*args)

    return call


@decorated
def in_closure(x: Any) -> Any:
    return np.asarray(x, dtype=float) ** 2


def by_name(x: Any) -> Any:
    return asarray(x) * 3.0


def filled(x: Any) -> Any:
    x = np.atleast_1d(np.array(x, copy=False if isinstance(x, np.ndarray) else None))
    out = np.empty(len(x) + 1)
    out[0] = 1.0
    order = np.zeros(len(x), dtype=int)
    order[0] = len(x) - 1
    for i, value in enumerate(x):
        out[i + 1] = out[i] * value
    return out[1:] * X[order]


def importing(x: Any) -> Any:
    import numpy  # noqa: ICN001, PLC0415  # what is tested

    from tests.arrays.test_traceable import by_name as other  # noqa: PLC0415

    return numpy.asanyarray(x) * other(x)


def recursive(x: Any, n: int = 3) -> Any:
    return np.asarray(x) * (recursive(x, n - 1) if n else 1.0)


def sliced(x: Any) -> Any:
    return np.array([x[0], x[1] * x[2]]) * np.asarray([x[3], 1.0])


def added(x: Any) -> Any:
    total = np.array([1.0, 2.0, 3.0, 4.0])
    total[:2] += x[:2]
    total *= x
    return total + np.copy(X)


OWN = (in_closure, by_name, filled, importing, recursive, sliced, added)


@pytest.mark.parametrize("fn", OWN)
def test_functions_that_convert(fn: Callable[..., Any]) -> None:
    """Values and derivatives are those of the function on plain arrays."""
    followed = co.traceable(fn)
    expected = fn(X)
    total = lambda x: sum_of(followed(x))
    np.testing.assert_array_equal(followed(X), expected)
    np.testing.assert_allclose(co.grad(total)(X), slopes(fn, X), atol=1e-8)
    np.testing.assert_allclose(co.jvp(followed, (X,), (X,))[0], expected)
    np.testing.assert_allclose(co.hessian(total)(X), _second(total), atol=1e-6)
    rows = np.stack([X, X[::-1] + 1.0])
    np.testing.assert_allclose(co.vmap(followed)(rows), [fn(row) for row in rows])
    fake = co.eval_shape(followed, X)
    assert (fake.shape, fake.dtype) == (expected.shape, expected.dtype)
    graph = co.make_fx(followed)(X)
    np.testing.assert_allclose(graph(rows[1]), fn(rows[1]))


def _second(total: Callable[[Any], Any]) -> Any:
    """The Hessian, by differences of gradients."""
    step = 1e-6 * np.eye(4)
    return [(co.grad(total)(X + h) - co.grad(total)(X - h)) / 2e-6 for h in step]


@pytest.mark.usefixtures("unadapted")
def test_the_function_itself_stays_as_it_is() -> None:
    """A call without traced values is a call of it, and it converts as before."""
    seen: list[Any] = []

    def fn(x: Any) -> Any:
        seen.append((np.asarray, isinstance(x, np.ndarray)))
        return np.asarray(x)

    followed = co.traceable(fn)
    assert inspect.signature(followed) == inspect.signature(fn)
    assert followed(X) is X
    co.grad(lambda x: np.sum(followed(x)))(X)
    assert [kind for _, kind in seen] == [True, True]
    assert [function for function, _ in seen] == [np.asarray, np.asarray]
    with pytest.raises(
        co.DataDependentError, match=r"write np.asarray\(x, like=x\) in"
    ):
        co.grad(lambda x: np.sum(fn(x)))(X)


@pytest.mark.parametrize("fn", [np.sin, len, np.random.default_rng(0).normal])
def test_code_in_c_is_refused(fn: Any) -> None:
    """It has no names to change."""
    with pytest.raises(co.ArgumentError, match="is not a function written in Python"):
        co.traceable(fn)


class Model:
    """An object of a package."""

    def __init__(self, weights: Any) -> None:
        self.weights = weights

    def predict(self, x: Any) -> Any:
        return np.asarray(x) @ self.weights


def test_methods() -> None:
    """A bound method is followed too."""
    predict = co.traceable(Model(X).predict)
    np.testing.assert_array_equal(co.grad(predict)(2.0 * X), X)


def _scaled_sum(scale: float, x: Any) -> Any:
    return scale * np.sum(np.asarray(x) ** 2)


def _with_partial(x: Any) -> Any:
    return partial(_scaled_sum, 3.0)(x)


def test_partials() -> None:
    """A partial is followed, given or made by the function."""
    followed = co.traceable(partial(_scaled_sum, 3.0))
    assert str(inspect.signature(followed)).startswith("(x: ")
    assert followed(X) == 3.0 * np.sum(X**2)
    np.testing.assert_array_equal(co.grad(followed)(X), 6.0 * X)
    np.testing.assert_array_equal(co.grad(co.traceable(_TABLE[0]))(X), 6.0 * X)
    np.testing.assert_array_equal(co.grad(co.traceable(_with_partial))(X), 6.0 * X)


_TABLE = [partial(_scaled_sum, 3.0)]


def test_a_function_made_of_text() -> None:
    """It may be of no module."""
    names: dict[str, Any] = {"asarray": np.asarray, "__name__": None}
    exec(
        "def square(x):\n    return (asarray(x) ** 2).sum()", names
    )  # as lambdify does
    np.testing.assert_array_equal(co.grad(co.traceable(names["square"]))(X), 2.0 * X)


# ---- numpy.polynomial ----

C, D = RNG.normal(size=4), RNG.normal(size=3)
ARGUMENTS: dict[str, Any] = {
    "c": C, "c1": C, "c2": D, "x": X, "y": X[::-1].copy(), "z": 0.5 * X, "r": C,
    "roots": D, "deg": 2, "off": 0.3, "scl": 1.2, "old": np.array([-1.0, 1.0]),
    "new": np.array([0.0, 3.0]), "pow": 2, "pol": C, "pts": [X, 0.5 * X],
    "alist": [C, D], "seq": C,
}  # fmt: skip
BASES = (
    *(series.polynomial, series.chebyshev, series.legendre),
    *(series.hermite, series.hermite_e, series.laguerre, series.polyutils),
)
# They take no arrays of floats, or give none.
OTHERS = ("format_float", "chebpts1", "chebpts2", "chebinterpolate", "chebgauss")


def _arguments(name: str, parameters: list[str]) -> list[Any]:
    rank = 3 if "3d" in name else 2 if name.endswith(("2d", "nd")) else 1
    values = dict(ARGUMENTS)
    if rank > 1:
        values["c"] = np.random.default_rng(7).normal(size=(3, 2, 2)[:rank])
        values["deg"] = [1] * rank
    if "weight" in name:
        values["x"] = 0.3 * X
    return [values[parameter] for parameter in parameters]


def calls() -> list[Any]:
    """Each function of numpy.polynomial, by each of its arrays."""
    found = []
    for module in BASES:
        for name in module.__all__:
            fn = getattr(module, name)
            if inspect.isclass(fn) or not callable(fn) or name in OTHERS:
                continue
            required = [
                p.name
                for p in inspect.signature(fn).parameters.values()
                if p.default is p.empty
            ]
            if not set(required) <= set(ARGUMENTS):
                continue
            values = _arguments(name, required)
            found += [
                pytest.param(fn, values, at, id=f"{name}-{required[at]}")
                for at, value in enumerate(values)
                if isinstance(value, np.ndarray)
            ]
    return found


def _check(fn: Any, values: list[Any], at: int) -> None:
    def of(called: Any) -> Callable[[Any], Any]:
        return lambda x: called(*values[:at], x, *values[at + 1 :])

    followed = of(co.traceable(fn))
    expected = optree.tree_leaves(of(fn)(values[at]))
    seen: list[Any] = []

    def total(x: Any) -> Any:
        results = followed(x)
        seen.extend(map(co.stop_gradient, optree.tree_leaves(results)))
        return sum_of(results)

    found = co.grad(total)(values[at])
    for one, other in zip(seen, expected, strict=True):
        assert np.shape(one) == np.shape(other)
        np.testing.assert_allclose(one, other, rtol=1e-12)
    np.testing.assert_allclose(found, slopes(of(fn), values[at]), rtol=1e-5, atol=1e-6)


COMMON = ("polyval", "polyvalfromroots", "polyadd", "chebgrid2d", "legfit", "cheb2poly")


@pytest.mark.parametrize(
    ("fn", "values", "at"),
    [p for p in calls() if p.values[0].__name__ in COMMON],
)
def test_functions_of_polynomials(fn: Any, values: list[Any], at: int) -> None:
    """NumPy's own code gives NumPy's values, and their gradients."""
    _check(fn, values, at)


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("fn", "values", "at"),
    [p for p in calls() if p.values[0].__name__ not in COMMON],
)
def test_all_functions_of_polynomials(fn: Any, values: list[Any], at: int) -> None:
    """So do all others of numpy.polynomial."""
    _check(fn, values, at)


# ---- SciPy ----


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("module", "name"),
    [("integrate", "simpson"), ("special", "softmax"), ("stats", "skew")],
)
def test_functions_of_scipy(module: str, name: str) -> None:
    """Unmodified functions of a large package."""
    package = pytest.importorskip(f"scipy.{module}", reason="SciPy is not installed")
    fn = getattr(package, name)
    followed = co.traceable(fn)
    found = co.grad(lambda x: sum_of(followed(x)))(X)
    np.testing.assert_allclose(found, slopes(fn, X), atol=1e-7)


def axis_of_module(x: Any) -> Any:
    return np.asarray(x)[:, THIS.new_axis] * 2.0


THIS = sys.modules[__name__]
new_axis = np.newaxis


def test_a_name_of_a_module_may_mean_none() -> None:
    fn = co.traceable(axis_of_module)
    np.testing.assert_allclose(co.grad(lambda x: sum_of(fn(x)))(X), slopes(fn, X))
