"""The interpreter of vmap: an operator's rule, or an exact loop over the rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np

from customop.arrays.attributes import refuse_setting
from customop.arrays.describe import describe, show
from customop.arrays.fake import FakeArray, fake_like
from customop.arrays.kinds import device_of, is_array
from customop.arrays.nested import (
    aligned,
    children,
    flat,
    like,
    map_beside,
    map_nested,
    map_outline,
)
from customop.arrays.numpy_functions import call_numpy
from customop.config import config
from customop.core.boxes import connect_results
from customop.core.contract.results import VMAP_RULE, check_returns, check_shapes
from customop.core.derived.rows import Uneven, run_rows, stack_rows, warn_slow
from customop.core.interpreter import Interpreter, current_mode, next_level
from customop.core.kinds import VMAP
from customop.core.rule_kind import RuleKind
from customop.core.rule_types import BatchInfo
from customop.core.table import RuleTable
from customop.core.tracer import Tracer
from customop.errors import ContractError, DataDependentError, VmapError, place
from customop.transforms.batch_plans import batch_plan
from customop.transforms.plan_lines import general_plan
from customop.transforms.randomness import Draws, random_error
from customop.transforms.row_methods import add_row_methods

__all__ = ["BatchInterpreter", "BatchTracer"]


class BatchTracer(Tracer):
    """A row of a batch: the array without its batch axis."""

    __slots__ = ("dim",)
    is_concrete = False

    def __init__(self, interpreter: Interpreter, value: Any, dim: int) -> None:
        self.interpreter = interpreter
        self.below = value
        self.box_place: Any = None
        self.box_views: Any = None
        self.dim: int = dim

    @property
    def shape(self) -> Any:
        """Lengths of the axes of one row."""
        shape, dim = self.below.shape, self.dim
        return shape[:dim] + shape[dim + 1 :] if dim else shape[1:]

    @shape.setter
    def shape(self, value: Any) -> None:
        refuse_setting(self, "shape")

    def row_strides(self, strides: tuple[int, ...]) -> tuple[int, ...]:
        """Strides of one row, from those of the batch."""
        return (*strides[: self.dim], *strides[self.dim + 1 :])

    def _refused(self, asked: str, instead: str) -> DataDependentError:
        size = self.below.shape[self.dim]
        return DataDependentError(
            f"{asked} {describe(self)}, a row of {size} of {self.interpreter.describe()}",
            self.interpreter.where(),
            "each row may have another value",
            do=f"use {instead}",
        )


add_row_methods(BatchTracer)

_new_tuple: Callable[..., Any] = tuple.__new__


class BatchInterpreter(Interpreter):
    """One running vmap."""

    kind: ClassVar[RuleKind] = VMAP
    tracer_class: ClassVar[type[Tracer]] = BatchTracer
    has_plans: ClassVar[bool] = True
    title: str = "vmap"

    def __init__(self, size: int, randomness: str, draws: Draws | None) -> None:
        # As `Interpreter.__init__`, without its frames: 150 ns less.
        self.level: int = next_level()
        self.alive = self.runs_plans = True
        mode = current_mode.get()
        if mode is not None:
            self.show_start(mode)
        # Half the time of a call of the class.
        self.info: BatchInfo = _new_tuple(BatchInfo, (size, randomness))
        self.draws = draws

    def dim_of(self, value: Any) -> int | None:
        """Batch axis of a value, or None where it is the same for all rows."""
        if isinstance(value, BatchTracer) and value.interpreter is self:
            return value.dim
        return None

    def constant(self, value: Any) -> BatchTracer:
        """A constant as a row: one for each, so that rows can differ later."""
        wide = call_numpy(np.broadcast_to, value, (self.info.batch_size, *value.shape))
        return BatchTracer(self, call_numpy(np.copy, wide), 0)

    def process(self, op: RuleTable, args: Sequence[Any]) -> Any:
        """Run the operator once for all rows."""
        try:
            plan = op.plans.by_tracer[BatchTracer]
        except KeyError:
            plan = _make_plan(op)
        return plan(self, args)

    def general(self, op: RuleTable, args: Sequence[Any]) -> Any:
        """Run any operator once for all rows."""
        values = list(args)
        dims: list[Any] = [None] * len(values)
        for slot in op.array_slots:
            tracer = values[slot]
            if type(tracer) is BatchTracer and tracer.interpreter is self:
                values[slot] = tracer.below
                dims[slot] = tracer.dim
        for slot in op.nested_slots:
            dims[slot] = map_outline(values[slot], self.dim_of)
            values[slot] = map_nested(values[slot], self.lower)
        if op.schema.written:
            self._check_writes(op, values, dims)
        if op.sees_seed and self.info.randomness == "error":
            raise random_error(op, self)
        rule = op.find_rule(VMAP)
        if rule is None:
            return self.loop(op, values, dims)
        pair = self._pair(op, rule, values, dims)
        return self.finish(op, rule, args, dims, values, pair)

    def finish(
        self,
        op: RuleTable,
        rule: Any,
        args: Sequence[Any],
        dims: Sequence[Any],
        values: Sequence[Any],
        pair: Any,
    ) -> Any:
        """The rows of a call, from what its rule has returned."""
        if pair is NotImplemented:  # a rule derived from shapes that do not cover this
            return self.loop(op, values, dims)
        if type(pair) is not tuple or len(pair) != 2:
            raise _bad_rule(op, rule, f"returned {show(pair)} instead of a pair")
        rows = self._rows_of(op, rule, *pair)
        if op.schema.has_shapes and config.checks != "never":
            _prove_rows(op, rule, dims, args, rows)
        return rows

    def _rows_of(self, op: RuleTable, rule: Any, out: Any, out_dims: Any) -> Any:
        """The result of a rule as rows."""
        if type(out_dims) is int and op.schema.single_return and is_array(out):
            return self._batched(op, rule, out, out_dims)
        check_returns(op, rule, out, VMAP_RULE)
        return self._wrap_result(op, rule, out, out_dims)

    def _pair(
        self, op: RuleTable, rule: Any, values: Sequence[Any], dims: Sequence[Any]
    ) -> Any:
        if not op.schema.keyword_only:
            return rule(self.info, tuple(dims), *values)
        positional, keywords = op.schema.split(values)
        count = len(positional)
        in_dims = dims if any(map(_some, dims[count:])) else dims[:count]
        return rule(self.info, tuple(in_dims), *positional, **keywords)

    def _wrap_result(self, op: RuleTable, rule: Any, out: Any, dims: Any) -> Any:
        found = children(out)
        if found is not None:
            given = aligned(out, dims)
            if given is None:
                reason = f"returned out_dims={dims!r} for {len(found)} outputs"
                raise _bad_rule(op, rule, reason)
            pairs = zip(found, given, strict=True)
            return like(out, [self._wrap_result(op, rule, o, d) for o, d in pairs])
        if dims is None:
            return out
        if type(dims) is not int or not is_array(out):
            reason = f"returned out_dims={dims!r} for the output {show(out)}"
            raise _bad_rule(op, rule, reason)
        return self._batched(op, rule, out, dims)

    def _batched(self, op: RuleTable, rule: Any, out: Any, dim: int) -> BatchTracer:
        shape = out.shape
        rank = len(shape)
        if not -rank <= dim < rank:
            reason = f"returned out_dims={dim} for an output of shape {tuple(shape)}"
            raise _bad_rule(op, rule, reason)
        if dim < 0:
            dim += rank
        if shape[dim] != self.info.batch_size:
            reason = (
                f"returned an output of shape {tuple(shape)} with out_dims={dim}, but the"
                f" batch has {self.info.batch_size} rows"
            )
            raise _bad_rule(op, rule, reason)
        return BatchTracer(self, out, dim)

    def _check_writes(
        self, op: RuleTable, values: Sequence[Any], dims: Sequence[Any]
    ) -> None:
        """Raise where rows would be written into one array that they share."""
        for p, value, dim in zip(op.schema.parameters, values, dims, strict=True):
            pairs = zip(flat(value), flat(dim), strict=True)
            if p.is_written and any(d is None and is_array(v) for v, d in pairs):
                raise op.error(
                    VmapError,
                    f" writes its argument '{p.name}' under {self.describe()}, which is"
                    " one array for all rows",
                    self.where(),
                    do=f"batch '{p.name}' too, or use an operator that returns a new"
                    " array",
                    parameter=p.name,
                    kind="vmap",
                )

    # ---- the loop ----

    def loop(self, op: RuleTable, values: Sequence[Any], dims: Sequence[Any]) -> Any:
        """Call the operator row by row, and stack the results."""
        size = self.info.batch_size
        if size == 0:
            warn_slow(op)  # the next batch may have rows
            return self._empty(op, values, dims)
        rewind = self.draws.start(values) if op.sees_seed and self.draws else None
        pairs = list(zip(values, dims, strict=True))
        rows = run_rows(op, pairs, size, rewind)
        try:
            out, out_dims = stack_rows(rows)
        except Uneven as why:
            raise self._uneven(op, str(why)) from None
        return map_beside(out, out_dims, self._row_of)

    def _row_of(self, value: Any, dim: int | None) -> Any:
        return value if dim is None else BatchTracer(self, value, dim)

    def _uneven(self, op: RuleTable, what: str) -> VmapError:
        return op.error(
            VmapError,
            f"under {self.describe()} the rows return {what}, which cannot be stacked",
            self.where(),
            do="return arrays of one shape for all rows",
            kind="vmap",
        )

    def _empty(self, op: RuleTable, values: Sequence[Any], dims: Sequence[Any]) -> Any:
        """The result for no rows: its shapes come from the fake kernel."""
        device = [device_of(v) for value in values for v in flat(value) if is_array(v)]
        pairs = zip(values, dims, strict=True)
        fakes = [map_beside(value, dim, _fake_row) for value, dim in pairs]
        out = op.invoke(fakes)

        def none_of(fake: Any) -> Any:
            if not isinstance(fake, FakeArray):
                return fake
            shape = (0, *fake.shape)
            zeros = call_numpy(np.zeros, shape, fake.dtype, device=device[0])
            return BatchTracer(self, zeros, 0)

        return map_nested(out, none_of)


def _make_plan(op: RuleTable) -> Callable[[Any, Sequence[Any]], Any]:
    """Make the plan of an operator, which is kept until its table changes."""
    plans = op.plans  # a changed table has new plans: a plan of the old one is dropped
    rule = op.find_rule(VMAP)
    if op.is_plain and rule is not None and not (op.sees_seed or op.schema.has_shapes):
        plan = batch_plan(op, plans, rule, BatchTracer, _finish)
    else:
        plan = general_plan(op)
    plans.by_tracer[BatchTracer] = plan
    return plan


def _finish(
    op: RuleTable,
    rule: Any,
    interpreter: BatchInterpreter,
    args: Sequence[Any],
    dims: tuple[Any, ...],
    values: tuple[Any, ...],
    pair: Any,
) -> Any:
    """Finish the call of a generated plan whose result is not a plain array."""
    rows = interpreter.finish(op, rule, args, dims, values, pair)
    if op.view_slot >= 0:
        connect_results(op, args, args, rows)
    return rows


def _bad_rule(op: RuleTable, rule: Any, reason: str) -> ContractError:
    return op.error(
        ContractError,
        f"the vmap rule {reason}",
        f"rule at {place(rule)}",
        do="return (output, out_dims), with an axis or None for each output",
        kind="vmap",
    )


def _prove_rows(
    op: RuleTable, rule: Any, dims: Sequence[Any], args: Sequence[Any], out: Any
) -> None:
    """Check the shapes of the rows of a rule, once for each `in_dims`."""
    proven = op.plans.proven_rows
    where = tuple([d if type(d) is int else None for d in dims])
    if config.checks == "first" and where in proven:
        return
    check_shapes(op, rule, VMAP_RULE, args, out)
    proven.add(where)


def _some(dim: Any) -> bool:
    return any(d is not None for d in flat(dim))


def _fake_row(value: Any, dim: int | None) -> Any:
    if not is_array(value):
        return value
    shape = tuple(value.shape)
    return fake_like(
        value, shape=shape if dim is None else shape[:dim] + shape[dim + 1 :]
    )
