"""A decorated function with overloads: its calls, and registrations by name."""

from __future__ import annotations

from typing import Any, Literal, assert_type, overload

import numpy as np
import numpy.typing as npt

import customop as co

F64 = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@overload
def cast(x: F64, to: Literal["bool"]) -> Bools: ...
@overload
def cast(x: F64, to: Literal["float"] = "float") -> F64: ...
@co.custom_op("typing_overloads::cast", mutates_args=())
def cast(x: F64, to: Literal["float", "bool"] = "float") -> npt.NDArray[Any]:
    return x.astype(to)


@co.register_fake("typing_overloads::cast")
def _(x: co.FakeArray, to: str) -> co.FakeArray:
    return co.fake_like(x, dtype=to)


co.register_vmap("typing_overloads::cast", lambda info, in_dims, x, to: (x, in_dims[0]))

assert_type(cast(np.ones(2), "bool"), Bools)
assert_type(cast(np.ones(2), to="float"), F64)
assert_type(cast(np.ones(2)), F64)
