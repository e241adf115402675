"""Statistics and ufunc methods where they warn, fail, or have delicate derivatives."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co

NAN = np.full((2, 3), np.nan)
X = np.array([[0.5, 1.5, -2.5], [3.5, -4.5, 5.5]])


def graded(fn: Callable[[Any], Any], x: Any) -> Any:
    """The result under vjp."""
    return co.vjp(fn, x)[0]


def batched(fn: Callable[[Any], Any], x: Any) -> Any:
    """The result for two rows, of which one has numbers."""
    return co.vmap(fn)(np.stack([np.ones_like(x), x]))[1]


ways = pytest.mark.parametrize("way", [graded, batched])

# Calls that warn for arrays of nan.
WARNING: dict[str, Callable[[Any], Any]] = {
    "nanmean": np.nanmean,
    "nanmean of an axis": lambda x: np.nanmean(x, axis=1),
    "nanvar": np.nanvar,
    "nanstd": lambda x: np.nanstd(x, axis=0, ddof=1),
    "nanmax": np.nanmax,
    "nanmin": lambda x: np.nanmin(x, axis=1),
    "nanmedian": np.nanmedian,
    "nanquantile": lambda x: np.nanquantile(x, 0.3, axis=1),
    "mean of nothing": lambda x: np.mean(x, where=False),
    "var of nothing": lambda x: np.var(x, where=False),
    "cov": lambda x: np.cov(x, ddof=3),
}


def noted(fn: Callable[..., Any], *args: Any) -> tuple[Any, set[Any]]:
    """The result, and the warnings but for those of divisions."""
    with warnings.catch_warnings(record=True) as found, np.errstate(all="ignore"):
        warnings.simplefilter("always")
        value = fn(*args)
    return value, {str(w.message).rstrip(".") for w in found}


@ways
@pytest.mark.parametrize("name", WARNING)
def test_warnings_are_numpys(way: Any, name: str) -> None:
    """What NumPy warns of, a transform warns of, with the same result."""
    expected, said = noted(WARNING[name], NAN)
    found, mine = noted(way, WARNING[name], NAN)
    np.testing.assert_array_equal(found, expected)
    assert said
    assert mine == said


@ways
@pytest.mark.parametrize("name", ["nanargmax", "nanargmin"])
def test_place_among_nan(way: Any, name: str) -> None:
    """The place of an extreme among nan alone is NumPy's error, in a row too."""
    with pytest.raises(ValueError, match="All-NaN slice encountered"):
        way(lambda x: getattr(np, name)(x, axis=1), NAN)


ERRORS: dict[str, Callable[[Any], Any]] = {
    "q above 1": lambda x: np.quantile(x, 1.5),
    "percentile below 0": lambda x: np.percentile(x, -1),
    "unknown method": lambda x: np.quantile(x, 0.5, method="none"),
    "weights of a continuous method": lambda x: np.quantile(x, 0.5, weights=np.ones(6)),
    "negative weights": lambda x: np.quantile(
        x, 0.5, method="inverted_cdf", weights=-np.ones((2, 3))
    ),
    "no weights": lambda x: np.quantile(
        x, 0.5, method="inverted_cdf", weights=np.zeros((2, 3))
    ),
    "cumulative_sum without axis": np.cumulative_sum,
    "ddof and correction": lambda x: np.nanvar(x, ddof=1, correction=1),
    "max of a mask": lambda x: np.max(x, where=x > 0),
    "fractional ddof": lambda x: np.cov(x, ddof=0.5),  # type: ignore[call-overload]
    "negative counts": lambda x: np.cov(x, fweights=[-1, 1, 1]),
    "two axes": lambda x: np.subtract.reduce(x, axis=(0, 1)),
    "no identity": lambda x: np.fmax.reduce(x[:, :0], axis=1),
    "no start": lambda x: np.add.reduce(x[:0], axis=0, initial=None),
    "accumulate along two axes": lambda x: np.add.accumulate(x, axis=None),
}


