"""The stub of CuPy: it agrees with CuPy, has what this project uses, and is found."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import json
import os
import re
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import typing_extensions

pytestmark = pytest.mark.exhaustive

ROOT = Path(__file__).parents[2]
STUBS = ROOT / "stubs"
# The stub has the signatures of this release.
RELEASE = "14"


def _cupy_version() -> str:
    """The installed version of CuPy; skip the test without one."""
    if importlib.util.find_spec("cupy") is None:
        pytest.skip("CuPy is not installed")
    (name, *_) = importlib.metadata.packages_distributions()["cupy"]
    return importlib.metadata.version(name)


def _run(*command: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    if importlib.util.find_spec(command[0].partition(".")[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env={**os.environ, "MYPYPATH": str(STUBS)},
        capture_output=True,
        text=True,
        check=False,
    )


# ---- agreement with CuPy ----


def test_signatures_are_those_of_cupy(tmp_path: Path) -> None:
    """Parameters and properties in the stub are those of CuPy."""
    version = _cupy_version()
    if version.partition(".")[0] != RELEASE:
        pytest.skip(f"the stub is that of CuPy {RELEASE}, not {version}")
    settings = tmp_path / "mypy.ini"
    settings.write_text("[mypy]\n")
    done = _run(
        "mypy.stubtest",
        "cupy",
        "--ignore-missing-stub",
        "--concise",
        f"--mypy-config-file={settings}",
        "--allowlist=tests/typing/cupy_allowlist.txt",
    )
    # stubtest also reports a line of the allowlist that is not needed.
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_every_exception_has_a_reason() -> None:
    """A line of the allowlist stands below a comment that says why."""
    lines = (ROOT / "tests" / "typing" / "cupy_allowlist.txt").read_text().splitlines()
    reason = ""
    for line in lines:
        reason = line if line.startswith("#") else reason if line else ""
        assert not line or reason, line


# ---- names that this project uses ----


def _stub_names(module: str) -> set[str]:
    """Names of a module of the stub, with its submodules; empty for other names."""
    folder = STUBS.joinpath(*module.split("."))
    path = folder / "__init__.pyi" if folder.is_dir() else folder.with_suffix(".pyi")
    if not path.exists():
        return set()
    found: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                found.add(name)
            case ast.AnnAssign(target=ast.Name(id=name)):
                found.add(name)
            case ast.ImportFrom(names=names):
                found |= {alias.asname for alias in names if alias.asname}
    return found


def _sources() -> Iterator[tuple[str, str]]:
    folders = ("customop", "examples", "tests")
    for path in sorted(p for name in folders for p in (ROOT / name).rglob("*.py")):
        if path.parent.name == "fail":  # where names are wrong on purpose
            continue
        yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
    for page in (ROOT / "README.md", ROOT / "examples" / "guide" / "gpu.md"):
        blocks = re.findall(
            r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL
        )
        for number, text in enumerate(blocks):
            yield f"{page.name}, block {number}", text


def _uses(text: str) -> set[str]:
    """Dotted names in a source that begin with its name of the module CuPy."""
    tree = ast.parse(text)
    aliases = {"cp"} if "cp: Any" in text else set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            aliases |= {a.asname or a.name for a in node.names if a.name == "cupy"}
    found = {ast.unparse(n) for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    pairs = {
        name.partition(".")[::2] for name in found if re.fullmatch(r"[\w.]+", name)
    }
    return {f"cupy.{rest}" for first, rest in pairs if first in aliases}


def _missing(name: str) -> bool:
    """Whether the stub lacks a dotted name; members of classes are not looked up."""
    module, *parts = name.split(".")
    for part in parts:
        known = _stub_names(module)
        if part not in known:
            return bool(known)
        module = f"{module}.{part}"
    return False


def test_every_name_in_use_is_in_the_stub() -> None:
    """The stub has every name of CuPy in the package, examples, tests and README."""
    used = {name: place for place, text in _sources() for name in _uses(text)}
    assert {"cupy.RawKernel", "cupy.add.at", "cupy.linalg.norm"} <= used.keys()
    assert {n: place for n, place in used.items() if _missing(n)} == {}


@pytest.mark.parametrize(
    ("name", "missing"),
    [
        ("cupy.zeros", False),
        ("cupy.zero", True),
        ("cupy.cuda.runtime.getDeviceCount", False),
        ("cupy.cuda.runtime.getDevices", True),
        ("cupy.add.at", False),
    ],
)
def test_the_search_sees_what_is_missing(name: str, missing: bool) -> None:
    """A name that the stub lacks is found, at any depth of modules."""
    assert _missing(name) is missing


# ---- with and without CuPy ----


TEXT = """
import cupy

