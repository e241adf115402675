"""Programs run through the door: rows, loops over tables, flags, errors, Ctrl-C, threads."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
import time
import weakref
from collections.abc import Callable
from contextvars import copy_context
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from customop.compiling.native_backend.door import (
    CHANGED,
    DECLINED,
    FLAGGED,
    RUNNING,
    UNSETTLED,
    DoorInput,
    DoorResult,
    accept_errstate,
    make_door,
)
from customop.compiling.native_backend.driver import driver
from customop.compiling.native_backend.iteration import LoopAxis
from customop.compiling.native_backend.memory import address_of
from customop.compiling.native_backend.own_loops import (
    add_at_loop,
    copy_loop,
    move_loop,
    take_loop,
)
from customop.compiling.native_backend.tables import (
    Move,
    NativeProgram,
    Point,
    Table,
)
from customop.compiling.native_backend.ufunc_loops import loop_for

F8 = np.dtype(float)


class Bench:
    """A program with one table, whose memory are arrays."""

    def __init__(self) -> None:
        self.program: NativeProgram = NativeProgram(driver())
        self.table: Table = self.program.table()
        self.calls: list[tuple[Any, ...]] = []

    def array(self, values: Any, dtype: Any = None) -> np.ndarray[Any, Any]:
        """Return an array that the program holds."""
        found = np.array(values, dtype)
        self.program.hold(found)
        return found

    def ufunc(self, name: str, *arrays: Any, table: Table | None = None) -> int:
        """Emit the row of a ufunc over arrays of one axis, or none."""
        loop: Any = loop_for(getattr(np, name), tuple([a.dtype for a in arrays[:-1]]))
        steps = [a.strides[0] if a.ndim and a.size > 1 else 0 for a in arrays]
        places = [address_of(a) for a in arrays]
        table = self.table if table is None else table
        return table.emit(loop, places, [arrays[-1].size], steps)

    def door(
        self, inputs: list[DoorInput], results: list[DoorResult], **options: Any
    ) -> Callable[..., Any]:
        """Return the door; its fallback notes the call."""

        def fallback(*given: Any) -> tuple[str, int]:
            self.calls.append(given)
            return "fallback", given[0]

        return make_door(self.program, self.table, inputs, results, fallback, **options)


def given(
    place: np.ndarray[Any, Any], copied: bool = True, **changes: Any
) -> DoorInput:
    """Return the input for arrays like the one that is its place."""
    start = address_of(place)
    found = DoorInput(
        "array", place.dtype, place.shape, place.strides, start, start,
        start + max(place.nbytes, 1), copied,
    )  # fmt: skip
    return found._replace(**changes)


def result(
    place: np.ndarray[Any, Any], copied: bool = True, **changes: Any
) -> DoorResult:
    """Return the result that lies at a place."""
    start = address_of(place)
    found = DoorResult(
        "new", place.dtype, place.shape, None, start, start,
        start + max(place.nbytes, 1), copied,
    )  # fmt: skip
    return found._replace(**changes)


# ---- arguments and results ----


@pytest.mark.parametrize("copied", [True, False])
def test_large_and_small_arrays(copied: bool) -> None:
    """Arguments and results are copied, or pointers go to their own memory."""
    bench = Bench()
    x, y = bench.array(np.zeros(100)), bench.array(np.zeros(100))
    bench.ufunc("square", x, y)
    bench.ufunc("add", y, x, y)
    door = bench.door([given(x, copied)], [result(y, copied)])
    for seed in range(3):
        values = np.random.default_rng(seed).normal(size=100)
        before = values.tobytes()
        (found,) = door(values)
        assert found.tobytes() == (values**2 + values).tobytes()
        assert (values.tobytes(), found.flags.owndata) == (before, True)
    assert x.any() == copied
    assert not bench.calls


def test_pointers_into_the_middle() -> None:
    """A pointer may go to any item of an argument and of a result."""
    bench = Bench()
    x, y = bench.array(np.zeros(10)), bench.array(np.zeros(10))
    bench.ufunc("negative", x[::-1], y)
    door = bench.door([given(x, False)], [result(y, False)])
    assert door(np.arange(10.0))[0].tolist() == [-v for v in range(9, -1, -1)]


def test_kinds_of_arguments() -> None:
    """Scalars of NumPy, and numbers of Python that fit, are arguments, too."""
    bench = Bench()
    places = [bench.array(0.0, kind) for kind in ("f4", "f8", "i8", "?")]
    kinds = ("scalar", "float", "int", "bool")
    inputs = [given(p, kind=k) for p, k in zip(places, kinds, strict=True)]
    results = [result(p, kind="scalar") for p in places]
    door = bench.door(inputs, results)
    found = door(np.float32(1.5), 2.5, -7, True)
    assert found == [1.5, 2.5, -7, True]
    assert [type(v).__name__ for v in found] == ["float32", "float64", "int64", "bool"]
    for wrong in (
        (np.float64(1.5), 2.5, -7, True),
        (np.float32(1.5), np.float64(2.5), -7, True),
        (np.float32(1.5), 2.5, 2**63, True),
        (np.float32(1.5), 2.5, True, True),
        (np.float32(1.5), 2.5, -7, 1),
    ):
        assert door(*wrong) == ("fallback", CHANGED)
        assert bench.calls[-1] == (CHANGED, *wrong)
    assert door(np.float32(1.5), 2.5, 2**63 - 1, False)[2:] == [2**63 - 1, False]


def test_kinds_of_results() -> None:
    """New arrays in any order of axes, scalars, arguments and objects as they are."""
    bench = Bench()
    x = bench.array(np.zeros((2, 3)))
    mark = object()
    results = [
        result(x, shape=(2, 3), strides=(8, 16)),
        result(x, kind="scalar", shape=()),
        DoorResult("input", F8, number=0),
        DoorResult("object", F8, value=mark),
        result(x, shape=(0, 3)),
        result(x, shape=()),
    ]
    door = bench.door([given(x)], results)
    values = np.arange(6.0).reshape(2, 3) + 1
    before = sys.getrefcount(values), sys.getrefcount(mark)
    turned, scalar, same, held, empty, lone = door(values)
    assert turned.tolist() == [[1, 3, 5], [2, 4, 6]]
    assert turned.strides == (8, 16)
    assert (type(scalar), scalar) == (np.float64, 1.0)
    assert same is values
    assert held is mark
    assert empty.shape == (0, 3)
    assert (lone.shape, lone[()]) == ((), 1.0)
    del turned, scalar, same, held, empty, lone
    for _ in range(100):
        door(values)
    assert (sys.getrefcount(values), sys.getrefcount(mark)) == before


class _Own(np.ndarray[Any, Any]):
    """A class of arrays."""


def test_arguments_that_differ() -> None:
    """Whatever differs from the plan in type, dtype or layout takes the fallback."""
    bench = Bench()
    x = bench.array(np.zeros((2, 3)))
    door = bench.door([given(x)], [result(x)])
    good = np.arange(6.0).reshape(2, 3)
    wrong: list[tuple[Any, ...]] = [
        (), (good, good), (good.T,), (good.ravel(),), (good.astype("f4"),), (1.0,),
        (good.astype(">f8"),), (good.view(_Own),), (np.asfortranarray(good),),
        (good.view(np.int64),), (good[:, 0],), (good[None],), (np.zeros((2, 6))[:, ::2],), (None,), ([1.0],),
        (np.zeros(49, np.uint8)[1:].view(float).reshape(2, 3),),
        (good.view(np.dtype(float, metadata={"unit": "m"})),),
    ]  # fmt: skip
    for arguments in wrong:
        assert door(*arguments) == ("fallback", CHANGED)
        assert all(a is b for a, b in zip(bench.calls[-1][1:], arguments, strict=True))
    assert door(good)[0].tolist() == good.tolist()
    assert door(good.view(np.dtype("<f8", copy=True)))[0].tolist() == good.tolist()


def test_written_arguments() -> None:
    """Rows that write to arguments run last, and not at all if NumPy takes the call."""
    bench = Bench()
    x, y = bench.array(np.zeros(3)), bench.array(np.zeros(3))
    bench.ufunc("log", x, y)
    last = bench.program.table()
    last.emit(copy_loop(8), [address_of(y), address_of(x)], [3], [8, 8])
    door = bench.door([given(x, False, is_written=True)], [], last=last)
    values = np.ones(3)
    assert door(values) == []
    assert values.tolist() == [0, 0, 0]
    assert door(values) == ("fallback", FLAGGED)
    assert values.tolist() == [0, 0, 0]
    values.flags.writeable = False
    assert door(values) == ("fallback", CHANGED)


def test_any_stride() -> None:
    """A stride that does not matter may be planned as such."""
    bench = Bench()
    x = bench.array(np.zeros((1, 3)))
    door = bench.door([given(x, strides=(None, 8))], [result(x)])
    odd = np.lib.stride_tricks.as_strided(np.arange(3.0), (1, 3), (800, 8))
    assert door(odd)[0].tolist() == [[0, 1, 2]]


def test_programs_are_let_go() -> None:
    """Nothing holds a program but its function; calls hold no memory."""
    bench = Bench()
    x = bench.array(np.zeros(1000))
    door = bench.door([given(x)], [result(x)])
    door(np.ones(1000))
    gone = weakref.ref(bench.program)
    del bench
    gc.collect()
    assert gone() is not None
    assert door(np.ones(1000))[0].sum() == 1000
    del door
    gc.collect()
    assert gone() is None


# ---- rows ----


def test_axes_around_a_loop() -> None:
    """Pointers move along the axes around a loop, and are back after it."""
    bench = Bench()
    x, y = bench.array(np.zeros((2, 3, 4, 5))), bench.array(np.zeros((4, 3, 2, 5)))
    turned = x.transpose(2, 1, 0, 3)
    axes = [
        LoopAxis(n, (a, b))
        for n, a, b in zip(y.shape, turned.strides, y.strides, strict=True)
    ]
    inner, *outer = reversed(axes)
    places = [address_of(x), address_of(y)]
    bench.table.emit(copy_loop(8), places, [inner.length], inner.strides, outer)
    door = bench.door([given(x)], [result(y)])
    for seed in range(3):
        values = np.random.default_rng(seed).normal(size=x.shape)
        assert door(values)[0].tolist() == values.transpose(2, 1, 0, 3).tolist()


def test_pointers_are_back_after_a_failure() -> None:
    """A loop that stops in the middle of its axes begins anew in the next call."""
    bench = Bench()
    numbers, found = (
        bench.array(np.zeros((3, 2, 2), int)),
        bench.array(np.zeros((3, 2, 2))),
    )
    rows = bench.array([5.0, 6.0, 7.0])
    places = [address_of(a) for a in (numbers, rows, found)]
    outer = [LoopAxis(2, (16, 0, 16)), LoopAxis(3, (32, 0, 32))]
    bench.table.emit(take_loop(1, 8), places, [2, 3, 8, 8], [8, 0, 8], outer)
    door = bench.door([given(numbers)], [result(found)])
    good = np.arange(12).reshape(3, 2, 2)
    for count, place in enumerate(np.ndindex(3, 2, 2)):
        bad = (good + count) % 3
        bad[place] = 3
        assert door(bad) == ("fallback", DECLINED)
        fine = (good * count) % 3
        assert door(fine)[0].tolist() == (fine + 5.0).tolist()


# ---- floating-point flags ----


@pytest.mark.parametrize(
    ("name", "bad", "state"),
    [
        ("log", 0.0, "divide"), ("log", -1.0, "invalid"), ("exp", 1e3, "over"),
        ("exp", -1e3, "under"), ("square", 1e200, "over"), ("square", 1e-200, "under"),
        ("sqrt", -1.0, "invalid"), ("reciprocal", 0.0, "divide"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_flags(name: str, bad: float, state: str, dtype: str) -> None:
    """A flag that NumPy reports sends the call to NumPy, in whichever row it rose."""
    if dtype == "f4" and abs(bad) not in {0, 1, 1e3}:
        bad = bad**0.15
    bench = Bench()
    x, y, z = (bench.array(np.zeros(33), dtype) for _ in range(3))
    bench.ufunc(name, x, y)
    bench.ufunc("absolute", x, z)
    door = bench.door([given(x)], [result(y)])
    fine = np.ones(33, dtype)
    wrong = fine.copy()
    wrong[17] = bad
    assert type(door(fine)) is list
    warns: dict[str, Any] = {state: "warn"}
    ignores: dict[str, Any] = {state: "ignore"}
    with np.errstate(**warns):
        assert door(wrong) == ("fallback", UNSETTLED)
        assert accept_errstate(bench.program)
        assert door(wrong) == ("fallback", FLAGGED)
        assert type(door(fine)) is list
    with np.errstate(**ignores):
        assert door(wrong) == ("fallback", UNSETTLED)
        assert accept_errstate(bench.program)
        with np.errstate(all="ignore"):
            wanted = getattr(np, name)(wrong)
        assert door(wrong)[0].tobytes() == wanted.tobytes()
    assert door(fine) == ("fallback", UNSETTLED)
    assert accept_errstate(bench.program)
    assert type(door(fine)) is list


def test_flags_of_before_do_not_count() -> None:
    """Flags that are up when the call begins, or that do not count, are lowered."""
    bench = Bench()
    x, y = bench.array(np.zeros(3)), bench.array(np.zeros(3))
    seen: list[float] = []

    def divide() -> None:
        with np.errstate(all="ignore"):
            seen.append(float(np.divide(1.0, 0.0)))

    bench.table.island(divide)
    bench.ufunc("add", x, x, y)
    door = bench.door([given(x)], [result(y)])
    divide()
    assert door(np.ones(3))[0].tolist() == [2, 2, 2]
    assert len(seen) == 2


def test_buffer_size() -> None:
    """A program does not run where NumPy's buffers have another size than in its plan."""
    bench = Bench()
    x = bench.array(np.zeros(3))
    door = bench.door([given(x)], [result(x)])

    def check() -> None:
        np.setbufsize(1024)
        assert door(np.ones(3)) == ("fallback", UNSETTLED)
        assert not accept_errstate(bench.program)

    copy_context().run(check)
    assert type(door(np.ones(3))) is list


