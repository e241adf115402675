"""Arguments that a function writes, and parts of arrays that it replaces, as rows."""

from __future__ import annotations

import re
import warnings
from typing import Any

import numpy as np
import pytest

import customop as co
from tests.compiling.programs import observe

ROWS = np.arange(12.0).reshape(3, 4) + 1.0
PLACES = np.array([2, 0, -1, 0])


def _add(x: Any, v: Any) -> Any:
    x += v
    return x * 2.0


def _swap(x: Any, v: Any) -> Any:
    old = x.copy()
    x[...] = v
    v[...] = old
    return old


def _parts(x: Any, v: Any) -> None:
    x[0] = v[1]
    x[1:, 0] = v[0, :2]
    x[2] = x[0]


def _old_parts(x: Any, v: Any) -> Any:
    first = x[0] + 0.0
    x[0] = 7.0
    x[1] = first
    v[0] = x[1]
    return x[1:]


def _backward(x: Any, v: Any) -> Any:
    x[...] = x[::-1]
    v[:, ::-1] = x
    return v


def _local(x: Any, v: Any) -> Any:
    y = np.sin(x)
    for i in range(3):
        y[i] = y[i] * v[i, 0]
        y[:, i] += 1.0
    return y


def _at_places(x: Any, v: Any) -> Any:
    y = x * 2.0
    y[PLACES] = v[[0, 1, 2, 1]]
    v[PLACES] = 0.0
    return y


def _of_whole_numbers(x: Any, v: Any) -> Any:
    x[...] = np.floor(v).astype(np.int32)
    return x.sum()


def _one_number(x: Any, v: Any) -> Any:
    x[...] = v[0, 0]
    v[1] = x[0, 0]
    return x


def _across(x: Any, v: Any) -> None:
    v[0] = x[1]
    x[1] = 5.0


def _numbers(x: Any, v: Any) -> Any:
    first, last = x[0, 0], v.T[-1, 0]
    x *= 2.0
    v[0] = first
    return first, last[None, None], x[0, 0]


