"""Proof, in fresh processes, that optional libraries are not imported."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

OPTIONAL = {"cupy", "jax", "matplotlib", "mypy", "pytest", "scipy", "sklearn", "sympy"}
OPTIONAL |= {"autograd", "hypothesis", "numpydoc", "plum", "rich", "torch", "tqdm"}

# Programs, from the smallest to the largest.
PROGRAMS = {
    "import": "import customop",
    "call": """
import numpy as np, customop as co
@co.custom_op("optional::twice", mutates_args=())
def twice(x: np.ndarray, k: float = 2.0) -> np.ndarray:
    return x * k
assert twice(np.ones(3)).tolist() == [2.0, 2.0, 2.0]
assert twice(np.ones(3), k=3).tolist() == [3.0, 3.0, 3.0]
""",
    "cuda kernel registered": """
import numpy as np, customop as co
@co.custom_op("optional::twice", mutates_args=(), device_types="cpu")
def twice(x: co.Array) -> co.Array:
    return x + x
@twice.register_kernel("cuda")
def _(x):
    raise AssertionError
assert twice(np.ones(3)).tolist() == [2.0, 2.0, 2.0]
""",
    "transforms": """
import numpy as np, customop as co
f = lambda x: np.sum(np.sin(x) * x)
assert co.grad(f)(np.zeros(3)).tolist() == [0.0, 0.0, 0.0]
assert co.jvp(f, (np.zeros(3),), (np.ones(3),))[1] == 0.0
assert co.vmap(f)(np.zeros((2, 3))).tolist() == [0.0, 0.0]
assert co.eval_shape(f, np.zeros(3)).shape == ()
""",
    "command line": """
import contextlib, io
from customop.cli import main
with contextlib.redirect_stdout(io.StringIO()):
    assert main(["list", "np::sin"]) == 0
    assert main(["explain", "np::sin", "f64[3]"]) == 0
""",
    "error": """
import customop as co
try:
    co.grad(lambda x: x)("no array")
except co.CustomOpError as error:
    str(error)
""",
}
# Modules of Python that a program imports itself if it needs them.
RARE = {"argparse", "asyncio", "csv", "hashlib", "http", "logging", "multiprocessing"}
RARE |= {"pickle", "random", "sqlite3", "string", "tempfile", "unittest", "xml"}
ASK = "\nimport sys\nprint(*{name.partition('.')[0] for name in sys.modules})"


@cache
def run(program: str) -> set[str]:
    """Return the names of the libraries that a program imports."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program + ASK],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize("name", PROGRAMS)
def test_optional_libraries_stay_out(name: str) -> None:
    """The package runs on ndarrays with only its three requirements."""
    assert run(PROGRAMS[name]) & OPTIONAL == set()


@pytest.mark.parametrize("name", ["import", "call", "transforms"])
def test_rare_modules_stay_out(name: str) -> None:
    """The package imports few modules in addition to its requirements."""
    requirements = run("import numpy, optree, typing_extensions")
    assert (run(PROGRAMS[name]) - requirements) & RARE == set()


def test_the_proof_sees_imports() -> None:
    """The test above can fail: it detects an imported library."""
    assert "hypothesis" in run("import hypothesis")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("import", set()),
        ("transforms", {"optree", "typing_extensions"}),
    ],
)
def test_requirements_suffice(name: str, expected: set[str]) -> None:
    """The import adds no distribution to `import numpy`; containers need optree."""
    added = run(PROGRAMS[name]) - run("import numpy") - {"customop"}
    # Keep only modules of installed distributions.
    owners = packages_distributions()
    assert {name for module in added for name in owners.get(module, ())} == expected


# ---- type checkers ----

ROOT = Path(__file__).parents[1]


def read_by_mypy(folder: Path, text: str) -> set[str]:
    """Return the names of the libraries whose sources mypy reads for a program."""
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    (folder / "program.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "-v", "--config-file=", "program.py"],
        cwd=folder,
        env={**os.environ, "MYPYPATH": f"{ROOT}{os.pathsep}{ROOT / 'stubs'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    modules = set(re.findall(r"Parsing .+ \((\w+)", done.stderr))
    assert "customop" in modules
    return modules & packages_distributions().keys()


@pytest.mark.exhaustive
def test_checkers_read_few_libraries(tmp_path: Path) -> None:
    """No import of optree is seen, which imports torch and JAX where they are installed.

    The library that the program itself imports shows that those that mypy reads are seen.
    """
    found = read_by_mypy(tmp_path, "import customop, iniconfig\n")
    # `customop.testing.strategies` is typed by hypothesis.
    named = {"customop", "cupy", "cupyx", "hypothesis", "numpy", "typing_extensions"}
    assert "iniconfig" in found
    assert found <= {*named, "iniconfig"}
