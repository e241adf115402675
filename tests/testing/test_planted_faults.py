"""Faults planted in operators, one by one: opcheck finds each without being given inputs.

Each row makes an operator that is wrong in one thing, and its twin that is right.
"""

from __future__ import annotations

import ctypes
import itertools
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, NamedTuple

import numpy as np
import pytest

import customop as co
from customop.arrays.nested import map_nested
from customop.testing import opcheck

A = np.ndarray
POINTWISE = (co.Tag.pointwise, co.Tag.flexible_layout)


class Row(NamedTuple):
    """A fault: what makes the operator, and the checks that must find it."""

    build: Callable[[bool], Any]
    checks: tuple[str, ...]


ROWS: list[Row] = []


def planted(*checks: str) -> Callable[[Callable[[bool], Any]], Callable[[bool], Any]]:
    """Enter a row; its function makes the operator, wrong or right."""

    def enter(build: Callable[[bool], Any]) -> Callable[[bool], Any]:
        ROWS.append(Row(build, checks))
        return build

    return enter


_numbers = itertools.count()


def define(
    fn: Callable[..., Any],
    mutates_args: Any = (),
    tags: Any = co.Tag.flexible_layout,
    **settings: Any,
) -> Any:
    """An operator of a name of its own."""
    settings = {"device_types": "cpu", **settings}
    name = f"planted::{fn.__name__}{next(_numbers)}"
    return co.custom_op(name, fn, mutates_args=mutates_args, tags=tags, **settings)


