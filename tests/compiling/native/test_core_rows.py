"""Fourier transforms and LAPACK in tables: bits, steps, errors and triangles."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.compiling.native_backend import ufunc_loops
from customop.compiling.native_backend.core_rows import _LAPACK
from tests.compiling.programs import observe

Function = Callable[..., Any]


def regular(x: Any) -> Any:
    """Return symmetric matrices with positive eigenvalues."""
    return x @ np.swapaxes(x, -1, -2) + 2 * np.eye(x.shape[-2])


FUNCTIONS: dict[str, Function] = {
    "fft": np.fft.fft,
    "ifft along the first axis": lambda x: np.fft.ifft(x, axis=0, norm="ortho"),
    "fft of two axes": lambda x: np.fft.fft2(x, axes=(0, 2)),
    "ifft of all axes": lambda x: np.fft.ifftn(x, norm="forward"),
    "rfft, odd": lambda x: np.fft.rfft(x, n=5),
    "rfft, longer": lambda x: np.fft.rfft(x, n=12, axis=1, norm="forward"),
    "irfft": lambda x: np.fft.irfft(x + 1j, n=7, axis=0),
    "rfft and back": lambda x: np.fft.irfft2(np.fft.rfft2(x) * 2),
    "convolution": lambda x: np.fft.irfftn(
        np.fft.rfftn(x) ** 2, x.shape, axes=(0, 1, 2)
    ),
    "det": lambda x: np.linalg.det(regular(x)),
    "slogdet": lambda x: np.linalg.slogdet(regular(x))[1],
    "sign": lambda x: np.linalg.slogdet(regular(x)[0])[0],
    "inv": lambda x: np.linalg.inv(regular(x)),
    "solve": lambda x: np.linalg.solve(regular(x), x),
    "solve for a vector": lambda x: np.linalg.solve(regular(x)[0], x[0, :, 0]),
    "solve for complex": lambda x: np.linalg.solve(regular(x), x * 1j),
    "cholesky": lambda x: np.linalg.cholesky(regular(x)),
    "upper cholesky": lambda x: np.linalg.cholesky(regular(x), upper=True),
    "eigh": lambda x: np.linalg.eigh(regular(x), "U")[1],
    "eigvalsh": lambda x: np.linalg.eigvalsh(regular(x)),
    "svd": lambda x: np.linalg.svd(x, full_matrices=False)[2],
    "whole svd": lambda x: np.linalg.svd(x)[0],
    "svdvals": lambda x: np.linalg.svd(x, compute_uv=False),
    "of integers": lambda x: np.linalg.det(regular(x).astype(int)),
}
LAYOUTS: dict[str, Function] = {
    "packed": lambda x: x,
    "turned": np.asfortranarray,
    "gaps": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "backward": lambda x: x[::-1],
    "of 32 bits": lambda x: x.astype(np.float32),
}


OF_LAYOUTS = [
    pytest.param(name, marks=[] if name == "packed" else pytest.mark.exhaustive)
    for name in LAYOUTS
]


@pytest.mark.parametrize("layout", OF_LAYOUTS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_rows_give_what_numpy_gives(name: str, layout: str) -> None:
    """No call of Python is left among the rows."""
    x = LAYOUTS[layout](np.random.default_rng(3).normal(size=(3, 4, 6)))
    fn = FUNCTIONS[name]
    compiled = co.compile(fn, backend="native")
    wanted = observe(fn, [x])
    for _ in range(2):
        assert observe(compiled, [x]) == wanted
    assert "call:" not in str(compiled.explain())


@pytest.mark.parametrize("how", ["ignore", "warn", "raise"])
def test_a_failed_factorization_raises_the_error_of_numpy(how: Any) -> None:
    """It says so by a flag, whatever the settings for errors are; then it works again."""
    a = regular(np.random.default_rng(0).normal(size=(2, 3, 3)))
    cholesky = co.compile(lambda x: np.linalg.cholesky(x) * 2.0, backend="native")
    inverse = co.compile(lambda x: np.linalg.inv(x) + 1.0, backend="native")
    with np.errstate(invalid=how), warnings.catch_warnings():
        warnings.simplefilter("error")
        expected = cholesky(a).tobytes(), inverse(a).tobytes()
        with pytest.raises(np.linalg.LinAlgError, match="not positive definite"):
            cholesky(-a)
        with pytest.raises(np.linalg.LinAlgError, match="Singular matrix"):
            inverse(a * 0.0)
        assert (cholesky(a).tobytes(), inverse(a).tobytes()) == expected


def test_a_loop_with_other_results_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its results are compared with those of the ufunc once in a process."""
    dtype = np.dtype(np.float64)
    right = ufunc_loops.loop_for(_LAPACK.inv, (dtype,))
    monkeypatch.setattr(ufunc_loops, "_known", {})
    monkeypatch.setattr(ufunc_loops, "_read", lambda *_: right)
    other = ufunc_loops.loop_for.__wrapped__
    assert other(_LAPACK.inv, (dtype,)) == right
    with pytest.raises(ufunc_loops.NotNative, match="other results"):
        other(_LAPACK.cholesky_lo, (dtype,))


# ---- triangles, with exact=False ----


def by_triangle(m: Any, b: Any) -> tuple[Any, ...]:
    """Return what is computed from a triangle, and a gradient through it."""
    lower, upper = np.linalg.cholesky(m), np.linalg.cholesky(m, upper=True)
    return (
        np.linalg.inv(lower),
        np.linalg.inv(lower.T),
        np.linalg.solve(lower, b),
        np.linalg.solve(lower.T, b),
        np.linalg.solve(upper, b),
        np.linalg.solve(lower, m),
    )


@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 31, 33, 65, 100, 321])
def test_triangles_are_not_factored_again(n: int) -> None:
    """Inverses and solutions fit the matrix, as closely as those of NumPy."""
    x = np.random.default_rng(n).normal(size=(n, n + 2))
    m, b = x @ x.T / n + np.eye(n), x[:, 0].copy()
    found = co.compile(by_triangle, backend="native", exact=False)(m, b)
    wanted = by_triangle(m, b)
    for k, (a, e) in enumerate(zip(found, wanted, strict=True)):
        assert (a.shape, a.dtype, a.strides) == (e.shape, e.dtype, e.strides)
        assert np.max(np.abs(a - e)) <= 1e-12 * np.max(np.abs(e)), k
    lower = np.linalg.cholesky(m)
    assert not np.any(np.signbit(np.triu(found[0])))
    assert np.max(np.abs(lower @ found[0] - np.eye(n))) < 1e-12
    assert np.max(np.abs(lower.T @ found[3] - b)) < 1e-12 * np.max(np.abs(b))
