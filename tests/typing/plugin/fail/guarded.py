"""Operators annotated with names that only type checkers have."""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING, Annotated

import numpy as np

import customop as co

if TYPE_CHECKING:
    from collections import abc as guarded

    import numpy.typing as npt
    from numpy import ndarray

    Alias = npt.NDArray[np.float64]
else:
    npt = co
if typing.TYPE_CHECKING:
    from numpy.typing import NDArray


@co.custom_op("plugin_guarded::module", mutates_args=())
def module(
    x: np.ndarray,
    y: guarded.Sequence[float],  # plugin: customop-schema
) -> np.ndarray:
    return x


@co.custom_op("plugin_guarded::result", mutates_args=())  # plugin: customop-schema
def result(x: np.ndarray) -> ndarray:
    return x


@co.custom_op("plugin_guarded::alias", mutates_args=())
def alias(x: np.ndarray | None, y: Alias) -> np.ndarray:  # plugin: customop-schema
    return y


@co.custom_op("plugin_guarded::text", mutates_args=())
def text(x: NDArray[np.float64]) -> np.ndarray:  # plugin: customop-schema
    return x


# The schema is written, so nothing evaluates the annotations.
@co.custom_op("plugin_guarded::written", mutates_args=(), schema="(Array x) -> Array")
def written(x: ndarray) -> np.ndarray:
    return x


# The words of a shape are not names.
@co.custom_op("plugin_guarded::axes", mutates_args=())
def axes(x: Annotated[np.ndarray, "ndarray Alias"]) -> np.ndarray:
    return x
