"""When a compiled function compiles again, and what it does with memory."""

from __future__ import annotations

import gc
import pickle
import threading
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import customop as co


class _Counted:
    """A compiled function, and how many graphs it has."""

    def __init__(self, fn: Any, **options: Any) -> None:
        self.fn = fn
        self.compiled = co.compile(fn, **options)

    def check(self, *args: Any, **kwargs: Any) -> int:
        """Compare a call with the function, and say how many graphs there are."""
        found, expected = self.compiled(*args, **kwargs), self.fn(*args, **kwargs)
        assert type(found) is type(expected)
        assert np.array_equal(found, expected, equal_nan=True)
        assert getattr(found, "dtype", None) == getattr(expected, "dtype", None)
        return len(self.compiled.graphs)


# ---- arguments ----


def test_dtypes_ranks_and_classes_have_graphs_of_their_own() -> None:
    f = _Counted(lambda x: x * 2)
    values = [np.ones(3), np.ones(3, "f4"), np.ones(3, ">f8"), np.ones((3, 1))]
    values += [np.array(1.0), np.float64(1.0), np.float32(1.0)]
    assert [f.check(v) for v in values] == [1, 2, 3, 4, 5, 6, 7]
    assert [f.check(v) for v in values] == [7] * 7


def test_lengths_that_differ_are_symbolic_from_the_second_value_on() -> None:
    f = _Counted(lambda x, w: x @ w)
    w = np.ones((3, 2))
    assert [f.check(np.ones((n, 3)), w) for n in (4, 5, 6, 7, 4)] == [1, 2, 2, 2, 2]
    # The other axis differs now, too; a length of 1 or 0 has a graph of its own.
    assert [f.check(np.ones((n, 2)), np.ones((2, 2))) for n in (4, 8)] == [3, 3]
    assert f.check(np.ones((1, 3)), w) == 4
    assert f.check(np.ones((0, 3)), w) == 5


def test_a_branch_on_a_length_is_a_guard() -> None:
    f = _Counted(lambda x: x.sum() if x.shape[0] > 5 else x.max())
    assert [f.check(np.arange(n) * 1.0) for n in (3, 4, 5, 8, 9, 2)] == [
        1,
        2,
        2,
        3,
        3,
        3,
    ]
    assert "only where" in str(f.compiled.explain())


def test_values_that_are_not_arrays_are_compared() -> None:
    f = _Counted(lambda x, n, how="a": x**n if how == "a" else -x)
    x = np.arange(3.0)
    assert f.check(x, 2) == f.check(x, n=2) == f.check(x, 2, how="a") == 1
    assert [f.check(x, 2.0), f.check(x, 3), f.check(x, 2, "b")] == [2, 3, 4]
    assert [f.check(x, 2, 1.0), f.check(x, 2, True)] == [5, 6]


@pytest.mark.parametrize("value", [0.0, -0.0, np.nan, np.inf, 1e300, 1j, -0.0j])
def test_numbers_are_compared_to_the_last_bit(value: complex) -> None:
    f = co.compile(lambda x, s: x * s)
    x = np.array([1.0, -2.0])
    f(x, 0.0)
    for _ in range(2):
        assert f(x, value).tobytes() == (x * value).tobytes()
    assert len(f.graphs) == (1 if repr(value) == "0.0" else 2)


def test_structures_are_compared_and_kept() -> None:
    def f(tree, *rest, k=None, **more):
        return {"r": [np.sin(tree["a"]), rest, k], **more}

    compiled = co.compile(f)
    x = np.ones(2)
    calls: list[Any] = [
        (({"a": x},), {}),
        (({"a": x, "b": (x, None)},), {}),
        (({"b": (x, None), "a": x},), {}),
        (({"a": x}, x, 3), {"k": x}),
        (({"a": x},), {"z": x, "b": [x]}),
    ]
    for _ in range(2):
        for args, kwargs in calls:
            found, expected = compiled(*args, **kwargs), f(*args, **kwargs)
            assert repr(found) == repr(expected)
    assert len(compiled.graphs) == 5  # another order of keys is another structure


def test_a_wrong_call_is_the_error_of_a_function() -> None:
    f = co.compile(lambda x, y=1: x)
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
        f()
    f(np.ones(1))
    with pytest.raises(TypeError, match="takes from 1 to 2 positional arguments"):
        f(1, 2, 3)


# ---- memory ----


def test_views_of_arguments_are_views_of_them() -> None:
    def f(x):
        y = x.T
        x[0] = 5.0
        return x, y, x[1:], x + 1.0

    x = np.zeros((3, 3))
    same, turned, rows, new = co.compile(f)(x)
    assert same is x
    assert np.shares_memory(turned, x)
    assert np.shares_memory(rows, x)
    assert not np.shares_memory(new, x)
    assert turned[0, 0] == 5.0


