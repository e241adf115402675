"""A call of an operator under reverse mode, as its rule sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from customop.arrays.kinds import is_array
from customop.arrays.nested import map_nested, map_outline, map_paths
from customop.core.dispatch import SCALARS
from customop.core.observe import observed, observers
from customop.core.table import RuleTable
from customop.transforms.autograd.node import (
    Edge,
    GradNode,
    Output,
    flat_metas,
    hidden,
    inexact,
    is_differentiable,
    metas_of,
)
from customop.transforms.autograd.tracer import GradTracer

if TYPE_CHECKING:
    from customop.transforms.autograd.interpreter import GradInterpreter

__all__ = ["TrackedCall", "emptied", "observed_setup"]


class TrackedCall:
    """A call under one running gradient; see `GradCall`."""

    __slots__ = ("args", "edges", "interpreter", "nodes", "op", "values")

    def __init__(
        self,
        interpreter: GradInterpreter,
        op: RuleTable,
        nodes: type[GradNode],
        args: Sequence[Any],
    ) -> None:
        self.interpreter: GradInterpreter = interpreter
        self.op: RuleTable = op
        self.nodes: type[GradNode] = nodes
        self.args: Sequence[Any] = args
        self.edges: list[Edge] = []
        self.values: list[Any] = list(args)
        values = self.values
        for slot in op.array_slots:
            value = values[slot]
            if type(value) is GradTracer and value.interpreter is interpreter:
                if value.node is not None:
                    self.edges.append((slot, (), value.node))
                values[slot] = value.below
        for slot in op.nested_slots:
            values[slot] = map_paths(values[slot], partial(self._lower_leaf, slot))

    def _lower_leaf(self, slot: int, value: Any, path: tuple[int, ...]) -> Any:
        if type(value) is GradTracer and value.interpreter is self.interpreter:
            if value.node is not None:
                self.edges.append((slot, path, value.node))
            return value.below
        return value

    def lower(self, value: Any) -> Any:
        """The value below a tracer of this gradient; other values as they are."""
        return self.interpreter.lower(value)

    def node(self) -> GradNode:
        """A new node for the call."""
        node = self.nodes(self.edges)
        if self.op.nested_slots:
            node.node_inputs = [emptied(value) for value in self.values]
        return node

    def set_up(
        self, node: GradNode, setup_context: Callable[..., Any], out: Any
    ) -> None:
        """Let the user's function save what the backward formula needs."""
        setup = observed_setup(self.op, setup_context) if observers else setup_context
        positional, keywords = self.op.schema.split(self.values)
        inputs = tuple(positional)
        if keywords:
            setup(ctx=node, inputs=inputs, keyword_only_inputs=keywords, output=out)
        else:
            setup(ctx=node, inputs=inputs, output=out)

    def track(self, node: GradNode, out: Any) -> Any:
        """The result, with its differentiable arrays tracked to the node."""
        schema = self.op.schema
        blocked = node.node_blocked
        if schema.single_return:
            if not is_differentiable(out, blocked):
                if is_array(out) and inexact[out.dtype] is None:
                    raise hidden(self.op, out)
                return out
            node.node_shape, node.node_dtype = out.shape, out.dtype
            return GradTracer(self.interpreter, out, node)
        parts = list(out) if schema.is_tuple else [out]
        if schema.is_tuple and _PLAIN.issuperset(map(type, parts)):
            return self._tracked(node, parts, blocked)
        node.node_metas = found = [metas_of(part, blocked) for part in parts]
        metas = enumerate(flat_metas(found))

        def wrap(value: Any) -> Any:
            at, meta = next(metas)
            if meta is None:
                return value
            return GradTracer(self.interpreter, value, Output(node, at, meta))

        tracked = [map_nested(part, wrap) for part in parts]
        return tuple(tracked) if schema.is_tuple else tracked[0]

    def _tracked(
        self, node: GradNode, parts: list[Any], blocked: Sequence[Any]
    ) -> tuple[Any, ...]:
        """As `track`, for several plain arrays: a third of the time."""
        node.node_metas = metas = [metas_of(part, blocked) for part in parts]
        for at, meta in enumerate(metas):
            if meta is not None:
                origin = Output(node, at, meta)
                parts[at] = GradTracer(self.interpreter, parts[at], origin)
        return tuple(parts)


_PLAIN = frozenset((np.ndarray, *SCALARS))


def emptied(value: Any) -> Any:
    """The nesting of an argument, without the arrays in it."""
    return map_outline(value, lambda _: None)


def observed_setup(op: RuleTable, setup: Any) -> Callable[..., None]:
    """A setup function, shown to observers."""

    def run(*args: Any, **keywords: Any) -> None:
        given = [*args, *keywords.values()][1:]  # without ctx, which comes first
        observed(op, "setup_context", setup, given)(*args, **keywords)

    return run
