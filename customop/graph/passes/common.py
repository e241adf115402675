"""Common subexpressions: what a graph computes twice is computed once."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np

from customop.arrays.nested import children, steps
from customop.graph.graph import Graph
from customop.graph.memory import Memory, Places
from customop.graph.node import CALL, CONSTANT, ITEM, Node
from customop.graph.passes.apply import GraphT, edited
from customop.graph.size_uses import makes_sizes
from customop.shapes.symbols import Symbolic

__all__ = ["eliminate_common_subexpressions", "frozen_key"]


def eliminate_common_subexpressions(graph: GraphT) -> GraphT:
    """Compute equal calls only once.

    Calls are the same if they call one operator with the same arguments, and nothing was
    written in between that they read. Calls that write or draw stay, and so do results
    that are written later, or that are both parts of the output: the caller may write
    one of them.

    Parameters
    ----------
    graph : GraphModule or Graph
        It stays as it is.

    Returns
    -------
    GraphModule or Graph
        A new one.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> module = co.make_fx(lambda x: np.sin(x) * np.cos(np.sin(x)))(np.ones(3))
    >>> smaller = co.eliminate_common_subexpressions(module)
    >>> [node.name for node in smaller.graph.nodes]
    ['x', 'sin', 'cos', 'multiply', 'output']
    """
    return edited(graph, _merge)


def _merge(graph: Graph) -> None:
    merging = _Merging(graph)
    for node in graph.nodes:
        merging.look_at(node)


class _Merging:
    """A walk that keeps the first node of each computation."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._memory = Memory(graph)
        self._written: Places = self._memory.written
        self._escaped: set[int] = set(self._memory.output)
        # Number of writes so far to each memory, and the first node of each key.
        self._moments: dict[int, int] = {}
        self._first: dict[Hashable, Node] = {}

    def look_at(self, node: Node) -> None:
        """Put an earlier node in the place of this one, if there is one."""
        for place in self._memory.writes.get(node, ()):
            self._moments[place] = self._moments.get(place, 0) + 1
        if not self._can_merge(node):
            return
        first = self._first.setdefault(self._key(node), node)
        if first is node or not self._may_share(first, node):
            return
        node.replace_all_uses_with(first)
        self._graph.erase_node(node)

    def _can_merge(self, node: Node) -> bool:
        if node.op not in (CALL, ITEM, CONSTANT):
            return False
        return not (node.has_effects or node.must_run or makes_sizes(node))

    def _may_share(self, first: Node, node: Node) -> bool:
        """Whether users of two nodes may get one array."""
        if node.op == CONSTANT:
            return True  # it is one object already
        places = self._memory.places
        both = places[first] | places[node]
        if both & self._written:
            return False
        if not places[node].isdisjoint(self._escaped):
            if not places[first].isdisjoint(self._escaped):
                return False
            self._escaped |= places[first]
        return True

    def _key(self, node: Node) -> Hashable:
        if node.op == CONSTANT:
            return ("constant", id(self._graph.constants[node.target]))
        read = sorted(self._memory.of((*node.args, *node.kwargs.values())))
        moments = tuple([self._moments.get(place, 0) for place in read])
        values = node.values() if node.op == CALL else node.args
        return (node.op, id(node.target), frozen_key(list(values)), moments)


_NUMBERS = (bool, int, str, bytes, type(None))


def frozen_key(value: Any) -> Hashable:
    """A key, equal for arguments that are the same to the last bit and by class."""
    cls = type(value)
    if cls in _NUMBERS:
        return (cls, value)
    if isinstance(value, Symbolic):  # a comparison of two would become a guard
        return (cls, str(value), id(value.context))
    if isinstance(value, float | complex | np.generic):
        bits = np.asarray(value)
        return (cls, bits.dtype, bits.tobytes())
    if isinstance(value, Node):
        return (Node, id(value))
    found = children(value)
    if found is not None:
        names = tuple(steps(value))
        return (cls, names, tuple([frozen_key(part) for part in found]))
    return _key_of_object(value)


def _key_of_object(value: Any) -> Hashable:
    """An object without arrays: equal ones of a class count as the same."""
    try:
        hash(value)
    except TypeError:
        return (type(value), id(value))
    return (type(value), value)
