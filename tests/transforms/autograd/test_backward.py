"""Gradients that a backward formula takes and returns, and errors for wrong ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import customop as co
from tests.transforms.autograd._operators import (
    BINARY,
    UNARY,
    X,
    Y,
    define,
    product,
    save_inputs,
    slope,
    square,
    square_backward,
    total,
)

# ---- several outputs ----

PAIR = "(Array x) -> (Array, Array)"


def pair(backward: Any, setup: Any = None) -> Any:
    return define(lambda x: (2.0 * x, 3.0 * x), backward, setup, schema=PAIR)


def test_two_outputs_bring_two_gradients() -> None:
    """Gradients come in the order of the outputs."""
    op = pair(lambda ctx, g, h: 2.0 * g + 3.0 * h)

    def f(x: Any) -> Any:
        a, b = op(x)
        return np.sum(a * Y) + np.sum(b * X)

    assert_allclose(co.grad(f)(X), 2.0 * Y + 3.0 * X)


@pytest.mark.parametrize("used", [0, 1])
def test_an_unused_output_brings_zeros(used: int) -> None:
    """Missing gradients come as zeros of the shape and dtype of the output."""
    seen = []

    def backward(ctx: Any, g: Any, h: Any) -> Any:
        seen.extend([g, h])
        return 2.0 * g + 3.0 * h

    actual = co.grad(lambda x: np.sum(pair(backward)(x)[used]))(X)
    assert_array_equal(actual, np.full(3, 2.0 + used))
    assert_array_equal(seen[1 - used], np.zeros(3))
    assert seen[1 - used].dtype == np.float64


def test_an_unused_output_of_another_dtype_brings_such_zeros() -> None:
    """Zeros have the dtype and shape of their output, not those of the input."""
    seen = []

    def backward(ctx: Any, g: Any, h: Any) -> Any:
        seen.append(h)
        return 2.0 * g

    op = define(
        lambda x: (2.0 * x, np.zeros((2, 2), np.float32)), backward, schema=PAIR
    )
    co.grad(lambda x: np.sum(op(x)[0]))(X)
    assert (seen[0].shape, seen[0].dtype) == ((2, 2), np.dtype(np.float32))


def test_set_materialize_grads_false_brings_none() -> None:
    """With set_materialize_grads(False) missing gradients come as None."""
    seen = []

    def backward(ctx: Any, g: Any, h: Any) -> Any:
        seen.append(g)
        return 3.0 * h

    op = pair(backward, lambda ctx, inputs, output: ctx.set_materialize_grads(False))
    assert_array_equal(co.grad(lambda x: np.sum(op(x)[1]))(X), [3.0, 3.0, 3.0])
    assert seen == [None]


def test_mark_non_differentiable_stops_one_output() -> None:
    """No gradient flows through a marked output, and its slot is None."""
    seen = []

    def backward(ctx: Any, g: Any, h: Any) -> Any:
        seen.append(h)
        return 2.0 * g

    op = pair(
        backward, lambda ctx, inputs, output: ctx.mark_non_differentiable(output[1])
    )

    def f(x: Any) -> Any:
        a, b = op(x)
        assert type(b) is np.ndarray
        return np.sum(a) + np.sum(b)

    assert_array_equal(co.grad(f)(X), [2.0, 2.0, 2.0])
    assert seen == [None]


def test_mark_non_differentiable_of_the_only_output() -> None:
    """An operator can say that its result has no derivative."""
    op = define(
        np.floor,
        lambda ctx, g: pytest.fail("no gradient flows here"),
        lambda ctx, inputs, output: ctx.mark_non_differentiable(output),
    )
    assert_array_equal(co.grad(total(op))(X), np.zeros(3))


def test_a_list_output_brings_one_list() -> None:
    """Gradients of a list of outputs come as one list, zeros in unused places."""
    seen = []

    def backward(ctx: Any, grads: Any) -> Any:
        seen.append(grads)
        return grads[0] + 2.0 * grads[1]

    op = define(lambda x: [1.0 * x, 2.0 * x], backward, schema="(Array x) -> Array[]")
    assert_array_equal(co.grad(lambda x: np.sum(op(x)[1]))(X), [2.0, 2.0, 2.0])
    assert type(seen[0]) is list
    assert_array_equal(seen[0][0], np.zeros(3))
    assert_array_equal(seen[0][1], np.ones(3))


def test_a_list_beside_an_array() -> None:
    """A tuple of a list and an array brings a list and an array."""
    op = define(
        lambda x: ([1.0 * x, 2.0 * x], 3.0 * x),
        lambda ctx, grads, g: grads[0] + 2.0 * grads[1] + 3.0 * g,
        schema="(Array x) -> (Array[], Array)",
    )

    def f(x: Any) -> Any:
        (a, b), c = op(x)
        return np.sum(a) + 10.0 * np.sum(b) + 100.0 * np.sum(c)

    assert_array_equal(co.grad(f)(X), np.full(3, 321.0))


def test_an_int_output_has_a_slot() -> None:
    """An output that is not an array has None in its place among the gradients."""
    seen = []

    def backward(ctx: Any, g: Any, count: Any) -> Any:
        seen.append(count)
        return 2.0 * g

    op = define(lambda x: (2.0 * x, 7), backward, schema="(Array x) -> (Array, int)")

    def f(x: Any) -> Any:
        y, count = op(x)
        assert count == 7
        return np.sum(y)

    assert_array_equal(co.grad(f)(X), [2.0, 2.0, 2.0])
    assert seen == [None]


@pytest.mark.parametrize("dtype", [np.int64, np.bool_, np.uint8])
def test_an_integer_output_is_not_tracked(dtype: Any) -> None:
    """Arrays of integers and booleans come out as plain arrays."""
    op = define(lambda x: x.astype(dtype), lambda ctx, g: None)
    assert type(op(co.variable(X))) is np.ndarray


def test_an_integer_output_beside_a_float_one() -> None:
    """Its slot among the gradients is None."""
    seen = []

    def backward(ctx: Any, g: Any, order: Any) -> Any:
        seen.append(order)
        return 2.0 * g

    op = define(lambda x: (2.0 * x, np.argsort(x)), backward, schema=PAIR)
    assert type(op(co.variable(X))[1]) is np.ndarray
    assert_array_equal(co.grad(lambda x: np.sum(op(x)[0]))(X), [2.0, 2.0, 2.0])
    assert seen == [None]


# ---- lists, optional and keyword-only arrays ----

LIST = "(Array[] xs) -> Array"


def test_a_list_input_has_a_list_of_gradients() -> None:
    """Gradients are nested as the input is."""
    op = define(
        lambda xs: xs[0] * xs[1],
        lambda ctx, g: ([g * ctx.b, g * ctx.a],),
        lambda ctx, inputs, output: vars(ctx).update(a=inputs[0][0], b=inputs[0][1]),
        schema=LIST,
    )
    first, second = co.grad(lambda a, b: np.sum(op([a, b])), (0, 1))(X, Y)
    assert_array_equal(first, Y)
    assert_array_equal(second, X)


def test_one_array_at_two_places_of_a_list() -> None:
    """The gradients of both places are summed."""
    op = define(
        lambda xs: xs[0] + 2.0 * xs[1] + 4.0 * xs[2],
        lambda ctx, g: ([g, 2.0 * g, 4.0 * g],),
        schema=LIST,
    )
    assert_array_equal(co.grad(lambda a: np.sum(op([a, Y, a])))(X), [5.0, 5.0, 5.0])


def test_a_list_may_hold_none_for_no_gradient() -> None:
    """None in place of an array means no gradient."""
    op = define(lambda xs: xs[0] + xs[1], lambda ctx, g: ([g, None],), schema=LIST)
    first, second = co.grad(lambda a, b: np.sum(op([a, b])), (0, 1))(X, Y)
    assert_array_equal(first, np.ones(3))
    assert_array_equal(second, np.zeros(3))


def test_none_for_a_whole_list() -> None:
    """None in place of a list means no gradient for all of it."""
    op = define(lambda xs: xs[0] + xs[1], lambda ctx, g: (None,), schema=LIST)
    assert_array_equal(co.grad(lambda a: np.sum(op([a, a])))(X), np.zeros(3))


def test_an_empty_list() -> None:
    """A list without arrays has an empty list of gradients."""
    op = define(
        lambda x, xs: x * 2.0,
        lambda ctx, g: (2.0 * g, []),
        schema="(Array x, Array[] xs) -> Array",
    )
    assert_array_equal(co.grad(lambda x: np.sum(op(x, [])))(X), [2.0, 2.0, 2.0])


def test_optional_elements_of_a_list() -> None:
    """None among the arrays keeps its place among the gradients."""
    op = define(
        lambda xs: 3.0 * xs[1],
        lambda ctx, g: ([None, 3.0 * g],),
        schema="(Array?[] xs) -> Array",
    )
    assert_array_equal(co.grad(lambda a: np.sum(op([None, a])))(X), [3.0, 3.0, 3.0])


@pytest.mark.parametrize("given", [True, False])
def test_an_optional_array(given: bool) -> None:
    """An optional array has a gradient where it is given, None where it is not."""

    def backward(ctx: Any, g: Any) -> Any:
        return (g * ctx.bias_scale, 5.0 * g if ctx.needs_input_grad[1] else None)

    op = define(
        lambda x, bias: 2.0 * x if bias is None else 2.0 * x + 5.0 * bias,
        backward,
        lambda ctx, inputs, output: vars(ctx).update(bias_scale=2.0),
        schema="(Array x, Array? bias=None) -> Array",
    )
    if given:
        grads = co.grad(lambda x, b: np.sum(op(x, b)), (0, 1))(X, Y)
        assert_array_equal(grads, [np.full(3, 2.0), np.full(3, 5.0)])
    else:
        assert_array_equal(co.grad(lambda x: np.sum(op(x)))(X), np.full(3, 2.0))


KEYWORD = "(Array x, *, Array w) -> Array"


def keyword_product(backward: Any) -> Any:
    def setup(ctx: Any, inputs: Any, output: Any, keyword_only_inputs: Any) -> None:
        ctx.save_for_backward(inputs[0], keyword_only_inputs["w"])

    return define(lambda x, *, w: x * w, backward, setup, schema=KEYWORD)


def by_name(ctx: Any, g: Any) -> Any:
    x, w = ctx.saved_arrays
    return {"w": g * x, "x": g * w}


def test_gradients_by_name_reach_keyword_only_arrays() -> None:
    """A dict of gradients serves positional and keyword-only arrays, in any order."""
    op = keyword_product(by_name)
    gx, gw = co.grad(lambda x, w: np.sum(op(x, w=w)), (0, 1))(X, Y)
    assert_array_equal(gx, Y)
    assert_array_equal(gw, X)


def test_gradients_by_name_name_all_that_are_asked_for() -> None:
    """A name missing from the dict is an error if its gradient is needed."""
    op = keyword_product(lambda ctx, g: {"w": g * ctx.saved_arrays[0]})
    gw = co.grad(lambda w: np.sum(op(X, w=w)))(Y)
    assert_array_equal(gw, X)
    with pytest.raises(co.GradientError, match="no gradient for 'x', which needs one"):
        co.grad(lambda x, w: np.sum(op(x, w=w)), (0, 1))(X, Y)


def test_gradients_by_name_may_be_none() -> None:
    """None under a name means no gradient."""
    op = keyword_product(lambda ctx, g: {"w": g * ctx.saved_arrays[0], "x": None})
    gx, gw = co.grad(lambda x, w: np.sum(op(x, w=w)), (0, 1))(X, Y)
    assert_array_equal(gx, np.zeros(3))
    assert_array_equal(gw, X)


@pytest.mark.parametrize("found", [lambda g: g, lambda g: (g,)], ids=["alone", "tuple"])
def test_a_tracked_default_needs_its_gradient(found: Any) -> None:
    """Gradients may leave out inputs with defaults, unless their gradient is needed."""
    op = define(
        lambda x, y=None: x * 1.0 if y is None else x + y,
        lambda ctx, g: found(g),
        schema="(Array x, Array? y=None) -> Array",
    )
    assert_array_equal(co.grad(lambda x: np.sum(op(x)))(X), np.ones(3))
    assert_array_equal(co.grad(lambda x: np.sum(op(x, Y)))(X), np.ones(3))
    with pytest.raises(co.GradientError, match="must return 2"):
        co.grad(lambda y: np.sum(op(X, y)))(Y)


def test_gradients_by_name_of_one_input() -> None:
    """A dict serves an operator of one array."""
    op = define(lambda x: 3.0 * x, lambda ctx, g: {"x": 3.0 * g})
    assert_array_equal(co.grad(total(op))(X), [3.0, 3.0, 3.0])


def test_keyword_only_arrays_untracked_need_no_gradient() -> None:
    """A tuple for the positional inputs is enough where no other is tracked."""
    op = keyword_product(lambda ctx, g: g * ctx.saved_arrays[1])
    assert_array_equal(co.grad(lambda x: np.sum(op(x, w=Y)))(X), Y)


# ---- what backward may return ----


def test_a_single_gradient_without_a_tuple() -> None:
    """For one positional input the gradient may be returned without a tuple."""
    assert_array_equal(co.grad(total(square))(X), 2.0 * X)


def test_gradients_may_leave_out_defaulted_inputs() -> None:
    """Trailing inputs with defaults and without gradients may be left out."""
    schema = "(Array x, float k=2.0, int n=1) -> Array"
    for backward in (
        lambda ctx, g: 2.0 * g,
        lambda ctx, g: (2.0 * g,),
        lambda ctx, g: (2.0 * g, None),
        lambda ctx, g: (2.0 * g, None, None),
    ):
        op = define(lambda x, k, n: x * k * n, backward, schema=schema)
        assert_array_equal(co.grad(lambda x, op=op: np.sum(op(x)))(X), np.full(3, 2.0))


def test_a_gradient_of_none_gives_zeros() -> None:
    """None means that no gradient flows."""
    op = define(lambda x, y: x * y, lambda ctx, g: (None, g), schema=BINARY)
    gx, gy = co.grad(total(op), (0, 1))(X, Y)
    assert_array_equal(gx, np.zeros(3))
    assert_array_equal(gy, np.ones(3))


BROADCAST = [
    ((2, 3), (3,)),
    ((2, 3), (1, 3)),
    ((2, 3), (2, 1)),
    ((2, 3), ()),
    ((2, 3), (1, 1)),
    ((2, 1, 4), (3, 1)),
    ((4,), (2, 3, 1)),
    ((0, 3), (1, 3)),
    ((3,), (3,)),
    ((1,), ()),
]


@pytest.mark.parametrize(("left", "right"), BROADCAST)
def test_broadcast_gradients_are_summed_back(left: Any, right: Any) -> None:
    """A gradient of the broadcast shape is summed over the axes that were stretched."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=left), rng.normal(size=right)
    gx, gy = co.grad(total(product), (0, 1))(x, y)
    ones = np.ones(np.broadcast_shapes(left, right))
    over_x = np.broadcast_to(y, ones.shape)
    over_y = np.broadcast_to(x, ones.shape)
    assert gx.shape == x.shape
    assert gy.shape == y.shape
    assert_allclose(np.sum(gx), np.sum(over_x))
    assert_allclose(gx, slope(lambda v: v * y, x), atol=1e-8)
    assert_allclose(gy, slope(lambda v: x * v, y), atol=1e-8)
    assert_allclose(np.sum(gy), np.sum(over_y))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.longdouble])
