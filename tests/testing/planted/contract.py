"""Operators that break their schema, write undeclared arguments, or return from out."""

from __future__ import annotations

from typing import Any

import numpy as np

import customop as co

from . import POINTWISE, A, Window, define, modeled, numbers, planted, square

# ---- schema ----


@planted(
    test_schema="the 'cpu' kernel writes argument 'x'",
    test_mutation="writes argument 'x', which mutates_args=() does not name",
)
def undeclared_write(wrong: bool) -> Any:
    def shift(x: A) -> A:
        y = x if wrong else x.copy()
        y += 1
        return y.copy()

    return define(shift).register_fake(modeled(shift))


@planted(
    test_schema="returns output 0 that shares memory with argument 'x', which its schema does not say",
)
def returned_input(wrong: bool) -> Any:
    def same(x: A) -> A:
        return x if wrong else x.copy()

    return define(same).register_fake(lambda x: co.fake_like(x))


@planted(
    test_schema="returns output 0 that shares memory with argument 'x', which its schema does not say",
)
def undeclared_view(wrong: bool) -> Any:
    def flipped(x: A) -> A:
        return x.T if wrong else x.T.copy()

    fake = lambda x: co.fake_like(x, shape=x.shape[::-1])
    return define(flipped).register_fake(fake)


@planted(
    test_schema="returns output 1 that shares memory with output 0, which its schema does not say",
)
def one_array_twice(wrong: bool) -> Any:
    def both(x: A) -> tuple[A, A]:
        y = x + x
        return y, y if wrong else y.copy()

    return define(both).register_fake(lambda x: (co.fake_like(x), co.fake_like(x)))


@planted(
    test_schema="returns output 1 that shares memory with output 0, which its schema does not say",
)
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


@planted(
    test_schema="the 'cpu' kernel returns 3 items, must return a tuple of 2",
)
def three_for_two(wrong: bool) -> Any:
    def parts(x: A) -> tuple[A, A]:
        found = (x + x, x.copy(), x.copy())
        return found if wrong else found[:2]

    return define(parts).register_fake(lambda x: (co.fake_like(x), co.fake_like(x)))


@planted(
    test_schema="the 'cpu' kernel returns output 0 as float 1.4, must be an array",
)
def float_for_array(wrong: bool) -> Any:
    def total(x: A) -> A:
        return float(x.sum()) if wrong else np.float64(x.sum())

    return define(total).register_fake(lambda x: co.FakeArray((), np.float64))


@planted(
    test_schema="never returns a view of argument 'x' as output 0, though its schema says so (Array(a))",
)
def declared_view_is_copy(wrong: bool) -> Any:
    def flat(x):
        return x.reshape(-1).copy() if wrong else x[..., None]

    op = define(flat, schema="(Array(a) x) -> Array(a)")
    return op.register_fake(
        lambda x: co.fake_like(x, shape=(x.size,) if wrong else (*x.shape, 1))
    )


@planted(
    test_schema="the 'cpu' kernel returns output 0 that is not its argument 'x' itself",
)
def inplace_returns_copy(wrong: bool) -> Any:
    def double_(x: A) -> A:
        x += x
        return x.copy() if wrong else x

    return define(double_, ("x",), tags=co.Tag.inplace)


@planted(
    test_schema="the output differs between half of axis -1 alone and all of it, which Tag.pointwise excludes: 1 of 1 elements (100.0 %) are not close",
    test_vmap="the output differs between row 0 under vmap with in_dims=(0) and that row alone: 1 of 1 elements (100.0 %) are not close",
)
def softmax_is_not_pointwise(wrong: bool) -> Any:
    def softmax(x: A) -> A:
        e = np.exp(x.astype(float))
        return e / e.sum(-1, keepdims=True) if x.ndim and wrong else e

    return define(softmax, tags=POINTWISE).register_fake(modeled(softmax))


@planted(
    test_schema="the output differs between half of axis -1 alone and all of it, which Tag.pointwise excludes: 1 of 1 elements (100.0 %) are not close",
)
def cumulative_is_not_pointwise(wrong: bool) -> Any:
    def running(x: A) -> A:
        x = x.astype(float)
        return np.cumsum(x, -1) if x.ndim and wrong else x + 0

    return define(running, tags=POINTWISE).register_fake(modeled(running))


