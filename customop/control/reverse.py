"""Reverse mode of the operators of control flow."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from customop.arrays.numpy_functions import call_numpy
from customop.control.bodies import tracing
from customop.control.derivatives import halves_of, where, zeros_like
from customop.control.derived import gradients, named_as
from customop.control.functions import cond, scan
from customop.control.operators import (
    cond_op,
    run_cond,
    run_scan,
    run_while,
    scan_op,
    while_op,
)
from customop.control.split import Halves, moving_outputs
from customop.core.boxes import frozen
from customop.core.definition import Definition
from customop.core.grad_rules import GradCall, GradRule
from customop.core.kinds import AUTOGRAD
from customop.errors import GradientError, place
from customop.graph.module import GraphModule
from customop.shapes.sizes import is_symbolic

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


def _tracked(call: GradCall, slot: int) -> list[bool]:
    """Which arrays of an argument depend on what is differentiated."""
    found = {path[0] for number, path, _ in call.edges if number == slot and path}
    return [i in found for i in range(len(call.values[slot]))]


def _track(
    call: GradCall,
    outputs: list[Any],
    saved: Arrays,
    pull: Callable[[Arrays, Arrays], dict[str, Any]],
) -> Any:
    node = call.node()
    node.saved_arrays = tuple([frozen(v) for v in saved])
    node.pull = pull
    return call.track(node, outputs)


class _ListsInOne:
    """Lists of arrays that are saved as one tuple."""

    def __init__(self, *lists: Arrays) -> None:
        self.values: list[Any] = [v for values in lists for v in values]
        self._lengths = [len(values) for values in lists]

    def of(self, values: Arrays) -> list[Arrays]:
        """The lists, from all values."""
        return _cut(values, self._lengths)


def _cut(values: Arrays, lengths: Sequence[int]) -> list[Arrays]:
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
        of_operands = _tracked(call, 1)
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
                saved = [*map(_zeros, before), *found[count:], *map(_zeros, after)]
                return [*found[:count], *saved]

            return named_as(run, side.forward)

        found = cond(
            pred, forward(yes, (), no.saved), forward(no, yes.saved, ()), *operands
        )
        kept = sorted({*yes.kept, *no.kept})
        cut = count + len(yes.saved)
        parts = _ListsInOne(
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

        return _track(call, found[:count], parts.values, pull)


def _halves_of_both(
    modules: Sequence[GraphModule], moving: Sequence[bool], outputs: Sequence[bool]
) -> list[Halves]:
    """The halves of two graphs. What one saves must have sizes that the other knows."""
    halves = [halves_of(module, moving, outputs) for module in modules]
    saved = [like for half in halves for like in half.saved]
    if not any(is_symbolic(like.shape) for like in saved):
        return halves
    return [halves_of(m, moving, outputs, recomputes=True) for m in modules]


def _zeros(like: Any) -> Any:
    return call_numpy(np.zeros, like.shape, like.dtype)


class ScanRule(ControlRule):
    """scan: the backward pass is a scan in the other direction."""

    __slots__ = ()

    def traced(self, call: GradCall) -> Any:
        """Run a scan of the forward graph."""
        outside, init, xs, body, *options, given = call.values
        length, reverse, checkpoint = options
        steps = xs[0].shape[0] if xs else length
        generators = given or []
        carries, rows = len(init), len(xs)
        tracked = [*_tracked(call, 1), *_tracked(call, 2), *_tracked(call, 0)]
        fixed = [False] * len(generators)
        moving, outputs = moving_outputs(body, [*tracked, *fixed], carries)
        if not any(outputs):
            return call.op.invoke(call.values)
        halves = halves_of(body, moving, outputs, recomputes=checkpoint)
        end, count = carries + rows, len(outputs)
        of_carry, of_xs = moving[:carries], moving[carries:end]
        of_outside = moving[end : len(tracked)]
        lengths = [sum(of_carry), sum(of_xs), sum(of_outside)]
        kept_carry = [i for i in halves.kept if i < carries]
        kept_xs = [i - carries for i in halves.kept if carries <= i < end]
        kept_outside = [i - end for i in halves.kept if i >= end]

        def step(carry: Arrays, x: Arrays) -> Any:
            found = halves.forward(*carry, *x, *outside, *generators)
            saved = [*(carry[i] for i in kept_carry), *found[count:]]
            return found[:carries], (found[carries:count], saved)

        named_as(step, halves.forward)
        last, (ys, saved) = scan(step, init, xs, length, reverse)
        parts = _ListsInOne(
            [xs[i] for i in kept_xs],
            saved,
            [outside[i] for i in kept_outside],
            where(of_outside, outside),
        )

        def pull(values: Arrays, grads: Arrays) -> dict[str, Any]:
            of_rows, saved, fixed, summed = parts.of(values)
            last = where(of_carry, grads[:carries])
            of_ys = where(outputs[carries:], grads[carries:])

            def back(sums: Any, row: Any) -> Any:
                of_last, totals = sums
                x, kept, of_y = row
                cut = len(kept_carry)
                by_carry = gradients(of_carry, of_last)
                cotangents = [*where(outputs[:carries], by_carry), *of_y]
                found = halves.backward(
                    *kept[:cut], *x, *fixed, *kept[cut:], *cotangents
                )
                of_init, of_x, of_fixed = _cut(found, lengths)
                totals = [a + b for a, b in zip(totals, of_fixed, strict=True)]
                return (list(of_init), totals), list(of_x)

            named_as(back, halves.backward)
            starts = (last, [*map(zeros_like, summed)])
            given = (list(of_rows), list(saved), of_ys)
            (of_init, totals), of_x = scan(back, starts, given, steps, not reverse)
            return {
                "init": gradients(of_carry, of_init),
                "xs": gradients(of_xs, of_x),
                "outside": gradients(of_outside, totals),
            }

        return _track(call, [*last, *ys], parts.values, pull)


class WhileRule(ControlRule):
    """while_loop: the number of steps is not known, so nothing can be saved."""

    __slots__ = ()

    def traced(self, call: GradCall) -> Any:
        """Run it; a gradient that is needed is an error."""
        _, init, _, body, generators = call.values
        fixed = [False] * len(generators or ())
        given = [*_tracked(call, 1), *_tracked(call, 0), *fixed]
        if not any(moving_outputs(body, given, len(init))[1]):
            return call.op.invoke(call.values)

        def pull(saved: Arrays, grads: Arrays) -> dict[str, Any]:
            raise call.op.error(
                GradientError,
                " has no reverse mode in a captured graph: the number of its steps is"
                " not known, so neither is the memory that its gradient needs",
                f"the body is at {body.place}",
                do="use scan, or fori_loop with ints as limits; or jvp or jacfwd; or"
                " take the gradient of the graph: grad(make_fx(f)(*args))",
                parameter=None,
                kind="autograd",
            )

        return _track(call, call.op.invoke(call.values), (), pull)


for _op, _rule in (
    (cond_op, CondRule(run_cond)),
    (while_op, WhileRule(run_while)),
    (scan_op, ScanRule(run_scan)),
):
    _op.add(AUTOGRAD, _rule, override=False)
