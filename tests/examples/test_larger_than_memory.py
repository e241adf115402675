"""The program that fits a model to more data than its workers can hold."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.exhaustive, pytest.mark.xdist_group("dask cluster")]
for _name in ("distributed", "matplotlib"):
    pytest.importorskip(_name, reason=f"{_name} is in the extras 'dask' and 'draw'")

PATH = Path(__file__).parents[2] / "examples" / "larger_than_memory.py"


def test_less_memory_than_data(tmp_path: Path) -> None:
    """A smaller run: no worker has its whole share of the data at any time."""
    picture = tmp_path / "tasks.png"
    sizes = ["--rows", "1400000", "--limit", "270", "--steps", "2"]
    done = subprocess.run(
        [sys.executable, "-W", "error", str(PATH), *sizes, "--picture", str(picture)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.search(r"most memory of a worker: (\d+) MB", done.stdout)
    assert found is not None
    assert int(found[1]) < 270 < 560 / 2
    assert picture.read_bytes().startswith(b"\x89PNG")
