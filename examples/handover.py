"""Hand a training over: capture its step, and go on in a process without its code.

It needs more than NumPy: ``pip install -e '.[examples]'``. Then run it with::

    python examples/handover.py

The first process trains the network of `digits.py` for one epoch. It captures the whole
training step as a graph: the loss, its gradient and the optimizer, for batches of any
size. The custom operators are opened, so that the graph calls nothing but NumPy's. Then
it saves the graph, and the weights beside it in the format of safetensors.

The second process imports customop and NumPy, and nothing else. It loads the graphs,
trains on, and measures the network. At the end the first process does the same with the
graph that it still has, and compares the weights: every bit is the same. With
``--picture FILE`` it draws the loss of each batch in both processes.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import customop as co

sys.path.insert(0, str(Path(__file__).parent))

import digits

State = dict[str, Any]

# ---- one step of training ----
#
# Adam as `digits.py` has it, as a function from state to state: then it can be captured
# together with the gradient. All of the state is arrays, the number of steps too.


def first_state(parameters: digits.Parameters) -> State:
    """Return parameters with the sums that Adam keeps, before the first step."""
    return {
        "parameters": parameters,
        "mean": co.tree.map(np.zeros_like, parameters),
        "square": co.tree.map(np.zeros_like, parameters),
        "count": np.zeros((), np.float32),
    }


def train_step(state: State, images: Any, labels: Any, rate: Any) -> tuple[State, Any]:
    """Take one step; returns the new state, and the loss before the step."""
    value, grads = co.value_and_grad(digits.loss)(state["parameters"], images, labels)
    count = state["count"] + 1
    mean = co.tree.map(lambda m, g: 0.9 * m + 0.1 * g, state["mean"], grads)
    square = co.tree.map(lambda s, g: 0.999 * s + 0.001 * g**2, state["square"], grads)

    def moved(x: Any, m: Any, s: Any) -> Any:
        length = np.sqrt(s / (1 - 0.999**count)) + 1e-8
        return x - rate * (m / (1 - 0.9**count)) / length

    parameters = co.tree.map(moved, state["parameters"], mean, square)
    new = {"parameters": parameters, "mean": mean, "square": square, "count": count}
    return new, value


# ---- the operators, opened ----
#
# A graph names the operators that it calls, and a process that loads it has to have them.
# So each custom operator is replaced by plain NumPy code while the step is captured.
# Softmax and the gradient of pooling are such code already: they are opened as they are.


def contract(formula: str, x: Any, y: Any) -> Any:
    """Compute an einsum, as one matrix product where possible."""
    return np.einsum(formula, x, y, optimize=True)


def conv2d(images: Any, weights: Any, padding: int) -> Any:
    view = digits.windows(images, weights.shape[-2:], (padding, padding))
    return contract("...nchwpq,...kcpq->...nkhw", view, weights)


def conv2d_input_grad(g: Any, weights: Any, padding: int) -> Any:
    size = weights.shape[-2:]
    view = digits.windows(g, size, [length - 1 - padding for length in size])
    return contract("...nkhwpq,...kcpq->...nchw", view, weights[..., ::-1, ::-1])


def conv2d_weight_grad(images: Any, g: Any, padding: int) -> Any:
    view = digits.windows(images, g.shape[-2:], (padding, padding))
    return contract("...ncpqhw,...nkhw->...kcpq", view, g)


def mean_pool(images: Any, size: int) -> Any:
    return images.reshape(digits.squares(images.shape, size)).mean(axis=(-3, -1))


def softmax_cross_entropy(logits: Any, labels: Any) -> Any:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    true = np.where(digits.is_true(logits, labels), shifted, 0).sum(axis=-1)
    return np.log(np.exp(shifted).sum(axis=-1)) - true


OPENED = {
    digits.conv2d: conv2d,
    digits.conv2d_input_grad: conv2d_input_grad,
    digits.conv2d_weight_grad: conv2d_weight_grad,
    digits.mean_pool: mean_pool,
    digits.mean_pool_grad: digits.mean_pool_grad.__wrapped__,
    digits.softmax: digits.softmax.__wrapped__,
    digits.softmax_cross_entropy: softmax_cross_entropy,
}

# The batch has a name: it stays symbolic. The images and the weights have fixed sizes.
IMAGES, LABELS = ("batch", 1, 8, 8), ("batch",)


def capture_step(state: State, images: Any, labels: Any) -> co.GraphModule:
    """Capture a training step for batches of any size."""
    sizes = {"images": IMAGES, "labels": LABELS}
    capture = co.make_fx(train_step, sizes=sizes, decompose=OPENED)
    return capture(state, images, labels, np.float32(0.01))


def capture_network(parameters: digits.Parameters, images: Any) -> co.GraphModule:
    """Capture the network itself, for any number of images."""
    capture = co.make_fx(digits.network, sizes={"images": IMAGES}, decompose=OPENED)
    return capture(parameters, images)


# ---- the second process ----
#
# This is its whole program. The state comes from a graph without inputs, whose arrays
# are in a file of weights.

SECOND = """
import sys

