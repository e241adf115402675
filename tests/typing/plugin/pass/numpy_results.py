"""NumPy's functions and operators for arrays whose elements are not known."""

from __future__ import annotations

from typing import assert_type

import numpy as np
import numpy.typing as npt

import customop as co

F64 = npt.NDArray[np.float64]
x = np.ones(3)


@co.custom_op("plugin_numpy::axpy", mutates_args=())
def axpy(x: F64, y: F64, a: float) -> F64:
    return a * x + y


with co.Library("plugin_numpy", "FRAGMENT") as lib:
    lib.define("twice(Array x) -> Array")
    lib.impl("twice", lambda x: 2 * x, "CPU")
    lib.impl("twice", lambda x: co.fake_like(x), "Meta")
    co.ops.plugin_numpy.twice(x)


def squares(values: F64) -> F64:
    return axpy(values**2, values, 2.0)


assert_type(squares(x), F64)
