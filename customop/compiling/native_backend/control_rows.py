"""Rows of control flow: the steps of a loop, and the branches of a condition, as tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from customop.compiling.native_backend.memory import Block, address_of, span_of
from customop.compiling.native_backend.planning import AnyArray, TablePlan
from customop.compiling.native_backend.tables import Move, Point
from customop.compiling.native_backend.ufunc_loops import NotNative
from customop.graph.module import GraphModule
from customop.graph.node import ITEM, PLACEHOLDER, Node

# Rows of so many bytes are copied in each step; pointers go to larger ones.
_ROW: Final = 1024


class _Held:
    """Blocks that hold values from one step to the next, until the loop is planned."""

    def __init__(self, plan: TablePlan) -> None:
        self._plan: TablePlan = plan
        self._blocks: list[Block] = []

    def twin(self, array: AnyArray) -> AnyArray:
        """Return memory for an array of the same layout, also where it leaves gaps."""
        low, high = span_of(array)
        block = self.take(high - low)
        offset = block.offset + address_of(array) - low
        return np.ndarray(array.shape, array.dtype, block.chunk, offset, array.strides)

    def take(self, nbytes: int) -> Block:
        """Return a block that is held."""
        block = self._plan.memory.take(nbytes)
        block.uses += 1
        self._blocks.append(block)
        return block

    def release(self) -> None:
        """Let others have the blocks."""
        for block in self._blocks:
            self._plan.memory.release(block)


def _step_plan(
    plan: TablePlan,
    module: GraphModule,
    inputs: Sequence[AnyArray],
    scalars: Sequence[bool],
    changing: int = 0,
) -> TablePlan:
    """Plan a graph of control flow in a table of its own.

    Its first inputs are `changing`: they differ from step to step.
    """
    table = plan.program.table()
    step = plan.inner(module, inputs, table)
    placeholders = [node for node in module.graph.nodes if node.op == PLACEHOLDER]
    if len(placeholders) != len(inputs):
        raise NotNative("a graph of other inputs")
    step.scalars.update(
        node for node, is_one in zip(placeholders, scalars, strict=True) if is_one
    )
    step.fixed.update(placeholders[changing:])
    step.make()
    if not all(
        isinstance(node, Node) and isinstance(step.arrays[node], np.ndarray)
        for node in step.out_nodes
    ):
        raise NotNative("a step that gives other values than arrays")
    return step


def _is_scalar(plan: TablePlan, value: Any) -> bool:
    """Return whether a value is one of NumPy's scalars; one must know."""
    if value in plan.classes:
        raise NotNative("a value of which a scalar or an array may come")
    return value in plan.scalars


def _lies_alike(a: AnyArray, b: AnyArray) -> bool:
    pairs = zip(a.strides, b.strides, a.shape, strict=True)
    return all(x == y for x, y, length in pairs if length > 1)


def _overlaps(a: AnyArray, b: AnyArray) -> bool:
    first, second = span_of(a), span_of(b)
    return first[0] < second[1] and second[0] < first[1]


def _move(target: AnyArray, source: AnyArray, to: int = 0, by: int = 0) -> Move:
    """Return the copy of the memory of an array into that of one of the same layout."""
    low, high = span_of(source)
    return Move(span_of(target)[0], low, high - low, to, by)


# ---- scan ----


def scan(
    plan: TablePlan,
    node: Node,
    outside: Sequence[AnyArray],
    init: Sequence[AnyArray],
    xs: Sequence[AnyArray],
    body: GraphModule,
    length: int | None = None,
    reverse: bool = False,
    checkpoint: bool = False,
    generators: Any = None,
) -> None:
    """Emit a loop over a table, with the carry in memory of its own."""
    del checkpoint  # the numbers are the same
    count = len(xs[0]) if xs else length
    if generators or not count:
        raise NotNative("a scan of no steps, or with generators")
    held = _Held(plan)
    try:
        _ScanRows(plan, node, held, outside, init, xs, body, count, reverse).emit()
    finally:
        held.release()


