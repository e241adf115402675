"""`SymBool`: a condition on symbolic sizes that is not decided yet."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from customop.shapes.conditions import Condition, Logic
from customop.shapes.real_number import InContext
from customop.shapes.symbolic import context_of

if TYPE_CHECKING:
    from customop.shapes.size_context import SizeContext

__all__ = ["SymBool"]


class SymBool(InContext):
    """A condition on sizes that is not decided yet.

    ``if``, ``and``, ``not`` and ``bool()`` decide it, as `SymInt` says; ``&``, ``|`` and
    ``~`` combine conditions without a decision.

    Attributes
    ----------
    condition : Condition
        The comparison.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> x = co.FakeMode().from_array(np.zeros((4, 3)), sizes=("batch", 3))
    >>> type(x.shape[0] > 3) is co.SymBool
    True
    >>> x.shape[0] >= 0  # follows from the bounds
    True
    """

    __slots__ = ("condition", "number_class")

    condition: Condition

    def __init__(
        self, context: SizeContext, condition: Condition, cls: type = bool
    ) -> None:
        self.context: SizeContext = context
        self.condition: Condition = condition
        # bool, or that of NumPy, whose sums are numbers of NumPy
        self.number_class: type = cls

    @property
    def value(self) -> Any:
        """Whether it holds in this call, which becomes a guard."""
        return self.number_class(bool(self))

    def __bool__(self) -> bool:
        return self.context.decide(self.condition)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.asarray(self.value, dtype)

    def __and__(self, other: Any) -> Any:
        return _combined("and", self, other)

    __rand__ = __and__

    def __or__(self, other: Any) -> Any:
        return _combined("or", self, other)

    __ror__ = __or__

    def __invert__(self) -> SymBool:
        return SymBool(self.context, self.condition.opposite, self.number_class)

    # As a number it is 0 or 1, which decides it. Arrays beside it take it as it is.

    def __index__(self) -> int:
        return int(bool(self))

    def __float__(self) -> float:
        return float(bool(self))

    def __add__(self, other: Any) -> Any:
        return self.value + other if _is_number(other) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return other + self.value if _is_number(other) else NotImplemented

    def __sub__(self, other: Any) -> Any:
        return self.value - other if _is_number(other) else NotImplemented

    def __rsub__(self, other: Any) -> Any:
        return other - self.value if _is_number(other) else NotImplemented

    def __mul__(self, other: Any) -> Any:
        return self.value * other if _is_number(other) else NotImplemented

    def __rmul__(self, other: Any) -> Any:
        return other * self.value if _is_number(other) else NotImplemented

    def __eq__(self, other: object) -> bool:
        if isinstance(other, SymBool):
            return self.condition == other.condition
        return bool(self) == other

    def __hash__(self) -> int:
        return hash(self.condition)

    def __str__(self) -> str:
        return str(self.condition)

    __repr__ = __str__


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | complex | np.generic | InContext)


def _combined(sign: str, left: SymBool, right: Any) -> Any:
    if isinstance(right, SymBool):
        context = context_of(left, right)
        assert context is not None
        return SymBool(context, Logic(sign, (left.condition, right.condition)))
    if not isinstance(right, bool | np.bool_):
        return NotImplemented
    if sign == "and":
        return left if right else False
    return True if right else left
