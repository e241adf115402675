"""Samples of np.linalg: equations, determinants, factors, eigenvalues, singular values.

Vectors with an arbitrary phase or rotation appear only in functions that do not see it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import customop as co
from tests.conformance.samples import Sample

_rng = np.random.default_rng(41)


def _real(*shape: int) -> Any:
    return _rng.standard_normal(shape)


def _complex(*shape: int) -> Any:
    return _real(*shape) + 1j * _real(*shape)


def _whole(x: Any) -> Any:
    """Matrices whose singular values are far from each other and from zero."""
    k = min(x.shape[-2:])
    u, _, vh = np.linalg.svd(x, full_matrices=False)
    return (u * np.linspace(1.0, 2.5, k)) @ vh


def _hermitian(x: Any) -> Any:
    """Hermitian matrices with the eigenvalues 1, 2, 3, ..."""
    v = np.linalg.qr(x)[0]
    found = (v * np.arange(1.0, x.shape[-1] + 1)) @ _adjoint(v)
    return (found + _adjoint(found)) / 2


def _adjoint(x: Any) -> Any:
    return np.conj(np.swapaxes(x, -1, -2))


# Kind of number -> random arrays.
_KINDS: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("", _real),
    ("-complex", _complex),
)

_SHAPES: dict[str, tuple[tuple[int, ...], ...]] = {
    "": ((2, 2), (3, 2), (2, 3), (2, 3, 2)),
    "-complex": ((3, 2), (2, 3)),
}


def _samples(name: str, fn: Callable[..., Any], *args: Any) -> Sample:
    return Sample(name, fn, args, diff=tuple(range(len(args))))


# ---- equations and determinants ----

_SOLVE: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((2, 2), (2,)),
    ((2, 2), (2, 1)),
    ((2, 2, 2), (2,)),
    ((2, 2), (3, 2, 1)),
    ((2, 1, 2, 2), (3, 2, 1)),
    ((0, 0), (0, 2)),
)


def _det_gradient(x: Any) -> Any:
    return co.grad(lambda y: np.sum(np.linalg.det(y)))(x)


def _equations() -> list[Sample]:
    found = []
    for kind, make in _KINDS:
        a, b = _whole(make(2, 2)), _whole(make(2, 3, 3))
        for first, second in _SOLVE:
            args = (_whole(make(*first)), make(*second))
            found.append(
                _samples(f"solve{kind}-{first}-{second}", np.linalg.solve, *args)
            )
        for name, x in (("", a), ("-batch", b)):
            which = f"{kind}{name}"
            found += [
                _samples(f"inv{which}", np.linalg.inv, x),
                _samples(f"det{which}", np.linalg.det, x),
                _samples(f"slogdet{which}", np.linalg.slogdet, x),
            ]
        rank1 = make(3, 1) * make(1, 3)
        found += [
            _samples(f"det{kind}-singular", np.linalg.det, rank1),
            _samples(f"det{kind}-zero", np.linalg.det, 0 * rank1),
            _samples(f"det{kind}-identity", np.linalg.det, 0 * rank1 + np.eye(3)),
            _samples(f"det{kind}-empty", np.linalg.det, make(2, 0, 0)),
        ]
        for n in (-2, 5) if kind else (-2, 0, 1, 5):
            fn = lambda x, n=n: np.linalg.matrix_power(x, n)
            found.append(_samples(f"matrix_power{kind}-{n}", fn, a))
    a, b = _real(2, 3, 6), _real(2, 3)
    solve = lambda a, b: np.linalg.tensorsolve(a, b, axes=(0, 1))
    order = lambda x: np.linalg.solve(x.transpose(2, 0, 1), x[0])
    return [
        *found,
        Sample("solve-ordered", order, (_whole(_real(2, 2, 2)),), diff=(0,)),
        Sample("solve-mixed", np.linalg.solve, (np.eye(2), _complex(2)), diff=(0, 1)),
        Sample(
            "solve-integers",
            np.linalg.solve,
            (np.array([[1, 2], [3, 5]]), np.arange(2)),
        ),
        _samples("det-gradient", _det_gradient, _whole(_real(2, 3, 3))),
        Sample("inv-integers", np.linalg.inv, (np.array([[1, 2], [3, 4]]),)),
        Sample("tensorsolve", np.linalg.tensorsolve, (a, b), diff=(0, 1)),
        Sample("tensorsolve-axes", solve, (a, _real(6)), diff=(0, 1)),
        Sample("tensorinv", np.linalg.tensorinv, (a,), diff=(0,)),
        Sample("tensorinv-one", np.linalg.tensorinv, (_real(6, 3, 2), 1), diff=(0,)),
    ]


# ---- factors ----


def _rest_of_q(x: Any) -> Any:
    """The factors, and the space of the columns of Q after the first ones."""
    q, r = np.linalg.qr(x, "complete")
    rest = q[..., co.sizes.sym_min(*x.shape[-2:]) :]
    return q[..., : x.shape[-1]], r, rest @ _adjoint(rest)


def _factors() -> list[Sample]:
    found = []
    for kind, make in _KINDS:
        h = _hermitian(make(2, 3, 3))
        found += [
            _samples(f"cholesky{kind}", np.linalg.cholesky, h[0]),
            _samples(
                f"cholesky{kind}-upper", lambda x: np.linalg.cholesky(x, upper=True), h
            ),
        ]
        for shape in _SHAPES[kind]:
            x = _whole(make(*shape))
            r = lambda x: np.linalg.qr(x, "r")
            found += [
                _samples(f"qr{kind}-{shape}", np.linalg.qr, x),
                _samples(f"qr{kind}-{shape}-r", r, x),
                _samples(f"qr{kind}-{shape}-complete", _rest_of_q, x),
            ]
    return [*found, _samples("qr-empty", np.linalg.qr, np.ones((0, 2)))]


# ---- eigenvalues ----


def _without_phases(w: Any, v: Any) -> tuple[Any, ...]:
    """Eigenvalues, sizes of eigenvectors, and their outer products."""
    rows = np.swapaxes(v, -1, -2)
    return w, np.abs(v), rows[..., :, None] * np.conj(rows)[..., None, :]


def _eigen() -> list[Sample]:
    found = []
    for kind, make in _KINDS:
        h = _hermitian(make(2, 3, 3))
        for name, x in (("", h[0, :2, :2]), ("-batch", h)):
            which = f"{kind}{name}"
            upper = lambda x: _without_phases(*np.linalg.eigh(x, "U"))
            found += [
                _samples(
                    f"eigh{which}", lambda x: _without_phases(*np.linalg.eigh(x)), x
                ),
                _samples(f"eigh{which}-upper", upper, x),
                _samples(f"eigvalsh{which}", np.linalg.eigvalsh, x),
                _samples(
                    f"eigvalsh{which}-upper", lambda x: np.linalg.eigvalsh(x, "U"), x
                ),
            ]
        # A turn by a right angle has complex eigenvalues, and so have matrices near it.
        x = 0.3 * make(2, 3, 3) + np.array([[0, -1, 0], [1, 0, 0], [0, 0, 0.5]])
        found += [
            _samples(
                f"eig{kind}", lambda x: _without_phases(*np.linalg.eig(x)), x[0, :2, :2]
            ),
            _samples(
                f"eig{kind}-batch", lambda x: _without_phases(*np.linalg.eig(x)), x
            ),
            _samples(f"eigvals{kind}", np.linalg.eigvals, x),
        ]
    return [
        *found,
        _samples("eigh-vectors", np.linalg.eigh, _hermitian(_real(3, 3))),
    ]


# ---- singular values ----


def _without_turns(x: Any, full: bool) -> tuple[Any, ...]:
    """Values, sizes and products of singular vectors, and the spaces they leave out."""
    u, s, vh = np.linalg.svd(x, full_matrices=full)
    k = s.shape[-1]
    first, last = u[..., :k], vh[..., :k, :]
    rest_u, rest_v = u[..., k:], vh[..., k:, :]
    products = (first * np.sqrt(s)[..., None, :]) @ last
    spaces = (rest_u @ _adjoint(rest_u), _adjoint(rest_v) @ rest_v)
    return s, np.abs(first), np.abs(last), products, *(spaces if full else ())


def _svd() -> list[Sample]:
    found = []
    for kind, make in _KINDS:
        for shape in _SHAPES[kind]:
            x, which = _whole(make(*shape)), f"{kind}-{shape}"
            thin = lambda x: _without_turns(x, False)
            full = lambda x: _without_turns(x, True)
            found += [
                _samples(f"svd{which}", thin, x),
                _samples(f"svd{which}-full", full, x),
                _samples(f"svdvals{which}", np.linalg.svdvals, x),
                _samples(f"pinv{which}", np.linalg.pinv, x),
            ]
        h = _hermitian(make(3, 3)) - 1.8 * np.eye(3)
        values = lambda x: np.linalg.svd(x, compute_uv=False, hermitian=True)
        vectors = lambda x: _hermitian_products(x)
        found += [
            _samples(f"svd{kind}-hermitian", vectors, h),
            _samples(f"svd{kind}-hermitian-values", values, h),
            _samples(
                f"pinv{kind}-hermitian", lambda x: np.linalg.pinv(x, hermitian=True), h
            ),
        ]
    x = _whole(_real(3, 2))
    thin = lambda x: np.linalg.svd(x, full_matrices=False)
    tolerance = lambda x: np.linalg.pinv(x, rtol=None)
    cutoffs = lambda x: np.linalg.pinv(x, 1e-12 * np.abs(x[..., 0, 0]))
    return [
        *found,
        _samples("svd-vectors", thin, x),
        _samples("svd-empty", thin, np.ones((0, 2))),
        _samples("pinv-empty", np.linalg.pinv, np.ones((0, 2))),
        Sample("pinv-empty-integers", np.linalg.pinv, (np.ones((0, 2), int),)),
        _samples("pinv-rtol", tolerance, x),
        _samples("pinv-cutoffs", cutoffs, _whole(_real(2, 2, 3))),
    ]


def _hermitian_products(x: Any) -> Any:
    u, s, vh = np.linalg.svd(x, hermitian=True)
    return s, (u * np.sqrt(s)[..., None, :]) @ vh


# ---- least squares ----


def _solution(a: Any, b: Any) -> Any:
    return np.linalg.lstsq(a, b)


def _least_squares() -> list[Sample]:
    found = []
    for kind, make in _KINDS:
        for shape in ((2, 2), (3, 2), (2, 3)):
            a = _whole(make(*shape))
            for more in ((), (2,)):
                b = make(shape[0], *more)
                found.append(_samples(f"lstsq{kind}-{shape}-{b.ndim}", _solution, a, b))
        x = _whole(make(2, 3, 3))
        for p in (None, "fro") if kind else (None, -2, "fro", -1, np.inf):
            fn = lambda x, p=p: np.linalg.cond(x, p)
            found.append(_samples(f"cond{kind}-{p}", fn, x))
    rank2 = _real(3, 2) @ _real(2, 3)
    ranks = lambda x: np.linalg.matrix_rank(x, rtol=1e-6)
    return [
        *found,
        Sample("matrix_rank", np.linalg.matrix_rank, (np.stack([rank2, np.eye(3)]),)),
        Sample("matrix_rank-rtol", ranks, (np.stack([rank2, np.eye(3)]),)),
    ]


SAMPLES: list[Sample] = [
    *_equations(),
    *_factors(),
    *_eigen(),
    *_svd(),
    *_least_squares(),
]
