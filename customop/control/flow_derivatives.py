"""Forward- and reverse-mode rules of the operators of control flow."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from customop.arrays.array import is_inexact
from customop.arrays.numpy_functions import call_numpy
from customop.control.flow import cond, row_of, scan, while_loop, while_scan
from customop.control.operators import (
    Body,
    FromOutside,
    cond_op,
    gradients,
    moving_outputs,
    named_as,
    renewed,
    run_cond,
    run_scan,
    run_while,
    run_while_scan,
    scan_op,
    tangents_of,
    tracing,
    while_op,
    while_scan_op,
)
from customop.core.builtin_kinds import AUTOGRAD, GradCall, GradRule
from customop.core.rule_kind import Definition
from customop.core.tracer import frozen
from customop.errors import GradientError, place
from customop.graph.module import GraphModule
from customop.graph.subgraphs import Halves, split
from customop.shapes.sizes import is_size, is_symbolic
from customop.transforms.autograd.grad import pull_back
from customop.transforms.autograd.reverse import GradInterpreter
from customop.transforms.jvp import jvp
from customop.transforms.values import replaced

Arrays = Sequence[Any]


# ---- forward mode ----


@cond_op.register_jvp
def _(primals: Any, tangents: Any, *, generators: Any = None) -> Any:
    drawn = generators or ()
    pred, operands, *modules = primals
    of_operands = tangents[1] or [None] * len(operands)
    if not tracing():

        def of(*arrays: Any) -> Any:
            return run_cond(pred, arrays, *modules, generators=generators)

        return pushed(of, operands, of_operands)
    moving = [t is not None for t in of_operands]
    inexact: list[bool] = []

    def push(module: GraphModule) -> Any:
        def run(arrays: Any, given: Any) -> Any:
            of = lambda *given: module(*given, *drawn)  # noqa: E731  # short
            outputs, found = pushed(of, arrays, gradients(moving, given))
            inexact[:] = [t is not None for t in found]
            return [*outputs, *where(inexact, found)]

        return named_as(run, module)

    yes, no = map(push, modules)
    found = cond(pred, yes, no, operands, where(moving, of_operands))
    return _pair(found, inexact)


def _pair(found: Any, inexact: Sequence[bool]) -> tuple[list[Any], list[Any]]:
    """Split a flat list into all outputs, and the tangents of the inexact ones."""
    count = len(inexact)
    return [*found[:count]], gradients(inexact, found[count:])


@while_op.register_jvp
def _(primals: Any, tangents: Any, *, generators: Any = None) -> Any:
    return _push_while(primals, tangents, generators, run_while, records=False)


@while_scan_op.register_jvp
def _(primals: Any, tangents: Any, *, generators: Any = None) -> Any:
    return _push_while(primals, tangents, generators, run_while_scan, records=True)


def _push_while(
    primals: Any, tangents: Any, generators: Any, run_loop: Any, *, records: bool
) -> Any:
    """Return outputs and tangents of a while_loop, whose steps may record results."""
    drawn = generators or ()
    outside, init, test, body = primals
    given = [*tangents_of(init, tangents[1]), *tangents_of(outside, tangents[0])]
    count = len(init)
    if not tracing():

        def run(*arrays: Any) -> Any:
            lists = arrays[count:], arrays[:count]
            return run_loop(*lists, test, body, generators=generators)

        return pushed(run, [*init, *outside], given)
    flags = [*(t is not None for t in given), *[False] * len(drawn)]
    moving, outputs = moving_outputs(body, flags, count)
    of_carry, of_ys = moving[:count], outputs[count:]
    starts = _started(init, given, of_carry)

    def goes_on(carry: Any) -> Any:
        return test(*carry[0], *outside, *drawn)[0]

    def step(carry: Any) -> Any:
        old, pushes = carry
        directions = [*gradients(of_carry, pushes), *given[count:]]
        outputs, found = pushed(
            lambda *arrays: body(*arrays, *drawn), [*old, *outside], directions
        )
        ys = outputs[count:], where(of_ys, found[count:])
        return (outputs[:count], where(of_carry, found[:count])), ys

    named_as(goes_on, test)
    start = ([*init], starts)
    if not records:
        carries = named_as(lambda carry: step(carry)[0], body)
        last, found = while_loop(goes_on, carries, start)
        return last, gradients(of_carry, found)
    (last, found), (ys, of_rows), ran = while_scan(goes_on, named_as(step, body), start)
    found = [*gradients(of_carry, found), *gradients(of_ys, of_rows), None]
    return [*last, *ys, ran], found


def _started(init: Arrays, given: Arrays, moving: Sequence[bool]) -> list[Any]:
    """Return tangents for the part of the first carry that moves in some step."""
    pairs = zip(init, given, strict=False)
    return where(moving, [zeros_like(v) if t is None else t for v, t in pairs])


@scan_op.register_jvp
def _(primals: Any, tangents: Any, *, generators: Any = None) -> Any:
    drawn = generators or ()
    outside, init, xs, body, *options = primals
    length, reverse, checkpoint = options
    carries, end = len(init), len(init) + len(xs)
    given = [*tangents_of(init, tangents[1]), *tangents_of(xs, tangents[2])]
    given += tangents_of(outside, tangents[0])
    if not tracing():

        def run(*arrays: Any) -> Any:
            lists = arrays[end:], arrays[:carries], arrays[carries:end]
            return run_scan(*lists, body, *options, generators=generators)

        return pushed(run, [*init, *xs, *outside], given)
    flags = [*(t is not None for t in given), *[False] * len(drawn)]
    moving, outputs = moving_outputs(body, flags, carries)
    of_carry, of_xs = moving[:carries], moving[carries:end]
    starts = _started(init, given, of_carry)
    of_ys = outputs[carries:]

    def step(carry: Any, x: Any) -> Any:
        (old, pushes), (row, of_row) = carry, x
        directions = [*gradients(of_carry, pushes), *gradients(of_xs, of_row)]
        directions += given[end:]
        new, found = pushed(
            lambda *arrays: body(*arrays, *drawn),
            [*old, *row, *outside],
            directions,
        )
        ys = new[carries:], where(of_ys, found[carries:])
        return (new[:carries], where(of_carry, found[:carries])), ys

    named_as(step, body)
    rows = ([*xs], where(of_xs, given[carries:end]))
    (last, of_last), (ys, pushes) = scan(
        step, ([*init], starts), rows, length, reverse, checkpoint=checkpoint
    )
    return [*last, *ys], [*gradients(of_carry, of_last), *gradients(of_ys, pushes)]


# ---- reverse mode ----


class ControlRule(GradRule):
    """The reverse-mode rule of one operator of control flow."""

    __slots__ = ("run",)

    def __init__(self, run: Callable[..., list[Any]]) -> None:
        self.run: Callable[..., list[Any]] = run

    def forward(self, call: GradCall) -> Any:
        """Run the operator's function on tracers; in a capture, run the forward graph."""
        if tracing():
            return self.traced(call)
        positional, named = call.op.schema.split(call.args)
        return self.run(*positional, **named)

    @abstractmethod
    def traced(self, call: GradCall) -> Any:
        """Run the forward graph, and save what the backward graph needs."""

    def backward(self, ctx: Any, grads: Arrays) -> dict[str, Any]:
        """Return gradients of the arguments, from what the forward half has saved."""
        found: dict[str, Any] = ctx.pull(ctx.saved_arrays, grads)
        return found

    def check(self, op: Definition) -> None:
        """Accept the definition: the rules of this module fit their operators."""

    @property
    def places(self) -> tuple[str, ...]:
        """The place in the source of the function that the operator runs."""
        return (place(self.run),)


