"""Control flow for users, such as `cond` and `scan`, and its capture in graphs."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, TypeVarTuple

import numpy as np

from customop.arrays.fake import make_fake
from customop.arrays.kinds import is_array, is_traced
from customop.arrays.nested import flatten, placed, unflatten
from customop.arrays.stand_ins import entered
from customop.control.carry import (
    LeafType,
    as_predicate,
    checked_carry,
    is_number,
    leaf_type,
    pair_of,
    truth,
)
from customop.control.loops import (
    as_counted,
    as_limit,
    check_agree,
    check_goes_on,
    record,
    repeat,
    repeat_range,
    shifted,
    step_through,
    take_branch,
)
from customop.control.operators import (
    Body,
    FromOutside,
    cond_op,
    scan_op,
    tracing,
    while_op,
    while_scan_op,
)
from customop.control.stacks import Slices
from customop.core.observe import open_modes
from customop.errors import ArgumentError, check_flag, check_function, place
from customop.graph.node import Node
from customop.shapes.sizes import Symbolic, is_size, sym_max
from customop.transforms.trace.recorder import fake_of

C = TypeVar("C")
R = TypeVar("R")
T = TypeVar("T")
X = TypeVar("X")
Y = TypeVar("Y")
Ts = TypeVarTuple("Ts")


# ---- branches ----
# The functions for users run as Python where values are known. In a captured graph they
# are one call of an operator that holds graphs.


def cond(
    pred: Any,
    true_fn: Callable[[*Ts], R],
    false_fn: Callable[[*Ts], R],
    *operands: *Ts,
) -> R:
    """Call one of two functions, depending on a condition.

    Parameters
    ----------
    pred : bool, or array without axes
        The condition: `true_fn` is called where it is true, `false_fn` elsewhere.
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
    ``if``, and the other function does not run. Under `vmap`, if `pred` differs between
    rows, both functions run and the result of each row is selected. In rows that do not
    take a branch, its operands have the values of a row that does, so that the branch
    cannot fail or give a nan gradient there. This does not apply to arrays that a
    function takes from its closure: pass them as operands.

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
    true_fn, false_fn = entered(true_fn), entered(false_fn)
    if isinstance(pred, Symbolic):
        pred = as_predicate(pred) if tracing() else bool(pred)
    if tracing() and truth(pred, "cond: pred") is None:
        found: Any = captured_cond(pred, true_fn, false_fn, operands)
        return found  # type: ignore[no-any-return]  # as the functions
    return take_branch(pred, true_fn, false_fn, operands)  # type: ignore[no-any-return]  # as the functions


def captured_cond(
    pred: Any,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    operands: Any,
) -> Any:
    """Capture both functions of a `cond` and return the result of the operator call."""
    given = _Tree(operands)
    results: list[Any] = []

    def body(role: str, fn: Callable[..., Any]) -> Body:
        def run(fn: Callable[..., Any], arrays: list[Any]) -> list[Any]:
            results.append(fn(*given.filled(arrays)))
            return [leaf for leaf in flatten(results[-1])[0] if _is_output(leaf)]

        return Body("cond", role, fn, run, given.arrays)

    yes, no = body("true_fn", true_fn), body("false_fn", false_fn)
    check_agree(true_fn, false_fn, *results)
    outputs = [_alike(a, b) for a, b in zip(yes.outputs, no.outputs, strict=True)]
    written = sorted(yes.written.keys() | no.written.keys())
    _check_writable(true_fn, false_fn, [given.arrays[i] for i in written])
    outside = FromOutside(yes, no)
    modules = [
        body.module(
            outside,
            [pair[side] for pair in outputs if pair is not None]
            + [body.new_value(i) for i in written],
        )
        for side, body in enumerate((yes, no))
    ]
    operands = [*given.arrays, *outside.arrays]
    found = cond_op.call(pred, operands, *modules, **outside.named)
    for i, new in zip(written, found[len(found) - len(written) :], strict=True):
        given.arrays[i][...] = new
    return _with_outputs(results[0], outputs, found)


