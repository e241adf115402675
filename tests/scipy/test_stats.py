"""scipy.stats: values outside the support, parameters out of range, errors."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import customop as co

theirs: Any = pytest.importorskip("scipy.stats", reason="SciPy is not installed")

pytestmark = pytest.mark.exhaustive
from customop.scipy import stats  # noqa: E402  # after the test for SciPy

# Name -> shape parameters.
SHAPES: dict[str, dict[str, float]] = {
    "norm": {},
    "t": {"df": 3.0},
    "cauchy": {},
    "laplace": {},
    "logistic": {},
    "expon": {},
    "gamma": {"a": 2.3},
    "chi2": {"df": 3.0},
    "lognorm": {"s": 0.7},
    "beta": {"a": 2.2, "b": 1.7},
    "uniform": {},
    "poisson": {"mu": 2.5},
    "binom": {"n": 5.0, "p": 0.3},
    "bernoulli": {"p": 0.3},
}
# Parameters besides the shapes; those with a scale are for continuous distributions.
PLACES: list[dict[str, float]] = [
    {"loc": 1.0},
    {"loc": 0.3, "scale": 1.7},
    {"scale": -1.0},
]
NAN, INF = np.nan, np.inf
VALUES = np.array([-3.0, -0.5, 0.0, 0.2, 0.9, 1.0, 1.3, 3.0, 6.0, NAN, INF, -INF])
PROBABILITIES = np.array([-0.5, 0.0, 0.1, 0.7, 1.0, 1.2, NAN])


def _calls(name: str) -> list[tuple[str, dict[str, float]]]:
    """The methods of a distribution, with parameters in and out of range."""
    is_discrete = isinstance(getattr(stats, name), stats.Discrete)
    own = ("logpmf", "pmf") if is_discrete else ("logpdf", "pdf", "ppf", "isf")
    places = [p for p in PLACES if not (is_discrete and "scale" in p)]
    given = [{**SHAPES[name], **place} for place in places]
    found = [(m, p) for m in (*own, "cdf", "sf", "logcdf", "logsf") for p in given]
    if SHAPES[name]:
        broken = {**SHAPES[name], [*SHAPES[name]][-1]: -1.0}
        found += [(method, broken) for method in (*own, "cdf", "sf")]
    return found


@pytest.mark.parametrize("name", SHAPES)
def test_values_are_those_of_scipy(name: str) -> None:
    """Everywhere, traced or not: outside the support, at its ends, for nan."""
    for method, parameters in _calls(name):
        x = PROBABILITIES if method in ("ppf", "isf") else VALUES
        ours, scipys = getattr(stats, name), getattr(theirs, name)
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            want = getattr(scipys, method)(x, **parameters)

            def call(x: Any, *values: Any) -> Any:
                named = dict(zip(parameters, values, strict=True))  # noqa: B023
                return getattr(ours, method)(x, **named)  # noqa: B023

            wide = [np.full(x.shape, v) for v in parameters.values()]
            found = co.vmap(call)(x, *wide)
            moved, _ = co.jvp(lambda x: call(x, *wide), (x,), (x,))  # noqa: B023
        for actual in (found, moved):
            said = f"{method} {parameters}"
            np.testing.assert_allclose(actual, want, 1e-12, 1e-300, err_msg=said)


@pytest.mark.parametrize("name", ["gamma", "beta", "lognorm", "uniform", "expon"])
def test_gradients_outside_the_support_are_zero(name: str) -> None:
    """A formula that gives nan there does not spoil the gradient."""
    own, n = getattr(stats, name), len(SHAPES[name])
    for method in ("logpdf", "pdf", "cdf", "sf"):
        slope = co.grad(
            lambda x, method=method: np.sum(
                np.where(np.greater(x, 0), getattr(own, method)(x, *[2.0] * n), 0.0)
            )
        )
        assert np.isfinite(slope(np.array([-1.0, 0.5]))).all(), method
        assert slope(np.array([-1.0, 0.5]))[0] == 0.0, method


def test_parameters_are_named() -> None:
    """Parameters come by position or by name, as SciPy takes them; others are errors."""
    x = np.array([0.5])
    by_name = co.grad(
        lambda x: np.sum(stats.gamma.logpdf(x, a=2.0, loc=0.1, scale=3.0))
    )
    by_place = co.grad(lambda x: np.sum(stats.gamma.logpdf(x, 2.0, 0.1, 3.0)))
    assert by_name(x) == by_place(x)
    slope = co.grad(lambda x: np.sum(stats.gamma(2.0, scale=3.0).logpdf(x - 0.1)))
    np.testing.assert_allclose(slope(x), by_name(x), rtol=1e-14)
    with pytest.raises(co.ArgumentError, match="takes the parameters a, loc, scale"):
        co.grad(lambda x: np.sum(stats.gamma.logpdf(x)))(x)
    with pytest.raises(co.ArgumentError, match="got one value, loc, scal"):
        co.grad(lambda x: np.sum(stats.norm.logpdf(x, 1.0, loc=1.0, scal=2.0)))(x)


def _moments(name: str) -> list[str]:
    found = ["mean", "var", "std", "entropy", "median"]
    if name in ("poisson", "binom", "bernoulli"):
        found.remove("median")
    if name in ("poisson", "binom"):
        found.remove("entropy")
    return found


@pytest.mark.parametrize("name", SHAPES)
def test_moments_and_entropy(name: str) -> None:
    """Values are SciPy's, in and out of range; derivatives are central differences."""
    shape = np.array([0.5, 1.0, 1.5, 2.5, 99.0, 101.0, 251.0, -1.0, 0.0, NAN])
    shape = np.array([0.0, 0.2, 1.0, 1.1]) if name == "bernoulli" else shape
    for place in [{"loc": 0.3}, *PLACES[1:] * (name not in ("poisson", "binom"))]:
        if name == "bernoulli" and "scale" in place:
            continue
        parameters = {**SHAPES[name], **place}
        wide = [np.full(shape.shape, v) for v in parameters.values()]
        wide[0] = shape if SHAPES[name] else wide[0]
        for method in _moments(name):
            theirs_, ours_ = (
                getattr(getattr(m, name), method) for m in (theirs, stats)
            )

            def call(*values: Any, f: Any = ours_) -> Any:
                return f(**dict(zip(parameters, values, strict=True)))  # noqa: B023

            with np.errstate(all="ignore"):
                want = theirs_(**dict(zip(parameters, wide, strict=True)))
                found = co.vmap(call)(*wide)
            np.testing.assert_allclose(found, want, 1e-11, err_msg=f"{method} {place}")
            if place.get("scale") == -1.0:
                continue
            point = [np.float64(v) for v in parameters.values()]
            followed = range(len(point))
            if method == "median" and name in ("t", "gamma", "chi2", "beta"):
                followed = range(len(SHAPES[name]), len(point))
                with pytest.raises(co.NoDerivativeError, match="in closed form"):
                    co.grad(call)(*point)
            slopes: Any = co.grad(call, argnums=tuple(followed))(*point)
            for i, slope in zip(followed, slopes, strict=True):
                if name == "binom" and i == 0:
                    continue  # SciPy takes whole numbers alone
                if np.isnan(theirs_(**parameters)):
                    continue
                ends = [
                    [*point[:i], point[i] + h, *point[i + 1 :]] for h in (1e-6, -1e-6)
                ]
                high, low = (
                    theirs_(**dict(zip(parameters, e, strict=True))) for e in ends
                )
                np.testing.assert_allclose(slope, (high - low) / 2e-6, 1e-6, 1e-8)
            compiled = co.compile(call)(*point)
            np.testing.assert_allclose(compiled, theirs_(**parameters), 1e-12)
            assert co.eval_shape(call, *point).shape == ()


