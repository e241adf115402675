"""Types of cupy.cuda.compiler."""

# ---- written by stubs/generate.py ----

from typing import Any

class CompileException(Exception):
    def __init__(
        self, msg: Any, source: Any, name: Any, options: Any, backend: str = "nvrtc"
    ) -> None: ...
    def get_message(self) -> Any: ...
    def dump(self, f: Any) -> Any: ...

class HIPCCException(Exception): ...
class JitifyException(Exception): ...
class NVCCException(Exception): ...

def compile_using_hipcc(
    source: Any, options: Any, arch: Any, log_stream: Any = None
) -> Any: ...
def compile_using_nvcc(
    source: Any,
    options: Any = (),
    arch: Any = None,
    filename: str = "kern.cu",
    code_type: str = "cubin",
    separate_compilation: bool = False,
    log_stream: Any = None,
) -> Any: ...
def compile_using_nvrtc(
    source: Any,
    options: Any = (),
    arch: Any = None,
    filename: str = "kern.cu",
    name_expressions: Any = None,
    log_stream: Any = None,
    cache_in_memory: bool = False,
    jitify: Any = None,
    method: Any = None,
) -> Any: ...  # CuPy 14
def get_cache_dir() -> Any: ...  # CuPy 13
def get_rocm_path() -> Any: ...  # CuPy 13
def is_valid_kernel_name(name: Any) -> Any: ...
