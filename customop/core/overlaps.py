"""Arrays that share memory: views of one tracer, and arrays that transforms were given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from customop.arrays.kinds import is_traced

if TYPE_CHECKING:  # a tracer is a box, whose module imports this one
    from customop.core.tracer import Tracer

__all__ = ["origins", "overlap", "root_of", "share"]


def root_of(box: Tracer) -> Tracer:
    """The array that a box is a view of, or the box itself."""
    while type(box.box_place) is tuple:
        op, args, _ = box.box_place
        box = args[op.view_slot]
    return box


def origins(value: Any) -> list[Any]:
    """An argument, and what it is in outer transforms."""
    found = []
    while value is not None:
        found.append(value)
        root = root_of(value) if is_traced(value) else None
        value = getattr(root, "box_origin", None)
    return found


def overlap(a: Any, b: Any) -> bool:
    """Whether two arrays share memory, or what they are outside of all transforms."""
    return share(a, b) or share(origins(a)[-1], origins(b)[-1])


def share(a: Any, b: Any) -> bool:
    """Whether two arrays lie in the same memory: both plain, or both traced."""
    if is_traced(a) and is_traced(b):
        return root_of(a) is root_of(b)
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        return False
    if not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=10_000)  # type: ignore[arg-type]  # any int
    except np.exceptions.TooHardError:
        return True
