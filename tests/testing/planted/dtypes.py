"""Operators that are wrong for a dtype, an order of bytes or an order in memory."""

from __future__ import annotations

from typing import Any

import numpy as np

import customop as co

from . import A, define, kept, missed, modeled, planted

# ---- byte order ----


@planted(
    test_dtypes="the output has other values for other byte order in all arrays than for the same numbers as float64",
)
def bytes_read_in_native_order(wrong: bool) -> Any:
    def doubled(x: A) -> A:
        if x.dtype.kind != "f" or x.dtype.itemsize != 8:
            raise TypeError("float64")
        native = np.ascontiguousarray(x)
        if not wrong:
            native = native.astype(np.float64)
        return np.frombuffer(native.tobytes(), np.float64).reshape(x.shape) * 2.0

    return define(doubled).register_fake(lambda x: co.FakeArray(x.shape, np.float64))


@planted(
    test_dtypes="the output has other values for other byte order in all arrays than for the same numbers as int64",
)
def integers_read_in_native_order(wrong: bool) -> Any:
    def total(x: A) -> A:
        if x.dtype.kind != "i" or x.dtype.itemsize != 8:
            raise TypeError("int64")
        native = np.ascontiguousarray(x)
        native = native.view(np.int64) if wrong else native.astype(np.int64)
        return np.sum(native)

    op = define(total).register_fake(lambda x: co.FakeArray((), np.int64))
    return op.register_sample_inputs(lambda: [(np.array([3, 1, 2]),)])


# ---- fake kernels of integers and bools ----


@planted(
    test_dtypes="the 'cpu' kernel returns f64[] with strides () on cpu as output 0, its fake kernel i64[] with strides () on cpu",
)
def fake_of_a_root_for_integers(wrong: bool) -> Any:
    def rooted(x: A) -> A:
        return np.sqrt(np.abs(x))

    def fake(x):
        dtype = x.dtype if wrong else np.sqrt(np.empty(0, x.dtype)).dtype
        dtype = np.empty(0, dtype).real.dtype
        return co.FakeArray(x.shape, dtype)

    return define(rooted).register_fake(fake)


@planted(
    test_dtypes="the 'cpu' kernel returns f64[] with strides () on cpu as output 0, its fake kernel i64[] with strides () on cpu",
)
def fake_of_a_quotient_for_integers(wrong: bool) -> Any:
    def halved(x: A) -> A:
        return x / 2.0

    def fake(x):
        return co.fake_like(x, dtype=None if wrong else np.result_type(x.dtype, 1.0))

    return define(halved).register_fake(fake)


@planted(
    test_dtypes="the 'cpu' kernel returns i64[] with strides () on cpu as output 0, its fake kernel bool[] with strides () on cpu",
)
def fake_of_a_sum_of_bools(wrong: bool) -> Any:
    def total(x: A) -> A:
        return np.sum(x)

    def fake(x):
        dtype = np.sum(np.empty(0, x.dtype)).dtype
        return co.FakeArray((), x.dtype if wrong and x.dtype == bool else dtype)

    return define(total).register_fake(fake)


@planted(
    test_dtypes="the 'cpu' kernel succeeds where the fake kernel raises TypeError: float64",
)
def fake_that_refuses_short_floats(wrong: bool) -> Any:
    def doubled(x: A) -> A:
        if x.dtype.kind != "f":
            raise TypeError("floats")
        return x + x

    def fake(x):
        if x.dtype.kind != "f" or (wrong and x.dtype != np.float64):
            raise TypeError("float64")
        return co.fake_like(x)

    return define(doubled).register_fake(fake)


@planted(
    test_layouts="the 'cpu' kernel returns f64[0] with strides (0,) on cpu as output 0, its fake kernel i64[0] with strides (0,) on cpu",
)
def empty_integers_become_floats(wrong: bool) -> Any:
    def listed(x: A) -> A:
        if x.ndim != 1:
            raise ValueError("a vector")
        found = [v + v for v in x]
        return np.array(found) if wrong else np.array(found, x.dtype)

    def fake(x):
        if x.ndim != 1:
            raise ValueError("a vector")
        return co.FakeArray(x.shape, x.dtype)

    return define(listed).register_fake(fake)


# ---- integers that wrap around ----


@planted(
    test_dtypes="the output has other values for large int8 in all arrays than for the same numbers as float64",
)
def mean_of_short_integers_wraps(wrong: bool) -> Any:
    def mean(x: A) -> A:
        if not x.size:
            raise ValueError("some numbers")
        wide = x.dtype if wrong and x.dtype.kind == "i" else np.float64
        return np.float64(np.sum(x.real, dtype=wide) / x.size)

    def fake(x):
        if 0 in x.shape:
            raise ValueError("some numbers")
        return co.FakeArray((), np.float64)

    return define(mean).register_fake(fake)


