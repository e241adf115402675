"""The same programs by JAX, where it is installed: values, gradients, batches."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import customop as co

RNG = np.random.default_rng(4)
W, XS, H = RNG.normal(size=(3, 3)) / 2, RNG.normal(size=(5, 3)), RNG.normal(size=3)

OURS = SimpleNamespace(
    cond=co.cond,
    while_loop=co.while_loop,
    fori_loop=co.fori_loop,
    scan=co.scan,
    map=co.map,
    np=np,
)


@pytest.fixture
def jax() -> Any:
    found = pytest.importorskip("jax", reason="jax is the other side of this test")
    found.config.update("jax_enable_x64", True)
    return found


def recurrent(by: Any, h: Any, xs: Any) -> Any:
    """A recurrent cell that some inputs reset."""

    def step(h: Any, x: Any) -> Any:
        new = by.cond(x[0] > 0.5, lambda h: 0.1 * h, lambda h: by.np.tanh(W @ h + x), h)
        return new, (by.np.sum(new * x), new)

    last, (sums, states) = by.scan(step, h, xs, reverse=True)
    return by.np.sum(last**2) + by.np.sum(sums) + by.np.sum(by.np.sin(states))


def collatz(by: Any, h: Any, xs: Any) -> Any:
    """Steps whose number depends on the values."""
    count, value = by.while_loop(
        lambda c: (c[0] < 6) & (by.np.sum(c[1]) < 20),
        lambda c: (c[0] + 1, by.np.sin(c[1]) + 1.5 * c[1] * c[1]),
        (0, h * h),
    )
    return by.np.sum(value) * count + by.np.sum(xs)


def powers(by: Any, h: Any, xs: Any) -> Any:
    total = by.fori_loop(0, 4, lambda i, c: c * xs[0] + i * h, h)
    return by.np.sum(total) + by.np.sum(by.map(lambda x: by.np.exp(x) @ h, xs))


@pytest.mark.exhaustive
@pytest.mark.parametrize("fn", [recurrent, collatz, powers])
def test_same_as_jax(fn: Any, jax: Any) -> None:
    """Eager and captured; a while_loop has only forward mode there."""
    lax = jax.lax
    names = ("cond", "while_loop", "fori_loop", "scan", "map")
    theirs_by = SimpleNamespace(np=jax.numpy, **{n: getattr(lax, n) for n in names})
    ours = lambda h, xs: fn(OURS, h, xs)  # short
    theirs = lambda h, xs: fn(theirs_by, h, xs)  # short
    hs = RNG.normal(size=(4, 3))
    graph = co.make_fx(ours)(H, XS)
    for given in (H, hs[0]):
        want = theirs(given, XS)
        np.testing.assert_allclose(ours(given, XS), want)
        np.testing.assert_allclose(graph(given, XS), want)
        slopes = jax.jacfwd(theirs)(given, XS)
        np.testing.assert_allclose(co.grad(ours)(given, XS), slopes)
        np.testing.assert_allclose(co.grad(graph)(given, XS), slopes)
        second = jax.jacfwd(jax.jacfwd(theirs))(given, XS)
        np.testing.assert_allclose(co.hessian(ours)(given, XS), second, atol=1e-10)
    rows = jax.vmap(theirs, in_axes=(0, None))(hs, XS)
    batched = co.vmap(ours, in_dims=(0, None))
    np.testing.assert_allclose(batched(hs, XS), rows)
    np.testing.assert_allclose(co.make_fx(batched)(hs, XS)(hs, XS), rows)
