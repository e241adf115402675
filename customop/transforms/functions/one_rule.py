"""Calls of functions with a rule for one mode, which is transposed for the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import numpy as np

from customop.arrays.kinds import is_traced
from customop.arrays.numpy_functions import call_numpy
from customop.transforms.autograd.grad import pull_back
from customop.transforms.autograd.interpreter import GradInterpreter
from customop.transforms.batch import BatchInterpreter
from customop.transforms.carrier import Carrier
from customop.transforms.functions.call import (
    Forward,
    FunctionCall,
    FunctionTable,
    check_closed,
)
from customop.transforms.functions.rows import Rows

__all__ = ["JvpCall", "VjpCall"]

Arrays = Sequence[Any]


class VjpCall(FunctionCall):
    """A function with rules for reverse mode; forward mode transposes them."""

    def batched(self, batch: BatchInterpreter, dims: Sequence[int | None]) -> VjpCall:
        """The same for a batch."""
        return _BatchedVjp(self, batch, dims)


class JvpCall(FunctionCall):
    """A function with a rule for forward mode; reverse mode transposes it."""

    def forward(self, inputs: Arrays, wanted: Sequence[bool]) -> Forward:
        """Compute the outputs, and record how tangents go through."""
        outputs: list[Any] = []

        def push(*tangents: Any) -> Any:
            given = iter(tangents)
            moved = [next(given) if w else None for w in wanted]
            found = self.push(inputs, moved)
            outputs.extend(found[0])
            return list(found[1])

        at = [x for x, w in zip(inputs, wanted, strict=True) if w]
        carrier = Carrier()  # without an end, for the pullback
        zeros = carrier.carry(tuple([call_numpy(np.zeros_like, x) for x in at]))
        interpreter = GradInterpreter()
        interpreter.title = self.table.qualname
        tangents, pullback, _ = pull_back(interpreter, push, zeros)
        check_closed(self, interpreter, outputs)
        tangents = carrier.uncarry(tangents)

        def carried_pullback(cotangents: Any) -> Any:
            return carrier.uncarry(pullback(carrier.carry(cotangents)))

        # The tangents are checked as results: they may depend on a value from outside.
        is_moved = [t is not None for t in tangents]
        rest = (carried_pullback, wanted, is_moved)
        return Forward(outputs, [t for t in tangents if is_traced(t)], rest)

    def backward(self, saved: Arrays, rest: Any, cotangents: Arrays) -> Arrays:
        """Gradients of the inputs: the transpose of the recorded tangents."""
        pullback, wanted, is_moved = rest
        pairs = zip(cotangents, is_moved, strict=True)
        found = iter(pullback([g if moved else None for g, moved in pairs]))
        return [next(found) if w else None for w in wanted]

    def batched(self, batch: BatchInterpreter, dims: Sequence[int | None]) -> JvpCall:
        """The same for a batch."""
        return _BatchedJvp(self, batch, dims)


# ---- batches ----


CallT = TypeVar("CallT", bound=FunctionCall)


class _BatchOf(FunctionCall, Generic[CallT]):
    """A batch of a call, by a rule of either mode."""

    def __init__(
        self, inner: CallT, batch: BatchInterpreter, dims: Sequence[int | None]
    ) -> None:
        self.table: FunctionTable = inner.table
        self.inner: CallT = inner
        self.rows: Rows = Rows(self, batch, dims)

    @property
    def identity(self) -> tuple[Any, ...]:
        rows = self.rows
        return (
            type(self),
            rows.batch.info.batch_size,
            *rows.dims,
            *self.inner.identity,
        )

    @property
    def has_rule(self) -> bool:
        return self.inner.has_rule

    def run(self, inputs: Arrays) -> Arrays:
        rows = self.rows.around(*inputs)
        return [rows.front(v) for v in self.inner.run(rows.of(inputs))]


class _BatchedVjp(_BatchOf[VjpCall], VjpCall):
    def forward(self, inputs: Arrays, wanted: Sequence[bool]) -> Forward:
        rows = self.rows.around(*inputs)
        found = self.inner.forward(rows.of(inputs), wanted)
        outputs = [rows.front(v) for v in found.outputs]
        if rows.outer is not None:
            check_closed(self, rows.outer, found.saved)
        dims = [rows.batch.dim_of(v) for v in found.saved]
        return Forward(
            outputs, [rows.batch.lower(v) for v in found.saved], (dims, found.rest)
        )

    def backward(self, saved: Arrays, rest: Any, cotangents: Arrays) -> Arrays:
        rows = self.rows.around(*saved, *cotangents)
        dims, inner_rest = rest
        given = rows.of(cotangents, [0] * len(cotangents))
        found = self.inner.backward(rows.of(saved, dims), inner_rest, given)
        pairs = zip(found, self.rows.dims, strict=True)
        return [rows.gradient(g, dim) for g, dim in pairs]


class _BatchedJvp(_BatchOf[JvpCall], JvpCall):
    def push(self, primals: Arrays, tangents: Arrays) -> tuple[Arrays, Arrays]:
        rows = self.rows.around(*primals, *tangents)
        outputs, moved = self.inner.push(rows.of(primals), rows.of(tangents))
        return [rows.front(v) for v in outputs], [rows.front(t) for t in moved]
