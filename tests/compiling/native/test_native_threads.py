"""Programs that run without the GIL: several threads, Ctrl-C, and memory that is freed."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading
import tracemalloc
import weakref
from functools import partial
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.compiling.native_backend import door, native_code

LOOP = ctypes.CFUNCTYPE(None, *[ctypes.POINTER(ctypes.c_ssize_t)] * 4)
LENGTH = 50_000


def chain(x: Any) -> Any:
    for _ in range(4):
        x = np.tanh(x) * 1.01 + np.sin(x)
    return np.sum(x)


def test_threads() -> None:
    """Two threads get the right results of one function and of two."""
    inputs = np.random.default_rng(0).normal(size=(4, LENGTH))
    expected = [chain(x) for x in inputs]
    functions = [co.compile(chain, backend="native") for _ in range(2)]
    wrong: list[int] = []

    def run(number: int) -> None:
        for i in range(40):
            k = (i + number) % len(inputs)
            if functions[number % 3 % 2](inputs[k]) != expected[k]:
                wrong.append(k)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("length", [LENGTH, 3])
def test_a_call_while_the_program_runs(length: int) -> None:
    """It runs a copy of a long program, and NumPy's code for a short one."""
    began, goes_on = threading.Event(), threading.Event()
    calls: list[int] = []

    @LOOP
    def loop(args: Any, dims: Any, steps: Any, data: Any) -> None:
        calls.append(dims[0])
        if len(calls) == waits_at:
            began.set()
            goes_on.wait(20)
        ctypes.memmove(args[1], args[0], 8 * dims[0])

    waits_at = -1
    number = len(gc.get_objects())
    same = co.ufunc_from_loops("same", {"d->d": loop})
    op = co.custom_op(
        f"native_threads::same{number}",
        same,
        mutates_args=(),
        schema="(Array x) -> Array",
    )
    op.register_fake(lambda x: np.positive(x))
    compiled = co.compile(lambda x: np.sum(op(x + 0.0)) + chain(x), backend="native")
    x, y = np.random.default_rng(0).normal(size=(2, length))
    expected = [np.sum(v) + chain(v) for v in (x, y)]
    assert [compiled(v) for v in (x, y)] == expected
    waits_at = len(calls) + 1
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(compiled(x)))
    thread.start()
    assert began.wait(20)
    assert compiled(y) == expected[1]
    goes_on.set()
    thread.join()
    assert found == [expected[0]]
    assert ("copies for threads" in str(compiled.explain())) == (length == LENGTH)


@pytest.mark.usefixtures("heeds_interrupts")
def test_ctrl_c_in_a_long_program() -> None:
    """It ends a loop that runs without the GIL, and the next call is right."""

    def f(x: Any, count: Any) -> Any:
        return co.fori_loop(0, count, lambda i, c: np.tanh(c) + x, x)

    compiled = co.compile(f, backend="native")
    x = np.ones(20_000)
    short, long = np.array(3), np.array(10**7)
    expected = compiled(x, short).tobytes()
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        compiled(x, long)
    timer.join()
    assert compiled(x, short).tobytes() == expected


def test_clear_frees_the_memory() -> None:
    """`explain` shows the memory of a compiled function, and `clear` frees it."""

    def f(x: Any) -> Any:
        return np.cumsum(np.exp(x)[::-1] + np.sort(x))

    x = np.random.default_rng(0).normal(size=200_000)
    tracemalloc.start()
    try:
        compiled = co.compile(f, backend="native")
        compiled(x)
        compiled(x)
        (line,) = (t for t in str(compiled.explain()).splitlines() if "bytes" in t)
        shown = int(line.split()[-2])
        before = tracemalloc.get_traced_memory()[0]
        gc.disable()
        compiled.clear()
        freed = before - tracemalloc.get_traced_memory()[0]
    finally:
        gc.enable()
        tracemalloc.stop()
    assert shown >= 3 * x.nbytes
    assert freed >= 0.99 * shown


def shifted(x: Any, by: Any) -> Any:
    return np.cumsum(np.sort(x + by))


def test_all_plans_together_hold_a_bounded_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The oldest is freed; its function makes a new one, with the same results."""
    monkeypatch.setattr(native_code, "_held", native_code._HeldMemory())
    monkeypatch.setattr(native_code, "MOST_BYTES", 2_500_000)
    x = np.random.default_rng(0).normal(size=100_000)
    fns: list[Any] = [partial(shifted, by=np.array(k)) for k in range(4)]
    wanted = [fn(x).tobytes() for fn in fns]
    many = [co.compile(fn, backend="native") for fn in fns]

    def holding() -> list[bool]:
        return ["bytes" in str(compiled.explain()) for compiled in many]

    for _ in range(2):
        for fn, bits in zip(many, wanted, strict=True):
            assert fn(x).tobytes() == bits
    assert holding() == [False, False, False, True]
    assert many[0](x[:1000]).tobytes() == fns[0](x[:1000]).tobytes()
    assert holding() == [True, False, False, True]


def test_a_plan_that_is_freed_while_it_runs() -> None:
    """The call goes on with its memory, and the next one makes a new plan."""
    freed = []

    @co.custom_op("native_tests::frees", mutates_args=())
    def frees(x: co.ArrayT) -> co.ArrayT:
        if len(freed) < 3:
            freed.append(compiled.clear())
        return x + 1.0

    frees.register_fake(co.fake_like)
    compiled = co.compile(
        lambda x: np.cumsum(frees(np.cumsum(x)) * 2.0), backend="native"
    )
    x = np.random.default_rng(0).normal(size=20_000)
    expected = np.cumsum((np.cumsum(x) + 1.0) * 2.0).tobytes()
    for _ in range(5):
        assert compiled(x).tobytes() == expected
    assert len(freed) == 3


def test_the_record_of_functions_lives() -> None:
    """Functions of Python point to it, though another thread made one at the same time."""
    record = weakref.ref(door._method())  # its life is what is tested
    door._method.cache_clear()
    gc.collect()
    assert record() is not None


# ---- processes ----

# In a process without libraries that warn of a fork: Python warns of other threads.
_FORK = """
import os, sys
import numpy as np
import customop as co
co.config.compile_threads = 3
x = np.ones(3_000_000)
f = co.compile(lambda x: (x * 2.0 + 1.0) * x - x, backend="native")
def show():
    # In one piece, since two processes write.
    sys.stdout.write(f"{f(x)[-1]}\\n")
    sys.stdout.flush()
show()
child = os.fork()
show()
if not child:
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_fork_runs_the_tables_of_its_parent() -> None:
    """Threads of the parent are not waited for, and nothing warns of them."""
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", _FORK],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (found.stderr, found.returncode) == ("", 0)
    assert found.stdout.split() == ["2.0"] * 3
