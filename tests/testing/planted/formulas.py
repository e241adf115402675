"""Operators whose fake kernels, formulas and batching rules are wrong in one case."""

from __future__ import annotations

from typing import Any

import numpy as np

import customop as co

from . import A, define, kept, modeled, planted

X = np.array([[0.3, -1.2, 2.1], [1.4, 0.6, -0.7]])


def matrix(x: Any) -> None:
    if x.ndim != 2:
        raise ValueError("a matrix")


# ---- fake kernels ----


@planted(
    test_faketensor="the 'cpu' kernel returns f64[] with strides () on cpu as output 0, its fake kernel f64[1] with strides (8,) on cpu",
)
def fake_removes_a_negative_axis(wrong: bool) -> Any:
    def total(x: A, axis: int = 0) -> A:
        return np.add.reduce(x, axis, dtype=x.dtype)

    def fake(x, axis):
        if not -x.ndim <= axis < x.ndim:
            raise ValueError("axis")
        axis = axis if wrong else axis % x.ndim
        return co.FakeArray((*x.shape[:axis], *x.shape[axis + 1 :]), x.dtype)

    return define(total).register_fake(fake)


@planted(
    test_faketensor="the 'cpu' kernel returns f64[1] with strides (8,) on cpu as output 0, its fake kernel f64[] with strides () on cpu",
)
def fake_of_the_first_argument_alone(wrong: bool) -> Any:
    def added(x: A, y: A) -> A:
        return np.subtract(x, y)

    def fake(x, y):
        shape = np.broadcast_shapes(x.shape, y.shape)
        dtype = np.result_type(x.dtype, y.dtype)
        return co.FakeArray(x.shape if wrong else shape, dtype)

    return (
        define(added)
        .register_sample_inputs(
            lambda: [(np.ones(3), np.ones(3)), (np.ones(3), np.ones((2, 3)))]
        )
        .register_fake(fake)
    )


@planted(
    test_faketensor="the 'cpu' kernel returns f64[1, 1] with strides (8, 8) on cpu as output 0, its fake kernel f64[1] with strides (8,) on cpu",
)
def fake_of_a_missing_weight(wrong: bool) -> Any:
    def weighted(x: A, weight: A | None = None) -> A:
        matrix(x)
        if weight is None:
            return x.copy()
        return np.add.reduce(x * weight.astype(x.dtype), -1, dtype=x.dtype)

    def fake(x, weight):
        matrix(x)
        if weight is not None:
            np.broadcast_shapes(x.shape, weight.shape)
        if weight is None and not wrong:
            return co.FakeArray(x.shape, x.dtype)
        return co.FakeArray(x.shape[:1], x.dtype)

    op = define(weighted).register_fake(fake)
    return op.register_sample_inputs(lambda: [(X, np.ones(3)), (X,)])


@planted(
    test_faketensor="the 'cpu' kernel returns i64[1] with strides (8,) on cpu as output 1, its fake kernel i32[1] with strides (4,) on cpu",
)
def fake_of_one_of_two_results(wrong: bool) -> Any:
    def greatest(x: A) -> tuple[A, A]:
        matrix(x)
        return np.max(x, -1), np.argmax(x, -1)

    def fake(x):
        matrix(x)
        at = np.int32 if wrong else np.int64
        return co.FakeArray(x.shape[:1], x.dtype), co.FakeArray(x.shape[:1], at)

    return define(greatest).register_fake(fake)


@planted(
    test_faketensor="the 'cpu' kernel returns [array] as output 0, its fake kernel [array, array]",
)
def fake_counts_columns_for_rows(wrong: bool) -> Any:
    def rows(x: A) -> list[A]:
        matrix(x)
        return [row.copy() for row in x]

    def fake(x):
        matrix(x)
        count = x.shape[1 if wrong else 0]
        return [co.FakeArray(x.shape[1:], x.dtype) for _ in range(count)]

    return define(rows).register_fake(fake)


