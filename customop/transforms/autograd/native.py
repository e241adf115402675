"""native: the autograd rule that differentiates the body of an operator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from customop.arrays.nested import children, flat, like, map_nested, map_paths, outline
from customop.core.definition import Definition
from customop.core.grad_rules import GradCall, GradRule, check_has_gradient
from customop.errors import place
from customop.transforms.autograd.calls import emptied
from customop.transforms.autograd.interpreter import GradInterpreter, interpreter_for
from customop.transforms.autograd.node import Leaf
from customop.transforms.autograd.sweep import sweep
from customop.transforms.autograd.tracer import GradTracer, end_of
from customop.transforms.runs import subject_of

__all__ = ["native"]


class Native(GradRule):
    """Differentiates the kernel itself: register with ``register_autograd(native)``.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> @co.custom_op("doc::softplus", mutates_args=())
    ... def softplus(x: np.ndarray) -> np.ndarray:
    ...     return np.log1p(np.exp(x))
    >>> op = softplus.register_autograd(co.native)
    >>> co.grad(op)(np.array(0.0))
    np.float64(0.5)
    """

    __slots__ = ()

    def __call__(self, ctx: Any, *grads: Any) -> Any:
        return self.backward(ctx, *grads)

    def forward(self, call: GradCall) -> Any:
        """Run the body on tracers of its own gradient."""
        op = call.op
        inner = interpreter_for(subject_of(op.definition.fn))
        leaves: list[Leaf] = []
        values = list(call.values)
        for slot, path, _ in call.edges:
            values[slot] = _replace(
                values[slot], path, lambda v: _track(inner, v, leaves)
            )
        positional, keywords = op.schema.split(values)
        with inner:
            out = op.definition.fn(*positional, **keywords)
        node = call.node()
        node.node_inputs = [emptied(value) for value in call.values]
        node.node_ends = [end_of(leaf, inner) for leaf in flat(out)]
        node.node_starts = leaves
        node.node_inner = inner
        return call.track(node, map_nested(out, inner.lower))

    def backward(self, ctx: Any, *grads: Any) -> dict[str, Any]:
        """Sweep back through the body."""
        seeds = [
            (end, grad)
            for end, grad in zip(ctx.node_ends, flat(list(grads)), strict=True)
            if end is not None and grad is not None
        ]
        swept = sweep(seeds, retain=True)
        ctx.node_inner.note_backward()
        pairs = zip(ctx.node_edges, ctx.node_starts, strict=True)
        found = {(edge[0], edge[1]): swept.get(leaf) for edge, leaf in pairs}
        slots = {slot for slot, _ in found}
        names = [p.name for p in ctx.node_op.schema.parameters]
        return {names[i]: _nested(ctx.node_inputs[i], i, found) for i in slots}

    def check(self, op: Definition) -> None:
        """Raise unless the operator can have a gradient."""
        check_has_gradient(op)

    @property
    def places(self) -> tuple[str, ...]:
        """The place of this rule: the body has the place of the operator."""
        return (place(self),)


native: Native = Native()


def _track(inner: GradInterpreter, value: Any, leaves: list[Leaf]) -> GradTracer:
    tracer = inner.variable(value)
    leaves.append(tracer.node)
    return tracer


def _replace(value: Any, path: tuple[int, ...], fn: Callable[[Any], Any]) -> Any:
    if not path:
        return fn(value)
    items = list(children(value) or ())
    items[path[0]] = _replace(items[path[0]], path[1:], fn)
    return like(value, items)


def _nested(shape: Any, slot: int, found: dict[Any, Any]) -> Any:
    """Gradients nested as an argument is; None where there is none."""
    return map_paths(shape, lambda _, path: found.get((slot, path)), outline)
