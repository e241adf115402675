"""Find the equal steps of a Python loop in a graph, for a warning and `explain`."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import Any, Final

from customop.graph.graph import Graph
from customop.graph.node import CALL

# Nodes from which on the time to compile them is worth a warning, and a word of `explain`.
MANY: Final = 2000
SOME: Final = 200
# Calls in a row that are looked for elsewhere; how often they have to come, and for which
# share of all calls that has to be so.
_ROW: Final = 16
_OFTEN: Final = 8
_SHARE: Final = 0.8


def repeated_steps(graph: Graph, least: int) -> tuple[int, int]:
    """Return how many nodes a graph has, and how many equal steps make up most of it.

    Only the operators are compared, in their order: what a step reads is not.

    Parameters
    ----------
    graph : Graph
    least : int
        The second number is 0 for a graph with fewer nodes, and for one without such steps.
    """
    size = len(graph.nodes)
    if size < least:
        return size, 0
    # A letter for each operator: the cyclic collector does not look at rows of letters.
    letters: dict[str, str] = {}
    names = [_name(node.target) for node in graph.nodes if node.op == CALL]
    text = "".join([letters.setdefault(n, chr(len(letters))) for n in names])
    rows = [text[i : i + _ROW] for i in range(len(text) - _ROW)]
    count = Counter(rows)
    often = [count[row] for row in rows if count[row] >= _OFTEN]
    is_most = len(often) >= _SHARE * max(len(rows), least - _ROW)
    return size, int(median(often)) if is_most else 0


def _name(target: Any) -> str:
    return getattr(target, "qualname", "") or type(target).__name__
