"""Random programs of nested control flow, run as plain Python and by the functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import customop as co

Program = list[Any]

BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "mix": lambda a, b: 0.6 * a - 0.5 * b,
    "times": lambda a, b: 0.7 * a * b,
    "wave": lambda a, b: np.sin(a + 0.3 * b),
    "bend": lambda a, b: np.tanh(a) + 0.2 * b * b,
    "turn": lambda a, b: a[::-1] + 0.1 * np.sum(b),
}
KINDS = ("cond", "while", "fori", "scan", "map")


def program(rng: np.random.Generator, depth: int, size: int = 2) -> Program:
    """A list of steps: each computes a new value from those before it."""
    steps: Program = []
    for _ in range(size):
        kind = KINDS[rng.integers(len(KINDS))]
        if depth == 0 or rng.random() < 0.4:
            name = [*BINARY][rng.integers(len(BINARY))]
            steps.append(("op", name, *rng.random(2)))
            continue
        inner = [program(rng, depth - 1, int(rng.integers(1, 3))) for _ in range(2)]
        number = int(rng.integers(0, 4))
        steps.append((kind, inner, number, rng.normal(), *rng.random(3)))
    return steps


def pick(values: list[Any], at: float) -> Any:
    return values[int(at * len(values))]


def level(x: Any) -> Any:
    """The number that decides, without the imaginary part of a complex step."""
    return np.sum(x.real if np.iscomplexobj(x) else x)


class Plain:
    """Branches and loops of Python."""

    def cond(self, pred: Any, yes: Any, no: Any, *operands: Any) -> Any:
        return yes(*operands) if pred else no(*operands)

    def while_loop(self, test: Any, body: Any, init: Any) -> Any:
        while test(init):
            init = body(init)
        return init

    def fori_loop(self, lower: int, upper: Any, body: Any, init: Any) -> Any:
        for i in range(lower, int(upper)):
            init = body(i, init)
        return init

    def scan(self, f: Any, init: Any, xs: Any, reverse: bool) -> Any:
        ys = []
        for x in xs[::-1] if reverse else xs:
            init, y = f(init, x)
            ys.append(y)
        return init, np.stack(ys[::-1] if reverse else ys)

    def map(self, f: Any, xs: Any) -> Any:
        return np.stack([f(x) for x in xs])


def run(steps: Program, given: list[Any], by: Any) -> Any:
    """The last value of a program; `by` has the functions of control flow."""
    values = list(given)
    for kind, *rest in steps:
        if kind == "op":
            name, a, b = rest
            values.append(BINARY[name](pick(values, a), pick(values, b)))
            continue
        (first, second), number, shift, *at = rest
        a, b, c = (pick(values, place) for place in at)
        values.append(_control(kind, first, second, number, shift, a, b, c, by))
    return values[-1]


def _control(
    kind: str,
    first: Program,
    second: Program,
    number: int,
    shift: float,
    a: Any,
    b: Any,
    c: Any,
    by: Any,
) -> Any:
    """One step: `a` and `b` go in, and `c` is used from outside."""
    if kind == "cond":
        return by.cond(
            level(a) > shift,
            lambda a, b: run(first, [c, a, b], by),
            lambda a, b: run(second, [a, b, c], by),
            a,
            b,
        )
    if kind == "while":
        return by.while_loop(
            lambda carry: (carry[0] < number) & (level(carry[1]) < 3 + shift),
            lambda carry: (carry[0] + 1, run(first, [b, c, carry[1]], by)),
            (0, a),
        )[1]
    if kind == "fori":
        return by.fori_loop(0, number, lambda i, x: run(first, [b * i, c, x], by), a)
    rows = np.stack([a, b, 0.5 * c])
    if kind == "map":
        return by.map(lambda x: run(first, [c, x], by), rows)[number % 3]
    last, ys = by.scan(
        lambda carry, x: (run(first, [c, x, carry], by), run(second, [carry, x], by)),
        b,
        rows,
        reverse=shift > 0,
    )
    return last + ys[number % 3] - 0.1 * np.sum(ys, 0)


class Functions(Plain):
    """Those of the package."""

    cond = staticmethod(co.cond)
    while_loop = staticmethod(co.while_loop)
    fori_loop = staticmethod(co.fori_loop)
    scan = staticmethod(co.scan)
    map = staticmethod(co.map)


def plain(steps: Program) -> Callable[[Any], Any]:
    """The program as plain Python: a function of an array to a number."""
    return lambda x: np.sum(run(steps, [0.5 * x, x], Plain()))


def with_functions(steps: Program) -> Callable[[Any], Any]:
    """The same by the functions of the package."""
    return lambda x: np.sum(run(steps, [0.5 * x, x], Functions()))


def gradient(fn: Callable[[Any], Any], x: Any) -> Any:
    """The gradient of a plain function, by complex steps."""
    found = np.zeros_like(x)
    for i in np.ndindex(x.shape):
        moved = x.astype(complex)
        moved[i] += 1e-30j
        found[i] = fn(moved).imag / 1e-30
    return found
