"""Values and derivatives of NumPy's functions where they were wrong or are delicate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import optree
import pytest

import customop as co

X = np.array([[0.5, 1.5, 2.5], [3.5, 4.5, 5.5]])
NAN = np.array([[1.0, np.nan, 3.0], [4.0, 5.0, 9.0]])
CUBE = np.arange(24.0).reshape(2, 3, 4)
Z = np.array([1.5 - 2.0j, 0.0, -0.3 + 0.4j])


class Boxes(co.Interpreter):
    """Passes every call on to the values below."""

    kind = co.RuleKind("boxes")

    def process(self, op: Any, args: Any) -> Any:
        return self.wrap(op.invoke(self.unwrap(args)))


def traced(fn: Callable[[Any], Any], x: Any) -> Any:
    """The result of a function of a traced value, of any dtype."""
    with Boxes() as boxes:
        return optree.tree_map(boxes.lower, fn(boxes.wrap(x)))


def batched(fn: Callable[[Any], Any], x: Any) -> Any:
    """The result for one of two equal rows."""
    return optree.tree_map(lambda rows: rows[1], co.vmap(fn)(np.stack([x, x])))


VALUES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "empty ellipsis": (lambda x: x[:, [0, 1], ..., [1, 0]], CUBE),
    "empty ellipsis, int": (lambda x: x[:, 0, ..., [1, 0]], CUBE),
    "empty ellipsis, int behind": (lambda x: x[:, [1, 0], ..., 1], CUBE),
    "empty ellipsis, mask": (lambda x: x[:, [True, False, True], ..., [1, 0]], CUBE),
    "empty ellipsis, two axes": (lambda x: x[:, [[0], [1]], ..., [1, 0]], CUBE),
    "ellipsis at the end": (lambda x: x[:, [0, 1], [1, 0], ...], CUBE),
    "nanmean of int8": (np.nanmean, np.full(300, 100, np.int8)),
    "nanmean of bools": (np.nanmean, np.array([True, True, False])),
    "nanmean of float16": (np.nanmean, np.ones(3000, np.float16)),
    "nanmean in float64": (lambda x: np.nanmean(x, dtype="f8"), np.float32([0.1, 0.2])),
    "nansum as int8": (lambda x: np.nansum(x, dtype=np.int8), np.full(3, 100)),
    "average of int8": (
        lambda x: np.average(x, weights=np.array([100, 100, 100], np.int8)),
        np.array([100, 101, 102], np.int8),
    ),
    "average of bools": (
        lambda x: np.average(x, weights=[1, 2, 1], returned=True),
        np.array([True, True, False]),
    ),
    "average of float16": (
        lambda x: np.average(x, 0, weights=np.arange(3, dtype=np.float16)),
        np.full((3, 2), 300, np.float16),
    ),
    "sum as int8": (lambda x: np.sum(x, axis=0, dtype=np.int8), np.full((3, 2), 100)),
    "sum as bool": (lambda x: np.sum(x, axis=0, dtype=bool), X),
    "cumsum as int8": (lambda x: np.cumsum(x, dtype=np.int8), np.full(3, 100)),
    "mean as int": (lambda x: np.mean(x, axis=0, dtype=int), X),
    "mean as float16": (
        lambda x: np.mean(x, axis=0, dtype=np.float16),
        np.full((3000, 2), 0.1),
    ),
    "var as float32": (lambda x: np.var(x, axis=0, dtype=np.float32), X + 1e8),
    "median with nan": (lambda x: np.median(x, axis=1), NAN),
    "median with nan of all": (np.median, NAN),
    "clip of int16, uint16 and float32": (
        lambda x: np.clip(x, np.uint16([1]), np.float32([2])),
        np.int16([0, 1, 3]),
    ),
    "clip beyond the dtype": (lambda x: np.clip(x, -1, 300), np.uint8([0, 7, 255])),
    "clip from below the dtype": (lambda x: np.clip(x, -1, 3), np.uint8([0, 7, 255])),
    "clip of uint8 to float16": (
        lambda x: np.clip(x, 0.5, np.float16([2.0])),
        np.uint8([0, 7, 255]),
    ),
    "clip to an int beyond the dtype and a float": (
        lambda x: np.clip(x, 300, 400.5),
        np.int8([0, 7]),
    ),
    "select of int16, uint16 and float32": (
        lambda x: np.select([x > 1, x > 0], [x, np.uint16([9])], np.float32(2.0)),
        np.int16([0, 1, 3]),
    ),
    "rollaxis from the end": (lambda x: np.rollaxis(x, 0, -1), CUBE),
    "rollaxis to the front": (lambda x: np.rollaxis(x, 2, -3), CUBE),
    "sum of no axes along 0": (lambda x: np.sum(x, axis=0), np.float32(2.0)),
    "reduce of no axes": (np.maximum.reduce, np.int8(2)),
    "cumsum of no axes": (lambda x: np.cumsum(x, axis=-1), np.int8(2)),
    "argsort of no axes": (np.argsort, np.int8(2)),
    "take from no axes": (lambda x: np.take(x, [0, 0], axis=0), np.int8(2)),
    "repeat by a float": (lambda x: np.repeat(x, 2.0), X),
    "full of one in a list": (lambda x: np.full_like(x, [3.0]), np.float64(1.0)),
    "mask of no length": (lambda x: x[np.zeros(0, bool)], X),
    "take along an axis without results": (
        lambda x: np.take(x, [7], axis=2),
        np.zeros((0, 2, 3)),
    ),
    "squeeze of no axes along 0": (lambda x: np.squeeze(x, 0), np.float64(1.0)),
    "repeat of nothing": (lambda x: np.repeat(x, [], axis=0), X[:0]),
    "largest of nothing": (
        lambda x: np.linalg.norm(x, np.inf, axis=0),
        np.zeros((0, 3)),
    ),
    "number of complex numbers": (lambda x: np.linalg.norm(x, 0), Z),
    "sign of complex numbers": (np.sign, Z),
    "array like a traced one": (lambda x: np.ones(2, like=x), X),
    "full array like a traced one": (lambda x: np.full(2, 1.5, like=x), X),
}
table = pytest.mark.parametrize(("fn", "x"), VALUES.values(), ids=VALUES)


@table
@pytest.mark.parametrize("way", [traced, batched])
def test_values_are_numpys(way: Any, fn: Any, x: Any) -> None:
    """Traced values are NumPy's, in NumPy's dtype."""
    expected = optree.tree_leaves(fn(x))
    for mine, numpys in zip(optree.tree_leaves(way(fn, x)), expected, strict=True):
        assert mine.dtype == numpys.dtype
        np.testing.assert_allclose(mine, numpys, rtol=1e-14)


@table
def test_fake_arrays_are_numpys(fn: Any, x: Any) -> None:
    """Fake arrays have NumPy's shapes and dtypes."""
    found, expected = co.eval_shape(fn, x), fn(x)
    pairs = zip(optree.tree_leaves(found), optree.tree_leaves(expected), strict=True)
    assert all((f.shape, f.dtype) == (n.shape, n.dtype) for f, n in pairs)


