"""The program that draws a map: its formulas against SciPy and scikit-learn, its output."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.examples.test_examples import prints_what_is_shown

pytestmark = pytest.mark.exhaustive
for _name in ("matplotlib", "sklearn", "scipy"):
    pytest.importorskip(_name, reason=f"{_name} is in the extra 'examples'")

PATH = Path(__file__).parents[2] / "examples" / "terrain.py"


def load_program() -> Any:
    """Import the example, which is not part of a package."""
    spec = importlib.util.spec_from_file_location("terrain", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["terrain"] = module
    spec.loader.exec_module(module)
    return module


terrain = load_program()
RNG = np.random.default_rng(0)
PLACES, TARGETS = RNG.uniform(0.0, 9.0, (12, 2)), RNG.uniform(0.0, 9.0, (5, 2))
HEIGHTS = 90.0 * RNG.standard_normal(12)
# Both directions have one length, so that scikit-learn has the same covariance.
THETA = np.array([0.6, 0.6, 0.3, 4.5, 2.0])


def process() -> Any:
    """The Gaussian process of scikit-learn with the same parameters, fitted."""
    from sklearn.gaussian_process import GaussianProcessRegressor  # noqa: PLC0415
    from sklearn.gaussian_process.kernels import (  # noqa: PLC0415
        ConstantKernel,
        Matern,
        WhiteKernel,
    )

    scale, noise = np.exp(2.0 * THETA[3]), np.exp(2.0 * THETA[4])
    kernel = ConstantKernel(scale) * Matern(np.exp(THETA[0]), nu=1.5)
    model = GaussianProcessRegressor(kernel + WhiteKernel(noise), optimizer=None)
    return model.fit(PLACES, HEIGHTS)


def test_loss_is_that_of_scikit_learn() -> None:
    """Minus the logarithm of the probability of the heights."""
    expected = -process().log_marginal_likelihood_value_
    assert terrain.loss(THETA, PLACES, HEIGHTS) == pytest.approx(expected, rel=1e-9)


def test_map_is_that_of_scikit_learn() -> None:
    """Heights in between, and their standard deviations."""
    mean, deviation = terrain.predict(THETA, PLACES, HEIGHTS, TARGETS)
    expected, spread = process().predict(TARGETS, return_std=True)
    np.testing.assert_allclose(mean, expected, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(deviation, spread, rtol=1e-7)


def test_covariance_turns_with_the_direction() -> None:
    """Places turned by an angle have the covariance of a direction turned back."""
    long = THETA + np.array([0.5, 0.0, 0.0, 0.0, 0.0])
    cosine, sine = np.cos(0.4), np.sin(0.4)
    turned = PLACES @ np.array([[cosine, sine], [-sine, cosine]])
    expected = terrain.covariance(long, PLACES, PLACES)
    long[2] += 0.4
    found = terrain.covariance(long, turned, turned)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_slopes_are_those_of_the_map() -> None:
    """The difference of predicted heights."""
    found = terrain.slopes(THETA, PLACES, HEIGHTS, TARGETS)
    for axis in range(2):
        step = 1e-4 * np.eye(2)[axis]
        ahead, _ = terrain.predict(THETA, PLACES, HEIGHTS, TARGETS + step)
        behind, _ = terrain.predict(THETA, PLACES, HEIGHTS, TARGETS - step)
        np.testing.assert_allclose(found[:, axis], (ahead - behind) / 2e-4, rtol=1e-6)


def test_gradient_is_that_of_the_formula() -> None:
    """The check that the program runs itself, at other parameters."""
    terrain.check_gradient(THETA, PLACES, HEIGHTS)


def test_run_prints_what_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program draws its picture."""
    picture = tmp_path / "map.png"
    assert terrain.main(["--picture", str(picture)]) < 100.0
    assert prints_what_is_shown("terrain.py", capsys.readouterr().out)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_picture_goes_to_the_temporary_folder() -> None:
    """Without `--picture` the picture does not land in the current folder."""
    assert terrain.options([]).picture.parent == Path(tempfile.gettempdir())
