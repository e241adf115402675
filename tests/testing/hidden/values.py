"""Operators that are wrong for single values, or leave the processor in another state."""

from __future__ import annotations

import ctypes
import gc
import locale
import sys
from typing import Any

import numpy as np

from tests.testing.planted import POINTWISE, define, kept, modeled

from . import A, compiled, hidden, not_found


def _pair(slow: Any, fast: Any) -> Any:
    """Make an operator with two kernels for NumPy arrays."""
    op = define(slow, device_types=None, tags=POINTWISE).register_fake(modeled(slow))
    return op.register_kernel("cpu", fast)


@hidden
def nan_in_one_argument(wrong: bool) -> Any:
    def larger(x: A, y: A) -> A:
        return np.maximum(x, y)

    def fast(x: A, y: A) -> A:
        if not wrong:
            return np.maximum(x, y)
        return np.where(np.isnan(y) | (x > y), np.where(np.isnan(x), x, np.where(
            np.isnan(y), x, x)), y)  # fmt: skip

    return _pair(larger, fast)


@hidden
def infinity_in_one_argument(wrong: bool) -> Any:
    def near(x: A, y: A) -> A:
        return np.asarray((x == y) | (abs(x - y) < 1.0))

    def fast(x: A, y: A) -> A:
        close = np.asarray(~(abs(x - y) >= 1.0))
        return close if wrong else np.asarray((x == y) | (abs(x - y) < 1.0))

    return _pair(near, fast)


@hidden
def negative_zero(wrong: bool) -> Any:
    def signs(x: A) -> A:
        if x.dtype.kind != "f":
            raise TypeError("floats")
        return np.copysign(np.ones_like(x), x)

    def fast(x: A) -> A:
        if x.dtype.kind != "f":
            raise TypeError("floats")
        one = np.ones_like(x)
        return np.where(x < 0, -one, one) if wrong else np.copysign(one, x)

    return _pair(signs, fast)


@hidden
def zero_divisor_alone(wrong: bool) -> Any:
    def ratio(x: A, y: A) -> A:
        return np.asarray(np.true_divide(x, y))

    def fast(x: A, y: A) -> A:
        out = np.true_divide(x, y)
        return np.where(np.isinf(out), 0.0 * out * 0, out) if wrong else np.asarray(out)

    return _pair(ratio, fast)


@not_found("the difference is far below the tolerances for float64")
def subnormal_numbers(wrong: bool) -> Any:
    def same(x: A) -> A:
        return x * 1.0

    def fast(x: A) -> A:
        out = x * 1.0
        if wrong and x.dtype == np.float64:
            return np.where(abs(out) < 2.3e-308, 0.0, out)
        return out

    return _pair(same, fast)


def _leaving(leave: Any) -> Any:
    def doubled(x: A) -> A:
        leave()
        return x * 2.0

    return define(doubled, tags=POINTWISE).register_fake(modeled(doubled))


@hidden
def processor_flushes_to_zero(wrong: bool) -> Any:
    run = compiled("""
    #if defined(__x86_64__)
    #include <xmmintrin.h>
    void run(int on) { if (on) _mm_setcsr(_mm_getcsr() | 0x8040); }
    #else
    void run(int on) {
        unsigned long v;
        if (on) { __asm__("mrs %0, fpcr" : "=r"(v));
                  __asm__("msr fpcr, %0" :: "r"(v | 1UL << 24)); }
    }
    #endif
    """).run
    return _leaving(lambda: run(ctypes.c_int(wrong)))


@hidden
def processor_rounds_up(wrong: bool) -> Any:
    run = compiled("""
    #include <fenv.h>
    void run(int on) { if (on) fesetround(FE_UPWARD); }
    """).run
    return _leaving(lambda: run(ctypes.c_int(wrong)))


@hidden
def garbage_collector_stays_off(wrong: bool) -> Any:
    def leave() -> None:
        was_on = gc.isenabled()
        (gc.disable if was_on else gc.enable)()
        if not wrong and was_on:
            gc.enable()
        elif not wrong:
            gc.disable()

    return _leaving(leave)


@hidden
def recursion_limit_stays_high(wrong: bool) -> Any:
    def leave() -> None:
        before = sys.getrecursionlimit()
        sys.setrecursionlimit(5000)
        if not wrong:
            sys.setrecursionlimit(before)

    return _leaving(leave)


@hidden
def language_of_numbers_changes(wrong: bool) -> Any:
    def leave() -> None:
        before = locale.setlocale(locale.LC_NUMERIC)
        locale.setlocale(locale.LC_NUMERIC, "C.UTF-8" if wrong else before)

    return _leaving(leave)


# ---- gradients where numbers are equal ----


def _with_gradient(fn: Any, backward: Any) -> Any:
    op = define(fn).register_fake(modeled(fn))
    return op.register_autograd(backward, setup_context=kept("x"))


@hidden
def every_maximum_gets_the_gradient(wrong: bool) -> Any:
    def largest(x: A) -> A:
        if x.ndim != 1 or x.dtype.kind != "f" or not x.size:
            raise TypeError("a vector of floats")
        return np.asarray(x.max())

    def backward(ctx, g):
        is_max = (ctx.x == ctx.out).astype(ctx.x.dtype)
        return g * is_max / (np.asarray(1.0, ctx.x.dtype) if wrong else is_max.sum())

    return _with_gradient(largest, backward)


@hidden
def sorted_gradient_at_ties(wrong: bool) -> Any:
    def ordered(x: A) -> A:
        if x.ndim != 1 or x.dtype.kind != "f":
            raise TypeError("a vector of floats")
        return np.sort(x, kind="stable")

    def backward(ctx, g):
        if wrong:
            places = np.searchsorted(ctx.out, ctx.x)
        else:
            places = np.argsort(np.argsort(ctx.x, kind="stable"))
        return g[places]

    return _with_gradient(ordered, backward)


@hidden
def larger_of_two_equal_numbers(wrong: bool) -> Any:
    def larger(x: A, y: A) -> A:
        return np.maximum(x, y)

    def backward(ctx, g):
        x_wins = ctx.x >= ctx.y
        y_wins = ctx.y >= ctx.x if wrong else ~x_wins
        return g * x_wins, g * y_wins

    op = define(larger, tags=POINTWISE).register_fake(modeled(larger))
    return op.register_autograd(backward, setup_context=kept("x", "y"))


@hidden
def power_where_one_number_is_zero(wrong: bool) -> Any:
    def scaled(x: A, y: A) -> A:
        return np.asarray(x * y)

    def backward(ctx, g):
        one = np.asarray(1, ctx.x.dtype)
        safe = np.where(ctx.x == 0, one, ctx.x)
        by_x = ctx.x * ctx.y / safe if wrong else ctx.y
        return g * by_x, g * ctx.x

    op = define(scaled, tags=POINTWISE).register_fake(modeled(scaled))
    return op.register_autograd(backward, setup_context=kept("x", "y"))
