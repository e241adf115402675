"""Sums that are given block by block, beside NumPy's sums of the whole arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from customop.compiling.native_backend.sum_loops import (
    LINES,
    STATE_WORDS,
    halves,
    sum_loops,
)
from customop.compiling.native_backend.ufunc_loops import call_loop


def items_of(rng: np.random.Generator, length: int, char: str) -> Any:
    """Return numbers of different sizes, so that each order has other bits."""
    return (rng.normal(size=length) * 10.0 ** rng.integers(0, 5, length)).astype(char)


def sum_of(items: Any, rng: np.random.Generator) -> Any:
    """Return a sum of blocks of random lengths."""
    loops = sum_loops(items.dtype.char)
    assert loops is not None
    state, total = np.full(STATE_WORDS, 7, np.int64), np.zeros(1, items.dtype)
    call_loop(loops[0], [state], len(items))
    start = 0
    while start < len(items):
        count = min(len(items) - start, LINES * int(rng.integers(1, 600)))
        call_loop(loops[1], [total, items[start:], state], count)
        start += count
    return total[0]


@pytest.mark.parametrize("char", ["f", "d"])
def test_blocks_of_random_lengths(char: str) -> None:
    """Each block but the last is a multiple of eight items."""
    rng = np.random.default_rng(0)
    for length in (129, 136, 255, 256, 257, *rng.integers(129, 30_000, 150)):
        items = items_of(rng, int(length), char)
        assert sum_of(items, rng).tobytes() == np.sum(items).tobytes(), length


@pytest.mark.parametrize("char", ["f", "d"])
def test_zeros_and_infinities(char: str) -> None:
    rng = np.random.default_rng(1)
    items = np.full(5000, -0.0, char)
    assert sum_of(items, rng).tobytes() == np.sum(items).tobytes()
    items[4999] = np.inf
    assert sum_of(items, rng) == np.inf
    items[17] = np.nan
    assert np.isnan(sum_of(items, rng))


@pytest.mark.parametrize("parts", [1, 2, 4, 8])
def test_halves_are_those_of_the_sum(parts: int) -> None:
    """The sum of two neighboring parts, and of two such sums, is that of the whole."""
    rng = np.random.default_rng(2)
    for length in rng.integers(2000, 30_000, 50):
        items = items_of(rng, int(length), "d")
        found = halves(int(length), parts)
        assert len(found) == parts
        ends = [start + count for start, count in found]
        assert [start for start, _ in found] == [0, *ends[:-1]]
        assert ends[-1] == length
        sums = [np.sum(items[a : a + count]) for a, count in found]
        while len(sums) > 1:
            sums = [a + b for a, b in zip(sums[::2], sums[1::2], strict=True)]
        assert sums[0] == np.sum(items)
