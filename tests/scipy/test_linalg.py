"""scipy.linalg: what the conformance samples do not show."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co

linalg: Any = pytest.importorskip("scipy.linalg", reason="SciPy is not installed")

pytestmark = pytest.mark.exhaustive
import customop.scipy.linalg as ours  # noqa: E402  # after the test for SciPy

RNG = np.random.default_rng(4)
A = RNG.normal(size=(3, 3)) + 3 * np.eye(3)
B = RNG.normal(size=(3, 2))


def test_expm_is_the_frechet_derivative() -> None:
    """The derivative in a direction is SciPy's, computed by another algorithm."""
    direction = RNG.normal(size=(3, 3))
    want, slope = linalg.expm_frechet(A, direction)
    found = co.jvp(ours.expm, (A,), (direction,))
    np.testing.assert_allclose(found[0], want)
    np.testing.assert_allclose(found[1], slope)
    _, pullback = co.vjp(ours.expm, A)
    (pulled,) = pullback(direction)
    np.testing.assert_allclose(pulled, linalg.expm_frechet(A.T, direction)[1])


def test_triangle_is_all_that_is_read() -> None:
    """The gradient is zero in the triangle that a function does not read."""
    spd = A @ A.T + np.eye(3)
    for lower in (False, True):
        outside = np.triu if lower else np.tril
        for fn in (
            lambda a, k=lower: np.sum(ours.cholesky(a, k)),
            lambda a, k=lower: np.sum(ours.solve_triangular(a, B, lower=k)),
            lambda a, k=lower: np.sum(ours.solve(a, B, k, assume_a="pos")),
        ):
            found = co.grad(fn)(spd)
            assert np.any(found)
            assert not np.any(outside(found, 1 if lower else -1))
    unit = co.grad(lambda a: np.sum(ours.solve_triangular(a, B, unit_diagonal=True)))(A)
    assert not np.any(np.diag(unit))


def test_pivots_follow_the_rows() -> None:
    """Each row of a batch has its own permutation."""
    rows = np.stack([A, A[::-1], A[[1, 2, 0]]])
    p, low, up = co.vmap(ours.lu)(rows)
    np.testing.assert_allclose(p @ low @ up, rows)
    solved = co.vmap(lambda a: ours.lu_solve(ours.lu_factor(a), B))(rows)
    np.testing.assert_allclose(solved, np.linalg.solve(rows, np.stack([B] * 3)))
    gradient = co.grad(lambda a: np.sum(ours.lu_solve(ours.lu_factor(a), B)))
    want = co.grad(lambda a: np.sum(np.linalg.solve(a, B)))
    np.testing.assert_allclose(co.vmap(gradient)(rows), [want(a) for a in rows])


def test_rectangular_lu() -> None:
    """Other matrices than square ones have factors, and no derivative yet."""
    tall = RNG.normal(size=(4, 2))
    p, low, up = co.vmap(ours.lu)(tall[None])
    np.testing.assert_allclose((p @ low @ up)[0], tall)
    with pytest.raises(co.GradientError) as caught:
        co.grad(lambda a: np.sum(ours.lu(a)[1]))(tall)
    assert str(caught.value) == (
        "scipy.linalg.lu has derivatives of square matrices, got shape (4, 2)\n"
        "  do: pad the matrix to a square with a part of the identity"
    )


def test_shapes_are_checked() -> None:
    """Fake arrays are refused as SciPy refuses arrays."""
    for fn, x in (
        (ours.expm, np.zeros((2, 3))),
        (lambda a: ours.solve_triangular(a, np.zeros(2)), np.zeros((3, 3))),
        (ours.lu_factor, np.zeros(3)),
    ):
        with pytest.raises(co.ShapeError, match=r"scipy\.linalg"):
            co.eval_shape(fn, x)


def test_structures() -> None:
    """assume_a is honored or refused by name."""
    with pytest.raises(
        co.ArgumentError, match="assume_a='tridiagonal' is not supported"
    ):
        co.grad(lambda a: np.sum(ours.solve(a, B, assume_a="tridiagonal")))(A)
    np.testing.assert_allclose(
        co.vjp(lambda a: ours.inv(a, assume_a="sym", lower=True), A)[0],
        np.linalg.inv(np.tril(A) + np.tril(A, -1).T),
    )


def test_empty() -> None:
    """Systems without unknowns or without right sides."""
    for n, k in ((0, 2), (3, 0)):
        a, b = np.zeros((n, n)) + np.eye(n), np.zeros((n, k))
        out, pullback = co.vjp(ours.solve_triangular, a, b)
        assert out.shape == (n, k)
        assert [g.shape for g in pullback(out)] == [a.shape, b.shape]


