"""Programs at the limits of size, each run alone in a process: ``python large.py NAME``.

It writes JSON: for each step its CPU time in seconds, and by how many bytes the
memory of the process has grown at its peak.
"""

from __future__ import annotations

import gc
import io
import json
import resource
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import Any, TypeVar

import numpy as np

import customop as co

__all__ = ["PROGRAMS", "Steps"]

T = TypeVar("T")


class Steps:
    """The steps of a program, with what each has taken.

    Attributes
    ----------
    found : dict
        Name of a step -> its CPU time in seconds, and bytes of memory.
    """

    def __init__(self) -> None:
        self.found: dict[str, tuple[float, float]] = {}

    def take(self, name: str, run: Callable[[], T]) -> T:
        """Run a step, and return what it gives."""
        before, start = _resident(), process_time()
        result = run()
        seconds = process_time() - start
        self.found[name] = (seconds, max(0.0, _peak() - before))
        return result


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024.0


def _resident() -> float:
    """Bytes that are in memory now; before the first step they are the peak, too."""
    try:
        pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    except OSError:
        return _peak()
    return float(pages) * resource.getpagesize()


# ---- programs ----


def leaves(steps: Steps) -> None:
    """The gradient of 10,000 leaves, compiled."""
    given = [np.ones(3) * i for i in range(10_000)]

    def loss(arrays: Any) -> Any:
        total: Any = 0.0
        for x in arrays:
            total = total + np.sum(x * x)
        return total

    step = co.compile(co.grad(loss), backend="numpy")
    found: Any = steps.take("first call", lambda: step(given))
    np.testing.assert_allclose(found[7], 2.0 * given[7])


def repeated(count: int) -> Callable[[Any], Any]:
    """Return a function of so many calls, one after the other."""

    def repeated(x: Any) -> Any:
        for _ in range(count // 2):
            x = np.sin(x) * 0.5
        return x

    return repeated


def _captured(steps: Steps, count: int) -> None:
    x = np.ones(3)
    module = steps.take("capture", lambda: co.make_fx(repeated(count))(x))
    found = steps.take("first replay", lambda: module(x))
    np.testing.assert_array_equal(found, repeated(count)(x))


def nodes(steps: Steps) -> None:
    """A graph of 100,000 nodes: its capture and first replay."""
    _captured(steps, 100_000)


def more_nodes(steps: Steps) -> None:
    """A graph of 1,000,000 nodes."""
    _captured(steps, 1_000_000)


def files(steps: Steps) -> None:
    """A graph of 100,000 nodes, saved and loaded."""
    module = co.make_fx(repeated(100_000))(np.ones(3))
    file = io.BytesIO()
    steps.take("save", lambda: module.save(file))
    file.seek(0)
    loaded = steps.take("load", lambda: co.load_graph(file))
    assert len(loaded.graph.nodes) == len(module.graph.nodes)


def unrolled(steps: Steps) -> None:
    """An unrolled loop of 50,000 calls, compiled."""
    x = np.ones(3)
    step = co.compile(repeated(50_000), backend="numpy")
    found = steps.take("first call", lambda: step(x))
    np.testing.assert_array_equal(found, repeated(50_000)(x))


def operators(steps: Steps) -> None:
    """100,000 operators, and a typo among them."""

    def kernel(x: Any) -> Any:
        return x + 1

    def register() -> None:
        schema = "(Array x) -> Array"
        for i in range(100_000):
            co.custom_op(f"large::op{i}", kernel, mutates_args=(), schema=schema)

    steps.take("register", register)
    for name in ("first typo", "typo"):
        error = steps.take(name, lambda: _error_of("op99999x"))
        assert "op99999" in str(error)


def _error_of(name: str) -> Exception:
    try:
        getattr(co.ops.large, name)
    except co.UnknownNameError as error:
        return error
    raise AssertionError(name)


def pendulum(steps: Steps) -> None:
    """The gradient of 200 steps of a pendulum, and the share of the collector in it."""
    loss = pendulum_of(np)
    step, start = co.grad(loss), np.array([9.8, 0.1])
    step(start)
    seconds = [0.0]

    def watch(phase: str, info: object) -> None:
        seconds[0] += process_time() if phase == "stop" else -process_time()

    gc.callbacks.append(watch)
    steps.take("gradient", lambda: step(start))
    steps.found["collector"] = (seconds[0], 0.0)


def pendulum_of(xp: Any) -> Callable[[Any], Any]:
    """Return the loss of a damped pendulum after 200 steps of Runge and Kutta."""

    def slope(s: Any, p: Any) -> Any:
        return xp.stack([s[1], -p[0] * xp.sin(s[0]) - p[1] * s[1]])

    def loss(p: Any) -> Any:
        s, h = xp.array([1.0, 0.0]), 0.01
        for _ in range(200):
            k1 = slope(s, p)
            k2 = slope(s + h / 2 * k1, p)
            k3 = slope(s + h / 2 * k2, p)
            k4 = slope(s + h * k3, p)
            s = s + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return xp.sum(s * s)

    return loss


def _each() -> Iterator[tuple[str, Callable[[Steps], None]]]:
    for program in (leaves, nodes, more_nodes, files, unrolled, operators, pendulum):
        yield program.__name__, program


PROGRAMS = dict(_each())


if __name__ == "__main__":
    taken = Steps()
    PROGRAMS[sys.argv[1]](taken)
    sys.stdout.write(json.dumps(taken.found))
