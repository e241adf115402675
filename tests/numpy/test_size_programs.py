"""NumPy code whose sizes are named: one graph, which is right at every size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.numpy.arguments import SINCE_2_5
from tests.conformance.symbolic import is_data, shape_at

# Name -> a function of an array of shape (n, 3). No guard arises for any of them.
PROGRAMS: dict[str, Callable[[Any], Any]] = {
    # ---- slices ----
    "half": lambda x: x[: x.shape[0] // 2] * 2.0,
    "other half": lambda x: x[x.shape[0] // 2 :],
    "thirds": lambda x: x[x.shape[0] // 3 : 2 * x.shape[0] // 3],
    "steps": lambda x: x[::2] + x[::-2][::-1][: (x.shape[0] + 1) // 2],
    "neighbors": lambda x: x[1:] - x[:-1],
    "curvature": lambda x: x[2:] - 2.0 * x[1:-1] + x[:-2],
    "last two": lambda x: x[-2:],
    "without the last two": lambda x: x[:-2],
    "backward": lambda x: x[::-1] * x,
    "from the end": lambda x: x[-1:0:-1],
    "beyond the end": lambda x: x[2:9],
    "part of the end": lambda x: x[-4:-1],
    "from a size": lambda x: x[x.shape[0] // 2 :: -1],
    "ends": lambda x: np.concatenate([x[:1], x[1:]]) + x,
    # ---- shapes ----
    "flat": lambda x: x.reshape(-1) * 2.0,
    "ravel": lambda x: np.ravel(x.T),
    "split axis": lambda x: np.concatenate([x, x]).reshape(2, -1, 3)[0] + x,
    "joined axes": lambda x: np.stack([x, x], 1).reshape(x.shape[0], 6),
    "pairs": lambda x: np.concatenate([x, x], 1).reshape(-1, 2),
    "moved": lambda x: np.moveaxis(x[None] + x[:, None], 2, 0),
    "outer": lambda x: np.outer(x[:, 0], x[:, 1]),
    "broadcast": lambda x: np.broadcast_to(x[:, :1], (x.shape[0], 5)),
    "spread": lambda x: x[:, None] * x,
    "column": lambda x: x + x[:, :1] + x[:1, :].mean(0) * 0.0 + np.ones((1, 3)),
    # ---- joined and split ----
    "stack": lambda x: np.stack([x, 2.0 * x], -1),
    "append": lambda x: np.append(x, np.ones((2, 3)), axis=0),
    "array_split": lambda x: np.array_split(x, 3)[1],
    "cut": lambda x: np.split(x, [1, 2])[2],
    "cut by a size": lambda x: np.split(x, [x.shape[0] // 2])[1],
    # ---- sizes as arguments ----
    "arange": lambda x: x + np.arange(x.shape[0], like=x)[:, None],
    "arange of a part": lambda x: np.arange(1, x.shape[0] + 2, 2, like=x),
    "zeros": lambda x: np.zeros_like(x, shape=(x.shape[0], 2)) + x[:, :2],
    "ones": lambda x: np.ones((x.shape[0], 2), like=x) + x[:, :2],
    "full": lambda x: np.full((2, x.shape[0]), 2.5, like=x),
    "eye": lambda x: np.eye(x.shape[0], like=x) @ x,
    "lower ones": lambda x: np.tril(np.ones((x.shape[0], x.shape[0]), like=x)) @ x,
    "identity": lambda x: np.identity(x.shape[0] + 1, like=x),
    "linspace": lambda x: np.linspace(x[0, 0] * 0.0, 1.0, x.shape[0]),
    "linspace without the end": lambda x: np.linspace(
        0.0 * x[0], 1.0, x.shape[0], endpoint=False
    ),
    "roll by a size": lambda x: np.roll(x, x.shape[0] // 2, 0),
    "roll": lambda x: np.roll(x, (1, -1), (0, 1)),
    "repeat by a size": lambda x: np.repeat(x[0], x.shape[0]),
    "repeat": lambda x: np.repeat(x, 2, 0),
    "tile by a size": lambda x: np.tile(x[0], (x.shape[0], 2)),
    "tile": lambda x: np.tile(x, 3),
    "pad by a size": lambda x: np.pad(x[0], (x.shape[0], 1)),
    **{
        f"pad {mode}": lambda x, mode=mode: np.pad(x, ((2, 3), (1, 0)), mode)
        for mode in ("constant", "edge", "reflect", "symmetric", "wrap", "mean")
    },
    # ---- numbers from sizes ----
    "mean by hand": lambda x: x.sum(0) / x.shape[0],
    "scaled": lambda x: x / np.sqrt(x.shape[0]) + len(x.shape) * x.size,
    "weights": lambda x: x * (1.0 - 1.0 / x.shape[0]) ** x.shape[0],
    "power": lambda x: np.abs(x) ** x.shape[0] + 0.5 ** (x.shape[0] - 1) * x,
    "compared": lambda x: np.minimum(x, x.shape[0]) * np.maximum(x.shape[0], x),
    "selected by a size": lambda x: np.where(x > 0.0, x.shape[0], x),
    "clipped by a size": lambda x: np.clip(x, 0, x.shape[0]),
    # ---- reductions ----
    "var": lambda x: x.var(0) + x.mean(),
    "std": lambda x: x.std(),
    "softmax": lambda x: np.exp(x - x.max(0)) / np.exp(x - x.max(0)).sum(0),
    "argmax": lambda x: x.argmax(0) + x.argmin(),
    "prod": lambda x: x.prod(0),
    "cumsum": lambda x: x.cumsum(0) + np.cumprod(x, 0),
    "cumulative": lambda x: np.cumulative_sum(x, axis=0, include_initial=True),
    "any": lambda x: (x > 0.0).any(0) & (x < 9.0).all(),
    "maximum.accumulate": lambda x: np.maximum.accumulate(x, axis=0),
    "logaddexp.reduce": lambda x: np.logaddexp.reduce(x, axis=0),
    "diff": lambda x: np.diff(x, axis=0).sum(0),
    "second diff": lambda x: np.diff(x, 2, 0),
    "trapezoid": lambda x: np.trapezoid(x, axis=0),
    "unwrap": lambda x: np.unwrap(x, axis=0),
    # ---- products ----
    "gram": lambda x: x.T @ x,
    "distances": lambda x: ((x[:, None] - x) ** 2).sum(-1),
    "einsum": lambda x: np.einsum("ni,mi->nm", x, x),
    "einsum trace": lambda x: np.einsum("ii", x @ x.T),
    "tensordot": lambda x: np.tensordot(x, x, ([0], [0])),
    "kron": lambda x: np.kron(x, np.ones((1, 2))),
    "cross": lambda x: np.cross(x, x[::-1]),
    # ---- indices ----
    "gather": lambda x: x[np.argsort(x[:, 0])],
    "take": lambda x: np.take(x, [0, 0], 0) + np.take(x, [-5, 7], 0, mode="wrap"),
    "take_along_axis": lambda x: np.take_along_axis(x, np.argsort(x, 0), 0),
    "diagonal": lambda x: np.diagonal(x @ x.T) + np.trace(x @ x.T),
    "diag": lambda x: np.diag(x[:, 0], 1),
    "triangle": lambda x: np.tril(x @ x.T) - np.triu(x, 1) @ x.T,
    "last": lambda x: x[-1] + x[x.shape[0] - 1] + x[0],
    # ---- other lengths ----
    "delete in steps": lambda x: np.delete(x, slice(1, None, 2), 0),
    "delete backward": lambda x: np.delete(x, slice(-2, None, -3), 0),
    "insert in steps": lambda x: np.insert(x, slice(0, -1, 2), 7.5, 0),
    "insert backward": lambda x: np.insert(x, slice(None, None, -2), x[::-2], 0),
    "quotient": lambda x: np.polydiv(x[:, 0], np.array([2.0, 1.0]))[0],
    "remainder": lambda x: np.polydiv(np.array([2.0, 1.0, 0.5]), x[:, 0])[1],
    "median": lambda x: np.median(x, axis=0) + np.nanmedian(x),
    "loop": lambda x: co.fori_loop(
        1, x.shape[0], lambda i, y: np.sin(y) + 0.5 * i, x[0] + x[-1]
    ),
    # ---- sizes that depend on data ----
    "mask": lambda x: x[x > 0.0],
    "rows of a mask": lambda x: x[x[:, 0] > 0.0].sum(0),
    "count": lambda x: np.nonzero(x)[0].shape[0] * np.ones(2),
    "flatnonzero": lambda x: np.flatnonzero(x > 0.0) + 1,
    "repeat by counts": lambda x: np.repeat(x, (x[:, 0] > 0.0) * 2, 0),
    "compress": lambda x: np.compress(x[:, 1] > 0.0, x, axis=0),
}


def _written(x: Any) -> Any:
    y = x + 0.0
    y[: x.shape[0] // 2] += 1.0
    y[y > 1.0] *= 0.5
    y[:, 0] = np.arange(x.shape[0], like=x)
    y[y < 0.0] = 0.0
    return y


PROGRAMS["written"] = _written
if not SINCE_2_5:  # NumPy 2.5 asks for the number before it looks at `like`
    PROGRAMS["tri"] = lambda x: np.tri(x.shape[0], like=x) @ x
NAMES = pytest.mark.parametrize("name", PROGRAMS)


def _of(size: int) -> Any:
    return np.random.default_rng(size).normal(size=(size, 3))


def _captured(fn: Any) -> Any:
    return co.make_fx(fn, "symbolic", sizes={"x": ("n", 3)})(_of(4))


def _same(found: Any, expected: Any) -> None:
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@NAMES
def test_one_graph_is_right_at_every_size(name: str) -> None:
    """It gives what the function gives, with no question about the size."""

    def fn(x: Any) -> Any:
        return PROGRAMS[name](x)

    graph = _captured(fn)
    asked = [guard.text for guard in graph.graph.sizes.guards]
    assert [text for text in asked if text not in ("n != 0", "n > 0", "n >= 1")] == []
    shape = _fake_result(graph).shape
    for size in (1, 2, 3, 5, 8):
        if name != "unwrap" or size > 1:
            found = graph(_of(size))
            _same(found, fn(_of(size)))
            if not any(map(is_data, shape)):
                assert found.shape == shape_at(shape, {"n": size})


def _fake_result(graph: Any) -> Any:
    """The fake array of the result of a graph."""
    ((result,),) = list(graph.graph.nodes)[-1].args
    return result.meta["val"]


@pytest.mark.parametrize("name", ["median", "nanmedian"])
@pytest.mark.filterwarnings(
    "ignore:All-NaN", "ignore:Mean of empty", "ignore:invalid value"
)
def test_the_median_of_nothing_is_nan(name: str) -> None:
    """In graphs that were made for arrays of elements, too."""
    for axis in (0, None):
        fn = lambda x, axis=axis: getattr(np, name)(x, axis=axis)
        found = _captured(fn)(np.zeros((0, 3)))
        _same(found, np.full((3,) if axis == 0 else (), np.nan))


@pytest.mark.parametrize("size", [2, 3, 6])
def test_places_from_both_ends(size: int) -> None:
    """Of sizes that are said to be large enough."""
    places = [-1, 0]

    def fn(x: Any) -> Any:
        co.check(x.shape[0] >= 2)
        return np.delete(x, places, 0), np.insert(x, places, [[7.0], [8.0]], 0)

    x = _of(size)
    for found, name in zip(_captured(fn)(x), ("delete", "insert"), strict=True):
        values = ([[7.0], [8.0]],) if name == "insert" else ()
        _same(found, getattr(np, name)(x, places, *values, axis=0))


SMOOTH = [name for name in PROGRAMS if name not in ("argmax", "any", "flatnonzero")]


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("way", ["grad", "jvp"])
def test_one_graph_of_a_derivative_is_right_at_every_size(name: str, way: str) -> None:
    """In reverse and in forward mode."""

    def total(x: Any) -> Any:
        return np.sum(np.sin(PROGRAMS[name](x)))

    def fn(x: Any) -> Any:
        if way == "grad":
            return co.grad(total)(x)
        return co.jvp(total, (x,), (np.cos(x),))[1]

    graph = _captured(fn)
    for size in (1, 2, 3, 5, 8):
        if name != "unwrap" or size > 1:
            _same(graph(_of(size)), fn(_of(size)))


BY_DATA = ("count", "flatnonzero", "compress", "written", "repeat by counts")


@pytest.mark.exhaustive
@NAMES
def test_rows_of_a_batch_of_any_number(name: str) -> None:
    """Under vmap of a symbolic number of rows; masks differ between rows."""
    if "mask" in name or name in BY_DATA:
        pytest.skip("each row has other sizes")

    def fn(x: Any) -> Any:
        return co.vmap(PROGRAMS[name])(x)

    x = np.stack([_of(4), _of(4) + 1.0])
    graph = co.make_fx(fn, "symbolic", sizes={"x": ("rows", "n", 3)})(x)
    for size in (2, 5):
        other = np.stack([_of(size) + i for i in range(size + 1)])
        _same(graph(other), fn(other))
