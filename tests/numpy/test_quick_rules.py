"""Short ways that rules and kernels take for plain arrays, beside NumPy and sums by hand."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import customop as co

RNG = np.random.default_rng(11)
M = RNG.normal(size=(3, 4))
ORDERS = (M, np.asfortranarray(M), M[::-1, ::2], M.astype(np.float32), M[:0])


def same_layout(found: Any, expected: Any) -> None:
    """Equal values, dtypes and order in memory."""
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype
    assert found.flags.fnc == expected.flags.fnc


def through_tracer(fn: Callable[..., Any], x: Any) -> Any:
    """The value of a function that sees a tracer."""
    return co.vjp(fn, x)[0]


def linear_pull(fn: Callable[..., Any], x: Any, w: Any) -> Any:
    """The gradient of ``sum(fn(x) * w)`` of a linear function, element by element."""
    found = np.zeros(x.shape)
    for at in np.ndindex(*x.shape):
        unit = np.zeros(x.shape)
        unit[at] = 1.0
        found[at] = np.sum(fn(unit) * w)
    return found


LINEAR: dict[str, Callable[[Any], Any]] = {
    "pad": lambda x: np.pad(x, ((1, 0), (2, 3))),
    "pad_nothing": lambda x: np.pad(x, 0),
    "tile": lambda x: np.tile(x, (2, 1, 3)),
    "tile_once": lambda x: np.tile(x, 1),
    "repeat": lambda x: np.repeat(x, 3, axis=1),
    "repeat_many": lambda x: np.repeat(x, 9, axis=-1),
    "repeat_rows": lambda x: np.repeat(x, 2, axis=0),
    "repeat_never": lambda x: np.repeat(x, 0),
    "trace_above": lambda x: np.trace(x, 1),
    "trace_below": lambda x: np.trace(x, -2, 1, 0),
    "diagonal": lambda x: np.diagonal(x, -1),
    "flip": lambda x: np.flip(x, -1),
    "roll": lambda x: np.roll(x, -5, axis=1),
    "roll_both": lambda x: np.roll(x, (1, 2), axis=(0, -1)),
    "cumsum": lambda x: np.cumsum(x, axis=-1),
    "diff": lambda x: np.diff(x, 2, axis=-1),
    "gradient": lambda x: np.gradient(x, 0.5, axis=1),
    "outer": lambda x: np.outer(x, np.arange(3.0)),
    "dots": lambda x: x[..., None, 1],
    "dots_first": lambda x: x[None, ..., ::-1],
    "places_of_columns": lambda x: x[:, np.array([[1, 0], [1, 1]])],
    "einsum_of_rows": lambda x: np.einsum("ij->i", x),
    "einsum_of_all": lambda x: np.einsum("ij->", x),
    "einsum_product": lambda x: np.einsum("ij,k->ikj", x, np.arange(3.0)),
    "einsum_by_number": lambda x: np.einsum("ij,->ij", x, np.array(2.5)),
    "linspace": lambda x: np.linspace(x[:1], x * 2.0, 5),
    "linspace_open": lambda x: np.linspace(0.0, x, 4, endpoint=False, axis=-1),
    "full": lambda x: np.tensordot(x, np.arange(12.0).reshape(4, 3), ([1, 0], [0, 1])),
}
VIEWS = ("flip", "diagonal", "dots", "dots_first")


@pytest.mark.parametrize("name", LINEAR)
def test_linear_functions(name: str) -> None:
    """Values, dtypes and order in memory are NumPy's; gradients are sums by hand."""
    fn = LINEAR[name]
    for x in ORDERS:
        if name in ("gradient", "full", "diff") and x.shape != M.shape:
            continue
        found, expected = through_tracer(fn, x), np.asarray(fn(x))
        if name in VIEWS:  # of which a result is a copy
            np.testing.assert_array_equal(found, expected)
        else:
            same_layout(found, expected)
    w = RNG.normal(size=np.shape(fn(M)))
    found = co.grad(lambda x: np.sum(fn(x) * w))(M)
    np.testing.assert_allclose(found, linear_pull(fn, M, w), rtol=1e-12, atol=1e-13)


PADS: list[tuple[Any, Any]] = [
    (np.array([1, 2], np.int8), -1.5),
    (np.array([1.0, 2.0]), 2),
    (np.array([True, False]), 0),
    (np.array([1 + 2j]), 1.5),
    (np.array([1, 2], object), 0),
    (np.array(["a", "b"]), 0),
    (np.array([1.0], np.float16), np.inf),
]


