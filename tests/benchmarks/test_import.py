"""The cost of the import, and modules that it must not load."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
from table import Row, ratio

_CODE = """
import sys, time
start = time.perf_counter()
import numpy
middle = time.perf_counter()
import {module}
end = time.perf_counter()
print(middle - start, end - middle, *sys.modules)
"""


Import = Callable[[str], tuple[float, float, set[str]]]


@pytest.fixture
def run_import(tmp_path: Path) -> Import:
    """Import NumPy, then a module, in a process of its own.

    Gives the seconds of each, and the names of all loaded modules. Bytecode is kept in a
    folder of the test, so that no compilation is measured.
    """
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(tmp_path)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def run(module: str) -> tuple[float, float, set[str]]:
        return _import(module, environment)

    return run


def _import(module: str, environment: dict[str, str]) -> tuple[float, float, set[str]]:
    command = [sys.executable, "-c", _CODE.format(module=module)]
    run = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    )
    first, second, *loaded = run.stdout.split()
    return float(first), float(second), set(loaded)


def test_import_time(note: Callable[[Row], None], run_import: Import) -> None:
    """Importing the package after NumPy."""
    run_import("customop")
    runs = [run_import("customop") for _ in range(11)]
    ours = statistics.median(run[1] for run in runs)
    numpy = statistics.median(run[0] for run in runs)
    others = {}
    if find_spec("torch") is not None:
        run_import("torch")
        others["torch"] = statistics.median(run_import("torch")[1] for _ in range(3))
    limit = ratio("numpy", 0.35)
    note(Row("import, once NumPy is there", limit, ours, numpy, others))


@pytest.mark.parametrize("module", ["cupy", "torch", "sympy"])
def test_import_brings_no(module: str, run_import: Import) -> None:
    """The package imports none of the large packages that it supports."""
    _, _, loaded = run_import("customop")
    assert module not in loaded
