"""Large elementwise rows in blocks and threads, beside NumPy's calls one after the other."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.compiling.capture import keep_what_warns
from customop.compiling.native_backend import blocked_rows
from customop.compiling.native_backend.blocked_rows import join_rows
from customop.compiling.native_backend.door import (
    FLAGGED,
    DoorInput,
    DoorResult,
    make_door,
)
from customop.compiling.native_backend.memory import address_of
from customop.compiling.native_backend.native_code import build
from tests.compiling.native.random_programs import bits
from tests.compiling.native.test_fused_loops import BINARY, UNARY, Rows

SLOW = (
    "exp",
    "sin",
    "tanh",
    "log",
    "cbrt",
    "expm1",
    "arctan",
    "log1p",
    "sinh",
    "floor",
)
# Lengths: less than a block more than some blocks, a whole number of them, and one that
# threads share.
LENGTHS = (4096, 20_000, 65_536, 70_001)
SHARED = (1 << 19, 600_001)


def compare(seed: int, lengths: tuple[int, ...]) -> None:
    """Compare the bits of random rows in blocks with those of NumPy's calls."""
    rng = np.random.default_rng(seed)
    n = int(rng.choice(lengths))
    rows = Rows(str(rng.choice(["f4", "f8"])))
    room = np.zeros(8 * n + 8, rows.dtype)
    rows.program.hold(room)
    places = [room[k * n : (k + 1) * n] for k in range(8)]
    scale = room[8 * n : 8 * n + 1]
    known = [*places[:3], scale]
    for _ in range(rng.integers(1, 9)):
        result = places[int(rng.integers(2, 8))]
        kind = rng.random()
        names: tuple[str, ...] = BINARY if kind < 0.5 else UNARY if kind < 0.7 else SLOW
        count = 2 if kind < 0.5 else 1
        inputs = [known[int(rng.integers(len(known)))] for _ in range(count)]
        rows.emit(str(rng.choice(names)), *inputs, result)
        known = [a for a in known if a is not result] + [result]
    kept = [a for a in known if any(a is p for p in places[3:]) and rng.random() < 0.4]
    x, y, z = ((rng.normal(size=n) * 2).astype(rows.dtype) for _ in range(3))
    factor = rng.normal(size=1).astype(rows.dtype)
    for place, value in zip([*places[:3], scale], (x, y, z, factor), strict=True):
        place[...] = value
    with np.errstate(all="ignore"):
        for name, arrays in rows.steps:
            getattr(np, name)(*arrays[:-1], out=arrays[-1])
        wanted = [a.copy() for a in kept]
        room[3 * n : 8 * n] = 7
        join_rows(rows.table, rows.reads(kept))

        def place_of(a: Any) -> tuple[int, int, int]:
            start = address_of(a)
            return start, start, start + a.nbytes

        inputs_of = [
            DoorInput("array", rows.dtype, a.shape, a.strides, *place_of(a), copied)
            for a, copied in zip(
                [*places[:3], scale], (False, False, True, True), strict=True
            )
        ]
        results = [
            DoorResult("new", rows.dtype, a.shape, None, *place_of(a), False)
            for a in kept
        ]
        door = make_door(rows.program, rows.table, inputs_of, results, lambda *a: [])
        for _ in range(2):
            for a, b in zip(wanted, door(x, y, z, factor), strict=True):
                odd = np.isnan(a)
                assert (odd == np.isnan(b)).all(), seed
                assert a[~odd].tobytes() == b[~odd].tobytes(), seed


@pytest.mark.parametrize("seed", range(10))
def test_blocks(seed: int) -> None:
    """Random rows over blocks have NumPy's bits."""
    compare(seed, LENGTHS)


