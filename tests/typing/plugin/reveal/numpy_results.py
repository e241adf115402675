"""What NumPy's stubs leave open for mypy: arrays of unknown elements, and ufuncs."""

from __future__ import annotations

from typing import overload, reveal_type

import numpy as np
import numpy.typing as npt

import customop as co


@overload
def cut(x: np.ndarray, at: None) -> np.ndarray: ...
@overload
def cut(x: np.ndarray, at: int) -> list[np.ndarray]: ...
def cut(x: np.ndarray, at: int | None) -> np.ndarray | list[np.ndarray]:
    return x if at is None else np.split(x, at)


def operators(x: np.ndarray) -> None:
    reveal_type(x * x)
    # by mypy: Any
    # by pyright: ndarray[tuple[Any, ...], dtype[Any]]
    # by plugin: ndarray[Any, Any]
    reveal_type(np.maximum(x, 0))
    # by mypy: Any
    # by pyright: ndarray[tuple[Any, ...], dtype[Any]]
    # by plugin: ndarray[tuple[Any, ...], dtype[Any]]


def transforms(x: npt.NDArray[np.float64]) -> None:
    reveal_type(co.vmap(np.add)(x, x))
    # by mypy: Any, arg-type
    # by pyright: ndarray[tuple[Any, ...], dtype[Any]]
    # by plugin: ndarray[tuple[Any, ...], dtype[Any]]
    reveal_type(co.jacfwd(np.sin)(x))
    # by mypy: Any, call-overload
    # by pyright: Any
    # by plugin: Any
    reveal_type(co.vmap(cut)(x, 1))
    # by mypy: arg-type, ndarray[tuple[Any, ...], dtype[Any]]
    # by pyright: list[ndarray[tuple[Any, ...], dtype[Any]]]
    # by plugin: list[ndarray[tuple[Any, ...], dtype[Any]]]
    co.vmap(cut)(x, "1")
    # by mypy: arg-type
    # by pyright: reportArgumentType, reportCallIssue
    # by plugin: call-overload


@co.custom_op("plugin_numpy_results::scale", mutates_args=())
def scale(x: npt.NDArray[np.float64], k: float) -> npt.NDArray[np.float64]:
    return x * k


def results_of_operators(x: npt.NDArray[np.float64]) -> None:
    reveal_type(np.sum(scale(x, 2.0)))
    # by mypy: Any
    # by pyright: float64
    # by plugin: float64
