"""The cost of a node: operations where a formula is known, else elements of its result.

Symbolic sizes count as in the call that was captured, and as 2 where that is not known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from customop.arrays.kinds import is_array
from customop.arrays.nested import flat
from customop.graph.node import CALL, Node
from customop.shapes.sizes import is_symbolic, typical
from customop.shapes.symbolic import SymInt

__all__ = ["Cost", "bytes_of", "cost_of", "is_estimate"]


class Cost(NamedTuple):
    """The cost of a node.

    Attributes
    ----------
    number : int
    is_flops : bool
        Whether it counts additions and multiplications of numbers; else elements.
    """

    number: int
    is_flops: bool


def cost_of(node: Node) -> Cost:
    """The cost of a node; inputs, constants and parts of results are free."""
    if node.op != CALL:
        return Cost(0, is_flops=False)
    out = node.meta.get("val")
    formula = _FORMULAS.get(node.target.qualname)
    if formula is not None:
        try:
            found = formula(_CostedCall(node))
        except (LookupError, ValueError):  # without the facts that it needs
            found = None
        if found is not None:
            return Cost(int(found), is_flops=True)
    return Cost(sum(math.prod(shape_of(x)) for x in _arrays(out)), is_flops=False)


def bytes_of(val: Any) -> int:
    """The bytes of the arrays in a value."""
    arrays = _arrays(val)
    return sum(math.prod(shape_of(x)) * int(x.dtype.itemsize) for x in arrays)


def is_estimate(val: Any) -> bool:
    """Whether a value has symbolic sizes, for which a number is put in."""
    return any(is_symbolic(x.shape) for x in _arrays(val))


def _arrays(val: Any) -> list[Any]:
    return [leaf for leaf in flat(val) if is_array(leaf)]


def shape_of(x: Any) -> tuple[int, ...]:
    """Lengths of the axes as numbers."""
    return tuple([_number(length) for length in x.shape])


def _number(length: Any) -> int:
    if type(length) is not SymInt:
        return int(length)
    return typical(length) if length.hint is None else int(length.hint)


# ---- formulas ----


class _CostedCall:
    """The arguments of a call, with what is known of their arrays."""

    def __init__(self, node: Node) -> None:
        self.values: list[Any] = node.values()
        self.out: Any = node.meta.get("val")

    def array(self, value: Any) -> Any:
        """An argument as an array; raise LookupError for any other value."""
        found = value.meta.get("val") if isinstance(value, Node) else value
        if not is_array(found):
            raise LookupError
        return found

    def shape(self, position: int) -> tuple[int, ...]:
        """The shape of an argument."""
        return shape_of(self.array(self.values[position]))

    @property
    def results(self) -> list[Any]:
        """The arrays of the result."""
        return _arrays(self.out)

    @property
    def factor(self) -> int:
        """Operations on real numbers for one multiplication and one addition."""
        return 8 if any(x.dtype.kind == "c" for x in self.results) else 2

    @property
    def stacked(self) -> int:
        """The number of matrices in the first argument."""
        return math.prod(self.shape(0)[:-2])


def _elements(call: _CostedCall) -> int:
    """One operation for each element of the result."""
    return math.prod(shape_of(call.results[0]))


def _elements_or_parts(complex_parts: int) -> Callable[[_CostedCall], int]:
    """As `_elements`, where complex numbers take more operations."""

    def count(call: _CostedCall) -> int:
        is_complex = call.results[0].dtype.kind == "c"
        return _elements(call) * (complex_parts if is_complex else 1)

    return count


def _inputs(call: _CostedCall) -> int:
    """One operation for each element of the argument."""
    return math.prod(call.shape(0))


def _matmul(call: _CostedCall) -> int:
    return call.factor * _elements(call) * call.shape(0)[-1]


def _tensordot(call: _CostedCall) -> int:
    axes: list[int] = call.values[2]
    return call.factor * _elements(call) * math.prod(call.shape(0)[n] for n in axes)


def _einsum(call: _CostedCall) -> int:
    inputs = call.values[0].replace(" ", "").partition("->")[0].split(",")
    lengths: dict[str, int] = {}
    rest = 1
    for letters, value in zip(inputs, call.values[1], strict=True):
        shape = shape_of(call.array(value))
        before, dots, after = letters.partition("...")
        if dots:
            end = len(shape) - len(after)
            rest = max(rest, math.prod(shape[len(before) : end]))
            shape = shape[: len(before)] + shape[end:]
        for letter, length in zip(before + after, shape, strict=True):
            lengths[letter] = max(lengths.get(letter, 1), length)
    return max(len(inputs), 1) * call.factor // 2 * math.prod(lengths.values()) * rest


def _convolve(call: _CostedCall) -> int:
    return call.factor * math.prod(call.shape(0)) * math.prod(call.shape(1))


def _fourier(call: _CostedCall, each: float, shape: Sequence[int]) -> float:
    """Source: the count of benchFFT, 5 n log2(n) operations for n complex numbers."""
    number = math.prod(shape)
    return each * number * math.log2(max(number, 2))


def _matrices(cube: float) -> Callable[[_CostedCall], float]:
    """So many operations for the cube of n, for each matrix of shape (n, n).

    Source: Golub and Van Loan, Matrix computations, 4th ed., tables of chapters 3 to 8.
    """

    def count(call: _CostedCall) -> float:
        return cube * call.factor / 2 * call.shape(0)[-1] ** 3 * call.stacked

    return count


def _rectangles(square: float, cube: float) -> Callable[[_CostedCall], float]:
    """So many operations for m n^2 and for n^3, where n is the shorter side."""

    def count(call: _CostedCall) -> float:
        n, m = sorted(call.shape(0)[-2:])
        return call.factor / 2 * (square * m * n**2 + cube * n**3) * call.stacked

    return count


def _solve(call: _CostedCall) -> float:
    n, columns = call.shape(0)[-1], math.prod(call.shape(1)[-1:])
    return call.factor / 2 * (2 / 3 * n**3 + 2 * n**2 * columns) * call.stacked


_ADD = _elements_or_parts(2)
_MULTIPLY = _elements_or_parts(6)

# Operator -> operations on numbers that it takes.
_FORMULAS: dict[str, Callable[[_CostedCall], float]] = {
    **dict.fromkeys(("np::add", "np::subtract", "np::negative"), _ADD),
    **dict.fromkeys(("np::multiply", "np::square"), _MULTIPLY),
    **dict.fromkeys(
        (
            *("np::divide", "np::reciprocal", "np::sqrt", "np::absolute", "np::sign"),
            *("np::maximum", "np::minimum", "np::fmax", "np::fmin"),
        ),
        _elements,
    ),
    **dict.fromkeys(
        (
            *("np::sum", "np::prod", "np::mean", "np::max", "np::min"),
            *("np::cumsum", "np::cumprod"),
        ),
        _inputs,
    ),
    "np::matmul": _matmul,
    "np::tensordot": _tensordot,
    "np::einsum": _einsum,
    "np::convolve": _convolve,
    "np::fftn": lambda call: _fourier(call, 5, call.shape(0)),
    "np::ifftn": lambda call: _fourier(call, 5, call.shape(0)),
    "np::rfftn": lambda call: _fourier(call, 2.5, call.shape(0)),
    "np::irfftn": lambda call: _fourier(call, 2.5, shape_of(call.results[0])),
    "np::cholesky": _matrices(1 / 3),
    "np::det": _matrices(2 / 3),
    "np::slogdet": _matrices(2 / 3),
    "np::inv": _matrices(2),
    "np::solve": _solve,
    "np::eigvalsh": _matrices(4 / 3),
    "np::eigh": _matrices(9),
    "np::eigvals": _matrices(10),
    "np::eig": _matrices(25),
    "np::qr": _rectangles(4, -4 / 3),
    "np::svdvals": _rectangles(4, -4 / 3),
    "np::svd": _rectangles(14, 8),
}
