"""A branch where the condition is known, or differs between the rows of a batch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from customop.arrays.pytree import flatten, map_leaves, unflatten
from customop.control.leaf_types import difference
from customop.control.rows import Mask, selected, truth
from customop.errors import ArgumentError, place

__all__ = ["check_agree", "take_branch"]


def take_branch(
    pred: Any,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    operands: Any,
) -> Any:
    """The result of one of two functions."""
    known = truth(pred, "cond: pred")
    if type(known) is bool:
        return true_fn(*operands) if known else false_fn(*operands)
    return _both(pred, known, true_fn, false_fn, operands)


def _both(
    pred: Any,
    mask: Any,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    operands: Any,
) -> Any:
    """The results of both functions, selected by row."""
    if isinstance(mask, Mask):
        if mask.all:
            return true_fn(*operands)
        if not mask.any:
            return false_fn(*operands)
        yes = true_fn(*map_leaves(mask.safe, operands))
        no = false_fn(*map_leaves(mask.opposite().safe, operands))
    else:
        yes, no = true_fn(*operands), false_fn(*operands)
    check_agree(true_fn, false_fn, yes, no)
    first, structure = flatten(yes)
    pairs = zip(first, flatten(no)[0], strict=True)
    condition = mask.value if isinstance(mask, Mask) else pred
    return unflatten(structure, [selected(condition, a, b) for a, b in pairs])


def check_agree(
    true_fn: Callable[..., Any], false_fn: Callable[..., Any], yes: Any, no: Any
) -> None:
    """Raise unless the results of both functions can be one result."""
    fault = difference(yes, no, ("from true_fn", "from false_fn"))
    if fault:
        raise ArgumentError(
            f"cond: {fault}",
            f"true_fn at {place(true_fn)}",
            f"false_fn at {place(false_fn)}",
            do="return the same structure, shapes and dtypes from both",
        )
