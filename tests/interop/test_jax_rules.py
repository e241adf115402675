"""Backward formulas and batches as programs of XLA: numbers, and calls of the host."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import customop as co

jax = pytest.importorskip("jax", reason="JAX is not installed")
jnp = jax.numpy

from customop.interop.jax import export, register_jax_arrays  # noqa: E402

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.filterwarnings("default"),  # JAX has deprecations of its own
]


@pytest.fixture(autouse=True, scope="module")
def kinds(own_kinds: None) -> None:
    """The kind of JAX arrays is forgotten after these tests."""


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Any, int]]:
    """Run a compiled function; return its result, and how often it called the host."""
    calls: list[int] = []
    callback = jax.pure_callback

    def counting(fn: Any, *args: Any, **keywords: Any) -> Any:
        def counted(*arrays: Any) -> Any:
            calls.append(1)
            return fn(*arrays)

        return callback(counted, *args, **keywords)

    monkeypatch.setattr(jax, "pure_callback", counting)

    def run(fn: Any, *arrays: Any) -> tuple[Any, int]:
        program = jax.jit(fn)
        jax.block_until_ready(program(*arrays))
        calls.clear()
        found = jax.block_until_ready(program(*arrays))
        return found, len(calls)

    return run


def _saved_input(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)


def _saved_output(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(output)


def _in_place(ctx: Any, g: Any) -> Any:
    out = np.zeros_like(g)
    out[...] = g
    out *= np.cos(ctx.saved_arrays[0])
    return out


def _wide(ctx: Any, g: Any) -> Any:
    """Compute in 64 bits, where a sum of 32 bits would lose the small number."""
    x = ctx.saved_arrays[0].astype(np.float64)
    return ((g * np.cos(x) + 1e9) - 1e9).astype(g.dtype)


def _made(
    name: str, kernel: Any, backward: Any, saved: Any = _saved_input, **options: Any
) -> Any:
    op: Any = co.custom_op(
        f"jax_rules::{name}",
        kernel,
        mutates_args=(),
        schema="(Array x) -> Array",
        **options,
    )
    op.register_fake(lambda x: co.fake_like(x))
    op.register_autograd(backward, setup_context=saved)
    return op


# The operator, the same in JAX, and how often the program of its value and gradient, and
# of its gradient, call the host: as often as with jax.custom_vjp, unless a formula needs it.
OPERATORS: dict[str, tuple[Any, Any, int, int]] = {
    "input": (
        _made("input", np.sin, lambda ctx, g: g * np.cos(*ctx.saved_arrays)),
        jnp.sin,
        *(1, 0),
    ),
    "output": (
        _made(
            "output",
            np.exp,
            lambda ctx, g: g * ctx.saved_arrays[0],
            _saved_output,
            tags=co.Tag.pointwise,
        ),
        jnp.exp,
        *(1, 1),
    ),
    "in_place": (_made("in_place", np.sin, _in_place), jnp.sin, 1, 0),
    "wide": (_made("wide", np.sin, _wide), jnp.sin, 1, 0),
    "host": (
        _made(
            "host",
            np.sin,
            lambda ctx, g: g * np.cos(*ctx.saved_arrays) + 0 * np.sinc(g),
        ),
        jnp.sin,
        *(2, 1),
    ),
    "pointwise": (
        _made(
            "pointwise",
            np.sin,
            lambda ctx, g: g * np.cos(*ctx.saved_arrays),
            tags=co.Tag.pointwise,
        ),
        jnp.sin,
        *(1, 0),
    ),
}


def _total(fn: Any) -> Any:
    return lambda x: jnp.sum(fn(x) * jnp.arange(1, x.size + 1).reshape(x.shape))


@pytest.fixture(params=[False, True], ids=["32 bits", "64 bits"])
def bits(request: pytest.FixtureRequest) -> Iterator[bool]:
    with jax.enable_x64(request.param):
        yield request.param


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("shape", [(2, 3), (), (0, 3)])
def test_formulas_give_the_gradients_of_jax(
    name: str, shape: Any, bits: bool, host: Callable[..., tuple[Any, int]]
) -> None:
    op, plain, of_both, of_slope = OPERATORS[name]
    mine, wanted = _total(export(op)), _total(plain)
    count = int(np.prod(shape))
    x = jnp.linspace(0.1, 1.3, count, dtype=float).reshape(shape)
    rtol = 1e-12 if bits else 3e-6
    if name == "wide":
        rtol = 1e-5  # 1e9 costs nine digits of 64 bits, and all of 32
    transforms = [
        (jax.value_and_grad, of_both),
        (jax.grad, of_slope),
        (lambda f: jax.grad(lambda x: jnp.sum(jax.grad(f)(x) ** 2)), None),
        (lambda f: lambda x: jax.jvp(f, (x,), (2 * x,)), None),
        (jax.hessian, None),
    ]
    # A formula that writes into an array that is not traced has no derivative.
    for transform, calls in transforms[: 2 if name == "in_place" else None]:
        found, seen = host(transform(mine), x)
        expected = jax.jit(transform(wanted))(x)
        for y, z in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            assert y.dtype == z.dtype
            np.testing.assert_allclose(y, z, rtol=rtol, atol=rtol)
        if calls is not None and count:  # XLA computes nothing of no elements
            assert seen == calls


@pytest.mark.parametrize("name", ["pointwise", "output"])
def test_batches_of_gradients(
    name: str, bits: bool, host: Callable[..., tuple[Any, int]]
) -> None:
    op, plain, *_ = OPERATORS[name]
    x = jnp.linspace(0.1, 1.3, 6, dtype=float).reshape(3, 2)
    for transform in (
        lambda f: jax.vmap(jax.grad(_total(f))),
        lambda f: jax.vmap(jax.grad(_total(f)), in_axes=1, out_axes=1),
        lambda f: jax.grad(lambda x: jnp.sum(jax.vmap(f)(x) ** 2)),
        lambda f: jax.vmap(jax.value_and_grad(_total(f))),
    ):
        found, _ = host(transform(export(op)), x)
        expected = transform(plain)(x)
        rtol = 1e-12 if bits else 3e-6
        for y, z in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(y, z, rtol=rtol, atol=rtol)


def _exp(name: str, own: Callable[[Any, Any, int], tuple[Any, int]]) -> Any:
    """An operator whose formula reads its result, with a rule for batches."""
    formula = lambda ctx, g: g * ctx.saved_arrays[0]
    op = _made(name, np.exp, formula, _saved_output)
    op.register_vmap(lambda info, in_dims, x: own(op, x, in_dims[0]))
    return op


# Operators, and how often the value and gradient of a batch call them: once, if the rule
# for batches is one call whose results are those of the batch.
BATCHES: dict[str, tuple[Any, int]] = {
    "pointwise": (OPERATORS["output"][0], 1),
    "front": (_exp("front", lambda op, x, d: (op(np.moveaxis(x, d, 0)), 0)), 1),
    "moved": (_exp("moved", lambda op, x, d: (op(np.moveaxis(x, d, -1)), -1)), 2),
    "halves": (
        _exp("halves", lambda op, x, d: (np.concatenate([op(x[:1]), op(x[1:])]), d)),
        2,
    ),
    "shifted": (_exp("shifted", lambda op, x, d: (op(x + 1.0) / np.e, d)), 2),
}


@pytest.mark.parametrize("name", BATCHES)
def test_a_batch_passes_its_results_to_the_formula(
    name: str, bits: bool, host: Callable[..., tuple[Any, int]]
) -> None:
    op, wanted_calls = BATCHES[name]
    x = jnp.linspace(0.1, 1.3, 6, dtype=float).reshape(2, 3)
    rtol = 1e-12 if bits else 3e-6
    batch = jax.vmap
    transforms = [
        (
            lambda f: jax.value_and_grad(lambda x: jnp.sum(batch(f)(x) ** 2)),
            wanted_calls,
        ),
        (lambda f: jax.grad(lambda x: jnp.sum(batch(f)(x) ** 2)), wanted_calls),
        (lambda f: jax.grad(lambda x: jnp.sum(batch(f, 0, 1)(x) ** 2)), wanted_calls),
        (lambda f: batch(jax.value_and_grad(_total(f))), 1),
        (lambda f: jax.hessian(lambda x: jnp.sum(batch(f)(x) ** 2)), None),
        (lambda f: jax.grad(lambda x: jnp.sum(batch(batch(f))(x) ** 2)), None),
    ]
    for transform, calls in transforms:
        found, seen = host(transform(export(op)), x)
        expected = transform(jnp.exp)(x)
        for y, z in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
            np.testing.assert_allclose(y, z, rtol=10 * rtol)
        assert calls in (None, seen)


def test_arguments_that_are_broadcast(host: Callable[..., tuple[Any, int]]) -> None:
    def backward(ctx: Any, g: Any) -> Any:
        x, y = ctx.saved_arrays
        return np.sum(g * y, axis=0), np.sum(g * x, axis=1, keepdims=True)

    @co.custom_op("jax_rules::scaled", mutates_args=())
    def scaled(x: co.Array, y: co.Array) -> co.Array:
        return x * y

    scaled.register_fake(lambda x, y: co.fake_like(x, shape=(y.shape[0], x.shape[0])))
    scaled.register_autograd(backward, setup_context=_saved_input)
    x, y = jnp.arange(3.0), jnp.arange(1.0, 3.0)[:, None]

    def loss(fn: Any) -> Any:
        return jax.grad(lambda x, y: jnp.sum(fn(x, y) ** 2), (0, 1))

    found, calls = host(loss(export(scaled)), x, y)
    assert calls == 1  # jnp.sum(y ** 2) needs the result
    for mine, wanted in zip(found, loss(jnp.multiply)(x, y), strict=True):
        np.testing.assert_allclose(mine, wanted, rtol=1e-6)


def test_formulas_that_raise_for_some_values_raise() -> None:
    """XLA would take another element for an index out of bounds."""
    op = _made("places", np.sin, lambda ctx, g: g[ctx.saved_arrays[0].astype(int)])
    slope = jax.jit(jax.grad(lambda x: jnp.sum(export(op)(x))))
    np.testing.assert_array_equal(slope(jnp.array([1.0, 0.0])), [1.0, 1.0])
    with pytest.raises(Exception, match="out of bounds"):
        jax.block_until_ready(slope(jnp.array([1.0, 7.0])))


def test_a_formula_that_changes_is_traced_again(
    host: Callable[..., tuple[Any, int]],
) -> None:
    op = _made("changed", np.sin, lambda ctx, g: 2.0 * g)
    slope = lambda x: jax.grad(export(op))(x)  # a new program each time
    assert float(host(lambda x: slope(x), 1.0)[0]) == 2.0
    op.register_autograd(lambda ctx, g: 3.0 * g, override=True)
    found, calls = host(lambda x: slope(x), 1.0)
    assert (float(found), calls) == (3.0, 0)


def test_several_results_of_which_one_is_read(
    host: Callable[..., tuple[Any, int]],
) -> None:
    @co.custom_op("jax_rules::two", mutates_args=())
    def two(x: co.Array) -> tuple[co.Array, co.Array]:
        return np.exp(x), np.argsort(x)

    two.register_fake(lambda x: (co.fake_like(x), co.fake_like(x, dtype=np.int64)))
    two.register_autograd(
        lambda ctx, g, _: g * ctx.saved_arrays[0],
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output[0]),
    )
    with jax.enable_x64(True):
        x = jnp.array([0.5, 0.1])
        (value, slope), calls = host(
            jax.value_and_grad(lambda x: jnp.sum(export(two)(x)[0] ** 2)), x
        )
        assert calls == 1
        np.testing.assert_allclose(slope, 2 * np.exp(2 * x))
        np.testing.assert_allclose(value, np.sum(np.exp(2 * x)))
        two.register_vmap(
            lambda info, in_dims, x: (two(np.moveaxis(x, in_dims[0], 0)), (0, 0))
        )
        rows = jnp.array([[0.5, 0.1], [0.2, 0.3]])
        batch = jax.vmap(export(two))
        slope, calls = host(jax.grad(lambda x: jnp.sum(batch(x)[0] ** 2)), rows)
        assert calls == 1
        np.testing.assert_allclose(slope, 2 * np.exp(2 * rows))
    found, _ = host(jax.grad(lambda x: jnp.sum(export(two)(x)[0] ** 2)), x)
    np.testing.assert_allclose(found, 2 * np.exp(2 * x), rtol=1e-6)


SHARDED = """
import customop as co, jax, jax.numpy as jnp, numpy as np
from customop.interop.jax import export
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P

