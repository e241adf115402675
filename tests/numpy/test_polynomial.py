"""Polynomials, interpolation, histograms and parts of arrays: what depends on values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.polynomial import Polynomial, chebyshev, polynomial

import customop as co

_rng = np.random.default_rng(8)
X = _rng.standard_normal((2, 3))
P = np.array([2.0, -1.0, 0.5, 3.0])


def batched(fn: Callable[..., Any], x: Any) -> Any:
    """The first row of a batch of two equal rows."""
    rows = co.vmap(fn)(np.stack([x, x]))
    return rows[0] if isinstance(rows, np.ndarray) else [row[0] for row in rows]


# ---- polynomials ----


def test_product_has_a_derivative_by_a_leading_zero() -> None:
    """NumPy cuts leading zeros; the coefficients that stay depend on them."""
    p, q = np.array([0.0, 1.0, 2.0]), np.array([3.0, 4.0])
    jacobian = co.jacrev(np.polymul)(p, q)
    assert np.polymul(p, q).shape == (3,)
    np.testing.assert_array_equal(jacobian, [[4, 3, 0], [0, 4, 3], [0, 0, 4]])


def test_rows_keep_leading_zeros() -> None:
    """Under vmap the length of a product cannot depend on data."""
    p = np.array([0.0, 1.0, 2.0])
    np.testing.assert_array_equal(
        batched(lambda p: np.polymul(p, p), p), [0, 0, 1, 4, 4]
    )
    rest = batched(lambda p: np.polydiv(p, np.array([1.0, 2.0]))[1], p)
    np.testing.assert_array_equal(rest, [0.0])


@pytest.mark.parametrize(
    "p",
    [[1.0, -3.0, 2.0], [0.0, 2.0, -4.0, 1.0], [1.0, 2.0, 0.0], [2.0, 1 + 1j, 3 - 2j]],
)
def test_roots_move_as_differences_say(p: Any) -> None:
    """Also where coefficients are zero, first or last."""
    p = np.asarray(p)
    out, pullback = co.vjp(np.roots, p)
    np.testing.assert_array_equal(out, np.roots(p))
    assert out.dtype == np.roots(p).dtype
    moved = co.jvp(np.roots, (p,), (np.ones_like(p),))[1]
    np.testing.assert_allclose(
        np.sum(pullback(np.ones_like(out))[0]).real, np.sum(moved).real, rtol=1e-12
    )
    # By a leading zero one more root comes from far away; the others move.
    rest = np.where(np.arange(p.size) < np.flatnonzero(p)[0], 0, 1)
    rows = [np.sort_complex(np.roots(p + h * rest)) for h in (1e-6, -1e-6)]
    order = np.argsort(out + 0j)
    moved = co.jvp(np.roots, (p,), (rest.astype(p.dtype),))[1]
    np.testing.assert_allclose(moved[order], (rows[0] - rows[1]) / 2e-6, rtol=1e-6)


def test_sum_of_roots_by_a_leading_zero() -> None:
    """The root that stays moves with the coefficient of a root that is infinitely far."""
    p = np.array([0.0, 1.0, -1.0])  # h t t + t - 1 has the root 1 - h
    _, moved = co.jvp(np.roots, (p,), (np.array([1.0, 0.0, 0.0]),))
    np.testing.assert_allclose(moved, [-1.0])


@pytest.mark.parametrize("p", [[0.0, 0.0], [3.0], [0.0, 3.0], []])
def test_polynomials_without_roots(p: Any) -> None:
    """They have derivatives without elements."""
    found = co.jvp(np.roots, (np.asarray(p),), (np.ones(len(p)),))
    assert found[0].shape == found[1].shape == np.roots(p).shape == (0,)


def test_a_root_at_zero_moves_with_the_last_coefficient() -> None:
    """2 t + h has the root -h / 2; a root that is met twice moves infinitely fast."""
    for dtype in ("f8", "f4"):
        p = np.array([2.0, 0.0], dtype)
        out, moved = co.jvp(np.roots, (p,), (np.array([0.0, 1.0], dtype),))
        assert out.dtype == np.roots(p).dtype
        np.testing.assert_array_equal(out, [0.0])
        np.testing.assert_allclose(moved, [-0.5])
        assert co.grad(lambda p: np.sum(np.roots(p)))(p).tolist() == [0.0, -0.5]
    p = np.array([2.0, 0.0, 0.0])
    with np.errstate(all="ignore"):
        out, moved = co.jvp(np.roots, (p,), (np.ones(3),))
    np.testing.assert_array_equal(out, np.roots(p))
    assert not np.any(np.isfinite(moved))


def test_double_root_has_no_derivative() -> None:
    """It moves infinitely fast."""
    with np.errstate(all="ignore"):
        g = co.grad(lambda p: np.roots(p)[0].real)(np.array([1.0, -3.0, 2.0]))
        assert np.all(np.isfinite(g))
        g = co.grad(lambda p: np.roots(p)[0].real)(np.array([1.0, -2.0, 1.0]))
    assert np.all(np.abs(g) > 1e7) or not np.any(np.isfinite(g))


def test_roots_of_rows() -> None:
    """They are complex if one of all rows has complex roots; their number is one."""
    found = batched(np.roots, np.array([1.0, -3.0, 2.0]))
    assert found.dtype == np.float64
    assert found.tolist() == [2.0, 1.0]
    rows = np.array([[1.0, -3.0, 2.0], [1.0, 0.0, 1.0]])
    expected = np.stack([np.roots(row) for row in rows])
    assert co.vmap(np.roots)(rows).dtype == expected.dtype == np.complex128
    np.testing.assert_array_equal(co.vmap(np.roots)(rows), expected)
    with pytest.raises(ValueError, match="has 1 roots, not 2, since it begins with"):
        batched(np.roots, np.array([0.0, -3.0, 2.0]))


def test_product_of_conjugate_zeros_is_real() -> None:
    """As NumPy decides by the values."""
    z = np.array([1 + 2j, 1 - 2j, 3.0])
    out, pullback = co.vjp(np.poly, z)
    assert out.dtype == np.float64
    np.testing.assert_array_equal(out, np.poly(z))
    assert pullback(np.ones(4))[0].dtype == np.complex128
    assert batched(np.poly, z).dtype == np.float64
    assert co.vmap(np.poly)(np.stack([z, z + 1j])).dtype == np.complex128


def test_polynomial_of_a_matrix() -> None:
    """Its coefficients are the trace and the determinant, but for signs."""
    a = np.array([[2.0, 1.0], [1.0, 3.0]])
    g = co.grad(lambda a: np.poly(a)[2])(a)
    np.testing.assert_allclose(g, np.linalg.det(a) * np.linalg.inv(a).T, rtol=1e-13)


def test_poly1d_of_traced_coefficients() -> None:
    """The class of NumPy works on them, under grad."""

    def value(c: Any) -> Any:
        p = np.poly1d(c)
        return (p * p + p.deriv())(0.5) - (p.integ() + 1.0)(2.0)

    slopes = [
        (value(P + 1e-6 * unit) - value(P - 1e-6 * unit)) / 2e-6 for unit in np.eye(4)
    ]
    np.testing.assert_allclose(co.grad(value)(P), slopes, rtol=1e-8)


def test_fit_says_what_numpy_says() -> None:
    """Residuals, rank, covariance, and the warning about a bad condition."""
    x, y = np.arange(6.0), np.array([1.0, 3.0, 2.0, 5.0, 4.0, 6.0])
    for keywords in ({"full": True}, {"cov": True}, {"cov": "unscaled"}):
        expected = np.polyfit(x, y, 2, **keywords)  # type: ignore[call-overload]  # all kinds
        found: list[Any] = []

        def fit(y: Any, keywords: Any = keywords, found: Any = found) -> Any:
            found += [
                co.stop_gradient(v) for v in np.polyfit(x + 0 * y, y, 2, **keywords)
            ]
            return np.sum(y)

        co.grad(fit)(y)
        for mine, numpys in zip(found, expected, strict=True):
            np.testing.assert_allclose(mine, numpys, rtol=1e-10)
    with pytest.warns(np.exceptions.RankWarning) as seen:
        co.grad(lambda y: np.polyfit(np.ones(3) + 0 * y, y, 2)[0])(np.ones(3))
    assert seen[0].filename == __file__


def test_what_runs_of_numpy_polynomial() -> None:
    """Values of one polynomial by traced points; coefficients become plain arrays."""
    for fn in (polynomial.polyval, chebyshev.chebval):
        expected = fn(X, P)
        out, _ = co.vjp(lambda x, fn=fn: fn(x, P), X)
        np.testing.assert_allclose(out, expected, rtol=1e-15)
        with pytest.raises(co.DataDependentError, match="stop_gradient"):
            co.grad(lambda c, fn=fn: np.sum(fn(X, c)))(P)
    with pytest.raises(co.DataDependentError, match="stop_gradient"):
        co.grad(lambda c: Polynomial(c)(1.0))(P)


def test_points_in_a_row_and_roots_in_a_column() -> None:
    """NumPy pairs traced points with roots elementwise; this shape makes it right."""
    x, r = X[0], np.array([1.0, 2.0, 3.0, 4.0])
    expected = polynomial.polyvalfromroots(x, r)
    out, _ = co.vjp(lambda x: polynomial.polyvalfromroots(x[None], r[:, None]), x)
    np.testing.assert_allclose(out, expected, rtol=1e-15)


# ---- interpolation ----


def test_interpolation_of_special_values_is_numpys() -> None:
    """Points on knots, outside, nan and infinite; equal points; infinite values."""
    x = np.array([-1.0, 0.0, 0.5, 1.0, 1.5, 2.0, 3.0, np.nan, np.inf, -np.inf])
    for xp, fp in (
        ([0.0, 1.0, 2.0], [1.0, np.inf, 3.0]),
        ([0.0, 1.0, 2.0], [np.inf, np.inf, 3.0]),
        ([0.0, 1.0, 1.0, 2.0], [1.0, 2.0, 4.0, 3.0]),
        ([0.0, 1.0, 1.0], [1.0, 2.0, 4.0]),
        ([0.0, 1.0, 2.0], [np.nan, 2.0, 4.0]),
    ):
        with np.errstate(invalid="ignore"):
            expected = np.interp(x, xp, fp)
            found = batched(lambda x, xp=xp, fp=fp: np.interp(x, xp, fp), x)
        np.testing.assert_array_equal(found, expected)


def test_slope_on_a_knot_is_that_to_the_right() -> None:
    """At the last one it is that to the left, and outside it is 0."""
    xp, fp = np.array([0.0, 1.0, 3.0]), np.array([0.0, 2.0, 3.0])
    g = co.grad(lambda x: np.sum(np.interp(x, xp, fp)))(
        np.array([-1.0, 0.0, 1.0, 3.0, 4.0])
    )
    assert g.tolist() == [0.0, 2.0, 0.5, 0.5, 0.0]


# ---- histograms ----


def test_lengths_that_depend_on_data() -> None:
    """Under grad the places are known, in rows they are not."""
    places = np.array([0, 2, 2])
    g = co.grad(lambda w: np.bincount(places, w)[2])(np.ones(3))
    assert g.tolist() == [0.0, 1.0, 1.0]
    with pytest.raises(co.DataDependentError, match="minlength"):
        batched(np.bincount, places)
    assert batched(lambda x: np.bincount(x, minlength=4), places).tolist() == [
        1,
        0,
        2,
        0,
    ]
    with pytest.raises(ValueError, match="give minlength=3"):
        batched(lambda x: np.bincount(x, minlength=2), places)
    with pytest.raises(ValueError, match="negative"):
        batched(lambda x: np.bincount(x, minlength=2), -places)


def test_bins_that_a_method_chooses() -> None:
    """Their number is known under grad."""
    a = _rng.standard_normal(50)
    counts, edges = np.histogram(a, "fd")
    jacobian = co.jacrev(lambda a: np.histogram(a, "fd")[1])(a)
    assert jacobian.shape == (*edges.shape, 50)
    # The edges follow the smallest and the largest element.
    expected = np.linspace(1, 0, edges.size)
    np.testing.assert_allclose(jacobian[:, np.argmin(a)], expected, atol=1e-15)
    with pytest.raises(co.DataDependentError, match="give the number of bins"):
        batched(lambda a: np.histogram(a, "fd")[0], a)
    assert counts.sum() == 50


BAD_BINS: dict[str, Callable[[Any], Any]] = {
    "nan": lambda x: np.histogram(x * np.nan, 3)[0],
    "infinite range": lambda x: np.histogram(x, 3, (0.0, np.inf))[0],
    "range": lambda x: np.histogram(x, 3, (1.0, 0.0))[0],
    "order": lambda x: np.histogram(x, np.array([2.0, 1.0]))[0],
    "count": lambda x: np.histogram(x, 0)[0],
    "too many": lambda x: np.histogram(1.0 + 1e-16 * x, 3, (1.0, 1.0 + 3e-16))[0],
    "shape": lambda x: np.histogram(x, np.ones((2, 2)))[0],
    "dimensions": lambda x: np.histogramdd(x, (2, 2))[0],
    "weights": lambda x: np.histogram(x, 2, weights=x[:1])[0],
    "digits": lambda x: np.digitize(x, np.array([1.0, 3.0, 2.0])),
}


@pytest.mark.parametrize("name", BAD_BINS)
def test_bins_that_numpy_refuses(name: str) -> None:
    """Under grad and in rows, in NumPy's words."""
    with pytest.raises((ValueError, TypeError)) as numpys:
        BAD_BINS[name](X)
    words = str(numpys.value).split("[")[0].rstrip(".")
    for run in (batched, lambda fn, x: co.vjp(lambda x: fn(x) * 1.0 + np.sum(x), x)):
        with pytest.raises(type(numpys.value)) as ours:
            run(BAD_BINS[name], X)
        assert words in str(ours.value)


