"""A cache of mypy that has read NumPy and this package, for tests to copy."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.mypy.program import CONFIG, PRELUDE, ROOT, run, write


def _set_paths(patch: pytest.MonkeyPatch, packages: Path) -> None:
    paths = [str(ROOT), str(ROOT / "stubs"), str(packages)]
    patch.setenv("MYPYPATH", os.pathsep.join(paths))
    patch.setenv("PYTHONPATH", str(ROOT))


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with NumPy alone, in place of site packages."""
    folder = tmp_path_factory.mktemp("packages")
    (folder / "numpy").symlink_to(Path(np.__file__).parent)
    return folder


@pytest.fixture(scope="module", autouse=True)
def environment(packages: Path) -> Iterator[None]:
    """Paths on which mypy finds this package and its stubs, and NumPy."""
    with pytest.MonkeyPatch.context() as patch:
        _set_paths(patch, packages)
        yield


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory, packages: Path) -> Path:
    """A cache of mypy with NumPy and this package, but no files of tests."""
    folder = tmp_path_factory.mktemp("base")
    write(folder, {"mypy.ini": CONFIG, "base.py": PRELUDE})
    with pytest.MonkeyPatch.context() as patch:
        _set_paths(patch, packages)
        run(folder, folder / "cache", "base.py")
    return folder / "cache"


@pytest.fixture
def folder(tmp_path: Path, cache: Path) -> Path:
    """A folder with a copy of the cache and the options."""
    write(tmp_path, {"mypy.ini": CONFIG})
    shutil.copytree(cache, tmp_path / "cache")
    return tmp_path
