"""Samples of discrete Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.conformance.samples import Sample

_rng = np.random.default_rng(71)


def _real(*shape: int) -> Any:
    return np.asarray(_rng.uniform(-1.5, 1.5, shape))


def _complex(*shape: int) -> Any:
    return _real(*shape) + 1j * _real(*shape)


_LINE = _real(5)
_WAVES = _complex(4)
_GRID = _real(2, 3, 4)
_SPECTRA = _complex(2, 3, 4)
_ORDERED = _real(4, 2, 3).transpose(1, 2, 0)

# Keywords of the transforms along one axis: lengths are even and odd, cut and padded.
_ALONG: dict[str, dict[str, Any]] = {
    "": {},
    "cut": {"n": 3},
    "cut-even": {"n": 2, "norm": "ortho"},
    "padded": {"n": 7, "norm": "forward"},
    "padded-even": {"n": 8, "norm": "backward"},
    "one": {"n": 1},
}
_ONE = ("fft", "ifft", "rfft", "irfft", "hfft", "ihfft")
_TAKE_REAL = ("rfft", "ihfft", "rfftn", "rfft2")
_MANY: dict[str, dict[str, Any]] = {
    "": {},
    "axes": {"axes": (0, -1), "norm": "ortho"},
    "lengths": {"s": (3, 5), "axes": (2, 0), "norm": "forward"},
    "kept-length": {"s": (-1, 2), "axes": (1, 2)},
    "repeated": {"s": (3, 2, 4), "axes": (1, 2, 1)},
}
_FUNCTIONS = ("fftn", "ifftn", "rfftn", "irfftn")


def _with(name: str, **keywords: Any) -> Callable[..., Any]:
    fn = getattr(np.fft, name)
    return lambda x: fn(x, **keywords)


def _lines() -> list[Sample]:
    found = []
    for name in _ONE:
        x = _LINE if name in _TAKE_REAL else _WAVES
        for which, keywords in _ALONG.items():
            # With one element of a half spectrum there is no whole one.
            fn = _with(name, **keywords)
            found.append(Sample(f"{name}-{which or 'line'}", fn, (x,), diff=(0,)))
        grid = _GRID if name in _TAKE_REAL else _SPECTRA
        fn = _with(name, axis=1)
        found.append(Sample(f"{name}-middle", fn, (grid,), diff=(0,)))
    return found


def _grids() -> list[Sample]:
    found = []
    for name in _FUNCTIONS:
        x = _GRID if name in _TAKE_REAL else _SPECTRA
        for which, keywords in _MANY.items():
            fn = _with(name, **keywords)
            found.append(Sample(f"{name}-{which or 'all'}", fn, (x,), diff=(0,)))
    for name in ("fft2", "ifft2", "rfft2", "irfft2"):
        x = _GRID[0] if name in _TAKE_REAL else _SPECTRA[0]
        found.append(Sample(name, getattr(np.fft, name), (x,), diff=(0,)))
    return found


SAMPLES: list[Sample] = [
    *_lines(),
    *_grids(),
    Sample("fft-real", np.fft.fft, (_LINE,), diff=(0,)),
    Sample("fft-ordered", _with("fft", axis=0), (_ORDERED,), diff=(0,)),
    Sample("fftn-ordered", _with("fftn", axes=(0, 2)), (_ORDERED,), diff=(0,)),
    Sample("irfft-real", np.fft.irfft, (_LINE,), diff=(0,)),
    Sample("irfft-ordered", _with("irfft", axis=1), (_ORDERED + 1j,), diff=(0,)),
    Sample("fft-empty", np.fft.fft, (np.ones((0, 4)),), diff=(0,)),
    Sample("rfft-empty", np.fft.rfft, (np.ones((2, 0, 4)),), diff=(0,)),
    Sample("irfft-empty", np.fft.irfft, (np.ones((0, 4), complex),), diff=(0,)),
    Sample("rfft-whole", np.fft.rfft, (np.arange(6).reshape(2, 3),)),
    Sample("fft-mask", np.fft.fft, (np.array([True, False, True]),)),
    Sample("fftn-no-axes", _with("fftn", axes=()), (_GRID,), diff=(0,)),
    Sample("fftshift", np.fft.fftshift, (_GRID,), diff=(0,)),
    Sample("fftshift-axis", _with("fftshift", axes=1), (_GRID,), diff=(0,)),
    Sample("ifftshift", np.fft.ifftshift, (_SPECTRA,), diff=(0,)),
    Sample("ifftshift-axes", _with("ifftshift", axes=(0, 1)), (_GRID,), diff=(0,)),
    Sample(
        "fft-filtered",
        lambda x, y: np.fft.irfft(np.fft.rfft(x) * np.fft.rfft(y), 5),
        (_LINE, _real(5)),
        diff=(0, 1),
    ),
]
