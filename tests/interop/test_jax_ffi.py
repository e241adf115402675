"""Kernels of numba and C in programs of JAX, without Python: by XLA's FFI."""

from __future__ import annotations

import ctypes
import ctypes.util
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

import customop as co

jax = pytest.importorskip("jax", reason="JAX is not installed")
numba = pytest.importorskip("numba", reason="numba is not installed")
jnp = jax.numpy

from customop.interop.jax import export, register_jax_arrays  # noqa: E402

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.filterwarnings("default"),  # JAX has deprecations of its own
]

X = np.linspace(0.4, 1.7, 6).reshape(2, 3)
Y = np.linspace(1.2, 2.1, 3)


@pytest.fixture(autouse=True, scope="module")
def wide(own_kinds: None) -> Iterator[None]:
    """Numbers of 64 bits."""
    with jax.enable_x64(True):
        yield


@co.custom_op(
    "ffi_tests::wave",
    mutates_args=(),
    schema="(Array x, Array y, *, float k=2.0) -> Array",
    tags=(co.Tag.pointwise,),
)
@numba.njit
def wave(x, y, *, k):
    if x.ndim and len(x) == 7:
        raise ValueError("seven")
    return x * k + y


@co.custom_op(
    "ffi_tests::mixed",
    mutates_args=(),
    schema="(Array x, Array y) -> Array",
    tags=(co.Tag.pointwise,),
)
@numba.vectorize
def mixed(x, y):
    return x * y + x


def _of_mixed(ctx: Any, g: Any) -> Any:
    x, y = ctx.saved_arrays
    of_y: Any = mixed.run(x, g)
    return g * (y + 1.0), of_y - x


mixed.register_autograd(
    _of_mixed,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


@co.custom_op("ffi_tests::moments", mutates_args=())
@numba.guvectorize("(n),(n)->(),(n)")
def moments(x, w, total, part):
    total[0] = 0
    for i in range(len(x)):
        part[i] = x[i] * w[i]
        total[0] += part[i]


@co.custom_op(
    "ffi_tests::fixed", mutates_args=(), schema="(float64[n] x) -> float64[n]"
)
@numba.njit("f8[:](f8[:])")
def fixed(x):
    return x[::-1] * 2.0


@co.custom_op(
    "ffi_tests::add_to",
    mutates_args=("total",),
    schema="(Array(a!) total, Array x) -> Array",
)
@numba.njit
def add_to(total, x):
    total += x
    return total * 2.0


add_to.register_fake(lambda total, x: co.fake_like(total))


def _c_function() -> Any:
    """A function of a C library, which knows nothing of Python."""
    found = ctypes.CDLL(ctypes.util.find_library("m")).cbrt
    found.restype, found.argtypes = ctypes.c_double, [ctypes.c_double]
    return found


_cbrt = _c_function()


@co.custom_op(
    "ffi_tests::cube_root",
    mutates_args=(),
    schema="(float64[...] x) -> float64[...]",
    tags=(co.Tag.pointwise,),
)
@numba.njit
def cube_root(x):
    out = np.empty_like(x)
    for i in range(x.size):
        out.flat[i] = _cbrt(x.flat[i])
    return out


class Case(NamedTuple):
    """An operator, and what it computes by functions of JAX."""

    op: Callable[..., Any]
    plain: Callable[..., Any]
    arrays: tuple[Any, ...]
    keywords: dict[str, Any] = {}  # noqa: RUF012  # never changed


CASES = {
    "njit": Case(wave, lambda x, y, k: x * k + y, (X, Y), {"k": 1.5}),
    "float32": Case(mixed, lambda x, y: x * y + x, (np.float32(X), np.float32(Y))),
    "no axes": Case(mixed, lambda x, y: x * y + x, (X[0, 0].reshape(()), Y)),
    "vectorize": Case(mixed, lambda x, y: x * y + x, (X, Y)),
    "complex": Case(mixed, lambda x, y: x * y + x, (X + 1j, Y * 1j)),
    "whole": Case(mixed, lambda x, y: x * y + x, (np.arange(3), np.arange(3))),
    "guvectorize": Case(moments, lambda x, w: (x @ w, x * w), (X, Y)),
    "signature": Case(fixed, lambda x: 2.0 * x[::-1], (Y,)),
    "written": Case(add_to, lambda t, x: (2 * (t + x), t + x), (Y, X[0])),
    "C": Case(cube_root, jnp.cbrt, (X,)),
}


def targets(fn: Callable[..., Any], *args: Any) -> list[str]:
    """What a program calls outside of XLA."""
    text = jax.jit(fn).lower(*args).as_text()
    return sorted(set(re.findall(r"custom_call @(\w+)", text)))


def assert_without_python(fn: Callable[..., Any], *args: Any) -> None:
    """Assert that a program calls handlers alone."""
    called = targets(fn, *args)
    assert called
    assert all(name.startswith("customop_") for name in called)


@pytest.mark.parametrize("name", CASES)
def test_values(name: str) -> None:
    case = CASES[name]
    fn = export(case.op)
    arrays = [jnp.asarray(x) for x in case.arrays]

    def call(*xs: Any) -> Any:
        return fn(*xs, **case.keywords)

    assert_without_python(call, *arrays)
    expected = case.plain(*arrays, *case.keywords.values())
    for found in (jax.jit(call)(*arrays), call(*arrays)):
        pairs = zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True)
        for x, y in pairs:
            assert x.dtype == y.dtype
            np.testing.assert_allclose(x, y, rtol=1e-6 if y.dtype == "f4" else 1e-13)


