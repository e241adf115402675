"""Samples of statistics: without nan, of selected elements, quantiles, covariances."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.conformance.samples import Sample

_rng = np.random.default_rng(53)
_X = _rng.permutation(12).reshape(3, 4) * 0.31 - 1.6
_HOLES = np.where([[1, 0, 1, 1], [1, 1, 1, 1], [0, 0, 1, 1]], _X, np.nan)
_COMPLEX = _X + 1j * _rng.uniform(-1, 1, (3, 4))
_MASK = np.array([[True, True, False, True]])
_Q = np.array([0.15, 0.4, 0.83])


def _with(function: Callable[..., Any], **keywords: Any) -> Callable[..., Any]:
    def fn(*arrays: Any) -> Any:
        return function(*arrays, **keywords)

    return fn


def _named(name: str, fn: Callable[..., Any], *args: Any, **options: Any) -> Sample:
    """A sample that is differentiated by all its arrays of floats."""
    diff = [i for i, a in enumerate(args) if a.dtype.kind in "fc"]
    return Sample(name, fn, args, diff=tuple(diff), **options)


def _without_nan() -> list[Sample]:
    names = ("nanprod", "nanmax", "nanmin", "nanstd", "nanvar", "nanmedian")
    # Arrays with nan have no differences in the directions of nan.
    found = [
        Sample(f"{name}-holes", _with(getattr(np, name), axis=1), (_HOLES,))
        for name in (*names, "nancumsum", "nancumprod", "nanargmax", "nanargmin")
    ]
    found += [_named(name, _with(getattr(np, name), axis=0), _X) for name in names]
    return [
        *found,
        _named("nancumsum", _with(np.nancumsum, axis=1), _X),
        _named("nancumprod", _with(np.nancumprod, axis=1), _X),
        _named("nanargmax", _with(np.nanargmax, axis=1), _X),
        _named("nanvar-complex", _with(np.nanvar, axis=1, ddof=1), _COMPLEX),
        _named("nanmean-where", _with(np.nanmean, axis=1, where=_MASK), _X),
        _named("nanstd-where", _with(np.nanstd, keepdims=True, where=_MASK), _X),
        Sample("nanquantile-holes", _with(np.nanquantile, q=_Q, axis=1), (_HOLES,)),
        Sample("nanmedian-whole", np.nanmedian, (np.array([[3, 1], [2, 9]]),)),
    ]


def _deviations() -> list[Sample]:
    mean = np.array([[0.1], [-0.2], [0.3]])
    return [
        _named("var-mean", lambda x, m: np.var(x, axis=1, mean=m), _X, mean),
        _named("std-where", _with(np.std, axis=1, where=_MASK, correction=1), _X),
        _named("var-selected", _with(np.var, where=_MASK, keepdims=True), _COMPLEX),
        _named("cumulative_sum", _with(np.cumulative_sum, axis=1), _X),
        _named(
            "cumulative_sum-initial",
            _with(np.cumulative_sum, axis=0, include_initial=True),
            _X,
        ),
        _named(
            "cumulative_prod",
            _with(np.cumulative_prod, axis=1, include_initial=True),
            _X,
        ),
    ]


def _quantiles() -> list[Sample]:
    methods = ("linear", "inverted_cdf", "averaged_inverted_cdf", "weibull", "midpoint")
    weights = np.array([1.0, 0.5, 2.0, 0.3])
    found = [
        _named(f"quantile-{name}", _with(np.quantile, q=0.37, axis=1, method=name), _X)
        for name in (*methods, "closest_observation", "hazen", "lower", "nearest")
    ]
    return [
        _named("quantile", lambda x, q: np.quantile(x, q, axis=0), _X, _Q),
        *found,
        _named("percentile", _with(np.percentile, q=[20.0, 71.0], keepdims=True), _X),
        _named("nanquantile", lambda x, q: np.nanquantile(x, q, axis=1), _X, _Q),
        _named("nanpercentile", _with(np.nanpercentile, q=35.0, axis=(0, 1)), _X),
        _named(
            "quantile-weights",
            lambda x: np.quantile(
                x, _Q, axis=1, weights=weights, method="inverted_cdf"
            ),
            _X,
        ),
        Sample("quantile-whole", _with(np.quantile, q=0.4), (np.array([3, 1, 2]),)),
    ]


def _covariances() -> list[Sample]:
    counts, weights = np.array([1, 2, 1, 3]), np.array([0.5, 1.0, 0.8, 0.2])
    return [
        _named("cov", np.cov, _X),
        _named("cov-two", lambda x, y: np.cov(x, y, bias=True), _X[0], _X[1] ** 2),
        _named("cov-complex", _with(np.cov, rowvar=False), _COMPLEX),
        _named("cov-weights", lambda x, w: np.cov(x, aweights=w), _X, weights),
        _named("cov-counts", lambda x: np.cov(x, fweights=counts, ddof=0), _X),
        _named("corrcoef", np.corrcoef, _X),
        _named("corrcoef-columns", _with(np.corrcoef, rowvar=False), _X),
    ]


SAMPLES: list[Sample] = [
    *_without_nan(),
    *_deviations(),
    *_quantiles(),
    *_covariances(),
]
