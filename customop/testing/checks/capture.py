"""Checks that an operator and its gradient can be captured as graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from customop.arrays.kinds import FAKE, has_device, is_array
from customop.arrays.nested import flat
from customop.arrays.numpy_functions import call_numpy
from customop.core.dispatch import find_kernel
from customop.core.kinds import AUTOGRAD
from customop.core.samples import Sample
from customop.errors import CustomOpError, DataDependentError, GuardError
from customop.graph.module import GraphModule
from customop.schema.tags import BY_DATA
from customop.testing.checks.session import (
    Run,
    Session,
    arrays_of,
    placer,
)
from customop.testing.checks.smooth import function_of, why_no_derivative
from customop.testing.fault import Fault
from customop.transforms.autograd.grad import vjp
from customop.transforms.trace.make import make_fx

__all__ = ["check_dynamic", "check_static"]


def check_static(session: Session, sample: Sample) -> str:
    """A graph of the operator, and one of its gradient, give what calls give."""
    return _check(session, sample, "fake")


def check_dynamic(session: Session, sample: Sample) -> str:
    """As `check_static`, for graphs whose sizes are symbols."""
    return _check(session, sample, "symbolic")


def _check(session: Session, sample: Sample, mode: Any) -> str:
    op = session.op
    if find_kernel(op, FAKE) is None:
        return "no fake kernel"
    values = session.values(sample)
    if not arrays_of(values):
        return "no argument is an array"
    return _check_graph(session, sample, mode, values)


def _check_graph(
    session: Session, sample: Sample, mode: Any, values: Sequence[Any]
) -> str:
    known: dict[Any, GraphModule] = session.by_content.setdefault(mode, {})
    key = _outline(values)
    graph = known.get(key)
    if graph is None and len(known) >= _MOST:
        return f"{_MOST} graphs are checked already"
    if graph is not None and mode == "fake":
        return "a graph for such arrays is checked already"
    run = session.expected(sample)
    if graph is not None:
        return _run_again(session, sample, graph, run)
    try:
        graph = _captured(session, values, mode)
    except DataDependentError:
        if session.op.tags.intersection(BY_DATA):
            return "the fake kernel needs data, as its tags allow"
        raise
    _compare(session, sample, graph, run)
    _check_gradient(session, sample, mode)
    known[key] = graph
    return ""


# Graphs that are made of an operator; each takes as long as a hundred calls.
_MOST = 2


def _outline(values: Sequence[Any]) -> tuple[Any, ...]:
    """What a graph of symbolic sizes takes as given: all but the sizes."""
    leaves = flat(list(values))
    return tuple(
        (leaf.dtype, len(leaf.shape)) if is_array(leaf) else (type(leaf), repr(leaf))
        for leaf in leaves
    )


def _run_again(session: Session, sample: Sample, graph: GraphModule, run: Run) -> str:
    """Run a graph of symbolic sizes on arrays of other sizes."""
    try:
        _compare(session, sample, graph, run)
    except GuardError:
        return "the graph is for other sizes, as its guards say"
    return ""


# ---- the call ----


def _captured(session: Session, values: Sequence[Any], mode: Any) -> GraphModule:
    """A graph of a call, which writes its arguments as the call does."""
    op = session.op
    put = placer(values, has_device)

    def call(*arrays: Any) -> Any:
        return op.invoke(put(arrays))

    return make_fx(call, mode)(*filter(has_device, flat(list(values))))


def _compare(session: Session, sample: Sample, graph: GraphModule, run: Run) -> None:
    if not session.is_steady(sample):
        return
    values = session.values(sample)
    session.seed()
    out = graph(*filter(has_device, flat(values)))
    session.compare(
        session.run_of(out, values),
        run,
        "between the operator and a graph of its call",
        do="let the kernel compute from its arguments alone",
        exact=True,
    )


# ---- its gradient ----


def _check_gradient(session: Session, sample: Sample, mode: Any) -> None:
    op = session.op
    if op.find_rule(AUTOGRAD) is None or op.sees_seed:
        return
    if why_no_derivative(session, sample):
        return
    call, chosen = function_of(session, session.values(sample))
    work = partial(_gradients, call)
    expected = work(*chosen.values())
    try:
        graph = make_fx(work, mode)(*chosen.values())
    except CustomOpError as error:
        raise _untraceable(session, error) from None
    for name, found, wanted in zip(
        chosen, graph(*chosen.values()), expected, strict=True
    ):
        session.compare_leaf(
            f"the gradient by {name}",
            found,
            wanted,
            "between the formula and a graph of it",
            do="let the formula compute from ctx and the gradients alone",
        )


def _gradients(call: Callable[..., Any], *arrays: Any) -> Any:
    """Gradients of the sum of all results."""
    out, pullback = vjp(call, *arrays)
    return pullback(tuple(call_numpy(np.ones_like, leaf) for leaf in out))


def _untraceable(session: Session, error: CustomOpError) -> Fault:
    return Fault(
        f"has a gradient that cannot be captured: {error.what}",
        *error.where,
        do=f"make the formula of @{session.op.name}.register_autograd of operators and"
        " np functions, without branches on values; or say that graphs of gradients are"
        f" not meant: {session.op.name}.waive(..., reason=...)",
    )