seen = []

@co.custom_op("sharded::scaled", mutates_args=())
def scaled(x: co.Array, w: co.Array) -> co.Array:
    seen.append(x.shape)
    return x * w

scaled.register_fake(lambda x, w: co.fake_like(x))
scaled.register_autograd(
    lambda ctx, g: (g * ctx.saved_arrays[1], (g * ctx.saved_arrays[0]).sum(0)),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)
mesh = Mesh(np.array(jax.devices()), ("i",))
x = jax.device_put(jnp.arange(16.0).reshape(8, 2), NamedSharding(mesh, P("i")))
w = jnp.array([2.0, 3.0])

def sharded(fn):
    return jax.shard_map(fn, mesh=mesh, in_specs=(P("i"), P()), out_specs=P("i"))

y = jax.block_until_ready(jax.jit(sharded(export(scaled)))(x, w))
assert y.sharding.spec == P("i")
assert seen.count((2, 2)) == 4, seen
for way in (
    lambda f: jax.jit(jax.grad(lambda x, w: jnp.sum(f(x, w) ** 2), (0, 1))),
    lambda f: jax.jit(jax.hessian(lambda x, w: jnp.sum(f(x, w) ** 2), 1)),
    lambda f: lambda x, w: jax.jvp(lambda w: f(x, w).sum(), (w,), (w,)),
):
    found, wanted = way(sharded(export(scaled)))(x, w), way(sharded(jnp.multiply))(x, w)
    for mine, theirs in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)
