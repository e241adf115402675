"""What reverse mode remembers: a node for each call, and the sweep back over them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush
from typing import Any

import numpy as np

from customop.arrays.describe import abbreviated, show
from customop.arrays.dtypes import is_inexact
from customop.arrays.kinds import device_of, is_array
from customop.arrays.nested import aligned, children, flat, nests, outline, steps
from customop.arrays.numpy_protocol import call_numpy
from customop.core.dispatch import Tracer
from customop.core.observe import observed, observers
from customop.core.proof import last_write, moments, writes
from customop.errors import ContractError, GradientError, place
from customop.schema.parameters import MISSING
from customop.schema.types import lead_of

__all__ = [
    "Edge",
    "Leaf",
    "Meta",
    "Node",
    "Output",
    "UnaryNode",
    "metas_of",
    "sum_to_shape",
    "sweep",
    "wrong_count",
    "wrong_list",
    "wrong_name",
    "wrong_single",
]


# What an output is like, to prove its gradient and to make zeros for it: shape, dtype,
# and device where zeros may be needed. A plain tuple, as an edge is.
Meta = tuple[Any, ...]


class Leaf:
    """Where a gradient ends: an input of the transform, or a variable."""

    __slots__ = ("_metas", "_number", "grad")

    def __init__(self, value: Any) -> None:
        self._number = next(moments)
        self._metas = (value.shape, value.dtype)
        self.grad: Any = None


class Output:
    """One of several outputs of a call: stands for its node in edges."""

    __slots__ = ("_metas", "index", "node")

    def __init__(self, node: Any, index: int, metas: Meta) -> None:
        self.node: Any = node
        self.index: int = index
        self._metas = metas


# From an input of a call to what made it: place of the parameter, places inside its
# lists, and the leaf, node or output. A plain tuple: every input of every call has one.
Edge = tuple[int, tuple[int, ...], Any]


class Node:
    """One call of an operator, as its backward formula sees it: the `ctx`.

    Rules may set attributes of their own; names with an underscore are the package's.

    Attributes
    ----------
    needs_input_grad : tuple
        For each positional input, whether its gradient is asked for; nested as the
        inputs are.
    saved_arrays : tuple of array
        What `save_for_backward` was given; `saved_tensors` is the same.
    """

    # Defaults stand on the class: a call then sets what differs from them alone.
    saved_arrays: tuple[Any, ...] = ()
    _blocked: tuple[Any, ...] = ()
    _materialize = True
    # When it was saved, where that is not when the node was made.
    _moment = 0
    _inputs: Sequence[Any] | None = None

    _is_unary = False
    # On the class of each operator's nodes, see `reverse`.
    _op: Any
    _rule: Any
    _backward: Callable[..., Any]

    def __init__(self, edges: Sequence[Edge], metas: Any = None) -> None:
        self._edges: Sequence[Edge] | None = edges
        self._metas = metas
        self._number = next(moments)

    @property
    def needs_input_grad(self) -> tuple[Any, ...]:
        """For each positional input, whether its gradient is asked for."""
        op = self._op
        edges = self._edges or ()
        if not op.nested_slots:
            slots = [edge[0] for edge in edges]
            return tuple([i in slots for i in range(op.positional_count)])
        tracked = {(edge[0], edge[1]) for edge in edges}
        values = self._inputs or ()
        return tuple(
            _nested_needs(values[slot], slot, (), tracked)
            for slot in range(op.positional_count)
        )

    def save_for_backward(self, *arrays: Any) -> None:
        """Keep arrays, or None in their places, until the backward formula runs.

        Raises
        ------
        GradientError
            If a value is no array.
        """
        for value in arrays:
            if type(value) is np.ndarray or value is None:
                continue
            if not is_array(value):
                raise GradientError(
                    f"{self._op.qualname}: save_for_backward takes arrays, got"
                    f" {show(value)}",
                    do="set other values as attributes: ctx.axis = axis",
                    op=self._op.qualname,
                )
        self.saved_arrays = arrays
        if writes:
            self._moment = next(moments)

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """Torch's name for `saved_arrays`."""
        return self.saved_arrays

    def _check_unwritten(self, kept: Iterable[tuple[Any, Any]]) -> None:
        """Raise for an array that was written after this call."""
        then = self._moment or self._number
        for name, value in kept:
            if last_write(_leaf_value(value)) > then:
                what = f"array {name}" if isinstance(name, int) else f"ctx.{name}"
                raise GradientError(
                    f"{self._op.qualname}: {what} saved for backward,"
                    f" {abbreviated(value)}, was written by an operator since",
                    self._op.schema.show(self._op.qualname),
                    do="save a copy, or write after backward",
                    op=self._op.qualname,
                )

    def _check_attributes(self) -> None:
        """Raise for an array, saved or kept as an attribute, that was written since."""
        self._check_unwritten(enumerate(self.saved_arrays))
        own = [
            (n, v)
            for n, v in vars(self).items()
            if not n.startswith("_") and n != "saved_arrays"
        ]
        self._check_unwritten((n, leaf) for n, v in own for leaf in flat(v))

    def mark_non_differentiable(self, *outputs: Any) -> None:
        """Say that no gradient flows through these outputs."""
        self._blocked = outputs

    def set_materialize_grads(self, value: bool) -> None:
        """Say whether missing gradients of outputs come as zeros or as None."""
        self._materialize = value

    def _writes_gradient(self) -> ContractError:
        return ContractError(
            f"{self._op.qualname}: backward writes a gradient that it is given",
            self._op.schema.show(self._op.qualname),
            f"backward at {place(self._rule.backward)}",
            do="compute a new array: g = g * 2.0 instead of g *= 2.0",
            op=self._op.qualname,
            kind="autograd",
        )

    def _freed(self) -> GradientError:
        return GradientError(
            f"{self._op.qualname}: backward runs a second time through a call whose saved"
            " arrays are freed",
            self._op.schema.show(self._op.qualname),
            do="call backward(y, retain_graph=True) the first time",
            op=self._op.qualname,
        )

    def _pull(self, grads: Sequence[Any], retain: bool) -> list[tuple[Any, Any]]:
        """What makes each tracked input, and its gradient, from those of the outputs."""
        edges = self._edges
        if edges is None:
            raise self._freed()
        if type(self._metas) is list:  # several outputs, or one that is nested
            grads = self._spread(grads)
        if writes:
            self._check_attributes()
        backward = self._backward
        if observers:
            backward = observed(self._op, "backward", backward, grads)
        found = backward(self, *grads)
        if not retain:
            self._edges = None
            self.saved_arrays = ()
        return self._pairs(edges, found)

    def _pairs(self, edges: Sequence[Edge], found: Any) -> list[tuple[Any, Any]]:
        if type(found) is not tuple:
            found = self._as_tuple(edges, found)
        elif len(found) != self._op.positional_count:
            self._check_count(edges, found)
        pairs = []
        for slot, path, node in edges:
            grad = found[slot] if slot < len(found) else self._no_slot(slot)
            if path:
                grad = self._item(grad, slot, path)
            if grad is None:
                continue
            meta = node._metas
            try:
                fits = grad.shape == meta[0] and grad.dtype == meta[1]
            except AttributeError:
                fits = False
            pairs.append((node, grad if fits else self._fitted(grad, slot, meta)))
        if len(found) > 1:
            self._check_untracked(found)
        return pairs

    # ---- gradients of the outputs ----

    def _spread(self, grads: Sequence[Any]) -> list[Any]:
        """Gradients nested as the outputs are, with zeros where none came."""
        flow = iter(grads)

        def take(meta: Meta | None) -> Any:
            grad = next(flow)
            if grad is None and meta is not None and self._materialize:
                shape, dtype, device = meta
                return call_numpy(np.zeros, shape, dtype, device=device)
            return grad

        return [_map_metas(meta, take) for meta in self._metas]

    # ---- gradients of the inputs ----

    def _as_tuple(self, edges: Sequence[Edge], found: Any) -> tuple[Any, ...]:
        count = self._op.positional_count
        if count == 1 and not isinstance(found, list | dict):
            return (found,)
        names = [p.name for p in self._op.schema.positional]
        if isinstance(found, dict):
            return self._by_name(edges, found)
        if isinstance(found, list):
            raise self._wrong(*wrong_list(len(found), names))
        if self._rest_is_free(edges, 1):
            return (found, *(None,) * (count - 1))
        raise self._wrong(*wrong_single(names))

    def _by_name(self, edges: Sequence[Edge], found: dict[str, Any]) -> tuple[Any, ...]:
        parameters = self._op.schema.parameters
        names = [p.name for p in parameters]
        unknown = [name for name in found if name not in names]
        if unknown:
            raise self._wrong(*wrong_name(unknown[0], names))
        for slot in {edge[0] for edge in edges}:
            if names[slot] not in found:
                raise self._wrong(
                    f"returned no gradient for '{names[slot]}', which one is asked for",
                    f"return {{'{names[slot]}': ...}} too, None for no gradient",
                    names[slot],
                )
        return tuple(found.get(name) for name in names)

    def _rest_is_free(self, edges: Sequence[Edge], count: int) -> bool:
        """Whether no gradient is asked for from position `count` on."""
        positional = self._op.schema.positional
        has_defaults = all(p.default is not MISSING for p in positional[count:])
        slots = [edge[0] for edge in edges]
        return has_defaults and not any(count <= s < len(positional) for s in slots)

    def _check_count(self, edges: Sequence[Edge], found: tuple[Any, ...]) -> None:
        count = self._op.positional_count
        if len(found) == len(self._op.schema.parameters):
            return
        if len(found) < count and self._rest_is_free(edges, len(found)):
            return
        names = [p.name for p in self._op.schema.positional]
        raise self._wrong(*wrong_count(len(found), names))

    def _no_slot(self, slot: int) -> Any:
        name = self._op.schema.parameters[slot].name
        raise self._wrong(
            f"returned no gradient for the keyword-only argument '{name}'",
            f"return gradients as a dict: {{'{name}': ...}}, None for no gradient",
            name,
        )

    def _item(self, grad: Any, slot: int, path: tuple[int, ...]) -> Any:
        inputs = (self._inputs or ())[slot]
        for step in path:
            if grad is None:
                return None
            items = aligned(inputs, grad)
            if items is None:
                raise self._misaligned(grad, inputs, slot)
            grad, inputs = items[step], children(inputs)[step]  # type: ignore[index]  # a path leads through it
        return grad

    def _misaligned(self, grad: Any, inputs: Any, slot: int) -> GradientError:
        name = self._op.schema.parameters[slot].name
        many = isinstance(grad, list | tuple)
        seen = f"{len(grad)} gradients" if many else show(grad)
        if isinstance(inputs, list | tuple) and not hasattr(inputs, "_fields"):
            return self._wrong(
                f"returned {seen} for the {len(inputs)} items of '{name}'",
                f"return a list with a gradient for each item of '{name}'",
                name,
            )
        known = ", ".join(map(repr, steps(inputs)))
        return self._wrong(
            f"returned {seen} for '{name}', an object of {type(inputs).__name__}",
            f"return a dict of gradients by the names {known}, or such an object",
            name,
        )

    def _fitted(self, grad: Any, slot: int, meta: Meta) -> Any:
        """A gradient summed down to the shape of its input, of the same dtype."""
        shape, dtype = meta[:2]
        name = self._op.schema.parameters[slot].name
        if not is_array(grad):
            raise self._wrong(
                f"returned {show(grad)} for '{name}', must be an array of shape"
                f" {tuple(shape)}",
                "return an array, or None for no gradient",
                name,
            )
        if grad.dtype != dtype:
            raise self._wrong(
                f"returned a gradient of dtype {grad.dtype} for '{name}' of dtype {dtype}",
                f"return g.astype(x.dtype) for '{name}'",
                name,
            )
        p = self._op.schema.parameters[slot]
        summed = sum_to_shape(grad, tuple(shape), lead_of(p.type))
        if summed is None:
            raise self._wrong(
                f"returned a gradient of shape {tuple(grad.shape)} for '{name}' of shape"
                f" {tuple(shape)}",
                f"return a gradient of the shape of '{name}'",
                name,
            )
        return summed

    def _check_untracked(self, found: tuple[Any, ...]) -> None:
        """Raise for a gradient of something that can have none."""
        slots = (*self._op.array_slots, *self._op.nested_slots)
        for i, grad in enumerate(found):
            if grad is not None and i not in slots:
                p = self._op.schema.parameters[i]
                raise self._wrong(
                    f"returned {show(grad)} for '{p.name}' of type {p.type}, which has no"
                    " gradient",
                    f"return None for '{p.name}'",
                    p.name,
                )

    def _wrong(self, what: str, do: str, parameter: str = "") -> GradientError:
        qualname = self._op.qualname
        return GradientError(
            f"{qualname}: backward {what}",
            self._op.schema.show(qualname, parameter),
            f"backward at {place(self._rule.backward)}",
            do=do,
            op=qualname,
            parameter=parameter or None,
            kind="autograd",
        )


