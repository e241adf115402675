"""An operator that `custom_op` makes of a function, under another name."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

import customop as co

F64 = npt.NDArray[np.float64]


def shifted(x: F64, n: int = 1) -> F64:
    return np.roll(x, n)


shift = co.custom_op("plugin_called::shift", shifted, mutates_args=())
shift.register_fake(lambda x, n: x)
co.grad(shift)(np.array(1.0))  # plugin: customop-autograd
shift("x")  # mypy: arg-type  pyright: reportArgumentType  plugin: type-var
