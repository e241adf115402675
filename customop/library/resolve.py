"""Find the operator that an operator, a packet or a name refers to."""

from __future__ import annotations

from typing import Any

from customop.core.operator import Operator
from customop.core.registry import find_operator
from customop.errors import RegistrationError, shown
from customop.library.ops import OperatorPacket

__all__ = ["AnyOperator", "resolve"]

AnyOperator = Operator[..., Any] | OperatorPacket | str


def resolve(op: AnyOperator) -> Operator[..., Any]:
    """Return an operator, the default overload of a packet, or the operator of a name."""
    if isinstance(op, Operator):
        return op
    if isinstance(op, str):
        return find_operator(op)
    if isinstance(op, OperatorPacket):
        return op.default
    raise RegistrationError(
        f"expected an operator or its name, got {shown(op)}",
        do='pass "namespace::name"',
    )
