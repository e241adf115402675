"""Read handwritten digits: train a convolutional network, and find what puzzles it.

It needs more than NumPy: ``pip install -e '.[examples]'``. Then run it with::

    python examples/digits.py

The digits are the 1,797 scans of 8 x 8 pixels that come with scikit-learn. Convolution,
pooling and softmax cross-entropy are custom operators, each with a NumPy kernel, a fake
kernel, a backward formula and a batching rule. The rest of the network is plain NumPy.

The program trains the network, which takes a few seconds on two cores, and measures it
on the fifth of the digits that it has not seen. It saves a picture of the three digits
whose gradients are longest, in the temporary directory or where ``--picture`` says.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

import customop as co

try:
    from matplotlib.figure import Figure
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split
    from threadpoolctl import threadpool_limits
    from tqdm import tqdm
except ImportError as error:
    raise SystemExit(f"{error}\n  do: pip install -e '.[examples]'") from None

Floats = NDArray[Any]
Parameters = dict[str, Any]

# ---- convolution ----
#
# A convolution has three arrays: images x (n, c, h, w) with c channels, weights w
# (k, c, p, q) that turn them into k channels, and a result (n, k, h', w'). Multiply every
# element of the result by an element of an array g of the same shape, and add up. The
# sum is one number,
#
#     T(x, w, g) = sum over n, k, c, i, j, p, q of
#                  x[n, c, i + p, j + q] * w[k, c, p, q] * g[n, k, i, j],
#
# which is linear in x, w and g. Its derivative with respect to g is the convolution. Its
# derivatives with respect to x and w are what the backward formula needs. So there are
# three operators, and the gradients of each one are the other two. Higher derivatives
# need nothing more.
#
# Axes in front of those named above are broadcast, as in `np.matmul`.


def windows(x: Floats, size: Sequence[int], border: Sequence[int]) -> Floats:
    """View all windows of images, with a border of zeros around each image."""
    width = [(0, 0)] * (x.ndim - 2) + [(n, n) for n in border]
    return sliding_window_view(np.pad(x, width), tuple(size), axis=(-2, -1))


def require(fits: bool | np.bool, what: str) -> None:
    """Raise where lengths differ: NumPy would silently stretch an axis of length 1."""
    if not fits:
        raise ValueError(what)


def contract(formula: str, x: Floats, y: Floats) -> Floats:
    """Compute an einsum, as one matrix product where possible."""
    return np.asarray(np.einsum(formula, x, y, optimize=True), order="C")


@co.custom_op("digits::conv2d", mutates_args=(), device_types="cpu")
def conv2d(images: Floats, weights: Floats, padding: int = 0) -> Floats:
    """Slide weights over images; with 3 x 3 weights, padding 1 keeps the size."""
    require(images.shape[-3] == weights.shape[-3], "channels differ")
    view = windows(images, weights.shape[-2:], (padding, padding))
    return contract("...nchwpq,...kcpq->...nkhw", view, weights)


@co.custom_op("digits::conv2d_input_grad", mutates_args=(), device_types="cpu")
def conv2d_input_grad(g: Floats, weights: Floats, padding: int = 0) -> Floats:
    """Compute dT/dx: slide the mirrored weights over the gradient."""
    require(g.shape[-3] == weights.shape[-4], "channels differ")
    size = weights.shape[-2:]
    view = windows(g, size, [length - 1 - padding for length in size])
    mirrored = weights[..., ::-1, ::-1]
    return contract("...nkhwpq,...kcpq->...nchw", view, mirrored)


@co.custom_op("digits::conv2d_weight_grad", mutates_args=(), device_types="cpu")
def conv2d_weight_grad(images: Floats, g: Floats, padding: int = 0) -> Floats:
    """Compute dT/dw: slide the gradient over the images."""
    require(images.shape[-4] == g.shape[-4], "numbers of images differ")
    view = windows(images, g.shape[-2:], (padding, padding))
    return contract("...ncpqhw,...nkhw->...kcpq", view, g)


# A fake kernel returns the shape of the result without computing it. With fake kernels,
# `co.eval_shape` finds the sizes of a whole network before any image is loaded.


def fake(like: Any, *shape: int, lead: Sequence[Any] = ()) -> co.FakeArray:
    """Make a fake result with the leading axes of the arrays in `lead`, then `shape`."""
    front = co.sizes.broadcast_sizes(*(x.shape[:-4] for x in lead))
    return co.FakeArray((*front, *shape), like.dtype, device=like.device)


@conv2d.register_fake
def _(images: Any, weights: Any, padding: int) -> co.FakeArray:
    (n, c, h, w), (k, d, p, q) = images.shape[-4:], weights.shape[-4:]
    require(c == d, "channels differ")
    grown = 2 * padding + 1
    return fake(images, n, k, h + grown - p, w + grown - q, lead=(images, weights))


@conv2d_input_grad.register_fake
def _(g: Any, weights: Any, padding: int) -> co.FakeArray:
    (n, d, h, w), (k, c, p, q) = g.shape[-4:], weights.shape[-4:]
    require(d == k, "channels differ")
    grown = 2 * padding + 1
    return fake(g, n, c, h + p - grown, w + q - grown, lead=(g, weights))


@conv2d_weight_grad.register_fake
def _(images: Any, g: Any, padding: int) -> co.FakeArray:
    (m, c, h, w), (n, k, i, j) = images.shape[-4:], g.shape[-4:]
    require(m == n, "numbers of images differ")
    grown = 2 * padding + 1
    return fake(images, k, c, h + grown - i, w + grown - j, lead=(images, g))


# The backward formulas call operators, so they can be differentiated and batched too.


def save_arrays(ctx: Any, inputs: Any, output: Any) -> None:
    """Keep both arrays and the padding for the backward formula."""
    *arrays, ctx.padding = inputs
    ctx.save_for_backward(*arrays)


def conv2d_backward(ctx: Any, g: Any) -> Any:
    x, w = ctx.saved_arrays
    by_x = conv2d_input_grad(g, w, ctx.padding) if ctx.needs_input_grad[0] else None
    return by_x, conv2d_weight_grad(x, g, ctx.padding), None


def input_grad_backward(ctx: Any, x: Any) -> Any:
    g, w = ctx.saved_arrays
    return conv2d(x, w, ctx.padding), conv2d_weight_grad(x, g, ctx.padding), None


def weight_grad_backward(ctx: Any, w: Any) -> Any:
    x, g = ctx.saved_arrays
    return conv2d_input_grad(g, w, ctx.padding), conv2d(x, w, ctx.padding), None


conv2d.register_autograd(conv2d_backward, setup_context=save_arrays)
conv2d_input_grad.register_autograd(input_grad_backward, setup_context=save_arrays)
conv2d_weight_grad.register_autograd(weight_grad_backward, setup_context=save_arrays)

# ---- pooling ----
#
# The mean over squares of pixels, and its transpose, which spreads a value over the
# pixels of a square. Both are linear, and each is the gradient of the other.


def squares(shape: Sequence[int], size: int) -> tuple[int, ...]:
    """Return the shape with separate axes for the squares and the pixels in them."""
    *front, height, width = shape
    require(height % size == width % size == 0, "squares do not fill the images")
    return (*front, height // size, size, width // size, size)


@co.custom_op("digits::mean_pool", mutates_args=(), device_types="cpu")
def mean_pool(images: Floats, size: int) -> Floats:
    """Average over squares of ``size`` x ``size`` pixels."""
    pixels = images.reshape(squares(images.shape, size))
    return np.asarray(pixels.mean(axis=(-3, -1)), order="C")


@co.custom_op("digits::mean_pool_grad", mutates_args=(), device_types="cpu")
def mean_pool_grad(g: Floats, size: int) -> Floats:
    """Spread each element evenly over a square of ``size`` x ``size`` pixels."""
    return g.repeat(size, axis=-2).repeat(size, axis=-1) / size**2


@mean_pool.register_fake
def _(images: Any, size: int) -> co.FakeArray:
    *front, height, _, width, _ = squares(images.shape, size)
    return fake(images, *front, height, width)


@mean_pool_grad.register_fake
def _(g: Any, size: int) -> co.FakeArray:
    *front, height, width = g.shape
    return fake(g, *front, height * size, width * size)


def save_size(ctx: Any, inputs: Any, output: Any) -> None:
    """Keep the size of the squares; the gradient of a linear operator needs only that."""
    ctx.size = inputs[1]


mean_pool.register_autograd(
    lambda ctx, g: (mean_pool_grad(g, ctx.size), None), setup_context=save_size
)
mean_pool_grad.register_autograd(
    lambda ctx, x: (mean_pool(x, ctx.size), None), setup_context=save_size
)

# ---- softmax and cross-entropy ----
#
# The loss of an example is -log of the probability that the network gives to its true
# class. Computed in one step, it never takes the logarithm of a probability that was
# rounded to zero. Its gradient is simple: the probabilities, minus 1 at the true class.


@co.custom_op("digits::softmax", mutates_args=(), device_types="cpu")
def softmax(logits: Floats) -> Floats:
    """Turn logits into probabilities, along the last axis."""
    powers: Floats = np.exp(logits - logits.max(axis=-1, keepdims=True))
    powers /= powers.sum(axis=-1, keepdims=True)
    return powers


@co.custom_op("digits::softmax_cross_entropy", mutates_args=(), device_types="cpu")
def softmax_cross_entropy(logits: Floats, labels: NDArray[np.integer[Any]]) -> Floats:
    """Compute the loss of each example: logits (..., classes), labels (...)."""
    classes = np.arange(logits.shape[-1])
    require(np.isin(labels, classes).all(), "a label is not a class")
    shifted = logits - logits.max(axis=-1, keepdims=True)
    log_total = np.log(np.exp(shifted).sum(axis=-1))
    true = np.where(is_true(logits, labels), shifted, 0).sum(axis=-1)
    return np.asarray(log_total - true, order="C")


def is_true(logits: Any, labels: Any) -> Any:
    """Mark the true classes, in the shape of the logits."""
    return labels[..., None] == np.arange(logits.shape[-1])


@softmax.register_fake
def _(logits: Any) -> co.FakeArray:
    return co.fake_like(logits)


@softmax_cross_entropy.register_fake
def _(logits: Any, labels: Any) -> co.FakeArray:
    return fake(logits, *co.sizes.broadcast_sizes(logits.shape[:-1], labels.shape))


# The derivative of the softmax is simplest in terms of its result. The formulas are plain
# NumPy code, since NumPy's functions are operators too.


def softmax_backward(ctx: Any, g: Any) -> Any:
    (p,) = ctx.saved_arrays
    return p * (g - (g * p).sum(axis=-1, keepdims=True))


def cross_entropy_backward(ctx: Any, g: Any) -> Any:
    logits, labels = ctx.saved_arrays
    target = is_true(logits, labels).astype(logits.dtype)
    return g[..., None] * (softmax(logits) - target), None


softmax.register_autograd(
    softmax_backward,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output),
)
softmax_cross_entropy.register_autograd(
    cross_entropy_backward,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)

# ---- batches of batches ----
#
# A batching rule runs an operator once for many rows. All operators here broadcast
# leading axes, so `co.broadcast_rule` makes the rules: it moves the axis of the rows to the
# front. Its numbers count the axes that are an operator's own, for each array. An argument
# that is the same for all rows stays as it is, so a convolution of many images with one
# set of weights is still a single matrix product.

conv2d.register_vmap(co.broadcast_rule(conv2d, 4))
conv2d_input_grad.register_vmap(co.broadcast_rule(conv2d_input_grad, 4))
conv2d_weight_grad.register_vmap(co.broadcast_rule(conv2d_weight_grad, 4))
mean_pool.register_vmap(co.broadcast_rule(mean_pool, 2))
mean_pool_grad.register_vmap(co.broadcast_rule(mean_pool_grad, 2))
softmax.register_vmap(co.broadcast_rule(softmax, 1))
softmax_cross_entropy.register_vmap(co.broadcast_rule(softmax_cross_entropy, (1, 0)))

# ---- the network ----


def new_parameters(rng: np.random.Generator) -> Parameters:
    """Draw weights with a variance that keeps the scale of signals; biases are zero."""

    def weights(*shape: int, inputs: int) -> Floats:
        return np.asarray(rng.normal(0, (2 / inputs) ** 0.5, shape), np.float32)

    return {
        "conv1": weights(16, 1, 3, 3, inputs=9),
        "bias1": np.zeros((16, 1, 1), np.float32),
        "conv2": weights(32, 16, 3, 3, inputs=144),
        "bias2": np.zeros((32, 1, 1), np.float32),
        "dense": weights(128, 10, inputs=128),
        "bias3": np.zeros(10, np.float32),
    }


def network(parameters: Parameters, images: Any) -> Any:
    """Compute logits (n, 10) for images (n, 1, 8, 8)."""
    p = parameters
    x = np.maximum(conv2d(images, p["conv1"], padding=1) + p["bias1"], 0)
    x = mean_pool(x, 2)
    x = np.maximum(conv2d(x, p["conv2"], padding=1) + p["bias2"], 0)
    x = mean_pool(x, 2)
    return x.reshape(x.shape[0], -1) @ p["dense"] + p["bias3"]


def loss(parameters: Parameters, images: Any, labels: Any) -> Any:
    """Compute the mean loss of the examples."""
    return softmax_cross_entropy(network(parameters, images), labels).mean()


def read(parameters: Parameters, images: Floats) -> NDArray[np.intp]:
    """Return the most likely class of each image."""
    return np.asarray(network(parameters, images).argmax(axis=-1))


# ---- training ----


class Adam:
    """Gradient descent with a separate step size for every weight.

    Source: Kingma and Ba, Adam: a method for stochastic optimization, algorithm 1.
    """

    def __init__(self, parameters: Parameters) -> None:
        self.mean = {name: np.zeros_like(x) for name, x in parameters.items()}
        self.square = {name: np.zeros_like(x) for name, x in parameters.items()}
        self.count = 0

    def step(
        self, parameters: Parameters, grads: Parameters, rate: float
    ) -> Parameters:
        """Take one step against the gradients; returns the new parameters."""
        self.count += 1
        moved = {}
        for name, g in grads.items():
            self.mean[name] = 0.9 * self.mean[name] + 0.1 * g
            self.square[name] = 0.999 * self.square[name] + 0.001 * g**2
            mean = self.mean[name] / (1 - 0.9**self.count)
            square = self.square[name] / (1 - 0.999**self.count)
            moved[name] = parameters[name] - rate * mean / (np.sqrt(square) + 1e-8)
        return moved


def train(
    parameters: Parameters,
    images: Floats,
    labels: Floats,
    epochs: int,
    rng: np.random.Generator,
) -> tuple[Parameters, list[float]]:
    """Train in batches of 64; returns the parameters, and the loss of each epoch."""
    adam = Adam(parameters)
    # Parameters are a dict, so the gradient is a dict of the same names.
    loss_and_grad = co.value_and_grad(loss)
    history: list[float] = []
    with tqdm(range(epochs), desc="training", unit="epoch") as progress:
        for epoch in progress:
            # The steps get smaller, so that the weights settle.
            rate = 0.01 * (1 - epoch / epochs)
            losses = []
            order = rng.permutation(len(images))
            for start in range(0, len(images), 64):
                batch = order[start : start + 64]
                value, grads = loss_and_grad(parameters, images[batch], labels[batch])
                parameters = adam.step(parameters, grads, rate)
                losses.append(float(value))
            history.append(float(np.mean(losses)))
            progress.set_postfix(loss=f"{history[-1]:.4f}")
    return parameters, history


# ---- what puzzles the network ----
#
# The gradient of one example says how that example would change the weights. It is short
# for an example that the network reads well, and long for a strange one.
# `vmap(grad(loss))` computes the gradients of all examples at once, each as a batch of
# one image. A loop over the examples would give the same numbers.

per_example_grads = co.vmap(co.grad(loss), in_dims=(None, 0, 0), chunk_size=256)


def grad_norms(parameters: Parameters, images: Floats, labels: Floats) -> Floats:
    """Measure the gradient of each example, over all parameters together."""
    grads = per_example_grads(parameters, images[:, None], labels[:, None])
    flat = [g.reshape(len(images), -1) for g in grads.values()]
    return np.asarray(np.linalg.norm(np.concatenate(flat, axis=-1), axis=-1))


def save_picture(path: Path, images: Floats, titles: Sequence[str]) -> None:
    """Draw digits side by side, each under its title."""
    # A Figure without pyplot is drawn by Agg, which needs no screen.
    figure = Figure(figsize=(3 * len(images), 3.4), layout="tight")
    axes = figure.subplots(1, len(images))
    for axis, image, title in zip(axes, images, titles, strict=True):
        axis.imshow(image, cmap="gray_r")
        axis.set_title(title)
        axis.set_axis_off()
    figure.savefig(path)


# ---- the program ----


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Read handwritten digits.")
    picture = Path(tempfile.gettempdir(), "strangest_digits.png")
    parser.add_argument("--epochs", type=int, default=20, help="passes over the digits")
    parser.add_argument("--seed", type=int, default=0, help="seed of all randomness")
    parser.add_argument("--picture", type=Path, default=picture, help="the picture")
    parser.add_argument("--quick", action="store_true", help="few digits, two epochs")
    return parser.parse_args(arguments)


def load_images() -> tuple[Floats, NDArray[np.intp]]:
    """Load the scans as images (n, 1, 8, 8) around zero, and their labels."""
    scans, labels = load_digits(return_X_y=True)
    images = (scans / 16 - 0.3) * 2.5
    return images.astype(np.float32).reshape(-1, 1, 8, 8), labels


def show_strangest(
    parameters: Parameters, images: Floats, labels: NDArray[np.intp], path: Path
) -> None:
    """Name the three digits with the longest gradients, and draw them."""
    norms = grad_norms(parameters, images, labels)
    strangest = np.argsort(norms)[:-4:-1]
    guesses = read(parameters, images[strangest])
    titles = []
    print("the strangest digits:")
    for i, guess in zip(strangest, guesses, strict=True):
        article = "an" if labels[i] == 8 else "a"
        titles.append(f"{article} {labels[i]}, read as {guess}")
        print(f"  no. {i:4}: {titles[-1]}, length of gradient {norms[i]:.1f}")
    save_picture(path, images[strangest, 0], titles)
    print(f"picture: {path}")


def check_mean(parameters: Parameters, images: Floats, labels: Any) -> None:
    """Check that the gradient of the mean loss is the mean of the gradients."""
    whole = co.grad(loss)(parameters, images, labels)
    parts = per_example_grads(parameters, images[:, None], labels[:, None])
    for name, g in whole.items():
        assert np.allclose(parts[name].mean(axis=0), g, atol=1e-5), name


def main(arguments: Sequence[str] | None = None) -> float:
    """Train, measure, and show the strangest digits; returns the accuracy."""
    chosen = options(arguments)
    rng = np.random.default_rng(chosen.seed)
    images, labels = load_images()
    if chosen.quick:
        images, labels, chosen.epochs = images[:400], labels[:400], 2

    # A fifth of each class is held back: the network never trains on it.
    seen, unseen = train_test_split(
        np.arange(len(images)), test_size=0.2, stratify=labels, random_state=chosen.seed
    )
    # These matrix products are too small to gain from a second thread. On two busy cores,
    # BLAS threads that wait for each other made training up to nine times slower.
    with threadpool_limits(limits=1, user_api="blas"):
        parameters, history = train(
            new_parameters(rng), images[seen], labels[seen], chosen.epochs, rng
        )
    accuracy = float(np.mean(read(parameters, images[unseen]) == labels[unseen]))
    print(f"accuracy on {len(unseen)} unseen digits: {accuracy:.4f}")
    show_strangest(parameters, images, labels, chosen.picture)

    check_mean(parameters, images[:32], labels[:32])
    assert history[-1] < history[0]
    assert chosen.picture.stat().st_size > 0
    assert chosen.quick or accuracy >= 0.97
    return accuracy


if __name__ == "__main__":
    main()
