"""Control flow in a graph: one call of an operator that holds graphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from customop.arrays.fake import make_fake
from customop.arrays.kinds import is_array, is_traced
from customop.arrays.pytree import flatten, unflatten
from customop.control.bodies import Body, FromOutside
from customop.control.branches import check_agree
from customop.control.carry import checked_carry, pair_of
from customop.control.leaf_types import LeafType, is_number, leaf_type
from customop.control.loops import check_goes_on
from customop.control.operators import cond_op, scan_op, while_op, while_scan_op
from customop.errors import ArgumentError, place
from customop.graph.node import Node
from customop.shapes.sizes import sym_max
from customop.transforms.trace.interpreter import fake_of

__all__ = [
    "captured_cond",
    "captured_range",
    "captured_scan",
    "captured_while",
    "captured_while_scan",
    "row_of",
]


class _Tree:
    """A pytree whose arrays are replaced; other leaves stay."""

    def __init__(self, tree: Any) -> None:
        self.leaves: list[Any]
        self.leaves, self.structure = flatten(tree)
        self.at: list[int] = [i for i, v in enumerate(self.leaves) if is_array(v)]

    @property
    def arrays(self) -> list[Any]:
        """Its arrays."""
        return [self.leaves[i] for i in self.at]

    def filled(self, arrays: Sequence[Any]) -> Any:
        """The tree with other arrays."""
        found = list(self.leaves)
        for i, value in zip(self.at, arrays, strict=True):
            found[i] = value
        return unflatten(self.structure, found)


def _is_output(leaf: Any) -> bool:
    return is_array(leaf) or is_number(leaf)


# ---- cond ----


def captured_cond(
    pred: Any,
    true_fn: Callable[..., Any],
    false_fn: Callable[..., Any],
    operands: Any,
) -> Any:
    """The result of a branch, of which both functions are captured."""
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
    """Outputs of both functions as arrays of one dtype; None for one number."""
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
    """The result of a function with arrays in the places of its outputs."""
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
    """Raise where an operand is written that a graph does not follow."""
    if not all(is_traced(value) for value in written):
        raise ArgumentError(
            "cond: a function writes an operand in place that is not traced",
            f"true_fn is at {place(true_fn)}",
            f"false_fn is at {place(false_fn)}",
            do="write to a copy in the function: x = x.copy()",
        )


# ---- loops ----


def _same(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself."""
    return fn


class _Carry:
    """The first carry of a loop: numbers in it are arrays of the dtype of its steps."""

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
        if any(map(is_number, found)):
            found = self._typed(step, init)
        self.tree: _Tree = _Tree(unflatten(structure, found))

    def _typed(
        self, step: Callable[[Callable[..., Any], Any], Any], init: Any
    ) -> list[Any]:
        """The leaves with each number in the dtype that it has after a step."""
        given = _Tree(init)
        types: list[LeafType | None] = []

        def run(fn: Callable[..., Any], arrays: list[Any]) -> list[Any]:
            old = given.filled(arrays)
            new = checked_carry(self.name, self.fn, old, step(fn, old))
            types.extend(map(leaf_type, flatten(new)[0]))
            return []

        Body(self.name, "body", self.fn, run, given.arrays)
        pairs = zip(given.leaves, types, strict=True)
        return [
            np.asarray(leaf, kept.dtype)[()] if is_number(leaf) and kept else leaf
            for leaf, kept in pairs
        ]

    def new_leaves(self, old: Any, new: Any) -> list[Any]:
        """The arrays of a new carry; raise if it does not fit the old one."""
        kept = checked_carry(self.name, self.fn, old, new)
        return [leaf for leaf in flatten(kept)[0] if is_array(leaf)]


def _condition(carry: _Carry) -> Callable[..., list[Any]]:
    """The function that runs the body of a condition."""

    def goes_on(fn: Callable[..., Any], arrays: list[Any]) -> list[Any]:
        found = fn(carry.tree.filled(arrays))
        check_goes_on(found)
        return [found]

    return goes_on


def captured_while(
    cond_fn: Callable[..., Any],
    body_fn: Callable[..., Any],
    init: Any,
    as_step: Callable[..., Any] = _same,
) -> Any:
    """The last carry of a loop, whose functions are captured.

    `as_step` makes the step of a loop from `body_fn`.
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


def captured_while_scan(
    cond_fn: Callable[..., Any], body_fn: Callable[..., Any], init: Any
) -> tuple[Any, Any, Any]:
    """Carry and results of a loop, whose functions are captured, and which steps ran."""
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
        test.module(outside, [*map(_array, test.outputs)]),
        body.module(outside, [*map(_array, body.outputs)]),
    )
    found = while_scan_op.call(outside.arrays, given, *modules, **outside.named)
    ys = unflatten(flatten(results[-1])[1], found[count:-1])
    return carry.tree.filled(found[:count]), ys, found[-1]


def _array(output: Any) -> Any:
    return output if isinstance(output, Node) else np.asarray(output)


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
    """Carry and results of a scan, whose function is captured.

    `as_step` makes the step of a scan from `f`.
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
    module = body.module(outside, [*map(_array, body.outputs)])
    steps = None if rows.at else length
    lists = outside.arrays, carry.tree.arrays, rows.arrays
    options = steps, reverse, checkpoint
    found = scan_op.call(*lists, module, *options, **outside.named)
    return carry.tree.filled(found[:count]), unflatten(
        flatten(results[-1])[1], found[count:]
    )


def captured_range(start: int, stop: Any, body: Callable[..., Any], init: Any) -> Any:
    """The last carry of a range, as a scan: it has a gradient."""

    def as_step(body: Callable[..., Any]) -> Callable[..., Any]:
        def step(carry: Any, _: None) -> Any:
            i, value = carry
            return (i + 1, body(i, value)), None

        return step

    first, count = np.asarray(start)[()], sym_max(stop - start, 0)
    given = ((first, init), None, count, False, False, "fori_loop")
    return captured_scan(body, *given, as_step)[0][1]


def row_of(leaf: Any) -> Any:
    """A fake array like the rows of an array."""
    fake = fake_of(leaf)
    return make_fake(fake.shape[1:], fake.dtype, fake.strides[1:], fake.device)
