"""What stands in an operator's table: kinds of rules, rows, definitions."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn

from customop.core.derived.find import derive_vmap
from customop.core.kinds import RuleKind
from customop.errors import MissingRuleError
from customop.schema.schema import Schema
from customop.schema.tags import Tag

__all__ = [
    "ARRAY_CLASS",
    "AUTOCAST",
    "AUTOGRAD",
    "COMPOSITE",
    "JVP",
    "MERGED",
    "SAMPLE_INPUTS",
    "VMAP",
    "Definition",
    "Formula",
    "Row",
    "changing",
    "fallthrough_kernel",
    "same_place",
]


class _Changes:
    """A lock that a finalizer may ask for at any moment.

    The garbage collector runs finalizers between any two lines, so also inside the
    block of the thread that holds the lock. What they want done waits until it ends.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        self.later: deque[Callable[[], None]] = deque()

    def __enter__(self) -> None:
        self._lock.acquire()
        self._depth += 1

    def __exit__(self, *exc: object) -> None:
        try:
            while self._depth == 1 and self.later:
                self.later.popleft()()
        finally:
            self._depth -= 1
            self._lock.release()


# Held while a table changes, or a kernel of it is marked as proven: calls never wait.
changing: _Changes = _Changes()

# A process forked while another thread changes a table must find the lock free.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=changing.__enter__,
        after_in_parent=changing.__exit__,
        after_in_child=changing.__exit__,
    )

AUTOGRAD = RuleKind("autograd", returns="gradients of the positional inputs")
JVP = RuleKind("jvp", "(primals, tangents, **keywords)", "(output, tangent)")
VMAP = RuleKind(
    "vmap", "(info, in_dims, *inputs)", "(output, out_dims)", derive=derive_vmap
)
# Kind of array -> dtype that `autocast` casts the floats of the operator to.
AUTOCAST = RuleKind("autocast", returns="dtypes by kind of array")
# Class of arrays -> what the operator does with arrays of it.
ARRAY_CLASS = RuleKind("array_class", "(op, args, kwargs)", "what the operator returns")
# Kinds whose rows are tables of their own: all of them count, newer entries first.
MERGED = (AUTOCAST, ARRAY_CLASS)
# The body of an operator, made of operators: what every transform sees in place of an
# operator that has no rule for it, and the last resort of every kind of array.
COMPOSITE = RuleKind("composite", "(*inputs)", "what the operator returns")
# Inputs to check the operator with.
SAMPLE_INPUTS = RuleKind("sample_inputs", "()", "samples, or a strategy of them")


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
    """A registration: what stands in an operator's table under a kind.

    Attributes
    ----------
    fn : object
        The kernel or rule.
    place : str
        File and line that messages name.
    owner : object
        Whose closing takes it back; None where it stays.
    """

    fn: Any
    place: str
    owner: object = None


def fallthrough_kernel(*args: Any, **kwargs: Any) -> NoReturn:
    """Stand for a kernel that is not there: the call goes on to the next row.

    It is registered and never called. For a kind of array the default kernel follows,
    then the composite body; for autograd the operator below, whose result is not
    tracked.

    Parameters
    ----------
    *args, **kwargs : object
        Never read.

    Raises
    ------
    MissingRuleError
        Always.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> @co.custom_op("doc::halve", mutates_args=())
    ... def halve(x: np.ndarray) -> np.ndarray:
    ...     return x / 2
    >>> with co.Library("doc", "IMPL", "CPU") as lib:
    ...     lib.impl("halve", lambda x: x * 0)
    ...     lib.impl("halve", co.fallthrough_kernel)
    ...     print(halve(np.ones(2)))
    [0.5 0.5]
    """
    raise MissingRuleError(
        "fallthrough_kernel is called: it only marks a row to skip",
        do='register it: lib.impl("name", fallthrough_kernel, "CPU")',
    )


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
