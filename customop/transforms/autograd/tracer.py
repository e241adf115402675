"""The tracer of reverse mode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from customop.arrays.array import Array
from customop.arrays.describe import describe, show
from customop.arrays.kinds import is_array
from customop.core.interpreter import Interpreter
from customop.core.tracer import Tracer
from customop.errors import GradientError
from customop.transforms.autograd.node import Leaf

if TYPE_CHECKING:
    from customop.transforms.autograd.interpreter import GradInterpreter

__all__ = ["GradTracer", "end_of", "no_variable"]


class GradTracer(Tracer):
    """A value whose gradient is computed, or that depends on one.

    Attributes
    ----------
    grad : array or None
        For a `variable`: the sum of the gradients of all `backward` calls so far.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> x = co.variable(np.array([1.0, 2.0]))
    >>> y = np.sum(x * x)
    >>> isinstance(y, co.GradTracer)
    True
    >>> y.backward()
    >>> x.grad
    array([2., 4.])
    """

    __slots__ = ("node",)

    def __init__(self, interpreter: GradInterpreter, value: Any, node: Any) -> None:
        self.interpreter: Interpreter = interpreter
        self.below = value
        self.box_place: Any = None
        self.box_views: Any = None
        self.node: Any = node

    @property
    def grad(self) -> Array | None:
        """Sum of the gradients that `backward` has brought to a `variable`, or None."""
        return self.node.grad if type(self.node) is Leaf else None

    @grad.setter
    def grad(self, value: Array | None) -> None:
        if type(self.node) is not Leaf:
            raise GradientError(
                f"x.grad: {describe(self)} is not a variable, so its gradient cannot be"
                " set",
                do="set it on x = variable(a)",
            )
        if value is not None and not is_array(value):
            raise GradientError(
                f"x.grad must be an array or None, got {show(value)}",
                do="set an array of the shape of the variable, or None",
            )
        self.node.grad = value

    def backward(
        self, gradient: Array | float | None = None, *, retain_graph: bool = False
    ) -> None:
        """Add the gradient of this value to the `grad` of its variables; see `backward`.

        Parameters
        ----------
        gradient : array, optional
            Cotangent of this value; needed where it has axes.
        retain_graph : bool
            Keep the saved arrays, so that `backward` can run again.

        Examples
        --------
        >>> import numpy as np, customop as co
        >>> x = co.variable(np.array([1.0, 2.0]))
        >>> (x * x).backward(np.array([1.0, 10.0]))
        >>> x.grad
        array([ 2., 40.])
        """
        interpreter: Any = self.interpreter  # a GradInterpreter
        interpreter.backward(self, gradient, retain_graph)


def end_of(value: Any, interpreter: Interpreter) -> Any:
    """The node that made a tracer of this interpreter; None for other values."""
    mine = isinstance(value, GradTracer) and value.interpreter is interpreter
    return value.node if mine else None


def no_variable(y: Any) -> GradientError:
    """The error for `backward` of a value that depends on no variable."""
    return GradientError(
        f"backward: {show(y)} depends on no variable",
        do="compute it from x = variable(a), outside no_grad()",
    )
