"""The gradient of a chain of 100,000 operators: time, memory and recursion."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
from operators import save_input, sine, sine_backward
from table import Row, ratio

import customop as co

LENGTH = 100_000
X = np.array([0.1, 0.2, 0.3])


def _gradient(op: Any, length: int) -> Callable[[Any], Any]:
    def repeated(x: Any) -> Any:
        for _ in range(length):
            x = op(x)
        return x.sum()

    return co.grad(repeated)


def _seconds(length: int) -> float:
    """Time for each operator of a chain, with the garbage collector on.

    Objects that the peers keep alive are frozen, so that the collector skips them.
    """
    fn = _gradient(sine, length)
    gc.collect()
    gc.freeze()
    start = perf_counter()
    fn(X)
    seconds = perf_counter() - start
    gc.unfreeze()
    return seconds / length


def test_time_is_linear(note: Callable[[Row], None]) -> None:
    """An operator of the long chain takes about as long as one of the short chain.

    A little longer: the long chain does not fit into the caches of the processor, and
    the garbage collector runs more often. Quadratic time would be 10 x.
    """
    runs = [(_seconds(LENGTH // 10), _seconds(LENGTH)) for _ in range(3)]
    short, long = (min(column) for column in zip(*runs, strict=True))
    limit = ratio("a tenth of them", 2.0)
    note(Row(f"grad of a chain of {LENGTH:,}, per operator", limit, long, short))


def test_no_recursion() -> None:
    """A chain longer than the recursion limit has a gradient, and the limit stays."""
    before = sys.getrecursionlimit()
    assert before < LENGTH
    assert np.isfinite(_gradient(sine, LENGTH)(X)).all()
    assert sys.getrecursionlimit() == before


def test_memory_is_freed() -> None:
    """Backward frees saved arrays as it goes, and nothing stays afterwards."""
    seen: list[int] = []

    def backward(ctx: Any, g: Any) -> Any:
        seen.append(tracemalloc.get_traced_memory()[0])
        return sine_backward(ctx, g)

    @co.custom_op("bench::watched", mutates_args=())
    def watched(x: np.ndarray) -> np.ndarray:
        return np.sin(x)

    watched.register_autograd(backward, setup_context=save_input)
    fn = _gradient(watched, LENGTH)
    fn(X)
    seen.clear()
    # Off, to prove that no reference cycle keeps saved arrays.
    gc.disable()
    tracemalloc.start()
    try:
        fn(X)
        after = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
        gc.enable()
    # The list of sizes: a pointer and an int of 32 bytes each, and room to grow.
    own = 44 * LENGTH
    first, last = seen[0], seen[-1]
    assert last - own < first / 20
    assert after - own < first / 20
