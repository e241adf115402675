"""The search for a proof that an expression of sizes is not negative."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import inf
from typing import TYPE_CHECKING, Final

from customop.shapes.division import atoms_of, rebuild
from customop.shapes.expressions import (
    Atom,
    Expr,
    Factor,
    Number,
    add,
    multiply,
    names_of,
    subtract,
    symbol,
    terms_of,
)

if TYPE_CHECKING:
    from customop.shapes.proofs import Knowledge

__all__ = ["Attempt"]

# How many expressions one proof may try.
_MOST_TRIES: Final = 60


class Attempt:
    """One search for a proof that an expression is not negative."""

    def __init__(self, known: Knowledge) -> None:
        self.known: Knowledge = known
        self.left: int = _MOST_TRIES

    def holds(self, value: Number, depth: int) -> bool:
        """Whether it is proven."""
        if not isinstance(value, Expr):
            return value >= 0
        self.left -= 1
        if self.left < 0:
            return False
        if self.known.bounds_of(value)[0] >= 0 or self._shifted(value):
            return True
        return depth > 0 and (
            self._by_division(value, depth - 1)
            or self._by_cases(value, depth - 1)
            or self._by_facts(value, depth - 1)
        )

    def _by_division(self, value: Expr, depth: int) -> bool:
        weaker = _weaker_by_division(self.known, value)
        return any(self.holds(v, depth) for v in weaker)

    def _by_cases(self, value: Expr, depth: int) -> bool:
        for cases, needs_all in _cases(self.known, value):
            answers = (self.holds(v, depth) for v in cases)
            if all(answers) if needs_all else any(answers):
                return True
        return False

    def _shifted(self, value: Expr) -> bool:
        """Whether no coefficient is negative once each size is its bound plus a rest.

        ``n*n - n`` with n = m + 1 is ``m*m + m``.
        """
        if len(value.terms) > 12 or max(map(len, value.terms)) > 4:
            return False
        shifts: dict[Factor, Number] = {}
        for factor in {f for m in value.terms for f in m}:
            low, high = self.known.bounds_of_factor(factor)
            if low != -inf:
                shifts[factor] = add(symbol(factor), int(low))
            elif high != inf:
                shifts[factor] = subtract(int(high), symbol(factor))
            else:
                return False
        moved = rebuild(value, shifts.__getitem__)
        return all(c > 0 for c in terms_of(moved).values())

    def _by_facts(self, value: Expr, depth: int) -> bool:
        names = value.names
        for fact in self.known.facts:
            if not names.isdisjoint(names_of(fact)):
                for times in _multiples(value, fact):
                    if self.holds(subtract(value, multiply(fact, times)), depth):
                        return True
        return False


def _multiples(value: Expr, fact: Number) -> Iterator[int]:
    """Numbers of times that a fact, taken away, leaves one term less."""
    seen = {1}
    yield 1
    for monomial, c in terms_of(fact).items():
        mine = value.terms.get(monomial, 0)
        times = 0 if mine % c or not monomial else mine // c
        if times > 1 and times not in seen:
            seen.add(times)
            yield times


def _weaker_by_division(known: Knowledge, value: Expr) -> Iterator[Number]:
    """Expressions without one floor division, whose sign is at most that of `value`.

    For q = a // b with b > 0: a - b + 1 <= q * b <= a.
    """
    for atom in atoms_of(value):
        if atom.sign != "//" or known.bounds_of(atom.parts[1])[0] < 1:
            continue
        c = value.terms.get((atom,))
        if c is None or any(atom in m for m in value.terms if m != (atom,)):
            continue
        above, below = atom.parts
        others = multiply(subtract(value, multiply(symbol(atom), c)), below)
        least = add(subtract(above, below), 1) if c > 0 else above
        yield add(others, multiply(least, c))


def _cases(known: Knowledge, value: Expr) -> Iterator[tuple[list[Number], bool]]:
    """Expressions with the arguments of a minimum or maximum in its place.

    With them: whether all must hold, or one is enough.
    """
    for atom in atoms_of(value):
        if atom.sign == "//":
            continue
        sign = _sign_of_cofactor(known, value, atom)
        cases = [rebuild(value, _replaced(atom, part)) for part in atom.parts]
        yield cases, not sign or (sign > 0) == (atom.sign == "min")


def _replaced(atom: Atom, part: Number) -> Callable[[Factor], Number]:
    return lambda factor: part if factor == atom else symbol(factor)


def _sign_of_cofactor(known: Knowledge, value: Expr, atom: Atom) -> int:
    """Whether the value grows with an atom, falls with it, or 0 if it is not known."""
    signs = set()
    for monomial, c in value.terms.items():
        if atom in monomial:
            rest = list(monomial)
            rest.remove(atom)
            if atom in rest:
                return 0
            low, _ = known.bounds_of_product(tuple(rest))
            if low < 0:
                return 0
            signs.add(1 if c > 0 else -1)
    return signs.pop() if len(signs) == 1 else 0