def tracked(call: GradCall, slot: int) -> list[bool]:
    """Return for each array of an argument whether it is differentiated."""
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
    """Return the outputs, tracked by a node that holds what the backward graph needs."""
    node = call.node()
    node.node_materialize = materialize
    node.saved_arrays = tuple([frozen(v) for v in saved])
    node.pull = pull
    return call.track(node, outputs)


class ListsInOne:
    """Several lists of arrays that are saved as one tuple."""

    def __init__(self, *lists: Arrays) -> None:
        self.values: list[Any] = [v for values in lists for v in values]
        self._lengths = [len(values) for values in lists]

    def of(self, values: Arrays) -> list[Arrays]:
        """Split the saved values into the lists again."""
        return cut(values, self._lengths)


def cut(values: Arrays, lengths: Sequence[int]) -> list[Arrays]:
    """Cut a sequence into consecutive lists of the given lengths."""
    ends = [*accumulate(lengths)]
    pairs = zip([0, *ends], ends, strict=False)
    return [values[start:end] for start, end in pairs]


# ---- reverse mode of `cond` ----


class CondRule(ControlRule):
    """The rule of cond: the backward pass is a cond of the backward graphs."""

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
    """Return the halves of both graphs of a cond.

    Each branch also returns zeros for what the other one saves, so it must know their
    sizes. Where sizes are symbolic, the halves recompute instead.
    """
    halves = [halves_of(module, moving, outputs) for module in modules]
    saved = [like for half in halves for like in half.saved]
    if not any(is_symbolic(like.shape) for like in saved):
        return halves
    return [halves_of(m, moving, outputs, recomputes=True) for m in modules]


