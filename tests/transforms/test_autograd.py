"""Reverse mode: formulas, gradients, variables, and what is said when they do not fit."""

from __future__ import annotations

import collections
import copy
import functools
import gc
import itertools
import math
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import optree
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import customop as co

X = np.array([1.0, 2.0, 3.0])
Y = np.array([0.5, -1.0, 4.0])
UNARY = "(Array x) -> Array"
BINARY = "(Array x, Array y) -> Array"
_numbers = itertools.count()


def define(
    fn: Callable[..., Any],
    backward: Any = None,
    setup: Any = None,
    *,
    schema: str | None = UNARY,
    name: str = "",
    mutates: tuple[str, ...] = (),
    tags: Any = (),
) -> Any:
    """Make an operator with a backward formula, under a name of its own."""
    op = co.custom_op(
        f"grads::{name or f'op_{next(_numbers)}'}",
        fn,
        mutates_args=mutates,
        schema=schema,
        tags=tags,
    )
    if backward is not None:
        op.register_autograd(backward, setup_context=setup)
    return op


def save_inputs(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)


def square_backward(ctx: Any, g: Any) -> Any:
    (x,) = ctx.saved_arrays
    return 2.0 * g * x


square = define(
    lambda x: x * x, square_backward, save_inputs, name="square", tags=co.Tag.pointwise
)


def product_backward(ctx: Any, g: Any) -> Any:
    x, y = ctx.saved_arrays
    return g * y, g * x


product = define(
    lambda x, y: x * y,
    product_backward,
    save_inputs,
    schema=BINARY,
    name="product",
    tags=co.Tag.pointwise,
)


def add_one(x: Any) -> None:
    x += 1.0


def writer() -> Any:
    """Make an operator that writes its array; a fresh one, which is proven at its call."""
    return define(add_one, schema="(Array(a!) x) -> ()", mutates=("x",))


def total(op: Callable[..., Any]) -> Callable[..., Any]:
    """The sum of what an operator gives, to take gradients of."""
    return lambda *args, **kwargs: np.sum(op(*args, **kwargs))


def slope(fn: Callable[[Any], Any], x: Any) -> Any:
    """Gradient of the sum of a function of one array, by central differences."""
    found = np.zeros_like(x)
    for index in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[index] = 1e-6
        found[index] = (np.sum(fn(x + step)) - np.sum(fn(x - step))) / 2e-6
    return found


# ---- setup_context ----


def test_setup_context_is_called_by_name() -> None:
    """The order of the parameters of setup_context does not matter."""
    seen = {}

    def setup(output: Any, ctx: Any, inputs: Any) -> None:
        seen.update(output=output, inputs=inputs)
        ctx.save_for_backward(inputs[0])

    op = define(lambda x: x * x, square_backward, setup)
    assert_array_equal(co.grad(total(op))(X), 2.0 * X)
    assert_array_equal(seen["output"], X * X)
    assert_array_equal(seen["inputs"][0], X)


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"),
    [
        ((), {}, (2.0, "up")),
        ((3.0,), {}, (3.0, "up")),
        ((), {"mode": "down"}, (2.0, "down")),
        ((4,), {"mode": "down"}, (4.0, "down")),
    ],
)
def test_setup_context_sees_defaults(args: Any, kwargs: Any, expected: Any) -> None:
    """Inputs come with all positional parameters, defaults filled in."""
    seen = []

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        seen.append(inputs[1:])

    op = define(
        lambda x, k, mode: x * k,
        lambda ctx, g: (g, None, None),
        setup,
        schema='(Array x, float k=2.0, str mode="up") -> Array',
    )
    co.grad(lambda x: np.sum(op(x, *args, **kwargs)))(X)
    assert seen == [expected]
    assert type(seen[0][0]) is float


def test_setup_context_sees_keyword_only_inputs() -> None:
    """Keyword-only values come as a dict, defaults filled in, and not among inputs."""
    seen = {}

    def setup(ctx: Any, inputs: Any, keyword_only_inputs: Any, output: Any) -> None:
        seen.update(keyword_only_inputs, count=len(inputs))

    op = define(
        lambda x, *, k, n: x * k * n,
        lambda ctx, g: g,
        setup,
        schema="(Array x, *, float k, int n=3) -> Array",
    )
    co.grad(lambda x: np.sum(op(x, k=2.0)))(X)
    assert seen == {"k": 2.0, "n": 3, "count": 1}


def test_setup_context_is_skipped_when_nothing_is_tracked() -> None:
    """A plain call, and a call on constants inside of grad, run the kernel alone."""
    calls = []
    op = define(
        lambda x: x * x, square_backward, lambda ctx, inputs, output: calls.append(1)
    )
    op(X)
    co.grad(lambda x: np.sum(x * op(Y)))(X)
    assert calls == []


def test_setup_context_is_skipped_in_no_grad() -> None:
    """Inside no_grad a variable is as good as an array."""
    calls = []
    op = define(
        lambda x: x * x, square_backward, lambda ctx, inputs, output: calls.append(1)
    )
    x = co.variable(X)
    with co.no_grad():
        y = op(x)
    assert calls == []
    assert type(y) is np.ndarray


def test_operators_inside_setup_context() -> None:
    """What setup_context computes by operators has derivatives of its own."""

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(np.cos(inputs[0]))

    op = define(np.sin, lambda ctx, g: g * ctx.saved_arrays[0], setup)
    assert_allclose(co.grad(co.grad(op))(np.array(0.7)), -math.sin(0.7))


def test_formula_without_setup_context() -> None:
    """A formula that needs nothing kept has no setup_context."""
    op = define(lambda x: 3.0 * x, lambda ctx, g: 3.0 * g)
    assert_array_equal(co.grad(total(op))(X), [3.0, 3.0, 3.0])


# ---- ctx ----


def test_saved_tensors_is_saved_arrays() -> None:
    """Both names give what was saved, None in its place."""
    seen = []

    def backward(ctx: Any, g: Any) -> Any:
        seen.append((ctx.saved_tensors, ctx.saved_arrays))
        return g * 2.0 * ctx.saved_tensors[0]

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(inputs[0], None, output)

    op = define(lambda x: x * x, backward, setup)
    assert_array_equal(co.grad(total(op))(X), 2.0 * X)
    first, second = seen[0]
    assert first is second
    assert first[1] is None
    assert_array_equal(first[2], X * X)


def test_nothing_saved_is_an_empty_tuple() -> None:
    """Without save_for_backward there is nothing saved."""
    seen = []

    def backward(ctx: Any, g: Any) -> Any:
        seen.append(ctx.saved_arrays)
        return g

    co.grad(total(define(lambda x: x + 0.0, backward)))(X)
    assert seen == [()]


@pytest.mark.parametrize("value", [3, 2.5, "s", [X], (X,), {"x": X}])
def test_save_for_backward_takes_arrays_alone(value: Any) -> None:
    """Anything but an array or None is refused, with the place for it."""
    op = define(
        lambda x: x + 0.0,
        lambda ctx, g: g,
        lambda ctx, inputs, output: ctx.save_for_backward(inputs[0], value),
    )
    with pytest.raises(co.GradientError) as caught:
        co.grad(total(op))(X)
    assert caught.value.what.startswith(
        f"{op.qualname}: save_for_backward takes arrays"
    )
    assert caught.value.do == "set other values as attributes: ctx.axis = axis"
    assert caught.value.op == op.qualname


NAMES = [
    *("pull", "op", "node", "outputs", "shape", "inputs", "edges", "metas", "number"),
    *("name", "grad", "interpreter", "freed", "schema", "backward", "rule", "index"),
    *("dtype", "value", "args", "retain", "spread", "pairs", "mark_dirty"),
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("schema", [UNARY, BINARY])
def test_ctx_attributes_may_have_any_name(name: str, schema: str) -> None:
    """An attribute of a rule's own does not clash with what the package keeps."""

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)
        setattr(ctx, name, "mine")

    seen = []

    def backward(ctx: Any, g: Any) -> Any:
        seen.append(getattr(ctx, name))
        if schema == UNARY:
            return square_backward(ctx, g)
        return product_backward(ctx, g)

    if schema == UNARY:
        op = define(lambda x: x * x, backward, setup)
        actual = co.grad(total(op))(X)
    else:
        op = define(lambda x, y: x * y, backward, setup, schema=BINARY)
        actual = co.grad(lambda x: np.sum(op(x, 2.0 * X)))(X)
    assert_array_equal(actual, 2.0 * X)
    assert seen == ["mine"]


def test_arrays_as_attributes_have_derivatives() -> None:
    """An output kept as a plain attribute is right in the second derivative too."""

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.y = output

    op = define(np.exp, lambda ctx, g: g * ctx.y, setup)
    assert_allclose(co.grad(co.grad(co.grad(op)))(np.array(0.3)), math.exp(0.3))


