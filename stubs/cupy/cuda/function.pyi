"""Types of cupy.cuda.function."""

# ---- written by stubs/generate.py ----

from cupy import _Int, cuda
from typing import Any
from typing_extensions import disjoint_base

@disjoint_base
class CPointer:
    def __init__(self, p: Any = 0) -> None: ...
    @property
    def ptr(self) -> int: ...  # CuPy 14

@disjoint_base
class Function:
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any: ...
    def __init__(self, module: Any, funcname: str) -> None: ...  # CuPy 14
    def linear_launch(
        self,
        size: _Int,
        args: Any,
        shared_mem: _Int = 0,
        block_max_size: _Int = 128,
        stream: cuda.Stream | None = None,
        enable_cooperative_groups: bool = False,
    ) -> Any: ...
    @property
    def module(self) -> Any: ...
    @property
    def ptr(self) -> int: ...

@disjoint_base
class LinkState:
    def __init__(self) -> None: ...
    def add_ptr_data(self, data: bytes, name: str) -> Any: ...  # CuPy 14
    def add_ptr_file(self, path: str) -> Any: ...  # CuPy 14
    def complete(self) -> bytes: ...
    @property
    def ptr(self) -> int: ...

@disjoint_base
class Module:
    def __init__(self) -> None: ...
    def load_file(self, filename: Any) -> Any: ...
    def load(self, cubin: bytes) -> Any: ...
    def get_global_var(self, name: Any) -> Any: ...
    def get_function(self, name: Any) -> Any: ...
    @property
    def ptr(self) -> int: ...
    @property
    def mapping(self) -> Any: ...

@disjoint_base
class CInt128(CPointer):  # CuPy 13
    def __init__(self, v: Any) -> None: ...

@disjoint_base
class CInt16(CPointer):  # CuPy 13
    def __init__(self, v: _Int) -> None: ...

@disjoint_base
class CInt32(CPointer):  # CuPy 13
    def __init__(self, v: _Int) -> None: ...

@disjoint_base
class CInt64(CPointer):  # CuPy 13
    def __init__(self, v: _Int) -> None: ...

@disjoint_base
class CInt8(CPointer):  # CuPy 13
    def __init__(self, v: _Int) -> None: ...

@disjoint_base
class CIntptr(CPointer):
    def __init__(self, v: _Int) -> None: ...

@disjoint_base
class CNumpyArray(CPointer):
    def __init__(self, v: Any) -> None: ...

@disjoint_base
class CUIntMax(CPointer):
    def __init__(self, v: Any) -> None: ...
