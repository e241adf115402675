"""Differentiate NumPy code: in all the ways there are.

There is no operator of your own here. Under a transform, NumPy's functions are operators,
and code that writes into its arrays works as well.
"""

import sys

import numpy as np

import customop as co

# A rope of springs hangs between two nails, with a weight at each of its knots. It comes
# to rest where its energy is least.


def lengths(x):
    """Lengths of the springs, for the heights of the knots."""
    rope = np.zeros(x.size + 2, like=x)  # `like` makes a buffer that can hold x
    rope[1:-1] = x
    return np.hypot(np.diff(rope), 1.0)


def energy(x, weight):
    stretch = lengths(x)
    stretch -= 0.9
    return 10.0 * np.sum(stretch**2) + weight * np.sum(x)


x, weight = np.array([-0.2, -0.5, -0.4, -0.1]), 2.0

# ---- gradients ----

value, force = co.value_and_grad(energy)(x, weight)
by_weight = co.grad(energy, argnums=1)(x, weight)  # the sum of the heights
print(value, force)

# ---- functions with many results ----

# `jvp` answers: how do all lengths change if the knots move this way? `vjp` answers: how
# does a sum of lengths, weighted so, change with each knot? The matrix with both is the
# Jacobian. `jacfwd` makes it by columns, and `jacrev` by rows.
way, weights = np.array([0.0, 1.0, 1.0, 0.0]), np.array([1.0, 0.0, 0.0, 0.0, 2.0])
stretched, change = co.jvp(lengths, (x,), (way,))
_, pullback = co.vjp(lengths, x)
(pulled,) = pullback(weights)
jacobian = co.jacrev(lengths)(x)

# `linearize` runs the function once, for any number of directions.
_, push = co.linearize(lengths, x)
columns = [push(unit) for unit in np.eye(4)]

# ---- second derivatives ----

# Transforms nest: `hessian` is one over another. `hvp` multiplies it with a vector, for a
# few times the cost of a gradient, without making it.
hessian = co.hessian(energy)(x, weight)
product = co.hvp(lambda x: energy(x, weight), x, way)
print(hessian.round(2))

# ---- a derivative that you know better ----

# Newton's method finds the rope at rest. `grad` could go through all of its steps, but
# the end has a simpler derivative: where the gradient stays 0, H dx + dE'/dweight = 0.


@co.custom_vjp
def at_rest(weight):
    x = np.zeros(4)
    for _ in range(20):
        slope, bend = co.grad(energy)(x, weight), co.hessian(energy)(x, weight)
        x = x - np.linalg.solve(bend, slope)
    return x


def forward(weight):
    x = at_rest(weight)
    return x, (x, weight)


def backward(kept, g):
    x, weight = kept
    moved = np.linalg.solve(co.hessian(energy)(x, weight), g)
    return (-np.sum(moved),)  # each part of dE'/dweight is 1


at_rest.defvjp(forward, backward)
sag = co.grad(lambda weight: np.min(at_rest(weight)))(weight)
print(at_rest(weight), sag)

# ---- many at once ----

many = np.linspace(1.0, 5.0, 5)
sags = co.vmap(co.grad(lambda weight: np.min(at_rest(weight))))(many)
print(sags)

# ---- long computations ----


# A rope that swings for a while. `checkpoint` keeps the state before each step, and
# computes what lies inside again when the gradient needs it.
def step(state, weight):
    x, v = state
    v = 0.99 * v - 0.05 * co.grad(energy)(x, weight)
    return x + 0.05 * v, v


def swing(x, step):
    state = x, np.zeros(4)
    for _ in range(30):
        state = step(state, weight)
    return np.sum(state[0] ** 2)


all_kept = co.grad(lambda x: swing(x, step))(x)
few_kept = co.grad(lambda x: swing(x, co.checkpoint(step)))(x)

# ---- code that writes into its arrays ----


def relaxed(x):
    """Move each knot between its neighbors, one after the other."""
    x = x.copy()
    for i in range(1, 3):
        x[i] += 0.5 * (0.5 * (x[i - 1] + x[i + 1]) - x[i])
    x[[0, -1]] *= 0.5
    np.add.at(x, [1, 1, 2], x[3])
    return x


in_place = co.jacfwd(relaxed)(x)


# Compare with differences.
def numeric(fn, x, step=1e-6):
    units = step * np.eye(np.size(x)).reshape(-1, *np.shape(x))
    return np.array([(fn(x + u) - fn(x - u)) / (2 * step) for u in units])


np.testing.assert_allclose(force, numeric(lambda x: energy(x, weight), x), rtol=1e-7)
np.testing.assert_allclose(by_weight, np.sum(x))
np.testing.assert_allclose(jacobian.T, numeric(lengths, x), atol=1e-9)
np.testing.assert_allclose(change, jacobian @ way)
np.testing.assert_allclose(pulled, weights @ jacobian)
np.testing.assert_allclose(np.stack(columns, axis=-1), jacobian)
np.testing.assert_allclose(
    hessian, numeric(lambda x: co.grad(energy)(x, weight), x), atol=1e-7
)
np.testing.assert_allclose(product, hessian @ way)
lowest = [np.min(at_rest(w)) for w in (weight - 1e-6, weight + 1e-6)]
np.testing.assert_allclose(sag, (lowest[1] - lowest[0]) / 2e-6, rtol=1e-6)
np.testing.assert_allclose(sags[1], sag)
np.testing.assert_allclose(few_kept, all_kept, rtol=1e-12)
np.testing.assert_allclose(
    all_kept, numeric(lambda x: swing(x, step), x), rtol=1e-6, atol=1e-7
)
np.testing.assert_allclose(in_place.T, numeric(relaxed, x), atol=1e-9)

# ---- a picture: python 08_derivatives.py --picture FILE, with matplotlib ----

if "--picture" in sys.argv:
    from matplotlib.figure import Figure  # optional

    figure = Figure(figsize=(6, 2.8), layout="constrained")
    axes = figure.subplots()
    for heavy in many:
        rope = np.concatenate([[0.0], at_rest(heavy), [0.0]])
        axes.plot(rope, "o-", label=f"weight {heavy:g}")
    down = -co.grad(energy)(x, weight)
    axes.quiver(np.arange(1, 5), x, 0 * down, down, color="gray", width=0.004)
    axes.plot(np.arange(1, 5), x, "o", color="gray", label="pulled to its rest")
    axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    axes.set(title="a rope at rest, for five weights", xticks=[])
    figure.savefig(sys.argv[-1])
