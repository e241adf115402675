"""Operators with wrong gradients and tangents."""

from __future__ import annotations

from typing import Any

import numpy as np

import customop as co

from . import A, Window, define, kept, modeled, numbers, planted, square

# ---- registration of gradients ----


@planted(
    test_autograd_registration="returns the output as a value that a transform follows, from plain arrays: its kernel uses variables or tracers of others",
)
def kernel_returns_a_variable(wrong: bool) -> Any:
    def tracked(x: A) -> A:
        y = co.variable(x.astype(float)) if wrong else x.astype(float)
        return y * 2.0

    return define(tracked).register_fake(lambda x: co.FakeArray(x.shape, float))


@planted(
    test_autograd_registration="the gradient by x differs between asking for it alone and for all gradients: 1 of 1 elements (100.0 %) are not close",
)
def needs_input_grad_misread(wrong: bool) -> Any:
    def product(x: A, y: A) -> A:
        return x * y

    def backward(ctx, g):
        at = 1 if wrong else 0
        first = g * ctx.y if ctx.needs_input_grad[at] else None
        return first, g * ctx.x

    return with_gradient(product, backward, "x", "y")


@planted(
    test_autograd_registration="backward returned 1 gradients, must return 2: x, y",
)
def too_few_gradients(wrong: bool) -> Any:
    def scaled(x: A, y: A) -> A:
        return x * y

    def backward(ctx, g):
        return (g * ctx.y,) if wrong else (g * ctx.y, g * ctx.x)

    return with_gradient(scaled, backward, "x", "y")


@planted(
    test_autograd_registration="backward returned a gradient of shape (7,) for 'x' of shape (1, 1)",
)
def gradient_of_another_shape(wrong: bool) -> Any:
    def total(x: A) -> A:
        return np.sum(x, dtype=x.dtype)

    def backward(ctx, g):
        return np.ones(7, g.dtype) * g if wrong else np.broadcast_to(g, ctx.x.shape)

    op = define(total).register_fake(lambda x: co.FakeArray((), x.dtype))
    return op.register_autograd(backward, setup_context=kept("x"))


@planted(
    test_autograd_registration="backward returned a gradient of shape (3,) for 'x' of shape (1, 1)",
)
def gradient_reads_data(wrong: bool) -> Any:
    def clipped(x: A) -> A:
        return x * 3.0

    def backward(ctx, g):
        return float(g.item()) * np.ones(3, g.dtype) if wrong else g * 3.0

    return with_gradient(clipped, backward)


# ---- forward mode ----


def cube(x: A) -> A:
    if x.dtype.kind != "f":
        raise TypeError("floats")
    return x**3


@planted(
    test_jvp="has a wrong jvp, in 1 of 1 derivatives",
)
def tangent_of_the_other_sign(wrong: bool) -> Any:
    op = define(cube).register_fake(lambda x: co.fake_like(x))
    sign = -1.0 if wrong else 1.0
    return op.register_jvp(lambda p, t: (op(p[0]), sign * 3.0 * p[0] ** 2 * t[0]))


@planted(
    test_jvp="has a jvp rule that is not the transpose of its autograd formula",
)
def tangent_that_is_no_transpose(wrong: bool) -> Any:
    op = with_gradient(cube, lambda ctx, g: g * 3.0 * ctx.x**2, "x")
    factor = 3.0001 if wrong else 3.0
    return op.register_jvp(lambda p, t: (op(p[0]), factor * p[0] ** 2 * t[0]))


def broadcast(x: Any, y: Any) -> Any:
    """The fake result of a sum or product."""
    return co.FakeArray(
        np.broadcast_shapes(x.shape, y.shape), np.result_type(x.dtype, y.dtype)
    )


@planted(
    test_jvp="raises TypeError: unsupported operand type(s) for *: 'float' and 'NoneType'",
)
def tangent_that_may_be_none(wrong: bool) -> Any:
    def product(x: A, y: A) -> A:
        return x * y

    op = define(product).register_fake(broadcast)

    def rule(primals, tangents):
        (x, y), (s, t) = primals, tangents
        if wrong:
            return op(x, y), s * y + x * t
        parts = [a * b for a, b in ((s, y), (x, t)) if a is not None and b is not None]
        return op(x, y), sum(parts[1:], parts[0])

    return op.register_jvp(rule)