def _alike(a: Any, b: Any) -> tuple[Any, Any] | None:
    """Return the outputs of both functions as nodes or arrays that can be one output.

    Numbers become arrays of a common dtype. Return None where both are the same number.
    """
    if isinstance(a, Node) and isinstance(b, Node):
        return a, b
    if not isinstance(a, Node) and not isinstance(b, Node):
        if type(a) is type(b) and a == b:
            return None
        dtype = np.result_type(type(a), type(b))
    else:
        dtype = (a if isinstance(a, Node) else b).meta["val"].dtype
    one, two = (v if isinstance(v, Node) else np.asarray(v, dtype) for v in (a, b))
    return one, two


def _with_outputs(result: Any, outputs: Sequence[Any], found: Sequence[Any]) -> Any:
    """Return the result of a function, with `found` in the places of its outputs."""
    leaves, structure = flatten(result)
    arrays, pairs = iter(found), iter(outputs)
    filled = [
        next(arrays) if _is_output(leaf) and next(pairs) is not None else leaf
        for leaf in leaves
    ]
    return unflatten(structure, filled)


def _check_writable(
    true_fn: Callable[..., Any], false_fn: Callable[..., Any], written: Sequence[Any]
) -> None:
    """Raise if a function writes to an operand that is not traced."""
    if not all(is_traced(value) for value in written):
        raise ArgumentError(
            "cond: a function writes an operand in place that is not traced",
            f"true_fn is at {place(true_fn)}",
            f"false_fn is at {place(false_fn)}",
            do="write to a copy in the function: x = x.copy()",
        )


# ---- loops ----


def while_loop(cond_fn: Callable[[T], Any], body_fn: Callable[[T], T], init: T) -> T:
    """Call a function on its own result while a condition holds.

    Parameters
    ----------
    cond_fn : callable
        Takes the carry; returns a bool, or an array without axes.
    body_fn : callable
        Takes the carry; returns the next one, of the same structure, shapes and dtypes.
    init : pytree
        The first carry. It is not changed, even if `body_fn` writes in place.

    Returns
    -------
    pytree
        The last carry.

    Raises
    ------
    ArgumentError
        If the carry changes its structure, shapes or dtypes, or `cond_fn` returns
        something that is not a bool.
    ShapeError
        If `cond_fn` returns an array with axes.

    Notes
    -----
    Where conditions are known, as in plain code and under grad and jvp, this is a
    Python loop. Under `vmap` it runs until the condition is false in every row; rows
    that are done keep their carry. On fake arrays it runs both functions once. A
    gradient in a captured graph keeps what each step saves, so its memory grows with
    the number of steps.

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
    cond_fn, body_fn = entered(cond_fn), entered(body_fn)
    if open_modes and tracing():
        return captured_while(cond_fn, body_fn, init)  # type: ignore[no-any-return]  # as init
    return repeat(cond_fn, body_fn, init)  # type: ignore[no-any-return]  # as init


def _same(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function itself."""
    return fn


def captured_while(
    cond_fn: Callable[..., Any],
    body_fn: Callable[..., Any],
    init: Any,
    as_step: Callable[..., Any] = _same,
) -> Any:
    """Capture the functions of a `while_loop` and return its last carry.

    `as_step` turns `body_fn` into the function of one step.
    """
    carry = _Carry("while_loop", body_fn, lambda fn, old: as_step(fn)(old), init)

    def step(fn: Callable[..., Any], arrays: list[Any]) -> list[Any]:
        old = carry.tree.filled(arrays)
        return carry.new_leaves(old, as_step(fn)(carry.tree.filled(arrays)))

    given = carry.tree.arrays
    test = Body("while_loop", "cond_fn", cond_fn, _condition(carry), given)
    body = Body("while_loop", "body_fn", body_fn, step, given)
    outside = FromOutside(test, body)
    modules = (
        test.module(outside, [_array(output) for output in test.outputs]),
        body.module(outside, body.outputs),
    )
    found = while_op.call(outside.arrays, given, *modules, **outside.named)
    return carry.tree.filled(found)


