"""Kernels and formulas that lose bits of their numbers, or wrap around."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

import customop as co
from tests.testing.planted import POINTWISE, define, kept, modeled

from . import A, address, compiled, hidden, is_in_order, not_found


@hidden
def longdouble_through_float64(wrong: bool) -> Any:
    def tripled(x: A) -> A:
        if x.dtype.kind != "f":
            raise TypeError("floats")
        through = np.float64 if wrong and x.dtype == np.longdouble else x.dtype
        return np.asarray(x.astype(through) * 3).astype(x.dtype)

    return define(tripled, tags=POINTWISE).register_fake(lambda x: co.fake_like(x))


@hidden
def integers_through_float64(wrong: bool) -> Any:
    def doubled(x: A) -> A:
        if x.dtype.kind not in "iu":
            raise TypeError("integers")
        return (x.astype(float) * 2).astype(x.dtype) if wrong else x * x.dtype.type(2)

    return define(doubled).register_fake(lambda x: co.fake_like(x))


@hidden
def sum_of_integers_through_float64(wrong: bool) -> Any:
    def total(x: A) -> A:
        if x.dtype != np.int64 or x.ndim != 1:
            raise TypeError("a vector of int64")
        return np.asarray(int(np.sum(x, dtype=float)) if wrong else np.sum(x))

    return define(total).register_fake(lambda x: co.FakeArray((), np.int64))


@hidden
def integers_through_int32(wrong: bool) -> Any:
    def shifted(x: A) -> A:
        if x.dtype.kind == "i":
            return (x.astype(np.int32) + 7).astype(x.dtype) if wrong else x + 7
        return x + 7.0

    return define(shifted).register_fake(modeled(shifted))


@hidden
def total_in_single_precision(wrong: bool) -> Any:
    kind = "float" if wrong else "double"
    run = compiled(f"""
    void run(const double *x, double *y, long n) {{
        {kind} s = 0;
        for (long i = 0; i < n; i++) s += x[i];
        *y = s;
    }}""").run

    def total(x: A) -> A:
        if x.dtype != np.float64 or not is_in_order(x):
            raise TypeError("float64 in C order")
        out = np.empty(())
        run(address(x), address(out), ctypes.c_long(x.size))
        return out

    return define(total).register_fake(lambda x: co.FakeArray((), np.float64))


@hidden
def product_in_single_precision(wrong: bool) -> Any:
    def multiplied(x: A, y: A) -> A:
        if x.dtype != np.float64 or y.dtype != np.float64:
            raise TypeError("float64")
        short = np.float32 if wrong else np.float64
        return (x.astype(short) * y.astype(short)).astype(float)

    return define(multiplied, tags=POINTWISE).register_fake(modeled(multiplied))


@hidden
def single_through_half(wrong: bool) -> Any:
    def scaled(x: A) -> A:
        if x.dtype.kind != "f":
            raise TypeError("floats")
        if wrong and x.dtype == np.float32:
            return (x.astype(np.float16) * np.float16(1.5)).astype(np.float32)
        return np.asarray(x * x.dtype.type(1.5))

    return define(scaled, tags=POINTWISE).register_fake(lambda x: co.fake_like(x))


def _square(backward: Any, setup: Any = None) -> Any:
    def squared(x: A) -> A:
        return x * x

    op = define(squared, tags=POINTWISE).register_fake(lambda x: co.fake_like(x))
    return op.register_autograd(backward, setup_context=setup or kept("x"))


@hidden
def gradient_halved_for_single_precision(wrong: bool) -> Any:
    def backward(ctx, g):
        short = wrong and ctx.x.dtype == np.float32
        return g * ctx.x * np.asarray(1 if short else 2, ctx.x.dtype)

    return _square(backward)


@hidden
def gradient_rounded_to_half(wrong: bool) -> Any:
    def backward(ctx, g):
        x = ctx.x
        if wrong and x.dtype == np.float32:
            x = x.astype(np.float16).astype(np.float32)
        return g * x * np.asarray(2, x.dtype)

    return _square(backward)


@hidden
def tangent_halved_for_single_precision(wrong: bool) -> Any:
    def squared(x: A) -> A:
        return x * x

    op = define(squared, tags=POINTWISE).register_fake(lambda x: co.fake_like(x))

    def rule(primals, tangents):
        (x,), (t,) = primals, tangents
        short = wrong and x.dtype == np.float32
        return op(x), t * x * np.asarray(1 if short else 2, x.dtype)

    return op.register_jvp(rule)


@hidden
def gradient_of_one_scale(wrong: bool) -> Any:
    def backward(ctx, g):
        factor = np.asarray(2, ctx.x.dtype)
        if wrong and ctx.x.dtype == np.complex64:
            return g * ctx.x * factor * 0.5
        return g * ctx.x * factor

    return _square(backward)


# Right kernels whose numbers differ between dtypes, and wrong ones like them.


@hidden
def difference_of_products_through_int32(wrong: bool) -> Any:
    def crossed(x: A, y: A) -> A:
        if x.dtype.kind not in "if" or x.dtype != y.dtype or x.ndim * y.ndim != 1:
            raise TypeError("two vectors of a dtype")
        if wrong and x.dtype == np.int64:
            x, y = x.astype(np.int32), y.astype(np.int32)
            return (x * y[::-1] - x[::-1] * y).astype(np.int64)
        return x * y[::-1] - x[::-1] * y

    return define(crossed).register_fake(modeled(crossed))


@hidden
def sine_of_integers_in_half(wrong: bool) -> Any:
    def sine(x: A) -> A:
        if x.dtype.kind not in "if":
            raise TypeError("integers or floats")
        if x.dtype.kind == "f":
            return np.asarray(np.sin(x))
        short = np.sin(x.astype(np.float32))
        return np.asarray(short.astype(np.float16) if wrong else short, np.float32)

    return define(sine).register_fake(modeled(sine))


@hidden
def tiny_results_through_half(wrong: bool) -> Any:
    def decayed(x: A) -> A:
        if x.dtype.kind not in "if":
            raise TypeError("integers or floats")
        if x.dtype.itemsize > 4:
            return np.asarray(np.exp(-np.abs(x.astype(np.float64))))
        short = np.exp(-np.abs(x.astype(np.float32)))
        return np.asarray(short.astype(np.float16) if wrong else short, np.float32)

    return define(decayed).register_fake(modeled(decayed))


@hidden
def tangent_of_differences_in_half(wrong: bool) -> Any:
    def spread(x: A) -> A:
        if x.dtype.kind != "f" or x.ndim != 1 or not x.size:
            raise TypeError("a vector of floats")
        return np.asarray(np.sum((x - np.mean(x)) ** 2))

    op = define(spread).register_fake(lambda x: co.FakeArray((), x.dtype))

    def rule(primals, tangents):
        (x,), (t,) = primals, tangents
        if wrong and x.dtype == np.float32:
            x = x.astype(np.float16).astype(np.float32)
        return op(x), np.asarray(np.sum((x - np.mean(x)) * t)) * np.asarray(2, x.dtype)

    return op.register_jvp(rule)


@not_found(
    "right kernels in NumPy overflow in float16, too, so it is not held against them"
)
def squares_overflow_in_half(wrong: bool) -> Any:
    def length(x: A, y: A) -> A:
        if x.dtype.kind != "f" or x.dtype != y.dtype or x.shape != y.shape:
            raise TypeError("floats of one dtype and shape")
        return np.sqrt(x * x + y * y) if wrong else np.hypot(x, y)

    return define(length).register_fake(lambda x, y: co.fake_like(x))