@pytest.mark.parametrize("way", [traced, batched])
def test_weights_without_a_sum_are_numpys_error(way: Any) -> None:
    """Weights that sum to zero raise, also if only those of a row do."""
    with pytest.raises(ZeroDivisionError):
        way(lambda x: np.average(x, weights=[1.0, -1.0]), np.ones(2))
    with pytest.raises(ZeroDivisionError):
        way(lambda w: np.average(np.ones(2), weights=w), np.array([1.0, -1.0]))


REFUSED: dict[str, Callable[[Any], Any]] = {
    "np.std(dtype=<class 'int'>)": lambda x: np.std(x, dtype=int),
    "np.nanstd(dtype=<class 'bool'>)": lambda x: np.nanstd(x.astype(int), dtype=bool),
}


@pytest.mark.parametrize("call", REFUSED)
def test_roots_in_integers(call: str) -> None:
    """Roots are not integers; NumPy has them only where the result has no axes."""
    with pytest.raises(co.ArgumentError) as raised:
        co.vmap(REFUSED[call])(X)
    assert raised.value.what.startswith(f"{call} has no operator")


def test_take_along_axis_takes_integers() -> None:
    """Masks are not places, as in NumPy."""
    for indices in (X > 1, X):
        with pytest.raises(co.ArgumentError, match="must be integers"):
            co.grad(lambda x, i=indices: np.sum(np.take_along_axis(x, i, 0)))(X)


# ---- errors ----

