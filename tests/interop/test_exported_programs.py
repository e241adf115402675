"""Random programs of random operators in torch and JAX, beside differences of NumPy."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import customop as co

pytestmark = [
    pytest.mark.exhaustive,
    # torch itself calls it for forward mode over reverse mode.
    pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning"),
]

# A function of one number, as its text and that of its derivative.
ATOMS = [
    ("np.sin(x)", "np.cos(x)"),
    ("np.tanh(x)", "1.0 / np.cosh(x) ** 2"),
    ("np.exp(-x * x)", "-2.0 * x * np.exp(-x * x)"),
    ("np.log1p(x * x)", "2.0 * x / (1.0 + x * x)"),
]
ALONE = "def op(x: co.Array) -> co.Array: return {f}"
SCALED = "def op(x: co.Array, a: float = 1.5, *, b: float = 0.5) -> co.Array: return a * {f} + b"
PAIR = "def op(x: co.Array, y: co.Array) -> co.Array: return {f} * y"
LISTED = (
    "def op(xs: list[co.Array], w: list[float]) -> co.Array:\n"
    "    return sum(a * {f} for a, x in zip(w, xs))"
)
MAYBE = (
    "def op(x: co.Array, y: co.Array | None = None) -> co.Array:\n"
    "    return {f} if y is None else {f} + y * y"
)
BOTH = "def op(x: co.Array) -> tuple[co.Array, co.Array]: return {f}, x * np.sum({f})"
# Definition, formulas (none for the gradient of the operator's own code), and its use.
KINDS: list[tuple[str, dict[str, str], Callable[..., Any]]] = [
    (ALONE, {"x": "lambda g, x: g * ({d})"}, lambda op, a, b, s: op(a)),
    (
        SCALED,
        {"x": "lambda g, x, a: g * a * ({d})"},
        lambda op, a, b, s: op(a, 1.0 + s, b=s) if s > 0.5 else op(a),
    ),
    (
        PAIR,
        {"x": "lambda g, x, y: g * y * ({d})", "y": "lambda g, x: g * {f}"},
        lambda op, a, b, s: op(a, b),
    ),
    (LISTED, {}, lambda op, a, b, s: op([a, b], [0.5, s])),
    (MAYBE, {}, lambda op, a, b, s: op(a, b) if s > 0.3 else op(a)),
    (BOTH, {}, lambda op, a, b, s: 0.5 * op(a)[0] + s * op(a)[1]),
]


def _operators(rng: random.Random) -> Iterator[tuple[Any, Callable[..., Any]]]:
    """One operator of each kind, and how it is used."""
    for number, (text, formulas, use) in enumerate(KINDS):
        f, d = rng.choice(ATOMS)
        names: dict[str, Any] = {"np": np, "co": co}
        exec(text.format(f=f), names)  # the texts above
        pointwise = {"tags": co.Tag.pointwise} if formulas else {}
        name = f"exported_programs::op{number}_{rng.randrange(10**9)}"
        op: Any = co.custom_op(name, names["op"], mutates_args=(), **pointwise)
        if formulas:
            rules = {
                k: eval(v.format(f=f, d=d), names) for k, v in formulas.items()
            }  # as above
            op.register_autograd(co.partials(rules))
        else:
            op.register_autograd(co.native)
            fakes = {LISTED: lambda xs, w: co.fake_like(xs[0])}
            fakes[MAYBE] = lambda x, y: co.fake_like(x)
            fakes[BOTH] = lambda x: (co.fake_like(x), co.fake_like(x))
            op.register_fake(fakes[text])
        yield op, use


def _program(rng: random.Random, uses: list[Any]) -> Callable[..., Any]:
    """A loss of operators, of an array `x` beside another one."""
    steps = [
        (rng.randrange(len(uses)), rng.random(), rng.random(), rng.random())
        for _ in range(rng.randint(1, 4))
    ]

    def run(ops: list[Any], x: Any, y: Any) -> Any:
        values = [x, y]
        for which, first, second, number in steps:
            a, b = (values[int(at * len(values))] for at in (first, second))
            values.append(0.7 * uses[which](ops[which], a, b, number))
        return (values[-1] + 0.1 * values[len(values) // 2] * values[-1]).sum()

    return run


def _torch_slopes(run: Any, ops: list[Any], x: Any, y: Any, v: Any) -> list[float]:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    x, y, v = (torch.from_numpy(a.copy()) for a in (x, y, v))

    def slope(x: Any) -> Any:
        value = torch.func.grad(lambda x: run(ops, x, y))(x)
        return (value * v).sum()

    found = [run(ops, x, y), slope(x), torch.func.jvp(slope, (x,), (v,))[1]]
    leaf = x.clone().requires_grad_()
    value = run(ops, leaf, y)
    if value.requires_grad:
        (by_tape,) = torch.autograd.grad(value, leaf)
        np.testing.assert_allclose(
            (by_tape * v).sum(), found[1], rtol=1e-10, atol=1e-12
        )
    return [float(number) for number in found]


def _jax_slopes(run: Any, ops: list[Any], x: Any, y: Any, v: Any) -> list[float]:
    jax = pytest.importorskip("jax", reason="JAX is not installed")
    with jax.enable_x64(True):
        x, y, v = (jax.numpy.asarray(a) for a in (x, y, v))
        fn = lambda x: run(ops, x, y)
        slope = lambda x: (jax.grad(fn)(x) * v).sum()
        found = [fn(x), slope(x), jax.jvp(slope, (x,), (v,))[1]]
        np.testing.assert_allclose(
            jax.jvp(fn, (x,), (v,))[1], found[1], rtol=1e-10, atol=1e-12
        )
        return [float(number) for number in found]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("framework", "slopes", "count"),
    [("torch", _torch_slopes, 40), ("jax", _jax_slopes, 6)],
    ids=["torch", "jax"],
)
def test_gradients_are_those_of_differences(
    framework: str, slopes: Callable[..., list[float]], count: int, seed: int
) -> None:
    """Value, and first and second derivative along a line, of operators made at random."""
    pytest.importorskip(framework, reason=f"{framework} is not installed")
    bridge = pytest.importorskip(f"customop.interop.{framework}")
    rng = random.Random(f"{framework} {seed}")
    ops, uses = (list(part) for part in zip(*_operators(rng), strict=True))
    exported = [bridge.export(op) for op in ops]
    for _ in range(count):
        shape = rng.choice([(3,), (2, 3), (1, 2), (2, 1, 2), (1,)])
        numbers = np.random.default_rng(rng.randrange(10**6))
        x, y, v = (0.6 * numbers.standard_normal(shape) for _ in range(3))
        run = _program(rng, uses)
        found = slopes(run, exported, x, y, v)
        at = lambda step: run(ops, x + step * v, y)  # noqa: B023  # called in this turn
        np.testing.assert_allclose(found[0], at(0.0), rtol=1e-10, atol=1e-12)
        expected = (at(1e-5) - at(-1e-5)) / 2e-5
        np.testing.assert_allclose(found[1], expected, rtol=1e-6, atol=1e-6)
        expected = (at(1e-4) - 2.0 * at(0.0) + at(-1e-4)) / 1e-8
        np.testing.assert_allclose(found[2], expected, rtol=3e-4, atol=3e-4)
