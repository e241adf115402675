"""Rows of batches, for functions with derivatives of their own under vmap."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from customop.arrays.numpy_functions import call_numpy
from customop.core.boxes import frozen
from customop.core.interpreter import highest
from customop.transforms.batch import BatchInterpreter, BatchTracer
from customop.transforms.functions.call import FunctionCall, check_below, check_closed

__all__ = ["Rows"]

Arrays = Sequence[Any]


class Rows:
    """Makes rows of batches, and batches of rows again.

    The interpreter of the vmap itself is used where that is possible, so that a function
    may use other rows of the same batch. It is not where the vmap has ended, or where
    another transform runs around the function: a tracer holds values of lower levels.
    """

    __slots__ = ("batch", "dims", "fn", "outer")

    def __init__(
        self,
        fn: FunctionCall,
        batch: BatchInterpreter,
        dims: Sequence[int | None],
        outer: BatchInterpreter | None = None,
    ) -> None:
        self.fn: FunctionCall = fn
        self.batch: BatchInterpreter = batch
        self.dims: Sequence[int | None] = dims
        # The interpreter of the vmap where it is not used: its rows are an error.
        self.outer: BatchInterpreter | None = outer

    def around(self, *values: Any) -> Rows:
        """The same with an interpreter that can hold these values."""
        batch = self.batch
        top = highest(None, values)
        if batch.alive and (top is None or top.level < batch.level):
            return self
        new = BatchInterpreter(
            batch.info.batch_size, batch.info.randomness, batch.draws
        )
        new.fn = batch.fn
        return Rows(self.fn, new, self.dims, batch)

    def of(self, values: Arrays, dims: Sequence[int | None] | None = None) -> list[Any]:
        """Rows of values; None stays."""
        pairs = zip(values, self.dims if dims is None else dims, strict=True)
        return [
            v if d is None or v is None else BatchTracer(self.batch, frozen(v), d)
            for v, d in pairs
        ]

    def front(self, value: Any) -> Any:
        """A batch of rows with its axis in front; None stays."""
        if value is None:
            return None
        if self.outer is not None:
            check_closed(self.fn, self.outer, [value])
        if self.batch.dim_of(value) is None:
            check_below(self.fn, self.batch, [value])
        dim = self.batch.dim_of(value)
        if dim is None:
            shape = (self.batch.info.batch_size, *value.shape)
            return call_numpy(np.broadcast_to, frozen(value), shape)
        below = frozen(value.below)
        return below if dim == 0 else call_numpy(np.moveaxis, below, dim, 0)

    def gradient(self, value: Any, dim: int | None) -> Any:
        """The gradient of an input: the sum over all rows where they share it."""
        if value is None:
            return None
        batch = self.front(value)
        if dim is None:
            return call_numpy(np.sum, batch, axis=0)
        return batch if dim == 0 else call_numpy(np.moveaxis, batch, 0, dim)
