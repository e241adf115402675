"""associative_scan: values by a loop, derivatives, batches, graphs, and what does not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import customop as co

RNG = np.random.default_rng(5)


def after(first: Any, second: Any) -> Any:
    """Combine maps ``h -> m @ h + b``: not commutative."""
    m = second["m"] @ first["m"]
    return {"m": m, "b": (second["m"] @ first["b"][..., None])[..., 0] + second["b"]}


def loop(f: Any, rows: list[Any]) -> list[Any]:
    """Combine rows one after the other."""
    found = rows[:1]
    for row in rows[1:]:
        found.append(f(found[-1], row))
    return found


def maps(count: int) -> dict[str, Any]:
    return {"m": RNG.normal(size=(count, 2, 2)), "b": RNG.normal(size=(count, 2))}


@pytest.mark.parametrize("reverse", [False, True])
def test_values(reverse: bool) -> None:
    """They are those of a loop, for each length; the arguments stay."""
    way = -1 if reverse else 1
    for count in [*range(1, 10), 16, 23]:
        xs = maps(count)
        kept = {k: v.copy() for k, v in xs.items()}
        rows = [{k: v[i] for k, v in xs.items()} for i in range(count)][::way]
        found = co.associative_scan(after, xs, reverse)
        for k, have in found.items():
            want = np.stack([row[k] for row in loop(after, rows)][::way])
            np.testing.assert_allclose(have, want, rtol=1e-10, atol=1e-12)
            assert not np.shares_memory(have, xs[k])
            np.testing.assert_array_equal(xs[k], kept[k])


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_axes(axis: int, dtype: Any) -> None:
    """Any axis and dtype, and no rows."""
    x = RNG.integers(1, 9, size=(3, 5, 4)).astype(dtype)
    found = co.associative_scan(np.add, x, axis=axis)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, np.cumsum(x, axis, dtype))
    none = co.associative_scan(np.add, x[:0])
    assert none.shape == (0, 5, 4)
    assert none.dtype == dtype


@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_gradient(count: int) -> None:
    """It is that of finite differences, alone, in batches and compiled."""
    xs = maps(count)

    def loss(m: Any, b: Any, reverse: bool = False) -> Any:
        found = co.associative_scan(after, {"m": m, "b": b}, reverse)
        return np.sum(np.sin(found["m"])) + np.sum(found["b"] ** 2)

    co.gradcheck(loss, (xs["m"], xs["b"]))
    co.gradcheck(lambda m, b: loss(m, b, True), (xs["m"], xs["b"]))
    gradient = co.grad(loss, (0, 1))
    many = RNG.normal(size=(3, count, 2, 2))
    want = [gradient(m, xs["b"]) for m in many]
    batch = co.vmap(gradient, (0, None))
    for run in (batch, co.compile(batch), co.make_fx(batch)(many, xs["b"])):
        for have, each in zip(run(many, xs["b"]), zip(*want, strict=True), strict=True):
            np.testing.assert_allclose(have, np.stack(each), rtol=1e-10, atol=1e-12)
    tangent = co.jvp(lambda m: loss(m, xs["b"]), (xs["m"],), (many[0],))[1]
    inner = np.sum(gradient(xs["m"], xs["b"])[0] * many[0])
    np.testing.assert_allclose(tangent, inner, rtol=1e-10)


def test_batched_axis_and_shapes() -> None:
    """Batches may lie along any axis; shapes are known without values."""
    x = RNG.normal(size=(4, 5, 3))
    found = co.vmap(lambda x: co.associative_scan(np.multiply, x, axis=-1), 1, 1)(x)
    np.testing.assert_allclose(found, np.cumprod(x, -1), rtol=1e-12)
    shape = co.eval_shape(lambda x: co.associative_scan(np.multiply, x, axis=1), x)
    assert tuple(shape.shape) == x.shape


@pytest.mark.parametrize("count", [0, 1, 2])
def test_results_are_new_arrays(count: int) -> None:
    """A write to the result is not one to the argument, whatever the number of rows."""
    x = np.ones((count, 2))
    for run in (co.associative_scan, co.compile(co.associative_scan)):
        out = run(np.add, x)
        out += 1.0
        np.testing.assert_array_equal(x, np.ones((count, 2)))


def test_calls() -> None:
    """The function is called twice for each halving of the number of rows."""
    calls: list[int] = []

    def add(a: Any, b: Any) -> Any:
        calls.append(len(a))
        return a + b

    co.associative_scan(add, np.ones(1000))
    assert len(calls) <= 2 * np.log2(1000)
    assert sum(calls) < 2 * 1000


def test_what_does_not_fit() -> None:
    """Shapes, dtypes, symbolic sizes and writes in place."""
    x = np.ones((4, 2))
    with pytest.raises(co.ArgumentError, match=r"f64\[2, 2\] .*, and f64\[2\]"):
        co.associative_scan(lambda a, b: (a + b)[:, 0], x)
    with pytest.raises(co.ArgumentError, match="i64"):
        co.associative_scan(np.true_divide, np.arange(4))
    with pytest.raises(co.ArgumentError, match="has no axis 2"):
        co.associative_scan(np.add, x, axis=2)
    with pytest.raises(co.ShapeError, match=r"xs\[1\] is .*, with 3 rows"):
        co.associative_scan(lambda a, b: b, (x, x[:3]))
    with pytest.raises(co.ArgumentError, match="no arrays"):
        co.associative_scan(np.add, ())
    with pytest.raises(co.ArgumentError, match=r"co\.scan"):
        co.make_fx(lambda x: co.associative_scan(np.add, x), tracing_mode="symbolic")(x)


def test_writes_in_place() -> None:
    """They raise for plain arrays, and stay in the function for traced ones."""

    def written(a: Any, b: Any) -> Any:
        a += b
        return a

    x = RNG.normal(size=5)
    with pytest.raises(ValueError, match="read-only"):
        co.associative_scan(written, x)

    def loss(x: Any, f: Any) -> Any:
        return np.sum(co.associative_scan(f, x) ** 2) + np.sum(x**3)

    have = co.grad(lambda x: loss(x, written))(x)
    np.testing.assert_allclose(have, co.grad(lambda x: loss(x, np.add))(x))
