"""Functions of other packages, as they are, under the transforms.

They are written for NumPy's arrays and know nothing of this package. Their derivatives are
compared with differences, and with those that the packages compute themselves.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.polynomial import chebyshev

import customop as co

Client = Callable[[Any], Any]


def normal(*shape: int) -> Any:
    return np.random.default_rng(shape).normal(size=shape)


X = np.random.default_rng(5).uniform(0.2, 0.9, (3, 2))


def module(name: str) -> Any:
    """Import a module of an extra, or skip the test."""
    return pytest.importorskip(
        name, reason=f"{name} is in the extra 'dev'", exc_type=ImportError
    )


# ---- SciPy ----


def fixed_quad() -> Client:
    quad = module("scipy.integrate").fixed_quad
    return lambda x: quad(lambda t: np.sin(np.outer(x, t)), 0.0, 2.0, n=7)[0]


def gaussian_window() -> Client:
    windows = module("scipy.signal").windows
    return lambda x: windows.general_gaussian(7, 1.0 + x[0, 0], 2.0 + x[0, 1])


def pulse() -> Client:
    pulse = module("scipy.signal").gausspulse
    return lambda x: np.stack(pulse(x / 9.0, fc=3, retquad=True, retenv=True))


def runge_kutta() -> Client:
    """A step of the solver of `solve_ivp`, which writes its stages into a buffer."""
    rk = module("scipy.integrate._ivp.rk")
    pair = rk.RK45

    def step(y: Any) -> Any:
        slope = lambda t, y: np.sin(y) - t * y
        stages = np.empty((pair.n_stages + 1, *y.shape), like=y)
        made = rk.rk_step(
            slope, 0.5, y, slope(0.5, y), 0.3, pair.A, pair.B, pair.C, stages
        )
        return np.stack(made)

    return lambda x: step(x.ravel())


# ---- scikit-learn ----


def activations() -> Client:
    """The functions of its networks write into their argument."""
    base = module("sklearn.neural_network._base")
    module("customop.scipy")

    def run(x: Any) -> Any:
        for name in ("logistic", "tanh", "relu", "softmax"):
            x = x - 0.4
            base.ACTIVATIONS[name](x)
        return x

    return run


def kernel() -> Client:
    kernels = module("sklearn.gaussian_process.kernels")
    return lambda x: (kernels.DotProduct(x[0, 0]) ** 2 + kernels.WhiteKernel(0.1))(x)


def links() -> Client:
    link = module("sklearn._loss.link")
    module("customop.scipy")
    logit, half = link.LogitLink(), link.HalfLogitLink()
    return lambda x: half.inverse(logit.link(x)) * link.LogLink().inverse(x)


# ---- matplotlib ----


def hammer() -> Client:
    geo = module("matplotlib.projections.geo")
    return geo.HammerAxes.HammerTransform(1).transform_non_affine


def lambert() -> Client:
    geo = module("matplotlib.projections.geo")
    return geo.LambertAxes.LambertTransform(0.3, 0.2, 1).transform_non_affine


def mollweide() -> Client:
    """Longitudes and latitudes of places on the map."""
    geo = module("matplotlib.projections.geo")
    return geo.MollweideAxes.InvertedMollweideTransform(1).transform_non_affine


def asinh_scale() -> Client:
    return module("matplotlib.scale").AsinhTransform(0.5).transform_non_affine


def soft_light() -> Client:
    light = module("matplotlib.colors").LightSource()
    rgb = np.exp(-np.abs(normal(2, 3, 3)))
    return lambda x: light.blend_soft_light(rgb, x.T[:, :, None])


# ---- NumPy's own, in Python ----


def chebyshev_series() -> Client:
    return lambda x: chebyshev.chebval(x, [0.5, 1.0, -2.0, 0.3])


def poly1d() -> Client:
    return np.poly1d([1.0, -2.0, 0.3])


# ---- the array API standard ----


def extra(name: str, *args: Any, **kwargs: Any) -> Callable[[], Client]:
    """A function of array-api-extra, which finds the namespace of its arguments."""

    def client() -> Client:
        xpx = module("array_api_extra")
        return lambda x: getattr(xpx, name)(x, *args, **kwargs)

    client.__name__ = name
    return client


def updated() -> Client:
    xpx = module("array_api_extra")
    return lambda x: xpx.at(x * 1.0)[1:].multiply(xpx.at(x * x)[0].set(2.0)[1:])


CLIENTS = [
    *(chebyshev_series, poly1d),
    *(extra("cov"), extra("kron", X), extra("pad", 2), extra("sinc"), updated),
]
# Their packages come with the extra 'dev', as the exhaustive tier does.
LARGER = [
    *(fixed_quad, gaussian_window, pulse, runge_kutta),
    *(activations, kernel, links),
    *(hammer, lambert, mollweide, asinh_scale, soft_light),
]
each = pytest.mark.parametrize(
    "client",
    [*CLIENTS, *(pytest.param(c, marks=pytest.mark.exhaustive) for c in LARGER)],
    ids=lambda c: c.__name__,
)


def slope(fn: Client, x: Any, way: Any, step: float = 1e-5) -> Any:
    """The derivative in a direction, by differences of the fourth order."""
    near = fn(x + step * way) - fn(x - step * way)
    far = fn(x + 2 * step * way) - fn(x - 2 * step * way)
    return (8 * near - far) / (12 * step)


@each
def test_client_has_the_derivatives_of_its_differences(client: Any) -> None:
    """Forward mode, reverse mode, and one over the other."""
    fn, way = client(), normal(*X.shape)
    given = X.copy()
    value, tangent = co.jvp(fn, (given,), (way,))
    np.testing.assert_allclose(value, fn(X), rtol=1e-14)
    np.testing.assert_allclose(tangent, slope(fn, X, way), rtol=1e-7, atol=1e-8)
    np.testing.assert_array_equal(given, X)

    pull = normal(*np.shape(value))
    number = lambda x: np.sum(pull * fn(x) ** 2)
    gradient = co.grad(number)
    expected = slope(number, X, way)
    assert np.sum(gradient(X) * way) == pytest.approx(expected, rel=1e-7, abs=1e-8)
    np.testing.assert_allclose(
        co.jvp(gradient, (X,), (way,))[1], slope(gradient, X, way), rtol=1e-6, atol=1e-7
    )


@each
def test_client_runs_for_rows(client: Any) -> None:
    """vmap, and gradients of rows, are those of a loop."""
    fn, rows = client(), np.stack([X, X[::-1] ** 2, 0.9 * X])
    expected = np.stack([fn(row) for row in rows])
    np.testing.assert_allclose(co.vmap(fn)(rows), expected, rtol=1e-12)
    number = lambda x: np.sum(np.cos(fn(x)))
    found = co.vmap(co.grad(number))(rows)
    way = np.ones_like(X)
    for row, gradient in zip(rows, found, strict=True):
        wanted = slope(number, row, way)
        assert np.sum(gradient) == pytest.approx(wanted, rel=1e-7, abs=1e-8)


# ---- derivatives that packages compute themselves ----


@pytest.mark.exhaustive
@pytest.mark.parametrize("activation", ["logistic", "tanh", "relu"])
def test_network_has_the_gradient_of_its_own_backpropagation(activation: str) -> None:
    """The forward pass of scikit-learn's classifier, in place, for all weights at once."""
    networks = module("sklearn.neural_network")
    base = module("sklearn.neural_network._base")
    module("customop.scipy")
    x, labels = normal(8, 3), np.arange(8) % 3
    made = networks.MLPClassifier(
        (4, 5), activation=activation, alpha=0.0, random_state=1
    )
    network = made.partial_fit(x, labels, classes=[0, 1, 2])
    targets = np.eye(3)[labels]
    weights = (network.coefs_, network.intercepts_)

    def loss(weights: Any) -> Any:
        traced = copy.copy(network)
        traced.coefs_, traced.intercepts_ = weights
        layers = traced._forward_pass([x, None, None, None])
        return base.log_loss(targets, layers[-1])

    empty = lambda: [None] * 3
    expected = network._backprop(
        x, targets, None, [x, *empty()], *map(list, [empty()] * 3)
    )
    value, gradients = co.value_and_grad(loss)(weights)
    assert value == pytest.approx(expected[0])
    for found, wanted in zip(gradients, expected[1:], strict=True):
        for a, b in zip(found, wanted, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.exhaustive
def test_kernel_has_the_gradient_it_computes() -> None:
    """With respect to the logarithm of its parameter, as scikit-learn has it."""
    dot_product = module("sklearn.gaussian_process.kernels").DotProduct
    _, expected = dot_product(1.3)(X, eval_gradient=True)
    found = co.jacrev(lambda t: dot_product(np.exp(t))(X))(np.log(1.3))
    np.testing.assert_allclose(found, expected[..., 0], rtol=1e-12)


@pytest.mark.exhaustive
@pytest.mark.parametrize("projection", [hammer, lambert])
def test_equal_area_maps_keep_areas(projection: Any) -> None:
    """The determinant of the Jacobian of a place is the cosine of its latitude."""
    fn = projection()
    jacobians = co.vmap(co.jacrev(lambda place: fn(place[None])[0]))(X)
    areas = np.abs(np.linalg.det(jacobians))
    np.testing.assert_allclose(areas, np.cos(X[:, 1]), rtol=1e-12)


def test_series_has_the_derivative_of_its_coefficients() -> None:
    """Every order: `chebder` knows the derivatives of a Chebyshev series."""
    series, fn = [0.5, 1.0, -2.0, 0.3], chebyshev_series()
    for order in range(1, 4):
        fn = co.grad(fn)
        expected = chebyshev.chebval(X[:, 0], chebyshev.chebder(series, order))
        np.testing.assert_allclose(co.vmap(fn)(X[:, 0]), expected, rtol=1e-12)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["norm", "gumbel_r", "logistic", "maxwell"])
def test_density_is_the_derivative_of_the_distribution(name: str) -> None:
    """`_pdf` of SciPy's distributions by their `_cdf`, which calls its special functions."""
    module("customop.scipy")
    family = getattr(module("scipy.stats"), name)
    places = np.linspace(0.3, 2.0, 5)
    found = co.vmap(co.grad(family._cdf))(places)
    np.testing.assert_allclose(found, family.pdf(places), rtol=1e-10)
