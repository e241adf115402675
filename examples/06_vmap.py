"""Run on a batch: a function on every row, without writing a loop.

`vmap` turns a function of one row into a function of a batch. Inside the function an
array has the shape of one row. The batching rule of an operator gets all rows at once.
"""

import sys
import warnings

import numpy as np

import customop as co


@co.custom_op("shop::mix", mutates_args=())
def mix(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Compute the weighted mean of the rows of a matrix."""
    return np.einsum("i,ij->j", weights, x) / np.sum(weights)


rng = np.random.default_rng(7)
x, weights = rng.random((10, 4, 3)), rng.random((10, 4))
expected = np.stack([mix(x[i], weights[i]) for i in range(10)])

# Without a rule, the kernel runs once for each row. The result is right, but slow to
# compute, and a warning says so once.
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    looped = co.vmap(mix)(x, weights)
print(caught[0].message)

# A rule computes all rows at once. `in_dims` has the batch axis of each argument, or None
# for an argument that is the same for all rows. The rule returns the result and its batch
# axis. It calls operators, so that it can be transformed too.


@mix.register_vmap
def _(info, in_dims, x, weights):
    print(f"rule: {info.batch_size} rows, in_dims={in_dims}")
    x_dim, weights_dim = in_dims
    if x_dim is None:
        x = np.broadcast_to(x, (info.batch_size, *x.shape))
    else:
        x = np.moveaxis(x, x_dim, 0)
    if weights_dim is None:
        weights = np.broadcast_to(weights, (info.batch_size, *weights.shape))
    else:
        weights = np.moveaxis(weights, weights_dim, 0)
    sums = np.sum(weights, axis=1)
    return np.einsum("bi,bij->bj", weights, x) / sums[:, None], 0


batched = co.vmap(mix)(x, weights)

# `in_dims` and `out_dims` choose the axes; None shares an argument between the rows.
shared = co.vmap(mix, in_dims=(None, 0), out_dims=1)(x[0], weights)
print(shared.shape)

# An elementwise operator needs only a tag.


@co.custom_op("shop::clamp", mutates_args=(), tags=co.Tag.pointwise)
def clamp(x: np.ndarray, low: np.ndarray) -> np.ndarray:
    """Raise values to a lower bound."""
    return np.maximum(x, low)


clamped = co.vmap(clamp, in_dims=(0, None))(weights, np.array([0.1, 0.2, 0.3, 0.4]))

# Batches nest. This is the product of every row of one matrix with every row of another,
# with one vmap for each axis.
outer = co.vmap(co.vmap(np.dot, in_dims=(None, 0)), in_dims=(0, None))
table = outer(weights, weights)

# To get the gradient of every sample, and not of their sum, differentiate a function of
# one sample, then batch it.


def loss(w, sample, target):
    return (np.tanh(sample @ w) - target) ** 2


samples, targets = rng.random((10, 3)), rng.random(10)
w = np.array([0.5, -1.0, 2.0])
each = co.vmap(co.grad(loss), in_dims=(None, 0, 0))(w, samples, targets)
print(each.shape)

# For random operators you must choose: the same numbers for all rows, or different ones.


@co.custom_op("shop::jitter", mutates_args=())
def jitter(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Add noise from a generator."""
    return x + rng.normal(size=x.shape)


def noisy(randomness):
    draw = np.random.default_rng(0)
    return co.vmap(lambda row: jitter(row, draw), randomness=randomness)(
        np.zeros((4, 2))
    )


with warnings.catch_warnings():
    warnings.simplefilter("ignore", co.CustomOpWarning)
    same, different = noisy("same"), noisy("different")
try:
    noisy("error")
except co.VmapError as error:
    refused = str(error)
    print(refused)

np.testing.assert_allclose(looped, expected)
np.testing.assert_allclose(batched, expected)
np.testing.assert_allclose(shared.T, [mix(x[0], row) for row in weights])
np.testing.assert_array_equal(clamped, np.maximum(weights, [0.1, 0.2, 0.3, 0.4]))
np.testing.assert_allclose(table, weights @ weights.T)
assert "shop::mix has no vmap rule" in str(caught[0].message)
for i in range(10):
    tanh = np.tanh(samples[i] @ w)
    by_hand = 2 * (tanh - targets[i]) * (1 - tanh**2) * samples[i]
    np.testing.assert_allclose(each[i], by_hand)
assert len(np.unique(same[:, 0])) == 1
assert len(np.unique(different[:, 0])) == 4
assert "randomness" in refused

# ---- a picture: python 06_vmap.py --picture FILE, with matplotlib ----

if "--picture" in sys.argv:
    from matplotlib.figure import Figure  # optional

    # How each sample would change the weights, for samples all over the plane.
    where = rng.uniform(-2.0, 2.0, (160, 2))
    wanted = np.where(where[:, 0] * where[:, 1] > 0.0, 0.8, -0.8)
    push = -co.vmap(co.grad(loss), in_dims=(None, 0, 0))(w[:2], where, wanted)
    figure = Figure(figsize=(6, 3.4), layout="constrained")
    axes = figure.subplots()
    for sign, color in ((1.0, "C0"), (-1.0, "C1")):
        mine = wanted * sign > 0.0
        axes.plot(*where[mine].T, "o", color=color, markersize=3)
        axes.quiver(*where[mine].T, *push[mine].T, color=color, width=0.004, scale=25)
    axes.set(title="how each sample pulls at the weights: 160 gradients by one call")
    figure.savefig(sys.argv[-1])
