"""Convert torch's symbolic sizes to those of this package, and back.

While torch traces with dynamic shapes, fake kernels get our sizes. If a fake kernel
decided a question by the values of the sizes, torch is asked the same question
afterwards, so that it adds its own guard.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from importlib import import_module
from typing import Any, Final

from customop.core.fake_context import get_ctx
from customop.interop.torch.framework import require, torch
from customop.shapes.conditions import (
    Compared,
    Condition,
    Logic,
    names_in_side,
    side_by,
)
from customop.shapes.expressions import symbol
from customop.shapes.size_context import SizeContext
from customop.shapes.symbolic import SymInt, as_side, make_int

# ---- torch's sizes in our fake kernels ----


class TorchSizes:
    """Pairs torch's sizes with ours, in one call of a fake kernel."""

    def __init__(self) -> None:
        self._context: SizeContext | None = None
        # Expression of torch -> our size, and name of our size -> torch's size.
        self._ours: dict[Any, Any] = {}
        self._torchs: dict[str, Any] = {}

    @property
    def context(self) -> SizeContext:
        """The context of our sizes, created for the first symbolic size."""
        if self._context is None:
            self._context = SizeContext()
        return self._context

    def adopt(self, context: SizeContext) -> None:
        """Use the context of another size, if there is none yet."""
        if self._context is None:
            self._context = context

    def knows(self, name: str) -> bool:
        """Return whether our size of this name has a torch size."""
        return name in self._torchs

    def pair(self, name: str, theirs: Any, ours: Any) -> None:
        """Record that a torch size and our size are the same."""
        self._torchs[name] = theirs
        self._ours[theirs.node.expr] = ours

    # ---- from torch to ours ----

    def ours(self, size: Any) -> Any:
        """Convert an int or a torch size to an int or our size."""
        if type(size) is int or not isinstance(size, torch.SymInt):
            return size
        expr = size.node.expr
        if expr.is_Integer:
            return int(expr)
        made = self.expressed(expr, size.node.shape_env)
        if expr.is_Symbol:
            self._torchs[str(made)] = size
        return made

    def expressed(self, expr: Any, shapes: Any) -> Any:
        """Return our size for a torch expression."""
        found = self._ours.get(expr)
        if found is None:
            found = self._ours[expr] = self._composed(expr, shapes)
        return found

    def _composed(self, expr: Any, shapes: Any) -> Any:
        if expr.is_Integer:
            return int(expr)
        compose = _COMPOSED.get(type(expr).__name__)
        if compose is None or (expr.is_Pow and not expr.exp.is_Integer):
            return self._symbol(expr, shapes)
        return compose(self.context, [self.expressed(a, shapes) for a in expr.args])

    def _symbol(self, expr: Any, shapes: Any) -> Any:
        """Return a new size, for a torch symbol or a torch function that we do not have."""
        bounds = shapes.bound_sympy(expr)
        low, high = max(_whole(bounds.lower, 0), 0), _whole(bounds.upper, None)
        hint = _hint(shapes, expr)
        if hint is None:
            made = self.data_size(low, high, expr)
        else:
            made = self.context.input_size(hint, str(expr), min=low, max=high)
        self._torchs[str(made)] = shapes.create_symintnode(expr, hint=hint)
        return made

    def data_size(self, low: int, high: int | None, expr: Any) -> Any:
        """Return a new size that depends on data."""
        return self.context.new_dynamic_size(low, high, f"{expr} of torch")

    # ---- from ours to torch ----

    def torchs(self, size: Any) -> Any:
        """Convert an int or our size to an int or a torch size."""
        if not isinstance(size, SymInt):
            return size
        self.adopt(size.context)
        return self._valued(size.expr)

    def _valued(self, side: Any) -> Any:
        """Compute an expression, calculation or number from torch's sizes."""
        return side_by(side, self._known, _CALCULATED.__getitem__)

    def _known(self, name: str) -> Any:
        if name not in self._torchs:
            self._torchs[name] = self._new(name)
        return self._torchs[name]

    def _new(self, name: str) -> Any:
        """Return a new torch size for a size that a fake kernel made with `get_ctx`."""
        low, high = self.context.sizes[name].bounds
        return torch.library.get_ctx().new_dynamic_size(min=low, max=high)

    # ---- guards ----

    def tell(self) -> None:
        """Ask torch the questions that the fake kernel asked, so that it adds guards."""
        if self._context is None:
            return
        for guard in self._context.guards:
            self._ask(guard.condition)
        for check in self._context.checks:
            if check.names <= self._torchs.keys():
                require(self._holds(check.condition))

    def _ask(self, condition: Condition) -> None:
        try:
            held = bool(self._holds(condition))
        except KeyError:  # a NumPy function that torch's sizes do not have
            held = True
            for name in condition.names:
                int(self._torchs[name])
        assert held, f"torch and customop disagree on {condition}"

    def _holds(self, condition: Condition) -> Any:
        if isinstance(condition, Compared):
            sides = self._valued(condition.left), self._valued(condition.right)
            return _COMPARED[condition.sign](*sides)
        assert isinstance(condition, Logic)
        join = operator.and_ if condition.sign == "and" else operator.or_
        parts: list[Any] = [self._holds(part) for part in condition.parts]
        return reduce(join, parts)


