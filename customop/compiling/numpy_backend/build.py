"""The code of a graph, for NumPy's arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from customop.graph.module import GraphModule

__all__ = ["build"]


def build(module: GraphModule) -> Callable[..., list[Any]]:
    """A function of the leaves of the inputs, which returns a list of those of the result."""
    return module.run_list
