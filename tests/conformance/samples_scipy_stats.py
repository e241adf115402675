"""Samples of customop.scipy.stats, where SciPy is installed."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np

from tests.conformance.samples import Sample

_rng = np.random.default_rng(23)

# Name -> range of the values, ranges of the shape parameters. An int is a parameter
# by which there is no derivative in closed form.
_CONTINUOUS: dict[str, tuple[Any, ...]] = {
    "norm": ((-2, 2),),
    "t": ((-2, 2), (2, 5)),
    "cauchy": ((-2, 2),),
    "laplace": ((0.2, 2),),
    "logistic": ((-2, 2),),
    "expon": ((0.5, 2),),
    "gamma": ((0.5, 2), (0.7, 3)),
    "chi2": ((0.5, 2), (1.5, 4)),
    "lognorm": ((0.5, 2), (0.5, 1)),
    "beta": ((0.5, 0.8), (0.7, 3), (0.7, 3)),
    "uniform": ((0.5, 0.8),),
}
# Name -> numbers, and ranges of the parameters.
_DISCRETE: dict[str, tuple[Any, ...]] = {
    "poisson": ([0.0, 2.0, 3.0], (0.5, 2)),
    "binom": ([0.0, 2.0, 3.0], [4.0, 5.0, 6.0], (0.2, 0.8)),
    "bernoulli": ([0.0, 1.0, 1.0], (0.2, 0.8)),
}
# Those of continuous distributions that are not the log of another method.
_LOGS = {
    **dict.fromkeys(("norm", "logistic", "lognorm", "gamma"), ("logcdf", "logsf")),
    "expon": ("logsf", "pdf"),
}
_WITHOUT = ("t", "gamma", "chi2", "beta")  # no derivative of cdf by the shapes


def _values(ranges: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(
        np.array(r) if isinstance(r, list) else _rng.uniform(r[0], r[1], 3)
        for r in ranges
    )


def _lines(stats: Any) -> list[Sample]:
    found = []
    for name, ranges in _CONTINUOUS.items():
        own = getattr(stats, name)
        args = (
            *_values(ranges),
            np.array([0.1, -0.05, 0.0]),
            _rng.uniform(0.8, 1.2, 3),
        )
        moving = tuple(range(len(args)))
        found.append(Sample(f"stats {name} logpdf", own.logpdf, args, diff=moving))
        steady = len(ranges) - 1 if name in _WITHOUT else 0
        moving = (0, *range(steady + 1, len(args)))
        for method in ("cdf", "sf", *_LOGS.get(name, ())):
            fn = getattr(own, method)
            found.append(Sample(f"stats {name} {method}", fn, args, diff=moving))
        quantiles = (_rng.uniform(0.2, 0.8, 3), *args[1:])
        for method in ("ppf", "isf"):
            fn = getattr(own, method)
            found.append(Sample(f"stats {name} {method}", fn, quantiles, diff=moving))
    return found


def _numbers(stats: Any) -> list[Sample]:
    found = []
    for name, ranges in _DISCRETE.items():
        own, args = getattr(stats, name), _values(ranges)
        for method in ("logpmf", "cdf", "sf"):
            fn = getattr(own, method)
            sample = Sample(f"stats {name} {method}", fn, args, diff=(len(args) - 1,))
            found.append(sample)
    return found


def _edges(stats: Any) -> list[Sample]:
    outside = np.array([-0.5, 0.3, 1.5])
    loc = np.zeros(3)
    found = [
        Sample(f"stats {name} outside {method}", getattr(own, method), args, diff=(0,))
        for name in ("beta", "uniform")
        for own in [getattr(stats, name)]
        for args in [(outside, *([2.0, 1.5] if name == "beta" else []), loc)]
        for method in ("pdf", "cdf", "sf")
    ]
    infinite = lambda x: stats.t.logpdf(x, np.inf)
    frozen = lambda x, loc, scale: stats.norm(loc, scale).logpdf(x)
    whole = lambda x: stats.norm.logpdf(x, scale=2)
    args = (outside, loc, np.ones(3))
    return [
        *found,
        Sample("stats t infinite", infinite, (outside,), diff=(0,)),
        Sample("stats norm frozen", frozen, args, diff=(0, 1, 2)),
        Sample("stats norm integers", whole, (np.arange(3),)),
        Sample("stats norm single", whole, (np.arange(3, dtype=np.float32),)),
        Sample(
            "stats norm scale out of range", stats.norm.cdf, (outside, loc, loc - 1.0)
        ),
        Sample("stats poisson between", stats.poisson.logpmf, (outside, loc + 1.0)),
        Sample(
            "stats norm quantile ends", stats.norm.ppf, (np.array([0.0, 1.0, 2.0]),)
        ),
    ]


def _many(stats: Any) -> list[Sample]:
    normal = stats.multivariate_normal
    x, mean = _rng.normal(size=(4, 3)), _rng.normal(size=3)
    root = np.tril(_rng.normal(size=(3, 3))) + 2 * np.eye(3)
    cov, diagonal = root @ root.T, _rng.uniform(0.5, 2, 3)
    return [
        Sample("stats multivariate", normal.logpdf, (x, mean, cov), diff=(0, 1, 2)),
        Sample("stats multivariate pdf", normal.pdf, (x, mean, cov), diff=(0, 1, 2)),
        Sample(
            "stats multivariate one", normal.logpdf, (x[0], mean, cov), diff=(0, 1, 2)
        ),
        Sample(
            "stats multivariate diagonal",
            normal.logpdf,
            (x, mean, diagonal),
            {},
            (0, 1, 2),
        ),
        Sample(
            "stats multivariate number", normal.logpdf, (x[0, 0], 1.0, 2.0), diff=(0,)
        ),
        Sample("stats multivariate line", normal.logpdf, (x[0],), {}, (0,)),
        Sample(
            "stats multivariate default",
            lambda x, cov: normal.logpdf(x, cov=cov),
            (x, cov),
            diff=(0, 1),
        ),
    ]


def _samples() -> list[Sample]:
    if importlib.util.find_spec("scipy") is None:
        return []
    stats: Any = importlib.import_module("customop.scipy.stats")
    return [*_lines(stats), *_numbers(stats), *_edges(stats), *_many(stats)]


SAMPLES: list[Sample] = _samples()
