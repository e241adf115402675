"""Rows of arithmetic joined to one loop, beside NumPy's calls one after the other."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.compiling.native_backend import fused_loops
from customop.compiling.native_backend.door import (
    FLAGGED,
    DoorInput,
    DoorResult,
    make_door,
)
from customop.compiling.native_backend.driver import driver
from customop.compiling.native_backend.fused_loops import fuse
from customop.compiling.native_backend.memory import address_of
from customop.compiling.native_backend.tables import NativeProgram, Table
from customop.compiling.native_backend.ufunc_loops import loop_for

UNARY = ("negative", "square", "sqrt", "absolute", "reciprocal", "positive")
BINARY = ("add", "subtract", "multiply", "divide", "maximum", "minimum")
LENGTHS = (1, 2, 7, 8, 9, 16, 17, 64, 1001)


class Rows:
    """Rows of ufuncs over arrays, noted, and the values that NumPy computes for them."""

    def __init__(self, dtype: str) -> None:
        self.program: NativeProgram = NativeProgram(driver())
        self.table: Table = self.program.table()
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.steps: list[tuple[str, list[np.ndarray[Any, Any]]]] = []

    def emit(self, name: str, *arrays: np.ndarray[Any, Any]) -> None:
        """Add a row; the last array is the result."""
        loop: Any = loop_for(getattr(np, name), tuple([a.dtype for a in arrays[:-1]]))
        n = arrays[-1].size
        steps = [a.itemsize if a.size == n else 0 for a in arrays]
        row = self.table.emit(loop, [address_of(a) for a in arrays], [n], steps)
        char = self.dtype.char
        types = char * (len(arrays) - 1) + "->" + char
        self.table.note(row, name, len(self.steps), types)
        self.steps.append((name, list(arrays)))

    def reads(self, kept: list[np.ndarray[Any, Any]]) -> Any:
        """Return the function that says which values are read after a row."""

        def is_read_after(node: int, row: int) -> bool:
            own = self.steps[node][1][-1]
            if any(np.may_share_memory(own, a) for a in kept):
                return True
            return any(
                np.may_share_memory(own, a)
                for _, arrays in self.steps[row + 1 :]
                for a in arrays[:-1]
            )

        return is_read_after


def draw(seed: int) -> tuple[Rows, list[Any], list[Any]]:
    """Return random rows, the arrays that are given, and those that are kept."""
    rng = np.random.default_rng(seed)
    rows = Rows(str(rng.choice(["f4", "f8"])))
    n = int(rng.choice(LENGTHS))
    # One memory; values may lie in each other's memory, the same or shifted.
    room = np.zeros(12 * n + 8, rows.dtype)
    places = [room[k * n : (k + 1) * n] for k in range(12)]
    if rng.random() < 0.3 and n > 1:
        places[11] = room[9 * n + 1 : 10 * n + 1]
    given = [*places[:3], room[12 * n : 12 * n + 1], room[12 * n + 4 : 12 * n + 5]]
    known = [*given]
    for _ in range(rng.integers(2, 14)):
        result = places[int(rng.integers(3, 12))]
        if rng.random() < 0.6:
            name, count = str(rng.choice(BINARY)), 2
        else:
            name, count = str(rng.choice(UNARY)), 1
        inputs = [known[int(rng.integers(len(known)))] for _ in range(count)]
        if any(
            np.may_share_memory(a, result) and a.ctypes.data != result.ctypes.data
            for a in inputs
        ):
            continue
        rows.emit(name, *inputs, result)
        known += [result, places[11]] if result is places[9] else [result]
    kept = [a for a in places[3:] if rng.random() < 0.3 and any(a is k for k in known)]
    kept = kept or known[-1:]
    rows.program.hold(room)
    return rows, given, kept


def check(seed: int) -> int:
    """Compare the bytes of all kept values; return how many groups there were."""
    rows, given, kept = draw(seed)
    rng = np.random.default_rng(seed + 1)
    values = []
    for place in given:
        drawn = (rng.normal(size=place.size) * 3).astype(rows.dtype)
        drawn[rng.random(place.size) < 0.1] = rng.choice([0.0, -0.0, np.inf, 1.0])
        values.append(drawn)
    for place, value in zip(given, values, strict=True):
        place[...] = value
    with np.errstate(all="ignore"):
        for name, arrays in rows.steps:
            getattr(np, name)(*arrays[:-1], out=arrays[-1])
    wanted = [a.copy() for a in kept]
    groups = fuse(rows.table, rows.reads(kept)) if rows.steps else 0

    def place_of(a: Any) -> tuple[int, int, int]:
        start = address_of(a)
        return start, start, start + a.nbytes

    inputs = [
        DoorInput("array", rows.dtype, a.shape, a.strides, *place_of(a), True)
        for a in given
    ]
    results = [DoorResult("new", rows.dtype, a.shape, None, *place_of(a)) for a in kept]
    with np.errstate(all="ignore"):
        door = make_door(rows.program, rows.table, inputs, results, lambda *a: [])
        for _ in range(2):
            given[0].base[...] = 0
            found = door(*values)
            for a, b in zip(wanted, found, strict=True):
                odd = np.isnan(a)
                assert (odd == np.isnan(b)).all(), seed
                assert a[~odd].tobytes() == b[~odd].tobytes(), seed
    return groups


@pytest.mark.parametrize("start", range(0, 60, 20))
def test_random_rows(start: int) -> None:
    """Random rows over memory that is used again have NumPy's bits."""
    assert sum(check(seed) for seed in range(start, start + 20)) > 5