def while_scan(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], init: Any
) -> tuple[Any, Any, Any]:
    """Run a `while_loop` whose steps also return a result.

    Returns the last carry, the results with the axis of the steps in front, and an array
    of bools that says which steps ran (in a batch: for this row). The results of steps
    that did not run have no meaning.
    """
    if tracing():
        return captured_while_scan(cond_fn, body_fn, init)
    return record(cond_fn, body_fn, init)


def captured_while_scan(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], init: Any
) -> tuple[Any, Any, Any]:
    """Capture a `while_scan`; return its last carry, its results and which steps ran."""
    carry = _Carry("while_loop", body_fn, lambda fn, old: fn(old)[0], init)
    results: list[Any] = []

    def step(fn: Callable[..., Any], arrays: list[Any]) -> list[Any]:
        new, y = fn(carry.tree.filled(arrays))
        results.append(y)
        return [*carry.new_leaves(carry.tree.filled(arrays), new), *flatten(y)[0]]

    given = carry.tree.arrays
    count = len(given)
    test = Body("while_loop", "cond_fn", cond_fn, _condition(carry), given)
    body = Body("while_loop", "body_fn", body_fn, step, given)
    outside = FromOutside(test, body)
    modules = (
        test.module(outside, [*builtins.map(_array, test.outputs)]),
        body.module(outside, [*builtins.map(_array, body.outputs)]),
    )
    found = while_scan_op.call(outside.arrays, given, *modules, **outside.named)
    ys = unflatten(flatten(results[-1])[1], found[count:-1])
    return carry.tree.filled(found[:count]), ys, found[-1]


