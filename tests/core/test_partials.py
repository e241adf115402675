"""Rules of partial derivatives: a formula for each argument."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import customop as co

X = np.array([0.5, 1.0, 2.0])
Y = np.array([1.5, -1.0, 0.5])
Z = np.array([[1.0], [2.0]])

_numbers = itertools.count()


def define(fn: Any, formulas: Any, schema: str, **options: Any) -> Any:
    """An operator with partial derivatives and a new name."""
    name = f"partials::op{next(_numbers)}"
    op = co.custom_op(name, fn, mutates_args=(), schema=schema)
    return op.register_autograd(co.partials(formulas, **options))


QUOTIENT = {"x": lambda g, y: g / y, "y": lambda g, y, out: -g * out / y}


def quotient() -> Any:
    """X / y."""
    return define(
        lambda x, y: x / y, QUOTIENT, "(Array|Scalar x, Array|Scalar y) -> Array"
    )


def slope(fn: Any, args: list[Any], at: int) -> Any:
    """The gradient of a sum by one argument, by central differences."""
    x = np.asarray(args[at], float)
    found = np.empty_like(x)
    for i in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[i] = 1e-6
        ends = [fn(*args[:at], x + s, *args[at + 1 :]) for s in (step, -step)]
        found[i] = (np.sum(ends[0]) - np.sum(ends[1])) / 2e-6
    return found


SETS = [(0,), (1,), (0, 1)]
PAIRS: dict[str, list[Any]] = {
    "one shape": [X, Y],
    "broadcast": [X, Z],
    "a number": [X, 2.0],
    "a number first": [2.0, Y],
    "no axes": [np.array(2.0), np.array(0.5)],
    "empty": [np.ones((0, 3)), Y],
}


@pytest.mark.parametrize("argnums", SETS, ids=str)
@pytest.mark.parametrize("name", PAIRS)
def test_each_set_of_tracked_arguments(name: str, argnums: tuple[int, ...]) -> None:
    """The gradients are those of differences, whichever arguments are tracked."""
    op, args = quotient(), PAIRS[name]
    if any(isinstance(args[at], float) for at in argnums):
        args = [np.asarray(value) for value in args]
    found = co.grad(lambda *v: np.sum(op(*v)), argnums)(*args)
    for at, gradient in zip(argnums, found, strict=True):
        assert_allclose(gradient, slope(np.divide, args, at), rtol=1e-6)
        assert gradient.shape == np.shape(args[at])


def test_one_array_twice() -> None:
    """X / x has the gradient 0."""
    op = quotient()
    assert_allclose(co.grad(lambda x: np.sum(op(x, x)))(X), 0.0, atol=1e-15)


def test_second_order_and_batches() -> None:
    """Formulas are differentiated and batched in their turn."""
    op = quotient()
    second = co.grad(lambda y: np.sum(co.grad(lambda v: np.sum(op(X, v)))(y)))
    assert_allclose(second(Y), 2.0 * X / Y**3)
    op.register_vmap(lambda info, in_dims, x, y: (op(x, y), 0))
    rows = co.vmap(co.grad(lambda x, y: np.sum(op(x, y)), 1))
    assert_allclose(rows(np.stack([X, Y]), np.stack([Y, X])), [-X / Y**2, -Y / X**2])


def test_dtypes() -> None:
    """A gradient gets the dtype of its argument, the real part for a real one."""
    op = quotient()
    single = X.astype(np.float32)
    gradient = co.grad(lambda x: np.sum(op(x, Y)))(single)
    assert gradient.dtype == np.float32
    assert_allclose(gradient, 1.0 / Y, rtol=1e-6)
    _, pull = co.vjp(lambda x: op(x, 2.0j * Y), X)
    (gradient,) = pull(np.ones(3) + 0.0j)
    assert gradient.dtype == np.float64
    assert_allclose(gradient, np.real(1.0 / (2.0j * Y)), atol=1e-15)


def test_shapes_of_arguments() -> None:
    """`x_shape` is the shape alone; a pair names the values of a formula."""
    pull = (lambda g, shape, times: np.full(shape, g * times), ["x_shape", "times"])
    op = define(
        lambda x, times: np.sum(x) * times,
        {"x": pull},
        "(Array x, float times=2.0) -> Array",
    )
    assert_array_equal(co.grad(lambda x: op(x, 3.0))(Z), np.full((2, 1), 3.0))


def test_none_is_the_derivative_zero() -> None:
    """An argument without a formula gets no gradient."""
    op = define(
        lambda c, x: np.where(c > 1.0, x, 0.0),
        {"c": None, "x": lambda g, c: np.where(c > 1.0, g, 0.0)},
        "(Array c, Array x) -> Array",
    )
    found = co.grad(lambda c, x: np.sum(op(c, x)), (0, 1))(X, Y)
    assert_array_equal(found, [np.zeros(3), [0.0, 0.0, 1.0]])
    assert_array_equal(co.grad(lambda c: np.sum(op(c, Y)))(X), np.zeros(3))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128])
def test_none_alone(dtype: Any) -> None:
    """A rule without any formula, for all dtypes of floats."""
    op = define(lambda x: np.round(x), {"x": None}, "(Array x) -> Array")
    x = np.array([0.4, 1.6], dtype)
    found = co.grad(lambda x: np.sum(np.real(op(x) + x)))(x)
    assert_array_equal(found, np.ones(2, dtype))


FOUR = "(Array a, Array b, Array c, Array d) -> Array"


@pytest.mark.parametrize(
    ("schema", "keywords"),
    [(FOUR, ()), (FOUR.replace(" Array d", " *, Array d"), ("d",))],
    ids=["four arguments", "keyword-only"],
)
def test_operators_without_generated_code(schema: str, keywords: Any) -> None:
    """With many arguments, or keyword-only ones, the rule does the same."""
    formulas = {
        "a": lambda g, b: g * b,
        "b": lambda g, a: g * a,
        "c": lambda g, d: g * d,
        "d": lambda g, c: g * c,
    }
    op = define(lambda a, b, c, d: a * b + c * d, formulas, schema)

    def call(a: Any, b: Any, c: Any, d: Any) -> Any:
        return np.sum(op(a, b, c, d=d) if keywords else op(a, b, c, d))

    args = [X, Y, X + Y, np.array(2.0)]
    found = co.grad(call, (0, 1, 2, 3))(*args)
    for gradient, right in zip(found, [Y, X, [2.0] * 3, np.sum(X + Y)], strict=True):
        assert_allclose(gradient, right)
    assert_allclose(co.grad(call, 2)(*args), [2.0] * 3)


def kept(op: Any, argnums: Any) -> list[Any]:
    """The arrays that a call keeps for backward."""
    found: list[Any] = []
    grad = co.grad(lambda *v: np.sum(_seen(op(*v), found)), argnums)
    grad(X, Y)
    return found


def _seen(y: Any, found: list[Any]) -> Any:
    found += [type(value) for value in y.node.saved_arrays]
    found += [
        any(np.shares_memory(value, a) for a in (X, Y)) for value in y.node.saved_arrays
    ]
    return y


def test_only_what_is_needed_is_kept() -> None:
    """The gradient by x needs y alone; that by y needs y and the result."""
    op = quotient()
    assert kept(op, 0) == [np.ndarray, True]
    assert kept(op, 1) == [np.ndarray, np.ndarray, True, False]


def test_the_graph_is_freed() -> None:
    """A second backward says what to do, as for other rules."""
    x = co.variable(X)
    y = np.sum(quotient()(x, Y))
    y.backward()
    with pytest.raises(co.GradientError, match="a second time"):
        y.backward()


def test_an_overwritten_argument() -> None:
    """What the formulas need is watched."""
    op, y = quotient(), Y.copy()

    def program(x: Any) -> Any:
        out = np.sum(op(x, y))
        y[:] = 1.0
        return out

    with pytest.raises(co.GradientError, match=r"argument 'y', f64\[3\], was overwr"):
        co.grad(program)(X)


def test_a_formula_that_writes_its_gradient() -> None:
    """The first run of each set of arguments proves the formulas."""

    def wrong(g: Any, y: Any) -> Any:
        g *= y
        return g

    op = define(
        lambda x, y: x * y,
        {"x": wrong, "y": lambda g, x: g * x},
        "(Array x, Array y) -> Array",
    )
    with pytest.raises(co.ContractError) as caught:
        co.grad(lambda x: np.sum(op(x, Y)))(X)
    assert f"backward at {__file__}:{wrong.__code__.co_firstlineno}" in str(
        caught.value
    )


def test_a_wrong_shape_names_the_formula() -> None:
    """The error of a gradient that does not fit has the place of the formula."""
    op = define(lambda x: x * 2.0, {"x": lambda g: g[:2]}, "(Array x) -> Array")
    with pytest.raises(co.GradientError, match=r"shape \(2,\) for 'x' of shape \(3,\)"):
        co.grad(lambda x: np.sum(op(x)))(X)


WRONG: dict[str, tuple[Any, str, str]] = {
    "not a dict": (lambda g: g, "(Array x) -> Array", "takes a dict of formulas"),
    "no formula": ({"x": 2.0}, "(Array x) -> Array", "takes a dict of formulas"),
    "unknown": ({"w": None}, "(Array x) -> Array", "names 'w', which is not an array"),
    "a number": (
        {"x": None, "k": None},
        "(Array x, float k) -> Array",
        "names 'k', which is not an array parameter",
    ),
    "missing": ({"x": None}, "(Array x, Array y) -> Array", "lacks 'y'"),
    "value": (
        {"x": lambda g, outt: g},
        "(Array x) -> Array",
        r"of 'x' takes 'outt' \(did you mean 'out'\?\)",
    ),
    "list": (
        {"x": lambda g: [g]},
        "(Array[] x) -> Array",
        "has a formula for 'x', which is not a single array",
    ),
    "list left out": ({"x": None}, "(Array x, Array[] y) -> Array", "lacks 'y'"),
    "two": ({"x": None}, "(Array x) -> (Array, Array)", "is for operators with one"),
}


@pytest.mark.parametrize("name", WRONG)
def test_formulas_that_do_not_fit(name: str) -> None:
    """The fault is found when the rule is registered, and nothing is kept of it."""
    formulas, schema, text = WRONG[name]
    number = next(_numbers)
    co.define(f"partials::wrong{number}", schema)
    op = getattr(co.ops.partials, f"wrong{number}").default
    before = dict(op.rows)
    with pytest.raises(co.RegistrationError, match=text):
        op.register_autograd(co.partials(formulas))
    assert dict(op.rows) == before


def chosen() -> Any:
    """Elements of an array at the places that a list of index arrays and None names."""

    def key(places: Any) -> Any:
        return tuple([slice(None) if i is None else i for i in places])

    def pulled(g: Any, shape: Any, places: Any) -> Any:
        found = np.zeros(shape, like=g)
        np.add.at(found, key(places), g)
        return found

    formulas = {"x": (pulled, ["x_shape", "places"]), "places": None}
    schema = "(Array x, Array?[] places) -> Array"
    return define(lambda x, places: x[key(places)], formulas, schema)


PLACES = {
    "one": [np.array([0, 1, 1])],
    "after None": [None, np.array([0, 0])],
    "two": [np.array([0, 1]), np.array([0, 0])],
}


@pytest.mark.parametrize("name", PLACES)
def test_lists_of_arrays_beside_an_array(name: str) -> None:
    """They have no derivative; the formula gets those of the call, not what they become."""
    op, places = chosen(), PLACES[name]

    def loss(x: Any) -> Any:
        given = list(places)
        y = op(x, given)
        given.clear()
        return np.sum(y * y)

    wanted = slope(lambda x: loss(x), [Z], 0)
    assert_allclose(co.grad(loss)(Z), wanted, rtol=1e-6)
    assert_allclose(co.grad(lambda x: co.grad(loss)(x)[0, 0])(Z), _second(wanted))


def _second(gradient: Any) -> Any:
    """The derivative of the first element of the gradient of a sum of squares."""
    found = np.zeros_like(Z)
    found[0, 0] = gradient[0, 0] / Z[0, 0]
    return found


def test_lists_with_traced_arrays() -> None:
    """Index arrays may be rows of a batch, outside and inside of the gradient."""
    op = co.ops.np.index.default
    x, rows = np.arange(6.0).reshape(2, 3), np.array([[0, 1], [2, 2]])

    def loss(row: Any, places: Any) -> Any:
        y = op(row, [places])
        return np.sum(y * y)

    wanted = np.array([[0.0, 2.0, 0.0], [0.0, 0.0, 20.0]])
    assert_array_equal(co.vmap(co.grad(loss))(x, rows), wanted)
    outer = co.grad(lambda x: np.sum(co.vmap(loss)(x, rows)))
    assert_array_equal(outer(x), wanted)
    # A gradient that is the same for all rows.
    total = co.vmap(co.grad(lambda x, i: np.sum(op(x, [i]))), in_dims=(None, 0))
    assert_array_equal(total(x[0], rows), np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 2.0]]))
    values = co.vmap(co.grad(lambda x, i: np.sum(co.getitem(x, i))), in_dims=(None, 0))
    assert_array_equal(values(x[0], rows), total(x[0], rows))


@pytest.fixture(autouse=True)
def _checked() -> Iterator[None]:
    """Every call proves its contract."""
    co.config.checks = "always"
    yield
    co.config.checks = "first"


def test_the_same_formulas_serve_forward_mode() -> None:
    """Of a pointwise operator: numbers, broadcast tangents, dtypes, numbers beside arrays."""
    op = co.custom_op(
        "partials::parallel",
        lambda x, y: x * y / (x + y),
        mutates_args=(),
        schema="(Array|Scalar x, Array|Scalar y) -> Array",
        tags=co.Tag.pointwise,
    )
    rule = co.partials(
        {
            "x": lambda g, y, x: g * (y / (x + y)) ** 2,
            "y": lambda g, x, y: g * (x / (x + y)) ** 2,
        }
    )
    op.register_autograd(rule).register_jvp(rule)
    x, y = np.array([[1.0], [2.0]]), np.array([0.5, 1.5, 2.5])
    t, u = np.array([[0.3], [-0.2]]), np.array([1.0, -1.0, 0.5])

    def moved(step: float) -> Any:
        a, b = x + step * t, y + step * u
        return a * b / (a + b)

    out, tangent = co.jvp(op, (x, y), (t, u))
    assert_allclose(out, moved(0.0))
    assert_allclose(tangent, (moved(1e-6) - moved(-1e-6)) / 2e-6, rtol=1e-8)
    out, tangent = co.jvp(lambda a: op(a, 2.0), (x.astype("f4"),), (t.astype("f4"),))
    assert out.dtype == tangent.dtype == np.float32
    assert_allclose(tangent, t * (2.0 / (x + 2.0)) ** 2, rtol=1e-6)


def test_partials_are_no_jvp_rule_of_other_operators() -> None:
    """A sum over rows, say, has other formulas for tangents."""
    op = co.custom_op(
        "partials::total",
        lambda x: x.sum(),
        mutates_args=(),
        schema="(Array x) -> Array",
    )
    with pytest.raises(co.RegistrationError, match="for pointwise operators only"):
        op.register_jvp(co.partials({"x": lambda g, x: g * np.ones_like(x)}))