ERRORS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "max of nothing": (np.max, X[:0]),
    "max of nothing, of no rows": (lambda x: np.max(x, axis=0), np.zeros((0, 0))),
    "argmin of nothing": (lambda x: np.argmin(x, axis=1), X[:, :0]),
    "ptp of nothing": (np.ptp, X[:0]),
    "smallest of nothing": (lambda x: np.linalg.norm(x, -np.inf), X[0, :0]),
    "tril of no axes": (np.tril, np.float64(1.0)),
    "triu of no axes": (lambda x: np.triu(x, 1), np.float64(1.0)),
    "matmul of no axes": (lambda x: np.matmul(x, X), np.float64(1.0)),
    "tensordot of other axes": (lambda x: np.tensordot(x, x.T, 2), X),
    "einsum of a broadcast diagonal": (lambda x: np.einsum("ii->i", x), X[:, :1]),
    "norm without axes": (lambda x: np.linalg.norm(x, axis=()), X),
    "Frobenius norm of three axes": (lambda x: np.linalg.norm(x, "fro"), CUBE),
    "norm along an axis of none": (
        lambda x: np.linalg.norm(x, 3, axis=0),
        np.float64(1.0),
    ),
    "rollaxis beyond the front": (lambda x: np.rollaxis(x, 2, -4), CUBE),
    "select by numbers": (lambda x: np.select([x], [x]), X),
    "cast of floats to ints": (lambda x: np.concatenate([x, x], dtype=int), X),
    "clip by one bound too many": (lambda x: np.clip(x, 0.0, 1.0, max=2.0), X),
    "index beyond an axis, of nothing": (lambda x: x[:, [7]], X[:0]),
    "round of bools": (lambda x: np.round(x, 1), X > 1.0),
}


@pytest.mark.parametrize(("fn", "x"), ERRORS.values(), ids=ERRORS)
@pytest.mark.parametrize("way", [traced, batched, co.eval_shape])
def test_errors_are_numpys(way: Any, fn: Any, x: Any) -> None:
    """What NumPy refuses is refused, also of fake arrays."""
    with pytest.raises((TypeError, ValueError, IndexError)) as numpys:
        fn(x)
    if way is co.eval_shape and numpys.type is IndexError:
        return  # a fake array of indices has no numbers
    with pytest.raises((TypeError, ValueError, IndexError)):
        way(fn, x)


# ---- derivatives ----


def slope(fn: Callable[[Any], Any], z: complex, along: complex = 1.0) -> complex:
    """A central difference along a direction of the complex plane."""
    h = 1e-6 * along
    return complex(fn(z + h) - fn(z - h)) / 2e-6


PLANE = [1.5 + 0.5j, -2.0 + 0.5j, -2.0 - 0.5j, -0.3 + 1.2j, 0.4 - 2.0j, 2.0 + 0.0j]


@pytest.mark.parametrize("name", ["arccosh", "arccos", "arcsin", "arcsinh", "arctanh"])
@pytest.mark.parametrize("z", PLANE)
def test_inverse_functions_of_complex_numbers(name: str, z: complex) -> None:
    """The derivative is on the branch that NumPy's values are on."""
    fn = getattr(np, name)
    _, tangent = co.jvp(fn, (np.array(z),), (np.array(1.0 + 0j),))
    assert abs(tangent - slope(fn, z)) < 1e-8


@pytest.mark.parametrize("z", [1.5 + 0.5j, -2.0 - 0.5j])
@pytest.mark.parametrize("along", [1.0, 1.0j, 0.6 - 0.8j])
def test_sign_of_a_complex_number_turns(z: complex, along: complex) -> None:
    """The tangent of z / abs(z) follows a difference in each direction."""
    x, t = np.array(z), np.array(along, complex)
    _, tangent = co.jvp(np.sign, (x,), (t,))
    assert abs(tangent - slope(np.sign, z, along)) < 1e-9
    # The pullback is the transpose over the reals: Re(g t') = Re(pullback(g) t).
    for g in (1.0 + 0j, 0.3 - 0.7j):
        (pulled,) = co.vjp(np.sign, x)[1](np.array(g))
        assert abs((g * tangent).real - (pulled * along).real) < 1e-12


@pytest.mark.parametrize("mode", ["grad", "jvp"])
def test_clip_shares_its_slope_at_ties(mode: str) -> None:
    """An element at a bound has half the slope of each, like `maximum` and `minimum`."""
    x, low = np.array([-1.0, 0.0, 0.5, 1.0, 2.0, 3.0]), np.array([0.0] * 5 + [3.0])
    high = np.array([1.0] * 5 + [3.0])
    expected = [
        [0.0, 0.5, 1.0, 0.5, 0.0, 0.25],
        [1.0, 0.5, 0.0, 0.0, 0.0, 0.25],
        [0.0, 0.0, 0.0, 0.5, 1.0, 0.5],
    ]
    if mode == "grad":
        found = co.grad(lambda *v: np.sum(np.clip(*v)), argnums=(0, 1, 2))(x, low, high)
    else:
        rows = np.eye(3)[:, :, None] * np.ones(6)
        found = [co.jvp(np.clip, (x, low, high), tuple(row))[1] for row in rows]
    np.testing.assert_array_equal(found, expected)


