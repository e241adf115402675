"""`compile` keeps the signature of a function, as a call and as a decorator."""

from __future__ import annotations

from typing import assert_type

import numpy as np
import numpy.typing as npt

import customop as co

F64 = npt.NDArray[np.float64]


def scaled(x: F64, k: float = 1.0, *, name: str = "") -> dict[str, F64]:
    return {name: k * x}


@co.compile
def doubled(x: F64) -> F64:
    return x * 2.0


@co.compile(backend="eager", fallback=True, sizes={"x": ("n",)}, limit=8)
def tripled(x: F64) -> F64:
    return x * 3.0


class Layer:
    def __init__(self, w: F64) -> None:
        self.w = w

    @co.compile
    def apply(self, x: F64, *, power: int = 1) -> F64:
        return np.square(x @ self.w) ** power


x = np.ones(3)
assert_type(co.compile(scaled)(x, 2.0, name="a"), dict[str, F64])
assert_type(co.compile(scaled, backend="numpy")(x), dict[str, F64])
assert_type(doubled(x), F64)
assert_type(tripled(x), F64)
assert_type(Layer(np.ones((3, 3))).apply(x, power=2), F64)
assert_type(co.compile(co.vmap(doubled))(np.ones((2, 3))), F64)
graphs: list[co.GraphModule] = doubled.graphs
text: str = str(doubled.explain()) + doubled.code
doubled.clear()
co.compile(doubled)(x)
