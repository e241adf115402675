"""The operators of control flow, which graphs hold.

Their kernels are the functions that users call, with graphs in the place of the user's
functions. `rules` has their rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import wraps
from typing import Any

from customop.arrays.kinds import is_array
from customop.arrays.pytree import flatten
from customop.control.branches import take_branch
from customop.control.loops import repeat
from customop.control.recorded import record
from customop.control.scans import step_through
from customop.core.operator import Operator
from customop.graph.argument import GRAPH
from customop.graph.module import GraphModule
from customop.library.define import custom_op
from customop.schema.tags import Tag
from customop.transforms.functions.parts import own

__all__ = [
    "cond_op",
    "run_cond",
    "run_scan",
    "run_while",
    "run_while_scan",
    "scan_op",
    "while_op",
    "while_scan_op",
]

Arrays = Sequence[Any]


# ---- what they do ----


def run_cond(
    pred: Any,
    operands: Arrays,
    true_graph: GraphModule,
    false_graph: GraphModule,
    *,
    generators: Arrays | None = None,
) -> list[Any]:
    """The result of one graph."""

    def branch(graph: GraphModule) -> Any:
        return lambda *arrays: graph(*arrays, *(generators or ()))

    given = branch(true_graph), branch(false_graph)
    return take_branch(pred, *given, operands)  # type: ignore[no-any-return]  # a list


def run_while(
    outside: Arrays,
    init: Arrays,
    cond_graph: GraphModule,
    body_graph: GraphModule,
    *,
    generators: Arrays | None = None,
) -> list[Any]:
    """The last carry."""
    last = [*outside, *(generators or ())]

    def goes_on(carry: Arrays) -> Any:
        return cond_graph(*carry, *last)[0]

    def step(carry: Arrays) -> Any:
        return body_graph(*carry, *last)

    return repeat(goes_on, step, list(init))  # type: ignore[no-any-return]  # a list


def run_while_scan(
    outside: Arrays,
    init: Arrays,
    cond_graph: GraphModule,
    body_graph: GraphModule,
    *,
    generators: Arrays | None = None,
) -> list[Any]:
    """The last carry, the results with one row for each step, and which steps ran."""
    count, last = len(init), [*outside, *(generators or ())]

    def goes_on(carry: Arrays) -> Any:
        return cond_graph(*carry, *last)[0]

    def step(carry: Arrays) -> Any:
        found = body_graph(*carry, *last)
        return found[:count], found[count:]

    carry, ys, ran = record(goes_on, step, list(init))
    return [*carry, *ys, ran]


def run_scan(
    outside: Arrays,
    init: Arrays,
    xs: Arrays,
    body: GraphModule,
    length: int | None = None,
    reverse: bool = False,
    checkpoint: bool = False,
    *,
    generators: Arrays | None = None,
) -> list[Any]:
    """The last carry, and the results."""
    count, last = len(init), [*outside, *(generators or ())]

    def step(carry: Arrays, x: Arrays) -> Any:
        found = body(*carry, *x, *last)
        return found[:count], found[count:]

    given = (list(init), list(xs), length, reverse, checkpoint, "scan")
    carry, ys = step_through(step, *given)
    return [*carry, *ys]


# ---- the operators ----


def _operator(name: str, run: Any, schema: str) -> Operator[..., Any]:
    """An operator whose results are arrays of their own."""

    @wraps(run)
    def kernel(*args: Any, generators: Any = None) -> Any:
        found = run(*args, generators=generators)
        return own(found, [v for v in flatten(args)[0] if is_array(v)])

    op: Operator[..., Any] = custom_op(
        f"control::{name}",
        kernel,
        mutates_args=(),
        schema=f"{schema} -> Array[]",
        # The order of axes is that of the function that ran, or of the last step.
        tags=Tag.flexible_layout,
    )
    # The operators in its graphs draw, where there are any.
    op.sees_seed = False
    op.register_fake(run)
    return op


cond_op: Operator[..., Any] = _operator(
    "cond",
    run_cond,
    f"(Array pred, Array[] operands, {GRAPH} true_graph, {GRAPH} false_graph,"
    " *, Generator[]? generators=None)",
)
while_op: Operator[..., Any] = _operator(
    "while_loop",
    run_while,
    f"(Array[] outside, Array[] init, {GRAPH} cond_graph, {GRAPH} body_graph,"
    " *, Generator[]? generators=None)",
)
# A while_loop that keeps a result of each step: what its gradient needs. All rows of a
# batch have as many results as the row with the most steps: the last result, of bools,
# says for which of them a row ran.
while_scan_op: Operator[..., Any] = _operator(
    "while_scan",
    run_while_scan,
    f"(Array[] outside, Array[] init, {GRAPH} cond_graph, {GRAPH} body_graph,"
    " *, Generator[]? generators=None)",
)
scan_op: Operator[..., Any] = _operator(
    "scan",
    run_scan,
    f"(Array[] outside, Array[] init, Array[] xs, {GRAPH} body,"
    " int? length=None, bool reverse=False, bool checkpoint=False, *,"
    " Generator[]? generators=None)",
)
