"""Checks that an operator and its gradient can be captured as graphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import chain
from typing import Any, Literal

from customop.arrays.kinds import FAKE, has_device, is_array
from customop.arrays.nested import flat
from customop.core.dispatch import find_kernel
from customop.core.kinds import AUTOGRAD
from customop.core.operator import Operator
from customop.core.samples import Sample
from customop.errors import (
    CustomOpError,
    DataDependentError,
    GuardError,
    NoDerivativeError,
)
from customop.graph.module import GraphModule
from customop.graph.once import run_once
from customop.schema.tags import BY_DATA
from customop.testing.checks.session import (
    Run,
    Session,
    arrays_of,
    floats_of,
    is_floats,
    placer,
)
from customop.testing.checks.smooth import (
    gradients_of,
    is_float_array,
    ones_like,
    why_no_derivative,
)
from customop.testing.fault import Fault
from customop.transforms.autograd.grad import vjp
from customop.transforms.trace.make import graph_of

__all__ = ["check_dynamic", "check_static"]


def check_static(session: Session, sample: Sample) -> str:
    """A graph of the operator and of its gradient gives what calls give."""
    return _check(session, sample, "fake")


def check_dynamic(session: Session, sample: Sample) -> str:
    """As `check_static`, for a graph whose sizes are symbols; also on other sizes."""
    return _check(session, sample, "symbolic")


_Mode = Literal["fake", "symbolic"]


def _check(session: Session, sample: Sample, mode: _Mode) -> str:
    if find_kernel(session.op, FAKE) is None:
        return "no fake kernel"
    values = session.values(sample)
    if not arrays_of(values):
        return "no argument is an array"
    known: dict[Any, Sequence[_Captured]] = session.by_content.setdefault(mode, {})
    key = _outline(values)
    if key in known and mode == "fake":
        return "a graph for such arrays is checked already"
    if key in known:
        return _run_again(session, sample, known[key])
    if len(known) >= _MOST:
        return f"{_MOST} graphs are checked already"
    return _check_new(session, sample, mode, known)


def _check_new(
    session: Session,
    sample: Sample,
    mode: _Mode,
    known: dict[Any, Sequence[_Captured]],
) -> str:
    """Capture graphs, which must give what calls give; keep them."""
    session.expected(sample)
    graphs = _captured(session, sample, mode)
    try:
        first = next(graphs)
    except DataDependentError:
        if session.op.tags.intersection(BY_DATA):
            return "the fake kernel needs data, as its tags allow"
        raise
    found = []
    for graph in chain([first], graphs):
        graph.compare(session, sample)
        found.append(graph)
    known[_outline(session.bound(sample))] = found
    return ""


# Graphs that are made of an operator; each takes as long as fifty calls.
_MOST = 2


def _outline(values: Sequence[Any]) -> tuple[Any, ...]:
    """Return all that a graph of symbolic sizes takes as given: all but the sizes."""
    leaves = flat(list(values))
    return tuple(
        (leaf.dtype, len(leaf.shape)) if is_array(leaf) else (type(leaf), repr(leaf))
        for leaf in leaves
    )


def _run_again(session: Session, sample: Sample, graphs: Sequence[_Captured]) -> str:
    """Run a graph of symbolic sizes on arrays of other sizes."""
    try:
        for graph in graphs:
            graph.compare(session, sample)
    except GuardError:
        return "the graph is for other sizes, as its guards say"
    return ""


# ---- capturing ----


class _Captured:
    """A graph of a call, of its gradient, or of both: then its result is a pair."""

    def __init__(self, module: GraphModule, what: _Captures) -> None:
        self.module: GraphModule = module
        self.what: _Captures = what

    def compare(self, session: Session, sample: Sample) -> None:
        """Raise unless the graph gives what calls give."""
        if not session.is_steady(sample):
            return
        values = session.values(sample)
        session.seed()
        found = run_once(self.module, [*filter(has_device, flat(values))])
        if self.what is not _GRADIENT:
            out = found[0] if self.what is _BOTH else found
            _compare_call(session, sample, session.run_of(out, values))
        if self.what is not _CALL:
            gradients = found[1] if self.what is _BOTH else found
            _compare_gradient(session, sample, gradients)


def _compare_call(session: Session, sample: Sample, found: Run) -> None:
    session.compare(
        found,
        session.expected(sample),
        "between the operator and a graph of its call",
        do="let the kernel compute from its arguments alone",
        exact=True,
    )


def _compare_gradient(session: Session, sample: Sample, found: Sequence[Any]) -> None:
    expected = gradients_of(session, sample)
    for (name, b), a in zip(expected.items(), found, strict=True):
        session.compare_leaf(
            f"the gradient by {name}",
            a,
            b,
            "between the formula and a graph of it",
            do="let the formula compute from ctx and the gradients alone",
        )


def _captured(session: Session, sample: Sample, mode: _Mode) -> Iterator[_Captured]:
    """One graph of all; a graph of the call and one of its gradient if that fails."""
    call = _OfArrays(session, sample)
    if not _has_gradient(session, sample):
        yield call.graph(_CALL, mode)
        return
    try:
        both = call.graph(_BOTH, mode)
    except NoDerivativeError:
        raise
    except Exception:  # noqa: BLE001  # raised again below, by the part that it is of
        yield call.graph(_CALL, mode)
        try:
            yield call.graph(_GRADIENT, mode)
        except CustomOpError as error:
            raise _untraceable(session, error) from None
    else:
        yield both


def _has_gradient(session: Session, sample: Sample) -> bool:
    op = session.op
    if op.find_rule(AUTOGRAD) is None or op.sees_seed:
        return False
    return not why_no_derivative(session, sample)


class _Captures(Enum):
    """The values that a graph computes."""

    CALL = "call"
    GRADIENT = "gradient"
    BOTH = "both"


_CALL, _GRADIENT, _BOTH = _Captures


class _OfArrays:
    """An operator as a function of the arrays of a sample."""

    def __init__(self, session: Session, sample: Sample) -> None:
        self.op: Operator[..., Any] = session.op
        values = session.values(sample)
        self.put = placer(values, has_device)
        self.arrays: list[Any] = [*filter(has_device, flat(values))]
        places = [i for i, leaf in enumerate(self.arrays) if is_floats(leaf)]
        pairs = zip(places, floats_of(session.op, values), strict=True)
        self.floats: list[int] = [i for i, name in pairs if name not in session.fixed]

    def graph(self, what: _Captures, mode: _Mode) -> _Captured:
        """Capture the function; for a gradient, that of the sum of all results."""
        fn = getattr(self, what.value)
        names = [f"arrays[{i}]" for i in range(len(self.arrays))]
        return _Captured(graph_of(fn, mode, self.arrays, names), what)

    def call(self, *arrays: Any) -> Any:
        """The results."""
        return self.op.invoke(self.put(arrays))

    def gradient(self, *arrays: Any) -> Any:
        """The gradients by the arrays of floats."""
        return self.both(*arrays)[1]

    def both(self, *arrays: Any) -> tuple[Any, Any]:
        """The results and the gradients."""
        given = [*arrays]

        def call(*floats: Any) -> tuple[Any, Any]:
            for i, x in zip(self.floats, floats, strict=True):
                given[i] = x
            out = self.op.invoke(self.put(given))
            return tuple(leaf for leaf in flat(out) if is_float_array(leaf)), out

        floats = [arrays[i] for i in self.floats]
        out, pullback, whole = vjp(call, *floats, has_aux=True)
        return whole, pullback(tuple(map(ones_like, out)))


def _untraceable(session: Session, error: CustomOpError) -> Fault:
    return Fault(
        f"has a gradient that cannot be captured: {error.what}",
        *error.where,
        do=f"make the formula of @{session.op.name}.register_autograd of operators and"
        " np functions, without branches on values; or say that graphs of gradients are"
        f" not meant: {session.op.name}.waive(..., reason=...)",
    )
