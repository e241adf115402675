"""Differentiate an operator: forwards and backwards.

You write a rule once, for plain arrays. It calls operators, so it can be differentiated
again, batched, or run on fake arrays without more work.
"""

import sys

import numpy as np

import customop as co

# There is no formula for the solution x of a x + exp(x) = b, so a kernel finds it by
# Newton's method. The steps need not be differentiated: the equation gives the derivative.


@co.custom_op("shop::root", mutates_args=())
def root(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Solve a x + exp(x) = b for x, with a > 0."""
    x = np.zeros(np.broadcast_shapes(a.shape, b.shape))
    for _ in range(60):
        x = x - (a * x + np.exp(x) - b) / (a + np.exp(x))
    return x


# By the implicit function theorem dx = (db - x da) / (a + exp(x)).


def setup_context(ctx, inputs, output):
    ctx.save_for_backward(inputs[0], output)


def backward(ctx, grad):
    a, x = ctx.saved_arrays
    each = grad / (a + np.exp(x))
    return -x * each, each


root.register_autograd(backward, setup_context=setup_context)

a, b = np.array([1.0, 2.0, 3.0]), np.array([2.0, 0.5, 4.0])


def total(a, b):
    return np.sum(root(a, b) ** 2)


# `grad` differentiates with respect to the first argument, or to those in `argnums`.
# Arguments can also be dicts, lists and tuples of arrays.
value, (by_a, by_b) = co.value_and_grad(total, argnums=(0, 1))(a, b)
print(value, by_a, by_b)
by_name = co.grad(lambda p: total(p["a"], p["b"]))({"a": a, "b": b})

# Second derivatives come from the same rule, since the backward formula calls operators.
curvature = co.hessian(total, argnums=1)(a, b)
print(curvature)

# `vjp` pulls cotangents back, for functions with many outputs. `jvp` pushes a tangent
# forward. It uses the transpose of the formula above, unless you register a jvp rule.
x, pullback = co.vjp(root, a, b)
derived = co.jvp(root, (a, b), (np.ones(3), np.zeros(3)))


@root.register_jvp
def _(primals, tangents):
    (a, b), (da, db) = primals, tangents
    x = root(a, b)
    push = (0.0 if db is None else db) - (0.0 if da is None else x * da)
    return x, push / (a + np.exp(x))


own = co.jvp(root, (a, b), (np.ones(3), np.zeros(3)))

# `stop_gradient` treats a value as a constant.
held = co.grad(lambda b: np.sum(root(a, b) * co.stop_gradient(b)))(b)

# You can also work as in torch: make a variable, compute, go backward.
v = co.variable(b)
total(a, v).backward()
print(v.grad)

# An operator without a rule raises an error. It never returns zeros silently.


@co.custom_op("shop::opaque", mutates_args=())
def opaque(x: np.ndarray) -> np.ndarray:
    return x * x


try:
    co.grad(lambda x: np.sum(opaque(x)))(b)
except co.MissingRuleError as error:
    missing = str(error)
    print(missing)

# Check the results against differences of the kernel.


def numeric(fn, x, step=1e-5):
    unit = np.eye(x.size)
    return np.array([(fn(x + step * e) - fn(x - step * e)) / (2 * step) for e in unit])


np.testing.assert_allclose(by_a, numeric(lambda a: total(a, b), a), rtol=1e-8)
np.testing.assert_allclose(by_b, numeric(lambda b: total(a, b), b), rtol=1e-8)
np.testing.assert_allclose(
    curvature, numeric(lambda b: co.grad(total, argnums=1)(a, b), b), atol=1e-8
)
np.testing.assert_allclose(pullback(np.ones(3))[0], own[1])
np.testing.assert_allclose(derived[1], own[1])
np.testing.assert_allclose(held, b / (a + np.exp(x)))
np.testing.assert_allclose(by_name["a"], by_a)
np.testing.assert_allclose(v.grad, by_b)
assert "shop::opaque has no 'autograd' rule" in missing

# ---- a picture: python 05_gradients.py --picture FILE, with matplotlib ----

if "--picture" in sys.argv:
    from matplotlib.figure import Figure  # optional

    grid = np.meshgrid(np.linspace(0.2, 4.0, 60), np.linspace(0.2, 6.0, 60))
    coarse = [axis[4::8, 4::8] for axis in grid]
    uphill = co.grad(lambda a, b: np.sum(root(a, b)), argnums=(0, 1))(*coarse)
    figure = Figure(figsize=(6, 3.2), layout="constrained")
    axes = figure.subplots()
    drawn = axes.contourf(*grid, root(*grid), 24, cmap="viridis")
    axes.quiver(*coarse, *uphill, color="white", width=0.005)
    axes.set(xlabel="a", ylabel="b", title="x where a x + exp(x) = b, and its gradient")
    figure.colorbar(drawn, ax=axes, label="x")
    figure.savefig(sys.argv[-1])
