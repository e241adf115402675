"""Operators as functions of JAX: compared with NumPy, and by JAX's own checks."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import customop as co
from tests.interop import jax_table
from tests.interop._jax_cases import BOTH, CASES, X, Y

jax = pytest.importorskip("jax", reason="JAX is not installed")
jnp = jax.numpy

from jax.test_util import check_grads  # noqa: E402

from customop.interop.jax import export  # noqa: E402

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.filterwarnings("default"),  # JAX has deprecations of its own
]


@pytest.fixture(autouse=True)
def wide() -> Iterator[None]:
    """Numbers of 64 bits."""
    with jax.enable_x64(True):
        yield


def of(name: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A function of JAX's arrays for a case, and such arrays."""
    case = CASES[name]
    exported = export(case.fn)
    arrays = tuple([jnp.asarray(x) for x in case.arrays])
    return lambda *xs: case.call(exported, *xs), arrays


def inexact_of(name: str) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A function of the inexact arrays alone, and its inexact results."""
    fn, arrays = of(name)
    places = [i for i, x in enumerate(arrays) if jnp.issubdtype(x.dtype, jnp.inexact)]

    def free(*changed: Any) -> Any:
        given = [*arrays]
        for i, x in zip(places, changed, strict=True):
            given[i] = x
        leaves = jax.tree.leaves(fn(*given))
        return [y for y in leaves if jnp.issubdtype(y.dtype, jnp.inexact)]

    return free, tuple([arrays[i] for i in places])


def assert_same(found: Any, expected: Any, rtol: float = 1e-12) -> None:
    """Assert that nested arrays are equal, of the same dtypes, and JAX's."""
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
    for x, y in pairs:
        assert isinstance(x, jax.Array)
        assert x.shape == y.shape
        assert x.dtype == y.dtype
        np.testing.assert_allclose(x, y, rtol=rtol, atol=1e-14)


@pytest.mark.parametrize("name", CASES)
def test_values_are_numpys_also_compiled(name: str) -> None:
    fn, arrays = of(name)
    expected = CASES[name].call(CASES[name].fn, *CASES[name].arrays)
    assert_same(fn(*arrays), expected)
    assert_same(jax.jit(fn)(*arrays), expected)


@pytest.mark.parametrize("name", CASES)
def test_derivatives_are_those_of_differences_to_order_two(name: str) -> None:
    fn, arrays = inexact_of(name)
    modes = CASES[name].modes
    if modes and all(x.size for x in arrays):
        check_grads(fn, arrays, order=2 if modes == BOTH else 1, modes=[*modes])


@pytest.mark.parametrize("name", CASES)
def test_rows_are_those_of_a_loop(name: str) -> None:
    case = CASES[name]
    fn, _ = of(name)
    given = case.arrays
    whole = [np.stack([x, x[::-1] if x.ndim else x + 1, x]) for x in given]
    rows = [case.call(case.fn, *[x[i] for x in whole]) for i in range(3)]
    assert_same(jax.vmap(fn)(*whole), jax.tree.map(lambda *ys: np.stack(ys), *rows))
    one = [case.call(case.fn, x, *given[1:]) for x in whole[0]]
    first = jax.vmap(fn, (0, *[None] * (len(given) - 1)))(whole[0], *given[1:])
    assert_same(first, jax.tree.map(lambda *ys: np.stack(ys), *one))


def test_more_than_twenty_operators_are_tried() -> None:
    assert len(CASES) >= 25


def test_the_guide_has_the_table_of_these_cases() -> None:
    """It is made by ``python -m tests.interop.jax_table``."""
    assert jax_table.PAGE.read_text(encoding="utf-8").endswith(jax_table.text())


# ---- nestings ----


def test_all_transforms_in_each_other() -> None:
    ratio = export(CASES["ratio"].fn)
    x, y = jnp.asarray(X[:, :2]), jnp.asarray(Y[:2])

    def of_ratio(fn: Any) -> Any:
        return lambda x, y: jnp.sum(jnp.sin(fn(x, y)) ** 2)

    mine, plain = of_ratio(ratio), of_ratio(jnp.divide)
    rows = jnp.stack([y, y + 1.0])
    for transform, second in (
        (jax.hessian, y),
        (lambda f: jax.jacrev(jax.jacrev(f, 1), 0), y),
        (lambda f: jax.jacfwd(jax.jacfwd(f)), y),
        (lambda f: jax.vmap(jax.grad(f), (0, None)), y),
        (lambda f: jax.grad(lambda x, y: jnp.sum(jax.vmap(f, (0, None))(x, y))), y),
        (lambda f: jax.vmap(jax.hessian(f), (None, 0)), rows),
    ):
        expected = transform(plain)(x, second)
        assert_same(jax.jit(transform(mine))(x, second), expected, 1e-9)


