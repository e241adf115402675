"""Random programs that write plain arrays around the operators that use them.

Each program runs once on plain arrays, with central differences, and once under each
transform. Either the gradients agree, or the error of an overwritten array comes, and
then without the checks the gradient really differs in most programs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co

LENGTH = 4
Program = Callable[[Any], Any]


class Writer:
    """A random program: the same steps each time that it is called."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def __call__(self, x: Any) -> Any:
        """A number that depends on x."""
        self.random = np.random.default_rng(self.seed)
        self.traced = [x, np.sin(x)]
        base = self.random.uniform(0.5, 1.5, 2 * LENGTH)
        self.plain = [base[:LENGTH], base[LENGTH:], base[::2], np.ones(LENGTH)]
        self.places = [np.arange(LENGTH), np.zeros(LENGTH, int)]
        self.mask = np.array([True, False, True, False])
        for _ in range(self.random.integers(3, 9)):
            self.step(self.random.integers(9))
        return sum(np.sum(v) for v in self.traced[1:])

    def pick(self, values: list[Any]) -> Any:
        """One of the values."""
        return values[self.random.integers(len(values))]

    def step(self, kind: int) -> None:
        """A use of arrays, or a write into a plain one."""
        x, b, at = self.pick(self.traced), self.pick(self.plain), self.pick(self.places)
        if kind == 0:
            self.traced.append(x * b)
        elif kind == 1:
            self.traced.append(np.tanh(x) / b + x)
        elif kind == 2:
            self.traced.append(x[at] + b)
        elif kind == 3:
            self.traced.append(np.where(self.mask, x, 0.5 * x * x))
        elif kind == 4:
            self.traced.append(np.stack([x, b, x * b])[1] * x)
        elif kind == 5:
            b *= self.pick([1.0, 1.25, 0.75])
        elif kind == 6:
            at[self.random.integers(LENGTH)] = self.random.integers(LENGTH)
        elif kind == 7:
            self.mask[self.random.integers(LENGTH)] ^= True
        else:
            np.add(self.pick(self.plain), 0.25, out=b)


def slope(program: Program, x: Any, d: Any) -> float:
    """The derivative of a program along a direction, by central differences."""
    h = 1e-5
    return float((program(x + h * d) - program(x - h * d)) / (2.0 * h))


def by_vjp(program: Program, x: Any, d: Any) -> float:
    """The pullback, asked twice."""
    _, pull = co.vjp(program, x)
    pull(np.float64(1.0))
    return float(pull(np.float64(1.0))[0] @ d)


def by_backward(program: Program, x: Any, d: Any) -> float:
    """The imperative form."""
    v = co.variable(x)
    program(v).backward()
    assert v.grad is not None
    return float(v.grad @ d)


WAYS: dict[str, Callable[[Program, Any, Any], float]] = {
    "grad": lambda program, x, d: float(co.grad(program)(x) @ d),
    "vjp": by_vjp,
    "backward": by_backward,
    "vmap of grad": lambda program, x, d: float(
        co.vmap(co.grad(program))(np.stack([x, x]))[1] @ d
    ),
    "grad of jvp": lambda program, x, d: float(
        co.grad(lambda t: co.jvp(program, (x,), (t,))[1])(d) @ d
    ),
}


def outcome(way: str, program: Program, x: Any, d: Any, right: float) -> str:
    """What a way gives: "right", "wrong", or "error"."""
    try:
        found = WAYS[way](program, x, d)
    except co.GradientError as error:
        return "error" if "was overwritten after the call" in str(error) else str(error)
    return "right" if np.isclose(found, right, rtol=1e-5, atol=1e-6) else "wrong"


@pytest.mark.exhaustive
@pytest.mark.parametrize("way", WAYS)
def test_gradients_are_right_or_refused(way: str) -> None:
    """Never another number than that of the program itself."""
    co.config.checks = "always"
    counts = {"right": 0, "error": 0}
    missed = 0
    for seed in range(150):
        program = Writer(seed)
        random = np.random.default_rng(seed)
        x, d = random.uniform(0.5, 1.5, LENGTH), random.normal(size=LENGTH)
        right = slope(program, x, d)
        found = outcome(way, program, x, d, right)
        assert found in counts, (seed, found)
        counts[found] += 1
        if found == "error":
            co.config.checks = "never"
            missed += outcome(way, program, x, d, right) == "wrong"
            co.config.checks = "always"
    assert counts["right"] > 50
    # Some writes do not matter: to a factor of a value that is not used again, say.
    assert missed > 0.7 * counts["error"] > 20


def test_the_programs_differ_without_checks() -> None:
    """The oracle sees wrong gradients where nothing is checked."""
    co.config.checks = "never"
    x = np.linspace(0.5, 1.5, LENGTH)
    programs = [Writer(seed) for seed in range(40)]
    found = [outcome("grad", p, x, x, slope(p, x, x)) for p in programs]
    assert 8 < found.count("wrong") < 30
