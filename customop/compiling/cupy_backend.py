"""Graphs of CuPy arrays: one kernel for each group of pointwise calls, then a CUDA graph.

Each call of a CuPy function starts a kernel, which takes longer than small arrays do. A
group of pointwise calls becomes one `cupy.ElementwiseKernel`. A graph of such kernels and
NumPy functions alone is recorded at its second call and started at once from then on.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from customop.arrays.fake import FakeArray
from customop.arrays.kinds import device_kind
from customop.compiling.kernel_code import (
    ElementProgram,
    Kernel,
    in_c,
    kernels_of,
    with_kernels,
)
from customop.compiling.report import NodeGroup
from customop.core.table import changing
from customop.graph.graph import OUTSIDE, Memory
from customop.graph.module import GraphModule
from customop.graph.node import CALL, Node

CUDA = "cuda"


def build(module: GraphModule) -> Callable[..., list[Any]]:
    """Return a function of the input leaves, which are CuPy arrays."""
    fused = with_kernels(module, _kernel, CUDA)
    return _OnDevice(fused, _reason_not_to_record(fused))


# ---- groups ----


def _kernel(group: GraphModule, program: ElementProgram) -> Kernel:
    def can_run(*arrays: Any) -> bool:
        return all(map(_is_contiguous, arrays))

    return Kernel(group, _elementwise(program), can_run)


@lru_cache(maxsize=1024)
def _elementwise(program: ElementProgram) -> Any:
    """Return the kernel of a program; CuPy compiles it when it is first called."""
    inputs = ", ".join([f"{dtype.name} {name}" for name, dtype in program.inputs])
    return _cupy().ElementwiseKernel(
        inputs,
        f"{program.result.name} result",
        in_c(program, "result"),
        "customop_fused",
        # A multiplication and an addition in one round once, the calls round twice.
        options=("--fmad=false",),
        preamble=_NAN,
    )


# The bits of nan that CuPy's maximum and minimum give. Source: their routines in CuPy 13.
_NAN = """
#ifndef NAN
#define NAN __int_as_float(0x7fffffff)
#endif
"""


def _cupy() -> Any:
    import cupy  # noqa: PLC0415  # 0.5 s; whoever has arrays of it has it

    return cupy


# ---- CUDA graphs ----


class _OnDevice:
    """A graph that is recorded at its second call and replayed from then on, if it can be."""

    def __init__(self, module: GraphModule, reason: str) -> None:
        self._module = module
        self._reason = reason
        self._calls = 0
        self._recording: _Recording | None = None
        # The count of changes of tables for which it was recorded.
        self._seen: int = -1
        self._lock = threading.Lock()

    def __call__(self, *leaves: Any) -> list[Any]:
        if self._reason or not all(map(_is_contiguous, leaves)):
            return self._module.run_list(*leaves)
        with self._lock:  # the recording has one set of inputs
            self._calls += 1
            if self._calls == 1:  # CuPy compiles its kernels
                return self._module.run_list(*leaves)
            if self._recording is None or self._seen != changing.count:
                self._seen = changing.count
                self._recording = _Recording(self._module.run_list, leaves)
            return self._recording.play(leaves)

    def explain(self) -> list[NodeGroup]:
        """Return the kernels, and whether they are recorded."""
        names = [node.name for node in self._module.graph.nodes if node.op == CALL]
        how = "started one by one" if self._reason else "recorded at the second call"
        kernels = kernels_of(self._module, "kernel")
        return [*kernels, NodeGroup(names, how, self._reason)]


def _is_contiguous(leaf: Any) -> bool:
    """Return whether a copy of an array lies in memory as the array does."""
    return not hasattr(leaf, "dtype") or bool(leaf.flags.c_contiguous)


class _Recording:
    """Work of a device that was recorded: it reads and writes the same memory each time."""

    def __init__(self, run: Callable[..., list[Any]], leaves: Sequence[Any]) -> None:
        cupy = _cupy()
        # Its own memory, which nobody frees between two calls.
        self._pool: Any = cupy.cuda.MemoryPool()
        self._stream: Any = cupy.cuda.Stream(non_blocking=True)
        cupy.cuda.get_current_stream().synchronize()
        with cupy.cuda.using_allocator(self._pool.malloc), self._stream:
            self._inputs = [_copied(leaf) for leaf in leaves]
            run(*self._inputs)  # so that the pool has all memory before the recording
            self._stream.synchronize()
            self._stream.begin_capture()
            try:
                self._outputs = run(*self._inputs)
            finally:
                self._graph: Any = self._stream.end_capture()

    def play(self, leaves: Sequence[Any]) -> list[Any]:
        """Run the work on other inputs."""
        cupy = _cupy()
        current = cupy.cuda.get_current_stream()
        results = [_like(out) for out in self._outputs]
        self._stream.wait_event(current.record())
        with self._stream:
            for own, leaf in zip(self._inputs, leaves, strict=True):
                _write(own, leaf)
            self._graph.launch(self._stream)
            for result, out in zip(results, self._outputs, strict=True):
                _write(result, out)
        current.wait_event(self._stream.record())
        return results


def _copied(leaf: Any) -> Any:
    return leaf.copy() if hasattr(leaf, "dtype") else leaf


def _like(out: Any) -> Any:
    return _cupy().empty_like(out) if hasattr(out, "dtype") else out


def _write(target: Any, value: Any) -> None:
    if hasattr(target, "dtype"):
        target[...] = value


def _reason_not_to_record(module: GraphModule) -> str:
    """Return why the work of a graph differs between calls; empty if it does not."""
    graph = module.graph
    if graph.sizes is not None and graph.sizes.sizes:
        return "sizes are symbolic"
    if OUTSIDE in Memory(graph).output:
        return "a result is an input, or a view of one"
    outside = [node for node in module.inputs if not _is_on_device(node)]
    if outside:
        return f"'{outside[0].name}' is a number of NumPy, which kernels get by value"
    calls = [node for node in graph.nodes if node.op == CALL]
    for node in calls:
        if not _is_recordable(node):
            return f"'{node.name}' may do other work at each call"
    # A terabyte a second, and 5 us to start a kernel: orders of magnitude of devices.
    moved = sum(_bytes_of(v) for v in (*module.inputs, *graph.output_node.inputs))
    return "copies would take longer" if moved > len(calls) * 5e6 else ""


def _is_on_device(node: Node) -> bool:
    """Return whether an input is an array of the device, or not an array at all."""
    val = node.val
    return not isinstance(val, FakeArray) or device_kind(val.device) == CUDA


def _is_recordable(node: Node) -> bool:
    """Return whether a call starts the same kernels whatever its arrays hold."""
    if node.has_effects:
        return False
    return isinstance(node.target, Kernel) or node.target.qualname in _RECORDABLE


_RECORDABLE = frozenset(
    f"np::{name}"
    for name in (
        *("add", "subtract", "multiply", "divide", "square", "negative", "sqrt", "exp"),
        *("log", "sin", "cos", "tanh", "power", "maximum", "minimum", "absolute"),
        *("where", "astype", "sum", "prod", "mean", "max", "min", "matmul", "reshape"),
        *("transpose", "expand_dims", "squeeze", "broadcast_to", "slice", "unslice"),
        *("full_like", "concatenate", "stack", "equal", "greater", "less"),
    )
)


def _bytes_of(node: Node) -> int:
    val = node.val
    if not isinstance(val, FakeArray):
        return 0
    return int(math.prod(val.shape) * val.dtype.itemsize)