@pytest.mark.parametrize(("x", "bins"), [((), (1, 1)), ((3,), ())])
def test_edges_in_rows_that_x_lacks(x: tuple[int, ...], bins: tuple[int, ...]) -> None:
    """Kernel, fake kernel and rows of the operator refuse them alike."""
    op: Any = co.ops.np.digitize.default
    calls = (
        op,
        lambda *args: co.eval_shape(lambda x, bins: op(x, bins, False), *args[:2]),
    )
    for call in calls:
        with pytest.raises(co.ShapeError, match="np::digitize: x has shape"):
            call(np.zeros(x), np.zeros(bins), False)
    with pytest.raises(co.ShapeError, match="np::digitize: x has shape"):
        co.vmap(lambda x, bins: op(x, bins, False))(
            np.zeros((2, *x)), np.zeros((2, *bins))
        )


def test_counts_have_no_derivative() -> None:
    """A gradient through them is refused, not zero."""
    with pytest.raises(co.GradientError):
        co.grad(lambda x: np.histogram(x, 3)[0][0])(X)


# ---- parts of arrays ----


def test_pieces_are_computed_apart() -> None:
    """A function never sees the elements of the others, nor does its derivative."""

    def pieces(x: Any) -> Any:
        return np.sum(np.piecewise(x, [x > 0], [np.sqrt, lambda v: v * np.max(v)]))

    x = np.array([4.0, -2.0, 9.0, -1.0])
    np.testing.assert_allclose(co.grad(pieces)(x), [0.25, -1.0, 1 / 6, -4.0])
    with pytest.raises(co.DataDependentError, match=r"np\.where\(condition, f\(x\)"):
        batched(pieces, x)


