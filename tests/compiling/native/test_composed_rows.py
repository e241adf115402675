"""Operators that are several loops: bits, steps and classes of NumPy in all layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co
from tests.compiling.programs import observe

Function = Callable[[Any], Any]

PLACES = np.array([1, 0, -1, 0])
FUNCTIONS: dict[str, Function] = {
    "clip": lambda x: np.clip(x, -1, 2.5),
    "clip by an array": lambda x: np.clip(x, x[..., :1], 3),
    "round": lambda x: np.round(x),
    "round to 2": lambda x: np.round(x, 2),
    "round to tens": lambda x: np.round(x * 100, -1),
    "diff": lambda x: np.diff(x, axis=0),
    "trace": lambda x: np.trace(x, 1),
    "norm": lambda x: np.linalg.norm(x),
    "norm of rows": lambda x: np.linalg.norm(x, axis=-1, keepdims=True),
    "var": lambda x: np.var(x),
    "var of rows": lambda x: np.var(x, axis=-1, ddof=1),
    "std of columns": lambda x: np.std(x, axis=0, keepdims=True, ddof=0.5),
    "mean of bools": lambda x: np.mean(x > 0, axis=0),
    "mean of small integers": lambda x: np.mean(x.astype(np.int16)),
    "sum of small integers": lambda x: np.sum(x.astype(np.uint8), axis=0),
    "product of integers": lambda x: np.prod(x.astype(np.int32), axis=-1),
    "sum of complex": lambda x: np.sum(x + 1j * x, axis=0),
    "sum of all complex": lambda x: np.sum(x * (0.1 + 1j)),
    "maximum of integers": lambda x: np.max(x.astype(np.int8), axis=0),
    "any": lambda x: np.any(x, axis=-1),
    "all": lambda x: np.all(x),
    "argmax": lambda x: np.argmax(x, axis=0),
    "argmin of all": lambda x: np.argmin(np.where(x > 3, np.nan, np.round(x))),
    "first of equal": lambda x: np.argmin(np.round(x), axis=-1, keepdims=True),
    "argmax of bools": lambda x: np.argmax(x > 0.5, axis=1),
    "roll": lambda x: np.roll(x, -3),
    "roll along axes": lambda x: np.roll(x, (5, -2), axis=(0, -1)),
    "pad": lambda x: np.pad(x, ((1, 0), (2, 3)), constant_values=1.5),
    "tile": lambda x: np.tile(x, (2, 1, 3)),
    "take": lambda x: np.take(x, PLACES, axis=1),
    "columns": lambda x: x[:, PLACES],
    "columns in rows": lambda x: x.reshape(1, *x.shape)[:, :, PLACES.reshape(2, 2)],
    "middle": lambda x: x[:, None, :, None][:, :, PLACES],
    "repeat": lambda x: np.repeat(x, 3, axis=0),
}
LAYOUTS: dict[str, Function] = {
    "packed": lambda x: x,
    "turned": np.asfortranarray,
    "gaps": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "backward": lambda x: x[::-1],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_rows_give_what_numpy_gives(name: str, layout: str) -> None:
    """For few items, and for more than a buffer of NumPy's iterator has."""
    fn = FUNCTIONS[name]
    random = np.random.default_rng(len(name))
    for shape in ((5, 4), (1, 3), (131, 70)):
        x = random.normal(scale=3.0, size=shape)
        x[0, 0] = -0.0
        given = LAYOUTS[layout](x)
        compiled = co.compile(fn, backend="native")
        for _ in range(2):
            assert observe(compiled, [given]) == observe(fn, [given])
        assert "NumPy code" not in str(compiled.explain())
        if layout == "packed":
            assert "call:" not in str(compiled.explain())


def test_gradients_of_columns_add_at_places() -> None:
    fn = co.grad(lambda x: np.sum(x[:, PLACES] ** 2))
    x = np.random.default_rng(1).normal(size=(5, 4))
    compiled = co.compile(fn, backend="native")
    assert compiled(x).tobytes() == fn(x).tobytes()
    assert "call:" not in str(compiled.explain())


@pytest.mark.parametrize("dtype", ["f4", "i8", "u2", "?", "c8", "f2"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_other_dtypes_are_those_of_numpy(name: str, dtype: str) -> None:
    """As rows, or as calls of NumPy where the order of its sums is not known."""
    fn = FUNCTIONS[name]
    x = np.random.default_rng(1).normal(scale=3.0, size=(30, 20)).astype(dtype)
    compiled = co.compile(fn, backend="native")
    try:
        fn(x)
        compiled(x)
    except (TypeError, np.exceptions.ComplexWarning):
        return  # NumPy has no such function
    assert observe(compiled, [x]) == observe(fn, [x])


def test_no_number_beyond_an_integer_is_lost() -> None:
    """NumPy leaves out bounds that every integer of the dtype meets."""
    fn = lambda x: np.clip(x, -1000, 100)
    x = np.array([-128, -1, 127], np.int8)
    compiled = co.compile(fn, backend="native")
    assert observe(compiled, [x]) == observe(fn, [x])


def test_products_of_stacks_lie_as_the_stacks() -> None:
    """The first axes of a product are in the order of those of the operands."""
    random = np.random.default_rng(2)
    a = random.normal(size=(5, 3, 4, 2)).transpose(1, 0, 2, 3)
    fns: list[Function] = [
        lambda x: x @ x.swapaxes(-1, -2),
        lambda x: x @ x[0, 0].T,
        lambda x: x @ x[0, 0, 0],
        lambda x: x[:, :, 0, None] @ x.swapaxes(-1, -2),
    ]
    for fn in fns:
        compiled = co.compile(fn, backend="native")
        assert observe(compiled, [a]) == observe(fn, [a])
        assert "call:" not in str(compiled.explain())
