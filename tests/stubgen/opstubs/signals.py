"""Operators of every form, whose stubs are checked in beside them."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import numpy as np
import numpy.typing as npt
from typing_extensions import TypeVar

import customop as co

F64 = npt.NDArray[np.float64]
RealT = TypeVar("RealT", npt.NDArray[np.float32], F64)


class Edge(enum.Enum):
    WRAP = "wrap"
    CLIP = "clip"


@dataclass(frozen=True)
class Window:
    size: int = 3
    edge: Edge = Edge.WRAP


class Parts(NamedTuple):
    low: F64
    high: F64


class Limits(TypedDict):
    start: int
    stop: int


@co.custom_op("signals::scale", mutates_args=())
def scale(x: co.ArrayT, factor: float = 2.0) -> co.ArrayT:
    result: Any = np.multiply(np.asarray(x), factor)
    return result  # type: ignore[no-any-return]  # of the class of x


@co.custom_op("signals::mean", mutates_args=())
def mean(x: RealT, weight: Annotated[float, "kg"] = 1.0) -> RealT:
    return x * x.dtype.type(weight)


@co.custom_op("signals::cut", mutates_args=())
def cut(x: F64, at: int, /, step: int = 1, *, limits: Limits | None = None) -> F64:
    return x[at::step].copy()


@co.custom_op("signals::smooth", mutates_args=())
def smooth(
    x: F64,
    window: Window,
    how: Literal["mean", 'the "best"'] = "mean",
    edge: Edge = Edge.CLIP,
) -> F64:
    return x.copy()


@co.custom_op("signals::split", mutates_args=())
def split(xs: Sequence[F64], weights: dict[str, F64], n: int = -1) -> Parts:
    return Parts(xs[0].copy(), xs[1].copy())


@co.custom_op("signals::fill", mutates_args=("x",))
def fill(x: np.ndarray, value: co.Scalar, dtype: co.DType | None = None) -> None:
    x[...] = value


@co.custom_op("signals::noise", mutates_args=())
def noise(
    shape: list[int], rng: np.random.Generator | None = None, *, device: co.Device
) -> tuple[F64, list[F64]]:
    return np.zeros(shape), []


@co.custom_op("signals::shift", mutates_args=())
def shift(x: co.ArrayT, by: co.ArrayT) -> co.ArrayT:
    result: Any = np.add(np.asarray(x), np.asarray(by))
    return result  # type: ignore[no-any-return]  # of the class of x


@co.custom_op("signals::shift.float", mutates_args=())
def shift_float(x: F64, by: float) -> F64:
    return x + by


@co.custom_op("signals::shift.int", mutates_args=())
def shift_int(x: F64, by: int) -> npt.NDArray[np.int64]:
    return np.zeros(x.shape, np.int64) + by


@co.custom_op("signals::turn.degrees", mutates_args=())
def turn(self: F64, by: float) -> F64:
    return self * by


co.define(
    "signals::join",
    '(Array[] xs, str{"a", "b"} how="a", *, float? k=None) -> (Array, int[])',
)
