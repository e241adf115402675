"""Convert JAX's symbolic sizes to those of this package, and back.

``jax.export`` traces a program for arrays of any size. Fake kernels then get named sizes of
ours, and JAX is asked what they do not know of them.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import reduce
from typing import Any, Final

import jax
import numpy as np
from jax.core import max_dim, min_dim
from jax.errors import InconclusiveDimensionOperation

from customop.arrays.fake import FakeArray
from customop.errors import ArgumentError, DataDependentError, SizeError
from customop.shapes.conditions import (
    Calculation,
    Compared,
    Condition,
    Logic,
    side_by,
)
from customop.shapes.expressions import Expr
from customop.shapes.size_context import SizeContext
from customop.shapes.sizes import Symbolic


def has_symbols(shapes: Iterable[Iterable[Any]]) -> bool:
    """Return whether the length of some axis is symbolic."""
    return any(type(n) is not int for shape in shapes for n in shape)


class JaxSizes:
    """Pairs JAX's sizes with ours, in one call of a fake kernel."""

    def __init__(self) -> None:
        self.context: SizeContext = _AskingContext(self)
        # Name -> JAX's size, and ours.
        self._jaxs: dict[str, Any] = {}
        self._ours: dict[str, Any] = {}

    # ---- from JAX to ours ----

    def fakes(self, types: Iterable[tuple[Any, Any]]) -> list[FakeArray]:
        """Return arrays without data for shapes of JAX and dtypes."""
        return [FakeArray([*map(self.ours, shape)], dtype) for shape, dtype in types]

    def ours(self, size: Any) -> Any:
        """Convert an int or a size of JAX to an int or our size."""
        if not jax.export.is_symbolic_dim(size):
            return size
        tree = ast.parse(str(size).replace("^", "**"), mode="eval")
        return self._read(tree.body, size.scope)

    def _read(self, tree: Any, scope: Any) -> Any:
        if isinstance(tree, ast.Constant):
            return tree.value
        if isinstance(tree, ast.Name):
            return self._named(tree.id, scope)
        if isinstance(tree, ast.UnaryOp):
            return -self._read(tree.operand, scope)
        if isinstance(tree, ast.BinOp):
            sides = self._read(tree.left, scope), self._read(tree.right, scope)
            return _SIGNS[type(tree.op)](*sides)
        parts = [self._read(part, scope) for part in tree.args]
        return _CALLS[tree.func.id](self.context, parts)

    def _named(self, name: str, scope: Any) -> Any:
        if name not in self._ours:
            (size,) = jax.export.symbolic_shape(name, scope=scope)
            low = _least(size)
            self._jaxs[name] = size
            self._ours[name] = self.context.input_size(
                low + 6, f"{name} of JAX", name, low
            )
        return self._ours[name]

    # ---- from ours to JAX ----

    def jaxs(self, size: Any) -> Any:
        """Convert a number or our size to a number or a size of JAX."""
        if not isinstance(size, Symbolic):
            return size
        return self._valued(getattr(size, "expr", None) or size.side)  # type: ignore[attr-defined]  # of every number

    def _valued(self, side: Any) -> Any:
        """Compute an expression, calculation or number from JAX's sizes."""
        return side_by(side, self._known, _operation)

    def _known(self, name: str) -> Any:
        if name not in self._jaxs:
            raise DataDependentError(
                f"the size {name} depends on the values of arrays, and JAX must know"
                " shapes before it has values",
                do="give results whose lengths follow from those of the arguments",
            )
        return self._jaxs[name]

    # ---- questions ----

    def known(self, condition: Condition) -> bool | None:
        """Return whether JAX knows that a condition holds, or that it does not."""
        try:
            return bool(self._holds(condition))
        except InconclusiveDimensionOperation:
            return None

    def _holds(self, condition: Condition) -> bool:
        if isinstance(condition, Compared):
            if not (_is_whole(condition.left) and _is_whole(condition.right)):
                raise InconclusiveDimensionOperation("JAX compares whole numbers alone")
            if condition.sign in ("==", "!="):
                # JAX says that sizes differ where it does not know it.
                return self._equal(condition) is (condition.sign == "==")
            sides = self._valued(condition.left), self._valued(condition.right)
            return bool(_COMPARED[condition.sign](*sides))
        assert isinstance(condition, Logic)
        join = all if condition.sign == "and" else any
        return join([self._holds(part) for part in condition.parts])

    def _equal(self, condition: Compared) -> bool:
        difference = self._valued(condition.left) - self._valued(condition.right)
        if type(difference) is int:
            return difference == 0
        if difference >= 0 and difference <= 0:
            return True
        # One of these is True, or it raises.
        return not (difference > 0 or difference < 0)

    @contextmanager
    def asking(self, name: str) -> Iterator[None]:
        """Raise for a question about sizes that has no answer for all of them."""
        try:
            yield
        except SizeError as error:
            raise self._undecided(name, error.what) from error
        asked = [*self.context.guards, *self.context.checks]
        if asked:
            raise self._undecided(name, f"{asked[0].text} is needed")

    def _undecided(self, name: str, what: str) -> ArgumentError:
        names = ", ".join(self._jaxs)
        return ArgumentError(
            f"{name}, traced for all sizes: {what}",
            do="say what holds of the sizes:"
            f' jax.export.symbolic_shape("{names}", constraints=["..."]); or export the'
            " program for fixed sizes, once for each",
        )


