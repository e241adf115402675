"""Gradients of compiled functions: a compiled forward and a compiled backward graph."""

from __future__ import annotations

import threading
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co
from tests.compiling.programs import bits

X = np.linspace(-1.0, 2.0, 12).reshape(4, 3)
W = np.linspace(0.5, -0.25, 6).reshape(3, 2)


def layer(x: Any, w: Any) -> Any:
    """A layer whose weight is used three times."""
    h = np.tanh(x @ w)
    return np.sum(h * h) + np.sum(w * w * 0.1) + np.sum(np.exp(w))


def all_bits(tree: Any) -> list[Any]:
    """The bits of all leaves."""
    return [bits(v) for v in co.tree.leaves(tree)]


def check(use: Callable[[Any], Any], fn: Callable[..., Any], calls: int = 3) -> Any:
    """Bits are those of the plain function, and the gradient is compiled; the report."""
    compiled = co.compile(fn)
    for _ in range(calls):
        assert all_bits(use(compiled)) == all_bits(use(fn))
    report = compiled.explain()
    assert report.gradients
    assert [e.refused for e in report.gradients] == [None] * len(report.gradients)
    return report


# ---- numbers ----


@pytest.mark.parametrize(
    "use",
    [
        lambda f: co.grad(f)(X, W),
        lambda f: co.grad(f, (0, 1))(X, W),
        lambda f: co.value_and_grad(f, 1)(X, W),
        lambda f: co.vjp(f, X, W)[1](np.float64(0.3)),
        lambda f: co.vjp(f, X, W)[1](np.array(0.3)),
        lambda f: co.grad(lambda w: f(X, w))(W),
        lambda f: co.grad(lambda x: f(x, np.sin(x[:3, :2])))(X),
        lambda f: co.jacrev(lambda x: np.stack([f(x, W), f(2 * x, W)]))(X),
    ],
    ids=str.split("grad both value vjp array one again jacrev"),
)
def test_the_bits_are_those_of_the_function(use: Any) -> None:
    check(use, layer)


def test_against_derivatives_by_hand() -> None:
    f = co.compile(lambda x, k: np.sum(np.sin(x) ** 2 * k))
    gradient = co.grad(f, (0, 1))
    for n in (2, 2, 3, 4, 5):
        x, k = np.linspace(0.0, 1.0, n), np.linspace(1.0, 2.0, n)
        for found, expected in zip(
            gradient(x, k), (k * np.sin(2 * x), np.sin(x) ** 2), strict=True
        ):
            assert np.allclose(found, expected, rtol=1e-14)


@pytest.mark.parametrize(
    "around",
    [
        lambda f, w: 0.5 * np.sum(w * w) + f(X, w) + np.sum(w**3),
        lambda f, w: f(X, w) + f(2.0 * X, w) * f(X, w),
        lambda f, w: f(f(X, w) * X, np.sin(w)),
        lambda f, w: np.sum(np.sin(w)) * f(np.cos(X), np.sin(w)) + np.sum(w),
    ],
    ids=str.split("penalty thrice nested before"),
)
def test_sums_with_gradients_from_outside_are_added_in_the_same_order(
    around: Any,
) -> None:
    check(lambda f: co.grad(lambda w: around(f, w))(W * 3), layer)


def test_large_terms_cancel_as_in_the_function() -> None:
    """1e16 + 1 - 1e16 is 0 or 1, by the order of the terms."""
    f: Any = lambda x: np.sum(x * 1.0) + np.sum(x * -1e16)  # short
    use: Any = lambda f: co.grad(lambda x: f(x) + np.sum(x * 1e16))(X)  # short
    check(use, f)
    # The later calls first, then the last line of the function: 1e16 - 1e16 + 1.
    assert np.array_equal(use(co.compile(f)), np.ones_like(X))


def test_results_that_get_no_gradient() -> None:
    def two(x: Any) -> Any:
        y = np.sin(x)
        return {"loss": np.sum(y * x), "aux": y / 3.0, "n": x.shape[0], "s": "text"}

    check(lambda f: co.grad(lambda x: f(x)["loss"])(X), two)
    check(lambda f: co.grad(lambda x: np.sum(f(x)["aux"]))(X), two)
    found = check(
        lambda f: co.value_and_grad(lambda x: (f(x)["loss"], f(x)), has_aux=True)(X),
        two,
    )
    assert len(found.gradients) == 1


