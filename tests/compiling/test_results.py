"""What a compiled function returns: new arrays, views and arrays from outside."""

from typing import Any

import numpy as np
import pytest

import customop as co

TABLE = np.ones(3)


def test_arrays_that_a_function_makes_are_new_in_each_call() -> None:
    def start(x: Any) -> Any:
        moment = np.zeros(3)
        shape = np.full((2, 2), 7.0, np.float32, order="F")
        return {"m": moment, "again": moment, "s": shape, "x": x + moment}

    fast = co.compile(start)
    for _ in range(3):
        found = fast(np.ones(3))
        assert found["m"].tolist() == [0.0, 0.0, 0.0]
        assert found["x"].tolist() == [1.0, 1.0, 1.0]
        assert found["s"].tolist() == [[7.0, 7.0], [7.0, 7.0]]
        assert found["s"].strides == start(np.ones(3))["s"].strides
        assert found["again"] is found["m"]
        found["m"] += 5.0
        found["s"][:] = 0.0


def test_arrays_from_outside_are_returned_themselves() -> None:
    inner, held = np.ones(2), {"w": np.ones(2)}
    fast = co.compile(lambda x: (x + 1.0, TABLE, inner, held["w"], inner[:1]))
    for _ in range(2):
        _, table, closed, item, view = fast(np.ones(3))
        assert table is TABLE
        assert closed is inner
        assert item is held["w"]
        assert np.shares_memory(view, inner)


def test_inner_functions_return_new_arrays_too() -> None:
    fast = co.compile(
        lambda x: co.cond(np.sum(x) > 0, lambda: np.zeros(2), lambda: np.ones(2))
    )
    for _ in range(2):
        found = fast(np.ones(3))
        assert found.tolist() == [0.0, 0.0]
        found += 1.0


@pytest.mark.parametrize("backend", ["native", "numpy", "eager"])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x[None] * 2.0,
        lambda x: np.repeat(x, 2),
        lambda x: x.reshape(1) * 2.0,
        lambda x: np.atleast_2d(x) * 2.0,
        lambda x: np.cumsum(x, axis=0),
        lambda x: np.stack([x, x]),
    ],
    ids=["new axis", "repeat", "reshape", "atleast_2d", "cumsum", "stack"],
)
def test_gradients_of_arrays_without_axes_are_scalars(fn: Any, backend: str) -> None:
    slope = co.grad(lambda x: np.sum(fn(x) * 1.5))
    for x in (np.array(2.0), np.float64(2.0), np.array(2.0, "f4")):
        expected = slope(x)
        found = co.compile(slope, backend=backend)(x), co.make_fx(slope)(x)(x)
        assert [*map(type, found)] == [type(expected)] * 2
        assert found == (expected, expected)
