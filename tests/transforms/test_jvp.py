"""Forward mode: rules, the transpose of backward, and errors."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import customop as co

X = np.array([1.0, 2.0, 3.0])
Y = np.array([0.5, -1.0, 4.0])
V = np.array([1.0, -2.0, 0.25])
UNARY = "(Array x) -> Array"
BINARY = "(Array x, Array y) -> Array"
_numbers = itertools.count()


def define(fn: Callable[..., Any], rule: Any = None, *, schema: str = UNARY) -> Any:
    """Make an operator with a jvp rule and a new name."""
    op = co.custom_op(
        f"pushes::op_{next(_numbers)}",
        fn,
        mutates_args=(),
        schema=schema,
        tags=co.Tag.pointwise if schema == UNARY else (),
    )
    return op if rule is None else op.register_jvp(rule)


def push(fn: Callable[..., Any], *primals: Any, along: Any = None) -> Any:
    """Tangent of a function at primals, along V for each by default."""
    tangents = along or tuple(np.broadcast_to(V, np.shape(p)).copy() for p in primals)
    return co.jvp(fn, primals, tangents)[1]


def save_inputs(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)


def cube_backward(ctx: Any, g: Any) -> Any:
    (x,) = ctx.saved_arrays
    return 3.0 * g * x * x


def product_backward(ctx: Any, g: Any) -> Any:
    x, y = ctx.saved_arrays
    return g * y, g * x


cube_pulled = define(lambda x: x * x * x).register_autograd(
    cube_backward, setup_context=save_inputs
)
cube_pushed = define(
    lambda x: x * x * x,
    lambda primals, tangents: (
        cube_pushed(*primals),
        3.0 * primals[0] * primals[0] * tangents[0],
    ),
)
product = define(lambda x, y: x * y, schema=BINARY).register_autograd(
    product_backward, setup_context=save_inputs
)
bare = define(lambda x: 2.0 * x)
CUBES = {"rule": cube_pushed, "transpose": cube_pulled}


# ---- the transform ----


@pytest.mark.parametrize("name", CUBES)
def test_value_and_tangent(name: str) -> None:
    """The value comes with the derivative along the tangent: of x^3."""
    value, tangent = co.jvp(CUBES[name], (X,), (V,))
    assert_array_equal(value, X**3)
    assert_allclose(tangent, 3.0 * X**2 * V)


def test_rule_and_transpose_agree() -> None:
    """Both ways give the same tangent of a longer function."""
    found = [push(lambda x, c=c: np.sin(c(x)) * c(x + 1.0), X) for c in CUBES.values()]
    assert_allclose(found[0], found[1], rtol=1e-14)


@pytest.mark.parametrize("name", CUBES)
def test_tangents_equal_the_complex_step(name: str) -> None:
    """Im f(x + ihv) / h has no cancellation."""

    def f(x: Any) -> Any:
        return np.exp(CUBES[name](np.sin(x)))

    expected = np.imag(np.exp(np.sin(X + 1e-200j * V) ** 3)) / 1e-200
    assert_allclose(push(f, X), expected, rtol=1e-13)


@pytest.mark.parametrize("name", CUBES)
def test_forward_is_the_transpose_of_reverse(name: str) -> None:
    """<u, J v> = <J^T u, v>, the two sides by the two modes."""
    u = np.array([0.3, 1.0, -2.0])

    def f(x: Any) -> Any:
        return np.cumsum(cube_pulled(x)) + cube_pulled(np.sin(x))

    def g(x: Any) -> Any:
        return np.cumsum(CUBES[name](x)) + CUBES[name](np.sin(x))

    (pulled,) = co.vjp(f, X)[1](u)
    assert_allclose(u @ push(g, X), pulled @ V, rtol=1e-13)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
@pytest.mark.parametrize("name", CUBES)
def test_jvp_of_jvp(name: str, order: int) -> None:
    """Derivatives of every order along one: of x^3, past its degree."""

    def slope_of(f: Any) -> Any:
        return lambda x: co.jvp(f, (x,), (np.ones(()),))[1]

    f = CUBES[name]
    for _ in range(order):
        f = slope_of(f)
    expected = [12.0, 12.0, 6.0, 0.0][order - 1]
    assert_allclose(f(np.array(2.0)), expected)


def test_jvp_of_grad() -> None:
    """Forward over reverse: a Hessian times a vector."""
    gradient = co.grad(lambda x: np.sum(cube_pulled(x)))
    value, tangent = co.jvp(gradient, (X,), (V,))
    assert_allclose(value, 3.0 * X**2)
    assert_allclose(tangent, 6.0 * X * V)


def test_grad_of_jvp() -> None:
    """Reverse over forward gives the same."""
    found = co.grad(lambda x: np.sum(co.jvp(cube_pulled, (x,), (V,))[1]))(X)
    assert_allclose(found, 6.0 * X * V)


def test_grad_of_jvp_by_a_rule() -> None:
    """A jvp rule made of operators is differentiated backwards where they can be."""
    op = define(
        lambda x: x * x * x,
        lambda p, t: (p[0] * p[0] * p[0], 3.0 * p[0] * p[0] * t[0]),
    )
    found = co.grad(lambda x: np.sum(co.jvp(op, (x,), (V,))[1]))(X)
    assert_allclose(found, 6.0 * X * V)


def test_grad_by_the_tangent() -> None:
    """The tangent is linear in its direction: its gradient is the transpose."""
    found = co.grad(lambda v: np.sum(co.jvp(cube_pulled, (X,), (v,))[1] * Y))(V)
    assert_allclose(found, 3.0 * X**2 * Y)


@pytest.mark.parametrize("name", CUBES)
def test_vmap_of_jvp(name: str) -> None:
    """Each row has its own direction."""
    found = co.vmap(lambda v: co.jvp(CUBES[name], (X,), (v,))[1])(np.eye(3))
    assert_allclose(found, np.diag(3.0 * X**2))


@pytest.mark.parametrize("name", CUBES)
def test_jvp_of_vmap(name: str) -> None:
    """A batched function is pushed forward."""
    assert_allclose(push(co.vmap(CUBES[name]), X), 3.0 * X**2 * V)


def test_perturbations_are_not_confused() -> None:
    """d/dx (x d/dy (x + y)) is 1."""

    def outer(x: Any) -> Any:
        return x * co.jvp(lambda y: x + y, (np.ones(()),), (np.ones(()),))[1]

    assert co.jvp(outer, (np.array(3.0),), (np.ones(()),))[1] == 1.0


def test_branches_on_values() -> None:
    """Python control flow follows the value."""

    def f(x: Any) -> Any:
        return cube_pulled(x) if x > 0.0 else 5.0 * x

    assert [push(f, np.array(v), along=(np.ones(()),)) for v in (2.0, -2.0)] == [
        12.0,
        5.0,
    ]


def test_jvp_of_trees() -> None:
    """Primals, tangents and outputs may be pytrees; None is not a leaf."""

    def f(p: Any, z: Any) -> Any:
        return {"s": p["x"] * z, "t": [z, None]}

    value, tangent = co.jvp(f, ({"x": X, "n": None}, Y), ({"x": V, "n": None}, X))
    assert_array_equal(value["s"], X * Y)
    assert_allclose(tangent["s"], V * Y + X * X)
    assert_array_equal(tangent["t"][0], X)
    assert tangent["t"][1] is None


def test_has_aux() -> None:
    """Aux comes third, its arrays untracked."""
    value, tangent, aux = co.jvp(
        lambda x: (x * x, {"x": x, "s": "s"}), (X,), (V,), has_aux=True
    )
    assert_array_equal(value, X * X)
    assert_array_equal(tangent, 2.0 * X * V)
    assert type(aux["x"]) is np.ndarray
    assert aux["s"] == "s"


@pytest.mark.parametrize(
    "result", [lambda x: x, lambda x: (x,), lambda x: (x, x, x)], ids="123"
)
def test_has_aux_needs_a_pair(result: Any) -> None:
    """Anything but a pair is refused."""
    with pytest.raises(co.GradientError, match=r"must return \(output, aux\)"):
        co.jvp(result, (X,), (V,), has_aux=True)


@pytest.mark.parametrize("tangent", [1.0, 1, np.float64(1.0)], ids=repr)
def test_numbers(tangent: Any) -> None:
    """A Python float is an array without axes."""
    value, found = co.jvp(lambda x: x * x * x, (2.0,), (tangent,))
    assert (value, found) == (8.0, 12.0)


@pytest.mark.parametrize(
    "result", [Y, 3.0, np.float64(3.0)], ids=["array", "float", "numpy"]
)
def test_a_constant_has_a_tangent_of_zeros(result: Any) -> None:
    """An output that depends on no primal has a tangent of zeros."""
    tangent = push(lambda x: result, X)
    assert_array_equal(tangent, np.zeros(np.shape(result)))


@pytest.mark.parametrize("shape", [(0,), (2, 0)])
@pytest.mark.parametrize("name", CUBES)
def test_empty_arrays(name: str, shape: Any) -> None:
    """The tangent of an empty array is empty."""
    value, tangent = co.jvp(CUBES[name], (np.zeros(shape),), (np.zeros(shape),))
    assert (value.shape, tangent.shape) == (shape, shape)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128])
@pytest.mark.parametrize("name", CUBES)
def test_dtypes(name: str, dtype: Any) -> None:
    """Tangents have the dtype of their values; of z^3 also where z is complex."""
    z = X.astype(dtype) * (1.0 + (0.5j if np.dtype(dtype).kind == "c" else 0.0))
    z = z.astype(dtype)
    op = CUBES[name]
    value, tangent = co.jvp(lambda z: op(z), (z,), (z,))
    assert (value.dtype, tangent.dtype) == (np.dtype(dtype), np.dtype(dtype))
    assert_allclose(tangent, 3.0 * z**3, rtol=1e-5)


def test_a_tracer_that_outlives_jvp_is_refused() -> None:
    """The error for a value that left its transform names the transform."""
    kept = []
    co.jvp(lambda x: (kept.append(x), x * 1.0)[1], (X,), (V,))
    with pytest.raises(co.LeakedTracerError, match="has ended"):
        cube_pulled(kept[0])


# ---- what is said of wrong primals and tangents ----


@pytest.mark.parametrize(
    ("primals", "tangents", "what"),
    [
        ((X,), (V[:2],), "jvp: tangent 0 is f64[2], must be f64[3] like the primal"),
        (
            (X, Y),
            (V, V.astype(np.float32)),
            "jvp: tangent 1 is f32[3], must be f64[3] like the primal",
        ),
        ((X,), ("s",), "jvp: tangent 0 is str 's', must be f64[3] like the primal"),
        (
            (np.arange(3),),
            (np.arange(3),),
            "jvp: primal 0 has dtype int64, which has no derivative",
        ),
        ((3,), (1,), "jvp: primal 0 must be an array of floats, got int 3"),
        (("s",), (1.0,), "jvp: primal 0 must be an array of floats, got str 's'"),
    ],
    ids=["shape", "dtype", "str", "int array", "int", "str primal"],
)
def test_misfits_are_named(primals: Any, tangents: Any, what: str) -> None:
    """The message has the place, the value, and what it must be."""
    with pytest.raises(co.GradientError) as caught:
        co.jvp(lambda *xs: xs[0], primals, tangents)
    assert caught.value.what == what
    assert caught.value.do


@pytest.mark.parametrize(
    ("tangents", "what"),
    [
        ((V, V), "jvp: 2 tangents for 1 primal"),
        ((), "jvp: 0 tangents for 1 primal"),
        (([V],), "jvp: tangent 0 is nested as [*], must be as * like the primal"),
        ((None,), "jvp: tangent 0 is nested as None, must be as * like the primal"),
    ],
    ids=["two", "none", "list", "None"],
)
def test_tangents_of_another_structure_are_refused(tangents: Any, what: str) -> None:
    """A tangent for each primal array, nested as they are."""
    with pytest.raises(co.GradientError) as caught:
        co.jvp(np.sin, (X,), tangents)
    assert caught.value.what.startswith(what)


def test_primals_are_a_tuple() -> None:
    """A bare array is refused, and the message shows the call."""
    with pytest.raises(co.GradientError) as caught:
        co.jvp(np.sin, X, V)
    assert caught.value.do == "write jvp(f, (x,), (dx,))"


def test_an_output_that_is_no_array_is_refused() -> None:
    """A string has no tangent."""
    with pytest.raises(co.GradientError, match="must be an array"):
        co.jvp(lambda x: "s", (X,), (V,))


# ---- rules ----


def test_a_rule_sees_primals_and_tangents() -> None:
    """Positional inputs as tuples, None for an input that does not move."""
    seen = []

    def rule(primals: Any, tangents: Any) -> Any:
        seen.append((primals, tangents))
        x, y = primals
        return x * y, tangents[0] * y

    op = define(lambda x, y: x * y, rule, schema=BINARY)
    assert_array_equal(push(lambda x: op(x, Y), X), V * Y)
    ((primals, tangents),) = seen
    assert_array_equal(primals, (X, Y))
    assert_array_equal(tangents[0], V)
    assert tangents[1] is None


def test_a_rule_sees_defaults_and_keywords() -> None:
    """Positional defaults are filled in; keyword-only values come by name."""
    seen = []

    def rule(primals: Any, tangents: Any, *, n: int) -> Any:
        seen.append((primals[1], tangents[1], n))
        return primals[0] * primals[1] * n, tangents[0] * primals[1] * n

    op = define(
        lambda x, k, *, n: x * k * n,
        rule,
        schema="(Array x, float k=2.0, *, int n=3) -> Array",
    )
    assert_array_equal(push(op, X), 6.0 * V)
    assert seen == [(2.0, None, 3)]


def test_a_rule_with_a_list() -> None:
    """Tangents are nested as the list is, None in its place."""
    seen = []

    def rule(primals: Any, tangents: Any) -> Any:
        seen.append(tangents[0])
        moving = [t for t in tangents[0] if t is not None]
        return primals[0][0] + primals[0][1], sum(moving[1:], moving[0])

    op = define(lambda xs: xs[0] + xs[1], rule, schema="(Array[] xs) -> Array")
    assert_array_equal(push(lambda x: op([Y, x]), X), V)
    assert seen[0][0] is None
    assert_array_equal(seen[0][1], V)


def test_a_rule_may_return_none_for_zero() -> None:
    """None is a tangent of zeros, and is passed on as None."""
    op = define(lambda x: np.floor(x), lambda p, t: (np.floor(p[0]), None))
    assert_array_equal(push(op, X), np.zeros(3))
    assert_array_equal(push(lambda x: op(x) + x, X), V)


PAIR = "(Array x) -> (Array, Array)"


@pytest.mark.parametrize(
    ("tangent", "expected"),
    [
        (lambda t: (2.0 * t, 3.0 * t), (2.0, 3.0)),
        (lambda t: (2.0 * t, None), (2.0, 0.0)),
        (lambda t: (None, 3.0 * t), (0.0, 3.0)),
        (lambda t: (None, None), (0.0, 0.0)),
        (lambda t: None, (0.0, 0.0)),
    ],
    ids=["both", "first", "second", "Nones", "None"],
)
def test_a_rule_with_two_outputs(tangent: Any, expected: Any) -> None:
    """A tuple of tangents, None for zeros."""
    op = define(
        lambda x: (2.0 * x, 3.0 * x),
        lambda p, t: ((2.0 * p[0], 3.0 * p[0]), tangent(t[0])),
        schema=PAIR,
    )
    first, second = push(op, X)
    assert_array_equal(first, expected[0] * V)
    assert_array_equal(second, expected[1] * V)


def test_a_rule_with_a_list_output() -> None:
    """Tangents of a list of outputs come as a list."""
    op = define(
        lambda x: [2.0 * x, 3.0 * x],
        lambda p, t: ([2.0 * p[0], 3.0 * p[0]], [2.0 * t[0], None]),
        schema="(Array x) -> Array[]",
    )
    first, second = push(op, X)
    assert_array_equal(first, 2.0 * V)
    assert_array_equal(second, np.zeros(3))


def test_a_rule_with_an_int_output() -> None:
    """A number beside an array has None for a tangent."""
    op = define(
        lambda x: (2.0 * x, 7),
        lambda p, t: ((2.0 * p[0], 7), (2.0 * t[0], None)),
        schema="(Array x) -> (Array, int)",
    )
    assert_array_equal(push(lambda x: op(x)[0], X), 2.0 * V)


def rule_returns(value: Callable[[Any, Any], Any]) -> Any:
    def rule(primals: Any, tangents: Any) -> Any:
        return value(primals[0], tangents[0])

    return rule


MISFIT_DO = "return (output, tangent) of the same structure, shape and dtype; None for a zero tangent"
WRONG = {
    "shape": (
        UNARY,
        lambda x, t: (2.0 * x, t[:2]),
        co.GradientError,
        "the jvp rule returned the tangent f64[2] for the output f64[3]",
        MISFIT_DO,
    ),
    "dtype": (
        UNARY,
        lambda x, t: (2.0 * x, t.astype(np.float32)),
        co.GradientError,
        "the jvp rule returned the tangent f32[3] for f64[3]",
        MISFIT_DO,
    ),
    "number": (
        UNARY,
        lambda x, t: (2.0 * x, 1.5),
        co.GradientError,
        "the jvp rule returned the tangent float 1.5 for the output f64[3]",
        MISFIT_DO,
    ),
    "no pair": (
        UNARY,
        lambda x, t: 2.5,
        co.ContractError,
        "the jvp rule returned float 2.5",
        "return (output, tangent)",
    ),
    "triple": (
        UNARY,
        lambda x, t: (1, 2, 3),
        co.ContractError,
        "the jvp rule returned tuple (1, 2, 3)",
        "return (output, tangent)",
    ),
    "one of two": (
        PAIR,
        lambda x, t: ((x, x), (None,)),
        co.GradientError,
        "the jvp rule returned the tangent tuple (None,) for 2 outputs",
        MISFIT_DO,
    ),
    "no tuple": (
        PAIR,
        lambda x, t: ((x, x), t),
        co.GradientError,
        "the jvp rule returned the tangent ndarray of shape (3,) for 2 outputs",
        MISFIT_DO,
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_returns_of_rules_are_named(name: str) -> None:
    """The error names operator, schema, the rule's file and line, and the remedy."""
    schema, value, error, what, do = WRONG[name]
    rule = rule_returns(value)
    op = define(
        lambda x: (2.0 * x, 3.0 * x) if schema == PAIR else 2.0 * x, rule, schema=schema
    )
    with pytest.raises(error) as caught:
        co.jvp(op, (X,), (V,))
    code = rule.__code__
    assert str(caught.value) == (
        f"{op.qualname}: {what}\n"
        f"  {op.qualname}{schema}\n"
        f"  rule at {code.co_filename}:{code.co_firstlineno}\n"
        f"  do: {do}"
    )
    assert (caught.value.op, caught.value.kind) == (op.qualname, "jvp")


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (UNARY, lambda x, t: (3, t)),
        (UNARY, lambda x, t: ((x,), (t,))),
        (UNARY, lambda x, t: ([x, x], [t, t])),
        (PAIR, lambda x, t: ((x,), (t,))),
        (PAIR, lambda x, t: (x, t)),
        (PAIR, lambda x, t: ((x, 3), (t, None))),
    ],
    ids=["int", "tuple", "list", "one of two", "bare", "int of two"],
)
def test_outputs_of_rules_fit_the_schema(schema: str, value: Any) -> None:
    """The output of a rule must fit the schema of the operator."""
    op = define(
        lambda x: (2.0 * x, 3.0 * x) if schema == PAIR else 2.0 * x,
        rule_returns(value),
        schema=schema,
    )
    with pytest.raises(co.ContractError):
        co.jvp(op, (X,), (V,))


