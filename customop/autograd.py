"""Reverse mode: one interpreter, one node an operator call, one backward sweep."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from contextlib import ContextDecorator
from functools import wraps
from heapq import heappop, heappush
from typing import Any, TypeVar

import numpy as np
from typing_extensions import ParamSpec

from customop.annotations import Array
from customop.codegen import generate
from customop.contracts import version_of, versions
from customop.devices import TRACED, kind_of
from customop.dispatch import (
    Interpreter,
    Mode,
    Tracer,
    current_mode,
    flat,
    is_array,
    map_nested,
)
from customop.errors import GradientError, caller_place, place
from customop.fakearray import device_of
from customop.kinds import RuleKind, Tag
from customop.library import custom_op
from customop.operator import AUTOGRAD, Formula
from customop.protocols import abbreviated, call_numpy
from customop.schema import MISSING, show
from customop.tree import flatten, map_leaves, unflatten

__all__ = [
    "GradTracer",
    "backward",
    "enable_grad",
    "grad",
    "native",
    "no_grad",
    "stop_gradient",
    "value_and_grad",
    "variable",
    "vjp",
]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

# Nodes are numbered as they are made: a node's inputs have lower numbers.
_numbers = itertools.count()


class GradTracer(Tracer):
    """A value that a gradient is asked for, or that depends on one.

    Attributes
    ----------
    grad : array or None
        For a `variable`: the gradients of all `backward` calls so far, summed.
    """

    __slots__ = ("node",)

    def __init__(self, interpreter: Interpreter, value: Any, node: Any) -> None:
        self.interpreter = interpreter
        self.value = value
        self.node = node

    @property
    def grad(self) -> Any:
        """Sum of the gradients that `backward` has brought to a `variable`, or None."""
        return self.node.grad if type(self.node) is Leaf else None

    @grad.setter
    def grad(self, value: Any) -> None:
        if type(self.node) is not Leaf:
            raise GradientError(
                "only a variable has a gradient to set", do="set it on x = variable(a)"
            )
        self.node.grad = value

    def backward(self, gradient: Any = None, *, retain_graph: bool = False) -> None:
        """Bring the gradient of this value to its variables; see `backward`."""
        backward(self, gradient, retain_graph=retain_graph)


# What an output is like, to prove its gradient and to make zeros for it: shape, dtype,
# and device where zeros may be needed. A plain tuple, as an edge is.
Meta = tuple[Any, ...]


class _Inexact(dict[Any, bool]):
    """Dtype -> whether its values have derivatives."""

    def __missing__(self, dtype: Any) -> bool:
        self[dtype] = found = is_inexact(dtype)
        return found


class Leaf:
    """Where a gradient ends: an input of the transform, or a variable."""

    __slots__ = ("_metas", "_number", "grad")

    def __init__(self, value: Any) -> None:
        self._number = next(_numbers)
        self._metas = (value.shape, value.dtype)
        self.grad: Any = None


class Output:
    """One of several outputs of a call: stands for its node in edges."""

    __slots__ = ("_metas", "index", "node")

    def __init__(self, node: Any, index: int, metas: Meta) -> None:
        self.node = node
        self.index = index
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
    _saved: tuple[Any, ...] = ()
    _versions: tuple[int, ...] | None = None
    _blocked: tuple[Any, ...] = ()
    _materialize = True
    _inputs: Sequence[Any] | None = None

    # On the class of each operator's nodes, see `_node_class`.
    _op: Any
    _rule: Any

    def __init__(self, edges: Sequence[Edge], metas: Any = None) -> None:
        self._edges: Sequence[Edge] | None = edges
        self._metas = metas
        self._number = next(_numbers)

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
            if value is not None and kind_of[type(value)] is None:
                raise GradientError(
                    f"{self._op.qualname}: save_for_backward takes arrays, got"
                    f" {show(value)}",
                    do="set other values as attributes: ctx.axis = axis",
                    op=self._op.qualname,
                )
        self._saved = arrays
        if versions:
            self._versions = tuple([version_of(_leaf_value(v)) for v in arrays])

    @property
    def saved_arrays(self) -> tuple[Any, ...]:
        """What was saved, proven not to have been written since.

        Raises
        ------
        GradientError
            If the graph has been freed, or an operator has written a saved array.
        """
        if versions:
            self._check_versions()
        return self._saved

    saved_tensors = saved_arrays

    def _check_versions(self) -> None:
        before = self._versions or (0,) * len(self._saved)
        for i, (value, then) in enumerate(zip(self._saved, before, strict=True)):
            now = version_of(_leaf_value(value))
            if now != then:
                raise GradientError(
                    f"{self._op.qualname}: array {i} saved for backward,"
                    f" {abbreviated(value)}, was written by an operator since: version"
                    f" {now}, saved at version {then}",
                    self._op.schema.show(self._op.qualname),
                    do="save a copy, or write after backward",
                    op=self._op.qualname,
                )

    def mark_non_differentiable(self, *outputs: Any) -> None:
        """Say that no gradient flows through these outputs."""
        self._blocked = outputs

    def set_materialize_grads(self, value: bool) -> None:
        """Say whether missing gradients of outputs come as zeros or as None."""
        self._materialize = value

    def _freed(self) -> GradientError:
        return GradientError(
            f"{self._op.qualname}: backward runs a second time through a call whose saved"
            " arrays are freed",
            self._op.schema.show(self._op.qualname),
            do="call backward(y, retain_graph=True) the first time",
            op=self._op.qualname,
        )

    def pull(self, grads: Sequence[Any], retain: bool) -> list[tuple[Any, Any]]:
        """What makes each tracked input, and its gradient, from those of the outputs."""
        edges = self._edges
        if edges is None:
            raise self._freed()
        if type(self._metas) is list:
            grads = self._spread(grads)
        found = self._rule.backward(self, *grads)
        if not retain:
            self._edges = None
            self._saved = ()
        return self._pairs(edges, found)

    def _pairs(self, edges: Sequence[Edge], found: Any) -> list[tuple[Any, Any]]:
        if type(found) is not tuple:
            found = self._as_tuple(found)
        elif len(found) != self._op.positional_count:
            self._check_count(found)
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

    def _as_tuple(self, found: Any) -> tuple[Any, ...]:
        count = self._op.positional_count
        if count == 1 and not isinstance(found, list | dict):
            return (found,)
        names = [p.name for p in self._op.schema.positional]
        if isinstance(found, dict):
            return self._by_name(found)
        if isinstance(found, list):
            raise self._wrong(
                f"returned a list of {len(found)}, must return a tuple, a gradient for"
                f" each of {', '.join(names)}",
                f"return ({', '.join('g_' + n for n in names)},)",
            )
        if self._rest_is_free(1):
            return (found, *(None,) * (count - 1))
        raise self._wrong(
            f"returned one gradient, must return {count}: {', '.join(names)}",
            f"return ({', '.join('g_' + n for n in names)}), None for no gradient",
        )

    def _by_name(self, found: dict[str, Any]) -> tuple[Any, ...]:
        parameters = self._op.schema.parameters
        names = [p.name for p in parameters]
        unknown = [name for name in found if name not in names]
        if unknown:
            raise self._wrong(
                f"returned a gradient for '{unknown[0]}', which is no parameter",
                f"use the names {', '.join(names)}",
            )
        return tuple(found.get(name) for name in names)

    def _rest_is_free(self, count: int) -> bool:
        """Whether no gradient is asked for from position `count` on."""
        positional = self._op.schema.positional
        has_defaults = all(p.default is not MISSING for p in positional[count:])
        slots = [edge[0] for edge in self._edges or ()]
        return has_defaults and not any(count <= s < len(positional) for s in slots)

    def _check_count(self, found: tuple[Any, ...]) -> None:
        count = self._op.positional_count
        if len(found) == len(self._op.schema.parameters):
            return
        if len(found) < count and self._rest_is_free(len(found)):
            return
        names = [p.name for p in self._op.schema.positional]
        raise self._wrong(
            f"returned {len(found)} gradients, must return {count}: {', '.join(names)}",
            "return one gradient for each positional input, None for no gradient",
        )

    def _no_slot(self, slot: int) -> Any:
        name = self._op.schema.parameters[slot].name
        raise self._wrong(
            f"returned no gradient for the keyword-only argument '{name}'",
            f"return gradients as a dict: {{'{name}': ...}}, None for no gradient",
            name,
        )

    def _item(self, grad: Any, slot: int, path: tuple[int, ...]) -> Any:
        for step in path:
            if grad is None:
                return None
            if not isinstance(grad, list | tuple) or step >= len(grad):
                name = self._op.schema.parameters[slot].name
                raise self._wrong(
                    f"returned {show(grad)} for the list argument '{name}'",
                    f"return a list with a gradient for each item of '{name}'",
                    name,
                )
            grad = grad[step]
        return grad

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
        summed = sum_to_shape(grad, tuple(shape))
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
    return [_map_metas(m, take) for m in meta] if type(meta) is list else take(meta)


def _leaf_value(value: Any) -> Any:
    """The real array at the bottom of a tracer."""
    while isinstance(value, Tracer):
        value = value.value
    return value


def sum_to_shape(grad: Any, shape: tuple[int, ...]) -> Any:
    """Sum a broadcast gradient back to `shape`; None where it cannot have come from it.

    Summing over the axes that broadcasting added or stretched is the transpose of
    broadcasting.
    """
    have = tuple(grad.shape)
    extra = len(have) - len(shape)
    if extra < 0:
        return None
    pairs = list(zip(have[extra:], shape, strict=True))
    if any(a != b and b != 1 for a, b in pairs):
        return None
    axes = [*range(extra), *(extra + i for i, (a, b) in enumerate(pairs) if a != b)]
    summed = call_numpy(np.sum, grad, axis=tuple(axes)) if axes else grad
    return summed if tuple(summed.shape) == shape else call_numpy(np.reshape, summed, shape)


# ---- the interpreter ----


class GradInterpreter(Interpreter):
    """One running reverse-mode transform."""

    kind = AUTOGRAD
    tracer_class = GradTracer

    def variable(self, value: Any) -> GradTracer:
        """A tracer whose gradient is asked for."""
        return GradTracer(self, value, Leaf(value))

    def process(self, op: Any, args: Sequence[Any]) -> Any:
        """Run the operator below, and note how to go back through it."""
        plan = op.plans.get(AUTOGRAD)
        if plan is None:
            plan = _plan(op)
        return plan(self, args)

    def general(self, op: Any, nodes: type[Node], args: Sequence[Any]) -> Any:
        """A call of any operator; `_plan` writes a shorter way for most."""
        values = list(args)
        edges: list[Edge] = []
        for slot in (*op.array_slots, *op.nested_slots):
            values[slot] = self._lower_nested(values[slot], slot, (), edges)
        if op.schema.written:
            self._refuse_write(op, args)
        rule = nodes._rule
        if type(rule) is not Formula and type(rule) is not _Missing:
            return rule.forward(self, nodes, values, edges)
        out = op.invoke(values)
        node = nodes(edges)
        if op.nested_slots:
            node._inputs = [_emptied(value) for value in values]
        if type(rule) is _Missing:
            node._rule = _Missing(op)
        elif rule.setup_context is not None:
            self._set_up(op, node, rule.setup_context, values, out)
        return self.track(node, out)

    def _set_up(
        self, op: Any, node: Node, setup: Callable[..., Any], values: Any, out: Any
    ) -> None:
        count = op.positional_count
        if count == len(values):
            setup(ctx=node, inputs=tuple(values), output=out)
            return
        names = [p.name for p in op.schema.keyword_only]
        keywords = dict(zip(names, values[count:], strict=True))
        inputs = tuple(values[:count])
        setup(ctx=node, inputs=inputs, keyword_only_inputs=keywords, output=out)

    def track(self, node: Any, out: Any) -> Any:
        """The result of a call with its differentiable arrays tracked."""
        schema = node._op.schema
        if schema.single_return:
            if not _is_differentiable(out, node._blocked):
                return out
            node._metas = (out.shape, out.dtype)
            return GradTracer(self, out, node)
        index = itertools.count()
        parts = list(out) if schema.is_tuple else [out]
        node._metas = [_metas(part, node._blocked) for part in parts]
        metas = _flat_metas(node._metas)

        def wrap(value: Any) -> Any:
            at = next(index)
            meta = metas[at]
            return value if meta is None else GradTracer(self, value, Output(node, at, meta))

        tracked = [map_nested(part, wrap) for part in parts]
        return tuple(tracked) if schema.is_tuple else tracked[0]

    def _lower_nested(
        self, value: Any, slot: int, path: tuple[int, ...], edges: list[Any]
    ) -> Any:
        if type(value) in (list, tuple):
            items = [
                self._lower_nested(item, slot, (*path, i), edges)
                for i, item in enumerate(value)
            ]
            return items if type(value) is list else tuple(items)
        if type(value) is GradTracer and value.interpreter is self:
            edges.append((slot, path, value.node))
            return value.value
        return value

    def _refuse_write(self, op: Any, args: Sequence[Any]) -> None:
        name = op.schema.written[0]
        for p, value in zip(op.schema.parameters, args, strict=True):
            mine = [v for v in flat(value) if self.lower(v) is not v]
            if p.is_written and mine:
                name = p.name
        raise GradientError(
            f"{op.qualname} writes its argument '{name}' under {self.describe()}: a write"
            " has no gradient",
            op.schema.show(op.qualname, name),
            do="call it inside no_grad(), or use an operator that returns a new array",
            op=op.qualname,
            parameter=name,
            kind="autograd",
        )


def _is_in(value: Any, values: Iterable[Any]) -> bool:
    return any(value is item for item in values)


def _is_differentiable(value: Any, blocked: Sequence[Any]) -> bool:
    kind = kind_of[type(value)]
    return kind is not None and is_inexact(value.dtype) and not _is_in(value, blocked)


def is_inexact(dtype: Any) -> bool:
    """Whether values of a dtype have derivatives: real and complex floats."""
    kind = getattr(dtype, "kind", None)
    return kind in "fc" if kind is not None else "float" in str(dtype) or "complex" in str(dtype)


def _metas(part: Any, blocked: Sequence[Any]) -> Any:
    if type(part) in (list, tuple):
        return [_metas(item, blocked) for item in part]
    if not _is_differentiable(part, blocked):
        return None
    return (tuple(part.shape), part.dtype, device_of(part))


def _emptied(value: Any) -> Any:
    """The nesting of an argument, without the arrays in it."""
    return map_nested(value, lambda _: None)


def _nested_needs(
    value: Any, slot: int, path: tuple[int, ...], tracked: set[Any]
) -> Any:
    if type(value) in (list, tuple):
        return [_nested_needs(v, slot, (*path, i), tracked) for i, v in enumerate(value)]
    return (slot, path) in tracked


# ---- plans: what a call of one operator does under reverse mode ----


def _node_class(op: Any, rule: Any) -> type[Node]:
    """Nodes of one operator: it and its rule stand on the class, once for all calls."""
    names = {"_op": op, "_rule": rule}
    if op.is_plain and op.is_unary and type(rule) is Formula:
        names["_backward"] = staticmethod(rule.backward)
        return type(f"{op.name}_node", (UnaryNode,), names)
    return type(f"{op.name}_node", (Node,), names)


def _plan(op: Any) -> Callable[[GradInterpreter, Sequence[Any]], Any]:
    """The plan of an operator, kept until its table changes."""
    plans = op.plans  # a new dict for a new table: a stale plan is lost with the old
    rule = op.find_rule(AUTOGRAD)
    nodes = _node_class(op, _Missing(op) if rule is None else rule)
    if op.is_plain and type(rule) is Formula:
        plan = _plain_plan(op, rule, nodes)
    else:

        def plan(interpreter: GradInterpreter, args: Sequence[Any]) -> Any:
            return interpreter.general(op, nodes, args)

    plans[AUTOGRAD] = plan
    return plan


class UnaryNode(Node):
    """A call with one array, which comes first, and one array as its result."""

    _backward: Callable[..., Any]

    def pull(self, grads: Sequence[Any], retain: bool) -> list[tuple[Any, Any]]:
        """As any node does it, in half of the time for a gradient that fits."""
        edges = self._edges
        if edges is None:
            raise self._freed()
        found = self._backward(self, grads[0])
        if not retain:
            self._edges = None
            self._saved = ()
        node = edges[0][2]
        shape, dtype = node._metas[:2]
        try:
            if found.shape == shape and found.dtype == dtype:
                return [(node, found)]
        except AttributeError:  # None, a tuple, or no array: the rest says which
            pass
        return self._pairs(edges, found)


def _plain_plan(op: Any, rule: Formula, nodes: type[Node]) -> Any:
    """Written out for the arrays of one operator: 1.1 us a call instead of 1.9.

    Measured on CPython 3.11.7, one array of three elements, 0.3 us of it the kernel.
    """
    names = [f"v{i}" for i in range(len(op.schema.parameters))]
    inputs = "".join(f"{name}, " for name in names)
    lines = ["def plan(self, args):", f"    {inputs}= args", "    edges = ()"]
    for slot in op.array_slots:
        v = names[slot]
        lines += [
            f"    if type({v}) is GradTracer and {v}.interpreter is self:",
            f"        edges += (({slot}, (), {v}.node),)",
            f"        {v} = {v}.value",
        ]
    if len(op.array_slots) == 1:
        # The one array is the tracer that brought the call here.
        (slot,) = op.array_slots
        v = names[slot]
        lines[2:] = [f"    edges = (({slot}, (), {v}.node),)", f"    {v} = {v}.value"]
    lines += [
        f"    out = op.call({inputs})",
        "    dtype = out.dtype",
        "    if not inexact[dtype]:",
        "        return out",
        "    node = new(nodes)",
        "    node._edges = edges",
        "    node._metas = (out.shape, dtype)",
        "    node._number = next(numbers)",
    ]
    if rule.setup_context is not None:
        lines += [
            f"    setup(ctx=node, inputs=({inputs}), output=out)",
            "    if node._blocked and is_in(out, node._blocked):",
            "        return out",
        ]
    lines += [
        "    tracer = new(GradTracer)",
        "    tracer.interpreter = self",
        "    tracer.value = out",
        "    tracer.node = node",
        "    return tracer",
        "",
    ]
    scope = {
        "GradTracer": GradTracer,
        "op": op,
        "inexact": _inexact,
        "nodes": nodes,
        "setup": rule.setup_context,
        "is_in": _is_in,
        # As the classes' own __init__ would, without a frame each: 40 ns an object.
        "new": object.__new__,
        "numbers": _numbers,
    }
    return generate(f"{op.qualname} autograd", "\n".join(lines), "plan", scope)


_inexact = _Inexact()


class _Missing:
    """Stands for the formula of an operator without one, until a gradient needs it."""

    __slots__ = ("op", "where")
    setup_context = None

    def __init__(self, op: Any) -> None:
        self.op = op
        self.where = caller_place("customop")

    def backward(self, ctx: Node, *grads: Any) -> Any:
        """Raise: there is no formula, and zeros would be wrong in silence."""
        raise self.op.missing_rule(AUTOGRAD, f"a gradient is asked through the call at {self.where}")


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
    pairs = list(seeds)
    while True:
        if len(pairs) == 1 and not heap and type(pairs[0][0]) not in _SEVERAL:
            node, grad = pairs[0]
            pairs = node.pull((grad,), retain)
            continue
        for node, grad in pairs:
            _add(pending, heap, node, grad)
        # No name may hold a gradient longer than its node needs it.
        node = grad = None
        pairs = []
        if not heap:
            return found
        node, grads = pending.pop(-heappop(heap))
        if type(node) is Leaf:
            found[node] = grads[0]
        else:
            pairs = node.pull(grads, retain)


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
        count = len(_flat_metas(metas)) if type(metas) is list else 1
        entry = pending[number] = (node, [None] * count)
        heappush(heap, -number)
    grads = entry[1]
    before = grads[index]
    grads[index] = grad if before is None else call_numpy(np.add, before, grad)


def _flat_metas(outputs: Any) -> list[Any]:
    """Metas of all outputs, one for each place that an edge can name."""
    if type(outputs) is list:
        return [leaf for item in outputs for leaf in _flat_metas(item)]
    return [outputs]


# ---- an operator's own body as its formula ----


class _Native:
    """Differentiates the kernel itself: register with ``register_autograd(native)``."""

    def __call__(self, ctx: Any, *grads: Any) -> Any:
        return self.backward(ctx, *grads)

    def forward(
        self,
        outer: GradInterpreter,
        nodes: type[Node],
        values: list[Any],
        edges: Sequence[Edge],
    ) -> Any:
        """Run the body on tracers of a transform of its own."""
        op = nodes._op
        inner = GradInterpreter()
        leaves: list[Leaf] = []
        shapes = [_emptied(value) for value in values]
        for slot, path, *_ in edges:
            values[slot] = _replace(values[slot], path, lambda v: _track(inner, v, leaves))
        count = len(op.schema.positional)
        names = [p.name for p in op.schema.keyword_only]
        with inner:
            out = op.__wrapped__(
                *values[:count], **dict(zip(names, values[count:], strict=True))
            )
        node: Any = nodes(edges)
        node._inputs = shapes
        node._ends = [_end(leaf, inner) for leaf in flat(out)]
        node._starts = leaves
        return outer.track(node, map_nested(out, inner.lower))

    def backward(self, ctx: Any, *grads: Any) -> dict[str, Any]:
        """Sweep back through the body."""
        seeds = [
            (end, grad)
            for end, grad in zip(ctx._ends, flat(list(grads)), strict=True)
            if end is not None and grad is not None
        ]
        found = sweep(seeds, retain=True)
        nested: dict[str, Any] = {}
        for edge, leaf in zip(ctx._edges, ctx._starts, strict=True):
            name = ctx._op.schema.parameters[edge[0]].name
            _store(nested, name, edge[1], found.get(leaf))
        return nested


native = _Native()


def _track(inner: GradInterpreter, value: Any, leaves: list[Leaf]) -> GradTracer:
    tracer = inner.variable(value)
    leaves.append(tracer.node)
    return tracer


def _end(leaf: Any, interpreter: GradInterpreter) -> Any:
    """What made a tracer of this interpreter; None for all else."""
    mine = type(leaf) is GradTracer and leaf.interpreter is interpreter
    return leaf.node if mine else None


def _replace(value: Any, path: tuple[int, ...], fn: Callable[[Any], Any]) -> Any:
    if not path:
        return fn(value)
    items = list(value)
    items[path[0]] = _replace(items[path[0]], path[1:], fn)
    return items


def _store(nested: dict[Any, Any], key: Any, path: tuple[int, ...], grad: Any) -> None:
    """Put a gradient at its place among lists of gradients."""
    if not path:
        nested[key] = grad
        return
    items = nested.setdefault(key, [])
    items.extend([None] * (path[0] + 1 - len(items)))
    below = dict(enumerate(items))
    if items[path[0]] is None:
        below.pop(path[0])
    _store(below, path[0], path[1:], grad)
    items[path[0]] = below[path[0]]


# ---- functional forms ----


def _as_input(value: Any, what: str) -> Any:
    """An input of a transform: an array of floats, or a Python float as one."""
    if isinstance(value, float | complex) and not isinstance(value, np.generic):
        return np.asarray(value)
    if not is_array(value):
        raise GradientError(
            f"{what} must be an array of floats, got {show(value)}",
            do="pass arrays at argnums, and other arguments at other places",
        )
    if not is_inexact(value.dtype):
        raise GradientError(
            f"{what} has dtype {value.dtype}, which has no derivative",
            do="pass x.astype(float)",
        )
    return value


def vjp(
    fn: Callable[..., Any], *primals: Any, has_aux: bool = False
) -> Any:
    """Value of a function, and a function that pulls cotangents back.

    Parameters
    ----------
    fn : callable
        Takes `primals`; returns an array or a pytree of arrays.
    *primals : pytree of array
        Where the derivative is taken; arrays of floats.
    has_aux : bool
        Whether `fn` returns ``(output, aux)`` with something not to differentiate.

    Returns
    -------
    output : pytree of array
    pullback : callable
        Takes a cotangent for the output, of the same structure, shapes and dtypes;
        returns a tuple with a gradient for each primal. It may be called many times.
    aux : object
        Only with `has_aux`.

    Raises
    ------
    GradientError
        If a primal is no array of floats, or a cotangent does not fit the output.
    MissingRuleError
        From the pullback, if an operator on the way has no autograd rule.

    Notes
    -----
    For complex values the convention is JAX's: the pullback is the transpose of the
    complex-linear derivative, without conjugation.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> y, pullback = co.vjp(np.sin, np.zeros(2))
    >>> pullback(np.ones(2))
    (array([1., 1.]),)
    """
    interpreter = GradInterpreter()
    leaves, structure = flatten(primals)
    values = [_as_input(leaf, f"vjp: primal {i}") for i, leaf in enumerate(leaves)]
    tracers = [interpreter.variable(value) for value in values]
    with interpreter:
        result = fn(*unflatten(structure, tracers))
    out, aux = _split_aux(result, has_aux, "vjp")
    out_leaves, out_structure = flatten(out)
    _check_outputs(out_leaves)
    ends = [_end(leaf, interpreter) for leaf in out_leaves]
    lowered = [interpreter.lower(leaf) for leaf in out_leaves]
    starts = [tracer.node for tracer in tracers]

    def pullback(cotangent: Any) -> tuple[Any, ...]:
        """Gradients of the primals for a cotangent of the output."""
        given, given_structure = flatten(cotangent)
        if given_structure != out_structure:
            raise GradientError(
                f"pullback: a cotangent of structure {given_structure} does not fit the"
                f" output, {out_structure}",
                do="pass a cotangent for each array of the output",
            )
        pairs = zip(given, lowered, strict=True)
        cotangents = [_as_cotangent(g, y, i) for i, (g, y) in enumerate(pairs)]
        seeds = [
            (end, g) for end, g in zip(ends, cotangents, strict=True) if end is not None
        ]
        found = sweep(seeds, retain=True)
        grads = [_or_zeros(found.get(s), v) for s, v in zip(starts, values, strict=True)]
        return unflatten(structure, grads)  # type: ignore[no-any-return]

    value = unflatten(out_structure, lowered)
    if has_aux:
        return value, pullback, map_leaves(interpreter.lower, aux)
    return value, pullback


def _split_aux(result: Any, has_aux: bool, name: str) -> tuple[Any, Any]:
    if not has_aux:
        return result, None
    if not isinstance(result, tuple) or len(result) != 2:
        raise GradientError(
            f"{name}: with has_aux=True the function must return (output, aux), got"
            f" {show(result)}",
            do="return a pair, or leave has_aux out",
        )
    return result


def _check_outputs(leaves: Sequence[Any]) -> None:
    for i, leaf in enumerate(leaves):
        if not is_array(leaf) and not isinstance(leaf, int | float | complex):
            raise GradientError(
                f"vjp: output {i} is {show(leaf)}, must be an array",
                do="return arrays, or other things as aux with has_aux=True",
            )


def _as_cotangent(given: Any, output: Any, index: int) -> Any:
    if isinstance(given, float | int | complex) and not isinstance(given, np.generic):
        given = np.asarray(given, getattr(output, "dtype", None))
    shape, dtype = getattr(output, "shape", ()), getattr(output, "dtype", None)
    if not is_array(given) or tuple(given.shape) != tuple(shape) or given.dtype != dtype:
        seen = abbreviated(given) if is_array(given) else show(given)
        want = abbreviated(output) if is_array(output) else show(output)
        raise GradientError(
            f"pullback: cotangent {index} is {seen}, must be {want} as the output is",
            do="pass a cotangent of the shape and dtype of the output",
        )
    return given


def _or_zeros(grad: Any, value: Any) -> Any:
    """A gradient; zeros for an input that the output does not depend on."""
    return call_numpy(np.zeros_like, value) if grad is None else grad


def value_and_grad(
    fn: Callable[P, Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[P, tuple[Any, Any]]:
    """Make a function that gives the value of `fn` and its gradient.

    Parameters
    ----------
    fn : callable
        Returns a real array without axes.
    argnums : int or sequence of int
        Positions of the arguments to differentiate by, each a pytree of arrays of
        floats. Negative positions count from the end.
    has_aux : bool
        Whether `fn` returns ``(value, aux)`` with something not to differentiate.

    Returns
    -------
    callable
        Takes what `fn` takes; returns ``(value, gradient)``, or
        ``((value, aux), gradient)``. The gradient has the structure of the argument;
        it is a tuple of them where `argnums` is a sequence.

    Raises
    ------
    GradientError
        From the function: if an argument is no array of floats, or the value is not a
        real array without axes.
    MissingRuleError
        From the function: if an operator on the way has no autograd rule.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> co.value_and_grad(lambda x: (x * x).sum())(np.array([1.0, 2.0]))
    (np.float64(5.0), array([2., 4.]))
    """
    is_single = isinstance(argnums, int)
    wanted = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    name = getattr(fn, "__name__", "function")

    @wraps(fn)
    def value_and_grad_of(*args: P.args, **kwargs: P.kwargs) -> tuple[Any, Any]:
        interpreter = GradInterpreter()
        given: list[Any] = list(args)
        inputs: list[Any] = []
        for position in wanted:
            at = _position(position, len(given), name)
            given[at] = _tracked(interpreter, given[at], f"grad of {name}: argument {at}", inputs)
        with interpreter:
            result = fn(*given, **kwargs)  # type: ignore[arg-type]
        out, aux = _split_aux(result, has_aux, "grad") if has_aux else (result, None)
        found = _gradients(interpreter, out, name)
        grads = tuple(_collect(item, found) for item in inputs)
        value = interpreter.lower(out)
        if has_aux:
            value = (value, map_leaves(interpreter.lower, aux))
        return value, grads[0] if is_single else grads

    return value_and_grad_of


def _position(position: int, count: int, name: str) -> int:
    at = position + count if position < 0 else position
    if not 0 <= at < count:
        raise GradientError(
            f"grad of {name}: argnums names argument {position}, the call has {count}"
            " positional arguments",
            do="pass that argument by position, or change argnums",
        )
    return at


def _tracked(
    interpreter: GradInterpreter, argument: Any, what: str, inputs: list[Any]
) -> Any:
    """An argument with its leaves tracked; notes structure and leaves in `inputs`."""
    if type(argument) is np.ndarray and argument.dtype.kind in "fc":
        tracer = interpreter.variable(argument)
        inputs.append((None, [tracer.node], [argument]))
        return tracer
    leaves, structure = flatten(argument)
    values = [_as_input(leaf, what) for leaf in leaves]
    tracers = [interpreter.variable(value) for value in values]
    inputs.append((structure, [tracer.node for tracer in tracers], values))
    return unflatten(structure, tracers)


def _collect(item: Any, found: dict[Leaf, Any]) -> Any:
    structure, nodes, values = item
    grads = [_or_zeros(found.get(n), v) for n, v in zip(nodes, values, strict=True)]
    return grads[0] if structure is None else unflatten(structure, grads)


def _gradients(interpreter: GradInterpreter, out: Any, name: str) -> dict[Leaf, Any]:
    """Gradients of a value without axes, by leaf."""
    if not is_array(out) and not isinstance(out, float | int):
        raise GradientError(
            f"grad of {name}: the value is {show(out)}, must be an array without axes",
            do="return one array: sum the losses, or use has_aux=True for the rest",
        )
    shape = tuple(getattr(out, "shape", ()))
    dtype = getattr(out, "dtype", np.dtype(float))
    if shape != () or (is_array(out) and (not is_inexact(dtype) or "complex" in str(dtype))):
        hint = "use real(x) or abs(x)" if "complex" in str(dtype) else "return x.sum()"
        raise GradientError(
            f"grad of {name}: the value is {abbreviated(out)}, must be a real float"
            " without axes",
            do=f"{hint}, or take vjp or jacrev",
        )
    if type(out) is not GradTracer or out.interpreter is not interpreter:
        return {}
    return sweep([(out.node, call_numpy(np.ones_like, out.value))], retain=False)


def grad(
    fn: Callable[P, Any], argnums: int | Sequence[int] = 0, has_aux: bool = False
) -> Callable[P, Any]:
    """Make a function that gives the gradient of `fn`.

    Parameters
    ----------
    fn : callable
        Returns a real array without axes.
    argnums : int or sequence of int
        Positions of the arguments to differentiate by, each a pytree of arrays of
        floats. Negative positions count from the end.
    has_aux : bool
        Whether `fn` returns ``(value, aux)`` with something not to differentiate.

    Returns
    -------
    callable
        Takes what `fn` takes; returns the gradient, with the structure, shapes and
        dtypes of the argument, or ``(gradient, aux)``.

    Raises
    ------
    GradientError
        From the function: if an argument is no array of floats, or the value is not a
        real array without axes.
    MissingRuleError
        From the function: if an operator on the way has no autograd rule.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> co.grad(lambda x: (x ** 3).sum())(np.array([1.0, 2.0]))
    array([ 3., 12.])
    """
    both = value_and_grad(fn, argnums, has_aux)

    @wraps(fn)
    def grad_of(*args: P.args, **kwargs: P.kwargs) -> Any:
        value, gradient = both(*args, **kwargs)
        return (gradient, value[1]) if has_aux else gradient

    return grad_of


# ---- the value alone ----


def _identity(x: Array) -> Array:
    return x


def _block(ctx: Node, inputs: Any, output: Any) -> None:
    ctx.mark_non_differentiable(output)


stop_array = (
    custom_op(
        "customop::stop_gradient",
        _identity,
        mutates_args=(),
        schema="(Array(a) x) -> Array(a)",
        tags=Tag.pointwise,
    )
    .register_fake(_identity)
    .register_autograd(lambda ctx, g: None, setup_context=_block)
    .register_jvp(lambda primals, tangents: (stop_array(*primals), None))
)


def stop_gradient(x: T) -> T:
    """The value without its tracking: nothing flows back through it.

    Parameters
    ----------
    x : pytree of array
        Other leaves stay as they are.

    Returns
    -------
    pytree of array
        Plain arrays where only gradients were tracked. What `vmap` tracks stays
        tracked: a row of a batch is no array of its own.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> co.grad(lambda x: x * co.stop_gradient(x))(np.array(3.0))
    np.float64(3.0)
    """
    if is_array(x):
        return stop_array(x)  # type: ignore[return-value]
    return map_leaves(lambda v: stop_array(v) if is_array(v) else v, x)  # type: ignore[no-any-return]


# ---- the imperative form ----


class _Tape(GradInterpreter):
    """The one transform that never ends: it stands below all others."""

    kind = AUTOGRAD

    def __init__(self) -> None:
        super().__init__()
        self.level = 0

    def describe(self) -> str:
        """How messages name it."""
        return "variables (level 0)"


_tape = _Tape()


def variable(x: Any) -> GradTracer:
    """Make a value whose gradient `backward` can bring.

    Parameters
    ----------
    x : array or float
        Array of floats.

    Returns
    -------
    GradTracer
        Behaves as the array does; its `grad` is None until `backward` has run.

    Raises
    ------
    GradientError
        If `x` is no array of floats.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> x = co.variable(np.array([1.0, 2.0]))
    >>> (x * x).sum().backward()
    >>> x.grad
    array([2., 4.])
    """
    return _tape.variable(_as_input(x, "variable"))


def backward(y: Any, gradient: Any = None, *, retain_graph: bool = False) -> None:
    """Add the gradient of a value to the `grad` of the variables it depends on.

    Parameters
    ----------
    y : array
        A value computed from variables.
    gradient : array, optional
        Cotangent of `y`, of its shape and dtype; needed where `y` has axes.
    retain_graph : bool
        Whether `backward` shall run again through the same calls; otherwise what they
        saved is freed.

    Raises
    ------
    GradientError
        If `y` depends on no variable, has axes and no `gradient` is given, or its
        graph has been freed.
    MissingRuleError
        If an operator on the way has no autograd rule.
    """
    if type(y) is not GradTracer or y.interpreter is not _tape:
        raise GradientError(
            f"backward: {show(y)} depends on no variable",
            do="compute it from x = variable(a), outside no_grad()",
        )
    if gradient is None:
        if tuple(y.shape) != ():
            raise GradientError(
                f"backward: {abbreviated(y)} has axes, so it needs a gradient",
                do="call backward(y.sum()), or backward(y, gradient)",
            )
        gradient = call_numpy(np.ones_like, y.value)
    seed = _as_cotangent(gradient, y.value, 0)
    found = sweep([(y.node, seed)], retain=retain_graph)
    for leaf, grad_ in found.items():
        leaf.grad = grad_ if leaf.grad is None else call_numpy(np.add, leaf.grad, grad_)


class _Untracked(Mode):
    """The mode of `no_grad`: operators see values without their tracking."""

    kind = RuleKind("no_grad")

    def process(self, op: Any, args: Sequence[Any]) -> Any:
        """Run the operator on the values alone."""
        return op.invoke([map_nested(value, _stopped) for value in args])


class _Tracked(Mode):
    """The mode of `enable_grad`: the modes of `no_grad` outside do not count."""

    kind = RuleKind("enable_grad")

    def find_outer(self) -> Mode | None:
        """The first mode outside that is not of `no_grad`."""
        mode = current_mode.get()
        while isinstance(mode, _Untracked):
            mode = mode.outer
        return mode

    def process(self, op: Any, args: Sequence[Any]) -> Any:
        """Run the operator as it would run outside of `no_grad`."""
        return op.invoke(args)


def _stopped(value: Any) -> Any:
    return stop_array(value) if kind_of[type(value)] is TRACED else value


class _Switch(ContextDecorator):
    """Opens a mode for a block or for the calls of a function."""

    _mode: type[Mode]

    def __init__(self) -> None:
        self._open: list[Mode] = []

    def __enter__(self) -> None:
        self._open.append(self._mode().__enter__())

    def __exit__(self, *exc: object) -> None:
        self._open.pop().__exit__(*exc)


class no_grad(_Switch):  # noqa: N801  # torch's name
    """Compute without tracking: as a context manager or a decorator.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> x = co.variable(np.array([1.0, 2.0]))
    >>> with co.no_grad():
    ...     y = x * 2.0
    >>> y
    array([2., 4.])
    """

    _mode = _Untracked


class enable_grad(_Switch):  # noqa: N801  # torch's name
    """Track again inside of `no_grad`: as a context manager or a decorator.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> x = co.variable(np.array(3.0))
    >>> with co.no_grad(), co.enable_grad():
    ...     y = x * x
    >>> y.backward()
    >>> x.grad
    np.float64(6.0)
    """

    _mode = _Tracked
