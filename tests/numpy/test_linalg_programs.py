"""Random programs of np.linalg, elementwise functions, transposes and batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import customop as co
from tests.conformance import checks

Step = Callable[[Any], Any]


def _t(x: Any) -> Any:
    return np.conj(np.swapaxes(x, -1, -2))


def _near_one(x: Any) -> Any:
    """A matrix near a diagonal one with the elements 2, 3, 4, ..., so all is regular."""
    n = x.shape[-1]
    size = np.linalg.norm(x, axis=(-2, -1), keepdims=True)
    return np.diag(np.arange(2.0, n + 2.0)) + 0.3 * x / (1.0 + size)


def _positive(x: Any) -> Any:
    """A Hermitian matrix with different, positive eigenvalues."""
    near = _near_one(x)
    return near @ _t(near)


def _scaled(number: Step) -> Step:
    """Matrices times a number of each matrix."""
    return lambda x: x * number(x)[..., None, None]


def _spectral(x: Any) -> Any:
    w, v = np.linalg.eigh(_positive(x))
    return (v * np.log(w)[..., None, :]) @ _t(v)


def _by_singular_values(full: bool) -> Step:
    def step(x: Any) -> Any:
        u, s, vh = np.linalg.svd(_near_one(x), full_matrices=full)
        return (u * np.sqrt(s)[..., None, :]) @ vh

    return step


def _first_vectors(x: Any) -> Any:
    """Projections on the first singular vectors of a matrix of fewer columns."""
    u, s, vh = np.linalg.svd(_near_one(x)[..., :-1])
    return (
        u[..., :1] @ _t(u[..., :1]) * (s[..., :1] + np.abs(vh[..., 0, :1]))[..., None]
    )


def _rotated(x: Any) -> Any:
    q, r = np.linalg.qr(_near_one(x))
    return r @ q


def _tall(x: Any) -> Any:
    q, r = np.linalg.qr(_near_one(x)[..., :-1], "complete")
    return q[..., :-1] @ r[..., :-1, :] @ np.ones((x.shape[-1] - 1, x.shape[-1]))


def _wide(x: Any) -> Any:
    q, r = np.linalg.qr(_near_one(x)[..., :-1, :])
    return _t(r) @ q @ r


def _general(x: Any) -> Any:
    w, v = np.linalg.eig(_near_one(x))
    found = (v * np.sqrt(w)[..., None, :]) @ np.linalg.inv(v)
    return found if x.dtype.kind == "c" else np.real(found)


def _sizes(x: Any) -> Any:
    """The sizes of the elements of eigenvectors, which have no phase."""
    return np.abs(np.linalg.eig(_near_one(x)).eigenvectors) * x


def _fitted(x: Any) -> Any:
    """Least squares: the projection on the space of some columns."""
    a = _near_one(x)[..., :-1]
    return a @ (np.linalg.pinv(a, rtol=None) @ x)


# Each keeps the shape of a stack of square matrices.
STEPS: dict[str, Step] = {
    "inv": lambda x: np.linalg.inv(_near_one(x)),
    "solve": lambda x: np.linalg.solve(_near_one(x), x),
    "solve vector": lambda x: np.linalg.solve(_near_one(x), x[..., :1]) * x,
    "solve shared": lambda x: np.linalg.solve(
        np.diag(np.arange(1.0, x.shape[-1] + 1)), x
    ),
    "det": _scaled(lambda x: 1.0 + 0.3 * np.linalg.det(x)),
    "det of one rank": _scaled(
        lambda x: 1.0 + np.linalg.det(x[..., :1] * x[..., :1, :])
    ),
    "slogdet": _scaled(lambda x: np.linalg.slogdet(_near_one(x)).logabsdet),
    "sign": _scaled(lambda x: np.linalg.slogdet(_near_one(x)).sign),
    "cholesky": lambda x: np.linalg.cholesky(_positive(x)),
    "cholesky upper": lambda x: np.linalg.cholesky(_positive(x), upper=True) @ x,
    "qr": _rotated,
    "qr complete": _tall,
    "qr wide": _wide,
    "eigh": _spectral,
    "eigh upper": lambda x: np.abs(np.linalg.eigh(_positive(x), "U")[1]) * x,
    "eigvalsh": lambda x: x * np.linalg.eigvalsh(_positive(x))[..., None, :],
    "eig": _general,
    "eigenvectors": _sizes,
    "svd": _by_singular_values(True),
    "svd thin": _by_singular_values(False),
    "svd first": _first_vectors,
    "svdvals": lambda x: x * np.linalg.svdvals(_near_one(x))[..., None],
    "pinv": lambda x: np.linalg.pinv(_near_one(x)),
    "projection": _fitted,
    "power": lambda x: np.linalg.matrix_power(np.tanh(x), 3),
    "inverse power": lambda x: np.linalg.matrix_power(_near_one(x), -2),
    "cond": _scaled(lambda x: np.linalg.cond(_near_one(x), "fro")),
    "nuclear": _scaled(lambda x: np.linalg.matrix_norm(_near_one(x), ord="nuc")),
    "spectral norm": _scaled(lambda x: np.linalg.norm(_near_one(x), 2, (-2, -1))),
    "vector norm": lambda x: (
        x / (1.0 + np.linalg.vector_norm(x, axis=-1, keepdims=True))
    ),
    "trace": _scaled(np.linalg.trace),
    "einsum": lambda x: np.einsum("...ij,...kj,...kk->...ik", x, x, x),
    "einsum lists": lambda x: np.einsum(x, [..., 0, 1], x, [..., 1, 1], [..., 1, 0]),
    "vecdot": lambda x: x * np.vecdot(x, x)[..., None],
    "matvec": lambda x: x * np.matvec(x, x[..., 0])[..., None],
    "vecmat": lambda x: x + np.vecmat(x[..., 0, :], x)[..., None, :],
    "multi_dot": lambda x: (
        x @ np.linalg.multi_dot([np.eye(x.shape[-1]), np.ones((x.shape[-1],) * 2)])
    ),
    "transpose": lambda x: np.swapaxes(x, -1, -2),
    "conjugate": np.conj,
    "tanh": lambda x: np.tanh(0.5 * x),
    "sine": lambda x: np.sin(np.real(x)) + x,
    "reversed": lambda x: x[..., ::-1, :],
}
if not hasattr(np, "matvec"):  # since NumPy 2.2
    del STEPS["matvec"], STEPS["vecmat"]


def _tamed(x: Any) -> Any:
    """Matrices of a size near one."""
    return x / (
        0.1 + 0.5 * np.sqrt(np.sum(np.abs(x) ** 2, axis=(-2, -1), keepdims=True))
    )


def program(names: tuple[str, ...]) -> Callable[[Any], Any]:
    """The function of some steps."""

    def fn(x: Any) -> Any:
        for name in names:
            x = _tamed(STEPS[name](x))
        return x

    return fn


def programs(count: int, first: int = 0) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Names of steps, and an input."""
    for seed in range(first, first + count):
        rng = np.random.default_rng(seed)
        names = tuple(rng.choice(list(STEPS), rng.integers(1, 4)).tolist())
        n, batch = rng.integers(2, 5), ((), (2,), (2, 1))[rng.integers(3)]
        x = rng.standard_normal((*batch, n, n))
        if rng.integers(2):
            x = x + 1j * rng.standard_normal(x.shape)
        yield names, x