def test_choices_that_do_not_exist() -> None:
    """NumPy's modes, and its errors."""
    choose: Any = np.choose
    rows, places = np.arange(6.0).reshape(2, 3), np.array([[0, -1, 3], [1, 2, -4]])
    for mode in ("wrap", "clip"):
        found = co.vmap(lambda r, mode=mode: choose(places, [r[0], r[1]], mode=mode))(
            rows.T
        )
        for i in range(3):
            expected = choose(places, [*rows[:, i]], mode=mode)
            np.testing.assert_array_equal(found[i], expected)
    for wrong, error in ((places, ValueError), (np.ones(2), TypeError)):
        with pytest.raises(error):
            choose(wrong, [*rows[0]])
        with pytest.raises(error):
            co.grad(lambda x, wrong=wrong: np.sum(choose(wrong, [x, x])))(1.0)
        with pytest.raises(error):
            batched(lambda x, wrong=wrong: choose(wrong, [x, x]), np.ones(()))


def test_complex_results_depend_on_values() -> None:
    """Real where NumPy's are; in rows they must be decided by the dtype."""
    assert co.grad(np.emath.sqrt)(4.0) == 0.25
    out, pullback = co.vjp(np.emath.sqrt, np.array([4.0, -4.0]))
    assert out.tolist() == [2.0, 2j]
    # The derivative of sqrt(x) is 1 / (2 sqrt(x)), here of its imaginary part, too.
    assert pullback(np.array([1.0, 1j]))[0].tolist() == [0.25, 0.25]
    with pytest.raises(co.DataDependentError, match=r"np\.emath\.log: whether"):
        batched(np.emath.log, X)
    np.testing.assert_array_equal(
        batched(np.emath.arccos, X + 0j), np.emath.arccos(X + 0j)
    )


