"""A function for each row of arrays, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from customop.arrays.kinds import device_of
from customop.arrays.numpy_functions import call_numpy
from customop.arrays.pytree import leaves, map_leaves
from customop.control.carry import Kept, checked_carry, own_carry, pair_of
from customop.control.stacks import Slices, StepResults, first_row, repeated
from customop.control.virtual import as_fake, as_unknown, is_virtual, shapes_of
from customop.core.given import explain_read_only
from customop.transforms.functions.checkpoint import checkpoint as checkpointed

__all__ = ["step_through"]


def step_through(
    f: Callable[..., Any],
    init: Any,
    xs: Any,
    length: Any,
    reverse: bool,
    checkpoint: bool,
    name: str,
) -> Any:
    """The last carry of a function that is called for each row, and its results."""
    elements = Slices(xs, length, name)
    if is_virtual((init, xs)):
        return _once(f, init, elements, name)
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
    """All steps, one after the other."""
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


def _once(f: Callable[..., Any], init: Any, elements: Slices, name: str) -> Any:
    """Carry and results after one step, of which only shapes and dtypes matter."""
    new, y = pair_of(f, f(init, elements.first()))
    carry = map_leaves(as_unknown, checked_carry(name, f, init, new))
    ys = map_leaves(as_unknown, y)
    return carry, map_leaves(lambda leaf: repeated(leaf, elements.count), ys)


def _no_results(f: Callable[..., Any], init: Any, elements: Slices) -> Any:
    """The results of no steps, from the shapes that a step would give."""
    x = elements.element([first_row(as_fake(leaf)) for leaf in elements.leaves])
    _, y = pair_of(f, shapes_of(f, init, x))
    devices = [device_of(leaf) for leaf in leaves((init, elements.leaves))]

    def none_of(leaf: Any) -> Any:
        where = devices[0] if devices else "cpu"
        return call_numpy(np.zeros, (0, *leaf.shape), leaf.dtype, device=where)

    return map_leaves(none_of, map_leaves(as_unknown, y))
