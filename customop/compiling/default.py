"""The back end "numpy": code for the arrays of a graph, wherever they are."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

from customop.arrays.fake import FakeArray
from customop.arrays.kinds import device_kind
from customop.graph.module import GraphModule
from customop.later import later

__all__ = ["build"]

cupy_backend: ModuleType = later(import_module, "customop.compiling.cupy_backend")
numpy_backend: ModuleType = later(
    import_module, "customop.compiling.numpy_backend.build"
)


def build(module: GraphModule) -> Callable[..., list[Any]]:
    """A function of the leaves of the inputs, which returns a list of those of the result."""
    vals = [node.val for node in module.inputs]
    kinds = {device_kind(val.device) for val in vals if isinstance(val, FakeArray)}
    backend = cupy_backend if "cuda" in kinds else numpy_backend
    run: Callable[..., list[Any]] = backend.build(module)
    return run