@planted(
    test_jvp="has a wrong jvp, in 1 of 1 derivatives",
)
def tangent_of_one_input_left_out(wrong: bool) -> Any:
    def product(x: A, y: A) -> A:
        return x * y

    op = define(product).register_fake(broadcast)

    def rule(primals, tangents):
        (x, y), (s, t) = primals, tangents
        shape, dtype = np.broadcast_shapes(x.shape, y.shape), np.result_type(x, y)
        out = np.zeros(shape, dtype)
        out = out if s is None else out + s * y
        return op(x, y), out if wrong or t is None else out + x * t

    return op.register_jvp(rule)


# ---- gradients ----


def with_gradient(fn: Any, backward: Any, *names: str) -> Any:
    """Make an operator with a backward formula."""
    op = define(fn).register_fake(modeled(fn))
    return op.register_autograd(backward, setup_context=kept(*names))


@planted(
    test_gradients="has a wrong gradient, in 1 of 1 derivatives",
)
def missing_factor(wrong: bool) -> Any:
    factor = 2.0 if wrong else 3.0
    return with_gradient(cube, lambda ctx, g: g * factor * ctx.x**2, "x")


@planted(
    test_gradients="has a wrong gradient, in 1 of 1 derivatives",
)
def missing_chain(wrong: bool) -> Any:
    def bell(x: A, width: float = 2.0) -> A:
        return np.exp(-((x / width) ** 2))

    def backward(ctx, g):
        chain = 1.0 if wrong else ctx.width
        return g * ctx.out * -2.0 * ctx.x / ctx.width / chain, None

    op = with_gradient(bell, backward, "x", "width")
    samples = [(np.array([0.5, 1.5]), 2.0), (np.array([0.5]), 3.0)]
    return op.register_sample_inputs(lambda: samples)


@planted(
    test_gradients="has a wrong gradient, in 2 of 2 derivatives",
)
def swapped_gradients(wrong: bool) -> Any:
    def product(x: A, y: A) -> A:
        if x.shape != y.shape:
            raise ValueError("one shape")
        return x * y

    def backward(ctx, g):
        return (g * ctx.x, g * ctx.y) if wrong else (g * ctx.y, g * ctx.x)

    return with_gradient(product, backward, "x", "y")


@planted(
    test_gradients="has a wrong gradient, in 2 of 6 derivatives",
)
def wrong_sum_over_broadcast_axes(wrong: bool) -> Any:
    def added(x: A, bias: A) -> A:
        if x.ndim != 2 or bias.shape != x.shape[1:]:
            raise ValueError("rows and a bias")
        return x + bias

    def backward(ctx, g):
        return g, np.mean(g, 0) if wrong else np.sum(g, 0)

    op = with_gradient(added, backward, "x", "bias")
    return op.register_sample_inputs(lambda: [(np.ones((2, 3)), np.ones(3))])


@planted(
    test_gradients="has a wrong second gradient, in 1 of 2 derivatives",
)
def second_order_is_lost(wrong: bool) -> Any:
    def backward(ctx, g):
        x = co.stop_gradient(ctx.x) if wrong else ctx.x
        return g * 3.0 * x**2

    return with_gradient(cube, backward, "x")


@planted(
    test_gradients="has a wrong second gradient, in 1 of 2 derivatives",
)
def second_order_through_a_wrong_operator(wrong: bool) -> Any:
    slope = define(square).register_fake(lambda x: co.fake_like(x))
    factor = 1.0 if wrong else 2.0
    slope.register_autograd(lambda ctx, g: g * factor * ctx.x, setup_context=kept("x"))
    return with_gradient(cube, lambda ctx, g: g * 3.0 * slope(ctx.x), "x")


@planted(
    test_gradients="has a gradient that is not linear in its cotangent",
)
def not_linear_in_its_cotangent(wrong: bool) -> Any:
    def backward(ctx, g):
        return (abs(g) if wrong else g) * 3.0 * ctx.x**2

    return with_gradient(cube, backward, "x")


@planted(
    test_gradients="has a wrong gradient, in 2 of 4 derivatives",
)
def conjugate_in_a_complex_gradient(wrong: bool) -> Any:
    def squared(x: A) -> A:
        return x * x

    def backward(ctx, g):
        return g * 2.0 * (np.conjugate(ctx.x) if wrong else ctx.x)

    op = with_gradient(squared, backward, "x")
    return op.register_sample_inputs(lambda: [(np.array([1.0 + 2.0j, -0.5 + 1.0j]),)])


