"""Arrays that a function made while it was captured, which are constants of its graph."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from customop.core.contract.memory import owner
from customop.graph.graph import Graph
from customop.graph.memory import OUTSIDE, Memory
from customop.graph.node import CONSTANT, Node
from customop.library.ops import ops

__all__ = ["copy_new_constants"]


def copy_new_constants(graph: Graph) -> None:
    """Copy in each run what the function makes again in each run, where it matters.

    ``np.zeros(3)`` in a function is a constant of its graph. The caller may write to it
    if it is returned, so each run returns a copy. An array that is there before the
    function runs is returned itself.
    """
    arrays = [value for value in graph.constants.values() if _is_writeable(value)]
    if not arrays:
        return
    shared = Counter(id(owner(value)) for value in arrays)
    del arrays
    memory = Memory(graph)
    reached = (memory.output | memory.written) - {OUTSIDE}
    for node in graph.nodes:
        is_reached = node.op == CONSTANT and memory.places[node] & reached
        if is_reached and _is_new(graph.constants, node.target, shared):
            _copy(graph, node)


def _is_writeable(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.flags.writeable


def _is_new(constants: Mapping[str, Any], name: str, shared: Mapping[int, int]) -> bool:
    """Whether nothing but the graph has a reference to an array or to its memory."""
    if not _is_writeable(constants[name]):
        return False
    is_owner, count, count_of_memory = _references(constants, name)
    others = shared[id(owner(constants[name]))] - 1
    least = _LEAST[is_owner]
    return (
        count <= least[1] + (others if is_owner else 0)
        and count_of_memory <= least[2] + others
    )


def _references(constants: Mapping[str, Any], name: str) -> tuple[bool, int, int]:
    """Whether an array owns its memory, references to it, and to what owns the memory."""
    count = sys.getrefcount(constants[name])
    memory = owner(constants[name])
    return memory is constants[name], count, sys.getrefcount(memory)


def _least(constants: Mapping[str, Any]) -> tuple[bool, int, int]:
    return _references(constants, "probe")


# The same for arrays to which nobody else has a reference.
_LEAST = {
    True: _least({"probe": np.zeros(2)}),
    False: _least({"probe": np.zeros(2)[1:]}),
}


def _copy(graph: Graph, node: Node) -> None:
    with graph.inserting_after(node):
        copy = graph.call(ops.np.copy.default, (node,))
    copy.note(node.val, node.meta.get("place"))
    node.replace_all_uses_with(copy, unless=lambda user: user is copy)
