"""The text of a graph runs with the same numbers, whatever kinds of nodes the graph has."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co


@co.custom_vjp
def clipped(x: Any, limit: Any) -> Any:
    """A function with a gradient of its own."""
    return x * limit


clipped.defvjp(
    lambda x, limit: (clipped(x, limit), limit),
    lambda limit, g: (np.clip(g, -1, 1) * limit, None),
)


@co.custom_jvp
def soft(x: Any) -> Any:
    """A function with a rule for tangents."""
    return np.log1p(np.exp(x))


soft.defjvp(lambda x, t: (soft(*x), t[0] / (1 + np.exp(-x[0]))))


@co.custom_op("test_text_back::noise", mutates_args=())
def noise(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draws."""
    return x + rng.normal(size=x.shape)


@noise.register_fake
def _(x: Any, rng: Any) -> Any:
    return co.fake_like(x)


@co.custom_op("test_text_back::scale_", mutates_args=("x",))
def scale_(x: np.ndarray, a: float) -> None:
    """Writes."""
    x *= a


class Color(enum.Enum):
    """A choice."""

    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass(frozen=True)
class Lens:
    """A config object with an array in it."""

    matrix: np.ndarray
    focal: float
    color: Color = Color.RED


co.register_config_type(Lens)


@co.custom_op("test_text_back::seen", mutates_args=())
def seen(x: np.ndarray, lens: Lens) -> np.ndarray:
    """Takes a config object."""
    return x * lens.focal + lens.matrix.sum() + (lens.color is Color.BLUE)


@seen.register_fake
def _(x: Any, lens: Any) -> Any:
    return co.fake_like(x)


def writes(x: Any) -> Any:
    y = x * 1.0
    scale_(y, 2.0)
    y[0] = x.shape[0]
    scale_(x, 3.0)
    return y


def names(x: Any) -> Any:
    """Values whose nodes would hide names that the text of a size has."""
    float, min = x * x.shape[0], np.minimum(x.shape[0], 3)  # noqa: A001
    return float + x / min + x * (x.shape[0] / 2 > 1)


ZERO = np.float64(0.0)
PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "cond": lambda x: co.cond(x.sum() > 0, lambda y: y * 2, lambda y: -y, x),
    "cond of a size": lambda x: co.cond(x.shape[0] > 3, np.sin, np.cos, x),
    "while_loop": lambda x: co.while_loop(
        lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * x), (0, x)
    )[1],
    "scan": lambda x: co.scan(lambda c, y: (c + y, c * y), ZERO, x, reverse=True),
    "map": lambda x: co.map(lambda y: y * y, x),
    "fori_loop": lambda x: co.fori_loop(0, x.shape[0], lambda i, c: c + i, x),
    "gradient of a scan": co.grad(
        lambda x: co.scan(lambda c, y: (c * y, c), ZERO + 1, x)[0]
    ),
    "custom functions": lambda x: soft(clipped(x, 2.0)),
    "their gradients": co.grad(lambda x: soft(clipped(x, 2.0)).sum()),
    "their batches": co.vmap(lambda x: soft(x) + clipped(x, 3.0)),
    "custom in a scan": lambda x: co.scan(
        lambda c, y: (soft(c + y), clipped(c, 2.0)), ZERO, x
    ),
    "scan in a custom function": lambda x: co.custom_vjp(
        lambda y: co.scan(lambda c, z: (c + z, c), ZERO, y)
    )(x),
    "checkpoint": lambda x: co.checkpoint(lambda y: np.sin(y) * 2)(x),
    "several results": lambda x: np.linalg.slogdet(np.outer(x, x) + 3 * np.diag(x)),
    "a size of data": lambda x: x[x > 0] * np.nonzero(x > 0)[0].shape[0],
    "sizes of all classes": lambda x: (
        x * np.minimum(x.shape[0], 3) + x.shape[0] / 2 - (x.shape[0] > 2)
    ),
    "special numbers": lambda x: np.nan_to_num(
        np.maximum(x, -np.inf) * 1j, nan=3, posinf=np.inf
    ),
    "large constants": lambda x: x + np.arange(200.0)[:1] + np.arange(200.0).sum(),
    "config objects": lambda x: seen(
        seen(x, Lens(np.eye(2), 2.0, Color.BLUE)), Lens(x, 1.0)
    ),
    "writes": writes,
    "names": names,
    "pytrees": lambda x: {"a": x, "b": [x * 2, (x, 3, None, "text")]},
    "dtypes, keys and text": lambda x: np.sort(x.astype("f4"), kind="stable")[::-1][
        None, ..., ::2
    ],
}