def fori_loop(lower: Any, upper: Any, body: Callable[[Any, T], T], init: T) -> T:
    """Call a function for each number of a range, each time on its previous result.

    Parameters
    ----------
    lower, upper : int, or array of ints without axes
        The limits of the range, which does not include `upper`. They may differ between
        the rows of a `vmap`, and may be symbolic sizes in a capture.
    body : callable
        Takes a number and the carry; returns the next carry, of the same structure,
        shapes and dtypes. The number is an int; in a batch of ranges, on fake arrays and
        in a captured graph it is an array of ints.
    init : pytree
        The first carry. It is not changed, even if `body` writes in place.

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
    body = entered(body)
    start, stop = as_limit(lower, "lower"), as_limit(upper, "upper")
    if is_size(start):
        body, start, stop = shifted(start, body), 0, stop - start
    if not open_modes or not tracing():
        return repeat_range(start, stop, body, init)  # type: ignore[no-any-return]  # as init
    if type(start) is int and (type(stop) is int or is_size(stop)):
        return captured_range(start, stop, body, init)  # type: ignore[no-any-return]  # as init
    goes_on, as_step, first = as_counted(start, stop, init)
    return captured_while(goes_on, body, first, as_step)[1]  # type: ignore[no-any-return]  # as init


def captured_range(start: int, stop: Any, body: Callable[..., Any], init: Any) -> Any:
    """Capture a `fori_loop` as a scan, which has a gradient, and return its last carry."""

    def as_step(body: Callable[..., Any]) -> Callable[..., Any]:
        def step(carry: Any, _: None) -> Any:
            i, value = carry
            return (i + 1, body(i, value)), None

        return step

    first, count = np.asarray(start)[()], sym_max(stop - start, 0)
    given = ((first, init), None, count, False, False, "fori_loop")
    return captured_scan(body, *given, as_step)[0][1]


def _condition(carry: _Carry) -> Callable[..., list[Any]]:
    """Return the function that calls `cond_fn` on the arrays of a carry and checks it."""

    def goes_on(fn: Callable[..., Any], arrays: list[Any]) -> list[Any]:
        found = fn(carry.tree.filled(arrays))
        check_goes_on(found)
        return [found]

    return goes_on


# ---- scans ----


def scan(
    f: Callable[[C, X], tuple[C, Y]],
    init: C,
    xs: X,
    length: int | None = None,
    reverse: bool = False,
    *,
    checkpoint: bool = False,
) -> tuple[C, Y]:
    """Call a function for each row of arrays, on its previous result and that row.

    Parameters
    ----------
    f : callable
        ``f(carry, x)`` returns the next carry, of the same structure, shapes and dtypes,
        and a result `y` of this step, which may be None.
    init : pytree
        The first carry. It is not changed, even if `f` writes in place.
    xs : pytree of array
        Arrays with one row for each step. None, or a pytree without arrays, if `length`
        is given.
    length : int, optional
        Number of steps; by default the number of rows.
    reverse : bool
        Whether to begin with the last row. Each result stays in the place of its row.
    checkpoint : bool
        Whether the gradient keeps only the carries and runs each step again, which
        takes less memory and more time. `f` is then wrapped in `checkpoint`: outside a
        captured graph, it may take traced values from its closure in reverse mode only.

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
        axes, or the number of steps is not given.
    ShapeError
        If arrays in `xs` differ in their number of rows.
    ValueError
        If `f` writes to its row in place: rows are read-only.

    Notes
    -----
    In plain code and under the transforms this is a Python loop. On fake arrays it runs
    `f` once. If there are no steps, it runs `f` on fake arrays to find the shapes of
    the results.

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

    From the last row to the first, and steps without rows:

    >>> co.scan(step, 0.0, np.array([1.0, 2.0, 3.0]), reverse=True)
    (np.float64(6.0), array([5., 6., 0.]))
    >>> co.scan(lambda x, _: (x / 2, x), 8.0, None, length=3)
    (1.0, array([8., 4., 2.]))

    A gradient that keeps only the carries, and runs each step again:

    >>> co.grad(lambda x: co.scan(step, 0.0, x, checkpoint=True)[0])(np.ones(2))
    array([1., 1.])
    """
    check_function("scan", f)
    f = entered(f)
    check_flag("reverse", reverse)
    check_flag("checkpoint", checkpoint)
    if not tracing():
        return step_through(f, init, xs, length, reverse, checkpoint, "scan")  # type: ignore[no-any-return]  # as f
    count = Slices(xs, length, "scan").count
    return captured_scan(f, init, xs, count, reverse, checkpoint, "scan")


def captured_scan(
    f: Callable[..., Any],
    init: Any,
    xs: Any,
    length: Any,
    reverse: bool,
    checkpoint: bool,
    name: str,
    as_step: Callable[..., Any] = _same,
) -> tuple[Any, Any]:
    """Capture the function of a `scan`; return its last carry and its results.

    `as_step` turns `f` into the function of one step.
    """
    rows = _Tree(xs)
    elements = [row_of(leaf) for leaf in rows.arrays]
    results: list[Any] = []

    def first(fn: Callable[..., Any], old: Any) -> Any:
        return pair_of(f, as_step(fn)(old, rows.filled(elements)))[0]

    carry = _Carry(name, f, first, init)
    count = len(carry.tree.arrays)

    def step(fn: Callable[..., Any], arrays: list[Any]) -> list[Any]:
        old, x = carry.tree.filled(arrays[:count]), rows.filled(arrays[count:])
        new, y = pair_of(f, as_step(fn)(old, x))
        results.append(y)
        kept = carry.new_leaves(carry.tree.filled(arrays[:count]), new)
        return [*kept, *flatten(y)[0]]

    body = Body(name, "f", f, step, [*carry.tree.arrays, *elements])
    outside = FromOutside(body)
    module = body.module(outside, [*builtins.map(_array, body.outputs)])
    steps = None if rows.at else length
    lists = outside.arrays, carry.tree.arrays, rows.arrays
    options = steps, reverse, checkpoint
    found = scan_op.call(*lists, module, *options, **outside.named)
    return carry.tree.filled(found[:count]), unflatten(
        flatten(results[-1])[1], found[count:]
    )


def row_of(leaf: Any) -> Any:
    """Return a fake array with the shape and dtype of one row of an array."""
    fake = fake_of(leaf)
    return make_fake(fake.shape[1:], fake.dtype, fake.strides[1:], fake.device)


def map(f: Callable[[X], Y], xs: X) -> Y:  # noqa: A001  # JAX's name
    """Call a function for each row of arrays, one row after the other.

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
    f = entered(f)
    if tracing():
        count = Slices(xs, None, "map").count
        given = ((), xs, count, False, False, "map")
        return captured_scan(f, *given, _as_step)[1]  # type: ignore[no-any-return]  # as f
    step = _as_step(f)
    step.__wrapped__ = f  # so that messages name the place of f
    return step_through(step, (), xs, None, False, False, "map")[1]  # type: ignore[no-any-return]  # as f


