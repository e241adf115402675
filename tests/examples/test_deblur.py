"""The program that takes the blur out of a photograph: its model, gradients and output."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import customop as co
from tests.examples.test_examples import prints_what_is_shown

pytestmark = pytest.mark.exhaustive
for _name in ("matplotlib", "sklearn"):
    pytest.importorskip(_name, reason=f"{_name} is in the extra 'examples'")

PATH = Path(__file__).parents[2] / "examples" / "deblur.py"


def load_program() -> Any:
    """Import the example, which is not part of a package."""
    spec = importlib.util.spec_from_file_location("deblur", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["deblur"] = module
    spec.loader.exec_module(module)
    return module


deblur = load_program()
_rng = np.random.default_rng(12)
IMAGE = _rng.uniform(size=(2, 6, 7))


def test_blur_is_the_sum_over_shifts() -> None:
    """It moves the image by each pixel of the kernel, around the borders."""
    kernel = _rng.uniform(size=(6, 7))
    expected = sum(
        kernel[i, j] * np.roll(IMAGE, (i, j), (1, 2))
        for i in range(6)
        for j in range(7)
    )
    np.testing.assert_allclose(deblur.blur(IMAGE, kernel), expected, rtol=1e-12)


@pytest.mark.parametrize("length", [1.0, 4.5, 11.0])
def test_kernel_is_a_line_through_the_first_pixel(length: float) -> None:
    """A horizontal line has its length, its center, and the sum 1."""
    kernel = deblur.motion((9, 40), length, 0.0)
    assert kernel.sum() == pytest.approx(1.0)
    assert np.count_nonzero(kernel[1:]) == 0
    assert 1 / kernel.max() == pytest.approx(length)
    np.testing.assert_array_equal(kernel[0, 1:], kernel[0, :0:-1])


def test_gradient_of_the_cost_is_the_difference() -> None:
    """The image moves in one direction, the cost as the gradient says."""
    kernel = deblur.motion((6, 7), 3.0, 0.4)
    picture, way = _rng.uniform(size=(2, 2, 6, 7))
    fn = lambda x: deblur.cost(x, picture, kernel, 0.1)
    slope = (fn(IMAGE + 1e-5 * way) - fn(IMAGE - 1e-5 * way)) / 2e-5
    assert np.sum(co.grad(fn)(IMAGE) * way) == pytest.approx(slope, rel=1e-8)
    rows = co.vmap(co.grad(fn))(np.stack([IMAGE, picture]))
    np.testing.assert_allclose(rows[1], co.grad(fn)(picture), rtol=1e-12, atol=1e-14)


def test_descent_finds_the_least() -> None:
    """Of a bowl whose steepest slope of the gradient is 1."""
    curves = np.array([1.0, 0.1, 0.01])
    found, costs = deblur.descend(
        co.value_and_grad(lambda x: np.sum(curves * (x - 1) ** 2) / 2),
        np.zeros(3),
        1,
        400,
    )
    np.testing.assert_allclose(found, np.ones(3), atol=1e-2)
    assert costs[-1] < 1e-7 < costs[0]


def test_quick_run_draws_a_picture(tmp_path: Path) -> None:
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
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_full_run_gains_five_decibels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program is as good as it says, and prints what is shown."""
    co.config.checks = "first"
    assert deblur.main(["--picture", str(tmp_path / "full.png")]) >= 26.4
    assert prints_what_is_shown("deblur.py", capsys.readouterr().out)


def test_picture_goes_to_the_temporary_folder() -> None:
    """Without `--picture` the picture does not land in the current folder."""
    assert deblur.options([]).picture.parent == Path(tempfile.gettempdir())
