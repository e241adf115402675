"""Certain knowledge about sizes: bounds of expressions, and proofs from known facts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import gcd, inf
from typing import Final

from customop.shapes.expressions import (
    ANY,
    Atom,
    Bounds,
    Expr,
    Factor,
    Monomial,
    Number,
    add,
    atoms_of,
    floor_divide,
    largest,
    multiply,
    names_of,
    negate,
    plus,
    quotient,
    rebuild,
    smallest,
    substitute,
    subtract,
    symbol,
    terms_of,
    times,
    value_of,
)

# ---- certain knowledge about sizes ----
# Bounds of expressions, and proofs from known facts.


# So many answers are kept.
_MOST_KEPT: Final = 4096


class Knowledge:
    """Bounds of sizes by name, and facts about them.

    Attributes
    ----------
    bounds : dict
        Name -> the least and the largest value.
    equal : dict
        Name -> the expression that it equals.
    facts : list of Expr
        Expressions that are not negative.
    """

    def __init__(self) -> None:
        self.bounds: dict[str, Bounds] = {}
        self.equal: dict[str, Number] = {}
        self.facts: list[Number] = []
        self._nonzero: set[Number] = set()
        self._answers: dict[Number, bool] = {}
        # Possible sizes, to refute what cannot be proven; made when they are needed.
        self._examples: list[dict[str, int]] | None = None

    # ---- what is known ----

    def set_bounds(self, name: str, low: float, high: float) -> None:
        """Set or narrow the bounds of a size."""
        before = self.bounds.get(name, ANY)
        self.bounds[name] = (max(before[0], low), min(before[1], high))
        self._changed()

    def add_nonnegative(self, value: Number) -> None:
        """Note that an expression is never negative."""
        value = self.reduced(value)
        if not isinstance(value, Expr) or value in self.facts:
            return
        single = _single(value)
        if single is None:
            self.facts.append(value)
        else:
            self._narrow(value, single)
        self._changed()

    def _narrow(self, value: Expr, name: str) -> None:
        """Narrow the bounds by ``c * name + number >= 0``."""
        c, number = value.terms[(name,)], value.terms.get((), 0)
        if c > 0:
            self.set_bounds(name, -(number // c), inf)
        else:
            self.set_bounds(name, -inf, number // -c)

    def add_zero(self, value: Number) -> None:
        """Note that an expression is zero."""
        value = self.reduced(value)
        if not isinstance(value, Expr):
            return
        solved = _solved(value)
        if solved is None:
            self.add_nonnegative(value)
            self.add_nonnegative(negate(value))
            return
        name, same = solved
        low, high = self.bounds.get(name, ANY)
        self.equal = {n: substitute(v, {name: same}) for n, v in self.equal.items()}
        self.equal[name] = same
        facts, self.facts = self.facts, []
        self._changed()
        for fact in facts:
            self.add_nonnegative(fact)
        # The other side has the bounds of the name too.
        if low != -inf:
            self.add_nonnegative(subtract(same, int(low)))
        if high != inf:
            self.add_nonnegative(subtract(int(high), same))

    def add_nonzero(self, value: Number) -> None:
        """Note that an expression is not zero."""
        value = self.reduced(value)
        if not isinstance(value, Expr):
            return
        low, high = self.bounds_of(value)
        if low == 0:
            self.add_nonnegative(subtract(value, 1))
        elif high == 0:
            self.add_nonnegative(subtract(-1, value))
        else:
            self._nonzero.update((value, negate(value)))
            self._changed()

    def reduced(self, value: Number) -> Number:
        """Return an expression with equal names replaced."""
        return substitute(value, self.equal) if self.equal else value

    def numbers(self, names: Iterable[str]) -> dict[str, int] | None:
        """Return the sizes of these names, or None if one is not known."""
        found = {name: self.equal.get(name) for name in names}
        numbers = {name: n for name, n in found.items() if type(n) is int}
        return numbers if len(numbers) == len(found) else None

    # ---- questions ----

    def is_zero(self, value: Number) -> bool | None:
        """Return whether an expression is always zero; False for never, else None."""
        value = self.reduced(value)
        if not isinstance(value, Expr):
            return value == 0
        if value in self._nonzero or _never_zero(value):
            return False
        seen = self._values(value)
        if 0 not in seen and (
            self._proves(subtract(value, 1)) or self._proves(subtract(-1, value))
        ):
            return False
        if any(seen):
            return None
        return True if self._proves(value) and self._proves(negate(value)) else None

    def is_nonnegative(self, value: Number) -> bool | None:
        """Return whether an expression is at least 0; False for always less, else None."""
        value = self.reduced(value)
        if not isinstance(value, Expr):
            return value >= 0
        seen = self._values(value)
        if min(seen, default=0) >= 0 and self._proves(value):
            return True
        if max(seen, default=-1) < 0 and self._proves(subtract(-1, value)):
            return False
        return None

    def _proves(self, value: Number) -> bool:
        found = self._answers.get(value)
        if found is None:
            found = min(self._values(value), default=0) >= 0
            found = found and Attempt(self).holds(value, 4)
            if len(self._answers) >= _MOST_KEPT:
                self._answers.clear()
            self._answers[value] = found
        return found

    def _values(self, value: Number) -> list[int]:
        """Return values of an expression for some sizes that are possible.

        Most questions have no proof; examples of both answers take a tenth of the time
        of a search.
        """
        if self._examples is None:
            self._examples = [
                e for e in map(self._example, (3, -3, 0)) if e is not None
            ]
        try:
            return [value_of(value, example) for example in self._examples]
        except (KeyError, ZeroDivisionError):  # a new name, say
            return []

    def _example(self, step: int) -> dict[str, int] | None:
        """Return sizes that grow, fall or are equal; None if they are not possible."""
        found: dict[str, int] = {}
        start = 2 if step >= 0 else 2 - step * len(self.bounds)
        for number, (name, (low, high)) in enumerate(self.bounds.items()):
            least = 0 if low == -inf else int(low)
            found[name] = int(min(max(start + step * number, least), high))
        try:
            fits = all(value_of(self.reduced(f), found) >= 0 for f in self.facts)
            fits = fits and all(value_of(v, found) != 0 for v in self._nonzero)
        except (KeyError, ZeroDivisionError):
            return None
        return found if fits else None

    def _changed(self) -> None:
        """Forget the answers that less knowledge gave."""
        self._answers.clear()
        self._examples = None

    # ---- bounds ----

    def bounds_of(self, value: Number) -> Bounds:
        """Return the bounds of an expression, from those of its parts."""
        if not isinstance(value, Expr):
            return value, value
        low: float = 0
        high: float = 0
        for monomial, c in value.terms.items():
            first, second = times((c, c), self.bounds_of_product(monomial))
            low, high = plus(low, first), plus(high, second)
        return low, high

    def bounds_of_product(self, monomial: Monomial) -> Bounds:
        """Return the bounds of a product of names and atoms."""
        found: Bounds = (1, 1)
        for factor in dict.fromkeys(monomial):
            count = monomial.count(factor)
            own = self.bounds_of_factor(factor)
            for _ in range(count):
                found = times(found, own)
            if count == len(monomial) and not count % 2:
                found = (max(found[0], 0), found[1])
        return found

    def bounds_of_factor(self, factor: Factor) -> Bounds:
        """Return the bounds of a name or atom."""
        if isinstance(factor, str):
            return self.bounds.get(factor, ANY)
        parts = [self.bounds_of(part) for part in factor.parts]
        if factor.sign == "//":
            return quotient(*parts)
        choose = min if factor.sign == "min" else max
        return choose(low for low, _ in parts), choose(high for _, high in parts)

    # ---- simpler forms ----

    def quotient(self, a: Number, b: Number) -> Number:
        """Return a floor division, simpler where the bounds decide it."""
        return self.simpler(floor_divide(a, b))

    def extreme(self, sign: str, a: Number, b: Number) -> Number:
        """Return the minimum or maximum of two, one of them where that is certain."""
        first = self.is_nonnegative(subtract(b, a))
        if first is not None:
            return a if first == (sign == "min") else b
        # b > a is unknown and b >= a may be known of the other order.
        if self.is_nonnegative(subtract(a, b)) is True:
            return b if sign == "min" else a
        return smallest(a, b) if sign == "min" else largest(a, b)

    def simpler(self, value: Number) -> Number:
        """Replace atoms that have one value by that number."""
        if not isinstance(value, Expr):
            return value
        fixed: dict[Factor, Number] = {}
        for atom in atoms_of(value):
            low, high = self.bounds_of_factor(atom)
            if low == high:
                fixed[atom] = int(low)
        if not fixed:
            return value
        return rebuild(value, lambda factor: fixed.get(factor, symbol(factor)))


# ---- single names ----


def _single(value: Expr) -> str | None:
    """Return the name of ``c * name + number``."""
    names = [m for m in value.terms if m]
    if len(names) == 1 and len(names[0]) == 1 and isinstance(names[0][0], str):
        return names[0][0]
    return None


def _solved(value: Expr) -> tuple[str, Number] | None:
    """Return a name and what it equals where an expression is zero.

    Names with numbers come last in the alphabet of those that are replaced, so that
    sizes without a name of their own go first.
    """
    alone = [
        m[0]
        for m, c in value.terms.items()
        if len(m) == 1 and isinstance(m[0], str) and abs(c) == 1
    ]
    for name in sorted(alone, key=_replaceable):
        c = value.terms[(name,)]
        rest = subtract(value, multiply(symbol(name), c))
        if name not in names_of(rest):
            return name, multiply(rest, -c)
    return None


def _replaceable(name: str) -> tuple[bool, str]:
    return not name[1:].isdecimal(), name


def _never_zero(value: Expr) -> bool:
    """Return whether the coefficients have a divisor that the number lacks."""
    number = value.terms.get((), 0)
    common = gcd(*(c for m, c in value.terms.items() if m))
    return bool(number % common)


# ---- the search for a proof that an expression of sizes is not negative ----


# One proof may try so many expressions.
_MOST_TRIES: Final = 60


class Attempt:
    """One search for a proof that an expression is not negative."""

    def __init__(self, known: Knowledge) -> None:
        self.known: Knowledge = known
        self.left: int = _MOST_TRIES

    def holds(self, value: Number, depth: int) -> bool:
        """Return whether it is proven."""
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
        """Return whether no coefficient is negative when sizes start at their bounds.

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
    """Yield how many times a fact must be subtracted to leave one term less."""
    seen = {1}
    yield 1
    for monomial, c in terms_of(fact).items():
        mine = value.terms.get(monomial, 0)
        times = 0 if mine % c or not monomial else mine // c
        if times > 1 and times not in seen:
            seen.add(times)
            yield times


def _weaker_by_division(known: Knowledge, value: Expr) -> Iterator[Number]:
    """Yield expressions without one floor division; `value` has at least their sign.

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
    """Yield expressions with the arguments of a minimum or maximum in its place.

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
    """Return 1 if the value grows with an atom, -1 if it falls, 0 if unknown."""
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
