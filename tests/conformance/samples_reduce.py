"""Samples of reductions, running reductions and sorting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from customop import ops
from tests.conformance.samples import Sample

_rng = np.random.default_rng(27)


def _spaced(*shape: int) -> Any:
    """Unsorted numbers, far from each other and from zero."""
    count = int(np.prod(shape))
    steps = _rng.permutation(count) - count // 2 + 0.5
    return (steps * 0.3 + _rng.uniform(-0.05, 0.05, count)).reshape(shape)


_X = _spaced(2, 3)
_Y = _spaced(2, 3, 4)
_ORDERED = _spaced(4, 2, 3).transpose(1, 2, 0)
_COMPLEX = _spaced(2, 3) + 1j * _spaced(2, 3)

# Keywords of the reductions of one or more axes.
_AXES: dict[str, dict[str, Any]] = {
    "all": {},
    "first": {"axis": 0},
    "last": {"axis": -1},
    "pair": {"axis": (0, -1)},
    "none": {"axis": ()},
    "kept": {"axis": 1, "keepdims": True},
    "all-kept": {"keepdims": True},
    "pair-kept": {"axis": (-1, 1), "keepdims": True},
}
_SMOOTH = (np.sum, np.mean, np.prod, np.var, np.std)
_EXTREMES = (np.max, np.min, np.ptp)


def _with(fn: Callable[..., Any], **keywords: Any) -> Callable[..., Any]:
    return lambda x: fn(x, **keywords)


def _reductions() -> list[Sample]:
    found = []
    for fn in (*_SMOOTH, *_EXTREMES):
        for which, keywords in _AXES.items():
            # Over no axes the deviation is 0, where its root has no slope.
            diff = () if which == "none" and fn is np.std else (0,)
            called = _with(fn, **keywords)
            found.append(Sample(f"{fn.__name__}-{which}", called, (_Y,), diff=diff))
        found.append(
            Sample(f"{fn.__name__}-ordered", _with(fn, axis=1), (_ORDERED,), diff=(0,))
        )
        found.append(Sample(f"{fn.__name__}-vector", fn, (_X[0],), diff=(0,)))
    return found


def _plain() -> list[Sample]:
    ties = np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])
    zeros = np.array([[0.0, 2.0, 0.0], [3.0, 0.0, 4.0]])
    whole = np.array([[3, 1, 2], [0, 5, 4]])
    mask = np.array([[True, False, True], [True, True, True]])
    found = [
        Sample("sum-0d", np.sum, (np.array(2.5),), diff=(0,)),
        Sample("sum-empty", _with(np.sum, axis=0), (np.ones((0, 3)),), diff=(0,)),
        Sample(
            "sum-no-rows-left", _with(np.sum, axis=1), (np.ones((0, 3)),), diff=(0,)
        ),
        Sample("sum-dtype", _with(np.sum, dtype=np.float64), (whole,)),
        Sample("sum-whole", np.sum, (whole,)),
        Sample("sum-int8", np.sum, (whole.astype(np.int8),)),
        Sample("sum-mask", _with(np.sum, axis=0), (mask,)),
        Sample("sum-method", lambda x: x.sum(axis=0), (_X,), diff=(0,)),
        Sample("mean-whole", np.mean, (whole,)),
        Sample("mean-method", lambda x: x.mean(-1), (_X,), diff=(0,)),
        Sample("sum-complex", _with(np.sum, axis=0), (_COMPLEX,), diff=(0,)),
        Sample("mean-complex", np.mean, (_COMPLEX,), diff=(0,)),
        Sample("prod-complex", _with(np.prod, axis=1), (_COMPLEX,), diff=(0,)),
        Sample("var-complex", _with(np.var, axis=1), (_COMPLEX,), diff=(0,)),
        Sample("std-complex", np.std, (_COMPLEX,), diff=(0,)),
        Sample("prod-zeros", _with(np.prod, axis=1), (zeros,), diff=(0,)),
        Sample("prod-all-zeros", np.prod, (zeros,), diff=(0,)),
        Sample("prod-empty", _with(np.prod, axis=0), (np.ones((0, 2)),), diff=(0,)),
        Sample("prod-whole", np.prod, (whole,)),
        Sample("prod-others", lambda x: ops.np.others(x, [1]), (_X,), diff=(0,)),
        Sample(
            "prod-moved-others",
            lambda x, t: ops.np.moved_others(x, t, [0]),
            (_X, _spaced(2, 3)),
            diff=(0, 1),
        ),
        Sample("var-ddof", _with(np.var, axis=0, ddof=1), (_Y,), diff=(0,)),
        Sample("std-ddof", _with(np.std, ddof=1.5), (_Y,), diff=(0,)),
        Sample("std-correction", _with(np.std, correction=1), (_Y,), diff=(0,)),
        Sample("max-whole", _with(np.max, axis=1), (whole,)),
        Sample("max-method", lambda x: x.max(axis=0), (_X,), diff=(0,)),
        Sample("amax", np.amax, (_X,), diff=(0,)),
        Sample("amin", _with(np.amin, axis=0), (_X,), diff=(0,)),
        Sample("max-complex", _with(np.max, axis=0), (_COMPLEX,), diff=(0,)),
        Sample("max-ties", _with(np.max, axis=1), (ties,)),
        Sample("add-reduce", np.add.reduce, (_X,), diff=(0,)),
        Sample("add-reduce-all", _with(np.add.reduce, axis=None), (_X,), diff=(0,)),
        Sample("multiply-reduce", _with(np.multiply.reduce, axis=1), (_X,), diff=(0,)),
        Sample("maximum-reduce", _with(np.maximum.reduce, axis=1), (_X,), diff=(0,)),
        Sample("minimum-reduce", np.minimum.reduce, (_X,), diff=(0,)),
        Sample("logical_or-reduce", np.logical_or.reduce, (mask,)),
        Sample("logical_and-reduce", np.logical_and.reduce, (mask,)),
        Sample("count_nonzero", np.count_nonzero, (whole,)),
        Sample(
            "count_nonzero-axis",
            _with(np.count_nonzero, axis=0, keepdims=True),
            (whole,),
        ),
        Sample("average", _with(np.average, axis=0), (_X,), diff=(0,)),
        Sample(
            "average-weights",
            lambda x, w: np.average(x, axis=1, weights=w),
            (_X, np.array([1.0, 2.0, 0.5])),
            diff=(0, 1),
        ),
        Sample(
            "average-wide",
            lambda x, w: np.average(x, weights=w),
            (_X, np.abs(_X)),
            diff=(0, 1),
        ),
        Sample("nansum", _with(np.nansum, axis=0), (np.where(_X > 0.5, np.nan, _X),)),
        Sample("nanmean", np.nanmean, (np.where(_X > 0.5, np.nan, _X),)),
        Sample("nansum-full", np.nansum, (_X,), diff=(0,)),
        Sample("nanmean-full", _with(np.nanmean, axis=1), (_X,), diff=(0,)),
    ]
    for fn in (np.any, np.all):
        for which, keywords in _AXES.items():
            called = _with(fn, **keywords)
            found.append(Sample(f"{fn.__name__}-{which}", called, (_Y > 0,)))
        found.append(Sample(f"{fn.__name__}-float", fn, (_X,), diff=(0,)))
    for fn in (np.argmax, np.argmin):
        for which in ("all", "first", "last", "kept", "all-kept"):
            called = _with(fn, **_AXES[which])
            found.append(Sample(f"{fn.__name__}-{which}", called, (_Y,), diff=(0,)))
        found.append(Sample(f"{fn.__name__}-ordered", _with(fn, axis=0), (_ORDERED,)))
    return found


def _running() -> list[Sample]:
    zeros = np.array([[0.0, 2.0, 0.0, 1.5], [3.0, 0.0, 4.0, 2.0]])
    found = []
    for fn in (np.cumsum, np.cumprod):
        name = fn.__name__
        found += [
            Sample(f"{name}-flat", fn, (_X,), diff=(0,)),
            Sample(f"{name}-first", _with(fn, axis=0), (_Y,), diff=(0,)),
            Sample(f"{name}-last", _with(fn, axis=-1), (_Y,), diff=(0,)),
            Sample(f"{name}-ordered", _with(fn, axis=1), (_ORDERED,), diff=(0,)),
            Sample(f"{name}-complex", _with(fn, axis=1), (_COMPLEX,), diff=(0,)),
            Sample(f"{name}-zeros", _with(fn, axis=1), (zeros,), diff=(0,)),
            Sample(f"{name}-whole", _with(fn, axis=0), (np.array([[1, 2], [3, 4]]),)),
            Sample(f"{name}-empty", _with(fn, axis=0), (np.ones((0, 2)),), diff=(0,)),
        ]
    return found


def _sorting() -> list[Sample]:
    ties = np.array([[2.0, 1.0, 2.0, 1.0, 0.0], [1.0, 1.0, 3.0, 3.0, 0.5]])
    return [
        Sample("sort", np.sort, (_Y,), diff=(0,)),
        Sample("sort-first", _with(np.sort, axis=0), (_Y,), diff=(0,)),
        Sample("sort-flat", _with(np.sort, axis=None), (_X,), diff=(0,)),
        Sample("sort-ordered", _with(np.sort, axis=1), (_ORDERED,), diff=(0,)),
        Sample("sort-whole", np.sort, (np.array([3, 1, 2]),)),
        Sample("sort-complex", np.sort, (_COMPLEX,), diff=(0,)),
        Sample("argsort", np.argsort, (_Y,), diff=(0,)),
        Sample("argsort-first", _with(np.argsort, axis=0), (_Y,)),
        Sample("argsort-flat", _with(np.argsort, axis=None), (_X,)),
        Sample("argsort-stable", _with(np.argsort, kind="stable"), (ties,)),
        Sample("argsort-ordered", _with(np.argsort, axis=0), (_ORDERED,)),
        Sample("median", np.median, (_X,), diff=(0,)),
        Sample("median-axis", _with(np.median, axis=-1), (_Y,), diff=(0,)),
        Sample("median-odd", _with(np.median, axis=1, keepdims=True), (_Y,), diff=(0,)),
        Sample("median-pair", _with(np.median, axis=(0, 2)), (_Y,), diff=(0,)),
    ]


def _descending() -> list[Sample]:
    """Orders from the largest element on, which NumPy has since 2.5; NaNs come last."""
    if np.lib.NumpyVersion(np.__version__) < "2.5.0":
        return []
    down = {"descending": True}
    ties = np.array([[2.0, 1.0, 2.0, 1.0, 0.0], [1.0, np.nan, 3.0, np.nan, 0.5]])
    stable = _with(np.argsort, stable=True, **down)
    return [
        Sample("sort-descending", _with(np.sort, **down), (_Y,), diff=(0,)),
        Sample("sort-down-flat", _with(np.sort, axis=None, **down), (_X,), diff=(0,)),
        Sample("sort-down-nan", _with(np.sort, **down), (ties,)),
        Sample("sort-down-complex", _with(np.sort, **down), (_COMPLEX,), diff=(0,)),
        Sample("sort-down-whole", _with(np.sort, **down), (np.array([3, 1, 2]),)),
        Sample("argsort-descending", _with(np.argsort, axis=0, **down), (_ORDERED,)),
        Sample("argsort-down-stable", stable, (ties,)),
        Sample("argsort-down-method", lambda x: x.argsort(0, **down), (_Y,)),
    ]


SAMPLES: list[Sample] = [
    *_reductions(),
    *_plain(),
    *_running(),
    *_sorting(),
    *_descending(),
]
