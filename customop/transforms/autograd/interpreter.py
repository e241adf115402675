"""The interpreter of reverse mode: it makes a node of every call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from customop.arrays.describe import describe
from customop.core.boxes import fill, frozen
from customop.core.interpreter import Interpreter, current_mode
from customop.core.kinds import AUTOGRAD
from customop.core.overlaps import origins, share
from customop.core.rule_kind import RuleKind
from customop.core.table import RuleTable
from customop.core.tracer import Tracer
from customop.errors import CustomOpError, GradientError
from customop.transforms.autograd.node import Leaf, inexact
from customop.transforms.autograd.plans import make_plan
from customop.transforms.autograd.saved import watch
from customop.transforms.autograd.tracer import GradTracer, no_variable
from customop.transforms.reach import within_reach
from customop.transforms.runs import Subject, is_watched, report

__all__ = ["NO_GRAD", "GradInterpreter", "interpreter_for"]

# The kind of the mode that computes without tracking.
NO_GRAD = RuleKind("no_grad")


class GradInterpreter(Interpreter):
    """One running reverse-mode transform."""

    kind: ClassVar[RuleKind] = AUTOGRAD
    tracer_class: ClassVar[type[Tracer]] = GradTracer
    guards_inputs: bool = False
    # Whether the function was searched for the first argument that is written.
    has_looked: bool = False
    has_plans: ClassVar[bool] = True
    title: str = "grad"

    def variable(self, value: Any) -> GradTracer:
        """A tracer whose gradient is computed."""
        plain = type(value) is np.ndarray  # 150 ns less than asking `frozen`
        tracer = GradTracer(self, value if plain else frozen(value), Leaf(value))
        tracer.box_origin = value
        return tracer

    def constant(self, value: Any) -> Any:
        """A constant as a tracer, if it has a dtype of floats; else the constant."""
        return GradTracer(self, value, None) if inexact[value.dtype] else value

    def replace(self, box: Tracer, new: Any) -> None:
        """Put the content of another tracer in one, of which the user has the name."""
        assert isinstance(box, GradTracer)
        mode = current_mode.get()
        if box.node is not None and mode is not None and mode.kind is NO_GRAD:
            raise GradientError(
                f"{describe(box)} of {self.describe()} is written inside no_grad(): its"
                " gradient would not be that of its value",
                do="write it outside no_grad(), or write a copy: y = stop_gradient(x)",
            )
        fill(box, new)

    def backward(self, y: Any, gradient: Any, retain_graph: bool) -> None:
        """Raise: only variables collect gradients."""
        raise no_variable(y)

    def process(self, op: RuleTable, args: Sequence[Any]) -> Any:
        """Run the operator below, and note how to go back through it."""
        try:
            plan = op.plans.by_tracer[GradTracer]
        except KeyError:
            plan = make_plan(op)
        return plan(self, args)

    def guard(self, origin: Any) -> None:
        """Note that an argument was written, if the function has it under another name."""
        if not self.has_looked:
            self.has_looked = True
            # A watched run guards each argument.
            self.guards_inputs = self.guards_inputs or self._holds(origin)
        super().guard(origin)

    def _holds(self, array: Any) -> bool:
        known = origins(array)
        found = within_reach(
            [self.fn], lambda value: any(share(value, v) for v in known)
        )
        return bool(found)

    def note_backward(self) -> None:
        """Note that backward has run through all calls."""

    def note_constant(self) -> None:
        """Note that backward has nothing to run through: the value is a constant."""


class WatchingInterpreter(GradInterpreter):
    """Reverse mode that notices when an array is overwritten before backward uses it."""

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self.subject: Subject = subject
        self.is_sampled: bool = subject.is_sampled
        self.guards_inputs = True

    def process(self, op: RuleTable, args: Sequence[Any]) -> Any:
        """Run the operator, and keep checksums of what its node saved."""
        out = super().process(op, args)
        watch(args, out, is_sampled=self.is_sampled)
        return out

    def report(self, fault: CustomOpError) -> None:
        """Raise a fault; in a run chosen at random, what the settings say."""
        report(fault, is_sampled=self.is_sampled)

    def note_backward(self) -> None:
        """Later runs of the subject are not watched."""
        self.subject.note_watched()

    def note_constant(self) -> None:
        """Later runs of the subject are not watched, if enough of them were like this."""
        self.subject.note_constant()


def interpreter_for(subject: Subject) -> GradInterpreter:
    """The interpreter for a run of a subject."""
    if subject.is_bare or not is_watched(subject):
        return GradInterpreter()
    return WatchingInterpreter(subject)
