"""Operators whose kernels are wrong for some lengths, dtypes, layouts or values."""

from __future__ import annotations

from typing import Any

import numpy as np

import customop as co

from . import POINTWISE, A, define, kept, missed, modeled, planted

# ---- lengths ----


@planted(
    test_gradients="has a wrong gradient, in 1 of 1 derivatives",
)
def remainder_of_blocks_is_left_out(wrong: bool) -> Any:
    def doubled(x: A) -> A:
        out = np.zeros(x.shape)
        count = x.size // 4 * 4 if wrong else x.size
        out.reshape(-1)[:count] = 2.0 * x.reshape(-1)[:count]
        return out

    op = define(doubled).register_fake(lambda x: co.FakeArray(x.shape, np.float64))
    return op.register_autograd(lambda ctx, g: g * 2.0)


@planted(
    test_kernels_agree="the output differs between the default kernel and the 'cpu' kernel: 1 of 1 elements (100.0 %) are not close",
)
def long_arrays_take_another_way(wrong: bool) -> Any:
    def total(x: A) -> A:
        return np.sum(x * 1.0)

    def fast(x: A) -> A:
        line = x.reshape(-1) * 1.0
        if wrong and line.size >= 32:
            line = line[: line.size // 32 * 32]
        return np.sum(line)

    op = define(total, device_types=None).register_fake(modeled(total))
    return op.register_kernel("cpu", fast)


@planted(
    test_gradients="has a wrong gradient, in 1 of 3 derivatives",
)
def window_ends_one_early(wrong: bool) -> Any:
    def moving(x: A, size: int = 2) -> A:
        if x.ndim != 1 or not 0 < size <= len(x):
            raise ValueError("a vector that is longer than the window")
        out = np.convolve(x * 1.0, np.ones(size), "valid")
        return out.astype(np.float64)

    def backward(ctx, g):
        out = np.zeros(ctx.x.shape) * g[:1]
        for i in range(ctx.size - (1 if wrong and ctx.size > 2 else 0)):
            pad = (i, ctx.size - 1 - i)
            out = out + np.pad(g, pad)
        return out, None

    op = define(moving).register_fake(
        lambda x, size: co.FakeArray((_length(x, size),), np.float64)
    )
    return op.register_autograd(backward, setup_context=kept("x", "size"))


def _length(x: Any, size: int) -> int:
    if x.ndim != 1 or not 0 < size <= x.shape[0]:
        raise ValueError("a vector that is longer than the window")
    return int(x.shape[0] - size + 1)


@planted(
    test_schema="the output differs between half of axis -1 alone and all of it, which Tag.pointwise excludes: 1 of 2 elements (50.0 %) are not close",
)
def values_repeat_in_place_of_broadcasting(wrong: bool) -> Any:
    def added(x: A, y: A) -> A:
        shape = np.broadcast_shapes(x.shape, y.shape)
        repeat = np.resize if wrong else np.broadcast_to
        return repeat(x * 1.0, shape) + repeat(y, shape)

    return define(added, tags=POINTWISE).register_fake(modeled(added))


@planted(
    test_gradients="has a wrong gradient, in 1 of 3 derivatives",
)
def only_the_first_two_of_a_list(wrong: bool) -> Any:
    def summed(arrays: list[A]) -> A:
        if not arrays or len({x.shape for x in arrays}) > 1:
            raise ValueError("one shape")
        chosen = arrays[:2] if wrong else arrays
        return np.asarray(np.sum([x.astype(float) for x in chosen], axis=0))

    def fake(arrays):
        if not arrays or len({x.shape for x in arrays}) > 1:
            raise ValueError("one shape")
        return co.FakeArray(arrays[0].shape, np.float64)

    op = define(summed).register_fake(fake)
    return op.register_autograd(
        lambda ctx, g: ([g * 1.0] * ctx.count,),
        setup_context=lambda ctx, inputs, output: setattr(ctx, "count", len(inputs[0])),
    )


@planted(
    test_gradients="has a wrong gradient, in 1 of 1 derivatives",
)
def keyword_that_the_kernel_forgets(wrong: bool) -> Any:
    def powered(x: A, *, gain: float = 1.0) -> A:
        return np.tanh(x * (1.0 if wrong else gain))

    def setup(ctx, inputs, keyword_only_inputs, output):
        ctx.gain = keyword_only_inputs["gain"]
        ctx.y = output

    def backward(ctx, g):
        return g * ctx.gain * (1.0 - ctx.y * ctx.y)

    op = define(powered).register_fake(modeled_keyword(powered))
    return op.register_autograd(backward, setup_context=setup)


def modeled_keyword(fn: Any) -> Any:
    """A fake kernel for an array and a number by keyword."""

    def fake(x, *, gain):
        out = fn(np.ones(x.shape, x.dtype), gain=gain)
        return co.FakeArray(out.shape, out.dtype)

    return fake


# ---- dtypes ----


@missed("rounding to the shorter of two dtypes is within the bounds")
def second_argument_is_cut_to_the_first(wrong: bool) -> Any:
    def added(x: A, y: A) -> A:
        if x.dtype.kind != "f" or y.dtype.kind != "f":
            raise TypeError("floats")
        y = y.astype(x.dtype) if wrong else y
        return (x + y).astype(np.result_type(x.dtype, y.dtype))

    def fake(x, y):
        if x.dtype.kind != "f" or y.dtype.kind != "f":
            raise TypeError("floats")
        shape = np.broadcast_shapes(x.shape, y.shape)
        return co.FakeArray(shape, np.result_type(x.dtype, y.dtype))

    return define(added).register_fake(fake)


@planted(
    test_dtypes="returns output 0 that shares memory with argument 'x', which its schema does not say",
)
def view_of_a_converted_array(wrong: bool) -> Any:
    def single(x: A) -> A:
        if x.dtype.kind != "f":
            raise TypeError("floats")
        return x.astype(np.float32, copy=not wrong)

    fake = lambda x: co.fake_like(x, dtype=np.float32)
    return define(single).register_fake(fake)


@planted(
    test_dtypes="the output has other values for int8 in all arrays than for the same numbers as int64",
)
def integers_wrap_before_they_are_widened(wrong: bool) -> Any:
    def squares(x: A) -> A:
        if x.dtype.kind not in "iu":
            raise TypeError("integers")
        wide = (x * x).astype(np.int64) if wrong else x.astype(np.int64) ** 2
        return np.sum(wide)

    op = define(squares).register_fake(lambda x: co.FakeArray((), np.int64))
    return op.register_sample_inputs(lambda: [(np.array([3, 100, 7]),)])


@planted(
    test_kernels_agree="the output differs between the default kernel and the 'cpu' kernel: 1 of 1 elements (100.0 %) are not close",
)
def count_in_the_dtype_of_the_mask(wrong: bool) -> Any:
    def counted(x: A) -> A:
        if x.dtype != np.bool_:
            raise TypeError("bool")
        return np.int64(np.add.reduce(x, None, dtype=np.bool_ if wrong else np.int64))

    op = define(counted, device_types=None)
    op.register_fake(lambda x: co.FakeArray((), np.int64))

    def fast(x: A) -> A:
        if x.dtype != np.bool_:
            raise TypeError("bool")
        return np.int64(np.count_nonzero(x))

    return op.register_kernel("cpu", fast)


@planted(
    test_dtypes="the output has other values for float16 in all arrays than for the same numbers as float64",
)
def unknown_dtypes_give_zeros(wrong: bool) -> Any:
    def inverse(x: A) -> A:
        if x.ndim != 2:
            raise ValueError("a matrix")
        try:
            return np.linalg.inv(x)
        except TypeError:
            if not wrong:
                raise
            return np.zeros_like(x)

    def fake(x):
        if x.ndim != 2 or x.shape[0] != x.shape[1] or x.dtype.kind not in "fc":
            raise ValueError("a square matrix")
        return co.FakeArray(x.shape, x.dtype)

    return define(inverse).register_fake(fake)


@planted(
    test_dtypes="the output has other values for float16 in all arrays than for the same numbers as float64",
)
def half_precision_overflows_on_the_way(wrong: bool) -> Any:
    def length(x: A) -> A:
        if x.dtype.kind != "f":
            raise TypeError("floats")
        wide = x if wrong else x.astype(np.result_type(x.dtype, np.float64))
        return np.sqrt(np.sum(wide * wide, dtype=wide.dtype)).astype(x.dtype)

    op = define(length).register_fake(lambda x: co.FakeArray((), x.dtype))
    return op.register_sample_inputs(lambda: [(np.array([300.0, 400.0]),)])


@planted(
    test_dtypes="the 'cpu' kernel returns c64[1] with strides (8,) on cpu as output 0, its fake kernel c128[1] with strides (16,) on cpu",
)
def fake_of_short_complex_numbers(wrong: bool) -> Any:
    def spectrum(x: A) -> A:
        if x.ndim != 1 or not x.size or x.dtype.kind != "c":
            raise ValueError("a complex vector")
        return np.fft.fft(x).astype(x.dtype)

    def fake(x):
        if x.ndim != 1 or not x.size or x.dtype.kind != "c":
            raise ValueError("a complex vector")
        return co.FakeArray(x.shape, np.complex128 if wrong else x.dtype)

    return define(spectrum).register_fake(fake)


# ---- layouts ----


@planted(
    test_layouts="the output differs between unaligned of 'x' and C order: 1 of 1 elements (100.0 %) are not close",
)
def base_in_place_of_the_view(wrong: bool) -> Any:
    def total(x: A) -> A:
        whole = x.base if wrong and isinstance(x.base, A) else x
        return np.float64(np.sum(whole.astype(np.float64)))

    return define(total).register_fake(lambda x: co.FakeArray((), np.float64))


@planted(
    test_layouts="the output differs between Fortran order of 'x' and C order: 4 of 4 elements (100.0 %) are not close",
)
def result_is_filled_through_a_copy(wrong: bool) -> Any:
    def doubled(x: A) -> A:
        out = np.zeros_like(x) if wrong else np.zeros(x.shape, x.dtype)
        out.ravel()[...] = x.ravel() + x.ravel()
        return out

    return define(doubled).register_fake(lambda x: co.FakeArray(x.shape, x.dtype))


@planted(
    test_layouts="the output differs between non-contiguous of 'x' and C order: shapes (1,) and (2,) differ",
)
def rows_found_by_their_strides(wrong: bool) -> Any:
    def heads(x: A) -> A:
        if x.ndim != 2 or not x.size:
            raise ValueError("rows")
        width = abs(x.strides[0]) // x.itemsize if wrong else x.shape[1]
        line = np.ascontiguousarray(x).reshape(-1)
        return line[:: max(width, 1)][: x.shape[0]].copy()

    def fake(x):
        if x.ndim != 2 or 0 in x.shape:
            raise ValueError("rows")
        return co.FakeArray(x.shape[:1], x.dtype)

    op = define(heads).register_fake(fake)
    return op.register_sample_inputs(lambda: [(np.arange(6.0).reshape(2, 3),)])


@planted(
    test_layouts="the output differs between non-contiguous of 'x' and C order: 2 of 2 elements (100.0 %) are not close",
)
def writes_are_lost_in_a_copy(wrong: bool) -> Any:
    def negate_(x: A) -> A:
        line = x.ravel() if wrong else x.reshape(-1)
        if not wrong and not np.shares_memory(line, x) and x.size:
            x[...] = 0 - x
            return x
        line[...] = 0 - line
        return x

    return define(negate_, ("x",), tags=co.Tag.inplace)


@planted(
    test_layouts="the output differs between non-contiguous of 'out' and C order: 2 of 2 elements (100.0 %) are not close",
)
def out_is_written_through_a_copy(wrong: bool) -> Any:
    def square_out(x: A, *, out: A) -> A:
        if x.shape != out.shape or x.dtype != out.dtype:
            raise ValueError("one shape and dtype")
        if wrong:
            out.ravel()[...] = (x * x).ravel()
        else:
            out[...] = x * x
        return out

    return define(square_out, ("out",), tags=co.Tag.out)


# ---- values ----


@planted(
    test_kernels_agree="the output differs between the default kernel and the 'cpu' kernel: 1 of 1 elements (100.0 %) are not close",
)
def kernels_differ_for_nan(wrong: bool) -> Any:
    def clipped(x: A) -> A:
        return np.maximum(x * 1.0, 0.0)

    op = define(clipped, device_types=None).register_fake(modeled(clipped))
    fast = lambda x: np.where(x > 0, x * 1.0, 0.0)
    return op.register_kernel(
        "cpu", fast if wrong else lambda x: np.maximum(x * 1.0, 0)
    )


@planted(
    test_kernels_agree="the output differs between the default kernel and the 'cpu' kernel: 1 of 1 elements (100.0 %) are not close",
)
def kernels_differ_for_infinity(wrong: bool) -> Any:
    def logistic(x: A) -> A:
        return np.exp(-np.logaddexp(0.0, -1.0 * x))

    def fast(x: A) -> A:
        if not wrong:
            return np.exp(-np.logaddexp(0.0, -1.0 * x))
        e = np.exp(x * 1.0)
        return e / (1.0 + e)

    op = define(logistic, device_types=None).register_fake(modeled(logistic))
    return op.register_kernel("cpu", fast)


@planted(
    test_kernels_agree="the output differs between the default kernel and the 'cpu' kernel: 1 of 1 elements (100.0 %) are not close",
)
def kernels_differ_for_equal_numbers(wrong: bool) -> Any:
    def last(x: A) -> A:
        if x.ndim != 1 or not x.size:
            raise ValueError("a vector")
        return np.int64(np.argmax(x))

    def fast(x: A) -> A:
        if x.ndim != 1 or not x.size:
            raise ValueError("a vector")
        found = np.flatnonzero(x == x.max())
        return np.int64(found[-1 if wrong else 0])

    def fake(x):
        if x.ndim != 1 or not x.shape[0]:
            raise ValueError("a vector")
        return co.FakeArray((), np.int64)

    return (
        define(last, device_types=None).register_fake(fake).register_kernel("cpu", fast)
    )


@planted(
    test_kernels_agree="the output differs between the default kernel and the 'cpu' kernel: 1 of 1 elements (100.0 %) are not close",
)
def kernels_differ_for_negative_numbers(wrong: bool) -> Any:
    def halved(x: A) -> A:
        if x.dtype.kind != "i":
            raise TypeError("integers")
        return x // 2

    def fast(x: A) -> A:
        if x.dtype.kind != "i":
            raise TypeError("integers")
        return (
            np.trunc(x / 2).astype(x.dtype)
            if wrong
            else np.floor(x / 2).astype(x.dtype)
        )

    def fake(x):
        if x.dtype.kind != "i":
            raise TypeError("integers")
        return co.FakeArray(x.shape, x.dtype)

    return (
        define(halved, device_types=None)
        .register_fake(fake)
        .register_kernel("cpu", fast)
    )


@planted(
    test_kernels_agree="the output differs between the default kernel and the 'cpu' kernel: 1 of 2 elements (50.0 %) are not close",
)
def negative_indices_are_not_taken_from_the_end(wrong: bool) -> Any:
    def picked(x: A, idx: A) -> A:
        if x.ndim != 1 or idx.dtype.kind != "i":
            raise TypeError("a vector and indices")
        return x[idx]

    def fast(x: A, idx: A) -> A:
        if x.ndim != 1 or idx.dtype.kind != "i":
            raise TypeError("a vector and indices")
        return np.take(x, idx, mode="clip") if wrong else np.take(x, idx)

    def fake(x, idx):
        if x.ndim != 1 or idx.dtype.kind != "i":
            raise TypeError("a vector and indices")
        return co.FakeArray(idx.shape, x.dtype)

    return (
        define(picked, device_types=None)
        .register_fake(fake)
        .register_kernel("cpu", fast)
    )
