"""Types of cupy.cuda.graph."""

# ---- written by stubs/generate.py ----

from cupy import _Int, cuda
from typing import Any
from typing_extensions import disjoint_base

@disjoint_base
class Graph:
    def __init__(self, *args: Any, **kwargs: Any) -> None: ...
    def launch(self, stream: cuda.Stream | None = None) -> None: ...
    def upload(self, stream: cuda.Stream | None = None) -> None: ...
    def debug_dot_str(self, flags: _Int = 0) -> Any: ...  # CuPy 14
    @property
    def graph(self) -> Any: ...
    @property
    def graphExec(self) -> Any: ...
    @property
    def host_funcargs(self) -> Any: ...
