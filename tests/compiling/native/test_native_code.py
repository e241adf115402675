"""Calls of functions compiled by the native back end."""

from __future__ import annotations

import itertools
import threading
import warnings
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.compiling.native_backend import native_code
from customop.compiling.native_backend.door import make_door
from tests.compiling.programs import observe

ROWS = np.arange(12.0).reshape(3, 4) + 1.0


def _explained(f: Any) -> str:
    return str(f.explain())


def test_a_function_runs_as_a_table() -> None:
    """The report says how many rows there are; nothing is a call of Python."""
    f = co.compile(lambda x: np.sum(np.sin(x) * 2.0), backend="native")
    assert f(ROWS) == np.sum(np.sin(ROWS) * 2.0)
    assert "table of" in _explained(f)
    assert "call" not in _explained(f).partition("table of")[2]


def test_other_layouts_and_dtypes_have_plans_of_their_own() -> None:
    """A call with other strides, dtypes or classes is right, in any order of calls."""
    f = co.compile(lambda x: np.sum(x * 0.1, axis=0), backend="native")
    given = [
        ROWS,
        np.asfortranarray(ROWS),
        ROWS[::-1],
        ROWS[:, ::2],
        ROWS.astype(np.float32),
        ROWS.astype(np.int32),
    ]
    for x in [*given, *reversed(given), *given]:
        expected = np.sum(x * 0.1, axis=0)
        found = f(x)
        assert found.dtype == expected.dtype
        assert found.tobytes() == expected.tobytes()


def test_sizes_that_change_have_one_graph() -> None:
    """A graph for all sizes is planned for each size that comes."""
    f = co.compile(co.grad(lambda x: np.sum(np.tanh(x) * np.mean(x))), backend="native")
    expected = co.grad(lambda x: np.sum(np.tanh(x) * np.mean(x)))
    for n in (3, 4, 5, 6, 3, 4, 20, 30, 40, 50, 60, 70, 80):
        x = np.linspace(0.0, 1.0, n)
        assert f(x).tobytes() == expected(x).tobytes()


def test_warnings_and_errors_are_those_of_numpy() -> None:
    """A flag that NumPy reports makes the call run again by NumPy's code."""
    f = co.compile(lambda x: np.log(x) + 1.0, backend="native")
    bad = np.array([1.0, 0.0, -1.0])
    f(np.ones(3))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        found = f(bad)
    assert [str(w.message) for w in seen] == [
        "divide by zero encountered in log",
        "invalid value encountered in log",
    ]
    with np.errstate(all="raise"), pytest.raises(FloatingPointError, match="in log"):
        f(bad)
    with np.errstate(all="ignore"):
        assert np.array_equal(f(bad), found, equal_nan=True)
    with np.errstate(under="raise"), pytest.raises(FloatingPointError, match="underfl"):
        co.compile(lambda x: np.exp(x), backend="native")(np.array([-745.0]))


def test_an_index_out_of_bounds_raises_numpys_error() -> None:
    """The error, and the call after it, are NumPy's."""
    f = co.compile(lambda x, i: x[i] * 2.0, backend="native")
    assert np.array_equal(f(ROWS, np.array([0, -1])), ROWS[[0, -1]] * 2.0)
    with pytest.raises(IndexError):
        f(ROWS, np.array([0, 3]))
    assert np.array_equal(f(ROWS, np.array([2, 1])), ROWS[[2, 1]] * 2.0)


def test_results_share_memory_as_in_numpy() -> None:
    """Views of inputs and of results stay views, and a result given twice is one array."""

    def function(x: Any) -> Any:
        y = x * 2.0
        return y, y[1:], x.T, y, x, np.broadcast_to(y[0], (2, 4))

    f = co.compile(function, backend="native")
    y, part, turned, again, same, wide = f(ROWS)
    assert y is again
    assert same is ROWS
    assert part.base is y
    assert np.shares_memory(turned, ROWS)
    assert np.shares_memory(wide, y)
    assert not wide.flags.writeable
    assert np.array_equal(part, ROWS[1:] * 2.0)
    other = f(ROWS)
    assert not np.shares_memory(other[0], y)


def test_large_results_are_not_written_by_the_next_call() -> None:
    """A result stays what it was when the function is called again."""
    f = co.compile(lambda x: (np.sqrt(x), np.cumsum(x) + 1.0), backend="native")
    x = np.linspace(0.0, 1.0, 10_000)
    first, second = f(x)
    f(x + 1.0)
    assert np.array_equal(first, np.sqrt(x))
    assert np.array_equal(second, np.cumsum(x) + 1.0)