def test_an_output_kept_on_ctx_makes_no_cycle() -> None:
    """What a call kept goes with its result, without the garbage collector."""
    kept = []

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.y = output
        kept.append(weakref.ref(ctx))

    op = define(np.exp, lambda ctx, g: g * ctx.y, setup)
    gc.disable()
    try:
        y = op(co.variable(X))
        assert kept[0]() is not None
        del y
        assert kept[0]() is None
    finally:
        gc.enable()


# ---- needs_input_grad ----


@pytest.mark.parametrize(
    ("argnums", "expected"),
    [
        (0, (True, False, False)),
        (1, (False, True, False)),
        ((0, 1), (True, True, False)),
    ],
)
def test_needs_input_grad_is_flat(argnums: Any, expected: tuple[bool, ...]) -> None:
    """One flag for each positional input, those that are no arrays among them."""
    seen = []

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        seen.append(ctx.needs_input_grad)

    def backward(ctx: Any, g: Any) -> Any:
        seen.append(ctx.needs_input_grad)
        return g, g, None

    op = define(
        lambda x, y, k: (x + y) * k,
        backward,
        setup,
        schema="(Array x, Array y, float k=1.0) -> Array",
    )
    co.grad(lambda x, y: np.sum(op(x, y)), argnums)(X, Y)
    assert seen == [expected, expected]


def test_needs_input_grad_is_nested_as_lists_are() -> None:
    """A list argument has a list of flags."""
    seen = []

    def backward(ctx: Any, g: Any) -> Any:
        seen.append(ctx.needs_input_grad)
        return [g, None], None

    op = define(
        lambda xs, k: (xs[0] + xs[1]) * k,
        backward,
        schema="(Array[] xs, float k=1.0) -> Array",
    )
    co.grad(lambda x: np.sum(op([x, Y])))(X)
    assert seen == [([True, False], False)]


def test_needs_input_grad_of_a_list_of_lists() -> None:
    """Nesting is kept at any depth."""
    seen = []

    def backward(ctx: Any, g: Any) -> Any:
        seen.append(ctx.needs_input_grad)
        return ([[g, None], [2.0 * g]],)

    op = define(
        lambda xss: xss[0][0] + xss[0][1] + 2.0 * xss[1][0],
        backward,
        schema="(Array[][] xss) -> Array",
    )
    actual = co.grad(lambda x: np.sum(op([[x, Y], [x]])))(X)
    assert_array_equal(actual, [3.0, 3.0, 3.0])
    assert seen == [([[True, False], [True]],)]


def test_needs_input_grad_of_variables() -> None:
    """The imperative form has the same flags."""
    seen = []

    def backward(ctx: Any, g: Any) -> Any:
        seen.append(ctx.needs_input_grad)
        return g, g

    op = define(lambda x, y: x + y, backward, schema=BINARY)
    np.sum(op(X, co.variable(Y))).backward()
    assert seen == [(False, True)]


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
    """An output that is no array takes a place among the gradients, with None."""
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
    """None at the place of an array is no gradient."""
    op = define(lambda xs: xs[0] + xs[1], lambda ctx, g: ([g, None],), schema=LIST)
    first, second = co.grad(lambda a, b: np.sum(op([a, b])), (0, 1))(X, Y)
    assert_array_equal(first, np.ones(3))
    assert_array_equal(second, np.zeros(3))


def test_none_for_a_whole_list() -> None:
    """None at the place of a list is no gradient for all of it."""
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
    """A name that the dict lacks is an error where its gradient is asked for."""
    op = keyword_product(lambda ctx, g: {"w": g * ctx.saved_arrays[0]})
    gw = co.grad(lambda w: np.sum(op(X, w=w)))(Y)
    assert_array_equal(gw, X)
    with pytest.raises(
        co.GradientError, match="no gradient for 'x', which one is asked"
    ):
        co.grad(lambda x, w: np.sum(op(x, w=w)), (0, 1))(X, Y)


def test_gradients_by_name_may_be_none() -> None:
    """None under a name says that there is no gradient."""
    op = keyword_product(lambda ctx, g: {"w": g * ctx.saved_arrays[0], "x": None})
    gx, gw = co.grad(lambda x, w: np.sum(op(x, w=w)), (0, 1))(X, Y)
    assert_array_equal(gx, np.zeros(3))
    assert_array_equal(gw, X)


@pytest.mark.parametrize("found", [lambda g: g, lambda g: (g,)], ids=["alone", "tuple"])
def test_a_tracked_default_needs_its_gradient(found: Any) -> None:
    """Gradients may stop before defaults, but not before one that is asked for."""
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
    """One positional input takes its gradient bare."""
    assert_array_equal(co.grad(total(square))(X), 2.0 * X)


def test_gradients_may_leave_out_defaulted_inputs() -> None:
    """Where only defaulted inputs follow, which have no gradient, they may be left out."""
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
    """None says that no gradient flows."""
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
    """A formula that returns what a table row says, whatever it is."""

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
        "backward returned a list of 1, must return a tuple, a gradient for each of x",
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
        "backward returned a gradient for 'z', which is no parameter",
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
    """A misfit names operator, argument, the formula's file and line, and the remedy."""
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
    """Gradients of a list are as many as its arrays."""
    op = define(lambda xs: xs[0] + xs[1], lambda ctx, g: ([g] * count,), schema=LIST)
    with pytest.raises(co.GradientError) as caught:
        co.grad(lambda x: np.sum(op([x, x])))(X)
    assert caught.value.what == (
        f"{op.qualname}: backward returned {count} gradients for the 2 items of 'xs'"
    )
    assert caught.value.parameter == "xs"


def test_a_tuple_has_no_place_for_a_keyword_only_array() -> None:
    """The gradient of a keyword-only array comes by name, and the message says how."""
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
    """An error of a formula comes as it is, and the next gradient is right."""
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
    """A transform that ends by an exception leaves nothing open."""

    def fails(x: Any) -> Any:
        with co.no_grad():
            square(x)
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        co.grad(fails)(X)
    assert_array_equal(co.grad(total(square))(X), 2.0 * X)
    assert isinstance(square(co.variable(X)), co.GradTracer)


# ---- operators without a formula ----


def test_no_formula_is_an_error_when_a_gradient_flows() -> None:
    """It is never zeros in silence; the message names the call's place."""
    op = define(lambda x: 2.0 * x, name="bare")
    with pytest.raises(co.MissingRuleError) as caught:
        co.grad(lambda x: np.sum(op(x)))(X)
    text = str(caught.value)
    assert text.startswith("grads::bare has no 'autograd' rule\n  grads::bare(Array x)")
    line = test_no_formula_is_an_error_when_a_gradient_flows.__code__.co_firstlineno + 4
    assert f"through the call at {__file__}:{line}" in text
    assert text.endswith("do: @bare.register_autograd")


def test_no_formula_is_an_error_for_variables() -> None:
    """The forward call works; backward is what fails."""
    op = define(lambda x: 2.0 * x)
    y = np.sum(op(co.variable(X)))
    assert_array_equal(y.value, 12.0)
    with pytest.raises(co.MissingRuleError, match="no 'autograd' rule"):
        y.backward()


def test_no_formula_is_fine_where_no_gradient_flows() -> None:
    """An output that nobody differentiates needs no formula."""
    op = define(lambda x: 2.0 * x)

    def f(x: Any) -> Any:
        unused = op(x)
        assert unused.shape == (3,)
        return np.sum(x * x) + np.sum(co.stop_gradient(op(x)))

    assert_array_equal(co.grad(f)(X), 2.0 * X)


def test_no_formula_is_fine_for_integers() -> None:
    """An operator whose output has no derivative needs no formula."""
    op = define(lambda x: np.argsort(x))
    assert_array_equal(co.grad(lambda x: np.sum(x[op(x)] * X))(X), X)


def test_a_formula_registered_later_is_used() -> None:
    """The table may change between two calls."""
    op = define(lambda x: 2.0 * x)
    with pytest.raises(co.MissingRuleError):
        co.grad(total(op))(X)
    op.register_autograd(lambda ctx, g: 2.0 * g)
    assert_array_equal(co.grad(total(op))(X), np.full(3, 2.0))
    op.register_autograd(lambda ctx, g: 5.0 * g, override=True)
    assert_array_equal(co.grad(total(op))(X), np.full(3, 5.0))


# ---- accumulation ----


def test_an_array_used_twice_by_one_call() -> None:
    """The product of x with itself has the gradient 2 x."""
    assert_array_equal(co.grad(lambda x: np.sum(product(x, x)))(X), 2.0 * X)


