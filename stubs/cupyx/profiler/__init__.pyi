"""Times of functions on a device."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy.typing as npt

_FunctionT = TypeVar("_FunctionT", bound=Callable[..., Any])

class _Times:
    name: str
    @property
    def cpu_times(self) -> npt.NDArray[Any]: ...
    @property
    def gpu_times(self) -> npt.NDArray[Any]: ...
    def to_str(self, show_gpu: bool = False) -> str: ...

def benchmark(
    func: Callable[..., Any],
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] = ...,
    n_repeat: int = 10000,
    *,
    name: str | None = None,
    n_warmup: int = 10,
    max_duration: float = ...,
    devices: Sequence[int] | None = None,
) -> _Times: ...
def profile() -> AbstractContextManager[None]: ...

class time_range:
    def __init__(
        self,
        message: str | None = None,
        color_id: int | None = None,
        argb_color: int | None = None,
        sync: bool = False,
    ) -> None: ...
    def __call__(self, func: _FunctionT) -> _FunctionT: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

# ---- written by stubs/generate.py ----

def load_ipython_extension(ipython: Any) -> Any: ...  # CuPy 14
