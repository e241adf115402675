"""Backward formulas that torch runs itself: numbers, what they depend on, and where not."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import customop as co

torch: Any = pytest.importorskip("torch", reason="torch is not installed")

from customop.interop.torch import export, remove_export  # noqa: E402
from customop.interop.torch.rule_code import RuleCodes  # noqa: E402

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.filterwarnings("default"),  # torch has deprecations of its own
]

NUMBERS = itertools.count()
Calls = Callable[..., tuple[Any, int, int]]


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Run a function; return its result, how often torch ran a rule, and how often not."""
    seen: list[bool] = []
    run = RuleCodes.run

    def counted(self: Any, call: Any, tensors: Any) -> Any:
        found = run(self, call, tensors)
        seen.append(found is not None)
        return found

    monkeypatch.setattr(RuleCodes, "run", counted)

    def counting(fn: Any, *args: Any) -> tuple[Any, int, int]:
        seen.clear()
        found = fn(*args)
        return found, sum(seen), len(seen) - sum(seen)

    return counting


@pytest.fixture
def by_rule() -> Callable[..., Any]:
    """Run a function as if torch had none of the functions of a rule."""

    def run(fn: Any, *args: Any) -> Any:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(RuleCodes, "run", lambda *_: None)
            return fn(*args)

    return run


