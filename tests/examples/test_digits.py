"""The program on handwritten digits: its operators, gradients and output."""

from __future__ import annotations

import importlib.util
import itertools
import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import customop as co
from tests.examples.test_examples import prints_what_is_shown

pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.usefixtures("always_checked", "nothing_known"),
]
for _name in ("matplotlib", "sklearn", "tqdm"):
    pytest.importorskip(_name, reason=f"{_name} is in the extra 'examples'")

PATH = Path(__file__).parents[2] / "examples" / "digits.py"


def load_program() -> Any:
    """Import the example, which is not part of a package."""
    spec = importlib.util.spec_from_file_location("digits", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["digits"] = module
    spec.loader.exec_module(module)
    return module


digits = load_program()


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).normal(size=shape)


def labels_of(*shape: int, classes: int = 5) -> np.ndarray:
    return np.random.default_rng([7, *shape]).integers(0, classes, size=shape)


# ---- kernels against loops ----

# images (n, c, h, w), weights (k, c, p, q), padding
CONVOLUTIONS = [
    ((1, 1, 3, 3), (1, 1, 3, 3), 0),
    ((1, 1, 1, 1), (1, 1, 1, 1), 0),
    ((2, 3, 5, 6), (4, 3, 3, 3), 0),
    ((2, 3, 5, 6), (4, 3, 3, 3), 1),
    ((2, 3, 5, 6), (4, 3, 2, 4), 0),
    ((2, 3, 5, 6), (4, 3, 2, 4), 1),
    ((1, 2, 4, 4), (3, 2, 3, 3), 2),
]


def terms(
    images: tuple[int, ...], weights: tuple[int, ...], padding: int
) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
    """Yield the indices into image, weight and result of each term of the sum."""
    n, c, h, w = images
    k, _, p, q = weights
    rows, columns = h + 2 * padding - p + 1, w + 2 * padding - q + 1
    every = (n, k, c, rows, columns, p, q)
    for b, o, s, i, j, u, v in itertools.product(*map(range, every)):
        y, x = i + u - padding, j + v - padding
        if 0 <= y < h and 0 <= x < w:
            yield (b, s, y, x), (o, s, u, v), (b, o, i, j)


def result_shape(
    images: tuple[int, ...], weights: tuple[int, ...], padding: int
) -> tuple[int, ...]:
    grown = 2 * padding + 1
    height, width = images[2] + grown - weights[2], images[3] + grown - weights[3]
    return images[0], weights[0], height, width


@pytest.mark.parametrize(("images", "weights", "padding"), CONVOLUTIONS)
def test_conv2d_sums_products_of_pixels_and_weights(
    images: Any, weights: Any, padding: int
) -> None:
    """`conv2d` is the sum in its formula, computed term by term."""
    x, w = normal(*images), normal(*weights)
    expected = np.zeros(result_shape(images, weights, padding))
    for at_x, at_w, at_y in terms(images, weights, padding):
        expected[at_y] += x[at_x] * w[at_w]
    np.testing.assert_allclose(digits.conv2d(x, w, padding), expected, atol=1e-12)


@pytest.mark.parametrize(("images", "weights", "padding"), CONVOLUTIONS)
def test_conv2d_input_grad_hands_products_back_to_pixels(
    images: Any, weights: Any, padding: int
) -> None:
    """`conv2d_input_grad` adds each product of gradient and weight to its pixel."""
    w, g = normal(*weights), normal(*result_shape(images, weights, padding))
    expected = np.zeros(images)
    for at_x, at_w, at_y in terms(images, weights, padding):
        expected[at_x] += g[at_y] * w[at_w]
    actual = digits.conv2d_input_grad(g, w, padding)
    np.testing.assert_allclose(actual, expected, atol=1e-12)


