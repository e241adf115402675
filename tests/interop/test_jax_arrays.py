"""Arrays of JAX under operators and transforms, and the back end "jax"."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.arrays.convert import devices_at_hand

jax = pytest.importorskip("jax", reason="JAX is not installed")
jnp = jax.numpy

from customop.interop.jax import register_jax_arrays  # noqa: E402

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.filterwarnings("default"),  # JAX has deprecations of its own
]

X = np.linspace(0.3, 1.9, 6).reshape(2, 3)
Y = np.array([1.5, 0.5, 2.0])
A = np.array([[3.0, 0.5, 0.2], [0.5, 2.0, 0.3], [0.2, 0.3, 4.0]])


@co.custom_op("jax_array_tests::tanh", mutates_args=(), tags=(co.Tag.pointwise,))
def on_host(x: co.Array) -> co.Array:
    """An operator whose kernel is of NumPy alone."""
    return np.tanh(np.asarray(x))


on_host.register_autograd(
    lambda ctx, g: g * (1.0 - ctx.saved_arrays[0] ** 2),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output),
)

# Some have functions in JAX, others run on the host.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "arithmetic": lambda x, y: (x * y - 2.0) / (x + y**2) + np.sin(x),
    "reductions": lambda x, y: np.sum(np.exp(x), axis=1) + np.mean(y) * np.max(x),
    "variance": lambda x, y: np.var(x, axis=0, ddof=1) + np.std(y),
    "matmul": lambda x, y: np.tanh(x @ y) @ np.ones(2),
    "views": lambda x, y: x[:, ::2].T.reshape(-1) * y[1:2],
    "new axes": lambda x, y: x[None, 1, :, None] * y[:, None],
    "places": lambda x, y: np.take(x, np.array([2, 0]), axis=1) * y[[1]],
    "joined": lambda x, y: np.concatenate([x, y[None]]) * np.stack([y, y, y]),
    "chosen": lambda x, y: np.where(x > y, x * y, 0.0),
    "solve": lambda x, y: np.linalg.solve(A + np.eye(3) * y[0], y),
    "cholesky": lambda x, y: np.linalg.cholesky(A * y[0]),
    "eigenvalues": lambda x, y: np.linalg.eigvalsh(A * y[0]),
    "fourier": lambda x, y: np.abs(np.fft.rfft(x, axis=1)),
    "einsum": lambda x, y: np.einsum("ij,j->i", x, y),
    "sorted": lambda x, y: np.sort(x * y, axis=1),
    "operator": lambda x, y: on_host(x) * y,
}


@pytest.fixture(autouse=True, scope="module")
def registered(own_kinds: None) -> Iterator[None]:
    """JAX's arrays as a kind, with numbers of 64 bits."""
    register_jax_arrays()
    with jax.enable_x64(True):
        yield


def assert_same(found: Any, expected: Any) -> None:
    """Assert that an array of JAX has the numbers and the dtype of NumPy's."""
    assert isinstance(found, jax.Array)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients(name: str) -> None:
    fn = FUNCTIONS[name]
    x, y = jnp.asarray(X), jnp.asarray(Y)

    def loss(x: Any, y: Any) -> Any:
        return np.sum(fn(x, y) ** 2)

    expected = co.grad(loss, (0, 1))(X, Y)
    found = co.grad(loss, (0, 1))(x, y)
    for mine, numpys in zip(found, expected, strict=True):
        assert_same(mine, numpys)
    compiled = jax.jit(lambda x, y: co.grad(loss, (0, 1))(x, y))(x, y)
    for mine, numpys in zip(compiled, expected, strict=True):
        assert_same(mine, numpys)


@pytest.mark.parametrize("name", ["arithmetic", "reductions", "solve", "operator"])
def test_batches_and_tangents(name: str) -> None:
    fn = FUNCTIONS[name]
    rows = np.stack([X, X + 1.0, X * 2.0])
    found = co.vmap(fn, in_dims=(0, None))(jnp.asarray(rows), jnp.asarray(Y))
    assert_same(found, np.stack([fn(row, Y) for row in rows]))
    primals, tangents = (X, Y), (np.ones_like(X), Y)
    mine = co.jvp(
        fn, tuple(map(jnp.asarray, primals)), tuple(map(jnp.asarray, tangents))
    )
    for x, expected in zip(mine, co.jvp(fn, primals, tangents), strict=True):
        assert_same(x, expected)


def test_dtypes_are_numpys_where_jax_has_others() -> None:
    wide, narrow = np.arange(3), np.ones(3, np.float32)
    fn = co.grad(lambda y, x: np.sum(x * y))
    assert_same(fn(jnp.asarray(narrow), jnp.asarray(wide)), fn(narrow, wide))
    product = co.vmap(lambda x, y: x * y)(jnp.asarray(wide), jnp.asarray(narrow))
    assert_same(product, wide * narrow)  # float64: JAX itself gives float32


