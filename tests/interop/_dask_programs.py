"""Programs in plain NumPy code, with operators of their own, that run on dask arrays too."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

import numpy as np

import customop as co


class Program(NamedTuple):
    """A function of arrays, its arguments, and how it is transformed.

    Attributes
    ----------
    fn : callable
        What is run: a function, or what a transform made of one.
    args : tuple of array
    chunks : tuple
        How dask cuts each of them; None leaves it an array of NumPy.
    """

    fn: Callable[..., Any]
    args: tuple[Any, ...]
    chunks: tuple[Any, ...]


# ---- operators ----


@co.custom_op("daskprograms::softplus", mutates_args=(), tags=co.Tag.pointwise)
def softplus(x: co.Array) -> co.Array:
    """log(1 + exp(x)), on each element."""
    return np.logaddexp(0.0, x)


softplus.register_fake(lambda x: co.fake_like(x))
softplus.register_autograd(co.partials({"x": lambda g, x: g / (1.0 + np.exp(-x))}))


@co.custom_op("daskprograms::energy", mutates_args=())
def energy(
    x: Annotated[np.ndarray, "... n"], k: Annotated[np.ndarray, "n n"]
) -> Annotated[np.ndarray, "..."]:
    """The product of each row with a matrix and itself."""
    return np.einsum("...i,ij,...j->...", x, k, x)


@energy.register_fake
def _(x: Any, k: Any) -> Any:
    return co.fake_like(x, shape=x.shape[:-1])


def _energy_backward(ctx: Any, g: Any) -> tuple[Any, Any]:
    x, k = ctx.saved_arrays
    gx = g[..., None] * (x @ (k + k.T))
    return gx, (x * g[..., None]).T @ x


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)


energy.register_autograd(_energy_backward, setup_context=_save)


def _wait(x: Any) -> Any:
    time.sleep(0.05)  # so that a worker can be killed while it has work
    return x * x


slow_square = (
    co.custom_op(
        "daskprograms::slow_square", _wait, mutates_args=(),
        schema="(Array x) -> Array", tags=co.Tag.pointwise, device_types="cpu",
    )
    .register_fake(lambda x: co.fake_like(x))
    .register_autograd(co.partials({"x": lambda g, x: 2.0 * g * x}))
)  # fmt: skip


# ---- losses ----


def _regression(w: Any, x: Any, y: Any) -> Any:
    return np.mean((x @ w - y) ** 2)


def _logistic(w: Any, x: Any, y: Any) -> Any:
    z = x @ w
    return np.mean(softplus(z) - y * z) + 0.1 * np.sum(w**2)


def _softmax(w: Any, x: Any, labels: Any) -> Any:
    z = x @ w
    z = z - np.max(z, axis=1, keepdims=True)
    logs = z - np.log(np.sum(np.exp(z), axis=1, keepdims=True))
    return -np.mean(np.sum(logs * labels, axis=1))


def _rayleigh(v: Any, x: Any) -> Any:
    centered = x - np.mean(x, axis=0)
    return np.sum((centered @ v) ** 2) / np.sum(v**2)


def _pca_step(v: Any, x: Any) -> Any:
    new = v + 0.1 * co.grad(_rayleigh)(v, x)
    return new / np.linalg.norm(new)


def _convolution(kernel: Any, x: Any) -> Any:
    n, m = x.shape
    parts = [
        kernel[i, j] * x[i : n - 2 + i, j : m - 2 + j]
        for i in range(3)
        for j in range(3)
    ]
    return np.mean(np.tanh(sum(parts)) ** 2)


def _statistics(x: Any) -> Any:
    scaled = (x - np.mean(x, axis=0)) / np.std(x, axis=0)
    skew, tails = np.mean(scaled**3, axis=0), np.mean(scaled**4, axis=0)
    return np.sum(skew) + np.sum(tails) + np.sum(np.cov(x, rowvar=False)) + np.max(x)


def _network(parameters: Any, x: Any, y: Any) -> Any:
    hidden = np.tanh(x @ parameters["a"] + parameters["b"])
    return np.mean((hidden @ parameters["c"] - y) ** 2)


def _mixture(means: Any, x: Any) -> Any:
    logs = -0.5 * np.sum((x[:, None] - means) ** 2, axis=2)
    top = np.max(logs, axis=1, keepdims=True)
    return -np.mean(top[:, 0] + np.log(np.sum(np.exp(logs - top), axis=1)))


def _embedding(table: Any, places: Any, y: Any) -> Any:
    return np.mean((np.sum(table[places], axis=1) - y) ** 2)


def _systems(matrices: Any, sides: Any) -> Any:
    grown = matrices @ np.swapaxes(matrices, -1, -2) + 2.0 * np.eye(3)
    logs = np.linalg.slogdet(grown)[1]
    return np.sum(np.linalg.solve(grown, sides) ** 2) + np.sum(logs)


def _series(x: Any) -> Any:
    walk = np.cumsum(x)
    return np.mean(np.diff(walk) ** 3) + np.mean(walk[5:] * walk[:-5])


def _energies(k: Any, x: Any) -> Any:
    return np.mean(np.log1p(energy(x, k) ** 2))


def _quantiles(x: Any) -> Any:
    return np.sum(np.quantile(x, 0.3, axis=1)) + np.sum(np.sort(x, axis=1)[:, 1] ** 2)


def _per_sample(w: Any, x: Any, y: Any) -> Any:
    return co.vmap(co.grad(_regression), in_dims=(None, 0, 0))(w, x, y)


def _curvature(w: Any, x: Any, y: Any) -> Any:
    return co.jvp(lambda w: co.grad(_logistic)(w, x, y), (w,), (np.ones_like(w),))[1]


def programs() -> dict[str, Program]:
    """All programs by name, always with the same numbers."""
    rng = np.random.default_rng(20)
    x, w, y = rng.normal(size=(60, 5)), rng.normal(size=5), rng.normal(size=60)
    flags, rows = (y > 0).astype(float), (20, -1)
    labels = np.eye(3)[rng.integers(0, 3, 60)]
    net = {
        "a": rng.normal(size=(5, 4)),
        "b": rng.normal(size=4),
        "c": rng.normal(size=4),
    }
    image = rng.normal(size=(24, 30))
    places = rng.integers(0, 7, (60, 2))
    stack, sides = rng.normal(size=(12, 3, 3)), rng.normal(size=(12, 3, 1))
    both = co.value_and_grad
    return {
        "regression": Program(both(_regression), (w, x, y), (None, rows, 20)),
        "logistic": Program(both(_logistic), (w, x, flags), (None, rows, 20)),
        "softmax": Program(
            both(_softmax), (rng.normal(size=(5, 3)), x, labels), (None, rows, rows)
        ),
        "pca": Program(_pca_step, (w, x), (None, rows)),
        "convolution": Program(
            both(_convolution), (rng.normal(size=(3, 3)), image), (None, (12, -1))
        ),
        "statistics": Program(both(_statistics), (x,), (rows,)),
        "network": Program(
            lambda a, b, c, x, y: both(_network)({"a": a, "b": b, "c": c}, x, y),
            (*net.values(), x, y),
            (None, None, None, rows, 20),
        ),
        "mixture": Program(both(_mixture), (rng.normal(size=(4, 5)), x), (None, rows)),
        "embedding": Program(
            both(_embedding),
            (rng.normal(size=(7, 3)), places, rng.normal(size=(60, 3))),
            ((7, -1), None, rows),
        ),
        "systems": Program(both(_systems), (stack, sides), ((5, -1, -1), (5, -1, -1))),
        "series": Program(both(_series), (y,), (20,)),
        "energies": Program(
            both(_energies), (rng.normal(size=(5, 5)), x), (None, rows)
        ),
        "quantiles": Program(both(_quantiles), (x,), (rows,)),
        "per sample": Program(_per_sample, (w, x, y), (None, rows, 20)),
        "curvature": Program(_curvature, (w, x, flags), (None, rows, 20)),
    }