def zeros_of(like: Any) -> Any:
    """Return zeros of the shape and dtype of `like`."""
    return call_numpy(np.zeros, like.shape, like.dtype)


cond_op.add(AUTOGRAD, CondRule(run_cond), override=False)


# ---- reverse mode of loops ----
# The backward pass is a scan in the other direction.

Pull = Callable[[Arrays, Arrays], dict[str, Any]]


class _MovingLoop(NamedTuple):
    """A loop that is differentiated: its arrays, and which of them move.

    Attributes
    ----------
    init, xs, outside : list of array
    generators : list of Generator
    of_outside : list of bool
        Which of `outside` depend on differentiated inputs.
    moving : list of bool
        Which inputs of a step depend on differentiated inputs, in some step.
    outputs : list of bool
        Which outputs of a step do.
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
        """The inputs of a step, with fake arrays for the rows of `xs`."""
        rows = map(row_of, self.xs)
        return [*self.init, *rows, *self.outside, *self.generators]

    @property
    def of_carry(self) -> list[bool]:
        """Which leaves of the carry move in some step."""
        return self.moving[: len(self.init)]

    @property
    def of_xs(self) -> list[bool]:
        """Which of `xs` move."""
        count = len(self.init)
        return self.moving[count : count + len(self.xs)]

    @property
    def moves(self) -> bool:
        """Return whether some result of the loop moves. Without steps, the result is `init`."""
        return any(self.outputs) or any(self.of_carry)


def _loop(call: GradCall, body: GraphModule, *, has_rows: bool) -> _MovingLoop:
    """Return the loop of a call, whose arguments are outside, init and (for a scan) xs."""
    outside, init = call.values[0], call.values[1]
    xs: Arrays = call.values[2] if has_rows else []
    of_outside, of_init = tracked(call, 0), tracked(call, 1)
    of_xs = tracked(call, 2) if has_rows else []
    generators = call.values[-1] or []
    flags = [*of_init, *of_xs, *of_outside, *[False] * len(generators)]
    moving, outputs = moving_outputs(body, flags, len(init))
    return _MovingLoop(init, xs, outside, generators, of_outside, moving, outputs)


class _Steps:
    """The forward step and the backward step of a loop.

    Parameters
    ----------
    loop : _MovingLoop
    halves : Halves
        The forward and backward graphs of its body.
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
        # Inputs of the backward steps that are the same in all of them.
        self.fixed: list[Any] = [loop.outside[i] for i in kept_outside]
        self.summed: list[Any] = where(loop.of_outside, loop.outside)

    def forward(self, carry: Arrays, x: Arrays) -> tuple[Any, tuple[Any, Any]]:
        """Run one step; return the new carry, the results, and what is saved."""
        loop, count = self.loop, len(self.loop.init)
        found = self.halves.forward(*carry, *x, *loop.outside, *loop.generators)
        end = len(loop.outputs)
        saved = [*(carry[i] for i in self.kept_carry), *found[end:]]
        return found[:count], (found[count:end], saved)

    def backward(
        self, sums: Any, x: Arrays, saved: Arrays, fixed: Arrays, of_y: Arrays
    ) -> tuple[Any, list[Any]]:
        """Run one step back; return gradients of the carry, sums, and gradients of the row."""
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
        """Return the first carry of the backward scan."""
        return where(self.loop.of_carry, of_last), [*map(zeros_like, summed)]

    def found(self, of_init: Arrays, totals: Arrays) -> dict[str, Any]:
        """Return gradients by argument name, without those of `xs`."""
        return {
            "init": gradients(self.loop.of_carry, of_init),
            "outside": gradients(self.loop.of_outside, totals),
        }


