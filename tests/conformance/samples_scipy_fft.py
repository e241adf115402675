"""Samples of customop.scipy.fft, where SciPy is installed."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np

from tests.conformance.samples import Sample

_rng = np.random.default_rng(17)

_ONE = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
_MANY = ("fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn")
_TAKE_REAL = ("rfft", "ihfft", "rfftn", "rfft2")


def _with(fn: Any, *args: Any, **keywords: Any) -> Any:
    return lambda x: fn(x, *args, **keywords)


def _complex_ones(fft: Any) -> list[Sample]:
    grid = _rng.normal(size=(3, 4))
    waves = grid + 1j * _rng.normal(size=(3, 4))
    found = []
    for name in (*_ONE, *_MANY):
        x = grid if name in _TAKE_REAL else waves
        fn = getattr(fft, name)
        cut = {"n": 3, "axis": 0} if name in _ONE else {"s": (5, 2)}
        found += [
            Sample(f"scipyfft {name}", fn, (x,), diff=(0,)),
            Sample(f"scipyfft {name} cut", _with(fn, **cut), (x,), diff=(0,)),
        ]
    return found


def _real_ones(fft: Any) -> list[Sample]:
    grid = _rng.normal(size=(3, 4))
    waves = grid + 1j * _rng.normal(size=(3, 4))
    found = []
    for name in ("dct", "idct", "dst", "idst"):
        one, many = getattr(fft, name), getattr(fft, f"{name}n")
        for variant in (1, 2, 3, 4):
            calls = {
                "": _with(one, variant, n=6),
                " ortho": _with(many, variant, norm="ortho", s=(2, 5), axes=(1, 0)),
                " plain ends": _with(one, variant, norm="ortho", orthogonalize=False),
            }
            found += [
                Sample(f"scipyfft {name} {variant}{which}", fn, (grid,), diff=(0,))
                for which, fn in calls.items()
            ]
        found.append(Sample(f"scipyfft {name} waves", one, (waves,), diff=(0,)))
        weighted = _with(many, 2, orthogonalize=True)
        found.append(Sample(f"scipyfft {name}n", weighted, (waves,), diff=(0,)))
    whole = np.arange(12).reshape(3, 4)
    found += [
        Sample("scipyfft dct integers", fft.dct, (whole,)),
        Sample("scipyfft dct ordered", fft.dct, (np.asfortranarray(grid),), diff=(0,)),
        Sample("scipyfft dctn none", _with(fft.dctn, axes=()), (grid,), diff=(0,)),
        Sample("scipyfft fftshift", fft.fftshift, (grid,), diff=(0,)),
    ]
    return found


def _samples() -> list[Sample]:
    if importlib.util.find_spec("scipy") is None:
        return []
    fft: Any = importlib.import_module("customop.scipy.fft")
    return [*_real_ones(fft), *_complex_ones(fft)]


SAMPLES: list[Sample] = _samples()
