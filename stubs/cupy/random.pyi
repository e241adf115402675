"""Random numbers on a device."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy.typing as npt
from cupy import ndarray

_DType: TypeAlias = npt.DTypeLike
_Size: TypeAlias = int | Sequence[int] | None

class Generator:
    def __init__(self, bit_generator: Any) -> None: ...
    def random(
        self, size: _Size = None, dtype: _DType = ..., out: ndarray | None = None
    ) -> ndarray: ...
    def integers(
        self,
        low: int,
        high: int | None = None,
        size: _Size = None,
        dtype: _DType = ...,
        endpoint: bool = False,
    ) -> ndarray: ...
    def standard_normal(
        self, size: _Size = None, dtype: _DType = ..., out: ndarray | None = None
    ) -> ndarray: ...
    def uniform(
        self,
        low: float = 0.0,
        high: float = 1.0,
        size: _Size = None,
        dtype: _DType = ...,
    ) -> ndarray: ...

def default_rng(seed: Any = None) -> Generator: ...
def seed(seed: int | None = None) -> None: ...
def rand(*size: int, **kwarg: Any) -> ndarray: ...
def randn(*size: int, **kwarg: Any) -> ndarray: ...
def random(size: _Size = None, dtype: _DType = ...) -> ndarray: ...
def normal(
    loc: float | ndarray = 0.0,
    scale: float | ndarray = 1.0,
    size: _Size = None,
    dtype: _DType = ...,
) -> ndarray: ...
def uniform(
    low: float | ndarray = 0.0,
    high: float | ndarray = 1.0,
    size: _Size = None,
    dtype: _DType = ...,
) -> ndarray: ...
def standard_normal(size: _Size = None, dtype: _DType = ...) -> ndarray: ...
def randint(
    low: int, high: int | None = None, size: _Size = None, dtype: _DType = "l"
) -> ndarray: ...
def permutation(a: int | ndarray) -> ndarray: ...
def shuffle(a: ndarray) -> None: ...
