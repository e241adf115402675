"""Functions of arrays that JAX runs: a call of an operator, and a call under steps.

They are compared by content, so that JAX compiles each of them once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from customop.arrays.nested import flat, flatten, map_outline, map_result, unflatten
from customop.core.table import RuleTable
from customop.frozen import Frozen
from customop.graph.passes import frozen_key
from customop.interop.steps import Step, run_steps

# ---- the arguments of a call without its arrays ----


class ArraySlot(Frozen):
    """Marks the place of an array."""

    index: int


class CallPlaces:
    """The arguments of a call without its arrays. Compared by the other values, to the bit.

    Parameters
    ----------
    values : sequence
        Nested values, with an `ArraySlot` in the place of each array.
    """

    __slots__ = ("_key", "_values")

    def __init__(self, values: Sequence[Any]) -> None:
        self._values = [*values]
        # An object without a hash is compared by identity. The values keep it alive.
        self._key: Hashable = frozen_key(self._values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CallPlaces) and self._key == other._key

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        return "..."

    @property
    def count(self) -> int:
        """The number of arrays."""
        found = 0

        def seen(leaf: Any) -> Any:
            nonlocal found
            found += isinstance(leaf, ArraySlot)
            return leaf

        for nested in self._values:
            map_outline(nested, seen)
        return found

    def filled(self, arrays: Sequence[Any]) -> list[Any]:
        """Return the values with the arrays in their places."""

        def value(leaf: Any) -> Any:
            return arrays[leaf.index] if isinstance(leaf, ArraySlot) else leaf

        return [map_outline(nested, value) for nested in self._values]


# ---- a call, and a call under steps ----


class OperatorCall(Frozen):
    """A call of an operator.

    Attributes
    ----------
    op : Operator
    places : CallPlaces
        Where the arrays go, among the values of all parameters.
    """

    op: RuleTable
    places: CallPlaces

    def result(self, arrays: Sequence[Any]) -> Any:
        """Return the results of the call, then the arrays that it wrote to."""
        values = self.places.filled(arrays)
        if not self.op.schema.written:
            return self.op.invoke(values)
        names = [p.name for p in self.op.schema.parameters]
        given = dict(zip(names, values, strict=True))
        # JAX arrays never change, so the operator writes to copies, which are returned.
        for name in self.op.schema.written:
            given[name] = map_result(given[name], lambda x: x.copy())
        found = self.op.invoke([*given.values()])
        written = [given[name] for name in self.op.schema.written]
        own = found if self.op.schema.is_tuple else (found,) * (found is not None)
        both = (*own, *written)
        return both[0] if len(both) == 1 else both

    def leaves(self, result: Any) -> list[Any]:
        """Return the arrays of a result."""
        return [leaf for leaf in flat(result) if leaf is not None]

    def rebuilt(self, result: Any, arrays: Sequence[Any]) -> Any:
        """Return a result with other arrays."""
        rest = iter(arrays)
        return map_outline(result, lambda leaf: None if leaf is None else next(rest))

    def __call__(self, *arrays: Any) -> list[Any]:
        """Return the arrays of the result."""
        return self.leaves(self.result(arrays))

    def __repr__(self) -> str:
        return str(self.op.qualname)


class NumpyCall(Frozen):
    """A call of a function that uses NumPy.

    Attributes
    ----------
    fn : callable
    places : CallPlaces
        Where the arrays go, among the leaves of its arguments.
    spec : Structure
        The structure of the pair of positional and keyword arguments.
    """

    fn: Callable[..., Any]
    places: CallPlaces
    spec: Any

    def result(self, arrays: Sequence[Any]) -> Any:
        """Call the function."""
        leaves = self.places.filled(arrays)
        args, kwargs = unflatten(self.spec, leaves)
        return self.fn(*args, **kwargs)

    def leaves(self, result: Any) -> list[Any]:
        """Return the arrays of a result."""
        return flatten(result)[0]

    def rebuilt(self, result: Any, arrays: Sequence[Any]) -> Any:
        """Return a result with other arrays."""
        return unflatten(flatten(result)[1], arrays)

    def __call__(self, *arrays: Any) -> list[Any]:
        """Return the arrays of the result."""
        return self.leaves(self.result(arrays))

    def __repr__(self) -> str:
        return str(getattr(self.fn, "__qualname__", self.fn))


class Derived(Frozen):
    """A call under steps: its derivatives and batches.

    Attributes
    ----------
    base : OperatorCall or NumpyCall
    steps : tuple of Step
    """

    base: OperatorCall | NumpyCall
    steps: tuple[Step, ...]

    def then(self, step: Step) -> Derived:
        """Return the function under one more step."""
        return Derived(self.base, (*self.steps, step))

    def __call__(self, *arrays: Any) -> list[Any]:
        """Return the arrays of the results."""
        op = self.base.op if isinstance(self.base, OperatorCall) else None
        return run_steps(self.steps, lambda given: self.base(*given), arrays, op)
