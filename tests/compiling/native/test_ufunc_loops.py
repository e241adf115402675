"""Inner loops of ufuncs, called by their addresses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from customop.compiling.native_backend.ufunc_loops import (
    NotNative,
    call_loop,
    loop_for,
)


@pytest.mark.parametrize("name", ["add", "sin", "power", "greater", "exp", "hypot"])
@pytest.mark.parametrize("char", "dfe")
def test_a_loop_has_the_bits_of_the_ufunc(name: str, char: str) -> None:
    """A loop gives what the call gives, for lengths with and without a rest."""
    ufunc: Any = getattr(np, name)
    loop = loop_for(ufunc, (np.dtype(char),) * ufunc.nin)
    rng = np.random.default_rng(0)
    for count in (1, 7, 64, 1001):
        operands = [(rng.random(count) + 0.1).astype(char) for _ in range(ufunc.nin)]
        found = np.empty(count, loop.dtypes[-1])
        call_loop(loop, [*operands, found], count)
        assert found.tobytes() == ufunc(*operands).tobytes()


def test_numbers_of_python_take_the_dtype_of_arrays() -> None:
    """The dtypes are those of NumPy for Python's numbers."""
    single = np.dtype(np.float32)
    assert loop_for(np.add, (single, float)).dtypes == (single,) * 3


def test_objects_and_dates_are_refused() -> None:
    """What is not made of plain numbers is left to calls."""
    for dtype in ("O", "M8[s]"):
        with pytest.raises(NotNative):
            loop_for(np.add, (np.dtype(dtype), np.dtype(dtype)))
    with pytest.raises(NotNative):
        loop_for(np.bitwise_and, (np.dtype(float), np.dtype(float)))