class ScanRule(ControlRule):
    """The rule of scan: the backward pass is a scan in the other direction."""

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
    """The rule of while_loop: the forward loop stacks what each step saves.

    The backward pass is a scan over these arrays. In a batch, rows may differ in their
    number of steps: `ran` says for which rows a step ran.
    """

    __slots__ = ()

    def traced(self, call: GradCall) -> Any:
        """Run the forward graph in a loop that records results."""
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
    """Return the halves of a body; raise if saved sizes may differ between steps."""
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
    """Return whether a size depends on data, and so may differ between steps."""
    return any(is_size(n) and n.hint is None for n in like.shape)


for _op, _rule in (
    (while_op, WhileRule(run_while)),
    (while_scan_op, WhileRule(run_while_scan)),
    (scan_op, ScanRule(run_scan)),
):
    _op.add(AUTOGRAD, _rule, override=False)


# ---- derivatives of the graphs that the operators hold ----


def where(flags: Iterable[bool], values: Iterable[Any]) -> list[Any]:
    """Return the values whose flags are true."""
    return [v for v, flag in zip(values, flags, strict=True) if flag]


def zeros_like(value: Any) -> Any:
    """Return zeros of the shape and dtype of an array of any kind."""
    return call_numpy(np.zeros_like, value)


def pushed(
    fn: Callable[..., Any], primals: Arrays, tangents: Arrays
) -> tuple[list[Any], list[Any]]:
    """Return the outputs of a function of arrays, and their tangents (None for zero)."""
    moving = [t is not None for t in tangents]

    def of(*moved: Any) -> list[Any]:
        return [*fn(*replaced(primals, moving, moved))]

    push: Any = jvp
    outputs, found = push(
        of, tuple(where(moving, primals)), (*where(moving, tangents),)
    )
    pairs = zip(outputs, found, strict=True)
    return outputs, [t if is_inexact(y.dtype) else None for y, t in pairs]


def halves_of(
    module: GraphModule,
    moving: Sequence[bool],
    outputs: Sequence[bool],
    *,
    recomputes: bool = False,
) -> Halves:
    """Return the forward and the backward graph of a graph.

    The backward graph takes the cotangents of the outputs flagged in `outputs`. It
    returns the gradients of the inputs flagged in `moving`. Both graphs take generators as
    their last inputs.
    """
    joint = _joint(module, moving, outputs)
    return split(joint, len(moving), len(outputs), recomputes=recomputes)


def _joint(
    module: GraphModule, moving: Sequence[bool], outputs: Sequence[bool]
) -> GraphModule:
    """Return a graph from inputs and cotangents to outputs and gradients."""
    count = len(moving)

    def run(_: Any, arrays: list[Any]) -> list[Any]:
        given, cotangents = arrays[:count], arrays[count:]

        def of(*moved: Any) -> list[Any]:
            return [*module(*replaced(given, moving, moved))]

        interpreter = GradInterpreter()
        interpreter.title = module.__name__
        found, pullback, _ = pull_back(interpreter, of, (*where(moving, given),))
        seeds = replaced([*map(zeros_like, found)], outputs, cotangents)
        return [*found, *pullback(seeds)]

    leaves = module.graph.output_node.args[0]
    values = [node.meta["val"] for node in module.inputs]
    values += [node.meta["val"] for node in where(outputs, leaves)]
    body = Body("grad", "gradient", module, run, values)
    return body.module(FromOutside(), body.outputs)