@pytest.mark.parametrize(("images", "weights", "padding"), CONVOLUTIONS)
def test_conv2d_weight_grad_hands_products_back_to_weights(
    images: Any, weights: Any, padding: int
) -> None:
    """`conv2d_weight_grad` adds each product of gradient and pixel to its weight."""
    x, g = normal(*images), normal(*result_shape(images, weights, padding))
    expected = np.zeros(weights)
    for at_x, at_w, at_y in terms(images, weights, padding):
        expected[at_w] += g[at_y] * x[at_x]
    actual = digits.conv2d_weight_grad(x, g, padding)
    np.testing.assert_allclose(actual, expected, atol=1e-12)


def test_conv2d_broadcasts_axes_in_front() -> None:
    """Leading axes broadcast as in `np.matmul`."""
    x, w = normal(3, 1, 2, 1, 5, 5), normal(4, 3, 1, 3, 3)
    actual = digits.conv2d(x, w, 1)
    pairs = itertools.product(range(3), range(4))
    rows = [digits.conv2d(x[i, 0], w[j], 1) for i, j in pairs]
    np.testing.assert_allclose(actual, np.reshape(rows, (3, 4, 2, 3, 5, 5)), atol=1e-12)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_mean_pool_averages_squares(size: int) -> None:
    """Each element of `mean_pool` is the mean of one square."""
    x = normal(2, 3, 2 * size, 4 * size)
    actual = digits.mean_pool(x, size)
    assert actual.shape == (2, 3, 2, 4)
    for n, c, i, j in np.ndindex(actual.shape):
        square = [
            x[n, c, i * size + u, j * size + v]
            for u, v in itertools.product(range(size), repeat=2)
        ]
        assert actual[n, c, i, j] == pytest.approx(math.fsum(square) / size**2)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_mean_pool_grad_shares_evenly(size: int) -> None:
    """`mean_pool_grad` spreads the gradient of a square evenly over its pixels."""
    g = normal(2, 3, 2, 4)
    actual = digits.mean_pool_grad(g, size)
    assert actual.shape == (2, 3, 2 * size, 4 * size)
    for n, c, y, x in np.ndindex(actual.shape):
        share = g[n, c, y // size, x // size] / size**2
        assert actual[n, c, y, x] == pytest.approx(share)


def test_softmax_gives_probabilities() -> None:
    """`softmax` is exp(z) divided by its sum over the classes."""
    z = normal(4, 5)
    rows = [[math.exp(v) / math.fsum(map(math.exp, row)) for v in row] for row in z]
    np.testing.assert_allclose(digits.softmax(z), rows, rtol=1e-13)


def test_cross_entropy_is_minus_the_logarithm_of_the_true_probability() -> None:
    """`softmax_cross_entropy` is -log of the probability at each label."""
    z, labels = normal(4, 5), labels_of(4)
    rows = [
        math.log(math.fsum(map(math.exp, row))) - row[label]
        for row, label in zip(z.tolist(), labels, strict=True)
    ]
    actual = digits.softmax_cross_entropy(z, labels)
    np.testing.assert_allclose(actual, rows, rtol=1e-13)


def test_cross_entropy_of_huge_logits_is_exact() -> None:
    """Logits too large for `exp` do not overflow, and their loss is right."""
    z = np.array([[1e4, 0.0, -1e4]] * 3)
    actual = digits.softmax_cross_entropy(z, np.arange(3))
    assert actual.tolist() == [0.0, 1e4, 2e4]
    assert digits.softmax(z).tolist() == [[1.0, 0.0, 0.0]] * 3


MISFITS = [
    ("conv2d", (normal(2, 1, 5, 5), normal(4, 3, 3, 3)), "channels differ"),
    ("conv2d_input_grad", (normal(2, 1, 3, 3), normal(4, 3, 3, 3)), "channels differ"),
    (
        "conv2d_weight_grad",
        (normal(1, 3, 5, 5), normal(2, 4, 3, 3)),
        "numbers of images",
    ),
    ("mean_pool", (normal(1, 1, 4, 5), 2), "squares do not fill"),
]


@pytest.mark.parametrize(("name", "args", "what"), MISFITS)
def test_shapes_that_do_not_fit_are_refused(name: str, args: Any, what: str) -> None:
    """Kernels and fake kernels raise for shapes that do not fit."""
    op = getattr(digits, name)
    with pytest.raises(ValueError, match=what):
        op(*args)
    with pytest.raises(ValueError, match=what):
        co.eval_shape(op, *args)


@pytest.mark.parametrize("label", [-1, 5])
def test_labels_of_no_class_are_refused(label: int) -> None:
    """A label that is not a class raises."""
    with pytest.raises(ValueError, match="not a class"):
        digits.softmax_cross_entropy(normal(1, 5), np.array([label]))


# ---- all operators: one table ----

SAMPLES: dict[str, tuple[Any, ...]] = {
    "conv2d": (normal(2, 3, 5, 4), normal(4, 3, 3, 2), 1),
    "conv2d_input_grad": (normal(2, 4, 5, 5), normal(4, 3, 3, 2), 1),
    "conv2d_weight_grad": (normal(2, 3, 5, 4), normal(2, 4, 5, 5), 1),
    "mean_pool": (normal(2, 3, 4, 6), 2),
    "mean_pool_grad": (normal(2, 3, 2, 3), 2),
    "softmax": (normal(3, 5),),
    "softmax_cross_entropy": (normal(3, 5), labels_of(3)),
}
each_operator = pytest.mark.parametrize("name", SAMPLES)


def arrays_in(args: tuple[Any, ...]) -> list[int]:
    return [i for i, a in enumerate(args) if isinstance(a, np.ndarray)]


def of_floats(name: str) -> tuple[Callable[..., Any], list[np.ndarray]]:
    """Make a number of an operator's result, as a function of its arrays of floats.

    The result is squared, so that second derivatives of linear operators show too.
    """
    op, args = getattr(digits, name), SAMPLES[name]
    places = [i for i in arrays_in(args) if args[i].dtype == float]
    pull = normal(*op(*args).shape, seed=1)

    def number(*floats: Any) -> Any:
        given = list(args)
        for place, value in zip(places, floats, strict=True):
            given[place] = value
        out = op(*given)
        return (pull * (out + out * out)).sum()

    return number, [args[i] for i in places]


def moved(xs: list[np.ndarray], directions: list[np.ndarray], step: float) -> list[Any]:
    return [x + step * d for x, d in zip(xs, directions, strict=True)]


def inner(xs: Any, ys: Any) -> Any:
    return sum((x * y).sum() for x, y in zip(xs, ys, strict=True))


def test_every_operator_of_the_program_has_a_sample() -> None:
    """The tables below have every operator of the program."""
    made = {x.name for x in vars(digits).values() if isinstance(x, co.Operator)}
    assert made == set(SAMPLES)


@each_operator
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("order", ["C", "F"])
def test_fake_is_as_real(name: str, dtype: Any, order: Any) -> None:
    """Fake kernels return the right shape, dtype and strides for any memory order."""
    op = getattr(digits, name)
    args = [
        np.asarray(a, dtype if a.dtype == float else None, order=order)
        if isinstance(a, np.ndarray)
        else a
        for a in SAMPLES[name]
    ]
    real, fake = op(*args), co.eval_shape(op, *args)
    assert isinstance(fake, co.FakeArray)
    told = (fake.shape, fake.dtype, fake.strides)
    assert told == (real.shape, real.dtype, real.strides)


@each_operator
def test_gradient_is_the_central_difference(name: str) -> None:
    """Every element of every gradient agrees with a finite difference."""
    number, xs = of_floats(name)
    grads = co.grad(number, argnums=range(len(xs)))(*xs)
    for i, x in enumerate(xs):
        for at in np.ndindex(x.shape):
            unit = [np.zeros_like(v) for v in xs]
            unit[i][at] = 1.0
            ahead, behind = (
                number(*moved(xs, unit, 1e-5)),
                number(*moved(xs, unit, -1e-5)),
            )
            expected = (ahead - behind) / 2e-5
            assert grads[i][at] == pytest.approx(expected, rel=1e-6, abs=1e-7)


@each_operator
@pytest.mark.parametrize("seed", range(3))
def test_second_derivative_is_the_mixed_difference(name: str, seed: int) -> None:
    """d2 f / du dv agrees with differences of the value, also across inputs."""
    number, xs = of_floats(name)
    us = [normal(*x.shape, seed=2 + seed) for x in xs]
    vs = [normal(*x.shape, seed=20 + seed) for x in xs]
    every = range(len(xs))

    def along_u(*values: Any) -> Any:
        return inner(co.grad(number, argnums=every)(*values), us)

    actual = inner(co.grad(along_u, argnums=every)(*xs), vs)
    h = 1e-3
    corners = [
        a * b * number(*moved(moved(xs, us, a * h), vs, b * h))
        for a, b in itertools.product((1, -1), repeat=2)
    ]
    expected = math.fsum(corners) / (4 * h * h)
    assert actual == pytest.approx(expected, rel=1e-4, abs=1e-4)


@each_operator
def test_forward_mode_is_the_central_difference(name: str) -> None:
    """`jvp` through an operator agrees with a finite difference."""
    number, xs = of_floats(name)
    us = [normal(*x.shape, seed=2) for x in xs]
    _, actual = co.jvp(number, tuple(xs), tuple(us))
    expected = (number(*moved(xs, us, 1e-5)) - number(*moved(xs, us, -1e-5))) / 2e-5
    assert actual == pytest.approx(expected, rel=1e-6)


def batchings() -> Iterator[Any]:
    """Yield each operator with every choice of batch axes, None included."""
    for name, args in SAMPLES.items():
        places = arrays_in(args)
        axes = [(None, *range(args[i].ndim + 1), -1) for i in places]
        for dims in itertools.product(*axes):
            if any(dim is not None for dim in dims):
                yield pytest.param(name, dims, id=f"{name}-{dims}")


@pytest.mark.parametrize(("name", "dims"), list(batchings()))
def test_vmap_is_the_loop(name: str, dims: tuple[int | None, ...]) -> None:
    """The batching rule returns what a loop over the rows returns."""
    op, args = getattr(digits, name), SAMPLES[name]
    in_dims = (*dims, *(None,) * (len(args) - len(dims)))
    rows = [
        [
            row(a, i) if dim is not None else a
            for a, dim in zip(args, in_dims, strict=True)
        ]
        for i in range(3)
    ]
    batched = [
        a if dim is None else np.stack([r[i] for r in rows], axis=dim)
        for i, (a, dim) in enumerate(zip(args, in_dims, strict=True))
    ]
    actual = co.vmap(op, in_dims=in_dims)(*batched)
    np.testing.assert_allclose(actual, np.stack([op(*r) for r in rows]), atol=1e-12)


def row(a: np.ndarray, i: int) -> np.ndarray:
    """Make a different array like `a` for each row."""
    return (a + i) % 5 if a.dtype != float else a * (i + 1) + i


def test_vmap_of_vmap_pairs_all_rows() -> None:
    """Nested batches of images and of weights equal two loops."""
    x, w = normal(3, 2, 1, 4, 4), normal(5, 2, 1, 3, 3)
    all_pairs = co.vmap(co.vmap(digits.conv2d, in_dims=(None, 0)), in_dims=(0, None))
    pairs = itertools.product(range(3), range(5))
    rows = [digits.conv2d(x[i], w[j]) for i, j in pairs]
    expected = np.reshape(rows, (3, 5, *rows[0].shape))
    np.testing.assert_allclose(all_pairs(x, w), expected, atol=1e-12)


def test_gradient_through_vmap_sums_over_rows() -> None:
    """The gradient of shared weights is the sum over the rows."""
    x, w = normal(3, 2, 1, 4, 4), normal(2, 1, 3, 3)
    pull = normal(3, 2, 2, 2, 2, seed=1)

    def number(weights: Any) -> Any:
        rows = co.vmap(digits.conv2d, in_dims=(0, None))(x, weights)
        return (pull * rows).sum()

    expected = sum(digits.conv2d_weight_grad(x[i], pull[i]) for i in range(3))
    np.testing.assert_allclose(co.grad(number)(w), expected, atol=1e-12)


# ---- the network ----


@pytest.fixture(scope="module")
def parameters() -> dict[str, np.ndarray]:
    """Random weights and biases, in double precision for the differences."""
    made = digits.new_parameters(np.random.default_rng(0))
    return {name: x + 0.1 * normal(*x.shape) for name, x in made.items()}


@pytest.fixture(scope="module")
def images() -> np.ndarray:
    return np.random.default_rng(1).uniform(size=(6, 1, 8, 8))


LABELS = np.array([3, 1, 4, 1, 5, 9])


def test_shapes_of_the_network_are_known_without_computing() -> None:
    """`eval_shape` runs the whole network on fake arrays."""
    made = digits.new_parameters(np.random.default_rng(0))
    found = co.eval_shape(digits.network, made, np.zeros((7, 1, 8, 8), np.float32))
    assert (found.shape, found.dtype) == ((7, 10), np.float32)


@pytest.mark.parametrize("seed", range(4))
def test_gradient_of_the_network_is_the_central_difference(
    parameters: Any, images: Any, seed: int
) -> None:
    """Along random directions the gradient agrees with differences of the loss."""
    grads = co.grad(digits.loss)(parameters, images, LABELS)
    along = {name: normal(*x.shape, seed=seed) for name, x in parameters.items()}

    def at(step: float) -> Any:
        there = {name: x + step * along[name] for name, x in parameters.items()}
        return digits.loss(there, images, LABELS)

    actual = sum((grads[name] * along[name]).sum() for name in along)
    assert actual == pytest.approx((at(1e-6) - at(-1e-6)) / 2e-6, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("name", ["conv1", "bias1", "conv2", "bias2", "dense", "bias3"])
def test_gradient_of_each_parameter_is_the_central_difference(
    parameters: Any, images: Any, name: str
) -> None:
    """The gradient of each parameter is right, and not only their sum."""
    grads = co.grad(digits.loss)(parameters, images, LABELS)
    along = normal(*parameters[name].shape, seed=5)

    def at(step: float) -> Any:
        there = {**parameters, name: parameters[name] + step * along}
        return digits.loss(there, images, LABELS)

    actual = (grads[name] * along).sum()
    assert actual == pytest.approx((at(1e-6) - at(-1e-6)) / 2e-6, rel=1e-5, abs=1e-8)


def test_gradient_by_the_images_is_the_central_difference(
    parameters: Any, images: Any
) -> None:
    """The gradient with respect to the pixels is right too."""
    grads = co.grad(digits.loss, argnums=1)(parameters, images, LABELS)
    along = normal(*images.shape, seed=6)
    ahead = digits.loss(parameters, images + 1e-6 * along, LABELS)
    behind = digits.loss(parameters, images - 1e-6 * along, LABELS)
    expected = (ahead - behind) / 2e-6
    assert (grads * along).sum() == pytest.approx(expected, rel=1e-5, abs=1e-8)


def test_curvature_of_the_network_is_the_difference_of_gradients(
    parameters: Any, images: Any
) -> None:
    """A Hessian-vector product agrees with a difference of gradients."""
    along = {name: normal(*x.shape, seed=3) for name, x in parameters.items()}
    gradient = co.grad(digits.loss)

    def slope(at: Any) -> Any:
        grads = gradient(at, images, LABELS)
        return sum((grads[name] * along[name]).sum() for name in along)

    actual = co.grad(slope)(parameters)
    h = 1e-6
    ahead = {name: x + h * along[name] for name, x in parameters.items()}
    behind = {name: x - h * along[name] for name, x in parameters.items()}
    upper, lower = gradient(ahead, images, LABELS), gradient(behind, images, LABELS)
    for name, found in actual.items():
        expected = (upper[name] - lower[name]) / (2 * h)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6, err_msg=name)


def test_per_example_gradients_are_those_of_a_loop(
    parameters: Any, images: Any
) -> None:
    """`vmap(grad(loss))` returns the gradient of each example."""
    found = digits.per_example_grads(parameters, images[:, None], LABELS[:, None])
    for i in range(len(images)):
        alone = co.grad(digits.loss)(parameters, images[i, None], LABELS[i, None])
        for name, g in alone.items():
            np.testing.assert_allclose(found[name][i], g, atol=1e-12, err_msg=name)


def test_norms_are_lengths_of_per_example_gradients(
    parameters: Any, images: Any
) -> None:
    """`grad_norms` is the norm over all parameters of an example."""
    actual = digits.grad_norms(parameters, images, LABELS)
    for i in range(len(images)):
        alone = co.grad(digits.loss)(parameters, images[i, None], LABELS[i, None])
        flat = np.concatenate([g.ravel() for g in alone.values()])
        assert actual[i] == pytest.approx(np.linalg.norm(flat))


# ---- runs ----


def test_adam_first_step_has_the_length_of_the_rate() -> None:
    """The first step is the rate, against the sign of the gradient."""
    start = {"w": np.array([1.0, 2.0])}
    grads = {"w": np.array([0.5, -8.0])}
    moved_to = digits.Adam(start).step(start, grads, 0.1)
    np.testing.assert_allclose(moved_to["w"], [0.9, 2.1], rtol=1e-6)


def test_training_lowers_the_loss() -> None:
    """A few epochs on a few images lower the loss, in single precision."""
    rng = np.random.default_rng(3)
    pixels = rng.uniform(size=(96, 1, 8, 8)).astype(np.float32)
    labels = np.arange(96) % 10
    start = digits.new_parameters(rng)
    before = float(digits.loss(start, pixels, labels))
    trained, history = digits.train(start, pixels, labels, 8, rng)
    assert len(history) == 8
    assert float(digits.loss(trained, pixels, labels)) < before
    assert {x.dtype for x in trained.values()} == {np.dtype(np.float32)}


def test_quick_run_names_three_digits_and_draws_them(tmp_path: Path) -> None:
    """The program runs without a screen and writes its picture."""
    picture = tmp_path / "quick.png"
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            str(PATH),
            "--quick",
            "--picture",
            str(picture),
        ],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert (
        len(re.findall(r"^  no\. +\d+: an? \d, read as \d", done.stdout, re.MULTILINE))
        == 3
    )
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "training: 100%" in done.stderr


def test_full_run_reads_97_of_100_unseen_digits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program reaches its accuracy on unseen digits, and prints what is shown."""
    co.config.checks = "first"
    assert digits.main(["--picture", str(tmp_path / "full.png")]) >= 0.97
    assert prints_what_is_shown("digits.py", capsys.readouterr().out)


def test_picture_goes_to_the_temporary_folder() -> None:
    """Without `--picture` the picture does not land in the current folder."""
    assert digits.options([]).picture.parent == Path(tempfile.gettempdir())


def test_an_eight_is_written_with_an(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The captions read "a 7" and "an 8"."""
    parameters = digits.new_parameters(np.random.default_rng(0))
    pixels, labels = np.zeros((3, 1, 8, 8), np.float32), np.array([7, 8, 8])
    digits.show_strangest(parameters, pixels, labels, tmp_path / "three.png")
    captions = re.findall(r": (an? \d), read", capsys.readouterr().out)
    assert sorted(captions) == ["a 7", "an 8", "an 8"]
