"""Dead code: calls whose results nobody uses."""

from __future__ import annotations

from customop.graph.graph import Graph
from customop.graph.passes.apply import GraphT, edited

__all__ = ["eliminate_dead_code"]


def eliminate_dead_code(graph: GraphT) -> GraphT:
    """Leave out calls whose results nobody uses.

    Calls that write an argument, draw random numbers or return nothing stay, and so do
    all inputs.

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
    >>> def f(x):
    ...     np.cos(x)
    ...     return np.sin(x)
    >>> smaller = co.eliminate_dead_code(co.make_fx(f)(np.ones(3)))
    >>> [node.name for node in smaller.graph.nodes]
    ['x', 'sin', 'output']
    """
    return edited(graph, _erase)


def _erase(graph: Graph) -> None:
    graph.eliminate_dead_code()
