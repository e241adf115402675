"""Own loops beside NumPy: all dtypes, steps, lengths; what they leave to NumPy."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.compiling.native_backend.own_loops import (
    add_at_loop,
    cast_loop,
    copy_loop,
    move_loop,
    put_loop,
    take_loop,
    where_loop,
)
from customop.compiling.native_backend.tables import InnerLoop

LENGTHS = (0, 1, 7, 8, 64, 1001)
STEPS = (1, 2, -1, -3, 0)
DTYPES = [np.dtype(char) for char in "?bBhHiIlLqQfdFD"]


def run(
    loop: InnerLoop | None,
    arrays: Sequence[np.ndarray[Any, Any]],
    dims: Sequence[int],
    steps: Sequence[int] | None = None,
) -> int:
    """Call a loop on arrays; return what it returns."""
    assert loop is not None
    kind = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 5)
    if steps is None:
        steps = [a.strides[0] for a in arrays]
    parts = [[a.ctypes.data for a in arrays], dims, steps]
    words = [np.array(part, np.int64) for part in parts]
    places = [part.ctypes.data for part in words]
    function: Any = kind(loop.function)
    result: int = function(loop.context, *places, loop.auxdata)
    return result


def in_steps(values: np.ndarray[Any, Any], step: int) -> np.ndarray[Any, Any]:
    """Return values that lie in steps in memory; the first one throughout for 0."""
    if step == 0:
        return np.broadcast_to(values[:1], values.shape) if values.size else values
    room = np.zeros(max(values.size * abs(step), 1), values.dtype)
    found = (room if step > 0 else room[::-1])[:: abs(step)][: values.size]
    found[...] = values
    return found


def samples(dtype: np.dtype[Any], count: int, seed: int) -> np.ndarray[Any, Any]:
    """Return values of a dtype; floats have odd ones among them."""
    rng = np.random.default_rng(seed)
    if dtype.kind == "b":
        return rng.random(count) < 0.5
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, count, dtype, endpoint=True)
    if dtype.kind == "c":
        parts = samples(np.dtype(f"f{dtype.itemsize // 2}"), 2 * count, seed)
        return parts.view(dtype)
    values = (rng.normal(size=count) * 30).astype(dtype)
    values[rng.random(count) < 0.1] = -0.0
    return values


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("itemsize", [1, 2, 3, 4, 8, 16, 24])
def test_copy_and_where(itemsize: int, length: int) -> None:
    """Items of any size are copied, and chosen, in any steps."""
    rng = np.random.default_rng(length)
    raw = np.dtype(f"V{itemsize}")
    a, b = (
        np.frombuffer(rng.bytes(itemsize * max(length, 1)), raw)[:length]
        for _ in range(2)
    )
    mask = rng.random(length) < 0.5
    for step in STEPS:
        source, other, chosen = (in_steps(v, step) for v in (a, b, mask))
        target = np.zeros(length, raw)
        assert run(copy_loop(itemsize), [source, target], [length]) == 0
        assert target.tobytes() == source.tobytes()
        if where_loop(itemsize) is None:
            assert itemsize in {3, 24}
            continue
        arrays = [chosen, source, other, target]
        assert run(where_loop(itemsize), arrays, [length]) == 0
        assert target.tobytes() == np.where(chosen, source, other).tobytes()


def test_move() -> None:
    """Memory is copied as it is."""
    source, target = np.arange(33, dtype=np.uint8), np.zeros(33, np.uint8)
    assert run(move_loop(), [source, target], [32], [0, 0]) == 0
    assert target.tolist() == [*range(32), 0]


@pytest.mark.parametrize("target", DTYPES, ids=lambda d: d.char)
@pytest.mark.parametrize("source", DTYPES, ids=lambda d: d.char)
def test_casts(source: np.dtype[Any], target: np.dtype[Any]) -> None:
    """Casts have NumPy's bits; floats that do not fit are left to NumPy."""
    loop = cast_loop(source, target)
    if source.kind == "c" and target.kind != "c":
        assert loop is None
        return
    for length in LENGTHS:
        values = samples(source, length, length)
        if source.kind == "f" and target.kind in "iu":
            limits = np.iinfo(target)
            values = np.clip(values, max(limits.min, -100), min(limits.max, 100))
        for step in STEPS:
            given = in_steps(values, step)
            found = np.zeros(2 * length, target)[::2] if step == -1 else None
            found = np.zeros(length, target) if found is None else found
            assert run(loop, [given, found], [length]) == 0
            assert found.tobytes() == given.astype(target).tobytes()


