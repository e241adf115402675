"""Random programs of functions with rules and checkpoints, inside random transforms.

A program is a chain of functions of two arrays. Its twin has the same functions without
rules; both must agree, since the rules here are right. The programs of the words of
`test_nesting` have exact answers; these mix shapes, batches and gradients by both arrays.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co

pytestmark = pytest.mark.exhaustive

Fn = Callable[[Any, Any], Any]

# Functions of x and w, and their derivatives by both.
FUNCTIONS: list[tuple[Fn, Callable[[Any, Any], tuple[Any, Any]]]] = [
    (lambda x, w: x * w + np.sin(x), lambda x, w: (w + np.cos(x), x)),
    (lambda x, w: x * x * w + 0.5, lambda x, w: (2 * x * w, x * x)),
    (
        lambda x, w: np.exp(0.5 * x) * np.cos(w),
        lambda x, w: (0.5 * np.exp(0.5 * x) * np.cos(w), -np.exp(0.5 * x) * np.sin(w)),
    ),
]


def by_vjp(f: Fn, d: Any) -> Fn:
    custom = co.custom_vjp(lambda x, w: f(x, w))
    custom.defvjp(
        lambda x, w: (f(x, w), {"x": x, "w": w}),
        lambda r, g: tuple(g * part for part in d(r["x"], r["w"])),
    )
    return custom


def by_jvp(f: Fn, d: Any) -> Fn:
    custom = co.custom_jvp(lambda x, w: f(x, w))

    @custom.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        by_x, by_w = d(*primals)
        return f(*primals), by_x * tangents[0] + by_w * tangents[1]

    return custom


def by_both(f: Fn, d: Any) -> Fn:
    reverse: Any = by_vjp(f, d)
    forward: Any = by_jvp(f, d)
    reverse.defjvp(forward.jvp)
    both: Fn = reverse
    return both


def by_root(f: Fn, d: Any, tangent_solve: Any = None) -> Fn:
    """Find the value of the function as the root of an equation linear in it."""

    def secant(g: Any, y: Any) -> Any:
        return y - g(y) / (g(y + 1.0) - g(y))

    root = co.custom_root(
        lambda y, x, w: (y - f(x, w)) * (3.0 + np.sin(x * w)), secant, tangent_solve
    )
    return lambda x, w: root(np.zeros_like(x + w), x, w)


def in_place(f: Fn, d: Any) -> Fn:
    def written(x: Any, w: Any) -> Any:
        y = np.zeros_like(x + w)
        y[...] += f(x, w)
        return y

    return co.checkpoint(written)


WRAPS: list[Callable[[Fn, Any], Fn]] = [
    by_vjp,
    by_jvp,
    by_both,
    by_root,
    lambda f, d: by_root(f, d, lambda product, b: b / product(np.ones_like(b))),
    in_place,
    lambda f, d: co.checkpoint(f),
    lambda f, d: co.checkpoint(by_vjp(f, d)),
    lambda f, d: co.checkpoint(by_jvp(f, d)),
]

TRANSFORMS: list[Callable[[Fn], Fn]] = [
    lambda f: lambda x, w: co.grad(lambda x: np.sum(f(x, w)))(x),
    lambda f: lambda x, w: co.grad(lambda w: np.sum(f(x, w)))(w),
    lambda f: lambda x, w: co.jvp(f, (x, w), (w + 1, x - 1))[1],
    lambda f: lambda x, w: co.linearize(f, x, w)[1](x + 1, w),
    lambda f: lambda x, w: np.sum(co.vmap(f, (0, None))(np.stack([x, 2 * x]), w), 0),
    lambda f: lambda x, w: np.sum(co.vmap(f, (None, 1), 1)(x, np.stack([w, -w], 1)), 1),
    lambda f: lambda x, w: np.sum(co.jacrev(f)(x, w), 0),
    lambda f: lambda x, w: np.sum(co.jacfwd(f, 1)(x, w), 1),
    lambda f: lambda x, w: np.sum(co.hessian(lambda x: np.sum(f(x, w)))(x), 0),
    lambda f: co.checkpoint(f),
]


def chain(functions: list[Fn]) -> Fn:
    def run(x: Any, w: Any) -> Any:
        for fn in functions:
            x = fn(x, w)
        return x

    return run


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_programs(first: int) -> None:
    """Values agree with those of the twin without rules, to rounding."""
    for seed in range(first, first + 20):
        rng = random.Random(seed)
        chosen = [rng.choice(FUNCTIONS) for _ in range(rng.randint(1, 3))]
        plain = chain([f for f, _ in chosen])
        custom = chain([rng.choice(WRAPS)(f, d) for f, d in chosen])
        for transform in [rng.choice(TRANSFORMS) for _ in range(rng.randint(1, 3))]:
            plain, custom = transform(plain), transform(custom)
        x, w = np.random.default_rng(seed).uniform(-1, 1, (2, 2))
        np.testing.assert_allclose(
            custom(x, w), plain(x, w), rtol=1e-8, atol=1e-10, err_msg=f"seed {seed}"
        )