def test_a_diamond() -> None:
    """Gradients of two ways from one value are summed: x^2 sin(x^2)."""

    def f(x: Any) -> Any:
        y = square(x)
        return np.sum(product(y, np.sin(y)))

    expected = 2.0 * X * (np.sin(X**2) + X**2 * np.cos(X**2))
    assert_allclose(co.grad(f)(X), expected)


@pytest.mark.parametrize("depth", [1, 5, 30])
def test_a_chain_of_diamonds_is_linear(depth: int) -> None:
    """A value doubled n times has the gradient 2^n; each formula runs once."""
    calls = []

    def backward(ctx: Any, g: Any) -> Any:
        calls.append(1)
        return g, g

    op = define(lambda x, y: x + y, backward, schema=BINARY)

    def f(x: Any) -> Any:
        for _ in range(depth):
            x = op(x, x)
        return x

    assert co.grad(f)(np.array(1.0)) == 2.0**depth
    assert len(calls) == depth


def test_branches_of_unequal_length_meet() -> None:
    """A node runs once all its gradients are there: a long way and a short one."""

    def f(x: Any) -> Any:
        y = square(x)
        z = y
        for _ in range(4):
            z = product(z, y)
        return np.sum(z + y)

    assert_allclose(co.grad(f)(X), 10.0 * X**9 + 2.0 * X)


def test_a_long_chain_needs_no_recursion() -> None:
    """Twenty thousand calls in a row are differentiated without a deep stack."""

    def f(x: Any) -> Any:
        for _ in range(20_000):
            x = product(x, ONE)
        return x

    assert co.grad(f)(np.array(3.0)) == 1.0


ONE = np.array(1.0)


def test_formulas_see_one_gradient_for_both_inputs() -> None:
    """Returning g itself for two inputs counts it for each."""
    op = define(lambda x, y: x + y, lambda ctx, g: (g, g), schema=BINARY)
    assert_array_equal(co.grad(lambda x: np.sum(op(x, op(x, x))))(X), np.full(3, 3.0))


def test_formulas_may_return_views_of_the_gradient() -> None:
    """Views of g in another order or shape are gradients like others."""
    op = define(lambda x: x[::-1].copy(), lambda ctx, g: g[::-1])
    assert_array_equal(co.grad(lambda x: np.sum(op(x) * Y))(X), Y[::-1])


@pytest.mark.parametrize("checks", ["first", "always"])
def test_a_formula_cannot_write_its_gradient(checks: Any) -> None:
    """The gradient may be another call's as well: a write into it is an error."""
    co.config.checks = checks

    def backward(ctx: Any, g: Any) -> Any:
        g *= 2.0
        return g

    op = define(lambda x: 2.0 * x, backward)
    seed = np.ones(3)
    with pytest.raises((co.CustomOpError, ValueError), match=r"read-only|writes"):
        op(co.variable(X)).backward(seed)
    assert_array_equal(seed, np.ones(3))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copy_is_tracked(copied: Any) -> None:
    """A copy of a tracked value takes its gradient along."""
    assert co.grad(lambda x: copied(x) * x)(2.0) == 4.0


def test_gradients_of_arguments_share_no_memory() -> None:
    """What comes back for two arguments may be written, each for itself."""
    op = define(lambda x, y: x + y, lambda ctx, g: (g, g), schema=BINARY)
    first, second = co.grad(lambda x, y: np.sum(op(x, y)), (0, 1))(X, Y)
    first += 1.0
    assert_array_equal(first, np.full(3, 2.0))
    assert_array_equal(second, np.ones(3))


@pytest.mark.parametrize(
    "transform",
    [
        co.grad,
        co.value_and_grad,
        lambda f: co.vjp(f, X),
        lambda f: co.jvp(f, (X,), (X,)),
        co.jacrev,
        co.jacfwd,
        co.hessian,
        co.vmap,
        lambda f: co.eval_shape(f, X),
    ],
    ids=["grad", "value_and_grad", "vjp", "jvp", "jacrev", "jacfwd", "hessian", "vmap", "eval_shape"],
)  # fmt: skip
def test_a_transform_takes_a_function(transform: Any) -> None:
    """What is no function is refused when the transform is made."""
    with pytest.raises(co.ArgumentError, match=": 3 is no function"):
        transform(3)


def test_a_missing_formula_names_the_call_that_asks() -> None:
    """Not the first call ever: each call through the operator has its own place."""
    op = define(lambda x: x * 1.0)

    def first(x: Any) -> Any:
        return np.sum(op(x))

    def second(x: Any) -> Any:
        return np.sum(op(x))

    for f in (first, second):
        with pytest.raises(co.MissingRuleError) as caught:
            co.grad(f)(X)
        assert f"{__file__}:{f.__code__.co_firstlineno + 1}" in str(caught.value)


# ---- higher derivatives ----


def falling(n: int, order: int) -> float:
    """N (n-1) ... (n-order+1): the factor that differentiating x^n brings."""
    return float(math.prod(range(n - order + 1, n + 1)))


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5, 6, 7, 8, 9])
def test_derivatives_of_every_order(order: int) -> None:
    """x^8 as three squares, to an order past its degree."""
    f: Any = lambda x: square(square(square(x)))
    for _ in range(order):
        f = co.grad(f)
    expected = falling(8, order) * 1.5 ** (8 - order) if order <= 8 else 0.0
    assert_allclose(f(np.array(1.5)), expected, rtol=1e-13)


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
def test_derivatives_of_a_product(order: int) -> None:
    """x^4 y^2 by operators of two arrays, mixed derivatives by both."""

    def f(x: Any, y: Any) -> Any:
        return product(square(square(x)), product(y, y))

    inner: Any = co.grad(f, 1)
    for _ in range(order - 1):
        inner = co.grad(inner, 0)
    expected = falling(4, order - 1) * 1.5 ** (5 - order) * 2.0 * 0.5
    assert_allclose(inner(np.array(1.5), np.array(0.5)), expected)


def test_fifth_derivative_of_exp_saved_output() -> None:
    """A formula made of its own output."""
    op = define(
        np.exp,
        lambda ctx, g: g * ctx.saved_arrays[0],
        lambda ctx, inputs, output: ctx.save_for_backward(output),
    )
    f: Any = op
    for _ in range(5):
        f = co.grad(f)
    assert_allclose(f(np.array(0.25)), math.exp(0.25))


def test_a_formula_that_calls_its_own_operator() -> None:
    """The derivative of sin by a formula that calls sin again."""

    def backward(ctx: Any, g: Any) -> Any:
        return g * op(ctx.saved_arrays[0] + math.pi / 2)

    op = define(np.sin, backward, save_inputs)
    assert_allclose(co.grad(co.grad(co.grad(op)))(np.array(0.4)), -math.cos(0.4))


FORMULAS = {
    "grad": lambda x: co.grad(lambda v: np.sum(v**3))(x),
    "vmap of grad": lambda x: co.vmap(co.grad(lambda v: v**3))(x),
    "jvp": lambda x: co.jvp(lambda v: v**3, (x,), (np.ones_like(x),))[1],
    "vjp": lambda x: co.vjp(lambda v: v**3, x)[1](np.ones_like(x))[0],
}


@pytest.mark.parametrize("name", FORMULAS)
def test_a_formula_that_transforms(name: str) -> None:
    """A backward formula may itself use grad, vmap, jvp and vjp: of x^3."""

    def backward(ctx: Any, g: Any) -> Any:
        return g * FORMULAS[name](ctx.saved_arrays[0])

    op = define(lambda x: x**3, backward, save_inputs, tags=co.Tag.pointwise)
    assert_allclose(co.grad(total(op))(X), 3.0 * X**2)
    assert_allclose(co.hessian(total(op))(X), np.diag(6.0 * X))


def test_backward_inside_backward() -> None:
    """A formula may run a backward of variables of its own."""

    def backward(ctx: Any, g: Any) -> Any:
        v = co.variable(ctx.saved_arrays[0])
        np.sum(v**3).backward()
        return g * v.grad

    op = define(lambda x: x**3, backward, save_inputs)
    assert_allclose(co.grad(total(op))(X), 3.0 * X**2)


def test_inner_function_does_not_confuse_levels() -> None:
    """d/dx (x d/dy (x + y)) is 1: the classic case of perturbation confusion."""

    def outer(x: Any) -> Any:
        return x * co.grad(lambda y: x + y)(np.array(1.0))

    assert co.grad(outer)(np.array(1.0)) == 1.0


def test_inner_gradient_of_a_value_outside() -> None:
    """d/dx of x^2 d/dy (x^3 y) is 5 x^4."""

    def outer(x: Any) -> Any:
        return x**2 * co.grad(lambda y: x**3 * y)(np.array(7.0))

    assert_allclose(co.grad(outer)(np.array(1.5)), 5.0 * 1.5**4)