FUNCTIONS = (
    _numbers,
    _across,
    _add,
    _swap,
    _parts,
    _old_parts,
    _backward,
    _local,
    _at_places,
)
FUNCTIONS = (*FUNCTIONS, _of_whole_numbers, _one_number)
LAYOUTS = {
    "packed": lambda x: x.copy(),
    "turned": lambda x: np.asfortranarray(x),
    "gaps": lambda x: np.repeat(x, 3, axis=-1)[..., 1::3],
    "backward": lambda x: x[::-1].copy()[::-1],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("fn", FUNCTIONS)
def test_arrays_are_written_as_in_the_function(fn: Any, layout: str) -> None:
    """Bytes, steps and memory of arguments and results, in several calls."""
    compiled = co.compile(fn, backend="native")
    for k in range(3):
        pairs = [[LAYOUTS[layout](ROWS * n - k) for n in (1.0, 2.0)] for _ in "ab"]
        found, expected = (
            observe(f, given) for f, given in zip((compiled, fn), pairs, strict=True)
        )
        assert found == expected
    if layout == "packed":
        report = str(compiled.explain())
        assert "table of" in report
        assert "NumPy code" not in report
        assert "call:" not in report


def test_a_call_that_runs_again_has_written_nothing() -> None:
    """Run a call that warns by NumPy's code, on arguments as they were."""

    def fn(x: Any) -> Any:
        x += 1.0
        return np.log(x - 2.0)

    compiled = co.compile(fn, backend="native")
    x = np.ones(3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compiled(x)
    assert x.tolist() == [2.0] * 3
    assert [str(w.message) for w in caught] == ["divide by zero encountered in log"]
    compiled(x)
    assert x.tolist() == [3.0] * 3


def test_an_argument_that_cannot_be_written_is_numpys_error() -> None:
    compiled = co.compile(_add, backend="native")
    compiled(ROWS.copy(), ROWS)
    locked = ROWS.copy()
    locked.flags.writeable = False
    with pytest.raises(ValueError, match="output array is read-only"):
        compiled(locked, ROWS)


def test_places_outside_are_numpys_error() -> None:
    def fn(x: Any, i: Any) -> Any:
        x[i] = 0.0
        return x

    compiled = co.compile(fn, backend="native")
    x = np.ones(3)
    assert compiled(x, np.array([1, -1])).tolist() == [1.0, 0.0, 0.0]
    with pytest.raises(IndexError, match="index 3 is out of bounds for axis 0"):
        compiled(x, np.array([0, 3]))


def test_a_large_argument_is_written_by_numpys_code() -> None:
    """It writes in place, where a table would copy the new value of the argument."""
    compiled = co.compile(_add, backend="native")
    x, v = np.zeros(100_000), np.ones(100_000)
    assert np.array_equal(compiled(x, v), np.full(100_000, 2.0))
    assert np.array_equal(x, v)
    assert "NumPy code" in str(compiled.explain())


def _nbytes(compiled: Any) -> int:
    found = re.search(r"table of \d+ rows, (\d+) bytes", str(compiled.explain()))
    assert found is not None
    return int(found[1])


def test_a_part_of_a_large_argument_is_written_without_copies() -> None:
    """Two rows: nothing of the size of the argument is moved."""

    def fn(x: Any, v: Any) -> None:
        x[3] = v
        x[5:7] = 1.0

    compiled = co.compile(fn, backend="native")
    x = np.zeros((1000, 50))
    compiled(x, np.arange(50.0))
    expected = np.zeros((1000, 50))
    fn(expected, np.arange(50.0))
    assert np.array_equal(x, expected)
    assert "table of 0 rows" in str(compiled.explain())


@pytest.mark.parametrize("part", [slice(1, None), slice(None)])
def test_what_is_read_later_keeps_its_items(part: slice) -> None:
    """The gradient of the squares needs the items from before the assignment."""

    def fn(x: Any) -> Any:
        y = np.sin(x)
        squares = np.sum((y if part == slice(None) else y[part]) ** 2)
        y[1] = 5.0
        return squares + np.sum(y * y)

    compiled = co.compile(co.grad(fn), backend="native")
    x = np.linspace(0.1, 1.0, 5)
    for _ in range(2):
        assert compiled(x).tobytes() == co.grad(fn)(x).tobytes()
    assert "NumPy code" not in str(compiled.explain())


def test_steps_that_replace_parts_share_the_memory_of_an_array() -> None:
    def fn(x: Any) -> Any:
        y = np.cos(x)
        for i in range(20):
            y[i] = y[i - 1] * 2.0
        return y

    compiled = co.compile(fn, backend="native")
    x = np.linspace(0.0, 1.0, 1000)
    assert np.array_equal(compiled(x), fn(x))
    assert _nbytes(compiled) < 4 * x.nbytes


def test_layouts_that_a_graph_relies_on_are_checked() -> None:
    """A result that lies otherwise than its fake is the error of the graph."""
    turns = [False]

    @co.custom_op("written_rows::doubled", mutates_args=())
    def doubled(x: co.Array) -> co.Array:
        y = np.add(x, x)
        return np.asfortranarray(y) if turns[0] else y

    doubled.register_fake(lambda x: co.fake_like(x))

    def fn(x: Any) -> Any:
        y = doubled(x)
        y.reshape(-1)[0] = 5.0  # a view, as the fake lies
        return y

    compiled = co.compile(fn, backend="native")
    expected = ROWS * 2.0
    expected[0, 0] = 5.0
    for _ in range(2):
        assert np.array_equal(compiled(ROWS), expected)
    assert "NumPy code" not in str(compiled.explain())
    turns[0] = True
    with pytest.raises(co.GuardError, match=r"with strides \(8, 24\)"):
        compiled(ROWS)
    turns[0] = False
    assert np.array_equal(compiled(ROWS), expected)
