"""Samples of convolutions, differences, and functions of one number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.conformance.samples import Sample

_rng = np.random.default_rng(83)


def _real(*shape: int) -> Any:
    size = _rng.uniform(0.2, 1.5, shape)
    return np.asarray(size * _rng.choice([-1.0, 1.0], shape))


def _complex(*shape: int) -> Any:
    return _real(*shape) + 1j * _real(*shape)


def _with(fn: Callable[..., Any], **keywords: Any) -> Callable[..., Any]:
    return lambda *args: fn(*args, **keywords)


_LINE, _GRID = _real(5), _real(2, 3, 4)
_ORDERED = _real(4, 2, 3).transpose(1, 2, 0)
_WHOLE = np.array([3, 1, 4, 1, 5])

# ---- convolutions ----


def _convolutions() -> list[Sample]:
    found = []
    for fn in (np.convolve, np.correlate):
        name = fn.__name__
        for mode in ("full", "same", "valid"):
            for a, v in ((5, 3), (2, 5), (3, 3)):
                called = _with(fn, mode=mode)
                args = (_real(a), _real(v))
                found.append(
                    Sample(f"{name}-{mode}-{a}-{v}", called, args, diff=(0, 1))
                )
            args = (_complex(4), _complex(3))
            called = _with(fn, mode=mode)
            found.append(Sample(f"{name}-{mode}-complex", called, args, diff=(0, 1)))
        found += [
            Sample(f"{name}-default", fn, (_real(2), _complex(3)), diff=(0, 1)),
            Sample(f"{name}-whole", fn, (_WHOLE, np.array([2, 1]))),
            Sample(f"{name}-mixed", fn, (_WHOLE, _real(2)), diff=(1,)),
            Sample(f"{name}-strided", fn, (_LINE[::-2], _real(6)[::3]), diff=(0, 1)),
            Sample(f"{name}-mask", fn, (_WHOLE > 1, _WHOLE[:2] > 1)),
        ]
    number = Sample("convolve-number", np.convolve, (_LINE, _real()), diff=(0, 1))
    return [*found, number]


# ---- differences ----


def _diffs() -> list[Sample]:
    calls: dict[str, tuple[Any, dict[str, Any]]] = {
        "line": (_LINE, {}),
        "twice": (_GRID, {"n": 2}),
        "axis": (_GRID, {"axis": 0}),
        "thrice": (_LINE, {"n": 3}),
        "all": (_LINE, {"n": 5}),
        "too-many": (_LINE, {"n": 7}),
        "zero": (_LINE, {"n": 0}),
        "ordered": (_ORDERED, {"axis": 1}),
        "ends": (_GRID, {"prepend": 0.0, "append": 2}),
        "empty": (np.ones((0, 3)), {}),
        "empty-axis": (np.ones((0, 3)), {"axis": 0}),
    }
    found = [
        Sample(f"diff-{name}", _with(np.diff, **keywords), (x,), diff=(0,))
        for name, (x, keywords) in calls.items()
    ]
    return [
        *found,
        Sample("diff-mask", np.diff, (_WHOLE > 2,)),
        Sample("diff-whole", np.diff, (_WHOLE.astype(np.uint8),)),
        Sample(
            "diff-traced-ends",
            lambda x, first, end: np.diff(x + 0 * end, 1, -1, first, end),
            (_GRID, _real(2, 3, 2), _real()),
            diff=(0, 1, 2),
        ),
        Sample("ediff1d", np.ediff1d, (_GRID,), diff=(0,)),
        Sample("ediff1d-ends", np.ediff1d, (_GRID, _real(2), _real()), diff=(0, 1, 2)),
        Sample("ediff1d-short", np.ediff1d, (_LINE[:1],), diff=(0,)),
        Sample("ediff1d-whole", _with(np.ediff1d, to_end=7), (_WHOLE,)),
    ]


def _gradients() -> list[Sample]:
    places = np.array([0.0, 0.5, 2.0, 2.25])
    calls: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
        "line": (np.gradient, (_LINE,)),
        "grid": (np.gradient, (_GRID,)),
        "axis": (_with(np.gradient, axis=1), (_GRID,)),
        "axes": (_with(np.gradient, axis=(2, 0)), (_GRID,)),
        "second": (_with(np.gradient, edge_order=2), (_LINE, _real())),
        "step": (_with(np.gradient, axis=1), (_GRID, _real())),
        "places": (_with(np.gradient, axis=-1), (_GRID, places)),
        "places-second": (
            _with(np.gradient, axis=-1, edge_order=2),
            (_GRID, places),
        ),
        "both": (_with(np.gradient, axis=(0, 2)), (_GRID, _real(), places)),
        "ordered": (_with(np.gradient, axis=0), (_ORDERED,)),
        "complex": (np.gradient, (_complex(4),)),
        "two": (np.gradient, (_LINE[:2],)),
    }
    found = [
        Sample(f"gradient-{name}", fn, args, diff=tuple(range(len(args))))
        for name, (fn, args) in calls.items()
    ]
    even = lambda f: np.gradient(f, [0, 2, 4, 6, 8])
    return [
        *found,
        Sample("gradient-whole", np.gradient, (_WHOLE,)),
        Sample("gradient-even", even, (_LINE,), diff=(0,)),
    ]


def _areas() -> list[Sample]:
    places = np.array([0.0, 0.5, 2.0, 2.25])
    return [
        Sample("trapezoid", np.trapezoid, (_GRID,), diff=(0,)),
        Sample("trapezoid-places", np.trapezoid, (_GRID, places), diff=(0, 1)),
        Sample(
            "trapezoid-axis",
            _with(np.trapezoid, axis=1),
            (_GRID, _real(2, 3, 4)),
            diff=(0, 1),
        ),
        Sample(
            "trapezoid-step",
            lambda y, dx: np.trapezoid(y, dx=dx, axis=0),
            (_GRID, _real()),
            diff=(0, 1),
        ),
        Sample("trapezoid-whole", np.trapezoid, (_WHOLE,)),
        Sample("trapezoid-complex", np.trapezoid, (_complex(4),), diff=(0,)),
    ]


_ANGLES = np.array([0.3, 2.9, -2.8, -1.1, 2.5, 5.9, -6.0])


def _unwrapped() -> list[Sample]:
    return [
        Sample("unwrap", np.unwrap, (_ANGLES,), diff=(0,)),
        Sample("unwrap-axis", _with(np.unwrap, axis=0), (4 * _GRID,), diff=(0,)),
        Sample("unwrap-jump", _with(np.unwrap, discont=5.0), (_ANGLES,), diff=(0,)),
        Sample(
            "unwrap-period",
            lambda p, period: np.unwrap(p + 0 * period, period=period),
            (_ANGLES, np.array(3.3)),
            diff=(0, 1),
        ),
        Sample("unwrap-half", _with(np.unwrap, period=2), (np.array([0.0, 1.0, 0.0]),)),
        Sample("unwrap-whole", _with(np.unwrap, period=3), (_WHOLE,)),
        Sample("unwrap-whole-even", _with(np.unwrap, period=4), (_WHOLE * 2,)),
    ]


# ---- cross products, functions of one number ----


def _crosses() -> list[Sample]:
    return [
        Sample("cross", np.cross, (_real(3), _real(3)), diff=(0, 1)),
        Sample("cross-rows", np.cross, (_real(2, 3), _real(3)), diff=(0, 1)),
        Sample("cross-wide", np.cross, (_real(2, 1, 3), _real(4, 3)), diff=(0, 1)),
        Sample(
            "cross-axes",
            _with(np.cross, axisa=0, axisb=1, axisc=0),
            (_real(3, 2), _real(2, 3)),
            diff=(0, 1),
        ),
        Sample(
            "cross-axis", _with(np.cross, axis=0), (_real(3, 2), _real(3, 2)), diff=(0,)
        ),
        Sample("cross-complex", np.cross, (_complex(3), _real(2, 3)), diff=(0, 1)),
        Sample("cross-whole", np.cross, (_WHOLE[:3], _WHOLE[2:])),
    ]


_BAD = np.array([np.nan, 1.5, np.inf, -np.inf, -2.0])


def _numbers() -> list[Sample]:
    points = np.array([0.0, 0.01, -0.3, 0.5, 1.0, -2.7])
    return [
        Sample("sinc", np.sinc, (points,), diff=(0,)),
        Sample("sinc-ordered", np.sinc, (_ORDERED,), diff=(0,)),
        Sample("sinc-complex", np.sinc, (_complex(3),), diff=(0,)),
        Sample("sinc-whole", np.sinc, (_WHOLE,)),
        Sample("i0", np.i0, (np.array([0.0, 0.2, -1.5, 7.0]),), diff=(0,)),
        Sample("i0-ordered", np.i0, (_ORDERED,), diff=(0,)),
        Sample("i0-whole", np.i0, (_WHOLE,)),
        Sample("angle", np.angle, (_complex(2, 3),), diff=(0,)),
        Sample("angle-degrees", _with(np.angle, deg=True), (_complex(3),), diff=(0,)),
        Sample("angle-real", np.angle, (_LINE,)),
        Sample("nan_to_num", np.nan_to_num, (_BAD,)),
        Sample("nan_to_num-finite", np.nan_to_num, (_GRID,), diff=(0,)),
        Sample(
            "nan_to_num-values",
            lambda x, low: np.nan_to_num(x + 0 * low, True, 1, 2.5, low),
            (_BAD, _LINE),
        ),
        Sample(
            "nan_to_num-complex",
            np.nan_to_num,
            (np.array([complex(np.inf, -2.0), complex(1.0, np.nan)]),),
            vmap=False,
        ),
        Sample("nan_to_num-whole", np.nan_to_num, (_WHOLE,)),
        Sample("real_if_close-real", np.real_if_close, (_LINE,), diff=(0,)),
    ]


SAMPLES: list[Sample] = [
    *_convolutions(),
    *_diffs(),
    *_gradients(),
    *_areas(),
    *_unwrapped(),
    *_crosses(),
    *_numbers(),
]
