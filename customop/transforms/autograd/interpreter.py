"""The interpreter of reverse mode: it makes a node of every call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from customop.core.interpreter import Interpreter
from customop.core.kinds import AUTOGRAD
from customop.core.rule_kind import RuleKind
from customop.core.table import RuleTable
from customop.core.tracer import Tracer
from customop.transforms.autograd.node import Leaf
from customop.transforms.autograd.plans import make_plan
from customop.transforms.autograd.tracer import GradTracer, no_variable

__all__ = ["GradInterpreter"]


class GradInterpreter(Interpreter):
    """One running reverse-mode transform."""

    kind: ClassVar[RuleKind] = AUTOGRAD
    tracer_class: ClassVar[type[Tracer]] = GradTracer

    def variable(self, value: Any) -> GradTracer:
        """A tracer whose gradient is computed."""
        return GradTracer(self, value, Leaf(value))

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
