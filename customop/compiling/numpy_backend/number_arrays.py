"""Numbers that differ between calls, as arrays without axes.

In ``x * rate`` NumPy converts a number of Python to the dtype of the array. Here that is a
call of its own at the beginning of the graph, so that the multiplication is one of arrays.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from customop.arrays.fake import FakeArray
from customop.compiling.numpy_backend.calls import is_array_node, resolved
from customop.compiling.numpy_backend.known import ufunc_of
from customop.core.table import RuleTable
from customop.graph.graph import Graph
from customop.graph.module import GraphModule
from customop.graph.node import CALL, PLACEHOLDER, Node
from customop.graph.passes.apply import edited
from customop.shapes.sizes import number_class
from customop.shapes.symbols import Symbolic
from customop.transforms.trace.operators import number

__all__ = ["with_number_arrays"]


def with_number_arrays(module: GraphModule, *, of_scalars: bool = False) -> GraphModule:
    """A module in which ufuncs take arrays without axes for symbolic numbers.

    Parameters
    ----------
    module : GraphModule
    of_scalars : bool
        Whether also ufuncs of scalars alone do.
    """
    return edited(module, lambda graph: _convert(graph, of_scalars))


def _convert(graph: Graph, of_scalars: bool) -> None:
    if graph.sizes is None or not graph.sizes.sizes:
        return
    inputs = [node for node in graph.nodes if node.op == PLACEHOLDER]
    made: dict[tuple[str, np.dtype[Any]], Node] = {}
    last = inputs[-1] if inputs else None
    for node in [*graph.nodes]:
        for at, value, dtype in [*_conversions(node, of_scalars)]:
            key = (str(value), dtype)
            if key not in made:
                last = made[key] = _made(graph, last, value, dtype)
            args = (*node.args[:at], made[key], *node.args[at + 1 :])
            node.set_inputs(args, node.kwargs)


def _made(graph: Graph, last: Node | None, value: Any, dtype: np.dtype[Any]) -> Node:
    """The node of a number, after the inputs."""
    assert last is not None  # a size comes from an input
    with graph.inserting_after(last):
        new = graph.call(number, (value, dtype))
    new.note(FakeArray((), dtype), last.meta.get("place"))
    return new


def _conversions(
    node: Node, of_scalars: bool
) -> Iterator[tuple[int, Any, np.dtype[Any]]]:
    """Where a ufunc takes a symbolic number, the number, and the dtype that it gets."""
    if node.op != CALL or not isinstance(node.target, RuleTable):
        return
    at = [i for i, value in enumerate(node.args) if isinstance(value, Symbolic)]
    if not at or not (of_scalars or any(map(is_array_node, node.args))):
        return
    ufunc = ufunc_of(node.target)
    kinds = [_kind(value) for value in node.args]
    if ufunc is None or any(kind is None for kind in kinds):
        return
    found = resolved(ufunc, kinds)
    if found is None:
        return
    own = [k if isinstance(k, np.dtype) else found[i] for i, k in enumerate(kinds)]
    if resolved(ufunc, own) == found:
        yield from ((i, node.args[i], own[i]) for i in at)


def _kind(value: Any) -> Any:
    """The dtype of an operand, or the class of a number that adapts to others."""
    if isinstance(value, Node):
        return value.val.dtype if isinstance(value.val, FakeArray) else None
    cls = number_class(value)
    if issubclass(cls, np.generic):
        return np.dtype(cls)
    return cls if cls in (int, float, complex) else None
