"""Run a function on every row of a batch, without a loop in sight.

`vmap` takes a function of one row and makes one of a batch. Inside, an operator sees
a single row; its batching rule sees all of them at once.
"""

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

# Without a rule, the kernel runs once a row. That is right, but slow, and a warning
# says so once.
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    looped = co.vmap(mix)(x, weights)
print(caught[0].message)

# A rule computes all rows at once. It is told where the batch axis of each argument
# is, or None for one that is the same for all rows, and says where that of the
# result is. What it calls are operators again.


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

# Elementwise operators need no rule of their own, only to say what they are.


@co.custom_op("shop::clamp", mutates_args=(), tags=co.Tag.pointwise)
def clamp(x: np.ndarray, low: np.ndarray) -> np.ndarray:
    """Raise values to a lower bound."""
    return np.maximum(x, low)


clamped = co.vmap(clamp, in_dims=(0, None))(weights, np.array([0.1, 0.2, 0.3, 0.4]))

# Batches nest: this is the product of every row of one matrix with every row of
# another, each axis by a vmap of its own.
outer = co.vmap(co.vmap(np.dot, in_dims=(None, 0)), in_dims=(0, None))
table = outer(weights, weights)

# Gradients for every sample, not for their sum: a function of one sample,
# differentiated, then batched. NumPy's functions have rules for all of it.


def loss(w, sample, target):
    return (np.tanh(sample @ w) - target) ** 2


samples, targets = rng.random((10, 3)), rng.random(10)
w = np.array([0.5, -1.0, 2.0])
each = co.vmap(co.grad(loss), in_dims=(None, 0, 0))(w, samples, targets)
print(each.shape)

# What random operators do is to be said: the same draw for all rows, or different
# ones. Not saying it is an error.


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