@pytest.mark.parametrize(("x", "value"), PADS, ids=[f"{x.dtype}-{v}" for x, v in PADS])
def test_padding_casts_as_numpy(x: Any, value: Any) -> None:
    """The padding is cast into the array as NumPy casts it."""
    with np.errstate(invalid="ignore"):
        expected = np.pad(x, 1, constant_values=value)
        found = co.ops.np.pad(x, [(1, 1)], value)
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype
    with pytest.raises(OverflowError, match="300 out of bounds for int8"):
        co.ops.np.pad(np.zeros(2, np.int8), [(1, 1)], 300)


def test_equal_elements_are_sorted_in_order() -> None:
    """Gradients of equal elements, and nan, go by the stable order."""
    x = np.array([2.0, 1.0, 2.0, np.nan, 1.0, 0.0, np.nan, 2.0])
    w = RNG.normal(size=8)
    expected = np.empty(8)
    expected[np.argsort(x, kind="stable")] = w
    for fn in (np.sort, lambda x: np.partition(x, range(8))):
        found = co.grad(lambda x, fn=fn: np.sum(fn(x) * w))(x)
        np.testing.assert_array_equal(found, expected)
    rows = RNG.permuted(np.arange(12.0).reshape(3, 4), axis=0)
    for axis in (0, 1):
        w = RNG.normal(size=(3, 4))
        found = co.grad(lambda x, a=axis, w=w: np.sum(np.sort(x, a) * w))(rows)
        expected = np.empty((3, 4))
        np.put_along_axis(expected, np.argsort(rows, axis), w, axis)
        np.testing.assert_array_equal(found, expected)


PRODUCTS = [
    [2.0, 3.0, 0.5],
    [2.0, 0.0, 0.5],
    [0.0, 0.0, 0.5],
    [1e-200, 1e-200, 1e200],
    [1e200, 1e200, 1e-200],
    [np.inf, 2.0, 3.0],
    [5e-324, 1e300, 1e10],
]


@pytest.mark.parametrize("values", PRODUCTS, ids=str)
def test_products_of_the_others(values: list[float]) -> None:
    """The derivative of a product is the product of the others, where it is not normal too."""
    x = np.array(values)
    with np.errstate(all="ignore"):
        expected = [np.prod(np.delete(x, i)) for i in range(3)]
        found = co.grad(np.prod)(x)
    np.testing.assert_allclose(found, expected, rtol=1e-15)


def test_products_of_the_others_move() -> None:
    """A relative change that overflows is not used where the change itself does not."""
    x, t = np.array([1e-300, 1e290, 1e-5]), np.array([1e10, 0.0, 0.0])
    with np.errstate(all="ignore"):
        found = co.jvp(co.grad(np.prod), (x,), (t,))[1]
    np.testing.assert_allclose(found, [0.0, t[0] * x[2], t[0] * x[1]], rtol=1e-15)


@pytest.mark.parametrize("count", [3, 600])
@pytest.mark.parametrize("scale", [1.0, 1e-170, 1e170, 1e-300, 1e300])
def test_angles_of_any_size(scale: float, count: int) -> None:
    """Squares that overflow or vanish are not used."""
    y = np.resize([0.3, -0.8, 1e-3], count)
    x = np.resize([0.7, 0.2, -2.0], count)
    by_y, by_x = co.grad(lambda p: np.sum(np.arctan2(p[0], p[1])))(
        (y * scale, x * scale)
    )
    size = y * y + x * x
    np.testing.assert_allclose(by_y * scale, x / size, rtol=1e-14)
    np.testing.assert_allclose(by_x * scale, -y / size, rtol=1e-14)


def test_slopes_of_sinc() -> None:
    """Near zero and far from it, beside a complex step."""
    x = np.array([0.0, 1e-9, -0.05, 0.2, 0.3183, 0.319, -0.9, 1.0, 2.5, 40.25])
    expected = np.sinc(x + 1e-30j).imag / 1e-30
    expected[:2] = 0.0, -np.pi * np.pi / 3e9  # the first term of the series
    found = co.grad(lambda x: np.sum(np.sinc(x)))(x)
    np.testing.assert_allclose(found, expected, rtol=2e-14, atol=1e-15)


def test_norms_of_powers() -> None:
    """Of large numbers, of zeros, and of complex numbers."""
    norm = np.linalg.norm
    x = np.array([0.3, -1.2, 0.0, 2.0])
    for order in (3, 2.5, 1.5, 7):
        size = norm(x, order)
        expected = np.sign(x) * np.abs(x) ** (order - 1) / size ** (order - 1)
        for scale in (1.0, 1e80) if order == 3 else (1.0,):
            found = co.grad(lambda x, p=order: norm(x, p))(x * scale)
            np.testing.assert_allclose(found, expected, rtol=1e-13)
    np.testing.assert_array_equal(co.grad(lambda x: norm(x, 3))(np.zeros(2)), 0.0)


