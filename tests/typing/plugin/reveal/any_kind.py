"""Results of NumPy's functions for arrays that its stubs do not know."""

from __future__ import annotations

from typing import TYPE_CHECKING, reveal_type

import numpy as np

import customop as co

if TYPE_CHECKING:
    import cupy as cp


def of_any_kind(x: co.ArrayT, y: co.Array) -> co.ArrayT:
    reveal_type(np.exp(x))
    # by mypy: Any
    # by pyright: Any
    # by plugin: ArrayT
    reveal_type(np.where(x > 0, x, 0.0))
    # by mypy: ndarray[tuple[Any, ...], dtype[Any]]
    # by pyright: ndarray[tuple[Any, ...], dtype[Any]]
    # by plugin: Computed
    reveal_type(np.stack([x, x]))
    # by mypy: ndarray[tuple[Any, ...], dtype[Any]]
    # by pyright: ndarray[tuple[Any, ...], dtype[Any]]
    # by plugin: ArrayT
    reveal_type(np.sum(y, axis=0))
    # by mypy: Any
    # by pyright: Any
    # by plugin: Array
    reveal_type(np.asarray(y))
    # by mypy: ndarray[tuple[Any, ...], dtype[Any]]
    # by pyright: ndarray[tuple[Any, ...], dtype[Any]]
    reveal_type(np.shape(x))
    # by mypy: tuple[Any, ...]
    # by pyright: tuple[Any, ...]
    return x


def of_one_kind(x: cp.ndarray, y: co.FakeArray) -> None:
    reveal_type(np.exp(x))
    # by mypy: ndarray[tuple[Any, ...], dtype[Any]]
    # by pyright: ndarray[tuple[Any, ...], dtype[Any]]
    # by plugin: ndarray[Any, Any]
    reveal_type(np.maximum(y, 0.0))
    # by mypy: ndarray[tuple[Any, ...], dtype[Any]] | Any
    # by pyright: ndarray[tuple[Any, ...], dtype[Any]] | Any
    # by plugin: FakeArray
