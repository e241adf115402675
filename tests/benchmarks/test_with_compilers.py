"""Compiled functions beside the same functions, and beside the compilers of others.

They come last, by the name of the file: the back end of JAX registers a kind of array, after
which a fake call takes 0.6 us more.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import chains
import numpy as np
import peers
import programs
import pytest
from chains import ALONE, BY_HAND, EAGER
from table import Row, at_most, ratio
from timing import Statement

import customop as co

_random = np.random.default_rng(3)


@pytest.mark.parametrize(
    ("what", "program", "size", "limit", "jax_limit"),
    [
        ("ten calls, arithmetic, 1e3", chains.arithmetic, 10**3, 1.05, None),
        ("ten calls, arithmetic, 1e5", chains.arithmetic, 10**5, 0.55, None),
        ("ten calls with names, arithmetic, 1e5", chains.named, 10**5, 0.55, None),
        ("ten calls, arithmetic, 1e7, all cores", chains.arithmetic, 10**7, 0.30, 1.1),
        (
            "ten calls, two sines, 1e7, all cores",
            chains.transcendental,
            10**7,
            0.45,
            1.1,
        ),
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
    statements = chains.statements(partial(program, np), (x,))
    if program is not chains.transcendental:
        statements[BY_HAND] = Statement("fn(x)", {"fn": chains.by_hand, "x": x})
    statements |= peers.compiled(program, x)
    limits = [ratio(EAGER, limit)]
    if size == 10**5:
        limits.append(ratio(BY_HAND, 1.05))
    if jax_limit is not None:
        limits.append(ratio(peers.JAX, jax_limit))
    compare(f"compiled: {what}", statements, *limits, rounds=5 if size > 10**6 else 40)


@pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="the system cannot pin processes"
)
@pytest.mark.parametrize(
    ("what", "name", "limit", "floor"),
    [
        ("ten calls, arithmetic", "arithmetic", 0.30, BY_HAND),
        ("ten calls, two sines", "transcendental", 0.45, ALONE),
    ],
)
def test_chains_on_one_core(
    note: Callable[[Row], None], what: str, name: str, limit: float, floor: str
) -> None:
    """Compiled functions and JAX, each on one core; what NumPy takes at the least."""
    seconds = _on_one_core("one_core.py", name, "5")
    ours, least = seconds["ours"], {floor: seconds[floor]}
    row = partial(Row, f"compiled: {what}, 1e7, one core")
    note(row(ratio(EAGER, limit), ours, seconds[EAGER], least))
    note(row(ratio(peers.JAX, 1.1), ours, seconds.get(peers.JAX)))


def _on_one_core(script: str, *arguments: str) -> dict[str, float]:
    """Run a script that prints seconds; a process inherits the cores of this thread."""
    path = str(Path(__file__).with_name(script))
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        found = subprocess.run(
            [sys.executable, "-W", "ignore", path, *arguments],
            capture_output=True,
            text=True,
            check=True,
        )
    finally:
        os.sched_setaffinity(0, cores)
    seconds: dict[str, float] = json.loads(found.stdout)
    return seconds


def test_chain_by_jax(compare: Callable[..., None]) -> None:
    pytest.importorskip("jax", reason="JAX is not installed")
    x = _random.uniform(size=10**6)
    statements = chains.statements(partial(chains.transcendental, np), (x,), ours="jax")
    statements |= peers.compiled_on_numpy(chains.transcendental, x)
    compare("compiled by jax: ten calls, 1e6", statements, ratio(peers.JAX, 1.3))


def _sum_of_chain(xp: Any) -> Callable[[Any], Any]:
    return lambda x: xp.sum(chains.arithmetic(xp, x) * x)


def test_gradient_of_large_arrays(compare: Callable[..., None]) -> None:
    x = _random.uniform(size=3 * 10**6)
    statements = chains.statements(co.grad(_sum_of_chain(np)), (x,))
    statements |= peers.compiled_gradient(_sum_of_chain, x)
    limit = ratio(EAGER, 0.5)
    compare("compiled: gradient, 3e6, all cores", statements, limit, rounds=5)


def _network(xp: Any) -> Callable[[Any], Any]:
    given = peers.constants(xp, programs.INPUTS, programs.TARGETS)
    return partial(programs.mlp, xp, *given)


def _recurrent(xp: Any) -> Callable[[Any], Any]:
    given = peers.constants(xp, programs.SEQUENCE, np.zeros(16))
    return partial(programs.rnn, xp, *given)


def _rosenbrock(xp: Any) -> Callable[[Any], Any]:
    return partial(programs.rosenbrock, xp)


_LINE = _random.uniform(size=1000)
_SMALL: Mapping[str, tuple[Callable[[Any], Callable[[Any], Any]], Any]] = {
    "a chain of ten": (_sum_of_chain, _LINE),
    "Rosenbrock": (_rosenbrock, _LINE[:50]),
    "MLP step": (_network, programs.WEIGHTS),
    "RNN": (_recurrent, programs.RECURRENT),
}


@pytest.mark.parametrize("what", _SMALL)
def test_small_gradients(compare: Callable[..., None], what: str) -> None:
    program, x = _SMALL[what]
    statements = chains.statements(co.grad(program(np)), (x,))
    if what == "RNN":  # others take minutes to compile 200 steps
        statements |= peers.gradient(program, x)
    else:
        statements |= peers.compiled_gradient(program, x)
    compare(f"compiled: gradient of {what}", statements, ratio(EAGER, 0.25))


@pytest.mark.parametrize("what", _SMALL)
def test_small_gradients_of_compiled_functions(
    compare: Callable[..., None], what: str
) -> None:
    """The function is compiled, and then its gradient is taken."""
    program, x = _SMALL[what]
    plain, compiled = co.grad(program(np)), co.grad(co.compile(program(np)))
    for _ in range(3):  # the first run is watched, the second one compiles
        compiled(x)
    statements = {
        "ours": Statement("fn(x)", {"fn": compiled, "x": x}),
        EAGER: Statement("fn(x)", {"fn": plain, "x": x}),
    }
    compare(f"gradient of compiled {what}", statements, ratio(EAGER, 0.75))


def test_small_hessian(compare: Callable[..., None]) -> None:
    program, x = _SMALL["Rosenbrock"]
    statements = chains.statements(co.hessian(program(np)), (x,))
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


def _once(statements: Mapping[str, Statement]) -> dict[str, float]:
    """Seconds of each statement, which is run once: compilers may take minutes."""
    found = {}
    for name, statement in statements.items():
        start = time.perf_counter()
        statement()
        found[name] = time.perf_counter() - start
    return found


def _new_gradient(fn: Any, x: Any) -> Any:
    return co.compile(co.grad(fn))(x)


def test_compiling_a_gradient(note: Callable[[Row], None]) -> None:
    """The time to the first result, of a program that is new."""
    program, x = _SMALL["Rosenbrock"]
    names = {"make": _new_gradient, "fn": program(np), "x": x}
    seconds = _once(peers.new_gradient(program, x))
    ours = _once({"ours": Statement("make(fn, x)", names)})["ours"]
    note(Row("compiling the gradient of Rosenbrock", at_most(1.0), ours, None, seconds))


def test_compiling_custom_operators(note: Callable[[Row], None]) -> None:
    """The gradient of a chain of a hundred custom operators, to the first result."""

    @co.custom_op("bench::compiled_sine", mutates_args=())
    def sine(x: co.Array) -> co.Array:
        return np.sin(x)

    sine.register_fake(co.fake_like)
    sine.register_autograd(
        lambda ctx, g: g * np.cos(ctx.saved_arrays[0]),
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
    )

    def chain(x: Any) -> Any:
        for _ in range(100):
            x = sine(x)
        return np.sum(x)

    seconds = _once(peers.new_chain(100, _LINE))
    names = {"make": _new_gradient, "fn": chain, "x": _LINE}
    ours = _once({"ours": Statement("make(fn, x)", names)})["ours"]
    what = "compiling the gradient of 100 custom operators"
    note(Row(what, at_most(1.0), ours, None, seconds))
