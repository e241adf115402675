"""Samples of customop.scipy.linalg, where SciPy is installed."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np

from tests.conformance.samples import Sample

_rng = np.random.default_rng(13)


def _matrix(*shape: int) -> Any:
    """Random matrices, far from singular."""
    found = _rng.normal(size=shape)
    return found + 3 * np.eye(shape[-2], shape[-1])


def _complex(*shape: int) -> Any:
    return _matrix(*shape) + 1j * _rng.normal(size=shape)


def _positive(n: int) -> Any:
    a = _rng.normal(size=(n, n))
    return a @ a.T + n * np.eye(n)


def _systems(la: Any) -> list[Sample]:
    a, b, v = _matrix(3, 3), _rng.normal(size=(3, 2)), _rng.normal(size=3)
    stack, wide = _matrix(2, 3, 3), _rng.normal(size=(2, 3, 2))
    z, w = _complex(3, 3), _rng.normal(size=3) + 1j * _rng.normal(size=3)
    spd = _positive(3)

    def sample(name: str, fn: Any, *args: Any) -> Sample:
        return Sample(f"linalg {name}", fn, args, diff=tuple(range(len(args))))

    found = [
        sample("solve", la.solve, a, b),
        sample("solve vector", la.solve, a, v),
        sample("solve stack", la.solve, stack, wide),
        sample("solve turned", lambda a, b: la.solve(a, b, transposed=True), a, v),
        sample("inv", la.inv, a),
        sample("det", la.det, a),
        sample("cholesky", la.cholesky, spd),
        sample("cholesky lower", lambda a: la.cholesky(a, True), spd),
        sample("cho_solve", lambda a, b: la.cho_solve(la.cho_factor(a), b), spd, v),
        sample(
            "cho_solve lower",
            lambda a, b: la.cho_solve(la.cho_factor(a, True), b),
            spd,
            b,
        ),
        sample("lu_solve", lambda a, b: la.lu_solve(la.lu_factor(a), b), a, v),
        sample(
            "lu_solve turned",
            lambda a, b: la.lu_solve(la.lu_factor(a), b, 1),
            a[::-1],
            b,
        ),
    ]
    found += [
        sample(f"solve {kind}", lambda a, b, k=kind: la.solve(a, b, assume_a=k), spd, v)
        for kind in ("sym", "pos", "diagonal", "upper triangular", "lower triangular")
    ]
    found.append(
        sample(
            "solve sym lower", lambda a, b: la.solve(a, b, True, assume_a="sym"), spd, v
        )
    )
    for trans in (0, 1, 2):
        for lower in (False, True):
            name = f"solve_triangular {trans} {lower}"
            fn = _triangular(la, trans, lower)
            found.append(sample(name, fn, a, b))
            found.append(sample(f"{name} complex", fn, z, w))
    found += [
        sample("solve_triangular stack", la.solve_triangular, stack, wide),
        sample("solve_triangular unit", _triangular(la, 0, True, True), a, v),
    ]
    return found


def _triangular(la: Any, trans: int, lower: bool, unit: bool = False) -> Any:
    return lambda a, b: la.solve_triangular(a, b, trans, lower, unit)


def _factors(la: Any) -> list[Sample]:
    a, z = _matrix(3, 3)[[2, 0, 1]], _complex(3, 3)
    stack = _matrix(2, 3, 3)[:, ::-1]
    tall, flat = _matrix(4, 2), _matrix(2, 4)
    found = [
        Sample("linalg lu", la.lu, (a,), diff=(0,)),
        Sample("linalg lu permuted", lambda a: la.lu(a, True), (a,), diff=(0,)),
        Sample(
            "linalg lu indices", lambda a: la.lu(a, p_indices=True), (a,), diff=(0,)
        ),
        Sample("linalg lu stack", lambda a: la.lu(a, True), (stack,), diff=(0,)),
        Sample("linalg lu complex", lambda a: la.lu(a, True), (z,), diff=(0,)),
        Sample("linalg lu tall", la.lu, (tall,)),
        Sample("linalg lu flat", la.lu, (flat,)),
        Sample("linalg lu_factor", la.lu_factor, (a,), diff=(0,)),
        Sample("linalg expm", la.expm, (0.3 * a,), diff=(0,)),
        Sample("linalg expm stack", la.expm, (0.3 * stack,), diff=(0,)),
        Sample("linalg expm complex", la.expm, (0.3 * z,), diff=(0,)),
    ]
    steep, steep_z = 3.0 * np.eye(3) + 0.3 * a, 3.0 * np.eye(3) + 0.3 * z
    right, bands = _matrix(3, 2), _matrix(4, 3)
    bands[1] += 4.0
    equation = np.eye(2) + 0.2 * _matrix(2, 2)
    for name, matrix in (("", steep), (" complex", steep_z)):
        args = (matrix, equation, right)
        found += [
            Sample(f"linalg sqrtm{name}", la.sqrtm, (matrix,), diff=(0,)),
            Sample(
                f"linalg solve_sylvester{name}", la.solve_sylvester, args, {}, (0, 1, 2)
            ),
        ]
    for name, b in (("", right), (" vector", right[:, 0]), (" complex", right * 1j)):
        solve = lambda ab, b: la.solve_banded((2, 1), ab, b)
        found += [Sample(f"linalg solve_banded{name}", solve, (bands, b), {}, (0, 1))]
    c, r = _rng.normal(size=3), _rng.normal(size=4)
    w = c + 1j * r[:3]
    found += [
        Sample("linalg toeplitz", la.toeplitz, (c,), diff=(0,)),
        Sample("linalg toeplitz row", la.toeplitz, (c, r), diff=(0, 1)),
        Sample("linalg toeplitz complex", la.toeplitz, (w,), diff=(0,)),
        Sample("linalg circulant", la.circulant, (c,), diff=(0,)),
        Sample("linalg hankel", la.hankel, (c,), diff=(0,)),
        Sample("linalg hankel row", la.hankel, (c, r), diff=(0, 1)),
        Sample("linalg block_diag", la.block_diag, (tall, c, flat), diff=(0, 1, 2)),
    ]
    return found


def _samples() -> list[Sample]:
    if importlib.util.find_spec("scipy") is None:
        return []
    la: Any = importlib.import_module("customop.scipy.linalg")
    return [*_systems(la), *_factors(la)]


SAMPLES: list[Sample] = _samples()