# ---- grad, value_and_grad ----


def test_value_and_grad() -> None:
    """The value comes with the gradient."""
    value, gradient = co.value_and_grad(total(square))(X)
    assert value == 14.0
    assert_array_equal(gradient, 2.0 * X)


@pytest.mark.parametrize(
    ("argnums", "expected"),
    [
        (0, "y"),
        (1, "x"),
        (-1, "x"),
        (-2, "y"),
        ((0, 1), "yx"),
        ((1, 0), "xy"),
        ([0], "y"),
        ((-1,), "x"),
        ((), ""),
        (np.int64(1), "x"),
    ],
)
def test_argnums(argnums: Any, expected: str) -> None:
    """An int gives one gradient, a sequence a tuple, negative ones count from the end."""
    found = co.grad(total(product), argnums)(X, Y)
    is_tuple = isinstance(argnums, tuple | list)
    assert isinstance(found, tuple) is is_tuple
    values = {"x": X, "y": Y}
    pairs = zip(found if is_tuple else (found,), expected, strict=True)
    for actual, name in pairs:
        assert_array_equal(actual, values[name])


@pytest.mark.parametrize("argnums", [2, -3, (0, 5)])
def test_argnums_outside(argnums: Any) -> None:
    """A position that the call does not have is named."""
    with pytest.raises(co.GradientError, match="the call has 2 positional arguments"):
        co.grad(total(product), argnums)(X, Y)


@pytest.mark.parametrize("argnums", [(0, 0), (0, -2), (1, 0, 1)])
def test_argnums_twice(argnums: Any) -> None:
    """One argument cannot be asked for twice."""
    with pytest.raises(co.GradientError, match="argnums"):
        co.grad(total(product), argnums)(X, Y)


@pytest.mark.parametrize("argnums", ["x", 1.0, None, (0, "y"), (0.0,)])
def test_argnums_of_another_type(argnums: Any) -> None:
    """Argnums are ints."""
    with pytest.raises(co.GradientError, match="argnums"):
        co.grad(total(product), argnums)(X, Y)


def test_argnums_of_keywords() -> None:
    """What is given by keyword has no position, and the message says so."""
    with pytest.raises(co.GradientError, match="pass that argument by position"):
        co.grad(lambda x: np.sum(x))(x=X)


def test_has_aux() -> None:
    """Aux comes back with its arrays untracked, other things as they are."""

    def f(x: Any) -> Any:
        y = square(x)
        return np.sum(y), {"y": y, "name": "n", "none": None}

    gradient, aux = co.grad(f, has_aux=True)(X)
    assert_array_equal(gradient, 2.0 * X)
    assert type(aux["y"]) is np.ndarray
    assert_array_equal(aux["y"], X * X)
    assert (aux["name"], aux["none"]) == ("n", None)


def test_value_and_grad_with_aux() -> None:
    """The result is ((value, aux), gradient)."""
    (value, aux), gradient = co.value_and_grad(
        lambda x: (np.sum(square(x)), 5), has_aux=True
    )(X)
    assert (value, aux) == (14.0, 5)
    assert_array_equal(gradient, 2.0 * X)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_has_aux_needs_a_pair(count: int) -> None:
    """Anything but a pair is refused."""
    with pytest.raises(co.GradientError, match=r"must return \(output, aux\)"):
        co.grad(lambda x: (np.sum(x),) * count, has_aux=True)(X)


@dataclass
class Layer:
    weight: Any
    bias: Any


optree.register_pytree_node(
    Layer,
    lambda layer: ((layer.weight, layer.bias), None, ("weight", "bias")),
    lambda _, children: Layer(*children),
    namespace="customop",
)

Point = collections.namedtuple("Point", "x y")  # noqa: PYI024  # as users write them

TREES = {
    "dict": ({"b": X, "a": Y}, lambda p: np.sum(p["a"] * p["b"]), {"b": Y, "a": X}),
    "list": ([X, Y], lambda p: np.sum(p[0] * p[1]), [Y, X]),
    "tuple": ((X, (Y,)), lambda p: np.sum(p[0] * p[1][0]), (Y, (X,))),
    "named": (Point(X, Y), lambda p: np.sum(p.x * p.y), Point(Y, X)),
    "None": (
        {"a": X, "n": None},
        lambda p: np.sum(p["a"]),
        {"a": np.ones(3), "n": None},
    ),
    "ordered": (
        collections.OrderedDict(z=X, a=Y),
        lambda p: np.sum(p["a"] * p["z"]),
        collections.OrderedDict(z=Y, a=X),
    ),
    "unused": ([X, Y], lambda p: np.sum(p[0]), [np.ones(3), np.zeros(3)]),
    "empty": ({}, lambda p: np.float64(1.0), {}),
    "dtypes": (
        [X, X.astype(np.float32)],
        lambda p: np.sum(p[0] * p[1]),
        [X, X.astype(np.float32)],
    ),
}


@pytest.mark.parametrize("name", TREES)
def test_gradients_have_the_structure_of_the_argument(name: str) -> None:
    """A pytree of arrays has a pytree of gradients, of the same classes and dtypes."""
    tree, f, expected = TREES[name]
    found = co.grad(f)(tree)
    assert type(found) is type(tree)
    assert optree.tree_structure(found, none_is_leaf=True) == optree.tree_structure(
        expected, none_is_leaf=True
    )
    pairs = zip(optree.tree_leaves(found), optree.tree_leaves(expected), strict=True)
    for actual, wanted in pairs:
        assert_array_equal(actual, wanted)
        assert actual.dtype == wanted.dtype


def test_gradients_of_a_registered_dataclass() -> None:
    """A class that optree knows in the namespace of the package is a pytree."""
    found = co.grad(lambda layer: np.sum(layer.weight * layer.bias))(Layer(X, Y))
    assert isinstance(found, Layer)
    assert_array_equal(found.weight, Y)
    assert_array_equal(found.bias, X)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.arange(3), "argument 0 has dtype int64, which has no derivative"),
        (np.array([True]), "argument 0 has dtype bool, which has no derivative"),
        (3, "argument 0 must be an array of floats, got int 3"),
        (True, "argument 0 must be an array of floats, got bool True"),
        ("s", "argument 0 must be an array of floats, got str 's'"),
        ({"a": X, "n": 3}, "argument 0 must be an array of floats, got int 3"),
        (np.array(["s"]), "argument 0 has dtype <U1, which has no derivative"),
        (np.array([None]), "argument 0 has dtype object, which has no derivative"),
    ],
    ids=repr,
)
def test_arguments_without_derivatives_are_refused(value: Any, message: str) -> None:
    """What has no derivative is no argument to differentiate by."""
    with pytest.raises(co.GradientError) as caught:
        co.grad(lambda x: np.sum(x))(value)
    assert caught.value.what == f"grad of <lambda>: {message}"
    assert caught.value.do


@pytest.mark.parametrize("value", [2.0, np.float64(2.0), np.array(2.0)], ids=repr)
def test_a_number_is_an_array_without_axes(value: Any) -> None:
    """Python and NumPy floats are differentiated as 0-d arrays."""
    assert co.grad(lambda x: x * x * x)(value) == 12.0
    assert np.shape(co.grad(lambda x: x * x * x)(value)) == ()


def test_a_python_complex_is_an_array_without_axes() -> None:
    """Of Re(z^2) by z: 2 z."""
    assert co.grad(lambda z: np.real(z * z))(1.0 + 2.0j) == 2.0 + 4.0j


@pytest.mark.parametrize(
    ("result", "what", "do"),
    [
        (lambda x: x, "the value is f64[3], must be a real float", "return x.sum()"),
        (
            lambda x: np.sum(x * 1j),
            "the value is c128[], must be a real float",
            "use real(x) or abs(x)",
        ),
        (
            lambda x: np.argmax(x),
            "the value is i64[], must be a real float",
            "return x.astype(float)",
        ),
        (lambda x: "s", "the value is str 's', must be an array", "return one array"),
        (lambda x: None, "the value is None", "return one array"),
        (lambda x: [np.sum(x)], "the value is list", "return one array"),
    ],
    ids=["axes", "complex", "int", "str", "None", "list"],
)
def test_values_without_a_gradient_are_refused(result: Any, what: str, do: str) -> None:
    """The value is a real float without axes, and the message says what to do else."""

    def f(x: Any) -> Any:
        return result(x)

    with pytest.raises(co.GradientError) as caught:
        co.grad(f)(X)
    assert caught.value.what.startswith(f"grad of f: {what}")
    assert caught.value.do.startswith(do)


@pytest.mark.parametrize("result", [3.0, 3, np.float64(3.0), np.array(3.0)], ids=repr)
def test_a_value_that_depends_on_nothing(result: Any) -> None:
    """Its gradient is zero."""
    assert_array_equal(co.grad(lambda x: result)(X), np.zeros(3))


