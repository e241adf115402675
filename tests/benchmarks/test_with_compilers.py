"""Compiled functions beside the same functions, and beside the compilers of others.

They come last, by the name of the file: the back end of JAX registers a kind of array, after
which a fake call takes 0.6 us more.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import peers
import programs
import pytest
from table import at_most, ratio
from timing import Statement

import customop as co

EAGER = "eager"
_random = np.random.default_rng(3)


def arithmetic(xp: Any, x: Any) -> Any:
    """A chain of ten calls."""
    for _ in range(5):
        x = x * 1.01 + 0.5
    return x


def transcendental(xp: Any, x: Any) -> Any:
    """A chain of ten calls, two of them sines."""
    for _ in range(2):
        x = xp.sin(x * 0.9 + 0.1) - x * 0.5
    return x


def _statements(
    fn: Callable[..., Any], args: tuple[Any, ...], **backends: str
) -> dict[str, Statement]:
    """A compiled function as "ours", and by other back ends; the function as eager."""
    given = {f"a{i}": value for i, value in enumerate(args)}
    call = f"fn({', '.join(given)})"
    expected = fn(*args)
    found = {EAGER: Statement(call, {"fn": fn, **given})}
    for name, backend in (backends or {"ours": "numpy"}).items():
        fast = co.compile(fn, backend=backend)
        leaves = co.tree.leaves(fast(*args)), co.tree.leaves(expected)
        for mine, eager in zip(*leaves, strict=True):
            np.testing.assert_allclose(mine, eager, rtol=1e-9, atol=1e-12)
        found[name] = Statement(call, {"fn": fast, **given})
    return found


@pytest.mark.parametrize(
    ("what", "program", "size", "limit", "jax_limit"),
    [
        ("ten calls, arithmetic, 1e3", arithmetic, 10**3, 1.05, None),
        ("ten calls, arithmetic, 1e5", arithmetic, 10**5, 0.55, None),
        ("ten calls, arithmetic, 1e7", arithmetic, 10**7, 0.30, 1.1),
        ("ten calls, two sines, 1e7", transcendental, 10**7, 0.45, None),
    ],
)
def test_chains(
    compare: Callable[..., None],
    what: str,
    program: Any,
    size: int,
    limit: float,
    jax_limit: float | None,
) -> None:
    x = _random.uniform(size=size)
    fn = partial(program, np)
    statements = {**_statements(fn, (x,)), **peers.compiled(program, x)}
    limits = [ratio(EAGER, limit)]
    if jax_limit is not None:
        limits.append(ratio(peers.JAX, jax_limit))
    compare(f"compiled: {what}", statements, *limits, rounds=5 if size > 10**6 else 40)


def test_chain_by_numba(compare: Callable[..., None]) -> None:
    pytest.importorskip("numba", reason="numba is not installed")
    x = _random.uniform(size=10**6)
    statements = _statements(partial(arithmetic, np), (x,), ours="numba")
    compare("compiled by numba: ten calls, 1e6", statements, ratio(EAGER, 0.12))


def test_chain_by_jax(compare: Callable[..., None]) -> None:
    pytest.importorskip("jax", reason="JAX is not installed")
    x = _random.uniform(size=10**6)
    statements = _statements(partial(transcendental, np), (x,), ours="jax")
    statements |= peers.compiled_on_numpy(transcendental, x)
    compare("compiled by jax: ten calls, 1e6", statements, ratio(peers.JAX, 1.3))


def test_gradient_of_large_arrays(compare: Callable[..., None]) -> None:
    x = _random.uniform(size=3 * 10**6)
    fn = co.grad(lambda x: np.sum(arithmetic(np, x) * x))
    compare(
        "compiled: gradient, 3e6", _statements(fn, (x,)), ratio(EAGER, 0.5), rounds=5
    )


_LINE = _random.uniform(size=1000)
_SMALL: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "a chain of ten": (lambda x: np.sum(arithmetic(np, x)), (_LINE,)),
    "Rosenbrock": (partial(programs.rosenbrock, np), (_LINE[:50],)),
    "MLP step": (
        partial(programs.mlp, np, programs.INPUTS, programs.TARGETS),
        (programs.WEIGHTS,),
    ),
    "RNN": (
        partial(programs.rnn, np, programs.SEQUENCE, np.zeros(16)),
        (programs.RECURRENT,),
    ),
}


@pytest.mark.parametrize("what", _SMALL)
def test_small_gradients(compare: Callable[..., None], what: str) -> None:
    fn, args = _SMALL[what]
    statements = _statements(co.grad(fn), args)
    compare(f"compiled: gradient of {what}", statements, ratio(EAGER, 0.25))


def test_small_hessian(compare: Callable[..., None]) -> None:
    fn, args = _SMALL["Rosenbrock"]
    statements = _statements(co.hessian(fn), args)
    compare(
        "compiled: Hessian of Rosenbrock", statements, ratio(EAGER, 0.05), rounds=10
    )


def test_guards(compare: Callable[..., None]) -> None:
    """A compiled function of six arrays that does nothing: what its checks take."""
    arrays = [np.zeros(3) for _ in range(6)]
    fast = co.compile(lambda a, b, c, d, e, f: a)
    fast(*arrays)
    names = dict(zip("abcdef", arrays, strict=True))
    statement = Statement("fn(a, b, c, d, e, f)", {"fn": fast, **names})
    compare("compiled: guards of six arrays", {"ours": statement}, at_most(1e-6))


def test_compiling(compare: Callable[..., None]) -> None:
    """Capturing and compiling a graph of a thousand calls."""

    def long(x: Any) -> Any:
        for _ in range(500):
            x = x * 1.01 + 0.5
        return x

    def compiled_anew(x: Any) -> Any:
        return co.compile(long)(x)

    names = {"fn": compiled_anew, "x": np.ones(3)}
    statements = {"ours": Statement("fn(x)", names)}
    compare("compiling a thousand calls", statements, at_most(1.0), rounds=3)