# ---- calls of Python ----


def test_islands() -> None:
    """A function of Python runs between the rows, on the memory of the program."""
    bench = Bench()
    x, y = bench.array(np.zeros(3)), bench.array(np.zeros(3))
    bench.ufunc("add", x, x, x)

    def sort() -> None:
        y[...] = np.sort(x)

    bench.table.island(sort)
    bench.ufunc("negative", y, y)
    door = bench.door([given(x)], [result(y)])
    assert door(np.array([3.0, 1, 2]))[0].tolist() == [-2, -4, -6]
    with pytest.raises(ValueError, match="the GIL"):
        bench.door([given(x)], [result(y)], releases_gil=True)


def test_exceptions_of_islands() -> None:
    """An exception comes out as it is; the rows after it do not run; the next call is right."""
    bench = Bench()
    x, y = bench.array(np.zeros(3)), bench.array(np.zeros(3))

    def refuse() -> bool:
        if x[0] == 7:
            raise KeyError("seven")
        return bool(x[0] == 8)

    bench.table.island(refuse)
    bench.ufunc("add", x, x, y)
    door = bench.door([given(x)], [result(y)])
    for _ in range(3):
        with pytest.raises(KeyError, match="seven"):
            door(np.full(3, 7.0))
        assert y[0] != 14
        assert door(np.full(3, 8.0)) == ("fallback", DECLINED)
        assert door(np.ones(3))[0].tolist() == [2, 2, 2]


