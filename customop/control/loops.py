"""while_loop and fori_loop: steps on a carry."""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import Any, TypeVar

import numpy as np

from customop.arrays.describe import abbreviated, show
from customop.arrays.kinds import is_array, is_traced
from customop.arrays.pytree import flatten, map_leaves, unflatten
from customop.control.carry import Kept, checked_carry, own_carry
from customop.control.rows import Mask, bottom, selected, truth
from customop.control.virtual import as_unknown, is_virtual
from customop.errors import ArgumentError, check_function

__all__ = ["fori_loop", "while_loop"]

T = TypeVar("T")


def while_loop(cond_fn: Callable[[T], Any], body_fn: Callable[[T], T], init: T) -> T:
    """Call a function on its own result while a condition holds.

    Parameters
    ----------
    cond_fn : callable
        Takes the carry; returns a bool, or an array without axes.
    body_fn : callable
        Takes the carry; returns the next one, of the same structure, shapes and dtypes.
    init : pytree
        The first carry. It is not changed where `body_fn` writes in place.

    Returns
    -------
    pytree
        The last carry.

    Raises
    ------
    ArgumentError
        If the carry changes its structure, shapes or dtypes, or what `cond_fn` returns
        is not a bool.
    ShapeError
        If what `cond_fn` returns has axes.

    Notes
    -----
    Where conditions are known, as in plain code and under grad and jvp, this is the
    Python loop. Under `vmap` it runs until no row goes on; the others keep their carry.
    Of fake arrays it runs both functions once.

    A Python number in `init` takes the dtype that the first step gives it.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> def halve(x):
    ...     return co.while_loop(lambda x: x > 1, lambda x: x / 2, x)
    >>> halve(np.float64(10.0))
    np.float64(0.625)
    >>> co.vmap(halve)(np.array([10.0, 0.5, 3.0]))
    array([0.625, 0.5  , 0.75 ])
    >>> co.grad(halve)(np.array(10.0))
    np.float64(0.0625)
    """
    check_function("while_loop", cond_fn)
    check_function("while_loop", body_fn)
    if is_virtual(init):
        return _once(cond_fn, body_fn, init)  # type: ignore[no-any-return]  # as init
    carry: Any = own_carry(init)
    kept = Kept("while_loop", body_fn)
    true = np.True_
    try:
        while True:
            goes_on = cond_fn(carry)
            while kept.started and (goes_on is True or goes_on is true):
                carry = body_fn(carry)
                goes_on = cond_fn(carry)
            goes_on = truth(goes_on, "while_loop: what cond_fn returns")
            if goes_on is None:
                return _once(cond_fn, body_fn, carry)  # type: ignore[no-any-return]  # as init
            if goes_on is True:
                carry = kept.first(carry, body_fn(carry))
            elif goes_on is False or not goes_on.any:
                break
            else:
                carry = _some_rows(kept, carry, goes_on)
    except (ValueError, TypeError) as error:
        kept.explain(error, carry)
        raise
    return kept.result(carry)  # type: ignore[no-any-return]  # as init


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
    truth(cond_fn(init), "while_loop: what cond_fn returns")
    new = checked_carry("while_loop", body_fn, init, body_fn(init))
    return map_leaves(as_unknown, new)


def fori_loop(lower: Any, upper: Any, body: Callable[[Any, T], T], init: T) -> T:
    """Call a function for each number of a range, on its own result.

    Parameters
    ----------
    lower, upper : int, or array of ints without axes
        The range, without `upper`. They may differ between the rows of a `vmap`.
    body : callable
        Takes a number and the carry; returns the next carry, of the same structure,
        shapes and dtypes. The number is an int; in a batch of ranges, on fake arrays and
        in a captured graph it is an array of ints.
    init : pytree
        The first carry. It is not changed where `body` writes in place.

    Returns
    -------
    pytree
        The last carry.

    Raises
    ------
    ArgumentError
        If the carry changes its structure, shapes or dtypes, or a limit is not an int.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> co.fori_loop(1, 5, lambda i, total: total + i, 0)
    10
    >>> co.vmap(lambda n: co.fori_loop(0, n, lambda i, x: 2 * x, 1))(np.arange(4))
    array([1, 2, 4, 8])
    """
    check_function("fori_loop", body)
    start, stop = _limit(lower, "lower"), _limit(upper, "upper")
    if is_virtual(init) or type(start) is not int or type(stop) is not int:
        return _counted(start, stop, body, init)
    carry: Any = own_carry(init)
    if start >= stop:
        return carry  # type: ignore[no-any-return]  # as init
    kept = Kept("fori_loop", body)
    carry = kept.first(carry, body(start, carry))
    try:
        for i in range(start + 1, stop):
            carry = body(i, carry)
    except (ValueError, TypeError) as error:
        kept.explain(error, carry)
        raise
    return kept.result(carry)  # type: ignore[no-any-return]  # as init


def _limit(value: Any, name: str) -> Any:
    """A limit of a range: an int, or a traced or fake array of ints."""
    if type(value) is int:
        return value
    is_known = not is_traced(value) and not is_virtual(value)
    if is_known:
        try:
            return index(value)
        except TypeError:
            pass
    elif not value.shape and value.dtype.kind in "iu":
        below = bottom(value)
        is_one = below.shape == () and not is_virtual(below)
        return int(below) if is_one else value
    seen = abbreviated(value) if is_array(value) else show(value)
    raise ArgumentError(
        f"fori_loop: {name} is {seen}, must be an int",
        do="pass an int, or an array of ints without axes",
    )


def _counted(start: Any, stop: Any, body: Callable[..., Any], init: T) -> T:
    """The loop with its number in the carry."""

    def step(carry: tuple[Any, T]) -> tuple[Any, T]:
        i, value = carry
        return i + 1, body(i, value)

    first = start if is_array(start) else np.asarray(start)[()]
    return while_loop(lambda carry: carry[0] < stop, step, (first, init))[1]
