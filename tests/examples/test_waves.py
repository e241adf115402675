"""The program that looks inside a body: its waves, their gradient and its output."""

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
for _name in ("matplotlib", "scipy"):
    pytest.importorskip(_name, reason=f"{_name} is in the extra 'examples'")

PATH = Path(__file__).parents[2] / "examples" / "waves.py"


def load_program() -> Any:
    """Import the example, which is not part of a package."""
    spec = importlib.util.spec_from_file_location("waves", PATH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["waves"] = module
    spec.loader.exec_module(module)
    return module


waves = load_program()


@pytest.fixture
def speed() -> Any:
    size = (waves.SIZE, waves.SIZE)
    return waves.WATER * np.random.default_rng(1).uniform(0.9, 1.1, size)


def with_new_arrays(speed: Any, speaker: Any) -> Any:
    """The same waves, where each step makes a new array."""
    inside = np.pad(np.ones(np.array(speed.shape) - 2), 1)
    source = np.zeros_like(speed)
    source[tuple(speaker)] = 1.0
    before = now = np.zeros_like(speed)
    heard = []
    for played in waves.PULSE:
        around = sum(np.roll(now, step, axis) for step in (1, -1) for axis in (0, 1))
        rise = inside * speed**2 * (around - 4.0 * now) + played * source
        after = (2.0 * now - waves.FADING * before + rise) * waves.FADING
        heard.append(after[tuple(waves.MICROPHONES.T)])
        before, now = now, after
    return np.stack(heard)


def test_waves_in_place_are_those_of_new_arrays(speed: Any) -> None:
    """One speaker, and all of them by vmap."""
    rows = [with_new_arrays(speed, speaker) for speaker in waves.SPEAKERS]
    np.testing.assert_allclose(
        waves.listen(speed, waves.SPEAKERS[3]), rows[3], rtol=1e-9, atol=1e-12
    )
    found = waves.listen_to_all(speed, waves.SPEAKERS)
    np.testing.assert_allclose(found, rows, rtol=1e-9, atol=1e-12)


def test_gradient_is_that_of_differences(speed: Any) -> None:
    """The check that the program runs itself, at other speeds; arrays stay as they are."""
    heard, given = waves.listen_to_all(waves.phantom(), waves.SPEAKERS), speed.copy()
    waves.check_gradient(speed, heard)
    np.testing.assert_array_equal(speed, given)


def test_waves_take_their_time() -> None:
    """A wave is strongest on the other side after the distance over the speed."""
    water = np.full((waves.SIZE, waves.SIZE), waves.WATER)
    first, last = waves.MICROPHONES[0], waves.MICROPHONES[24]
    heard = np.abs(waves.listen(water, first)[:, 24])
    way = np.linalg.norm(last - first) / waves.WATER
    assert np.argmax(heard) == pytest.approx(np.argmax(waves.PULSE) + way, abs=5.0)


def test_quicker_waves_come_earlier() -> None:
    """The tangent of a faster body is the change of what is heard."""
    water = np.full((waves.SIZE, waves.SIZE), waves.WATER)
    listen = lambda speed: waves.listen_to_all(speed, waves.SPEAKERS[:2])
    _, tangent = co.jvp(listen, (water,), (water,))
    ahead, behind = listen(water * 1.000001), listen(water * 0.999999)
    np.testing.assert_allclose(tangent, (ahead - behind) / 2e-6, rtol=1e-4, atol=1e-6)


def test_run_prints_what_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program draws its picture."""
    picture = tmp_path / "waves.png"
    assert waves.main(["--picture", str(picture)]) < 15.0
    assert prints_what_is_shown("waves.py", capsys.readouterr().out)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_picture_goes_to_the_temporary_folder() -> None:
    """Without `--picture` the picture does not land in the current folder."""
    assert waves.options([]).picture.parent == Path(tempfile.gettempdir())