def _map_metas(meta: Any, take: Callable[[Any], Any]) -> Any:
    """Apply `take` to each meta of one output, nested lists kept."""
    if type(meta) is list:
        return [_map_metas(m, take) for m in meta]
    if type(meta) in nests:
        found = children(meta) or ()
        return outline(meta, [_map_metas(m, take) for m in found])
    return take(meta)


def _leaf_value(value: Any) -> Any:
    """The real array at the bottom of a tracer."""
    while isinstance(value, Tracer):
        value = value.value
    return value


def sum_to_shape(grad: Any, shape: tuple[int, ...], lead: int = 0) -> Any:
    """Sum a broadcast gradient back to `shape`; None where it cannot have come from it.

    Summing over the axes that broadcasting added or stretched is the transpose of
    broadcasting. Axes are added behind the first `lead` ones.
    """
    have = tuple(grad.shape)
    extra = len(have) - len(shape)
    if extra < 0:
        return None
    places = [*range(lead), *range(lead + extra, len(have))]
    pairs = [(i, have[i], b) for i, b in zip(places, shape, strict=True)]
    if any(b not in (a, 1) for _, a, b in pairs):
        return None
    axes = [*range(lead, lead + extra), *(i for i, a, b in pairs if a != b)]
    summed = call_numpy(np.sum, grad, axis=tuple(axes)) if axes else grad
    return (
        summed
        if tuple(summed.shape) == shape
        else call_numpy(np.reshape, summed, shape)
    )