def test_islands_after_flags() -> None:
    """A call of Python after a flag that counts is not made: NumPy runs all again."""
    bench = Bench()
    x, y = bench.array(np.zeros(3)), bench.array(np.zeros(3))
    bench.ufunc("log", x, y)
    ran: list[int] = []
    bench.table.island(lambda: ran.append(1))
    door = bench.door([given(x)], [result(y)])
    assert door(np.zeros(3)) == ("fallback", FLAGGED)
    assert not ran
    door(np.ones(3))
    assert len(ran) == 1


def test_calls_of_itself() -> None:
    """A call of a program that runs already takes the fallback, and disturbs nothing."""
    bench = Bench()
    x, y = bench.array(np.zeros(3)), bench.array(np.zeros(3))
    inner: list[Any] = []
    bench.table.island(lambda: inner.append(door(np.full(3, 5.0))))
    bench.ufunc("add", x, x, y)
    door = bench.door([given(x)], [result(y)])
    assert door(np.ones(3))[0].tolist() == [2, 2, 2]
    assert inner == [("fallback", RUNNING)]


# ---- loops and branches ----


@pytest.mark.parametrize("reverse", [False, True])
def test_scan(reverse: bool) -> None:
    """A scan: rows in, a carry, rows out, in either direction."""
    bench = Bench()
    xs, ys = bench.array(np.zeros((6, 2))), bench.array(np.zeros((6, 2)))
    carry, x, after = (bench.array(np.zeros(2)) for _ in range(3))
    body = bench.program.table()
    bench.ufunc("multiply", carry, x, after, table=body)
    bench.ufunc("add", after, x, after, table=body)
    at = address_of
    bench.table.repeat(
        body,
        6,
        reverse=reverse,
        moves_in=[Move(at(x), at(xs), 16, 0, 16)],
        moves_out=[Move(at(ys), at(after), 16, 16, 0)],
        carry=[Move(at(carry), at(after), 16)],
    )
    door = bench.door([given(xs, False), given(carry)], [result(ys), result(carry)])
    values = np.random.default_rng(0).normal(size=(6, 2))
    for start in (np.zeros(2), np.ones(2)):
        wanted, c = np.zeros((6, 2)), start
        for i in reversed(range(6)) if reverse else range(6):
            c = wanted[i] = c * values[i] + values[i]
        found, last = door(values, start)
        assert found.tobytes() == wanted.tobytes()
        assert last.tobytes() == c.tobytes()


