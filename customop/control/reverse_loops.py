"""Reverse mode of loops: the backward pass is a scan in the other direction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from customop.control.bodies import renewed
from customop.control.captures import row_of
from customop.control.derivatives import halves_of, where, zeros_like
from customop.control.derived import gradients, named_as
from customop.control.functions import cond, scan, while_scan
from customop.control.operators import (
    run_scan,
    run_while,
    run_while_scan,
    scan_op,
    while_op,
    while_scan_op,
)
from customop.control.reverse import (
    ControlRule,
    ListsInOne,
    cut,
    track,
    tracked,
    zeros_of,
)
from customop.control.split import moving_outputs
from customop.core.grad_rules import GradCall
from customop.core.kinds import AUTOGRAD
from customop.errors import GradientError
from customop.graph.module import GraphModule
from customop.graph.passes.halves import Halves
from customop.shapes.sizes import is_size

Arrays = Sequence[Any]
Pull = Callable[[Arrays, Arrays], dict[str, Any]]


class _MovingLoop(NamedTuple):
    """A loop that is differentiated: its lists of arrays, and what moves in them.

    Attributes
    ----------
    init, xs, outside : list of array
    generators : list of Generator
    of_outside : list of bool
        Which of `outside` depend on what is differentiated.
    moving : list of bool
        Of the inputs of a step: which do so in some step.
    outputs : list of bool
        Of the outputs of a step.
    """

    init: Arrays
    xs: Arrays
    outside: Arrays
    generators: Arrays
    of_outside: list[bool]
    moving: list[bool]
    outputs: list[bool]

    @property
    def inputs(self) -> list[Any]:
        """What a step takes, with a fake array for each row."""
        rows = map(row_of, self.xs)
        return [*self.init, *rows, *self.outside, *self.generators]

    @property
    def of_carry(self) -> list[bool]:
        """Which part of the carry moves in some step."""
        return self.moving[: len(self.init)]

    @property
    def of_xs(self) -> list[bool]:
        """Which rows move."""
        count = len(self.init)
        return self.moving[count : count + len(self.xs)]

    @property
    def moves(self) -> bool:
        """Whether some result of the loop moves: without steps, `init` is one."""
        return any(self.outputs) or any(self.of_carry)


def _loop(call: GradCall, body: GraphModule, *, has_rows: bool) -> _MovingLoop:
    """The loop of a call, whose arguments are outside, init and, of a scan, xs."""
    outside, init = call.values[0], call.values[1]
    xs: Arrays = call.values[2] if has_rows else []
    of_outside, of_init = tracked(call, 0), tracked(call, 1)
    of_xs = tracked(call, 2) if has_rows else []
    generators = call.values[-1] or []
    flags = [*of_init, *of_xs, *of_outside, *[False] * len(generators)]
    moving, outputs = moving_outputs(body, flags, len(init))
    return _MovingLoop(init, xs, outside, generators, of_outside, moving, outputs)


class _Steps:
    """The forward and the backward step of a loop.

    Parameters
    ----------
    loop : _MovingLoop
    halves : Halves
        Of its body.
    """

    def __init__(self, loop: _MovingLoop, halves: Halves) -> None:
        self.loop: _MovingLoop = loop
        self.halves: Halves = halves
        carries = len(loop.init)
        end = carries + len(loop.xs)
        self.kept_carry: list[int] = [i for i in halves.kept if i < carries]
        self.kept_xs: list[int] = [
            i - carries for i in halves.kept if carries <= i < end
        ]
        kept_outside = [i - end for i in halves.kept if i >= end]
        # What the backward steps take that is the same in all of them.
        self.fixed: list[Any] = [loop.outside[i] for i in kept_outside]
        self.summed: list[Any] = where(loop.of_outside, loop.outside)

    def forward(self, carry: Arrays, x: Arrays) -> tuple[Any, tuple[Any, Any]]:
        """One step: the new carry, its results, and what is saved."""
        loop, count = self.loop, len(self.loop.init)
        found = self.halves.forward(*carry, *x, *loop.outside, *loop.generators)
        end = len(loop.outputs)
        saved = [*(carry[i] for i in self.kept_carry), *found[end:]]
        return found[:count], (found[count:end], saved)

    def backward(
        self, sums: Any, x: Arrays, saved: Arrays, fixed: Arrays, of_y: Arrays
    ) -> tuple[Any, list[Any]]:
        """One step back: gradients of the carry and sums, and of the row."""
        loop = self.loop
        of_last, totals = sums
        count, kept = len(loop.init), len(self.kept_carry)
        by_carry = gradients(loop.of_carry, of_last)
        cotangents = [*where(loop.outputs[:count], by_carry), *of_y]
        found = self.halves.backward(
            *saved[:kept], *x, *fixed, *saved[kept:], *cotangents
        )
        lengths = [sum(loop.of_carry), sum(loop.of_xs), len(totals)]
        of_init, of_x, of_fixed = cut(found, lengths)
        totals = [a + b for a, b in zip(totals, of_fixed, strict=True)]
        return (list(of_init), totals), list(of_x)

    def starts(self, of_last: Arrays, summed: Arrays) -> Any:
        """The first carry of the backward scan."""
        return where(self.loop.of_carry, of_last), [*map(zeros_like, summed)]

    def found(self, of_init: Arrays, totals: Arrays) -> dict[str, Any]:
        """Gradients by argument, without those of rows."""
        return {
            "init": gradients(self.loop.of_carry, of_init),
            "outside": gradients(self.loop.of_outside, totals),
        }


class ScanRule(ControlRule):
    """scan: the backward pass is a scan in the other direction."""

    __slots__ = ()

    def traced(self, call: GradCall) -> Any:
        """Run a scan of the forward graph."""
        _, _, xs, body, length, reverse, checkpoint, _ = call.values
        loop = _loop(call, body, has_rows=True)
        if not loop.moves:
            return call.op.invoke(call.values)
        body = renewed(body, loop.inputs)
        halves = _halves_of_step(call, body, loop, recomputes=checkpoint)
        steps, count = _Steps(loop, halves), len(loop.init)
        named_as(step := lambda carry, x: steps.forward(carry, x), halves.forward)
        last, (ys, saved) = scan(step, loop.init, xs, length, reverse)
        kept_xs = [xs[i] for i in steps.kept_xs]
        parts = ListsInOne(kept_xs, saved, steps.fixed, steps.summed)
        number = xs[0].shape[0] if xs else length

        def pull(values: Arrays, grads: Arrays) -> dict[str, Any]:
            of_rows, saved, fixed, summed = parts.of(values)

            def back(sums: Any, row: Any) -> Any:
                x, kept, of_y = row
                return steps.backward(sums, x, kept, fixed, of_y)

            named_as(back, halves.backward)
            of_ys = where(loop.outputs[count:], grads[count:])
            given = (list(of_rows), list(saved), of_ys)
            starts = steps.starts(grads[:count], summed)
            sums, of_x = scan(back, starts, given, number, not reverse)
            return {**steps.found(*sums), "xs": gradients(loop.of_xs, of_x)}

        return track(call, [*last, *ys], parts.values, pull)


class WhileRule(ControlRule):
    """while_loop: the forward loop keeps what each step saves, in one array for all steps.

    The backward pass is a scan over them. In a batch rows differ in the number of their steps:
    `ran` says which of them a step was for.
    """

    __slots__ = ()

    def traced(self, call: GradCall) -> Any:
        """Run the forward graph in a loop that keeps results."""
        _, _, test, body, generators = call.values
        loop = _loop(call, body, has_rows=False)
        if not loop.moves:
            return call.op.invoke(call.values)
        body = renewed(body, loop.inputs)
        halves = _halves_of_step(call, body, loop)
        steps, count = _Steps(loop, halves), len(loop.init)

        def goes_on(carry: Arrays) -> Any:
            return test(*carry, *loop.outside, *(generators or ()))[0]

        named_as(step := lambda carry: steps.forward(carry, ()), halves.forward)
        last, (ys, saved), ran = while_scan(named_as(goes_on, test), step, loop.init)
        parts = ListsInOne([ran], saved, steps.fixed, steps.summed)
        leaves = halves.forward.graph.output_node.args[0][: len(loop.outputs)]
        likes = [node.meta["val"] for node in leaves]

        def pull(values: Arrays, grads: Arrays) -> dict[str, Any]:
            (ran,), saved, fixed, summed = parts.of(values)
            of_ys = where(loop.outputs[count:], grads[count : len(likes)])
            given = [g for g in of_ys if g is not None]
            zeros = where(loop.outputs[count:], likes[count:])

            def of_step(rows: Arrays) -> list[Any]:
                known = iter(rows)
                pairs = zip(of_ys, zeros, strict=True)
                return [zeros_of(z) if g is None else next(known) for g, z in pairs]

            def back(sums: Any, row: Any) -> Any:
                was_run, kept, of_y = row

                def run(sums: Any, kept: Arrays, given: Arrays) -> Any:
                    of_y = of_step(given)
                    return steps.backward(sums, (), kept, fixed, of_y)[0]

                def skip(sums: Any, kept: Arrays, given: Arrays) -> Any:
                    return sums

                named_as(run, halves.backward)
                named_as(skip, halves.backward)
                return cond(was_run, run, skip, sums, kept, of_y), None

            named_as(back, halves.backward)
            pairs = zip(grads, likes[:count], strict=False)
            of_last = [zeros_of(like) if g is None else g for g, like in pairs]
            starts = steps.starts(of_last, summed)
            rows = (ran, list(saved), given)
            return steps.found(*scan(back, starts, rows, reverse=True)[0])

        results = [*last, *ys]
        if call.op is while_scan_op:
            results.append(ran)
        return track(call, results, parts.values, pull, materialize=False)


def _halves_of_step(
    call: GradCall, body: GraphModule, loop: _MovingLoop, *, recomputes: bool = False
) -> Halves:
    """The halves of a body. What it saves must have the same sizes in each step."""
    halves = halves_of(body, loop.moving, loop.outputs, recomputes=recomputes)
    if not any(map(_has_own_size, halves.saved)):
        return halves
    halves = halves_of(body, loop.moving, loop.outputs, recomputes=True)
    for like in halves.saved:
        if _has_own_size(like):
            raise call.op.error(
                GradientError,
                f" has no reverse mode in a captured graph: a step draws {like}, whose size"
                " may differ between steps, and the gradient cannot draw it again",
                f"the body is at {body.place}",
                do="draw an array of a fixed size in each step; or take the gradient of the"
                " graph: grad(make_fx(f)(*args))",
                parameter=None,
                kind="autograd",
            )
    return halves


def _has_own_size(like: Any) -> bool:
    """Whether a size depends on data, so that it may differ between the steps."""
    return any(is_size(n) and n.hint is None for n in like.shape)


for _op, _rule in (
    (while_op, WhileRule(run_while)),
    (while_scan_op, WhileRule(run_while_scan)),
    (scan_op, ScanRule(run_scan)),
):
    _op.add(AUTOGRAD, _rule, override=False)