def test_an_array_made_inside_is_made_anew_by_each_call() -> None:
    kept = np.ones(2)
    f = co.compile(
        lambda x: (np.zeros(2), np.arange(6.0)[2:], kept, kept[1:], x + kept)
    )
    first, second = f(np.zeros(2)), f(np.zeros(2))
    first[0][:] = first[1][:] = 7.0
    assert second[0].tolist() == [0, 0]
    assert second[1].tolist() == [2, 3, 4, 5]
    assert f(np.zeros(2))[0].tolist() == [0, 0]
    assert first[2] is second[2] is kept
    assert np.shares_memory(second[3], kept)


def test_one_array_passed_twice_is_one_array() -> None:
    def f(x, y):
        x += 1.0
        return y * 2.0

    compiled = co.compile(f)
    for _ in range(2):
        for args in ([np.zeros(2)] * 2, [np.zeros(2), np.zeros(2)]):
            expected = f(*[args[0].copy()] * 2) if args[0] is args[1] else 2 * args[1]
            assert np.array_equal(compiled(*args), expected)
            assert np.array_equal(args[0], [1.0, 1.0])
    assert len(compiled.graphs) == 2


def test_arguments_that_overlap_are_refused_where_one_is_written() -> None:
    def f(x, y):
        x += y
        return x

    compiled = co.compile(f)
    x = np.arange(4.0)
    compiled(x.copy(), np.ones(4))
    with pytest.raises(co.ArgumentError, match="another argument shares its memory"):
        compiled(x[1:], x[:-1])
    assert x.tolist() == [0, 1, 2, 3]
    eager = co.compile(f, fallback=True)
    assert eager(x[1:], x[:-1]).tolist() == [1, 3, 5]


def test_a_read_only_argument_raises_as_in_the_function() -> None:
    @co.compile
    def f(x):
        x += 1.0
        return x

    x = np.zeros(2)
    f(x)
    x.flags.writeable = False
    with pytest.raises(ValueError, match="output array is read-only"):
        f(x)


def test_strides_are_compared_where_they_decide_what_is_a_view() -> None:
    def f(x):
        y = x.reshape(-1)
        y[0] = 7.0
        return y

    compiled = co.compile(f)
    for _ in range(2):
        for x in (np.zeros((2, 3)), np.zeros((3, 2)).T):
            y = x.copy("K")
            assert np.array_equal(compiled(x), f(y))
            assert np.array_equal(x, y)
    assert len(compiled.graphs) == 2


def test_arguments_and_results_are_not_kept_alive() -> None:
    f = co.compile(lambda x: np.sin(x) + 1.0)
    x = np.ones(3)
    out = f(x)
    refs = [weakref.ref(x), weakref.ref(out)]
    del x, out
    gc.collect()
    assert [ref() for ref in refs] == [None, None]


# ---- errors, settings, limits ----


def test_errors_of_kernels_are_those_of_the_function() -> None:
    def f(x, y):
        x[0] = 1.0
        return x @ y

    compiled = co.compile(f)
    for fn in (f, compiled, compiled):
        x = np.zeros((2, 3))
        with pytest.raises(ValueError, match="matmul: Input operand 1 has a mismatch"):
            fn(x, np.ones(2))
        assert x[0, 0] == 1.0


def test_warnings_follow_errstate() -> None:
    f = co.compile(lambda x: 1.0 / x)
    for _ in range(2):
        with pytest.warns(RuntimeWarning, match="divide by zero encountered in divide"):
            f(np.zeros(1))
        with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
            f(np.zeros(1))
        with np.errstate(divide="ignore"):
            assert f(np.zeros(1)) == np.inf


def test_a_function_that_cannot_be_captured_says_where() -> None:
    def f(x):
        return x if x.sum() > 0 else -x

    with pytest.raises(co.DataDependentError, match=r"test_entries\.py:") as error:
        co.compile(f)(np.ones(2))
    assert "bool() of GraphTracer bool[], a value of compile(f)" in str(error.value)
    assert (
        "with compile(f, fallback=True) it runs as it is" in error.value.__notes__[-1]
    )
    with pytest.raises(co.ArgumentError, match=r"^compile: sizes has 'y'"):
        co.compile(f, sizes={"y": ("n",)})(np.ones(2))
    eager = co.compile(f, fallback=True)
    assert [eager(np.full(n, -1.0)).tolist() for n in (1, 2)] == [[1.0], [1.0, 1.0]]
    assert "runs as it is, since it cannot be captured: bool() of" in str(
        eager.explain()
    )
    assert eager.graphs == []


def test_strict_settings_run_the_function_itself() -> None:
    calls = []

    @co.compile
    def f(x):
        calls.append(1)
        return np.log(x)

    x = np.ones(2)
    f(x)
    f(x)
    for name, value in (("checks", "always"), ("check_nans", True)):
        before = getattr(co.config, name)
        setattr(co.config, name, value)
        try:
            f(x)
        finally:
            setattr(co.config, name, before)
    f(x)
    assert len(calls) == 3