# A gradient that is operations of XLA keeps the sharding without shard_map.
sine = co.custom_op("sharded::sine", np.sin, mutates_args=(), schema="(Array x) -> Array")
sine.register_fake(lambda x: co.fake_like(x))
sine.register_autograd(
    lambda ctx, g: g * np.cos(ctx.saved_arrays[0]),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)
slope = jax.jit(jax.grad(lambda x: export(sine)(x).sum()))(x)
assert slope.sharding.spec == P("i")
"""


def test_shards_of_a_mesh_run_where_they_are() -> None:
    """Inside of jax.shard_map, with derivatives by arguments with and without shards."""
    flags = "--xla_force_host_platform_device_count=4"
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SHARDED],
        env=os.environ | {"XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr[-2000:]


def test_a_traced_key_given_to_an_operator_is_refused_by_name() -> None:
    register_jax_arrays()
    op = OPERATORS["input"][0]
    with pytest.raises(co.ArgumentError, match=r"a key of jax\.random"):
        jax.jit(op)(jax.random.key(0))


def test_a_kernel_of_the_host_is_refused_by_name_for_all_sizes() -> None:
    (n,) = jax.export.symbolic_shape("n")
    program = jax.jit(export(OPERATORS["input"][0]))
    with pytest.raises(ValueError, match="customop_jax_rules_input_runs_on_the_host"):
        jax.export.export(program)(jax.ShapeDtypeStruct((n,), jnp.float32))
