"""Functions with derivatives of their own inside all words of transforms.

The functions are powers of x, so the answers are polynomials with known coefficients.
The derivative rules give twice the derivative on purpose, which shows that the innermost
transform that differentiates has used them, and no other.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest

import customop as co

Polynomial = dict[int, float]
Fn = Callable[[Any], Any]


# ---- functions: x^3 with twice its derivative, or with the right one ----


@co.custom_vjp
def by_vjp(x: Any) -> Any:
    return x**3


by_vjp.defvjp(lambda x: (by_vjp(x), x), lambda x, g: (6 * x**2 * g,))


@co.custom_jvp
def by_jvp(x: Any) -> Any:
    return x**3


@by_jvp.defjvp
def _by_jvp(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    return by_jvp(x), 6 * x**2 * t


@co.custom_jvp
def by_jvps(x: Any, n: Any) -> Any:
    return x**n


by_jvps.defjvps(lambda t, out, x, n: 2 * n * x ** (n - 1) * t, None)


@co.custom_vjp
def by_both(x: Any) -> Any:
    return x**3


by_both.defvjp(lambda x: (by_both(x), x), lambda x, g: (6 * x**2 * g,))


@by_both.defjvp
def _by_both(primals: Any, tangents: Any) -> Any:
    (x,), (t,) = primals, tangents
    return by_both(x), 6 * x**2 * t


def in_place(x: Any) -> Any:
    y = np.zeros(2, like=x)
    y[0] = x
    y[1] = 5.0
    y[:1] *= x * x
    return y[0]


@co.custom_vjp
def in_place_rules(x: Any) -> Any:
    return in_place(x)


def _in_place_bwd(x: Any, g: Any) -> Any:
    found = np.zeros_like(x * g)  # of the highest of their levels
    found += 6 * x**2
    found *= g
    return (found,)


in_place_rules.defvjp(lambda x: (in_place(x), x), _in_place_bwd)


@co.checkpoint
def kept(x: Any) -> Any:
    return in_place(x)


@co.checkpoint
def kept_rule(x: Any) -> Any:
    """A rule inside a checkpoint inside a checkpoint."""
    return co.checkpoint(by_jvp)(x)


def pushed(x: Any) -> Any:
    """x^3 by the derivative of x^4 / 4."""
    return co.linearize(lambda y: y**4 / 4, x)[1](np.ones_like(x))


def multiplied(x: Any) -> Any:
    """x^3 by the second derivative of x^5 / 20."""
    return co.hvp(lambda y: y**5 / 20, x, np.ones_like(x))


FUNCTIONS: dict[str, tuple[Fn, float]] = {
    "custom_vjp": (by_vjp, 2.0),
    "custom_jvp": (by_jvp, 2.0),
    "both": (by_both, 2.0),
    "defjvps": (lambda x: by_jvps(x, 3), 2.0),
    "in_place": (in_place_rules, 2.0),
    "checkpoint": (kept, 1.0),
    "nested": (kept_rule, 2.0),
    "linearize": (pushed, 1.0),
    "hvp": (multiplied, 1.0),
}


# ---- transforms, and what they do to polynomials ----


def derivative(p: Polynomial) -> Polynomial:
    return {n - 1: n * c for n, c in p.items() if n}


def both_rows(p: Polynomial) -> Polynomial:
    return {n: c * (1 + 2**n) for n, c in p.items()}


def vmapped(fn: Fn) -> Fn:
    """The sum of the function at x and 2x, which are rows of a batch."""
    return lambda x: np.sum(co.vmap(lambda r: fn(r * x))(np.array([1.0, 2.0])))


def row_of_both(fn: Fn) -> Fn:
    """The same with x in the batch, whose axis is the last."""
    batch = np.array([[1.0, 2.0]])
    return lambda x: np.sum(co.vmap(lambda r: fn(r[0]), in_dims=1)(batch * x))


LETTERS: dict[str, tuple[Callable[[Fn], Fn], Callable[[Polynomial], Polynomial], bool]]
LETTERS = {
    "g": (co.grad, derivative, True),
    "j": (lambda f: lambda x: co.jvp(f, (x,), (np.ones_like(x),))[1], derivative, True),
    "v": (vmapped, both_rows, False),
    "w": (row_of_both, both_rows, False),
    "r": (co.jacrev, derivative, True),
    "f": (co.jacfwd, derivative, True),
    "h": (co.hessian, lambda p: derivative(derivative(p)), True),
    "c": (co.checkpoint, lambda p: p, False),
}


# A batch along another axis and a checkpoint are in words of two.
LONG = "gjvrfh"


def words(letters: Iterable[str], length: int) -> list[str]:
    return ["".join(word) for word in itertools.product(letters, repeat=length)]


def check(name: str, word: str) -> None:
    """Compare a word of transforms of x^3 with the polynomial."""
    fn, factor = FUNCTIONS[name]
    exact: Polynomial = {3: 1.0}
    for letter in reversed(word):
        transform, of_polynomial, differentiates = LETTERS[letter]
        fn, exact = transform(fn), of_polynomial(exact)
        if differentiates:
            exact = {n: factor * c for n, c in exact.items()}
            factor = 1.0
    x = 1.25
    want = sum(c * x**n for n, c in exact.items())
    np.testing.assert_allclose(fn(np.array(x)), want, rtol=1e-9, err_msg=word)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_words_of_two(name: str) -> None:
    """All words of up to two transforms."""
    for word in [*words(LETTERS, 1), *words(LETTERS, 2)]:
        check(name, word)


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", LONG)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_words_of_three(name: str, first: str) -> None:
    """All words of three transforms."""
    for word in words(LONG, 2):
        check(name, first + word)