def test_an_argument_that_is_not_used() -> None:
    """Its gradient is zeros of its shape and dtype."""
    other = np.ones((2, 2), np.float32)
    _, found = co.grad(lambda x, y: np.sum(x), (0, 1))(X, other)
    assert_array_equal(found, np.zeros((2, 2)))
    assert found.dtype == np.float32


def test_keywords_pass_through() -> None:
    """Keyword arguments reach the function as they are."""

    def f(x: Any, *, power: int, other: Any = None) -> Any:
        assert other == "o"
        return np.sum(x**power)

    assert_array_equal(co.grad(f)(X, power=3, other="o"), 3.0 * X**2)


@pytest.mark.parametrize("transform", [co.grad, co.value_and_grad])
def test_names_and_docstrings_stay(transform: Any) -> None:
    """What a transform returns is named as its function is."""

    def energy(x: Any) -> Any:
        """Half of the square."""
        return 0.5 * np.sum(x * x)

    made = transform(energy)
    assert made.__name__ == "energy"
    assert made.__doc__ == "Half of the square."
    assert made.__wrapped__ is energy


@pytest.mark.parametrize(
    "f",
    [
        functools.partial(lambda k, x: np.sum(k * x * x), 2.0),
        np.sum,
        type("Callable", (), {"__call__": lambda self, x: np.sum(x)})(),
    ],
    ids=["partial", "numpy", "object"],
)
def test_functions_of_other_kinds(f: Any) -> None:
    """A partial, a NumPy function and an object with __call__ are functions."""
    assert_allclose(co.grad(f)(X), slope(f, X), rtol=1e-8)


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0)])
def test_empty_arrays(shape: Any) -> None:
    """The gradient of an empty array is empty."""
    found = co.grad(total(square))(np.zeros(shape))
    assert found.shape == shape


@pytest.mark.parametrize(
    "x",
    [
        np.arange(12.0).reshape(3, 4).T,
        np.arange(12.0).reshape(3, 4)[::2, ::-1],
        np.broadcast_to(np.arange(3.0), (2, 3)),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
    ],
    ids=["transposed", "strided", "broadcast", "fortran"],
)
def test_inputs_of_any_layout(x: Any) -> None:
    """How an input lies in memory makes no difference to its gradient."""
    assert_array_equal(co.grad(total(square))(x), 2.0 * x)


def test_a_read_only_input() -> None:
    """An input that cannot be written is read alone."""
    x = X.copy()
    x.flags.writeable = False
    assert_array_equal(co.grad(total(square))(x), 2.0 * X)


def test_a_subclass_of_ndarray() -> None:
    """A subclass is differentiated as an array."""

    class Metres(np.ndarray):
        pass

    found = co.grad(total(square))(X.view(Metres))
    assert_array_equal(np.asarray(found), 2.0 * X)


def test_branches_on_values() -> None:
    """Python control flow takes the branch of the value at hand."""

    def f(x: Any) -> Any:
        return square(x) if x > 0.0 else 3.0 * x

    assert [co.grad(f)(v) for v in (2.0, -2.0)] == [4.0, 3.0]


def test_a_tracer_that_outlives_grad_is_refused() -> None:
    """A value smuggled out of a transform says where it is from."""
    kept = []
    co.grad(lambda x: (kept.append(x), np.sum(x))[1])(X)
    with pytest.raises(co.LeakedTracerError, match="has ended"):
        square(kept[0])


def test_threads() -> None:
    """Gradients in many threads at once are each right."""
    found: dict[int, Any] = {}
    barrier = threading.Barrier(8)

    def work(k: int) -> None:
        barrier.wait()
        for _ in range(20):
            found[k] = co.grad(co.grad(lambda x: square(square(x)) * k))(np.array(2.0))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {k: 48.0 * k for k in range(8)}


# ---- vjp ----


def test_vjp_pulls_any_number_of_times() -> None:
    """A pullback is linear, and may be called again."""
    value, pullback = co.vjp(product, X, Y)
    assert_array_equal(value, X * Y)
    for k in (1.0, 2.0, -3.0):
        gx, gy = pullback(np.full(3, k))
        assert_array_equal(gx, k * Y)
        assert_array_equal(gy, k * X)


def test_vjp_of_trees() -> None:
    """Cotangents are nested as the output, gradients as the primals."""

    def f(p: Any, z: Any) -> Any:
        return {"s": p["x"] * z, "t": [z * z]}

    value, pullback = co.vjp(f, {"x": X}, Y)
    assert_array_equal(value["t"][0], Y * Y)
    gp, gz = pullback({"s": np.ones(3), "t": [X]})
    assert_array_equal(gp["x"], Y)
    assert_allclose(gz, X + 2.0 * Y * X)


def test_vjp_with_aux() -> None:
    """Aux comes third."""
    value, pullback, aux = co.vjp(lambda x: (x * x, "aux"), X, has_aux=True)
    assert_array_equal(value, X * X)
    assert_array_equal(pullback(np.ones(3))[0], 2.0 * X)
    assert aux == "aux"


def test_vjp_of_an_output_that_depends_on_nothing() -> None:
    """Its gradient is zeros."""
    value, pullback = co.vjp(lambda x: Y, X)
    assert_array_equal(value, Y)
    assert_array_equal(pullback(np.ones(3))[0], np.zeros(3))


def test_a_number_as_cotangent() -> None:
    """A Python float serves for an output without axes."""
    _, pullback = co.vjp(np.sum, X)
    assert_array_equal(pullback(2.0)[0], np.full(3, 2.0))


@pytest.mark.parametrize(
    ("cotangent", "what"),
    [
        (
            np.ones(2),
            "pullback: cotangent 0 is f64[2], must be f64[3] as the output is",
        ),
        (
            np.ones(3, np.float32),
            "pullback: cotangent 0 is f32[3], must be f64[3] as the output is",
        ),
        (1.0, "pullback: cotangent 0 is f64[], must be f64[3] as the output is"),
        (
            "s",
            "pullback: cotangent 0 is str 's', must be f64[3] as the output is",
        ),
    ],
)
def test_wrong_cotangents_are_refused(cotangent: Any, what: str) -> None:
    """A cotangent has the shape and dtype of its output."""
    _, pullback = co.vjp(square, X)
    with pytest.raises(co.GradientError) as caught:
        pullback(cotangent)
    assert caught.value.what == what


def test_cotangents_of_another_structure_are_refused() -> None:
    """A cotangent for each array of the output, nested as it is."""
    _, pullback = co.vjp(lambda x: (x * 1.0, x * 2.0), X)
    with pytest.raises(co.GradientError, match="does not fit the output"):
        pullback([X, X])


def test_vjp_of_a_real_input_with_a_complex_output() -> None:
    """A complex cotangent gives a real gradient: Re(g f'(x))."""
    _, pullback = co.vjp(lambda x: x * (2.0 + 3.0j), X)
    (found,) = pullback(np.full(3, 1.0 - 1.0j))
    assert found.dtype == np.float64
    assert_allclose(found, np.full(3, ((1.0 - 1.0j) * (2.0 + 3.0j)).real))


# ---- variables ----


def test_backward_brings_gradients() -> None:
    """The gradient of a value comes to the variables that it depends on."""
    x, y = co.variable(X), co.variable(Y)
    assert x.grad is None
    np.sum(product(x, y)).backward()
    assert_array_equal(x.grad, Y)
    assert_array_equal(y.grad, X)


def test_backward_is_also_a_function() -> None:
    """Backward(y) is y.backward()."""
    x = co.variable(X)
    co.backward(np.sum(square(x)))
    assert_array_equal(x.grad, 2.0 * X)


def test_gradients_of_several_backwards_are_summed() -> None:
    """x.grad grows until it is reset."""
    x = co.variable(X)
    np.sum(square(x)).backward()
    np.sum(3.0 * x).backward()
    assert_array_equal(x.grad, 2.0 * X + 3.0)
    x.grad = None
    np.sum(3.0 * x).backward()
    assert_array_equal(x.grad, np.full(3, 3.0))


def test_a_gradient_may_be_set() -> None:
    """x.grad starts from what it is set to."""
    x = co.variable(X)
    x.grad = np.ones(3)
    np.sum(square(x)).backward()
    assert_array_equal(x.grad, 2.0 * X + 1.0)


def test_backward_of_a_variable_itself() -> None:
    """The gradient of x by x is one."""
    x = co.variable(3.0)
    x.backward()
    assert x.grad == 1.0


def test_backward_with_a_gradient() -> None:
    """A value with axes is seeded by a gradient of its shape."""
    x = co.variable(X)
    square(x).backward(Y)
    assert_array_equal(x.grad, 2.0 * X * Y)


