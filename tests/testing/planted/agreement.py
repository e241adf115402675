"""Operators whose kernels, fake kernels, layouts or dtypes disagree."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

import customop as co

from . import A, define, modeled, planted, square

# ---- fake kernels ----


@planted(
    test_faketensor="the 'cpu' kernel returns f64[2, 1] with strides (8, 8) on cpu as output 0, its fake kernel f64[1, 2] with strides (16, 8) on cpu",
)
def fake_of_another_shape(wrong: bool) -> Any:
    def outer(x: A, y: A) -> A:
        return np.multiply.outer(x, y)

    def fake(x, y):
        shape = (*y.shape, *x.shape) if wrong else (*x.shape, *y.shape)
        return co.FakeArray(shape, np.result_type(x.dtype, y.dtype))

    op = define(outer).register_fake(fake)
    return op.register_sample_inputs(lambda: [(np.ones(2), np.ones(3))])


@planted(
    test_faketensor="the 'cpu' kernel returns bool[] with strides () on cpu as output 0, its fake kernel f64[] with strides () on cpu",
)
def fake_of_another_dtype(wrong: bool) -> Any:
    def is_positive(x: A) -> A:
        return x > 0

    fake = lambda x: co.fake_like(x, dtype=None if wrong else bool)
    return define(is_positive).register_fake(fake)


@planted(
    test_faketensor="has a fake kernel that returns its input itself as the output",
)
def fake_returns_its_input(wrong: bool) -> Any:
    return define(square).register_fake(lambda x: x if wrong else co.fake_like(x))


@planted(
    test_faketensor="has a fake kernel that reads data: bool() of FakeArray bool[], which has no data",
)
def fake_reads_data(wrong: bool) -> Any:
    def halved(x: A) -> A:
        return x / 2.0

    def fake(x):
        if wrong and x.sum() > 1e9:
            return co.fake_like(x)
        return modeled(halved)(x)

    return define(halved).register_fake(fake)


@planted(
    test_faketensor="the 'fake' kernel returns output 0 as None, must be an array",
)
def fake_returns_nothing(wrong: bool) -> Any:
    return (
        define(square)
        .register_fake(lambda x: None if wrong else co.fake_like(x))
        .register_sample_inputs(lambda: [(np.ones(3),)])
    )


@planted(
    test_faketensor="has a fake kernel that returns an array with data as the output",
)
def fake_returns_data(wrong: bool) -> Any:
    return define(square).register_fake(
        lambda x: np.zeros(x.shape, x.dtype) if wrong else co.fake_like(x)
    )


@planted(
    test_faketensor="has no fake kernel",
)
def fake_is_missing(wrong: bool) -> Any:
    op = define(square)
    return op if wrong else op.register_fake(lambda x: co.fake_like(x))


@planted(
    test_faketensor="the 'cpu' kernel returns f64[2] with strides (8,) on cpu as output 0, its fake kernel f64[4] with strides (8,) on cpu",
)
def fake_of_one_size(wrong: bool) -> Any:
    def padded(x: A) -> A:
        return np.concatenate([x, np.zeros(1, x.dtype)])

    def fake(x):
        if x.ndim != 1:
            raise ValueError("one axis")
        return co.FakeArray((4,) if wrong else (x.shape[0] + 1,), x.dtype)

    op = define(padded).register_fake(fake)
    return op.register_sample_inputs(lambda: [(np.ones(3),), (np.ones(5),)])


@planted(
    test_faketensor="the 'cpu' kernel returns f64[2, 2] with strides (8, 16) on cpu as output 0, its fake kernel f64[2, 2] with strides (16, 8) on cpu",
)
def fake_of_another_order(wrong: bool) -> Any:
    def ordered(x: A) -> A:
        return np.array(x, order="F" if wrong else "C")

    op = define(ordered, tags=()).register_fake(
        lambda x: co.FakeArray(x.shape, x.dtype)
    )
    return op.register_sample_inputs(lambda: [(np.ones((2, 3)),)])


@planted(
    test_faketensor="the 'cpu' kernel returns f64[2] with strides (16,) on cpu as output 0, its fake kernel f64[2] with strides (8,) on cpu",
)
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


@planted(
    test_faketensor="the 'cpu' kernel returns [array] as output 0, its fake kernel []",
)
def fake_of_fewer_items(wrong: bool) -> Any:
    def split(x: A, count: int) -> list[A]:
        return [x.copy() for _ in range(count)]

    def fake(x, count):
        return [co.fake_like(x) for _ in range(count - (1 if wrong else 0))]

    op = define(split).register_fake(fake)
    return op.register_sample_inputs(lambda: [(np.ones(3), 2)])


# ---- sizes ----


@planted(
    test_sizes="returns the shapes [(1,)] and [(2,)] for arguments of the same shapes and other values",
)
def size_depends_on_data(wrong: bool) -> Any:
    def positive(x: A) -> A:
        return x[x > 0]

    tags = () if wrong else co.Tag.dynamic_output_shape
    op = define(positive, tags=tags)
    return op.register_sample_inputs(lambda: [(np.array([1.0, -1.0, 2.0]),)])


@planted(
    test_faketensor="the 'cpu' kernel returns a size 1, and the fake kernel says at least 3",
)
def size_beyond_its_bounds(wrong: bool) -> Any:
    def positive(x: A) -> A:
        return x[x > 0]

    def fake(x):
        size = co.get_ctx().new_dynamic_size(min=3 if wrong else 0)
        return co.fake_like(x, shape=(size,))

    op = define(positive).register_fake(fake)
    return op.register_sample_inputs(lambda: [(np.array([1.0, -1.0, 2.0]),)])


@planted(
    test_aot_dispatch_dynamic="raises TypeError: 's0' is not a number",
)
def fake_refuses_symbols(wrong: bool) -> Any:
    def doubled(x: A) -> A:
        return np.concatenate([x, x])

    def fake(x):
        if wrong and not isinstance(x.shape[0], int):
            raise TypeError(f"'{x.shape[0]}' is not a number")
        return co.FakeArray((2 * x.shape[0],), x.dtype)

    op = define(doubled).register_fake(fake)
    return op.register_sample_inputs(lambda: [(np.ones(3),)])


# ---- kernels ----


@planted(
    test_kernels_agree="the output differs between the default kernel and the 'cpu' kernel: 1 of 1 elements (100.0 %) are not close",
)
def default_kernel_differs(wrong: bool) -> Any:
    op = define(square).register_fake(lambda x: co.fake_like(x))
    return op.register_kernel(None, lambda x: x * x * (2 if wrong else 1))


@planted(
    test_kernels_agree="the output differs between the default kernel and the 'cpu' kernel: 1 of 1 elements (100.0 %) are not close",
)
def replaced_function_differs(wrong: bool) -> Any:
    op = define(square, device_types=None).register_fake(lambda x: co.fake_like(x))
    return op.register_kernel("cpu", lambda x: x * x * x if wrong else x * x)


class Toy:
    """An array class for which kernels can run on every machine."""

    def __init__(self, values: A) -> None:
        self.values = values

    shape = property(lambda self: self.values.shape)
    dtype = property(lambda self: self.values.dtype)
    ndim = property(lambda self: self.values.ndim)
    size = property(lambda self: self.values.size)
    device = "toy"

    def copy(self) -> Toy:
        return Toy(self.values.copy())


@planted(
    test_kernels_agree="the output differs between the 'toy' and the 'cpu' kernel: 1 of 1 elements (100.0 %) are not close",
)
def kernel_of_another_kind_differs(wrong: bool) -> Any:
    op = define(square).register_fake(lambda x: co.fake_like(x))
    step = 1 if wrong else 0
    return op.register_kernel("toy", lambda x: Toy(x.values**2 + step))


@planted(
    test_kernels_agree="the output differs between the 'toy' and the 'cpu' kernel: dtypes float32 and float64 differ",
)
def kernel_of_another_kind_has_another_dtype(wrong: bool) -> Any:
    op = define(square).register_fake(lambda x: co.fake_like(x))
    kind = np.float32 if wrong else None
    return op.register_kernel(
        "toy", lambda x: Toy((x.values**2).astype(kind or x.dtype))
    )


@planted(
    test_kernels_agree="raises AttributeError: 'Toy' object has no attribute 'value'",
)
def kernel_of_another_kind_raises(wrong: bool) -> Any:
    op = define(square).register_fake(lambda x: co.fake_like(x))
    return op.register_kernel(
        "toy", lambda x: Toy(x.value**2 if wrong else x.values**2)
    )


@planted(
    test_kernels_agree="returns the output of the kind 'numpy scalar' from the 'toy' kernel",
)
def kernel_of_another_kind_returns_numpy(wrong: bool) -> Any:
    op = define(square).register_fake(lambda x: co.fake_like(x))
    return op.register_kernel(
        "toy", lambda x: x.values**2 if wrong else Toy(x.values**2)
    )


# ---- layouts ----


@planted(
    test_layouts="the output differs between non-contiguous of 'x' and C order: 1 of 2 elements (50.0 %) are not close",
)
def memory_read_as_contiguous(wrong: bool) -> Any:
    def doubled(x: A) -> A:
        if x.dtype != np.float64:
            raise TypeError("float64")
        out = np.empty(x.shape)
        x = x if wrong else np.ascontiguousarray(x)
        ctypes.memmove(out.ctypes.data, x.ctypes.data, x.nbytes)
        return out * 2

    return define(doubled).register_fake(lambda x: co.FakeArray(x.shape, np.float64))


@planted(
    test_layouts="the output differs between non-contiguous of 'x' and C order: 1 of 2 elements (50.0 %) are not close",
)
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


@planted(
    test_layouts="the output differs between Fortran order of 'x' and C order: 2 of 4 elements (50.0 %) are not close",
)
def elements_in_memory_order(wrong: bool) -> Any:
    def flat(x: A) -> A:
        return x.flatten("K" if wrong else "C")

    op = define(flat).register_fake(lambda x: co.FakeArray((x.size,), x.dtype))
    return op.register_sample_inputs(lambda: [(np.arange(6.0).reshape(2, 3),)])


@planted(
    test_layouts="the 'cpu' kernel returns f64[1] with strides (8,) on cpu as output 0, its fake kernel f64[] with strides () on cpu",
)
def axes_of_arrays_without_axes(wrong: bool) -> Any:
    def at_least(x: A) -> A:
        return np.atleast_1d(x).copy() if wrong else x.copy()

    op = define(at_least).register_fake(lambda x: co.fake_like(x))
    return op.register_sample_inputs(lambda: [(np.ones(3),)])


@planted(
    test_layouts="the 'cpu' kernel returns f64[0] with strides (0,) on cpu as output 0, its fake kernel f64[] with strides () on cpu",
)
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


@planted(
    test_dtypes="the output has other values for float32 in all arrays than for the same numbers as float64",
)
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


@planted(
    test_dtypes="the 'cpu' kernel returns f64[] with strides () on cpu as output 0, its fake kernel f32[] with strides () on cpu",
)
def fake_of_short_floats(wrong: bool) -> Any:
    def widened(x: A) -> A:
        return x.astype(np.float64) * 2

    fake = lambda x: co.fake_like(x, dtype=None if wrong else np.float64)
    return define(widened).register_fake(fake)


@planted(
    test_dtypes="the output has other values for float32 in all arrays than for the same numbers as float64",
)
def short_floats_cut_off(wrong: bool) -> Any:
    def halved(x: A) -> A:
        if not wrong and x.dtype != np.float64:
            raise TypeError("float64")
        whole = x if x.dtype == np.float64 else x.astype(np.int64)
        return (whole * 5).astype(x.dtype)

    return define(halved).register_fake(lambda x: co.fake_like(x))
