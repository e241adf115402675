"""Programs by PyTensor; imported only where it is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from timing import Statement

__all__ = ["gradient", "new_chain", "new_gradient"]

Program = Callable[[Any], Callable[[Any], Any]]


class Sine(Op):
    """A custom operator with a gradient."""

    __props__ = ()

    def make_node(self, x: Any) -> Any:
        """The result has the type of the argument."""
        return Apply(self, [pt.as_tensor(x)], [pt.as_tensor(x).type()])

    def perform(self, node: Any, inputs: Any, outputs: Any) -> None:
        """The kernel."""
        outputs[0][0] = np.sin(inputs[0])

    def pullback(self, inputs: Any, outputs: Any, cotangents: Any) -> Any:
        """The backward formula."""
        return [cotangents[0] * pt.cos(inputs[0])]


def _function(program: Program, x: Any) -> Any:
    leaves = x if isinstance(x, list) else [x]
    given = [pt.tensor(dtype=v.dtype.name, shape=(None,) * v.ndim) for v in leaves]
    value = program(pt)(given if isinstance(x, list) else given[0])
    return pytensor.function(given, pytensor.grad(value, given))


def gradient(program: Program, x: Any) -> Statement:
    """The compiled gradient of a program."""
    fn = _function(program, x)
    leaves = x if isinstance(x, list) else [x]
    fn(*leaves)
    return Statement("fn(*x)", {"fn": fn, "x": leaves})


def new_gradient(program: Program, x: Any) -> Statement:
    """Compiling the gradient of a program, and one call."""
    names = {"make": _function, "program": program, "x": x}
    return Statement("make(program, x)(x)", names)


def new_chain(count: int, x: Any) -> Statement:
    """The same of a chain of custom operators."""
    sine = Sine()

    def program(xp: Any) -> Callable[[Any], Any]:
        def chain(x: Any) -> Any:
            for _ in range(count):
                x = sine(x)
            return xp.sum(x)

        return chain

    return new_gradient(program, x)
