"""vmap of products with one batched operand: one product, and so is its gradient."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co
from tests.cases import cases

Function = Callable[[Any, Any], Any]

# Each takes a matrix of 6 x 4 and a row of 4, and gives what the product of both does.
_PRODUCTS: dict[str, Function] = {
    "@": lambda w, a: w @ a,
    "dot": np.dot,
    "inner": np.inner,
    "tensordot": lambda w, a: np.tensordot(w, a, 1),
    "einsum": lambda w, a: np.einsum("ij,j->i", w, a),
    "einsum optimize": lambda w, a: np.einsum("ij,j->i", w, a, optimize=True),
    "column": lambda w, a: (w @ a[:, None])[:, 0],
    "row": lambda w, a: (a[None] @ w.T)[0],
    "transposed": lambda w, a: a @ w.T,
}
if hasattr(np, "matvec"):  # since NumPy 2.2
    _PRODUCTS["matvec"] = np.matvec
    _PRODUCTS["vecmat"] = lambda w, a: np.vecmat(np.conj(a), w.T)


@pytest.mark.parametrize("name", _PRODUCTS)
@pytest.mark.parametrize("dtype", ["f4", "f8", "c16"])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_one_matrix(name: str, dtype: str, dim: int) -> None:
    """Values and gradients are those of the product of all rows."""
    rng = np.random.default_rng(0)
    w, x, g = (_random(rng, shape, dtype) for shape in ((6, 4), (5, 4), (5, 6)))
    given = np.moveaxis(x, 0, dim)
    fn = _PRODUCTS[name]

    def run(w: Any, x: Any) -> Any:
        return co.vmap(lambda a: fn(w, a), in_dims=dim)(x)

    def loss(w: Any, x: Any) -> Any:
        return np.sum(np.real(run(w, x) * g))

    near = 1e-4 if dtype == "f4" else 1e-12
    np.testing.assert_allclose(run(w, given), x @ w.T, rtol=near, atol=near)
    of_w, of_x = co.grad(loss, (0, 1))(w, given)
    np.testing.assert_allclose(of_w, g.T @ x, rtol=near, atol=near)
    np.testing.assert_allclose(of_x, np.moveaxis(g @ w, 0, dim), rtol=near, atol=near)
    assert (of_w.dtype, of_x.dtype) == (w.dtype, x.dtype)


def _random(rng: Any, shape: tuple[int, ...], dtype: str) -> Any:
    found = rng.standard_normal(shape)
    if dtype == "c16":
        found = found + 1j * rng.standard_normal(shape)
    return found.astype(dtype)


@pytest.mark.parametrize("name", [*_PRODUCTS, "matrices"])
def test_memory_of_the_gradient(name: str) -> None:
    """It takes no memory for a matrix of each row: 20 MB here."""
    rng = np.random.default_rng(0)
    w, x = rng.standard_normal((50, 50)), rng.standard_normal((1000, 50))
    fn = _PRODUCTS.get(name, lambda w, a: w @ np.reshape(a, (50, 1)) @ np.ones((1, 2)))
    step = co.grad(lambda w: np.sum(co.vmap(lambda a: fn(w, a))(x) ** 2))
    step(w)
    tracemalloc.start()
    try:
        step(w)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 6e6


def test_objects() -> None:
    """Objects whose products depend on the order keep their places."""

    class Word(str):
        __slots__ = ()

        def __mul__(self, other: Any) -> Any:
            return Word(f"{self}{other}")

        def __add__(self, other: Any) -> Any:
            return Word(f"{self}+{other}")

    w = np.array([[Word("a"), Word("b")]], object)
    x = np.array([[Word("x"), Word("y")], [Word("u"), Word("v")]], object)
    found = co.vmap(lambda a: w @ a)(x)
    assert [*found[:, 0]] == ["ax+by", "au+bv"]


# ---- random products ----

_FORMS = ("ij,j->i", "ij,jk->ik", "ij,kj->ik", "ij,jk->ki", "ijk,jk->i", "ij,kl->ikjl")
_FORMS = (
    *_FORMS,
    "ijk,kl->ijl",
    "i,ij->j",
    "ij,ij->i",
    "ij,j->ij",
    "ij,ij->",
    "ii,ij->j",
)


@pytest.mark.parametrize("seed", range(4))
def test_random_products(seed: int) -> None:
    """Nested batches of products are those of loops, and so are their derivatives.

    A product is linear in each factor, so gradients are compared exactly: by the products
    of other factors in their places.
    """
    rng = np.random.default_rng(seed)
    with cases() as case:
        for number in range(25):
            with case(number):
                _check_product(rng)


@pytest.mark.exhaustive
@pytest.mark.parametrize("seed", range(100, 108))
def test_many_random_products(seed: int) -> None:
    """The same of more programs."""
    rng = np.random.default_rng(seed)
    with cases() as case:
        for number in range(60):
            with case(number):
                _check_product(rng)


def _check_product(rng: Any) -> None:
    text = str(rng.choice(_FORMS))
    lengths = dict(zip("ijkl", rng.choice([1, 1, 2, 3], 4), strict=True))
    if "ii" in text:
        lengths["i"] = lengths["j"]
    first, second = text.partition("->")[0].split(",")
    shapes = [[int(lengths[c]) for c in term] for term in (first, second)]
    fn = _as_function(rng, text)
    batches = [int(n) for n in rng.choice([1, 2, 3], int(rng.choice([1, 2])))]
    # For each level, from inside, the axes of both factors.
    levels: list[tuple[int | None, int | None]] = []
    for size in batches:
        dims: list[int | None] = [None, None]
        for at in {int(rng.integers(2)), int(rng.integers(2))}:
            dims[at] = int(rng.integers(len(shapes[at]) + 1))
            shapes[at].insert(dims[at] or 0, size)
        levels.append((dims[0], dims[1]))
    a, da, b, db = (rng.standard_normal(s) for s in (*shapes[:1] * 2, *shapes[1:] * 2))
    batched: Any = fn
    for pair in levels:
        batched = co.vmap(batched, in_dims=pair)

    def loop(a: Any, b: Any) -> Any:
        return _looped(fn, a, b, levels, batches)

    expected = loop(a, b)
    np.testing.assert_allclose(batched(a, b), expected, atol=1e-12)
    g = rng.standard_normal(expected.shape)
    of_a, of_b = co.grad(lambda a, b: np.sum(batched(a, b) * g), (0, 1))(a, b)
    np.testing.assert_allclose(np.sum(of_a * da), np.sum(loop(da, b) * g), atol=1e-10)
    np.testing.assert_allclose(np.sum(of_b * db), np.sum(loop(a, db) * g), atol=1e-10)
    tangent = co.jvp(batched, (a, b), (da, db))[1]
    np.testing.assert_allclose(tangent, loop(da, b) + loop(a, db), atol=1e-10)


def _as_function(rng: Any, text: str) -> Function:
    """Return an einsum, or the same by another function if there is one."""
    forms: list[Function] = [lambda a, b: np.einsum(text, a, b)]
    if text in ("ij,j->i", "ij,jk->ik", "ijk,kl->ijl", "i,ij->j"):
        forms += [np.matmul, np.matmul, np.dot]
    if text in ("ij,j->i", "ij,kj->ik"):
        forms.append(np.inner)
    if text == "ijk,jk->i":
        forms.append(lambda a, b: np.tensordot(a, b, ((1, 2), (0, 1))))
    return forms[int(rng.integers(len(forms)))]


def _looped(
    fn: Function,
    a: Any,
    b: Any,
    levels: list[tuple[int | None, int | None]],
    batches: list[int],
) -> Any:
    """Apply a function to the rows of both factors, level by level, in loops."""
    if not levels:
        return fn(a, b)
    *inner, (dim_a, dim_b) = levels
    found = [
        _looped(fn, _row(a, dim_a, i), _row(b, dim_b, i), inner, batches[:-1])
        for i in range(batches[-1])
    ]
    return np.array(found)


def _row(x: Any, dim: int | None, i: int) -> Any:
    return x if dim is None else np.take(x, i, axis=dim)
