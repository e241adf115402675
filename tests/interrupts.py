"""Interrupt programs where Python may, and look for what stays open or taken.

Run as ``python -m tests.interrupts SEED COUNT HOW``. It prints a line for each fault. The
places are random calls and returns from C, or with ``times`` random moments.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import customop as co
from customop import forks
from customop.core.interpreter import current_mode
from customop.core.observe import observers, open_modes


@co.custom_op("interrupts::twice", mutates_args=())
def twice(x: np.ndarray) -> np.ndarray:
    return x * 2


twice.register_fake(lambda x: co.fake_like(x))
twice.register_autograd(lambda ctx, g: 2 * g)
twice.register_vmap(lambda info, dims, x: (twice(x), dims[0]))
_numbers = itertools.count()
_SCHEMA = "(Array v) -> Array"
_compiled = co.compile(lambda x: np.sin(x) * twice(x))


def _new_operator(x: Any) -> Any:
    name = f"interrupts::plus{next(_numbers)}"
    return co.custom_op(name, lambda v: v + 1, mutates_args=(), schema=_SCHEMA)(x)


def _no_grad(x: Any) -> Any:
    with co.no_grad():
        return twice(x)


def _autocast(x: Any) -> Any:
    with co.autocast("cpu"), co.enable_grad():
        return twice(x)


def _backward(x: Any) -> Any:
    v = co.variable(x)
    y = np.sum(np.sin(v) * v)
    y.backward()
    return v.grad


def loss(x: Any) -> Any:
    """A scalar of an array."""
    return np.sum(np.sin(x) * twice(x))


PROGRAMS: dict[str, Callable[[np.ndarray], Any]] = {
    "grad": co.grad(loss),
    "vmap": co.vmap(loss),
    "vmap of grad": co.vmap(co.grad(lambda v: np.sin(v) * v)),
    "jvp": lambda x: co.jvp(loss, (x,), (x,))[1],
    "compile": lambda x: co.compile(loss)(x),
    "compiled": _compiled,
    "grad of compile": lambda x: co.grad(co.compile(loss))(x),
    "vmap of compile": lambda x: co.vmap(co.compile(np.sin))(x),
    "make_fx": lambda x: co.make_fx(loss, tracing_mode="symbolic")(x)(x),
    "eval_shape": lambda x: co.eval_shape(loss, x).shape,
    "checkpoint": lambda x: co.grad(co.checkpoint(loss))(x),
    "scan": lambda x: co.compile(
        lambda v: co.scan(lambda c, w: (c + w, c * w), v[0], v)[1]
    )(x),
    "cond": lambda x: co.make_fx(lambda v: co.cond(np.sum(v) > 0, np.sin, np.cos, v))(
        x
    )(x),
    "no_grad": _no_grad,
    "autocast": _autocast,
    "backward": _backward,
    "definition": _new_operator,
}


class _Interrupt:
    """Raises at the n-th place where Python looks for signals: calls and returns from C."""

    def __init__(self, at: int) -> None:
        self.left = at
        self.place = ""

    def __call__(self, frame: Any, event: str, arg: Any) -> None:
        code = frame.f_code
        if event not in ("call", "c_return") or code.co_filename == __file__:
            return
        # Before the first line of the `__exit__` of a block here nothing can be done.
        if code.co_name == "__exit__" and frame.f_back.f_code.co_filename == __file__:
            return
        self.left -= 1
        if self.left == 0:
            self.place = f"{event} {code.co_filename}:{frame.f_lineno} {code.co_name}"
            raise KeyboardInterrupt


def places(program: Callable[[Any], Any], x: np.ndarray) -> int:
    """Return at how many places a call may be interrupted."""
    count = _Interrupt(0)
    sys.setprofile(count)
    try:
        program(x)
    finally:
        sys.setprofile(None)
    return -count.left


def faults() -> Iterator[str]:
    """Yield what is open or taken although nothing runs."""
    if current_mode.get() is not None:
        yield f"current mode {current_mode.get()}"
    if open_modes:
        yield f"open modes {open_modes}"
    if observers:
        yield f"observers {observers}"
    for lock in forks._locks:
        if getattr(lock, "_is_owned", bool)():
            yield f"lock {lock}"
    if getattr(os.environ.encodekey, "__module__", "os") != "os":
        yield "the environment is watched"


def clean_up() -> None:
    """Close what an interrupt has left open, for the next one."""
    current_mode.set(None)
    open_modes.clear()
    observers.clear()
    for lock in forks._locks:
        while getattr(lock, "_is_owned", bool)():
            lock.release()


def interrupted(name: str, at: int, x: np.ndarray, expected: Any) -> Iterator[str]:
    """Interrupt a program at a place; yield what is wrong afterwards."""
    interrupt = _Interrupt(at)
    sys.setprofile(interrupt)
    try:
        PROGRAMS[name](x)
        sys.setprofile(None)
    except KeyboardInterrupt:
        pass
    except BaseException as error:  # noqa: BLE001  # each is a fault
        sys.setprofile(None)
        yield f"{name}: {error!r} at {interrupt.place}"
    sys.setprofile(None)
    for fault in faults():
        yield f"{name}: {fault} after {interrupt.place}"
    if any(faults()):
        clean_up()
    try:
        found = PROGRAMS[name](x)
    except BaseException as error:  # noqa: BLE001  # each is a fault
        yield f"{name}: then {error!r} after {interrupt.place}"
    else:
        if not np.array_equal(found, expected):
            yield f"{name}: then {found} after {interrupt.place}"


def timed(name: str, delay: float, x: np.ndarray, expected: Any) -> Iterator[str]:
    """Interrupt a program after a time; yield what is wrong afterwards."""
    armed = [True]

    def interrupt(number: int, frame: Any) -> None:
        if armed[0]:
            raise KeyboardInterrupt

    signal.setitimer(signal.ITIMER_REAL, 0)  # of the run before
    signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, delay)
        PROGRAMS[name](x)
        armed[0] = False
    except KeyboardInterrupt:
        pass
    except BaseException as error:  # noqa: BLE001  # each is a fault
        armed[0] = False
        yield f"{name}: {error!r} raised instead"
    for fault in faults():
        yield f"{name}: {fault} left"
    if any(faults()):
        clean_up()
    try:
        found = PROGRAMS[name](x)
    except BaseException as error:  # noqa: BLE001  # each is a fault
        yield f"{name}: then {error!r}"
    else:
        if not np.array_equal(found, expected):
            yield f"{name}: then {found}"


def main(seed: int, count: int, how: str) -> int:
    """Interrupt `count` runs at random places; return how many faults were found."""
    warnings.simplefilter("ignore")
    rng = random.Random(seed)
    x = np.linspace(0.1, 1, 4)
    expected = {}
    size: dict[str, float] = {}
    for name, program in PROGRAMS.items():
        expected[name] = program(x)
        program(x)
        begin = time.perf_counter()
        program(x)
        took = time.perf_counter() - begin
        size[name] = took if how == "times" else places(program, x)
    found = 0
    # Python prints what is raised while the garbage collector closes a generator.
    sys.unraisablehook = lambda _: None
    for _ in range(count):
        name = rng.choice([*PROGRAMS])
        if how == "times":
            lines = timed(name, rng.random() * size[name] + 1e-6, x, expected[name])
        else:
            at = rng.randint(1, max(int(size[name]), 1))
            lines = interrupted(name, at, x, expected[name])
        for line in lines:
            found += 1
            print(line, flush=True)  # noqa: T201  # the report
    print(count, "interrupts", found, "faults")  # noqa: T201  # the report
    return found


if __name__ == "__main__":
    sys.exit(bool(main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])))
