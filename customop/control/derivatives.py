"""Derivatives of the graphs in operators of control flow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from customop.arrays.dtypes import is_inexact
from customop.arrays.numpy_functions import call_numpy
from customop.control.bodies import Body, FromOutside
from customop.graph.module import GraphModule
from customop.graph.passes.halves import Halves, split
from customop.transforms.autograd.grad import pull_back
from customop.transforms.autograd.interpreter import GradInterpreter
from customop.transforms.jvp import jvp

__all__ = ["halves_of", "pushed", "where", "zeros_like"]

Arrays = Sequence[Any]


def where(flags: Iterable[bool], values: Iterable[Any]) -> list[Any]:
    """The values whose flags are true."""
    return [v for v, flag in zip(values, flags, strict=True) if flag]


def replaced(values: Arrays, flags: Sequence[bool], others: Arrays) -> list[Any]:
    """Values with others in the places whose flags are true."""
    new = iter(others)
    return [next(new) if flag else v for v, flag in zip(values, flags, strict=True)]


def zeros_like(value: Any) -> Any:
    """Zeros of the shape and dtype of an array of any kind."""
    return call_numpy(np.zeros_like, value)


def pushed(
    fn: Callable[..., Any], primals: Arrays, tangents: Arrays
) -> tuple[list[Any], list[Any]]:
    """Outputs and tangents of a function of arrays; a tangent may be None for zero."""
    moving = [t is not None for t in tangents]

    def of(*moved: Any) -> list[Any]:
        return [*fn(*replaced(primals, moving, moved))]

    push: Any = jvp
    outputs, found = push(
        of, tuple(where(moving, primals)), (*where(moving, tangents),)
    )
    pairs = zip(outputs, found, strict=True)
    return outputs, [t if is_inexact(y.dtype) else None for y, t in pairs]


def halves_of(
    module: GraphModule,
    moving: Sequence[bool],
    outputs: Sequence[bool],
    *,
    recomputes: bool = False,
) -> Halves:
    """Forward and backward graphs of a graph.

    The backward graph takes cotangents of the `outputs` that are flagged, and returns
    gradients of the inputs that move. Both take generators as the last of their inputs.
    """
    joint = _joint(module, moving, outputs)
    return split(joint, len(moving), len(outputs), recomputes=recomputes)


def _joint(
    module: GraphModule, moving: Sequence[bool], outputs: Sequence[bool]
) -> GraphModule:
    """A graph of inputs and cotangents to outputs and gradients."""
    count = len(moving)

    def run(_: Any, arrays: list[Any]) -> list[Any]:
        given, cotangents = arrays[:count], arrays[count:]

        def of(*moved: Any) -> list[Any]:
            return [*module(*replaced(given, moving, moved))]

        interpreter = GradInterpreter()
        interpreter.title = module.__name__
        found, pullback, _ = pull_back(interpreter, of, (*where(moving, given),))
        seeds = replaced([*map(zeros_like, found)], outputs, cotangents)
        return [*found, *pullback(seeds)]

    leaves = module.graph.output_node.args[0]
    values = [node.meta["val"] for node in module.inputs]
    values += [node.meta["val"] for node in where(outputs, leaves)]
    body = Body("grad", "gradient", module, run, values)
    return body.module(FromOutside(), body.outputs)