def test_methods_that_only_scipy_has() -> None:
    """They are refused by name, also of a distribution with its parameters."""
    with pytest.raises(
        co.UnknownNameError, match="poisson has no method 'entropy'"
    ) as e:
        co.grad(lambda mu: stats.poisson.entropy(mu))(2.0)
    assert e.value.do == "sum -pmf(k) * logpmf(k) over the values k"
    calls: list[Any] = [
        lambda: stats.norm.rvs(size=3),
        lambda: stats.norm(1.0).rvs(size=3),
        lambda: stats.multivariate_normal.rvs(),
        lambda: stats.binom.ppf(0.5, 3, 0.1),
        lambda: stats.multivariate_normal(cov=2.0).cdf(1.0),
    ]
    for call in calls:
        with pytest.raises(
            co.UnknownNameError, match=r"^scipy.stats.\w+ has no method"
        ):
            call()
    assert not hasattr(stats.norm, "other")
    assert stats.gamma(2.0, scale=3.0).mean() == 6.0
    assert co.grad(lambda a: stats.gamma(a, scale=3.0).var())(2.0) == 9.0


def test_the_entropy_of_the_multivariate_normal() -> None:
    """It is SciPy's for matrices, diagonals and numbers, and half the inverse is its slope."""
    root = np.array([[1.0, 0.0, 0.0], [0.4, 1.2, 0.0], [-0.3, 0.1, 0.8]])
    normal, cov = stats.multivariate_normal, root @ root.T
    mean = np.arange(3.0)
    for given in (cov, np.diag(cov), 2.0):
        want = theirs.multivariate_normal.entropy(mean, given)
        value, slope = co.value_and_grad(lambda c: normal.entropy(mean, c))(given)
        np.testing.assert_allclose(value, want, 1e-14)
        np.testing.assert_allclose(normal(mean, given).entropy(), want, 1e-14)
        inverse = np.linalg.inv(given) if np.ndim(given) == 2 else 1.0 / given
        # A number is three elements of the diagonal.
        want = 0.5 * inverse * (1 if np.ndim(given) else 3)
        np.testing.assert_allclose(_symmetric(slope), want, 1e-12)
    stacked = np.stack([cov, 2.0 * cov])
    want = [theirs.multivariate_normal.entropy(mean, c) for c in stacked]
    found = co.vmap(lambda c: normal.entropy(cov=c))(stacked)
    np.testing.assert_allclose(found, want, 1e-14)
    np.testing.assert_allclose(co.compile(normal.entropy)(mean, cov), want[0], 1e-14)
    with pytest.raises(co.ShapeError, match="a mean of 2 elements"):
        co.grad(lambda c: normal.entropy(np.ones(2), c))(cov)


