"""Every example of the course runs, alone and without a warning."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("[0-9]*.py"))


def test_the_course_is_complete() -> None:
    """Each example has a number of its own; the eighth comes with graph capture."""
    numbers = [int(path.name[:2]) for path in EXAMPLES]
    assert numbers == [*range(1, 8), *range(9, 13)]


@pytest.mark.parametrize(
    "path",
    [
        # The one on typing runs mypy.
        pytest.param(p, marks=[pytest.mark.exhaustive] * ("typing" in p.stem))
        for p in EXAMPLES
    ],
    ids=lambda path: path.stem,
)
def test_example_runs(path: Path, tmp_path: Path) -> None:
    """An example ends well in an empty directory, with warnings as errors."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(path)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONOPTIMIZE": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_asserts(path: Path) -> None:
    """An example proves what it says at its end."""
    lines = path.read_text(encoding="utf-8").splitlines()
    assert any(line.startswith(("assert", "np.testing.assert")) for line in lines[-25:])
