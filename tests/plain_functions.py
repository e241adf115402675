"""Functions of other packages under transforms, as they are: which work, and why others do not.

``python -m tests.plain_functions`` writes the table of ``examples/guide/scipy.md``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

import customop as co

X = np.array([1.1, 0.4, 2.3, 0.7])
M = np.random.default_rng(3).normal(size=(4, 4))
P = np.array([0.2, 0.3, 0.1, 0.4])
T = np.array([1, 0, 1, 1])
NODES = np.arange(4.0)

Call = Callable[[Any, Any], Any]
# Package and module -> function -> a call of it, with the module and four numbers.
CALLS: dict[str, dict[str, Call]] = {
    "numpy.polynomial.polynomial": {
        "polyval": lambda m, x: m.polyval(2.0, x),
        "polyder": lambda m, x: m.polyder(x),
        "polyint": lambda m, x: m.polyint(x),
        "polymul": lambda m, x: m.polymul(x, NODES),
        "polyfromroots": lambda m, x: m.polyfromroots(x),
        "polyfit": lambda m, x: m.polyfit(NODES, x, 1),
    },
    "numpy.polynomial.chebyshev": {
        "chebval": lambda m, x: m.chebval(0.3, x),
        "chebder": lambda m, x: m.chebder(x),
        "cheb2poly": lambda m, x: m.cheb2poly(x),
    },
    "scipy.special": {
        "logsumexp": lambda m, x: m.logsumexp(x),
        "softmax": lambda m, x: m.softmax(x),
        "log_softmax": lambda m, x: m.log_softmax(x),
        "multigammaln": lambda m, x: m.multigammaln(x[0] + 2.0, 2),
    },
    "scipy.stats": {
        "norm.logpdf": lambda m, x: m.norm.logpdf(x[0]),
        "norm.pdf": lambda m, x: m.norm.pdf(x[0], x[1], x[2]),
        "expon.logpdf": lambda m, x: m.expon.logpdf(x[0]),
        "gamma.logpdf": lambda m, x: m.gamma.logpdf(x[0], x[2]),
        "beta.logpdf": lambda m, x: m.beta.logpdf(x[1], x[2], 2.0),
        "t.logpdf": lambda m, x: m.t.logpdf(x[0], x[2]),
        "laplace.logpdf": lambda m, x: m.laplace.logpdf(x[0]),
        "multivariate_normal.logpdf": lambda m, x: m.multivariate_normal.logpdf(
            x, np.zeros(4), np.eye(4)
        ),
        "skew": lambda m, x: m.skew(x),
        "kurtosis": lambda m, x: m.kurtosis(x),
        "zscore": lambda m, x: m.zscore(x),
        "gmean": lambda m, x: m.gmean(x),
        "hmean": lambda m, x: m.hmean(x),
        "entropy": lambda m, x: m.entropy(x),
        "moment": lambda m, x: m.moment(x, 2),
        "sem": lambda m, x: m.sem(x),
        "pearsonr": lambda m, x: m.pearsonr(x, P)[0],
    },
    "scipy.integrate": {
        "trapezoid": lambda m, x: m.trapezoid(x),
        "simpson": lambda m, x: m.simpson(x),
        "cumulative_trapezoid": lambda m, x: m.cumulative_trapezoid(x),
        "solve_ivp": lambda m, x: m.solve_ivp(
            lambda t, y: -x[0] * y, (0.0, 1.0), x[1:]
        ).y[:, -1],
        "quad": lambda m, x: m.quad(lambda t: t * x[0], 0.0, 1.0)[0],
        "fixed_quad": lambda m, x: m.fixed_quad(lambda t: t * x[0], 0.0, 1.0)[0],
    },
    "scipy.interpolate": {
        "interp1d": lambda m, x: m.interp1d(NODES, x)(1.5),
        "CubicSpline": lambda m, x: m.CubicSpline(NODES, x)(1.5),
        "BarycentricInterpolator": lambda m, x: m.BarycentricInterpolator(NODES, x)(1.5),
        "RegularGridInterpolator": lambda m, x: m.RegularGridInterpolator((NODES,), x)(
            [1.5]
        ),
    },
    "scipy.signal": {
        "convolve": lambda m, x: m.convolve(x, x, method="direct"),
        "fftconvolve": lambda m, x: m.fftconvolve(x, x),
        "detrend": lambda m, x: m.detrend(x),
        "lfilter": lambda m, x: m.lfilter([1.0], [1.0, 0.5], x),
        "hilbert": lambda m, x: np.abs(m.hilbert(x)),
    },
    "scipy.fft": {
        "fft": lambda m, x: np.abs(m.fft(x)),
        "rfft": lambda m, x: np.abs(m.rfft(x)),
        "dct": lambda m, x: m.dct(x),
        "fftshift": lambda m, x: m.fftshift(x),
    },
    "scipy.linalg": {
        "norm": lambda m, x: m.norm(x),
        "solve": lambda m, x: m.solve(M + np.diag(x), x),
        "inv": lambda m, x: m.inv(M + np.diag(x)),
        "det": lambda m, x: m.det(M + np.diag(x)),
        "expm": lambda m, x: m.expm(np.diag(x)),
        "toeplitz": lambda m, x: m.toeplitz(x),
        "block_diag": lambda m, x: m.block_diag(x[None], x[None]),
        "eigh": lambda m, x: m.eigh(M + M.T + np.diag(x))[0],
        "svd": lambda m, x: m.svd(M * x, compute_uv=False),
        "qr": lambda m, x: np.abs(m.qr(M * x)[1]),
        "sqrtm": lambda m, x: m.sqrtm(np.diag(x) + 0.1),
        "pinv": lambda m, x: m.pinv(M * x),
    },
    "scipy.optimize": {
        "newton": lambda m, x: m.newton(
            lambda v: v**2 - x[0], 1.0, lambda v: 2.0 * v
        ),
        "brentq": lambda m, x: m.brentq(lambda v: v**2 - x[0], 0.0, 3.0),
        "rosen": lambda m, x: m.rosen(x),
        "minimize": lambda m, x: m.minimize(lambda v: np.sum((v - x) ** 2), X).x,
    },
    "scipy.spatial.distance": {
        "cdist": lambda m, x: m.cdist(M * x, M + 1.0),
        "pdist": lambda m, x: m.pdist(M * x),
        "euclidean": lambda m, x: m.euclidean(x, P),
        "cosine": lambda m, x: m.cosine(x, P),
        "correlation": lambda m, x: m.correlation(x, P),
        "cityblock": lambda m, x: m.cityblock(x, P),
    },
    "scipy.ndimage": {
        "gaussian_filter1d": lambda m, x: m.gaussian_filter1d(x, 1.0),
        "convolve1d": lambda m, x: m.convolve1d(x, [1.0, 2.0, 1.0]),
    },
    "sklearn.metrics": {
        "mean_squared_error": lambda m, x: m.mean_squared_error(P, x),
        "mean_absolute_error": lambda m, x: m.mean_absolute_error(P, x),
        "r2_score": lambda m, x: m.r2_score(P, x),
        "log_loss": lambda m, x: m.log_loss(T, x / 4.0),
        "brier_score_loss": lambda m, x: m.brier_score_loss(T, x / 4.0),
    },
    "sklearn.metrics.pairwise": {
        "euclidean_distances": lambda m, x: m.euclidean_distances(M * x, M + 1.0),
        "rbf_kernel": lambda m, x: m.rbf_kernel(M * x, M),
        "linear_kernel": lambda m, x: m.linear_kernel(M * x, M),
        "polynomial_kernel": lambda m, x: m.polynomial_kernel(M * x, M),
        "cosine_similarity": lambda m, x: m.cosine_similarity(M * x, M),
    },
    "sklearn.preprocessing": {
        "scale": lambda m, x: m.scale(x),
        "normalize": lambda m, x: m.normalize(M * x),
        "minmax_scale": lambda m, x: m.minmax_scale(x),
    },
    "statsmodels.tools.eval_measures": {
        "mse": lambda m, x: m.mse(x, P),
        "rmse": lambda m, x: m.rmse(x, P),
        "meanabs": lambda m, x: m.meanabs(x, P),
        "aic": lambda m, x: m.aic(x[0], 10, 2),
    },
    "statsmodels.tsa.stattools": {
        "acf": lambda m, x: m.acf(x, nlags=2, fft=False),
        "acovf": lambda m, x: m.acovf(x, fft=False),
    },
    "statsmodels.regression.linear_model": {
        "OLS": lambda m, x: m.OLS(x, M[:, :2]).fit().params,
    },
    "einops": {
        "rearrange": lambda m, x: m.rearrange(x, "(a b) -> b a", a=2),
        "reduce": lambda m, x: m.reduce(x, "(a b) -> b", "mean", a=2),
        "repeat": lambda m, x: m.repeat(x, "a -> a b", b=2),
        "einsum": lambda m, x: m.einsum(x, M, "i, i j -> j"),
        "pack": lambda m, x: m.pack([x[None], x[None]], "* a")[0],
    },
    "opt_einsum": {
        "contract": lambda m, x: m.contract("i,ij,j->", x, M, x),
        "contract_path": lambda m, x: m.contract("ij,jk,kl->il", M * x, M, M),
    },
}  # fmt: skip


def outcome(module: Any, call: Call) -> tuple[str, str]:
    """`"all"`, `"grad"`, `"wrong"` or `"not"`, and the error of what is refused."""
    plain = lambda x: float(np.sum(np.sin(np.asarray(call(module, x)))))
    fn = lambda x: np.sum(np.sin(co.array(call(module, x))))
    steps = 1e-5 * np.eye(4)
    slopes = [(plain(X + h) - plain(X - h)) / 2e-5 for h in steps]
    try:
        value, found = co.value_and_grad(fn)(X)
    except Exception as error:  # noqa: BLE001  # of the package, too
        return "not", cause(error)
    is_near = np.allclose(found, slopes, rtol=1e-3, atol=1e-5)
    if not (is_near and np.allclose(value, plain(X), rtol=1e-9)):
        return "wrong", ""
    try:
        others = [co.vmap(fn)(X[None])[0], co.compile(fn)(X)]
    except Exception as error:  # noqa: BLE001  # of the package, too
        return "grad", cause(error)
    return ("all" if np.allclose(others, plain(X), rtol=1e-9) else "wrong"), ""


# Words of an error -> why a function does not work, from the first that fits.
CAUSES = {
    "bool() of": "branch on values",
    "np.random": "draw random numbers",
    "float() of": "code in C that calls functions",
    "item() of": "ask for numbers",
    "may_share_memory": "ask where memory is",
    "no attribute": "code in C, by the layout of memory",
    "np.array()": "code in C",
    "must be numpy.ndarray": "code in C",
    "cannot be written in place": "write into a number",
}


def cause(error: Exception) -> str:
    """Why a function does not work, in few words."""
    text = str(error)
    found = [reason for words, reason in CAUSES.items() if words in text]
    return found[0] if found else f"{type(error).__name__}"


def outcomes(package: str) -> dict[str, tuple[str, str]]:
    """The outcome of each function of a module."""
    module = import_module(package)
    import_module("customop.scipy.special")
    before, co.config.adapt = co.config.adapt, True
    try:
        return {name: outcome(module, call) for name, call in CALLS[package].items()}
    finally:
        co.config.adapt = before


def row(package: str) -> str:
    """The row of a module in the table."""
    found = outcomes(package)
    cells = [f"`{package}`"]
    for kind in ("all", "grad", "not"):
        reasons: dict[str, list[str]] = {}
        for name, (how, why) in found.items():
            if how == kind:
                reasons.setdefault(why, []).append(f"`{name}`")
        texts = [f"{why}: {', '.join(names)}" for why, names in reasons.items()]
        cells.append("; ".join(texts).removeprefix(": "))
    assert "wrong" not in {how for how, _ in found.values()}
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.stdout.write(
        "| module | grad, vmap and compile | grad and jvp alone | not |\n"
        "| --- | --- | --- | --- |\n"
    )
    for name in CALLS:
        if find_spec(name.partition(".")[0]) is not None:
            sys.stdout.write(row(name) + "\n")
