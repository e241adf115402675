"""Graphs on values of other transforms: compiled for a batch, and with tangents.

The two graphs of a gradient may get rows of a batch or values with tangents, as in
`hessian`, in `vmap` of `grad`, and in the pullbacks that `jacrev` calls for all unit vectors
at once. Then the graph itself is run under that transform and compiled as a new function,
of the arrays below. That function may get values of further transforms in its turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from customop.core.boxes import frozen
from customop.core.interpreter import highest
from customop.graph.module import GraphModule
from customop.transforms.autograd.interpreter import GradInterpreter
from customop.transforms.batch import BatchInterpreter, BatchTracer
from customop.transforms.jvp import JvpInterpreter, JvpTracer

__all__ = ["Lift"]

Arrays = Sequence[Any]
# Takes arrays; returns arrays, and what else there is to know of them.
Run = Callable[..., tuple[list[Any], Any]]


class Lift:
    """A function of arrays, with compiled forms for values of transforms.

    Parameters
    ----------
    run : callable
        Takes arrays. Returns a list of arrays, and a pytree of plain values.
    make : callable
        Compiles a function.
    """

    def __init__(self, run: Run, make: Callable[[Run], Run]) -> None:
        self._run: Run = run
        self._make: Callable[[Run], Run] = make
        self._compiled: Run = make(run)
        # What the values are -> the lift of the function under that transform.
        self._forms: dict[Any, Lift] = {}

    @classmethod
    def of_graph(cls, module: GraphModule, make: Callable[[Run], Run]) -> Lift:
        """The lift of a graph that does not draw."""
        return cls(lambda *values: (module.run_list(*values), None), make)

    def __call__(self, *values: Any) -> tuple[list[Any], Any]:
        """Call the function with arrays, or with tracers of any transforms."""
        top = highest(None, values)
        if top is None or isinstance(top, GradInterpreter):
            return self._compiled(*values)
        if type(top) is BatchInterpreter and top.alive:
            return self._of_rows(top, values)
        if type(top) is JvpInterpreter and top.alive:
            return self._of_tangents(top, values)
        return self._run(*values)

    def _form(self, key: Any, run: Run) -> Lift:
        found = self._forms.get(key)
        if found is None:
            found = self._forms.setdefault(key, Lift(run, self._make))
        return found

    def _of_rows(self, top: BatchInterpreter, values: Arrays) -> tuple[list[Any], Any]:
        dims = tuple([top.dim_of(v) for v in values])
        lift = self._form(dims, rows_of(self._run, dims))
        found, (out_dims, rest) = lift(*[frozen(top.lower(v)) for v in values])
        pairs = zip(found, out_dims, strict=True)
        return [v if d is None else BatchTracer(top, v, d) for v, d in pairs], rest

    def _of_tangents(
        self, top: JvpInterpreter, values: Arrays
    ) -> tuple[list[Any], Any]:
        kinds, given = _untangled(top, values)
        lift = self._form(kinds, tangents_of(self._run, kinds))
        found, (out_kinds, rest) = lift(*map(frozen, given))
        return _tangled(top, out_kinds, found), rest


# ---- batches ----


def rows_of(run: Run, dims: Sequence[int | None]) -> Run:
    """The function of a batch, which also says where the axis of the batch is."""

    def of_batch(*values: Any) -> tuple[list[Any], Any]:
        pairs = [*zip(values, dims, strict=True)]
        size = next(v.shape[d] for v, d in pairs if d is not None)
        with BatchInterpreter(size, "error", None) as batch:
            given = [v if d is None else BatchTracer(batch, v, d) for v, d in pairs]
            found, rest = run(*given)
            out_dims = tuple([batch.dim_of(v) for v in found])
            return [batch.lower(v) for v in found], (out_dims, rest)

    return of_batch


# ---- tangents ----

# What a value is: not of this transform, without a tangent, or with one.
_OTHER, _CONSTANT, _MOVING = "other", "constant", "moving"


def tangents_of(run: Run, kinds: Sequence[str]) -> Run:
    """The function of values and tangents, which also says which values have some."""

    def with_tangents(*values: Any) -> tuple[list[Any], Any]:
        with JvpInterpreter() as interpreter:
            found, rest = run(*_tangled(interpreter, kinds, values))
            out_kinds, given = _untangled(interpreter, found)
            return given, (out_kinds, rest)

    return with_tangents


def _untangled(
    interpreter: JvpInterpreter, values: Arrays
) -> tuple[tuple[str, ...], list[Any]]:
    """What values are; those below, and then the tangents."""
    kinds = tuple([_kind(interpreter, v) for v in values])
    pairs = zip(values, kinds, strict=True)
    tangents = [v.tangent for v, kind in pairs if kind == _MOVING]
    return kinds, [*map(interpreter.lower, values), *tangents]


def _kind(interpreter: JvpInterpreter, value: Any) -> str:
    if not isinstance(value, JvpTracer) or value.interpreter is not interpreter:
        return _OTHER
    return _CONSTANT if value.tangent is None else _MOVING


def _tangled(
    interpreter: JvpInterpreter, kinds: Sequence[str], values: Arrays
) -> list[Any]:
    """The values as they were, from those below and the tangents."""
    rest = iter(values[len(kinds) :])
    found: list[Any] = []
    for value, kind in zip(values, kinds, strict=False):
        if kind == _OTHER:
            found.append(value)
        else:
            tangent = next(rest) if kind == _MOVING else None
            found.append(JvpTracer(interpreter, value, tangent))
    return found