@planted(
    test_dtypes="the 'cpu' kernel returns f16[] with strides () on cpu as output 0, its fake kernel f32[] with strides () on cpu",
)
def fake_of_half_precision(wrong: bool) -> Any:
    def rooted(x: A) -> A:
        if x.dtype.kind != "f":
            raise TypeError("floats")
        return np.sqrt(np.abs(x))

    def fake(x):
        if x.dtype.kind != "f":
            raise TypeError("floats")
        short = wrong and x.dtype == np.float16
        return co.FakeArray(x.shape, np.float32 if short else x.dtype)

    return define(rooted).register_fake(fake)


@planted(
    test_faketensor="the 'cpu' kernel returns f64[0] with strides (0,) on cpu as output 0, its fake kernel f64[2] with strides (8,) on cpu",
)
def fake_of_a_keyword_left_out(wrong: bool) -> Any:
    def repeated(x: A, *, times: int = 2) -> A:
        return np.repeat(x.reshape(-1), times)

    def fake(x, *, times):
        return co.FakeArray((x.size * (2 if wrong else max(times, 0)),), x.dtype)

    return define(repeated).register_fake(fake)


# ---- autograd ----


def formula(fn: Any, backward: Any, *names: str) -> Any:
    """Make an operator with a backward formula, and inputs to differentiate at."""
    op = define(fn).register_fake(modeled(fn))
    return op.register_autograd(backward, setup_context=kept(*names))


def sine(x: A) -> A:
    return np.sin(x * 1.0)


@planted(
    test_gradients="has a gradient that another call of the operator changes",
)
def backward_uses_up_what_it_saved(wrong: bool) -> Any:
    def backward(ctx, g):
        slope = ctx.slope
        if wrong:
            ctx.slope = slope * 0.5
        return g * slope

    def setup(ctx, inputs, output):
        ctx.slope = np.cos(inputs[0] * 1.0)

    op = define(sine).register_fake(modeled(sine))
    return op.register_autograd(backward, setup_context=setup)


@planted(
    test_gradients="has a gradient that another call of the operator changes",
)
def backward_keeps_state_outside_of_ctx(wrong: bool) -> Any:
    last: dict[str, Any] = {}

    def setup(ctx, inputs, output):
        last["x"] = ctx.x = inputs[0]

    def backward(ctx, g):
        return g * np.cos((last["x"] if wrong else ctx.x) * 1.0)

    op = define(sine).register_fake(modeled(sine))
    return op.register_autograd(backward, setup_context=setup)


@planted(
    test_autograd_registration="backward writes into a gradient that it is given",
)
def backward_writes_its_gradient(wrong: bool) -> Any:
    def backward(ctx, g):
        if wrong and isinstance(g, A):
            g *= np.cos(ctx.x)
            return g
        return g * np.cos(ctx.x * 1.0)

    return formula(sine, backward, "x")


@planted(
    test_gradients="has a gradient that another call of the operator changes",
)
def backward_writes_what_it_saved(wrong: bool) -> Any:
    def setup(ctx, inputs, output):
        ctx.slope = np.cos(inputs[0] * 1.0)

    def backward(ctx, g):
        if wrong and isinstance(ctx.slope, A) and isinstance(g, A):
            ctx.slope *= g
            return ctx.slope
        return ctx.slope * g

    op = define(sine).register_fake(modeled(sine))
    return op.register_autograd(backward, setup_context=setup)


@planted(
    test_gradients="has a wrong gradient, in 1 of 9 derivatives",
)
def slope_of_positive_numbers_for_all(wrong: bool) -> Any:
    def leaky(x: A) -> A:
        return np.where(x > 0, x, 0.1 * x)

    def backward(ctx, g):
        return g * 1.0 if wrong else np.where(ctx.x > 0, g, 0.1 * g)

    return formula(leaky, backward, "x")


@planted(
    test_gradients="has a wrong gradient, in 1 of 4 derivatives",
)
def gradient_along_axis_0_always(wrong: bool) -> Any:
    def running(x: A, axis: int = 0) -> A:
        return np.cumsum(x * 1.0, axis)

    def backward(ctx, g):
        axis = 0 if wrong else ctx.axis
        return np.flip(np.cumsum(np.flip(g, axis), axis), axis), None

    return formula(running, backward, "x", "axis")