def test_operators_of_users_are_called() -> None:
    """An operator that is not NumPy's runs between rows; an error comes out as it is."""
    seen: list[Any] = []

    @co.custom_op("mylib::native_island", mutates_args=())
    def island(x: co.ArrayT) -> co.ArrayT:
        if np.sum(x) < 0:
            msg = "negative"
            raise ValueError(msg)
        seen.append(x)
        return x + 1.0

    island.register_fake(lambda x: co.fake_like(x))
    f = co.compile(lambda x: np.sin(island(x * 2.0)) * 3.0, backend="native")
    assert np.array_equal(f(ROWS), np.sin(ROWS * 2.0 + 1.0) * 3.0)
    kept = seen[-1].copy()
    f(ROWS * 5.0)
    assert np.array_equal(seen[-2], kept) or np.array_equal(seen[-2], ROWS * 2.0)
    with pytest.raises(ValueError, match="negative"):
        f(-ROWS)
    assert np.array_equal(f(ROWS), np.sin(ROWS * 2.0 + 1.0) * 3.0)
    assert "native_island" in _explained(f)


def test_a_function_may_call_itself_and_run_in_threads() -> None:
    """A table that is busy leaves a call to NumPy's code."""
    inner: list[Any] = []

    @co.custom_op("mylib::native_again", mutates_args=())
    def again(x: co.ArrayT) -> co.ArrayT:
        if x[0] > 5.0:
            return x + 0.0
        found: Any = inner[0](x + 3.0)
        return found

    again.register_fake(lambda x: co.fake_like(x))
    f = co.compile(lambda x: again(np.exp(x * 0.0) * x) + 1.0, backend="native")
    inner.append(f)
    start = np.array([1.0, 2.0])
    expected = f(start)
    assert np.array_equal(expected, start + 9.0)
    g = co.compile(lambda x: np.sum(np.sin(x)) + x, backend="native")
    wrong: list[int] = []

    def work(number: int) -> None:
        x = np.full(50, float(number))
        wanted = np.sum(np.sin(x)) + x
        found = [g(x) for _ in range(200)]
        wrong.extend([number for y in found if not np.array_equal(y, wanted)])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_kernel_that_is_replaced_is_called() -> None:
    """Tables are planned again when an operator changes."""

    @co.custom_op("mylib::native_changed", mutates_args=())
    def changed(x: co.ArrayT) -> co.ArrayT:
        return x + 1.0

    changed.register_fake(lambda x: co.fake_like(x))
    f = co.compile(lambda x: changed(x) * 2.0, backend="native")
    assert np.array_equal(f(ROWS), (ROWS + 1.0) * 2.0)
    changed.register_kernel("cpu", lambda x: x + 5.0)
    assert np.array_equal(f(ROWS), (ROWS + 5.0) * 2.0)


def test_bytes_in_another_order_are_left_to_numpy() -> None:
    """Constants, arguments and results of another order of bytes are right."""
    turned = ROWS.astype(">f8")
    for function in (
        lambda x: np.sum(x * 1.0) + np.sum(turned, axis=0),
        lambda x: x.astype(">f8"),
        lambda x: np.sort(x.astype(">i4")),
    ):
        f = co.compile(function, backend="native")
        for x in (ROWS, turned):
            expected, found = function(x), f(x)
            assert found.dtype == expected.dtype
            assert found.tobytes() == expected.tobytes()


SCALARS = (-128, -1, 0, 3, 100, 2.5, np.nan, np.inf, 3e38, 1e300)


