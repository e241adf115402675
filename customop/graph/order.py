"""Which nodes of a graph must run before which others."""

from __future__ import annotations

from collections import defaultdict
from heapq import heappop, heappush
from typing import Any

from customop.graph.graph import Graph
from customop.graph.memory import Memory
from customop.graph.node import CALL, ITEM, Node
from customop.graph.size_uses import makes_sizes, sizes_in

__all__ = ["Order", "caller_of", "sort_groups"]


def caller_of(node: Node) -> Node:
    """The call that a node is a part of, or the node itself."""
    while node.op == ITEM:
        node = node.args[0]
    return node


class Order:
    """The calls that must run before each call of a graph.

    Attributes
    ----------
    before : dict
        Call -> the calls that must run before it: those whose results it takes, those
        that write what it reads or read what it writes, and of calls with effects all
        earlier ones.
    """

    def __init__(self, graph: Graph) -> None:
        self.before: dict[Node, dict[Node, None]] = {}
        self._memory = Memory(graph)
        self._writer: dict[int, Node] = {}
        self._readers: dict[int, list[Node]] = defaultdict(list)
        self._makers: dict[str, Node] = {}
        self._effect: Node | None = None
        for node in graph.nodes:
            if node.op == CALL:
                self.before[node] = dict.fromkeys(self._needed(node))
                for name in makes_sizes(node):
                    self._makers.setdefault(name, node)

    def _needed(self, node: Node) -> list[Node]:
        found = [caller_of(source) for source in node.inputs]
        found = [source for source in found if source.op == CALL]
        names = sizes_in((*node.args, *node.kwargs.values()))
        found += [self._makers[name] for name in names if name in self._makers]
        written = self._memory.writes.get(node, frozenset())
        read = self._memory.of((*node.args, *node.kwargs.values())) | written
        found += [self._writer[place] for place in read if place in self._writer]
        for place in written:
            found += self._readers.pop(place, ())
            self._writer[place] = node
        for place in read:
            self._readers[place].append(node)
        if node.has_effects:
            if self._effect is not None:
                found.append(self._effect)
            self._effect = node
        return [source for source in found if source is not node]


def sort_groups(order: Order, group_of: dict[Node, Any]) -> tuple[list[Any], list[Any]]:
    """Groups in an order in which they can run, and those that need each other.

    Among groups that can run next, the one that begins first in the graph comes first.
    """
    groups = list(dict.fromkeys(group_of.values()))
    number = {group: i for i, group in enumerate(groups)}
    later = _later_groups(order, group_of)
    waits = dict.fromkeys(groups, 0)
    for followers in later.values():
        for group in followers:
            waits[group] += 1
    ready = [number[group] for group in groups if not waits[group]]
    found = []
    while ready:
        group = groups[heappop(ready)]
        found.append(group)
        for follower in later[group]:
            waits[follower] -= 1
            if not waits[follower]:
                heappush(ready, number[follower])
    return found, _between({g for g in groups if waits[g]}, later, groups)


def _between(
    stuck: set[Any], later: dict[Any, set[Any]], groups: list[Any]
) -> list[Any]:
    """Of the groups that cannot run, those that others of them need."""
    while ends := {group for group in stuck if not later[group] & stuck}:
        stuck -= ends
    return [group for group in groups if group in stuck]


def _later_groups(order: Order, group_of: dict[Node, Any]) -> dict[Any, set[Any]]:
    """Group -> the groups that need it to have run."""
    found: dict[Any, set[Any]] = {group: set() for group in group_of.values()}
    for node, sources in order.before.items():
        for source in sources:
            if group_of[source] != group_of[node]:
                found[group_of[source]].add(group_of[node])
    return found
