"""Right shapes of every kind, and shapes that only the running program knows."""
# ruff: noqa: F821, UP037, UP045 - the texts of annotations are no code

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, Optional, TypeVar

import jaxtyping as jt
import numpy as np
import numpy.typing as npt
from jaxtyping import Float

import customop as co

F64 = npt.NDArray[np.float64]
Matrix = Annotated[F64, "m k"]
Row = Annotated[Matrix, 3]
ShapedT = TypeVar("ShapedT", bound=co.Array)
AXES = "m k" if TYPE_CHECKING else "n o"


@dataclass(frozen=True)
class Window:
    taps: Annotated[F64, "n"]


@co.custom_op("plugin_shaped::all", mutates_args=())
def everything(
    x: Annotated[co.ArrayT, "... n"],
    m: Row,
    parts: Sequence[Annotated[F64, "k"] | None],
    pair: tuple[Annotated[F64, "k"], Annotated[F64, "j+1"] | None],
    named: dict[str, Annotated[co.Array, "*batch 3"]],
    j: Annotated[co.Array, "j 2*j"],
    f: jt.Float[np.ndarray, "f"],
    text: "Optional[Annotated[F64, 'text _']]" = None,
    length: int = 2,
    how: Literal["m,k"] = "m,k",
    where: Annotated[float, "m,k"] = 0.0,
) -> tuple[
    Annotated[co.ArrayT, "... n length"], Float[np.ndarray, "f+k"], Annotated[F64, "_"]
]:
    return x, f, f


# ---- names that arguments or a fake kernel explain ----


@co.custom_op("plugin_shaped::a0", mutates_args=())
def of_class(x: F64, window: Window) -> Annotated[F64, "n"]:
    return window.taps


@co.custom_op("plugin_shaped::a1", mutates_args=())
def of_constant(x: Annotated[F64, AXES]) -> Annotated[F64, "m"]:
    return x[:, 0]


@co.custom_op("plugin_shaped::a2", mutates_args=(), tags=co.Tag.dynamic_output_shape)
def of_values(x: Annotated[F64, "n"]) -> Annotated[npt.NDArray[np.int64], "found"]:
    return np.flatnonzero(x)


@co.custom_op("plugin_shaped::a3", mutates_args=())
def by_fake(x: Annotated[F64, "n"]) -> Annotated[F64, "half"]:
    return x[::2]


@by_fake.register_fake
def _(x: co.Array) -> co.Array:
    return co.fake_like(x, shape=(-(-x.shape[0] // 2),))


@co.custom_op("plugin_shaped::a4", mutates_args=())
def of_variable(x: ShapedT) -> ShapedT:
    return x


def local() -> None:
    from typing import Annotated as Noted  # noqa: PLC0415

    @co.custom_op("plugin_shaped::a5", mutates_args=())
    def inside(x: Noted[F64, "n"]) -> Annotated[F64, "n"]:
        return x

    del inside


# ---- kernels with other names, or fewer shapes ----


@co.custom_op("plugin_shaped::mm", mutates_args=(), device_types="cpu")
def mm(
    x: Matrix, y: Annotated[F64, "... k n"], size: int = 2
) -> Annotated[F64, "m n+1 size"]:
    raise NotImplementedError


@mm.register_fake
def _(
    x: Annotated[co.Array, "a b"], y: Annotated[co.Array, "*batch b c"], size: int
) -> Annotated[co.Array, "a 1+c size"]:
    return co.fake_like(x)


@mm.register_kernel("cuda")
def _(x: Annotated[F64, "_ _"], y: Annotated[F64, "..."], size: int) -> F64:
    return x


# ---- calls with a number of axes that fits, or is not known ----


def called(x: Any, y: F64, z: np.ndarray[Any, Any]) -> None:
    mm(x, y)
    mm(y, z)
    mm(np.zeros((2, 3)), np.zeros((4, 3, 2)))
    mm(np.zeros((2, 3)), y=np.zeros((3, 2)), size=3)
