"""Random programs of Fourier transforms, convolutions, differences and polynomials.

Each program is a chain of NumPy functions, made for the shape and dtype that come along.
Under every transform it must give NumPy's numbers, and the slopes of differences.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co

Step = Callable[[Any], Any]

# ---- steps: a function of the array, for the array that comes along ----


def _number(rng: np.random.Generator, *shape: int) -> Any:
    return rng.uniform(-1, 1, shape)


def _axis(rng: np.random.Generator, x: Any) -> int:
    return int(rng.integers(-x.ndim, x.ndim))


def _transform(rng: np.random.Generator, x: Any) -> Step:
    """Any function of np.fft, with lengths, axes and norms."""
    norm = (None, "backward", "ortho", "forward")[rng.integers(4)]
    real_only = ("rfft", "ihfft", "rfftn", "rfft2")
    names = ["fft", "ifft", "irfft", "hfft", "fftn", "ifftn", "irfftn"]
    names += [*real_only[:3]] * (x.dtype.kind == "f")
    if x.ndim > 1:
        names += ["fft2", "ifft2", "irfft2", *real_only[3:] * (x.dtype.kind == "f")]
    name = str(rng.choice(names))
    fn: Any = getattr(np.fft, name)
    if name[-1] == "t":
        n = None if rng.random() < 0.3 else int(rng.integers(1, 8))
        axis = _axis(rng, x)
        return lambda y: fn(y, n, axis, norm)
    if name[-1] == "2":
        return lambda y: fn(y, norm=norm)
    axes = rng.permutation(x.ndim)[: rng.integers(1, x.ndim + 1)].tolist()
    axes += axes[:1] * int(rng.random() < 0.2)
    s = [int(rng.integers(1, 7)) for _ in axes] if rng.random() < 0.6 else None
    return lambda y: fn(y, s, axes, norm)


def _shifted(rng: np.random.Generator, x: Any) -> Step:
    fn = (np.fft.fftshift, np.fft.ifftshift)[rng.integers(2)]
    axes = [None, 0, tuple(range(x.ndim))][rng.integers(3)]
    return lambda y: fn(y, axes)


def _convolved(rng: np.random.Generator, x: Any) -> Step:
    fn: Any = (np.convolve, np.correlate)[rng.integers(2)]
    mode = ("full", "same", "valid")[rng.integers(3)]
    other = _number(rng, int(rng.integers(1, 9)))
    which = rng.integers(3)
    if which == 0:
        return lambda y: fn(y.ravel(), other, mode)
    if which == 1:
        return lambda y: fn(other * (1 + 2j), y.ravel(), mode)
    return lambda y: fn(y.ravel(), y.ravel()[::-2], mode)


def _differences(rng: np.random.Generator, x: Any) -> Step:
    axis = _axis(rng, x)
    length = x.shape[axis]
    n = int(rng.integers(0, 3))
    end = _number(rng)
    steps: list[Step] = [
        lambda y: np.diff(y, n, axis, append=end),
        lambda y: np.ediff1d(y, to_begin=y.ravel()[:1]),
        lambda y: np.trapezoid(y, dx=0.3, axis=axis),
    ]
    if length > 2:
        places = np.cumsum(rng.uniform(0.2, 1, length))
        order = int(rng.integers(1, 3))
        steps += [
            lambda y: np.gradient(y, places, axis=axis, edge_order=order),  # type: ignore[call-overload]  # 1 or 2
            lambda y: np.gradient(y, 0.4, axis=axis),
            lambda y: np.trapezoid(y, places * (1 + y.real**2).max(), axis=axis),
        ]
    if length == 3:
        steps.append(lambda y: np.cross(y, np.roll(y, 1), axis=axis) + y)
    return steps[rng.integers(len(steps))]


def _elementwise(rng: np.random.Generator, x: Any) -> Step:
    steps: list[Step] = [
        np.sinc,
        np.conj,
        lambda y: np.nan_to_num(y * 2),
        lambda y: np.tanh(y) * y.T.ravel()[0],
        lambda y: np.polyval(np.array([0.5, -1.0, 0.3]), y),
        lambda y: np.polyval(y.ravel()[:3], 0.7 * y),
        lambda y: np.flip(y, 0)[..., None],
    ]
    if x.dtype.kind == "c":
        # Away from 0 and from the cut, where angles and sizes have no slope.
        steps += [lambda y: np.angle(y + 3), lambda y: np.abs(y + 3)]
        steps += [np.real, lambda y: y.imag + y.real]
    else:
        xp, fp = np.cumsum(rng.uniform(0.1, 0.5, 5)) - 1, _number(rng, 5)
        steps += [
            np.i0,
            lambda y: np.interp(y, xp, fp, left=0.3),
            lambda y: np.interp(y, xp, fp, period=1.7),
            lambda y: np.unwrap(5 * y, axis=0),
            lambda y: y + 1j * y[::-1] ** 2,
        ]
    return steps[rng.integers(len(steps))]


def _polynomials(rng: np.random.Generator, x: Any) -> Step:
    other = np.array([1.0, 0.3])
    steps: list[Step] = [
        lambda y: np.polymul(y.ravel() + 3, other),  # no zero to cut off
        lambda y: np.polyint(y.ravel(), 2),
        lambda y: np.polyder(y.ravel() * 0.3),
        lambda y: np.polyadd(other, y.ravel()),
        lambda y: np.vander(y.ravel()[:4], 3),
        lambda y: np.polydiv(y.ravel(), other)[0],
    ]
    if x.dtype.kind == "f":
        edges, places = np.array([-2.0, -0.3, 0.1, 2.0]), np.arange(x.size) * 3 % 5
        steps += [
            lambda y: np.bincount(places, y.ravel(), minlength=5),
            lambda y: np.histogram(y, edges, weights=y**2)[0],
            lambda y: np.histogram(y, 2, density=True)[1],
        ]
    return steps[rng.integers(len(steps))]


MAKERS = (
    _transform,
    _transform,
    _shifted,
    _convolved,
    _differences,
    _elementwise,
    _elementwise,
    _polynomials,
)


def random_program(rng: np.random.Generator) -> tuple[Any, Step]:
    """An array, and a chain of steps that stays small in numbers and size."""
    x = _number(rng, *rng.integers(1, 5, rng.integers(1, 4)))
    if rng.random() < 0.3:
        x = x + 1j * _number(rng, *x.shape)
    steps: list[tuple[Step, float]] = []
    y = x
    for _ in range(rng.integers(1, 6)):
        step = MAKERS[rng.integers(len(MAKERS))](rng, y)
        try:
            found = np.asarray(step(y))
        except ValueError:  # irfft of one element
            continue
        if not found.size or found.size > 300 or not np.all(np.isfinite(found)):
            continue
        scale = float(1 / (1 + np.abs(found).max()))
        if found.ndim:
            y = found * scale
            steps.append((step, scale))

    def program(x: Any) -> Any:
        for step, scale in steps:
            x = step(x) * scale
        return x

    return x, program


# ---- checks ----


def size(y: Any) -> Any:
    """One real number of an array."""
    weights = np.cos(np.arange(np.prod(y.shape, dtype=int))).reshape(y.shape)
    return np.sum(weights * (y.real + 0.7 * y.imag) ** 2)


def slope(fn: Callable[[Any], Any], x: Any, way: Any) -> Any:
    """The slope in a direction by differences; None where two steps disagree."""
    near, far = ((fn(x + h * way) - fn(x - h * way)) / (2 * h) for h in (1e-6, 3e-6))
    scale = 1e-6 * (1 + np.max(np.abs(near)))
    return near if np.all(np.abs(near - far) < scale) else None


def check(seed: int) -> None:
    """One program under every transform."""
    rng = np.random.default_rng(seed)
    x, program = random_program(rng)
    fn = lambda x: size(program(x))
    expected = np.asarray(program(x))
    fake = co.eval_shape(program, x)
    assert (fake.shape, fake.dtype) == (expected.shape, expected.dtype)
    rows = np.stack([x, x * 0.9])
    both = np.stack([expected, np.asarray(program(rows[1]))])
    np.testing.assert_allclose(co.vmap(program)(rows), both, rtol=1e-9, atol=1e-11)
    value, gradient = co.value_and_grad(fn)(x)
    np.testing.assert_allclose(value, fn(x), rtol=1e-12, atol=1e-14)
    way = _number(rng, *x.shape) + (
        1j * _number(rng, *x.shape) if x.dtype.kind == "c" else 0
    )
    expected = slope(fn, x, way)
    if expected is None:
        return
    found = np.sum(gradient * way).real
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)
    moved = co.jvp(fn, (x,), (way,))[1]
    np.testing.assert_allclose(moved, found, rtol=1e-9, atol=1e-11)
    per_row = co.vmap(co.grad(fn))(rows)
    np.testing.assert_allclose(per_row[0], gradient, rtol=1e-8, atol=1e-10)
    expected = slope(co.grad(fn), x, way)
    if expected is not None:
        moved = co.jvp(co.grad(fn), (x,), (way,))[1]
        np.testing.assert_allclose(moved, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", range(4))
def test_random_programs(part: int) -> None:
    """NumPy's numbers and slopes under grad, jvp, vmap, fake arrays and nestings."""
    with np.errstate(all="ignore"):
        for seed in range(part * 25, part * 25 + 25):
            try:
                check(seed)
            except Exception as error:
                error.add_note(f"seed {seed}")
                raise
