"""Reverse mode: one interpreter, which makes a node of every call."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, cast

from customop.arrays.array import Array
from customop.arrays.describe import describe, show
from customop.arrays.kinds import is_array
from customop.arrays.nested import (
    children,
    flat,
    like,
    map_nested,
    map_outline,
    outline,
)
from customop.config import config
from customop.core.checks import check_has_gradient
from customop.core.codegen import generate
from customop.core.dispatch import Interpreter, Tracer
from customop.core.grad_rules import GradCall, GradRule
from customop.core.kinds import AUTOGRAD
from customop.core.observe import observed, observers
from customop.core.proof import moments, readonly, with_sampling
from customop.errors import GradientError, caller_place, place, warn_caller
from customop.transforms.autograd.node import (
    Edge,
    Leaf,
    Node,
    Output,
    UnaryNode,
    flat_metas,
    inexact,
    is_differentiable,
    is_in,
    metas_of,
    sweep,
)

__all__ = ["GradInterpreter", "GradTracer", "end_of", "native"]


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
        self.node: Any = node

    @property
    def grad(self) -> Array | None:
        """Sum of the gradients that `backward` has brought to a `variable`, or None."""
        return self.node.grad if type(self.node) is Leaf else None

    @grad.setter
    def grad(self, value: Array | None) -> None:
        if type(self.node) is not Leaf:
            raise GradientError(
                f"x.grad: {describe(self)} is no variable, so it has no gradient to set",
                do="set it on x = variable(a)",
            )
        if value is not None and not is_array(value):
            raise GradientError(
                f"x.grad is an array or None, got {show(value)}",
                do="set an array of the shape of the variable, or None",
            )
        self.node.grad = value

    def backward(
        self, gradient: Array | float | None = None, *, retain_graph: bool = False
    ) -> None:
        """Bring the gradient of this value to its variables; see `backward`."""
        self.interpreter.backward(self, gradient, retain_graph)  # type: ignore[attr-defined]  # a GradInterpreter


class GradInterpreter(Interpreter):
    """One running reverse-mode transform."""

    kind = AUTOGRAD
    tracer_class: ClassVar[type[Tracer]] = GradTracer

    def variable(self, value: Any) -> GradTracer:
        """A tracer whose gradient is asked for."""
        return GradTracer(self, value, Leaf(value))

    def backward(self, y: Any, gradient: Any, retain_graph: bool) -> None:
        """Refused: only variables collect gradients."""
        raise no_variable(y)

    def process(self, op: Any, args: Sequence[Any]) -> Any:
        """Run the operator below, and note how to go back through it."""
        try:
            plan = op.plans.by_tracer[GradTracer]
        except KeyError:
            plan = _plan(op)
        return plan(self, args)

    def general(self, op: Any, nodes: type[Node], args: Sequence[Any]) -> Any:
        """A call of any operator; `_plan` writes a shorter way for most."""
        if op.schema.written:
            self._refuse_write(op, args)
        rule: GradRule = nodes._rule
        return rule.forward(TrackedCall(self, op, nodes, args))

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


class TrackedCall:
    """A call under one running gradient; see `GradCall`."""

    __slots__ = ("args", "edges", "interpreter", "nodes", "op", "values")

    def __init__(
        self,
        interpreter: GradInterpreter,
        op: Any,
        nodes: type[Node],
        args: Sequence[Any],
    ) -> None:
        self.interpreter: GradInterpreter = interpreter
        self.op: Any = op
        self.nodes: type[Node] = nodes
        self.args: Sequence[Any] = args
        self.edges: list[Edge] = []
        self.values: list[Any] = list(args)
        values = self.values
        for slot in op.array_slots:
            value = values[slot]
            if type(value) is GradTracer and value.interpreter is interpreter:
                self.edges.append((slot, (), value.node))
                values[slot] = value.value
        for slot in op.nested_slots:
            values[slot] = self._lower_nested(values[slot], slot, ())

    def _lower_nested(self, value: Any, slot: int, path: tuple[int, ...]) -> Any:
        if type(value) is GradTracer and value.interpreter is self.interpreter:
            self.edges.append((slot, path, value.node))
            return value.value
        found = children(value)
        if found is None:
            return value
        items = [
            self._lower_nested(item, slot, (*path, i)) for i, item in enumerate(found)
        ]
        return like(value, items)

    def lower(self, value: Any) -> Any:
        """The value below a tracer of this gradient; other values as they are."""
        return self.interpreter.lower(value)

    def node(self) -> Node:
        """A new node for the call."""
        node = self.nodes(self.edges)
        if self.op.nested_slots:
            node._inputs = [_emptied(value) for value in self.values]
        return node

    def set_up(self, node: Node, setup_context: Callable[..., Any], out: Any) -> None:
        """Let the user's function save what the backward formula needs."""
        setup = setup_context
        if observers:
            setup = _observed_setup(self.op, setup)
        positional, keywords = self.op.schema.split(self.values)
        inputs = tuple(positional)
        if keywords:
            setup(ctx=node, inputs=inputs, keyword_only_inputs=keywords, output=out)
        else:
            setup(ctx=node, inputs=inputs, output=out)

    def track(self, node: Node, out: Any) -> Any:
        """The result, with its differentiable arrays tracked to the node."""
        schema = self.op.schema
        if schema.single_return:
            if not is_differentiable(out, node._blocked):
                return out
            node._metas = (out.shape, out.dtype)
            return GradTracer(self.interpreter, out, node)
        index = itertools.count()
        parts = list(out) if schema.is_tuple else [out]
        node._metas = [metas_of(part, node._blocked) for part in parts]
        metas = flat_metas(node._metas)

        def wrap(value: Any) -> Any:
            at = next(index)
            meta = metas[at]
            return (
                value
                if meta is None
                else GradTracer(self.interpreter, value, Output(node, at, meta))
            )

        tracked = [map_nested(part, wrap) for part in parts]
        return tuple(tracked) if schema.is_tuple else tracked[0]