@pytest.mark.parametrize("seed", range(3))
def test_shared(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random rows that three threads share have NumPy's bits."""
    monkeypatch.setattr(co.config, "_compile_threads", 3)
    compare(seed, SHARED)


@pytest.mark.exhaustive
@pytest.mark.parametrize("start", range(100, 1100, 100))
def test_many_blocks(start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random rows over blocks, some shared by threads, have NumPy's bits."""
    for seed in range(start, start + 100):
        monkeypatch.setattr(co.config, "_compile_threads", seed % 4 + 1)
        compare(seed, SHARED if seed % 10 == 0 else LENGTHS)


def test_places_that_are_read_first() -> None:
    """A value that is read, and then overwritten by one that nothing reads, moves along."""
    rows = Rows("f8")
    x, out = np.zeros(70_000), np.zeros(70_000)
    rows.program.hold((x, out))
    rows.emit("exp", x, out)
    rows.emit("sin", out, x)
    join_rows(rows.table, rows.reads([out]))
    places = [address_of(a) for a in (x, out)]
    given = DoorInput("array", x.dtype, x.shape, (8,), places[0], places[0], 0, True)
    result = DoorResult("new", x.dtype, x.shape, None, places[1])
    door = make_door(rows.program, rows.table, [given], [result], lambda *v: v)
    values = np.linspace(-1, 1, 70_000)
    assert door(values)[0].tobytes() == np.exp(values).tobytes()


def test_threads_have_memory_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values between rows lie in other memory in each thread; results do not."""
    monkeypatch.setattr(co.config, "_compile_threads", 2)
    rows = Rows("f8")
    x, middle, out = (np.ones(1 << 20) for _ in range(3))
    rows.program.hold((x, middle, out))
    rows.emit("exp", x, middle)
    rows.emit("sin", middle, out)
    join_rows(rows.table, rows.reads([out]))
    assert len(rows.table.rows) == 1
    bodies = [table for table in rows.program.tables if len(table.rows) == 2]
    places = [
        {t.cells[place] for place in t.pointers_within(0, 1 << 62)} for t in bodies
    ]
    assert len(places) == 2
    common = places[0] & places[1]
    assert common == {address_of(x), address_of(out)}


@pytest.mark.parametrize("place", [0, 5000, 300_000, 599_999, 600_000])
def test_flags_in_any_block(place: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flag that rises in any block, thread, or in the rest counts."""
    monkeypatch.setattr(co.config, "_compile_threads", 2)
    rows = Rows("f8")
    x, middle, out = (np.ones(600_001) for _ in range(3))
    rows.program.hold((x, middle, out))
    rows.emit("log", x, middle)
    rows.emit("add", middle, x, out)
    join_rows(rows.table, rows.reads([out]))
    start = address_of(x)
    given = DoorInput(
        "array", x.dtype, x.shape, (8,), start, start, start + x.nbytes, False
    )
    result = DoorResult("new", x.dtype, x.shape, None, address_of(out))
    door = make_door(rows.program, rows.table, [given], [result], lambda *v: v[0])
    values = np.ones(600_001)
    assert (door(values)[0] == 1).all()
    values[place] = 0.0
    assert door(values) == FLAGGED
    values[place] = 1.0
    assert (door(values)[0] == 1).all()


# ---- rows with sums, and with rows of numbers between them ----


def random_steps(seed: int) -> Any:  # noqa: C901  # a list of cases
    """Return a random function of two arrays and a number."""
    rng = np.random.default_rng(seed)
    steps = rng.integers(0, 1000, (int(rng.integers(3, 16)), 5))

    def step(  # noqa: PLR0911  # a list of cases
        case: Any, values: list[Any], numbers: list[Any]
    ) -> Any:
        kind, first, second, third, way = case
        u = values[first % len(values)] if way % 2 else values[-1]
        w, number = values[second % len(values)], numbers[third % len(numbers)]
        if kind % 14 < 4:
            return (np.add, np.multiply, np.subtract, np.maximum)[kind % 14](u, w)
        if kind % 14 < 6:
            return (np.add, np.multiply)[kind % 14 - 4](u, number)
        if kind % 14 < 9:
            total = (np.sum, np.mean)[kind % 2](u if third % 3 else w)
            return np.tanh(total) if third % 5 == 0 else total
        if kind % 14 == 9:
            other = numbers[second % len(numbers)]
            return number * 0.5 + other if way % 2 else np.sqrt(np.abs(number))
        if kind % 14 == 10:
            return np.exp(-np.abs(u))
        if kind % 14 == 11:
            return np.sqrt(np.abs(u) + 0.5)
        return np.tanh(u) if kind % 14 == 12 else u * 0.5 - w

    def program(x: Any, y: Any, s: Any) -> list[Any]:
        values, numbers, kept = [x, y], [s], []
        for case in steps:
            found = step(case, values, numbers)
            (values if found.ndim else numbers).append(found)
            if case[4] % 5 == 0:
                kept.append(found)
        return [*kept, values[-1] if steps[0][0] % 3 == 0 else numbers[-1], y + s]

    def total(x: Any, y: Any, s: Any) -> Any:
        return sum(np.sum(v) for v in program(x, y, s))

    if rng.random() < 0.3:
        return co.value_and_grad(total, argnums=(0, 1))
    return co.grad(total) if rng.random() < 0.3 else program


def compare_steps(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compare a random function in one to four threads with its graph, run by NumPy."""
    monkeypatch.setattr(co.config, "_compile_threads", seed % 4 + 1)
    monkeypatch.setattr(blocked_rows, "_SHARED", 16_384)
    rng = np.random.default_rng(seed)
    length = int(rng.choice([8192, 20_000, 40_001, 70_003]))
    dtype: Any = rng.choice(["f4", "f8", "f8"])
    x, y = rng.normal(size=(2, length)).astype(dtype)
    args = x, y, np.asarray(rng.normal()).astype(dtype)
    with warnings.catch_warnings(action="ignore"):
        module = co.make_fx(random_steps(seed))(*args)
        keep_what_warns(module.graph, ())
        run = build(module)
        wanted = module.run_list(*args)
        for _ in range(2):
            for a, b in zip(wanted, run(*args), strict=True):
                assert a.dtype == b.dtype
                assert bits(a) == bits(b), seed


@pytest.mark.parametrize("start", range(0, 40, 10))
def test_rows_with_sums(start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums within blocks, and numbers before and after them, have NumPy's bits."""
    for seed in range(start, start + 10):
        compare_steps(seed, monkeypatch)


@pytest.mark.parametrize("seed", [136, 169, 354])
def test_numbers_that_come_before(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A number that a row of the run reads is stored, though it is one of a group."""
    compare_steps(seed, monkeypatch)


@pytest.mark.exhaustive
@pytest.mark.parametrize("start", range(100, 900, 100))
def test_more_rows_with_sums(start: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(start, start + 100):
        compare_steps(seed, monkeypatch)


def test_a_gradient_is_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum of the value does not end the run: no value between has a whole array."""
    monkeypatch.setattr(co.config, "_compile_threads", 1)
    found: list[Any] = []
    find = blocked_rows._runs

    def runs_of(table: Any) -> list[Any]:
        found.extend(find(table))
        return [*found]

    monkeypatch.setattr(blocked_rows, "_runs", runs_of)
    loss = co.value_and_grad(lambda x: 0.5 * np.sum((x * x + 1.0) ** 2))
    x = np.linspace(0.0, 1.0, 100_000)
    value, slope = build(co.make_fx(loss)(x))(x)
    assert value == 0.5 * np.sum((x * x + 1.0) ** 2)
    assert slope.tobytes() == loss(x)[1].tobytes()
    (run,) = found
    assert len(run.sums) == 1


# ---- sums with exact=False ----


def sums_of(seed: int) -> Any:
    """Return a random function of two arrays whose results are sums, and maybe arrays."""
    rng = np.random.default_rng(seed)
    names = rng.choice(["add", "multiply", "subtract", "maximum"], 4)
    alone = rng.choice(["square", "sqrt", "exp", "abs", "sin"], 3)
    steps = int(rng.integers(1, 4))
    totals = rng.integers(0, 4, 3)

    def program(x: Any, y: Any) -> list[Any]:
        values = [x, y]
        for k in range(steps):
            z = getattr(np, names[k])(values[-1], values[int(totals[0]) % 2])
            values.append(getattr(np, alone[k])(np.abs(z) * 0.25))
        found = [np.sum(values[-1]), np.mean(values[-1]), np.sum(values[2])]
        kept = [v for v in values[2:] if totals[1] == 0]
        first = [found[i] for i in range(len(found)) if i != totals[2]]
        return [*first, *kept]

    return program


def check_sums(seed: int, length: int, dtype: str) -> None:
    """Compare the sums with those of long doubles."""
    x, y = np.random.default_rng(seed).normal(size=(2, length)).astype(dtype)
    program = sums_of(seed)
    near = co.compile(program, backend="native", exact=False)
    wanted = program(x.astype("g"), y.astype("g"))
    bound = 60 * np.finfo(dtype).eps
    for _ in range(2):
        for found, right in zip(near(x, y), wanted, strict=True):
            assert found.dtype == dtype
            apart = np.abs(found - right) / max(np.abs(right).max(), 1.0)
            assert np.max(apart) < bound, seed


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("length", [32_768, 70_001, SHARED[0], SHARED[1]])
def test_sums_of_blocks(length: int, dtype: str) -> None:
    """As near as those of NumPy, beside long doubles, also where threads share them."""
    for seed in range(3):
        check_sums(seed, length, dtype)


@pytest.mark.exhaustive
def test_more_sums_of_blocks() -> None:
    """Of random programs and lengths."""
    rng = np.random.default_rng(5)
    for seed in range(3, 120):
        check_sums(seed, int(rng.integers(20_000, 150_000)), "f8")


def test_sums_that_lie_where_a_number_of_the_run_lay() -> None:
    """The memory of a sum is that of a number, or of a sum, which nothing reads any more."""

    def program(x: Any) -> Any:
        scale = np.sum(x[:3]) * 2.0
        y = np.square(x * scale)
        np.sum(y)
        return np.mean(y)

    x = np.random.default_rng(0).normal(size=50_000)
    near = co.compile(program, backend="native", exact=False)
    assert abs(near(x) / program(x) - 1.0) < 1e-14


def test_flags_of_sums_of_blocks() -> None:
    """Where a sum overflows NumPy computes the call again, and warns."""
    near = co.compile(lambda x: np.sum(x * 2.0), backend="native", exact=False)
    x = np.ones(40_000)
    assert near(x) == 80_000.0
    with pytest.warns(RuntimeWarning, match="overflow"):
        assert near(x * 1e305) == np.inf
    assert near(x) == 80_000.0