@pytest.mark.parametrize("errors", ["warn", "raise"])
@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "i4", "u8", "f2", "f4", "f8", "F"])
def test_operators_of_scalars_are_those_of_python(dtype: str, errors: str) -> None:
    """Their integers look for overflow; powers and comparisons are no ufuncs."""
    programs = (
        lambda x, y: [x + y, x * y],
        lambda x, y: [x - y],
        lambda x, y: [x / y],
        lambda x, y: [x // y],
        lambda x, y: [x % y],
        lambda x, y: [x**y],
        lambda x, y: [x < y, x == y, x >= 2],
        lambda x, y: [-x, y + 1, 2.5 * y],
        lambda x, y: [abs(x), y - 0.5],
    )
    with warnings.catch_warnings(action="ignore"), np.errstate(all="ignore"):
        numbers = np.array(SCALARS).astype(dtype)
    for f in programs:
        compiled = co.compile(f, backend="native")
        for x, y in itertools.product(numbers, numbers):
            expected = observe(f, [x, y], errors)
            if expected.error is None or expected.error[0] == "FloatingPointError":
                assert observe(compiled, [x, y], errors) == expected


@pytest.mark.parametrize("how", ["warn", "print", "call"])
def test_settings_of_a_function_report_once(how: Any, capsys: Any) -> None:
    """A graph that reports whatever is set outside does not run twice."""
    seen: list[str] = []

    def f(x: Any) -> Any:
        with np.errstate(divide=how, call=lambda text, _: seen.append(text)):
            y = np.log(x)
        return y + 1.0 / x

    compiled = co.compile(f, backend="native")
    for x in (np.zeros(3), np.ones(3), np.zeros(3)):
        found = []
        for g in (f, compiled, compiled):
            seen.clear()
            capsys.readouterr()
            found.append((observe(g, [x], "warn"), [*seen], capsys.readouterr().out))
        assert found[1] == found[2] == found[0]


def test_sizes_in_results_are_numbers() -> None:
    """A symbolic size that a function returns is an int."""
    f = co.compile(lambda x: (x.shape[0], x * 2.0, x.shape[0] + 1), backend="native")
    for n in (3, 4, 5, 3):
        count, doubled, more = f(np.ones(n))
        assert (type(count), type(more)) == (int, int)
        assert (count, len(doubled), more) == (n, n, n + 1)


@pytest.mark.parametrize("dtype", ["f2", "f4"])
@pytest.mark.parametrize(
    "f",
    [
        lambda x: x + 1e300,
        lambda x: np.where(x > 0.0, x, 1e300),
        lambda x: np.full_like(x, 1e300) * x,
    ],
    ids=["add", "where", "full_like"],
)
def test_numbers_that_do_not_fit_are_reported_in_each_call(f: Any, dtype: str) -> None:
    """NumPy casts a number of Python in each call, and looks for overflow."""
    x = np.ones(3, dtype)
    for first in ("warn", "ignore"):
        compiled = co.compile(f, backend="native")
        for errors in (first, "warn", "raise", "ignore", "warn"):
            assert observe(compiled, [x], errors) == observe(f, [x], errors)


@pytest.mark.parametrize("dtype", ["f4", "f8", "F", "D"])
@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (1, 1, 1)])
def test_one_item_has_the_bits_of_numpys_loop(dtype: str, shape: Any) -> None:
    """NumPy's loops of complex numbers round by the step, also where there is one item."""
    rng = np.random.default_rng(0)
    programs: tuple[Any, ...] = (
        lambda x: np.square(x) + x,
        lambda x: np.conj(x) * x,
        lambda x: x * x.reshape(-1)[:1],
        lambda x: [np.exp(x), np.abs(x)],
    )
    for f in programs:
        compiled = co.compile(f, backend="native")
        for _ in range(20):
            pair = rng.standard_normal((2, *[4] * len(shape)))
            with warnings.catch_warnings(action="ignore"):
                whole = (pair[0] + 1j * pair[1]).astype(dtype)
            for key in (slice(0, 1), slice(3, 2, -2), slice(0, 1, 3)):
                x = whole[(*[key] * len(shape), ...)]
                assert observe(compiled, [x]) == observe(f, [x])


def test_nothing_warns_twice() -> None:
    """Calls that warn whatever is set for floating-point errors do so once."""
    x, z = np.array([0.0, 1.0, -1.0]), np.array([1j, 2.0, 0.0])
    programs: Any = (
        (lambda z: (z.astype("f8"), 1.0 / z), z),
        (lambda x: (np.nanmax(x * np.nan), 1.0 / x), x),
        (lambda x: (np.mean(x[:0]), 1.0 / x), x),
        (lambda x: np.reciprocal(x > 0), x),
    )
    for f, value in programs:
        compiled = co.compile(f, backend="native")
        for errors in ("warn", "raise", "ignore"):
            assert observe(compiled, [value], errors) == observe(f, [value], errors)


def test_copies_of_broadcast_arrays_lie_as_numpys() -> None:
    """An axis of step 0 is the innermost one of a copy, other than of a sum."""
    x = np.broadcast_to(np.arange(3.0), (4, 3))
    for f in (np.copy, lambda x: x.copy("K"), lambda x: x.astype("f8"), np.negative):
        compiled = co.compile(lambda x, f=f: [f(x), x + 1.0], backend="native")
        assert observe(compiled, [x]) == observe(lambda x, f=f: [f(x), x + 1.0], [x])
        y = x.astype("f4", order="C")[:, ::-1]
        assert observe(compiled, [y]) == observe(lambda x, f=f: [f(x), x + 1.0], [y])


