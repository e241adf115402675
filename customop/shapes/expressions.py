"""Exact integer polynomials in named sizes, with floor division, bounds, min and max.

An expression is an `Expr`, or an int where it is constant. Equal expressions have one
form: ``a % b`` is ``a - (a // b) * b``, and a floor division keeps only what it does not
divide, so ``(6*s + 5) // 3`` is ``2*s + 1``. Two polynomials are equal functions if and
only if they have the same terms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import gcd, inf, prod
from typing import Final, TypeAlias

# ---- exact integer polynomials in named sizes, with floor division, min and max ----


# The largest degree and number of terms; beyond them a size is not worth keeping.
_MOST_DEGREE: Final = 200
_MOST_TERMS: Final = 5000
# The longest text of an atom, and how deep its parentheses may nest: generated code has
# them, and CPython reads 200 levels.
_MOST_TEXT: Final = 50_000
_MOST_DEPTH: Final = 150
# So many expressions are kept, so that equal ones are mostly the same object.
_MOST_KNOWN: Final = 20_000


class LargeSize(OverflowError):
    """A size has too many parts to be kept."""


class Atom:
    """A floor division, minimum or maximum of expressions, which is not a polynomial.

    Attributes
    ----------
    sign : str
        ``"//"``, ``"min"`` or ``"max"``.
    parts : tuple of Expr or int
        The two sides of a division; the arguments of a minimum or maximum, sorted by
        their text.
    depth : int
        How many parentheses may be in each other in its text.
    """

    __slots__ = ("_hash", "depth", "parts", "sign", "text")

    def __init__(self, sign: str, parts: tuple[Number, ...]) -> None:
        self.sign: str = sign
        self.parts: tuple[Number, ...] = parts
        self.depth: int = 2 + max(map(depth_of, parts))
        if sign == "//":
            self.text: str = "//".join(map(_in_quotient, parts))
        else:
            self.text = f"{sign}({', '.join(map(text_of, parts))})"
        check_text(self.depth, self.text)
        self._hash: int = hash((sign, parts))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Atom):
            return NotImplemented
        return (
            self._hash == other._hash
            and self.sign == other.sign
            and self.parts == other.parts
        )

    # Factors are sorted by their text, so that texts and files are stable.

    def __lt__(self, other: Atom | str) -> bool:
        return self.text < (other if type(other) is str else str(other))

    def __gt__(self, other: Atom | str) -> bool:
        return self.text > (other if type(other) is str else str(other))

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Atom({self.text})"


Factor: TypeAlias = str | Atom
Monomial: TypeAlias = tuple[Factor, ...]


class Expr:
    """A polynomial that is not constant; made by the functions of this module.

    Attributes
    ----------
    terms : dict
        Monomial, a sorted tuple of factors -> its coefficient, which is not zero. It is
        never changed.
    """

    __slots__ = ("_hash", "_names", "_text", "terms")

    def __init__(self, terms: dict[Monomial, int], hashed: int) -> None:
        self.terms: dict[Monomial, int] = terms
        self._hash: int = hashed
        self._text: str = ""
        self._names: frozenset[str] | None = None

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Expr):
            return NotImplemented
        return self._hash == other._hash and self.terms == other.terms

    @property
    def names(self) -> frozenset[str]:
        """Names of the sizes in it."""
        if self._names is None:
            self._names = frozenset(_names(self))
        return self._names

    def __str__(self) -> str:
        if not self._text:
            self._text = _written(self)
        return self._text

    def __repr__(self) -> str:
        return f"Expr({self})"


Number: TypeAlias = int | Expr

_known: dict[frozenset[tuple[Monomial, int]], Expr] = {}
_atoms: dict[tuple[str, tuple[Number, ...]], Atom] = {}


def made_of(terms: dict[Monomial, int]) -> Number:
    """Make the expression of terms without zeros."""
    if len(terms) < 2:
        if not terms:
            return 0
        if () in terms:
            return terms[()]
    key = frozenset(terms.items())
    found = _known.get(key)
    if found is None:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        found = _known.setdefault(key, Expr(terms, hash(key)))
    return found


def atom_of(sign: str, *parts: Number) -> Expr:
    """Return an atom as an expression."""
    found = _atoms.get((sign, parts))
    if found is None:
        if len(_atoms) >= _MOST_KNOWN:
            _atoms.clear()
        found = _atoms.setdefault((sign, parts), Atom(sign, parts))
    return symbol(found)


def symbol(factor: Factor) -> Expr:
    """Return a name, or an atom, as an expression."""
    made = made_of({(factor,): 1})
    assert type(made) is Expr
    return made


def terms_of(value: Number) -> Mapping[Monomial, int]:
    """Return the monomials and coefficients of an expression or int."""
    if type(value) is int:
        return {(): value} if value else {}
    return value.terms  # type: ignore[union-attr]  # an Expr


def depth_of(value: Number) -> int:
    """Return how deep parentheses may nest in the text of an expression or int."""
    factors = [f for m in terms_of(value) for f in m if not isinstance(f, str)]
    return max([factor.depth for factor in factors], default=0)


def check_text(depth: int, text: str) -> None:
    """Raise for a text that is too long, or whose parentheses nest too deep."""
    if depth > _MOST_DEPTH:
        raise LargeSize(
            f"a size has more than {_MOST_DEPTH} operations inside each other"
        )
    if len(text) > _MOST_TEXT:
        raise LargeSize(f"a size has a text of more than {_MOST_TEXT} characters")


# ---- sums and products ----


def add(a: Number, b: Number) -> Number:
    """Return ``a + b``."""
    if type(a) is int:
        if type(b) is int:
            return a + b
        a, b = b, a
    terms = a.terms.copy()  # type: ignore[union-attr]  # an Expr
    if type(b) is int:
        b += terms.get((), 0)
        if b:
            terms[()] = b
        else:
            terms.pop((), None)
        return made_of(terms)
    for monomial, factor in b.terms.items():  # type: ignore[union-attr]  # an Expr
        total = terms.get(monomial, 0) + factor
        if total:
            terms[monomial] = total
        else:
            del terms[monomial]
    return made_of(terms)


def negate(a: Number) -> Number:
    """Return ``-a``."""
    return multiply(a, -1)


def subtract(a: Number, b: Number) -> Number:
    """Return ``a - b``."""
    if a is b:
        return 0
    return add(a, -b if type(b) is int else multiply(b, -1))


def multiply(a: Number, b: Number) -> Number:
    """Return ``a * b``."""
    if type(a) is int:
        if type(b) is int:
            return a * b
        a, b = b, a
    if type(b) is int:
        if b == 1:
            return a
        mine = a.terms  # type: ignore[union-attr]  # an Expr
        return made_of({m: c * b for m, c in mine.items()}) if b else 0
    terms: dict[Monomial, int] = {}
    for first, c in a.terms.items():  # type: ignore[union-attr]  # an Expr
        for second, d in b.terms.items():  # type: ignore[union-attr]  # an Expr
            monomial = joined(first, second)
            total = terms.get(monomial, 0) + c * d
            if total:
                terms[monomial] = total
            else:
                del terms[monomial]
    if len(terms) > _MOST_TERMS:
        raise LargeSize(f"a size has more than {_MOST_TERMS} terms")
    return made_of(terms)


def joined(first: Monomial, second: Monomial) -> Monomial:
    """Return the product of two monomials."""
    if not first:
        return second
    if not second:
        return first
    if len(first) + len(second) > _MOST_DEGREE:
        raise LargeSize(f"a size has a product of more than {_MOST_DEGREE} sizes")
    return tuple(sorted(first + second))


def power(a: Number, exponent: int) -> Number:
    """Return `a` to the power of an exponent that is not negative."""
    if type(a) is int:
        return int(a**exponent)
    found: Number = 1
    while exponent:
        if exponent & 1:
            found = multiply(found, a)
        exponent >>= 1
        if exponent:
            a = multiply(a, a)
    return found


# ---- names and values ----


def names_of(value: Number) -> frozenset[str]:
    """Return the names of the sizes in an expression or int."""
    return value.names if isinstance(value, Expr) else frozenset()


def _names(value: Number) -> Iterator[str]:
    for monomial in terms_of(value):
        for factor in monomial:
            if isinstance(factor, str):
                yield factor
            else:
                for part in factor.parts:
                    yield from names_of(part)


def value_of(value: Number, sizes: Mapping[str, int]) -> int:
    """Return the number that an expression has for these sizes.

    Raises
    ------
    KeyError
        If a name has no size.
    ZeroDivisionError
        If it divides by zero.
    """
    if not isinstance(value, Expr):
        return value
    # Loops, as a generator is one more frame for each operation inside another.
    total = 0
    for monomial, product in value.terms.items():
        for factor in monomial:
            product *= _value_of_factor(factor, sizes)  # noqa: PLW2901  # of this term
        total += product
    return total


def _value_of_factor(factor: Factor, sizes: Mapping[str, int]) -> int:
    if isinstance(factor, str):
        return sizes[factor]
    values = []
    for part in factor.parts:
        values.append(value_of(part, sizes))  # noqa: PERF401  # as above
    if factor.sign == "//":
        return values[0] // values[1]
    return min(values) if factor.sign == "min" else max(values)


def affine_in(
    value: Number, name: str, sizes: Mapping[str, int]
) -> tuple[int, int] | None:
    """Return `a` and `b` of ``a * name + b`` for these sizes; None for other forms.

    Raises
    ------
    KeyError
        If another name has no size.
    """
    if name not in names_of(value):
        return 0, value_of(value, sizes)
    factor = rest = 0
    for monomial, c in terms_of(value).items():
        others = [f for f in monomial if f != name]
        if len(monomial) - len(others) > 1 or any(name in _names_in(f) for f in others):
            return None
        product = prod((_value_of_factor(f, sizes) for f in others), start=c)
        if len(others) < len(monomial):
            factor += product
        else:
            rest += product
    return factor, rest


def _names_in(factor: Factor) -> frozenset[str]:
    return frozenset((factor,)) if isinstance(factor, str) else symbol(factor).names


def solve_for_name(value: Number, number: int) -> tuple[str, int] | None:
    """Return the name and value for which ``c * name + rest`` is a number, or None."""
    terms = dict(terms_of(value))
    left = number - terms.pop((), 0)
    if len(terms) != 1:
        return None
    ((monomial, c),) = terms.items()
    factor = monomial[0]
    if len(monomial) > 1 or not isinstance(factor, str) or left % c:
        return None
    return factor, left // c


# ---- expressions as Python code ----


def text_of(value: Number) -> str:
    """Write an expression as Python code."""
    return str(value)


def _in_quotient(value: Number) -> str:
    """Write a side of a floor division."""
    text = text_of(value)
    return text if text.isalnum() or text.isidentifier() else f"({text})"


def _written(value: Expr) -> str:
    parts = [_term(m, c) for m, c in sorted(value.terms.items(), key=_rank)]
    found = _remainders(value)
    if len(found) == 1 and found[0][0] == 1:
        return found[0][1][1:-1]  # without parentheses
    return _signed(found or parts)


def _rank(term: tuple[Monomial, int]) -> tuple[bool, int, Monomial]:
    """Order terms: a plus first, then those with most factors, then by name."""
    monomial, c = term
    return c < 0, -len(monomial), monomial


def _signed(parts: list[tuple[int, str]]) -> str:
    first, *others = parts
    text = ("-" if first[0] < 0 else "") + first[1]
    return text + "".join(f" {'-' if c < 0 else '+'} {part}" for c, part in others)


def _term(monomial: Monomial, c: int) -> tuple[int, str]:
    """Return the coefficient of a term, and its text without a sign."""
    texts = []
    for factor in dict.fromkeys(monomial):
        count = monomial.count(factor)
        text = factor if isinstance(factor, str) else factor.text
        alone = count == len(monomial) == c == 1
        if isinstance(factor, Atom) and factor.sign == "//" and not alone:
            text = f"({text})"
        texts.append(text if count == 1 else f"{text}**{count}")
    if abs(c) != 1 or not monomial:
        texts.insert(0, str(abs(c)))
    return c, "*".join(texts)


def _remainders(value: Expr) -> list[tuple[int, str]]:
    """Write the terms with ``a % b`` for what modulo made; empty if it made nothing."""
    for monomial in value.terms:
        for factor in monomial:
            if isinstance(factor, Atom) and factor.sign == "//":
                found = _remainder(value, factor)
                if found:
                    return found
    return []


def _remainder(value: Expr, atom: Atom) -> list[tuple[int, str]]:
    above, below = atom.parts
    product = multiply(symbol(atom), below)
    times = {m: -c for m, c in terms_of(product).items()}
    for monomial, c in times.items():
        factor, left = divmod(value.terms.get(monomial, 0), c)
        if left or not factor:
            return []
        rest = subtract(value, multiply(subtract(above, product), factor))
        if len(terms_of(rest)) + 1 >= len(value.terms):
            return []
        text = f"({_in_quotient(above)} % {_in_quotient(below)})"
        if abs(factor) != 1:
            text = f"{abs(factor)}*{text}"
        if not isinstance(rest, Expr):
            own = [(rest, str(abs(rest)))] if rest else []
        else:
            own = _remainders(rest) or [
                _term(m, c) for m, c in sorted(rest.terms.items(), key=_rank)
            ]
        mine = (factor, text)
        return [mine, *own] if factor > 0 else [*own, mine]
    return []


# ---- floor division ----


def floor_divide(a: Number, b: Number) -> Number:
    """Return ``a // b``, for a divisor that is not zero.

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
    """Return ``a % b``, for a divisor that is not zero."""
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
    """Make a floor division by a positive number that cannot be simplified.

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
    """Return ``a // b`` for a divisor with names in it."""
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
    """Divide both sides by their common factors, and let `b` begin with a plus."""
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
    """Return the factors that a monomial has too."""
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
    """Return the first monomial in the order of degree and then of names.

    Products keep this order, as division needs.
    """
    return min(terms, key=_place)