def test_scan_by_pointers() -> None:
    """Pointers of the body go along rows of an argument and of a result, without copies."""
    bench = Bench()
    xs, ys = bench.array(np.zeros((5, 4))), bench.array(np.zeros((5, 4)))
    x, y = bench.array(np.zeros(4)), bench.array(np.zeros(4))
    body = bench.program.table()
    bench.ufunc("square", x, y, table=body)
    bench.ufunc("add", y[1:], x[1:], y[1:], table=body)
    points = [
        Point(body, address_of(x), 32, address_of(xs), 32),
        Point(body, address_of(y), 32, address_of(ys), 32),
    ]
    bench.table.repeat(body, 5, points=points)
    door = bench.door([given(xs, False)], [result(ys, False)])
    values = np.random.default_rng(0).normal(size=(5, 4))
    wanted = values**2
    wanted[:, 1:] += values[:, 1:]
    assert door(values)[0].tobytes() == wanted.tobytes()
    assert not x.any()
    assert not y.any()


def test_counted_loop() -> None:
    """The number of the step is a value, and the number of steps may be one, too."""
    bench = Bench()
    count, index, total = (bench.array(0, np.int64) for _ in range(3))
    body = bench.program.table()
    bench.ufunc("add", total, index, total, table=body)
    place = address_of(index), 10, 3
    bench.table.repeat(body, None, count_at=address_of(count), index=place)
    door = bench.door([given(count), given(total)], [result(total, kind="scalar")])
    for steps in (0, 1, 5):
        wanted = sum(10 + 3 * i for i in range(steps))
        assert door(np.array(steps), np.array(0)) == [wanted]