def modelled(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A fake kernel that is right: it runs `fn` on arrays of ones."""

    def real(leaf: Any) -> Any:
        return np.ones(leaf.shape, leaf.dtype) if type(leaf) is co.FakeArray else leaf

    def fake(leaf: Any) -> Any:
        is_array = isinstance(leaf, A | np.generic)
        return co.FakeArray(leaf.shape, leaf.dtype) if is_array else leaf

    @wraps(fn)
    def model(*args: Any) -> Any:
        return map_nested(fn(*[map_nested(value, real) for value in args]), fake)

    return model


def kept(*names: str) -> Callable[..., None]:
    """A `setup_context` that keeps all inputs, by name, and the output."""

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        for name, value in zip(names, inputs, strict=False):
            setattr(ctx, name, value)
        ctx.out = output

    return setup


# ---- schema ----


@planted("test_schema", "test_mutation")
def undeclared_write(wrong: bool) -> Any:
    def shift(x: A) -> A:
        y = x if wrong else x.copy()
        y += 1
        return y.copy()

    return define(shift).register_fake(modelled(shift))


@planted("test_schema")
def returned_input(wrong: bool) -> Any:
    def same(x: A) -> A:
        return x if wrong else x.copy()

    return define(same).register_fake(lambda x: co.fake_like(x))


@planted("test_schema")
def undeclared_view(wrong: bool) -> Any:
    def flipped(x: A) -> A:
        return x.T if wrong else x.T.copy()

    fake = lambda x: co.fake_like(x, shape=x.shape[::-1])
    return define(flipped).register_fake(fake)


@planted("test_schema")
def one_array_twice(wrong: bool) -> Any:
    def both(x: A) -> tuple[A, A]:
        y = x + 1
        return y, y if wrong else y.copy()

    return define(both).register_fake(lambda x: (co.fake_like(x), co.fake_like(x)))


@planted("test_schema")
def halves_of_one_buffer(wrong: bool) -> Any:
    def both(x: A) -> tuple[A, A]:
        memory = np.zeros((2, *x.shape), x.dtype)
        memory[0], memory[1] = x, -x if x.dtype != bool else x
        return (memory[0], memory[1]) if wrong else (x.copy(), memory[1].copy())

    return define(both).register_fake(
        lambda x: (
            (co.FakeArray(x.shape, x.dtype), co.FakeArray(x.shape, x.dtype))
            if wrong
            else (co.fake_like(x), co.FakeArray(x.shape, x.dtype))
        )
    )


@planted("test_schema")
def three_for_two(wrong: bool) -> Any:
    def parts(x: A) -> tuple[A, A]:
        found = (x + 1, x + 2, x + 3)
        return found if wrong else found[:2]

    return define(parts).register_fake(lambda x: (co.fake_like(x), co.fake_like(x)))


@planted("test_schema")
def float_for_array(wrong: bool) -> Any:
    def total(x: A) -> A:
        return float(x.sum()) if wrong else np.float64(x.sum())

    return define(total).register_fake(lambda x: co.FakeArray((), np.float64))


@planted("test_schema")
def declared_view_is_copy(wrong: bool) -> Any:
    def flat(x):
        return x.reshape(-1).copy() if wrong else x[..., None]

    op = define(flat, schema="(Array(a) x) -> Array(a)")
    return op.register_fake(
        lambda x: co.fake_like(x, shape=(x.size,) if wrong else (*x.shape, 1))
    )


@planted("test_schema")
def inplace_returns_copy(wrong: bool) -> Any:
    def double_(x: A) -> A:
        x += x
        return x.copy() if wrong else x

    return define(double_, ("x",), tags=co.Tag.inplace)


@planted("test_schema", "test_vmap")
def softmax_is_not_pointwise(wrong: bool) -> Any:
    def softmax(x: A) -> A:
        e = np.exp(x.astype(float))
        return e / e.sum(-1, keepdims=True) if x.ndim and wrong else e

    return define(softmax, tags=POINTWISE).register_fake(modelled(softmax))


@planted("test_schema")
def cumulative_is_not_pointwise(wrong: bool) -> Any:
    def running(x: A) -> A:
        x = x.astype(float)
        return np.cumsum(x, -1) if x.ndim and wrong else x + 0

    return define(running, tags=POINTWISE).register_fake(modelled(running))


@planted("test_schema")
def keepdims_is_forgotten(wrong: bool) -> Any:
    def total(x: A, axis: int | None = None, keepdims: bool = False) -> A:
        kept = keepdims and not wrong
        return np.sum(x, axis=axis, keepdims=kept, dtype=x.dtype)

    def fake(x, axis, keepdims):
        axes = range(x.ndim) if axis is None else (axis % x.ndim,) if x.ndim else ()
        keep = keepdims and not wrong
        kept = [
            1 if i in axes else n
            for i, n in enumerate(x.shape)
            if keep or i not in axes
        ]
        return co.FakeArray(kept, x.dtype)

    op = define(total, tags=(co.Tag.reduction, co.Tag.flexible_layout))
    return op.register_fake(fake).register_sample_inputs(
        lambda: [(np.ones((2, 3)), 1, True), (np.ones((2, 3)), 0, False)]
    )


# ---- mutation ----


@planted("test_mutation")
def written_equal(wrong: bool) -> Any:
    def scaled(x: A) -> A:
        if wrong:
            x *= 1
        return x + 1

    return define(scaled).register_fake(lambda x: co.fake_like(x))


@planted("test_mutation")
def written_past_the_flag(wrong: bool) -> Any:
    def counted(x: A) -> A:
        y = x if wrong else x.copy()
        np.add.at(y, Ellipsis, 1)
        return y + 0

    return define(counted).register_fake(modelled(counted))


@planted("test_mutation")
def declared_and_never_written(wrong: bool) -> Any:
    def fill(x: A, value: float) -> None:
        if not wrong:
            x[...] = value

    return define(fill, ("x",))


@planted("test_mutation")
def one_of_two_written(wrong: bool) -> Any:
    def swap(x: A, y: A) -> None:
        if x.shape != y.shape:
            raise ValueError(x.shape)
        kept = x.copy()
        x[...] = y
        if not wrong:
            y[...] = kept

    return define(swap, ("x", "y"))


@planted("test_mutation")
def item_of_a_list_written(wrong: bool) -> Any:
    def total(arrays: list[A]) -> A:
        out = arrays[0] if wrong else arrays[0].copy()
        for x in arrays[1:]:
            out += x
        return out.copy()

    def fake(arrays):
        if len({x.shape for x in arrays}) > 1:
            raise ValueError("shapes differ")
        return co.fake_like(arrays[0])

    return define(total).register_fake(fake)


@dataclass(frozen=True)
class Window:
    """A config object that holds an array."""

    taps: A
    gain: float = 2.0


@planted("test_mutation")
def array_of_a_config_object_written(wrong: bool) -> Any:
    def windowed(x: A, window: Window) -> A:
        taps = window.taps if wrong else window.taps.copy()
        taps *= 2
        return x * 1.0 + np.sum(taps)

    return define(windowed).register_fake(modelled(windowed))


@planted("test_mutation")
def optional_array_written(wrong: bool) -> Any:
    def masked(x: A, weight: A | None = None) -> A:
        if weight is None:
            return x * 1.0
        w = weight if wrong else weight.copy()
        w /= 2.0
        return x * 1.0 + w.sum()

    return define(masked).register_fake(modelled(masked))


# ---- registration of gradients ----


def square(x: A) -> A:
    return x * x


@planted("test_autograd_registration")
def kernel_returns_a_variable(wrong: bool) -> Any:
    def tracked(x: A) -> A:
        y = co.variable(x.astype(float)) if wrong else x.astype(float)
        return y * 2.0

    return define(tracked).register_fake(lambda x: co.FakeArray(x.shape, float))


@planted("test_autograd_registration")
def needs_input_grad_misread(wrong: bool) -> Any:
    def product(x: A, y: A) -> A:
        return x * y

    def backward(ctx, g):
        at = 1 if wrong else 0
        first = g * ctx.y if ctx.needs_input_grad[at] else None
        return first, g * ctx.x

    return with_gradient(product, backward, "x", "y")


@planted("test_autograd_registration")
def too_few_gradients(wrong: bool) -> Any:
    def scaled(x: A, y: A) -> A:
        return x * y

    def backward(ctx, g):
        return (g * ctx.y,) if wrong else (g * ctx.y, g * ctx.x)

    return with_gradient(scaled, backward, "x", "y")


@planted("test_autograd_registration")
def gradient_of_another_shape(wrong: bool) -> Any:
    def total(x: A) -> A:
        return np.sum(x, dtype=x.dtype)

    def backward(ctx, g):
        return np.ones(7) * g if wrong else np.broadcast_to(g, ctx.x.shape)

    op = define(total).register_fake(lambda x: co.FakeArray((), x.dtype))
    return op.register_autograd(backward, setup_context=kept("x"))


@planted("test_autograd_registration")
def gradient_reads_data(wrong: bool) -> Any:
    def clipped(x: A) -> A:
        return x * 3.0

    def backward(ctx, g):
        return float(g.item()) * np.ones(3) if wrong else g * 3.0

    return with_gradient(clipped, backward)


# ---- fake kernels ----


@planted("test_faketensor")
def fake_of_another_shape(wrong: bool) -> Any:
    def outer(x: A, y: A) -> A:
        return np.multiply.outer(x, y)

    def fake(x, y):
        shape = (*y.shape, *x.shape) if wrong else (*x.shape, *y.shape)
        return co.FakeArray(shape, np.result_type(x.dtype, y.dtype))

    op = define(outer).register_fake(fake)
    return op.register_sample_inputs(lambda: [(np.ones(2), np.ones(3))])


@planted("test_faketensor")
def fake_of_another_dtype(wrong: bool) -> Any:
    def is_positive(x: A) -> A:
        return x > 0

    fake = lambda x: co.fake_like(x, dtype=None if wrong else bool)
    return define(is_positive).register_fake(fake)


@planted("test_faketensor")
def fake_returns_its_input(wrong: bool) -> Any:
    return define(square).register_fake(lambda x: x if wrong else co.fake_like(x))


@planted("test_faketensor")
def fake_reads_data(wrong: bool) -> Any:
    def halved(x: A) -> A:
        return x / 2.0

    def fake(x):
        if wrong and x.sum() > 1e9:
            return co.fake_like(x)
        return modelled(halved)(x)

    return define(halved).register_fake(fake)


@planted("test_faketensor")
def fake_returns_nothing(wrong: bool) -> Any:
    return (
        define(square)
        .register_fake(lambda x: None if wrong else co.fake_like(x))
        .register_sample_inputs(lambda: [(np.ones(3),)])
    )


@planted("test_faketensor")
def fake_returns_data(wrong: bool) -> Any:
    return define(square).register_fake(
        lambda x: np.zeros(x.shape, x.dtype) if wrong else co.fake_like(x)
    )


@planted("test_faketensor")
def fake_is_missing(wrong: bool) -> Any:
    op = define(square)
    return op if wrong else op.register_fake(lambda x: co.fake_like(x))


@planted("test_faketensor")
def fake_of_one_size(wrong: bool) -> Any:
    def padded(x: A) -> A:
        return np.concatenate([x, np.zeros(1, x.dtype)])

    def fake(x):
        if x.ndim != 1:
            raise ValueError("one axis")
        return co.FakeArray((4,) if wrong else (x.shape[0] + 1,), x.dtype)

    op = define(padded).register_fake(fake)
    return op.register_sample_inputs(lambda: [(np.ones(3),), (np.ones(5),)])


@planted("test_faketensor")
def fake_of_another_order(wrong: bool) -> Any:
    def ordered(x: A) -> A:
        return np.array(x, order="F" if wrong else "C")

    op = define(ordered, tags=()).register_fake(
        lambda x: co.FakeArray(x.shape, x.dtype)
    )
    return op.register_sample_inputs(lambda: [(np.ones((2, 3)),)])


@planted("test_faketensor")
def fake_of_other_strides(wrong: bool) -> Any:
    def spaced(x: A) -> A:
        out = np.zeros((*x.shape, 2), x.dtype)[..., 0]
        out[...] = x
        return out

    def fake(x):
        out = co.FakeArray((*x.shape, 2), x.dtype)
        strides = out.strides[:-1]
        return co.FakeArray(x.shape, x.dtype, None if wrong else strides)

    op = define(spaced, tags=co.Tag.needs_exact_strides).register_fake(fake)
    return op.register_sample_inputs(lambda: [(np.ones(3),)])


@planted("test_faketensor")
def fake_of_fewer_items(wrong: bool) -> Any:
    def split(x: A, count: int) -> list[A]:
        return [x + i for i in range(count)]

    def fake(x, count):
        return [co.fake_like(x) for _ in range(count - (1 if wrong else 0))]

    op = define(split).register_fake(fake)
    return op.register_sample_inputs(lambda: [(np.ones(3), 2)])


# ---- sizes ----


@planted("test_sizes")
def size_depends_on_data(wrong: bool) -> Any:
    def positive(x: A) -> A:
        return x[x > 0]

    tags = () if wrong else co.Tag.dynamic_output_shape
    op = define(positive, tags=tags)
    return op.register_sample_inputs(lambda: [(np.array([1.0, -1.0, 2.0]),)])


# ---- kernels ----


@planted("test_kernels_agree")
def default_kernel_differs(wrong: bool) -> Any:
    op = define(square).register_fake(lambda x: co.fake_like(x))
    return op.register_kernel(None, lambda x: x * x * (2 if wrong else 1))


@planted("test_kernels_agree")
def replaced_function_differs(wrong: bool) -> Any:
    op = define(square, device_types=None).register_fake(lambda x: co.fake_like(x))
    return op.register_kernel("cpu", lambda x: x**3 if wrong else x**2)


class Toy:
    """Arrays of another kind, to run kernels of it anywhere."""

    def __init__(self, values: A) -> None:
        self.values = values

    shape = property(lambda self: self.values.shape)
    dtype = property(lambda self: self.values.dtype)
    ndim = property(lambda self: self.values.ndim)
    size = property(lambda self: self.values.size)
    device = "toy"

    def copy(self) -> Toy:
        return Toy(self.values.copy())


@pytest.fixture
def toy(built_in_kinds: None) -> None:
    """The kind of array `toy` is known."""
    co.register_array_type("toy", Toy, from_numpy=Toy, to_numpy=lambda toy: toy.values)


@planted("test_kernels_agree")
def kernel_of_another_kind_differs(wrong: bool) -> Any:
    op = define(square).register_fake(lambda x: co.fake_like(x))
    step = 1 if wrong else 0
    return op.register_kernel("toy", lambda x: Toy(x.values**2 + step))


@planted("test_kernels_agree")
def kernel_of_another_kind_has_another_dtype(wrong: bool) -> Any:
    op = define(square).register_fake(lambda x: co.fake_like(x))
    kind = np.float32 if wrong else None
    return op.register_kernel(
        "toy", lambda x: Toy((x.values**2).astype(kind or x.dtype))
    )


@planted("test_kernels_agree")
def kernel_of_another_kind_raises(wrong: bool) -> Any:
    op = define(square).register_fake(lambda x: co.fake_like(x))
    return op.register_kernel(
        "toy", lambda x: Toy(x.value**2 if wrong else x.values**2)
    )


@planted("test_kernels_agree")
def kernel_of_another_kind_returns_numpy(wrong: bool) -> Any:
    op = define(square).register_fake(lambda x: co.fake_like(x))
    return op.register_kernel(
        "toy", lambda x: x.values**2 if wrong else Toy(x.values**2)
    )


# ---- vmap ----


def with_vmap(rule: Any, fn: Any = None) -> Any:
    """A sum over the last axis, with this vmap rule."""

    def last(x: A) -> A:
        if x.ndim < 1:
            raise ValueError("an axis at least")
        return np.sum(x, -1, dtype=x.dtype)

    op = define(last)
    op.register_fake(lambda x: co.FakeArray(x.shape[:-1], x.dtype))
    return op.register_vmap(lambda info, in_dims, x: rule(op, in_dims, x))


@planted("test_vmap")
def vmap_rule_for_axis_0_alone(wrong: bool) -> Any:
    def rule(op, in_dims, x):
        x = x if wrong else np.moveaxis(x, in_dims[0], 0)
        return op(x), 0

    return with_vmap(rule)


@planted("test_vmap")
def vmap_rule_sums_the_batch(wrong: bool) -> Any:
    def rule(op, in_dims, x):
        if not wrong:
            return op(np.moveaxis(x, in_dims[0], 0)), 0
        return op(x), min(in_dims[0], x.ndim - 2)

    return with_vmap(rule)


@planted("test_vmap")
def vmap_rule_of_wrong_out_dims(wrong: bool) -> Any:
    def squared(x: A) -> A:
        return x * x

    op = define(squared).register_fake(lambda x: co.fake_like(x))
    return op.register_vmap(
        lambda info, in_dims, x: (op(x), 0 if wrong else in_dims[0])
    )


@planted("test_vmap")
def vmap_rule_of_a_product(wrong: bool) -> Any:
    def product(x: A, y: A) -> A:
        if x.ndim < 2 or y.ndim < 2:
            raise ValueError("two axes at least")
        return np.matmul(x, y)

    def fake(x, y):
        return co.FakeArray(
            (np.zeros(x.shape, bool) @ np.zeros(y.shape, bool)).shape,
            np.result_type(x.dtype, y.dtype),
        )

    op = define(product).register_fake(fake)

    def rule(info, in_dims, x, y):
        dx, dy = in_dims
        x = x if dx is None else np.moveaxis(x, dx, 0)
        if wrong:
            return op(x, y), 0
        y = y if dy is None else np.moveaxis(y, dy, 0)
        return op(x, y), 0

    op.register_vmap(rule)
    return op.register_sample_inputs(lambda: [(np.ones((2, 3)), np.ones((3, 2)))])


@planted("test_vmap")
def vmap_rule_centers_the_batch(wrong: bool) -> Any:
    def centered(x: A) -> A:
        if x.dtype != np.float64:
            raise TypeError("float64")
        return x - np.mean(x)

    op = define(centered).register_fake(lambda x: co.fake_like(x))

    def rule(info, in_dims, x):
        (dim,) = in_dims
        axes = tuple(i for i in range(x.ndim) if i != dim)
        return (op(x) if wrong else x - np.mean(x, axes, keepdims=True)), dim

    return op.register_vmap(rule)


@planted("test_vmap")
def vmap_rule_pairs_rows_with_columns(wrong: bool) -> Any:
    def added(x: A, y: A) -> A:
        if x.ndim != 1 or y.shape != x.shape:
            raise ValueError("two of a length")
        return x + y

    op = define(added).register_fake(
        lambda x, y: co.FakeArray(
            np.broadcast_shapes(x.shape, y.shape), np.result_type(x.dtype, y.dtype)
        )
    )

    def rule(info, in_dims, x, y):
        rows = [
            v if d is None else np.moveaxis(v, d, 0)
            for v, d in zip((x, y), in_dims, strict=False)
        ]
        if wrong and None not in in_dims:
            rows[1] = np.flip(rows[1], 0)
        return rows[0] + rows[1], 0

    op.register_vmap(rule)
    return op.register_sample_inputs(lambda: [(np.arange(3.0), np.arange(3.0) + 5)])


@planted("test_vmap")
def vmap_rule_of_a_list(wrong: bool) -> Any:
    def total(arrays: list[A]) -> A:
        if len({x.shape for x in arrays}) > 1:
            raise ValueError("one shape")
        return np.sum(np.stack(arrays), 0)

    op = define(total).register_fake(modelled(total))

    def rule(info, in_dims, arrays):
        rows = [
            np.broadcast_to(x, (info.batch_size, *x.shape))
            if d is None
            else x
            if wrong
            else np.moveaxis(x, d, 0)
            for x, d in zip(arrays, in_dims[0], strict=True)
        ]
        return sum(rows[1:], rows[0]), 0

    op.register_vmap(rule)
    return op.register_sample_inputs(lambda: [([np.ones((2, 3)), np.eye(2, 3)],)])


@planted("test_vmap")
def random_rule_draws_for_each_row(wrong: bool) -> Any:
    def noisy(x: A) -> A:
        return x + np.random.normal(size=x.shape)  # noqa: NPY002

    op = define(noisy, tags=(co.Tag.nondeterministic_seeded, co.Tag.flexible_layout))
    op.register_fake(modelled(noisy))

    def rule(info, in_dims, x):
        rows = np.moveaxis(x, in_dims[0], 0)
        is_same = info.randomness == "same" and not wrong
        shape = rows.shape[1:] if is_same else rows.shape
        return rows + np.random.normal(size=shape), 0  # noqa: NPY002

    return op.register_vmap(rule)


@planted("test_vmap")
def vmap_rule_of_a_matrix_with_a_condition(wrong: bool) -> Any:
    def root(x: A) -> A:
        if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
            raise ValueError("square matrices")
        return np.linalg.cholesky(x)

    op = define(root).register_fake(lambda x: co.FakeArray(x.shape, x.dtype))

    def rule(info, in_dims, x):
        rows = np.moveaxis(x, in_dims[0], 0)
        found = op(rows)
        return np.swapaxes(found, 1, 2) if wrong else found, 0

    op.register_vmap(rule)
    spread = np.array([[2.0, 0.5], [0.5, 1.0]])
    return op.register_sample_inputs(lambda: [(spread,)])


# ---- forward mode ----


def cube(x: A) -> A:
    if x.dtype.kind != "f":
        raise TypeError("floats")
    return x**3


@planted("test_jvp")
def tangent_of_the_other_sign(wrong: bool) -> Any:
    op = define(cube).register_fake(lambda x: co.fake_like(x))
    sign = -1.0 if wrong else 1.0
    return op.register_jvp(lambda p, t: (op(p[0]), sign * 3.0 * p[0] ** 2 * t[0]))


@planted("test_jvp")
def tangent_that_is_no_transpose(wrong: bool) -> Any:
    op = with_gradient(cube, lambda ctx, g: g * 3.0 * ctx.x**2, "x")
    factor = 3.0001 if wrong else 3.0
    return op.register_jvp(lambda p, t: (op(p[0]), factor * p[0] ** 2 * t[0]))


def broadcast(x: Any, y: Any) -> Any:
    """The fake result of a sum or product."""
    return co.FakeArray(
        np.broadcast_shapes(x.shape, y.shape), np.result_type(x.dtype, y.dtype)
    )


@planted("test_jvp")
def tangent_that_may_be_none(wrong: bool) -> Any:
    def product(x: A, y: A) -> A:
        return x * y

    op = define(product).register_fake(broadcast)

    def rule(primals, tangents):
        (x, y), (s, t) = primals, tangents
        if wrong:
            return op(x, y), s * y + x * t
        parts = [a * b for a, b in ((s, y), (x, t)) if a is not None and b is not None]
        return op(x, y), sum(parts[1:], parts[0])

    return op.register_jvp(rule)


@planted("test_jvp")
def tangent_of_one_input_left_out(wrong: bool) -> Any:
    def product(x: A, y: A) -> A:
        return x * y

    op = define(product).register_fake(broadcast)

    def rule(primals, tangents):
        (x, y), (s, t) = primals, tangents
        out = np.zeros(np.broadcast_shapes(x.shape, y.shape))
        out = out if s is None else out + s * y
        return op(x, y), out if wrong or t is None else out + x * t

    return op.register_jvp(rule)


# ---- gradients ----


def with_gradient(fn: Any, backward: Any, *names: str) -> Any:
    """An operator with a formula."""
    op = define(fn).register_fake(modelled(fn))
    return op.register_autograd(backward, setup_context=kept(*names))


@planted("test_gradients")
def missing_factor(wrong: bool) -> Any:
    factor = 2.0 if wrong else 3.0
    return with_gradient(cube, lambda ctx, g: g * factor * ctx.x**2, "x")


@planted("test_gradients")
def missing_chain(wrong: bool) -> Any:
    def bell(x: A, width: float = 2.0) -> A:
        return np.exp(-((x / width) ** 2))

    def backward(ctx, g):
        chain = 1.0 if wrong else ctx.width
        return g * ctx.out * -2.0 * ctx.x / ctx.width / chain, None

    op = with_gradient(bell, backward, "x", "width")
    samples = [(np.array([0.5, 1.5]), 2.0), (np.array([0.5]), 3.0)]
    return op.register_sample_inputs(lambda: samples)


@planted("test_gradients")
def swapped_gradients(wrong: bool) -> Any:
    def product(x: A, y: A) -> A:
        if x.shape != y.shape:
            raise ValueError("one shape")
        return x * y

    def backward(ctx, g):
        return (g * ctx.x, g * ctx.y) if wrong else (g * ctx.y, g * ctx.x)

    return with_gradient(product, backward, "x", "y")


@planted("test_gradients")
def wrong_sum_over_broadcast_axes(wrong: bool) -> Any:
    def added(x: A, bias: A) -> A:
        if x.ndim != 2 or bias.shape != x.shape[1:]:
            raise ValueError("rows and a bias")
        return x + bias

    def backward(ctx, g):
        return g, np.mean(g, 0) if wrong else np.sum(g, 0)

    op = with_gradient(added, backward, "x", "bias")
    return op.register_sample_inputs(lambda: [(np.ones((2, 3)), np.ones(3))])


@planted("test_gradients")
def second_order_is_lost(wrong: bool) -> Any:
    def backward(ctx, g):
        x = co.stop_gradient(ctx.x) if wrong else ctx.x
        return g * 3.0 * x**2

    return with_gradient(cube, backward, "x")


@planted("test_gradients")
def second_order_through_a_wrong_operator(wrong: bool) -> Any:
    slope = define(square).register_fake(lambda x: co.fake_like(x))
    factor = 1.0 if wrong else 2.0
    slope.register_autograd(lambda ctx, g: g * factor * ctx.x, setup_context=kept("x"))
    return with_gradient(cube, lambda ctx, g: g * 3.0 * slope(ctx.x), "x")


@planted("test_gradients")
def not_linear_in_its_cotangent(wrong: bool) -> Any:
    def backward(ctx, g):
        return (abs(g) if wrong else g) * 3.0 * ctx.x**2

    return with_gradient(cube, backward, "x")


@planted("test_gradients")
def conjugate_in_a_complex_gradient(wrong: bool) -> Any:
    def squared(x: A) -> A:
        return x * x

    def backward(ctx, g):
        return g * 2.0 * (np.conjugate(ctx.x) if wrong else ctx.x)

    op = with_gradient(squared, backward, "x")
    return op.register_sample_inputs(lambda: [(np.array([1.0 + 2.0j, -0.5 + 1.0j]),)])


@planted("test_gradients")
def gradients_of_a_list_in_another_order(wrong: bool) -> Any:
    def weighted(arrays: list[A]) -> A:
        if len({x.shape for x in arrays}) > 1:
            raise ValueError("one shape")
        out = arrays[0] * 1.0
        for i, x in enumerate(arrays[1:], 2):
            out = out + i * x
        return out

    def backward(ctx, g):
        found = [g * (i + 1.0) for i in range(len(ctx.arrays))]
        return (found[::-1] if wrong else found,)

    op = with_gradient(weighted, backward, "arrays")
    x = np.array([1.0, 2.0])
    return op.register_sample_inputs(lambda: [([x, x + 1],), ([x, x, x - 1],)])


@planted("test_gradients")
def none_for_an_input_that_has_a_gradient(wrong: bool) -> Any:
    def product(x: A, y: A) -> A:
        return x * y

    def backward(ctx, g):
        return g * ctx.y, None if wrong else g * ctx.x

    return with_gradient(product, backward, "x", "y")


@planted("test_gradients")
def gradient_of_an_optional_array(wrong: bool) -> Any:
    def affine(x: A, bias: A | None = None) -> A:
        return x * 2.0 if bias is None else x * 2.0 + bias

    def backward(ctx, g):
        if ctx.bias is None:
            return g * 2.0, None
        return g * 2.0, -g if wrong else g

    op = with_gradient(affine, backward, "x", "bias")
    x = np.array([1.0, 2.0])
    return op.register_sample_inputs(lambda: [(x,), (x, x + 1)])


@planted("test_gradients")
def gradient_of_a_config_object(wrong: bool) -> Any:
    def windowed(x: A, window: Window) -> A:
        if x.shape != window.taps.shape:
            raise ValueError("one shape")
        return x * window.taps * window.gain

    def backward(ctx, g):
        gain = 1.0 if wrong else ctx.window.gain
        taps = g * ctx.x * gain
        return {"x": g * ctx.window.taps * ctx.window.gain, "window": {"taps": taps}}

    op = with_gradient(windowed, backward, "x", "window")
    x = np.array([1.0, 2.0])
    return op.register_sample_inputs(lambda: [(x, Window(x + 1, 3.0))])


@planted("test_gradients")
def gradient_of_one_of_two_outputs(wrong: bool) -> Any:
    def both(x: A) -> tuple[A, A]:
        return np.sin(x), np.cos(x)

    def backward(ctx, g, h):
        y, z = ctx.out
        return g * z if wrong else g * z - h * y

    return with_gradient(both, backward, "x")


@planted("test_gradients")
def gradient_of_a_reduction(wrong: bool) -> Any:
    def mean(x: A) -> A:
        if x.dtype != np.float64 or not x.size:
            raise TypeError("float64, some")
        return np.mean(x)

    def backward(ctx, g):
        count = 1.0 if wrong else float(ctx.x.size)
        return np.broadcast_to(g / count, ctx.x.shape)

    return with_gradient(mean, backward, "x")


@planted("test_gradients")
def gradient_of_a_product_transposed(wrong: bool) -> Any:
    def product(x: A, y: A) -> A:
        if x.ndim != 2 or y.ndim != 2:
            raise ValueError("matrices")
        return np.matmul(x, y)

    def backward(ctx, g):
        x, y = ctx.x, ctx.y
        return np.matmul(g, y if wrong else y.T), np.matmul(x.T, g)

    op = with_gradient(product, backward, "x", "y")
    x = np.arange(4.0).reshape(2, 2)
    return op.register_sample_inputs(lambda: [(x, x + 1)])


@planted("test_gradients")
def gradient_under_vmap(wrong: bool) -> Any:
    flip = define(square).register_fake(lambda x: co.fake_like(x))

    def times(x: A, y: A) -> A:
        return x * y

    inner = define(times).register_fake(broadcast)
    inner.register_autograd(
        lambda ctx, g: (inner(g, ctx.y), inner(g, ctx.x)), setup_context=kept("x", "y")
    )

    def rule(info, in_dims, x, y):
        rows = [
            v if d is None else np.moveaxis(v, d, 0)
            for v, d in zip((x, y), in_dims, strict=False)
        ]
        if wrong and in_dims[1] is None:
            rows[0] = np.flip(rows[0], 0)
        return rows[0] * rows[1], 0

    inner.register_vmap(rule)
    del flip
    return with_gradient(cube, lambda ctx, g: inner(g, 3.0 * ctx.x**2), "x")


# ---- layouts ----


@planted("test_layouts")
def memory_read_as_contiguous(wrong: bool) -> Any:
    def doubled(x: A) -> A:
        if x.dtype != np.float64:
            raise TypeError("float64")
        out = np.empty(x.shape)
        x = x if wrong else np.ascontiguousarray(x)
        ctypes.memmove(out.ctypes.data, x.ctypes.data, x.nbytes)
        return out * 2

    return define(doubled).register_fake(lambda x: co.FakeArray(x.shape, np.float64))


@planted("test_layouts")
def first_stride_alone(wrong: bool) -> Any:
    def copied(x: A) -> A:
        if x.ndim != 2 or x.dtype != np.float64:
            raise TypeError("a matrix of float64")
        if wrong:
            step = x.strides[0]
            rows = [
                np.frombuffer(
                    ctypes.string_at(x.ctypes.data + i * step, 8 * x.shape[1])
                )
                for i in range(x.shape[0])
            ]
            return np.array(rows).reshape(x.shape)
        return x.copy(order="C")

    return define(copied).register_fake(lambda x: co.FakeArray(x.shape, np.float64))


@planted("test_layouts")
def elements_in_memory_order(wrong: bool) -> Any:
    def flat(x: A) -> A:
        return x.flatten("K" if wrong else "C")

    op = define(flat).register_fake(lambda x: co.FakeArray((x.size,), x.dtype))
    return op.register_sample_inputs(lambda: [(np.arange(6.0).reshape(2, 3),)])


@planted("test_layouts")
def axes_of_arrays_without_axes(wrong: bool) -> Any:
    def at_least(x: A) -> A:
        return np.atleast_1d(x) + 0 if wrong else x + 0

    op = define(at_least).register_fake(lambda x: co.fake_like(x))
    return op.register_sample_inputs(lambda: [(np.ones(3),)])


@planted("test_layouts")
def result_of_an_empty_array(wrong: bool) -> Any:
    def greatest(x: A) -> A:
        if x.dtype != np.float64 or x.ndim != 1:
            raise TypeError("float64")
        if not x.size:
            return np.zeros(0) if wrong else np.float64(-np.inf)
        return np.max(x)

    def fake(x):
        if x.ndim != 1:
            raise ValueError("one axis")
        return co.FakeArray((), np.float64)

    op = define(greatest).register_fake(fake)
    return op.register_sample_inputs(lambda: [(np.arange(3.0),)])


# ---- dtypes ----


@planted("test_dtypes")
def memory_read_as_doubles(wrong: bool) -> Any:
    def first(x: A) -> A:
        if not wrong and x.dtype != np.float64:
            raise TypeError("float64")
        raw = np.ascontiguousarray(x).tobytes()
        count = len(raw) // 8
        out = np.zeros(x.shape, x.dtype)
        out.reshape(-1)[:count] = np.frombuffer(raw, np.float64, count)[: out.size]
        return out

    return define(first).register_fake(lambda x: co.FakeArray(x.shape, x.dtype))


@planted("test_dtypes")
def fake_of_short_floats(wrong: bool) -> Any:
    def widened(x: A) -> A:
        return x.astype(np.float64) * 2

    fake = lambda x: co.fake_like(x, dtype=None if wrong else np.float64)
    return define(widened).register_fake(fake)


@planted("test_dtypes")
def short_floats_cut_off(wrong: bool) -> Any:
    def halved(x: A) -> A:
        if not wrong and x.dtype != np.float64:
            raise TypeError("float64")
        whole = x if x.dtype == np.float64 else x.astype(np.int64)
        return (whole * 5).astype(x.dtype)

    return define(halved).register_fake(lambda x: co.fake_like(x))


# ---- determinism ----


@planted("test_determinism")
def random_and_untagged(wrong: bool) -> Any:
    def noisy(x: A) -> A:
        noise = np.random.default_rng(None if wrong else 0).normal(size=x.shape)
        return x * 1.0 + noise

    return define(noisy).register_fake(modelled(noisy))


@planted("test_determinism")
def memory_never_filled(wrong: bool) -> Any:
    def shifted(x: A) -> A:
        if x.ndim != 1 or x.dtype != np.float64 or not x.size:
            raise TypeError("some float64")
        out = np.empty(x.shape)
        out[1:] = x[:-1]
        if not wrong:
            out[0] = 0.0
        return out

    def fake(x):
        if x.ndim != 1:
            raise ValueError("one axis")
        return co.FakeArray(x.shape, np.float64)

    return define(shifted).register_fake(fake)


@planted("test_determinism")
def one_buffer_for_all_results(wrong: bool) -> Any:
    memory: dict[Any, A] = {}

    def doubled(x: A) -> A:
        out = memory.setdefault((x.shape, x.dtype), np.zeros(x.shape, x.dtype))
        np.add(x, x, out=out)
        return out if wrong else x + x

    return define(doubled).register_fake(lambda x: co.FakeArray(x.shape, x.dtype))


@planted("test_determinism")
def calls_are_counted(wrong: bool) -> Any:
    calls = [0]

    def counted(x: A) -> A:
        calls[0] += 1
        return x * 1.0 + (calls[0] if wrong else 0)

    return define(counted).register_fake(modelled(counted))


@planted("test_determinism")
def last_input_is_remembered(wrong: bool) -> Any:
    state: dict[str, Any] = {"last": 0.0}

    def smoothed(x: A) -> A:
        before = state["last"] if wrong else 0.0
        state["last"] = float(np.sum(x * np.arange(1.0, x.size + 1).reshape(x.shape)))
        return x * 1.0 + before * (state["last"] != before)

    return define(smoothed).register_fake(modelled(smoothed))


@planted("test_determinism")
def list_of_another_length(wrong: bool) -> Any:
    calls = itertools.count()

    def parts(x: A) -> list[A]:
        return [x + 0 for _ in range(1 + (next(calls) % 2 if wrong else 0))]

    return define(parts).register_fake(lambda x: [co.fake_like(x)])


@planted("test_determinism")
def word_that_changes(wrong: bool) -> Any:
    calls = itertools.count()

    def parity(x: A) -> tuple[A, str]:
        return x + 0, "odd" if wrong and next(calls) % 2 else "even"

    return define(parity).register_fake(lambda x: (co.fake_like(x), "even"))


# ---- out variants ----


def with_variant(suffix: str, variant: Any, tag: Any, written: str) -> Any:
    """A square, and an operator that is named as its variant."""
    name = f"planted::squared{next(_numbers)}"
    op = co.custom_op(name, square, mutates_args=())
    op.register_fake(lambda x: co.fake_like(x))
    co.custom_op(f"{name}{suffix}", variant, mutates_args=(written,), tags=tag)
    return op


@planted("test_out_variant")
def out_variant_differs(wrong: bool) -> Any:
    def square_out(x: A, *, out: A) -> A:
        np.multiply(x, x + 1 if wrong else x, out=out)
        return out

    return with_variant("_out", square_out, co.Tag.out, "out")


@planted("test_out_variant")
def out_overload_differs(wrong: bool) -> Any:
    def square_out(x: A, *, out: A) -> A:
        np.multiply(x, x + 1 if wrong else x, out=out)
        return out

    return with_variant(".out", square_out, co.Tag.out, "out")


@planted("test_out_variant")
def inplace_variant_differs(wrong: bool) -> Any:
    def square_(x: A) -> A:
        x *= 2 if wrong else x.copy()
        return x

    return with_variant("_", square_, co.Tag.inplace, "x")


@planted("test_out_variant")
def out_is_added_to(wrong: bool) -> Any:
    def square_out(x: A, *, out: A) -> A:
        if x.shape != out.shape or x.dtype != out.dtype:
            raise ValueError("alike")
        if not wrong:
            out[...] = 0
        out += x * x
        return out

    return define(square_out, ("out",), tags=co.Tag.out)


# ---- pickling ----


@dataclass(frozen=True)
class Forgetful:
    """A config object whose pickle forgets a field."""

    gain: float = 3.0

    def __reduce__(self) -> Any:
        return (Forgetful, ())


@dataclass(frozen=True)
class Faithful:
    """A config object that pickles as it is."""

    gain: float = 3.0


@planted("test_pickle")
def config_object_forgets(wrong: bool) -> Any:
    def amplified(x: A, how: Forgetful) -> A:
        return x * 1.0 * how.gain

    def amplified_well(x: A, how: Faithful) -> A:
        return x * 1.0 * how.gain

    op = define(amplified if wrong else amplified_well)
    cls = Forgetful if wrong else Faithful
    op.register_fake(modelled(op.__wrapped__))
    return op.register_sample_inputs(lambda: [(np.ones(2), cls(5.0))])


@dataclass(frozen=True)
class Shy:
    """A config object that does not pickle."""

    gain: float = 3.0

    def __reduce__(self) -> Any:
        raise TypeError("not from here")


@planted("test_pickle")
def config_object_does_not_pickle(wrong: bool) -> Any:
    def louder(x: A, how: Shy) -> A:
        return x * 1.0 * how.gain

    def louder_well(x: A, how: Faithful) -> A:
        return x * 1.0 * how.gain

    op = define(louder if wrong else louder_well)
    op.register_fake(modelled(op.__wrapped__))
    cls = Shy if wrong else Faithful
    return op.register_sample_inputs(lambda: [(np.ones(2), cls(5.0))])


# ---- threads ----


@planted("test_threads")
def shared_scratch_memory(wrong: bool) -> Any:
    shared: dict[Any, A] = {}
    local = threading.local()

    def scaled(x: A) -> A:
        memory = shared if wrong else vars(local)
        scratch = memory.setdefault(str((x.shape, x.dtype)), np.empty(x.shape, x.dtype))
        np.add(x, x, out=scratch)
        return scratch.copy()

    op = define(scaled)
    return op.register_fake(lambda x: co.FakeArray(x.shape, x.dtype))


@planted("test_threads")
def state_behind_a_lock(wrong: bool) -> Any:
    state: dict[str, Any] = {}
    lock = threading.Lock()

    def scaled(x: A) -> A:
        if wrong:
            state["x"] = x
            return state["x"] * 2
        with lock:
            state["x"] = x
            return state["x"] * 2

    op = define(scaled)
    return op.register_fake(lambda x: co.fake_like(x))


# What is said first of each fault, by its name and the check that finds it.
SAYS = {
    ("undeclared_write", "test_schema"): "the 'cpu' kernel writes argument 'x'",
    (
        "undeclared_write",
        "test_mutation",
    ): "writes argument 'x', that mutates_args=() does not name",
    (
        "returned_input",
        "test_schema",
    ): "returns output 0 that shares memory with argument 'x', which its schema does not say",
    (
        "undeclared_view",
        "test_schema",
    ): "returns output 0 that shares memory with argument 'x', which its schema does not say",
    (
        "one_array_twice",
        "test_schema",
    ): "returns output 1 that shares memory with output 0, which its schema does not say",
    (
        "halves_of_one_buffer",
        "test_schema",
    ): "returns output 1 that shares memory with output 0, which its schema does not say",
    (
        "three_for_two",
        "test_schema",
    ): "the 'cpu' kernel returns 3 items, must return a tuple of 2",
    (
        "float_for_array",
        "test_schema",
    ): "the 'cpu' kernel returns output 0 as float 1.4, must be an array",
    (
        "declared_view_is_copy",
        "test_schema",
    ): "never returns a view of argument 'x' as output 0, though its schema says so (Array(a))",
    (
        "inplace_returns_copy",
        "test_schema",
    ): "the 'cpu' kernel returns output 0 that is not its argument 'x' itself",
    (
        "softmax_is_not_pointwise",
        "test_schema",
    ): "the output differs between half of axis -1 alone and within the whole, which Tag.pointwise excludes: 1 of 1 elements (100.0 %) are not close",
    (
        "softmax_is_not_pointwise",
        "test_vmap",
    ): "the output differs between row 0 under vmap with in_dims=(0) and that row alone: 1 of 1 elements (100.0 %) are not close",
    (
        "cumulative_is_not_pointwise",
        "test_schema",
    ): "the output differs between half of axis -1 alone and within the whole, which Tag.pointwise excludes: 1 of 1 elements (100.0 %) are not close",
    (
        "keepdims_is_forgotten",
        "test_schema",
    ): "returns the shape () as output 0, where Tag.reduction promises (1,)",
    (
        "written_equal",
        "test_mutation",
    ): "writes argument 'x', that mutates_args=() does not name",
    (
        "written_past_the_flag",
        "test_mutation",
    ): "writes argument 'x', that mutates_args=() does not name",
    (
        "declared_and_never_written",
        "test_mutation",
    ): "never writes argument 'x', which mutates_args names",
    (
        "one_of_two_written",
        "test_mutation",
    ): "never writes argument 'y', which mutates_args names",
    (
        "item_of_a_list_written",
        "test_mutation",
    ): "writes argument 'arrays', that mutates_args=() does not name",
    (
        "array_of_a_config_object_written",
        "test_mutation",
    ): "writes argument 'window', that mutates_args=() does not name",
    (
        "optional_array_written",
        "test_mutation",
    ): "writes argument 'weight', that mutates_args=() does not name",
    (
        "kernel_returns_a_variable",
        "test_autograd_registration",
    ): "returns the output as a value that a transform follows, from plain arrays: its kernel uses variables or tracers of others",
    (
        "needs_input_grad_misread",
        "test_autograd_registration",
    ): "the gradient by x differs between where it alone needs one and where all do: 1 of 1 elements (100.0 %) are not close",
    (
        "too_few_gradients",
        "test_autograd_registration",
    ): "backward returned 1 gradients, must return 2: x, y",
    (
        "gradient_of_another_shape",
        "test_autograd_registration",
    ): "backward returned a gradient of shape (7,) for 'x' of shape (2,)",
    (
        "gradient_reads_data",
        "test_autograd_registration",
    ): "raises ValueError: can only convert an array of size 1 to a Python scalar",
    (
        "fake_of_another_shape",
        "test_faketensor",
    ): "the 'cpu' kernel returns f64[2, 1] with strides (8, 8) on cpu as output 0, its fake kernel f64[1, 2] with strides (16, 8) on cpu",
    (
        "fake_of_another_dtype",
        "test_faketensor",
    ): "the 'cpu' kernel returns bool[] with strides () on cpu as output 0, its fake kernel f64[] with strides () on cpu",
    (
        "fake_returns_its_input",
        "test_faketensor",
    ): "has a fake kernel that returns its input itself as the output",
    (
        "fake_reads_data",
        "test_faketensor",
    ): "has a fake kernel that reads data: bool() of FakeArray bool[], which has no data",
    (
        "fake_returns_nothing",
        "test_faketensor",
    ): "the 'fake' kernel returns output 0 as None, must be an array",
    (
        "fake_returns_data",
        "test_faketensor",
    ): "has a fake kernel that returns an array with data as the output",
    ("fake_is_missing", "test_faketensor"): "has no fake kernel",
    (
        "fake_of_one_size",
        "test_faketensor",
    ): "the 'cpu' kernel returns f64[2] with strides (8,) on cpu as output 0, its fake kernel f64[4] with strides (8,) on cpu",
    (
        "fake_of_another_order",
        "test_faketensor",
    ): "the 'cpu' kernel returns f64[2, 2] with strides (8, 16) on cpu as output 0, its fake kernel f64[2, 2] with strides (16, 8) on cpu",
    (
        "fake_of_other_strides",
        "test_faketensor",
    ): "the 'cpu' kernel returns f64[2] with strides (16,) on cpu as output 0, its fake kernel f64[2] with strides (8,) on cpu",
    (
        "fake_of_fewer_items",
        "test_faketensor",
    ): "the 'cpu' kernel returns [array] as output 0, its fake kernel []",
    (
        "size_depends_on_data",
        "test_sizes",
    ): "returns the shapes [(1,)] and [(2,)] for arguments of the same shapes and other values",
    (
        "default_kernel_differs",
        "test_kernels_agree",
    ): "the output differs between the default kernel and the 'cpu' kernel: 1 of 1 elements (100.0 %) are not close",
    (
        "replaced_function_differs",
        "test_kernels_agree",
    ): "the output differs between the default kernel and the 'cpu' kernel: 1 of 1 elements (100.0 %) are not close",
    (
        "kernel_of_another_kind_differs",
        "test_kernels_agree",
    ): "the output differs between the 'toy' and the 'cpu' kernel: 1 of 1 elements (100.0 %) are not close",
    (
        "kernel_of_another_kind_has_another_dtype",
        "test_kernels_agree",
    ): "the output differs between the 'toy' and the 'cpu' kernel: dtypes float32 and float64 differ",
    (
        "kernel_of_another_kind_raises",
        "test_kernels_agree",
    ): "raises AttributeError: 'Toy' object has no attribute 'value'",
    (
        "kernel_of_another_kind_returns_numpy",
        "test_kernels_agree",
    ): "returns the output of the kind 'numpy scalar' from the 'toy' kernel",
    (
        "vmap_rule_for_axis_0_alone",
        "test_vmap",
    ): "the vmap rule returned an output of shape (1,) with out_dims=0, but the batch has 2 rows",
    (
        "vmap_rule_sums_the_batch",
        "test_vmap",
    ): "the vmap rule returned an output of shape (1,) with out_dims=0, but the batch has 2 rows",
    (
        "vmap_rule_of_wrong_out_dims",
        "test_vmap",
    ): "the vmap rule returned an output of shape (1, 2) with out_dims=0, but the batch has 2 rows",
    (
        "vmap_rule_of_a_product",
        "test_vmap",
    ): "raises ValueError under vmap with in_dims=(0, 1), and not for each row alone: matmul: Input operand 1 has a mismatch in its core dimension 0, with gufunc signature (n?,k),(k,m?)->(n?,m?) (size 2 is different from 1)",
    (
        "vmap_rule_centers_the_batch",
        "test_vmap",
    ): "the output differs between row 0 under vmap with in_dims=(0) and that row alone: 1 of 1 elements (100.0 %) are not close",
    (
        "vmap_rule_pairs_rows_with_columns",
        "test_vmap",
    ): "the output differs between row 0 under vmap with in_dims=(0, 0) and that row alone: 1 of 1 elements (100.0 %) are not close",
    (
        "vmap_rule_of_a_list",
        "test_vmap",
    ): "the output differs between row 0 under vmap with in_dims=(1) and that row alone: 1 of 2 elements (50.0 %) are not close",
    (
        "random_rule_draws_for_each_row",
        "test_vmap",
    ): "output 0 differs between rows of equal values with randomness='same': 1 of 1 elements (100.0 %) are not close",
    (
        "vmap_rule_of_a_matrix_with_a_condition",
        "test_vmap",
    ): "the output differs between row 0 under vmap with in_dims=(0) and that row alone: 2 of 4 elements (50.0 %) are not close",
    (
        "tangent_of_the_other_sign",
        "test_jvp",
    ): "has a wrong tangent of output 0 along x",
    (
        "tangent_that_is_no_transpose",
        "test_jvp",
    ): "has a jvp rule that is not the transpose of its autograd formula",
    (
        "tangent_that_may_be_none",
        "test_jvp",
    ): "raises TypeError: unsupported operand type(s) for *: 'float' and 'NoneType'",
    (
        "tangent_of_one_input_left_out",
        "test_jvp",
    ): "has a wrong tangent of output 0 along x, y",
    ("missing_factor", "test_gradients"): "has a wrong gradient, in 1 of 1 derivatives",
    ("missing_chain", "test_gradients"): "has a wrong gradient, in 1 of 1 derivatives",
    (
        "swapped_gradients",
        "test_gradients",
    ): "has a wrong gradient, in 2 of 2 derivatives",
    (
        "wrong_sum_over_broadcast_axes",
        "test_gradients",
    ): "has a wrong gradient, in 2 of 6 derivatives",
    (
        "second_order_is_lost",
        "test_gradients",
    ): "has a wrong second gradient, in 1 of 2 derivatives",
    (
        "second_order_through_a_wrong_operator",
        "test_gradients",
    ): "has a wrong second gradient, in 1 of 2 derivatives",
    (
        "not_linear_in_its_cotangent",
        "test_gradients",
    ): "has a gradient that is not linear in its cotangent",
    (
        "conjugate_in_a_complex_gradient",
        "test_gradients",
    ): "has a wrong gradient, in 2 of 4 derivatives",
    (
        "gradients_of_a_list_in_another_order",
        "test_gradients",
    ): "has a wrong gradient, in 2 of 2 derivatives",
    (
        "none_for_an_input_that_has_a_gradient",
        "test_gradients",
    ): "has a wrong gradient, in 1 of 2 derivatives",
    (
        "gradient_of_an_optional_array",
        "test_gradients",
    ): "has a wrong gradient, in 1 of 2 derivatives",
    (
        "gradient_of_a_config_object",
        "test_gradients",
    ): "has a wrong gradient, in 1 of 2 derivatives",
    (
        "gradient_of_one_of_two_outputs",
        "test_gradients",
    ): "has a wrong gradient, in 1 of 2 derivatives",
    (
        "gradient_of_a_reduction",
        "test_gradients",
    ): "has a wrong gradient, in 2 of 2 derivatives",
    (
        "gradient_of_a_product_transposed",
        "test_gradients",
    ): "has a wrong gradient, in 2 of 12 derivatives",
    (
        "gradient_under_vmap",
        "test_gradients",
    ): "has a gradient that vmap gets wrong",
    (
        "memory_read_as_contiguous",
        "test_layouts",
    ): "the output differs between non-contiguous of 'x' and C order: 1 of 2 elements (50.0 %) are not close",
    (
        "first_stride_alone",
        "test_layouts",
    ): "the output differs between non-contiguous of 'x' and C order: 1 of 2 elements (50.0 %) are not close",
    (
        "elements_in_memory_order",
        "test_layouts",
    ): "the output differs between Fortran order of 'x' and C order: 2 of 4 elements (50.0 %) are not close",
    (
        "axes_of_arrays_without_axes",
        "test_layouts",
    ): "the 'cpu' kernel returns f64[1] with strides (8,) on cpu as output 0, its fake kernel f64[] with strides () on cpu",
    (
        "result_of_an_empty_array",
        "test_layouts",
    ): "the 'cpu' kernel returns f64[0] with strides (0,) on cpu as output 0, its fake kernel f64[] with strides () on cpu",
    (
        "memory_read_as_doubles",
        "test_dtypes",
    ): "the output has other values for float32 in all arrays than for the same numbers as float64",
    (
        "fake_of_short_floats",
        "test_dtypes",
    ): "the 'cpu' kernel returns f64[] with strides () on cpu as output 0, its fake kernel f32[] with strides () on cpu",
    (
        "short_floats_cut_off",
        "test_dtypes",
    ): "the output has other values for float32 in all arrays than for the same numbers as float64",
    (
        "random_and_untagged",
        "test_determinism",
    ): "the output differs between two calls on equal inputs: 1 of 1 elements (100.0 %) are not close",
    (
        "memory_never_filled",
        "test_determinism",
    ): "the output differs between two calls on equal inputs: 1 of 1 elements (100.0 %) are not close",
    (
        "one_buffer_for_all_results",
        "test_determinism",
    ): "returns the output in memory that a later call uses again",
    (
        "calls_are_counted",
        "test_determinism",
    ): "the output differs between two calls on equal inputs: 1 of 1 elements (100.0 %) are not close",
    (
        "last_input_is_remembered",
        "test_determinism",
    ): "the output differs after a call on other inputs: 1 of 1 elements (100.0 %) are not close",
    (
        "list_of_another_length",
        "test_determinism",
    ): "gives 1 and 2 results between two calls on equal inputs",
    (
        "word_that_changes",
        "test_determinism",
    ): "output 1 differs between two calls on equal inputs: 'even' and 'odd'",
    (
        "out_variant_differs",
        "test_out_variant",
    ): "output 0 differs between planted::squared_out and planted::squared: 1 of 1 elements (100.0 %) are not close",
    (
        "out_overload_differs",
        "test_out_variant",
    ): "output 0 differs between planted::squared.out and planted::squared: 1 of 1 elements (100.0 %) are not close",
    (
        "inplace_variant_differs",
        "test_out_variant",
    ): "output 0 differs between planted::squared_ and planted::squared: 1 of 1 elements (100.0 %) are not close",
    (
        "out_is_added_to",
        "test_out_variant",
    ): "the output differs between 'out' filled with 0 and with 1 before the call: 1 of 1 elements (100.0 %) are not close",
    (
        "config_object_forgets",
        "test_pickle",
    ): "takes Forgetful, whose field 'gain' is another after pickle",
    (
        "config_object_does_not_pickle",
        "test_pickle",
    ): "Shy does not pickle: not from here",
    (
        "shared_scratch_memory",
        "test_threads",
    ): "the output differs between a call alone and one beside a call in another thread: 1 of 1 elements (100.0 %) are not close",
    (
        "state_behind_a_lock",
        "test_threads",
    ): "the output differs between a call alone and one beside a call in another thread: 1 of 1 elements (100.0 %) are not close",
}

# ---- the tests ----


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.build.__name__)
def test_fault_is_found(row: Row) -> None:
    """The check that is there for it finds a planted fault without being given inputs.

    And says what it is.
    """
    found = opcheck(row.build(True), raise_exception=False)
    assert set(row.checks) <= set(found.failed), found
    for check in row.checks:
        said = found[check].what.partition(f": {check}: ")[2]
        said = re.sub(r"planted::([a-z]+)\d+", r"planted::\1", said)
        assert said == SAYS[row.build.__name__, check]
    for check in row.checks:
        said = found[check].what.partition(f": {check}: ")[2]
        said = re.sub(r"planted::([a-z]+)\d+", r"planted::\1", said)
        assert said == SAYS[row.build.__name__, check]


@pytest.mark.usefixtures("toy")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.build.__name__)
def test_twin_passes(row: Row) -> None:
    """An operator without the fault passes every check."""
    found = opcheck(row.build(False), raise_exception=False)
    assert found.failed == [], "\n".join(str(found[name]) for name in found.failed)


def test_table_is_long() -> None:
    """There are as many faults as was promised."""
    assert len(ROWS) >= 40
