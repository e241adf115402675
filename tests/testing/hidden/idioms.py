"""Operators whose mistakes are those of C, threads, caches and rules for missing batches."""

from __future__ import annotations

import ctypes
import threading
import weakref
from typing import Any

import numpy as np
import pytest

import customop as co
from tests.testing.planted import POINTWISE, define, kept, modeled

from . import A, address, compiled, hidden, is_in_order, kernel_of, not_found

# ---- memory of C ----


@hidden
def padding_of_a_struct_is_not_written(wrong: bool) -> Any:
    clear = "" if wrong else "memset(y, 0, n * sizeof(item));"
    run = compiled(f"""
    #include <string.h>
    typedef struct {{ char sign; double size; }} item;
    void run(const double *x, item *y, long n) {{
        {clear}
        for (long i = 0; i < n; i++) {{
            y[i].sign = x[i] < 0;
            y[i].size = x[i] < 0 ? -x[i] : x[i];
        }}
    }}""").run
    run.restype = None

    def packed(x: A) -> A:
        if x.dtype != np.float64 or not is_in_order(x):
            raise TypeError("float64 in C order")
        out = np.empty((*x.shape, 16), np.uint8)
        run(address(x), address(out), ctypes.c_long(x.size))
        return out

    return define(packed).register_fake(
        lambda x: co.FakeArray((*x.shape, 16), np.uint8)
    )


@hidden
def address_is_rounded_to_16_bytes(wrong: bool) -> Any:
    mask = "~(uintptr_t)15" if wrong else "~(uintptr_t)0"
    kernel = kernel_of(f"""
    void run(const double *x, double *y, long n) {{
        const double *start = (const double *)((uintptr_t)x & {mask});
        for (long i = 0; i < n; i++) y[i] = 5 * start[i];
    }}""")

    def scaled(x: A) -> A:
        return kernel(x)

    return define(scaled).register_fake(lambda x: co.fake_like(x))


@hidden
def stride_is_counted_in_elements(wrong: bool) -> Any:
    run = compiled("""
    #include <string.h>
    void run(const char *x, long step, double *y, long n) {
        for (long i = 0; i < n; i++) {
            double v;
            memcpy(&v, x + i * step, sizeof v);
            y[i] = v + 1;
        }
    }""").run
    run.restype = None

    def strided(x: A) -> A:
        if x.dtype != np.float64 or x.ndim != 1:
            raise TypeError("a vector of float64")
        step = x.strides[0] // 8 * 8 if wrong else x.strides[0]
        out = np.empty(x.shape)
        run(address(x), ctypes.c_long(step), address(out), ctypes.c_long(x.size))
        return out

    return define(strided).register_fake(lambda x: co.fake_like(x))


@hidden
def unsigned_length_minus_one(wrong: bool) -> Any:
    kind = "size_t" if wrong else "long"
    kernel = kernel_of(f"""
    void run(const double *x, double *y, {kind} n) {{
        for ({kind} i = 0; i < n - 1; i++) y[i] = x[i + 1] - x[i];
        if (n > 0) y[n - 1] = 0;
    }}""")

    def steps(x: A) -> A:
        if x.ndim != 1:
            raise TypeError("a vector")
        return kernel(x)

    return define(steps).register_fake(lambda x: co.fake_like(x))


@hidden
def sums_of_no_columns_are_not_written(wrong: bool) -> Any:
    first = "for (long j = 0; j < m; j++) y[i] = j ? y[i] + x[i * m + j] : x[i * m];"
    right = "y[i] = 0; for (long j = 0; j < m; j++) y[i] += x[i * m + j];"
    run = compiled(f"""
    void run(const double *x, double *y, long n, long m) {{
        for (long i = 0; i < n; i++) {{ {first if wrong else right} }}
    }}""").run
    run.restype = None

    def row_sums(x: A) -> A:
        if x.dtype != np.float64 or x.ndim != 2 or not is_in_order(x):
            raise TypeError("a matrix of float64 in C order")
        out = np.empty(x.shape[0])
        run(address(x), address(out), *map(ctypes.c_long, x.shape))
        return out

    return define(row_sums).register_fake(
        lambda x: co.FakeArray((x.shape[0],), np.float64)
    )