@planted(
    test_gradients="has a wrong gradient, in 1 of 1 derivatives",
)
def gradient_of_a_number_left_out(wrong: bool) -> Any:
    def scaled(x: A, scale: float | None = None) -> A:
        return x * (0.25 if scale is None else scale)

    def backward(ctx, g):
        default = 1.0 if wrong else 0.25
        return g * (default if ctx.scale is None else ctx.scale), None

    return formula(scaled, backward, "x", "scale")


@planted(
    test_gradients="has a wrong gradient, in 2 of 2 derivatives",
)
def gradient_of_another_key(wrong: bool) -> Any:
    def combined(parts: dict[str, A]) -> A:
        if set(parts) != {"a", "b"} or parts["a"].shape != parts["b"].shape:
            raise ValueError("a and b")
        return parts["a"] * 2.0 + parts["b"] * 3.0

    def backward(ctx, g):
        keys = ("b", "a") if wrong else ("a", "b")
        return ({keys[0]: g * 2.0, keys[1]: g * 3.0},)

    return formula(combined, backward, "parts")


@planted(
    test_autograd_registration="raises ValueError: operands could not be broadcast together with remapped shapes [original->remapped]: (1,2)  and requested shape (2,1)",
)
def gradient_of_a_negative_axis(wrong: bool) -> Any:
    def total(x: A, axis: int = -1) -> A:
        if not x.ndim:
            raise ValueError("an axis at least")
        return np.sum(x * 1.0, axis)

    def backward(ctx, g):
        axis = 0 if wrong and ctx.axis < 0 else ctx.axis
        return np.broadcast_to(np.expand_dims(g, axis), ctx.x.shape), None

    return formula(total, backward, "x", "axis")


@planted(
    test_gradients="has a wrong gradient, in 2 of 6 derivatives",
)
def gradient_of_an_axis_of_length_one(wrong: bool) -> Any:
    def product(x: A, y: A) -> A:
        return x * (y * 1.0)

    def summed(g, like):
        for _ in range(g.ndim - like.ndim):
            g = np.sum(g, 0)
        for axis, n in enumerate(like.shape):
            if n == 1:
                g = (
                    np.mean(g, axis, keepdims=True)
                    if wrong
                    else g.sum(axis, keepdims=True)
                )
        return g

    def backward(ctx, g):
        return summed(g * ctx.y, ctx.x), summed(g * ctx.x, ctx.y)

    return formula(product, backward, "x", "y")


@planted(
    test_gradients="has a wrong gradient, in 2 of 4 derivatives",
)
def gradient_of_a_masked_root(wrong: bool) -> Any:
    def rooted(x: A) -> A:
        return np.sqrt(np.where(x > 0, x, 0.0))

    def backward(ctx, g):
        if wrong:
            return g * 0.5 * ctx.x**-0.5 * (ctx.x > 0)
        return g * 0.5 * np.where(ctx.x > 0, ctx.x, 1.0) ** -0.5 * (ctx.x > 0)

    op = formula(rooted, backward, "x")
    return op.register_sample_inputs(lambda: [(np.array([0.5, -1.5, 2.0]),)])


@planted(
    test_gradients="has a wrong gradient, in 2 of 2 derivatives",
)
def complex_gradient_of_a_real_input(wrong: bool) -> Any:
    def turned(x: A) -> A:
        if x.dtype.kind != "f":
            raise TypeError("floats")
        return np.exp(1j * x)

    def backward(ctx, g):
        found = g * 1j * ctx.out
        return np.abs(found) if wrong else np.real(found)

    return formula(turned, backward, "x")


@planted(
    test_gradients="has a wrong second gradient, in 1 of 2 derivatives",
)
def second_order_by_the_cotangent_is_lost(wrong: bool) -> Any:
    def backward(ctx, g):
        return (co.stop_gradient(g) if wrong else g) * np.cos(ctx.x * 1.0)

    return formula(sine, backward, "x")


@planted(
    test_gradients="has a wrong second gradient, in 1 of 2 derivatives",
)
def second_order_by_the_output_is_lost(wrong: bool) -> Any:
    def grown(x: A) -> A:
        return np.exp(x * 1.0)

    def backward(ctx, g):
        return g * (co.stop_gradient(ctx.out) if wrong else ctx.out)

    return formula(grown, backward, "x")


# ---- jvp ----