def _degree(monomial: Monomial) -> int:
    return len(monomial)


def _place(monomial: Monomial) -> tuple[int, Monomial]:
    return -len(monomial), monomial


def _divmod(a: Number, b: Expr) -> tuple[Number, Number]:
    """Divide by the leading term of `b`; return quotient and rest."""
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
    """Return the minimum of expressions; those that differ by a number become one."""
    return _extreme("min", values)


def largest(*values: Number) -> Number:
    """Return the maximum of expressions; those that differ by a number become one."""
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
    """Return the arguments of an inner minimum of a minimum."""
    if isinstance(value, Expr) and len(value.terms) == 1:
        ((monomial, c),) = value.terms.items()
        if c == 1 and len(monomial) == 1:
            atom = monomial[0]
            if isinstance(atom, Atom) and atom.sign == sign:
                return atom.parts
    return (value,)


# ---- substitution ----


def substitute(value: Number, sizes: Mapping[str, Number]) -> Number:
    """Replace names by other expressions or numbers."""
    if not isinstance(value, Expr) or value.names.isdisjoint(sizes):
        return value

    def replaced(factor: Factor) -> Number:
        if isinstance(factor, str):
            return sizes.get(factor, symbol(factor))
        return _combined(factor.sign, [substitute(p, sizes) for p in factor.parts])

    return rebuild(value, replaced)