@planted(
    test_schema="returns the shape () as output 0, where Tag.reduction promises (1,)",
)
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


@planted(
    test_mutation="writes argument 'x', which mutates_args=() does not name",
)
def written_equal(wrong: bool) -> Any:
    def scaled(x: A) -> A:
        if wrong:
            x *= 1
        return x + x

    return define(scaled).register_fake(lambda x: co.fake_like(x))


@planted(
    test_mutation="writes argument 'x', which mutates_args=() does not name",
)
def written_past_the_flag(wrong: bool) -> Any:
    def counted(x: A) -> A:
        y = x if wrong else x.copy()
        np.add.at(y, Ellipsis, 1)
        return y + 0

    return define(counted).register_fake(modeled(counted))


@planted(
    test_mutation="never writes argument 'x', which mutates_args names",
)
def declared_and_never_written(wrong: bool) -> Any:
    def fill(x: A, value: float) -> None:
        if not wrong:
            x[...] = value

    return define(fill, ("x",))


@planted(
    test_mutation="never writes argument 'y', which mutates_args names",
)
def one_of_two_written(wrong: bool) -> Any:
    def swap(x: A, y: A) -> None:
        if x.shape != y.shape:
            raise ValueError(x.shape)
        kept = x.copy()
        x[...] = y
        if not wrong:
            y[...] = kept

    return define(swap, ("x", "y"))


@planted(
    test_mutation="writes argument 'arrays', which mutates_args=() does not name",
)
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


@planted(
    test_mutation="writes argument 'window', which mutates_args=() does not name",
)
def array_of_a_config_object_written(wrong: bool) -> Any:
    def windowed(x: A, window: Window) -> A:
        taps = window.taps if wrong else window.taps.astype(float)
        taps *= 2
        return x * 1.0 + np.sum(taps)

    return define(windowed).register_fake(modeled(windowed))


@planted(
    test_mutation="writes argument 'weight', which mutates_args=() does not name",
)
def optional_array_written(wrong: bool) -> Any:
    def masked(x: A, weight: A | None = None) -> A:
        if weight is None:
            return x * 1.0
        w = weight if wrong else weight.copy()
        w /= 2.0
        return x * 1.0 + w.sum()

    return define(masked).register_fake(modeled(masked))


# ---- out variants ----


def with_variant(suffix: str, variant: Any, tag: Any, written: str) -> Any:
    """Make a square, and an operator that is named as its variant."""
    name = f"planted::squared{next(numbers)}"
    op = co.custom_op(name, square, mutates_args=())
    op.register_fake(lambda x: co.fake_like(x))
    co.custom_op(f"{name}{suffix}", variant, mutates_args=(written,), tags=tag)
    return op


@planted(
    test_out_variant="output 0 differs between planted::squared_out and planted::squared: 1 of 1 elements (100.0 %) are not close",
)
def out_variant_differs(wrong: bool) -> Any:
    def square_out(x: A, *, out: A) -> A:
        np.multiply(x, x + 1 if wrong else x, out=out)
        return out

    return with_variant("_out", square_out, co.Tag.out, "out")


@planted(
    test_out_variant="output 0 differs between planted::squared.out and planted::squared: 1 of 1 elements (100.0 %) are not close",
)
def out_overload_differs(wrong: bool) -> Any:
    def square_out(x: A, *, out: A) -> A:
        np.multiply(x, x + 1 if wrong else x, out=out)
        return out

    return with_variant(".out", square_out, co.Tag.out, "out")


@planted(
    test_out_variant="output 0 differs between planted::squared_ and planted::squared: 1 of 1 elements (100.0 %) are not close",
)
def inplace_variant_differs(wrong: bool) -> Any:
    def square_(x: A) -> A:
        x *= 2 if wrong else x.copy()
        return x

    return with_variant("_", square_, co.Tag.inplace, "x")


@planted(
    test_out_variant="the output differs between 'out' filled with 0 and with nan before the call: 1 of 1 elements (100.0 %) are not close",
)
def out_is_added_to(wrong: bool) -> Any:
    def square_out(x: A, *, out: A) -> A:
        if x.shape != out.shape or x.dtype != out.dtype:
            raise ValueError("x and out must have one shape and dtype")
        if not wrong:
            out[...] = 0
        out += x * x
        return out

    return define(square_out, ("out",), tags=co.Tag.out)
