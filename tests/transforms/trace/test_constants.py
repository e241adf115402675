"""Arrays of a program that it overwrites while it is captured: each use keeps what it held.

The oracle is the function itself, which runs on plain arrays.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co

X = np.array([1.0, 2.0, -3.0])


@co.custom_op("constants::joined", mutates_args=())
def joined(arrays: list[np.ndarray], scale: float = 1.0) -> np.ndarray:
    return np.concatenate(arrays) * scale


joined.register_fake(
    lambda arrays, scale=1.0: co.FakeArray((sum(a.shape[0] for a in arrays),), "f8")
)
joined.register_autograd(co.native)


@co.custom_op("constants::count", mutates_args=("total",))
def count(total: np.ndarray, x: np.ndarray) -> None:
    total += x


def doubled(x: Any) -> Any:
    b, y = np.ones(3), 0.0
    for _ in range(3):
        y = y + np.sum(x * b)
        b *= 2
    return y


def buffers(x: Any) -> Any:
    buffer, found = np.zeros(3), []
    for k in range(3):
        buffer[0] = k
        found.append(x * buffer)
    return found


def views(x: Any) -> Any:
    memory = np.arange(12.0).reshape(4, 3)
    found = []
    for k in range(4):
        row = memory[k]
        found += [x + row, x * memory[::-2]]
        row *= -1
    return found


def places(x: Any) -> Any:
    index, mask = np.array([0, 1, 1]), np.array([True, False, True])
    first, second = x[index], np.where(mask, x, 0.0)
    index[0], mask[:] = 2, False
    return first, second, x[index], np.where(mask, x, 0.0)


def written(x: Any) -> Any:
    y, b = x * 1.0, np.ones(3)
    y[:] = b
    b[:] = 7.0
    return y * 1.0, y.sum(), x * b


def listed(x: Any) -> Any:
    b = np.ones(2)
    first = joined([x, b], 2.0)
    b[1] = 5.0
    return first, joined([x, b])


def reshaped(x: Any) -> Any:
    b = np.arange(3.0)
    first = x * b
    b.shape = (3, 1)
    return first, x * b


def whole(x: Any) -> Any:
    b = np.array([1, 2, 3], dtype=object)
    first = b.sum()
    b[0] = 10
    return x * first, x * b.sum()


PROGRAMS = [doubled, buffers, views, places, written, listed, reshaped, whole]
WAYS: dict[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    "real": lambda f: lambda x: co.make_fx(f)(x)(x),
    "fake": lambda f: lambda x: co.make_fx(f, "fake")(x)(x),
    "symbolic": lambda f: lambda x: co.make_fx(f, sizes={"x": (None,)})(x)(x),
    "compile": co.compile,
    "compile without code": lambda f: co.compile(f, backend="eager"),
    "jvp": lambda f: lambda x: co.jvp(co.compile(f), (x,), (x,))[0],
    "jvp inside": lambda f: co.compile(lambda x: co.jvp(f, (x,), (x,))[0]),
    "vmap": lambda f: lambda x: _first(co.vmap(co.compile(f))(np.stack([x, -x]))),
    "map": lambda f: lambda x: _first(co.map(f, np.stack([x, -x]))),
    "cond": lambda f: lambda x: co.make_fx(lambda x: co.cond(x[0] < 9, f, f, x))(x)(x),
    "scan": lambda f: lambda x: _first(co.scan(lambda c, _: (c, f(x + c)), 0.0, X)[1]),
}


def _first(found: Any) -> Any:
    return co.tree.map(lambda v: v[0], found)


@pytest.mark.filterwarnings("ignore:constants..joined has no vmap rule")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
def test_each_use_has_the_content_of_its_moment(fn: Any, way: str) -> None:
    assert_same(WAYS[way](fn)(X), fn(X), f"{fn.__name__}, {way}")


def assert_same(found: Any, expected: Any, told: str) -> None:
    found, expected = co.tree.leaves(found), co.tree.leaves(expected)
    assert len(found) == len(expected), told
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_array_equal(a, b, told)


def test_an_array_that_stays_is_one_constant_by_reference() -> None:
    b = np.ones(3)
    graph = co.make_fx(lambda x: np.sum(x * b) + np.sum(x + b))(X)
    assert [value is b for value in graph.constants.values()] == [True]
    b[:] = 2.0
    assert graph(X) == np.sum(X * 2.0) + np.sum(X + 2.0)


def test_an_array_that_changes_and_changes_back() -> None:
    def fn(x: Any) -> Any:
        b = np.ones(3)
        first = x * b
        b[:] = 2.0
        second = x * b
        b[:] = 1.0
        return first, second, x * b

    assert_same(co.make_fx(fn)(X)(X), fn(X), "back")


def test_what_an_operator_and_other_code_write_is_refused() -> None:
    total = np.zeros(3)

    def fn(x: Any) -> Any:
        count(total, x)
        total[0] = 5.0
        return x * 2.0

    with pytest.raises(co.GraphError, match="is written by an operator, and by other"):
        co.make_fx(fn)(X)
    # An operator alone writes the array whenever the graph runs.
    total[:] = 0.0
    graph = co.make_fx(lambda x: count(total, x))(X)
    np.testing.assert_array_equal(total, 0.0)
    graph(X)
    graph(X)
    np.testing.assert_array_equal(total, 2 * X)


SCRATCH = np.zeros(3)
HOLDER = {"memory": np.zeros((2, 3))}


def filled(x: Any) -> Any:
    SCRATCH[...] = 5.0
    return x * SCRATCH


def filled_twice(x: Any) -> Any:
    SCRATCH[:2] = 5.0
    y = x * SCRATCH[:2].sum() + SCRATCH[:1]
    SCRATCH[:] = 6.0
    return y - x * SCRATCH


def row_filled(x: Any) -> Any:
    row = HOLDER["memory"][1]
    row[:] = [1.0, 2.0, 3.0]
    return row + x


@pytest.mark.parametrize("fn", [filled, filled_twice, row_filled])
@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_what_a_function_writes_before_it_uses_it_is_its_own(
    fn: Any, mode: Any
) -> None:
    """Also in the next capture, and where others write the array between the runs."""
    expected = fn(X)
    SCRATCH[:] = HOLDER["memory"][:] = 0.0
    for number in range(3):
        graph = co.make_fx(fn, tracing_mode=mode)(X)
        SCRATCH[:] = HOLDER["memory"][:] = 77.0 + number
        np.testing.assert_array_equal(graph(X), expected)


def test_the_error_of_a_function_is_its_own() -> None:
    def fn(x: Any) -> Any:
        b = np.ones(3)
        y = x * b
        b *= 2
        raise ValueError(f"of the function {y.shape}")

    with pytest.raises(ValueError, match="of the function"):
        co.make_fx(fn)(X)


# ---- random programs ----


class Program:
    """Statements on traced values and plain arrays, some of which write."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.steps = [self._step() for _ in range(self.draw.randint(4, 14))]
        self.text = f"seed {seed}: {self.steps}"

    def _step(self) -> tuple[str, int, int, int, float]:
        draw = self.draw
        name = draw.choice([*_STEPS])
        numbers = (draw.randrange(3), draw.randrange(3), draw.randrange(3))
        return (name, *numbers, draw.choice([-2.0, 0.5, 3.0, np.nan]))

    def __call__(self, x: Any) -> Any:
        plain = [np.ones(3), np.arange(9.0).reshape(3, 3), np.array([2.0, -1.0, 0.0])]
        index, mask = np.array([2, 0, 1]), np.array([True, False, True])
        traced = [x, x * 2.0, x - 1.0]
        for name, i, j, k, number in self.steps:
            _STEPS[name](traced, plain, index, mask, i, j, k, number)
        return traced


