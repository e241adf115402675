"""Times in a profile; kernels and rules move the clock."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.arrays import kinds
from tests.nesting.test_words import (
    WORDS,
    by_operator,
)
from tests.profiling._profiled import (
    CLOCK,
    Ticks,
    X,
    composed,
    define,
    events_of,
    loss,
    row_of,
    square,
    value_of,
)


def test_times_of_one_kernel() -> None:
    """Shortest, mean and longest call, their sum, and the time that it was open."""
    waits = iter([5, 1, 3])

    def wait(x: co.Array) -> co.Array:
        CLOCK.now += next(waits)
        return x + 0.0

    op = define("waits", wait)
    with co.profile(clock=CLOCK) as p:
        for _ in range(3):
            op(X)
            CLOCK.now += 10
    row = row_of(p, "waits", "default kernel")
    times = (row.count, row.total_ns, row.self_ns, row.min_ns, row.mean_ns, row.max_ns)
    assert times == (3, 9, 9, 1, 3, 5)
    assert p.wall_ns == 39


def test_self_time_leaves_out_what_is_called() -> None:
    """The body of a composite operator takes 1 of its 11; two kernels take the rest."""
    with co.profile(clock=CLOCK) as p:
        composed(X)
    body, kernel = (
        row_of(p, "composed", "composite body"),
        row_of(p, "square", "default kernel"),
    )
    assert (body.total_ns, body.self_ns) == (11, 1)
    assert (kernel.total_ns, kernel.self_ns) == (10, 10)


def test_times_of_a_gradient() -> None:
    """Forward 7, of which the kernel takes 5 and the setup 2; the formula 7 by itself."""
    with co.profile(clock=CLOCK) as p:
        co.grad(loss)(X)
    found = {
        row.rule: (row.total_ns, row.self_ns)
        for row in p.rows
        if row.operator == "profiled::square"
    }
    assert found == {
        "autograd forward": (7, 0),
        "default kernel": (5, 5),
        "setup_context": (2, 2),
        "autograd backward": (7, 7),
    }


def test_an_operator_inside_itself_is_timed_once() -> None:
    """Total time counts the outermost call of a row; self time counts all calls."""

    def down(n: Any) -> Any:
        CLOCK.now += 1
        return deep(n - 1.0) if n > 0 else n + 0.0

    deep = define("deep", down, schema="(Array n) -> Array")
    with co.profile(clock=CLOCK) as p:
        deep(np.array(3.0))
    row = row_of(p, "deep", "default kernel")
    assert (row.count, row.total_ns, row.self_ns) == (4, 4, 4)
    # 4, 3, 2 and 1.
    assert (row.min_ns, row.mean_ns, row.max_ns) == (1, 2, 4)


def test_errors_are_calls_too() -> None:
    """A call that raises is counted with its time, and calls after it are not affected."""

    def fail(x: co.Array) -> co.Array:
        CLOCK.now += 4
        raise ZeroDivisionError

    failing = define("failing", fail)

    def catch(x: Any) -> Any:
        CLOCK.now += 1
        with pytest.raises(ZeroDivisionError):
            failing(x)
        return square(x)

    catching = define("catching", catch, schema="(Array x) -> Array")
    with co.profile(clock=CLOCK) as p:
        catching(X)
        square(X)
    found = {
        row.operator.partition("::")[2]: (
            row.count,
            row.errors,
            row.total_ns,
            row.self_ns,
        )
        for row in p.rows
    }
    assert found == {
        "catching": (1, 0, 10, 1),
        "failing": (1, 1, 4, 4),
        "square": (2, 0, 10, 10),
    }


def test_a_kernel_that_runs_again_for_its_proof_is_one_call() -> None:
    """A kernel that refuses read-only arrays runs again: the first attempt is not an error."""

    def refuses(x: co.Array) -> co.Array:
        CLOCK.now += 1
        if not x.flags.writeable:
            raise ValueError("buffer source array is read-only")
        return x * 2.0

    op = define("refuses", refuses)
    with co.profile(clock=CLOCK) as p:
        op(X.copy())
    row = row_of(p, "refuses", "default kernel")
    assert (row.count, row.errors, row.total_ns, row.bytes_in) == (1, 0, 1, 24)


def test_the_time_around_a_kernel_that_runs_again() -> None:
    """The time of calls made before such a kernel is kept."""

    def refuses(x: co.Array) -> co.Array:
        if not x.flags.writeable:
            raise ValueError("buffer source array is read-only")
        return x * 2.0

    again = define("refuses_later", refuses)
    op = define("around", lambda x: again(square(x)), schema="(Array x) -> Array")
    with co.profile(clock=CLOCK) as p:
        op(X)
    row = row_of(p, "around", "default kernel")
    assert (row.total_ns, row.self_ns) == (5, 0)


@pytest.mark.parametrize("word", WORDS[:40])
def test_self_times_sum_to_the_time_in_operators(word: str, tmp_path: Path) -> None:
    """Under any nesting, self times sum to the time of the outermost calls."""
    with co.profile(clock=Ticks()) as p:
        value_of(word, by_operator)
    outermost = [e for e in events_of(p, tmp_path) if e["depth"] == 0]
    assert sum(row.self_ns for row in p.rows) == sum(e["dur"] for e in outermost)


# ---- CUDA ----


class Stream:
    """A substitute for CuPy's current stream."""

    def __init__(self) -> None:
        self.waits = 0

    def synchronize(self) -> None:
        self.waits += 1
        CLOCK.now += 50


class CudaArray:
    """A substitute for an array of CuPy."""

    __module__ = "cupy"
    shape, dtype, nbytes = (3,), np.dtype("f4"), 12


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stream]:
    """The stream of a substitute for CuPy."""
    found = Stream()
    cuda = type("cuda", (), {"get_current_stream": staticmethod(lambda: found)})
    cupy = type(sys)("cupy")
    cupy.ndarray, cupy.cuda = CudaArray, cuda  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    kinds.kind_of.clear()
    yield found
    kinds.kind_of.clear()


@pytest.mark.parametrize(
    ("synchronize", "waits", "spent"), [(False, 0, 5), (True, 2, 55)]
)
def test_waiting_for_the_device(
    synchronize: bool, waits: int, spent: int, stream: Stream
) -> None:
    """`synchronize` waits for the stream before and after; the wait is part of the time."""
    op = define("on_device", lambda x: x, schema="(Array(a) x) -> Array(a)")
    op.register_kernel("cuda", lambda x: (setattr(CLOCK, "now", CLOCK.now + 5), x)[1])
    co.config.checks = "never"
    with co.profile(synchronize=synchronize, clock=CLOCK) as p:
        op(CudaArray())
    row = row_of(p, "on_device", "cuda kernel")
    assert (stream.waits, row.total_ns) == (waits, spent)
    assert (row.bytes_in, row.kinds) == (12, ("cuda",))


def test_nothing_waits_for_arrays_elsewhere(stream: Stream) -> None:
    """Calls without CUDA arrays do not wait."""
    with co.profile(synchronize=True):
        co.grad(loss)(X)
    assert stream.waits == 0