def test_an_exception_in_a_rule_is_the_users_own() -> None:
    """An error of a rule is raised unchanged, and jvp stays usable."""
    op = define(lambda x: 2.0 * x, rule_returns(lambda x, t: 1 // 0))
    with pytest.raises(ZeroDivisionError):
        co.jvp(op, (X,), (V,))
    assert_allclose(push(cube_pulled, X), 3.0 * X**2 * V)


def test_a_rule_wins_over_the_transpose() -> None:
    """Where both are registered the rule is used."""
    op = define(lambda x: 2.0 * x, lambda p, t: (2.0 * p[0], 7.0 * t[0]))
    op.register_autograd(lambda ctx, g: 2.0 * g)
    assert_array_equal(push(op, X), 7.0 * V)


# ---- the transpose of backward ----


def test_transpose_of_two_inputs() -> None:
    """Both move, or one does."""
    assert_allclose(push(product, X, Y, along=(V, X)), V * Y + X * X)
    assert_allclose(push(lambda x: product(x, Y), X), V * Y)
    assert_allclose(push(lambda y: product(X, y), Y), X * V)
    assert_allclose(push(lambda x: product(x, x), X), 2.0 * X * V)


def test_transpose_of_broadcasting() -> None:
    """The transpose of summing a gradient back is broadcasting a tangent."""
    wide = np.arange(6.0).reshape(2, 3)
    found = push(product, X, wide, along=(V, np.ones((2, 3))))
    assert_allclose(found, V * wide + X)


def test_transpose_with_several_outputs() -> None:
    """Each output has its tangent; integers have zeros."""
    op = define(
        lambda x: (2.0 * x, np.argsort(x), x * x),
        schema="(Array x) -> (Array, Array, Array)",
    )
    op.register_autograd(
        lambda ctx, g, none, h: 2.0 * g + 2.0 * h * ctx.saved_arrays[0],
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
    )
    first, order, second = push(op, X)
    assert_allclose(first, 2.0 * V)
    assert_array_equal(order, np.zeros(3))
    assert_allclose(second, 2.0 * X * V)


def test_transpose_of_lists() -> None:
    """List inputs and list outputs."""
    op = define(
        lambda xs: [2.0 * xs[0] + xs[1], xs[1] * 3.0], schema="(Array[] xs) -> Array[]"
    )
    op.register_autograd(
        lambda ctx, grads: ([2.0 * grads[0], grads[0] + 3.0 * grads[1]],)
    )
    first, second = push(lambda x, y: op([x, y]), X, Y, along=(V, X))
    assert_allclose(first, 2.0 * V + X)
    assert_allclose(second, 3.0 * X)


def test_transpose_of_keyword_only_arrays() -> None:
    """A formula by name reaches keyword-only arrays."""
    op = define(lambda x, *, w: x * w, schema="(Array x, *, Array w) -> Array")
    op.register_autograd(
        lambda ctx, g: {"x": g * ctx.w, "w": g * ctx.x},
        setup_context=lambda ctx, inputs, keyword_only_inputs, output: vars(ctx).update(
            x=inputs[0], w=keyword_only_inputs["w"]
        ),
    )
    assert_allclose(push(lambda x, w: op(x, w=w), X, Y, along=(V, X)), V * Y + X * X)


@pytest.mark.parametrize("how", ["none", "blocked"])
def test_transpose_without_a_gradient(how: str) -> None:
    """A formula that returns None gives a tangent of zeros."""
    op = define(np.floor)

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        if how == "blocked":
            ctx.mark_non_differentiable(output)

    op.register_autograd(lambda ctx, g: None, setup_context=setup)
    assert_array_equal(push(op, X), np.zeros(3))


def test_transpose_of_complex_values() -> None:
    """z^3 along a complex direction."""
    z, v = X + 1j * Y, V - 2j * X
    assert_allclose(push(cube_pulled, z, along=(v,)), 3.0 * z**2 * v)


def test_transpose_of_native() -> None:
    """An operator whose body is its formula has tangents too."""
    op = define(lambda x: np.sin(x) * x)
    op.register_autograd(co.native)
    assert_allclose(push(op, X), (np.cos(X) * X + np.sin(X)) * V)


def test_transpose_runs_the_kernel_once() -> None:
    """Value and tangent cost one run of the kernel."""
    calls = []

    def kernel(x: Any) -> Any:
        calls.append(1)
        return x * x * x

    op = define(kernel)
    op.register_autograd(cube_backward, setup_context=save_inputs)
    push(op, X)
    assert len(calls) == 1


@pytest.mark.parametrize("order", [1, 2, 3])
def test_forward_and_reverse_nest_in_any_order(order: int) -> None:
    """All nestings of grad and jvp of this depth agree: derivatives of x^3 exp(x)."""
    ones = np.ones(())

    def forward(f: Any) -> Any:
        return lambda x: co.jvp(f, (x,), (ones,))[1]

    x = 0.7
    polynomials = {
        1: 3 * x**2 + x**3,
        2: 6 * x + 6 * x**2 + x**3,
        3: 6 + 18 * x + 9 * x**2 + x**3,
    }
    expected = polynomials[order] * math.exp(x)
    for word in itertools.product((forward, co.grad), repeat=order):
        f: Any = lambda v: cube_pulled(v) * np.exp(v)
        for transform in word:
            f = transform(f)
        assert_allclose(f(np.array(x)), expected, rtol=1e-12)


# ---- without rules ----


def test_no_rule_is_an_error() -> None:
    """Without a rule and a formula jvp is an error and never gives zeros."""
    with pytest.raises(co.MissingRuleError) as caught:
        co.jvp(bare, (X,), (V,))
    text = str(caught.value)
    assert text.startswith(f"{bare.qualname} has no 'jvp' rule")
    assert "with no backward formula to transpose" in text
    assert text.endswith(f"do: @{bare.name}.register_jvp")


def test_no_rule_is_fine_for_constants() -> None:
    """An operator on constants needs no rule."""
    assert_array_equal(push(lambda x: x * bare(Y), X), 2.0 * Y * V)


def test_a_rule_gets_no_tangents_of_keyword_only_arrays() -> None:
    """With a rule alone, a moving keyword-only array is an error that names it."""
    op = define(
        lambda x, *, w: x * w,
        lambda p, t, *, w: (p[0] * w, t[0] * w),
        schema="(Array x, *, Array w) -> Array",
    )
    assert_array_equal(push(lambda x: op(x, w=Y), X), V * Y)
    with pytest.raises(co.CustomOpError, match="'w'"):
        co.jvp(lambda w: op(X, w=w), (Y,), (V,))


def test_a_write_has_no_tangent() -> None:
    """An operator that writes a moving array is refused."""

    def add_one(x: Any) -> None:
        x += 1.0

    op = co.custom_op(
        "pushes::add_one", add_one, mutates_args=("x",), schema="(Array(a!) x) -> ()"
    )
    with pytest.raises(co.GradientError, match="writes its argument 'x'"):
        co.jvp(lambda x: (op(x), x)[1], (X,), (V,))


def test_stop_gradient_has_no_tangent() -> None:
    """d/dx of x stop(x) is stop(x)."""
    assert_array_equal(push(lambda x: x * co.stop_gradient(x), X), X * V)


# ---- against others ----

SHARED = {
    "polynomial": lambda m, x: x**3 - 2.0 * x,
    "mixed": lambda m, x: m.sin(x) * m.exp(x),
    "matrix": lambda m, x: m.tanh(x @ x.T),
    "logarithm": lambda m, x: m.log(1.0 + m.exp(x)),
    "indexed": lambda m, x: x[0] * x[-1] * x[:, 1].sum(),
}
MATRIX = np.random.default_rng(2).normal(size=(3, 3))
ALONG = np.random.default_rng(3).normal(size=(3, 3))


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", SHARED)
def test_tangents_equal_those_of_torch(name: str) -> None:
    """The same function has the same tangent in torch.autograd.functional."""
    torch = pytest.importorskip("torch", reason="torch is the other side of this test")
    value, tangent = torch.autograd.functional.jvp(
        lambda x: SHARED[name](torch, x), torch.tensor(MATRIX), torch.tensor(ALONG)
    )
    found = co.jvp(lambda x: SHARED[name](np, x), (MATRIX,), (ALONG,))
    assert_allclose(found[0], value.numpy(), rtol=1e-12)
    assert_allclose(found[1], tangent.numpy(), rtol=1e-12, atol=1e-15)


def test_transpose_of_an_operator_with_a_list_of_numbers() -> None:
    """Only arrays have tangents: a list of numbers stays as it is."""
    op = co.custom_op(
        f"pushes::op_{next(_numbers)}",
        lambda x, axes: np.flip(x, axes) * 2.0,
        mutates_args=(),
        schema="(Array x, int[] axes) -> Array",
    )
    op.register_autograd(
        lambda ctx, g: (np.flip(g, ctx.axes) * 2.0, None),
        setup_context=lambda ctx, inputs, output: setattr(ctx, "axes", inputs[1]),
    )
    assert_array_equal(push(lambda x: op(x, [0]), X), V[::-1] * 2.0)
