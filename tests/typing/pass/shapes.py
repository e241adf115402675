"""Shapes in annotations do not change the types of a call."""
# ruff: noqa: F722, F821, UP037 - the texts of jaxtyping's annotations are no code

from __future__ import annotations

from typing import Annotated, Any, assert_type

import numpy as np
import numpy.typing as npt
from jaxtyping import Float, Int

import customop as co


@co.custom_op("typing_shapes::mm", mutates_args=())
def mm(
    x: Float[np.ndarray, "m k"], y: Float[np.ndarray, "k n"]
) -> Float[np.ndarray, "m n"]:
    return np.asarray(x @ y)


@co.custom_op("typing_shapes::first", mutates_args=())
def first(
    x: Annotated[co.ArrayT, "... n"],
    w: Annotated[npt.NDArray[np.float64], "n"] | None = None,
    *,
    at: Int[np.ndarray, "k"] | None = None,
) -> Annotated[co.ArrayT, "... n"]:
    result: Any = np.array(x)
    return result  # type: ignore[no-any-return]  # of the class of x


x: npt.NDArray[np.float64] = np.ones((2, 3))
assert_type(first(x), npt.NDArray[np.float64])
assert_type(first(x, np.ones(3), at=np.arange(2)), npt.NDArray[np.float64])
assert mm(x, np.ones((3, 4))).shape == (2, 4)
product: np.ndarray[Any, Any] = mm(x, y=np.ones((3, 4)))
assert co.vmap(first)(x).shape == (2, 3)
mm.register_fake(lambda x, y: co.fake_like(x, shape=(x.shape[0], y.shape[1])))