def test_arrays_of_64_bits_stay_so() -> None:
    x = jnp.asarray(X)
    with jax.enable_x64(False):  # JAX's own functions give 32 bits here
        assert_same(
            co.grad(lambda x: np.sum(on_host(np.sin(x))))(x),
            co.grad(lambda x: np.sum(on_host(np.sin(x))))(X),
        )
        assert co.vmap(np.sin)(jnp.ones(3, np.float32)).dtype == np.float32


def test_an_operator_that_writes_refuses_them() -> None:
    @co.custom_op("jax_array_tests::zero_", mutates_args=("x",))
    def zero_(x: co.Array) -> None:
        x[...] = 0.0

    with pytest.raises(co.ArgumentError) as caught:
        zero_(jnp.ones(3))
    lines = str(caught.value).splitlines()
    assert lines[0] == "jax_array_tests::zero_: arrays of JAX cannot be written"
    assert lines[-1] == (
        "  do: call customop.interop.jax.export(op), which returns what it wrote"
    )


def test_sizes_that_depend_on_data_need_values() -> None:
    x = jnp.asarray(np.array([0.0, 2.0, 0.0, 3.0]))
    found = co.jvp(lambda x: x[np.nonzero(x)], (x,), (jnp.ones(4),))
    assert_same(found[0], np.array([2.0, 3.0]))
    with pytest.raises(co.DataDependentError, match="JAX must know shapes before"):
        jax.jit(lambda x: co.jvp(lambda x: x[np.nonzero(x)], (x,), (x,)))(x)


def test_decompositions_make_arrays_of_the_kind() -> None:
    a = np.array([[2.0, 1.0], [0.5, 3.0]])
    gradient = co.grad(lambda a: np.sum(np.linalg.qr(a, mode="r") ** 2))
    assert_same(gradient(jnp.asarray(a)), gradient(a))


def test_opcheck_leaves_the_kind_out() -> None:
    assert "jax" not in devices_at_hand()


# ---- the back end ----


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_back_end_gives_numpys_numbers(name: str) -> None:
    fn = FUNCTIONS[name]
    found, expected = co.compile(fn, backend="jax")(X, Y), fn(X, Y)
    assert type(found) is type(expected)
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-13)


def test_the_back_end_runs_by_jax(monkeypatch: pytest.MonkeyPatch) -> None:
    jit, seen = jax.jit, []

    def watched(fn: Callable[..., Any], **options: Any) -> Any:
        run = jit(fn, **options)
        return lambda *args: seen.append(len(args)) or run(*args)

    monkeypatch.setattr(jax, "jit", watched)
    fast = co.compile(FUNCTIONS["arithmetic"], backend="jax")
    for _ in range(2):
        fast(X, Y)
    assert seen == [5, 5]  # the same at each call: two arrays and what surrounds them


def test_a_gradient_through_the_back_end() -> None:
    gradient = co.grad(lambda x: np.sum(FUNCTIONS["arithmetic"](x, Y)))
    found = co.compile(gradient, backend="jax")(X)
    np.testing.assert_allclose(found, gradient(X), rtol=1e-12)


def test_results_are_memory_of_their_own() -> None:
    fast = co.compile(lambda x: (x, x * 2.0, x * 2.0, x[0], 3.0), backend="jax")
    x = X.copy()
    same, doubled, again, row, number = fast(x)
    assert same is x
    assert number == 3.0
    doubled += 1.0  # it may be written
    assert np.array_equal(again, X * 2.0 + 1.0 * (again is doubled))
    row += 1.0
    second = fast(x)
    assert np.array_equal(second[1], X * 2.0)
    assert np.array_equal(second[3], X[0])


def test_arrays_of_a_closure_are_read_at_each_call() -> None:
    w = np.ones(3)
    fast = co.compile(lambda x: x * w, backend="jax")
    fast(X)
    w[:] = 5.0
    assert np.array_equal(fast(X), X * 5.0)


def test_writes_and_random_numbers_are_refused() -> None:
    def write(x: Any) -> Any:
        x += 1.0
        return x

    with pytest.raises(co.ArgumentError) as caught:
        co.compile(write, backend="jax")(X.copy())
    lines = str(caught.value).splitlines()
    assert lines[0] == (
        "compile: 'assign' writes, draws or gives a number, which the back end 'jax' does"
        " not do"
    )
    assert lines[-1] == "  do: leave backend='jax' out, or compile the rest by itself"
    rng = np.random.default_rng(0)
    with pytest.raises(co.ArgumentError, match="writes, draws or gives a number"):
        co.compile(lambda x, rng: x + rng.normal(size=3), backend="jax")(X, rng)


def test_numbers_that_differ_between_calls_need_no_new_program() -> None:
    def fn(x: Any, r: float, t: int) -> Any:
        return x * r + x / (t + 1), r * 2, x * (1 - 0.9**t), np.sum(x) * r

    compiled = co.compile(fn, backend="jax")
    for x in (X, X.astype("f4")):
        for t in range(1, 4):
            pairs = zip(compiled(x, t / 3, t), fn(x, t / 3, t), strict=True)
            for found, expected in pairs:
                assert np.asarray(found).dtype == np.asarray(expected).dtype
                np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert len(compiled.graphs) == 4
