"""Functions of CuPy that NumPy does not have."""

from contextlib import AbstractContextManager
from typing import Any

import numpy.typing as npt

from cupy import _DType, _Key, _Operand, _Order, _Shape, ndarray

_Rule = str | None

def scatter_add(a: ndarray, slices: _Key, value: _Operand) -> None: ...
def scatter_max(a: ndarray, slices: _Key, value: _Operand) -> None: ...
def scatter_min(a: ndarray, slices: _Key, value: _Operand) -> None: ...
def empty_pinned(
    shape: _Shape, dtype: _DType = ..., order: _Order = "C"
) -> npt.NDArray[Any]: ...
def zeros_pinned(
    shape: _Shape, dtype: _DType = ..., order: _Order = "C"
) -> npt.NDArray[Any]: ...
def empty_like_pinned(
    a: ndarray | npt.NDArray[Any],
    dtype: _DType | None = None,
    order: _Order = "K",
    subok: None = None,
    shape: _Shape | None = None,
) -> npt.NDArray[Any]: ...
def zeros_like_pinned(
    a: ndarray | npt.NDArray[Any],
    dtype: _DType | None = None,
    order: _Order = "K",
    subok: None = None,
    shape: _Shape | None = None,
) -> npt.NDArray[Any]: ...
def allow_synchronize(allow: bool) -> AbstractContextManager[None]: ...
def errstate(
    *,
    divide: _Rule = None,
    over: _Rule = None,
    under: _Rule = None,
    invalid: _Rule = None,
    linalg: _Rule = None,
) -> AbstractContextManager[None]: ...  # CuPy 14
def seterr(
    *,
    divide: _Rule = None,
    over: _Rule = None,
    under: _Rule = None,
    invalid: _Rule = None,
    linalg: _Rule = None,
) -> dict[str, _Rule]: ...  # CuPy 14
def geterr() -> dict[str, _Rule]: ...

# ---- written by stubs/generate.py ----

from cupy import _Axis, _Casting, _Unary
from cupyx import (
    distributed as distributed,
    jit as jit,
    lapack as lapack,
    linalg as linalg,
    optimizing as optimizing,
    profiler as profiler,
    scipy as scipy,
    signal as signal,
    time as time,
)

class DeviceSynchronized(RuntimeError):
    def __init__(self, message: Any = None) -> None: ...

class GeneralizedUFunc:
    def __init__(
        self,
        func: Any,
        signature: Any,
        *,
        name: Any = None,
        doc: Any = None,
        supports_batched: bool = False,
        supports_out: bool = False,
        signatures: Any = None,
        try_fastcall_func: Any = None,
    ) -> None: ...  # CuPy 14
    def __call__(
        self,
        *args: Any,
        axes: _Axis = None,
        axis: _Axis = None,
        keepdims: bool = False,
        casting: _Casting = "same_kind",
        dtype: _DType | None = None,
        signature: str | None = None,
        order: _Order = "K",
        out: ndarray | None = None,
    ) -> Any: ...  # CuPy 14

def get_runtime_info(*, full: bool = True) -> Any: ...

rsqrt: _Unary
