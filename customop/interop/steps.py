"""Derivatives and batches of an operator as functions of flat lists of arrays.

Other frameworks ask for the gradient of an operator, for the gradient of that gradient,
for a batch of it, and so on. Each of these is the previous function under one more
transform of this package, which is described by a `Step`. A bridge stores the steps of
a call next to its arrays: as text for a torch operator, as a comparable value for a JAX
primitive. So one extra operator in the framework can run any steps, in any order and
number.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np

from customop.arrays.array import is_inexact
from customop.arrays.numpy_functions import call_numpy
from customop.core.interpreter import Mode
from customop.core.rule_kind import RuleKind
from customop.core.table import RuleTable
from customop.transforms.autograd.reverse import GradInterpreter
from customop.transforms.autograd.sweep import sweep
from customop.transforms.autograd.tape import end_of
from customop.transforms.jvp import jvp
from customop.transforms.values import Fresh
from customop.transforms.vmap import vmap

Arrays = Sequence[Any]


class Pull(NamedTuple):
    """Reverse mode: gradients of inputs. The last arguments are the gradients of outputs.

    Attributes
    ----------
    wanted : tuple of int
        Inputs whose gradients are returned.
    outputs : tuple of int
        Outputs whose gradients are passed.
    known : int
        How many results of the operator are passed before the gradients. If they are,
        the operator does not run again.
    is_conjugate : bool
        Whether gradients are the complex conjugates of ours, as in torch.
    is_dense : bool
        Whether a missing gradient is an array of zeros instead of None.
    """

    wanted: tuple[int, ...]
    outputs: tuple[int, ...]
    known: int = 0
    is_conjugate: bool = False
    is_dense: bool = False


class Push(NamedTuple):
    """Forward mode: tangents of outputs. The last arguments are the tangents of inputs.

    Attributes
    ----------
    moving : tuple of int
        Inputs whose tangents are passed.
    is_dense : bool
        Whether results that cannot have a tangent, such as integers, are left out. If
        not, their tangents are None.
    """

    moving: tuple[int, ...]
    is_dense: bool = False


class Batch(NamedTuple):
    """A batch of calls. Every result has the axis of the batch in front.

    Attributes
    ----------
    axes : tuple of int or None
        The axis of the batch in each input.
    randomness : str
    """

    axes: tuple[int | None, ...]
    randomness: str = "error"


Step = Pull | Push | Batch
_CLASSES: dict[str, Any] = {cls.__name__: cls for cls in (Pull, Push, Batch)}


@lru_cache(maxsize=4096)
def text_of_steps(steps: tuple[Step, ...]) -> str:
    """Write steps as text."""
    return json.dumps([(type(step).__name__, *step) for step in steps])


@lru_cache(maxsize=4096)
def steps_of(text: str) -> tuple[Step, ...]:
    """Read steps from text."""
    return tuple(
        _CLASSES[name](*[tuple(p) if isinstance(p, list) else p for p in parts])
        for name, *parts in json.loads(text)
    )


def run_steps(
    steps: Sequence[Step],
    call: Callable[[Arrays], list[Any]],
    arrays: Arrays,
    op: RuleTable | None = None,
) -> list[Any]:
    """Run an operator, or another function, under some steps.

    Parameters
    ----------
    steps : sequence of Step
        The steps, from the innermost to the outermost.
    call : callable
        Calls the operator with its arrays; returns a list of the arrays of its result.
    arrays : sequence of array or None
        The arrays of the call, then those that each step adds.
    op : Operator, optional
        The operator whose results are passed to a `Pull`.

    Returns
    -------
    list of array or None
    """
    if not steps:
        return call(arrays)
    *before, step = steps

    def inner(given: Arrays) -> list[Any]:
        return run_steps(before, call, given, op)

    if isinstance(step, Pull):
        return _pulled(inner, step, arrays, op)
    if isinstance(step, Push):
        return _pushed(inner, step, arrays)
    return _batched(inner, step, arrays)


class _Known(Mode):
    """Answers the first call of an operator with results that are already known."""

    kind: ClassVar[RuleKind] = RuleKind("known")

    def __init__(self, op: RuleTable, results: Arrays) -> None:
        super().__init__()
        self._op: RuleTable | None = op
        self._results = results

    def process(self, op: RuleTable, args: Sequence[Any]) -> Any:
        """Return the known results for the first call of the operator; run any other call."""
        if op is not self._op:
            return op.invoke(args)
        self._op = None
        return tuple(self._results) if op.schema.is_tuple else self._results[0]


def _pulled(
    inner: Callable[[Arrays], list[Any]],
    step: Pull,
    arrays: Arrays,
    op: RuleTable | None,
) -> list[Any]:
    count = len(arrays) - len(step.outputs) - step.known
    primals = list(arrays[:count])
    known = arrays[count : count + step.known]
    conjugate = _conjugate if step.is_conjugate else _same
    cotangents = [conjugate(g) for g in arrays[count + step.known :]]
    # The mode is opened first, so the gradient has the higher level and comes first.
    with _Known(op, known) if op is not None and known else nullcontext():
        interpreter = GradInterpreter()
        tracers = {i: interpreter.variable(primals[i]) for i in step.wanted}
        nodes = {i: tracer.node for i, tracer in tracers.items()}
        for i, tracer in tracers.items():
            primals[i] = tracer
        with interpreter:
            results = inner(primals)
    chosen = [results[i] for i in step.outputs]
    # A framework without 64-bit numbers passes 32-bit cotangents.
    cotangents = [_like(g, y) for g, y in zip(cotangents, chosen, strict=True)]
    pairs = zip([end_of(y, interpreter) for y in chosen], cotangents, strict=True)
    found = sweep([(end, g) for end, g in pairs if end is not None], retain=False)
    fresh = Fresh(*cotangents)
    grads = {i: found.get(nodes[i]) for i in step.wanted}
    return [
        (call_numpy(np.zeros_like, arrays[i]) if step.is_dense else None)
        if g is None
        else conjugate(fresh(g))
        for i, g in grads.items()
    ]


def _conjugate(value: Any) -> Any:
    return call_numpy(np.conj, value) if value.dtype.kind == "c" else value


def _same(value: Any) -> Any:
    return value


def _like(cotangent: Any, result: Any) -> Any:
    is_same = cotangent.dtype == result.dtype
    return cotangent if is_same else cotangent.astype(result.dtype)


def _pushed(
    inner: Callable[[Arrays], list[Any]], step: Push, arrays: Arrays
) -> list[Any]:
    count = len(arrays) - len(step.moving)
    primals, tangents = list(arrays[:count]), arrays[count:]
    moves: list[bool] = []

    def of_moving(*moving: Any) -> tuple[Any, ...]:
        for i, value in zip(step.moving, moving, strict=True):
            primals[i] = value
        results = inner(primals)
        moves[:] = [r is not None and is_inexact(r.dtype) for r in results]
        return tuple(r for r, m in zip(results, moves, strict=True) if m)

    moving = tuple(primals[i] for i in step.moving)
    push: Any = jvp  # its overloads do not cover tuples of any length
    found = iter(push(of_moving, moving, tuple(tangents))[1])
    return [next(found) if m else None for m in moves if m or not step.is_dense]


def _batched(
    inner: Callable[[Arrays], list[Any]], step: Batch, arrays: Arrays
) -> list[Any]:
    randomness: Any = step.randomness  # one of three words, the same as in torch

    def batch(fn: Any, axes: tuple[int | None, ...], rows: Arrays) -> Any:
        return vmap(fn, in_dims=axes, randomness=randomness)(*rows)

    return over_given(inner, step.axes, arrays, batch)


def over_given(
    inner: Callable[[Arrays], list[Any]],
    axes: Sequence[int | None],
    arrays: Arrays,
    batch: Callable[[Any, tuple[int | None, ...], Arrays], Any],
) -> list[Any]:
    """Batch a function whose arguments and results may be None. None has no rows.

    Parameters
    ----------
    inner : callable
        The function; takes and returns lists.
    axes : sequence of int or None
        The axis of the batch in each argument.
    arrays : sequence of array or None
    batch : callable
        ``batch(fn, axes, arrays)`` returns the results for all rows. Arguments and
        results of `fn` are arrays, never None.
    """
    given = [i for i, value in enumerate(arrays) if value is not None]
    has_value: list[bool] = []

    def of_rows(*rows: Any) -> tuple[Any, ...]:
        all_rows: list[Any] = [None] * len(arrays)
        for i, row in zip(given, rows, strict=True):
            all_rows[i] = row
        results = inner(all_rows)
        has_value[:] = [r is not None for r in results]
        return tuple(r for r in results if r is not None)

    chosen = tuple([axes[i] for i in given])
    found = iter(batch(of_rows, chosen, [arrays[i] for i in given]))
    return [next(found) if has else None for has in has_value]