class _ScanRows:
    """A scan while it is planned."""

    def __init__(
        self,
        plan: TablePlan,
        node: Node,
        held: _Held,
        outside: Sequence[AnyArray],
        init: Sequence[AnyArray],
        xs: Sequence[AnyArray],
        body: GraphModule,
        count: int,
        reverse: bool,
    ) -> None:
        self._plan = plan
        self._node = node
        self._held = held
        self._outside = outside
        self._init = init
        self._body = body
        self._count = count
        self._reverse = reverse
        self._xs = xs
        outer, first = node.args[0], node.args[1]
        self._outer_scalars = [_is_scalar(plan, n) for n in outer]
        self._scalars = [_is_scalar(plan, n) for n in first]
        self._steps: list[TablePlan] = []
        self._ys: list[AnyArray] = []
        self._blocks: list[Block | None] = []

    def emit(self) -> None:
        plan, count = self._plan, self._count
        carry = [self._held.twin(_dense(v)) for v in self._init]
        rows = [
            x[0, ...] if x.strides[0] == 0 else self._held.twin(x[0, ...])
            for x in self._xs
        ]
        step, outs = self._step(carry, rows, self._scalars)
        self._make_results(step, outs)
        for value, place in zip(self._init, carry, strict=True):
            plan.copy(value, place)
        start = 0
        if not all(map(_lies_alike, carry, outs)):
            # The first step is a table by itself: later ones read what lies otherwise.
            later = [self._held.twin(v) for v in outs]
            self._run(step, carry, outs, later, rows, 0, 1)
            scalars = [n in step.scalars for n in step.out_nodes[: len(carry)]]
            if count > 1:
                step, outs = self._step(later, rows, scalars)
                if not all(map(_lies_alike, later, outs)):
                    raise NotNative("a carry that lies otherwise in each step")
            carry, start = later, 1
        if count > start:
            self._run(step, carry, outs, carry, rows, start, count - start)
        self._take(step, carry)

    def _step(
        self,
        carry: Sequence[AnyArray],
        rows: Sequence[AnyArray],
        scalars: Sequence[bool],
    ) -> tuple[TablePlan, list[AnyArray]]:
        """Plan a step; return the plan and the values of its new carry."""
        flags = [*scalars, *[r.ndim == 0 for r in rows], *self._outer_scalars]
        inputs = [*carry, *rows, *self._outside]
        step = _step_plan(self._plan, self._body, inputs, flags, len(carry) + len(rows))
        self._steps.append(step)
        new = step.out_nodes[: len(carry)]
        outs = [step.arrays[n] for n in new]
        for value, place, is_scalar, n in zip(outs, carry, scalars, new, strict=True):
            if value.shape != place.shape or value.dtype != place.dtype:
                raise NotNative("a carry that changes")
            if is_scalar != (n in step.scalars) and step.islands:
                raise NotNative("a carry that is a scalar in some steps")
            if n in step.classes:
                raise NotNative("a carry of which a scalar or an array may come")
            is_dense = span_of(value)[1] - span_of(value)[0] == value.nbytes
            if not is_dense and any(_overlaps(value, v) for v in inputs if v.size):
                raise NotNative("a carry that is a view with gaps")
        return step, outs

    def _make_results(self, step: TablePlan, outs: Sequence[AnyArray]) -> None:
        """Make the arrays of the results of all steps."""
        plan = self._plan
        for k, n in enumerate(step.out_nodes[len(outs) :], len(outs)):
            value = step.arrays[n]
            shape = (self._count, *value.shape)
            # Never memory that a step writes to before its end.
            if n in step.fixed and self._is_read_by_steps(k):
                block = plan.memory.new(value.nbytes)
                whole = block.array(value.shape, value.dtype)
                self._ys.append(
                    np.ndarray(
                        shape,
                        value.dtype,
                        block.chunk,
                        block.offset,
                        (0, *whole.strides),
                    )
                )
            else:
                block = plan.memory.new(self._count * value.nbytes)
                whole = block.array(shape, value.dtype)
                self._ys.append(whole)
            block.uses += 1
            self._blocks.append(block)

    def _is_read_by_steps(self, number: int) -> bool:
        """Return whether nothing reads a result but the steps of other scans."""
        items = [
            user
            for user in self._node.users
            if user.op == ITEM and user.args[1] == number
        ]
        return all(
            user.op == "call"
            and getattr(user.target, "qualname", "") == "control::scan"
            and item not in (*user.args[0], *user.args[1])
            for item in items
            for user in item.users
        )

    def _run(
        self,
        step: TablePlan,
        carry: Sequence[AnyArray],
        outs: Sequence[AnyArray],
        later: Sequence[AnyArray],
        rows: Sequence[AnyArray],
        start: int,
        count: int,
    ) -> None:
        """Emit the row of some steps, from `start` on."""
        # Rows of xs: the place of the first one among those of these steps.
        first = self._count - start - count if self._reverse else start
        moves_in, points = [], []
        for x, row in zip(self._xs, rows, strict=True):
            if x.strides[0] == 0 or not x.size:
                continue
            low, high = span_of(row)
            base = span_of(x[first, ...])[0]
            # What is copied after a step is read at its place, where pointers do not go.
            is_copied = any(_overlaps(row, step.arrays[n]) for n in step.out_nodes)
            if high - low > _ROW and step.may_point(low, high) and not is_copied:
                points.append(Point(step.table, low, high - low, base, x.strides[0]))
            else:
                moves_in.append(Move(low, base, high - low, 0, x.strides[0]))
        moves_out = []
        for n, y in zip(step.out_nodes[len(outs) :], self._ys, strict=True):
            value = step.arrays[n]
            if not value.size or (y.strides[0] == 0 and y.shape[0] > 1):
                continue  # `_take` copies what is the same in each step
            if not value.flags.c_contiguous:
                value = self._held.take(value.nbytes).array(value.shape, value.dtype)
                step.copy(step.arrays[n], value)
            place = y[first, ...]
            moves_out.append(_move(place, value, y.strides[0]))
        back = []
        for value, place in zip(outs, later, strict=True):
            if not value.size or (
                address_of(value) == address_of(place)
                and value.strides == place.strides
            ):
                continue
            source = value
            if any(_overlaps(value, other) for other in (*carry, *later)):
                source = self._held.twin(value)
                step.copy(value, source)
            back.append(_move(place, source))
        self._plan.table.repeat(
            step.table,
            count,
            reverse=self._reverse,
            moves_in=moves_in,
            points=points,
            moves_out=moves_out,
            carry=back,
        )

    def _take(self, step: TablePlan, carry: Sequence[AnyArray]) -> None:
        """Take the last carry and the results as the values of the node."""
        plan, node = self._plan, self._node
        last, blocks = [], []
        for n, y in zip(step.out_nodes[len(carry) :], self._ys, strict=True):
            if y.size and y.strides[0] == 0 and y.shape[0] > 1:
                plan.copy(step.arrays[n], y[0, ...])
        for value in carry:
            block = plan.memory.take(span_of(value)[1] - span_of(value)[0])
            block.uses += 1
            offset = block.offset + address_of(value) - span_of(value)[0]
            own = np.ndarray(
                value.shape, value.dtype, block.chunk, offset, value.strides
            )
            plan.copy(value, own)
            last.append(own)
            blocks.append(block)
        plan.take_all(
            node,
            [*last, *self._ys],
            [*blocks, *self._blocks],
            [n in step.scalars for n in step.out_nodes[: len(carry)]],
        )
        for planned in self._steps:
            planned.release_outputs()