@pytest.mark.exhaustive
@pytest.mark.parametrize("start", range(1000, 3000, 100))
def test_many_random_rows(start: int) -> None:
    """Random rows over memory that is used again have NumPy's bits."""
    assert sum(check(seed) for seed in range(start, start + 100)) > 50


@pytest.mark.parametrize("name", [*UNARY, *BINARY])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_each_operation(name: str, dtype: str) -> None:
    """All pairs of odd values, with arrays and with one number, at each place of a step."""
    tiny = np.finfo(dtype).tiny
    odd: list[float] = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        1.5,
        np.inf,
        -np.inf,
        np.nan,
        float(tiny),
        float(tiny) / 4,
        3e38,
    ]
    a, b = np.repeat(odd, len(odd)).astype(dtype), np.tile(odd, len(odd)).astype(dtype)
    for second in (b, *(np.array([v], dtype) for v in odd)):
        rows = Rows(dtype)
        x, middle, out = (np.zeros(a.size, dtype) for _ in range(3))
        y = np.zeros(second.size, dtype)
        rows.program.hold((x, y, middle, out))
        inputs = [x, y] if name in BINARY else [x]
        rows.emit(name, *inputs, middle)
        rows.emit("negative", middle, out)
        assert fuse(rows.table, rows.reads([middle, out])) == 1
        with np.errstate(all="ignore"):
            given = [
                DoorInput(
                    "array", p.dtype, p.shape, p.strides, address_of(p),
                    address_of(p), address_of(p) + p.nbytes, True,
                )
                for p in (x, y)
            ]  # fmt: skip
            result = DoorResult("new", x.dtype, x.shape, None, address_of(middle))
            door = make_door(rows.program, rows.table, given, [result], lambda *v: [])
            (found,) = door(a, second)
            ufunc = getattr(np, name)
            wanted = ufunc(a, second) if name in BINARY else ufunc(a)
        same = np.isnan(wanted) & np.isnan(found)
        assert found[~same].tobytes() == wanted[~same].tobytes()


def test_nan_raises_no_flag() -> None:
    """The comparisons behind maximum and minimum do not raise a flag at NaN."""
    for n in (1, 3, 40):
        rows = Rows("f8")
        x, y, out = (np.zeros(n) for _ in range(3))
        rows.program.hold((x, y, out))
        rows.emit("maximum", x, y, out)
        rows.emit("minimum", out, x, out)
        rows.emit("add", out, x, out)
        assert fuse(rows.table, rows.reads([out])) == 1
        given = [
            DoorInput("array", p.dtype, p.shape, p.strides, address_of(p),
                      address_of(p), address_of(p) + p.nbytes, True)
            for p in (x, y)
        ]  # fmt: skip
        result = DoorResult("new", x.dtype, x.shape, None, address_of(out))
        door = make_door(rows.program, rows.table, given, [result], lambda *v: v[0])
        odd = np.where(np.arange(n) % 2 == 0, np.nan, 1.0)
        for a, b in ((odd, np.ones(n)), (np.ones(n), odd), (odd, odd)):
            (found,) = door(a, b)
            assert np.isnan(found[0])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert door(np.full(n, np.inf), np.full(n, 1.0))[0][0] == np.inf
        assert door(np.full(n, 1e308), np.full(n, 1e308)) == FLAGGED