@planted(
    test_dtypes="the output has other values for large int8 in all arrays than for the same numbers as int64",
)
def middle_of_short_integers_wraps(wrong: bool) -> Any:
    def middle(x: A, y: A) -> A:
        if x.dtype.kind != "i" or y.dtype != x.dtype or x.shape != y.shape:
            raise TypeError("integers of one dtype and shape")
        return (x + y) // 2 if wrong else x // 2 + y // 2 + (x % 2 + y % 2) // 2

    def fake(x, y):
        if x.dtype.kind != "i" or y.dtype != x.dtype or x.shape != y.shape:
            raise TypeError("integers of one dtype and shape")
        return co.fake_like(x)

    return define(middle).register_fake(fake)


# ---- dtypes of derivatives ----


@planted(
    test_autograd_registration="backward returned a gradient of dtype float64 for 'x' of dtype float32",
)
def gradient_of_another_dtype(wrong: bool) -> Any:
    def doubled(x: A) -> A:
        if x.dtype.kind != "f":
            raise TypeError("floats")
        return x + x

    def backward(ctx, g):
        return g * (np.full(ctx.x.shape, 2.0) if wrong else 2.0)

    op = define(doubled).register_fake(modeled(doubled))
    return op.register_autograd(backward, setup_context=kept("x"))


@planted(
    test_jvp="the jvp rule returned the tangent f64[] for f32[]",
)
def tangent_of_another_dtype(wrong: bool) -> Any:
    def doubled(x: A) -> A:
        if x.dtype.kind != "f":
            raise TypeError("floats")
        return x + x

    op = define(doubled).register_fake(modeled(doubled))

    def rule(primals, tangents):
        t = tangents[0] + tangents[0]
        return op(primals[0]), t * np.ones(t.shape) if wrong else t

    return op.register_jvp(rule)


# ---- layouts ----


@planted(
    test_layouts="returns output 0 that shares memory with argument 'x', which its schema does not say",
)
def fortran_input_is_returned(wrong: bool) -> Any:
    def ordered(x: A) -> A:
        if x.ndim != 2:
            raise ValueError("a matrix")
        if wrong:
            return np.asfortranarray(x)
        return np.array(x, order="F")

    def fake(x):
        if x.ndim != 2:
            raise ValueError("a matrix")
        step = x.dtype.itemsize
        return co.FakeArray(x.shape, x.dtype, (step, step * x.shape[0]))

    op = define(ordered).register_fake(fake)
    return op.register_sample_inputs(lambda: [(np.arange(6.0).reshape(2, 3),)])


@planted(
    test_layouts="writes argument 'x', which mutates_args=() does not name",
)
def gaps_are_written(wrong: bool) -> Any:
    def centered(x: A) -> A:
        if x.dtype != np.float64:
            raise TypeError("float64")
        own = x if wrong and x.strides and not x.flags.c_contiguous else x.copy()
        own -= 1.0
        return own + 0.0

    return define(centered).register_fake(lambda x: co.FakeArray(x.shape, np.float64))


@planted(
    test_dtypes="writes argument 'x', which mutates_args=() does not name",
)
def written_for_short_floats(wrong: bool) -> Any:
    def centered(x: A) -> A:
        if x.dtype.kind != "f":
            raise TypeError("floats")
        own = x.astype(np.float32, copy=not wrong)
        own -= 1.0
        return own + np.float32(0.0)

    return define(centered).register_fake(lambda x: co.FakeArray(x.shape, np.float32))


@planted(
    test_layouts="the 'cpu' kernel returns f64[2, 2] with strides (8, 16) on cpu as output 0, its fake kernel f64[2, 2] with strides (16, 8) on cpu",
)
def order_of_a_fortran_result(wrong: bool) -> Any:
    def doubled(x: A) -> A:
        return np.add(x, x, order="K" if wrong else "C")

    return define(doubled, tags=co.Tag.needs_exact_strides).register_fake(
        lambda x: co.FakeArray(x.shape, x.dtype)
    )


@missed(
    "results of arrays in Fortran order may lie in any order, without Tag.needs_exact_strides"
)
def order_of_a_fortran_result_without_a_tag(wrong: bool) -> Any:
    def doubled(x: A) -> A:
        return np.add(x, x, order="K" if wrong else "C")

    op = define(doubled, tags=())
    return op.register_fake(lambda x: co.FakeArray(x.shape, x.dtype))
