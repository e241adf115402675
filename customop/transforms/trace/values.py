"""Fake arrays that stand for one value each.

Tracing gives one fake array to many values of one layout. A fake kernel whose result
has a size that depends on the data may keep that size on its argument, as np.nonzero does:
for it each value has a fake array of its own.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from customop.arrays.fake import FakeArray, make_fake
from customop.arrays.nested import map_nested
from customop.graph.node import CALL, ITEM, Node, nodes_in
from customop.graph.passes.common import frozen_key
from customop.graph.size_uses import makes_sizes

__all__ = ["Values"]


class Values:
    """Which nodes of a graph that is being made have one value, and its fake array.

    Two calls of one operator with the same arguments have one value: in
    ``x[~mask] = x[~mask] * 2`` both masks take the same number of elements.
    """

    def __init__(self) -> None:
        self._fakes: dict[Node, FakeArray] = {}
        self._first: dict[Node, Node] = {}
        self._by_key: dict[Hashable, Node] = {}
        self._has_writes = False

    def see_write(self) -> None:
        """Note that an operator writes an array: a node may have another value now."""
        self._fakes.clear()
        self._has_writes = True

    def fake(self, entry: Any, fake: Any) -> Any:
        """The fake array of a node's value; anything else as it is."""
        if type(entry) is not Node or type(fake) is not FakeArray:
            return fake
        first = entry if self._has_writes else self._first_of(entry)
        if first not in self._fakes:
            parts = fake.shape, fake.dtype, fake.strides, fake.device
            self._fakes[first] = make_fake(*parts)
        return self._fakes[first]

    def _first_of(self, node: Node) -> Node:
        """The first node that was seen with the value of a node."""
        waiting = [node]
        while waiting:  # no recursion: chains may be long
            last = waiting[-1]
            before = [n for n in _sources(last) if n not in self._first]
            if before:
                waiting += before
                continue
            self._first[last] = self._by_key.setdefault(self._key(last), last)
            waiting.pop()
        return self._first[node]

    def _key(self, node: Node) -> Hashable:
        if not _sources(node):
            return node
        given = map_nested(_values(node), self._known)
        return node.op, id(node.target), frozen_key(given)

    def _known(self, value: Any) -> Any:
        return self._first[value] if type(value) is Node else value


def _sources(node: Node) -> list[Node]:
    """The nodes that the value of a node follows from alone; none if there is more."""
    is_made = node.op in (CALL, ITEM)
    if not is_made or node.has_effects or node.must_run or makes_sizes(node):
        return []
    return nodes_in(_values(node))


def _values(node: Node) -> list[Any]:
    return list(node.values() if node.op == CALL else node.args)
