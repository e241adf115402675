"""Operators that go wrong over several calls, or with lists, dicts and objects."""

from __future__ import annotations

import functools
import os
import random
import threading
import warnings
from typing import Any

import numpy as np

import customop as co

from . import A, Window, define, modeled, numbers, planted, square

# ---- state between calls ----


@planted(test_determinism="")  # an address is used again by chance
def results_are_found_by_address(wrong: bool) -> Any:
    known: dict[Any, A] = {}

    def doubled(x: A) -> A:
        if not wrong:
            return x + x
        key = (x.ctypes.data, x.shape, x.dtype, x.strides)
        if key not in known:
            known[key] = x + x
        return known[key].copy()

    return define(doubled).register_fake(lambda x: co.FakeArray(x.shape, x.dtype))


@planted(test_determinism="")  # shown at no smaller input: state has changed
def table_made_for_the_first_scale(wrong: bool) -> Any:
    tables: dict[Any, A] = {}

    def ramped(x: A, scale: float = 2.0) -> A:
        key = (x.shape,) if wrong else (x.shape, scale)
        if key not in tables:
            tables[key] = np.full(x.shape, scale)
        return x * tables[key]

    return define(ramped).register_fake(
        modeled(lambda x, scale: x * np.full(x.shape, scale))
    )


@planted(test_determinism="")
def other_way_after_many_calls(wrong: bool) -> Any:
    calls = [0]

    def doubled(x: A) -> A:
        calls[0] += 1
        return x * (2.5 if wrong and calls[0] > 40 else 2.0)

    return define(doubled).register_fake(modeled(lambda x: x * 2.0))


@planted(
    test_determinism="the output differs between a call and the same call after others: 1 of 1 elements (100.0 %) are not close",
)
def every_fifth_call(wrong: bool) -> Any:
    calls = [0]

    def doubled(x: A) -> A:
        calls[0] += 1
        return x * (2.5 if wrong and calls[0] % 5 == 0 else 2.0)

    return define(doubled).register_fake(modeled(lambda x: x * 2.0))


@planted(
    test_determinism="raises RuntimeError: the last call has not ended",
)
def calls_after_a_refusal_fail(wrong: bool) -> Any:
    busy = [False]

    def doubled(x: A) -> A:
        if busy[0]:
            raise RuntimeError("the last call has not ended")
        busy[0] = wrong
        if x.dtype != np.float64:
            raise TypeError("float64")
        out = x * 2.0
        busy[0] = False
        return out

    op = define(doubled).register_fake(lambda x: co.FakeArray(x.shape, np.float64))
    return op.register_sample_inputs(lambda: [(np.ones(3),), (np.ones((2, 2)),)])


@planted(
    test_threads="the output differs between a call alone and one during a call in another thread: 1 of 1 elements (100.0 %) are not close",
)
def python_random_state_is_set(wrong: bool) -> Any:
    def noisy(x: A) -> A:
        source = random if wrong else random.Random(3)
        source.seed(3)
        return x * 1.0 + source.random()

    return define(noisy).register_fake(modeled(noisy))


@planted(
    test_mutation="changes np.get_printoptions() for the whole program",
)
def print_options_are_changed(wrong: bool) -> Any:
    def shown(x: A) -> A:
        if wrong:
            np.set_printoptions(precision=3)
        return x * 1.0

    return define(shown).register_fake(modeled(lambda x: x * 1.0))


@planted(
    test_mutation="changes warnings.filters for the whole program",
)
def warnings_are_switched_off(wrong: bool) -> Any:
    def logged(x: A) -> A:
        if wrong:
            warnings.simplefilter("ignore")
            return np.tanh(x)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return np.tanh(x)

    return define(logged).register_fake(modeled(np.tanh))


@planted(
    test_mutation="changes os.environ for the whole program",
)
def environment_is_changed(wrong: bool) -> Any:
    def tuned(x: A) -> A:
        if wrong:
            os.environ["PLANTED_THREADS"] = "1"
        return x * 1.0

    return define(tuned).register_fake(modeled(lambda x: x * 1.0))


# ---- threads ----


@planted(
    test_threads="the output differs between a call alone and one during a call in another thread: 1 of 1 elements (100.0 %) are not close",
)
def scratch_from_a_cache(wrong: bool) -> Any:
    @functools.lru_cache
    def scratch(shape: Any) -> A:
        return np.empty(shape)

    def blurred(x: A) -> A:
        out = scratch(x.shape) if wrong else np.empty(x.shape)
        out[...] = x
        out += np.sum(x)
        return out + 0.0

    return define(blurred).register_fake(lambda x: co.FakeArray(x.shape, np.float64))