def test_axes_of_length_one_have_the_steps_of_numpy() -> None:
    """Whoever reads the steps of a result sees those that NumPy gives new arrays."""
    for fn in (
        lambda x: np.sum(x, 0, keepdims=True),
        lambda x: np.prod(x, 0, where=x > 3.0, keepdims=True),
        lambda x: np.max(x, keepdims=True),
    ):
        assert co.compile(fn, backend="native")(ROWS).strides == fn(ROWS).strides


def test_edges_of_a_histogram_are_checked_for_their_values() -> None:
    """The operator is a view for NumPy, and an error for edges that are not in order."""
    fn = lambda x: np.histogram(x, bins=4)
    compiled = co.compile(fn, backend="native")
    for x in (ROWS, ROWS[::-1] * 2.0):
        for found, expected in zip(compiled(x), fn(x), strict=True):
            assert np.array_equal(found, expected)


def test_numbers_that_are_fixed_do_not_matter() -> None:
    """Numbers of Python are arguments of the table, as long as no call reads them."""
    compiled = co.compile(lambda x, by, n: np.sin(x) * by + n, backend="native")
    x = np.linspace(0.0, 1.0, 5)
    for _ in range(2):
        assert compiled(x, 0.1, 2).tobytes() == (np.sin(x) * 0.1 + 2).tobytes()
    assert "table of" in str(compiled.explain())
    assert compiled(x, 0.2, 3).tobytes() == (np.sin(x) * 0.2 + 3).tobytes()
    assert compiled(x, 0.1, 2**70).tobytes() == (np.sin(x) * 0.1 + 2.0**70).tobytes()


# ---- memory of results ----


def _through_blocks(x: Any) -> Any:
    """Values of sizes that share blocks, a larger one before the result and after it."""
    whole = np.sin(x)
    part = np.cos(whole[1:]) * 2.0
    other = np.exp(part[1:]) + whole[2:]
    return np.tanh(other), np.sqrt(np.abs(part))


@pytest.mark.parametrize("count", [513, 519, 520, 521, 4096])
def test_results_in_memory_that_had_other_values(count: int) -> None:
    """A table writes results to the arrays of the call, whatever lay there before."""
    compiled = co.compile(_through_blocks, backend="native")
    given = [np.random.default_rng(seed).normal(size=count) for seed in range(3)]
    found = [compiled(x) for x in given]
    for x, results in zip(given, found, strict=True):
        for result, wanted in zip(results, _through_blocks(x), strict=True):
            assert result.tobytes() == wanted.tobytes()


def test_large_results_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    """A block for several values is the new array of a call, if none of them is larger."""
    copied = []

    def noting(*given: Any, **more: Any) -> Any:
        copied.append([result.is_copied for result in given[3]])
        return make_door(*given, **more)

    monkeypatch.setattr(native_code, "make_door", noting)
    x = np.linspace(0.0, 1.0, 1000)
    co.compile(lambda x: np.tanh(np.cos(np.sin(x)) + x), backend="native")(x)
    # A value of 8,000 bytes before one of 7,984, in a block of 8,000.
    co.compile(lambda x: np.tanh(np.cos(np.sin(x))[2:] + x[2:]), backend="native")(x)
    assert copied == [[False], [True]]


# ---- arguments that the graph does not read ----


@pytest.mark.parametrize(
    "mode", ["sum", b"a", None, np, np.float32, np.dtype("f8"), ("a", 1)], ids=repr
)
def test_arguments_that_no_call_reads(mode: Any) -> None:
    """A function with a text, a module or a class among its arguments is a table."""

    def f(x: Any, mode: Any) -> Any:
        return (np.sum(x), mode) if mode == "sum" else (np.exp(x), mode)

    compiled = co.compile(f, backend="native")
    for x in (np.arange(3.0), np.arange(3.0) + 1.0):
        (found, own), (wanted, _) = compiled(x, mode), f(x, mode)
        np.testing.assert_array_equal(found, wanted)
        assert own == mode
    assert "NumPy code" not in str(compiled.explain())


def test_an_argument_of_another_class_that_no_call_reads() -> None:
    """The code of a graph, called with it, makes another plan."""
    module = co.make_fx(lambda x, mode: x + 1.0)(np.ones(2), "a")
    run: Any = native_code.build(module)
    for mode in ("a", "b", None, np, "a"):
        assert run(np.arange(2.0), mode)[0].tolist() == [1.0, 2.0]
    assert len(run.explain()) == 3
