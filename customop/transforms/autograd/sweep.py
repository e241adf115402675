"""The backward sweep: bring gradients from the outputs of calls back to leaves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import Any

import numpy as np

from customop.arrays.numpy_functions import call_numpy
from customop.core.contract.memory import writes
from customop.core.observe import observed, observers
from customop.errors import GradientError
from customop.transforms.autograd.gradients import pairs_of, spread
from customop.transforms.autograd.node import (
    GradNode,
    Leaf,
    Output,
    flat_metas,
)
from customop.transforms.autograd.saved import check_unwritten

__all__ = ["freed", "plus", "sweep"]


# Gradients of these cannot go straight on: they end here, or wait for other outputs.
_STOPS = (Leaf, Output)


def sweep(  # noqa: C901, PLR0912  # one frame
    seeds: Iterable[tuple[Any, Any]], *, retain: bool
) -> dict[Leaf, Any]:
    """Bring gradients back to leaves, from nodes and the gradients of their outputs.

    Nodes come off a heap by falling number, so each has all its gradients when it
    runs: linear in the number of calls, without recursion. A node above all that wait
    runs without the heap, which makes a chain cheap.
    """
    # Number of a node -> the node, and its gradient or those of its outputs.
    pending: dict[int, list[Any]] = {}
    heap: list[int] = []
    found: dict[Leaf, Any] = {}
    pairs: Any = list(seeds)
    while True:
        if len(pairs) == 1:
            node, grad = pairs[0]
            floor = -heap[0] if heap else 0
            if type(node) not in _STOPS and node.node_number > floor:
                if node.node_is_unary and not observers:
                    pairs = _chain(node, grad, retain, floor)
                    continue
                if node.node_takes_sums and node.node_metas is None:
                    pairs = _pull_whole(node, [grad], pending, found, retain)
                    continue
                if node.node_metas is None:
                    pairs = _pull(node, (grad,), retain)
                    continue
        for node, grad in pairs:
            kind = type(node)
            if kind is Leaf:
                before = found.get(node)
                found[node] = grad if before is None else plus(before, grad)
            elif kind is Output or node.node_metas is not None:
                _add(pending, heap, node, grad)
            else:
                entry = pending.get(node.node_number)
                if entry is None:
                    pending[node.node_number] = [node, grad]
                    heappush(heap, -node.node_number)
                else:
                    before = entry[1]  # None where a node has taken it
                    entry[1] = grad if before is None else plus(before, grad)
        # Drop the names, so that no gradient lives longer than its node needs it.
        node = grad = before = pairs = entry = None
        if not heap:
            return found
        node, grad = pending.pop(-heappop(heap))
        if node.node_takes_sums:
            grads = [grad] if node.node_metas is None else grad
            grad = None
            pairs = _pull_whole(node, grads, pending, found, retain)
        elif node.node_metas is not None:
            pairs = _pull(node, grad, retain)
        else:
            pairs = [(node, grad)]


def _pull_whole(
    node: GradNode,
    grads: list[Any],
    pending: dict[int, list[Any]],
    found: dict[Leaf, Any],
    retain: bool,
) -> list[tuple[Any, Any]]:
    """As `_pull`, for a node that adds its gradients to those that have come before."""
    edges: Any = node.node_edges
    if edges is None:
        raise freed(node)
    if writes:
        check_unwritten(node)
    sums = [_taken(edge[2], pending, found) for edge in edges]
    return node.node_pull(node, grads, sums, retain)


def _taken(origin: Any, pending: dict[int, list[Any]], found: dict[Leaf, Any]) -> Any:
    """Take out the sum of the gradients that have come to an origin; None for none."""
    if type(origin) is Leaf:
        return found.pop(origin, None)
    index = None
    if type(origin) is Output:
        index, origin = origin.index, origin.node
    entry = pending.get(origin.node_number)
    if entry is None:
        return None
    if index is None:
        before, entry[1] = entry[1], None
    else:
        before, entry[1][index] = entry[1][index], None
    return before


def _pull(node: GradNode, grads: Sequence[Any], retain: bool) -> list[tuple[Any, Any]]:
    """The origin of each tracked input of a call, with its gradient."""
    edges: Any = node.node_edges
    if edges is None:
        raise freed(node)
    if node.node_is_unary:
        edges = ((node.node_slots[0], (), edges),)
    if node.node_metas is not None:  # several outputs, or one that is nested
        grads = spread(node, grads)
    if writes:
        check_unwritten(node)
    backward = node.node_backward
    if observers:
        backward = observed(node.node_op, "backward", backward, grads)
    found = backward(node, *grads)
    if not retain:
        node.node_edges = None
        node.saved_arrays = ()
    return pairs_of(node, edges, found)


def _chain(node: Any, grad: Any, retain: bool, floor: int) -> list[tuple[Any, Any]]:
    """Run a chain of unary calls with numbers above `floor` while each gradient fits.

    It does the same as `_pull` without frames, lists and checks: a third of the time.
    """
    while True:
        origin = node.node_edges
        if origin is None:
            raise freed(node)
        if writes:
            check_unwritten(node)
        grad = node.node_backward(node, grad)
        if not retain:
            node.node_edges = None
            node.saved_arrays = ()
        try:
            dtype = grad.dtype
            fits = (grad.shape == origin.node_shape) is True and (
                dtype is origin.node_dtype or dtype == origin.node_dtype
            )
        except AttributeError:  # None, a tuple, or a wrong value: see `pairs_of`
            fits = False
        if not fits:
            return pairs_of(node, ((node.node_slots[0], (), origin),), grad)
        if not origin.node_is_unary:
            return [(origin, grad)]
        if origin.node_number <= floor:
            return [(origin, grad)]
        node = origin


def _add(pending: dict[int, list[Any]], heap: list[int], node: Any, grad: Any) -> None:
    """Give a node of several outputs a gradient of one of them."""
    index = 0
    if type(node) is Output:
        index, node = node.index, node.node
    number = node.node_number
    entry = pending.get(number)
    if entry is None:
        entry = pending[number] = [node, [None] * len(flat_metas(node.node_metas))]
        heappush(heap, -number)
    grads = entry[1]
    before = grads[index]
    grads[index] = grad if before is None else plus(before, grad)


def plus(a: Any, b: Any) -> Any:
    """The sum of two gradients, by the operator where they are traced or fake."""
    if type(a) in _OF_NUMPY and type(b) in _OF_NUMPY:
        return np.add(a, b)
    return call_numpy(np.add, a, b)


_OF_NUMPY = frozenset((np.ndarray, np.float64, np.float32, np.complex128))


def freed(node: GradNode) -> GradientError:
    """The error for a second sweep through a node that has freed what it saved."""
    return node.node_op.error(
        GradientError,
        "backward runs a second time through a call whose saved arrays are freed",
        do="call backward(y, retain_graph=True) the first time",
    )
