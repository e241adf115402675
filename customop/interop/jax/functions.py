"""Functions of arrays that JAX runs: an operator, and what transforms make of it.

They are compared by what they are made of, so that JAX compiles each of them once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import customop as co
from customop.arrays.nested import flat, map_outline, map_result
from customop.arrays.pytree import flatten, unflatten
from customop.core.table import RuleTable
from customop.frozen import Frozen
from customop.interop.jax.places import CallPlaces

__all__ = [
    "Batched",
    "Differential",
    "Function",
    "NumpyCall",
    "OperatorCall",
    "Pullback",
    "is_inexact",
]

# Takes arrays and returns a list of arrays.
Function = Callable[..., list[Any]]


def is_inexact(dtype: Any) -> bool:
    """Whether arrays of a dtype have derivatives."""
    return bool(np.issubdtype(dtype, np.inexact))


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
        """What the call returns, then what it wrote."""
        values = self.places.filled(arrays)
        names = [p.name for p in self.op.schema.parameters]
        given = dict(zip(names, values, strict=True))
        # JAX's arrays never change: what is written is a copy, which is returned.
        for name in self.op.schema.written:
            given[name] = map_result(given[name], lambda x: x.copy())
        found = self.op.invoke([*given.values()])
        written = [given[name] for name in self.op.schema.written]
        if not written:
            return found
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
        """What the call returns."""
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


class Pullback(Frozen):
    """From arguments and cotangents of the results to cotangents of arguments.

    Attributes
    ----------
    fn : Function
    wanted : tuple of bool
        Which arguments have one.
    """

    fn: Function
    wanted: tuple[bool, ...]

    def __call__(self, *arrays: Any) -> list[Any]:
        """The derivatives, in order."""
        count = len(self.wanted)
        free = _free(self.fn, arrays[:count], self.wanted)
        inputs = [x for x, w in zip(arrays, self.wanted, strict=False) if w]
        results, pull = co.vjp(free, *inputs)
        # Those of JAX may be of 32 bits where the results are of 64.
        pairs = zip(arrays[count:], results, strict=True)
        return [*pull([ct.astype(y.dtype) for ct, y in pairs])]


class Differential(Frozen):
    """From arguments and tangents of some of them to tangents of the results."""

    fn: Function
    wanted: tuple[bool, ...]

    def __call__(self, *arrays: Any) -> list[Any]:
        """The derivatives, in order."""
        count = len(self.wanted)
        free = _free(self.fn, arrays[:count], self.wanted)
        inputs = [x for x, w in zip(arrays, self.wanted, strict=False) if w]
        _, tangents = co.jvp(free, inputs, [*arrays[count:]])
        return [*tangents]


class Batched(Frozen):
    """A function of rows: of the first axis of arguments.

    Attributes
    ----------
    fn : Function
    axes : tuple of int or None
        0 for an argument with rows.
    """

    fn: Function
    axes: tuple[int | None, ...]

    def __call__(self, *arrays: Any) -> list[Any]:
        """The results, each with rows."""
        return [*co.vmap(self.fn, in_dims=self.axes)(*arrays)]


def _free(fn: Function, arrays: Sequence[Any], wanted: Sequence[bool]) -> Function:
    """A function of some arguments, with the others fixed, and its inexact results."""

    def free(*changed: Any) -> list[Any]:
        rest = iter(changed)
        given = [next(rest) if w else x for x, w in zip(arrays, wanted, strict=True)]
        return [y for y in fn(*given) if is_inexact(y.dtype)]

    return free
