"""Random expressions, proofs and guards, against the numbers that Python computes."""

import itertools
import math
import operator
import random
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from customop import SymInt, sizes
from customop.shapes.expressions import (
    Expr,
    Number,
    add,
    floor_divide,
    largest,
    modulo,
    multiply,
    smallest,
    substitute,
    subtract,
    symbol,
    terms_of,
    text_of,
    value_of,
)
from customop.shapes.proofs import Knowledge
from customop.shapes.size_context import SizeContext

NAMES = ("a", "b", "c")
# Ten times as many were tried by hand, with several seeds.
COUNT = 1000
Program = Callable[[Mapping[str, int]], int]


# An operation of expressions, and the same of ints.
PAIRS: tuple[tuple[Callable[..., Number], Callable[[int, int], int]], ...] = (
    (add, operator.add),
    (add, operator.add),
    (subtract, operator.sub),
    (subtract, operator.sub),
    (multiply, operator.mul),
    (multiply, operator.mul),
    (smallest, min),
    (largest, max),
    (floor_divide, operator.floordiv),
    (modulo, operator.mod),
)


def draw(rng: random.Random, depth: int) -> tuple[Number, Program]:
    """Return a random expression, and a function that computes it with ints."""
    if depth == 0 or rng.random() < 0.15:
        if rng.random() < 0.4:
            number = rng.choice((-7, -3, -2, -1, 0, 1, 2, 3, 4, 6, 12))
            return number, lambda v: number
        name = rng.choice(NAMES)
        return symbol(name), lambda v: v[name]
    a, f = draw(rng, depth - 1)
    b, g = draw(rng, depth - 1)
    fn, own = rng.choice(PAIRS if b else PAIRS[:-2])
    return fn(a, b), lambda v: own(f(v), g(v))