@ways
@pytest.mark.parametrize("name", ERRORS)
@np.errstate(invalid="ignore")  # weights over their sum of 0
def test_errors_are_numpys(way: Any, name: str) -> None:
    """What NumPy refuses, a transform refuses with the same class of error."""
    with pytest.raises(ValueError):
        ERRORS[name](X)
    with pytest.raises(ValueError):
        way(ERRORS[name], X)


# ---- derivatives ----


def test_deviation_of_equal_numbers() -> None:
    """The standard deviation of a constant has the derivative 0, with nan and masks too."""
    same = np.full(4, 1.5)
    holes = np.array([1.5, np.nan, 1.5])
    for fn, x in (
        (np.std, same),
        (np.nanstd, holes),
        (lambda x: np.std(x, where=[True, True, False, True]), same),
        (lambda x: np.hypot.reduce(x - 1.5), same),
    ):
        assert not co.grad(fn)(x).any()


def test_elements_that_are_left_out_have_no_gradient() -> None:
    """Neither nan nor masked elements disturb the gradients of the others."""
    holes = np.where(X > 0, X, np.nan)
    for fn in (np.nansum, np.nanmean, np.nanstd, np.nanvar, np.nanprod, np.nanmedian):
        for grads in (co.grad(fn)(holes), co.vmap(co.grad(fn))(holes[None])[0]):
            assert np.isfinite(grads).all()
            assert not grads[X < 0].any()
            assert grads[X > 0].any()
    masked = co.grad(lambda x: np.sum(np.sqrt(x), where=X > 0))
    with np.errstate(invalid="ignore"):
        assert np.nansum(masked(X)) == pytest.approx(np.sum(0.5 / np.sqrt(X[X > 0])))


@pytest.mark.parametrize("name", ["maximum", "minimum", "fmax", "fmin"])
def test_equal_extremes_share(name: str) -> None:
    """The extremes of a run share the gradient evenly, also among nan."""
    ufunc = getattr(np, name)
    x = np.array([2.0, 1.0, 2.0, 1.0, 1.0, 2.0])
    at = ufunc.reduce(x)
    share = (x == at) / (x == at).sum()
    np.testing.assert_allclose(co.grad(ufunc.reduce)(x), share)
    (grads,) = co.vjp(lambda x: ufunc.reduceat(x, [0, 4]), x)[1](np.ones(2))
    parts = [
        (p == ufunc.reduce(p)) / (p == ufunc.reduce(p)).sum() for p in (x[:4], x[4:])
    ]
    np.testing.assert_allclose(grads, np.concatenate(parts))


def test_products_with_zeros() -> None:
    """Products of runs have derivatives of every order where elements are zero."""
    x = np.array([0.0, 2.0, 3.0, 0.0, 0.0, 5.0])

    def runs(x: Any) -> Any:
        return np.multiply.reduceat(x, [0, 3])

    (grads,) = co.vjp(runs, x)[1](np.ones(2))
    np.testing.assert_array_equal(grads, [6, 0, 0, 0, 0, 0])
    second = co.jacfwd(co.grad(lambda x: np.sum(runs(x))))(x)
    expected = np.zeros((6, 6))
    expected[0, 1:3], expected[1:3, 0] = [3, 2], [3, 2]
    expected[3, 4] = expected[4, 3] = 5
    np.testing.assert_array_equal(second, expected)


def test_initial_has_a_gradient() -> None:
    """A traced start of a reduction has the derivative of one more element."""
    for fn, expected in ((np.prod, np.prod(X)), (np.sum, 1.0)):
        # NumPy looks for traced arrays, not for a traced start.
        grads = co.grad(lambda s, f=fn: f(X + 0 * s, initial=s))(np.float64(2.0))
        assert grads == pytest.approx(expected)


def test_quantile_has_a_gradient_by_q() -> None:
    """The slope by q is that between the two elements beside it, for rows of q too."""
    x = np.array([4.0, 1.0, 2.0])
    slopes = co.vmap(co.grad(lambda q: np.quantile(x, q)))(np.array([0.25, 0.9]))
    np.testing.assert_allclose(slopes, [2.0, 4.0])