def test_while_loop() -> None:
    """A loop ends where its condition is false, before the step."""
    bench = Bench()
    x, limit = bench.array(0.0), bench.array(100.0)
    goes_on = bench.array(False)
    test, body = bench.program.table(), bench.program.table()
    bench.ufunc("less", x, limit, goes_on, table=test)
    bench.ufunc("add", x, x, x, table=body)
    bench.table.repeat(body, None, condition=(test, address_of(goes_on)))
    door = bench.door([given(x)], [result(x, kind="scalar")])
    assert [door(np.array(v))[0] for v in (1.0, 100.0, 3.0)] == [128, 100, 192]


def test_nested_loops_and_branches() -> None:
    """A branch in a loop in a loop."""
    bench = Bench()
    x, i = bench.array(0, np.int64), bench.array(0, np.int64)
    one, bit, odd = bench.array(1), bench.array(0), bench.array(False)
    inner, outer, yes, no = (bench.program.table() for _ in range(4))
    bench.ufunc("bitwise_and", i, one, bit, table=inner)
    bench.ufunc("not_equal", bit, one, odd, table=inner)
    bench.ufunc("add", x, one, x, table=no)
    bench.ufunc("subtract", x, i, x, table=yes)
    inner.choose(address_of(odd), "?", [no, yes])
    outer.repeat(inner, 4, index=(address_of(i), 0, 1))
    bench.table.repeat(outer, 3)
    door = bench.door([given(x)], [result(x, kind="scalar")])
    assert door(np.array(5)) == [5 + 3 * (2 - 0 - 2)]


