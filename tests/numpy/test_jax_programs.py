"""Random programs, written once as text, have JAX's derivatives in nested transforms.

A row has a program and the shapes of its arguments; `<a|b>` is a choice. A nesting is a word
of ways to take a directional derivative and of ways to run a function; the oracle is JAX.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import customop as co

jax = pytest.importorskip("jax")

pytestmark = [pytest.mark.exhaustive, pytest.mark.filterwarnings("ignore")]

Fn = Callable[..., Any]
Arrays = Sequence[Any]
Shapes = tuple[tuple[int, ...], ...]
MATRIX: Shapes = ((3, 3),)
WIDE: Shapes = ((2, 3),)
ROW: Shapes = ((3,),)
AXES = "axis={None|0|-1|(1, 0)}, keepdims={True|False}"
METHODS = (
    "{inverted_cdf|averaged_inverted_cdf|hazen|weibull|linear|lower|higher|midpoint}"
)

PROGRAMS: list[tuple[str, Shapes]] = [
    (
        "xp.{sum|prod|mean|max|min|std|var|median|nanmean|nanstd|ptp}(x, " + AXES + ")",
        WIDE,
    ),
    ("xp.{sum|prod|mean|var}(x, axis={0|1}, where=x > -0.5)", WIDE),
    ("xp.{max|min}(x, axis={None|1}, initial={0.1|9.0|-9.0}, where=x < 0.7)", WIDE),
    ("xp.average(x, axis={0|1}, weights=y**2 + 0.1, keepdims={True|False})", WIDE * 2),
    ("xp.{cumsum|cumprod|nancumprod}(x, axis={None|0|-1})", WIDE),
    ("xp.cumulative_{sum|prod}(x, axis=1, include_initial={True|False})", WIDE),
    (
        "xp.quantile(x, xp.asarray([0.3, 0.77]), axis={None|1}, method='"
        + METHODS
        + "')",
        WIDE,
    ),
    (
        "xp.fft.{fft|ifft|hfft|irfft}(x + 1j * y, {None|5|2}, {0|-1}, {None|'ortho'})",
        WIDE * 2,
    ),
    ("xp.fft.{rfft|ihfft}(x, {None|4|2}, {0|-1}, {None|'ortho'|'forward'})", WIDE),
    ("xp.fft.{fftn|irfft2|rfftn}(x, {None|(2, 4)}, axes={(0, 1)|(1, 0)})", MATRIX),
    (
        "xp.einsum('{ij,jk|ij,jk->ki|ii,jk|ij,ij->i|ij,kl->|...j,j...}', x, y)",
        MATRIX * 2,
    ),
    (
        "xp.einsum(x, [0, 1], y, [1, 2], {[2, 0]|[]|[0, 1, 2]}, optimize={True|False})",
        MATRIX * 2,
    ),
    ("xp.{matmul|dot|inner|outer|kron|vdot|tensordot}(x, y)", MATRIX * 2),
    ("xp.{cross|convolve|correlate|vecdot}(x, y)", ROW * 2),
    ("xp.convolve(x, y, mode='{full|same|valid}')", ((3,), (5,))),
    ("xp.linalg.{inv|det|pinv|cond|norm}(x)", MATRIX),
    ("xp.linalg.norm(x, {'fro'|'nuc'|xp.inf|-1|2|-2}, axis={(0, 1)|(1, 0)})", MATRIX),
    ("xp.linalg.matrix_power(x, {-2|-1|0|3})", MATRIX),
    ("xp.linalg.solve(x, y) * xp.linalg.slogdet(x)[1]", ((3, 3), (3,))),
    ("xp.linalg.cholesky(x @ x.T, upper={True|False})", MATRIX),
    ("(lambda w, v: v @ xp.diag(w**3) @ v.T)(*xp.linalg.eigh(x + x.T))", MATRIX),
    ("(lambda q, r: xp.abs(q) @ xp.abs(r))(*xp.linalg.qr(x))", MATRIX),
    ("(lambda u, s, v: u @ xp.diag(xp.sin(s)) @ v)(*xp.linalg.svd(x))", MATRIX),
    ("xp.linalg.lstsq(x[:, :2], y)[0]", ((3, 3), (3,))),
    ("xp.diff(x, {1|2}, axis=1, prepend=y[:, :1], append={0.5|y})", WIDE * 2),
    ("xp.{gradient(x, 0.4, axis=1)|trapezoid(x, y, axis=1)|unwrap(9 * x)}", WIDE * 2),
    (
        "xp.interp(x, xp.asarray([-1.0, 0.1, 0.8]), y{|, period=1.7|, left=0.2})",
        ROW * 2,
    ),
    ("xp.{polyval|polyadd|polymul|polysub}(x, y)", ROW * 2),
    ("xp.polyfit(y, x, {1|2})", ((5,), (5,))),
    ("xp.{sort|flip}(x, axis={0|1})", WIDE),
    ("xp.take(x, xp.asarray([[2, -1], [0, 2]]), axis={1|-1})", WIDE),
    (
        "xp.pad(x, {1|((1, 0), (0, 2))}, '{constant|edge|wrap|symmetric|mean|linear_ramp}')",
        WIDE,
    ),
    ("xp.where(x > 0, xp.log(xp.where(x > 0, x, 1.0)), y**3)", WIDE * 2),
    ("xp.select([x > 0.5, x > 0], [x * y, xp.sin(y)], default=0.5)", WIDE * 2),
    ("xp.{tril|triu|diag}(x, {-1|0|1})", MATRIX),
    (
        "xp.{maximum|minimum|hypot|arctan2|logaddexp|copysign|fmod|remainder}(x, y)",
        WIDE * 2,
    ),
    (
        "xp.{exp2|expm1|tanh|sinc|arcsinh|i0|cbrt|log1p|abs|cosh}(0.9 * xp.tanh(x))",
        WIDE,
    ),
    (
        "xp.abs(xp.{exp|sqrt|log|tan|arcsin|arccosh|arctan}(x + 0.7j * y)) ** 2",
        WIDE * 2,
    ),
    ("xp.{multiply|add|maximum}.{reduce|accumulate}(x, axis={0|1})", WIDE),
]


Wrapper = Callable[[Fn], Fn]


def program(draw: random.Random) -> tuple[str, Shapes]:
    """A row, with its choices made."""
    text, shapes = draw.choice(PROGRAMS)
    return re.sub(r"\{([^{}]*)\}", lambda m: draw.choice(m[1].split("|")), text), shapes


def built(text: str, xp: Any) -> Fn:
    """A program for NumPy or for JAX."""
    found: Fn = eval(f"lambda x, y=None: {text}", {"xp": xp})  # of this file
    return found


# ---- ways to run a function ----


def by_graph(fn: Fn) -> Fn:
    return lambda *xs: co.make_fx(fn, "fake")(*xs)(*xs)


def by_cond(fn: Fn) -> Fn:
    return lambda *xs: co.cond(np.sum(xs[0]) < 1e9, fn, lambda *xs: 2 * fn(*xs), *xs)


def by_scan(fn: Fn) -> Fn:
    rows = lambda xs: tuple([np.stack([x, 2 * x]) for x in xs])
    return lambda *xs: co.scan(lambda c, row: (c, fn(*row)), 0.0, rows(xs))[1][0]


def by_while(fn: Fn) -> Fn:
    step = lambda xs: lambda c: (c[0] + 1, fn(*xs))
    return lambda *xs: co.while_loop(lambda c: c[0] < 2, step(xs), (0, 0 * fn(*xs)))[1]


def by_rule(fn: Fn) -> Fn:
    @co.custom_vjp
    def ruled(*xs: Any) -> Any:
        return fn(*xs)

    ruled.defvjp(lambda *xs: (fn(*xs), xs), lambda xs, g: co.vjp(fn, *xs)[1](g))
    return ruled


RUNS: list[Wrapper] = [co.checkpoint, co.compile, by_graph, by_cond, by_scan, by_while]
RUNS += [by_rule]

# ---- ways to take the derivative of a real function in a direction ----


def dot(gradients: Any, ts: Arrays) -> Any:
    return sum([np.sum(g * t) for g, t in zip(gradients, ts, strict=True)])


WAYS: list[Callable[[Fn, Arrays], Fn]] = [
    lambda fn, ts: lambda *xs: co.jvp(fn, xs, tuple(ts))[1],
    lambda fn, ts: lambda *xs: co.linearize(fn, *xs)[1](*ts),
    lambda fn, ts: lambda *xs: dot(co.vjp(fn, *xs)[1](np.float64(1.0)), ts),
    lambda fn, ts: lambda *xs: dot(co.grad(fn, tuple(range(len(ts))))(*xs), ts),
    lambda fn, ts: lambda *xs: dot(co.jacfwd(fn, tuple(range(len(ts))))(*xs), ts),
]


def check(
    text: str, xs: Arrays, directions: Sequence[Arrays], draw: random.Random
) -> None:
    """Compare the derivatives of one program with those of JAX."""
    fn, oracle = built(text, np), built(text, jax.numpy)
    ts = directions[0]
    value, want = map(np.asarray, jax.jvp(oracle, tuple(xs), tuple(ts)))
    found, tangent = co.jvp(fn, tuple(xs), tuple(ts))
    np.testing.assert_allclose(found, value, rtol=1e-9, atol=1e-11, err_msg=text)
    np.testing.assert_allclose(tangent, want, rtol=1e-7, atol=1e-9, err_msg=text)
    weights = np.cos(np.arange(value.size)).reshape(value.shape)
    weights = weights * (1 + 0.5j) if value.dtype.kind == "c" else weights
    seen = dot(co.vjp(fn, *xs)[1](weights), ts)
    scale = max(1.0, np.abs(want).sum())
    np.testing.assert_allclose(
        seen, np.sum((weights * want).real), 1e-7, 1e-9 * scale, err_msg=text
    )

    outer = lambda *xs: jax.numpy.sum(jax.numpy.real(weights * oracle(*xs)))
    order, runs, ways = (
        draw.choice([1, 2, 2, 3]),
        draw.choices(RUNS, k=4),
        draw.choices(WAYS, k=3),
    )
    inner = runs[0](fn)
    nested: Fn = lambda *xs: np.sum(np.real(weights * inner(*xs)))
    for ts, way, run in zip(directions[:order], ways, runs[1:], strict=False):
        outer = pushed(outer, ts)
        nested = way(nested, ts)
        nested = run(nested) if draw.random() < 0.4 else nested
    want = np.asarray(outer(*xs))
    near = {
        "rtol": 1e-6,
        "atol": 1e-7 * scale,
        "err_msg": f"{text} {order} {runs} {ways}",
    }
    np.testing.assert_allclose(nested(*xs), want, **near)
    rows = co.vmap(nested)(*[np.stack([x, x]) for x in xs])
    np.testing.assert_allclose(rows, [want, want], **near)


def pushed(fn: Fn, ts: Arrays) -> Fn:
    return lambda *xs: jax.jvp(fn, xs, tuple(ts))[1]


@pytest.mark.parametrize("seed", range(4))
def test_derivatives_are_those_of_jax(seed: int) -> None:
    """Tangents, cotangents and nested directional derivatives of random programs."""
    draw, numbers = random.Random(seed), np.random.default_rng(seed)
    with jax.enable_x64(True):
        for _ in range(9):
            text, shapes = program(draw)
            lists = [[numbers.uniform(-1, 1, s) for s in shapes] for _ in range(4)]
            xs = [x + np.eye(3) if x.shape == (3, 3) else x for x in lists[0]]
            check(text, xs, lists[1:], draw)
