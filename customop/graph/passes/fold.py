"""Constant folding: what does not depend on the inputs is computed once."""

from __future__ import annotations

import warnings
from typing import Any

from customop.arrays.kinds import is_array
from customop.arrays.nested import flat
from customop.graph.graph import Graph
from customop.graph.memory import OUTSIDE, Memory
from customop.graph.node import CALL, CONSTANT, ITEM, Node
from customop.graph.passes.apply import GraphT, edited
from customop.graph.size_uses import has_sizes

__all__ = ["fold_constants"]


def fold_constants(
    graph: GraphT, *, max_bytes: int = 1 << 20, reads_constants: bool = True
) -> GraphT:
    """Compute now what does not depend on the inputs.

    Calls that write or draw stay. A call also stays if its result is returned, since each
    call of the graph returns new arrays; if something writes it, or a constant that it
    reads; or if it raises or warns. Inputs that are written must not be constants too.

    Parameters
    ----------
    graph : GraphModule or Graph
        It stays as it is.
    max_bytes : int
        A result of more bytes is not kept as a constant.
    reads_constants : bool
        False to compute only what depends on no constant either, as the elements of
        these may be changed between two calls of the graph.

    Returns
    -------
    GraphModule or Graph
        A new one. Nodes that are no longer used are left out.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> table = np.arange(3.0)
    >>> module = co.make_fx(lambda x: x + co.ops.np.sin(table))(np.ones(3))
    >>> folded = co.fold_constants(module)
    >>> [node.op for node in folded.graph.nodes]
    ['placeholder', 'constant', 'call', 'output']
    """
    return edited(
        graph, lambda inner: _Folding(inner, max_bytes, reads_constants).run()
    )


class _Folding:
    """A walk that computes what it can."""

    def __init__(self, graph: Graph, max_bytes: int, reads_constants: bool) -> None:
        self._graph = graph
        self._max_bytes = max_bytes
        self._reads_constants = reads_constants
        self._memory = Memory(graph)
        self._written = self._memory.written
        # Nodes whose values are known, and those of them that were computed here.
        self._values: dict[Node, Any] = {}
        self._computed: dict[Node, None] = {}

    def run(self) -> None:
        """Fold what can be folded."""
        for node in self._graph.nodes:
            if node.op == CONSTANT:
                if self._reads_constants:
                    self._values[node] = self._graph.constants[node.target]
            elif self._can_fold(node):
                self._compute(node)
        for node in self._computed:
            if any(user not in self._computed for user in node.users):
                self._put_in_place(node)
        self._graph.eliminate_dead_code()

    def _can_fold(self, node: Node) -> bool:
        if node.op not in (CALL, ITEM) or not node.is_pure or node.written:
            return False
        if any(source not in self._values for source in node.inputs):
            return False
        if has_sizes((*node.args, *node.kwargs.values())):
            return False
        memory = self._memory
        places = memory.places[node] - {OUTSIDE}
        used = places | (memory.of(node.inputs) - {OUTSIDE})
        return used.isdisjoint(self._written) and places.isdisjoint(memory.output)

    def _compute(self, node: Node) -> None:
        if not self._is_small(node.meta.get("val")):
            return
        args, kwargs = node.mapped(self._values.__getitem__)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                found = (
                    node.target(*args, **kwargs) if node.op == CALL else _part(*args)
                )
            except Exception:  # noqa: BLE001  # a kernel may raise anything: at each run
                return
        if self._is_small(found):
            self._values[node] = found
            self._computed[node] = None
            if node.has_fixed_result and _is_same(found, node.meta["must_be"]):
                del node.meta["must_be"]  # it is so in every call

    def _is_small(self, value: Any) -> bool:
        """Whether a value, or what is known of it before, has few bytes."""
        if has_sizes([value]):
            return False
        arrays = [leaf for leaf in flat(value) if is_array(leaf)]
        size: int = sum(x.size * x.dtype.itemsize for x in arrays)
        return size <= self._max_bytes

    def _put_in_place(self, node: Node) -> None:
        """Give the users of a node its value: a constant, or the number itself."""
        value = self._values[node]
        node.meta.pop("must_run", None)  # it has run
        if not is_array(value):
            if len(flat(value)) == 1 and not isinstance(value, list | tuple | dict):
                for user in [*node.users]:
                    user.map_inputs(lambda used: value if used is node else used)
            return
        with self._graph.inserting_before(node):
            new = self._graph.constant(value, node.name)
        new.meta = node.meta
        node.replace_all_uses_with(new)


def _is_same(found: Any, expected: Any) -> bool:
    """Whether a result is what the graph was traced with."""
    if is_array(found):
        return bool(found.shape == expected.shape)
    return type(found) is type(expected) and bool(found == expected)


def _part(value: Any, index: Any) -> Any:
    return value[index]