@pytest.mark.parametrize(
    ("number", "wanted"), [(-3, 1), (0, 1), (1, 2), (2, 3), (9, 3)]
)
def test_choose_by_number(number: int, wanted: int) -> None:
    """Numbers of branches out of bounds are those of the first and of the last one."""
    bench = Bench()
    x, at = bench.array(0), bench.array(0)
    tables = [bench.program.table() for _ in range(3)]
    for value, table in enumerate(tables):
        bench.ufunc("positive", bench.array(value + 1), x, table=table)
    bench.table.choose(address_of(at), "l", tables)
    door = bench.door([given(at)], [result(x, kind="scalar")])
    assert door(np.array(number)) == [wanted]


def test_failures_in_loops() -> None:
    """An exception, a flag or a failed row inside a loop stops the whole run."""
    bench = Bench()
    xs, x, y = bench.array(np.zeros(4)), bench.array(0.0), bench.array(0.0)
    body = bench.program.table()

    def check() -> None:
        if x == 7:
            raise KeyError("seven")

    bench.ufunc("log", x, y, table=body)
    body.island(check)
    bench.table.repeat(body, 4, moves_in=[Move(address_of(x), address_of(xs), 8, 0, 8)])
    door = bench.door([given(xs)], [result(y, kind="scalar")])
    for bad, code in pairwise([7.0, 0.0, 7.0, 0.0]):
        for value in (bad, code):
            values = np.ones(4)
            values[2] = value
            if value == 7:
                with pytest.raises(KeyError):
                    door(values)
            else:
                assert door(values) == ("fallback", FLAGGED)
            assert door(np.ones(4)) == [0.0]


# ---- Ctrl-C and threads ----