def values(rng: random.Random, bounds: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """Return random numbers within bounds, often at their ends."""
    return {
        name: rng.choice((low, high, rng.randint(low, high), rng.randint(low, high)))
        for name, (low, high) in bounds.items()
    }


def outcome(fn: Callable[..., Any], *args: Any) -> Any:
    """Return a result, or the class of a division by zero."""
    try:
        return fn(*args)
    except ZeroDivisionError:
        return ZeroDivisionError


@pytest.mark.exhaustive
def test_expressions_have_the_values_of_their_programs() -> None:
    """Also after substitution, and when their text is run as Python."""
    rng = random.Random(1)
    anywhere = dict.fromkeys(NAMES, (-9, 9))
    for _ in range(COUNT):
        value, program = draw(rng, rng.randint(1, 4))
        code = compile(text_of(value), "text", "eval")
        for _ in range(12):
            point = values(rng, anywhere)
            expected = outcome(program, point)
            if expected is ZeroDivisionError:  # a common factor was cancelled
                continue
            assert value_of(value, point) == expected, (text_of(value), point)
            assert eval(code, {}, point) == expected, text_of(value)
            some = {"a": point["a"], "b": add(point["b"] - point["c"], symbol("c"))}
            inner = outcome(substitute, value, some)
            if inner is not ZeroDivisionError:
                assert outcome(value_of, inner, point) in (expected, ZeroDivisionError)


@pytest.mark.exhaustive
def test_polynomials_are_the_same_function_only_if_they_have_one_form() -> None:
    """Equal at a grid finer than their degrees means equal, and the same object."""
    rng = random.Random(2)
    grid = [
        dict(zip(NAMES, point, strict=True))
        for point in itertools.product(range(7), repeat=3)
    ]
    seen: dict[tuple[int, ...], Number] = {}
    made = 0
    while made < COUNT // 10:
        value, _ = draw(rng, 3)
        terms = terms_of(value)
        if any(not isinstance(f, str) for m in terms for f in m):
            continue
        if max(map(len, terms), default=0) > 6:
            continue
        made += 1
        key = tuple(value_of(value, point) for point in grid)
        assert seen.setdefault(key, value) == value
        assert hash(seen[key]) == hash(value)


QUESTIONS = (
    (Knowledge.is_nonnegative, lambda number: number >= 0),
    (Knowledge.is_zero, lambda number: number == 0),
)
LEARN = {
    ">=": Knowledge.add_nonnegative,
    "==": Knowledge.add_zero,
    "!=": Knowledge.add_nonzero,
}


def draw_knowledge(rng: random.Random) -> tuple[Knowledge, list[dict[str, int]]]:
    """Return random bounds and facts, and points that meet them."""
    known, bounds = Knowledge(), {}
    for name in NAMES:
        low = rng.choice((0, 0, 1, 2, -3))
        high = low + rng.choice((0, 1, 5, 60))
        bounds[name] = low, high
        known.set_bounds(name, low, rng.choice((high, math.inf)))
    points = [values(rng, bounds) for _ in range(150)]
    for _ in range(rng.choice((0, 1, 2))):
        fact, sign = draw(rng, 2)[0], rng.choice((">=", "==", "!="))
        left = [point for point in points if meets(fact, sign, point)]
        if len(left) > 5 and outcome(LEARN[sign], known, fact) is None:
            points = left
    return known, points


@pytest.mark.exhaustive
def test_what_is_proven_holds() -> None:
    """For many sizes within the bounds that meet the facts."""
    rng = random.Random(3)
    proven = 0
    for _ in range(COUNT):
        known, points = draw_knowledge(rng)
        value = add(draw(rng, 3)[0], rng.choice((0, 0, 1, 5, -1)))
        numbers = [(p, outcome(value_of, value, p)) for p in points]
        numbers = [(p, n) for p, n in numbers if n is not ZeroDivisionError]
        for ask, test in QUESTIONS:
            answer = outcome(ask, known, value)
            if answer in (True, False):
                proven += isinstance(value, Expr)
                assert {test(n) for _, n in numbers} <= {answer}, text_of(value)
        low, high = known.bounds_of(value)
        simple = outcome(known.simpler, value)
        for point, number in numbers:
            assert low <= number <= high, (text_of(value), point)
            assert outcome(value_of, simple, point) in (number, ZeroDivisionError)
    assert proven > COUNT // 4


def meets(value: Number, kind: str, point: Mapping[str, int]) -> bool:
    """Whether a fact holds at a point."""
    found = outcome(value_of, value, point)
    if found is ZeroDivisionError:
        return False
    return {">=": found >= 0, "==": found == 0, "!=": found != 0}[kind]


# ---- guards ----

OPERATIONS: tuple[Callable[..., Any], ...] = (
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * b if -50 < b < 50 else a - b,
    lambda a, b: a // b,
    lambda a, b: a % b,
    lambda a, b: divmod(a, 3)[0] + b,
    min,
    max,
    sizes.sym_min,
    sizes.sym_max,
    lambda a, b: a if a < b else b + 1,
    lambda a, b: a if a in (b, 1) else b,
    lambda a, b: a + 2 if not (a >= 2 and b != 0) else b,
    lambda a, b: len(range(abs(a) % 4)) + b,
    lambda a, b: a if np.sqrt(abs(a)) < 2.5 else b,
    lambda a, b: a if a / 2 > b else b,
    lambda a, b: math.ceil(a / 2) + math.floor(b / 3),
    lambda a, b: np.minimum(a, b) - np.maximum(a, 1),
    lambda a, b: sum((a, b, abs(a))),
    lambda a, b: {a: 1, b: 2}[b] + a,
)
Steps = list[tuple[Callable[..., Any], int, int]]


def run(steps: Steps, given: list[Any]) -> list[Any]:
    """Run a program; each step adds a value."""
    found = list(given)
    for fn, i, j in steps:
        new = fn(found[i], found[j])
        found.append(int(new) if isinstance(new, np.integer) else new)
    return found


@pytest.mark.exhaustive
def test_guards_decide_as_the_program_does() -> None:
    """Where all hold, the expressions have the values that plain ints give."""
    rng = random.Random(4)
    tried = held = 0
    for _ in range(COUNT // 6):
        count = rng.randint(2, 8)
        steps = [
            (rng.choice(OPERATIONS), rng.randrange(2 + i), rng.randrange(2 + i))
            for i in range(count)
        ]
        hints = [rng.randint(0, 6), rng.randint(0, 6)]
        context = SizeContext()
        symbols = [context.input_size(h, f"x.shape[{i}]") for i, h in enumerate(hints)]
        expected = outcome(run, steps, hints)
        found = outcome(run, steps, symbols)
        if expected is ZeroDivisionError:
            assert found is ZeroDivisionError
            continue
        assert [hint_of(v) for v in found] == expected
        for _ in range(30):
            other = [rng.randint(0, 9), rng.choice((rng.randint(0, 9), *hints))]
            named = {"s0": other[0], "s1": other[1]}
            tried += 1
            if all(outcome(g.holds, named) is True for g in context.guards):
                held += 1
                assert [number_of(v, named) for v in found] == run(steps, other)
        assert all(g.holds({"s0": hints[0], "s1": hints[1]}) for g in context.guards)
    assert held > tried // 10


def hint_of(value: Any) -> Any:
    """Return the number that a value was at tracing."""
    return value.hint if isinstance(value, SymInt) else value


def number_of(value: Any, named: dict[str, int]) -> Any:
    """Return the number that a value is for other sizes."""
    return value_of(value.expr, named) if isinstance(value, SymInt) else value
