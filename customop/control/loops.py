"""Branches, loops and scans that run as Python, also where conditions differ by row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from operator import index
from typing import Any

import numpy as np

from customop.arrays.kinds import device_of, is_array, is_fake, is_traced
from customop.arrays.nested import (
    Structure,
    abbreviated,
    flatten,
    leaves,
    map_leaves,
    show,
    unflatten,
)
from customop.arrays.numpy_functions import call_numpy
from customop.control.carry import (
    NOT_PLAIN,
    Kept,
    Mask,
    as_fake,
    as_unknown,
    checked_carry,
    difference,
    has_no_elements,
    is_same,
    is_virtual,
    own_carry,
    pair_of,
    plain_copy,
    plain_value,
    selected,
    shapes_of,
    truth,
)
from customop.control.stacks import Slices, StepResults, first_row, repeated
from customop.core.fake_context import new_size
from customop.core.interpreter import explain_read_only
from customop.core.observe import open_modes
from customop.core.tracer import frozen
from customop.errors import ArgumentError, place
from customop.shapes.sizes import as_length, is_size
from customop.transforms.functions.checkpoint import checkpoint as checkpointed

# ---- branches ----
# The condition is known, or differs between the rows of a batch.


def take_branch(
    pred: Any,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    operands: Any,
) -> Any:
    """Call one of two functions, or both if the condition differs between rows."""
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
    """Call both functions and select the result of each row."""
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
    """Raise if the results of the two functions do not agree."""
    fault = difference(yes, no, ("from true_fn", "from false_fn"))
    if fault:
        raise ArgumentError(
            f"cond: {fault}",
            f"true_fn at {place(true_fn)}",
            f"false_fn at {place(false_fn)}",
            do="return the same structure, shapes and dtypes from both",
        )


# ---- loops ----
# Their conditions are known, or differ between the rows of a batch.


def check_goes_on(value: Any) -> Any:
    """Return whether the loop goes on; raise if `value` is not a condition."""
    return truth(value, "while_loop: what cond_fn returns")


def repeat(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], init: Any) -> Any:
    """Run a loop until its condition is false; return the last carry."""
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
    """Do what `_repeat` does, but without a `Kept` object: most calls are short."""
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
    """Run a loop with checked steps, in which some rows may end before others.

    `goes_on` is the result of `cond_fn` for the first carry. Returns the last carry.
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
                    bool(found)  # its transform raises, and says why it cannot be known
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
    """Run one step for the rows that go on; the others keep their carry."""
    if mask.all:
        return kept.first(carry, kept.body(carry))
    new = kept.first(carry, kept.body(map_leaves(mask.safe, carry)))
    old, structure = flatten(carry)
    pairs = zip(flatten(new)[0], old, strict=True)
    return unflatten(structure, [selected(mask.value, a, b) for a, b in pairs])


def _once(cond_fn: Callable[..., Any], body_fn: Callable[..., Any], init: Any) -> Any:
    """Run a loop once on unknown arrays; only shapes and dtypes of the carry matter."""
    check_goes_on(cond_fn(init))
    new = checked_carry("while_loop", body_fn, init, body_fn(init))
    return map_leaves(as_unknown, new)


# ---- ranges ----


def repeat_range(start: Any, stop: Any, body: Callable[..., Any], init: Any) -> Any:
    """Run a step for each number of a range; return the last carry."""
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
    """Run one step of a range of unknown length; only shapes and dtypes matter."""
    new = body(as_unknown(np.asarray(0)), init)
    return map_leaves(as_unknown, checked_carry("fori_loop", body, init, new))


def shifted(start: Any, body: Callable[..., Any]) -> Callable[..., Any]:
    """Return the body for a range that begins at 0 instead of `start`."""

    @wraps(body)
    def step(i: Any, carry: Any) -> Any:
        return body(i + start, carry)

    return step


def as_limit(value: Any, name: str) -> Any:
    """Return a limit of a range as an int, a size, or a traced or fake array of ints."""
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
    """Express a range as a while_loop that counts in its carry.

    Returns the condition, a function that turns a body into a step, and the first
    carry.
    """

    def as_step(body: Callable[..., Any]) -> Callable[..., Any]:
        def step(carry: Any) -> Any:
            i, value = carry
            return i + 1, body(i, value)

        return step

    first = start if is_array(start) else np.asarray(start)[()]
    return lambda carry: carry[0] < stop, as_step, (first, init)


# ---- loops that record ----
# They keep a result of each step. How many steps there are is not known in advance.


Recorded = tuple[Any, Any, Any]