class _AskingContext(SizeContext):
    """The sizes of a call, about which JAX is asked too."""

    def __init__(self, sizes: JaxSizes) -> None:
        super().__init__()
        self._sizes = sizes

    def known(self, condition: Condition) -> bool | None:
        """Return whether a condition always holds; False for never, else None."""
        found = super().known(condition)
        return self._sizes.known(condition) if found is None else found


def _least(size: Any) -> int:
    """Return the least value that JAX knows of a size, of some 100,000."""
    low, step = 1, 1 << 16
    while step:
        with suppress(InconclusiveDimensionOperation):
            low += step * bool(size >= low + step)
        step >>= 1
    return low


_SIGNS: Final[dict[type, Callable[[Any, Any], Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Pow: operator.pow,
}
_CALLS: Final[dict[str, Callable[[SizeContext, Sequence[Any]], Any]]] = {
    "floordiv": lambda _, parts: parts[0] // parts[1],
    "mod": lambda _, parts: parts[0] % parts[1],
    "max": lambda context, parts: context.extreme("max", *parts),
    "min": lambda context, parts: context.extreme("min", *parts),
}
_OPERATIONS: Final[dict[str, Callable[..., Any]]] = {
    "+": operator.add,
    "-": lambda *parts: -parts[0] if len(parts) == 1 else parts[0] - parts[1],
    "*": operator.mul,
    "//": operator.floordiv,
    "%": operator.mod,
    "/": lambda a, b: _real(a) / _real(b),
    "**": lambda a, b: _real(a) ** _real(b),
    "min": lambda *parts: reduce(min_dim, parts),
    "max": lambda *parts: reduce(max_dim, parts),
}


_WHOLE: Final = frozenset(("+", "-", "*", "//", "%", "min", "max"))


def _is_whole(side: Any) -> bool:
    """Return whether a side of a condition is a size of JAX or an int."""
    if isinstance(side, Calculation):
        return side.name in _WHOLE and all(map(_is_whole, side.parts))
    return isinstance(side, (int, Expr))


def _operation(name: str) -> Callable[..., Any]:
    """Return a calculation; those without a sign are functions of NumPy."""
    found = _OPERATIONS.get(name)
    if found is not None:
        return found
    function = getattr(jax.numpy, name)
    return lambda *parts: function(*map(_real, parts))


def _real(size: Any) -> Any:
    return jax.numpy.asarray(size, np.float64)


_COMPARED: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
