"""Streams and events of CUDA."""

from collections.abc import Callable
from types import TracebackType
from typing import Any, ClassVar, Self

from cupy.cuda.graph import Graph

class Event:
    ptr: int
    def __init__(
        self,
        block: bool = False,
        disable_timing: bool = False,
        interprocess: bool = False,
    ) -> None: ...
    @property
    def done(self) -> bool: ...
    def record(self, stream: Stream | ExternalStream | None = None) -> None: ...
    def synchronize(self) -> None: ...

# CuPy has a private class for what both kinds of streams share.
class _Stream:
    ptr: int
    device_id: int
    def __eq__(self, other: object) -> bool: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...
    def __cuda_stream__(self) -> tuple[int, int]: ...  # CuPy 14
    @property
    def done(self) -> bool: ...
    @property
    def is_non_blocking(self) -> bool: ...  # CuPy 14
    @property
    def priority(self) -> int: ...  # CuPy 14
    def use(self) -> Self: ...
    def synchronize(self) -> None: ...
    def record(self, event: Event | None = None) -> Event: ...
    def wait_event(self, event: Event) -> None: ...
    def add_callback(
        self, callback: Callable[[Self, int, Any], None], arg: Any
    ) -> None: ...
    def launch_host_func(self, callback: Callable[[Any], None], arg: Any) -> None: ...
    def begin_capture(self, mode: int | None = None) -> None: ...
    def end_capture(self) -> Graph: ...
    def is_capturing(self) -> bool: ...

class Stream(_Stream):
    null: ClassVar[Stream]
    ptds: ClassVar[Stream]
    def __init__(
        self,
        null: bool = False,
        non_blocking: bool = False,
        ptds: bool = False,
        priority: int | None = None,
    ) -> None: ...  # CuPy 14
    @classmethod
    def from_external(cls, obj: Any) -> Self: ...  # CuPy 14

class ExternalStream(_Stream):
    def __init__(self, ptr: int, device_id: int = -1) -> None: ...

def get_current_stream(device_id: int = -1) -> Stream: ...
def get_elapsed_time(start_event: Event, end_event: Event) -> float: ...
