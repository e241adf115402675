"""Batching rules of the operators of control flow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from customop.arrays.numpy_functions import INDEXING, call_numpy
from customop.control.carry import shapes_of
from customop.control.flow import cond, scan, while_loop, while_scan
from customop.control.operators import (
    cond_op,
    differing_outputs,
    named_as,
    run_cond,
    run_scan,
    run_while,
    run_while_scan,
    scan_op,
    tracing,
    while_op,
    while_scan_op,
)
from customop.graph.module import GraphModule
from customop.transforms.autograd.variables import stop_gradient
from customop.transforms.vmap import vmap

Arrays = Sequence[Any]


def _front(value: Any, dim: int | None) -> Any:
    """Move the axis of a batch to the front; leave a value that is the same for all rows."""
    return value if not dim else call_numpy(np.moveaxis, value, dim, 0)


def _by_rows(info: Any, run: Callable[..., Any], values: Any, dims: Any) -> Any:
    """Run a function under vmap; its outputs have the axis of the batch in front."""
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
    *,
    generators: Any = None,
) -> Any:
    dims = in_dims[1] or [None] * len(operands)
    if not tracing():

        def run(pred: Any, *arrays: Any) -> Any:
            graphs = true_graph, false_graph
            return run_cond(pred, arrays, *graphs, generators=generators)

        return _by_rows(info, run, [pred, *operands], [in_dims[0], *dims])
    yes, no = _of(true_graph, generators), _of(false_graph, generators)

    def batched(fn: Any) -> Any:
        rows: Any = vmap(fn, tuple(dims), 0, randomness=info.randomness)
        return named_as(lambda *arrays: rows(*arrays), fn)

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


def _of(module: GraphModule, generators: Arrays | None) -> Any:
    """Return a graph as a function of its arrays."""
    return named_as(lambda *arrays: module(*arrays, *(generators or ())), module)


def _in_rows(
    info: Any, module: Any, mask: Any, values: Arrays, dims: Sequence[Any]
) -> Any:
    """Return the results of a graph for all rows; rows outside the mask do not matter.

    Rows outside the mask are computed with the values of a row inside it, for which the
    graph cannot fail. If no row is inside, the graph does not run.
    """
    seen: list[Any] = []

    def rows_of(mask: Any, arrays: Arrays) -> Any:
        if all(dim is None for dim in dims):
            found, size = module(*arrays), info.batch_size
            return [call_numpy(np.broadcast_to, v, (size, *v.shape)) for v in found]
        pairs = zip(arrays, dims, strict=True)
        safe = [v if dim is None else _safe(mask, v) for v, dim in pairs]
        rows: Any = vmap(module, tuple(dims), 0, randomness=info.randomness)
        return rows(*safe)

    def run(mask: Any, *arrays: Any) -> Any:
        found = rows_of(mask, arrays)
        seen[:] = [(tuple(v.shape), v.dtype) for v in found]
        return found

    def zeros(mask: Any, *arrays: Any) -> Any:
        # If the mask is known, `run` was not captured before, so its shapes are
        # missing.
        if not seen:
            shapes_of(run, mask, *arrays)
        return [call_numpy(np.zeros, shape, dtype) for shape, dtype in seen]

    some = call_numpy(np.any, mask)
    return cond(some, named_as(run, module), zeros, mask, *values)


def _safe(mask: Any, value: Any) -> Any:
    inside = call_numpy(np.argmax, mask)
    row = stop_gradient(call_numpy(INDEXING, value, inside))
    return _chosen(mask, value, row)


def _chosen(mask: Any, yes: Any, no: Any) -> Any:
    """Select rows: those of `yes` where the mask is true, those of `no` elsewhere."""
    rank = len(yes.shape) - 1
    wide = call_numpy(np.reshape, mask, (mask.shape[0],) + (1,) * rank)
    return call_numpy(np.where, wide, yes, no)


class _While(NamedTuple):
    """A call of a while_loop operator: its arguments, and the function that runs it."""

    outside: Any
    init: Any
    cond_graph: Any
    body_graph: Any
    generators: Any
    run: Any
    records: bool


def _while_by_rows(info: Any, in_dims: Any, call: _While) -> Any:
    """Run a while_loop unchanged under vmap."""
    count = len(call.init)

    def run(*arrays: Any) -> Any:
        lists = arrays[count:], arrays[:count], call.cond_graph, call.body_graph
        return call.run(*lists, generators=call.generators)

    of_outside, of_init = _axes(in_dims, call.outside, call.init)
    values = [*call.init, *call.outside]
    return _by_rows(info, run, values, [*of_init, *of_outside])


def _while_in_rows(info: Any, in_dims: Any, call: _While) -> Any:
    """Capture a while_loop for a batch; return its outputs for all rows and their axes."""
    outside, count = call.outside, len(call.init)
    of_outside, of_init = _axes(in_dims, outside, call.init)
    flags = [dim is not None for dim in (*of_init, *of_outside)]
    flags += [False] * len(call.generators or ())
    differing, outputs = differing_outputs(call.body_graph, flags, count)
    goes_on = differing_outputs(call.cond_graph, differing)[1][0]
    test, body = (_of(g, call.generators) for g in (call.cond_graph, call.body_graph))
    if goes_on:
        differing[:count] = [True] * count
        outputs = differing_outputs(call.body_graph, differing, count)[1]
    dims, of_ys = _in_front(differing[:count]), _in_front(outputs[count:])
    in_rows = (*dims, *of_outside)
    steps: Any = vmap(body, in_rows, [*dims, *of_ys], randomness=info.randomness)
    of_test = 0 if goes_on else None
    tests: Any = vmap(test, in_rows, of_test, randomness=info.randomness)

    def condition(carry: Any) -> Any:
        return tests(*carry, *outside)[0]

    def step(carry: Any) -> Any:
        found = steps(*carry, *outside)
        return found[:count], found[count:]

    named_as(condition, test)
    named_as(step, body)
    loop = _until_all_are_done if goes_on else _while
    carry = _wide_carry(info, call.init, of_init, differing)
    last, ys, ran = loop(condition, step, carry, records=call.records)
    if not call.records:
        return last, dims
    axes = [1 if dim == 0 else None for dim in of_ys]
    return [*last, *ys, ran], [*dims, *axes, 1 if goes_on else None]


def _axes(in_dims: Any, *lists: Arrays) -> list[Sequence[int | None]]:
    """Return the batch axis of each array in `lists`; None for arrays that have none."""
    pairs = zip(in_dims, lists, strict=False)
    return [dims or [None] * len(values) for dims, values in pairs]


def _in_front(flags: Sequence[bool]) -> list[int | None]:
    """Return axis 0 for each value that differs between rows, and None for the others."""
    return [0 if flag else None for flag in flags]


def _wide_carry(
    info: Any, init: Arrays, dims: Sequence[int | None], differing: Sequence[bool]
) -> list[Any]:
    """Return the carry; leaves that differ between rows in some step get the batch axis."""
    triples = zip(init, dims, differing, strict=False)
    return [_widened(info, _front(v, d), d) if flag else v for v, d, flag in triples]


def _while(condition: Any, step: Any, init: Any, *, records: bool) -> Any:
    """Run a loop with the same number of steps in all rows.

    Returns the carry, the results, and which steps ran.
    """
    if records:
        return while_scan(condition, step, init)
    of_carry = named_as(lambda carry: step(carry)[0], step)
    return while_loop(condition, of_carry, init), [], None


def _widened(info: Any, value: Any, dim: int | None) -> Any:
    """Give a value the axis of the batch, unless it has one."""
    if dim is not None:
        return value
    return call_numpy(np.broadcast_to, value, (info.batch_size, *value.shape))


def _until_all_are_done(condition: Any, step: Any, init: Any, *, records: bool) -> Any:
    """Run a loop until all rows are done; rows that are done keep their carry.

    Returns the same as `_while`.
    """

    def masked(carry: Any) -> Any:
        mask, old = carry
        new, ys = step([_safe(mask, v) for v in old])
        kept = [_chosen(mask, a, b) for a, b in zip(new, old, strict=True)]
        return (mask_of(kept), kept), (ys, mask)

    def mask_of(carry: Any) -> Any:
        return call_numpy(np.not_equal, condition(carry), 0)

    start = (mask_of(init), init)
    some = lambda carry: call_numpy(np.any, carry[0])  # noqa: E731  # short
    named_as(some, condition)
    (_, last), found, _ = _while(some, named_as(masked, step), start, records=records)
    return last, *(found or ([], None))


def _while_rule(run: Callable[..., Any], *, records: bool) -> Callable[..., Any]:
    """Return the batching rule of a while_loop, whose steps may record results."""

    def rule(
        info: Any,
        in_dims: Any,
        outside: Any,
        init: Any,
        cond_graph: Any,
        body_graph: Any,
        *,
        generators: Any = None,
    ) -> Any:
        graphs = cond_graph, body_graph
        call = _While(outside, init, *graphs, generators, run, records=records)
        rows = _while_in_rows if tracing() else _while_by_rows
        return rows(info, in_dims, call)

    return rule


while_op.register_vmap(_while_rule(run_while, records=False))
while_scan_op.register_vmap(_while_rule(run_while_scan, records=True))


class _Scan(NamedTuple):
    """The arguments of a call of the scan operator."""

    outside: Any
    init: Any
    xs: Any
    body: Any
    length: Any
    reverse: Any
    checkpoint: Any
    generators: Any


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
    *,
    generators: Any = None,
) -> Any:
    options = length, reverse, checkpoint
    call = _Scan(outside, init, xs, body, *options, generators)
    return (_scan_in_rows if tracing() else _scan_by_rows)(info, in_dims, call)


def _scan_by_rows(info: Any, in_dims: Any, call: _Scan) -> Any:
    """Run a scan unchanged under vmap."""
    carries, end = len(call.init), len(call.init) + len(call.xs)

    def run(*arrays: Any) -> Any:
        lists = arrays[end:], arrays[:carries], arrays[carries:end]
        options = call.length, call.reverse, call.checkpoint
        return run_scan(*lists, call.body, *options, generators=call.generators)

    of_outside, of_init, of_xs = _axes(in_dims, call.outside, call.init, call.xs)
    values = [*call.init, *call.xs, *call.outside]
    return _by_rows(info, run, values, [*of_init, *of_xs, *of_outside])


def _scan_in_rows(info: Any, in_dims: Any, call: _Scan) -> Any:
    """Capture a scan for a batch; return its outputs for all rows and their axes."""
    body, generators = call.body, call.generators
    carries, end = len(call.init), len(call.init) + len(call.xs)
    of_outside, of_init, of_xs = _axes(in_dims, call.outside, call.init, call.xs)
    flags = [dim is not None for dim in (*of_init, *of_xs, *of_outside)]
    flags += [False] * len(generators or ())
    differing, outputs = differing_outputs(body, flags, carries)
    in_rows = (*_in_front(differing[:end]), *of_outside)
    dims, of_ys = _in_front(differing[:carries]), _in_front(outputs[carries:])
    of_steps = [*dims, *of_ys]
    steps: Any = vmap(
        _of(body, generators), in_rows, of_steps, randomness=info.randomness
    )

    def step(old: Any, x: Any) -> Any:
        found = steps(*old, *x, *call.outside)
        return found[:carries], found[carries:]

    carry = _wide_carry(info, call.init, of_init, differing)
    rows = [
        v if dim is None else call_numpy(np.moveaxis, v, dim, 1)
        for v, dim in zip(call.xs, of_xs, strict=True)
    ]
    options = call.length, call.reverse
    last, ys = scan(
        named_as(step, body), carry, rows, *options, checkpoint=call.checkpoint
    )
    return [*last, *ys], [*dims, *(1 if dim == 0 else None for dim in of_ys)]
