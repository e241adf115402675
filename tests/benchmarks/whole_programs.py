"""Whole programs as people write them: models, solvers, filters, samplers.

Each is written once for every library of `libraries.py`. ``PROGRAMS[name].make(library)``
returns a function; the benchmark takes its value and its gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from libraries import Function, Library

__all__ = ["PROGRAMS", "Program"]

Random = np.random.Generator


@dataclass(frozen=True, slots=True)
class Program:
    """A program and its inputs.

    Attributes
    ----------
    make
        Return the function for a library.
    inputs
        Return the arguments, as NumPy arrays.
    needs
        What of `Library` it calls itself.
    gradient
        Whether to take its value and gradient; else the function itself is what runs.
    precision
        How far results of two libraries may be apart, relative to the largest number.
    """

    make: Callable[[Library], Function]
    inputs: Callable[[Random], tuple[Any, ...]]
    needs: tuple[str, ...] = ()
    gradient: bool = True
    precision: float = 1e-8


# ---- functions of vectors ----


def rosenbrock(lib: Library) -> Function:
    """Rosenbrock's function."""
    return lambda x: lib.np.sum(
        100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2
    )


def logistic(lib: Library) -> Function:
    """The loss of a logistic regression with a penalty."""
    xp = lib.np

    def loss(w: Any, rows: Any, labels: Any) -> Any:
        z = rows @ w
        return xp.mean(xp.logaddexp(0.0, z) - labels * z) + 5e-4 * xp.sum(w**2)

    return loss


def pointwise(lib: Library) -> Function:
    """Nine elementwise calls."""
    xp = lib.np

    def chain(x: Any) -> Any:
        y = (x * 1.5 + 0.5) * x
        y = xp.sqrt(xp.abs(y - x) + 1.0) * x
        return xp.maximum(y, 0.1) / 2.0

    return chain


# ---- networks ----


def recurrent(lib: Library) -> Function:
    """A recurrent network over 50 steps of a Python loop."""
    xp = lib.np

    def loss(weights: Any, inputs: Any) -> Any:
        h = xp.zeros(16)
        for t in range(50):
            h = xp.tanh(weights["w"] @ h + weights["u"] @ inputs[t] + weights["b"])
        return xp.sum(h**2)

    return loss


def lstm(lib: Library) -> Function:
    """An LSTM over 100 steps of a scan."""
    xp = lib.np

    def sigmoid(x: Any) -> Any:
        return 1.0 / (1.0 + xp.exp(-x))

    def loss(weights: Any, inputs: Any) -> Any:
        def step(carry: Any, x: Any) -> Any:
            h, cell = carry
            z = weights["w"] @ h + weights["u"] @ x + weights["b"]
            read, keep, write = sigmoid(z[:16]), sigmoid(z[16:32]), sigmoid(z[32:48])
            cell = keep * cell + read * xp.tanh(z[48:])
            h = write * xp.tanh(cell)
            return (h, cell), xp.sum(h)

        start = (xp.zeros(16), xp.zeros(16))
        (h, _), sums = lib.scan(step, start, inputs)
        return xp.sum(h**2) + xp.sum(sums)

    return loss


def _dense(layer: Any, x: Any) -> Any:
    return x @ layer["w"] + layer["b"]


def autoencoder(lib: Library) -> Function:
    """A step of a variational autoencoder: negative evidence bound of a batch."""
    xp = lib.np

    def loss(p: Any, x: Any, noise: Any) -> Any:
        hidden = xp.maximum(_dense(p["e1"], x), 0.0)
        mean, log_variance = xp.split(_dense(p["e2"], hidden), 2, -1)
        code = mean + xp.exp(0.5 * log_variance) * noise
        z = _dense(p["d2"], xp.maximum(_dense(p["d1"], code), 0.0))
        misfit = xp.maximum(z, 0.0) - z * x + xp.log1p(xp.exp(-xp.abs(z)))
        prior = 1.0 + log_variance - mean**2 - xp.exp(log_variance)
        return xp.mean(xp.sum(misfit, -1) - 0.5 * xp.sum(prior, -1))

    return loss


_LENGTH, _WIDTH, _HEADS = 16, 32, 4


