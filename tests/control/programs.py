"""Random programs of nested control flow, run as plain Python and by the functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

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


def program(rng: np.random.Generator, depth: int, size: int = 2) -> Program:
    """A list of steps: each computes a new value from those before it."""
    steps: Program = []
    for _ in range(size):
        kind = [*KINDS][rng.integers(len(KINDS))]
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

    def scan(
        self, f: Any, init: Any, xs: Any, reverse: bool, *, checkpoint: bool = False
    ) -> Any:
        ys = []
        for x in xs[::-1] if reverse else xs:
            init, y = f(init, x)
            ys.append(y)
        return init, np.stack(ys[::-1] if reverse else ys)

    def map(self, f: Any, xs: Any) -> Any:
        return np.stack([f(x) for x in xs])

    def vmap(self, f: Any) -> Any:
        return lambda *xs: np.stack([f(*parts) for parts in zip(*xs, strict=True)])


class Functions(Plain):
    """Those of the package."""

    cond = staticmethod(co.cond)
    while_loop = staticmethod(co.while_loop)
    fori_loop = staticmethod(co.fori_loop)
    scan = staticmethod(co.scan)
    map = staticmethod(co.map)
    vmap = staticmethod(co.vmap)


class Step(NamedTuple):
    """A step with programs in it: `a` and `b` go in, and `c` is used from outside."""

    first: Program
    second: Program
    number: int
    shift: float
    a: Any
    b: Any
    c: Any
    by: Any

    def one(self, *given: Any) -> Any:
        """The result of the first program."""
        return run(self.first, [*given], self.by)

    def two(self, *given: Any) -> Any:
        """The result of the second one."""
        return run(self.second, [*given], self.by)

    @property
    def rows(self) -> Any:
        return np.stack([self.a, self.b, 0.5 * self.c])


def a_cond(s: Step) -> Any:
    yes, no = lambda a, b: s.one(s.c, a, b), lambda a, b: s.two(a, b, s.c)  # short
    return s.by.cond(level(s.a) > s.shift, yes, no, s.a, s.b)


def a_while(s: Step) -> Any:
    return s.by.while_loop(
        lambda carry: (carry[0] < s.number) & (level(carry[1]) < 3 + s.shift),
        lambda carry: (carry[0] + 1, s.one(s.b, s.c, carry[1])),
        (0, s.a),
    )[1]


def a_fori(s: Step) -> Any:
    return s.by.fori_loop(0, s.number, lambda i, x: s.one(s.b * i, s.c, x), s.a)


def a_range(s: Step) -> Any:
    """A limit that depends on values."""
    limit = (np.floor(np.abs(level(s.a))) % 4).astype(int)
    return s.by.fori_loop(0, limit, lambda i, x: s.one(s.b, s.c + 0.1 * i, x), s.a)


def a_scan(s: Step) -> Any:
    last, ys = s.by.scan(
        lambda carry, x: (s.one(s.c, x, carry), s.two(carry, x)),
        s.b,
        s.rows,
        reverse=s.shift > 0,
    )
    return last + ys[s.number % 3] - 0.1 * np.sum(ys, 0)


def a_checkpoint(s: Step) -> Any:
    """It takes no values from outside, which forward mode refuses."""
    (last, _), ys = s.by.scan(
        lambda carry, x: ((s.one(carry[1], x, carry[0]), carry[1]), s.two(carry[0], x)),
        (s.b, s.c),
        s.rows,
        reverse=s.shift > 0,
        checkpoint=True,
    )
    return last * ys[s.number % 3]


def a_map(s: Step) -> Any:
    return s.by.map(lambda x: s.one(s.c, x), s.rows)[s.number % 3]


def a_batch(s: Step) -> Any:
    of_rows = s.by.vmap(lambda x, y: s.one(y, s.c, x))
    return of_rows(s.rows, s.rows[::-1])[1]


def a_nest(s: Step) -> Any:
    """A loop on a nested carry with an int, a flag, and a branch in its body."""

    def body(carry: Any) -> Any:
        values, (count, _) = carry
        x, y = values["x"], values["y"]
        flag = level(x) > level(y) + s.shift
        yes = lambda x, y: {"x": s.one(y, s.c, x), "y": y}  # short
        no = lambda x, y: {"x": y, "y": s.two(s.c, x)}  # short
        return s.by.cond(flag, yes, no, x, y), (count + 1, flag)

    def test(carry: Any) -> Any:
        return (carry[1][0] < s.number) & (level(carry[0]["x"]) < 4)

    init = ({"x": s.a, "y": s.b}, (0, level(s.b) > 0))
    values, (count, flag) = s.by.while_loop(test, body, init)
    return values["x"] - 0.3 * count * values["y"] + 0.2 * flag


KINDS: dict[str, Callable[[Step], Any]] = {
    "cond": a_cond,
    "while": a_while,
    "fori": a_fori,
    "scan": a_scan,
    "checkpoint": a_checkpoint,
    "map": a_map,
    "range": a_range,
    "batch": a_batch,
    "nest": a_nest,
}


def run(steps: Program, given: list[Any], by: Any) -> Any:
    """The last value of a program; `by` has the functions of control flow."""
    values = list(given)
    for kind, *rest in steps:
        if kind == "op":
            name, a, b = rest
            values.append(BINARY[name](pick(values, a), pick(values, b)))
            continue
        inner, number, shift, *at = rest
        picked = [pick(values, place) for place in at]
        values.append(KINDS[kind](Step(*inner, number, shift, *picked, by)))
    return values[-1]


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
