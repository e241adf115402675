"""Arrays that a function makes anew in each call, although they are constants of its graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from customop.compiling.surroundings import Surroundings
from customop.graph.module import GraphModule
from customop.graph.node import CONSTANT, Node
from customop.library.ops import ops

__all__ = ["own_results"]


def own_results(module: GraphModule, surroundings: Surroundings) -> GraphModule:
    """The graph, which returns copies of constants that the function has made.

    Plain NumPy makes ``np.zeros(3)`` in a function, so it is a constant. The function
    returns a new array in each call, and who gets it may write to it. An array that is
    there before the function runs is returned itself.
    """
    made = [
        (place, leaf)
        for place, leaf in enumerate(module.graph.output_node.args[0])
        if _is_made(leaf, module, surroundings)
    ]
    if not made:
        return module
    graph = module.graph.copy()
    output = graph.output_node
    leaves = [*output.args[0]]
    copies: dict[Node, Node] = {}
    for place, _ in made:
        leaf = leaves[place]
        if leaf not in copies:  # returned twice, it is one array
            with graph.inserting_before(output):
                copies[leaf] = graph.call(ops.np.copy.default, (leaf,))
            copies[leaf].note(leaf.val, leaf.meta.get("place"))
        leaves[place] = copies[leaf]
    output.args = (leaves,)
    return module.with_graph(graph)


def _is_made(leaf: Any, module: GraphModule, surroundings: Surroundings) -> bool:
    if not isinstance(leaf, Node) or leaf.op != CONSTANT:
        return False
    value = module.constants[leaf.target]
    return isinstance(value, np.ndarray) and not surroundings.holds(value)
