"""Kernels written in Python."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar, overload

from cupy import cuda

_Blocks = int | tuple[int, ...]

class _Kernel:
    def __call__(
        self,
        grid: _Blocks,
        block: _Blocks,
        args: Sequence[Any],
        shared_mem: int = 0,
        stream: cuda.Stream | None = None,
    ) -> None: ...
    # kernel[grid, block](*args)
    def __getitem__(
        self, grid_and_block: tuple[_Blocks, _Blocks]
    ) -> Callable[..., None]: ...
    @property
    def cached_codes(self) -> dict[Any, str]: ...
    @property
    def cached_code(self) -> str: ...

_Mode = Literal["cuda", "numba"]
_FunctionT = TypeVar("_FunctionT", bound=Callable[..., Any])

@overload
def rawkernel(
    *, mode: _Mode = "cuda", device: Literal[False] = False
) -> Callable[[Callable[..., Any]], _Kernel]: ...

# A function for other kernels to call.
@overload
def rawkernel(
    *, mode: _Mode = "cuda", device: Literal[True]
) -> Callable[[_FunctionT], _FunctionT]: ...

# ---- written by stubs/generate.py ----

from cupyx.jit import cg as cg, cub as cub, thrust as thrust

atomic_add: Any
atomic_and: Any
atomic_cas: Any
atomic_dec: Any
atomic_exch: Any
atomic_inc: Any
atomic_max: Any
atomic_min: Any
atomic_or: Any
atomic_sub: Any
atomic_xor: Any
blockDim: Any
blockIdx: Any
grid: Any
gridDim: Any
gridsize: Any
laneid: Any
range: Any
shared_memory: Any
shfl_down_sync: Any
shfl_sync: Any
shfl_up_sync: Any
shfl_xor_sync: Any
syncthreads: Any
syncwarp: Any
threadIdx: Any
warpsize: Any