def test_third_derivatives() -> None:
    cube = export(CASES["cube"].fn)
    thrice = jax.grad(jax.grad(jax.grad(lambda t: cube(t) * t)))
    assert float(thrice(2.0)) == pytest.approx(48.0)
    assert float(jax.jit(thrice)(2.0)) == pytest.approx(48.0)


def test_loops_of_jax() -> None:
    cube = export(CASES["cube"].fn)

    def loop(x: Any) -> Any:
        return jax.lax.scan(lambda c, _: (0.5 * cube(c) + 0.1, c), x, None, length=5)

    def by_hand(x: Any) -> Any:
        return jax.lax.scan(lambda c, _: (0.5 * c**3 + 0.1, c), x, None, length=5)

    x = jnp.asarray(X) / 2.0
    assert_same(loop(x), by_hand(x))
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(loop(x)[0])))
    assert_same(gradient(x), jax.grad(lambda x: jnp.sum(by_hand(x)[0]))(x))
    chosen = jax.jit(lambda x: jax.lax.cond(x[0, 0] > 0, cube, lambda x: -x, x))
    assert_same(chosen(x), x**3)


def test_pmap_on_one_device() -> None:
    cube = export(CASES["cube"].fn)
    x = jnp.asarray(X)[None]
    assert_same(jax.pmap(cube)(x), x**3)


def test_zeros_of_both_signs_are_two_constants() -> None:
    shifted = export(lambda x, by: x * 1.0 + by)
    x = jnp.asarray(np.array([0.0, -0.0]))
    both = jax.jit(lambda x: (shifted(x, 0.0), shifted(x, -0.0)))(x)
    signs = [np.signbit(y).tolist() for y in both]
    assert signs == [[False, False], [False, True]]


def test_one_compilation_serves_calls_with_the_same_constants() -> None:
    op = export(CASES["chosen"].fn)
    counts = []

    @jax.jit
    def fn(x: Any) -> Any:
        counts.append(1)
        return op(x, "twice", [1, 2], (0.5, 1.5))

    for _ in range(3):
        fn(jnp.asarray(X))
    assert len(counts) == 1


# ---- arrays and dtypes ----


def test_programs_call_the_kernel_of_the_day() -> None:
    """With its constants and dtypes, also where another is registered after compilation."""

    @co.custom_op("jaxday::scaled", mutates_args=())
    def scaled(x: co.Array, y: co.Array, k: float, *, shift: float = 0.0) -> co.Array:
        return x * k - y + shift

    scaled.register_fake(lambda x, y, k, shift: co.fake_like(x))
    program = jax.jit(lambda x, y: export(scaled)(y, x, 3.0, shift=0.5))
    x, y = np.arange(3, dtype=np.float32), np.ones((), np.float32)
    for _ in range(2):
        assert_same(program(y, x), x * 3.0 - 0.5)
        assert_same(program(y, x[:0]), x[:0])
    scaled.register_kernel("cpu", lambda x, y, k, shift: k * x + y)
    assert_same(program(y, x), x * 3.0 + 1.0)


def test_written_arrays_come_back() -> None:
    @co.custom_op("jax_tests::add_to", mutates_args=("total",))
    def add_to(total: co.Array, x: co.Array) -> co.Array:
        total += x
        return total * 2.0

    add_to.register_fake(lambda total, x: co.fake_like(total))
    total, x = jnp.zeros(3), jnp.asarray(Y)
    for fn in (export(add_to), jax.jit(export(add_to))):
        doubled, new = fn(total, x)
        assert_same(doubled, 2.0 * x)
        assert_same(new, x)
    assert not np.any(total)


def test_without_wide_numbers_results_are_rounded() -> None:
    with jax.enable_x64(False):
        found = export(CASES["cube"].fn)(jnp.asarray(X))
        assert found.dtype == np.float32
        gradient = jax.grad(lambda x: jnp.sum(export(lambda x: np.float64(2.0) * x)(x)))
        assert gradient(jnp.ones(3)).dtype == np.float32


def test_a_dtype_that_numpy_lacks_is_refused() -> None:
    with pytest.raises(co.ArgumentError) as caught:
        export(CASES["cube"].fn)(jnp.ones(3, jnp.bfloat16))
    assert str(caught.value) == (
        "jax_tests::cube: an array of bfloat16, which NumPy does not have\n"
        "  do: convert it: x.astype(np.float32)"
    )