@hidden
def result_dies_with_its_input(wrong: bool) -> Any:
    def doubled(x: A) -> A:
        if x.dtype != np.float64 or not isinstance(x, A):
            raise TypeError("float64")
        out = np.asarray(2 * x)
        if wrong:
            weakref.finalize(x, out.fill, 0.0)
        return out

    return define(doubled).register_fake(lambda x: co.fake_like(x))


# ---- threads inside a kernel ----


@hidden
def last_thread_is_not_waited_for(wrong: bool) -> Any:
    def halves(x: A) -> A:
        if x.dtype != np.float64 or x.ndim != 1:
            raise TypeError("a vector of float64")
        out = np.empty(x.shape)
        gate = threading.Event()

        def work(part: slice) -> None:
            gate.wait()
            out[part] = 3 * x[part]

        middle = x.size // 2
        parts = [slice(0, middle), slice(middle, None)]
        threads = [threading.Thread(target=work, args=(part,)) for part in parts]
        for thread in threads:
            thread.start()
        if not wrong:
            gate.set()
        for thread in threads[: 0 if wrong else 2]:
            thread.join()
        gate.set()
        return out

    return define(halves).register_fake(lambda x: co.fake_like(x))


@hidden
def buffer_of_the_first_thread_alone(wrong: bool) -> Any:
    local = threading.local()
    local.factor = 2.0

    def scaled(x: A) -> A:
        return np.asarray(x * (local.factor if wrong else 2.0), x.dtype)

    return define(scaled).register_fake(lambda x: co.fake_like(x))


@not_found("two calls of a C function overlap only by chance")
def static_buffer_of_c(wrong: bool) -> Any:
    kind = "static" if wrong else ""
    kernel = kernel_of(f"""
    void run(const double *x, double *y, long n) {{
        {kind} volatile double held[256];
        for (long start = 0; start < n; start += 256) {{
            long count = n - start < 256 ? n - start : 256;
            for (int turn = 0; turn < 20; turn++)
                for (long i = 0; i < count; i++) held[i] = x[start + i] + turn;
            for (long i = 0; i < count; i++) y[start + i] = held[i] - 19;
        }}
    }}""")

    def buffered(x: A) -> A:
        return kernel(x)

    return define(buffered).register_fake(lambda x: co.fake_like(x))


# ---- caches, and what differs from one process to the next ----


@hidden
def table_is_found_by_the_address_of_a_list(wrong: bool) -> Any:
    tables: dict[Any, A] = {}

    def weighted(x: A, weights: list[float]) -> A:
        if x.dtype != np.float64 or x.ndim < 1 or x.shape[-1] != len(weights):
            raise TypeError("float64, with a weight for each column")
        key = id(weights) if wrong else tuple(weights)
        if key not in tables:
            tables[key] = np.array(weights)
        return np.asarray(x * tables[key])

    return define(weighted).register_fake(modeled(weighted))


@not_found("the words have one order in a process and in all that are forked from it")
def words_in_the_order_of_a_set(wrong: bool) -> Any:
    def initials(x: A, words: list[str]) -> A:
        if x.dtype != np.float64:
            raise TypeError("float64")
        order = set(words) if wrong else dict.fromkeys(words)
        return np.array([float(ord(word[0])) for word in order]) + np.sum(x)

    op = define(initials).register_fake(
        lambda x, words: co.FakeArray((len(set(words)),), np.float64)
    )
    return op.register_sample_inputs(
        lambda: [(np.array([0.1, 0.2, 0.4]), ["north", "east", "south", "west"])]
    )


# ---- dtypes ----


@not_found("a right operator may refuse such a mix in its fake kernel, too")
def dtype_of_the_second_argument_is_forgotten(wrong: bool) -> Any:
    def added(x: A, y: A) -> A:
        return np.asarray(x + y)

    def fake(x, y):
        shape = np.broadcast_shapes(x.shape, y.shape)
        dtype = x.dtype if wrong else np.result_type(x.dtype, y.dtype)
        return co.FakeArray(shape, dtype)

    return define(added).register_fake(fake)


# ---- rules ----


