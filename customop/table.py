"""What stands in an operator's table: kinds of rules, rows, definitions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from customop.kinds import RuleKind, Tag
from customop.pointwise import derive_vmap
from customop.schema import Schema

__all__ = [
    "AUTOGRAD",
    "JVP",
    "VMAP",
    "Definition",
    "Formula",
    "Row",
    "changing",
    "same_place",
]

# Held while a table changes, or a kernel of it is marked as proven: calls never wait.
changing = threading.RLock()

AUTOGRAD = RuleKind("autograd", returns="gradients of the positional inputs")
JVP = RuleKind("jvp", "(primals, tangents, **keywords)", "(output, tangent)")
VMAP = RuleKind(
    "vmap", "(info, in_dims, *inputs)", "(output, out_dims)", derive=derive_vmap
)


class Formula(NamedTuple):
    """The autograd rule of an operator.

    Attributes
    ----------
    backward : callable
        ``backward(ctx, *grads)``, gradients of the inputs.
    setup_context : callable or None
        ``setup_context(ctx, inputs, output)``, called after the forward pass.
    """

    backward: Callable[..., Any]
    setup_context: Callable[..., Any] | None


class Row(NamedTuple):
    """What stands in an operator's table under a kind."""

    fn: Any
    place: str


class Definition(NamedTuple):
    """All that a definition of an operator says."""

    qualname: str
    fn: Callable[..., Any]
    schema: Schema
    tags: frozenset[Tag]
    place: str
    module: str


def same_place(first: str, second: str) -> bool:
    """Whether two places are one, so that a second registration is a second run.

    Cells of a notebook have no file that stays: any two of them count as one place.
    """
    return first == second or (_is_interactive(first) and _is_interactive(second))


def _is_interactive(where: str) -> bool:
    return where.startswith("<") or "ipykernel_" in where
