"""scan and map: a function for each row of arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from customop.arrays.describe import show
from customop.arrays.kinds import device_of
from customop.arrays.numpy_functions import call_numpy
from customop.arrays.pytree import leaves, map_leaves
from customop.control.carry import Kept, checked_carry, own_carry
from customop.control.stacks import Slices, StepResults, first_row, repeated
from customop.control.virtual import as_fake, as_unknown, is_virtual, shapes_of
from customop.core.given import explain_read_only
from customop.errors import ArgumentError, check_flag, check_function, place
from customop.transforms.functions.checkpoint import checkpoint as checkpointed

__all__ = ["map", "scan"]

C = TypeVar("C")
X = TypeVar("X")
Y = TypeVar("Y")


def scan(
    f: Callable[[C, X], tuple[C, Y]],
    init: C,
    xs: X,
    length: int | None = None,
    reverse: bool = False,
    *,
    checkpoint: bool = False,
) -> tuple[C, Y]:
    """Call a function for each row of arrays, on its own result and that row.

    Parameters
    ----------
    f : callable
        ``f(carry, x)`` returns the next carry, of the same structure, shapes and dtypes,
        and a result `y` of this step, which may be None.
    init : pytree
        The first carry. It is not changed where `f` writes in place.
    xs : pytree of array
        Arrays with one row for each step. None, or a pytree without arrays, if `length`
        is given.
    length : int, optional
        Number of steps; that of the rows by default.
    reverse : bool
        Whether the last row comes first. StepResults stay in the places of their rows.
    checkpoint : bool
        Whether the gradient keeps only the carries and runs each step again; it takes
        less memory and more time.

    Returns
    -------
    carry : pytree
        The last carry.
    ys : pytree of array
        The results, with the axis of the steps in front.

    Raises
    ------
    ArgumentError
        If the carry or `y` changes its structure, shapes or dtypes, a leaf of `xs` has no
        axes, or nothing says how many steps there are.
    ShapeError
        If arrays in `xs` differ in their number of rows.
    ValueError
        If `f` writes to its row in place: it is read-only.

    Notes
    -----
    In plain code and under the transforms this is the Python loop. Of fake arrays it runs
    `f` once. Without steps it runs `f` on fake arrays, to know the results.

    A Python number in `init` takes the dtype that the first step gives it.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> def step(total, x):
    ...     return total + x, total * x
    >>> co.scan(step, np.float64(0.0), np.array([1.0, 2.0, 3.0]))
    (np.float64(6.0), array([0., 2., 9.]))
    >>> co.grad(lambda x: co.scan(step, 0.0, x)[1].sum())(np.array([1.0, 2.0, 3.0]))
    array([5., 4., 3.])
    """
    check_function("scan", f)
    check_flag("reverse", reverse)
    check_flag("checkpoint", checkpoint)
    return _scan(f, init, xs, length, reverse, checkpoint, "scan")  # type: ignore[no-any-return]  # as f


def map(f: Callable[[X], Y], xs: X) -> Y:  # noqa: A001  # JAX's name
    """Call a function for each row of arrays, one after the other.

    Parameters
    ----------
    f : callable
        Takes one row; returns a pytree of the same structure, shapes and dtypes for each.
    xs : pytree of array
        Arrays with one row for each call.

    Returns
    -------
    pytree of array
        The results, with the axis of the rows in front.

    Raises
    ------
    ArgumentError
        If a leaf of `xs` has no axes, there is none, or results differ.
    ShapeError
        If arrays in `xs` differ in their number of rows.

    See Also
    --------
    vmap : All rows at once, which is faster and takes more memory.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> co.map(lambda x: {"sum": x.sum()}, np.arange(6.0).reshape(2, 3))
    {'sum': array([ 3., 12.])}
    """
    check_function("map", f)

    def step(nothing: tuple[()], x: X) -> tuple[tuple[()], Y]:
        return nothing, f(x)

    step.__wrapped__ = f  # type: ignore[attr-defined]  # messages name its place
    return _scan(step, (), xs, None, False, False, "map")[1]  # type: ignore[no-any-return]  # as f


def _scan(
    f: Callable[..., Any],
    init: Any,
    xs: Any,
    length: Any,
    reverse: bool,
    checkpoint: bool,
    name: str,
) -> Any:
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
    new, y = _pair(f, step(carry, next(rows)))
    carry = kept.first(carry, new)
    put = results.start(y)
    try:
        for x in rows:
            out = step(carry, x)
            if type(out) is not tuple or len(out) != 2:
                raise _no_pair(f, out)
            carry, y = out
            put(y)
    except (ValueError, TypeError) as error:
        kept.explain(error, carry)
        raise
    return kept.result(carry), results.stacked()


def _named(f: Callable[..., Any]) -> str:
    return str(getattr(getattr(f, "__wrapped__", f), "__name__", "a function"))


def _pair(f: Callable[..., Any], out: Any) -> tuple[Any, Any]:
    """What a step returned; raise unless it is a carry and a result."""
    if type(out) is not tuple or len(out) != 2:
        raise _no_pair(f, out)
    return out


def _no_pair(f: Callable[..., Any], out: Any) -> ArgumentError:
    return ArgumentError(
        f"scan: f returned {show(out)}, must be a pair",
        f"f at {place(f)}",
        do="return (carry, y), with y None where a step has no result",
    )


def _once(f: Callable[..., Any], init: Any, elements: Slices, name: str) -> Any:
    """Carry and results after one step, of which only shapes and dtypes matter."""
    new, y = _pair(f, f(init, elements.first()))
    carry = map_leaves(as_unknown, checked_carry(name, f, init, new))
    ys = map_leaves(as_unknown, y)
    return carry, map_leaves(lambda leaf: repeated(leaf, elements.count), ys)


def _no_results(f: Callable[..., Any], init: Any, elements: Slices) -> Any:
    """The results of no steps, from the shapes that a step would give."""
    x = elements.element([first_row(as_fake(leaf)) for leaf in elements.leaves])
    _, y = _pair(f, shapes_of(f, init, x))
    devices = [device_of(leaf) for leaf in leaves((init, elements.leaves))]

    def none_of(leaf: Any) -> Any:
        where = devices[0] if devices else "cpu"
        return call_numpy(np.zeros, (0, *leaf.shape), leaf.dtype, device=where)

    return map_leaves(none_of, map_leaves(as_unknown, y))
