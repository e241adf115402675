"""Rules of the operators of control flow.

Without a graph being captured each rule runs the operator's function on traced values.
While one is captured it makes graphs of the transformed functions, and calls an operator
with them: the functions that users call do that.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from customop.arrays.numpy_functions import INDEXING, call_numpy
from customop.control.bodies import tracing
from customop.control.derivatives import halves_of, pushed, where, zeros_like
from customop.control.functions import cond, scan, while_loop
from customop.control.operators import (
    cond_op,
    run_cond,
    run_scan,
    run_while,
    scan_op,
    while_op,
)
from customop.control.split import differing_outputs, moving_outputs
from customop.core.boxes import frozen
from customop.core.definition import Definition
from customop.core.grad_rules import GradCall, GradRule
from customop.core.kinds import AUTOGRAD
from customop.errors import GradientError, place
from customop.graph.module import GraphModule
from customop.transforms.autograd.variables import stop_gradient
from customop.transforms.vmap import vmap

Arrays = Sequence[Any]


# ---- reverse mode ----


class ControlRule(GradRule):
    """Reverse mode of one operator of control flow."""

    __slots__ = ("run",)

    def __init__(self, run: Callable[..., list[Any]]) -> None:
        self.run: Callable[..., list[Any]] = run

    def forward(self, call: GradCall) -> Any:
        """Run the function on tracers; in a capture, make graphs of its two halves."""
        return self.traced(call) if tracing() else self.run(*call.args)

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
        found, start = [], 0
        for length in self._lengths:
            found.append(values[start : start + length])
            start += length
        return found


def _gradients(moving: Sequence[bool], found: Arrays) -> list[Any]:
    """Gradients of all arrays, None for those that do not move."""
    grads = iter(found)
    return [next(grads) if moves else None for moves in moving]


class CondRule(ControlRule):
    """cond: the backward pass is a cond of the backward graphs."""

    __slots__ = ()

    def traced(self, call: GradCall) -> Any:
        """Run a cond of the forward graphs."""
        pred, operands, *modules = call.values
        moving = _tracked(call, 1)
        pairs = [moving_outputs(module, moving)[1] for module in modules]
        outputs = [a or b for a, b in zip(*pairs, strict=True)]
        if not any(outputs):
            return call.op.invoke(call.values)
        yes, no = (halves_of(module, moving, outputs) for module in modules)
        count = len(outputs)

        def forward(side: Any, before: Arrays, after: Arrays) -> Any:
            def run(*arrays: Any) -> list[Any]:
                found = side.forward(*arrays)
                saved = [*map(_zeros, before), *found[count:], *map(_zeros, after)]
                return [*found[:count], *saved]

            return _named_as(run, side.forward)

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

                return _named_as(run, side.backward)

            cotangents = where(outputs, grads)
            given = (by_number, list(of_yes), list(of_no), cotangents)
            found = cond(pred, backward(yes), backward(no), *given)
            return {"operands": _gradients(moving, found)}

        return _track(call, found[:count], parts.values, pull)


def _zeros(like: Any) -> Any:
    return call_numpy(np.zeros, like.shape, like.dtype)


def _named_as(fn: Any, module: GraphModule) -> Any:
    """A function with the name and place of a graph."""
    fn.__name__, fn.place = module.__name__, module.place
    return fn


class ScanRule(ControlRule):
    """scan: the backward pass is a scan in the other direction."""

    __slots__ = ()

    def traced(self, call: GradCall) -> Any:
        """Run a scan of the forward graph."""
        outside, init, xs, body, length, reverse, checkpoint = call.values
        carries, rows = len(init), len(xs)
        moving, outputs = moving_outputs(
            body,
            [*_tracked(call, 1), *_tracked(call, 2), *_tracked(call, 0)],
            carries,
        )
        if not any(outputs):
            return call.op.invoke(call.values)
        halves = halves_of(body, moving, outputs, recomputes=checkpoint)
        end, count = carries + rows, len(outputs)
        of_carry, of_xs, of_outside = (
            moving[:carries],
            moving[carries:end],
            moving[end:],
        )
        kept_carry = [i for i in halves.kept if i < carries]
        kept_xs = [i - carries for i in halves.kept if carries <= i < end]
        kept_outside = [i - end for i in halves.kept if i >= end]

        def step(carry: Arrays, x: Arrays) -> Any:
            found = halves.forward(*carry, *x, *outside)
            saved = [*(carry[i] for i in kept_carry), *found[count:]]
            return found[:carries], (found[carries:count], saved)

        _named_as(step, halves.forward)
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
                by_carry = _gradients(of_carry, of_last)
                cotangents = [*where(outputs[:carries], by_carry), *of_y]
                found = halves.backward(
                    *kept[:cut], *x, *fixed, *kept[cut:], *cotangents
                )
                of_init, of_x, of_fixed = _ListsInOne(
                    of_last, where(of_xs, xs), totals
                ).of(found)
                totals = [a + b for a, b in zip(totals, of_fixed, strict=True)]
                return (list(of_init), totals), list(of_x)

            _named_as(back, halves.backward)
            starts = (last, [*map(zeros_like, summed)])
            given = (list(of_rows), list(saved), of_ys)
            (of_init, totals), of_x = scan(back, starts, given, length, not reverse)
            return {
                "init": _gradients(of_carry, of_init),
                "xs": _gradients(of_xs, of_x),
                "outside": _gradients(of_outside, totals),
            }

        return _track(call, [*last, *ys], parts.values, pull)


class WhileRule(ControlRule):
    """while_loop: the number of steps is not known, so nothing can be saved."""

    __slots__ = ()

    def traced(self, call: GradCall) -> Any:
        """Run it; a gradient that is needed is an error."""
        _, init, _, body = call.values
        given = [*_tracked(call, 1), *_tracked(call, 0)]
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


# ---- forward mode ----


def _pair(found: Any, inexact: Sequence[bool]) -> tuple[list[Any], list[Any]]:
    """Outputs and tangents of a flat list: all outputs, then tangents of some."""
    count = len(inexact)
    return [*found[:count]], _gradients(inexact, found[count:])


@cond_op.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    pred, operands, *modules = primals
    of_operands = tangents[1] or [None] * len(operands)
    if not tracing():
        return pushed(
            lambda *arrays: run_cond(pred, arrays, *modules), operands, of_operands
        )
    moving = [t is not None for t in of_operands]
    inexact: list[bool] = []

    def push(module: GraphModule) -> Any:
        def run(arrays: Any, given: Any) -> Any:
            outputs, found = pushed(module, arrays, _gradients(moving, given))
            inexact[:] = [t is not None for t in found]
            return [*outputs, *where(inexact, found)]

        return _named_as(run, module)

    yes, no = map(push, modules)
    found = cond(pred, yes, no, operands, where(moving, of_operands))
    return _pair(found, inexact)


def _tangents(values: Arrays, found: Any) -> list[Any]:
    """Tangents of a list of arrays, None where there are none."""
    return [None] * len(values) if found is None else [*found]


@while_op.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    outside, init, test, body = primals
    given = [*_tangents(init, tangents[1]), *_tangents(outside, tangents[0])]
    count = len(init)
    if not tracing():

        def run(*arrays: Any) -> Any:
            return run_while(arrays[count:], arrays[:count], test, body)

        return pushed(run, [*init, *outside], given)
    moving, _ = moving_outputs(body, [t is not None for t in given], count)
    of_carry = moving[:count]
    starts = _started(init, given, of_carry)

    def goes_on(carry: Any) -> Any:
        return test(*carry[0], *outside)[0]

    def step(carry: Any) -> Any:
        old, pushes = carry
        directions = [*_gradients(of_carry, pushes), *given[count:]]
        outputs, found = pushed(
            lambda *arrays: body(*arrays), [*old, *outside], directions
        )
        return outputs, where(of_carry, found)

    _named_as(goes_on, test)
    _named_as(step, body)
    last, found = while_loop(goes_on, step, ([*init], starts))
    return last, _gradients(of_carry, found)


def _started(init: Arrays, given: Arrays, moving: Sequence[bool]) -> list[Any]:
    """Tangents of the part of a first carry that will move."""
    pairs = zip(init, given, strict=False)
    return where(moving, [zeros_like(v) if t is None else t for v, t in pairs])


@scan_op.register_jvp
def _(primals: Any, tangents: Any) -> Any:
    outside, init, xs, body, *options = primals
    length, reverse, checkpoint = options
    carries, end = len(init), len(init) + len(xs)
    given = [*_tangents(init, tangents[1]), *_tangents(xs, tangents[2])]
    given += _tangents(outside, tangents[0])
    if not tracing():

        def run(*arrays: Any) -> Any:
            lists = arrays[end:], arrays[:carries], arrays[carries:end]
            return run_scan(*lists, body, *options)

        return pushed(run, [*init, *xs, *outside], given)
    moving, outputs = moving_outputs(body, [t is not None for t in given], carries)
    of_carry, of_xs = moving[:carries], moving[carries:end]
    starts = _started(init, given, of_carry)
    of_ys = outputs[carries:]

    def step(carry: Any, x: Any) -> Any:
        (old, pushes), (row, of_row) = carry, x
        directions = [*_gradients(of_carry, pushes), *_gradients(of_xs, of_row)]
        directions += given[end:]
        new, found = pushed(
            lambda *arrays: body(*arrays), [*old, *row, *outside], directions
        )
        ys = new[carries:], where(of_ys, found[carries:])
        return (new[:carries], where(of_carry, found[:carries])), ys

    _named_as(step, body)
    rows = ([*xs], where(of_xs, given[carries:end]))
    (last, of_last), (ys, pushes) = scan(
        step, ([*init], starts), rows, length, reverse, checkpoint=checkpoint
    )
    return [*last, *ys], [*_gradients(of_carry, of_last), *_gradients(of_ys, pushes)]


# ---- batches ----


def _front(value: Any, dim: int | None) -> Any:
    """A batch with its axis in front; a value that is the same for all rows stays."""
    return value if not dim else call_numpy(np.moveaxis, value, dim, 0)


def _by_rows(info: Any, run: Callable[..., Any], values: Any, dims: Any) -> Any:
    """Run a function on rows; outputs have their axis in front."""
    found: Any = vmap(run, tuple(dims), 0, randomness=info.randomness)
    outputs = found(*values)
    return outputs, [0] * len(outputs)


@cond_op.register_vmap
def _(
    info: Any,
    in_dims: Any,
    pred: Any,
    operands: Any,
    true_graph: Any,
    false_graph: Any,
) -> Any:
    yes, no = true_graph, false_graph
    dims = in_dims[1] or [None] * len(operands)
    if not tracing():
        run = lambda p, *arrays: run_cond(p, arrays, yes, no)  # noqa: E731  # short
        return _by_rows(info, run, [pred, *operands], [in_dims[0], *dims])

    def batched(module: GraphModule) -> Any:
        rows: Any = vmap(module, tuple(dims), 0, randomness=info.randomness)
        return _named_as(lambda *arrays: rows(*arrays), module)

    if in_dims[0] is None:
        found = cond(pred, batched(yes), batched(no), *operands)
        return found, [0] * len(found)
    values = [*map(_front, operands, dims)]
    dims = [None if dim is None else 0 for dim in dims]
    opposite = call_numpy(np.logical_not, pred)
    pairs = zip(
        _in_rows(info, yes, pred, values, dims),
        _in_rows(info, no, opposite, values, dims),
        strict=True,
    )
    found = [_chosen(pred, a, b) for a, b in pairs]
    return found, [0] * len(found)


def _in_rows(
    info: Any, module: GraphModule, mask: Any, values: Arrays, dims: Sequence[Any]
) -> Any:
    """What a graph gives for all rows; those outside of the mask do not matter.

    They have the values of a row inside, with which the graph cannot fail.
    """
    if all(dim is None for dim in dims):
        found = module(*values)
        return [
            call_numpy(np.broadcast_to, v, (info.batch_size, *v.shape)) for v in found
        ]
    pairs = zip(values, dims, strict=True)
    safe = [v if dim is None else _safe(mask, v) for v, dim in pairs]
    rows: Any = vmap(module, tuple(dims), 0, randomness=info.randomness)
    return rows(*safe)


def _safe(mask: Any, value: Any) -> Any:
    inside = call_numpy(np.argmax, mask)
    row = stop_gradient(call_numpy(INDEXING, value, inside))
    return _chosen(mask, value, row)


def _chosen(mask: Any, yes: Any, no: Any) -> Any:
    """Rows of one value where the mask is true, and of another one elsewhere."""
    rank = len(yes.shape) - 1
    wide = call_numpy(np.reshape, mask, (mask.shape[0],) + (1,) * rank)
    return call_numpy(np.where, wide, yes, no)


@while_op.register_vmap
def _(
    info: Any,
    in_dims: Any,
    outside: Any,
    init: Any,
    cond_graph: Any,
    body_graph: Any,
) -> Any:
    test, body = cond_graph, body_graph
    of_outside = in_dims[0] or [None] * len(outside)
    of_init = in_dims[1] or [None] * len(init)
    count = len(init)
    if not tracing():

        def run(*arrays: Any) -> Any:
            return run_while(arrays[count:], arrays[:count], test, body)

        return _by_rows(info, run, [*init, *outside], [*of_init, *of_outside])
    flags = [dim is not None for dim in (*of_init, *of_outside)]
    differing, _ = differing_outputs(body, flags, count)
    goes_on = differing_outputs(test, differing)[1][0]
    if goes_on:
        differing[:count] = [True] * count
    carry = [
        _widened(info, _front(v, dim), dim) if flag else v
        for v, dim, flag in zip(init, of_init, differing, strict=False)
    ]
    dims = [0 if flag else None for flag in differing[:count]]
    in_rows = (*dims, *of_outside)
    steps: Any = vmap(body, in_rows, list(dims), randomness=info.randomness)
    of_test = 0 if goes_on else None
    tests: Any = vmap(test, in_rows, of_test, randomness=info.randomness)
    if goes_on:
        found = _until_all_are_done(tests, steps, carry, outside)
    else:
        found = while_loop(
            _named_as(lambda carry: tests(*carry, *outside)[0], test),
            _named_as(lambda carry: steps(*carry, *outside), body),
            carry,
        )
    return found, dims


def _widened(info: Any, value: Any, dim: int | None) -> Any:
    """A value for each row, where it is the same for all."""
    if dim is not None:
        return value
    return call_numpy(np.broadcast_to, value, (info.batch_size, *value.shape))


def _until_all_are_done(tests: Any, steps: Any, init: Any, outside: Any) -> Any:
    """The carries of a batch: rows that are done keep theirs."""

    def step(carry: Any) -> Any:
        mask, old = carry
        safe = [_safe(mask, v) for v in old]
        new = steps(*safe, *outside)
        kept = [_chosen(mask, a, b) for a, b in zip(new, old, strict=True)]
        return condition(kept), kept

    def condition(carry: Any) -> Any:
        found = tests(*carry, *outside)[0]
        return call_numpy(np.not_equal, found, 0)

    start = (condition(init), init)
    return while_loop(lambda carry: call_numpy(np.any, carry[0]), step, start)[1]


@scan_op.register_vmap
def _(
    info: Any,
    in_dims: Any,
    outside: Any,
    init: Any,
    xs: Any,
    body: Any,
    length: Any,
    reverse: Any,
    checkpoint: Any,
) -> Any:
    of_outside = in_dims[0] or [None] * len(outside)
    of_init = in_dims[1] or [None] * len(init)
    of_xs = in_dims[2] or [None] * len(xs)
    carries, end = len(init), len(init) + len(xs)
    dims = [*of_init, *of_xs, *of_outside]
    if not tracing():

        def run(*arrays: Any) -> Any:
            lists = arrays[end:], arrays[:carries], arrays[carries:end]
            return run_scan(*lists, body, length, reverse, checkpoint)

        return _by_rows(info, run, [*init, *xs, *outside], dims)
    differing, outputs = differing_outputs(
        body, [dim is not None for dim in dims], carries
    )
    carry = [
        _widened(info, _front(v, dim), dim) if flag else v
        for v, dim, flag in zip(init, of_init, differing, strict=False)
    ]
    rows = [
        v if dim is None else call_numpy(np.moveaxis, v, dim, 1)
        for v, dim in zip(xs, of_xs, strict=True)
    ]
    flags = [*differing[:carries], *outputs[carries:]]
    in_rows = tuple([0 if flag else None for flag in differing[:end]])
    out_rows = [0 if flag else None for flag in flags]
    steps: Any = vmap(
        body, (*in_rows, *of_outside), out_rows, randomness=info.randomness
    )

    def step(old: Any, x: Any) -> Any:
        found = steps(*old, *x, *outside)
        return found[:carries], found[carries:]

    last, ys = scan(
        _named_as(step, body), carry, rows, length, reverse, checkpoint=checkpoint
    )
    axes = out_rows[:carries] + [1 if f else None for f in flags[carries:]]
    return [*last, *ys], axes