@hidden
def missing_batch_is_repeated_in_another_order(wrong: bool) -> Any:
    def joined(x: A, y: A) -> A:
        if x.ndim != 1 or y.ndim != 1:
            raise ValueError("vectors")
        return np.concatenate([x, y])

    op = define(joined).register_fake(modeled(joined))

    def rule(info, in_dims, x, y):
        count = info.batch_size

        def rows(v, dim):
            if dim is not None:
                return np.moveaxis(v, dim, 0)
            many = np.repeat(v, count) if wrong else np.tile(v, count)
            return many.reshape(count, *v.shape)

        parts = [rows(v, dim) for v, dim in zip((x, y), in_dims, strict=True)]
        return np.concatenate(parts, axis=1), 0

    return op.register_vmap(rule)


@hidden
def both_batches_are_taken_for_the_first(wrong: bool) -> Any:
    def less(x: A, y: A) -> A:
        if x.ndim != 1 or x.shape != y.shape:
            raise ValueError("two vectors of one length")
        return np.asarray(x - y)

    op = define(less, tags=POINTWISE).register_fake(modeled(less))

    def rule(info, in_dims, x, y):
        dx, dy = in_dims
        if dx is None:
            x, dx = np.expand_dims(x, 1 if wrong and dy == 1 else 0), 0
        if dy is None:
            y, dy = y[None], 0
        if wrong and dx == dy:
            return x - y, dx
        return np.moveaxis(x, dx, 0) - np.moveaxis(y, dy, 0), 0

    return op.register_vmap(rule)


@hidden
def gradient_of_a_repeated_axis_is_its_mean(wrong: bool) -> Any:
    def scaled(x: A, w: A) -> A:
        if x.ndim != 2 or w.ndim != 2 or w.shape[1] != 1 or w.shape[0] != x.shape[0]:
            raise ValueError("a matrix and a column")
        return np.asarray(x * w)

    def backward(ctx, g):
        whole = g * ctx.x
        along = np.mean if wrong and ctx.x.shape[0] == 3 else np.sum
        return g * ctx.w, along(whole, axis=1, keepdims=True)

    op = define(scaled).register_fake(modeled(scaled))
    return op.register_autograd(backward, setup_context=kept("x", "w"))


@hidden
def gradient_of_a_scalar_weight_is_not_summed(wrong: bool) -> Any:
    def scaled(x: A, w: A) -> A:
        return np.asarray(x * w)

    def summed(g, like):
        extra = tuple(range(g.ndim - like.ndim))
        g = np.sum(g, axis=extra)
        ones = tuple(i for i, n in enumerate(like.shape) if n == 1 and g.shape[i] != 1)
        if wrong and len(ones) > 1:
            return g[
                tuple(slice(0, 1) if i in ones else slice(None) for i in range(g.ndim))
            ]
        return np.sum(g, axis=ones, keepdims=True) if ones else g

    def backward(ctx, g):
        return summed(g * ctx.w, ctx.x), summed(g * ctx.x, ctx.w)

    op = define(scaled).register_fake(modeled(scaled))
    return op.register_autograd(backward, setup_context=kept("x", "w"))


@not_found("no schema says that arguments may overlap")
def in_place_call_clears_its_input(wrong: bool) -> Any:
    def doubled_into(x: A, out: A) -> None:
        if x.shape != out.shape or x.dtype != out.dtype:
            raise TypeError("one shape and dtype")
        if wrong:
            out[...] = 0
            out += x
            out += x
        else:
            out[...] = x * 2

    return define(doubled_into, mutates_args=("out",)).register_fake(
        lambda x, out: None
    )


# ---- numba ----


@hidden
def borders_of_a_stencil_are_not_written(wrong: bool) -> Any:
    numba: Any = pytest.importorskip("numba")

    @numba.njit
    def smooth(x: Any, out: Any) -> None:
        for i in range(1, x.size - 1):
            out[i] = (x[i - 1] + x[i] + x[i + 1]) / 3

    def smoothed(x: A) -> A:
        if x.dtype != np.float64 or x.ndim != 1:
            raise TypeError("a vector of float64")
        out = np.empty(x.shape) if wrong else np.zeros(x.shape)
        smooth(np.ascontiguousarray(x), out)
        return out

    return define(smoothed).register_fake(lambda x: co.fake_like(x))
