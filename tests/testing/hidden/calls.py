"""Operators that are wrong in calls that are rarely made."""

from __future__ import annotations

from typing import Any

import numpy as np

import customop as co
from tests.testing.planted import POINTWISE, define, kept, modeled

from . import A, hidden, not_found


@hidden
def same_array_twice(wrong: bool) -> Any:
    def less(x: A, y: A) -> A:
        if wrong and np.may_share_memory(x, y):
            return x * 1.0
        return np.asarray(x - y)

    return define(less, tags=POINTWISE).register_fake(modeled(less))


@hidden
def scratch_in_the_first_argument(wrong: bool) -> Any:
    def powers(x: A, y: A) -> A:
        if x.dtype.kind != "f" or x.dtype != y.dtype or x.shape != y.shape:
            raise TypeError("floats of one dtype and shape")
        if not wrong or not x.flags.writeable or x is not y:
            return x * x + y
        return x * x + 0 * y

    return define(powers).register_fake(lambda x, y: co.fake_like(x))


@hidden
def gradient_of_the_same_array_twice(wrong: bool) -> Any:
    def multiplied(x: A, y: A) -> A:
        return np.asarray(x * y)

    def setup(ctx, inputs, output):
        ctx.x, ctx.y = inputs
        ctx.is_one = inputs[0] is inputs[1]

    def backward(ctx, g):
        if wrong and ctx.is_one:
            return g * ctx.y, None
        return g * ctx.y, g * ctx.x

    op = define(multiplied, tags=POINTWISE).register_fake(modeled(multiplied))
    return op.register_autograd(backward, setup_context=setup)


@hidden
def two_axes_at_once(wrong: bool) -> Any:
    def total(x: A, axes: list[int]) -> A:
        return np.asarray(np.sum(x, axis=tuple(axes), dtype=x.dtype, keepdims=True))

    def backward(ctx, g):
        factor = 2 if wrong and len(ctx.axes) == 2 and ctx.x.ndim == 3 else 1
        return g * np.full(ctx.x.shape, factor, ctx.x.dtype), None

    op = define(total).register_fake(modeled(total))
    return op.register_autograd(backward, setup_context=kept("x", "axes"))


@hidden
def permutation_of_three_axes(wrong: bool) -> Any:
    def permuted(x: A, axes: list[int]) -> A:
        return np.transpose(x, axes).copy()

    def backward(ctx, g):
        back = list(ctx.axes) if wrong else [int(i) for i in np.argsort(ctx.axes)]
        return np.transpose(g, back), None

    def fake(x, axes):
        if sorted(axes) != list(range(len(x.shape))):
            raise ValueError("a permutation")
        return co.FakeArray([x.shape[i] for i in axes], x.dtype)

    op = define(permuted).register_fake(fake)
    return op.register_autograd(backward, setup_context=kept("x", "axes"))


@not_found("a right operator may return the dtype of its first array, too")
def mixed_dtypes_in_one_list(wrong: bool) -> Any:
    def joined(arrays: list[A]) -> A:
        if not arrays or {x.ndim for x in arrays} != {1}:
            raise ValueError("vectors")
        if any(x.dtype.kind not in "fiu" for x in arrays):
            raise TypeError("numbers")
        dtype = arrays[0].dtype if wrong else np.result_type(*arrays)
        return np.concatenate(arrays, dtype=dtype, casting="unsafe")

    def fake(arrays):
        if not arrays or {len(x.shape) for x in arrays} != {1}:
            raise ValueError("vectors")
        dtype = arrays[0].dtype if wrong else np.result_type(*[x.dtype for x in arrays])
        return co.FakeArray((sum(x.shape[0] for x in arrays),), dtype)

    return define(joined).register_fake(fake)


@hidden
def none_among_the_gradients(wrong: bool) -> Any:
    def both(x: A) -> tuple[A, A]:
        return x * 2.0, x * 3.0

    def setup(ctx, inputs, output):
        ctx.set_materialize_grads(False)

    def backward(ctx, g, h):
        if wrong:
            return g * 2.0 if h is None else h * 3.0 if g is None else g * 2.0 + h * 3.0
        parts = [s * v for s, v in ((2.0, g), (3.0, h)) if v is not None]
        return sum(parts[1:], parts[0]) if parts else None

    def wrong_backward(ctx, g, h):
        if h is None:
            return g * 1.0
        return backward(ctx, g, h)

    op = define(both).register_fake(modeled(both))
    return op.register_autograd(
        wrong_backward if wrong else backward, setup_context=setup
    )