@pytest.mark.parametrize("name", ["power", "arctan2", "subtract", "divide", "fmod"])
def test_reductions_go_from_left_to_right(name: str) -> None:
    """f(f(x0, x1), x2), along every axis: NumPy 2.4 may give f(x0, x2) for the first two."""
    ufunc, x = getattr(np, name), np.array([[1.5, 1.2, 0.7], [0.3, 0.9, 1.1]])
    expected = ufunc(ufunc(x[:, 0], x[:, 1]), x[:, 2])
    np.testing.assert_allclose(graded(lambda x: ufunc.reduce(x, 1), x), expected)
    np.testing.assert_allclose(graded(lambda x: ufunc.reduce(x.T), x), expected)
    found = graded(lambda x: ufunc.reduceat(x, [0, 2], axis=1), x)
    np.testing.assert_allclose(found[:, 0], ufunc(x[:, 0], x[:, 1]))


def test_accumulate_by_the_chain_rule() -> None:
    """Running results of any ufunc have the derivatives of the loop."""
    x = np.array([1.3, 0.7, 1.9, 0.4])

    def loop(x: Any, ufunc: Any) -> Any:
        found = [x[0]]
        for value in x[1:]:
            found.append(ufunc(found[-1], value))
        return np.stack(found)

    for name in ("power", "arctan2", "divide", "logaddexp2", "hypot", "float_power"):
        ufunc = getattr(np, name)
        expected = co.jacrev(lambda x, f=ufunc: loop(x, f))(x)
        for jacobian in (co.jacrev, co.jacfwd):
            np.testing.assert_allclose(
                jacobian(ufunc.accumulate)(x), expected, rtol=1e-12
            )


@ways
@pytest.mark.parametrize("function", [np.std, np.var, np.nanstd, np.nanvar])
@pytest.mark.parametrize("ddof", [np.nan, np.inf, -np.inf, 1.5])
@np.errstate(divide="ignore")
def test_ddof_is_any_number(way: Any, function: Any, ddof: float) -> None:
    """It is whatever NumPy divides by: nan and inf too."""
    expected, _ = noted(lambda x: function(x, axis=1, ddof=ddof), X)
    found, _ = noted(way, lambda x: function(x, axis=1, ddof=ddof), X)
    np.testing.assert_array_equal(found, expected)


# Conditions of an array of two rows, with the values that they choose.
PIECES: dict[str, tuple[Any, list[Any]]] = {
    "rows": ([np.array([True, False])], [2.0, -1.0]),
    "of each row": ([np.array([False, True])], [np.array([1.0, 2.0, 3.0])]),
    "one value each": ([X > 0], [np.arange(4.0)]),
    "without axes": ([np.array(True)], [7.0]),
    "several": ([X > 3, X < -1], [1, 2, -3]),
}


@pytest.mark.parametrize("name", PIECES)
def test_conditions_choose_as_in_numpy(name: str) -> None:
    """A condition may be of the first axes, and a value of all that it chooses."""
    conditions, values = PIECES[name]
    x = X[0] if name == "without axes" else X
    expected = np.piecewise(x, conditions, values)
    found = graded(lambda t: np.piecewise(t, conditions, values), x)
    np.testing.assert_array_equal(found, expected)
    rows = co.vmap(lambda t: np.piecewise(t, conditions, values))(np.stack([x, x]))
    np.testing.assert_array_equal(rows, [expected, expected])


def test_pieces_of_traced_values_have_derivatives() -> None:
    """The elements of a value that is written are summed; all others have none."""

    def loss(value: Any) -> Any:
        y = np.piecewise(
            np.ones(3) * value, [np.array([True, False, True])], [value, 4.0]
        )
        return np.sum(y * np.array([1.0, 10.0, 100.0]))

    assert co.grad(loss)(2.0) == 101.0
