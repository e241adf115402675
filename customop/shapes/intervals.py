"""Bounds of sums, products and floor divisions, from the bounds of their parts."""

from __future__ import annotations

from math import inf
from typing import Final, TypeAlias

__all__ = ["ANY", "Bounds", "plus", "quotient", "times"]

# The least and the largest value; infinite where there is none.
Bounds: TypeAlias = tuple[float, float]

ANY: Final[Bounds] = (-inf, inf)


def plus(a: float, b: float) -> float:
    """The sum of two lower or two upper bounds."""
    # Python cannot add infinity to an int that no float can hold.
    if a in (inf, -inf):
        return a
    return b if b in (inf, -inf) else a + b


def times(first: Bounds, second: Bounds) -> Bounds:
    """Bounds of a product."""
    (a, b), (c, d) = first, second
    if a >= 0 and c >= 0:
        return _product(a, c), _product(b, d)
    products = [_product(x, y) for x in first for y in second]
    return min(products), max(products)


def _product(a: float, b: float) -> float:
    """A product in which zero times infinity is zero."""
    if not a or not b:
        return 0
    if a in (inf, -inf) or b in (inf, -inf):
        return inf if (a > 0) == (b > 0) else -inf
    return a * b


def quotient(above: Bounds, below: Bounds) -> Bounds:
    """Bounds of a floor division."""
    low, high = below
    if high <= -1:
        above, low, high = (-above[1], -above[0]), -high, -low
    if low < 1:
        return _quotient_of_unknown_sign(above)
    return (
        min(_floor(above[0], low), _floor(above[0], high)),
        max(_floor(above[1], low), _floor(above[1], high)),
    )


def _quotient_of_unknown_sign(above: Bounds) -> Bounds:
    """Of a divisor that may be on both sides of zero."""
    most = max(abs(above[0]), abs(above[1]))
    return -most, most


def _floor(a: float, b: float) -> float:
    if a in (inf, -inf):
        return a
    if b == inf:
        return -1 if a < 0 else 0
    return a // b
