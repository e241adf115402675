"""Plain code that reads arrays from outside which operators write."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co

_numbers = itertools.count()


def fill(values: np.ndarray, value: float) -> None:
    values[...] = value


def define() -> co.Operator[..., Any]:
    op = co.custom_op(f"unseen::fill{next(_numbers)}", fill, mutates_args=("values",))
    op.register_fake(lambda values, value: None)
    return op


def makers() -> dict[str, Callable[..., Any]]:
    """Return what captures a function."""
    modes: Any = ("real", "fake", "symbolic")
    traced = {
        mode: lambda f, x, mode=mode: co.make_fx(f, tracing_mode=mode)(x)
        for mode in modes
    }
    return {"compile": lambda f, x: co.compile(f), **traced}


# What a function computes from x and an array that was filled before.
SEEN: dict[str, Callable[..., Any]] = {
    "operator": lambda x, values: x * values,
    "view": lambda x, values: x * values[:1],
    "nothing": lambda x, values: x * 2,
    "shape": lambda x, values: x * values.shape[0],
}
UNSEEN: dict[str, Callable[..., Any]] = {
    "method": lambda x, values: x * values.sum(),
    "function": lambda x, values: x * np.sum(values),
    "number": lambda x, values: x * float(values[0]),
    "branch": lambda x, values: x * 2 if values[0] > 2 else x,
    "index": lambda x, values: x * [5.0, 6.0][int(values[0])],
    "copy": lambda x, values: x * (values * 2),
}


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.complex128, np.bool_])
@pytest.mark.parametrize("maker", makers().values(), ids=makers())
@pytest.mark.parametrize("use", SEEN.values(), ids=SEEN)
def test_seen(use: Callable[..., Any], maker: Callable[..., Any], dtype: Any) -> None:
    """Operators that read the array see what was written."""
    op, values, x = define(), np.zeros(2, dtype), np.ones(2)

    def f(x: Any) -> Any:
        op(values, 3)
        return use(x, values)

    captured = maker(f, x)
    assert np.array_equal(values, np.zeros(2, dtype))  # capturing writes nothing
    for scale in (1, 2):
        assert np.array_equal(captured(x * scale), f(x * scale))


@pytest.mark.parametrize("maker", makers().values(), ids=makers())
@pytest.mark.parametrize("use", UNSEEN.values(), ids=UNSEEN)
@pytest.mark.parametrize("is_first", [False, True])
def test_unseen(
    use: Callable[..., Any], maker: Callable[..., Any], *, is_first: bool
) -> None:
    """Plain code that reads the array before or after the write is an error."""
    op, values, x = define(), np.zeros(2), np.ones(2)

    def f(x: Any) -> Any:
        if is_first:
            y = use(x, values)
            op(values, 1.0)
            return y
        op(values[:1], 1.0)
        return use(x, values)

    with pytest.raises(co.GraphError, match="reads an array from outside of it"):
        maker(f, x)(x)
    assert np.array_equal(values, np.zeros(2))