def _whole(value: Any, instead: int | None) -> Any:
    """Convert a torch bound to an int; return `instead` for infinity."""
    return int(value) if value.is_Integer and abs(value) < 2**62 else instead


def _hint(shapes: Any, expr: Any) -> int | None:
    """Return the value of a torch expression in this call; None if it is unknown."""
    if any(map(shapes.is_unbacked_symint, expr.free_symbols)):
        return None
    # The older name warns if the newer one exists.
    ask = getattr(shapes, "guarding_hint_or_throw", None) or shapes.size_hint
    return int(ask(expr))


# Class of a sympy expression -> function from our sizes of its parts to our size.
_COMPOSED: Final[Mapping[str, Callable[[SizeContext, Sequence[Any]], Any]]] = {
    "Add": lambda _, parts: reduce(operator.add, parts),
    "Mul": lambda _, parts: reduce(operator.mul, parts),
    "Pow": lambda _, parts: parts[0] ** parts[1],
    "FloorDiv": lambda _, parts: parts[0] // parts[1],
    "CleanDiv": lambda _, parts: parts[0] // parts[1],
    "Mod": lambda _, parts: parts[0] % parts[1],
    "PythonMod": lambda _, parts: parts[0] % parts[1],
    "ModularIndexing": lambda _, parts: (parts[0] // parts[1]) % parts[2],
    "Max": lambda context, parts: context.extreme("max", *parts),
    "Min": lambda context, parts: context.extreme("min", *parts),
}
_CALCULATED: Final[dict[str, Any]] = {
    "//": operator.floordiv,
    "min": lambda *parts: reduce(torch.sym_min, parts),
    "max": lambda *parts: reduce(torch.sym_max, parts),
    "+": operator.add,
    "-": lambda *parts: -parts[0] if len(parts) == 1 else parts[0] - parts[1],
    "*": operator.mul,
    "/": operator.truediv,
    "%": operator.mod,
    "**": operator.pow,
    "abs": abs,
    "sqrt": torch.sym_sqrt if hasattr(torch, "sym_sqrt") else operator.pow,
}
_COMPARED: Final[dict[str, Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


# ---- our sizes in torch's fake kernels ----
# These are used for imported operators.


class OwnSizes(TorchSizes):
    """Pairs our sizes with torch's, in one call of a torch operator on fake arrays."""

    def __init__(self) -> None:
        super().__init__()
        shapes: Any = import_module("torch.fx.experimental.symbolic_shapes")
        self.shapes: Any = shapes.ShapeEnv(specialize_zero_one=False, duck_shape=False)
        self._library = shapes

    def lent(self, size: Any) -> Any:
        """Convert an int or our size to an int or a torch size."""
        if not isinstance(size, SymInt):
            return size
        self.adopt(size.context)
        for name in sorted(names_in_side(as_side(size))):  # type: ignore[arg-type]  # of a size
            if not self.knows(name):
                self._lend(name)
        return self.torchs(size)

    def _lend(self, name: str) -> None:
        hint = self.context.sizes[name].hint
        if hint is None:
            made = self.shapes.create_unbacked_symint()
        else:
            constant: Any = import_module("torch._dynamo.source").ConstantSource(name)
            dim = self._library.DimDynamic.DYNAMIC
            found = self.shapes.create_symbol(hint, constant, dynamic_dim=dim)
            made = self.shapes.create_symintnode(found, hint=hint, source=constant)
        self.pair(name, made, make_int(self.context, symbol(name), hint))

    def data_size(self, low: int, high: int | None, expr: Any) -> Any:
        """Return a new size from the running fake kernel."""
        made = get_ctx().new_dynamic_size(low, high)
        self.adopt(made.context)
        return made

    def tell_ours(self) -> None:
        """Ask our sizes the questions that torch asked, so that the capture adds guards."""
        for guard in self.shapes.guards:
            compare = _RELATIONS.get(type(guard.expr).__name__)
            if compare is not None:
                left, right = (self.expressed(v, self.shapes) for v in guard.expr.args)
                bool(compare(left, right))


_RELATIONS: Final[dict[str, Any]] = {
    "Equality": lambda a, b: a == b,
    "Unequality": lambda a, b: a != b,
    "StrictLessThan": lambda a, b: a < b,
    "LessThan": lambda a, b: a <= b,
    "StrictGreaterThan": lambda a, b: a > b,
    "GreaterThan": lambda a, b: a >= b,
}
