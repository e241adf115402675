"""All nestings to length five of grad, vmap-and-sum, tracing and an identity transform.

Those with compile among them to length four.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import customop as co
from tests.cases import each

# Powers of a start polynomial in integers: every value below 2 ** 53 is exact.
COEFFICIENTS = (3, -2, 5, 1, -4, 2, 1)
FACTORS = (1.0, 2.0, -1.0)
AT = 2.0


class Identity(co.Interpreter):
    """Sees operators and runs them unchanged."""

    kind = co.RuleKind("identity")

    def __init__(self) -> None:
        super().__init__()
        self.seen = 0

    def process(self, op: Any, args: Sequence[Any]) -> Any:
        self.seen += 1
        return self.wrap(op.invoke(self.unwrap(args)))


@co.custom_op("nesting::times", mutates_args=())
def times(x: co.Array, y: co.Array) -> co.Array:
    return x * y


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)


@times.register_vmap
def _(info: Any, in_dims: Any, x: Any, y: Any) -> Any:
    # Rows are numbers here, so the batch axis is the only one.
    return times(x, y), 0


times.register_fake(lambda x, y: x * y)


def _backward(ctx: Any, g: Any) -> Any:
    x, y = ctx.saved_arrays
    return times(g, y), times(x, g)


times.register_autograd(_backward, setup_context=_setup)


def by_operator(x: Any) -> Any:
    """The polynomial by Horner's rule, multiplied by a custom operator."""
    total = x * 0.0 + float(COEFFICIENTS[-1])
    for coefficient in reversed(COEFFICIENTS[:-1]):
        total = times(total, x) + float(coefficient)
    return total


def by_numpy(x: Any) -> Any:
    """The polynomial in plain NumPy code."""
    return sum(float(c) * np.power(x, k) for k, c in enumerate(COEFFICIENTS[1:], 1)) + (
        float(COEFFICIENTS[0])
    )


# Each transform: on functions of a number, and on coefficients.


def vmap_and_sum(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def total(x: Any) -> Any:
        return np.sum(co.vmap(f)(x * np.array(FACTORS)))

    return total


def identity(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def same(x: Any) -> Any:
        with Identity() as interpreter:
            return interpreter.lower(f(interpreter.wrap(x)))

    return same


def trace(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function as a graph; each call traces it anew, with values or without."""

    def captured(x: Any) -> Any:
        mode: Any = "fake" if len(traced) % 2 else "real"
        traced.append(mode)
        return co.make_fx(f, mode)(x)(x)

    traced: list[str] = []
    return captured


def compiled(f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The function compiled; a call captures it, and then runs the code."""
    fast = co.compile(f)

    def twice(x: Any) -> Any:
        fast(x)
        return fast(x)

    return twice


def derivative(c: list[int]) -> list[int]:
    return [k * a for k, a in enumerate(c)][1:] or [0]


def scaled_sum(c: list[int]) -> list[int]:
    return [a * sum(int(f) ** k for f in FACTORS) for k, a in enumerate(c)]


TRANSFORMS: dict[str, tuple[Any, Any]] = {
    "g": (co.grad, derivative),
    "v": (vmap_and_sum, scaled_sum),
    "i": (identity, list),
    "t": (trace, list),
    "c": (compiled, list),
}
WORDS = ["".join(w) for n in range(6) for w in itertools.product("gvit", repeat=n)]
WORDS += [
    "".join(w)
    for n in range(5)
    for w in itertools.product("gvitc", repeat=n)
    if "c" in w
]
# Long words, by their first letters.
STARTS = ["".join(w) for w in itertools.product("gvitc", repeat=2)]


def check(word: str, polynomial: Any) -> None:
    """Compare a nesting with exact arithmetic on coefficients."""
    f, coefficients = polynomial, list(COEFFICIENTS)
    for letter in reversed(word):
        transform, on_coefficients = TRANSFORMS[letter]
        f, coefficients = transform(f), on_coefficients(coefficients)
    expected = sum(a * int(AT) ** k for k, a in enumerate(coefficients))

    assert float(f(np.array(AT))) == expected, word


def test_there_are_1805_words() -> None:
    """The words are all of length zero to five, and with compile to four."""
    assert len(set(WORDS)) == 1365 + 440


@pytest.mark.parametrize("polynomial", [by_operator, by_numpy])
@pytest.mark.parametrize("end", ["", *TRANSFORMS])
def test_word_gives_the_exact_polynomial(end: str, polynomial: Any) -> None:
    """Every nesting gives the value that exact arithmetic on coefficients gives."""
    words = [w for w in WORDS if len(w) < 4 and w[-1:] == end]
    each(lambda word: check(word, polynomial), zip(words))


@pytest.mark.exhaustive
@pytest.mark.parametrize("polynomial", [by_operator, by_numpy])
@pytest.mark.parametrize("start", STARTS)
def test_long_words_give_the_exact_polynomial(start: str, polynomial: Any) -> None:
    """Every nesting of four or five does, too."""
    for word in WORDS:
        if len(word) > 3 and word.startswith(start):
            check(word, polynomial)