def _dense(array: AnyArray) -> AnyArray:
    """Return an array with the layout that a copy has."""
    low, high = span_of(array)
    if high - low == array.nbytes and min(array.strides, default=0) >= 0:
        return array
    return np.empty_like(array)


# ---- while_loop ----


def while_loop(
    plan: TablePlan,
    node: Node,
    outside: Sequence[AnyArray],
    init: Sequence[AnyArray],
    cond_graph: GraphModule,
    body_graph: GraphModule,
    generators: Any = None,
) -> None:
    """Emit a loop over a table for as long as another one gives true."""
    if generators:
        raise NotNative("a loop with generators")
    held = _Held(plan)
    try:
        carry = [held.twin(_dense(v)) for v in init]
        scalars = [_is_scalar(plan, n) for n in node.args[1]]
        flags = [*scalars, *[_is_scalar(plan, n) for n in node.args[0]]]
        inputs = [*carry, *outside]
        test = _step_plan(plan, cond_graph, inputs, flags)
        goes_on = test.arrays[test.out_nodes[0]]
        if goes_on.dtype != np.bool_ or goes_on.ndim:
            raise NotNative("a condition that is not a bool")
        byte = held.twin(goes_on)
        test.copy(goes_on, byte)
        step = _step_plan(plan, body_graph, inputs, flags)
        back = _carried(step, step.out_nodes, carry, scalars, held)
        for value, place in zip(init, carry, strict=True):
            plan.copy(value, place)
        plan.table.repeat(
            step.table, None, condition=(test.table, address_of(byte)), carry=back
        )
        _take_copies(plan, node, carry, scalars)
    finally:
        held.release()


