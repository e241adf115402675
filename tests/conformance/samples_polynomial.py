"""Samples of polynomials, interpolation, histograms, and functions of parts of arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from customop import ops
from tests.conformance.samples import Sample

_rng = np.random.default_rng(97)


def _real(*shape: int) -> Any:
    size = _rng.uniform(0.2, 1.5, shape)
    return np.asarray(size * _rng.choice([-1.0, 1.0], shape))


def _complex(*shape: int) -> Any:
    return _real(*shape) + 1j * _real(*shape)


def _with(fn: Callable[..., Any], **keywords: Any) -> Callable[..., Any]:
    return lambda *args: fn(*args, **keywords)


_P, _Q = np.array([2.0, -1.0, 0.5, 3.0]), np.array([2.0, 1.5])
_LINE, _GRID = _real(5), _real(2, 3)
_WHOLE = np.array([3, 1, 4, 1])
# Unequal, so that no two elements are the smallest ones.
_POINTS = np.array([0.1, -0.7, 1.3, 0.5, -1.6])

# ---- polynomials ----


def _polynomials() -> list[Sample]:
    return [
        Sample("polyval", np.polyval, (_P, _GRID), diff=(0, 1)),
        Sample("polyval-number", np.polyval, (_P, _real()), diff=(0, 1)),
        Sample("polyval-complex", np.polyval, (_P, _complex(2)), diff=(0, 1)),
        Sample("polyval-columns", np.polyval, (_real(3, 2), _real(4, 2)), diff=(0, 1)),
        Sample("polyval-wide", np.polyval, (_real(3, 2), _real()), diff=(0, 1)),
        Sample("polyval-constant", np.polyval, (_P[:1], _LINE), diff=(0, 1)),
        Sample("polyval-empty", np.polyval, (_P[:0], _LINE), diff=(0, 1)),
        Sample("polyval-whole", np.polyval, (_WHOLE, _WHOLE)),
        Sample("polyval-mixed", np.polyval, (_WHOLE, _LINE), diff=(1,)),
        Sample("polyadd", np.polyadd, (_P, _Q), diff=(0, 1)),
        Sample("polyadd-short", np.polyadd, (_Q, _P), diff=(0, 1)),
        Sample("polysub", np.polysub, (_P, _Q), diff=(0, 1)),
        Sample("polysub-short", np.polysub, (_Q, _P), diff=(0, 1)),
        Sample("polymul", np.polymul, (_P, _Q), diff=(0, 1)),
        Sample("polydiv", np.polydiv, (_P, _Q), diff=(0, 1)),
        Sample("polydiv-number", np.polydiv, (_P, _Q[:1]), diff=(0, 1)),
        Sample("polydiv-longer", np.polydiv, (_Q, _P), diff=(0, 1)),
        Sample("polyder", np.polyder, (_P,), diff=(0,)),
        Sample("polyder-twice", _with(np.polyder, m=2), (_P,), diff=(0,)),
        Sample("polyint", np.polyint, (_P,), diff=(0,)),
        Sample(
            "polyint-constants",
            lambda p, k: np.polyint(p + 0 * k[0], 2, k),
            (_P, _real(2)),
            diff=(0, 1),
        ),
        # Under vmap the roots are complex, also where all of them are real.
        Sample("roots", np.roots, (_complex(4),), diff=(0,)),
        Sample("poly", np.poly, (_P,), diff=(0,)),
        Sample("poly-whole", np.poly, (_WHOLE,)),
        Sample(
            "guessed",
            lambda p: ops.np.guessed(p, np.less(p, 9.0), True, "a fact", "nothing"),
            (_P,),
            diff=(0,),
        ),
        Sample("vander", np.vander, (_LINE,), diff=(0,)),
        Sample(
            "vander-increasing",
            _with(np.vander, N=3, increasing=True),
            (_complex(2),),
            diff=(0,),
        ),
        Sample("vander-whole", np.vander, (_WHOLE.astype(np.int8),)),
        *_fits(),
    ]


def _fits() -> list[Sample]:
    x, y, w = _real(5), _real(5), np.abs(_real(5))
    return [
        Sample("polyfit", _with(np.polyfit, deg=2), (x, y), diff=(0, 1)),
        Sample(
            "polyfit-columns", _with(np.polyfit, deg=1), (x, _real(5, 2)), diff=(0, 1)
        ),
        Sample(
            "polyfit-weights",
            lambda x, y, w: np.polyfit(x, y, 1, w=w),
            (x, y, w),
            diff=(0, 1, 2),
        ),
        Sample(
            "polyfit-unscaled",
            _with(np.polyfit, deg=1, cov="unscaled"),
            (x, y),
            diff=(0, 1),
        ),
    ]


# ---- interpolation ----


def _interpolations() -> list[Sample]:
    xp, fp = np.array([-1.0, -0.2, 0.3, 1.1]), _real(4)
    return [
        Sample("interp", np.interp, (_POINTS, xp, fp), diff=(0, 1, 2)),
        Sample("interp-grid", np.interp, (_GRID, xp, fp), diff=(0, 1, 2)),
        Sample("interp-number", np.interp, (_real(), xp, fp), diff=(0, 1, 2)),
        Sample("interp-complex", np.interp, (_POINTS, xp, _complex(4)), diff=(0, 1, 2)),
        Sample(
            "interp-ends",
            lambda x, xp, fp, left: np.interp(x + 0 * left, xp, fp, left, 7),
            (_POINTS, xp, fp, _real()),
            diff=(0, 1, 2, 3),
        ),
        Sample(
            "interp-period",
            _with(np.interp, period=2.9),
            (_POINTS, xp[[2, 0, 3, 1]], fp),
            diff=(0, 1, 2),
        ),
        Sample("interp-one", np.interp, (_POINTS, xp[:1], fp[:1]), diff=(0, 1, 2)),
        Sample("interp-whole", np.interp, (_WHOLE, np.array([1, 3, 5]), _WHOLE[:3])),
    ]


# ---- histograms ----


def _histograms() -> list[Sample]:
    places = np.array([0, 2, 2, 1, 4])
    edges = np.array([-1.0, -0.2, 0.3, 2.0])
    weights = _real(5)
    return [
        Sample("bincount", _with(np.bincount, minlength=7), (places,)),
        Sample(
            "bincount-weights",
            _with(np.bincount, minlength=5),
            (places, weights),
            diff=(1,),
        ),
        Sample("digitize", np.digitize, (_POINTS, edges)),
        Sample("digitize-grid", _with(np.digitize, right=True), (_GRID, edges[::-1])),
        Sample("histogram", _with(np.histogram, bins=3), (_POINTS,), diff=(0,)),
        Sample(
            "histogram-weights",
            lambda x, w: np.histogram(x, 3, weights=w),
            (_POINTS, weights),
            diff=(0, 1),
        ),
        Sample(
            "histogram-edges",
            lambda x, e, w: np.histogram(x, e, weights=w),
            (_POINTS, edges, weights),
            diff=(1, 2),
        ),
        Sample(
            "histogram-density",
            _with(np.histogram, bins=3, density=True),
            (_POINTS,),
            diff=(0,),
        ),
        Sample(
            "histogram-range",
            lambda x, w: np.histogram(x, 3, range=(-1, 1), weights=w),
            (_POINTS, _complex(5)),
            diff=(0, 1),
        ),
        Sample("histogram-whole", _with(np.histogram, bins=2), (_WHOLE,)),
        Sample("histogram-same", np.histogram, (np.ones(3),)),
        Sample("histogram-empty", np.histogram, (np.ones(0),)),
        Sample("histogram_bin_edges", np.histogram_bin_edges, (_POINTS,), diff=(0,)),
        Sample(
            "histogram2d",
            lambda x, y, w: np.histogram2d(x, y, (2, 3), density=True, weights=w),
            (_POINTS, _LINE, np.abs(weights)),
            diff=(0, 1, 2),
        ),
        Sample("histogram2d-edges", np.histogram2d, (_POINTS, _LINE, edges)),
        Sample(
            "histogramdd",
            _with(np.histogramdd, bins=2, range=((-1, 1), None, (-2, 2))),
            (_real(4, 3),),
            diff=(0,),
        ),
    ]


# ---- parts of arrays ----


def _parts() -> list[Sample]:
    by_rows = lambda v: np.sort(v) * np.sum(v)
    values: Any = [1, 2]
    return [
        Sample(
            "apply_along_axis",
            lambda x: np.apply_along_axis(by_rows, 1, x),
            (_GRID,),
            diff=(0,),
        ),
        Sample(
            "apply_along_axis-outer",
            lambda x: np.apply_along_axis(lambda v: np.outer(v, v), 0, x),
            (_real(2, 2),),
            diff=(0,),
        ),
        Sample(
            "apply_along_axis-sum",
            lambda x: np.apply_along_axis(lambda v: np.sum(v), 1, x),
            (_real(2, 3, 2),),
            diff=(0,),
        ),
        Sample(
            "apply_over_axes",
            lambda x: np.apply_over_axes(np.sum, x, (0, -1)),
            (_real(2, 1, 3),),
            diff=(0,),
        ),
        Sample(
            "piecewise-values",
            lambda x: np.piecewise(x, [x < 0, x > 1], values),
            (_GRID,),
        ),
        Sample(
            "choose",
            lambda a, x, y: np.choose(a, [x, y]),
            (np.array([0, 1, 1]), _GRID, _real(3)),
            diff=(1, 2),
        ),
        Sample(
            "choose-wrap",
            lambda a, x, y: np.choose(a, [x, y], mode="wrap"),
            (np.array([-1, 4, 1]), _real(3), _real(3)),
            diff=(1, 2),
        ),
        Sample("emath", np.emath.sqrt, (_complex(3),), diff=(0,)),
        Sample("emath-power", np.emath.power, (_complex(3), _WHOLE[:3]), diff=(0,)),
        Sample("emath-logn", np.emath.logn, (_complex(3), _complex(3)), diff=(0, 1)),
    ]


SAMPLES: list[Sample] = [
    *_polynomials(),
    *_interpolations(),
    *_histograms(),
    *_parts(),
]
