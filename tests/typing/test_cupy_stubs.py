"""The stubs of CuPy: they agree with it, are complete, and are found by checkers."""

from __future__ import annotations

import ast
import importlib.metadata
import importlib.util
import inspect
import json
import os
import re
import subprocess
import sys
import textwrap
import tomllib
import venv
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typing_extensions

ROOT = Path(__file__).parents[2]
STUBS = ROOT / "stubs"
FILES = sorted(STUBS.glob("cupy*/**/*.pyi"))
ALLOWLIST = Path(__file__).with_name("cupy_allowlist.txt")
SAMPLE = Path(__file__).with_name("cupy_sample.py")

exhaustive = pytest.mark.exhaustive


@pytest.fixture(scope="module")
def release() -> str:
    """The installed release of CuPy, such as "14"; skip the test without one."""
    if importlib.util.find_spec("cupy") is None:
        pytest.skip("CuPy is not installed")
    (name, *_) = importlib.metadata.packages_distributions()["cupy"]
    found = importlib.metadata.version(name).partition(".")[0]
    if found not in ("13", "14"):
        pytest.skip(f"the stubs are those of CuPy 13 and 14, not {found}")
    return found


def _run(*command: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    if importlib.util.find_spec(command[0].partition(".")[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    return subprocess.run(
        [sys.executable, "-m", *command],
        cwd=folder,
        env={**os.environ, "MYPYPATH": str(STUBS) if folder == ROOT else ""},
        capture_output=True,
        text=True,
        check=False,
    )


def _module(path: Path) -> str:
    parts = path.relative_to(STUBS).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


# ---- agreement with CuPy ----


def _named(node: ast.stmt) -> list[tuple[str, int]]:
    """Names that a statement binds, and the line where a comment about each stands."""
    match node:
        case ast.ImportFrom(names=names):
            # A stub exports what it imports as the same name, and nothing else.
            return [(a.name, a.lineno) for a in names if a.name == a.asname]
        case ast.ClassDef(name=name, lineno=line):
            return [(name, line)]
        case ast.FunctionDef(name=name, end_lineno=int(line)):
            return [(name, line)]
        case ast.AnnAssign(target=ast.Name(id=name), end_lineno=int(line)):
            return [(name, line)]
        case ast.Assign(targets=[ast.Name(id=name)], end_lineno=int(line)):
            return [(name, line)]
    return []


def _of_one_release(path: Path) -> Iterator[tuple[str, str]]:
    """Pattern of a name and the only release that it holds for, by its comment."""
    text = path.read_text()
    lines = text.splitlines()
    nodes = [(_module(path), node) for node in ast.parse(text).body]
    for prefix, node in nodes:
        for name, line in _named(node):
            found = re.search(r"# CuPy (\d+)$", lines[line - 1])
            if found:
                yield rf"{re.escape(f'{prefix}.{name}')}(\..*)?", found[1]
            elif isinstance(node, ast.ClassDef):
                nodes += [(f"{prefix}.{name}", member) for member in node.body]


def _allowed(release: str) -> Iterator[str]:
    """Lines of the allowlist for a release."""
    reason = ""
    for line in ALLOWLIST.read_text().splitlines():
        reason = line if line.startswith("#") else reason if line else ""
        assert not line or reason, f"{line} stands below no reason"
        other = re.match(r"# CuPy (\d+):", reason)
        if line and line != reason and (not other or other[1] == release):
            yield line


@exhaustive
def test_stubs_are_those_of_cupy(release: str, tmp_path: Path) -> None:
    """Parameters, defaults, properties and classes in the stubs are those of CuPy."""
    other = [p for f in FILES for p, only in _of_one_release(f) if only != release]
    (tmp_path / "mypy.ini").write_text("[mypy]\n")
    (tmp_path / "reasons").write_text("\n".join(_allowed(release)))
    (tmp_path / "other").write_text("\n".join(other))
    done = _run(
        "mypy.stubtest",
        *("cupy", "cupyx", "--ignore-missing-stub", "--concise"),
        f"--mypy-config-file={tmp_path / 'mypy.ini'}",
        f"--allowlist={tmp_path / 'reasons'}",
        f"--allowlist={tmp_path / 'other'}",
    )
    # A line of the allowlist that is not needed is reported, too.
    unused = {f"note: unused allowlist entry {pattern}" for pattern in other}
    assert set(done.stdout.splitlines()) - unused == set()
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", ["13", "14"])
def test_every_exception_has_a_reason(number: str) -> None:
    """A line of the allowlist stands below a comment that says why, and names a stub."""
    modules = "|".join(_module(path).replace(".", r"\\\.") for path in FILES)
    for line in _allowed(number):
        assert re.match(rf"({modules})\\\.", line), line


def _stub_names(module: str) -> set[str]:
    """Names of a module's stub; empty for other names."""
    paths = {_module(path): path for path in FILES}
    if module not in paths:
        return set()
    return {
        n for node in ast.parse(paths[module].read_text()).body for n, _ in _named(node)
    }


@pytest.fixture(scope="module")
def survey(release: str) -> dict[str, Any]:
    """What the installed release exports."""
    done = subprocess.run(
        [sys.executable, str(STUBS / "survey.py")],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


@exhaustive
def test_no_public_name_is_missing(survey: dict[str, Any]) -> None:
    """The stubs have every public name of CuPy's public modules."""
    found = {module: set(names) for module, names in survey["modules"].items()}
    assert {"scatter_add", "profiler"} <= found["cupyx"]
    missing = {module: found[module] - _stub_names(module) for module in found}
    assert {module: names for module, names in missing.items() if names} == {}


@exhaustive
def test_files_are_named_as_those_of_cupy(survey: dict[str, Any]) -> None:
    """A package is a package in both, since pyright lays the stubs over CuPy."""
    packages = {_module(path) for path in FILES if path.name == "__init__.pyi"}
    assert packages & survey["modules"].keys() == set(survey["packages"])


def _returns_containers(fn: Callable[..., Any]) -> bool:
    """Whether each return statement of a function has a tuple or a list."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(fn)))).body
    nested = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n != tree]
    inner = {node for function in nested for node in ast.walk(function)}
    found = [n for n in ast.walk(tree) if isinstance(n, ast.Return) and n not in inner]
    kinds = (ast.Tuple, ast.List, ast.ListComp)
    return bool(found) and all(isinstance(n.value, kinds) for n in found)


@exhaustive
def test_results_are_arrays_where_cupy_returns_no_tuple(survey: dict[str, Any]) -> None:
    """A function with the result ndarray does not return tuples or lists."""
    wrong = []
    for path in FILES:
        if _module(path) not in survey["modules"]:
            continue
        with warnings.catch_warnings(action="ignore"):
            module = importlib.import_module(_module(path))
        for node in ast.parse(path.read_text()).body:
            match node:
                case ast.FunctionDef(name=name, returns=ast.Name(id="ndarray")):
                    fn = getattr(module, name, None)
                    if inspect.isfunction(fn) and _returns_containers(fn):
                        wrong.append(f"{module.__name__}.{name}")
    assert wrong == []


# ---- names that this project uses ----


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
    if not re.search(r"\bimport .*cupy|\bcp: Any", text):
        return set()
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


@exhaustive
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


# ---- how checkers find the stubs ----


WRONG = """
import cupy, cupyx
reveal_type(cupy.zeros(3).get())
reveal_type(cupy.exp(cupy.ones(2)) + 1.0)
cupy.zeros("3")
cupy.nothing
cupyx.scatter_ad
"""
SHOWN = ["ndarray[tuple[Any, ...], dtype[Any]]", "ndarray[Any, Any]"]


def _packages(folder: Path) -> tuple[str, Path]:
    """An interpreter that finds NumPy and this package with its stubs, as installed."""
    venv.create(folder, symlinks=True, with_pip=False)
    (place,) = folder.glob("lib/python3*/site-packages")
    for source in (Path(np.__file__).parent, ROOT / "customop"):
        (place / source.name).symlink_to(source)
    extensions = Path(typing_extensions.__file__)
    (place / extensions.name).symlink_to(extensions)
    included = _project()["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    for source, name in included.items():
        (place / name).symlink_to(ROOT / source)
    return str(folder / "bin" / "python"), place


def _project() -> dict[str, dict]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


@pytest.fixture(scope="module")
def without_cupy(tmp_path_factory: pytest.TempPathFactory) -> str:
    return _packages(tmp_path_factory.mktemp("without"))[0]


@pytest.fixture(scope="module")
def beside_cupy(tmp_path_factory: pytest.TempPathFactory) -> str:
    """An interpreter that finds CuPy, or files of the same names without types."""
    python, place = _packages(tmp_path_factory.mktemp("beside"))
    for path in FILES:
        file = (place / path.relative_to(STUBS)).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("def zeros(*args): ...\n")
    return python


def _said_by_mypy(python: str, folder: Path) -> tuple[list[str], list[str], str]:
    options = ["--config-file=", "--strict", f"--cache-dir={folder / 'cache'}"]
    options += ["--no-error-summary", f"--python-executable={python}"]
    done = _run("mypy", *options, "wrong.py", "sample.py", folder=folder)
    types = re.findall(r'Revealed type is "(.*)"', done.stdout)
    shown = [re.sub(r"\b(?:[a-z_]+\.)+", "", text) for text in types]
    wrong = re.findall(r"^wrong\.py:(\d+): error:", done.stdout, re.MULTILINE)
    return shown, wrong, "\n".join(re.findall(r"^sample.*", done.stdout, re.MULTILINE))


def _said_by_pyright(python: str, folder: Path) -> tuple[list[str], list[str], str]:
    settings = {
        "typeCheckingMode": "strict",
        "reportMissingModuleSource": "none",
        "reportUnknownMemberType": "none",
    }
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    done = _run("pyright", "--outputjson", "--pythonpath", python, folder=folder)
    said = json.loads(done.stdout[done.stdout.index("{") :])["generalDiagnostics"]
    types = [s["message"] for s in said if s["severity"] == "information"]
    shown = [text.partition(" is ")[2].strip('"') for text in types]
    errors = [s for s in said if s["severity"] == "error"]
    wrong = [s for s in errors if s["file"].endswith("wrong.py")]
    lines = sorted({str(s["range"]["start"]["line"] + 1) for s in wrong})
    rest = "\n".join(s["message"] for s in errors if s not in wrong)
    return [text.replace("_AnyShape", "tuple[Any, ...]") for text in shown], lines, rest


CHECKERS = {"mypy": _said_by_mypy, "pyright": _said_by_pyright}


@exhaustive
@pytest.mark.parametrize("checker", CHECKERS)
@pytest.mark.parametrize("place", ["without_cupy", "beside_cupy"])
def test_checkers_find_the_stubs(
    checker: str, place: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Without settings, checkers take the stubs, and accept the sample in strict mode."""
    (tmp_path / "wrong.py").write_text(WRONG)
    (tmp_path / "sample.py").write_text(SAMPLE.read_text())
    said = CHECKERS[checker](request.getfixturevalue(place), tmp_path)
    assert said == (SHOWN, ["5", "6", "7"], "")


@exhaustive
def test_stubs_are_right_by_themselves(tmp_path: Path) -> None:
    """Strict mypy finds no error in the stubs."""
    where = ["--config-file=", f"--cache-dir={tmp_path}"]
    done = _run("mypy", "--strict", *where, *map(str, FILES))
    assert done.stdout == f"Success: no issues found in {len(FILES)} source files\n"


# ---- the wheel ----


@pytest.mark.parametrize("package", ["cupy", "cupyx"])
def test_the_wheel_has_partial_stubs(package: str) -> None:
    """The wheel has stub packages (PEP 561); checkers read CuPy for what they lack."""
    included = _project()["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert included[f"stubs/{package}"] == f"{package}-stubs"
    assert (STUBS / package / "py.typed").read_text() == "partial\n"


@exhaustive
def test_the_wheel_is_built_with_the_stubs(tmp_path: Path) -> None:
    """Each stub is in the wheel, below the name where checkers look for it."""
    done = _run("hatchling", "build", "-t", "wheel", "-d", str(tmp_path))
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    found = {n for n in zipfile.ZipFile(wheel).namelist() if n.startswith("cupy")}
    expected = {
        re.sub(r"^(cupyx?)", r"\1-stubs", str(p.relative_to(STUBS))) for p in FILES
    }
    assert found == expected | {"cupy-stubs/py.typed", "cupyx-stubs/py.typed"}