def _carried(
    step: TablePlan,
    new: Sequence[Node],
    carry: Sequence[AnyArray],
    scalars: Sequence[bool],
    held: _Held,
) -> list[Move]:
    """Return the copies of a new carry to where the next step reads it."""
    back = []
    for n, place, is_scalar in zip(new, carry, scalars, strict=True):
        value = step.arrays[n]
        if (
            value.shape != place.shape
            or value.dtype != place.dtype
            or not _lies_alike(value, place)
            or n in step.classes
            or is_scalar != (n in step.scalars)
        ):
            raise NotNative("a carry that changes")
        if not value.size or address_of(value) == address_of(place):
            continue
        source = value
        if any(_overlaps(value, other) for other in carry):
            source = held.twin(value)
            step.copy(value, source)
        back.append(_move(place, source))
    return back


def _take_copies(
    plan: TablePlan, node: Node, values: Sequence[AnyArray], scalars: Sequence[bool]
) -> None:
    """Take copies of some arrays as the values of a node."""
    last, blocks = [], []
    for value in values:
        own, block = plan.new(
            value.shape, value.dtype, value.strides if value.size else None
        )
        block.uses += 1
        plan.copy(value, own)
        last.append(own)
        blocks.append(block)
    plan.take_all(node, last, blocks, scalars)


# ---- cond ----


def cond(
    plan: TablePlan,
    node: Node,
    pred: AnyArray,
    operands: Sequence[AnyArray],
    true_graph: GraphModule,
    false_graph: GraphModule,
    generators: Any = None,
) -> None:
    """Emit a row that runs one of two tables."""
    if generators or pred.dtype != np.bool_ or pred.ndim:
        raise NotNative("a condition that is not a bool, or generators")
    flags = [_is_scalar(plan, n) for n in node.args[1]]
    branches = [
        _step_plan(plan, graph, operands, flags) for graph in (false_graph, true_graph)
    ]
    no, yes = [[b.arrays[n] for n in b.out_nodes] for b in branches]
    scalars = [[n in b.scalars for n in b.out_nodes] for b in branches]
    if (
        scalars[0] != scalars[1]
        or any(n in b.classes for b in branches for n in b.out_nodes)
        or not all(map(_lies_alike, no, yes))
        or any(span_of(v)[1] - span_of(v)[0] != v.nbytes for v in (*no, *yes))
    ):
        raise NotNative("branches whose results lie otherwise")
    made, blocks = [], []
    for value in yes:
        own, block = plan.new(value.shape, value.dtype, value.strides)
        block.uses += 1
        made.append(own)
        blocks.append(block)
    for branch, values in zip(branches, (no, yes), strict=True):
        for value, own in zip(values, made, strict=True):
            branch.copy(value, own)
    plan.table.choose(address_of(pred), "?", [b.table for b in branches])
    plan.take_all(node, made, blocks, scalars[0])


RULES_OF_CONTROL: Mapping[str, Callable[..., None]] = MappingProxyType(
    {
        "control::cond": cond,
        "control::scan": scan,
        "control::while_loop": while_loop,
    }
)