@hidden
def random_rows_are_equal(wrong: bool) -> Any:
    def noisy(x: A, rng: np.random.Generator) -> A:
        if x.dtype.kind != "f":
            raise TypeError("floats")
        return (x + rng.normal(size=x.shape)).astype(float)

    op = define(noisy, tags=co.Tag.nondeterministic_seeded)
    op.register_fake(lambda x, rng: co.FakeArray(x.shape, np.float64))

    def rule(info, in_dims, x, rng):
        rows = np.moveaxis(x, in_dims[0], 0)
        if info.randomness == "error":
            raise co.VmapError("draws random numbers")
        if wrong or info.randomness == "same":
            return rows + rng.normal(size=rows.shape[1:]), 0
        return rows + rng.normal(size=rows.shape), 0

    return op.register_vmap(rule)


@hidden
def generator_is_ignored(wrong: bool) -> Any:
    def noisy(x: A, rng: np.random.Generator) -> A:
        rng = np.random.default_rng(3) if wrong else rng
        if x.dtype.kind != "f":
            raise TypeError("floats")
        return (x + rng.normal(size=x.shape)).astype(float)

    op = define(noisy, tags=co.Tag.nondeterministic_seeded)
    return op.register_fake(lambda x, rng: co.FakeArray(x.shape, np.float64))


@hidden
def flag_that_is_off(wrong: bool) -> Any:
    def scaled(x: A, inverse: bool = False) -> A:
        return x / 4.0 if inverse else x * 4.0

    def backward(ctx, g):
        return g * (4.0 if wrong or not ctx.inverse else 0.25), None

    op = define(scaled, tags=POINTWISE).register_fake(modeled(scaled))
    return op.register_autograd(backward, setup_context=kept("x", "inverse"))


@hidden
def optional_array_that_is_given(wrong: bool) -> Any:
    def weighted(x: A, w: A | None = None) -> A:
        return np.asarray(x * 1.0 if w is None else x * w)

    def backward(ctx, g):
        if ctx.w is None:
            return g * 1.0, None
        return g * ctx.w, g * (1.0 if wrong else ctx.x)

    op = define(weighted, tags=POINTWISE).register_fake(modeled(weighted))
    return op.register_autograd(backward, setup_context=kept("x", "w"))


@hidden
def sizes_that_depend_on_data(wrong: bool) -> Any:
    def halves(x: A) -> tuple[A, A]:
        if x.ndim != 1 or x.dtype != np.bool_:
            raise TypeError("a vector of bool")
        return np.flatnonzero(x), np.flatnonzero(~x)

    def fake(x):
        if len(x.shape) != 1 or x.dtype != np.bool_:
            raise TypeError("a vector of bool")
        size = co.get_ctx().new_dynamic_size()
        rest = size - 1 if wrong else x.shape[0] - size
        return co.FakeArray((size,), np.int64), co.FakeArray((rest,), np.int64)

    return define(halves).register_fake(fake)


@hidden
def size_is_the_largest_index(wrong: bool) -> Any:
    def counts(index: A) -> A:
        if index.ndim != 1 or index.dtype != np.int64 or index.size == 0:
            raise TypeError("a vector of int64")
        if index.min() < 0:
            raise ValueError("not negative")
        length = index.max() + 1 if wrong else 4
        return np.bincount(index % 4 if not wrong else index, minlength=length)

    return define(counts).register_fake(
        lambda index: co.FakeArray((4,) if not wrong else (index.shape[0],), np.int64)
    )


@hidden
def size_of_distinct_numbers(wrong: bool) -> Any:
    def distinct(x: A) -> tuple[A, A]:
        if x.ndim != 1 or x.dtype.kind != "f":
            raise TypeError("a vector of floats")
        return np.unique(x, return_counts=True)

    def fake(x):
        if len(x.shape) != 1 or x.dtype.kind != "f":
            raise TypeError("a vector of floats")
        size = co.get_ctx().new_dynamic_size()
        counts = co.FakeArray((x.shape[0] if wrong else size,), np.int64)
        return co.fake_like(x, shape=(size,)), counts

    return define(distinct).register_fake(fake)


@hidden
def counts_that_sum_to_the_length(wrong: bool) -> Any:
    def spread(x: A, counts: A) -> A:
        if x.ndim != 1 or counts.shape != x.shape or counts.dtype != np.int64:
            raise TypeError("two vectors of one length, the second of int64")
        if counts.size and (counts.min() < 0 or counts.max() > x.size):
            raise ValueError("counts from 0 to the length")
        return np.repeat(x, counts)

    def fake(x: Any, counts: Any) -> Any:
        size = x.shape[0] if wrong else co.get_ctx().new_dynamic_size()
        return co.fake_like(x, shape=(size,))

    return define(spread).register_fake(fake)
