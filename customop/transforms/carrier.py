"""Arrays of kinds whose plain NumPy code must reach operators.

The first-order formulas of operators run plain ``np.`` code on the arrays themselves, which
is the fastest way for NumPy and CuPy. An array of another kind would go past the kernels of
its kind there: it would be computed at once, or leave for NumPy. So a transform of such
arrays runs on carriers: tracers of a transform that does nothing, below all others. They
are taken off the results. NumPy and CuPy arrays pay nothing for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, ClassVar, TypeVar

from typing_extensions import ParamSpec

from customop.arrays.kinds import kind_of
from customop.arrays.pytree import map_leaves
from customop.core.interpreter import Interpreter
from customop.core.rule_kind import RuleKind
from customop.core.table import RuleTable
from customop.core.tracer import Tracer

__all__ = [
    "Carried",
    "Carrier",
    "NeedsCarrier",
    "carried",
    "carries",
    "carry_for",
    "check_carried",
    "uncarried",
]

P = ParamSpec("P")
R = TypeVar("R")


class NeedsCarrier(Exception):
    """An array that a transform must carry is among its inputs."""


def check_carried(value: Any) -> None:
    """Raise `NeedsCarrier` for an array that a transform must carry."""
    kind = kind_of[type(value)]
    if kind is not None and kind.is_carried:
        raise NeedsCarrier


class Carried(Tracer):
    """An array whose plain NumPy code goes to operators."""

    __slots__ = ()


class Carrier(Interpreter):
    """A transform that only runs operators."""

    kind: ClassVar[RuleKind] = RuleKind("carrier")
    tracer_class: ClassVar[type[Tracer]] = Carried
    is_lasting: ClassVar[bool] = True

    def process(self, op: RuleTable, args: Sequence[Any]) -> Any:
        """Run the operator on the arrays themselves."""
        return self.wrap(op.invoke(self.unwrap(args)))

    def carry(self, tree: Any) -> Any:
        """A pytree with carriers around the arrays that need one."""
        return map_leaves(self._carry, tree)

    def _carry(self, value: Any) -> Any:
        kind = kind_of[type(value)]
        return Carried(self, value) if kind is not None and kind.is_carried else value

    def uncarry(self, tree: Any) -> Any:
        """A pytree without the carriers of this transform."""
        return map_leaves(self.take_out, tree)


def uncarried(value: Any) -> Any:
    """The array in a carrier; other values as they are."""
    return value.below if type(value) is Carried else value


def carry_for(*values: Any) -> Carrier | None:
    """A carrier for gradients of results of a kind that is carried; None for others.

    Such results come from functions of NumPy's arrays that read others from outside. The
    formulas then start from a carried gradient, so that most of their code is operators.
    """
    for value in values:
        kind = kind_of[type(value)]
        if kind is not None and kind.is_carried:
            return Carrier()
    return None


def carried(fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Call a transformed function on carriers; its results are arrays again."""
    with Carrier() as carrier:
        given = [carrier.carry(value) for value in args]
        named = {name: carrier.carry(value) for name, value in kwargs.items()}
        return carrier.uncarry(fn(*given, **named))


def carries(fn: Callable[P, R]) -> Callable[P, R]:
    """Let a transform carry arrays among its arguments that need it."""

    @wraps(fn)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return fn(*args, **kwargs)
        except NeedsCarrier:
            pass
        return carried(fn, args, kwargs)  # type: ignore[no-any-return]  # as fn

    return call