import numpy as np

import customop as co


def train_on(step, state, data, epochs):
    rng, losses = np.random.default_rng(1), []
    for _ in range(epochs):
        order = rng.permutation(len(data["images"]))
        for start in range(0, len(order), 50):
            batch = order[start : start + 50]
            images, labels = data["images"][batch], data["labels"][batch]
            state, loss = step(state, images, labels, np.float32(0.003))
            losses.append(float(loss))
    return state, losses


def accuracy(network, state, data):
    logits = network(state["parameters"], data["unseen"])
    return float(np.mean(logits.argmax(axis=-1) == data["unseen_labels"]))


if __name__ == "__main__":
    data = dict(np.load("data.npz"))
    network, step = co.load_graph("network.graph"), co.load_graph("step.graph")
    state = co.load_graph("state.graph")()
    before = accuracy(network, state, data)
    state, _ = train_on(step, state, data, epochs=int(sys.argv[1]))
    assert "digits" not in sys.modules
    assert "sklearn" not in sys.modules
    print(f"second process: accuracy {before:.4f}, then {accuracy(network, state, data):.4f}")
    np.savez("trained.npz", *co.tree.leaves(state))
"""


# Sums in several threads have other last digits; these products are small, too.
ONE_THREAD = dict.fromkeys(
    ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"
)


def run_second(folder: Path, epochs: int) -> list[np.ndarray]:
    """Train on in another process; returns the arrays of its state."""
    (folder / "second.py").write_text(SECOND, encoding="utf-8")
    done = subprocess.run(  # noqa: S603  # our own program
        [sys.executable, "second.py", str(epochs)],
        cwd=folder,
        env=os.environ | ONE_THREAD,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stderr)
    print(done.stdout, end="")
    with np.load(folder / "trained.npz") as file:
        return list(file.values())


# ---- the first process ----


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description="Hand over the training of a network.")
    parser.add_argument("--epochs", type=int, default=4, help="of the second process")
    parser.add_argument("--picture", type=Path, help="where to draw the losses")
    return parser.parse_args(arguments)


def save_picture(path: Path, first: Sequence[float], second: Sequence[float]) -> None:
    """Draw the loss of each batch, before and after the training was handed over."""
    figure = digits.Figure(figsize=(6, 2.6), layout="constrained")
    axes = figure.subplots()
    axes.semilogy(first, label="first process")
    after = np.arange(len(second)) + len(first)
    axes.semilogy(after, second, label="second process, from the saved graph")
    axes.set(xlabel="batch", ylabel="loss")
    axes.legend()
    figure.savefig(path)


def main(arguments: Sequence[str] | None = None) -> None:
    """Train, capture, hand over, and compare."""
    chosen = options(arguments)
    rng = np.random.default_rng(0)
    images, labels = digits.load_images()
    seen, unseen = digits.train_test_split(
        np.arange(len(images)), test_size=0.2, stratify=labels, random_state=0
    )
    data = {
        "images": images[seen],
        "labels": labels[seen],
        "unseen": images[unseen],
        "unseen_labels": labels[unseen],
    }
    state = first_state(digits.new_parameters(rng))
    step = capture_step(state, images[:64], labels[:64])
    network = capture_network(state["parameters"], images[:64])
    calls = [node for node in step.graph.nodes if node.op == "call"]
    print(f"captured: {len(calls)} calls of NumPy operators, for a batch of any size")

    losses = []
    for start in range(0, len(seen), 64):
        batch = seen[start : start + 64]  # the last one is smaller
        state, loss = step(state, images[batch], labels[batch], np.float32(0.01))
        losses.append(float(loss))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        step.save(folder / "step.graph")
        network.save(folder / "network.graph")
        whole = co.make_fx(lambda: state)()
        whole.save(folder / "state.graph", weights=folder / "state.safetensors")
        np.savez(folder / "data.npz", **data)
        theirs = run_second(folder, chosen.epochs)

    # The functions of the second process, with the graph of this one.
    names: dict[str, Any] = {"__name__": "second"}
    exec(SECOND, names)  # noqa: S102  # our own text
    ours, after = names["train_on"](step, state, data, chosen.epochs)
    accuracy = names["accuracy"](network, ours, data)
    assert {node.target.namespace for node in calls} == {"np"}
    assert accuracy > 0.9
    for mine, other in zip(co.tree.leaves(ours), theirs, strict=True):
        assert mine.tobytes() == other.tobytes()
    print("both processes have the same weights, bit for bit")
    if chosen.picture:
        save_picture(chosen.picture, losses, after)


if __name__ == "__main__":
    with digits.threadpool_limits(limits=1, user_api="blas"):
        main()
