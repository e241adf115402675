"""The kind of array ``"degrees"``.

A program that meets any unknown array imports the modules of all kinds, so they should be
small: ``"module.Class"`` names a class of a large library without importing it.
"""

from __future__ import annotations

import numpy as np

import customop as co
from customop_angles import Degrees

# Operators take radians in NumPy arrays. With both conversions, opcheck compares kernels.
co.register_array_type(
    "degrees",
    Degrees,
    from_numpy=lambda x: Degrees(np.degrees(x)),
    to_numpy=lambda x: np.radians(x.values),
)