@pytest.mark.parametrize("call", [jax.jit, lambda fn: fn], ids=["jit", "eager"])
def test_a_key_of_jax_is_refused_by_name(call: Any) -> None:
    key = jax.random.key(0)
    for fn in (export(CASES["cube"].fn), export(lambda x: x + 1)):
        with pytest.raises(
            co.ArgumentError, match=r"a key of jax\.random.*\n.*key_data"
        ):
            call(fn)(key)
    assert export(lambda x: x + 1)(jax.random.key_data(key)).shape == (2,)


def test_a_key_that_an_operator_gets_itself_is_refused_by_name() -> None:
    key = jax.random.key(0)
    for fn in (CASES["cube"].fn, co.ops.np.sin):
        with pytest.raises(co.ArgumentError, match="got PRNGKeyArray") as caught:
            fn(key)
        wanted = "pass np.asarray(jax.random.key_data(x)): a key has no numbers"
        assert caught.value.do == wanted
        assert fn(np.asarray(jax.random.key_data(key))).shape == (2,)


def test_results_do_not_share_memory_with_what_may_change() -> None:
    kept = np.ones(3)
    op = co.custom_op(
        "jax_tests::kept",
        lambda x: kept * x,
        mutates_args=(),
        schema="(Array x) -> Array",
    )
    op.register_fake(lambda x: co.fake_like(x))
    found = export(op)(jnp.ones(3))
    kept[:] = 7.0
    assert_same(found, np.ones(3))


# ---- what cannot be ----


def test_missing_rules_are_errors_where_they_are_asked_for() -> None:
    fn = export(CASES["no_rules"].fn)
    x = jnp.asarray(X)
    with pytest.raises(co.MissingRuleError, match="jax_tests::no_rules has no"):
        jax.grad(lambda x: jnp.sum(fn(x)))(x)
    with pytest.raises(co.MissingRuleError, match="jax_tests::no_rules has no"):
        jax.jit(lambda x: jax.jvp(fn, (x,), (x,))[1])(x)


def test_without_a_fake_kernel_the_error_says_so() -> None:
    op = co.custom_op(
        "jax_tests::no_fake", lambda x: x, mutates_args=(), schema="(Array x) -> Array"
    )
    with pytest.raises(co.MissingRuleError, match="has no fake kernel"):
        export(op)(jnp.ones(3))


def test_random_numbers_are_refused() -> None:
    @co.custom_op("jax_tests::noisy", mutates_args=())
    def noisy(x: co.Array, rng: np.random.Generator) -> co.Array:
        return x + rng.normal(size=x.shape)

    with pytest.raises(co.ArgumentError) as caught:
        export(noisy)
    assert str(caught.value) == (
        "export: jax_tests::noisy draws random numbers, and JAX calls a function as often"
        " as it likes\n  do: draw before the call, and pass the numbers as an array"
    )


def test_arguments_that_do_not_fit_are_the_operators_own_errors() -> None:
    with pytest.raises(co.ArgumentError, match="argument 'power'"):
        export(CASES["norm"].fn)(jnp.asarray(X), axis=0, power="much")
    with pytest.raises(co.ShapeError, match="product"):
        export(CASES["product"].fn)(jnp.asarray(X), jnp.ones(7))


def test_threads_may_call_at_once() -> None:
    fn = jax.jit(export(CASES["cube"].fn))
    wrong: list[int] = []

    def work(number: int) -> None:
        x = jnp.full(3, float(number))
        wrong.extend(number for _ in range(50) if not np.array_equal(fn(x), x**3))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_nothing_imports_jax_by_itself() -> None:
    code = (
        "import sys, customop.interop, customop as co; co.make_fx; print('jax' in"
        " sys.modules)"
    )
    run = [sys.executable, "-c", code]
    assert subprocess.run(run, check=True, capture_output=True).stdout == b"False\n"


def test_a_traced_number_for_a_number_of_python_is_named_as_jax_has_it() -> None:
    op = co.custom_op("jaxtest::times", _times, mutates_args=())
    op.register_fake(lambda x, k: co.fake_like(x))
    for times in (export(op), export(lambda x, k: op(np.sin(x), k))):
        with pytest.raises(co.ArgumentError) as error:
            jax.jit(lambda k, times=times: times(jnp.ones(2), k))(2.0)
        assert "'k' expects float, got an array of JAX of shape ()" in str(error.value)
        assert "static_argnames='k'" in str(error.value)


def _times(x: np.ndarray, k: float = 1.0) -> np.ndarray:
    return x * k
