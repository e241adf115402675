"""Memory hooks that print and count."""

from typing import Any

from cupy.cuda.memory_hook import MemoryHook

class DebugPrintHook(MemoryHook):
    def __init__(self, file: Any = ..., flush: bool = True) -> None: ...

class LineProfileHook(MemoryHook):
    def __init__(self, max_depth: int = 0) -> None: ...
    def print_report(self, file: Any = ...) -> None: ...