def test_dtypes_are_kept(dtype: Any) -> None:
    """The gradient of a real array has its dtype."""
    x = X.astype(dtype)
    found = co.grad(total(square))(x)
    assert found.dtype == dtype
    assert_array_equal(found, 2 * x)


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex_gradients(dtype: Any) -> None:
    """The pullback of z^2 is 2 z, complex-linear, without conjugation."""
    z = np.array([1.0 + 2.0j, -3.0j], dtype)
    value, pullback = co.vjp(square, z)
    (found,) = pullback(np.array([1.0, 2.0j], dtype))
    assert_array_equal(value, z * z)
    assert_allclose(found, 2.0 * z * np.array([1.0, 2.0j]))
    assert found.dtype == dtype


def test_gradient_of_a_real_function_of_complex_values() -> None:
    """With u + iv, the gradient is du - i dv, as in JAX: here of |z|^2."""
    z = np.array([1.0 + 2.0j, -0.5 + 0.25j])
    found = co.grad(lambda z: np.sum(np.abs(square(z))))(z)
    assert_allclose(found, 2.0 * np.conj(z))


# ---- what is said of wrong gradients ----


def returns(value: Callable[[Any], Any]) -> Any:
    """A formula that returns the value of a table row."""

    def backward(ctx: Any, *grads: Any) -> Any:
        return value(grads[0])

    return backward


