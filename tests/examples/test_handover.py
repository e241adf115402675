"""The program that hands its training to another process."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import customop as co
from tests.examples.test_examples import prints_what_is_shown

pytestmark = pytest.mark.exhaustive
for _name in ("matplotlib", "sklearn", "tqdm"):
    pytest.importorskip(_name, reason=f"{_name} is in the extra 'examples'")

PATH = Path(__file__).parents[2] / "examples" / "handover.py"


@pytest.fixture(scope="module")
def handover() -> Any:
    """The example as a module, with a module of its own for the digits."""
    spec = importlib.util.spec_from_file_location("handover", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def given(handover: Any) -> tuple[Any, Any, Any]:
    rng = np.random.default_rng(0)
    parameters = handover.digits.new_parameters(rng)
    images = rng.uniform(size=(12, 1, 8, 8)).astype(np.float32)
    return handover.first_state(parameters), images, np.arange(12) % 10


def test_opened_operators_compute_the_same(handover: Any) -> None:
    """The plain code in the place of each operator gives what its kernel gives."""
    rng = np.random.default_rng(1)
    x, w, g = (rng.normal(size=s) for s in ((2, 3, 6, 6), (4, 3, 3, 3), (2, 4, 6, 6)))
    logits, labels = rng.normal(size=(5, 7)), rng.integers(7, size=5)
    arguments = {
        "conv2d": (x, w, 1),
        "conv2d_input_grad": (g, w, 1),
        "conv2d_weight_grad": (x, g, 1),
        "mean_pool": (x, 2),
        "mean_pool_grad": (g, 2),
        "softmax": (logits,),
        "softmax_cross_entropy": (logits, labels),
    }
    for op, opened in handover.OPENED.items():
        args = arguments.pop(op.name)
        np.testing.assert_allclose(opened(*args), op(*args), atol=1e-12)
    assert arguments == {}


def test_the_step_is_for_batches_of_any_size(handover: Any, given: Any) -> None:
    """One graph serves batches of other sizes than the captured one."""
    state, images, labels = given
    step = handover.capture_step(state, images, labels)
    rate = np.float32(0.01)
    for count in (12, 7, 1):
        new, value = step(state, images[:count], labels[:count], rate)
        expected = handover.train_step(state, images[:count], labels[:count], rate)
        assert value == pytest.approx(expected[1], rel=1e-5)
        for mine, other in zip(
            co.tree.leaves(new), co.tree.leaves(expected[0]), strict=True
        ):
            np.testing.assert_allclose(mine, other, rtol=1e-3, atol=1e-5)


def test_adam_is_that_of_the_digits(handover: Any, given: Any) -> None:
    """The function from state to state moves parameters as the class does."""
    state, images, labels = given
    adam = handover.digits.Adam(state["parameters"])
    parameters = state["parameters"]
    for _ in range(3):
        grads = co.grad(handover.digits.loss)(parameters, images, labels)
        parameters = adam.step(parameters, grads, 0.01)
        state, _ = handover.train_step(state, images, labels, np.float32(0.01))
    for name, mine in state["parameters"].items():
        np.testing.assert_allclose(mine, parameters[name], rtol=1e-3, atol=2e-5)


def test_handover_prints_what_is_shown(tmp_path: Path) -> None:
    """The program runs in an empty folder, which stays empty, and without warnings."""
    folder, picture = tmp_path / "empty", tmp_path / "losses.png"
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-W", "error", str(PATH), "--picture", str(picture)],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr
    assert prints_what_is_shown("handover.py", done.stdout), done.stdout
    assert [*folder.iterdir()] == []
    assert picture.read_bytes().startswith(b"\x89PNG")