def _as_step(f: Callable[..., Any]) -> Any:
    """Return the function of a map as the step of a scan without a carry."""

    def step(nothing: tuple[()], x: Any) -> Any:
        return nothing, f(x)

    return step


# ---- what captures share ----


class _Carry:
    """The first carry of a loop. Numbers in it become arrays of the dtype of its steps."""

    def __init__(
        self,
        name: str,
        fn: Callable[..., Any],
        step: Callable[[Callable[..., Any], Any], Any],
        init: Any,
    ) -> None:
        self.name = name
        self.fn = fn
        found, structure = flatten(init)
        if any(builtins.map(is_number, found)):
            found = self._typed(step, init)
        self.tree: _Tree = _Tree(unflatten(structure, found))

    def _typed(
        self, step: Callable[[Callable[..., Any], Any], Any], init: Any
    ) -> list[Any]:
        """Return the leaves, with each number converted to the dtype it has after a step."""
        given = _Tree(init)
        types: list[LeafType | None] = []

        def run(fn: Callable[..., Any], arrays: list[Any]) -> list[Any]:
            old = given.filled(arrays)
            new = checked_carry(self.name, self.fn, old, step(fn, old))
            types.extend(builtins.map(leaf_type, flatten(new)[0]))
            return []

        Body(self.name, "body", self.fn, run, given.arrays)
        pairs = zip(given.leaves, types, strict=True)
        return [
            np.asarray(leaf, kept.dtype)[()] if is_number(leaf) and kept else leaf
            for leaf, kept in pairs
        ]

    def new_leaves(self, old: Any, new: Any) -> list[Any]:
        """Return the arrays of a new carry; raise if its types differ from the old one's."""
        kept = checked_carry(self.name, self.fn, old, new)
        return [leaf for leaf in flatten(kept)[0] if is_array(leaf)]


def _array(output: Any) -> Any:
    return output if isinstance(output, Node) else np.asarray(output)


class _Tree:
    """A pytree whose arrays can be replaced; its other leaves stay."""

    def __init__(self, tree: Any) -> None:
        self.leaves: list[Any]
        self.leaves, self.structure = flatten(tree)
        self.at: list[int] = [i for i, v in enumerate(self.leaves) if is_array(v)]

    @property
    def arrays(self) -> list[Any]:
        """The arrays of the tree."""
        return [self.leaves[i] for i in self.at]

    def filled(self, arrays: Sequence[Any]) -> Any:
        """Return the tree with `arrays` in the places of its arrays."""
        return unflatten(self.structure, placed(self.leaves, self.at, arrays))


def _is_output(leaf: Any) -> bool:
    return is_array(leaf) or is_number(leaf)
