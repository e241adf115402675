"""Programs in plain NumPy, as people write them, for NumPy and for the peers.

Each takes the module first: `numpy`, `autograd.numpy` or `torch`, which share these names.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

__all__ = [
    "CHAINS",
    "CLASSES",
    "INPUTS",
    "RATES",
    "WEIGHTS",
    "cross_entropy",
    "hunters",
    "mlp",
    "rnn",
    "rosenbrock",
    "softmax",
    "softmax_rows",
]

LENGTH = 100
SMALL = np.array([0.1, 0.2, 0.3])


def _repeated(step: Callable[[Any, Any], Any], xp: Any, x: Any) -> Any:
    for _ in range(LENGTH):
        x = step(xp, x)
    return xp.sum(x)


def _mixed(xp: Any, x: Any) -> Any:
    y = xp.reshape(x, (3, 4))
    y = y.T * xp.sum(y, 1) + xp.mean(y)
    return 0.1 * xp.reshape(y, (12,))


def _halves(xp: Any, x: Any) -> Any:
    return xp.concatenate((x[6:] * 0.5, x[:6] + x[3:9]))


_TWELVE = np.linspace(0.1, 0.9, 12)

# What the step does, its function, its input, and the budget against HIPS autograd.
CHAINS: dict[str, tuple[Callable[[Any, Any], Any], np.ndarray, float]] = {
    "np.sin": (lambda xp, x: xp.sin(x), SMALL, 0.4),
    "x * y + y": (lambda xp, x: x * 0.5 * x + x, SMALL, 0.4),
    "np.maximum": (lambda xp, x: xp.maximum(x, 0.5 * x), SMALL, 0.4),
    "reductions, reshapes": (_mixed, _TWELVE, 0.5),
    "slices": (_halves, _TWELVE, 0.5),
}


def chain(step: Callable[[Any, Any], Any], xp: Any) -> Callable[[Any], Any]:
    """A function that repeats a step and sums."""
    return partial(_repeated, step, xp)


_random = np.random.default_rng(0)
WEIGHTS = [
    0.1 * _random.normal(size=shape) for shape in ((64, 32), (32,), (32, 10), (10,))
]
INPUTS = _random.normal(size=(32, 64))
TARGETS = _random.normal(size=(32, 10))


def mlp(xp: Any, inputs: Any, targets: Any, weights: Any) -> Any:
    """Loss of a network with one hidden layer on a batch of 32."""
    w1, b1, w2, b2 = weights
    y = xp.tanh(inputs @ w1 + b1) @ w2 + b2
    return xp.mean((y - targets) ** 2)


STEPS = 200
RECURRENT = [0.3 * _random.normal(size=shape) for shape in ((16, 16), (8, 16), (16,))]
SEQUENCE = _random.normal(size=(STEPS, 8))


def rnn(xp: Any, sequence: Any, start: Any, weights: Any) -> Any:
    """Loss of a recurrent network over 200 steps."""
    a, b, c = weights
    h = start
    for t in range(STEPS):
        h = xp.tanh(h @ a + sequence[t] @ b + c)
    return xp.sum(h * h)


CLASSES = 0.1 * _random.normal(size=(64, 10))
LABELS = _random.integers(0, 10, 32)


def cross_entropy(xp: Any, inputs: Any, weights: Any) -> Any:
    """Loss of a linear classifier on a batch of 32, which takes the row of each label."""
    z = inputs @ weights
    found = z[np.arange(32), LABELS]
    return xp.mean(xp.log(xp.sum(xp.exp(z), 1)) - found)


RATES = np.array([1.0, 0.8, 0.5, 0.7])


def hunters(xp: Any, rates: Any) -> Any:
    """Sum of squares after 20 steps of Euler's method for hunters and prey, by number."""
    prey, hunters = rates[0] * 1.0, rates[3] * 0.5
    for _ in range(20):
        met = prey * hunters
        prey, hunters = (
            prey + 0.05 * (rates[0] * prey - rates[1] * met),
            hunters + 0.05 * (rates[2] * met - rates[3] * hunters),
        )
    return xp.sum(xp.stack([prey, hunters]) ** 2)


POINT = _random.uniform(0.5, 1.5, 50)


def rosenbrock(xp: Any, x: Any) -> Any:
    """Rosenbrock's function of 50 variables."""
    return xp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


ROWS = _random.normal(size=(8, 10))


def softmax(xp: Any, x: Any) -> Any:
    """Softmax of a vector."""
    e = xp.exp(x - xp.max(x))
    return e / xp.sum(e)


def softmax_rows(x: Any) -> Any:
    """The same NumPy functions by hand on a whole batch: the least that vmap can take."""
    e = np.exp(x - np.max(x, axis=1, keepdims=True))
    return e / np.sum(e, axis=1, keepdims=True)
