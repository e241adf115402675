"""The operators ``angles::turn`` and ``angles::wrap``."""

from __future__ import annotations

import numpy as np

import customop as co
from customop_angles import Degrees


@co.custom_op("angles::turn", mutates_args=(), tags=co.Tag.pointwise)
def turn(x: np.ndarray, turns: float = 1.0) -> np.ndarray:
    """Add full turns to angles in radians."""
    return x + 2 * np.pi * turns


@co.custom_op("angles::wrap", mutates_args=(), tags=co.Tag.pointwise)
def wrap(x: np.ndarray) -> np.ndarray:
    """Bring angles in radians into [-pi, pi)."""
    return np.mod(x + np.pi, 2 * np.pi) - np.pi


turn.register_fake(lambda x, turns: co.fake_like(x, dtype=np.result_type(x.dtype, 1.0)))
turn.register_autograd(lambda ctx, g: (g, None))
wrap.register_fake(lambda x: co.fake_like(x, dtype=np.result_type(x.dtype, 1.0)))
wrap.register_autograd(lambda ctx, g: g)


@turn.register_kernel("degrees")
def _(x: Degrees, turns: float) -> Degrees:
    return Degrees(x.values + 360 * turns)