def test_backward_with_a_number() -> None:
    """A Python float seeds a value without axes."""
    x = co.variable(X)
    np.sum(square(x)).backward(0.5)
    assert_array_equal(x.grad, X)


def test_a_value_with_axes_needs_a_gradient() -> None:
    """The message says what to write."""
    with pytest.raises(co.GradientError) as caught:
        square(co.variable(X)).backward()
    assert str(caught.value) == (
        "backward: f64[3] is no real float without axes, so it needs a gradient\n"
        "  do: call backward(np.sum(np.real(y))), or backward(y, gradient)"
    )


def test_a_complex_value_needs_a_gradient() -> None:
    """What the gradient of a complex value is, only its cotangent can say."""
    with pytest.raises(co.GradientError, match=r"complex|c128"):
        np.sum(square(co.variable(1j * X))).backward()


@pytest.mark.parametrize(
    "gradient", [np.ones(2), np.ones(3, np.float32), [1.0, 1.0, 1.0], 1.0, "s"]
)
def test_a_wrong_gradient_is_refused(gradient: Any) -> None:
    """It has the shape and dtype of the value, which the message shows."""
    with pytest.raises(co.GradientError, match=r"must be f64\[3\]"):
        square(co.variable(X)).backward(gradient)


@pytest.mark.parametrize("value", [X, 3.0, "s", None], ids=repr)
def test_backward_of_what_depends_on_no_variable(value: Any) -> None:
    """A plain value has no variables to bring gradients to."""
    with pytest.raises(co.GradientError, match="depends on no variable"):
        co.backward(value)


def test_backward_of_another_transforms_value() -> None:
    """A value of grad alone depends on no variable."""

    def f(x: Any) -> Any:
        y = np.sum(x)
        with pytest.raises(co.GradientError, match="no variable"):
            y.backward()
        return y

    co.grad(f)(X)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.arange(3), "variable: x has dtype int64, which has no derivative"),
        ([1.0], "variable: x must be an array of floats, got list [1.0]"),
        (3, "variable: x must be an array of floats, got int 3"),
    ],
)
def test_variables_are_arrays_of_floats(value: Any, message: str) -> None:
    """What has no derivative is no variable."""
    with pytest.raises(co.GradientError) as caught:
        co.variable(value)
    assert caught.value.what == message


def test_only_a_variable_has_a_gradient() -> None:
    """A computed value has none, and none can be set."""
    y = square(co.variable(X))
    assert y.grad is None
    with pytest.raises(co.GradientError, match="is no variable"):
        y.grad = X


def test_a_second_backward_is_refused() -> None:
    """What a call saved is freed by backward, and the message names the remedy."""
    x = co.variable(X)
    y = square(x)
    y.backward(np.ones(3))
    with pytest.raises(co.GradientError) as caught:
        y.backward(np.ones(3))
    assert caught.value.what == (
        "grads::square: backward runs a second time through a call whose saved arrays"
        " are freed"
    )
    assert caught.value.do == "call backward(y, retain_graph=True) the first time"
    assert_array_equal(x.grad, 2.0 * X)


def test_retain_graph_allows_a_second_backward() -> None:
    """Gradients of both are summed; the last one frees."""
    x = co.variable(X)
    y = np.sum(square(x))
    y.backward(retain_graph=True)
    co.backward(y, retain_graph=True)
    y.backward()
    assert_array_equal(x.grad, 6.0 * X)
    with pytest.raises(co.GradientError, match="second time"):
        y.backward()


def test_two_values_that_share_a_call() -> None:
    """A call shared by two values is freed with the first unless it is retained."""
    x = co.variable(X)
    shared = square(x)
    np.sum(shared).backward(retain_graph=True)
    np.sum(3.0 * shared).backward()
    assert_array_equal(x.grad, 8.0 * X)


@pytest.mark.parametrize("schema", [UNARY, BINARY])
def test_backward_frees_what_was_saved(schema: str) -> None:
    """Saved arrays go with the last sweep, though the result stays."""
    kept = []

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        array = inputs[0].copy()
        kept.append(weakref.ref(array))
        ctx.save_for_backward(array)

    op = define(
        lambda *xs: xs[0] * 1.0,
        lambda ctx, *gs: (gs[0], None)[: schema.count(",") + 1],
        setup,
        schema=schema,
    )
    y = op(*[co.variable(X)] * len(op.schema.parameters))
    assert kept[0]() is not None
    y.backward(np.ones(3), retain_graph=True)
    assert kept[0]() is not None
    y.backward(np.ones(3))
    assert kept[0]() is None


def test_the_gradient_is_an_array_of_its_own() -> None:
    """x.grad may be written: it is neither the seed nor another gradient."""
    copy_of = define(lambda x: x.copy(), lambda ctx, g: g)
    add = define(lambda x, y: x + y, lambda ctx, g: (g, g), schema=BINARY)
    seed = np.ones(3)
    x, y, z = co.variable(X), co.variable(X), co.variable(X)
    copy_of(x).backward(seed)
    add(y, z).backward(seed)
    for v in (x, y, z):
        v.grad += 1.0
        assert_array_equal(v.grad, np.full(3, 2.0))
    assert_array_equal(seed, np.ones(3))


def test_the_gradient_of_a_sum_may_be_written() -> None:
    """x.grad is no broadcast view of the seed."""
    x = co.variable(X)
    np.sum(x).backward()
    x.grad *= 0.5
    assert_array_equal(x.grad, np.full(3, 0.5))


def test_variables_inside_of_grad() -> None:
    """A gradient that depends on a variable can be differentiated by it: d/dw 6 w = 6."""
    w = co.variable(2.0)
    slope_ = co.grad(lambda v: w * v * v)(3.0)
    slope_.backward()
    assert w.grad == 9.0 - 3.0


def test_grad_of_a_variable() -> None:
    """Second derivatives of variables: grad gives x -> 3 x^2, backward 6 x."""
    x = co.variable(3.0)
    co.grad(lambda v: v**3)(x).backward()
    assert x.grad == 18.0


def test_vmap_over_a_variable() -> None:
    """Rows of a variable bring their gradients to it."""
    x = co.variable(X)
    np.sum(co.vmap(lambda row: square(row) * row)(x)).backward()
    assert_allclose(x.grad, 3.0 * X**2)


def test_variables_in_threads() -> None:
    """Each thread's variables have their own gradients."""
    found: dict[int, Any] = {}

    def work(k: int) -> None:
        x = co.variable(X * k)
        for _ in range(10):
            np.sum(square(x)).backward()
        found[k] = x.grad

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for k in range(4):
        assert_allclose(found[k], 20.0 * X * k)


def test_gradient_descent() -> None:
    """The imperative form, as it is used: minimise (x - 3)^2."""
    x = np.array(0.0)
    for _ in range(100):
        v = co.variable(x)
        square(v - 3.0).backward()
        x = x - 0.1 * v.grad
    assert_allclose(x, 3.0, atol=1e-8)


# ---- no_grad, enable_grad, stop_gradient ----


def is_tracked(value: Any) -> bool:
    return isinstance(value, co.GradTracer)


def test_no_grad_is_for_its_block() -> None:
    """Tracking goes on when the block ends."""
    x = co.variable(X)
    with co.no_grad():
        assert not is_tracked(square(x))
        assert not is_tracked(np.sin(x))
        assert not is_tracked(x + 1.0)
    assert is_tracked(square(x))


def test_no_grad_ends_with_an_exception() -> None:
    """Tracking goes on after an exception."""
    x = co.variable(X)
    with pytest.raises(KeyError, match="mine"), co.no_grad():
        raise KeyError("mine")
    assert is_tracked(square(x))


def test_no_grad_decorates() -> None:
    """As a decorator it holds for each call, also recursive ones."""

    @co.no_grad()
    def power(x: Any, n: int) -> Any:
        return x if n == 0 else square(power(x, n - 1))

    x = co.variable(X)
    assert_array_equal(power(x, 2), X**4)
    assert not is_tracked(power(x, 2))
    assert is_tracked(square(x))


def test_no_grad_nests_with_enable_grad() -> None:
    """The innermost says."""
    x = co.variable(X)
    seen = []
    with co.no_grad():
        seen.append(is_tracked(square(x)))
        with co.enable_grad():
            seen.append(is_tracked(square(x)))
            with co.no_grad():
                seen.append(is_tracked(square(x)))
            seen.append(is_tracked(square(x)))
        seen.append(is_tracked(square(x)))
    seen.append(is_tracked(square(x)))
    assert seen == [False, True, False, True, False, True]