def attention(lib: Library) -> Function:
    """A transformer block with a causal mask and cross entropy, in 32 bits."""
    xp = lib.np
    later = lib.constant(np.triu(np.ones((_LENGTH, _LENGTH), bool), 1))
    rows, columns = lib.constant(tuple(np.indices((16, _LENGTH))))

    def normalized(x: Any, scale: Any, shift: Any) -> Any:
        x = x - xp.mean(x, axis=-1, keepdims=True)
        deviation = xp.sqrt(xp.mean(x * x, axis=-1, keepdims=True) + 1e-5)
        return x / deviation * scale + shift

    def gelu(x: Any) -> Any:
        return 0.5 * x * (1.0 + xp.tanh(0.7978845608 * (x + 0.044715 * x**3)))

    def softmax(x: Any) -> Any:
        e = xp.exp(x - xp.max(x, axis=-1, keepdims=True))
        return e / xp.sum(e, axis=-1, keepdims=True)

    def heads(x: Any) -> Any:
        split = xp.reshape(x, (*x.shape[:-1], _HEADS, _WIDTH // _HEADS))
        return xp.swapaxes(split, -2, -3)

    def loss(p: Any, tokens: Any, targets: Any) -> Any:
        x = p["embedding"][tokens] + p["position"]
        y = normalized(x, p["scale1"], p["shift1"]) @ p["qkv"]
        q, k, v = (heads(part) for part in xp.split(y, 3, -1))
        score = q @ xp.swapaxes(k, -1, -2) / (_WIDTH // _HEADS) ** 0.5
        mixed = xp.swapaxes(softmax(xp.where(later, -1e9, score)) @ v, -2, -3)
        x = x + xp.reshape(mixed, x.shape) @ p["mix"]
        x = x + gelu(normalized(x, p["scale2"], p["shift2"]) @ p["up"]) @ p["down"]
        z = x @ p["out"]
        z = z - xp.max(z, axis=-1, keepdims=True)
        logs = z - xp.log(xp.sum(xp.exp(z), axis=-1, keepdims=True))
        return -xp.mean(logs[rows, columns, targets])

    return loss


def by_sample(lib: Library) -> Function:
    """The gradient of a network's loss for each sample of a batch."""
    xp = lib.np

    def loss(p: Any, x: Any, target: Any) -> Any:
        y = _dense(p["second"], xp.tanh(_dense(p["first"], x)))
        return xp.sum((y - target) ** 2)

    assert lib.grad
    assert lib.vmap
    return lib.vmap(lib.grad(loss), (None, 0, 0))


def physics_informed(lib: Library) -> Function:
    """A network that solves u'' = -u: residuals of second order at many points."""
    xp, grad, jvp, vmap = lib.np, lib.grad, lib.jvp, lib.vmap
    assert grad
    assert jvp
    assert vmap

    def u(p: Any, x: Any) -> Any:
        h = xp.reshape(x, (1,))
        for layer in p[:-1]:
            h = xp.tanh(_dense(layer, h))
        return _dense(p[-1], h)[0]

    def loss(p: Any, points: Any) -> Any:
        def value(x: Any) -> Any:
            return u(p, x)

        def residual(x: Any) -> Any:
            return jvp(grad(value), (x,), (xp.ones_like(x),))[1] + value(x)

        start = 0.0 * points[0]
        inner = xp.mean(vmap(residual)(points) ** 2)
        return inner + value(start) ** 2 + (grad(value)(start) - 1.0) ** 2

    return loss


# ---- equations that move ----


def pendulum(lib: Library, steps: int, *, scanned: bool) -> Function:
    """A double pendulum by Runge and Kutta: where two speeds lead."""
    xp, h, g = lib.np, 0.01, 9.81

    def flow(s: Any) -> Any:
        a, b, p, q = s[0], s[1], s[2], s[3]
        d = a - b
        by = 3.0 - xp.cos(2.0 * d)
        pull = -3.0 * g * xp.sin(a) - g * xp.sin(a - 2.0 * b)
        swing = 2.0 * xp.sin(d) * (q**2 + p**2 * xp.cos(d))
        other = 2.0 * p**2 + 2.0 * g * xp.cos(a) + q**2 * xp.cos(d)
        return lib.array([p, q, (pull - swing) / by, 2.0 * xp.sin(d) * other / by])

    def step(s: Any) -> Any:
        k1 = flow(s)
        k2 = flow(s + h / 2 * k1)
        k3 = flow(s + h / 2 * k2)
        k4 = flow(s + h * k3)
        return s + h / 6 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)

    times = lib.constant(np.arange(float(steps)))

    def miss(speeds: Any) -> Any:
        s = lib.array([0.5, -0.2, speeds[0], speeds[1]])
        if scanned:
            s, _ = lib.scan(lambda s, t: (step(s), xp.sum(s)), s, times)
        else:
            for _ in range(steps):
                s = step(s)
        return xp.sum(s[:2] ** 2)

    return miss


def kalman(lib: Library) -> Function:
    """The likelihood of an extended Kalman filter, whose model is linearized by jacfwd."""
    xp, h = lib.np, 0.05
    grad, jacfwd = lib.grad, lib.jacfwd
    assert grad
    assert jacfwd
    identity = lib.constant(np.eye(2))

    def seen(x: Any) -> Any:
        return xp.sin(x[0])

    def loss(p: Any, measured: Any) -> Any:
        def move(x: Any) -> Any:
            push = -xp.exp(p[0]) * xp.sin(x[0]) - p[1] * x[1]
            return lib.array([x[0] + h * x[1], x[1] + h * push])

        def step(carry: Any, y: Any) -> Any:
            x, cov = carry
            f = jacfwd(move)(x)
            x, cov = move(x), f @ cov @ f.T + xp.exp(p[2]) * identity
            c = grad(seen)(x)
            spread = c @ cov @ c + xp.exp(p[3])
            gain, rest = cov @ c / spread, y - seen(x)
            cost = 0.5 * (rest * rest / spread + xp.log(2.0 * np.pi * spread))
            return (x + gain * rest, cov - xp.outer(gain, c) @ cov), cost

        start = lib.array([0.9 + 0.0 * p[0], 0.0 * p[0]])
        return xp.sum(lib.scan(step, (start, 0.1 * identity), measured)[1])

    return loss


def flow(lib: Library) -> Function:
    """Navier and Stokes in two dimensions: vorticity that must become a picture."""
    xp, n, h = lib.np, 64, 0.05
    k = np.fft.fftfreq(n, 1.0 / n)[:, None], np.fft.rfftfreq(n, 1.0 / n)[None]
    square = k[0] ** 2 + k[1] ** 2
    inverse = lib.constant(1.0 / np.where(square == 0.0, np.inf, square))
    x = np.linspace(0.0, 2 * np.pi, n, endpoint=False)
    wanted = lib.constant(np.sin(x)[:, None] * np.cos(2 * x)[None])
    half = n / (4 * np.pi)

    def slope(x: Any, axis: int) -> Any:
        return (xp.roll(x, -1, axis) - xp.roll(x, 1, axis)) * half

    def around(x: Any) -> Any:
        near = xp.roll(x, 1, 0) + xp.roll(x, -1, 0) + xp.roll(x, 1, 1)
        return near + xp.roll(x, -1, 1) - 4.0 * x

    times = lib.constant(h * np.ones(10))

    def step(w: Any, h: Any) -> Any:
        stream = xp.fft.irfft2(xp.fft.rfft2(w) * inverse)
        carried = slope(stream, 1) * slope(w, 0) - slope(stream, 0) * slope(w, 1)
        w = w + h * (0.1 * around(w) - carried)
        return w, w[0, 0]

    def loss(w: Any) -> Any:
        return xp.mean((lib.scan(step, w, times)[0] - wanted) ** 2)

    return loss


def tridiagonal(lib: Library) -> Function:
    """Implicit steps of heat in rods: the equations are solved number by number."""
    xp, n = lib.np, 32

    def loss(logs: Any, rods: Any) -> Any:
        k = xp.exp(logs)
        middle = 1.0 + k[:-1] + k[1:]
        for _ in range(2):
            c, d = [-k[1] / middle[0]], [rods[:, 0] / middle[0]]
            for i in range(1, n):
                by = middle[i] + k[i] * c[-1]
                c.append(-k[i + 1] / by)
                d.append((rods[:, i] + k[i] * d[-1]) / by)
            found = [d[-1]]
            for i in range(n - 2, -1, -1):
                found.append(d[i] - c[i] * found[-1])
            rods = xp.stack(found[::-1], 1)
        return xp.sum(rods**2)

    return loss


# ---- statistics, transport, images ----


def leapfrog(lib: Library) -> Function:
    """A step of Hamiltonian Monte Carlo for many chains at once."""
    xp = lib.np
    random = np.random.default_rng(1)
    rows = lib.constant(random.normal(size=(200, 5)))
    labels = lib.constant((random.uniform(size=200) < 0.5).astype(float))
    assert lib.grad
    assert lib.vmap

    def energy(q: Any) -> Any:
        z = rows @ q
        return xp.sum(xp.logaddexp(0.0, z) - labels * z) + 0.5 * xp.sum(q**2)

    force = lib.grad(energy)

    def step(start: Any, p: Any, uniform: Any) -> Any:
        before = energy(start) + 0.5 * xp.sum(p**2)
        q, p = start, p - 0.025 * force(start)
        for i in range(5):
            q = q + 0.05 * p
            p = p - (0.05 if i < 4 else 0.025) * force(q)
        after = energy(q) + 0.5 * xp.sum(p**2)
        return xp.where(xp.log(uniform) < before - after, q, start)

    return lib.vmap(step)


def gaussian_process(lib: Library) -> Function:
    """The likelihood of a Gaussian process with a length for each of five inputs."""
    xp, n = lib.np, 200
    random = np.random.default_rng(0)
    points = random.normal(size=(n, 5))
    y = lib.constant(np.sin(points[:, 0]) + 0.5 * points[:, 1] ** 2)
    points, identity = lib.constant((points, np.eye(n)))

    def loss(p: Any) -> Any:
        z = points * xp.exp(-p[:5])
        squares = xp.sum(z**2, 1)
        apart = xp.maximum(squares[:, None] + squares[None, :] - 2.0 * z @ z.T, 0.0)
        cov = xp.exp(p[5]) * xp.exp(-0.5 * apart) + xp.exp(p[6]) * identity
        root = xp.linalg.cholesky(cov)
        a = xp.linalg.solve(root, y)
        return 0.5 * a @ a + xp.sum(xp.log(xp.diag(root)))

    return loss


def sinkhorn(lib: Library) -> Function:
    """The cost of optimal transport between two clouds, by 100 iterations."""
    xp, eps = lib.np, 0.1
    other = lib.constant(np.random.default_rng(0).normal(size=(50, 2)) + 1.0)
    log_a, log_b = -float(np.log(40.0)), -float(np.log(50.0))

    def log_sum_exp(x: Any, axis: int) -> Any:
        top = xp.max(x, axis=axis, keepdims=True)
        return xp.log(xp.sum(xp.exp(x - top), axis=axis)) + xp.squeeze(top, axis)

    def loss(cloud: Any) -> Any:
        cost = xp.sum((cloud[:, None] - other[None]) ** 2, -1)
        u = xp.zeros(40)
        for _ in range(100):
            v = -eps * log_sum_exp((u[:, None] - cost) / eps + log_a, 0)
            u = -eps * log_sum_exp((v[None] - cost) / eps + log_b, 1)
        plan = xp.exp((u[:, None] + v[None] - cost) / eps + log_a + log_b)
        return xp.sum(plan * cost)

    return loss


def registration(lib: Library) -> Function:
    """How well a picture fits another after an affine map, by linear interpolation."""
    xp, n = lib.np, 128
    down, right = np.mgrid[:n, :n].astype(float)
    blobs = np.random.default_rng(0).uniform([20, 20, 4], [108, 108, 14], (12, 3))
    picture = sum(
        np.exp(-((right - x) ** 2 + (down - y) ** 2) / (2 * s * s)) for x, y, s in blobs
    )
    middle = (n - 1) / 2
    wanted, image = lib.constant((np.roll(picture, 3, 0), picture))
    across, along = lib.constant((right - middle, down - middle))

    def loss(p: Any) -> Any:
        x = p[0] * across + p[1] * along + middle + p[4]
        y = p[2] * across + p[3] * along + middle + p[5]
        x, y = xp.clip(x, 0.0, n - 1.001), xp.clip(y, 0.0, n - 1.001)
        left, top = lib.integers(xp.floor(x)), lib.integers(xp.floor(y))
        x, y = x - left, y - top
        found = (
            lib.pick(image, (top, left)) * (1.0 - x) * (1.0 - y)
            + lib.pick(image, (top, left + 1)) * x * (1.0 - y)
            + lib.pick(image, (top + 1, left)) * (1.0 - x) * y
            + lib.pick(image, (top + 1, left + 1)) * x * y
        )
        return xp.mean((found - wanted) ** 2)

    return loss


# ---- inputs ----


def _layer(random: Random, inputs: int, outputs: int) -> dict[str, Any]:
    weights = random.normal(size=(inputs, outputs)) / np.sqrt(inputs)
    return {"w": weights, "b": np.zeros(outputs)}


def _recurrent_inputs(random: Random, gates: int, length: int) -> tuple[Any, ...]:
    normal = random.normal
    size = 16 * gates
    weights = {
        "w": normal(size=(size, 16)) / 4,
        "u": normal(size=(size, 8)) / 4,
        "b": np.zeros(size),
    }
    return weights, normal(size=(length, 8))


def _attention_inputs(random: Random) -> tuple[Any, ...]:
    shapes = {
        "embedding": (16, _WIDTH),
        "position": (_LENGTH, _WIDTH),
        "qkv": (_WIDTH, 3 * _WIDTH),
        "mix": (_WIDTH, _WIDTH),
        "up": (_WIDTH, 4 * _WIDTH),
        "down": (4 * _WIDTH, _WIDTH),
        "out": (_WIDTH, 16),
    }
    weights = {
        name: (random.normal(size=shape) / np.sqrt(shape[0])).astype(np.float32)
        for name, shape in shapes.items()
    }
    for i in (1, 2):
        weights[f"scale{i}"] = np.ones(_WIDTH, np.float32)
        weights[f"shift{i}"] = np.zeros(_WIDTH, np.float32)
    tokens, targets = random.integers(0, 16, (2, 16, _LENGTH))
    return weights, tokens, targets


def _autoencoder_inputs(random: Random) -> tuple[Any, ...]:
    sizes = {"e1": (64, 64), "e2": (64, 16), "d1": (8, 64), "d2": (64, 64)}
    layers = {name: _layer(random, *size) for name, size in sizes.items()}
    return layers, random.uniform(size=(128, 64)), random.normal(size=(128, 8))


def _by_sample_inputs(random: Random) -> tuple[Any, ...]:
    layers = {"first": _layer(random, 32, 32), "second": _layer(random, 32, 4)}
    return layers, random.normal(size=(256, 32)), random.normal(size=(256, 4))


def _physics_inputs(random: Random) -> tuple[Any, ...]:
    sizes = ((1, 32), (32, 32), (32, 1))
    layers = [_layer(random, *size) for size in sizes]
    return layers, np.linspace(0.0, 6.0, 128)


def _logistic_inputs(random: Random) -> tuple[Any, ...]:
    labels = (random.uniform(size=100_000) < 0.5).astype(float)
    return random.normal(size=20), random.normal(size=(100_000, 20)), labels


def _sized(*shape: int) -> Callable[[Random], tuple[Any, ...]]:
    return lambda random: (random.normal(size=shape),)


def _speeds(random: Random) -> tuple[Any, ...]:
    return (np.array([0.3, 0.1]),)


PROGRAMS: dict[str, Program] = {
    "Rosenbrock, 50": Program(rosenbrock, _sized(50)),
    "logistic regression, 100,000 x 20": Program(logistic, _logistic_inputs),
    "RNN, 50 steps": Program(recurrent, lambda r: _recurrent_inputs(r, 1, 50)),
    "LSTM, scan of 100": Program(lstm, lambda r: _recurrent_inputs(r, 4, 100)),
    "VAE step, 128 rows": Program(autoencoder, _autoencoder_inputs),
    "attention, 16 x 16, 32 bits": Program(
        attention, _attention_inputs, precision=1e-4
    ),
    "per-sample gradients, 256": Program(
        by_sample, _by_sample_inputs, ("grad", "vmap"), gradient=False
    ),
    "PINN, 128 points": Program(
        physics_informed, _physics_inputs, ("grad", "jvp", "vmap")
    ),
    "ODE, 25 steps unrolled": Program(
        lambda lib: pendulum(lib, 25, scanned=False), _speeds
    ),
    "ODE, scan of 200": Program(lambda lib: pendulum(lib, 200, scanned=True), _speeds),
    "Kalman filter, scan of 100": Program(
        kalman,
        lambda r: (np.array([2.1, 0.2, -7.0, -4.5]), 0.3 * r.normal(size=100)),
        ("grad", "jacfwd"),
    ),
    "Navier-Stokes, 64 x 64": Program(flow, _sized(64, 64)),
    "tridiagonal solve in scalars": Program(
        tridiagonal, lambda r: (0.1 * r.normal(size=33), r.normal(size=(8, 32)))
    ),
    "HMC, 64 chains": Program(
        leapfrog,
        lambda r: (*r.normal(size=(2, 64, 5)), r.uniform(size=64)),
        ("grad", "vmap"),
        gradient=False,
    ),
    "Gaussian process, 200": Program(
        gaussian_process, lambda r: (np.array([0.0] * 5 + [0.1, -2.0]),)
    ),
    "Sinkhorn, 100 iterations": Program(sinkhorn, _sized(40, 2)),
    "registration, 128 x 128": Program(
        registration,
        lambda r: (
            np.array([1.0, 0.0, 0.0, 1.0, 0.0, 0.0]) + 0.003 * r.normal(size=6),
        ),
    ),
    **{
        f"pointwise, 1e{n}": Program(pointwise, _sized(10**n), gradient=False)
        for n in (3, 4, 5, 6, 7)
    },
}
