"""Which values of a graph share memory, and which nodes write it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from customop.core.contract.memory import owner
from customop.core.table import RuleTable
from customop.graph.node import (
    CALL,
    CONSTANT,
    ITEM,
    OUTPUT,
    PLACEHOLDER,
    Node,
    nodes_in,
)

if TYPE_CHECKING:  # a graph holds others
    from customop.graph.graph import Graph

__all__ = ["OUTSIDE", "Memory", "Places"]

# The memory of inputs and constants, which a caller may share among them.
OUTSIDE: Final = 0
Places = frozenset[int]
_OUTSIDE: Final[Places] = frozenset({OUTSIDE})


class Memory:
    """The memory behind the nodes of a graph, as the schemas describe it.

    Each piece of memory has a number. Inputs and constants all have the number 0, since
    a caller may pass one array twice, or one that is a constant. Constants also have one
    for the array that owns their memory.

    Attributes
    ----------
    places : dict
        Node -> numbers of the memory that its value may lie in.
    writes : dict
        Node that writes -> numbers of the memory that it writes.
    """

    def __init__(self, graph: Graph) -> None:
        self.places: dict[Node, Places] = {}
        self.writes: dict[Node, Places] = {}
        # The places of each result, for calls of several.
        self._parts: dict[Node, Sequence[Places]] = {}
        self._count = OUTSIDE
        self._owners: dict[int, Places] = {}
        self.output: Places = frozenset()
        for node in graph.nodes:
            self.places[node] = self._places_of(node)
            if node.op == OUTPUT:
                self.output = self.places[node]

    @property
    def written(self) -> Places:
        """All memory that some node writes."""
        return frozenset().union(*self.writes.values())

    def of(self, values: Iterable[Any]) -> Places:
        """Memory of the nodes among nested values."""
        return frozenset().union(*[self.places[node] for node in nodes_in(values)])

    def _new(self) -> Places:
        self._count += 1
        return frozenset({self._count})

    def _places_of(self, node: Node) -> Places:
        if node.op == CALL:
            graphs = node.subgraphs
            return self._of_graphs(node, graphs) if graphs else self._of_call(node)
        if node.op == ITEM:
            return self._of_item(*node.args)
        if node.op == CONSTANT:
            own = id(owner(node.graph.constants[node.target]))
            if own not in self._owners:
                self._owners[own] = self._new()
            return _OUTSIDE | self._owners[own]
        return _OUTSIDE if node.op == PLACEHOLDER else self.of(node.args)

    def _of_item(self, node: Node, index: Any) -> Places:
        parts = self._parts.get(node)
        return self.places[node] if parts is None else parts[index]

    def _of_call(self, node: Node) -> Places:
        op: RuleTable = node.target
        pairs = [*zip(op.schema.parameters, node.values(), strict=True)]
        if op.schema.written:
            self.writes[node] = self.of(v for p, v in pairs if p.is_written)
        named: dict[str, list[Any]] = {}
        for p, value in pairs:
            if p.alias is not None:
                named.setdefault(p.alias.name, []).append(value)
        aliases = [r.alias for r in op.schema.returns]
        parts = [self._new() if a is None else self.of(named[a.name]) for a in aliases]
        if op.schema.is_tuple:
            self._parts[node] = parts
        return frozenset().union(*parts)

    def _of_graphs(self, node: Node, graphs: Sequence[Graph]) -> Places:
        """Of a call that runs graphs: they may write and return any argument."""
        given = self.of((*node.args, *node.kwargs.values()))
        inner = [Memory(graph) for graph in graphs]
        if any(OUTSIDE in memory.written for memory in inner):
            self.writes[node] = given | _OUTSIDE
        new = self._new()
        return given | new if any(OUTSIDE in m.output for m in inner) else new
