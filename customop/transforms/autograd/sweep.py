"""The backward sweep, and checks of the gradients that formulas return."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from typing import Any

import numpy as np

from customop.arrays.array import in_byte_order
from customop.arrays.kinds import is_array
from customop.arrays.nested import aligned, children, nests, outline, show, steps
from customop.arrays.numpy_functions import call_numpy
from customop.core.collector import calmed, grow, last_moment, quicken
from customop.core.contract import writes
from customop.core.observe import observed, observers
from customop.core.rule_makers import Partials, in_dtype
from customop.errors import GradientError
from customop.schema.types import MISSING, ListOf, Maybe, Parameter, SchemaType
from customop.shapes.notation import as_name
from customop.shapes.sizes import is_known, same_shape, same_size
from customop.transforms.autograd.reverse import check_unwritten
from customop.transforms.autograd.tape import (
    Edge,
    GradNode,
    Leaf,
    Meta,
    Output,
    flat_metas,
)


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
            last_moment[0] = grow()
            if calmed:  # the tape is gone now, or most of it
                quicken()
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


# Gradients of these cannot go straight on: they end here, or wait for other outputs.
_STOPS = (Leaf, Output)


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


def _pull(node: GradNode, grads: Sequence[Any], retain: bool) -> list[tuple[Any, Any]]:
    """Return the origin of each tracked input of a call, with its gradient."""
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


def _pull_whole(
    node: GradNode,
    grads: list[Any],
    pending: dict[int, list[Any]],
    found: dict[Leaf, Any],
    retain: bool,
) -> list[tuple[Any, Any]]:
    """Do what `_pull` does, for a node that adds its gradients to earlier ones."""
    edges: Any = node.node_edges
    if edges is None:
        raise freed(node)
    if writes:
        check_unwritten(node)
    sums = [_taken(edge[2], pending, found) for edge in edges]
    return node.node_pull(node, grads, sums, retain)


def _taken(origin: Any, pending: dict[int, list[Any]], found: dict[Leaf, Any]) -> Any:
    """Take out the sum of the gradients that have come to an origin, or None."""
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
    """Return the sum of two gradients, by the operator if they are traced or fake."""
    if type(a) in _OF_NUMPY and type(b) in _OF_NUMPY:
        return np.add(a, b)
    return call_numpy(np.add, a, b)


_OF_NUMPY = frozenset((np.ndarray, np.float64, np.float32, np.complex128))


def freed(node: GradNode) -> GradientError:
    """Return the error for a second sweep through a node that has freed what it saved."""
    return node.node_op.error(
        GradientError,
        "backward runs a second time through a call whose saved arrays are freed",
        do="call backward(y, retain_graph=True) the first time",
    )


# ---- gradients of the outputs ----


def spread(node: GradNode, grads: Sequence[Any]) -> list[Any]:
    """Return gradients nested as the outputs are, with zeros in place of missing ones."""
    flow = iter(grads)

    def take(meta: Meta | None) -> Any:
        grad = next(flow)
        if grad is None and meta is not None and node.node_materialize:
            shape, dtype, device = meta
            return call_numpy(np.zeros, shape, dtype, device=device)
        return grad

    return [_map_metas(meta, take) for meta in node.node_metas or ()]


def _map_metas(meta: Any, take: Callable[[Any], Any]) -> Any:
    """Apply `take` to each meta of one output, and keep the nesting."""
    if type(meta) is tuple or type(meta) not in nests:
        return take(meta)
    return outline(meta, [_map_metas(m, take) for m in children(meta) or ()])


# ---- gradients of the inputs ----


def pairs_of(
    node: GradNode, edges: Sequence[Edge], found: Any
) -> list[tuple[Any, Any]]:
    """Return the origin of each tracked input with its gradient, from what a formula gave."""
    if node.node_is_partial:
        return _partial_pairs(node, edges, found)
    if type(found) is not tuple:
        found = _as_tuple(node, edges, found)
    elif len(found) != node.node_op.positional_count:
        _check_count(node, edges, found)
    pairs = []
    for slot, path, origin in edges:
        grad = found[slot] if slot < len(found) else _no_slot(node, slot)
        if path:
            grad = _item(node, grad, slot, path)
        if grad is None:
            continue
        try:
            shape, dtype = grad.shape, grad.dtype
            fits = (shape == origin.node_shape) is True and dtype == origin.node_dtype
        except AttributeError:
            fits = False
        pairs.append((origin, grad if fits else _fitted(node, grad, slot, origin)))
    if len(found) > 1:
        _check_untracked(node, found)
    return pairs


def _partial_pairs(
    node: GradNode, edges: Sequence[Edge], found: Any
) -> list[tuple[Any, Any]]:
    """Do what `pairs_of` does, for gradients of the tracked arguments alone.

    In one loop with the other they take 2 % of a call more.
    """
    pairs = []
    # As many gradients as edges: the generated formula returns one for each.
    grads = found if len(edges) > 1 else (found,)
    for (slot, _, origin), grad in zip(edges, grads):  # noqa: B905  # of one length
        try:
            shape, dtype = grad.shape, grad.dtype
            fits = (shape == origin.node_shape) is True and dtype == origin.node_dtype
        except AttributeError:
            fits = False
        pairs.append((origin, grad if fits else _fitted(node, grad, slot, origin)))
    return pairs


def _as_tuple(node: GradNode, edges: Sequence[Edge], found: Any) -> tuple[Any, ...]:
    count = node.node_op.positional_count
    positional = node.node_op.schema.positional
    if count == 1 and not isinstance(found, list | dict):
        return (found,)
    if count == 1 and isinstance(found, list) and _is_list(positional[0].type):
        return (found,)
    names = [p.name for p in positional]
    if isinstance(found, dict):
        return _by_name(node, edges, found)
    if isinstance(found, list):
        raise _wrong(node, *wrong_list(len(found), names))
    if _rest_is_free(node, edges, 1):
        return (found, *(None,) * (count - 1))
    raise _wrong(node, *wrong_single(names))


def _is_list(declared: SchemaType) -> bool:
    return isinstance(
        declared.item if isinstance(declared, Maybe) else declared, ListOf
    )


def _by_name(
    node: GradNode, edges: Sequence[Edge], found: dict[str, Any]
) -> tuple[Any, ...]:
    names = [p.name for p in node.node_op.schema.parameters]
    unknown = [name for name in found if name not in names]
    if unknown and all(isinstance(name, str) for name in found):
        found = {as_name(name): grad for name, grad in found.items()}
        unknown = [name for name in found if name not in names]
    if unknown:
        raise _wrong(node, *wrong_name(unknown[0], names))
    for slot in {edge[0] for edge in edges}:
        name = names[slot]
        if name not in found:
            raise _wrong(
                node,
                f"returned no gradient for '{name}', which needs one",
                f"return {{'{name}': ...}} too, None for no gradient",
                name,
            )
    return tuple(found.get(name) for name in names)


def _rest_is_free(node: GradNode, edges: Sequence[Edge], count: int) -> bool:
    """Return whether no input from position `count` on needs a gradient."""
    positional = node.node_op.schema.positional
    has_defaults = all(p.default is not MISSING for p in positional[count:])
    slots = [edge[0] for edge in edges]
    return has_defaults and not any(count <= s < len(positional) for s in slots)


def _check_count(node: GradNode, edges: Sequence[Edge], found: tuple[Any, ...]) -> None:
    schema = node.node_op.schema
    if len(found) == len(schema.parameters):
        return
    is_short = len(found) < node.node_op.positional_count
    if not is_short or not _rest_is_free(node, edges, len(found)):
        names = [p.name for p in schema.positional]
        raise _wrong(node, *wrong_count(len(found), names))


def _check_untracked(node: GradNode, found: tuple[Any, ...]) -> None:
    """Raise for a gradient of an argument that is not an array."""
    op = node.node_op
    for i, grad in enumerate(found):
        if grad is None or i in op.array_slots or i in op.nested_slots:
            continue
        p = op.schema.parameters[i]
        raise _wrong(node, *wrong_input(show(grad), p), p.name)


def _no_slot(node: GradNode, slot: int) -> Any:
    name = node.node_op.schema.parameters[slot].name
    raise _wrong(
        node,
        f"returned no gradient for the keyword-only argument '{name}'",
        f"return gradients as a dict: {{'{name}': ...}}, None for no gradient",
        name,
    )


def _item(node: GradNode, grad: Any, slot: int, path: tuple[int, ...]) -> Any:
    inputs = node.node_inputs[slot]
    if type(grad) is list and type(inputs) is list and len(grad) == len(inputs):
        grad, inputs, path = grad[path[0]], inputs[path[0]], path[1:]
    for step in path:
        if grad is None:
            return None
        items = aligned(inputs, grad)
        if items is None:
            raise _misaligned(node, grad, inputs, slot)
        grad, inputs = items[step], children(inputs)[step]  # type: ignore[index]  # a path leads through it
    return grad


def _misaligned(node: GradNode, grad: Any, inputs: Any, slot: int) -> GradientError:
    name = node.node_op.schema.parameters[slot].name
    many = isinstance(grad, list | tuple)
    seen = f"{len(grad)} gradients" if many else show(grad)
    if isinstance(inputs, list | tuple) and not hasattr(inputs, "_fields"):
        return _wrong(
            node,
            f"returned {seen} for the {len(inputs)} items of '{name}'",
            f"return a list with a gradient for each item of '{name}'",
            name,
        )
    known = ", ".join(map(repr, steps(inputs)))
    return _wrong(
        node,
        f"returned {seen} for '{name}', an object of {type(inputs).__name__}",
        f"return a dict of gradients by the names {known}, or such an object",
        name,
    )


# ---- gradients in the shape and dtype of their inputs ----


def _fitted(node: GradNode, grad: Any, slot: int, origin: Any) -> Any:
    """Sum a gradient to the shape of its input; raise if it cannot fit."""
    shape, dtype = origin.node_shape, origin.node_dtype
    p = node.node_op.schema.parameters[slot]
    if type(grad) is np.ndarray and grad.dtype == dtype and not p.lead:
        extra = grad.ndim - len(shape)
        if extra > 0 and grad.shape[extra:] == shape:
            # The usual case, of a bias: a fifth of the time.
            return np.add.reduce(grad, axis=0 if extra == 1 else tuple(range(extra)))
        if extra >= 0 and (summed := _plain_sum(grad, shape, extra)) is not None:
            return summed
    if type(grad) is np.ndarray and isinstance(node.node_rule, Partials):
        grad = in_dtype(grad, dtype)
        if grad.shape == tuple(shape):
            return grad
    if not is_array(grad):
        raise _wrong(
            node,
            f"returned {show(grad)} for '{p.name}', must be an array of shape"
            f" {tuple(shape)}",
            "return an array, or None for no gradient",
            p.name,
        )
    if grad.dtype != dtype and isinstance(node.node_rule, Partials):
        grad = in_dtype(grad, dtype)
    grad = in_byte_order(grad, dtype)
    if grad.dtype != dtype:
        raise _wrong(
            node,
            f"returned a gradient of dtype {grad.dtype} for '{p.name}' of dtype {dtype}",
            f"return g.astype(x.dtype) for '{p.name}'",
            p.name,
        )
    summed = _sum_to_shape(grad, tuple(shape), p.lead)
    if summed is None:
        raise _wrong(
            node,
            f"returned a gradient of shape {tuple(grad.shape)} for '{p.name}' of shape"
            f" {tuple(shape)}",
            f"return a gradient of the shape of '{p.name}'",
            p.name,
        )
    return summed


def _plain_sum(grad: Any, shape: Any, extra: int) -> Any:
    """Do what `_sum_to_shape` does for NumPy and plain lengths, in a fifth of the time."""
    if not _LENGTHS.issuperset(map(type, shape)):
        return None
    axes = list(range(extra))
    for i, (n, own) in enumerate(zip(grad.shape[extra:], shape, strict=True), extra):
        if n != own:
            if own != 1:
                return None
            axes.append(i)
    return np.add.reduce(grad, tuple(axes), keepdims=True).reshape(shape)


_LENGTHS = frozenset((int,))


def _sum_to_shape(grad: Any, shape: tuple[int, ...], lead: int = 0) -> Any:
    """Sum a broadcast gradient to `shape`; return None if it was not broadcast from it.

    Summing over the axes that broadcasting added or stretched is the transpose of
    broadcasting. Axes are added after the first `lead` ones.
    """
    have = tuple(grad.shape)
    extra = len(have) - len(shape)
    if extra < 0:
        return None
    places = [*range(lead), *range(lead + extra, len(have))]
    axes = [*range(lead, lead + extra)]
    for i, own in zip(places, shape, strict=True):
        # Only sizes of which nothing is certain are compared, with a guard.
        if same_size(have[i], own) or (not is_known(own, 1) and have[i] == own):
            continue
        if own != 1:
            return None
        axes.append(i)
    summed = call_numpy(np.sum, grad, axis=tuple(axes)) if axes else grad
    if same_shape(summed.shape, shape):
        return summed
    return call_numpy(np.reshape, summed, shape)


# ---- messages ----


def _wrong(node: GradNode, what: str, do: str, parameter: str = "") -> GradientError:
    return node.node_op.error(
        GradientError,
        f"backward {what}",
        f"backward at {node.node_rule.backward_place}",
        do=do,
        parameter=parameter,
        kind="autograd",
    )


def wrong_input(grad: str, p: Parameter) -> tuple[str, str]:
    """Return the fault and the remedy for a gradient of what is not an array."""
    return (
        f"returned {grad} for '{p.name}' of type {p.type}, which has no gradient",
        f"return None for '{p.name}'",
    )


def wrong_count(count: int, names: Sequence[str]) -> tuple[str, str]:
    """Return the fault and the remedy for a wrong number of gradients."""
    return (
        f"returned {count} gradients, must return {len(names)}: {', '.join(names)}",
        "return one gradient for each positional input, None for no gradient",
    )


def wrong_name(name: str, names: Sequence[str]) -> tuple[str, str]:
    """Return the fault and the remedy for a gradient of an unknown parameter."""
    return (
        f"returned a gradient for '{name}', which is not a parameter",
        f"use the names {', '.join(names)}",
    )


def wrong_list(count: int, names: Sequence[str]) -> tuple[str, str]:
    """Return the fault and the remedy for gradients in a list."""
    wanted = f"a tuple with a gradient for each of {', '.join(names)}"
    return (
        f"returned a list of {count}, must return {wanted}",
        f"return ({', '.join('g_' + n for n in names)},)",
    )


def wrong_single(names: Sequence[str]) -> tuple[str, str]:
    """Return the fault and the remedy for a single gradient of several inputs."""
    return (
        f"returned one gradient, must return {len(names)}: {', '.join(names)}",
        f"return ({', '.join('g_' + n for n in names)}), None for no gradient",
    )