def check(names: tuple[str, ...], x: Any, seed: int = 0) -> None:
    """Value, fake array, derivatives of both orders and batches of a program."""
    fn = program(names)
    expected = fn(x)
    out, pullback = co.vjp(fn, x)
    checks.assert_near(out, expected, 1e-11)
    fake = co.eval_shape(fn, x)
    assert (fake.shape, fake.dtype) == (expected.shape, expected.dtype)
    (g,), (t,) = checks.random_like([out], seed), checks.random_like([x], seed + 1)
    (grad,) = pullback(g)
    _, moved = co.jvp(fn, (x,), (t,))
    (slope,) = checks.difference(lambda x: [fn(x)], [x], [t])
    scale = 1.0 + float(np.max(np.abs(slope)))
    checks.assert_near(moved / scale, slope / scale, 1e-6)
    pairs = checks.pairing([g], [moved]), checks.pairing([grad], [t])
    checks.assert_near(pairs[0] / scale, pairs[1] / scale, 1e-8)
    _check_second(fn, x, g, seed)
    _check_batch(fn, x, seed)


def _check_second(fn: Any, x: Any, g: Any, seed: int) -> None:
    """Both orders of derivatives give the difference of the gradient."""
    gradient = lambda x: co.vjp(fn, x)[1](g)[0]
    (t,) = checks.random_like([x], seed + 2)
    (slope,) = checks.difference(lambda x: [gradient(x)], [x], [t])
    scale = 1.0 + float(np.max(np.abs(slope)))
    _, moved = co.jvp(gradient, (x,), (t,))
    checks.assert_near(moved / scale, slope / scale, 1e-5)
    first, pullback = co.vjp(gradient, x)
    (w,) = checks.random_like([first], seed + 3)
    pairs = checks.pairing([w], [moved]), checks.pairing(pullback(w), [t])
    checks.assert_near(pairs[0] / scale, pairs[1] / scale, 1e-7)


def _check_batch(fn: Any, x: Any, seed: int) -> None:
    """Rows of a batch, and their gradients, along any axis."""
    dim = seed % (x.ndim + 1)
    batch = np.stack([x, 0.5 * x, 0.2 * x[..., ::-1, :]], axis=dim)
    rows = [np.take(batch, i, axis=dim) for i in range(3)]
    out = co.vmap(fn, in_dims=dim, out_dims=dim)(batch)
    checks.assert_near(out, np.stack([fn(row) for row in rows], axis=dim), 1e-9)
    gradient = lambda x: co.vjp(fn, x)[1](np.ones(x.shape, fn(row).dtype))[0]
    row = rows[0]
    found = co.vmap(gradient, in_dims=dim)(batch)
    each = np.stack([gradient(row) for row in rows])
    scale = 1.0 + float(np.max(np.abs(each)))
    checks.assert_near(found / scale, each / scale, 1e-8)


@pytest.mark.exhaustive
@pytest.mark.parametrize("block", range(8))
def test_random_programs(block: int) -> None:
    """Ten programs of each block."""
    for seed, (names, x) in enumerate(programs(10, 10 * block)):
        check(names, x, seed)


@pytest.mark.parametrize("name", STEPS)
def test_each_step(name: str) -> None:
    """Each step by itself, of a real matrix."""
    check((name,), np.random.default_rng(3).standard_normal((3, 3)))