def forward(rule: Any, fn: Any = sine) -> Any:
    """Make an operator with a jvp rule."""
    op = define(fn).register_fake(modeled(fn))
    return op.register_jvp(lambda primals, tangents: rule(op, primals, tangents))


@planted(
    test_jvp="gives another value under jvp",
)
def jvp_returns_another_value(wrong: bool) -> Any:
    def rule(op, primals, tangents):
        x = primals[0] * 1.0
        return np.sin(x) * (1.001 if wrong else 1.0), np.cos(x) * tangents[0]

    return forward(rule)


@planted(
    test_jvp="has a wrong jvp, in 2 of 2 derivatives",
)
def jvp_is_not_linear(wrong: bool) -> Any:
    def rule(op, primals, tangents):
        t = np.abs(tangents[0]) if wrong else tangents[0]
        return op(primals[0]), np.cos(primals[0] * 1.0) * t

    return forward(rule)


@planted(
    test_jvp="has a wrong jvp, in 1 of 2 derivatives",
)
def jvp_of_the_second_result(wrong: bool) -> Any:
    def both(x: A) -> tuple[A, A]:
        return np.sin(x * 1.0), np.cos(x * 1.0)

    def rule(op, primals, tangents):
        y, z = op(primals[0])
        return (y, z), (z * tangents[0], (y if wrong else -y) * tangents[0])

    return forward(rule, both)


@planted(
    test_jvp="has a wrong jvp, in 2 of 2 derivatives",
)
def jvp_drops_imaginary_tangents(wrong: bool) -> Any:
    def squared(x: A) -> A:
        return x * x

    def rule(op, primals, tangents):
        t = np.real(tangents[0]) if wrong else tangents[0]
        return op(primals[0]), 2.0 * primals[0] * t

    op = forward(rule, squared)
    return op.register_sample_inputs(lambda: [(np.array([1.0 + 2.0j, 0.5 - 1.0j]),)])


@planted(
    test_jvp="has a jvp rule that writes into a tangent that it is given",
)
def jvp_writes_its_tangent(wrong: bool) -> Any:
    def rule(op, primals, tangents):
        t = tangents[0]
        if wrong and isinstance(t, A):
            t *= np.cos(primals[0])
            return op(primals[0]), t
        return op(primals[0]), np.cos(primals[0] * 1.0) * t

    return forward(rule)


# ---- vmap ----


def batched(rule: Any, fn: Any) -> Any:
    """Make an operator with a vmap rule."""
    op = define(fn).register_fake(modeled(fn))
    return op.register_vmap(lambda info, dims, *args: rule(op, info, dims, *args))


def first(x: Any, dim: Any) -> Any:
    """The batch in front."""
    return x if dim is None else np.moveaxis(x, dim, 0)


@planted(
    test_vmap="the output differs between row 0 under vmap with in_dims=(0) and that row alone: 1 of 1 elements (100.0 %) are not close",
)
def vmap_rule_counts_axes_with_the_batch(wrong: bool) -> Any:
    def total(x: A, axis: int = -1) -> A:
        return np.sum(x * 1.0, axis)

    def rule(op, info, dims, x, axis):
        axis = axis if wrong or axis < 0 else axis + 1
        return np.sum(first(x, dims[0]) * 1.0, axis), 0

    op = batched(rule, total)
    return op.register_sample_inputs(lambda: [(X,), (X, 0), (X, 1)])


@planted(
    test_vmap="the output differs between row 0 under vmap with in_dims=(0, 1) and that row alone: shapes (2,) and (1,) differ",
)
def vmap_rule_moves_the_first_of_a_list(wrong: bool) -> Any:
    def summed(arrays: list[A]) -> A:
        if len(arrays) != 2 or arrays[0].shape != arrays[1].shape:
            raise ValueError("two of a shape")
        return arrays[0] * 1.0 + arrays[1]

    def rule(op, info, dims, arrays):
        (a, b), (i, j) = arrays, dims[0]
        a, b = (
            first(v, d)
            if d is not None
            else np.broadcast_to(v, (info.batch_size, *v.shape))
            for v, d in ((a, i), (b, 0 if wrong and j is not None else j))
        )
        return a * 1.0 + b, 0

    op = batched(rule, summed)
    return op.register_sample_inputs(lambda: [([X, X + 1],)])


