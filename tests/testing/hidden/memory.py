"""Kernels in C that touch memory which is not that of their arrays."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

import customop as co
from tests.testing.planted import define

from . import A, address, compiled, hidden, is_in_order, kernel_of


def _mapped(source: str) -> Any:
    """Make an operator of a kernel that maps an array to one of the same shape."""
    kernel = kernel_of(source)

    def mapped(x: A) -> A:
        return kernel(x)

    return define(mapped).register_fake(lambda x: co.fake_like(x))


@hidden
def tail_of_a_vector_is_loaded_whole(wrong: bool) -> Any:
    step = "i + 3 < n || 1" if wrong else "i + 3 < n"
    return _mapped(f"""
    void run(const double *x, double *y, long n) {{
        volatile double kept[4];
        long i = 0;
        for (; i < n && ({step}); i += 4) {{
            for (int k = 0; k < 4; k++) kept[k] = 2 * x[i + k];
            for (int k = 0; k < 4 && i + k < n; k++) y[i + k] = kept[k];
        }}
        for (; i < n; i++) y[i] = 2 * x[i];
    }}""")


@hidden
def loads_need_16_bytes(wrong: bool) -> Any:
    load = "*(const pair *)(x + i)" if wrong else "(pair){x[i], x[i + 1]}"
    return _mapped(f"""
    typedef double pair __attribute__((vector_size(16)));
    void run(const double *x, double *y, long n) {{
        long i = 0;
        for (; i + 1 < n; i += 2) {{
            pair v = {load};
            v = v * v;
            y[i] = v[0]; y[i + 1] = v[1];
        }}
        for (; i < n; i++) y[i] = x[i] * x[i];
    }}""")


@hidden
def neighbor_before_the_first(wrong: bool) -> Any:
    first = "x[-1]" if wrong else "0"
    return _mapped(f"""
    void run(const double *x, double *y, long n) {{
        for (long i = 0; i < n; i++) {{
            volatile double before = i ? x[i - 1] : {first};
            y[i] = i ? x[i] - before : x[i];
        }}
    }}""")


@hidden
def neighbor_after_the_last(wrong: bool) -> Any:
    last = "x[i + 1]" if wrong else "(i + 1 < n ? x[i + 1] : x[i])"
    return _mapped(f"""
    void run(const double *x, double *y, long n) {{
        for (long i = 0; i < n; i++) {{
            double next = {last};
            y[i] = x[i] > next ? x[i] : next;
        }}
    }}""")


@hidden
def input_is_written_and_restored(wrong: bool) -> Any:
    body = (
        "double *w = (double *)x; double old = w[i]; w[i] = -old; y[i] = -w[i];"
        " w[i] = old;"
        if wrong
        else "y[i] = x[i];"
    )
    return _mapped(f"""
    void run(const double *x, double *y, long n) {{
        for (volatile long i = 0; i < n; i++) {{ {body} }}
    }}""")


@hidden
def input_is_written_with_its_own_values(wrong: bool) -> Any:
    body = "((volatile double *)x)[i] = x[i];" if wrong else ""
    return _mapped(f"""
    void run(const double *x, double *y, long n) {{
        for (long i = 0; i < n; i++) {{ {body} y[i] = 3 * x[i]; }}
    }}""")


@hidden
def blocks_of_a_cache_line(wrong: bool) -> Any:
    count = "8" if wrong else "(n - i < 8 ? n - i : 8)"
    return _mapped(f"""
    #include <string.h>
    void run(const double *x, double *y, long n) {{
        volatile double sink;
        for (long i = 0; i < n; i += 8) {{
            double block[8];
            memcpy(block, x + i, sizeof(double) * {count});
            sink = block[0];
            for (long k = 0; k < 8 && i + k < n; k++) y[i + k] = block[k] + 1;
        }}
    }}""")


@hidden
def buffer_of_a_thousand(wrong: bool) -> Any:
    size = "1000" if wrong else "n + 1"
    return _mapped(f"""
    void run(const double *x, double *y, long n) {{
        double held[{size}];
        for (long i = 0; i < n; i++) held[i] = x[i];
        for (long i = 0; i < n; i++) y[i] = held[n - 1 - i];
    }}""")


def _scaler(wrong: bool, source: str) -> Any:
    """Make an operator that writes into its argument."""
    run = compiled(source).run
    run.restype = None

    def scaled(x: A) -> None:
        if x.dtype != np.float64 or not is_in_order(x):
            raise TypeError("float64 in C order")
        run(address(x), ctypes.c_long(x.size))

    return define(scaled, mutates_args=("x",)).register_fake(lambda x: None)


@hidden
def one_element_too_many_is_written(wrong: bool) -> Any:
    until = "<=" if wrong else "<"
    return _scaler(
        wrong,
        "void run(double *x, long n)"
        f" {{ for (long i = 0; i {until} n; i++) x[i] *= 0.5; }}",
    )


@hidden
def element_before_is_written(wrong: bool) -> Any:
    start = "-1" if wrong else "0"
    return _scaler(
        wrong,
        "void run(double *x, long n)"
        f" {{ if (n) for (long i = {start}; i < n; i++) x[i] += 1; }}",
    )


@hidden
def pairs_are_written_back_whole(wrong: bool) -> Any:
    end = "n" if wrong else "n - 1"
    return _scaler(
        wrong,
        f"""
    void run(double *x, long n) {{
        long i = 0;
        for (; i < {end}; i += 2) {{ x[i] *= 2; ((volatile double *)x)[i + 1] *= 2; }}
        for (; i < n; i++) x[i] *= 2;
    }}""",
    )


@hidden
def base_of_a_view_is_written(wrong: bool) -> Any:
    def cleared(x: A) -> None:
        whole = x.base if wrong and isinstance(x.base, A) else x
        whole[...] = 0

    return define(cleared, mutates_args=("x",)).register_fake(lambda x: None)


@hidden
def text_without_an_end(wrong: bool) -> Any:
    until = "x[i] != 0" if wrong else "i < n && x[i] != 0"
    run = compiled(f"""
    long run(const unsigned char *x, long n) {{
        long i = 0;
        while ({until}) i++;
        return i;
    }}""").run
    run.restype = ctypes.c_long

    def length(x: A) -> A:
        if x.dtype != np.uint8 or not is_in_order(x) or x.ndim != 1:
            raise TypeError("a vector of uint8")
        return np.array(min(run(address(x), ctypes.c_long(x.size)), x.size))

    return define(length).register_fake(lambda x: co.FakeArray((), np.int64))


@hidden
def windows_past_the_end(wrong: bool) -> Any:
    def windows(x: A) -> A:
        if x.ndim != 1 or x.dtype != np.float64 or len(x) < 2:
            raise TypeError("a vector of float64")
        step = x.strides[0]
        pairs = np.lib.stride_tricks.as_strided(x, (len(x), 2), (step, step))
        if wrong:
            sums = pairs.max(axis=1)
            sums[-1] = x[-1]
            return sums
        return np.append(pairs[:-1].max(axis=1), x[-1])

    return define(windows).register_fake(lambda x: co.fake_like(x))
