"""A value that a graph computes, as a program sees it while it is captured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from customop.arrays.describe import describe
from customop.core.interpreter import Interpreter
from customop.core.tracer import Tracer
from customop.errors import DataDependentError, GraphError, caller_place
from customop.graph.node import CALL, CONSTANT, PLACEHOLDER, Node
from customop.library.ops import ops
from customop.transforms.autograd.tracer import GradTracer

__all__ = ["GraphTracer"]

_OUTSIDE = "variables that were made outside of it are constants of the graph"


class GraphTracer(Tracer):
    """A value that a graph computes.

    Attributes
    ----------
    node : Node
        The node that has the value.

    Examples
    --------
    >>> import numpy as np, customop as co
    >>> def f(x):
    ...     y = np.sin(x)
    ...     print(type(y).__name__, y.shape, y.node)
    ...     return y
    >>> graph = co.make_fx(f)(np.zeros(3))
    GraphTracer (3,) sin
    """

    __slots__ = ("node",)
    is_concrete = False

    def __init__(self, interpreter: Interpreter, value: Any, node: Node) -> None:
        self.interpreter: Interpreter = interpreter
        self.below: Any = value
        self.box_place: Any = None
        self.box_views: Any = None
        self.node: Node = node

    def __bool__(self) -> bool:
        raise self._lost(
            "bool() of",
            "cond(pred, f, g, *operands) or np.where(mask, a, b) in place of a branch",
        )

    def backward(self, gradient: Any = None) -> NoReturn:
        """Refused: a value of variables made in the capture is not one of the graph."""
        trace: Any = self.interpreter
        known = [v for v in trace.graph.constants.values() if type(v) is GradTracer]
        outside = " that was made in the function" if known else ""
        do = "make variables in the function, w = variable(w), or capture make_fx(grad(f))"
        if known:
            do = (
                "pass their arrays as arguments, and make the variables in the function:"
                " w = variable(w)"
            )
        raise GraphError(
            f"backward() of {describe(self)}, a value of {trace.describe()}, which depends"
            f" on no variable{outside}",
            f"at {caller_place()}",
            *([_OUTSIDE] if known else []),
            do=do,
        )

    def _refused(self, asked: str, instead: str) -> DataDependentError:
        return DataDependentError(
            f"{asked} {describe(self)}, a value of {self.interpreter.describe()}",
            f"asked at {caller_place()}",
            "every later run of the graph would use the value of this one",
            do=f"use {instead}",
        )


def _noted(name: str, text: str, ufunc: str) -> Callable[..., Any]:
    """The method of an operator of Python, which notes in the node that it was called.

    NumPy's scalars have arithmetic of their own: ``a ** b`` may differ in the last bit
    from np.power(a, b), and warns of "scalar power"; ``a < b`` never warns.
    """
    usual = getattr(Tracer, name)

    def method(self: GraphTracer, *others: Any) -> Any:
        out = usual(self, *others)
        trace: Any = self.interpreter
        if self.shape or trace.settings is None:
            return out
        if type(out) is not GraphTracer or out.shape:
            return out
        node = out.node
        is_own = node.op == CALL and node.target.qualname == ufunc
        if is_own and all(map(_is_as_in_graph, (self, *others))):
            node.meta["written"] = text
        return out

    return method


def _is_as_in_graph(value: Any) -> bool:
    """Whether a value without axes is a scalar, or an array, where the graph runs too.

    Calls give scalars, but for the copies of arrays without axes that were written.
    """
    if not isinstance(value, GraphTracer) or value.box_is_scalar:
        return True
    node = value.node
    return node.op in (CONSTANT, PLACEHOLDER) or node.target is ops.np.copy.default


# Methods, their text in code, and the operators that they call.
_WRITTEN = (
    *(
        ((f"__{name}__", f"__r{name}__"), f"{{0}} {symbol} {{1}}", ufunc)
        for name, symbol, ufunc in (
            *(("add", "+", "add"), ("sub", "-", "subtract"), ("mul", "*", "multiply")),
            *(("truediv", "/", "divide"), ("floordiv", "//", "floor_divide")),
            *(("mod", "%", "remainder"), ("pow", "**", "power")),
        )
    ),
    *(
        ((f"__{name}__",), f"{{0}} {symbol} {{1}}", ufunc)
        for name, symbol, ufunc in (
            *(("lt", "<", "less"), ("le", "<=", "less_equal"), ("eq", "==", "equal")),
            *(("gt", ">", "greater"), ("ge", ">=", "greater_equal")),
            ("ne", "!=", "not_equal"),
        )
    ),
    (("__neg__",), "-{0}", "negative"),
    (("__abs__",), "{0}.__abs__()", "absolute"),
)
for _names, _text, _ufunc in _WRITTEN:
    for _name in _names:
        setattr(GraphTracer, _name, _noted(_name, _text, f"np::{_ufunc}"))
