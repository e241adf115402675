"""Samples of the elementwise operators."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from tests.conformance.samples import Sample

_rng = np.random.default_rng(7)


def _between(low: float, high: float, *shape: int) -> Any:
    return np.asarray(_rng.uniform(low, high, shape))


def _complex(*shape: int) -> Any:
    return _between(0.2, 0.8, *shape) + 1j * _between(0.2, 0.8, *shape)


# Name of a ufunc -> range of its arguments, away from poles and steps.
_UNARY: dict[str, tuple[float, float]] = {
    "negative": (-2, 2),
    "positive": (-2, 2),
    "square": (-2, 2),
    "reciprocal": (0.5, 2),
    "sqrt": (0.5, 2),
    "cbrt": (0.5, 2),
    "exp": (-1, 1),
    "exp2": (-1, 1),
    "expm1": (-1, 1),
    "log": (0.5, 2),
    "log2": (0.5, 2),
    "log10": (0.5, 2),
    "log1p": (0.5, 2),
    "sin": (-2, 2),
    "cos": (-2, 2),
    "tan": (-1, 1),
    "arcsin": (-0.7, 0.7),
    "arccos": (-0.7, 0.7),
    "arctan": (-2, 2),
    "sinh": (-1, 1),
    "cosh": (-1, 1),
    "tanh": (-1, 1),
    "arcsinh": (-1, 1),
    "arccosh": (1.5, 3),
    "arctanh": (-0.7, 0.7),
    "deg2rad": (-2, 2),
    "rad2deg": (-2, 2),
    "absolute": (0.2, 2),
    "fabs": (-2, -0.2),
    "conjugate": (-2, 2),
}
_STEPS = (
    "sign",
    "floor",
    "ceil",
    "trunc",
    "rint",
    "signbit",
    "isnan",
    "isinf",
    "isfinite",
)
_REAL_ONLY = ("cbrt", "deg2rad", "rad2deg", "fabs")

# Name of a ufunc of two arrays -> range of its second argument.
_BINARY: dict[str, tuple[float, float]] = {
    "add": (-2, 2),
    "subtract": (-2, 2),
    "multiply": (-2, 2),
    "divide": (0.5, 2),
    "power": (0.5, 2),
    "float_power": (0.5, 2),
    "remainder": (0.71, 0.74),
    "fmod": (0.71, 0.74),
    "hypot": (0.5, 2),
    "arctan2": (0.5, 2),
    "logaddexp": (-1, 1),
    "logaddexp2": (-1, 1),
    "maximum": (-2, 2),
    "minimum": (-2, 2),
    "fmax": (-2, 2),
    "fmin": (-2, 2),
}
_COMPLEX_BINARY = ("add", "subtract", "multiply", "divide", "power", "float_power")
_COMPARISONS = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
_LOGIC = ("logical_and", "logical_or", "logical_xor")
_BITS = ("bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift")

_OPERATORS: tuple[Callable[..., Any], ...] = (
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.pow,
)


def _unary() -> list[Sample]:
    found = []
    for name, (low, high) in _UNARY.items():
        fn = getattr(np, name)
        found.append(Sample(name, fn, (_between(low, high, 2, 3),), diff=(0,)))
        found.append(Sample(f"{name}-0d", fn, (_between(low, high),), diff=(0,)))
        if name not in _REAL_ONLY:
            found.append(Sample(f"{name}-complex", fn, (_complex(3),), diff=(0,)))
    return found


def _binary() -> list[Sample]:
    found = []
    for name, (low, high) in _BINARY.items():
        fn = getattr(np, name)
        x, y = _between(0.3, 0.65, 2, 3), _between(low, high, 2, 3)
        found.append(Sample(name, fn, (x, y), diff=(0, 1)))
        row = _between(low, high, 3)
        found.append(Sample(f"{name}-broadcast", fn, (x[:, :1], row), diff=(0, 1)))
        found.append(Sample(f"{name}-ranks", fn, (x[0], y), diff=(0, 1)))
        column = np.asfortranarray(_between(0.3, 0.65, 2, 3))
        found.append(Sample(f"{name}-fortran", fn, (column, y.T.copy().T), diff=(0, 1)))
        found.append(
            Sample(f"{name}-number", lambda x, f=fn: f(x, 0.72), (x,), diff=(0,))
        )
        found.append(
            Sample(f"{name}-from-number", lambda y, f=fn: f(1.3, y), (y,), diff=(0,))
        )
    for name in _COMPLEX_BINARY:
        args = (_complex(2, 2), _complex(2))
        found.append(Sample(f"{name}-complex", getattr(np, name), args, diff=(0, 1)))
        mixed = (_between(0.5, 1, 2), _complex(2, 2))
        found.append(
            Sample(f"{name}-real-complex", getattr(np, name), mixed, diff=(0, 1))
        )
    return found


def _discrete() -> list[Sample]:
    steps = np.array([[-1.3, 0.4, 2.6], [0.7, -0.2, 1.1]])
    whole = np.array([[1, 2, 3], [6, 5, 4]])
    found = [Sample(name, getattr(np, name), (steps,), diff=(0,)) for name in _STEPS]
    other = np.array([0.4, 0.4, 3.0])
    for name in (*_COMPARISONS, *_LOGIC, "floor_divide"):
        # An integer quotient would be at a step.
        second = other + 0.03 if name == "floor_divide" else other
        found.append(Sample(name, getattr(np, name), (steps, second), diff=(0, 1)))
        found.append(Sample(f"{name}-whole", getattr(np, name), (whole, whole[::-1])))
    bits = np.array([1, 2, 1])
    found += [Sample(name, getattr(np, name), (whole, bits)) for name in _BITS]
    mask = np.array([True, False, True])
    found.append(Sample("logical_not", np.logical_not, (steps > 1,)))
    found.append(Sample("invert", np.invert, (whole,)))
    found.append(Sample("invert-mask", np.invert, (mask,)))
    return found


def _mixed() -> list[Sample]:
    x, y = _between(0.3, 2, 3), _between(0.3, 2, 2, 3)
    whole = np.array([1, 2, 3])
    found = [
        Sample(f"operator-{fn.__name__}", fn, (x, y), diff=(0, 1)) for fn in _OPERATORS
    ]
    found += [
        Sample("whole-times-float", np.multiply, (whole, y), diff=(1,)),
        Sample("float32-plus-float64", np.add, (x.astype(np.float32), y), diff=(1,)),
        Sample("power-of-two", lambda x: x**2, (_between(-2, 2, 3),), diff=(0,)),
        Sample(
            "power-three-at-zero", lambda x: x**3, (np.array([0.0, 1.5]),), diff=(0,)
        ),
        Sample("power-number-base", lambda x: 2**x, (y,), diff=(0,)),
        Sample("power-zero", lambda x: x**0, (np.array([0.0, 2.0]),), diff=(0,)),
        Sample("remainder-negative", np.remainder, (-x, np.full(3, 0.97)), diff=(0,)),
        Sample("round", lambda x: np.round(x * 10.0), (y,)),
        Sample("round-decimals", lambda x: np.round(x, 1), (y,)),
        Sample("empty", np.multiply, (np.ones((0, 3)), x), diff=(0, 1)),
        Sample("absolute-negative", np.absolute, (-x,), diff=(0,)),
        Sample("reused", lambda x: x * np.sin(x) + x, (y,), diff=(0,)),
        Sample(
            "three-orders",
            np.add,
            (_between(0, 1, 2, 3, 4).transpose(2, 0, 1), 1.5),
            diff=(0,),
        ),
    ]
    return found


SAMPLES: list[Sample] = [*_unary(), *_binary(), *_discrete(), *_mixed()]