def test_arguments_that_are_results_numbers_and_the_same_twice() -> None:
    check(lambda f: co.grad(lambda x: np.sum(f(x, X)[1] * 2))(X), lambda x, y: (y, x))
    check(lambda f: co.grad(lambda x: f(x, x))(X), lambda x, y: np.sum(x * y + x / 3))
    for n in (2.0, 2.0, 3.0, 4.0):
        f = co.compile(lambda x, n: np.sum(x * n))
        assert np.array_equal(co.grad(f)(X, n), np.full_like(X, n))


def test_pytrees_and_the_order_of_their_keys() -> None:
    def last(p: Any) -> Any:
        total = 0.0
        for v in p.values():
            total = total * 0.5 + np.sum(v * v)
        return total

    compiled = co.compile(last)
    for keys in ("ab", "ab", "ba", "ba", "ab"):
        p = {k: X * (1 + ord(k)) for k in keys}
        assert all_bits(co.grad(compiled)(p)) == all_bits(co.grad(last)(p))
    assert len(compiled.explain().gradients) == 2


def test_tensors_of_variables() -> None:
    def step(f: Any) -> Any:
        w = co.variable(W.copy())
        (f(X, w) + np.sum(w)).backward()
        f(X, w).backward()
        return w.grad

    check(step, layer)


@pytest.mark.parametrize("x", [np.float64(1.5), np.array(1.5)], ids=["scalar", "array"])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.astype("f4") * 2,
        lambda x: np.exp(x.reshape(())),
        lambda x: x[...] * 1.5,
        lambda x: x.T.copy(),
        lambda x: np.where(x > 0, x, 2.0),
        lambda x: np.atleast_1d(x * 3)[0],
    ],
    ids=str.split("astype reshape ellipsis copy where item"),
)
def test_derivatives_without_axes_are_scalars(fn: Any, x: Any) -> None:
    def use(f: Any) -> Any:
        value, pull = co.vjp(f, x)
        slopes = [co.grad(f)(x), pull(value)[0], co.jvp(f, (x,), (x,))[1]]
        assert {isinstance(slope, np.generic) for slope in slopes} == {True}
        aux = co.value_and_grad(lambda x: (np.sum(x), f(x).astype("i4")), has_aux=True)
        return [value, *slopes, aux(x)]

    compiled = co.compile(fn)
    for _ in range(3):
        assert all_bits(use(compiled)) == all_bits(use(fn))


def test_gradients_of_complex_products_have_the_same_last_bit() -> None:
    rng, one = np.random.default_rng(0), np.array(1.0 + 0j)
    product: Any = np.prod
    f = co.compile(product)
    for _ in range(20):
        x = rng.normal(size=(1, 3)) + 1j * rng.normal(size=(1, 3))
        both = [co.vjp(g, x)[1](one)[0] for g in (f, product)]
        assert both[0].tobytes() == both[1].tobytes()
        others = [x[0, 1] * x[0, 2], x[0, 0] * x[0, 2], x[0, 0] * x[0, 1]]
        assert np.allclose(both[1], [others], rtol=1e-14)


def test_gradients_of_complex_maxima_keep_the_signs_of_zeros() -> None:
    x, t = np.array([1.0 + 1j, -1.0 + 0j]), np.array([1.0 + 0j, -0.7 + 0j])
    f: Any = lambda x: np.maximum(x, np.array([3.0 + 0j, -1.0 + 0j]))  # short
    for g in (f, co.compile(f)):
        slope = co.jvp(g, (x,), (t,))[1]
        # The tangent times 0, and half of it where both are equal.
        assert all_bits(slope) == all_bits(np.array([t[0] * 0, t[1] * True / 2]))


# ---- other transforms ----