def test_functions_that_numpy_calls_on_plain_elements() -> None:
    """np.vectorize and np.frompyfunc cannot pass traced values on, and say so."""
    with pytest.raises(co.DataDependentError, match="stop_gradient"):
        co.grad(lambda x: np.sum(np.vectorize(lambda v: v * 2)(x)))(X)
    twice = np.frompyfunc(lambda v: v * 2, 1, 1)
    with pytest.raises(co.MissingRuleError, match=r"the ufunc .* has no operator"):
        co.grad(lambda x: np.sum(twice(x)))(X)


# ---- JAX ----

TWINS: dict[str, tuple[Callable[[Any, Any], Any], Any]] = {
    "polyval": (lambda np, x: np.polyval(x[0], x), X),
    "polydiv": (lambda np, x: np.polydiv(x[0], x[1, :2])[0], X),
    "polyfit": (lambda np, x: np.polyfit(x.ravel(), x.ravel() ** 3, 2), X),
    "interp": (lambda np, x: np.interp(x, np.sort(x[0] * 2), x[1]), X),
    "period": (lambda np, x: np.interp(x, x[0] * 2, x[1], period=1.3), X),
    "bincount": (lambda np, x: np.bincount(np.array([0, 2, 0]), x[0], length=3), X),
    "histogram": (lambda np, x: np.histogram(x[0] + 0.0, 2, weights=x[1])[0], X),
}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", TWINS)
def test_hessian_is_that_of_jax(name: str) -> None:
    """First and second derivatives agree with an independent library."""
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    jax.config.update("jax_enable_x64", True)
    fn, x = TWINS[name]
    if name == "bincount":
        ours_fn = lambda np, x: np.bincount(np.array([0, 2, 0]), x[0])
    else:
        ours_fn = fn
    theirs = lambda x: jax.numpy.sum(fn(jax.numpy, x) ** 3)
    both = jax.jit(lambda x: (jax.grad(theirs)(x), jax.hessian(theirs)(x)))
    ours = lambda x: np.sum(ours_fn(np, x) ** 3)
    for transform, expected in zip((co.grad, co.hessian), both(x), strict=True):
        np.testing.assert_allclose(transform(ours)(x), expected, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("zeros", [[], [np.nan], [2.0, np.inf, 3.0], [np.nan, 1.0]])
def test_products_of_few_or_endless_zeros(zeros: list[float]) -> None:
    """The body and the kernel of the operator agree: nan stays behind its place."""
    x = np.array(zeros)
    found = co.vmap(co.ops.np.with_zeros.default)(x[None])[0]
    np.testing.assert_array_equal(found, co.ops.np.with_zeros.default(x))