def test_derivatives_and_rows_call_no_python() -> None:
    fn = export(mixed)

    def loss(x: Any, y: Any) -> Any:
        return jnp.sum(fn(x, y) ** 2)

    def plain(x: Any, y: Any) -> Any:
        return jnp.sum((x * y + x) ** 2)

    def of_rows(fn: Any) -> Any:
        return jax.grad(lambda x, y: jnp.sum(jax.vmap(fn, (0, None))(x, y)))

    x, y = jnp.asarray(X), jnp.asarray(Y)
    for transform, first in ((of_rows, x), (jax.hessian, y)):
        assert_without_python(transform(loss), first, y)
        found = jax.jit(transform(loss))(first, y)
        np.testing.assert_allclose(found, transform(plain)(first, y), rtol=1e-12)


def test_loops_of_jax() -> None:
    fn = export(mixed)

    def loop(x: Any) -> Any:
        return jax.lax.scan(lambda c, _: (fn(c, c * 0.1), None), x, None, length=4)[0]

    expected = Y
    for _ in range(4):
        expected = expected * expected * 0.1 + expected
    assert_without_python(loop, jnp.asarray(Y))
    np.testing.assert_allclose(jax.jit(loop)(jnp.asarray(Y)), expected, rtol=1e-13)


def test_threads_call_at_once() -> None:
    fn = jax.jit(export(mixed))
    wrong: list[int] = []

    def work(number: int) -> None:
        x = jnp.full(100, float(number))
        wrong.extend(
            number for _ in range(50) if not np.array_equal(fn(x, x), x * x + x)
        )

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_an_exception_of_the_kernel_is_an_error() -> None:
    with pytest.raises(Exception, match="ffi_tests::wave: its kernel has raised"):
        jax.jit(export(wave))(jnp.ones(7), jnp.ones(7)).block_until_ready()


def test_a_wrong_shape_is_an_error() -> None:
    @co.custom_op("ffi_tests::cut", mutates_args=(), schema="(Array x) -> Array")
    @numba.njit
    def cut(x):
        return x[1:] * 1.0

    cut.register_fake(lambda x: co.fake_like(x))
    with pytest.raises(Exception, match="another shape than that of its fake kernel"):
        jax.jit(export(cut))(jnp.ones(3)).block_until_ready()


def test_a_wrong_dtype_is_the_error_of_the_kernel() -> None:
    @co.custom_op(
        "ffi_tests::widened",
        mutates_args=(),
        schema="(Array x) -> Array",
        tags=(co.Tag.pointwise,),
    )
    @numba.vectorize
    def widened(x):
        return x + 1  # of float32 it is float64

    with pytest.raises(Exception, match="they differ in dtype"):
        jax.jit(export(widened))(jnp.ones(3, "f4")).block_until_ready()


def test_what_numba_cannot_be_given_goes_by_python() -> None:
    @co.custom_op("ffi_tests::total", mutates_args=(), schema="(Array[] xs) -> Array")
    @numba.njit
    def total(xs):
        return xs[0] + xs[1]

    total.register_fake(lambda xs: co.fake_like(xs[0]))

    @co.custom_op("ffi_tests::spread", mutates_args=(), schema="(Array x) -> Array")
    @numba.njit(parallel=True)
    def spread(x):
        out = np.empty_like(x)
        for i in numba.prange(len(x)):
            out[i] = x[i] + 1
        return out

    spread.register_fake(lambda x: co.fake_like(x))
    x = jnp.ones(3)
    for fn, args in ((export(total), ([x, x],)), (export(spread), (x,))):
        assert not [n for n in targets(fn, *args) if n.startswith("customop_")]
    np.testing.assert_array_equal(jax.jit(export(spread))(x), 2 * np.ones(3))


def test_a_kernel_registered_for_jax_is_part_of_the_program() -> None:
    register_jax_arrays()
    cube = co.custom_op(
        "ffi_tests::cube",
        lambda x: x**3,
        mutates_args=(),
        schema="(Array x) -> Array",
        tags=(co.Tag.pointwise,),
    )
    cube.register_autograd(
        lambda ctx, g: 3 * g * ctx.saved_arrays[0] ** 2,
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
    )
    cube.register_kernel("jax")(lambda x: jax.lax.integer_pow(x, 3))
    fn, x = export(cube), jnp.asarray(Y)
    assert "stablehlo.multiply" in jax.jit(fn).lower(x).as_text()
    assert targets(jax.grad(lambda x: jnp.sum(fn(x))), x) == []
    np.testing.assert_allclose(fn(x), Y**3)
    np.testing.assert_allclose(jax.jit(jax.grad(lambda x: fn(x).sum()))(x), 3 * Y**2)