def _emptied(value: Any) -> Any:
    """The nesting of an argument, without the arrays in it."""
    return map_outline(value, lambda _: None)


# ---- plans: what a call of one operator does under reverse mode ----


_Plan = Callable[[GradInterpreter, Sequence[Any]], Any]


def _node_class(op: Any, rule: GradRule) -> type[Node]:
    """Nodes of one operator: it and its rule stand on the class, once for all calls."""
    is_short = op.is_plain and op.is_unary and rule.is_formula
    names = {"_op": op, "_rule": rule, "_backward": staticmethod(rule.backward)}
    base: type[Node] = UnaryNode if is_short else Node
    # Said by hand: pyright infers a class without Node's attributes here.
    nodes: type[Node] = cast("type[Node]", type(f"{op.name}_node", (base,), names))
    if rule.is_formula:
        proves = config.checks != "never"
        first = _proof(nodes, rule.backward) if proves else _later(rule.backward)
        nodes._backward = staticmethod(first)
    return nodes


def _proof(nodes: type[Node], backward: Callable[..., Any]) -> Callable[..., Any]:
    """Runs a formula on read-only gradients, for one time or for always.

    A gradient may be another formula's too, or the caller's: what is written into it
    would reach them.
    """

    def prove(ctx: Node, *grads: Any) -> Any:
        try:
            found = backward(ctx, *[map_outline(g, readonly) for g in grads])
        except ValueError as error:
            if "read-only" not in str(error):
                raise
            raise ctx._writes_gradient() from error
        if config.checks == "first":
            nodes._backward = staticmethod(_later(backward))
        return found

    return prove


def _later(backward: Callable[..., Any]) -> Callable[..., Any]:
    """What runs after the first proof: the formula, proven again where it is drawn."""
    if not config.sample_checks:
        return backward

    def sampled(ctx: Node, *grads: Any) -> Any:
        if not config.draws():
            return backward(ctx, *grads)
        try:
            return backward(ctx, *[map_outline(g, readonly) for g in grads])
        except ValueError as error:
            if "read-only" not in str(error):
                raise
            breach = with_sampling(ctx._writes_gradient())
            if config.on_breach == "error":
                raise breach from error
        warn_caller(str(breach))
        return backward(ctx, *grads)

    return sampled


def _plan(op: Any) -> _Plan:
    """The plan of an operator, kept until its table changes."""
    plans = op.plans  # a new object for a new table: a stale plan is lost with the old
    rule: GradRule = op.find_rule(AUTOGRAD) or MissingRule(op)
    nodes = _node_class(op, rule)
    if op.is_plain and rule.is_formula:
        plan = _plain_plan(op, rule, nodes)
    else:
        plan = _any_plan(op, nodes)
    plans.by_tracer[GradTracer] = plan
    return plan


def _any_plan(op: Any, nodes: type[Node]) -> _Plan:
    def plan(interpreter: GradInterpreter, args: Sequence[Any]) -> Any:
        return interpreter.general(op, nodes, args)

    return plan


def _plain_plan(op: Any, rule: Any, nodes: type[Node]) -> _Plan:
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
        edges = (
            f"{v}.node"
            if issubclass(nodes, UnaryNode)
            else f"(({slot}, (), {v}.node),)"
        )
        lines[2:] = [f"    edges = {edges}", f"    {v} = {v}.value"]
    lines += [
        f"    out = op.call({inputs})",
        "    dtype = out.dtype",
        "    if not inexact[dtype]:",
        "        return out",
        "    node = new(nodes)",
        "    node._edges = edges",
        "    node._metas = (out.shape, dtype)",
        "    node._number = next(moments)",
    ]
    if rule.setup_context is not None:
        lines += [
            "    run = observed if observers else setup",
            f"    run({_setup_arguments(rule.setup_context, inputs)})",
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
        "inexact": inexact,
        "nodes": nodes,
        "setup": rule.setup_context,
        "observed": _observed_setup(op, rule.setup_context),
        "observers": observers,
        "is_in": is_in,
        # As the classes' own __init__ would, without a frame each: 40 ns an object.
        "new": object.__new__,
        "moments": moments,
    }
    text = "\n".join(lines)
    plan: _Plan = generate(f"{op.qualname} autograd", text, "plan", scope)
    return plan


