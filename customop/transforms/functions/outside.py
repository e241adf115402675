"""Values that a function uses and that are not among its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from customop.arrays.nested import map_nested
from customop.core.boxes import frozen
from customop.core.interpreter import Interpreter, Mode
from customop.core.rule_kind import RuleKind
from customop.core.table import RuleTable
from customop.core.tracer import Tracer
from customop.errors import ArgumentError
from customop.transforms.autograd.tracer import GradTracer

__all__ = ["Outside"]


class Outside(Mode):
    """Finds the values of one transform that operators are called with, or replaces them.

    It is a mode of the level of a transform: the tracers of inner transforms are handled
    before it, so that it sees what rules call operators with.

    Parameters
    ----------
    top : Interpreter
        The transform that the values belong to.
    level : int
        Of the mode.
    values, others : sequence of GradTracer, sequence of array
        Values, and what operators get in place of them. Values that are not among them
        are found, and operators get what is below them.

    Attributes
    ----------
    found : dict of int to GradTracer
        Values by the identity of their nodes, in the order of their use.
    """

    kind: ClassVar[RuleKind] = RuleKind("outside")

    def __init__(
        self,
        top: Interpreter,
        level: int,
        values: Sequence[GradTracer] = (),
        others: Sequence[Any] = (),
    ) -> None:
        super().__init__()
        self.top: Interpreter = top
        self.found: dict[int, GradTracer] = {}
        self._level = level
        # A snapshot of a value has its node. The values are kept, since identities are
        # used again.
        self._values = values
        pairs = zip(values, others, strict=True)
        self._others: dict[int, Any] = {id(v.node): other for v, other in pairs}

    def __enter__(self) -> Self:
        super().__enter__()
        self.level: int = self._level
        return self

    def process(self, op: RuleTable, args: Sequence[Any]) -> Any:
        """Run the operator on other values."""
        return op.invoke([map_nested(value, self.put) for value in args])

    def put(self, value: Any) -> Any:
        """The value that takes the place of another one."""
        if type(value) is not GradTracer or value.interpreter is not self.top:
            return value
        if value.node is None:  # a constant
            return frozen(value.below)
        if id(value.node) in self._others:
            return self._others[id(value.node)]
        if self._values:
            return value
        self.found.setdefault(id(value.node), frozen(value))
        return frozen(value.below)

    def see_write(self, box: Tracer) -> None:
        """Raise for a write to a value from outside, which would lose its derivative."""
        if box.interpreter is self.top:
            raise ArgumentError(
                f"a value of {self.top.describe()} is written in place inside a function"
                " with a checkpoint",
                do="return the new value from the function, and write it outside",
            )