@planted(
    test_gradients="has a wrong gradient, in 2 of 2 derivatives",
)
def gradients_of_a_list_in_another_order(wrong: bool) -> Any:
    def weighted(arrays: list[A]) -> A:
        if len({x.shape for x in arrays}) > 1:
            raise ValueError("one shape")
        out = arrays[0] * 1.0
        for i, x in enumerate(arrays[1:], 2):
            out = out + float(i) * x
        return out

    def backward(ctx, g):
        found = [g * (i + 1.0) for i in range(len(ctx.arrays))]
        return (found[::-1] if wrong else found,)

    op = with_gradient(weighted, backward, "arrays")
    x = np.array([1.0, 2.0])
    return op.register_sample_inputs(lambda: [([x, x + 1],), ([x, x, x - 1],)])


@planted(
    test_gradients="has a wrong gradient, in 1 of 2 derivatives",
)
def none_for_an_input_that_has_a_gradient(wrong: bool) -> Any:
    def product(x: A, y: A) -> A:
        return x * y

    def backward(ctx, g):
        return g * ctx.y, None if wrong else g * ctx.x

    return with_gradient(product, backward, "x", "y")


@planted(
    test_gradients="has a wrong gradient, in 1 of 2 derivatives",
)
def gradient_of_an_optional_array(wrong: bool) -> Any:
    def affine(x: A, bias: A | None = None) -> A:
        return x * 2.0 if bias is None else x * 2.0 + bias

    def backward(ctx, g):
        if ctx.bias is None:
            return g * 2.0, None
        return g * 2.0, -g if wrong else g

    op = with_gradient(affine, backward, "x", "bias")
    x = np.array([1.0, 2.0])
    return op.register_sample_inputs(lambda: [(x,), (x, x + 1)])


@planted(
    test_gradients="has a wrong gradient, in 1 of 2 derivatives",
)
def gradient_of_a_config_object(wrong: bool) -> Any:
    def windowed(x: A, window: Window) -> A:
        if x.shape != window.taps.shape:
            raise ValueError("one shape")
        return x * 1.0 * window.taps * window.gain

    def backward(ctx, g):
        gain = 1.0 if wrong else ctx.window.gain
        taps = g * ctx.x * gain
        return {"x": g * ctx.window.taps * ctx.window.gain, "window": {"taps": taps}}

    op = with_gradient(windowed, backward, "x", "window")
    x = np.array([1.0, 2.0])
    return op.register_sample_inputs(lambda: [(x, Window(x + 1, 3.0))])


@planted(
    test_gradients="has a wrong gradient, in 1 of 2 derivatives",
)
def gradient_of_one_of_two_outputs(wrong: bool) -> Any:
    def both(x: A) -> tuple[A, A]:
        return np.sin(x), np.cos(x)

    def backward(ctx, g, h):
        y, z = ctx.out
        return g * z if wrong else g * z - h * y

    return with_gradient(both, backward, "x")


@planted(
    test_gradients="has a wrong gradient, in 2 of 2 derivatives",
)
def gradient_of_a_reduction(wrong: bool) -> Any:
    def mean(x: A) -> A:
        if x.dtype != np.float64 or not x.size:
            raise TypeError("float64, some")
        return np.mean(x)

    def backward(ctx, g):
        count = 1.0 if wrong else float(ctx.x.size)
        return np.broadcast_to(g / count, ctx.x.shape)

    return with_gradient(mean, backward, "x")


@planted(
    test_gradients="has a wrong gradient, in 2 of 12 derivatives",
)
def gradient_of_a_product_transposed(wrong: bool) -> Any:
    def product(x: A, y: A) -> A:
        if x.ndim != 2 or y.ndim != 2:
            raise ValueError("matrices")
        return np.matmul(x, y)

    def backward(ctx, g):
        x, y = ctx.x, ctx.y
        return np.matmul(g, y if wrong else y.T), np.matmul(x.T, g)

    op = with_gradient(product, backward, "x", "y")
    x = np.arange(4.0).reshape(2, 2)
    return op.register_sample_inputs(lambda: [(x, x + 1)])


@planted(
    test_gradients="has a gradient that vmap gets wrong",
)
def gradient_under_vmap(wrong: bool) -> Any:
    flip = define(square).register_fake(lambda x: co.fake_like(x))

    def times(x: A, y: A) -> A:
        return x * y

    inner = define(times).register_fake(broadcast)
    inner.register_autograd(
        lambda ctx, g: (inner(g, ctx.y), inner(g, ctx.x)), setup_context=kept("x", "y")
    )

    def rule(info, in_dims, x, y):
        rows = [
            v if d is None else np.moveaxis(v, d, 0)
            for v, d in zip((x, y), in_dims, strict=False)
        ]
        if wrong and in_dims[1] is None:
            rows[0] = np.flip(rows[0], 0)
        return rows[0] * rows[1], 0

    inner.register_vmap(rule)
    del flip
    return with_gradient(cube, lambda ctx, g: inner(g, 3.0 * ctx.x**2), "x")


