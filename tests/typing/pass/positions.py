"""Gradients by the arguments that `argnums` names: one, a pair, and with `has_aux`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, assert_type

import numpy as np
import numpy.typing as npt

import customop as co

F64 = npt.NDArray[np.float64]
Weights = dict[str, F64]


def loss(x: F64, y: float, z: Weights, w: list[F64], *, power: int = 2) -> F64:
    result: Any = np.sum(x) * y * z["a"].sum() * w[0].sum() ** power
    return result  # type: ignore[no-any-return]  # without axes


def loss_and_name(x: F64, y: float, z: Weights, w: list[F64]) -> tuple[F64, str]:
    return loss(x, y, z, w), "loss"


def bare(x: np.ndarray, y: float) -> np.ndarray:  # type: ignore[type-arg,unused-ignore]  # with Any in it
    result: Any = np.sum(x) * y
    return result  # type: ignore[no-any-return]  # without axes


def product(x: co.ArrayT, y: co.ArrayT) -> co.ArrayT:
    result: Any = (x * y).sum()
    return result  # type: ignore[no-any-return]  # of the class of x


Arguments = tuple[F64, float, Weights, list[F64]]
x: F64 = np.ones(2)
args: Arguments = (x, 2.0, {"a": x}, [x])

assert_type(co.grad(loss, 0)(*args), F64)
assert_type(co.grad(loss, 1)(*args), float)
assert_type(co.grad(loss, argnums=2)(*args, power=3), Weights)
assert_type(co.grad(loss, argnums=3)(*args), list[F64])
assert_type(co.grad(loss, (0, 1))(*args), tuple[F64, float])
assert_type(co.grad(loss, (0, 2))(*args), tuple[F64, Weights])
assert_type(co.grad(loss, (1, 2))(*args), tuple[float, Weights])
assert_type(co.grad(loss_and_name, 1, has_aux=True)(*args), tuple[float, str])
assert_type(co.grad(loss_and_name, 3, True)(*args), tuple[list[F64], str])
assert_type(
    co.grad(loss_and_name, (0, 1), has_aux=True)(*args), tuple[tuple[F64, float], str]
)
assert_type(co.value_and_grad(loss, 1)(*args), tuple[F64, float])
assert_type(co.value_and_grad(loss, 2)(*args), tuple[F64, Weights])
assert_type(co.value_and_grad(loss, (0, 1))(*args), tuple[F64, tuple[F64, float]])
assert_type(
    co.value_and_grad(loss_and_name, (1, 2), has_aux=True)(*args),
    tuple[tuple[F64, str], tuple[float, Weights]],
)

# Each of these is a function that checkers let a strict module call.
by_position: Callable[[F64, F64], F64] = co.grad(product, 1)
of_both: Callable[[F64, F64], tuple[F64, F64]] = co.grad(product, (0, 1))
assert len(of_both(x, x)) == 2
assert by_position(x, x).shape == (2,)
for position in (0, 1):
    assert co.grad(bare, position)(x, 2.0) is not None
assert co.grad(bare, 0)(x, 2.0) is not None
assert co.grad(bare, 1)(x, 2.0) is not None
assert len(co.grad(bare, (0, 1))(x, 2.0)) == 2
assert len(co.value_and_grad(bare, [1, 0])(x, 2.0)) == 2
