"""Reverse mode of the operators of control flow, and the rule of `cond`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from customop.arrays.numpy_functions import call_numpy
from customop.control.bodies import renewed, tracing
from customop.control.derivatives import halves_of, where
from customop.control.derived import gradients, named_as
from customop.control.functions import cond
from customop.control.operators import cond_op, run_cond
from customop.control.split import moving_outputs
from customop.core.boxes import frozen
from customop.core.definition import Definition
from customop.core.grad_rules import GradCall, GradRule
from customop.core.kinds import AUTOGRAD
from customop.errors import place
from customop.graph.module import GraphModule
from customop.graph.passes.halves import Halves
from customop.shapes.sizes import is_symbolic

__all__ = ["ControlRule", "ListsInOne", "cut", "track", "tracked", "zeros_of"]

Arrays = Sequence[Any]


class ControlRule(GradRule):
    """Reverse mode of one operator of control flow."""

    __slots__ = ("run",)

    def __init__(self, run: Callable[..., list[Any]]) -> None:
        self.run: Callable[..., list[Any]] = run

    def forward(self, call: GradCall) -> Any:
        """Run the function on tracers; in a capture, make graphs of its two halves."""
        if tracing():
            return self.traced(call)
        positional, named = call.op.schema.split(call.args)
        return self.run(*positional, **named)

    @abstractmethod
    def traced(self, call: GradCall) -> Any:
        """Run the forward graph, and note what the backward graph needs."""

    def backward(self, ctx: Any, grads: Arrays) -> dict[str, Any]:
        """Gradients of the arguments, from what the forward half has noted."""
        found: dict[str, Any] = ctx.pull(ctx.saved_arrays, grads)
        return found

    def check(self, op: Definition) -> None:
        """Fits the operators of this module."""

    @property
    def places(self) -> tuple[str, ...]:
        """The place of what the operator runs."""
        return (place(self.run),)


def tracked(call: GradCall, slot: int) -> list[bool]:
    """Which arrays of an argument depend on what is differentiated."""
    found = {path[0] for number, path, _ in call.edges if number == slot and path}
    return [i in found for i in range(len(call.values[slot]))]


def track(
    call: GradCall,
    outputs: list[Any],
    saved: Arrays,
    pull: Callable[[Arrays, Arrays], dict[str, Any]],
    *,
    materialize: bool = True,
) -> Any:
    """The outputs, tracked to a node that notes what the backward graph needs."""
    node = call.node()
    node.node_materialize = materialize
    node.saved_arrays = tuple([frozen(v) for v in saved])
    node.pull = pull
    return call.track(node, outputs)


class ListsInOne:
    """Lists of arrays that are saved as one tuple."""

    def __init__(self, *lists: Arrays) -> None:
        self.values: list[Any] = [v for values in lists for v in values]
        self._lengths = [len(values) for values in lists]

    def of(self, values: Arrays) -> list[Arrays]:
        """The lists, from all values."""
        return cut(values, self._lengths)


def cut(values: Arrays, lengths: Sequence[int]) -> list[Arrays]:
    """Lists of these lengths, one after the other."""
    ends = [*accumulate(lengths)]
    pairs = zip([0, *ends], ends, strict=False)
    return [values[start:end] for start, end in pairs]


class CondRule(ControlRule):
    """cond: the backward pass is a cond of the backward graphs."""

    __slots__ = ()

    def traced(self, call: GradCall) -> Any:
        """Run a cond of the forward graphs."""
        pred, operands, *modules, given = call.values
        generators = given or []
        modules = [renewed(module, [*operands, *generators]) for module in modules]
        of_operands = tracked(call, 1)
        moving = [*of_operands, *[False] * len(generators)]
        pairs = [moving_outputs(module, moving)[1] for module in modules]
        outputs = [a or b for a, b in zip(*pairs, strict=True)]
        if not any(outputs):
            return call.op.invoke(call.values)
        yes, no = _halves_of_both(modules, moving, outputs)
        count = len(outputs)

        def forward(side: Any, before: Arrays, after: Arrays) -> Any:
            def run(*arrays: Any) -> list[Any]:
                found = side.forward(*arrays, *generators)
                saved = [*map(zeros_of, before), *found[count:], *map(zeros_of, after)]
                return [*found[:count], *saved]

            return named_as(run, side.forward)

        found = cond(
            pred, forward(yes, (), no.saved), forward(no, yes.saved, ()), *operands
        )
        kept = sorted({*yes.kept, *no.kept})
        cut = count + len(yes.saved)
        parts = ListsInOne(
            [pred], [operands[i] for i in kept], found[count:cut], found[cut:]
        )

        def pull(saved: Arrays, grads: Arrays) -> dict[str, Any]:
            (pred,), inputs, of_yes, of_no = parts.of(saved)
            by_number = dict(zip(kept, inputs, strict=True))

            def backward(side: Any) -> Any:
                def run(inputs: Any, *given: Any) -> Any:
                    own = given[0] if side is yes else given[1]
                    return side.backward(
                        *[inputs[i] for i in side.kept], *own, *given[2]
                    )

                return named_as(run, side.backward)

            cotangents = where(outputs, grads)
            given = (by_number, list(of_yes), list(of_no), cotangents)
            found = cond(pred, backward(yes), backward(no), *given)
            return {"operands": gradients(of_operands, found)}

        return track(call, found[:count], parts.values, pull)


def _halves_of_both(
    modules: Sequence[GraphModule], moving: Sequence[bool], outputs: Sequence[bool]
) -> list[Halves]:
    """The halves of two graphs. What one saves must have sizes that the other knows."""
    halves = [halves_of(module, moving, outputs) for module in modules]
    saved = [like for half in halves for like in half.saved]
    if not any(is_symbolic(like.shape) for like in saved):
        return halves
    return [halves_of(m, moving, outputs, recomputes=True) for m in modules]


def zeros_of(like: Any) -> Any:
    """Zeros of the shape and dtype of another array."""
    return call_numpy(np.zeros, like.shape, like.dtype)


cond_op.add(AUTOGRAD, CondRule(run_cond), override=False)