def _symmetric(slope: Any) -> Any:
    """Spread the slope in the lower triangle over both."""
    return (slope + slope.T) / 2 if np.ndim(slope) == 2 else slope


def test_no_derivative_in_closed_form() -> None:
    """It raises, and is not 0."""
    with pytest.raises(co.NoDerivativeError, match="no derivative by 'a'"):
        co.grad(lambda a: stats.gamma.cdf(1.0, a))(2.0)


def test_multivariate_normal_says_what_does_not_fit() -> None:
    """Shapes are checked, and singular matrices are refused."""
    normal = stats.multivariate_normal
    with pytest.raises(co.ShapeError, match="a mean of 3 elements"):
        co.grad(lambda x: normal.logpdf(x, np.zeros(3), np.eye(2)))(np.ones(3))
    with pytest.raises(co.ShapeError, match="do not have 2 components"):
        co.grad(lambda x: normal.logpdf(x, np.zeros(2)))(np.ones(3))
    with pytest.raises(co.ArgumentError, match="allow_singular"):
        co.grad(lambda x: normal.logpdf(x, allow_singular=True))(np.ones(3))


def test_plain_code_of_scipy_follows() -> None:
    """SciPy's own distributions give way to these in code that is followed."""

    @co.traceable
    def loss(x: Any) -> Any:
        return theirs.gamma.logpdf(x, 2.0).sum() + theirs.norm.cdf(x).sum()

    x = np.array([0.5, 1.5])
    np.testing.assert_allclose(co.compile(loss)(x), loss(x), rtol=1e-14)
    want = 1.0 / x - 1.0 + theirs.norm.pdf(x)
    np.testing.assert_allclose(co.grad(loss)(x), want, rtol=1e-13)
