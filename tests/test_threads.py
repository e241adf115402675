"""Modes and transforms that run in several threads at once."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import customop as co


@co.custom_op("threads::twice", mutates_args=())
def twice(x: np.ndarray) -> np.ndarray:
    return x * 2


twice.register_fake(lambda x: co.fake_like(x))
twice.register_autograd(lambda ctx, g: 2 * g)
twice.register_vmap(lambda info, dims, x: (twice(x), dims[0]))


def program(x: Any) -> Any:
    return np.sin(x) * twice(x) + np.cumsum(x, -1)


def expected(x: np.ndarray) -> Any:
    return np.sin(x) * (x * 2) + np.cumsum(x, -1)


def slope(x: np.ndarray) -> Any:
    """The gradient of the sum, by hand."""
    return np.cos(x) * 2 * x + 2 * np.sin(x) + np.arange(len(x), 0, -1)


class Quiet(co.Observer):
    def enter(self, op: Any, by: Any, fn: Any, args: Any) -> None:
        pass


def same(found: Any, wanted: Any) -> None:
    assert isinstance(found, np.ndarray | np.generic)
    np.testing.assert_allclose(found, wanted, rtol=1e-12)


def no_grad(f: Any, x: Any) -> None:
    with co.no_grad():
        same(f(x), expected(x))


def autocast(f: Any, x: Any) -> None:
    with co.autocast("cpu"):
        same(f(x), expected(x))


def observed(f: Any, x: Any) -> None:
    with Quiet():
        same(f(x), expected(x))


def backward(f: Any, x: Any) -> None:
    with co.no_grad(), co.enable_grad():
        v = co.variable(x)
        np.sum(f(v)).backward()
        same(v.grad, slope(x))


def faked(f: Any, x: Any) -> None:
    with co.FakeMode():
        found = f(x)
    assert isinstance(found, co.FakeArray)
    assert found.shape == x.shape


def traced(mode: Any) -> Callable[..., None]:
    return lambda f, x: same(co.make_fx(f, tracing_mode=mode)(x)(x), expected(x))


def batched(f: Any, x: Any) -> None:
    rows = np.stack([x, x + 1])
    same(co.vmap(f)(rows), expected(rows))


def pushed(f: Any, x: Any) -> None:
    found = co.jvp(lambda v: np.sum(f(v)), (x,), (x,))[1]
    same(found, np.sum(slope(x) * x))


USES: list[Callable[..., None]] = [
    lambda f, x: same(f(x), expected(x)),
    lambda f, x: same(co.grad(lambda v: np.sum(f(v)))(x), slope(x)),
    lambda f, x: same(co.compile(program)(x), expected(x)),
    *(traced(mode) for mode in ("real", "fake", "symbolic")),
    *(no_grad, autocast, observed, backward, faked, batched, pushed),
]


@contextmanager
def frequent_switches() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(3))
def test_modes_of_other_threads(seed: int) -> None:
    """A mode of one thread changes nothing in calls of shared functions in others."""
    shared = co.compile(program)
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        try:
            for _ in range(60):
                x = np.linspace(0.1, 1 + rng.random(), rng.randint(2, 5))
                rng.choice(USES)(rng.choice([shared, program]), x)
        except BaseException as error:  # noqa: BLE001  # raised below
            errors.append(error)

    with frequent_switches():
        threads = [
            threading.Thread(target=work, args=(4 * seed + i,)) for i in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for error in errors:
        raise error


MODES: dict[str, Callable[[], Any]] = {
    "fake": co.FakeMode,
    "no_grad": co.no_grad,
    "autocast": lambda: co.autocast("cpu"),
    "observer": lambda: Quiet(threads=True),
}


@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
@pytest.mark.parametrize("use", USES[:2], ids=["call", "grad"])
def test_mode_open_elsewhere_at_the_first_call(
    use: Callable[..., None], mode: Callable[[], Any]
) -> None:
    """A function is compiled as usual while another thread has a mode open."""
    opened, done = threading.Event(), threading.Event()

    def hold() -> None:
        with mode():
            opened.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    try:
        opened.wait()
        compiled = co.compile(program)
        for _ in range(3):
            use(compiled, np.linspace(0.1, 1, 4))
        assert len(compiled.graphs) <= 1
    finally:
        done.set()
        thread.join()
