"""checkpoint: memory, random numbers, closures, and values that differ."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co

X = np.linspace(0.1, 1.0, 5)


def steps(x: Any) -> Any:
    for _ in range(20):
        x = np.sin(x) * 1.1
    return x


def peak(layer: Any) -> int:
    """Most memory in use during a gradient through ten layers, in arrays of the input."""

    def loss(x: Any) -> Any:
        for _ in range(10):
            x = layer(x)
        return np.sum(x)

    x = np.ones(20_000)
    co.grad(loss)(x)  # what is made at the first use
    gc.collect()
    tracemalloc.start()
    co.grad(loss)(x)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return most // x.nbytes


def test_memory() -> None:
    """Backward keeps the inputs of ten layers and one layer, not ten layers of 40 calls."""
    assert peak(steps) > 190
    assert peak(co.checkpoint(steps)) < 60


def test_scalars_stay_scalars() -> None:
    """Names of a scalar do not change together, as those of an array do."""
    first = co.checkpoint(lambda x: x[0])

    def program(x: Any) -> Any:
        y = z = first(x)
        y += 1.0
        return z * x

    for found in (co.vjp(program, X)[0], co.jvp(program, (X,), (X,))[0]):
        np.testing.assert_array_equal(found, X[0] * X)
    np.testing.assert_allclose(co.jvp(program, (X,), (X,))[1], 2 * X[0] * X)


def test_same_numbers() -> None:
    """Values and gradients are those of the function, to any order."""
    kept = co.checkpoint(steps)
    np.testing.assert_array_equal(kept(X), steps(X))
    want = co.value_and_grad(lambda x: np.sum(steps(x) ** 2))(X)
    found = co.value_and_grad(lambda x: np.sum(kept(x) ** 2))(X)
    np.testing.assert_allclose(found[0], want[0])
    np.testing.assert_allclose(found[1], want[1])
    step = 1e-6
    for i in range(2):
        e = np.eye(5)[i] * step
        up, down = np.sum(steps(X + e) ** 2), np.sum(steps(X - e) ** 2)
        np.testing.assert_allclose(found[1][i], (up - down) / (2 * step), rtol=1e-6)


def test_runs_again() -> None:
    """The function runs twice for a gradient, and once without."""
    runs = []

    @co.checkpoint
    def counted(x: Any, *, k: float = 2.0) -> Any:
        runs.append(k)
        return np.sin(x) * k

    counted(X)
    co.jvp(counted, (X,), (X,))
    assert len(runs) == 2
    co.grad(lambda x: np.sum(counted(x, k=3.0)))(X)
    assert runs[2:] == [3.0, 3.0]


def test_trees_and_integers() -> None:
    """Arguments and results are trees, also with integers and other values."""

    @co.checkpoint
    def fn(p: Any, n: Any, name: str) -> Any:
        return {"y": np.sin(p["x"]) * n, "n": n + 1, "name": name}

    def loss(x: Any) -> Any:
        out = fn({"x": x, "none": None}, np.array([1, 2, 3, 4, 5]), "me")
        assert out["name"] == "me"
        assert out["n"][0] == 2
        return np.sum(out["y"])

    np.testing.assert_allclose(co.grad(loss)(X), np.cos(X) * np.arange(1, 6))


def test_batches() -> None:
    """Rows of a batch; gradients of what they share are sums over the rows."""
    kept = co.checkpoint(lambda x, w: np.sin(x) * w)
    rows = np.stack([X, 2 * X])

    def loss(w: Any) -> Any:
        return np.sum(co.vmap(kept, (0, None))(rows, w))

    np.testing.assert_allclose(co.grad(loss)(X), np.sin(rows).sum(0))
    per_row = co.vmap(co.grad(lambda x: np.sum(kept(x, X))))(rows)
    np.testing.assert_allclose(per_row, np.cos(rows) * X)


# ---- values from outside ----


def layers(keep: Any) -> Any:
    """A loss whose layers use `w`, which is not their argument."""

    def loss(w: Any, x: Any) -> Any:
        layer = keep(lambda h: np.tanh(h * w) * w[0] + np.sum(w))
        return np.sum(layer(layer(x * w)))

    return loss


def batches(keep: Any) -> Any:
    def loss(w: Any, x: Any) -> Any:
        rows = np.stack([w, 2 * w])
        return np.sum(co.vmap(keep(lambda h: np.tanh(h * w) * x))(rows))

    return loss


def inner(keep: Any) -> Any:
    def loss(w: Any, x: Any) -> Any:
        gradient = co.grad(lambda h: np.sum(np.sin(h * w) * x))
        return np.sum(keep(gradient)(w * 2))

    return loss


def itself(keep: Any) -> Any:
    return lambda w, x: np.sum(keep(lambda h: w)(w * 1.0) * x)


@pytest.mark.parametrize("make", [layers, batches, inner, itself])
def test_values_from_outside(make: Any) -> None:
    """Values that are not arguments have their gradients, to any order and in batches."""
    kept, plain = make(co.checkpoint), make(lambda f: f)
    w, rows = X + 1, np.stack([X, 2 * X])
    for transform in (
        co.grad,
        co.hessian,
        lambda f: co.jacrev(co.grad(f)),
        lambda f: lambda w, x: co.vmap(co.grad(f), (None, 0))(w, rows),
        lambda f: lambda w, x: co.vmap(co.grad(f), (0, None))(rows, x),
    ):
        np.testing.assert_allclose(transform(kept)(w, X), transform(plain)(w, X))


def test_variables_from_outside() -> None:
    """Variables that are not arguments collect their gradients."""
    v = co.variable(X)
    np.sum(co.checkpoint(lambda h: np.tanh(h * v))(v * 2)).backward()
    want = co.grad(lambda w: np.sum(np.tanh(w * w * 2)))(X)
    np.testing.assert_allclose(v.grad, want)


def test_random_numbers_beside_values_from_outside() -> None:
    """The numbers drawn are those of the function without a checkpoint."""
    rng = np.random.default_rng(0)
    noisy = lambda w: co.checkpoint(lambda h: h * w * rng.normal(size=5))(
        w * 1.0
    )  # short
    found = co.grad(lambda w: np.sum(noisy(w)))(X)
    again = np.random.default_rng(0)
    np.testing.assert_allclose(found, 2 * X * again.normal(size=5))
    assert rng.normal() == again.normal()


def test_written_values_from_outside() -> None:
    """A write to such a value is an error, since its derivative would be lost."""

    def loss(w: Any) -> Any:
        def writes(h: Any) -> Any:
            w[0] = 3.0
            return h * w

        return np.sum(co.checkpoint(writes)(w * 1.0))

    with pytest.raises(co.ArgumentError) as caught:
        co.grad(loss)(X)
    assert str(caught.value) == (
        "a value of grad(loss) is written in place inside a function with a checkpoint\n"
        "  do: return the new value from the function, and write it outside"
    )


# ---- random numbers ----

GLOBAL = np.random.default_rng(1)


def test_generators_are_restored() -> None:
    """Generators of the closure, globals and arguments give the same numbers again."""
    rng = np.random.default_rng(0)

    @co.checkpoint
    def noisy(x: Any, other: Any) -> Any:
        noise = rng.normal(size=5) + other.normal(size=5) + GLOBAL.normal(size=5)
        return np.sin(x) * noise

    other = np.random.RandomState(3)
    states = [rng.bit_generator.state, GLOBAL.bit_generator.state]
    found = co.grad(lambda x: np.sum(noisy(x, other)))(X)
    after = rng.bit_generator.state
    rng.bit_generator.state, GLOBAL.bit_generator.state = states
    again = np.random.RandomState(3)
    noise = rng.normal(size=5) + again.normal(size=5) + GLOBAL.normal(size=5)
    np.testing.assert_allclose(found, np.cos(X) * noise)
    assert rng.bit_generator.state == after
    assert other.normal() == again.normal()


def test_other_values_are_an_error() -> None:
    """Numbers that nobody can restore are noticed."""
    noisy = co.checkpoint(lambda x: np.sin(x) * np.random.default_rng().normal(size=5))
    with pytest.raises(co.GradientError) as caught:
        co.grad(lambda x: np.sum(noisy(x)))(X)
    assert caught.value.what == (
        "checkpoint::<lambda> gives other values the second time, when backward runs it"
        " again"
    )


@pytest.mark.parametrize("is_nested", [False, True])
def test_the_second_run_is_watched_as_the_first(is_nested: bool) -> None:
    """A plain array that the function overwrites after its use is an error."""

    def total(x: Any) -> Any:
        b, y = np.ones(2), 0.0
        for _ in range(3):
            y = y + np.sum(x * b)
            b *= 2.0
        return y

    layer = co.checkpoint(co.checkpoint(total) if is_nested else total)
    with pytest.raises(co.GradientError, match="was overwritten"):
        co.grad(layer)(np.ones(2))
    with pytest.raises(co.GradientError, match="was overwritten"):
        co.grad(lambda x: layer(np.sin(x)))(np.ones(2))


def test_generators_of_objects_are_restored() -> None:
    """Also one that takes the place of another between two calls."""

    class Layer:
        def __init__(self) -> None:
            self.held = {"rng": np.random.default_rng(0)}

        def __call__(self, x: Any) -> Any:
            return np.sin(x) * self.held["rng"].normal(size=5)

    layer = Layer()
    noisy = co.checkpoint(layer)
    slope = co.grad(lambda x: np.sum(noisy(x)))
    for seed in (0, 3):
        layer.held = {"rng": np.random.default_rng(seed)}
        noise = np.random.default_rng(seed).normal(size=5)
        np.testing.assert_allclose(slope(X), np.cos(X) * noise)


source = np.random.default_rng(0)


def test_a_global_generator_that_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    noisy = co.checkpoint(lambda x: np.sin(x) * source.normal(size=5))
    slope = co.grad(lambda x: np.sum(noisy(x)))
    for seed in (1, 2):
        monkeypatch.setitem(globals(), "source", np.random.default_rng(seed))
        noise = np.random.default_rng(seed).normal(size=5)
        np.testing.assert_allclose(slope(X), np.cos(X) * noise)


def test_global_random_state() -> None:
    """np.random is restored where the function names it."""
    noisy = co.checkpoint(lambda x: np.sin(x) * np.random.normal(size=5))  # noqa: NPY002  # what is tested
    np.random.seed(4)  # noqa: NPY002  # what is tested
    found = co.grad(lambda x: np.sum(noisy(x)))(X)
    noise = np.random.RandomState(4).normal(size=5)
    np.testing.assert_allclose(found, np.cos(X) * noise)


def test_saved_memory_of_variables() -> None:
    """Variables go through a checkpoint; backward frees what it kept."""
    v = co.variable(X)
    np.sum(co.checkpoint(steps)(v)).backward()
    want = co.grad(lambda x: np.sum(steps(x)))(X)
    np.testing.assert_allclose(v.grad, want)


def test_fake_arrays() -> None:
    """Shapes of gradients are known without numbers."""
    kept = co.checkpoint(steps)
    found = co.eval_shape(co.grad(lambda x: np.sum(kept(x))), X)
    assert found.shape == (5,)


# ---- memory ----


def _scaled() -> Any:
    scaled = co.custom_vjp(lambda x: np.sum(x * 2))
    scaled.defvjp(lambda x: (np.sum(x * 2), x), lambda x, g: (g * 2 + x * 0,))
    return scaled


USES: dict[str, Callable[..., Any]] = {
    "grad": lambda f, x: co.grad(f)(x),
    "grad of grad": lambda f, x: co.grad(lambda v: np.sum(co.grad(f)(v) * v))(x),
    "vmap": lambda f, x: co.vmap(f)(x[None]),
    "vmap of grad": lambda f, x: co.vmap(co.grad(f))(x[None]),
    "jvp": lambda f, x: co.jvp(f, (x,), (x,)),
}


@pytest.mark.parametrize("make", [lambda: co.checkpoint(np.sum), _scaled])
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_arrays_are_freed_at_once(
    use: Callable[..., Any], make: Callable[[], Any]
) -> None:
    """Calls leave no cycle of references, which only the garbage collector would free."""
    f = make()
    use(f, np.ones(3))
    gc.collect()
    gc.disable()
    try:
        x = np.ones(3)
        freed = weakref.ref(x)
        out = use(f, x)
        del x
        assert freed() is None
        assert out is not None
    finally:
        gc.enable()