def _nested_needs(
    value: Any, slot: int, path: tuple[int, ...], tracked: set[Any]
) -> Any:
    found = children(value)
    if found is None:
        return (slot, path) in tracked
    needs = [_nested_needs(v, slot, (*path, i), tracked) for i, v in enumerate(found)]
    return needs if type(value) is tuple else outline(value, needs)


class UnaryNode(Node):
    """A call with one array, which comes first, and one array as its result.

    Its `_edges` is what made that array, with no tuples around it: 40 ns a call.
    """

    _is_unary = True

    @property
    def needs_input_grad(self) -> tuple[Any, ...]:
        """For each positional input, whether its gradient is asked for."""
        return (True, *(False,) * (self._op.positional_count - 1))

    def _pull(self, grads: Sequence[Any], retain: bool) -> list[tuple[Any, Any]]:
        after: Any = self._edges
        self._edges = None if after is None else ((0, (), after),)
        try:
            return super()._pull(grads, retain)
        finally:
            if retain:
                self._edges = after


# ---- which values have derivatives ----


def is_in(value: Any, values: Iterable[Any]) -> bool:
    return any(value is item for item in values)


def is_differentiable(value: Any, blocked: Sequence[Any]) -> bool:
    return is_array(value) and is_inexact(value.dtype) and not is_in(value, blocked)