def _setup_arguments(setup: Any, inputs: str) -> str:
    """By name, as torch does it; by place where the places agree: 20 ns less."""
    code = getattr(setup, "__code__", None)
    names = ("ctx", "inputs", "output")
    if code and code.co_argcount == 3 and code.co_varnames[:3] == names:
        return f"node, ({inputs}), out"
    return f"ctx=node, inputs=({inputs}), output=out"


def _observed_setup(op: Any, setup: Any) -> Callable[..., None]:
    """A setup function, shown to observers."""

    def run(*args: Any, **keywords: Any) -> None:
        given = [*args, *keywords.values()][1:]  # without ctx, which comes first
        observed(op, "setup_context", setup, given)(*args, **keywords)

    return run


class MissingRule(GradRule):
    """The rule of an operator without one: an error once a gradient needs it."""

    __slots__ = ("op", "where")

    def __init__(self, op: Any, where: str = "") -> None:
        self.op: Any = op
        self.where: str = where

    def forward(self, call: GradCall) -> Any:
        """Run the operator; the node knows the place of the call."""
        out = call.op.invoke(call.values)
        node = call.node()
        node._rule = missing = MissingRule(self.op, caller_place())
        node._backward = missing.backward
        return call.track(node, out)

    def backward(self, ctx: Node, *grads: Any) -> Any:
        """Raise: there is no formula, and zeros would be wrong in silence."""
        raise self.op.missing_rule(
            AUTOGRAD, f"a gradient is asked through the call at {self.where}"
        )

    def check(self, op: Any) -> None:
        """Fits every operator."""

    @property
    def places(self) -> tuple[str, ...]:
        """There is no function."""
        return ()


def no_variable(y: Any) -> GradientError:
    """The error for `backward` of something that depends on no variable."""
    return GradientError(
        f"backward: {show(y)} depends on no variable",
        do="compute it from x = variable(a), outside no_grad()",
    )


# ---- an operator's own body as its formula ----


class Native(GradRule):
    """Differentiates the kernel itself: register with ``register_autograd(native)``."""

    __slots__ = ()

    def __call__(self, ctx: Any, *grads: Any) -> Any:
        return self.backward(ctx, *grads)

    def forward(self, call: GradCall) -> Any:
        """Run the body on tracers of a transform of its own."""
        op = call.op
        inner = GradInterpreter()
        leaves: list[Leaf] = []
        values = list(call.values)
        for slot, path, *_ in call.edges:
            values[slot] = _replace(
                values[slot], path, lambda v: _track(inner, v, leaves)
            )
        positional, keywords = op.schema.split(values)
        with inner:
            out = op.definition.fn(*positional, **keywords)
        node = call.node()
        node._inputs = [_emptied(value) for value in call.values]
        node._ends = [end_of(leaf, inner) for leaf in flat(out)]
        node._starts = leaves
        return call.track(node, map_nested(out, inner.lower))

    def backward(self, ctx: Any, *grads: Any) -> dict[str, Any]:
        """Sweep back through the body."""
        seeds = [
            (end, grad)
            for end, grad in zip(ctx._ends, flat(list(grads)), strict=True)
            if end is not None and grad is not None
        ]
        swept = sweep(seeds, retain=True)
        pairs = zip(ctx._edges, ctx._starts, strict=True)
        found = {(edge[0], edge[1]): swept.get(leaf) for edge, leaf in pairs}
        slots = {slot for slot, _ in found}
        names = [p.name for p in ctx._op.schema.parameters]
        return {names[i]: _nested(ctx._inputs[i], i, (), found) for i in slots}

    def check(self, op: Any) -> None:
        """Raise unless the operator can have a gradient."""
        check_has_gradient(op)

    @property
    def places(self) -> tuple[str, ...]:
        """The place of this rule: the body's is that of the operator."""
        return (place(self),)


native: Native = Native()


def _track(inner: GradInterpreter, value: Any, leaves: list[Leaf]) -> GradTracer:
    tracer = inner.variable(value)
    leaves.append(tracer.node)
    return tracer


def end_of(leaf: Any, interpreter: GradInterpreter) -> Any:
    """What made a tracer of this interpreter; None for all else."""
    mine = type(leaf) is GradTracer and leaf.interpreter is interpreter
    return leaf.node if mine else None


def _replace(value: Any, path: tuple[int, ...], fn: Callable[[Any], Any]) -> Any:
    if not path:
        return fn(value)
    items = list(children(value) or ())
    items[path[0]] = _replace(items[path[0]], path[1:], fn)
    return like(value, items)


def _nested(shape: Any, slot: int, path: tuple[int, ...], found: dict[Any, Any]) -> Any:
    """Gradients nested as an argument is; None where there is none."""
    items = children(shape)
    if items is None:
        return found.get((slot, path))
    grads = [_nested(v, slot, (*path, i), found) for i, v in enumerate(items)]
    return outline(shape, grads)
