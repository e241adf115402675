"""The order in which calls are planned: arithmetic that can be one row comes together."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import groupby
from typing import Any, Final

from customop.arrays.fake import FakeArray
from customop.compiling.native_backend.fused_loops import JOINED
from customop.compiling.numpy_backend.call_text import builtin_kernel
from customop.core.table import RuleTable
from customop.graph.node import CALL, Node

# A call comes before others at most so many places earlier: what waits has memory.
_WINDOW: Final = 64
# Bytes of the largest value of such a graph, and of arithmetic that waits: what waits is in
# the nearest cache.
_LARGEST: Final = 1 << 12
_WAITING: Final = 1 << 10
# So many of the groups are left where the new order is worth it.
_FEWER: Final = 0.7


def with_neighbors(nodes: Sequence[Node]) -> list[Node]:
    """Return nodes in an order in which arithmetic of one shape follows on each other.

    Arithmetic comes when nothing else can, other calls as soon as they can.
    The order stays where a call has effects, may be an operator of the user's, or has
    large values, and where few calls come together.
    """
    if not all(map(_may_move, nodes)):
        return [*nodes]
    kinds = [_kind(node) for node in nodes]
    order = _NewOrder(nodes, kinds).found()
    is_worth = _groups([kinds[k] for k in order]) < _FEWER * _groups(kinds)
    return [nodes[k] for k in order] if is_worth else [*nodes]


class _NewOrder:
    """Takes nodes, by their places, as soon as their inputs were taken."""

    def __init__(self, nodes: Sequence[Node], kinds: Sequence[Any]) -> None:
        place = {node: k for k, node in enumerate(nodes)}
        self._kinds: Sequence[Any] = kinds
        # The nodes that read each one, and how many of its inputs are still to be taken.
        self._readers: list[list[int]] = [[] for _ in nodes]
        self._missing: list[int] = []
        # What can be taken: arithmetic of each kind, and other calls.
        self._others: list[int] = []
        self._ready: dict[Any, list[int]] = {}
        for k, node in enumerate(nodes):
            inputs = {place[used] for used in node.inputs}
            self._missing.append(len(inputs))
            for used in inputs:
                self._readers[used].append(k)
            if not inputs:
                self._add(k)

    def _add(self, k: int) -> None:
        kind = self._kinds[k]
        ready = self._others if kind is None else self._ready.setdefault(kind, [])
        heappush(ready, k)

    def found(self) -> list[int]:
        """Return the places of the nodes in the new order."""
        order: list[int] = []
        done, first, kind = [False] * len(self._missing), 0, None
        while len(order) < len(done):
            while done[first]:
                first += 1
            if self._others and self._others[0] < first + _WINDOW and kind is None:
                k = heappop(self._others)
            else:
                k, kind = self._next(kind)
            done[k] = True
            order.append(k)
            for reader in self._readers[k]:
                self._missing[reader] -= 1
                if not self._missing[reader]:
                    self._add(reader)
            if kind not in self._ready:
                kind = None
        return order

    def _next(self, kind: Any) -> tuple[int, Any]:
        """Return the first arithmetic, of this kind if it is not None, and its kind."""
        if kind is None:
            kind = min(self._ready, key=lambda kind: self._ready[kind][0])
        ready = self._ready[kind]
        k = heappop(ready)
        if not ready:
            del self._ready[kind]
        return k, kind


def _groups(kinds: Sequence[Any]) -> int:
    """Return how many groups of neighbors are of one kind."""
    return sum([kind is not None for kind, _ in groupby(kinds)])


def _may_move(node: Node) -> bool:
    if node.op != CALL:
        return True
    op = node.target
    is_known = isinstance(op, RuleTable) and (
        op.namespace == "control" or builtin_kernel(op) is not None
    )
    return is_known and node.is_pure and _size(node.val) <= _LARGEST


def _size(value: Any) -> int:
    """Return the bytes of a value; those of symbolic sizes are small."""
    if isinstance(value, (list, tuple)):
        return max(map(_size, value), default=0)
    if not isinstance(value, FakeArray):
        return 0
    nbytes: int = value.dtype.itemsize
    for length in value.shape:
        if type(length) is not int:
            return _LARGEST + 1
        nbytes *= length
    return nbytes


def _kind(node: Node) -> Any:
    """Return the shape and dtype of arithmetic; None for other nodes."""
    if node.op != CALL or getattr(node.target, "name", "") not in JOINED:
        return None
    value = node.val
    if not isinstance(value, FakeArray) or value.dtype.char not in "fd":
        return None
    if _size(value) > _WAITING:
        return None
    return value.shape, value.dtype