WRONG = [
    (
        UNARY,
        lambda g: (g, g),
        "backward returned 2 gradients, must return 1: x",
        "(Array x) -> Array",
        "return one gradient for each positional input, None for no gradient",
        None,
    ),
    (
        UNARY,
        lambda g: (),
        "backward returned 0 gradients, must return 1: x",
        "(Array x) -> Array",
        "return one gradient for each positional input, None for no gradient",
        None,
    ),
    (
        UNARY,
        lambda g: [g],
        "backward returned a list of 1, must return a tuple with a gradient for each of x",
        "(Array x) -> Array",
        "return (g_x,)",
        None,
    ),
    (
        BINARY,
        lambda g: (g, g, g),
        "backward returned 3 gradients, must return 2: x, y",
        "(Array x, Array y) -> Array",
        "return one gradient for each positional input, None for no gradient",
        None,
    ),
    (
        BINARY,
        lambda g: g,
        "backward returned one gradient, must return 2: x, y",
        "(Array x, Array y) -> Array",
        "return (g_x, g_y), None for no gradient",
        None,
    ),
    (
        BINARY,
        lambda g: {"z": g},
        "backward returned a gradient for 'z', which is not a parameter",
        "(Array x, Array y) -> Array",
        "use the names x, y",
        None,
    ),
    (
        UNARY,
        lambda g: g[:2],
        "backward returned a gradient of shape (2,) for 'x' of shape (3,)",
        "(Array x) -> Array\n  ^^^^^^^",
        "return a gradient of the shape of 'x'",
        "x",
    ),
    (
        UNARY,
        lambda g: np.sum(g),
        "backward returned a gradient of shape () for 'x' of shape (3,)",
        "(Array x) -> Array\n  ^^^^^^^",
        "return a gradient of the shape of 'x'",
        "x",
    ),
    (
        UNARY,
        lambda g: g.astype(np.float32),
        "backward returned a gradient of dtype float32 for 'x' of dtype float64",
        "(Array x) -> Array\n  ^^^^^^^",
        "return g.astype(x.dtype) for 'x'",
        "x",
    ),
    (
        UNARY,
        lambda g: 1j * g,
        "backward returned a gradient of dtype complex128 for 'x' of dtype float64",
        "(Array x) -> Array\n  ^^^^^^^",
        "return g.astype(x.dtype) for 'x'",
        "x",
    ),
    (
        UNARY,
        lambda g: 1.5,
        "backward returned float 1.5 for 'x', must be an array of shape (3,)",
        "(Array x) -> Array\n  ^^^^^^^",
        "return an array, or None for no gradient",
        "x",
    ),
    (
        UNARY,
        lambda g: "no",
        "backward returned str 'no' for 'x', must be an array of shape (3,)",
        "(Array x) -> Array\n  ^^^^^^^",
        "return an array, or None for no gradient",
        "x",
    ),
    (
        "(Array x, float k=2.0) -> Array",
        lambda g: (g, 1.5),
        "backward returned float 1.5 for 'k' of type float, which has no gradient",
        "(Array x, float k=2.0) -> Array\n           ^^^^^^^^^^^",
        "return None for 'k'",
        "k",
    ),
    (
        "(Array x, float k=2.0) -> Array",
        lambda g: {"x": g, "k": g},
        (
            "backward returned ndarray of shape (3,) for 'k' of type float, which has no"
            " gradient"
        ),
        "(Array x, float k=2.0) -> Array\n           ^^^^^^^^^^^",
        "return None for 'k'",
        "k",
    ),
    (
        "(Array[] x) -> Array",
        lambda g: (g,),
        "backward returned ndarray of shape (3,) for the 1 items of 'x'",
        "(Array[] x) -> Array\n  ^^^^^^^^^",
        "return a list with a gradient for each item of 'x'",
        "x",
    ),
]


