"""Functions of arrays that JAX runs: a call, and what steps make of it.

They are compared by what they are made of, so that JAX compiles each of them once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from customop.arrays.nested import flat, map_outline, map_result
from customop.arrays.pytree import flatten, unflatten
from customop.core.table import RuleTable
from customop.frozen import Frozen
from customop.interop.jax.places import CallPlaces
from customop.interop.steps import Step, run_steps

__all__ = ["Derived", "NumpyCall", "OperatorCall"]


class OperatorCall(Frozen):
    """The call of an operator.

    Attributes
    ----------
    op : Operator
    places : CallPlaces
        Where the arrays go, among the values of all parameters.
    """

    op: RuleTable
    places: CallPlaces

    def result(self, arrays: Sequence[Any]) -> Any:
        """The results of the call, then the arrays that it wrote."""
        values = self.places.filled(arrays)
        if not self.op.schema.written:
            return self.op.invoke(values)
        names = [p.name for p in self.op.schema.parameters]
        given = dict(zip(names, values, strict=True))
        # JAX's arrays never change: what is written is a copy, which is returned.
        for name in self.op.schema.written:
            given[name] = map_result(given[name], lambda x: x.copy())
        found = self.op.invoke([*given.values()])
        written = [given[name] for name in self.op.schema.written]
        own = found if self.op.schema.is_tuple else (found,) * (found is not None)
        both = (*own, *written)
        return both[0] if len(both) == 1 else both

    def leaves(self, result: Any) -> list[Any]:
        """The arrays of a result."""
        return [leaf for leaf in flat(result) if leaf is not None]

    def rebuilt(self, result: Any, arrays: Sequence[Any]) -> Any:
        """A result with other arrays."""
        rest = iter(arrays)
        return map_outline(result, lambda leaf: None if leaf is None else next(rest))

    def __call__(self, *arrays: Any) -> list[Any]:
        """The arrays of the result."""
        return self.leaves(self.result(arrays))

    def __repr__(self) -> str:
        return str(self.op.qualname)


class NumpyCall(Frozen):
    """The call of a function of NumPy code.

    Attributes
    ----------
    fn : callable
    places : CallPlaces
        Where the arrays go, among the leaves of its arguments.
    spec : Structure
        Of the pair of positional and keyword arguments.
    """

    fn: Callable[..., Any]
    places: CallPlaces
    spec: Any

    def result(self, arrays: Sequence[Any]) -> Any:
        """The results of the call."""
        leaves = self.places.filled(arrays)
        args, kwargs = unflatten(self.spec, leaves)
        return self.fn(*args, **kwargs)

    def leaves(self, result: Any) -> list[Any]:
        """The arrays of a result."""
        return flatten(result)[0]

    def rebuilt(self, result: Any, arrays: Sequence[Any]) -> Any:
        """A result with other arrays."""
        return unflatten(flatten(result)[1], arrays)

    def __call__(self, *arrays: Any) -> list[Any]:
        """The arrays of the result."""
        return self.leaves(self.result(arrays))

    def __repr__(self) -> str:
        return str(getattr(self.fn, "__qualname__", self.fn))


class Derived(Frozen):
    """A call after steps: derivatives and rows of it.

    Attributes
    ----------
    base : OperatorCall or NumpyCall
    steps : tuple of Step
    """

    base: OperatorCall | NumpyCall
    steps: tuple[Step, ...]

    def then(self, step: Step) -> Derived:
        """The function after one more step."""
        return Derived(self.base, (*self.steps, step))

    def __call__(self, *arrays: Any) -> list[Any]:
        """The arrays of the results."""
        return run_steps(self.steps, lambda given: self.base(*given), arrays)