PAIRS = [
    f"{''.join(a)},{''.join(b)}->{''.join(c)}"
    for a, b, c in itertools.product(("ij", "ji"), ("jk", "kj"), ("ik", "ki"))
]


@pytest.mark.parametrize("text", PAIRS)
@pytest.mark.parametrize("batch", ["", "b", "bh"])
def test_products_of_matrices_by_einsum(text: str, batch: str) -> None:
    """Gradients of both operands are NumPy's einsum of the rest, for every order."""
    lengths = {"b": 2, "h": 3, "i": 4, "j": 5, "k": 6}
    terms = [batch + t for t in text.replace("->", ",").split(",")]
    shapes = [tuple(lengths[c] for c in t) for t in terms]
    x, y, w = (RNG.normal(size=shape) for shape in shapes)
    whole = f"{terms[0]},{terms[1]}->{terms[2]}"
    found = co.grad(lambda p: np.sum(np.einsum(whole, *p) * w))((x, y))
    by_x = np.einsum(f"{terms[2]},{terms[1]}->{terms[0]}", w, y)
    by_y = np.einsum(f"{terms[0]},{terms[2]}->{terms[1]}", x, w)
    np.testing.assert_allclose(found[0], by_x, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(found[1], by_y, rtol=1e-12, atol=1e-13)


def test_einsum_that_repeats_an_axis_of_length_one() -> None:
    """Such an axis is summed with a longer one, which a product of matrices cannot."""
    x, y, w = RNG.normal(size=(3, 1)), RNG.normal(size=(4, 5)), RNG.normal(size=(3, 5))
    found = co.grad(lambda p: np.sum(np.einsum("ij,jk->ik", *p) * w))((x, y))
    np.testing.assert_allclose(found[0], (w @ y.sum(0))[:, None])
    np.testing.assert_allclose(found[1], np.tile(x[:, 0] @ w, (4, 1)))


CROSSED = [
    (np.arange(3.0), np.ones((2, 3))),
    (np.arange(3), np.array([1.0, 5.0, 2.0], np.float32)),
    (np.arange(6).reshape(2, 3) + 1j, np.arange(3.0)),
    (np.array([250, 3, 9], np.uint8), np.array([7, 200, 1], np.uint8)),
]


@pytest.mark.parametrize("pair", CROSSED, ids=["float", "mixed", "complex", "uint8"])
def test_cross_products_are_numpys(pair: Any) -> None:
    """Values and dtypes, bit for bit."""
    expected = np.cross(*pair)
    found = co.ops.np.cross(*pair)
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype


def test_determinants_of_matrices_near_singular_ones() -> None:
    """The gradient is the matrix of cofactors, with and without an inverse."""
    cofactors = lambda a: np.array([[a[1, 1], -a[1, 0]], [-a[0, 1], a[0, 0]]])
    for a in (
        [[2.0, 1.0], [0.5, 3.0]],
        [[1.0, 2.0], [2.0, 4.0]],
        [[1.0, 1.0], [1.0, 1 + 1e-14]],
    ):
        found = co.grad(np.linalg.det)(np.array(a))
        np.testing.assert_allclose(found, cofactors(np.array(a)), rtol=1e-7, atol=1e-13)


# ---- products of all factors but one ----


def others_by_hand(x: Any, axes: tuple[int, ...]) -> Any:
    """The product of all elements along some axes but the own one."""
    found = np.empty_like(x)
    for at in np.ndindex(*x.shape):
        line = x[tuple(slice(None) if i in axes else n for i, n in enumerate(at))]
        place = tuple(n for i, n in enumerate(at) if i in axes)
        rest = np.delete(line.ravel(), np.ravel_multi_index(place, line.shape))
        found[at] = np.prod(rest)
    return found


FACTORS = RNG.uniform(0.5, 1.5, (3, 4)) * RNG.choice([-1.0, 1.0], (3, 4))
WITH_ZEROS = np.where(np.arange(12).reshape(3, 4) % 5 == 0, 0.0, FACTORS)
TINY = np.array([[1e-200, 1e-200, 2.0, 3.0], [1e200, 1e200, 2.0, 0.5]])


@pytest.mark.parametrize("axis", [None, [0], [-1], [0, 1], []])
@pytest.mark.parametrize("order", ["C", "F"])
def test_products_of_others(axis: list[int] | None, order: Any) -> None:
    """They are right with zeros among the factors, and where the product overflows."""
    axes = (0, 1) if axis is None else tuple(a % 2 for a in axis)
    extremes = [TINY] if axes == (1,) else []
    for x in (FACTORS, WITH_ZEROS, FACTORS + 1j * WITH_ZEROS, *extremes):
        given = np.array(x, order=order)
        with np.errstate(over="ignore"):
            found = co.ops.np.others(given, axis)
            expected = others_by_hand(x, axes)
        np.testing.assert_allclose(found, expected, rtol=1e-13)
        assert found.strides == given.strides


@pytest.mark.parametrize("axis", [None, (0,), (1,), (0, 1)])
@pytest.mark.parametrize("x", [FACTORS, WITH_ZEROS], ids=["regular", "zeros"])
def test_second_derivatives_of_products(axis: Any, x: Any) -> None:
    """Beside differences of the products of others; so are third ones."""
    axes = (0, 1) if axis is None else axis
    w, t = RNG.normal(size=(2, 3, 4))
    weights = np.sum(w, axes, keepdims=True)

    def slope(x: Any) -> Any:
        return co.grad(lambda v: np.sum(np.prod(v, axis, keepdims=True) * weights))(x)

    h = 1e-6
    ends = [others_by_hand(x + s * t, axes) * weights for s in (h, -h)]
    expected = (ends[0] - ends[1]) / (2 * h)
    pushed = co.jvp(slope, (x,), (t,))[1]
    np.testing.assert_allclose(pushed, expected, rtol=1e-7, atol=1e-8)
    pulled = co.grad(lambda v: np.sum(slope(v) * t))(x)
    np.testing.assert_allclose(pulled, expected, rtol=1e-7, atol=1e-8)
    rows = co.vmap(co.grad(lambda v, t: np.sum(slope(v) * t)))(
        np.stack([x, x]), np.stack([t, 2 * t])
    )
    np.testing.assert_allclose(rows, [pulled, 2 * pulled], rtol=1e-12)
    third = co.grad(lambda v: np.sum(co.jvp(slope, (v,), (t,))[1] * w))(x)
    change = [co.jvp(slope, (x + s * w,), (t,))[1] for s in (h, -h)]
    moved = np.sum((change[0] - change[1]) * w) / (2 * h)
    np.testing.assert_allclose(np.sum(third * w), moved, rtol=1e-6, atol=1e-7)


# ---- arctan2 ----


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", [3, 600])
def test_slopes_of_arctan2(dtype: Any, n: int) -> None:
    """They are precise also where squares overflow or underflow, beside longer floats."""
    span = 60 if dtype is np.float64 else 8
    scales = 2.0 ** (span * RNG.integers(-10, 11, (2, n)))
    a, b = (RNG.normal(size=(2, n)) * scales).astype(dtype)
    for x1, x2 in ((a, b), (a, 0.5), (0.25, b), (np.stack([a, b]), b)):
        w1, w2 = np.longdouble(x1), np.longdouble(x2)
        whole = w1 * w1 + w2 * w2
        tolerance = 8 * np.finfo(dtype).eps
        for at, expected in enumerate((w2 / whole, -w1 / whole)):
            x = (x1, x2)[at]
            if isinstance(x, float):
                continue
            value, pull = co.vjp(
                (lambda v, c=x2: np.arctan2(v, c), lambda v, c=x1: np.arctan2(c, v))[
                    at
                ],
                x,
            )
            found = pull(np.ones_like(value))[0].astype(np.longdouble)
            if expected.shape != x.shape:
                continue
            is_normal = np.abs(expected) > np.finfo(dtype).tiny
            np.testing.assert_allclose(
                found[is_normal], expected[is_normal], rtol=float(tolerance)
            )


def test_second_derivatives_of_arctan2() -> None:
    """Beside differences of the first ones, in reverse and forward mode."""
    x, y, t = RNG.normal(size=(3, 600))

    def slope(x: Any, y: Any) -> Any:
        return co.grad(lambda a, b: np.sum(np.arctan2(a, b) * np.cos(a)), (0, 1))(x, y)

    h = 1e-6
    ends = [slope(x + s * t, y - s * t) for s in (h, -h)]
    expected = [(u - v) / (2 * h) for u, v in zip(*ends, strict=True)]
    pushed = co.jvp(slope, (x, y), (t, -t))[1]
    np.testing.assert_allclose(pushed, expected, rtol=1e-5, atol=1e-4)
    pulled = co.grad(lambda a, b: sum(np.sum(g * t) for g in slope(a, b)), (0, 1))(x, y)
    turned = [np.sum(t * (u - v)) for u, v in [pulled]]
    both = [np.sum(t * (u + v)) for u, v in [pushed]]
    np.testing.assert_allclose(turned, both, rtol=1e-9)


def test_powers_of_four_and_five() -> None:
    """Their derivatives are products, for all dtypes of floats."""
    x = RNG.normal(size=5)
    for dtype, tolerance in ((np.float64, 1e-14), (np.float32, 1e-5), (complex, 1e-14)):
        given = x.astype(dtype) * (1 + 1j if dtype is complex else 1)
        for n in (4, 5, 4.0):
            value, pull = co.vjp(lambda v, n=n: v**n, given)
            found = pull(np.ones_like(value))[0]
            np.testing.assert_allclose(found, n * given ** (n - 1), rtol=tolerance)
            assert found.dtype == given.dtype


def test_contractions_to_numbers() -> None:
    """Gradients of tensordot over all axes in any order, beside sums by hand."""
    a, b = RNG.normal(size=(2, 3, 4)), RNG.normal(size=(3, 4, 2))
    found = co.grad(lambda a: np.tensordot(a, b, ([0, 1, 2], [2, 0, 1])))(a)
    np.testing.assert_array_equal(found, b.transpose(2, 0, 1))
    found = co.grad(lambda b: np.tensordot(a, b, ([0, 1, 2], [2, 0, -2])))(b)
    np.testing.assert_array_equal(found, a.transpose(1, 2, 0))
    found = co.grad(lambda a: np.tensordot(a, a, ([0, 1, 2], [0, 1, 2])))(a)
    np.testing.assert_array_equal(found, 2 * a)


def test_lists_of_integers_index_as_arrays() -> None:
    """Negative and repeated ones too; places out of range and wrong axes are errors."""
    x = RNG.normal(size=(4, 3))
    for key in ([0, 2], [-1, 1, 1], [3]):
        assert_alike = np.testing.assert_array_equal
        assert_alike(through_tracer(lambda v, k=key: v[k], x), x[key])
        expected = np.zeros((4, 3))
        np.add.at(expected, key, 1.0)
        assert_alike(co.grad(lambda v, k=key: np.sum(v[k]))(x), expected)
    with pytest.raises(IndexError, match="4 is out of bounds for axis 0 with size 4"):
        co.grad(lambda v: np.sum(v[[4]]))(x)


def test_slopes_of_angles() -> None:
    """Of complex numbers they are those of arctan2, by both parts."""
    z = RNG.normal(size=6) + 1j * RNG.normal(size=6)
    w = np.arange(6.0)
    parts = lambda fn: lambda x, y: np.sum(fn(x + 1j * y) * w)
    by_parts = co.grad(lambda x, y: np.sum(np.arctan2(y, x) * w), (0, 1))
    expected = by_parts(z.real, z.imag)
    found = co.grad(parts(np.angle), (0, 1))(z.real, z.imag)
    np.testing.assert_allclose(found, expected, rtol=1e-13)
    moved = co.jvp(np.angle, (z,), (1j * z,))[1]
    np.testing.assert_allclose(moved, np.ones(6), rtol=1e-13)
    second = co.hessian(lambda v: parts(np.angle)(v[0], v[1]))(
        np.stack([z.real, z.imag])
    )
    plain = co.hessian(lambda v: np.sum(np.arctan2(v[1], v[0]) * w))
    np.testing.assert_allclose(
        second, plain(np.stack([z.real, z.imag])), rtol=1e-10, atol=1e-12
    )


def test_determinants_of_two_rows() -> None:
    """Their cofactors are their elements, in all orders in memory and at rank 1 and 0."""
    a = RNG.normal(size=(3, 2, 2))
    a[1], a[2] = 0.0, [[1.0, 2.0], [2.0, 4.0]]
    for given in (a, np.asfortranarray(a), a.transpose(0, 2, 1), a.astype(np.float32)):
        found = co.grad(lambda v: np.sum(np.linalg.det(v)))(given)
        expected = np.empty((3, 2, 2))
        expected[:, 0, 0], expected[:, 1, 1] = given[:, 1, 1], given[:, 0, 0]
        expected[:, 0, 1], expected[:, 1, 0] = -given[:, 1, 0], -given[:, 0, 1]
        np.testing.assert_array_equal(found, expected.astype(given.dtype))
    t = RNG.normal(size=(2, 2))
    second = co.jvp(co.grad(np.linalg.det), (a[2],), (t,))[1]
    np.testing.assert_array_equal(second, [[t[1, 1], -t[1, 0]], [-t[0, 1], t[0, 0]]])
