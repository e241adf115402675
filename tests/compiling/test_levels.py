"""Compiled functions under vmap and jvp: compiled graphs of batches and of tangents."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co
from tests.compiling.programs import bits

X = np.linspace(-1.0, 2.0, 12).reshape(4, 3)
W = np.linspace(0.5, -0.25, 6).reshape(3, 2)


def layer(x: Any, w: Any) -> Any:
    """Several results: of a row, of the weight alone, a number and a text."""
    h = np.tanh(x @ w)
    return {"h": h, "loss": np.sum(h * h), "w": w * 2.0, "n": 3, "s": ["text", None]}


def reported(fn: Any, word: str) -> Any:
    """The entry for a transform, of which there is one."""
    (entry,) = [e for e in fn.explain().transforms if e.word == word]
    return entry


def rows_of(fn: Callable[..., Any], x: Any, *rest: Any) -> Any:
    """What a function gives for each row, stacked: the definition of vmap."""
    return np.stack([fn(row, *rest) for row in x])


def slope_of(fn: Callable[..., Any], x: Any, t: Any) -> Any:
    """The derivative in a direction by a complex step."""
    return np.imag(fn(x + 1e-30j * t)) / 1e-30


# ---- numbers ----


@pytest.mark.parametrize(("in_dims", "x"), [((0, None), X), ((1, None), X.T)])
def test_batches_are_those_of_a_loop(in_dims: Any, x: Any) -> None:
    plain: Any = lambda x, w: np.sum(np.tanh(x @ w) ** 2, axis=-1)  # short
    f = co.compile(plain)
    for _ in range(3):
        found = co.vmap(f, in_dims=in_dims)(x, W)
        assert np.allclose(found, rows_of(plain, X, W), rtol=1e-14)
    assert reported(f, "vmap").refused is None


def test_tangents_are_those_of_a_complex_step() -> None:
    plain: Any = lambda x, w: np.sum(np.sin(x @ w) * x[:, :2], axis=0)  # short
    f = co.compile(plain)
    for n in (3, 3, 4, 5):
        x, t = np.linspace(0.1, 1.0, 3 * n).reshape(n, 3), np.full((n, 3), 0.3)
        value, slope = co.jvp(lambda x: f(x, W), (x,), (t,))
        assert np.allclose(value, np.sum(np.sin(x @ W) * x[:, :2], axis=0))
        expected = slope_of(lambda x: plain(x, W), x, t)
        assert np.allclose(slope, expected, rtol=1e-13)
    first, second = f.explain().transforms
    assert (first.refused, second.refused) == (None, None)
    assert "x is f64[4, 3], was f64[3, 3]" in second.why


def test_results_of_all_kinds() -> None:
    f = co.compile(layer)
    for _ in range(3):
        found = co.vmap(lambda x: f(x, W)["h"])(X)
        assert np.allclose(found, np.tanh(X @ W), rtol=1e-14)
        out = co.vmap(lambda x: f(x, w=W)["loss"])(X)
        assert np.allclose(out, np.sum(np.tanh(X @ W) ** 2, axis=1), rtol=1e-14)
        rest = co.vmap(lambda x: (f(x, W)["n"], f(x, W)["w"]), out_dims=None)(X)
        assert rest[0] == 3
        assert type(rest[0]) is int
        assert np.array_equal(rest[1], W * 2.0)
        assert co.vmap(lambda x: f(x, W)["s"], out_dims=None)(X) == ["text", None]


@pytest.mark.parametrize("value", [2, 2.5, np.float32(3), np.array(1.5)])
def test_numbers_and_values_without_axes(value: Any) -> None:
    fn: Any = lambda x, n: (x * n, n * 2, x + 1)  # short
    f = co.compile(fn)
    rows = np.linspace(0.0, 1.0, 4)
    for _ in range(3):
        both = [co.vmap(g, in_dims=(0, None))(rows, value) for g in (f, fn)]
        assert list(map(bits, both[0])) == list(map(bits, both[1]))
        for x in (np.array(0.5), np.float64(0.5)):
            use: Any = lambda g, x=x: co.jvp(lambda x: g(x, value), (x,), (x,))
            pairs = [co.tree.leaves(use(g)) for g in (f, fn)]
            assert list(map(bits, pairs[0])) == list(map(bits, pairs[1]))


# ---- it is compiled ----


def test_no_operator_of_the_function_runs_by_itself() -> None:
    calls = []

    @co.custom_op("levels::cube", mutates_args=())
    def cube(x: co.Array) -> co.Array:
        calls.append(x.shape)
        return x**3

    cube.register_fake(lambda x: co.fake_like(x))
    cube.register_jvp(lambda x, t: (cube(x[0]), 3.0 * x[0] ** 2 * t[0]))
    cube.register_vmap(lambda info, in_dims, x: (cube(x), in_dims[0]))
    f = co.compile(lambda x: np.sum(cube(x)))
    pairs = np.stack([X, 2 * X])
    for _ in range(4):
        del calls[:]
        assert np.allclose(co.vmap(f)(X), np.sum(X**3, axis=1))
        assert np.allclose(co.vmap(co.vmap(f))(pairs), np.sum(pairs**3, axis=2))
        assert np.allclose(co.jvp(f, (X,), (X,))[1], 3 * np.sum(X**3))
        assert np.allclose(co.jacfwd(f)(X[0]), 3 * X[0] ** 2)
        assert np.allclose(
            co.vmap(lambda x: co.jvp(f, (x,), (x,))[1])(X), 3 * np.sum(X**3, axis=1)
        )
    assert calls == [(4, 3), (2, 4, 3), (4, 3), (3,), (4, 3)]
    assert [e.refused for e in f.explain().transforms] == [None] * 5


def test_second_derivatives_by_forward_mode() -> None:
    f = co.compile(lambda x: np.sum(x**3))
    for _ in range(3):
        assert np.allclose(co.jacfwd(co.jacfwd(f))(X[0]), np.diag(6 * X[0]))
        assert np.allclose(co.jacfwd(co.grad(f))(X[0]), np.diag(6 * X[0]))
        assert np.allclose(co.grad(lambda x: co.jvp(f, (x,), (x,))[1])(X), 9 * X**2)
    assert [e.refused for e in f.explain().transforms if e.refused] == []


def test_batches_along_other_axes_and_tangents_of_other_arguments() -> None:
    """Arguments of the same shapes, each time with other tracers."""
    square = X[:3]
    fn: Any = lambda x, y: np.cumsum(x) * y  # short
    f = co.compile(fn)
    for _ in range(2):
        for axis, rows in ((0, square), (1, square.T)):
            found = co.vmap(f, in_dims=(axis, None))(square, 2.0)
            assert np.allclose(found, np.cumsum(rows, axis=1) * 2.0)
        for y in (np.zeros_like, lambda x: x * 2.0):
            use: Any = lambda g, y=y: co.jvp(lambda x: g(x, y(x)), (X[0],), (X[1],))
            assert all_equal(use(f), use(fn))
            step = slope_of(lambda x, y=y: fn(x, y(x)), X[0], X[1])
            assert np.allclose(use(f)[1], step)


def all_equal(found: Any, expected: Any) -> bool:
    """Whether results have the same bits."""
    pairs = zip(co.tree.leaves(found), co.tree.leaves(expected), strict=True)
    return all(bits(a) == bits(b) for a, b in pairs)


def test_lengths_are_symbolic_from_the_second_one_on() -> None:
    f = co.compile(lambda x: np.cumsum(x) / x.shape[0])
    for n in (2, 5, 6, 7, 5):
        x = np.arange(3.0 * n).reshape(n, 3)
        assert np.array_equal(co.vmap(f)(x), np.cumsum(x, axis=1) / 3)
    text = str(f.explain())
    assert "for all sizes: x.shape[0]" in text
    assert len(f.explain().transforms) == 2
    assert co.vmap(f)(np.zeros((0, 3))).shape == (0, 3)
    assert np.array_equal(co.vmap(f)(np.ones((1, 3))), [[1 / 3, 2 / 3, 1.0]])


def test_plain_calls_and_transforms_take_turns() -> None:
    f = co.compile(lambda x: np.sum(x * x))
    for k in range(4):
        x = X * k
        assert np.allclose(f(x), np.sum(x * x))
        assert np.allclose(co.vmap(f)(x), np.sum(x * x, axis=1))
        assert np.allclose(co.grad(f)(x), 2 * x)
        assert np.allclose(co.jvp(f, (x,), (x,))[1], 2 * np.sum(x * x))
    assert len(f.graphs) == 1
    assert [e.word for e in f.explain().transforms] == ["vmap", "jvp", "gradient"]


@pytest.mark.parametrize("power", [2, 3])
def test_single_and_nested_transforms_take_turns(power: int) -> None:
    """A call looks first at the last entry for its transform, which may be another one."""
    f = co.compile(lambda x: np.sum(x**power))
    for k in (1.0, 2.0, 3.0):
        x = X * k
        slope, twice = power * x ** (power - 1), power * (power - 1) * x ** (power - 2)
        assert np.allclose(co.grad(f)(x[0]), slope[0])
        assert np.allclose(co.vmap(co.grad(f))(x), slope)
        assert np.allclose(co.vmap(f)(x), np.sum(x**power, axis=1))
        assert np.allclose(co.grad(lambda x: np.sum(co.vmap(f)(x)))(x), slope)
        assert np.allclose(co.grad(f)(x[0, 0]), slope[0, 0])
        assert np.allclose(co.vmap(co.grad(f))(x[0]), slope[0])
        assert np.allclose(co.grad(co.grad(f))(x[0, 0]), twice[0, 0])
    words = [e.word for e in f.explain().transforms]
    assert sorted(words) == ["gradient"] * 4 + ["vmap"] * 2


def test_reasons_name_rows_of_other_transforms_as_arrays() -> None:
    f = co.compile(lambda x: np.sum(np.sin(x)))
    for n in (3, 3, 4):
        co.vmap(co.grad(f))(np.ones((2, n)))
    first, second = f.explain().transforms
    assert (first.why, second.why) == ("", "x is f64[4], was f64[3]")


def test_explain_and_code() -> None:
    f = co.compile(lambda x, w: np.exp(x @ w), backend="numpy")
    co.vmap(f, in_dims=(0, None))(X, W)
    co.jvp(lambda x: f(x, W), (X,), (X,))
    lines = str(f.explain()).splitlines()
    assert (
        lines[1]
        == "  vmap 1. x = f64[4, 3], w = f64[3, 2]: 2 calls for rows of x along 0"
    )
    arguments = "x = f64[4, 3], w = f64[3, 2], tangents[0] = f64[4, 3]"
    assert lines[2].startswith(f"  jvp 1. {arguments}: ")
    assert lines[2].endswith(" calls with tangents")
    assert "vmap 1." in f.explain()._repr_html_()
    assert f.code.count("def forward") == 2
    f.clear()
    assert f.explain().transforms == ()


# ---- writing, views, memory ----


def _writes(x: Any) -> Any:
    x += 1.0
    return np.sum(x * x)


@pytest.mark.parametrize(
    ("fn", "why"),
    [
        (_writes, "it writes an argument that is batched"),
        (lambda x: x[::-1], "a result is a view of an argument, or of another result"),
        (
            lambda x: np.sum(x) if x[0] > 0 else x[1],
            "bool() of BatchTracer bool[], a row",
        ),
        (lambda x: np.dot(x, x[:2]), "shapes"),
    ],
    ids=["writes", "view", "branch", "error"],
)
def test_refused_batches_run_the_function(fn: Any, why: str) -> None:
    def use(f: Any) -> Any:
        def run(x: Any) -> Any:
            x = x * 2.0
            y = f(x)
            y = y * 1.0
            return np.sum(x) + np.sum(y * y)

        try:
            return bits(co.vmap(run)(X))
        except (co.DataDependentError, ValueError) as error:
            return type(error), str(error).splitlines()[0]

    f = co.compile(fn)
    for _ in range(3):
        assert use(f) == use(fn)
    entry = reported(f, "vmap")
    assert why in str(entry.refused)
    assert "runs as it is, since its vmap cannot be compiled: " in str(f.explain())


def test_writes_to_results_and_arguments_of_outer_code() -> None:
    """Views and boxes without axes are what they are in the function."""

    def double(x: Any) -> Any:
        y = x * 2.0
        y[0] = 7.0
        return y

    def add(x: Any) -> Any:
        x += 1.0
        return x * 3.0

    def use(first: Any, second: Any) -> Any:
        def run(x: Any) -> Any:
            y = first(x)
            y[1:] *= x[1:]
            z = x[:1].copy()
            w = second(x[1])
            second(z)
            second(y[1:2])
            return y, z, w

        return [bits(v) for v in co.vmap(run)(X)]

    f, g = co.compile(double), co.compile(add)
    for _ in range(3):
        assert use(f, g) == use(double, add)


def test_arrays_without_axes_are_written_and_scalars_are_not() -> None:
    def add(z: Any) -> Any:
        z += 1.0
        return z * 3.0

    def use(f: Any) -> Any:
        def run(x: Any) -> Any:
            x = x * 1.0
            first = f(x[1])
            return x, f(x[:1].reshape(())), first

        return co.vmap(run)(X)

    f = co.compile(add)
    expected = X + np.array([1.0, 0.0, 0.0]), 3 * X[:, 0] + 3, 3 * X[:, 1] + 3
    for _ in range(3):
        for found in (use(f), use(add)):
            assert all(map(np.allclose, found, expected))


def test_arrays_like_rows_of_two_batches_can_be_written() -> None:
    f = co.compile(lambda x: np.zeros_like(x * 2.0))
    for _ in range(2):
        found = co.vmap(co.vmap(f))(np.stack([X, X]))
        found += 1.0
        assert np.array_equal(found, np.ones((2, 4, 3)))


def test_the_argument_itself_as_a_result() -> None:
    f = co.compile(lambda x, w: (x, w, np.sum(x)))

    def run(x: Any) -> Any:
        y, w, total = f(x, W)
        y[0] = 9.0
        return x + total, w

    for _ in range(3):
        found, w = co.vmap(run, out_dims=(0, None))(X)
        expected = X.copy()
        expected[:, 0] = 9.0
        assert np.allclose(found, expected + X.sum(1, keepdims=True))
        assert np.shares_memory(w, W)
    assert reported(f, "vmap").refused is None


def test_arguments_that_are_the_same_for_all_rows_cannot_be_written() -> None:
    def add(x: Any, w: Any) -> Any:
        w += 1.0
        return x + np.sum(w)

    f = co.compile(add)
    for _ in range(2):
        with pytest.raises(ValueError, match="read-only"):
            co.vmap(f, in_dims=(0, None))(X, W.copy())


def test_arrays_that_the_function_makes_are_new_in_each_call() -> None:
    f = co.compile(lambda x: (x * 2.0, np.zeros(3)))
    for _ in range(3):
        _, zeros = co.vmap(f, out_dims=(0, None))(X)
        assert not zeros.any()
        zeros += 1.0


# ---- draws, warnings, errors, settings ----


def test_draws_are_those_of_the_function() -> None:
    def noisy(x: Any, rng: Any) -> Any:
        return x + rng.normal(size=3)

    def use(f: Any, randomness: Any) -> Any:
        rng = np.random.default_rng(1)
        return co.vmap(f, in_dims=(0, None), randomness=randomness)(X, rng)

    f = co.compile(noisy)
    for _ in range(3):
        f(X[0], np.random.default_rng(0))
        assert np.array_equal(use(f, "same"), use(noisy, "same"))
        drawn = np.random.default_rng(1).normal(size=(len(X), 3))
        assert np.array_equal(use(f, "different"), X + drawn)
        with pytest.raises(co.VmapError, match="Generator"):
            use(f, "error")
    rng = np.random.default_rng(1)
    pair = co.jvp(lambda x: f(x, rng), (X[0],), (X[0],))
    expected = X[0] + np.random.default_rng(1).normal(size=3)
    assert np.array_equal(pair, [expected, X[0]])
    push: Any = lambda x: co.jvp(lambda y: f(y, rng), (X[0],), (X[0],))[0] + x  # short
    push(X)
    with pytest.raises(co.VmapError, match="draws from a Generator"):
        co.vmap(push)(X)
    rng = np.random.default_rng(1)
    drawn = np.random.default_rng(1).normal(size=(len(X), 3))
    assert np.array_equal(co.vmap(push, randomness="different")(X), X[0] + drawn + X)


def test_draws_for_all_rows_by_a_function_that_is_compiled_already() -> None:
    rng = np.random.default_rng(0)
    f = co.compile(lambda rng: rng.normal(size=3))
    f(rng)
    again = np.random.default_rng(0)
    again.normal(size=3)
    out = co.vmap(lambda x: x + f(rng), randomness="different")(X)
    assert np.array_equal(out, X + again.normal(size=(len(X), 3)))
    with pytest.raises(co.VmapError, match="draws from a Generator"):
        co.vmap(lambda x: x + f(rng))(X)


def test_warnings_and_errors_are_those_of_the_function() -> None:
    fn: Any = lambda x: np.sum(np.log(x) + 1.0 / x)  # short
    f = co.compile(fn)

    def warned(run: Callable[..., Any]) -> list[str]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            run(zeros)
        return [str(w.message) for w in caught]

    zeros = np.zeros((2, 3))
    uses: list[Any] = [co.vmap, lambda g: lambda x: co.jvp(g, (x,), (x,))]
    for use in uses:
        expected = warned(use(fn))
        assert "divide by zero encountered in log" in expected
        for _ in range(3):
            assert warned(use(f)) == expected
        with (
            np.errstate(all="raise"),
            pytest.raises(
                FloatingPointError, match="divide by zero encountered in log"
            ),
        ):
            use(f)(zeros)
    inverse: Any = co.compile(np.linalg.inv)
    for _ in range(2):
        with pytest.raises(np.linalg.LinAlgError, match="Singular matrix"):
            co.vmap(inverse)(np.zeros((2, 3, 3)))


def test_operators_without_a_rule_run_row_by_row_with_their_warning() -> None:
    @co.custom_op("levels::flipped", mutates_args=())
    def flipped(x: co.Array) -> co.Array:
        return x[::-1].copy()

    flipped.register_fake(lambda x: co.fake_like(x))
    f = co.compile(lambda x: flipped(x) * 2.0)
    with pytest.warns(UserWarning, match="no vmap rule"):
        assert np.array_equal(co.vmap(f)(X), 2.0 * X[:, ::-1])
    assert "levels::flipped has no vmap rule" in str(reported(f, "vmap").refused)


def test_reasons_keep_no_values_alive() -> None:
    """A vmap asks whether what a function has written is still there."""

    def fn(x: Any, w: Any) -> Any:
        y = x / 2.0
        y[::-1] += 2.5
        return y, w

    f = co.compile(fn)

    def use(f: Any) -> Any:
        return co.jvp(lambda x: co.vmap(lambda _: f(x, W))(np.zeros(3)), (X,), (X,))

    expected = [np.stack([v] * 3) for v in (X / 2.0 + 2.5, W, X / 2.0, 0 * W)]
    for _ in range(2):
        for g in (fn, f):
            pairs = zip(co.tree.leaves(use(g)), expected, strict=True)
            assert all(np.array_equal(a, b) for a, b in pairs)
    assert f.explain().transforms[0].refused


def test_values_of_the_same_transform_in_a_closure() -> None:
    def run(x: Any) -> Any:
        f = co.compile(lambda y: np.sum(y * x))
        return f(x * 2.0) + f(x)

    for _ in range(2):
        assert np.allclose(co.vmap(run)(X), 3 * np.sum(X * X, axis=1))
        assert np.allclose(co.jvp(run, (X,), (X,))[1], 6 * np.sum(X * X))


def test_closures_that_change_compile_again() -> None:
    scale = np.array(2.0)
    f = co.compile(lambda x: np.sum(x * scale))
    for value in (2.0, 2.0, 3.0):
        scale = np.array(value)
        assert np.allclose(co.vmap(f)(X), value * X.sum(1))
    assert "scale" in f.explain().transforms[1].why


def test_arrays_that_numpy_alone_reads_are_compared() -> None:
    weights = np.array([2.0, 3.0])
    f = co.compile(lambda x: np.sum(x * float(weights.sum())))
    for weights[0] in (2.0, 2.0, 10.0):
        total = weights[0] + 3.0
        assert np.array_equal(co.grad(f)(X), np.full_like(X, total))
        assert np.allclose(co.vmap(f)(X), total * X.sum(1))
        assert np.allclose(co.jvp(f, (X,), (X,)), total * X.sum())


def test_the_limit_holds_for_all_transforms_together() -> None:
    f = co.compile(lambda x: np.sin(x) * 2.0, limit=2)
    for rank in (2, 3):
        co.vmap(f)(np.zeros((2,) * rank))
    with pytest.warns(UserWarning, match="the vmap of '<lambda>' was compiled 3 times"):
        co.vmap(f)(np.zeros((2, 2, 2, 2)))
    assert [e.number for e in f.explain().transforms] == [2, 3]


def test_control_flow_in_a_batch() -> None:
    def f(x: Any) -> Any:
        total, rows = co.scan(lambda c, r: (c + r, c * r), 0.0 * x[0], x)
        return co.cond(np.sum(x) > 2, lambda a: a * 2, lambda a: a - 1, total), rows

    fast = co.compile(f)
    for _ in range(3):
        pairs = [co.vmap(g)(X) for g in (fast, f)]
        for found, expected in zip(*pairs, strict=True):
            assert np.array_equal(found, expected)


def test_threads_share_the_graphs() -> None:
    fn: Any = lambda x: np.tanh(x) * np.sum(x)  # short
    f = co.compile(fn)
    wrong: list[Any] = []

    def work(number: int) -> None:
        for k in range(30):
            x = X[: 2 + (k + number) % 3] * (1 + number)
            t = x[::-1]
            both = [
                [
                    co.vmap(g)(x),
                    *co.jvp(g, (x,), (t,)),
                    co.vjp(g, x)[1](t)[0],
                ]
                for g in (f, fn)
            ]
            if [*map(bits, both[0])] != [*map(bits, both[1])]:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
