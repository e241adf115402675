"""Angles in degrees as arrays, and operators on directions.

A program that makes such arrays imports this module alone. customop imports the other two,
when it first meets an array or an operator of theirs.
"""

from __future__ import annotations

import numpy as np

__all__ = ["Degrees"]


class Degrees:
    """Angles in degrees.

    Parameters
    ----------
    values : array of floats, degrees
    """

    def __init__(self, values: object) -> None:
        self.values: np.ndarray = np.asarray(values)

    # customop looks for the plug-in of a class that has `shape`.
    @property
    def shape(self) -> tuple[int, ...]:
        return self.values.shape

    @property
    def dtype(self) -> np.dtype:
        return self.values.dtype

    def __repr__(self) -> str:
        return f"Degrees({self.values.tolist()})"
