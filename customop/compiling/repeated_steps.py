"""Find the equal steps of a Python loop in a graph, for a word in `explain`."""

from __future__ import annotations

from collections import Counter
from statistics import median
from typing import Any, Final

from customop.graph.graph import Graph
from customop.graph.node import CALL

# Calls from which on the time to compile them is worth a word.
_MANY: Final = 2000
# Calls in a row that are looked for elsewhere; how often they have to come, and for which
# share of all calls that has to be so.
_ROW: Final = 16
_OFTEN: Final = 8
_SHARE: Final = 0.8


def repeated_steps(graph: Graph) -> int:
    """Return how many equal steps make up most of a large graph; 0 if they do not.

    Only the operators are compared, in their order: what a step reads is not.
    """
    if len(graph.nodes) < _MANY:
        return 0
    names = [_name(node.target) for node in graph.nodes if node.op == CALL]
    rows = [tuple(names[i : i + _ROW]) for i in range(len(names) - _ROW)]
    count = Counter(rows)
    often = [count[row] for row in rows if count[row] >= _OFTEN]
    return int(median(often)) if len(often) >= _SHARE * max(len(rows), _MANY) else 0


def _name(target: Any) -> str:
    return getattr(target, "qualname", "") or type(target).__name__