def metas_of(part: Any, blocked: Sequence[Any]) -> Any:
    """Metas of one output, nested as it is; None where no gradient can flow."""
    found = children(part)
    if found is not None:
        metas = [metas_of(item, blocked) for item in found]
        return outline(part, metas) if type(part) in nests else metas
    if not is_differentiable(part, blocked):
        return None
    return (tuple(part.shape), part.dtype, device_of(part))


class _Inexact(dict[Any, bool]):
    """Dtype -> whether its values have derivatives."""

    def __missing__(self, dtype: Any) -> bool:
        self[dtype] = found = is_inexact(dtype)
        return found


inexact: _Inexact = _Inexact()


# ---- the backward sweep ----


def sweep(seeds: Iterable[tuple[Any, Any]], *, retain: bool) -> dict[Leaf, Any]:
    """Bring gradients back to leaves, from nodes and the gradients of their outputs.

    Nodes come off a heap by falling number, so each has all its gradients when it
    runs: linear in the number of calls, without recursion. A node that is alone in
    flight goes on at once, which makes a chain cheap.
    """
    pending: dict[int, tuple[Any, list[Any]]] = {}
    heap: list[int] = []
    found: dict[Leaf, Any] = {}
    pairs: Any = list(seeds)
    while True:
        if len(pairs) == 1 and not heap and type(pairs[0][0]) not in _SEVERAL:
            node, grad = pairs[0]
            if node._is_unary and not observers:
                pairs = _chain(node, grad, retain)
            else:
                pairs = node._pull((grad,), retain)
            continue
        for node, grad in pairs:
            if type(node) is Leaf:
                before = found.get(node)
                found[node] = grad if before is None else plus(before, grad)
            else:
                _add(pending, heap, node, grad)
        # No name may hold a gradient longer than its node needs it.
        node = grad = before = pairs = None
        if not heap:
            return found
        node, grads = pending.pop(-heappop(heap))
        pairs = node._pull(grads, retain)


