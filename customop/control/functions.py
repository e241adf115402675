"""The functions for users: Python where values are known, one operator in a captured graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, TypeVarTuple

from customop.control.bodies import tracing
from customop.control.branches import take_branch
from customop.control.captures import (
    captured_cond,
    captured_range,
    captured_scan,
    captured_while,
    captured_while_scan,
)
from customop.control.loops import (
    as_counted,
    as_limit,
    repeat,
    repeat_range,
    shifted,
)
from customop.control.recorded import record
from customop.control.rows import as_predicate, truth
from customop.control.scans import step_through
from customop.control.stacks import Slices
from customop.core.observe import open_modes
from customop.errors import check_flag, check_function
from customop.shapes.sizes import is_size
from customop.shapes.symbols import Symbolic

__all__ = ["cond", "fori_loop", "map", "scan", "while_loop", "while_scan"]

C = TypeVar("C")
R = TypeVar("R")
T = TypeVar("T")
X = TypeVar("X")
Y = TypeVar("Y")
Ts = TypeVarTuple("Ts")


def cond(
    pred: Any,
    true_fn: Callable[[*Ts], R],
    false_fn: Callable[[*Ts], R],
    *operands: *Ts,
) -> R:
    """Call one of two functions, by the value of a condition.

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
        If `pred` is not a number, `true_fn` or `false_fn` cannot be called, or both run
        and their results do not agree.
    ShapeError
        If `pred` has axes.

    Notes
    -----
    Where `pred` is known, as in plain code and under grad and jvp, this is a Python
    ``if``, and the other function does not run. Under `vmap` a `pred` that differs between
    rows runs both functions and selects. Operands then have the values of another row
    where their own row does not take the branch, so that a branch cannot fail or give a
    nan gradient there. This does not reach arrays that a function takes from its closure:
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
    if isinstance(pred, Symbolic):
        pred = as_predicate(pred) if tracing() else bool(pred)
    if tracing() and truth(pred, "cond: pred") is None:
        found: Any = captured_cond(pred, true_fn, false_fn, operands)
        return found  # type: ignore[no-any-return]  # as the functions
    return take_branch(pred, true_fn, false_fn, operands)  # type: ignore[no-any-return]  # as the functions


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
    On fake arrays it runs both functions once. A gradient in a captured graph keeps what
    each step saves, so its memory grows with the number of steps.

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
    if open_modes and tracing():
        return captured_while(cond_fn, body_fn, init)  # type: ignore[no-any-return]  # as init
    return repeat(cond_fn, body_fn, init)  # type: ignore[no-any-return]  # as init


def while_scan(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], init: Any
) -> tuple[Any, Any, Any]:
    """A `while_loop` whose steps return a result too.

    Returns the last carry, the results with the axis of the steps in front, and an array
    of bools: for which steps this row of a batch ran. The other results have no meaning.
    """
    if tracing():
        return captured_while_scan(cond_fn, body_fn, init)
    return record(cond_fn, body_fn, init)


def fori_loop(lower: Any, upper: Any, body: Callable[[Any, T], T], init: T) -> T:
    """Call a function for each number of a range, on its own result.

    Parameters
    ----------
    lower, upper : int, or array of ints without axes
        The range, without `upper`. They may differ between the rows of a `vmap`, and be
        symbolic sizes in a capture.
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
    start, stop = as_limit(lower, "lower"), as_limit(upper, "upper")
    if is_size(start):
        body, start, stop = shifted(start, body), 0, stop - start
    if not open_modes or not tracing():
        return repeat_range(start, stop, body, init)  # type: ignore[no-any-return]  # as init
    if type(start) is int and (type(stop) is int or is_size(stop)):
        return captured_range(start, stop, body, init)  # type: ignore[no-any-return]  # as init
    goes_on, as_step, first = as_counted(start, stop, init)
    return captured_while(goes_on, body, first, as_step)[1]  # type: ignore[no-any-return]  # as init


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
        Number of steps; by default the number of rows.
    reverse : bool
        Whether the last row comes first. Results stay in the places of their rows.
    checkpoint : bool
        Whether the gradient keeps only the carries and runs each step again; it takes
        less memory and more time. `f` then is a `checkpoint`: outside of a captured graph
        it takes values from its closure under reverse mode only.

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
    In plain code and under the transforms this is the Python loop. On fake arrays it runs
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
    if not tracing():
        return step_through(f, init, xs, length, reverse, checkpoint, "scan")  # type: ignore[no-any-return]  # as f
    count = Slices(xs, length, "scan").count
    return captured_scan(f, init, xs, count, reverse, checkpoint, "scan")


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
        If a leaf of `xs` has no axes, `xs` has no leaves, or the results of two calls
        differ in structure, shape or dtype.
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

    if tracing():
        count = Slices(xs, None, "map").count
        given = ((), xs, count, False, False, "map")
        return captured_scan(f, *given, _as_step)[1]  # type: ignore[no-any-return]  # as f
    step = _as_step(f)
    step.__wrapped__ = f  # messages name its place
    return step_through(step, (), xs, None, False, False, "map")[1]  # type: ignore[no-any-return]  # as f


def _as_step(f: Callable[..., Any]) -> Any:
    """The step of a scan from the function of a map."""

    def step(nothing: tuple[()], x: Any) -> Any:
        return nothing, f(x)

    return step
