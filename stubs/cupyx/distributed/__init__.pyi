"""Types of cupyx.distributed."""

# ---- written by stubs/generate.py ----

from abc import ABC
from cupy import _Int, cuda, ndarray
from typing import Any

class NCCLBackend(ABC):
    def __init__(
        self,
        n_devices: Any,
        rank: Any,
        host: str = "127.0.0.1",
        port: Any = 13333,
        use_mpi: bool = False,
    ) -> None: ...
    def all_reduce(
        self,
        in_array: ndarray,
        out_array: ndarray,
        op: str = "sum",
        stream: cuda.Stream | None = None,
    ) -> Any: ...
    def reduce(
        self,
        in_array: ndarray,
        out_array: ndarray,
        root: _Int = 0,
        op: str = "sum",
        stream: cuda.Stream | None = None,
    ) -> Any: ...
    def broadcast(
        self, in_out_array: ndarray, root: _Int = 0, stream: cuda.Stream | None = None
    ) -> Any: ...
    def reduce_scatter(
        self,
        in_array: ndarray,
        out_array: ndarray,
        count: _Int,
        op: str = "sum",
        stream: cuda.Stream | None = None,
    ) -> Any: ...
    def all_gather(
        self,
        in_array: ndarray,
        out_array: ndarray,
        count: _Int,
        stream: cuda.Stream | None = None,
    ) -> Any: ...
    def send(
        self, array: ndarray, peer: _Int, stream: cuda.Stream | None = None
    ) -> Any: ...
    def recv(
        self, out_array: Any, peer: _Int, stream: cuda.Stream | None = None
    ) -> Any: ...
    def send_recv(
        self,
        in_array: ndarray,
        out_array: ndarray,
        peer: _Int,
        stream: cuda.Stream | None = None,
    ) -> Any: ...
    def scatter(
        self,
        in_array: ndarray,
        out_array: ndarray,
        root: _Int = 0,
        stream: cuda.Stream | None = None,
    ) -> Any: ...
    def gather(
        self,
        in_array: ndarray,
        out_array: ndarray,
        root: _Int = 0,
        stream: cuda.Stream | None = None,
    ) -> Any: ...
    def all_to_all(
        self, in_array: ndarray, out_array: ndarray, stream: cuda.Stream | None = None
    ) -> Any: ...
    def barrier(self) -> Any: ...
    def stop(self) -> Any: ...

def init_process_group(
    n_devices: _Int,
    rank: _Int,
    *,
    backend: str = "nccl",
    host: str | None = None,
    port: _Int | None = None,
    use_mpi: bool = False,
) -> Any: ...
