"""Inner loops of ufuncs, called by their addresses."""

from __future__ import annotations

import ctypes
import warnings
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import customop as co
from customop.compiling.native_backend.tables import QUIET
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


def test_a_loop_that_warns_is_left_to_its_ufunc() -> None:
    """A warning that is an error is raised as NumPy raises it, also in compiled code."""
    special = pytest.importorskip("scipy.special", reason="no scipy")
    import_module("customop.scipy.special")  # its operators
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(NotNative, match="warns by itself"):
            loop_for(special.expn, (np.dtype(float), np.dtype(float)))
        loop_for(special.expn, (np.dtype(int), np.dtype(float)))
        compiled = co.compile(lambda n, x: special.expn(n + 0.5, x) * 2.0)
        with pytest.raises(RuntimeWarning, match="truncated to an integer"):
            compiled(np.ones(1), np.ones(1))  # more make a SystemError of NumPy


def _double(args: Any, dims: Any, steps: Any, _: Any) -> None:
    """Double numbers, and move the pointers on the way, as many loops in C do."""
    number = ctypes.c_double.from_address
    for _ in range(dims[0]):
        number(args[1]).value = 2.0 * number(args[0]).value
        args[0] += steps[0]
        args[1] += steps[1]


_doubling = ctypes.CFUNCTYPE(
    None, *[ctypes.POINTER(ctypes.c_ssize_t)] * 3, ctypes.c_void_p
)(_double)


@pytest.mark.parametrize("shape", [(2,), (3, 4)])
def test_a_loop_may_move_its_pointers(shape: tuple[int, ...]) -> None:
    """Each call gets those of the row, also where the memory is that of the program."""
    double = co.custom_op(
        f"moved::double{len(shape)}",
        co.ufunc_from_loops("double", {"d->d": _doubling}),
        mutates_args=(),
        schema="(Array x) -> Array",
    )
    double.register_fake(lambda x: np.positive(x))
    compiled = co.compile(lambda x, y: np.sum(double(x + y) * 2.0))
    for k in range(4):
        x, y = np.arange(float(np.prod(shape))).reshape(shape) + k, np.ones(shape)
        assert compiled(x, y) == 4.0 * (x + y).sum()
        assert compiled(x, y[:1]) == 4.0 * (x + y).sum()
    again = co.ufunc_from_loops("double", {"d->d": _doubling})
    loop = loop_for(again, (np.dtype(float),))
    assert call_loop(loop, [np.ones(3), np.empty(3)], 3)


def _integer_calls() -> list[Any]:
    names = (n for n in dir(np) if isinstance(getattr(np, n), np.ufunc))
    ufuncs = {getattr(np, name) for name in names}
    return sorted((u for u in ufuncs if not u.signature), key=lambda u: u.__name__)


@pytest.mark.parametrize("char", "?bBilL")
def test_loops_of_integers_whose_flags_nobody_reads_raise_none(char: str) -> None:
    """They are tried on the numbers where operations of integers go wrong."""
    dtype = np.dtype(char)
    limits = [0, 1] if char == "?" else [np.iinfo(dtype).min, np.iinfo(dtype).max]
    numbers = np.array([*limits, 0, 1, 2, 3], dtype)
    if dtype.kind == "i":
        numbers = np.append(numbers, np.array([-1, -2], dtype))
    seen = 0
    for ufunc in _integer_calls():
        operands = [a.ravel() for a in np.meshgrid(*[numbers] * ufunc.nin)]
        try:
            loop = loop_for(ufunc, (dtype,) * ufunc.nin)
        except NotNative:
            continue
        if loop.flags != QUIET or {d.kind for d in loop.dtypes} - {*"biu"}:
            continue
        seen += 1
        with np.errstate(all="raise"):
            ufunc(*operands)
    assert seen > 15
