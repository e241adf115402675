"""The site, built once from a copy of the examples, so that nothing is written beside them."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("sphinx", "furo", "myst_parser", "numpydoc", "sphinx_design", "matplotlib")
MADE = shutil.ignore_patterns("api", "gallery", "guide")


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the pages; the build must not warn."""
    for package in PACKAGES:
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is in the extra 'docs'")
    folder = tmp_path_factory.mktemp("site")
    examples = folder / "examples"
    shutil.copytree(ROOT / "examples", examples, ignore=_made_by_builds)
    shutil.copy(ROOT / "README.md", folder)
    pages = folder / "pages"
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "sphinx",
            str(examples / "site"),
            str(pages),
            "-W",
            "-q",
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert done.stdout == ""
    return pages


def _made_by_builds(folder: str, names: list[str]) -> set[str]:
    return MADE(folder, names) if Path(folder) == ROOT / "examples" / "site" else set()