def test_plain_arrays_are_scipys() -> None:
    """On plain arrays the functions are SciPy's own, options included."""
    spd = A @ A.T + np.eye(3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, args in {
            "solve": (A, B),
            "inv": (A,),
            "det": (A,),
            "solve_triangular": (A, B, "T"),
            "cholesky": (spd, True),
            "expm": (A,),
            "block_diag": (A, B),
            "toeplitz": (A[0], B[0]),
            "circulant": (A[0],),
            "hankel": (A[0],),
        }.items():
            np.testing.assert_array_equal(
                getattr(ours, name)(*args), getattr(linalg, name)(*args)
            )
    for mine, theirs in zip(ours.lu(A, True), linalg.lu(A, True), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    factor, want = ours.cho_factor(spd), linalg.cho_factor(spd)
    np.testing.assert_array_equal(factor[0], want[0])
    np.testing.assert_array_equal(ours.cho_solve(factor, B), linalg.cho_solve(want, B))
    np.testing.assert_array_equal(
        ours.lu_solve(ours.lu_factor(A), B, 1),
        linalg.lu_solve(linalg.lu_factor(A), B, 1),
    )


# ---- matrix equations, roots and banded systems ----


def _bands(lower: int, upper: int) -> Any:
    bands = np.random.default_rng(5).normal(size=(lower + upper + 1, 3))
    bands[upper] += 8.0
    return bands


SQUARE = A @ A.T + np.eye(3)
EQUATIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "solve_sylvester": (
        lambda m, *args: m.solve_sylvester(*args),
        (SQUARE, 2.0 * SQUARE[:2, :2], B),
    ),
    "sqrtm": (lambda m, a: m.sqrtm(a), (SQUARE,)),
    **{
        f"solve_banded {bands}": (
            lambda m, ab, b, bands=bands: m.solve_banded(bands, ab, b),
            (_bands(*bands), b),
        )
        for bands in ((1, 1), (0, 2), (2, 0), (0, 0), (3, 4))
        for b in (B if bands == (1, 1) else B[:, 0],)
    },
}


@pytest.mark.parametrize("name", EQUATIONS)
def test_equations(name: str) -> None:
    """Values are SciPy's, derivatives central differences, also twice, batched, compiled."""
    solve, args = EQUATIONS[name]
    args = tuple(np.array(x) for x in args)
    weights = np.random.default_rng(6).normal(size=np.shape(solve(linalg, *args)))

    def total(*args: Any) -> Any:
        return np.sum(weights * solve(ours, *args))

    def plain(*args: Any) -> Any:
        return np.sum(weights * solve(linalg, *args))

    every = tuple(range(len(args)))
    value, gradients = co.value_and_grad(total, argnums=every)(*args)
    np.testing.assert_allclose(value, plain(*args), 1e-12)
    for i, x in enumerate(args):
        for place in np.ndindex(x.shape):
            step = np.zeros(x.shape)
            step[place] = 1e-6
            ends = [(*args[:i], x + s, *args[i + 1 :]) for s in (step, -step)]
            slope = (plain(*ends[0]) - plain(*ends[1])) / 2e-6
            np.testing.assert_allclose(gradients[i][place], slope, 1e-5, 1e-7)
        batch = (*args[:i], np.stack([x, 1.1 * x]), *args[i + 1 :])
        dims: Any = tuple(0 if k == i else None for k in every)
        found = co.vmap(total, in_dims=dims)(*batch)
        want = [plain(*args[:i], scaled, *args[i + 1 :]) for scaled in batch[i]]
        np.testing.assert_allclose(found, want, 1e-11)
    forward = co.jacfwd(co.grad(total))(*args)
    np.testing.assert_allclose(co.hessian(total)(*args), forward, 1e-6, 1e-8)
    np.testing.assert_allclose(co.compile(total)(*args), plain(*args), 1e-12)
    for dtype in (np.float32, np.complex64, int):
        given = [np.round(x).astype(dtype) for x in args]
        out = co.compile(lambda *g: solve(ours, *g))(*given)
        want = solve(linalg, *given)
        assert (out.dtype, out.strides) == (want.dtype, want.strides)
        np.testing.assert_allclose(out, want, 1e-4)


def test_equations_that_do_not_fit() -> None:
    """Shapes are checked, and a real matrix with a complex root is refused."""
    calls: list[Callable[[Any], Any]] = [
        lambda a: ours.solve_sylvester(a, np.eye(2), np.ones((2, 3))),
        lambda a: ours.sqrtm(a[:2]),
        lambda a: ours.solve_banded((1, 2), a, np.ones(3)),
    ]
    for call in calls:
        with pytest.raises(co.ShapeError, match=r"scipy\.linalg"):
            co.eval_shape(call, A)
    with pytest.raises(co.GradientError, match="root of this real matrix is complex"):
        co.grad(lambda a: np.sum(ours.sqrtm(a)))(-np.eye(2))
    numbers = np.array([-1.0 + 0.5j, 2.0 - 1.0j])
    by_matrix = co.vjp(ours.sqrtm, np.diag(numbers))[1](np.eye(2, dtype=complex))[0]
    by_number = co.vjp(np.sqrt, numbers)[1](np.ones(2, complex))[0]
    np.testing.assert_allclose(np.diag(by_matrix), by_number)
