"""Loops on a carry, whose conditions are known or differ between the rows of a batch."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from operator import index
from typing import Any

import numpy as np

from customop.arrays.describe import abbreviated, show
from customop.arrays.kinds import is_array, is_fake, is_traced
from customop.arrays.pytree import flatten, map_leaves, unflatten
from customop.control.carry import (
    NOT_PLAIN,
    Kept,
    checked_carry,
    is_same,
    own_carry,
    plain_copy,
)
from customop.control.rows import Mask, has_no_elements, plain_value, selected, truth
from customop.control.virtual import as_unknown, is_virtual
from customop.core.observe import open_modes
from customop.errors import ArgumentError
from customop.shapes.sizes import as_length, is_size

__all__ = [
    "as_counted",
    "as_limit",
    "check_goes_on",
    "repeat",
    "repeat_range",
    "shifted",
]


def check_goes_on(value: Any) -> Any:
    """The condition of a loop, if it is known; raise for what is not a condition."""
    return truth(value, "while_loop: what cond_fn returns")


def repeat(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], init: Any) -> Any:
    """The carry when a condition does not hold any more."""
    if not open_modes:
        carry = plain_copy(init)
        if carry is not NOT_PLAIN:
            return _repeat_plain(cond_fn, body_fn, carry)
    if is_virtual(init):
        return _once(cond_fn, body_fn, init)
    carry = own_carry(init)
    kept = Kept("while_loop", body_fn)
    return _repeat(kept, cond_fn, carry, cond_fn(carry))


_TRUE, _FALSE = np.True_, np.False_


def _repeat_plain(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], carry: Any
) -> Any:
    """As `_repeat`, without an object for checks: most calls are short."""
    goes_on = cond_fn(carry)
    if goes_on is False or goes_on is _FALSE:
        return carry
    kept = None
    if goes_on is True or goes_on is _TRUE:
        first = body_fn(carry)
        if not is_same(carry, first):
            first = checked_carry("while_loop", body_fn, carry, first)
        carry, before = first, goes_on
        try:
            while (goes_on := cond_fn(carry)) is before:
                carry = body_fn(carry)
        except (ValueError, TypeError) as error:
            Kept("while_loop", body_fn, first).explain(error, carry)
            raise
        if goes_on is False or goes_on is _FALSE:
            if carry is first or is_same(first, carry):
                return carry
            return checked_carry("while_loop", body_fn, first, carry)
        kept = Kept("while_loop", body_fn, first)
    return _repeat(kept or Kept("while_loop", body_fn), cond_fn, carry, goes_on)


def _repeat(kept: Kept, cond_fn: Callable[..., Any], carry: Any, goes_on: Any) -> Any:
    """The last carry of a loop whose steps are checked, or of which only some rows go on.

    `goes_on` is what `cond_fn` says of the first carry.
    """
    body_fn, is_checked = kept.body, False
    try:
        while True:
            while is_checked and (goes_on is True or goes_on is _TRUE):
                carry = body_fn(carry)
                goes_on = cond_fn(carry)
            found, goes_on = goes_on, check_goes_on(goes_on)
            if goes_on is None:
                if not has_no_elements(found):
                    bool(found)  # its transform says why it cannot be known
                return _once(cond_fn, body_fn, carry)
            if goes_on is True:
                carry = kept.first(carry, body_fn(carry))
                is_checked = True
            elif goes_on is False or not goes_on.any:
                break
            else:
                carry = _some_rows(kept, carry, goes_on)
            goes_on = cond_fn(carry)
    except (ValueError, TypeError) as error:
        kept.explain(error, carry)
        raise
    return kept.result(carry)


def _some_rows(kept: Kept, carry: Any, mask: Mask) -> Any:
    """One step of the rows that go on; the others keep their carry."""
    if mask.all:
        return kept.first(carry, kept.body(carry))
    new = kept.first(carry, kept.body(map_leaves(mask.safe, carry)))
    old, structure = flatten(carry)
    pairs = zip(flatten(new)[0], old, strict=True)
    return unflatten(structure, [selected(mask.value, a, b) for a, b in pairs])


def _once(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], init: Any) -> Any:
    """The carry after one step, of which only shapes and dtypes matter."""
    check_goes_on(cond_fn(init))
    new = checked_carry("while_loop", body_fn, init, body_fn(init))
    return map_leaves(as_unknown, new)


# ---- ranges ----


def repeat_range(start: Any, stop: Any, body: Callable[..., Any], init: Any) -> Any:
    """The carry after a step for each number of a range."""
    if is_size(stop):
        return _once_in_range(body, init)
    carry: Any = NOT_PLAIN if open_modes else plain_copy(init)
    is_known = type(start) is int and type(stop) is int
    if not is_known or (carry is NOT_PLAIN and is_virtual(init)):
        goes_on, as_step, first = as_counted(start, stop, init)
        return repeat(goes_on, as_step(body), first)[1]
    if carry is NOT_PLAIN:
        carry = own_carry(init)
    if start >= stop:
        return carry
    first = body(start, carry)
    if not is_same(carry, first):
        first = checked_carry("fori_loop", body, carry, first)
    carry = first
    try:
        for i in range(start + 1, stop):
            carry = body(i, carry)
    except (ValueError, TypeError) as error:
        Kept("fori_loop", body, first).explain(error, carry)
        raise
    if carry is first or is_same(first, carry):
        return carry
    return checked_carry("fori_loop", body, first, carry)


def _once_in_range(body: Callable[..., Any], init: Any) -> Any:
    """The carry of a range of unknown length, of which only shapes and dtypes matter."""
    new = body(as_unknown(np.asarray(0)), init)
    return map_leaves(as_unknown, checked_carry("fori_loop", body, init, new))


def shifted(start: Any, body: Callable[..., Any]) -> Callable[..., Any]:
    """The body of a range that begins at 0 in place of `start`."""

    @wraps(body)
    def step(i: Any, carry: Any) -> Any:
        return body(i + start, carry)

    return step


def as_limit(value: Any, name: str) -> Any:
    """A limit of a range: an int, a size, or a traced or fake array of ints."""
    if type(value) is int or is_size(value):
        return as_length(value)
    is_known = not is_traced(value) and not is_fake(value)
    if is_known:
        try:
            return index(value)
        except TypeError:
            pass
    elif not value.shape and value.dtype.kind in "iu":
        known = plain_value(value)
        return value if known is None else int(known)
    seen = abbreviated(value) if is_array(value) else show(value)
    raise ArgumentError(
        f"fori_loop: {name} is {seen}, must be an int",
        do="pass an int, or an array of ints without axes",
    )


def as_counted(
    start: Any, stop: Any, init: Any
) -> tuple[Callable[..., Any], Callable[..., Any], Any]:
    """A range as a loop with its number in the carry.

    Returns its condition, what makes its step from a body, and the first carry.
    """

    def as_step(body: Callable[..., Any]) -> Callable[..., Any]:
        def step(carry: Any) -> Any:
            i, value = carry
            return i + 1, body(i, value)

        return step

    first = start if is_array(start) else np.asarray(start)[()]
    return lambda carry: carry[0] < stop, as_step, (first, init)