def record(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], init: Any
) -> Recorded:
    """Run a loop; return the last carry, the results, and which steps ran for each row."""
    if is_virtual(init):
        return _record_once(cond_fn, body_fn, init)
    carry: Any = own_carry(init)
    columns: list[list[Any]] = []
    structure: Structure | None = None
    ran: list[Any] = []
    while True:
        goes_on = check_goes_on(cond_fn(carry))
        if goes_on is None:
            return _record_once(cond_fn, body_fn, carry)
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
    """Return the new carry in rows that go on, and the old one in the others."""
    before, structure = flatten(old)
    pairs = zip(flatten(new)[0], before, strict=True)
    return unflatten(structure, [selected(mask, a, b) for a, b in pairs])


def _stacked(values: Sequence[Any]) -> Any:
    return call_numpy(np.stack, values)


def _none(body_fn: Callable[..., Any], init: Any) -> Recorded:
    """Return empty results for a loop without steps, with the shapes a step would give."""
    ys = map_leaves(as_unknown, shapes_of(body_fn, init)[1])
    devices = [device_of(leaf) for leaf in leaves(init)]
    where = devices[0] if devices else "cpu"

    def none_of(leaf: Any) -> Any:
        return call_numpy(np.zeros, (0, *leaf.shape), leaf.dtype, device=where)

    ran = call_numpy(np.zeros, (0,), bool, device=where)
    return init, map_leaves(none_of, ys), ran


def _record_once(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], init: Any
) -> Recorded:
    """Return what `record` does, after one step on unknown arrays."""
    check_goes_on(cond_fn(init))
    new, y = body_fn(init)
    carry = map_leaves(as_unknown, checked_carry("while_loop", body_fn, init, new))
    count = new_size("the steps of a loop", leaves((init, y)))
    ys = map_leaves(lambda leaf: repeated(as_unknown(leaf), count), y)
    return carry, ys, repeated(as_unknown(np.asarray(True)), count)


# ---- a function for each row of arrays, one after the other ----


def step_through(
    f: Callable[..., Any],
    init: Any,
    xs: Any,
    length: Any,
    reverse: bool,
    checkpoint: bool,
    name: str,
) -> Any:
    """Call a function for each row; return the last carry and the results."""
    elements = Slices(xs, length, name)
    if is_virtual((init, xs)):
        return _step_once(f, init, elements, name)
    if not elements.count:
        return own_carry(init), _no_results(f, init, elements)
    try:
        return _run(f, init, elements, reverse, checkpoint, name)
    except ValueError as error:
        explain_read_only(error, f"{name} of {_named(f)}", ["x"], "put it in the carry")
        raise


def _run(
    f: Callable[..., Any],
    init: Any,
    elements: Slices,
    reverse: bool,
    checkpoint: bool,
    name: str,
) -> Any:
    """Run all steps, one after the other."""
    step = checkpointed(f) if checkpoint else f
    rows = iter(elements.rows(reverse=reverse))
    results = StepResults(elements.count, f, reverse=reverse)
    kept = Kept(name, f)
    carry = own_carry(init)
    new, y = pair_of(f, step(carry, next(rows)))
    carry = kept.first(carry, new)
    put = results.start(y)
    try:
        for x in rows:
            out = step(carry, x)
            if type(out) is not tuple or len(out) != 2:
                pair_of(f, out)
            carry, y = out
            put(y)
    except (ValueError, TypeError) as error:
        kept.explain(error, carry)
        raise
    return kept.result(carry), results.stacked()


def _named(f: Callable[..., Any]) -> str:
    return str(getattr(getattr(f, "__wrapped__", f), "__name__", "a function"))


def _step_once(f: Callable[..., Any], init: Any, elements: Slices, name: str) -> Any:
    """Return carry and results after one step on unknown arrays."""
    new, y = pair_of(f, f(init, elements.first()))
    carry = map_leaves(as_unknown, checked_carry(name, f, init, new))
    ys = map_leaves(as_unknown, y)
    return carry, map_leaves(lambda leaf: repeated(leaf, elements.count), ys)


def _no_results(f: Callable[..., Any], init: Any, elements: Slices) -> Any:
    """Return empty results for a scan without steps, with the shapes a step would give."""
    x = elements.element([first_row(as_fake(leaf)) for leaf in elements.leaves])
    _, y = pair_of(f, shapes_of(f, init, x))
    devices = [device_of(leaf) for leaf in leaves((init, elements.leaves))]

    def none_of(leaf: Any) -> Any:
        where = devices[0] if devices else "cpu"
        return call_numpy(np.zeros, (0, *leaf.shape), leaf.dtype, device=where)

    return map_leaves(none_of, map_leaves(as_unknown, y))
