"""Devices, streams and memory of CuPy."""

from contextlib import AbstractContextManager
from typing import Any

from cupy.cuda import runtime as runtime
from cupy.cuda.memory import _Allocator

# Modules close to the libraries of CUDA, which these stubs do not have.
cub: Any
driver: Any
nccl: Any
nvrtc: Any
thrust: Any

def is_available() -> bool: ...
def profile() -> AbstractContextManager[None]: ...
def using_allocator(
    allocator: _Allocator | None = None,
) -> AbstractContextManager[None]: ...
def get_cuda_path() -> str | None: ...
def get_hipcc_path() -> str | None: ...
def get_nvcc_path() -> str | None: ...
def get_rocm_path() -> str | None: ...  # CuPy 14

# ---- written by stubs/generate.py ----

from cupy.cuda.memory import (
    BaseMemory as BaseMemory,
    CFunctionAllocator as CFunctionAllocator,
    ManagedMemory as ManagedMemory,
    Memory as Memory,
    MemoryAsync as MemoryAsync,
    MemoryAsyncPool as MemoryAsyncPool,
    MemoryPointer as MemoryPointer,
    MemoryPool as MemoryPool,
    PythonFunctionAllocator as PythonFunctionAllocator,
    UnownedMemory as UnownedMemory,
    alloc as alloc,
    get_allocator as get_allocator,
    malloc_async as malloc_async,
    malloc_managed as malloc_managed,
    set_allocator as set_allocator,
)
from cupy.cuda.device import (
    Device as Device,
    get_cublas_handle as get_cublas_handle,
    get_device_id as get_device_id,
)
from cupy.cuda.stream import (
    Event as Event,
    ExternalStream as ExternalStream,
    Stream as Stream,
    get_current_stream as get_current_stream,
    get_elapsed_time as get_elapsed_time,
)
from cupy.cuda.function import Function as Function, Module as Module
from cupy.cuda.graph import Graph as Graph
from cupy.cuda.memory_hook import MemoryHook as MemoryHook
from cupy.cuda.pinned_memory import (
    PinnedMemory as PinnedMemory,
    PinnedMemoryPointer as PinnedMemoryPointer,
    PinnedMemoryPool as PinnedMemoryPool,
    alloc_pinned_memory as alloc_pinned_memory,
    set_pinned_memory_allocator as set_pinned_memory_allocator,
)
from cupy.cuda import (
    compiler as compiler,
    device as device,
    function as function,
    graph as graph,
    memory as memory,
    memory_hook as memory_hook,
    memory_hooks as memory_hooks,
    nvtx as nvtx,
    pinned_memory as pinned_memory,
    profiler as profiler,
    stream as stream,
    texture as texture,
)

def get_local_runtime_version() -> int: ...