def _set(into: list[Any], at: int, value: Any) -> None:
    into[at] = value if value.ndim < 3 else value[0]


def _into(array: Any, value: Any) -> None:
    array[...] = value if array.ndim >= value.ndim else value[0]


# What a step does with traced values t, plain arrays p, an index n and a mask m.
_STEPS: dict[str, Callable[..., Any]] = {
    "multiply": lambda t, p, n, m, i, j, k, v: _set(t, i, t[j] * p[k]),
    "add a view": lambda t, p, n, m, i, j, k, v: _set(t, i, t[j] + p[k][::-1]),
    "add a row": lambda t, p, n, m, i, j, k, v: _set(t, i, t[j] + p[1][k]),
    "add a column": lambda t, p, n, m, i, j, k, v: _set(t, i, t[j] - p[1].T[k]),
    "where": lambda t, p, n, m, i, j, k, v: _set(t, i, np.where(m, t[j], p[k])),
    "index": lambda t, p, n, m, i, j, k, v: _set(t, i, t[j][..., n]),
    "mask": lambda t, p, n, m, i, j, k, v: _set(t, i, t[j] * m),
    "write": lambda t, p, n, m, i, j, k, v: _into(t[i], p[k]),
    "write a part": lambda t, p, n, m, i, j, k, v: _into(t[i][..., :2], p[k][..., 1:]),
    "add in place": lambda t, p, n, m, i, j, k, v: t[i].__iadd__(p[2]),
    "list": lambda t, p, n, m, i, j, k, v: _set(
        t, i, np.stack([t[j][..., 0] * 1.0, p[k][..., 0] * t[j][..., 0]])[0] + t[i]
    ),
    "scale it": lambda t, p, n, m, i, j, k, v: p[k].__imul__(v),
    "set one": lambda t, p, n, m, i, j, k, v: p[k].__setitem__(i, v),
    "set all": lambda t, p, n, m, i, j, k, v: p[k].fill(v),
    "sort it": lambda t, p, n, m, i, j, k, v: p[k].sort(),
    "through a view": lambda t, p, n, m, i, j, k, v: np.add(p[k][1:], v, out=p[k][1:]),
    "turn the index": lambda t, p, n, m, i, j, k, v: n.__setitem__(i, j),
    "turn the mask": lambda t, p, n, m, i, j, k, v: m.__setitem__(i, not m[i]),
    "a new one": lambda t, p, n, m, i, j, k, v: p.__setitem__(k, p[k].copy()),
    "a view of it": lambda t, p, n, m, i, j, k, v: p.__setitem__(0, p[1][j]),
}


@pytest.mark.exhaustive
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("way", ["real", "fake", "compile", "vmap", "jvp", "scan"])
def test_random_programs(way: str) -> None:
    run = 0
    for seed in range(150):
        program = Program(seed)
        expected = outcome(program, X)
        found = outcome(lambda x, fn=program: WAYS[way](fn)(x), X)
        if isinstance(expected, Exception):
            continue  # shapes that do not fit
        assert not isinstance(found, Exception), f"{program.text}: {found!r}"
        assert_same(found, expected, program.text)
        run += 1
    assert run > 75


def outcome(fn: Callable[..., Any], x: Any) -> Any:
    with np.errstate(all="ignore"):
        try:
            return fn(np.copy(x))
        except (ValueError, IndexError) as error:
            return error
