"""The program that lets patterns grow: its steps, compiled and not, and its output."""

from __future__ import annotations

import importlib.util
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import customop as co
from tests.examples.test_examples import prints_what_is_shown

pytestmark = pytest.mark.exhaustive
pytest.importorskip("matplotlib", reason="matplotlib is in the extra 'examples'")

PATH = Path(__file__).parents[2] / "examples" / "patterns.py"


def load_program() -> Any:
    """Import the example, which is not part of a package."""
    spec = importlib.util.spec_from_file_location("patterns", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["patterns"] = module
    spec.loader.exec_module(module)
    return module


patterns = load_program()


def test_laplacian_is_that_of_rolls() -> None:
    """On a grid that wraps around."""
    x = np.random.default_rng(2).normal(size=(5, 7))
    rolls = [np.roll(x, by, axis) for by in (1, -1) for axis in (0, 1)]
    np.testing.assert_allclose(patterns.laplacian(x), sum(rolls) - 4.0 * x, atol=1e-14)


def test_what_spreads_is_kept() -> None:
    """A step changes the sum of a substance by what reacts, is fed and dies alone."""
    u, v = patterns.start(24)
    new_u, new_v = patterns.step(u, v)
    eaten = np.sum(u * v * v)
    fed, died = patterns.FEED * np.sum(1.0 - u), (patterns.FEED + patterns.DEATH) * v
    assert np.sum(new_u) == pytest.approx(np.sum(u) - eaten + fed)
    assert np.sum(new_v) == pytest.approx(np.sum(v) + eaten - np.sum(died))


def test_compiled_steps_have_the_same_bits() -> None:
    """On several sizes, one of them above the size of a block."""
    fast = co.compile(patterns.step)
    for size in (17, 40, 300):
        plain, compiled = (patterns.run(one, size, 5) for one in (patterns.step, fast))
        assert np.array_equal(plain, compiled)


def test_run_prints_what_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program draws its picture."""
    picture = tmp_path / "patterns.png"
    times = patterns.main(
        ["--picture", str(picture), "--steps", "20", "--largest", "96"]
    )
    assert {"NumPy", "compiled"} <= times.keys()
    printed = capsys.readouterr().out.replace(
        "48, 96\n", "48, 96, 192, 384, 768, 1536\n"
    )
    assert prints_what_is_shown("patterns.py", printed)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_picture_goes_to_the_temporary_folder() -> None:
    """Without `--picture` the picture does not land in the current folder."""
    assert patterns.options([]).picture.parent == Path(tempfile.gettempdir())