@planted(
    test_vmap="the output differs between row 0 under vmap with in_dims=(0, 0) and that row alone: shapes (2,) and (1,) differ",
)
def vmap_rule_of_a_number_for_each_row(wrong: bool) -> Any:
    def scaled(x: A, y: A) -> A:
        if x.ndim != 1 or y.ndim != 0:
            raise ValueError("a vector and a number")
        return x * (y * 1.0)

    def rule(op, info, dims, x, y):
        x, (dx, dy) = first(x, dims[0]), dims
        if dy is not None and (dx is None or not wrong):
            y = y[:, None]
        return x * (y * 1.0), 0

    return batched(rule, scaled)


@planted(
    test_vmap="the output differs between row 0 under vmap with in_dims=(0) and that row alone: shapes () and (1,) differ",
)
def vmap_rule_of_a_batch_of_one(wrong: bool) -> Any:
    def softened(x: A) -> A:
        if x.ndim != 1:
            raise ValueError("a vector")
        return np.tanh(x * 1.0)

    def rule(op, info, dims, x):
        out = np.tanh(first(x, dims[0]) * 1.0)
        return (np.squeeze(out) if wrong and out.shape[1] == 1 else out), 0

    return batched(rule, softened)


@planted(
    test_vmap="the output differs between row 1 under vmap with in_dims=(0) and that row alone: 1 of 1 elements (100.0 %) are not close",
)
def vmap_rule_ignores_nan(wrong: bool) -> Any:
    def total(x: A) -> A:
        return np.sum(x * 1.0)

    def rule(op, info, dims, x):
        x = first(x, dims[0]) * 1.0
        axes = tuple(range(1, x.ndim))
        return (np.nansum if wrong else np.sum)(x, axis=axes), 0

    return batched(rule, total)


@planted(
    test_vmap="the output differs between row 0 under vmap with in_dims=(0) and that row alone: dtypes float64 and float32 differ",
)
def vmap_rule_widens_its_results(wrong: bool) -> Any:
    def negated(x: A) -> A:
        if x.dtype.kind != "f":
            raise TypeError("floats")
        return -x

    def rule(op, info, dims, x):
        return -(x * np.float64(1.0) if wrong else x), dims[0]

    return batched(rule, negated)


@planted(
    test_vmap="raises AttributeError under vmap with in_dims=(0), and not for each row alone: 'NoneType' object has no attribute 'ndim'",
)
def vmap_rule_forgets_a_missing_bias(wrong: bool) -> Any:
    def shifted(x: A, bias: A | None = None) -> A:
        return x * 1.0 if bias is None else x * 1.0 + bias.sum()

    def rule(op, info, dims, x, bias):
        if not wrong and bias is None:
            return x * 1.0, dims[0]
        x, bias = first(x, dims[0]), first(bias, dims[1])
        axes = tuple(range(0 if dims[1] is None else 1, bias.ndim))
        sums = np.sum(bias, axes)
        if dims[1] is None or dims[0] is None:
            rest = 0 if dims[0] is not None else x.ndim
            return x * 1.0 + np.reshape(sums, sums.shape + (1,) * rest), 0
        return x * 1.0 + np.reshape(sums, (-1,) + (1,) * (x.ndim - 1)), 0

    op = batched(rule, shifted)
    return op.register_sample_inputs(lambda: [(X, X[0]), (X,)])


@planted(
    test_vmap="the output differs between row 0 under vmap with in_dims=(0) and that row alone: 1 of 1 elements (100.0 %) are not close",
)
def vmap_rule_of_sorted_rows(wrong: bool) -> Any:
    def ordered(x: A) -> A:
        if x.ndim != 1:
            raise ValueError("a vector")
        return np.sort(x)

    def rule(op, info, dims, x):
        x = first(x, dims[0])
        return np.sort(x, None if wrong and x.shape[0] == 1 else -1).reshape(x.shape), 0

    def flat_rule(op, info, dims, x):
        x = first(x, dims[0])
        return np.sort(x.reshape(-1)).reshape(x.shape), 0

    return batched(flat_rule if wrong else rule, ordered)
