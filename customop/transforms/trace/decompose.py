"""decompose: calls of some operators in a graph become calls of others."""

from __future__ import annotations

from customop.errors import GraphError
from customop.graph.graph import Graph
from customop.graph.node import CALL, Node
from customop.graph.passes.apply import GraphT, edited
from customop.graph.text import type_text
from customop.transforms.trace.emit import Emitter, are_alike, replace_results, vals_of
from customop.transforms.trace.opened import Table, as_table

__all__ = ["decompose"]


def decompose(graph: GraphT, table: Table) -> GraphT:
    """Replace calls of operators by what functions of other operators compute.

    Parameters
    ----------
    graph : GraphModule or Graph
        It stays as it is.
    table : mapping, or iterable of Operator or str
        Operator, or its name -> a function of its parameters. For a list of operators
        these are their own bodies. Calls that a function makes are replaced as well;
        within its own function an operator stays.

    Returns
    -------
    GraphModule or Graph
        A new one.

    Raises
    ------
    ArgumentError
        If the table has something other than operators and functions.
    GraphError
        If a function gives arrays of another shape or dtype than the operator.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> module = co.make_fx(lambda x: np.tanh(x) + 1.0)(np.ones(3))
    >>> def tanh(x):
    ...     e = np.exp(2.0 * x)
    ...     return (e - 1.0) / (e + 1.0)
    >>> opened = co.decompose(module, {"np::tanh": tanh})
    >>> [node.name for node in opened.graph.nodes][1:-1]
    ['multiply', 'exp', 'subtract', 'add_1', 'divide', 'add']
    """
    found = as_table(table, "decompose")

    def open_calls(inner: Graph) -> None:
        emitter = Emitter(inner)
        emitter.trace.opened = found
        with emitter.trace:
            for node in inner.nodes:
                if node.op == CALL and node.target in found:
                    _open(emitter, node)

    return edited(graph, open_calls)


def _open(emitter: Emitter, node: Node) -> None:
    results = emitter.call(node.target, node.args, node.kwargs, node)
    given, expected = vals_of(results), vals_of(node)
    if not are_alike(given, expected):
        raise GraphError(
            f"decompose: the function for {node.target.qualname} gives"
            f" {type_text(given)}, the operator gives {type_text(expected)}",
            *([f"traced at {node.meta['place']}"] if node.meta.get("place") else []),
            do="return arrays of the same shapes and dtypes",
        )
    replace_results(node, results)