@pytest.mark.parametrize(
    "use",
    [
        lambda f: co.hessian(lambda w: f(X, w))(W),
        lambda f: co.vmap(co.grad(f, 1), in_dims=(0, None))(np.stack([X, 2 * X]), W),
        lambda f: co.grad(lambda w: np.sum(co.grad(f, 1)(X, w) ** 2))(W),
        lambda f: co.jvp(lambda w: co.grad(f, 1)(X, w), (W,), (W,)),
        lambda f: co.grad(lambda w: np.sum(co.vmap(f, in_dims=(0, None))(X, w)))(W),
        lambda f: co.vmap(co.vjp(f, X, W)[1])(np.arange(3.0)),
        lambda f: co.make_fx(co.grad(f, (0, 1)))(X, W)(X, W),
        lambda f: co.compile(co.grad(f, (0, 1)))(X, W),
        lambda f: co.grad(lambda g: np.sum(co.vjp(f, X, W)[1](g)[0]))(np.float64(1)),
    ],
    ids=str.split(
        "hessian rows twice jvp over_rows pullbacks graph compiled cotangent"
    ),
)
def test_nested_transforms(use: Any) -> None:
    compiled = co.compile(layer)
    for _ in range(3):
        pairs = [*zip(all_bits(use(compiled)), all_bits(use(layer)), strict=True)]
        assert [a for a, b in pairs if a != b] == []
    entries = compiled.explain().gradients
    assert [e.refused for e in entries] == [None] * len(entries)


