"""cond: one of two functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, TypeVarTuple

from customop.arrays.pytree import flatten, map_leaves, unflatten
from customop.control.leaf_types import difference
from customop.control.rows import Mask, selected, truth
from customop.errors import ArgumentError, check_function, place

__all__ = ["cond"]

R = TypeVar("R")
Ts = TypeVarTuple("Ts")


def cond(
    pred: Any,
    true_fn: Callable[[*Ts], R],
    false_fn: Callable[[*Ts], R],
    *operands: *Ts,
) -> R:
    """Call one of two functions.

    Parameters
    ----------
    pred : bool, or array without axes
        Which function: `true_fn` where it is true.
    true_fn, false_fn : callable
        Take `operands`; return pytrees of the same structure, shapes and dtypes.
    *operands : pytree
        Arguments of the functions.

    Returns
    -------
    pytree
        What the function returned.

    Raises
    ------
    ArgumentError
        If `pred` is not a number, a function is not one, or both functions run and
        their results do not agree.
    ShapeError
        If `pred` has axes.

    Notes
    -----
    Where `pred` is known, as in plain code and under grad and jvp, this is a Python
    ``if``, and the other function does not run. Under `vmap` a `pred` that differs between
    rows runs both functions and selects. Operands then have the values of another row
    where their own row does not take the branch, so that a branch cannot fail or have the
    gradient nan there. This does not reach arrays that a function takes from its closure:
    pass them as operands.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> def root(x):
    ...     return co.cond(x > 0, np.sqrt, lambda x: 0 * x, x)
    >>> root(np.float64(4.0))
    np.float64(2.0)
    >>> co.vmap(co.grad(root))(np.array([4.0, -1.0, 0.0]))
    array([0.25, 0.  , 0.  ])
    """
    check_function("cond", true_fn)
    check_function("cond", false_fn)
    known = truth(pred, "cond: pred")
    if type(known) is bool:
        return true_fn(*operands) if known else false_fn(*operands)
    return _both(pred, known, true_fn, false_fn, operands)  # type: ignore[no-any-return]  # as the functions


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