@pytest.mark.parametrize(
    ("schema", "value", "what", "shown", "do", "parameter"),
    WRONG,
    ids=[row[2] for row in WRONG],
)
def test_wrong_gradients_are_named(
    schema: str, value: Any, what: str, shown: str, do: str, parameter: str | None
) -> None:
    """The error names operator, argument, the formula's file and line, and the remedy."""
    backward = returns(value)
    op = define(lambda x, *rest: np.add(_first(x), 0.0), backward, schema=schema)
    args = [[X]] if "[]" in schema else [X, Y] if schema == BINARY else [X]
    with pytest.raises(co.GradientError) as caught:
        co.grad(lambda x: np.sum(op(_like(x, args[0]), *args[1:])))(X)
    line, *carets = shown.split("\n")
    head = [f"  {op.qualname}{line}"]
    head += ["  " + " " * (len(op.qualname) - 1) + text for text in carets]
    code = backward.__code__
    place = f"  backward at {code.co_filename}:{code.co_firstlineno}"
    expected = "\n".join([f"{op.qualname}: {what}", *head, place, f"  do: {do}"])
    assert str(caught.value) == expected
    assert (caught.value.op, caught.value.kind) == (op.qualname, "autograd")
    assert caught.value.parameter == parameter


def _first(x: Any) -> Any:
    return x[0] if isinstance(x, list) else x


