"""The arguments of a call of a function with its own derivatives, and its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from customop.core.builtin_kinds import AUTOGRAD, JVP
from customop.core.interpreter import highest
from customop.errors import ArgumentError
from customop.shapes.sizes import Symbolic
from customop.transforms.functions.function_calls import (
    FunctionTable,
    Parts,
    own,
    sealed_inputs,
)

Arrays = Sequence[Any]


class Given:
    """The arguments of one call, and its result."""

    __slots__ = ("parts", "results", "table")

    def __init__(self, table: FunctionTable, args: Sequence[Any]) -> None:
        self.table: FunctionTable = table
        self.parts: Parts
        self.parts = Parts(tuple(args))
        self._fix_sizes()
        # Set after the function has run.
        self.results: Parts | None = None

    def _fix_sizes(self) -> None:
        """Replace symbolic sizes by guarded numbers, if the call will become a node.

        The function of a node may run again with arrays of other sizes. If the call is
        differentiated, it is traced through instead, and its sizes stay symbolic.
        """
        leaves = self.parts.leaves
        if any(isinstance(v, Symbolic) for v in leaves):
            top = highest(None, self.arrays)
            if top is not None and top.kind not in (AUTOGRAD, JVP):
                leaves[:] = [v.value if isinstance(v, Symbolic) else v for v in leaves]

    @property
    def arrays(self) -> list[Any]:
        """The arrays among the arguments."""
        return [self.parts.leaves[i] for i in self.parts.at]

    def call(self, fn: Callable[..., Any], inputs: Arrays) -> Any:
        """Call a function with read-only arrays in the places of its arguments' arrays."""
        with unwritten_inputs(self.table):
            return fn(*self.parts.tree(sealed_inputs(inputs)))

    def outputs(self, result: Any, inputs: Arrays) -> list[Any]:
        """Return the arrays of a result, none of which shares memory with another."""
        self.results, arrays = Parts.of(result)
        return own(arrays, inputs)

    def result(self, outputs: Arrays) -> Any:
        """Return the result with `outputs` as its arrays."""
        assert self.results is not None
        return self.results.tree(outputs)


class unwritten_inputs:  # noqa: N801  # a function, in a quarter of the time
    """Explain NumPy's error for writing to an argument."""

    __slots__ = ("table",)

    def __init__(self, table: FunctionTable) -> None:
        self.table: FunctionTable = table

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, cls: object, error: object, trace: object) -> None:
        if isinstance(error, Exception):
            explain_written(self.table, error)


def explain_written(table: FunctionTable, error: Exception) -> None:
    """Raise our error if NumPy refused to write to an argument."""
    if isinstance(error, ValueError) and "read-only" in str(error):
        raise table.error(
            ArgumentError,
            " writes its argument in place",
            f"defined at {table.definition.place}",
            do="write a copy: x = x.copy()",
            parameter=None,
        ) from error