@pytest.mark.parametrize("target", "bBhHiIlL")
@pytest.mark.parametrize("source", "fd")
def test_casts_leave_what_does_not_fit(source: str, target: str) -> None:
    """The largest and smallest values that fit, and their neighbors, which do not."""
    kind = np.dtype(source).type
    limits = np.iinfo(target)
    loop = cast_loop(np.dtype(source), np.dtype(target))
    ends = [kind(limits.max + 1), kind(float(limits.min) - 1.0)]
    near = [np.nextafter(e, kind(0)) for e in ends]
    outside = [kind(np.nan), kind(np.inf), kind(-np.inf), ends[0]]
    outside.append(
        ends[1] if int(ends[1]) < limits.min else np.nextafter(ends[1], -kind("inf"))
    )
    for value in [*near, kind(-0.9), kind(0.9), kind(limits.min)]:
        for count in (1, 9):  # one by one, and some at once
            given, found = np.full(count, value), np.zeros(count, target)
            assert run(loop, [given, found], [count]) == 0
            assert found.tobytes() == given.astype(target).tobytes()
    for value in outside:
        for count in (1, 9):
            given, found = np.zeros(count, source), np.zeros(count, target)
            given[count // 2] = value
            assert run(loop, [given, found], [count]) == 1


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: d.char)
@pytest.mark.parametrize("axes", [1, 2, 3])
def test_rows_by_number(axes: int, dtype: np.dtype[Any]) -> None:
    """Rows are taken, put and added as NumPy does, also those that come twice."""
    rng = np.random.default_rng(axes)
    lead, tail = (3, 5, 2)[:axes], (3,)
    table = samples(dtype, int(np.prod(lead + tail)), 1).reshape(lead + tail)
    for count, apart in itertools.product((0, 1, 7, 64, 67), (1, 2)):
        numbers = [in_steps(rng.integers(-n, n, count), apart) for n in lead]
        rows = samples(dtype, count * 3, 2).reshape(count, 3)
        nbytes = 3 * dtype.itemsize
        dims = [count]
        for length, step in zip(lead, table.strides, strict=False):
            dims += [length, step]
        dims.append(nbytes)
        steps = [*[v.strides[0] for v in numbers], 0, rows.strides[0]]
        found = np.zeros((count, 3), dtype)
        assert run(take_loop(axes, nbytes), [*numbers, table, found], dims, steps) == 0
        assert found.tobytes() == table[tuple(numbers)].tobytes()
        wanted, changed = table.copy(), table.copy()
        wanted[tuple(numbers)] = rows
        assert run(put_loop(axes, nbytes), [*numbers, changed, rows], dims, steps) == 0
        assert changed.tobytes() == wanted.tobytes()
        if dtype.kind == "b":
            assert add_at_loop(dtype, axes) is None
            continue
        wanted, changed = table.copy(), table.copy()
        np.add.at(wanted, tuple(numbers), rows)
        assert (
            run(add_at_loop(dtype, axes), [*numbers, changed, rows], dims, steps) == 0
        )
        assert changed.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("number", [3, -4, 2**63 - 1, -(2**63)])
def test_rows_out_of_bounds(number: int) -> None:
    """A number that is out of bounds is left to NumPy, and the memory there is not read."""
    table, found = np.arange(6.0).reshape(3, 2), np.zeros((19, 2))
    numbers = np.ones(19, int)
    dims, steps = [19, 3, 16, 16], [8, 0, 16]
    loops = take_loop(1, 16), put_loop(1, 16), add_at_loop(table.dtype, 1)
    for loop, place in itertools.product(loops, (0, 7, 12, 18)):
        numbers[:] = 1
        assert run(loop, [numbers, table.copy(), found], dims, steps) == 0
        numbers[place] = number
        assert run(loop, [numbers, table.copy(), found], dims, steps) == 1
    zeros, single = np.zeros(19, int), np.zeros(19)
    dims, steps = [19, 3, 16, 2, 8, 8], [8, 8, 0, 8]
    for pair in ([numbers, zeros], [zeros, numbers]):
        assert run(take_loop(2, 8), [*pair, table, single], dims, steps) == 1


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("exponent", [2, 3.0, 0.5, -1, 1.5, np.float32(2.0)])
def test_powers_of_scalars(exponent: Any, dtype: str) -> None:
    """A power of NumPy's scalars has the bits of its operator, which arrays have not."""

    def f(x: Any) -> Any:
        s = x[0] * x[1]
        return s**exponent, 2.0 ** (s * 0.25)

    compiled = co.compile(f, backend="native")
    for seed in range(20):
        x = (np.random.default_rng(seed).uniform(0.1, 4, 2)).astype(dtype)
        for a, b in zip(f(x), compiled(x), strict=True):
            assert type(a) is type(b)
            assert a.tobytes() == b.tobytes()
    if dtype == "f4" or not isinstance(exponent, np.generic):
        assert "power" not in str(compiled.explain())
    with pytest.warns(RuntimeWarning, match="overflow encountered in scalar power"):
        compiled(np.array([80.0, 80.0], dtype))