def test_sign_of_zero_has_no_slope() -> None:
    """The derivatives at 0 are 0, not nan."""
    _, tangent = co.jvp(np.sign, (np.array(0j),), (np.array(1 + 1j),))
    assert tangent == 0


@pytest.mark.parametrize("base", [0.5, 2.0])
@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, -1.0])
def test_second_derivatives_of_powers(base: float, exponent: float) -> None:
    """They are those of exp(y log(x)), also at the exponents 0 and 1."""
    x, y, log = base, exponent, np.log(base)
    mixed = x ** (y - 1) * (1 + y * log)
    expected = [[y * (y - 1) * x ** (y - 2), mixed], [mixed, log**2 * x**y]]
    point = np.array([base, exponent])
    for hessian in (co.hessian, lambda f: co.jacrev(co.jacrev(f))):
        found = hessian(lambda v: np.power(v[0], v[1]))(point)
        np.testing.assert_allclose(found, expected, rtol=1e-13)


def test_powers_of_zero_have_finite_derivatives() -> None:
    """0 ** 0 and 0 ** 1 have the slopes 0 and 1 by the base."""
    base, exponents = np.zeros(3), np.array([0.0, 1.0, 2.0])
    slopes = co.grad(lambda x: np.sum(np.power(x, exponents)))(base)
    assert slopes.tolist() == [0.0, 1.0, 0.0]


@pytest.mark.parametrize(
    "exponent",
    [0, 0.0, np.float64(0.0), np.zeros(1), np.zeros(4)],
    ids=["int", "float", "scalar", "one", "array"],
)
def test_a_power_of_zero_has_no_slope(exponent: Any) -> None:
    """It is 1 for every base, nan too, however the exponent is given."""
    base = np.array([np.nan, 2.0, 0.0, np.inf])
    assert (base**exponent).tolist() == [1.0] * 4
    slopes = co.grad(lambda x, k: np.sum(x**k))
    for by in (slopes, co.compile(slopes), co.make_fx(slopes)(base, exponent)):
        assert by(base, exponent).tolist() == [0.0] * 4


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int32, np.int64])
@pytest.mark.parametrize("end", ["min", "max"])
def test_integers_in_formulas_do_not_overflow(dtype: Any, end: str) -> None:
    """Beside an integer the derivatives are those beside the same float."""
    n = getattr(np.iinfo(dtype), end)
    y, x, large = np.array([n], dtype), np.array([1.5]), np.array([1e90])
    slopes = co.grad(lambda v: np.sum(np.arctan2(y, v)))(x)
    np.testing.assert_allclose(slopes, -float(n) / np.hypot(float(n), 1.5) ** 2)
    for power in range(3):
        exponent = np.array([power], dtype)
        slopes = co.grad(lambda v, k=exponent: np.sum(np.power(v, k)))(large)
        expected = power * 1e90 ** (power - 1) if power else 0.0
        np.testing.assert_allclose(slopes, expected)


def test_arctan2_of_large_numbers_has_a_slope() -> None:
    """The sum of their squares would be infinite."""
    slope_ = co.grad(lambda v: np.arctan2(1e200, v))(np.array(1e200))
    np.testing.assert_allclose(slope_, -0.5e-200)


@pytest.mark.parametrize("base", [-2.0, np.array(-2.0), np.array(-2.0 + 0j)])
def test_negative_base_of_a_complex_exponent(base: Any) -> None:
    """The logarithm of a negative base is complex where the power is."""
    z = 0.5 + 0.3j

    def power(y: Any) -> Any:
        return np.power(base, y)

    _, tangent = co.jvp(power, (np.array(z),), (np.array(1.0 + 0j),))
    expected = slope(lambda y: np.power(complex(base), y), z)
    assert abs(tangent - expected) < 1e-8


def test_gradient_of_taking_nothing() -> None:
    """Its indices are not looked at, as in the value."""
    (pulled,) = co.vjp(lambda x: np.take(x, [7], axis=1), np.zeros((0, 3)))[1](
        np.zeros((0, 1))
    )
    assert pulled.shape == (0, 3)


def test_gradient_of_an_index_is_in_its_places() -> None:
    """The gradient through an empty Ellipsis between index arrays is not transposed."""
    weights = np.arange(4.0).reshape(2, 2)
    grads = co.grad(lambda x: np.sum(x[:, [0, 1], ..., [1, 0]] * weights))(CUBE)
    expected = np.zeros_like(CUBE)
    expected[:, [0, 1], ..., [1, 0]] = weights
    np.testing.assert_array_equal(grads, expected)
