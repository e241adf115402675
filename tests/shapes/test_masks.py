"""Captured functions with several masks, each of which takes another number of elements."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co

X = np.array([0.1, 0.7, -0.4, 0.9, 0.6])
# Of other lengths, and of which the masks take other numbers of elements, none, or all.
OTHERS = [X - 0.5, X[:3], X + 2, X - 2, X[:0]]


def both_counts(x: Any) -> Any:
    mask = x > 0.5
    return x[mask].shape[0] + 10.0 * x[~mask].shape[0]


def both_sums(x: Any) -> Any:
    mask = x > 0.5
    inside, outside = x[mask], x[~mask]
    return np.sum(inside**3) / (1 + inside.shape[0]) - np.sum(outside**2)


def both_written(x: Any) -> Any:
    y, mask = x.copy(), x > 0.5
    y[mask] = y[mask] ** 2
    y[~mask] /= 12.92  # two masks that are equal, and two that are not
    return np.sum(y**2)


def same_expression(x: Any) -> Any:
    y = x.copy()
    y[(x > 0) & (x < 0.65)] = y[(x > 0) & (x < 0.65)] * 3.0
    return np.sum(y**2)


def written_between(x: Any) -> Any:
    y = x * 1.0
    before = y[y > 0.5].shape[0]
    y[y > 0.5] = -1.0
    return before + 10.0 * y[y > 0.5].shape[0] + 100.0 * y[y < -0.5].shape[0] + y.sum()


def places(x: Any) -> Any:
    first, second = np.flatnonzero(x > 0.5), np.flatnonzero(x - 0.7)
    return np.sum(first) + 10.0 * np.sum(second) + np.sum(x[first]) * second.shape[0]


FUNCTIONS = [
    both_counts,
    both_sums,
    both_written,
    same_expression,
    written_between,
    places,
]


@pytest.mark.parametrize("fn", FUNCTIONS)
def test_each_mask_has_a_size_of_its_own(fn: Callable[[Any], Any]) -> None:
    graph = co.make_fx(fn, tracing_mode="symbolic")(X)
    compiled = co.compile(fn)
    for x in [X, *OTHERS]:
        assert compiled(x) == fn(x)
        if x.size:  # a graph of arrays with elements has none for those without
            assert graph(x) == fn(x)


@pytest.mark.parametrize("fn", FUNCTIONS[1:4])
def test_gradients_through_several_masks(fn: Callable[[Any], Any]) -> None:
    step = 1e-6
    graph = co.make_fx(co.grad(fn), tracing_mode="symbolic")(X)
    compiled, entry = co.compile(co.grad(fn)), co.grad(co.compile(fn))
    for x in [X, *OTHERS[:-1]]:
        sides = [[fn(x + sign * e) for e in step * np.eye(x.size)] for sign in (1, -1)]
        want = np.subtract(*sides) / (2 * step)
        for found in (graph(x), compiled(x), entry(x)):
            np.testing.assert_allclose(found, want, 1e-6, 1e-7)


def test_an_operator_that_writes_gives_an_array_another_number_of_elements() -> None:
    @co.custom_op("masks::halve", mutates_args=("x",))
    def halve(x: np.ndarray) -> None:
        x *= 0.5

    def counts(x: Any) -> Any:
        y = x * 1.0
        mask = y > 0.4
        before = y[mask].shape[0]
        halve(y)
        return before + 10.0 * y[y > 0.4].shape[0] + 100.0 * y[mask].shape[0]

    graph = co.make_fx(counts, tracing_mode="symbolic")(X)
    for x in [X, X - 0.5, X + 2]:
        assert graph(x) == counts(x.copy())
        assert co.compile(counts)(x) == counts(x.copy())


# ---- random programs ----


def random_program(rng: np.random.Generator) -> str:
    """Lines that read and write an array by masks, old and new ones."""
    lines = ["def f(x):", "    a, t = x.copy(), 0.0"]
    names: list[str] = []

    def mask() -> str:
        way = int(rng.integers(0, 6))
        if not names or way == 0:
            limit = f"{rng.uniform(-0.8, 0.8):.2f}"
            made = [f"a > {limit}", f"x < {limit}", f"np.sin(3 * a) > {limit}"]
            names.append(f"m{len(names)}")
            lines.append(f"    {names[-1]} = {rng.choice(made)}")
            return names[-1]
        first, second = rng.choice(names, 2)
        found = [first, f"~{first}", f"({first} & {second})", f"({first} | ~{second})"]
        return found[way % 4]

    for _ in range(rng.integers(2, 6)):
        m, scale = mask(), f"{rng.uniform(0.5, 2):.2f}"
        lines.append(
            "    "
            + rng.choice(
                [
                    f"a[{m}] = a[{m}] * {scale}",
                    f"a[{m}] += {scale}",
                    f"a[np.nonzero({m})] -= {scale}",
                    f"b = a[{m}]; b *= {scale}; a[{m}] = b",
                    f"t = t + np.sum(a[{m}] * {scale}) + x[{m}].shape[0]",
                    f"t = t + np.sum(np.cumsum(a[{m}]) * a[{m}])",
                    f"t = t + np.sum(np.concatenate([a[{m}], x[{mask()}]]) ** 2)",
                ]
            )
        )
    return "\n".join([*lines, "    return t + np.sum(a * a)"])


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(16))
def test_random_programs_with_masks(seed: int) -> None:
    rng = np.random.default_rng([17, seed])
    text, name = random_program(rng), f"<masks {seed}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    scope: dict[str, Any] = {"np": np}
    exec(compile(text, name, "exec"), scope)
    fn = scope["f"]
    graph = co.make_fx(fn, tracing_mode="symbolic")(X)
    compiled, slope = co.compile(fn), co.compile(co.grad(fn))
    for x in [
        rng.normal(size=4),
        rng.normal(size=7),
        np.full(3, 2.0),
        np.full(3, -2.0),
    ]:
        assert graph(x) == fn(x), text
        assert compiled(x) == fn(x), text
        direction = rng.normal(size=x.shape)
        step = 1e-7
        change = (fn(x + step * direction) - fn(x - step * direction)) / (2 * step)
        np.testing.assert_allclose(
            np.sum(slope(x) * direction), change, 1e-4, 1e-4, err_msg=text
        )
