"""Right code of every kind that the plugin checks."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, NewType, Optional

import numpy as np
import numpy.typing as npt
from typing_extensions import TypedDict

import customop as co
from customop.core.rule_types import BatchInfo

if TYPE_CHECKING:
    import cupy as cp

F64 = npt.NDArray[np.float64]
Metres = NewType("Metres", float)


class Mode(enum.Enum):
    FAST = 1
    SLOW = 2


@dataclass(frozen=True)
class Window:
    taps: F64
    mode: Mode = Mode.FAST


class Pair(NamedTuple):
    left: F64
    right: F64


class Settings(TypedDict):
    rate: float
    name: str


@co.custom_op("plugin_pass::all", mutates_args=("out",), device_types=("cpu", "cuda"))
def everything(
    x: co.ArrayT,
    out: co.Array,
    /,
    parts: Sequence[co.Array],
    window: Window,
    settings: Settings,
    shape: tuple[int, ...] = (1, -2),
    where: Annotated[float, "metres"] = np.inf,
    height: Metres = Metres(2.0),
    *,
    names: list[str] | None = None,
    scalar: co.Scalar = 1,
    mode: Mode = Mode.SLOW,
    how: Literal["fast", "slow"] = "fast",
    dtype: co.DType = np.float64,
    device: co.Device | None = None,
    seed: Optional[np.random.Generator] = None,  # noqa: UP045
) -> tuple[co.ArrayT, list[co.Array], float]:
    return x, [out], 1.0


@co.custom_op("plugin_pass::gauss", mutates_args=(), device_types="cpu")
def gauss(x: co.Array, width: float = 1.0, *, shift: int = 0) -> co.Array:
    return x


# A kernel may take another class of arrays, and wider types of numbers.
@gauss.register_kernel("cuda")
def _(x: cp.ndarray, width: float | None, *, shift: float) -> cp.ndarray:
    return x


@gauss.register_kernel("cuda")
def _(_x: Any, width: complex, *, shift: int, **_: Any) -> Any:
    return _x


@gauss.register_fake
def _(x: co.FakeArray, width: float, *, shift: int) -> co.FakeArray:
    return co.fake_like(x)


def keep(
    ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: dict[str, Any], output: Any
) -> None:
    ctx.k = inputs


def backward(ctx: Any, grad: F64) -> Any:
    def inner() -> tuple[F64, F64, F64]:
        return grad, grad, grad

    if ctx.k:
        return {"x": inner()[0]}
    gradients = (grad, None)
    return gradients if ctx.k else (*gradients,)


gauss.register_autograd(backward, setup_context=keep)


@gauss.register_vmap
def _(
    info: BatchInfo, in_dims: tuple[Any, ...], x: F64, width: float, *, shift: int
) -> tuple[F64, int]:
    return x, 0


@gauss.register_jvp
def _(
    primals: tuple[Any, ...], tangents: tuple[Any, ...], *, shift: int
) -> tuple[F64, F64]:
    return primals[0], tangents[0]


inverse = co.RuleKind("inverse", takes="(out, *inputs)", returns="input 0")
free = co.RuleKind("free")


@gauss.register(inverse)
def _(out: F64, x: F64, width: float, *, shift: int) -> F64:
    return out


@gauss.register(free)
def _(anything: Any) -> Any:
    return anything


def plain(x: Any, k: Any = 1.0) -> Any:
    return x


@co.custom_op("plugin_pass::made", mutates_args=(), device_types="cpu")
def made(n: int, device: co.Device = "cpu") -> F64:
    return np.zeros(n)


given = co.custom_op(
    "plugin_pass::given",
    plain,
    mutates_args=(),
    schema="(Array x, float k=1.0) -> Array",
)


@co.custom_op("plugin_pass::add", mutates_args=("x",), tags=co.Tag.inplace)
def add(x: F64, y: F64) -> F64:
    x += y
    return x


@co.custom_op("plugin_pass::halves", mutates_args=())
def halves(x: F64) -> tuple[F64, F64]:
    return x, x


def of_halves(ctx: Any, left: F64, right: F64) -> F64:
    return left + right


@co.custom_op("plugin_pass::pair", mutates_args=())
def pair(x: F64) -> Pair:
    return Pair(x, x)


halves.register_autograd(of_halves)


@co.custom_op("plugin_pass::both", mutates_args=())
def both(x: F64, y: F64, *, k: float = 1.0) -> F64:
    return x + y


def of_both(ctx: Any, grad: F64) -> Any:
    rest: dict[str, Any] = {}
    if ctx.k == 1:
        return {"x": grad, **rest}
    if ctx.k == 2:
        return {"y": grad, "k": None, "x": None}
    if ctx.k == 3:
        return (grad,) * 2
    if ctx.k == 4:
        return (grad,) + (None,)  # noqa: RUF005
    return None if ctx.k else ctx.gradients


def keep_gradients(
    ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any
) -> None:
    ctx.k, ctx.gradients = 0, None


both.register_autograd(of_both, setup_context=keep_gradients)


@co.custom_op("plugin_pass::scaled", mutates_args=())
def scaled(x: F64, factor: float = 1.0) -> F64:
    return x * factor


scaled.register_autograd(lambda ctx, grad: grad * 2.0)
co.register_fake("plugin_pass::halves", plain)
with co.Library("plugin_pass", "FRAGMENT") as library:
    name = library.define("thrice(Array x) -> Array")
    library.impl(name, plain)