@planted(
    test_threads="the output differs between a call alone and one during a call in another thread: 1 of 1 elements (100.0 %) are not close",
)
def settings_are_shared(wrong: bool) -> Any:
    class Settings(threading.local if not wrong else object):  # type: ignore[misc]
        gain = 1.0

    settings = Settings()

    def amplified(x: A) -> A:
        settings.gain = float(np.sum(np.abs(x))) + 1.0
        out = x * 1.0
        return out / settings.gain

    return define(amplified).register_fake(modeled(lambda x: x * 1.0))


@planted(
    test_determinism="raises RuntimeError: the lock is taken",
)
def locked_and_never_released(wrong: bool) -> Any:
    lock = threading.Lock()

    def doubled(x: A) -> A:
        if not lock.acquire(timeout=0.001):
            raise RuntimeError("the lock is taken")
        if wrong and x.dtype.kind != "f":
            raise TypeError("floats")
        lock.release()
        if x.dtype.kind != "f":
            raise TypeError("floats")
        return x * 2.0

    op = define(doubled).register_fake(modeled(lambda x: x * 2.0))
    return op.register_sample_inputs(lambda: [(np.ones(3),)])


# ---- writes ----


@planted(
    test_schema="the 'cpu' kernel writes argument 'parts'",
)
def array_of_a_dict_written(wrong: bool) -> Any:
    def total(parts: dict[str, A]) -> A:
        out = np.float64(0.0)
        for x in parts.values():
            y = x if wrong else x.astype(float)
            y *= 2
            out = out + np.sum(y)
        return np.float64(out)

    return define(total).register_fake(lambda parts: co.FakeArray((), np.float64))


@planted(
    test_schema="the 'cpu' kernel writes argument 'x'",
)
def written_where_a_keyword_says(wrong: bool) -> Any:
    def scaled(x: A, overwrite: bool = False) -> A:
        out = x if overwrite and wrong else x.copy()
        out *= 2
        return out + 0

    return define(scaled).register_fake(modeled(scaled))


@planted(
    test_mutation="writes argument 'x', which mutates_args=() does not name",
)
def shape_of_an_argument_is_set(wrong: bool) -> Any:
    def total(x: A) -> A:
        line = x if wrong else x.view()
        line.shape = (x.size,)
        return np.add.reduce(line, dtype=x.dtype)

    return define(total).register_fake(lambda x: co.FakeArray((), x.dtype))


@planted(
    test_mutation="writes argument 'x', which mutates_args=() does not name",
)
def flag_of_an_argument_is_set(wrong: bool) -> Any:
    def shielded(x: A) -> A:
        y = x if wrong else x.view()
        y.flags.writeable = False
        return y + 0

    return define(shielded).register_fake(modeled(shielded))


@planted(
    test_mutation="writes argument 'arrays', which mutates_args=() does not name",
)
def list_of_arguments_is_emptied(wrong: bool) -> Any:
    def summed(arrays: list[A]) -> A:
        left = arrays if wrong else list(arrays)
        out = np.float64(0.0)
        while left:
            out = out + np.sum(left.pop() * 1.0)
        return np.float64(out)

    return define(summed).register_fake(lambda arrays: co.FakeArray((), np.float64))


@planted(
    test_mutation="writes argument 'axes', which mutates_args=() does not name",
)
def list_of_numbers_is_sorted(wrong: bool) -> Any:
    def weighted(x: A, axes: list[int]) -> A:
        order = axes if wrong else list(axes)
        order.sort()
        return x * (1.0 + sum(i * k for i, k in enumerate(order)))

    op = define(weighted).register_fake(modeled(lambda x, axes: x * 1.0))
    return op.register_sample_inputs(lambda: [(np.ones(3), [2, 0, 1])])


@planted(
    test_schema="the 'cpu' kernel writes argument 'y'",
)
def more_is_written_than_declared(wrong: bool) -> Any:
    def exchange(x: A, y: A) -> None:
        if x.shape != y.shape:
            raise ValueError("one shape")
        x += y
        if wrong and x.ndim == 2:
            y[...] = 0

    return define(exchange, ("x",))


@planted(
    test_vmap="the output differs between row 0 under vmap with in_dims=(0) and that row alone: 1 of 1 elements (100.0 %) are not close",
)
def inplace_rule_for_batches_writes_a_copy(wrong: bool) -> Any:
    def double_(x: A) -> A:
        x += x
        return x

    op = define(double_, ("x",), tags=co.Tag.inplace)

    def rule(info, in_dims, x):
        y = x.copy() if wrong else x
        y += y
        return x, in_dims[0]

    return op.register_vmap(rule)


@planted(
    test_out_variant="the output differs between 'out' filled with 0 and with nan before the call: 1 of 1 elements (100.0 %) are not close",
)
def out_with_nan_stays_nan(wrong: bool) -> Any:
    def square_out(x: A, *, out: A) -> A:
        if x.shape != out.shape or x.dtype != out.dtype or x.dtype.kind != "f":
            raise ValueError("one shape and dtype of floats")
        if wrong:
            out *= 0
            out += x * x
        else:
            out[...] = x * x
        return out

    return define(square_out, ("out",), tags=co.Tag.out)


