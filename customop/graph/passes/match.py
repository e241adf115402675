"""Where a small graph, a pattern, occurs in another one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from customop.arrays.nested import children, steps
from customop.graph.node import CALL, CONSTANT, ITEM, OUTPUT, PLACEHOLDER, Node
from customop.graph.order import Order, caller_of
from customop.graph.passes.common import frozen_key

__all__ = ["Match", "escapes", "match_at"]

# Node of the pattern -> node of the graph, or a number in the place of a wildcard.
Match = dict[Node, Any]


def match_at(
    outputs: Sequence[Node], node: Node, *, is_exact: bool = True
) -> Iterator[Match]:
    """The ways in which a pattern fits, with its first output at a node.

    Parameters
    ----------
    outputs : sequence of Node
        Those of the pattern. Its inputs are wildcards.
    node : Node
        Of the graph.
    is_exact : bool
        False to compare operators alone, not numbers and other constants.
    """
    matcher = _Matcher(is_exact)
    first: Match = {}
    if matcher.fits(outputs[0], node, first):
        yield from matcher.complete(outputs[1:], first)


class _Matcher:
    def __init__(self, is_exact: bool) -> None:
        self._is_exact = is_exact

    def complete(self, outputs: Sequence[Node], found: Match) -> Iterator[Match]:
        """Matches that have the other outputs too."""
        if not outputs:
            yield found
            return
        for node in [found[outputs[0]]] if outputs[0] in found else _near(found):
            more = dict(found)
            if isinstance(node, Node) and self.fits(outputs[0], node, more):
                yield from self.complete(outputs[1:], more)

    def fits(self, wanted: Node, given: Any, found: Match) -> bool:
        """Whether a node computes what one of the pattern does; notes what it finds."""
        if wanted in found:
            return _is_same(found[wanted], given)
        if wanted.op == PLACEHOLDER:
            found[wanted] = given
            return _is_value(given)
        if not isinstance(given, Node) or not self._is_alike(wanted, given):
            return False
        found[wanted] = given
        return wanted.op == CONSTANT or self._inputs_fit(wanted, given, found)

    def _is_alike(self, wanted: Node, given: Node) -> bool:
        """Whether two nodes do the same, whatever their inputs are."""
        if wanted.op != given.op:
            return False
        if wanted.op == CONSTANT:
            return not self._is_exact or _same_constants(wanted, given)
        return wanted.op != CALL or wanted.target is given.target

    def _inputs_fit(self, wanted: Node, given: Node, found: Match) -> bool:
        if wanted.op == ITEM:
            same = wanted.args[1] == given.args[1]
            return same and self.fits(wanted.args[0], given.args[0], found)
        return self._values_fit(wanted.values(), given.values(), found)

    def _values_fit(self, wanted: Any, given: Any, found: Match) -> bool:
        if isinstance(wanted, Node):
            return self.fits(wanted, given, found)
        parts = children(wanted)
        if parts is None:
            return not isinstance(given, Node) and (
                not self._is_exact or frozen_key(wanted) == frozen_key(given)
            )
        others = children(given)
        if others is None or type(wanted) is not type(given):
            return False
        if not self._is_exact and not _holds_nodes(parts):
            return True
        if [*steps(wanted)] != [*steps(given)]:
            return False
        pairs = zip(parts, others, strict=True)
        return all(self._values_fit(a, b, found) for a, b in pairs)


def _holds_nodes(parts: Sequence[Any]) -> bool:
    return any(
        isinstance(part, Node) or _holds_nodes(children(part) or ()) for part in parts
    )


def _is_value(given: Any) -> bool:
    """Whether a wildcard fits: any node but the output, and numbers."""
    if isinstance(given, Node):
        return given.op != OUTPUT
    return isinstance(given, int | float | complex)


def _is_same(a: Any, b: Any) -> bool:
    if isinstance(a, Node) or isinstance(b, Node):
        return a is b
    return frozen_key(a) == frozen_key(b)


def _same_constants(wanted: Node, given: Node) -> bool:
    a = wanted.graph.constants[wanted.target]
    b = given.graph.constants[given.target]
    if a is b:
        return True
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        return False
    same_type = a.dtype == b.dtype and a.shape == b.shape
    return same_type and not a.dtype.hasobject and a.tobytes() == b.tobytes()


def _near(found: Match) -> list[Node]:
    """Nodes that use what is matched so far."""
    nodes = [node for node in found.values() if isinstance(node, Node)]
    return list(dict.fromkeys(user for node in nodes for user in node.users))


# ---- whether a match can be replaced ----


def escapes(
    match: Match,
    outputs: Sequence[Node],
    order: Order,
    position: Mapping[Node, int],
) -> bool:
    """Whether a match cannot be one call, at the place of its last node.

    Something else uses a value inside, or needs one of its calls to have run before.
    `position` has the number of each node.
    """
    inside = {
        node
        for wanted, node in match.items()
        if wanted.op in (CALL, ITEM) and isinstance(node, Node)
    }
    results = {match[wanted] for wanted in outputs}
    for node in inside - results:
        if any(user not in inside and not _is_dead(user) for user in node.users):
            return True
    calls = {caller_of(node) for node in inside}
    return any(
        node.op == CALL and not calls.isdisjoint(order.before[node])
        for node in _between(inside, position)
        if node not in inside
    )


def _is_dead(node: Node) -> bool:
    return node.op == ITEM and not node.users


def _between(nodes: set[Node], position: Mapping[Node, int]) -> Iterator[Node]:
    """The nodes from the first of some to the last."""
    node = min(nodes, key=position.__getitem__)
    last = max(nodes, key=position.__getitem__)
    while node is not last:
        yield node
        node = node.next
