"""vmap: ufuncs and reductions of rows, which call kernels at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import customop as co

X = np.random.default_rng(5).normal(size=(3, 4))
Step = Callable[[Any, Any], Any]

# Each takes a row of 4 numbers and one of the row and a number of its own.
STEPS: dict[str, Step] = {
    "arithmetic": lambda v, s: (v - s) * v / (v + s * 2.0),
    "number first": lambda v, s: 1.0 - v + 2 / (3.0 + s * s) - 2.0 * v,
    "integer operators": lambda v, s: v // s + v % s + 7 // (v * v + 1.0),
    "power": lambda v, s: (v * v) ** 1.5 + v**2 + 2.0**v + (v * v + 1.0) ** s,
    "signs": lambda v, s: -v + abs(v) * +s,
    "comparisons": lambda v, s: (v < s) * 1.0 + (v >= 0.0) + (v == s) + (s != v) * v,
    "bits": lambda v, s: ~((v > 0) & (v < s)) | (v > 2 * s) ^ (s > 0),
    "ufuncs": lambda v, s: np.maximum(v, s) + np.arctan2(1.0, v) + np.exp(np.sin(v)),
    "arrays": lambda v, s: np.ones(4) * v + v * np.arange(4.0) - np.hypot(X[0], s),
    "float32": lambda v, s: v.astype(np.float32) * 2 + np.float32(3) * s,
    "reductions": lambda v, s: (
        np.exp(v - np.max(v)) / np.sum(np.exp(v))
        + np.mean(v) * np.prod(v)
        - v.min() * s
    ),
    "methods": lambda v, s: v - v.mean() + v.sum() * v.prod() - v.max() + s,
    "with axes": lambda v, s: (
        v / v.sum(axis=0) + np.max(v, axis=-1, keepdims=True) - v.min(0, keepdims=True)
    ),
    "truth": lambda v, s: np.any(v > s) | (v > 0).all() | np.all(s > 0),
    "of numbers alone": lambda v, s: s - np.sum(s) + np.max(s) * s.mean(),
}


def by_hand(step: Step, batch: Any, axis: int, numbers: Any) -> Any:
    """The same for one row after the other, by NumPy."""
    pairs = zip(np.moveaxis(batch, axis, 0), numbers, strict=True)
    return np.stack([step(v, s) for v, s in pairs])


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("name", STEPS)
def test_rows(name: str, axis: int) -> None:
    """The first call and later ones give what NumPy gives for each row."""
    batch, numbers = np.moveaxis(X, 0, axis), np.array([0.5, -1.5, 2.0])
    expected = by_hand(STEPS[name], batch, axis, numbers)
    fn = co.vmap(STEPS[name], in_dims=(axis, 0))
    for _ in range(3):
        found = fn(batch, numbers)
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("axes", [(0, 2), (2, 0), (1, 1), (0, 0), (2, 1)])
def test_rows_of_other_ranks(axes: Sequence[int]) -> None:
    """Matrices beside vectors, with the batch along any axes."""
    a, b = np.arange(24.0).reshape(4, 2, 3), np.arange(12.0).reshape(4, 3) + 1.0
    expected = np.stack([x / y - y * x for x, y in zip(a, b, strict=True)])
    at, other = axes[0], min(axes[1], 1)
    x, y = np.moveaxis(a, 0, at), np.moveaxis(b, 0, other)
    for _ in range(2):
        found = co.vmap(lambda x, y: x / y - y * x, in_dims=(at, other))(x, y)
        np.testing.assert_array_equal(found, expected)


def test_rows_of_many_axes() -> None:
    """More axes than the short way knows."""
    x, y = np.ones((3,) + (1,) * 12), np.arange(3.0)
    for _ in range(2):
        assert co.vmap(lambda a, b: a + b)(x, y).ravel().tolist() == [1.0, 2.0, 3.0]


def test_results_can_be_written() -> None:
    """A result is a row like others: it takes writes, and views of it see them."""

    def step(v: Any) -> Any:
        w = v * 2.0
        part = w[1:]
        w[0] = 5.0
        w += v
        part[0] = 1.0
        return w

    expected = X * 2.0
    expected[:, 0] = 5.0
    expected += X
    expected[:, 1] = 1.0
    np.testing.assert_array_equal(co.vmap(step)(X), expected)


# ---- what changes meanwhile ----


def test_another_rule() -> None:
    """A batching rule that is registered later counts from then on, until it is gone."""
    fn = co.vmap(lambda v: np.exp(v) + v)
    for _ in range(2):
        np.testing.assert_array_equal(fn(X), np.exp(X) + X)
    with co.Library("np", "FRAGMENT") as library:
        rules: dict[str, Callable[..., Any]] = {
            "exp": lambda info, dims, x: (x * 0.0, dims[0]),
            "add": lambda info, dims, x1, x2: (x1 * 10.0 + x2, dims[0]),
        }
        for name, rule in rules.items():
            co.register_vmap(f"np::{name}", rule, lib=library, override=True)
        np.testing.assert_array_equal(fn(X), X)
    np.testing.assert_array_equal(fn(X), np.exp(X) + X)


def test_another_rule_of_a_reduction() -> None:
    """So does one of a reduction, whose calls were kept by their shapes."""
    fn = co.vmap(np.sum)
    for _ in range(2):
        np.testing.assert_array_equal(fn(X), np.sum(X, axis=1))
    with co.Library("np", "FRAGMENT") as library:

        def rule(info: Any, dims: Any, x: Any, axis: Any, keepdims: Any) -> Any:
            return np.zeros(info.batch_size), 0

        co.register_vmap("np::sum", rule, lib=library, override=True)
        assert fn(X).tolist() == [0.0] * 3
    np.testing.assert_array_equal(fn(X), np.sum(X, axis=1))


def test_another_function() -> None:
    """What is registered for a ufunc later runs from then on."""
    twice = np.frompyfunc(lambda v: v * 2, 1, 1)
    results = []
    for factor in (2.0, 3.0):

        @co.custom_op(f"rows::times{factor:g}", mutates_args=(), tags=co.Tag.pointwise)
        def times(x: np.ndarray, factor: float = factor) -> np.ndarray:
            return x * factor

        co.register_numpy_function(twice, times)
        results += [co.vmap(twice)(X).tolist() for _ in range(2)]
    assert results == [(X * 2).tolist()] * 2 + [(X * 3).tolist()] * 2


def test_alone() -> None:
    """Calls with one array go to the operator that is named, until another function is."""
    seen: list[str] = []

    @co.custom_op("rows::total", mutates_args=())
    def total(x: np.ndarray, scale: float = 1.0) -> np.ndarray:
        return np.asarray(np.sum(x) * scale)

    total.register_fake(lambda x, scale: co.FakeArray((), x.dtype))
    total.register_vmap(lambda info, dims, x, scale: (np.sum(x, axis=1) * scale, 0))

    def function(x: Any, scale: float = 1.0) -> Any:
        seen.append("function")
        return total(x, scale)

    def known(x: Any, *rest: Any) -> Any:  # as NumPy's functions do
        return x.__array_function__(known, (type(x),), (x, *rest), {})

    co.register_numpy_function(known, function, alone=total)
    for _ in range(2):
        np.testing.assert_array_equal(co.vmap(known)(X), np.sum(X, axis=1))
    assert seen == []
    co.vmap(lambda v: known(v, 2.0))(X)
    assert seen == ["function"]
    co.register_numpy_function(known, function)
    co.vmap(known)(X)
    assert seen == ["function"] * 2


def test_profile() -> None:
    """A profile sees kernels and rules also after calls at once."""
    fn = co.vmap(lambda v: np.sum(np.exp(v - 1.0)))
    fn(X)
    fn(X)
    with co.profile() as p:
        fn(X)
    seen = {(row.operator, row.count) for row in p.rows if "kernel" in row.rule}
    assert seen == {("np::subtract", 1), ("np::exp", 1), ("np::sum", 1)}


USES: dict[str, Callable[[Any], Any]] = {
    "operator": lambda v: v - 1.0,
    "reflected": lambda v: 1.0 - v,
    "ufunc": np.exp,
    "reduction": np.sum,
    "method": lambda v: v.max(),
}


@pytest.mark.parametrize("name", USES)
def test_rows_that_outlive_vmap(name: str) -> None:
    """They raise, also where a call at once would do."""
    kept: list[Any] = []

    def step(v: Any) -> Any:
        kept.append(v)
        return USES[name](v)

    co.vmap(step)(X)
    with pytest.raises(co.LeakedTracerError):
        USES[name](kept[0])


def test_other_libraries_decide() -> None:
    """A class with a protocol of its own gets the call, also beside a row."""

    class Unit:
        def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any) -> str:
            return f"{ufunc.__name__} of {len(inputs)}"

    seen: list[Any] = []
    unit: Any = Unit()

    def step(v: Any) -> Any:
        seen.extend([v * unit, np.add(v, unit)])
        return v * 1.0

    co.vmap(step)(X)
    assert seen == ["multiply of 2", "add of 2"]


def test_nested() -> None:
    """Rows of rows, and rows of values with gradients, go the general way."""
    found = co.vmap(co.vmap(lambda a, b: a * b - a, (0, None)), (None, 0))(X[0], X[1])
    np.testing.assert_array_equal(found, X[0] * X[1][:, None] - X[0])
    slope = co.grad(lambda x: np.sum(co.vmap(lambda v: v * np.sum(v))(x)))(X)
    np.testing.assert_allclose(slope, 2 * np.sum(X, axis=1, keepdims=True) + X * 0)