@planted(
    test_out_variant="output 0 differs between planted::root_out and planted::root: 1 of 3 elements (33.3 %) are not close",
)
def out_variant_for_negative_numbers(wrong: bool) -> Any:
    name = f"planted::root{next(numbers)}"

    def root(x: A) -> A:
        return np.sqrt(np.abs(x * 1.0))

    def root_out(x: A, *, out: A) -> A:
        np.sqrt(np.maximum(x, 0.0) if wrong else np.abs(x * 1.0), out=out)
        return out

    op = co.custom_op(name, root, mutates_args=()).register_fake(modeled(root))
    co.custom_op(f"{name}_out", root_out, mutates_args=("out",), tags=co.Tag.out)
    return op


# ---- shared memory ----


@planted(
    test_schema="returns output 0 that shares memory with argument 'x', which its schema does not say",
)
def input_is_returned_for_gain_one(wrong: bool) -> Any:
    def amplified(x: A, gain: float = 1.0) -> A:
        if x.dtype != np.float64:
            raise TypeError("float64")
        return x if wrong and gain == 1.0 else x * gain

    def fake(x, gain):
        if x.dtype != np.float64:
            raise TypeError("float64")
        return co.fake_like(x)

    return define(amplified).register_fake(fake)


@planted(
    test_schema="returns output 0 that shares memory with argument 'arrays', which its schema does not say",
)
def item_of_a_list_is_returned(wrong: bool) -> Any:
    def first(arrays: list[A]) -> A:
        if not arrays:
            raise ValueError("an array at least")
        return arrays[0] if wrong else arrays[0].copy()

    def fake(arrays):
        if not arrays:
            raise ValueError("an array at least")
        return co.fake_like(arrays[0])

    return define(first).register_fake(fake)


@planted(
    test_schema="returns output 0 that shares memory with argument 'window', which its schema does not say",
)
def array_of_an_object_is_returned(wrong: bool) -> Any:
    def taps(window: Window) -> A:
        return window.taps if wrong else window.taps.copy()

    return define(taps).register_fake(lambda window: co.fake_like(window.taps))


@planted(
    test_schema="returns output 0, item 1 that shares memory with output 0, item 0, which its schema does not say",
)
def one_array_twice_in_a_list(wrong: bool) -> Any:
    def both(x: A) -> list[A]:
        y = x.copy()
        return [y, y if wrong else y.copy()]

    return define(both).register_fake(lambda x: [co.fake_like(x), co.fake_like(x)])


@planted(
    test_determinism="returns the output in memory that a later call uses again",
)
def rows_of_one_table(wrong: bool) -> Any:
    table = np.linspace(0.0, 1.0, 100)

    def window(n: int) -> A:
        if not 0 < n < 100:
            raise ValueError("0 < n < 100")
        return table[:n] if wrong else table[:n].copy()

    def fake(n):
        if not 0 < n < 100:
            raise ValueError("0 < n < 100")
        return co.FakeArray((n,), np.float64)

    return define(window, device_types=None).register_fake(fake)


@planted(
    test_schema="returns output 0 that shares memory with argument 'x', which its schema does not say",
)
def flattened_without_a_copy(wrong: bool) -> Any:
    def line(x: A) -> A:
        return x.ravel() if wrong else x.flatten()

    return define(line).register_fake(lambda x: co.FakeArray((x.size,), x.dtype))


@planted(
    test_schema="returns output 0 that shares memory with argument 'x', which its schema does not say",
)
def empty_slice_of_the_input(wrong: bool) -> Any:
    def trimmed(x: A, n: int = 1) -> A:
        if x.ndim != 1 or not 0 <= n <= x.shape[0]:
            raise ValueError("a vector that is long enough")
        return x[n:] if wrong and n == 0 else x[n:].copy()

    def fake(x, n):
        if x.ndim != 1 or not 0 <= n <= x.shape[0]:
            raise ValueError("a vector that is long enough")
        return co.FakeArray((x.shape[0] - n,), x.dtype)

    return define(trimmed).register_fake(fake)


# ---- exceptions ----


@planted(
    test_out_variant="raises ValueError: an axis at least",
)
def variant_refuses_what_the_operator_takes(wrong: bool) -> Any:
    name = f"planted::squared{next(numbers)}"

    def square_out(x: A, *, out: A) -> A:
        if wrong and x.ndim == 0:
            raise ValueError("an axis at least")
        np.multiply(x, x, out=out)
        return out

    op = co.custom_op(name, square, mutates_args=())
    op.register_fake(lambda x: co.fake_like(x))
    co.custom_op(f"{name}_out", square_out, mutates_args=("out",), tags=co.Tag.out)
    return op