def run_back(graph: Any) -> Any:
    """The function of the text of a graph."""
    names: dict[str, Any] = {"constants": graph.named_constants()}
    exec(graph.print_readable(print_output=False), names)
    return names[graph.__name__ if graph.__name__.isidentifier() else "graph"]


def check_same(first: Any, second: Any) -> None:
    """Compare trees of arrays, with their dtypes."""
    for a, b in zip(co.tree.leaves(first), co.tree.leaves(second), strict=True):
        assert getattr(a, "dtype", type(a)) == getattr(b, "dtype", type(b))
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_kind_of_node_runs_back(name: str) -> None:
    """As the function itself, and what it writes into its argument."""
    f, xs = (
        PROGRAMS[name],
        (np.array([1.0, -2.0, 3.0, 0.5]), np.array([1.0, 2.0, -1.0])),
    )
    for mode in ("real", "symbolic"):
        again = run_back(co.make_fx(f, mode)(xs[0].copy()))
        for x in xs if mode == "symbolic" else xs[:1]:
            given, expected = x.copy(), x.copy()
            try:
                found = again(given)
            except AssertionError:  # a guard
                assert x is not xs[0]
                continue
            check_same(found, f(expected))
            check_same(given, expected)


def related(x: Any, y: Any) -> Any:
    """Branches in branches; no array in them is as long as `x` or `y`."""

    def twice(a: Any, b: Any) -> Any:
        return co.cond(np.sum(a) > 0, lambda: a * b, lambda: b[::-1] + a[0])

    def inner(a: Any, b: Any) -> Any:
        return co.cond(np.sum(b) > 0, lambda: a[2:], lambda: b.copy())

    def other(a: Any, b: Any) -> Any:
        return co.cond(np.sum(b) > 0, lambda: a + 1, lambda: b * 1)

    def either(a: Any, b: Any) -> Any:
        return co.cond(np.sum(a) > 0, lambda: a, lambda: b)

    both, longer = np.concatenate([x, x]), np.concatenate([x, np.zeros(1)])
    outer, flag, rows = np.outer(x, y).ravel(), np.sum(x) > 1, np.stack([x, -x])
    return [
        co.cond(flag, either, lambda a, b: either(b, a), rows, rows[::-1]),
        co.cond(flag, twice, lambda a, b: twice(b, a), both, 1 - both),
        co.cond(flag, inner, inner, longer, x[1:]),
        co.cond(flag, other, other, outer, outer - 1),
    ]


def test_graphs_of_branches_keep_how_their_sizes_are_related() -> None:
    """Their functions are captured again, on arrays of any lengths."""
    graph = co.make_fx(related, "symbolic")(np.ones(3), np.ones(2))
    again = run_back(graph)
    for x in (np.arange(5.0), -np.arange(4.0), np.array([-0.5, 0.75])):
        for y in (np.arange(3.0) - 1, np.array([2.0])):
            check_same(again(x, y), related(x, y))
            check_same(graph(x, y), related(x, y))
    with pytest.raises(AssertionError):
        again(np.ones(1), np.ones(2))  # its graph has such a guard


def test_random_generators_run_back() -> None:
    """They draw the same numbers."""
    graph = co.make_fx(lambda x, r: noise(x, r) + r.normal(size=3))(
        np.ones(3), np.random.default_rng(0)
    )
    x, again = np.ones(3), run_back(graph)
    found, expected = (f(x, np.random.default_rng(5)) for f in (again, graph))
    check_same(found, expected)


def test_the_text_names_a_custom_function() -> None:
    """Its text is a call of a named value, which differentiates as the graph does."""
    graph = co.make_fx(lambda x: (soft(x) * 2).sum())(np.ones(3))
    text = graph.print_readable(print_output=False)
    assert "run_soft = constants['run_soft']  # custom_jvp::soft, defined at" in text
    x = np.array([0.1, -0.5, 2.0])
    np.testing.assert_allclose(co.grad(run_back(graph))(x), 2 / (1 + np.exp(-x)))