@planted(
    test_gradients="has a wrong gradient, in 1 of 1 derivatives",
)
def formula_beside_one_that_is_not_known(wrong: bool) -> Any:
    def scaled(x: A, y: A) -> A:
        return x * x * y

    def unknown(g):
        raise co.NoDerivativeError("there is no derivative by 'y'", do="use x alone")

    op = define(scaled).register_fake(broadcast)
    factor = 1.5 if wrong else 1
    op.register_autograd(
        co.partials({"x": lambda g, x, y: factor * g * y * 2 * x, "y": unknown})
    )
    return op.register_sample_inputs(lambda: [(np.array(0.5), np.array(2.0))])


@planted(
    test_gradients="there is no derivative by 'x'",
)
def formula_that_is_not_known_only_by_accident(wrong: bool) -> Any:
    def backward(ctx, g):
        kind = co.GradientError if wrong else co.NoDerivativeError
        raise kind("there is no derivative by 'x'", do="use another operator")

    return with_gradient(cube, backward, "x")


# ---- graphs ----


@planted(
    test_aot_dispatch_static="has a gradient that cannot be captured: bool() of GraphTracer bool[], a value of make_fx",
)
def formula_branches_on_values(wrong: bool) -> Any:
    def backward(ctx, g):
        if wrong and np.all(ctx.x == 0.5):
            return 0.75 * g
        return 3.0 * g * ctx.x**2

    return with_gradient(cube, backward, "x")


@planted(
    test_aot_dispatch_static="has a gradient that cannot be captured: np.array(), or a NumPy kernel, is given GraphTracer f64[], a value of make_fx",
)
def formula_takes_data(wrong: bool) -> Any:
    def backward(ctx, g):
        return 3.0 * g * (np.asarray(ctx.x) if wrong else ctx.x) ** 2

    return with_gradient(cube, backward, "x")


@planted(test_aot_dispatch_static="", test_aot_dispatch_dynamic="")
def formula_counts_its_calls(wrong: bool) -> Any:
    calls = [0]

    def backward(ctx, g):
        calls[0] += wrong
        return (3.0 + calls[0]) * g * ctx.x**2

    return with_gradient(cube, backward, "x")


@planted(test_aot_dispatch_static="", test_aot_dispatch_dynamic="")
def kernel_counts_its_calls(wrong: bool) -> Any:
    calls = [0]

    def counted(x: A) -> A:
        calls[0] += wrong
        return x + 1.0 * calls[0]

    fake = lambda x: co.fake_like(x, dtype=np.result_type(x.dtype, 1.0))
    return define(counted).register_fake(fake)


def of_two_lengths() -> Any:
    """Arrays of two lengths: a graph of the first is run on the second."""
    return [(np.array([0.5, 1.5, 2.5]),), (np.array([0.5, 1.5, 2.5, 3.0, 4.0]),)]


# The next two are right at every length that is traced, and only there.


@planted(
    test_aot_dispatch_dynamic="the gradient by x differs between the formula and a graph of it: 5 of 5 elements (100.0 %) are not close",
)
def formula_bakes_the_traced_length(wrong: bool) -> Any:
    def mean(x: A) -> A:
        return np.asarray(np.sum(x) / x.size)

    def backward(ctx, g):
        size = ctx.x.shape[0]
        return (
            np.ones_like(ctx.x) * g / (getattr(size, "hint", size) if wrong else size)
        )

    fake = lambda x: co.FakeArray((), np.result_type(x.dtype, 1.0))
    op = define(mean).register_fake(fake)
    op.register_autograd(backward, setup_context=kept("x"))
    return op.register_sample_inputs(of_two_lengths)


@planted(
    test_aot_dispatch_dynamic="the output differs between the operator and a graph of its call: 5 of 5 elements (100.0 %) are not close",
)
def body_bakes_the_traced_length(wrong: bool) -> Any:
    def body(x: Any) -> Any:
        size = x.shape[0]
        return x * float(getattr(size, "hint", size) if wrong else size)

    name = f"planted::weighted{next(numbers)}"
    op = co.define(name, "(Array x) -> Array", tags=co.Tag.flexible_layout)
    co.impl(name, "composite")(body)
    return op.register_sample_inputs(of_two_lengths)