@pytest.fixture
def made() -> Iterator[Callable[..., Any]]:
    """Make exported operators of one array; they are removed after the test."""
    done: list[Any] = []

    def make(backward: Any, kernel: Any = np.sin, *, reads: bool = False) -> Any:
        op: Any = co.custom_op(
            f"torch_rules::made_{next(NUMBERS)}",
            kernel,
            mutates_args=(),
            schema="(Array x) -> Array",
            tags=co.Tag.pointwise,
        )
        op.register_fake(lambda x: co.fake_like(x))

        def saved(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(output if reads else inputs[0])

        op.register_autograd(backward, setup_context=saved)
        done.append(op)
        return export(op)

    yield make
    for op in done:
        remove_export(op)


def _slope(fn: Any, x: Any) -> Any:
    x = x.detach().requires_grad_()
    (found,) = torch.autograd.grad(fn(x).sum(), x)
    return found


def _second(fn: Any, x: Any) -> Any:
    x = x.detach().requires_grad_()
    (slope,) = torch.autograd.grad(fn(x).sum(), x, create_graph=True)
    total = (slope * slope).sum() + 0 * x.sum()  # a slope may be constant
    (found,) = torch.autograd.grad(total, x)
    return found


X = torch.linspace(0.1, 1.3, 6, dtype=torch.float64).reshape(2, 3)


def _cosine(ctx: Any, g: Any) -> Any:
    return g * np.cos(ctx.saved_arrays[0])


def _in_place(ctx: Any, g: Any) -> Any:
    out = np.zeros_like(g)
    out[...] = g
    out *= np.cos(ctx.saved_arrays[0])
    return out


def _by_rows(ctx: Any, g: Any) -> Any:
    (x,) = ctx.saved_arrays
    return np.concatenate([g[:1], g[1:]]) * np.stack([np.cos(row) for row in x])


def _places(ctx: Any, g: Any) -> Any:
    (x,) = ctx.saved_arrays
    return (g * np.cos(x))[:, np.array([2, 1, 0])][:, [2, 1, 0]]


# ---- numbers ----


@pytest.mark.parametrize("backward", [_cosine, _in_place, _by_rows, _places])
def test_gradients_are_torchs_own(made: Any, count: Calls, backward: Any) -> None:
    """In eager code, in second derivatives, batches, jacobians and compiled code."""
    op = made(backward)
    compiled = torch.compile(op, backend="aot_eager", dynamic=False)
    rows = torch.stack([X, X + 1])
    for way, given in (
        (_slope, X),
        (_slope, X.T.contiguous().T),
        (_second, X),
        (lambda f, x: torch.vmap(torch.func.grad(lambda y: f(y).sum()))(x), rows),
        (lambda f, x: torch.func.hessian(lambda y: f(y).sum())(x), X),
        (lambda f, x: torch.func.jvp(f, (x,), (x,))[1], X),
    ):
        found, by_torch, _ = count(way, op, given)
        torch.testing.assert_close(found, way(torch.sin, given), rtol=1e-12, atol=1e-12)
        # How arrays lie may decide what a rule writes to.
        assert by_torch or (backward is _in_place and not given.is_contiguous())
    found, by_torch, others = count(_slope, compiled, X)
    torch.testing.assert_close(found, _slope(torch.sin, X), rtol=1e-12, atol=1e-12)
    # Torch's cache on disk would keep the formula when it changes.
    assert not by_torch
    assert others


def test_a_formula_reads_the_result(made: Any, count: Calls) -> None:
    calls: list[int] = []

    def kernel(x: Any) -> Any:
        calls.append(1)
        return np.exp(x)

    op = made(lambda ctx, g: g * ctx.saved_arrays[0], kernel, reads=True)
    found, by_torch, others = count(_slope, op, X)
    torch.testing.assert_close(found, torch.exp(X))
    assert (by_torch, others, len(calls)) == (1, 0, 1)
    torch.testing.assert_close(_second(op, X), 2 * torch.exp(2 * X))


def test_complex_gradients(made: Any, count: Calls) -> None:
    op = made(lambda ctx, g: g * 2 * ctx.saved_arrays[0], np.square)
    x = torch.complex(X, X + 1)
    found, by_torch, _ = count(_slope, lambda z: op(z).real, x)
    torch.testing.assert_close(found, _slope(lambda z: (z * z).real, x))
    assert by_torch
    assert found.numpy().dtype == np.complex128  # not a lazy conjugate


def test_settings_of_torch_do_not_count(made: Any, count: Calls) -> None:
    """Autocast and the default device: a rule has NumPy's dtypes, on its tensors."""
    op = made(lambda ctx, g: g @ (np.ones((3, 3), "f4") / 3) + np.hypot(g, 1.5))
    x = torch.linspace(0.1, 1.3, 6).reshape(2, 3)
    wanted = _slope(op, x)
    with torch.autocast("cpu"):
        found, by_torch, _ = count(_slope, op, x)
    assert by_torch
    assert torch.equal(found, wanted)
    with torch.device("meta"):
        found, by_torch, _ = count(_slope, op, x)
    assert by_torch
    assert torch.equal(found, wanted)


# ---- what a rule uses beside its arguments ----

SCALES = {"by": 1.0}
WEIGHTS = np.ones(3)


def test_what_a_formula_uses_may_change(made: Any, count: Calls) -> None:
    """Globals, contents of dicts and arrays: each gradient uses what they are then."""
    op = made(lambda ctx, g: g * SCALES["by"] * WEIGHTS)
    torch.testing.assert_close(_slope(op, X), torch.ones_like(X))
    try:
        SCALES["by"] = 2.0
        found, by_torch, _ = count(_slope, op, X)
        torch.testing.assert_close(found, torch.full_like(X, 2.0))
        assert by_torch
        WEIGHTS[0] = 5.0
        assert _slope(op, X)[0].tolist() == [10.0, 2.0, 2.0]
    finally:
        SCALES["by"], WEIGHTS[0] = 1.0, 1.0


def test_a_formula_that_acts_runs_each_time(made: Any, count: Calls) -> None:
    seen: list[int] = []

    def noting(ctx: Any, g: Any) -> Any:
        seen.append(1)
        return g * 2

    op = made(noting)
    for _ in range(3):
        _, by_torch, others = count(_slope, op, X)
        assert (by_torch, others) == (0, 1)
    assert len(seen) >= 3


def test_another_formula_counts_at_once(made: Any, count: Calls) -> None:
    op = made(lambda ctx, g: 2.0 * g)
    assert _slope(op, X)[0, 0] == 2.0
    ours = getattr(co.ops.torch_rules, op.name().partition("::")[2]).default
    ours.register_autograd(lambda ctx, g: 3.0 * g, override=True)
    found, by_torch, _ = count(_slope, op, X)
    assert found[0, 0] == 3.0
    assert by_torch


@pytest.mark.parametrize(
    "backward",
    [
        lambda ctx, g: g if g.sum() > 0 else 2 * g,  # needs a value
        lambda ctx, g: g * np.cbrt(ctx.saved_arrays[0]),  # torch has no cbrt
        lambda ctx, g: g.astype(np.float16).astype(g.dtype),
        lambda ctx, g: np.linalg.solve(np.eye(2), g),
        lambda ctx, g: g[::-1],
    ],
    ids=["values", "cbrt", "float16", "solve", "steps"],
)
def test_other_formulas_run_by_numpy(
    made: Any, count: Calls, by_rule: Any, backward: Any
) -> None:
    op = made(backward)
    found, by_torch, others = count(_slope, op, X)
    assert (by_torch, others) == (0, 1)
    assert torch.equal(found, by_rule(_slope, op, X))


def test_many_shapes_use_the_rule_itself(made: Any, count: Calls) -> None:
    op = made(_cosine)
    for n in range(80):
        found, *_ = count(_slope, op, torch.ones(n))
        torch.testing.assert_close(found, torch.cos(torch.ones(n)))
    _, by_torch, others = count(_slope, op, torch.ones(1000))
    assert (by_torch, others) == (0, 1)
    assert count(_slope, op, torch.ones(3))[1:] == (1, 0)  # code of before


# ---- random formulas ----

STEPS: list[Callable[[Any, Any], Any]] = [
    lambda v, g: g * np.cos(v),
    lambda v, g: np.where(v > 0.2, g, g * 0.1),
    lambda v, g: g * np.maximum(v, 0.3) / (1 + v * v),
    lambda v, g: g - g.mean(axis=0, keepdims=True),
    lambda v, g: np.cumsum(g, axis=0) * np.tanh(v),
    lambda v, g: g * v.astype(np.float32),
    lambda v, g: (g.T @ np.abs(v)).sum() + 0 * g,
    lambda v, g: np.roll(g, 1, 0) * np.exp(-np.abs(v)),
    lambda v, g: g * np.var(v, axis=1, keepdims=True),
    lambda v, g: np.broadcast_to(g.sum(axis=0), g.shape) * np.sign(v),
    lambda v, g: g * (v == v.max()),
    lambda v, g: np.pad(g, [(1, 0), (0, 0)])[:-1] * np.int64(3),
    lambda v, g: np.tril(g) + np.einsum("ij,ij->j", g, v),
    lambda v, g: np.stack([g, 2 * g])[1] * np.hypot(v, 0.5),
    lambda v, g: g * np.prod(0.5 + v * 0.1),
    lambda v, g: np.flip(g) * np.floor(v * 3),
]


@pytest.mark.parametrize("seed", range(20))
def test_random_formulas(made: Any, count: Calls, by_rule: Any, seed: int) -> None:
    chosen = random.Random(seed).sample(STEPS, 3)

    def backward(ctx: Any, g: Any) -> Any:
        (v,) = ctx.saved_arrays
        for step in chosen:
            g = step(v, g)
        return g.astype(v.dtype)

    op = made(backward)
    for dtype, rtol in ((torch.float64, 1e-6), (torch.float32, 1e-5)):
        x = torch.randn(3, 4, generator=torch.Generator().manual_seed(seed))
        for given in (x.to(dtype), x.T.to(dtype), x.to(dtype)[:, ::2]):
            found, by_torch, _ = count(_slope, op, given)
            wanted = by_rule(_slope, op, given)
            torch.testing.assert_close(found, wanted, rtol=rtol, atol=rtol)
            assert by_torch
            found, wanted = _second(op, given), by_rule(_second, op, given)
            torch.testing.assert_close(found, wanted, rtol=10 * rtol, atol=10 * rtol)
