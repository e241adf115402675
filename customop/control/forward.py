"""Forward mode of the operators of control flow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from customop.control.bodies import tracing
from customop.control.derivatives import pushed, where, zeros_like
from customop.control.derived import gradients, named_as, tangents_of
from customop.control.functions import cond, scan, while_loop, while_scan
from customop.control.operators import (
    cond_op,
    run_cond,
    run_scan,
    run_while,
    run_while_scan,
    scan_op,
    while_op,
    while_scan_op,
)
from customop.control.split import moving_outputs
from customop.graph.module import GraphModule

Arrays = Sequence[Any]


def _pair(found: Any, inexact: Sequence[bool]) -> tuple[list[Any], list[Any]]:
    """Outputs and tangents of a flat list: all outputs, then tangents of some."""
    count = len(inexact)
    return [*found[:count]], gradients(inexact, found[count:])


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


def _push_while(
    primals: Any, tangents: Any, generators: Any, run_loop: Any, *, records: bool
) -> Any:
    """Outputs and tangents of a while_loop, which may record results of its steps."""
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


@while_op.register_jvp
def _(primals: Any, tangents: Any, *, generators: Any = None) -> Any:
    return _push_while(primals, tangents, generators, run_while, records=False)


@while_scan_op.register_jvp
def _(primals: Any, tangents: Any, *, generators: Any = None) -> Any:
    return _push_while(primals, tangents, generators, run_while_scan, records=True)


def _started(init: Arrays, given: Arrays, moving: Sequence[bool]) -> list[Any]:
    """Tangents of the part of a first carry that will move."""
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