def test_enable_grad_decorates() -> None:
    """A function can say that it tracks wherever it is called."""
    tracking = co.enable_grad()(square)
    x = co.variable(X)
    with co.no_grad():
        assert is_tracked(tracking(x))


def test_no_grad_inside_of_grad() -> None:
    """What is computed in no_grad is a constant: d/dx (x^2 as c) x is c."""

    def f(x: Any) -> Any:
        with co.no_grad():
            c = square(x)
        return np.sum(c * x)

    assert_array_equal(co.grad(f)(X), X**2)


def test_grad_inside_of_no_grad() -> None:
    """A whole gradient can be taken inside of no_grad."""
    with co.no_grad():
        found = co.grad(total(square))(X)
    assert_array_equal(found, 2.0 * X)


def test_backward_inside_of_no_grad() -> None:
    """What was tracked before can be swept inside of no_grad."""
    x = co.variable(X)
    y = np.sum(square(x))
    with co.no_grad():
        y.backward()
    assert_array_equal(x.grad, 2.0 * X)


def test_no_grad_in_one_thread_alone() -> None:
    """Another thread goes on tracking."""
    seen = []
    x = co.variable(X)
    with co.no_grad():
        thread = threading.Thread(target=lambda: seen.append(is_tracked(square(x))))
        thread.start()
        thread.join()
    assert seen == [True]