def _endless(releases_gil: bool) -> Callable[..., Any]:
    bench = Bench()
    x = bench.array(np.zeros(3))
    body = bench.program.table()
    bench.ufunc("add", x, x, x, table=body)
    goes_on = bench.array(True)
    test = bench.program.table()
    bench.table.repeat(body, None, condition=(test, address_of(goes_on)))
    flag = given(goes_on)
    return bench.door([given(x), flag], [result(x)], releases_gil=releases_gil)


@pytest.mark.usefixtures("heeds_interrupts")
@pytest.mark.parametrize("releases_gil", [False, True])
def test_interrupt(releases_gil: bool) -> None:
    """Ctrl-C ends an endless loop, and the next call is right."""
    door = _endless(releases_gil)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        door(np.ones(3), np.array(True))
    timer.join()
    assert door(np.ones(3), np.array(False))[0].tolist() == [1, 1, 1]


@pytest.mark.usefixtures("heeds_interrupts")
def test_interrupt_between_large_rows() -> None:
    """Ctrl-C ends a loop of few steps that take long each, too."""
    bench = Bench()
    x, index = bench.array(np.zeros(100_000)), bench.array(0)
    body = bench.program.table()
    bench.ufunc("sin", x, x, table=body)
    bench.table.repeat(body, 10_000, index=(address_of(index), 0, 1))
    door = bench.door([given(x)], [])
    timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        door(np.ones(100_000))
    timer.join()
    assert index < 9_999


def test_other_threads() -> None:
    """While the GIL is released other threads go on; the same program is then left to NumPy."""
    bench = Bench()
    goes_on, x = bench.array(True), bench.array(np.zeros(3))
    body, test = bench.program.table(), bench.program.table()
    bench.ufunc("positive", x, x, table=body)
    stop = np.array(True)
    condition = test, address_of(goes_on)
    bench.table.repeat(body, None, condition=condition)
    door = bench.door([given(goes_on, False), given(x)], [result(x)], releases_gil=True)
    # The condition's byte is read through a pointer that a call sets: in the record.
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(door(stop, np.ones(3))))
    thread.start()
    while not bench.program.header[0]:
        assert not found
        time.sleep(0.001)
    assert door(np.array(False), np.ones(3)) == ("fallback", RUNNING)
    stop[()] = False
    thread.join()
    assert found[0][0].tolist() == [1, 1, 1]


def test_two_programs_in_two_threads() -> None:
    """Flags of one program are not those of another one that runs at the same time."""
    doors = []
    for _ in range(2):
        bench = Bench()
        x, y = bench.array(np.zeros(20000)), bench.array(np.zeros(20000))
        for _ in range(10):
            bench.ufunc("log", x, y)
        doors.append(bench.door([given(x)], [result(y)], releases_gil=True))
    found: list[list[Any]] = [[], []]

    def work(k: int) -> None:
        values = np.full(20000, float(k))
        found[k] += [type(doors[k](values)) for _ in range(50)]

    threads = [threading.Thread(target=work, args=(k,)) for k in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [[tuple] * 50, [list] * 50]


def test_moves_and_adds() -> None:
    """Memory is moved, and rows are added to a table, from rows of the program."""
    bench = Bench()
    numbers, rows = bench.array(np.zeros(3, int)), bench.array(np.zeros((3, 2)))
    zero, total = bench.array(np.zeros((4, 2))), bench.array(np.zeros((4, 2)))
    at = address_of
    bench.table.emit(move_loop(), [at(zero), at(total)], [64], [0, 0])
    loop = add_at_loop(F8, 1)
    assert loop is not None
    places = [at(numbers), at(total), at(rows)]
    bench.table.emit(loop, places, [3, 4, 16, 16], [8, 0, 16])
    door = bench.door([given(numbers), given(rows)], [result(total)])
    for numbers_given in ([1, 1, 3], [0, -1, -4]):
        given_rows = np.arange(6.0).reshape(3, 2)
        wanted = np.zeros((4, 2))
        np.add.at(wanted, numbers_given, given_rows)
        assert door(np.array(numbers_given), given_rows)[0].tolist() == wanted.tolist()
