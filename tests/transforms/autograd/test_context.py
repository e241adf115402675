"""The arguments of a backward formula: setup_context, ctx, needs_input_grad."""

from __future__ import annotations

import gc
import math
import weakref
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
    product_backward,
    square_backward,
    total,
)

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
    """Inside no_grad a variable is treated as a plain array."""
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
    """Values that setup_context computes by operators have derivatives too."""

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

    keeps_nothing = lambda ctx, inputs, output: None
    co.grad(total(define(lambda x: x + 0.0, backward, keeps_nothing)))(X)
    assert seen == [()]


@pytest.mark.parametrize("value", [3, 2.5, "s", [X], (X,), {"x": X}])
def test_save_for_backward_takes_arrays_alone(value: Any) -> None:
    """Anything but an array or None is refused; the message says where to keep it."""
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
    """Attributes that a rule sets do not clash with those of the package."""

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
    """Saved arrays are freed with the result, without the garbage collector."""
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
    """There is one flag for each positional input, also for those that are not arrays."""
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
