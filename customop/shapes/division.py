"""Floor division, minimum and maximum of expressions, and substitution."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from math import gcd

from customop.shapes.expressions import (
    Atom,
    Expr,
    Factor,
    Monomial,
    Number,
    add,
    atom_of,
    joined,
    made_of,
    multiply,
    negate,
    subtract,
    symbol,
    terms_of,
    text_of,
)

__all__ = [
    "atoms_of",
    "floor_divide",
    "largest",
    "modulo",
    "rebuild",
    "smallest",
    "substitute",
]


# ---- floor division ----


def floor_divide(a: Number, b: Number) -> Number:
    """A // b, for a divisor that is not zero.

    Raises
    ------
    ZeroDivisionError
        If `b` is the number 0.
    """
    if type(b) is int:
        return a // b if type(a) is int else _divided_by_number(a, b)
    assert isinstance(b, Expr)
    return _divided(a, b)


def modulo(a: Number, b: Number) -> Number:
    """A % b, for a divisor that is not zero."""
    return subtract(a, multiply(floor_divide(a, b), b))


def _divided_by_number(a: Number, divisor: int) -> Number:
    if divisor < 0:
        a, divisor = negate(a), -divisor
    if divisor == 1:
        return a
    if not divisor:
        raise ZeroDivisionError("integer modulo by zero")
    whole: dict[Monomial, int] = {}
    rest: dict[Monomial, int] = {}
    for monomial, c in terms_of(a).items():
        quotient, left = divmod(c, divisor)
        if quotient:
            whole[monomial] = quotient
        if left:
            rest[monomial] = left
    # A common divisor of all but the constant is taken out, and the constant rounded.
    common = gcd(divisor, *(c for m, c in rest.items() if m))
    if common > 1:
        divisor //= common
        rest = {m: c // common for m, c in rest.items() if m or c >= common}
    if divisor == 1 or rest.keys() <= {()}:
        return add(made_of(whole), made_of(rest) if divisor == 1 else 0)
    return add(made_of(whole), _quotient(made_of(rest), divisor))


def _quotient(rest: Number, divisor: int) -> Number:
    """A floor division from which nothing can be taken out, by a positive number.

    (p // q + r) // d is (p + r * q) // (q * d).
    """
    inner = [m for m, c in terms_of(rest).items() if c == 1 and _is_division(m)]
    if len(inner) != 1:
        return atom_of("//", rest, divisor)
    atom = inner[0][0]
    assert isinstance(atom, Atom)
    top, bottom = atom.parts
    others = subtract(rest, symbol(atom))
    top = add(top, multiply(others, bottom))
    return floor_divide(top, multiply(bottom, divisor))


def _is_division(monomial: Monomial) -> bool:
    return (
        len(monomial) == 1
        and isinstance(monomial[0], Atom)
        and monomial[0].sign == "//"
    )


def _divided(a: Number, b: Expr) -> Number:
    """A // b for a divisor with names in it."""
    above, below = _reduced(a, b)
    if type(below) is int:
        return floor_divide(above, below)
    assert isinstance(below, Expr)
    whole, rest = _divmod(above, below)
    if not rest:
        return whole
    above, below = _reduced(rest, below)
    if type(below) is int:
        return add(whole, floor_divide(above, below))
    return add(whole, atom_of("//", above, below))


def _reduced(a: Number, b: Number) -> tuple[Number, Number]:
    """Both sides without their common number and factors, `b` beginning with a plus."""
    top, bottom = terms_of(a), terms_of(b)
    common = gcd(*top.values(), *bottom.values())
    if bottom[_leading(bottom)] < 0:
        common = -common
    shared: list[Factor] = [*min(bottom, key=_degree)]
    for monomial in (*top, *bottom):
        shared = _common(shared, monomial)
        if not shared:
            break
    if common == 1 and not shared:
        return a, b
    return (
        made_of({_without(m, shared): c // common for m, c in top.items()}),
        made_of({_without(m, shared): c // common for m, c in bottom.items()}),
    )


def _common(factors: Iterable[Factor], monomial: Monomial) -> list[Factor]:
    """The factors that a monomial has too."""
    left = list(monomial)
    found = []
    for factor in factors:
        if factor in left:
            left.remove(factor)
            found.append(factor)
    return found


def _without(monomial: Monomial, factors: Iterable[Factor]) -> Monomial:
    left = list(monomial)
    for factor in factors:
        left.remove(factor)
    return tuple(left)


def _leading(terms: Iterable[Monomial]) -> Monomial:
    """The first monomial in the order of degree and then of names.

    Products keep this order, as division needs.
    """
    return min(terms, key=_place)


def _degree(monomial: Monomial) -> int:
    return len(monomial)


def _place(monomial: Monomial) -> tuple[int, Monomial]:
    return -len(monomial), monomial


def _divmod(a: Number, b: Expr) -> tuple[Number, Number]:
    """Quotient and rest by the leading term of `b`, whose coefficient is positive."""
    lead = _leading(b.terms)
    factor = b.terms[lead]
    whole: dict[Monomial, int] = {}
    rest = dict(terms_of(a))
    while True:
        able = [m for m, c in rest.items() if c // factor and _has(m, lead)]
        if not able:
            return made_of(whole), made_of(rest)
        first = _leading(able)
        monomial, times = _without(first, lead), rest[first] // factor
        whole[monomial] = times
        for other, c in b.terms.items():
            product = joined(monomial, other)
            total = rest.get(product, 0) - times * c
            if total:
                rest[product] = total
            else:
                del rest[product]


def _has(monomial: Monomial, factors: Monomial) -> bool:
    return len(_common(factors, monomial)) == len(factors)


# ---- minimum and maximum ----


def smallest(*values: Number) -> Number:
    """The minimum of expressions; those that differ by a number become one."""
    return _extreme("min", values)


def largest(*values: Number) -> Number:
    """The maximum of expressions; those that differ by a number become one."""
    return _extreme("max", values)


def _extreme(sign: str, values: Iterable[Number]) -> Number:
    choose: Callable[[int, int], int] = min if sign == "min" else max
    # Expression without its number -> the number that wins.
    found: dict[Number, int] = {}
    for value in values:
        for part in _flattened(sign, value):
            number = terms_of(part).get((), 0)
            base = subtract(part, number)
            found[base] = choose(found.get(base, number), number)
    parts = [add(base, number) for base, number in found.items()]
    if len(parts) == 1:
        return parts[0]
    return atom_of(sign, *sorted(parts, key=text_of))


def _flattened(sign: str, value: Number) -> tuple[Number, ...]:
    """The arguments of an inner minimum of a minimum."""
    if isinstance(value, Expr) and len(value.terms) == 1:
        ((monomial, c),) = value.terms.items()
        if c == 1 and len(monomial) == 1:
            atom = monomial[0]
            if isinstance(atom, Atom) and atom.sign == sign:
                return atom.parts
    return (value,)


# ---- substitution ----


def substitute(value: Number, sizes: Mapping[str, Number]) -> Number:
    """An expression with other expressions or numbers in the place of names."""
    if not isinstance(value, Expr) or value.names.isdisjoint(sizes):
        return value

    def replaced(factor: Factor) -> Number:
        if isinstance(factor, str):
            return sizes.get(factor, symbol(factor))
        return _combined(factor.sign, [substitute(p, sizes) for p in factor.parts])

    return rebuild(value, replaced)


def atoms_of(value: Expr) -> list[Atom]:
    """The atoms of an expression, each once."""
    found = {f: None for m in value.terms for f in m if isinstance(f, Atom)}
    return list(found)


def rebuild(value: Expr, replaced: Callable[[Factor], Number]) -> Number:
    """An expression with each factor of its monomials replaced."""
    total: Number = 0
    for monomial, c in value.terms.items():
        product: Number = c
        for factor in monomial:
            product = multiply(product, replaced(factor))
        total = add(total, product)
    return total


def _combined(sign: str, parts: list[Number]) -> Number:
    return floor_divide(*parts) if sign == "//" else _extreme(sign, parts)
