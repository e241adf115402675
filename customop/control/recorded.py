"""A loop on a carry that keeps a result of each step; how many there are is not known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from customop.arrays.kinds import device_of
from customop.arrays.numpy_functions import call_numpy
from customop.arrays.pytree import Structure, flatten, leaves, map_leaves, unflatten
from customop.control.carry import checked_carry, own_carry
from customop.control.loops import check_goes_on
from customop.control.rows import selected
from customop.control.stacks import repeated
from customop.control.virtual import as_unknown, is_virtual, shapes_of
from customop.core.boxes import frozen
from customop.core.fake_context import new_size

__all__ = ["record"]

Recorded = tuple[Any, Any, Any]


def record(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], init: Any
) -> Recorded:
    """The last carry, the results of the steps, and which of them ran for each row."""
    if is_virtual(init):
        return _once(cond_fn, body_fn, init)
    carry: Any = own_carry(init)
    columns: list[list[Any]] = []
    structure: Structure | None = None
    ran: list[Any] = []
    while True:
        goes_on = check_goes_on(cond_fn(carry))
        if goes_on is None:
            return _once(cond_fn, body_fn, carry)
        if goes_on is False or (goes_on is not True and not goes_on.any):
            break
        if goes_on is True or goes_on.all:
            carry, y = body_fn(carry)
            ran.append(np.True_)
        else:
            new, y = body_fn(map_leaves(goes_on.safe, carry))
            carry = _chosen(goes_on.value, new, carry)
            ran.append(goes_on.value)
        found, structure = flatten(y)
        columns = columns or [[] for _ in found]
        for column, leaf in zip(columns, found, strict=True):
            column.append(frozen(leaf))
    if structure is None:
        return _none(body_fn, carry)
    return carry, unflatten(structure, [*map(_stacked, columns)]), _stacked(ran)


def _chosen(mask: Any, new: Any, old: Any) -> Any:
    """The new carry of the rows that go on, and the old one of the others."""
    before, structure = flatten(old)
    pairs = zip(flatten(new)[0], before, strict=True)
    return unflatten(structure, [selected(mask, a, b) for a, b in pairs])


def _stacked(values: Sequence[Any]) -> Any:
    return call_numpy(np.stack, values)


def _none(body_fn: Callable[..., Any], init: Any) -> Recorded:
    """The results of a loop without steps, with the shapes that a step would give."""
    ys = map_leaves(as_unknown, shapes_of(body_fn, init)[1])
    devices = [device_of(leaf) for leaf in leaves(init)]
    where = devices[0] if devices else "cpu"

    def none_of(leaf: Any) -> Any:
        return call_numpy(np.zeros, (0, *leaf.shape), leaf.dtype, device=where)

    ran = call_numpy(np.zeros, (0,), bool, device=where)
    return init, map_leaves(none_of, ys), ran


def _once(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], init: Any
) -> Recorded:
    """The same after one step, of which only shapes and dtypes matter."""
    check_goes_on(cond_fn(init))
    new, y = body_fn(init)
    carry = map_leaves(as_unknown, checked_carry("while_loop", body_fn, init, new))
    count = new_size("the steps of a loop", leaves((init, y)))
    ys = map_leaves(lambda leaf: repeated(as_unknown(leaf), count), y)
    return carry, ys, repeated(as_unknown(np.asarray(True)), count)