def test_a_decorated_function_in_two_threads() -> None:
    """One decorated function may run in two threads whose calls overlap."""
    barrier = threading.Barrier(2)
    errors: list[BaseException] = []
    seen = []

    @co.no_grad()
    def overlapping(x: Any, last: bool) -> Any:
        barrier.wait()
        if last:
            barrier.wait()
        return square(x)

    def work(last: bool) -> None:
        try:
            x = co.variable(X)
            seen.append(is_tracked(overlapping(x, last)))
            seen.append(is_tracked(square(x)))
        except BaseException as error:  # noqa: BLE001  # told to the main thread
            errors.append(error)
        if not last:
            barrier.wait()

    threads = [threading.Thread(target=work, args=(last,)) for last in (True, False)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert sorted(seen) == [False, False, True, True]


def test_stop_gradient() -> None:
    """d/dx of x stop(x) is stop(x)."""
    assert co.grad(lambda x: x * co.stop_gradient(x))(3.0) == 3.0


def test_stop_gradient_of_a_tree() -> None:
    """Arrays lose their tracking, other leaves stay."""
    x = co.variable(X)
    found = co.stop_gradient({"a": x, "b": [1, "s", None], "c": (square(x),)})
    assert type(found["a"]) is np.ndarray
    assert_array_equal(found["a"], X)
    assert found["b"] == [1, "s", None]
    assert_array_equal(found["c"][0], X**2)


def test_stop_gradient_stops_all_levels() -> None:
    """The value is a constant to the outer transform as well."""
    f = co.grad(co.grad(lambda x: x**2 * co.stop_gradient(x) ** 3))
    assert f(2.0) == 2.0 * 8.0


def test_stop_gradient_keeps_batches() -> None:
    """Under vmap each row keeps its own value."""
    found = co.vmap(co.grad(lambda x: x * co.stop_gradient(x)))(X)
    assert_array_equal(found, X)


@pytest.mark.parametrize("checks", ["first", "always", "never"])
def test_stop_gradient_gives_what_can_be_written(checks: Any) -> None:
    """The value without its tracking is the array, no read-only view of it."""
    co.config.checks = checks
    assert co.stop_gradient(X.copy()).flags.writeable


# ---- arrays written after they were saved ----

WRITES = {
    "itself": lambda a: a,
    "a view": lambda a: a[1:],
    "a reshaped view": lambda a: a.reshape(3, 1),
    "a view of a view": lambda a: a[::2][:1],
}


@pytest.mark.parametrize("checks", ["first", "always", "never"])
@pytest.mark.parametrize("name", WRITES)
def test_a_saved_array_written_since_is_refused(name: str, checks: Any) -> None:
    """A write by an operator, also through a view, is seen by its version number."""
    co.config.checks = checks
    a = X.copy()
    y = np.sum(square(co.variable(a)))
    writer()(WRITES[name](a))
    with pytest.raises(co.GradientError) as caught:
        y.backward()
    assert str(caught.value) == (
        "grads::square: array 0 saved for backward, f64[3], was written by an operator"
        " since\n"
        "  grads::square(Array x) -> Array\n"
        "  do: save a copy, or write after backward"
    )


def test_a_saved_view_whose_base_is_written() -> None:
    """The write is seen from the other side as well."""
    a = np.arange(6.0)
    y = np.sum(square(co.variable(a[2:5])))
    writer()(a)
    with pytest.raises(co.GradientError, match="was written by an operator since"):
        y.backward()


def test_writes_before_and_after() -> None:
    """An array written before it was saved and again since is refused too."""
    write = writer()
    a = X.copy()
    write(a)
    write(a)
    y = np.sum(square(co.variable(a)))
    write(a)
    with pytest.raises(co.GradientError, match="was written by an operator since"):
        y.backward()


@pytest.mark.parametrize("nested", [False, True])
def test_an_attribute_written_since_is_refused(nested: bool) -> None:
    """An array kept as a plain attribute is watched as a saved one is, also in a list."""

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.kept = [inputs[0]] if nested else inputs[0]

    def backward(ctx: Any, g: Any) -> Any:
        return 2.0 * g * (ctx.kept[0] if nested else ctx.kept)

    op = define(lambda x: x * x, backward, setup)
    a = X.copy()
    y = np.sum(op(co.variable(a)))
    writer()(a)
    with pytest.raises(co.GradientError, match="was written by an operator since"):
        y.backward()


def test_an_array_written_by_setup_context_and_then_saved() -> None:
    """A buffer that setup_context fills by an operator counts as written before."""
    write = writer()

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        buffer = inputs[0] - 1.0
        write(buffer)
        ctx.save_for_backward(buffer)

    op = define(lambda x: x * x, square_backward, setup)
    x = co.variable(X)
    np.sum(op(x)).backward()
    assert_array_equal(x.grad, 2.0 * X)


def test_a_write_before_saving_is_fine() -> None:
    """Only writes after the call count."""
    a = X.copy()
    writer()(a)
    x = co.variable(a)
    np.sum(square(x)).backward()
    assert_array_equal(x.grad, 2.0 * (X + 1.0))


def test_a_write_after_backward_is_fine() -> None:
    """What nobody reads again may be written."""
    a = X.copy()
    x = co.variable(a)
    np.sum(square(x)).backward()
    writer()(a)
    assert_array_equal(x.grad, 2.0 * X)


def test_a_saved_copy_may_be_written_around() -> None:
    """A formula that saved a copy is not concerned."""
    op = define(
        lambda x: x * x,
        square_backward,
        lambda ctx, inputs, output: ctx.save_for_backward(inputs[0].copy()),
    )
    a = X.copy()
    x = co.variable(a)
    y = np.sum(op(x))
    writer()(a)
    y.backward()
    assert_array_equal(x.grad, 2.0 * X)


def test_another_array_written_is_fine() -> None:
    """A write to something else does not count."""
    a, other = X.copy(), X.copy()
    x = co.variable(a)
    y = np.sum(square(x))
    writer()(other)
    y.backward()
    assert_array_equal(x.grad, 2.0 * X)


def test_arrays_of_a_list_written_since() -> None:
    """A write to the arrays of a list argument counts as well."""

    def add_all(xs: Any) -> None:
        for x in xs:
            add_one(x)

    write = define(add_all, schema="(Array(a!)[] xs) -> ()", mutates=("xs",))
    a = X.copy()
    y = np.sum(square(co.variable(a)))
    write([np.zeros(2), a])
    with pytest.raises(co.GradientError, match="was written by an operator since"):
        y.backward()


def test_a_write_of_a_tracked_value_is_refused() -> None:
    """A write has no gradient; the message names no_grad."""
    op = writer()
    with pytest.raises(co.GradientError) as caught:
        op(co.variable(X.copy()))
    assert caught.value.what == (
        f"{op.qualname} writes its argument 'x' under variables (level 0): a write has"
        " no gradient"
    )
    assert "no_grad()" in caught.value.do


@pytest.mark.parametrize("checks", ["first", "always", "never"])
def test_a_variable_may_be_written_in_no_grad(checks: Any) -> None:
    """Inside of no_grad an operator may update a variable in place."""
    co.config.checks = checks
    a = X.copy()
    x = co.variable(a)
    with co.no_grad():
        writer()(x)
    assert_array_equal(a, X + 1.0)


def test_a_kernel_that_writes_into_its_own_arrays() -> None:
    """In-place work inside a kernel, on fresh arrays, is nobody's concern."""

    def kernel(x: Any) -> Any:
        y = x.copy()
        y *= y
        return y

    op = define(kernel, square_backward, save_inputs)
    assert_allclose(co.hessian(total(_pointwise(op)))(X), np.diag(np.full(3, 2.0)))


def _pointwise(op: Any) -> Any:
    return op.register_vmap(lambda info, in_dims, x: (op(x), in_dims[0]))


# ---- native: the body differentiated ----


def body(x: np.ndarray, n: int = 4) -> np.ndarray:
    """Python loops and branches on values and parameters."""
    y = x
    for i in range(n):
        y = y * np.sin(x) if i % 2 else y + x * x
    return y


native_body = co.custom_op("grads::body", body, mutates_args=()).register_autograd(
    co.native
)


@pytest.mark.parametrize("n", [0, 1, 4])
def test_native_is_the_gradient_of_the_body(n: int) -> None:
    """It equals central differences of the plain function."""
    found = co.grad(lambda x: np.sum(native_body(1.0 * x, n + 1)))(X)
    assert_allclose(found, slope(lambda x: body(x, n + 1), X), rtol=1e-7)


def test_native_with_branches_on_values() -> None:
    """The branch is taken by the value: |x|^3."""

    def cube(x: np.ndarray) -> np.ndarray:
        return x * x * x if x > 0.0 else -x * x * x

    op = co.custom_op("grads::abs_cube", cube, mutates_args=())
    op.register_autograd(co.native)
    assert [co.grad(op)(v) for v in (2.0, -2.0)] == [12.0, -12.0]
    assert [co.grad(co.grad(op))(v) for v in (2.0, -2.0)] == [12.0, 12.0]


def test_native_nested_twice() -> None:
    """Second derivatives, against differences of the first."""
    first = co.grad(lambda x: np.sum(native_body(x)))
    x = X[:2]
    expected = np.stack(
        [
            (first(x + step) - first(x - step)) / 2e-6
            for step in (np.array([1e-6, 0.0]), np.array([0.0, 1e-6]))
        ]
    )
    found = co.jacrev(first)(x)
    assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_native_of_a_polynomial(order: int) -> None:
    """x^5 by a loop, exact to order 4."""

    def fifth(x: Any) -> Any:
        y = x * 1.0
        for _ in range(4):
            y = y * x
        return y

    op = define(fifth)
    op.register_autograd(co.native)
    f: Any = op
    for _ in range(order):
        f = co.grad(f)
    assert_allclose(f(np.array(1.5)), falling(5, order) * 1.5 ** (5 - order))


def test_native_under_vmap() -> None:
    """Each row has its own gradient, vmap outside and inside."""
    expected = slope(body, X)
    op = _native_with_vmap()
    assert_allclose(co.vmap(co.grad(op))(X), expected, rtol=1e-7)
    assert_allclose(co.grad(lambda x: np.sum(co.vmap(op)(x)))(X), expected, rtol=1e-7)


def _native_with_vmap() -> Any:
    op = define(body, schema="(Array x, int n=4) -> Array", tags=co.Tag.pointwise)
    op.register_autograd(co.native)
    return op


NATIVE = {
    "list": (
        "(Array[] xs) -> Array",
        lambda xs: xs[0] * xs[1],
        lambda op, x, y: op([x, y]),
    ),
    "nested list": (
        "(Array[][] xss) -> Array",
        lambda xss: xss[1][0] * xss[0][1],
        lambda op, x, y: op([[np.ones(3), x], [y]]),
    ),
    "keyword-only": (
        "(Array x, *, Array w) -> Array",
        lambda x, *, w: x * w,
        lambda op, x, y: op(x, w=y),
    ),
    "tuple": (
        "(Array x, Array y) -> (Array, Array)",
        lambda x, y: (x + y, x * y),
        lambda op, x, y: op(x, y)[1],
    ),
    "list out": (
        "(Array x, Array y) -> Array[]",
        lambda x, y: [x + y, x * y],
        lambda op, x, y: op(x, y)[1],
    ),
    "int out": (
        "(Array x, Array y) -> (int, Array)",
        lambda x, y: (3, x * y),
        lambda op, x, y: op(x, y)[1],
    ),
}


@pytest.mark.parametrize("name", NATIVE)
def test_native_of_every_signature(name: str) -> None:
    """Lists, keyword-only arrays and several outputs: the gradients of x y."""
    schema, fn, call = NATIVE[name]
    op = define(fn, schema=schema)
    op.register_autograd(co.native)
    gx, gy = co.grad(lambda x, y: np.sum(call(op, x, y)), (0, 1))(X, Y)
    assert_array_equal(gx, Y)
    assert_array_equal(gy, X)


def test_native_with_an_untracked_argument() -> None:
    """Only what is tracked is differentiated; the rest are plain arrays."""
    seen = []

    def fn(x: Any, y: Any) -> Any:
        seen.append(type(y))
        return x * y

    op = define(fn, schema=BINARY)
    op.register_autograd(co.native)
    assert_array_equal(co.grad(lambda x: np.sum(op(x, Y)))(X), Y)
    assert seen == [np.ndarray]


def test_native_with_a_constant_result() -> None:
    """A body that returns a constant has zero gradient."""
    op = define(lambda x: np.ones(3))
    op.register_autograd(co.native)
    assert_array_equal(co.grad(total(op))(X), np.zeros(3))


def test_native_of_variables() -> None:
    """The imperative form works through it, also twice with retain_graph."""
    x = co.variable(X)
    y = np.sum(native_body(x))
    y.backward(retain_graph=True)
    y.backward()
    assert_allclose(x.grad, 2.0 * slope(body, X), rtol=1e-7)


def test_native_that_leaves_numpy_is_told() -> None:
    """A body that turns its argument into a plain array gets an error, not zeros."""
    op = define(lambda x: np.asarray(x) * 2.0)
    op.register_autograd(co.native)
    with pytest.raises(co.DataDependentError, match="lose track"):
        co.grad(total(op))(X)


# ---- against others ----

SHARED = {
    "polynomial": lambda m, x: (x**3 - 2.0 * x).sum(),
    "mixed": lambda m, x: (m.sin(x) * m.exp(x)).sum(),
    "matrix": lambda m, x: (m.tanh(x @ x.T)).sum(),
    "quotient": lambda m, x: (x / (1.0 + x * x)).sum(),
    "logarithm": lambda m, x: m.log(1.0 + m.exp(x)).sum(),
    "indexed": lambda m, x: (x[0] * x[-1] * x[:, 1].sum()).sum(),
}
MATRIX = np.random.default_rng(1).normal(size=(3, 3))


@pytest.mark.parametrize("name", SHARED)
def test_gradients_equal_those_of_torch(name: str) -> None:
    """The same function has the same gradient in torch."""
    torch = pytest.importorskip("torch", reason="torch is the other side of this test")
    x = torch.tensor(MATRIX, requires_grad=True)
    SHARED[name](torch, x).backward()
    found = co.grad(lambda x: SHARED[name](np, x))(MATRIX)
    assert_allclose(found, x.grad.numpy(), rtol=1e-12)


@pytest.mark.parametrize("name", SHARED)
def test_gradients_equal_those_of_autograd(name: str) -> None:
    """The same function has the same gradient in HIPS autograd."""
    anp = pytest.importorskip("autograd.numpy", reason="autograd is the other side")
    other = pytest.importorskip("autograd", reason="autograd is the other side")
    expected = other.grad(lambda x: SHARED[name](anp, x))(MATRIX)
    assert_allclose(
        co.grad(lambda x: SHARED[name](np, x))(MATRIX), expected, rtol=1e-12
    )


@pytest.mark.parametrize("name", ["polynomial", "mixed", "quotient", "logarithm"])
def test_gradients_equal_the_complex_step(name: str) -> None:
    """Im f(x + ih) / h for h = 1e-200 has no cancellation."""
    found = co.grad(lambda x: SHARED[name](np, x))(MATRIX)
    for index in np.ndindex(MATRIX.shape):
        stepped = MATRIX.astype(complex)
        stepped[index] += 1e-200j
        expected = SHARED[name](np, stepped).imag / 1e-200
        assert_allclose(found[index], expected, rtol=1e-13)


def test_complex_gradients_are_conjugates_of_torchs() -> None:
    """Torch gives du + i dv, this package du - i dv, as JAX: of Re(z^2 w)."""
    torch = pytest.importorskip("torch", reason="torch is the other side of this test")
    z = torch.tensor([1.0 + 2.0j, -0.5j], dtype=torch.complex128, requires_grad=True)
    (z * z * (1.0 - 3.0j)).real.sum().backward()
    found = co.grad(lambda z: np.sum(np.real(z * z * (1.0 - 3.0j))))(z.detach().numpy())
    assert_allclose(found, np.conj(z.grad.numpy()))