def _like(x: Any, given: Any) -> Any:
    return [x] if isinstance(given, list) else x


@pytest.mark.parametrize("count", [1, 3])
def test_a_list_of_another_length_is_refused(count: int) -> None:
    """A list needs as many gradients as it has arrays."""
    op = define(lambda xs: xs[0] + xs[1], lambda ctx, g: ([g] * count,), schema=LIST)
    with pytest.raises(co.GradientError) as caught:
        co.grad(lambda x: np.sum(op([x, x])))(X)
    assert caught.value.what == (
        f"{op.qualname}: backward returned {count} gradients for the 2 items of 'xs'"
    )
    assert caught.value.parameter == "xs"


def test_a_tuple_has_no_place_for_a_keyword_only_array() -> None:
    """The gradient of a keyword-only array is returned by name; the message says how."""
    op = keyword_product(lambda ctx, g: g)
    with pytest.raises(co.GradientError) as caught:
        co.grad(lambda w: np.sum(op(X, w=w)))(Y)
    assert caught.value.what == (
        f"{op.qualname}: backward returned no gradient for the keyword-only argument 'w'"
    )
    assert (
        caught.value.do
        == "return gradients as a dict: {'w': ...}, None for no gradient"
    )


def test_an_exception_in_backward_is_the_users_own() -> None:
    """An error of a formula is raised unchanged, and the next gradient is right."""
    fails = [True]

    def backward(ctx: Any, g: Any) -> Any:
        if fails[0]:
            raise ZeroDivisionError("mine")
        return square_backward(ctx, g)

    op = define(lambda x: x * x, backward, save_inputs)
    with pytest.raises(ZeroDivisionError, match="mine"):
        co.grad(total(op))(X)
    fails[0] = False
    assert_array_equal(co.grad(total(op))(X), 2.0 * X)


def test_an_exception_in_the_function_leaves_grad_usable() -> None:
    """A transform leaves nothing open after an exception."""

    def fails(x: Any) -> Any:
        with co.no_grad():
            square(x)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        co.grad(fails)(X)
    assert_array_equal(co.grad(total(square))(X), 2.0 * X)
    assert isinstance(square(co.variable(X)), co.GradTracer)