def atoms_of(value: Expr) -> list[Atom]:
    """Return the atoms of an expression, each once."""
    found = {f: None for m in value.terms for f in m if isinstance(f, Atom)}
    return list(found)


def rebuild(value: Expr, replaced: Callable[[Factor], Number]) -> Number:
    """Replace each factor of the monomials of an expression."""
    total: Number = 0
    for monomial, c in value.terms.items():
        product: Number = c
        for factor in monomial:
            product = multiply(product, replaced(factor))
        total = add(total, product)
    return total


def _combined(sign: str, parts: list[Number]) -> Number:
    return floor_divide(*parts) if sign == "//" else _extreme(sign, parts)


# ---- bounds of sums, products and floor divisions, from the bounds of their parts ----


# The least and the largest value; infinite where there is none.
Bounds: TypeAlias = tuple[float, float]

ANY: Final[Bounds] = (-inf, inf)


def plus(a: float, b: float) -> float:
    """Add two lower or two upper bounds."""
    # Python cannot add infinity to an int that no float can hold.
    if a in (inf, -inf):
        return a
    return b if b in (inf, -inf) else a + b


def times(first: Bounds, second: Bounds) -> Bounds:
    """Return the bounds of a product."""
    (a, b), (c, d) = first, second
    if a >= 0 and c >= 0:
        return _product(a, c), _product(b, d)
    products = [_product(x, y) for x in first for y in second]
    return min(products), max(products)


def _product(a: float, b: float) -> float:
    """Multiply, with zero times infinity as zero."""
    if not a or not b:
        return 0
    if a in (inf, -inf) or b in (inf, -inf):
        return inf if (a > 0) == (b > 0) else -inf
    return a * b


def quotient(above: Bounds, below: Bounds) -> Bounds:
    """Return the bounds of a floor division."""
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
    """Return the bounds for a divisor that may be on both sides of zero."""
    most = max(abs(above[0]), abs(above[1]))
    return -most, most


def _floor(a: float, b: float) -> float:
    if a in (inf, -inf):
        return a
    if b == inf:
        return -1 if a < 0 else 0
    return a // b
