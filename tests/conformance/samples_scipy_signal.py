"""Samples of customop.scipy.signal, where SciPy is installed."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np

from tests.conformance.samples import Sample

_rng = np.random.default_rng(19)

# Shapes of two arrays: either may be the longer one.
_SHAPES = {
    "line": ((5,), (3,)),
    "short": ((2,), (4,)),
    "grid": ((3, 4), (2, 3)),
    "small": ((2, 1), (3, 4)),
}


def _of(fn: Any, *options: Any) -> Any:
    return lambda a, v: fn(a, v, *options)


def _pair(first: Any, second: Any, is_complex: bool = False) -> tuple[Any, Any]:
    a, v = _rng.normal(size=first), _rng.normal(size=second)
    if not is_complex:
        return a, v
    return a + 1j * _rng.normal(size=first), v - 1j * _rng.normal(size=second)


def _convolutions(signal: Any) -> list[Sample]:
    found = []
    for which, shapes in _SHAPES.items():
        for mode in ("full", "same", "valid"):
            fn = _of(signal.convolve, mode, "direct")
            name = f"signal convolve {which} {mode}"
            found.append(Sample(name, fn, _pair(*shapes), diff=(0, 1)))
            fn = _of(signal.correlate, mode, "fft" if mode == "same" else "auto")
            name = f"signal correlate {which} {mode}"
            found.append(Sample(name, fn, _pair(*shapes), diff=(0, 1)))
    return found


def _others(signal: Any) -> list[Sample]:
    grid, small = ((3, 4), (2, 2))
    rows = _of(signal.fftconvolve, "same", 1)
    whole = np.arange(4), np.array([1, -2])
    return [
        Sample(
            "signal fftconvolve", signal.fftconvolve, _pair(grid, small), {}, (0, 1)
        ),
        Sample("signal fftconvolve rows", rows, _pair((3, 4), (1, 3)), {}, (0, 1)),
        Sample(
            "signal convolve complex",
            _of(signal.convolve, "same", "direct"),
            _pair(grid, small, True),
            diff=(0, 1),
        ),
        Sample(
            "signal fftconvolve complex",
            signal.fftconvolve,
            _pair(grid, small, True),
            diff=(0, 1),
        ),
        Sample("signal convolve numbers", signal.convolve, _pair((), ()), {}, (0, 1)),
        Sample("signal convolve integers", signal.convolve, whole),
        Sample("signal convolve rounded", _of(signal.convolve, "full", "fft"), whole),
        Sample("signal correlate integers", signal.correlate, whole),
    ]


def _samples() -> list[Sample]:
    if importlib.util.find_spec("scipy") is None:
        return []
    signal: Any = importlib.import_module("customop.scipy.signal")
    return [*_convolutions(signal), *_others(signal)]


SAMPLES: list[Sample] = _samples()
