"""Samples of ufuncs with two results, of the parts of floats, and of ufunc methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.conformance.samples import Sample

_rng = np.random.default_rng(31)
_X = _rng.uniform(0.3, 1.9, (3, 4))
_Y = _rng.uniform(0.4, 0.9, (3, 4)) * np.where(_rng.random((3, 4)) < 0.5, -1, 1)
_COMPLEX = _X + 1j * _Y
_WHOLE = np.array([[12, 18, 30], [4, 6, 9]])
_MASK = np.array([True, False, True, True])


def _parts() -> list[Sample]:
    signed = _X * np.sign(_Y)
    row = np.array([0.7, -0.6, 0.5, 0.8])
    return [
        Sample("modf", np.modf, (signed,), diff=(0,)),
        Sample("frexp", np.frexp, (signed,), diff=(0,)),
        Sample("divmod", np.divmod, (signed, _Y), diff=(0, 1)),
        Sample("divmod-broadcast", np.divmod, (signed, row), diff=(0, 1)),
        Sample("divmod-number", lambda x: divmod(x, 0.7), (signed,), diff=(0,)),
        Sample("divmod-whole", np.divmod, (_WHOLE, np.array([5, 7, -4]))),
        Sample("ldexp", np.ldexp, (_X, np.array([1, -2, 0, 3])), diff=(0,)),
        Sample("copysign", np.copysign, (signed, _Y), diff=(0, 1)),
        Sample("nextafter", np.nextafter, (_X, _Y), diff=(0, 1)),
        Sample("spacing", np.spacing, (np.full((2, 2), 1.3),), diff=(0,)),
        Sample("degrees", np.degrees, (_Y,), diff=(0,)),
        Sample("radians", np.radians, (_Y,), diff=(0,)),
        Sample(
            "heaviside", np.heaviside, (np.array([[0.0], [2.0], [-1.0]]), _Y), diff=(1,)
        ),
        Sample("gcd", np.gcd, (_WHOLE, np.array([8, 9, 6]))),
        Sample("lcm", np.lcm, (_WHOLE, np.array([8, 9, 6]))),
        Sample("bitwise_count", np.bitwise_count, (_WHOLE,)),
        Sample("isnat", np.isnat, (np.array(["2001-02-03", "NaT"], "M8[D]"),)),
    ]


def _reduced(name: str) -> list[Sample]:
    ufunc = getattr(np, name)
    return [
        Sample(f"{name}.reduce", lambda x: ufunc.reduce(x), (_X,), diff=(0,)),
        Sample(
            f"{name}.reduce-kept",
            lambda x: ufunc.reduce(x, axis=(0, 1), keepdims=True),
            (_X.T.copy().T,),
            diff=(0,),
        ),
    ]


def _at_indices(name: str, x: Any) -> Sample:
    """Runs that overlap, of one element, and up to the end."""
    ufunc = getattr(np, name)

    def fn(x: Any) -> Any:
        return ufunc.reduceat(x, [0, 2, 1, 3], axis=1)

    return Sample(f"{name}.reduceat", fn, (x,), diff=(0,))


def _running(name: str, x: Any) -> Sample:
    ufunc = getattr(np, name)
    return Sample(
        f"{name}.accumulate", lambda x: ufunc.accumulate(x, axis=1), (x,), diff=(0,)
    )


def _methods() -> list[Sample]:
    found = [s for n in ("logaddexp", "hypot", "fmax") for s in _reduced(n)]
    runs = ("add", "multiply", "maximum", "logaddexp", "subtract", "divide")
    found += [_at_indices(name, _X) for name in runs]
    running = ("add", "multiply", "minimum", "logaddexp", "divide", "arctan2")
    found += [_running(name, _X) for name in running]
    zeros = np.array([[0.0, 2.0, 0.0, 1.5], [3.0, 0.0, 4.0, 2.0]])
    lines: dict[str, tuple[Callable[..., Any], Any]] = {
        "subtract.reduce": (lambda x: np.subtract.reduce(x, axis=1), _X),
        "multiply.reduceat-zeros": (
            lambda x: np.multiply.reduceat(x, [0, 1, 3], axis=1),
            zeros,
        ),
        "multiply.reduceat-complex": (
            lambda x: np.multiply.reduceat(x, [0, 2], axis=0),
            _COMPLEX,
        ),
        "divide.accumulate-complex": (np.divide.accumulate, _COMPLEX),
        "subtract.accumulate-empty": (np.subtract.accumulate, np.ones((0, 2))),
        "maximum.accumulate-ordered": (
            lambda x: np.maximum.accumulate(x, axis=-1),
            np.asfortranarray(_X),
        ),
        "float_power.accumulate": (
            lambda x: np.float_power.accumulate(x, axis=-1),
            _X,
        ),
    }
    found += [Sample(n, fn, (x,), diff=(0,)) for n, (fn, x) in lines.items()]
    found += [
        Sample("multiply.outer", np.multiply.outer, (_X[0], _X[:2, :3]), diff=(0, 1)),
        Sample("power.outer", lambda x: np.power.outer(2.0, x), (_X,), diff=(0,)),
        Sample("divmod.outer", lambda x: np.divmod.outer(x, 0.7), (_X,), diff=(0,)),
        Sample("gcd.reduce", lambda x: np.gcd.reduce(x, axis=None), (_WHOLE,)),
        Sample("bitwise_or.accumulate", np.bitwise_or.accumulate, (_WHOLE,)),
        Sample(
            "logical_and.reduceat", lambda x: np.logical_and.reduceat(x, [0]), (_X,)
        ),
    ]
    return found


def _selected() -> list[Sample]:
    tall = np.array([[True], [False], [True]])
    lines: dict[str, tuple[Callable[..., Any], Any]] = {
        "sum-where": (lambda x: np.sum(x, axis=1, where=_MASK), _X),
        "prod-initial": (lambda x: np.prod(x, axis=0, initial=0.5, keepdims=True), _X),
        "max-selected": (lambda x: np.max(x, initial=0.1, where=_MASK), _X),
        "min-initial": (lambda x: np.min(x, axis=1, initial=9.0), np.ones((2, 0))),
        "mean-where": (lambda x: np.mean(x, axis=0, where=tall | _MASK), _X),
        "subtract.reduce-selected": (
            lambda x: np.subtract.reduce(x, axis=1, initial=2.0, where=_MASK),
            _X,
        ),
        "logaddexp.reduce-where": (
            lambda x: np.logaddexp.reduce(x, axis=1, where=_MASK),
            _X,
        ),
    }
    return [
        *(Sample(n, fn, (x,), diff=(0,)) for n, (fn, x) in lines.items()),
        Sample(
            "sum-initial",
            lambda x, y: np.sum(x, axis=1, initial=y),
            (_X, np.array(1.5)),
            diff=(0, 1),
            vmap=False,  # NumPy does not look for a traced `initial`
        ),
        Sample("any-where", lambda x: np.any(x > 1, axis=0, where=tall), (_X,)),
    ]


def _bounded() -> list[Sample]:
    return [
        Sample(
            "clip-dtype", lambda x: np.clip(x, 0.5, 1.2, dtype="c16"), (_X,), diff=(0,)
        ),
    ]


SAMPLES: list[Sample] = [*_parts(), *_methods(), *_selected(), *_bounded()]