def test_second_derivatives_and_batches_run_compiled_graphs() -> None:
    """Not one operator of the function runs by itself once all is compiled."""
    calls = []

    @co.custom_op("gradients::cube", mutates_args=())
    def cube(x: co.Array) -> co.Array:
        calls.append(x.shape)
        return x**3

    cube.register_fake(lambda x: co.fake_like(x))
    cube.register_autograd(
        lambda ctx, g: g * 3.0 * ctx.saved_arrays[0] ** 2,
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    cube.register_vmap(lambda info, in_dims, x: (cube(x), in_dims[0]))
    f = co.compile(lambda x: np.sum(cube(x)))
    x, rows = np.array([1.0, -2.0, 3.0]), np.arange(6.0).reshape(2, 3)
    for _ in range(4):
        assert np.allclose(co.hessian(f)(x), np.diag(6 * x))
        assert np.allclose(co.vmap(co.grad(f))(rows), 3 * rows**2)
        second = co.grad(lambda x: np.sum(co.grad(f)(x) * x))(x)
        assert np.allclose(second, 9 * x**2)
    del calls[:]
    co.vmap(co.grad(f))(rows)
    assert calls == [(2, 3)]
    (entry,) = f.explain().gradients
    assert entry.size.endswith("backward, inside of other transforms")


def test_results_that_are_arguments_inside_of_vmap() -> None:
    f = co.compile(lambda x, n: (x, np.sum(x * x), n))
    for _ in range(3):
        slope = co.vmap(co.grad(lambda x: np.sum(f(x, 2)[0] * 3.0) + f(x, 2)[1]))(X)
        assert np.array_equal(slope, 3.0 + 2.0 * X)
    (entry,) = f.explain().gradients
    assert entry.refused is None


def test_draws_inside_of_vmap_are_those_of_the_function() -> None:
    def noisy(x: Any, rng: Any) -> Any:
        return np.sum(x * rng.normal(size=(3,)))

    def use(f: Any, randomness: Any) -> Any:
        rng = np.random.default_rng(1)
        run = co.vmap(lambda x: co.grad(f)(x, rng), randomness=randomness)
        return run(X)

    f = co.compile(noisy)
    for _ in range(3):
        co.grad(f)(X[0], np.random.default_rng(0))
        assert all_bits(use(f, "same")) == all_bits(use(noisy, "same"))
        drawn = np.random.default_rng(1).normal(size=(len(X), 3))
        assert np.array_equal(use(f, "different"), drawn)
        with pytest.raises(co.VmapError, match="Generator"):
            use(f, "error")


# ---- where the function itself runs ----


def writes(x: Any) -> Any:
    x += 1.0
    return np.sum(x * x)


def branches(x: Any) -> Any:
    return np.sum(x) if x[0, 0] > 0 else np.sum(x * x)


@pytest.mark.parametrize(
    ("fn", "why"),
    [
        (writes, "it writes an argument whose gradient is taken"),
        (lambda x: x[1:], "a result is a view of an argument, or of another result"),
    ],
    ids=["writes", "view"],
)
def test_refused_gradients_run_the_function(fn: Any, why: str) -> None:
    def use(f: Any) -> Any:
        def run(x: Any) -> Any:
            x = x * 2.0
            y = f(x)
            return np.sum(x) + np.sum(y * y)

        return co.grad(run)(X)

    f = co.compile(fn)
    for _ in range(3):
        assert all_bits(use(f)) == all_bits(use(fn))
    (entry,) = f.explain().gradients
    assert str(entry.refused).splitlines()[0] == why
    line = f"     runs as it is, since its gradient cannot be compiled: {why}"
    assert line in str(f.explain()).splitlines()


def test_views_of_arguments_are_written_through() -> None:
    def use(f: Any) -> Any:
        def run(x: Any) -> Any:
            x = x * 2.0
            row = f(x)
            row *= 3.0
            return np.sum(x * x)

        return co.grad(run)(X)

    first: Any = lambda x: x[0]  # short
    f = co.compile(first)
    for _ in range(3):
        assert all_bits(use(f)) == all_bits(use(first))


def test_results_can_be_written() -> None:
    def use(f: Any) -> Any:
        def run(x: Any) -> Any:
            y, z = f(x)
            y[0] = 7.0
            y *= x
            return np.sum(y) + z

        return co.grad(run)(X)

    check(use, lambda x: (np.exp(x), np.sum(x * 2)))


def test_results_that_are_read_only_stay_so() -> None:
    f = co.compile(lambda x: np.broadcast_to(x * 2, (2, 4, 3)))

    def run(x: Any) -> Any:
        y = f(x)
        y *= 3.0
        return np.sum(y)

    for _ in range(2):
        co.grad(lambda x: np.sum(f(x)))(X)
        with pytest.raises(ValueError, match="read-only"):
            co.vjp(run, X)
    assert f.explain().gradients[0].refused is None


def test_branches_on_values_run_the_function() -> None:
    f = co.compile(branches)
    for x in (X, X + 5.0, X):
        assert np.array_equal(co.grad(f)(x), co.grad(branches)(x))
    (entry,) = f.explain().gradients
    assert isinstance(entry.refused, co.DataDependentError)


# ---- around it ----


def test_closures_that_change_compile_again() -> None:
    scale = np.array(2.0)
    f = co.compile(lambda x: np.sum(x * scale))
    for value in (2.0, 2.0, 3.0):
        scale = np.array(value)
        assert np.array_equal(co.grad(f)(X), np.full_like(X, value))
    assert "scale" in f.explain().gradients[1].why


def test_values_of_an_outer_gradient_in_a_closure() -> None:
    def outer(x: Any) -> Any:
        f = co.compile(lambda y: np.sum(y * x))
        return np.sum(co.grad(f)(x * 1.0) * x)

    assert np.array_equal(co.grad(outer)(X), 2 * X)
    assert np.array_equal(co.grad(outer)(X), 2 * X)


def test_warnings_and_errors_are_those_of_the_function() -> None:
    f: Any = lambda x: np.sum(np.log(x))  # short
    compiled = co.compile(f)
    with np.errstate(all="ignore"):
        for _ in range(2):
            co.grad(compiled)(np.zeros(2))
    with pytest.warns(RuntimeWarning, match="divide by zero encountered in log"):
        compiled_grad = co.vjp(compiled, np.zeros(2))
    with pytest.warns(RuntimeWarning, match="divide by zero encountered in divide"):
        compiled_grad[1](np.float64(1.0))
    with (
        np.errstate(all="raise"),
        pytest.raises(FloatingPointError, match="divide by zero encountered in log"),
    ):
        co.grad(compiled)(np.zeros(2))
    for _ in range(2):
        with pytest.raises(ValueError, match="matmul"):
            co.grad(co.compile(layer))(X, X)


def test_a_second_backward_says_what_to_do() -> None:
    f = co.compile(lambda x: np.sum(x * x))

    def run() -> Any:
        y = f(co.variable(X.copy())) * 1.0
        y.backward()
        return y

    for y in [run() for _ in range(3)]:
        with pytest.raises(co.GradientError, match="saved arrays are freed"):
            y.backward()
    assert f.explain().gradients


def test_settings_that_look_at_each_call_run_the_function() -> None:
    f = co.compile(lambda x: np.sum(np.log(x)))
    g = co.grad(f)
    g(X + 2.0)
    g(X + 2.0)
    co.config.check_nans = True
    try:
        with np.errstate(all="ignore"), pytest.raises(co.NanError, match="np::log"):
            g(np.full(3, -1.0))
    finally:
        co.config.check_nans = False


def test_explain_code_and_clear() -> None:
    f = co.compile(lambda x: np.sum(np.sin(x) ** 2), backend="numpy")
    for _ in range(2):
        co.grad(f)(np.ones(3))
    title, line = str(f.explain()).splitlines()
    assert title == "<lambda>, back end 'numpy', not called yet"
    halves = "3 calls forward, which save 1 array, and 5 calls backward"
    assert line == f"  gradient 1. x = f64[3]: {halves}"
    assert "gradient 1." in f.explain()._repr_html_()
    assert "cos" in f.code
    f.clear()
    assert f.explain().gradients == ()


def test_a_back_end_of_the_user_gets_both_graphs() -> None:
    counts = []

    def loud(module: co.GraphModule) -> Any:
        counts.append(len(module.inputs))
        return module.run_list

    f = co.compile(lambda x, y: np.sum(np.tanh(x) * y), backend=loud)
    for _ in range(2):
        assert np.allclose(co.grad(f)(X, 2.0 * X), 2 * X / np.cosh(X) ** 2)
    assert counts == [2, 3]


def test_memory_is_not_above_that_of_the_function() -> None:
    def chain(x: Any) -> Any:
        for _ in range(6):
            x = np.sin(x) * x + 0.5
        return np.sum(x)

    def peak(fn: Any) -> int:
        gradient, x = co.grad(fn), np.ones(200_000)
        gradient(x)
        gradient(x)
        tracemalloc.start()
        try:
            gradient(x)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(co.compile(chain)) < 1.02 * peak(chain)


def test_threads_share_the_graphs() -> None:
    f = co.compile(layer)
    wrong: list[Any] = []

    def work(number: int) -> None:
        for k in range(30):
            x = X[: 2 + (k + number) % 3] * (1 + number)
            expected = all_bits(co.grad(layer, (0, 1))(x, W))
            if all_bits(co.grad(f, (0, 1))(x, W)) != expected:
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# ---- how gradients of linear functions lie in memory ----

_LINEAR: dict[str, Callable[[Any], Any]] = {
    "negative": lambda x: -x,
    "mask": lambda x: x * np.array([False, True, True]),
    "where": lambda x: np.where(np.array([False, True, True]), x, 0.0),
    "mean": lambda x: x - x.mean(axis=1, keepdims=True),
    "itself": lambda x: x + np.zeros(3),
    "transposed": lambda x: x.T * 2.0,
    "twice": lambda x: x + x,
}
_ORDERS: list[Callable[[Any], Any]] = [
    np.ascontiguousarray,
    np.asfortranarray,
    lambda x: x[::-1].copy()[::-1],
]


@pytest.mark.parametrize("name", _LINEAR)
def test_gradients_of_linear_functions_lie_as_plain_ones(name: str) -> None:
    fn = _LINEAR[name]
    for order in _ORDERS:
        for order_of_cotangent in _ORDERS:
            x = order(np.arange(6.0).reshape(2, 3))
            g = order_of_cotangent(np.cos(fn(x)))

            def back(x: Any, g: Any) -> Any:
                return co.vjp(fn, x)[1](g)[0]

            expected, fast = back(x, g), co.compile(back)
            for found in (fast(x, g), fast(x, g)):
                assert found.strides == expected.strides
                assert found.tobytes() == expected.tobytes()
                assert not np.shares_memory(found, g)