def _chain(node: Any, grad: Any, retain: bool) -> list[tuple[Any, Any]]:
    """Run calls of one array one after the other, as long as each gradient fits.

    What `_pull` does, without its frame, lists and questions: a third of its time.
    """
    while True:
        after = node._edges
        if after is None:
            raise node._freed()
        if writes:
            node._check_attributes()
        grad = node._backward(node, grad)
        if not retain:
            node._edges = None
            node.saved_arrays = ()
        meta = after._metas
        try:
            fits = grad.shape == meta[0] and grad.dtype == meta[1]
        except AttributeError:  # None, a tuple, or no array: `_pairs` says which
            fits = False
        if not fits:
            return node._pairs(((0, (), after),), grad)  # type: ignore[no-any-return]
        if type(after) in _SEVERAL or not after._is_unary:
            return [(after, grad)]
        node = after


# What a gradient cannot go straight on from: ends, and one output of several.
_SEVERAL = (Leaf, Output)


def _add(
    pending: dict[int, tuple[Any, list[Any]]], heap: list[int], node: Any, grad: Any
) -> None:
    """Give a node a gradient of one of its outputs."""
    index = 0
    if type(node) is Output:
        index, node = node.index, node.node
    number = node._number
    entry = pending.get(number)
    if entry is None:
        metas = node._metas
        count = len(flat_metas(metas)) if type(metas) is list else 1
        entry = pending[number] = (node, [None] * count)
        heappush(heap, -number)
    grads = entry[1]
    before = grads[index]
    grads[index] = grad if before is None else plus(before, grad)


def plus(a: Any, b: Any) -> Any:
    """The sum of two gradients, by the operator where they are traced or fake."""
    return call_numpy(np.add, a, b)


def flat_metas(outputs: Any) -> list[Any]:
    """Metas of all outputs, one for each place that an edge can name."""
    if type(outputs) is list or type(outputs) in nests:
        return [leaf for item in children(outputs) or () for leaf in flat_metas(item)]
    return [outputs]


def wrong_name(name: str, names: Sequence[str]) -> tuple[str, str]:
    """The same of a gradient for what is no parameter."""
    return (
        f"returned a gradient for '{name}', which is no parameter",
        f"use the names {', '.join(names)}",
    )


def wrong_list(count: int, names: Sequence[str]) -> tuple[str, str]:
    """The same of gradients in a list."""
    shown = ", ".join(names)
    return (
        f"returned a list of {count}, must return a tuple, a gradient for each of {shown}",
        f"return ({', '.join('g_' + n for n in names)},)",
    )


def wrong_single(names: Sequence[str]) -> tuple[str, str]:
    """The same of a gradient that stands alone."""
    return (
        f"returned one gradient, must return {len(names)}: {', '.join(names)}",
        f"return ({', '.join('g_' + n for n in names)}), None for no gradient",
    )


def wrong_count(count: int, names: Sequence[str]) -> tuple[str, str]:
    """What is wrong with a number of gradients for inputs of these names; what to do."""
    return (
        f"returned {count} gradients, must return {len(names)}: {', '.join(names)}",
        "return one gradient for each positional input, None for no gradient",
    )