def test_values_that_nothing_reads_are_not_stored() -> None:
    """A value between two rows stays in a register."""
    rows = Rows("f8")
    x, middle, out = (np.zeros(100) for _ in range(3))
    rows.emit("square", x, middle)
    rows.emit("add", middle, x, out)
    assert fuse(rows.table, rows.reads([out])) == 1
    result = DoorResult("new", x.dtype, x.shape, None, address_of(out))
    place = address_of(x)
    given = DoorInput(
        "array", x.dtype, x.shape, x.strides, place, place, place + 800, True
    )
    rows.program.hold((x, middle, out))
    door = make_door(rows.program, rows.table, [given], [result], lambda *v: v)
    assert door(np.full(100, 3.0))[0].tolist() == [12.0] * 100
    assert not middle.any()


@pytest.mark.parametrize("length", [1, 7, 64])
def test_values_that_nothing_reads_warn(length: int) -> None:
    """A call whose value is not used is made for its warning, also in a joined row."""

    def f(x: Any) -> Any:
        np.sqrt(x)
        return x + 1.0, x * 2.0

    compiled = co.compile(f, backend="native")
    right, wrong = np.ones(length), np.ones(length)
    wrong[-1] = -1.0
    for _ in range(2):
        compiled(right)
        with pytest.warns(RuntimeWarning, match="invalid value encountered in sqrt"):
            compiled(wrong)


def test_shifted_memory_is_not_joined() -> None:
    """A row that reads other items of what a row before it wrote, or writes them, stays."""
    for first, second in (((0, 8), (9, 24)), ((8, 24), (32, 9))):
        rows = Rows("f8")
        room = np.arange(40.0)
        rows.program.hold(room)
        for source, target in (first, second):
            rows.emit("square", room[source : source + 8], room[target : target + 8])
        assert fuse(rows.table, lambda node, row: True) == 0
        assert len(rows.table.rows) == 2


# ---- short lines ----

LINES = [
    ((5, 1), (1, 16)),
    ((16, 4), (16, 1)),
    ((7, 3, 9), (7, 1, 9)),
    ((2, 3, 1, 8), (3, 4, 1)),
    ((6, 1, 5), (1, 4, 5)),
    ((3, 256), (3, 1)),
    ((3, 257), (3, 1)),
    ((1, 4), (0, 1)),
]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "maximum"])
def test_arithmetic_over_short_lines(name: str, dtype: str) -> None:
    """Lines that one row goes over have NumPy's bits, layout and warnings."""
    ufunc, rng = getattr(np, name), np.random.default_rng(1)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-320, 3.0], dtype)
    for shapes in LINES:
        a, b = (rng.normal(size=shape).astype(dtype) for shape in shapes)
        pairs = [(a, b), (b, a), (a[::-1], b), (a, b.T.copy().T)]
        chosen = [rng.choice(special, shape).astype(dtype) for shape in shapes]
        compiled = co.compile(lambda x, y: ufunc(x, y), backend="native")
        for x, y in (*pairs, (chosen[0], chosen[1])):
            told = []
            for fn in (ufunc, compiled):
                with warnings.catch_warnings(record=True) as seen:
                    warnings.simplefilter("always")
                    found = fn(x, y)
                text = sorted(str(w.message) for w in seen)
                found[np.isnan(found)] = np.nan  # of one sign
                told.append((found.tobytes(), found.strides, text))
            assert told[0] == told[1]


def test_which_rows_go_over_short_lines() -> None:
    """Lines of one item, and long ones, are those of NumPy's own loop."""
    made: list[bool] = []
    for shapes in LINES:
        before = fused_loops._nest_code.cache_info()
        a, b = (np.ones(shape) for shape in shapes)
        co.compile(lambda x, y: x * y, backend="native")(a, b)
        after = fused_loops._nest_code.cache_info()
        made.append(after.hits + after.misses > before.hits + before.misses)
    assert made == [True, True, True, True, True, True, False, False]
