# Written by `python -m customop stubs signals`.
# Run it again when operators or customop have changed; --check shows the difference.
# ruff: noqa
# mypy: disable-error-code="overload-overlap, overload-cannot-match"
# pyright: reportOverlappingOverload=false

import numpy
import numpy.random
import signals

from collections.abc import Callable, Sequence
from customop import Array, ArrayT, DType, Device, Operator, Scalar
from numpy.typing import NDArray
from typing import Any, Final, Generic, Literal, overload
from typing_extensions import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")
_RealT = TypeVar("_RealT", NDArray[numpy.float32], NDArray[numpy.float64])

class OperatorPacket:
    def __init__(self, namespace: str, name: str) -> None: ...
    @property
    def qualname(self) -> str: ...
    def overloads(self) -> list[str]: ...
    def resolve(self, /, *args: Any, **kwargs: Any) -> Operator[..., Any]: ...
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any: ...
    def __getattr__(self, name: str) -> Operator[..., Any]: ...

class OperatorNamespace:
    def __init__(self, name: str) -> None: ...
    def __getattr__(self, name: str) -> OperatorPacket: ...

class _Single(OperatorPacket, Generic[_P, _R]):
    @property
    def default(self) -> Operator[_P, _R]: ...
    def resolve(self, /, *args: _P.args, **kwargs: _P.kwargs) -> Operator[_P, _R]: ...
    def __call__(self, /, *args: _P.args, **kwargs: _P.kwargs) -> _R: ...

def _single(fn: Callable[_P, _R]) -> _Single[_P, _R]: ...
def _overload(fn: Callable[_P, _R]) -> Operator[_P, _R]: ...
@_single
def _signals__cut(
    x: NDArray[numpy.float64],
    at: int,
    /,
    step: int = 1,
    *,
    limits: signals.Limits | None = None,
) -> NDArray[numpy.float64]: ...
@_single
def _signals__fill(
    x: numpy.ndarray,
    value: Scalar,
    dtype: DType | None = None,
) -> None: ...
@_single
def _signals__join(
    xs: Sequence[Array],
    how: Literal["a", "b"] = "a",
    *,
    k: float | None = None,
) -> tuple[Array, list[int]]: ...
@_single
def _signals__mean(x: _RealT, weight: float = 1.0) -> _RealT: ...
@_single
def _signals__noise(
    shape: list[int],
    rng: numpy.random.Generator | None = None,
    *,
    device: Device,
) -> tuple[NDArray[numpy.float64], list[NDArray[numpy.float64]]]: ...
@_single
def _signals__scale(x: ArrayT, factor: float = 2.0) -> ArrayT: ...
@_overload
def _signals__shift__default(x: ArrayT, by: ArrayT) -> ArrayT: ...
@_overload
def _signals__shift__float(
    x: NDArray[numpy.float64],
    by: float,
) -> NDArray[numpy.float64]: ...
@_overload
def _signals__shift__int(
    x: NDArray[numpy.float64],
    by: int,
) -> NDArray[numpy.int64]: ...

class _signals__shift__call(OperatorPacket):
    @overload
    def __call__(self, /, x: ArrayT, by: ArrayT) -> ArrayT: ...
    @overload
    def __call__(
        self,
        /,
        x: NDArray[numpy.float64],
        by: int,
    ) -> NDArray[numpy.int64]: ...
    @overload
    def __call__(
        self,
        /,
        x: NDArray[numpy.float64],
        by: float,
    ) -> NDArray[numpy.float64]: ...

class _signals__shift__packet(_signals__shift__call):
    default: Final = _signals__shift__default
    float: Final = _signals__shift__float
    int: Final = _signals__shift__int

_signals__shift: _signals__shift__packet

@_single
def _signals__smooth(
    x: NDArray[numpy.float64],
    window: signals.Window,
    how: Literal["mean", 'the "best"'] = "mean",
    edge: signals.Edge = ...,
) -> NDArray[numpy.float64]: ...
@_single
def _signals__split(
    xs: Sequence[NDArray[numpy.float64]],
    weights: dict[str, NDArray[numpy.float64]],
    n: int = -1,
) -> signals.Parts: ...
@_overload
def _signals__turn__degrees(
    self: NDArray[numpy.float64],
    by: float,
) -> NDArray[numpy.float64]: ...

class _signals__turn__call(OperatorPacket):
    def __call__(
        _self,
        /,
        self: NDArray[numpy.float64],
        by: float,
    ) -> NDArray[numpy.float64]: ...

class _signals__turn__packet(_signals__turn__call):
    degrees: Final = _signals__turn__degrees

_signals__turn: _signals__turn__packet

class _signals:
    cut: Final = _signals__cut
    fill: Final = _signals__fill
    join: Final = _signals__join
    mean: Final = _signals__mean
    noise: Final = _signals__noise
    scale: Final = _signals__scale
    shift: Final = _signals__shift
    smooth: Final = _signals__smooth
    split: Final = _signals__split
    turn: Final = _signals__turn

class Namespaces:
    @property
    def signals(self) -> _signals: ...
    def __getattr__(self, name: str) -> OperatorNamespace: ...

ops: Namespaces
