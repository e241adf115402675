"""Symbolic sizes of torch as those of this package, and back.

While torch traces with dynamic shapes, fake kernels get sizes of ours. A question that a
fake kernel decided by the values of the sizes is asked of torch afterwards, which makes
torch's own guard of it.
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
    Calculation,
    Compared,
    Condition,
    Logic,
    names_in_side,
)
from customop.shapes.expressions import Atom, Expr, Factor, symbol
from customop.shapes.size_context import SizeContext
from customop.shapes.symbolic import SymInt, as_side, make_int

# ---- symbolic sizes of torch as those of this package, and back ----


class TorchSizes:
    """The sizes of one call of a fake kernel, in both libraries."""

    def __init__(self) -> None:
        self._context: SizeContext | None = None
        # Expression of torch -> our size; name of ours -> torch's size.
        self._ours: dict[Any, Any] = {}
        self._torchs: dict[str, Any] = {}

    @property
    def context(self) -> SizeContext:
        """Our sizes, made when the first symbolic one is met."""
        if self._context is None:
            self._context = SizeContext()
        return self._context

    def adopt(self, context: SizeContext) -> None:
        """Take the sizes of another call as ours, if there are none yet."""
        if self._context is None:
            self._context = context

    def knows(self, name: str) -> bool:
        """Whether a name of ours has a size of torch."""
        return name in self._torchs

    def pair(self, name: str, theirs: Any, ours: Any) -> None:
        """Take a size of torch and one of ours as the same."""
        self._torchs[name] = theirs
        self._ours[theirs.node.expr] = ours

    # ---- torch's as ours ----

    def ours(self, size: Any) -> Any:
        """An int or size of torch as an int or size of ours."""
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
        """Our size of an expression of torch."""
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
        """A new size of ours, for a symbol of torch or a function that we do not have."""
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
        """A new size of ours that depends on data."""
        return self.context.new_dynamic_size(low, high, f"{expr} of torch")

    # ---- ours as torch's ----

    def torchs(self, size: Any) -> Any:
        """An int or size of ours as an int or size of torch."""
        if not isinstance(size, SymInt):
            return size
        self.adopt(size.context)
        return self._valued(size.expr)

    def _valued(self, side: Any) -> Any:
        """An expression, calculation or number with torch's sizes for its names."""
        if isinstance(side, Expr):
            terms = [
                reduce(operator.mul, map(self._factor, monomial), c)
                for monomial, c in side.terms.items()
            ]
            return reduce(operator.add, terms)
        if isinstance(side, Calculation):
            return _CALCULATED[side.name](*map(self._valued, side.parts))
        return side

    def _factor(self, factor: Factor) -> Any:
        if isinstance(factor, Atom):
            return _ATOMS[factor.sign](*map(self._valued, factor.parts))
        if factor not in self._torchs:
            self._torchs[factor] = self._new(factor)
        return self._torchs[factor]

    def _new(self, name: str) -> Any:
        """A new size of torch for one that a fake kernel has made with `get_ctx`."""
        low, high = self.context.sizes[name].bounds
        return torch.library.get_ctx().new_dynamic_size(min=low, max=high)

    # ---- what was asked ----

    def tell(self) -> None:
        """Ask torch what the fake kernel asked, so that it makes guards of it."""
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
        except KeyError:  # a function of NumPy that torch's sizes do not have
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
    """A bound of torch as an int; infinity is none."""
    return int(value) if value.is_Integer and abs(value) < 2**62 else instead


def _hint(shapes: Any, expr: Any) -> int | None:
    """The value that an expression of torch has in this call; None if it has none."""
    if any(map(shapes.is_unbacked_symint, expr.free_symbols)):
        return None
    # The older of the two names warns where there is the newer one.
    ask = getattr(shapes, "guarding_hint_or_throw", None) or shapes.size_hint
    return int(ask(expr))


# Class of a sympy expression -> our size of its parts.
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
_ATOMS: Final[dict[str, Any]] = {
    "//": operator.floordiv,
    "min": lambda *parts: reduce(torch.sym_min, parts),
    "max": lambda *parts: reduce(torch.sym_max, parts),
}
_CALCULATED: Final[dict[str, Any]] = {
    **_ATOMS,
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


# ---- own sizes ----
# Our symbolic sizes as torch's, and back, for fake kernels of imported operators.


class OwnSizes(TorchSizes):
    """The sizes of one call of an operator of torch on our fake arrays."""

    def __init__(self) -> None:
        super().__init__()
        shapes: Any = import_module("torch.fx.experimental.symbolic_shapes")
        self.shapes: Any = shapes.ShapeEnv(specialize_zero_one=False, duck_shape=False)
        self._library = shapes

    def lent(self, size: Any) -> Any:
        """An int or size of ours as an int or size of torch."""
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
        """A new size of the fake kernel that runs."""
        made = get_ctx().new_dynamic_size(low, high)
        self.adopt(made.context)
        return made

    def tell_ours(self) -> None:
        """Ask our sizes what torch asked, so that the capture makes guards of it."""
        for guard in self.shapes.guards:
            compare = _OWN_SIZES_COMPARED.get(type(guard.expr).__name__)
            if compare is not None:
                left, right = (self.expressed(v, self.shapes) for v in guard.expr.args)
                bool(compare(left, right))


_OWN_SIZES_COMPARED: Final[dict[str, Any]] = {
    "Equality": lambda a, b: a == b,
    "Unequality": lambda a, b: a != b,
    "StrictLessThan": lambda a, b: a < b,
    "LessThan": lambda a, b: a <= b,
    "StrictGreaterThan": lambda a, b: a > b,
    "GreaterThan": lambda a, b: a >= b,
}