def test_too_many_graphs_are_a_warning_that_says_why() -> None:
    f = co.compile(lambda x, n: x * len(range(n)), limit=2, backend="numpy")
    x = np.ones(1)
    f(x, 1)
    f(x, 2)
    with pytest.warns(co.CustomOpWarning) as caught:
        assert f(x, 3) == 3
    text = str(caught[0].message)
    assert "compile: '<lambda>' was compiled 3 times, and keeps 2" in text
    assert "compiled again: n is 3, was 2" in text
    assert "  do: pass what changes as arrays, or limit=... for more" in text
    with warnings.catch_warnings(action="error"):
        assert [float(f(x, n)[0]) for n in (4, 3, 1)] == [4, 3, 1]
    assert len(f.graphs) == 2
    lines = str(f.explain()).splitlines()
    assert lines[0] == "<lambda>, back end 'numpy', compiled 5 times"
    assert lines[1:3] == [
        "  1. x = f64[1], n = 1: not kept any more",
        "  2. x = f64[1], n = 2: not kept any more",
    ]
    assert "  5. x = f64[1], n = 1: 1 call" in lines


def test_limits_and_options_are_checked() -> None:
    with pytest.raises(co.ArgumentError, match=r"compile: limit=0 is not a number of"):
        co.compile(np.sin, limit=0)
    with pytest.raises(co.ArgumentError, match=r"compile: fallback=1 is neither"):
        co.compile(np.sin, fallback=1)
    with pytest.raises(co.ArgumentError, match=r"compile: sizes=3 is not a mapping"):
        co.compile(np.sin, sizes=3)
    with pytest.raises(co.ArgumentError, match=r"compile: 3 is not a function"):
        co.compile(3)


def test_it_pickles_as_its_function_and_options() -> None:
    f = co.compile(np.linalg.norm, limit=3)
    f(np.ones(4))
    again = pickle.loads(pickle.dumps(f))
    assert again(np.ones(4)) == 2.0
    assert type(again).__name__ == "Compiled"
    assert again.graphs


def test_explain_is_readable() -> None:
    def step(x, rate):
        return x - rate * np.sin(x)

    f = co.compile(step, backend="numpy")
    assert str(f.explain()) == "step, back end 'numpy', not called yet"
    f(np.ones(3), 0.5)
    f(np.ones(4), 0.5)
    f(np.ones(4), 0.25)
    lines = str(f.explain()).splitlines()
    assert lines[0] == "step, back end 'numpy', compiled 3 times"
    assert "  1. x = f64[3], rate = 0.5: 3 calls" in lines
    assert "     compiled again: x is f64[4], was f64[3]" in lines
    assert "     for all sizes: x.shape[0]" in lines
    assert "     compiled again: rate is 0.25, was 0.5" in lines
    f.clear()
    assert f.graphs == []
    assert f(np.zeros(1), 1.0) == 0.0


# ---- threads ----


def test_threads_share_a_compiled_function() -> None:
    runs = []

    @co.compile
    def f(x, y):
        runs.append(1)
        return np.sin(x) * y + x

    wrong = []

    def work(number: int) -> None:
        rng = np.random.default_rng(number)
        args = [(rng.normal(size=2 + n % 3), float(n % 2)) for n in range(4)]
        expected = [np.sin(x) * y + x for x, y in args]
        for k in range(300):
            is_same = np.array_equal(f(*args[k % 4]), expected[k % 4])
            wrong.extend([] if is_same else [k])

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(runs) == len(f.graphs) <= 6


# ---- modes that are open in other threads ----


@contextmanager
def mode_elsewhere() -> Iterator[None]:
    """Keep a mode open in another thread."""
    opened, done = threading.Event(), threading.Event()

    def keep() -> None:
        with co.autocast("cpu"):
            opened.set()
            done.wait()

    thread = threading.Thread(target=keep)
    thread.start()
    opened.wait()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_modes_of_other_threads_do_not_matter() -> None:
    def f(x: Any) -> Any:
        return np.sum(np.sin(x) * x)

    x, rows = np.linspace(0.1, 1.0, 3), np.linspace(0.1, 1.0, 6).reshape(2, 3)
    compiled = co.compile(f)
    with mode_elsewhere():
        for _ in range(2):
            assert compiled(x) == f(x)
            assert_array_equal(co.grad(compiled)(x), co.grad(f)(x))
            assert_array_equal(co.vmap(compiled)(rows), co.vmap(f)(rows))
            found = co.jvp(compiled, (x,), (x,))
            assert_array_equal(found, co.jvp(f, (x,), (x,)))
            traced = co.checkpoint(lambda v: co.jvp(compiled, (v,), (v,))[1])
            assert co.make_fx(traced)(x)(x) == found[1]


# ---- sizes that depend on data ----


@pytest.mark.parametrize(
    "f",
    [
        lambda a: a / np.nonzero(a)[0].size,
        lambda a: a * np.nonzero(a)[0].size + np.nonzero(a > 1)[0].size * a,
        lambda a: (a - np.unique(a).size) / (np.flatnonzero(a).size * len(a) + 1),
    ],
    ids=["quotient", "two", "expression"],
)
@pytest.mark.parametrize("backend", ["numpy", "native", "eager"])
def test_numbers_come_after_the_calls_that_give_them(f: Any, backend: str) -> None:
    compiled = co.compile(f, backend=backend)
    for x in (np.array([1.0, 0.0, 2.0]), np.arange(5.0), np.ones(4)):
        assert_array_equal(compiled(x), f(x))