reveal_type(cupy.zeros(3).get())
reveal_type(cupy.exp(cupy.ones(2)) + 1.0)
cupy.zeros("3")
cupy.nothing
"""
SHOWN = ["ndarray[tuple[Any, ...], dtype[Any]]", "ndarray"]


@pytest.fixture(scope="module")
def python_without_cupy(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter that finds NumPy, but not CuPy."""
    folder = tmp_path_factory.mktemp("without")
    venv.create(folder, symlinks=True, with_pip=False)
    (place,) = folder.glob("lib/python3*/site-packages")
    numpy = Path(np.__file__).parent
    (place / "numpy").symlink_to(numpy)
    extensions = Path(typing_extensions.__file__)
    (place / extensions.name).symlink_to(extensions)
    return str(folder / "bin" / "python")


def _revealed_by_mypy(python: str, folder: Path) -> tuple[list[str], list[str]]:
    (folder / "user.py").write_text(TEXT)
    options = ["--config-file=", "--strict", f"--cache-dir={folder / 'cache'}"]
    done = _run(
        "mypy", *options, f"--python-executable={python}", "user.py", folder=folder
    )
    types = re.findall(r'Revealed type is "(.*)"', done.stdout)
    shown = [re.sub(r"\b(?:[a-z_]+\.)+", "", text) for text in types]
    return shown, re.findall(r"^user\.py:(\d+): error:", done.stdout, re.MULTILINE)


def _revealed_by_pyright(python: str, folder: Path) -> tuple[list[str], list[str]]:
    (folder / "user.py").write_text(TEXT)
    settings = {
        "typeCheckingMode": "strict",
        "stubPath": str(STUBS),
        "reportMissingModuleSource": "none",
        "reportUnknownMemberType": "none",
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    done = _run("pyright", "--outputjson", "--pythonpath", python, folder=folder)
    said = json.loads(done.stdout[done.stdout.index("{") :])["generalDiagnostics"]
    types = [s["message"] for s in said if s["severity"] == "information"]
    wrong = {s["range"]["start"]["line"] + 1 for s in said if s["severity"] == "error"}
    shown = [text.partition(" is ")[2].strip('"') for text in types]
    return [text.replace("_AnyShape", "tuple[Any, ...]") for text in shown], [
        str(line) for line in sorted(wrong)
    ]


CHECKERS = {"mypy": _revealed_by_mypy, "pyright": _revealed_by_pyright}


@pytest.mark.parametrize("checker", CHECKERS)
def test_the_stub_is_used_without_cupy(
    checker: str, python_without_cupy: str, tmp_path: Path
) -> None:
    """Checkers use the stub if CuPy is not installed."""
    shown, wrong = CHECKERS[checker](python_without_cupy, tmp_path)
    assert (shown, wrong) == (SHOWN, ["6", "7"])


@pytest.mark.parametrize("checker", CHECKERS)
def test_the_stub_is_used_with_cupy(checker: str, tmp_path: Path) -> None:
    """Checkers use the stub if CuPy is installed, since CuPy has no types."""
    _cupy_version()
    shown, wrong = CHECKERS[checker](sys.executable, tmp_path)
    assert (shown, wrong) == (SHOWN, ["6", "7"])
